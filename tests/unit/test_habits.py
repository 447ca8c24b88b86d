"""Novelty fades with repetition and comes back with absence, in whole numbers only."""

from hypothesis import given
from hypothesis import strategies as st

from noema.cognition.habits import (
    DAY_US,
    MICRO,
    SECOND_US,
    THRESHOLD,
    UNIT,
    WEIGHTS,
    TopicStats,
    admit,
    burst,
    decay,
    evict,
    habituation,
    log2_micro,
    novelty,
    observe,
    pace,
    recent,
    surprise,
)

HOUR = 3600 * SECOND_US
MINUTE = 60 * SECOND_US
START = 1_700_000_000 * SECOND_US


def repeated(times: int, every_us: int, at_us: int = START) -> TopicStats:
    stats = observe(None, at_us)
    for i in range(1, times):
        stats = observe(stats, at_us + i * every_us)
    return stats


def ignites(stats: TopicStats | None, at_us: int) -> bool:
    score = WEIGHTS["novelty"] * novelty(stats, at_us)
    score -= WEIGHTS["habituation"] * habituation(stats, at_us)
    return score >= THRESHOLD


@given(
    st.integers(0, 10**15), st.integers(0, 10**13), st.integers(0, 10**13), st.integers(1, 10**13)
)
def test_decay_never_rises_with_time_and_halves_in_a_half_life(
    value: int, early: int, late: int, half: int
) -> None:
    early, late = sorted((early, late))

    assert 0 <= decay(value, late, half) <= decay(value, early, half) <= value
    assert decay(value, half, half) == value // 2


def test_decay_is_the_same_in_one_step_and_in_many() -> None:
    value = 10**12
    for _ in range(1000):
        value = decay(value, DAY_US // 1000, DAY_US)

    assert abs(value - 5 * 10**11) < 5 * 10**9


@given(st.integers(1, 10**30))
def test_log2_is_monotone_and_exact_at_powers_of_two(value: int) -> None:
    bits = value.bit_length() - 1

    assert log2_micro(1 << bits) == bits * MICRO
    assert bits * MICRO <= log2_micro(value) <= log2_micro(value + 1) <= (bits + 1) * MICRO


def test_novelty_halves_with_each_occurrence() -> None:
    once = observe(None, START)

    assert novelty(None, START) == MICRO
    assert novelty(once, START) == MICRO // 2
    assert novelty(observe(once, START), START) == MICRO // 4
    assert novelty(observe(once, START, 7), START) == novelty(observe(once, START, 900), START)


def test_the_first_two_lines_ignite_and_the_third_does_not() -> None:
    none = None
    first = admit(observe(none, START), START)
    second = admit(observe(first, START), START)

    assert ignites(none, START)
    assert ignites(first, START)
    assert not ignites(second, START)


def test_a_flood_is_news_again_after_some_days_of_quiet() -> None:
    flood = admit(admit(repeated(500, SECOND_US), START + 500 * SECOND_US), START + 500 * SECOND_US)

    assert not ignites(flood, flood.last_us + 2 * DAY_US)
    assert ignites(flood, flood.last_us + 4 * DAY_US)


def test_what_comes_every_week_is_forgotten_at_its_own_pace() -> None:
    weekly = repeated(6, 7 * DAY_US)

    assert pace(repeated(2, 7 * DAY_US)) == DAY_US
    assert pace(weekly) == 7 * DAY_US
    assert pace(repeated(100, HOUR)) == DAY_US
    assert novelty(weekly, weekly.last_us + 7 * DAY_US) < MICRO * 6 // 10


def test_time_never_runs_backwards_for_a_topic() -> None:
    stats = observe(None, START)

    again = observe(stats, START - 30 * DAY_US)

    assert again.last_us == START
    assert again.count == 2 * UNIT
    assert admit(again, 0).habit_us == START
    assert recent(again, 0) == again.count


def test_admissions_add_up_to_a_habit_that_fades() -> None:
    stats = observe(None, START)
    once = admit(stats, START)
    twice = admit(once, START)

    assert habituation(stats, START) == 0
    assert habituation(once, START) == 500_000
    assert habituation(twice, START) == 750_000
    assert habituation(twice, START + 14 * DAY_US) == 375_000


def test_surprise_is_the_rarity_of_the_topic_among_all() -> None:
    seen = observe(None, START, 3)

    assert surprise(None, 0, START) == 0
    assert surprise(None, 4095 * UNIT, START) == MICRO
    assert surprise(seen, 4095 * UNIT, START) == MICRO * 10 // 12
    assert surprise(seen, 0, START) == 0


def test_twenty_times_the_usual_rate_is_a_burst() -> None:
    stats = repeated(72, HOUR)
    assert burst(stats, stats.last_us) == (0, 0)

    for i in range(1, 60):
        stats = observe(stats, START + 71 * HOUR + i * MINUTE)
    ratio, feature = burst(stats, stats.last_us)

    assert ratio > 8 * MICRO
    assert WEIGHTS["urgency"] * feature - WEIGHTS["habituation"] * MICRO // 2 > THRESHOLD


def test_a_burst_is_news_once_and_again_only_when_it_has_grown() -> None:
    stats = observe(repeated(72, HOUR), START + 72 * HOUR, 40)
    now = stats.last_us
    assert burst(stats, now)[1] > 0

    stats = admit(stats, now)
    assert burst(observe(stats, now + MINUTE, 40), now + MINUTE)[1] == 0
    assert burst(observe(stats, now + MINUTE, 400), now + MINUTE)[1] > 0


def test_a_steady_flood_and_a_new_topic_are_no_burst() -> None:
    steady = repeated(5000, MINUTE)
    new = observe(None, START, 5000)

    assert burst(steady, steady.last_us)[1] == 0
    assert burst(new, START) == (0, 0)
    assert burst(None, START) == (0, 0)


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(-(10**16), 10**16), st.integers(1, 5000)), max_size=60
    ),
    st.integers(-(10**16), 10**17),
)
def test_whatever_happened_every_feature_is_a_micro_unit(
    story: list[tuple[bool, int, int]], now: int
) -> None:
    stats = None
    for is_admission, at_us, count in story:
        stats = admit(stats, at_us) if is_admission and stats else observe(stats, at_us, count)

    features = [
        novelty(stats, now),
        surprise(stats, 10**9, now),
        habituation(stats, now),
        burst(stats, now)[1],
    ]

    assert all(type(f) is int and 0 <= f <= MICRO for f in features)


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=60), st.integers(1, 40))
def test_eviction_keeps_the_recent_whatever_the_order(seen: dict[str, int], cap: int) -> None:
    topics = {key: observe(None, at) for key, at in seen.items()}
    turned = dict(reversed(topics.items()))

    kept = evict(topics, cap)

    assert len(kept) <= cap
    assert kept == evict(turned, cap)
    if len(topics) > cap:
        assert len(kept) == cap - cap // 8
        worst = min((topics[k].last_us, k) for k in kept) if kept else (0, "")
        assert all((topics[k].last_us, k) < worst for k in topics if k not in kept) or not kept
    else:
        assert kept == topics

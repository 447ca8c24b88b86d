"""What a mind remembers of each topic, and the features that follow from it.

A mind notices what is new and gets used to what repeats. For every topic it keeps a handful of
integers, part of its recorded state; the features are pure functions of them and of a time, so a
replay computes the same numbers. The clock is the stimuli's own (`occurred_at`), in whole
microseconds since 1970, and a topic's clock never runs backwards: what comes with an earlier time
counts at the latest time the topic has seen.

Four quantities decay, by halves:

- `count`: how often the topic came, lately. One occurrence is `UNIT`. Novelty is 2^-count, surprise
  the bits of its share of all that came. It halves in a day, for a topic that comes less than daily
  in the mean distance of its visits (`pace`).
- `fast`: the same over minutes (it halves in thirty); held against `count` it tells a burst.
- `habit`: how used the mind is to thinking about it. Each admission halves what is missing to
  1,000,000; it halves in fourteen paces.
- `noticed`: the highest `fast` at an admission; a burst is news once. It halves in a pace.

So of a flood the first two lines are news, the third is not, and the topic is news again when it
has been away for somewhat over three days, or at once when it comes much faster than it ever did.
What comes every day, or every week, becomes a habit and is thought about ever less.

The weights below were measured with one candidate per topic and cycle, at most seven winners, what
loses only on that staying pending: on three system logs of 2,000 lines, fed by 1, 100 and 2,000
lines, every line of a template with at most two lines was among the admitted, at 2 to 11 % of all
lines.
"""

from collections.abc import Mapping
from math import isqrt
from typing import Final

import msgspec

MICRO: Final = 1_000_000
UNIT: Final = 1_000_000
"""One occurrence, in the unit of `count` and `fast`."""

SECOND_US: Final = 1_000_000
DAY_US: Final = 24 * 3600 * SECOND_US
FAST_HALF_LIFE_US: Final = 1800 * SECOND_US
HABIT_PACES: Final = 14

VISIT_GAP_US: Final = 8 * 3600 * SECOND_US
RHYTHM_VISITS: Final = 3
SLOWEST_US: Final = 30 * DAY_US

COUNT_CAP: Final = 8 * UNIT
"""Novelty counts no more than this, so that a flood of thousands is news again as soon as one of
eight lines: after three halvings the count is one."""

WEIGHTS: Final[Mapping[str, int]] = {
    "novelty": 2_000_000,
    "surprise": 200_000,
    "intensity": 300_000,
    "urgency": 3_000_000,
    "habituation": 1_000_000,
}
"""Recommended weights, micro-units; habituation is subtracted. Another negative feature may take
about 100,000 in all before the second line of a topic no longer ignites."""

THRESHOLD: Final = 400_000 * MICRO
"""Ignition, in score units (weight times feature)."""

RARE: Final = 500_000
"""Surprise from which a topic is rare: six bits, one in 64."""

BURST_RATIO: Final = 8
BURST_LEAST: Final = 8 * UNIT
BURST_PAST: Final = 2 * UNIT
BURST_AGE_US: Final = 4 * FAST_HALF_LIFE_US

_SURPRISE_BITS: Final = 12
_STEPS: Final = 64


def _curve() -> tuple[int, ...]:
    # 2^(-i/64) in units of 2^-32, from square roots of whole numbers: the same on every machine.
    step = 1 << 127
    for _ in range(6):
        step = isqrt(step << 128)
    value = 1 << 128
    points = []
    for _ in range(_STEPS + 1):
        points.append(value >> 96)
        value = value * step >> 128
    return tuple(points)


_CURVE: Final = _curve()


class TopicStats(msgspec.Struct, frozen=True, gc=False):
    """What a mind keeps of one topic. Times in microseconds; the levels are as of those times.

    `seen` counts every occurrence and never decays; it is for people, no feature uses it. `visits`
    counts the occurrences that followed eight hours of quiet, the first included.
    """

    first_us: int
    last_us: int
    seen: int
    visits: int
    count: int
    fast: int
    habit: int = 0
    noticed: int = 0
    habit_us: int = 0


def decay(value: int, elapsed_us: int, half_life_us: int) -> int:
    """Return value * 2^(-elapsed / half-life), in integers only, never rising with time.

    Whole half-lives are shifts; inside one, straight lines between 64 points of the curve, at most
    0.002 % above it. Linear between 1 and 1/2 alone would let what is touched often decay 1.4 times
    too slowly. A negative elapsed time counts as none.
    """
    if elapsed_us <= 0 or value <= 0:
        return max(value, 0)
    whole, part = divmod(elapsed_us, half_life_us)
    if whole >= value.bit_length():
        return 0
    index, rest = divmod(part * _STEPS, half_life_us)
    high = _CURVE[index]
    factor = high - (high - _CURVE[index + 1]) * rest // half_life_us
    return (value * factor >> 32) >> whole


def log2_micro(value: int) -> int:
    """Return log2(value) in millionths, exact at powers of two, straight between; 0 below 1."""
    if value < 1:
        return 0
    whole = value.bit_length() - 1
    return whole * MICRO + ((value - (1 << whole)) * MICRO >> whole)


def observe(stats: TopicStats | None, at_us: int, count: int = 1) -> TopicStats:
    """Return the statistics after `count` more occurrences then, or at the latest time seen."""
    if stats is None:
        level = count * UNIT
        return TopicStats(at_us, at_us, count, 1, level, level, 0, 0, at_us)
    now = max(at_us, stats.last_us)
    elapsed = now - stats.last_us
    return TopicStats(
        stats.first_us,
        now,
        stats.seen + count,
        stats.visits + (elapsed > VISIT_GAP_US),
        decay(stats.count, elapsed, pace(stats)) + count * UNIT,
        decay(stats.fast, elapsed, FAST_HALF_LIFE_US) + count * UNIT,
        stats.habit,
        stats.noticed,
        stats.habit_us,
    )


def admit(stats: TopicStats, at_us: int) -> TopicStats:
    """Return the statistics after a thought of the topic was admitted: habit' = (habit + 1) / 2."""
    now = max(at_us, stats.habit_us, stats.last_us)
    elapsed = now - stats.habit_us
    fast = decay(stats.fast, now - stats.last_us, FAST_HALF_LIFE_US)
    return TopicStats(
        stats.first_us,
        stats.last_us,
        stats.seen,
        stats.visits,
        stats.count,
        stats.fast,
        (decay(stats.habit, elapsed, HABIT_PACES * pace(stats)) + MICRO) // 2,
        max(decay(stats.noticed, elapsed, pace(stats)), fast),
        now,
    )


def pace(stats: TopicStats) -> int:
    """Return the half-life of the topic's count, in microseconds: a day, or its own rhythm.

    From the third visit on (a visit follows eight hours of quiet) a topic that visits less than
    daily is forgotten at its mean distance between visits, to thirty days: what comes every week
    becomes a habit too.
    """
    if stats.visits < RHYTHM_VISITS:
        return DAY_US
    return min(SLOWEST_US, max(DAY_US, (stats.last_us - stats.first_us) // (stats.visits - 1)))


def recent(stats: TopicStats | None, at_us: int) -> int:
    """Return how often the topic came lately, in `UNIT`s: its count, decayed to that time."""
    if stats is None:
        return 0
    return decay(stats.count, at_us - stats.last_us, pace(stats))


def novelty(stats: TopicStats | None, at_us: int) -> int:
    """Return 0 to 1,000,000: 2^-n, n the recent count *before* this occurrence, capped.

    1,000,000 for what never came, 500,000 for what came once just now, 250,000 after two.
    """
    if stats is None:
        return MICRO
    known = min(stats.count, COUNT_CAP)
    return decay(MICRO, decay(known, at_us - stats.last_us, pace(stats)), UNIT)


def surprise(stats: TopicStats | None, total: int, at_us: int) -> int:
    """Return 0 to 1,000,000: the bits log2((total + 1) / (n + 1)), twelve bits being full.

    n is the recent count of the topic and total that of all topics together (`recent` of the
    mind's total), both before this occurrence and in `UNIT`s.
    """
    share = UNIT + recent(stats, at_us)
    return min(MICRO, max(0, log2_micro(total + UNIT) - log2_micro(share)) // _SURPRISE_BITS)


def habituation(stats: TopicStats | None, at_us: int) -> int:
    """Return 0 to 1,000,000: how used the mind is to the topic, recovering by half in 14 paces."""
    if stats is None:
        return 0
    return decay(stats.habit, at_us - stats.habit_us, HABIT_PACES * pace(stats))


def burst(stats: TopicStats | None, at_us: int) -> tuple[int, int]:
    """Return (ratio in micro-units, feature): the rate of these minutes against the topic's past.

    Both are read *after* the occurrences at hand. A leaky counter with half-life h holds
    rate * h / ln 2, so counters compare by their windows: the ratio is `fast` against what `count`
    holds beyond it, scaled to half an hour (its window is a pace, or the topic's age if less), or
    against the rate noticed before, whichever of the two is more. So a burst is news once, again
    when it has grown eightfold, and again after days.

    The feature is (log2(ratio / 8) + 1) / 4: 250,000 at eight times the past, 1,000,000 from 64
    times on. It is 0 below eight times, and for a topic that has fewer than eight occurrences in
    these minutes, fewer than two before them, or is younger than two hours: what has no past has no
    rate to exceed.
    """
    if stats is None:
        return 0, 0
    now = max(at_us, stats.last_us)
    fast = decay(stats.fast, now - stats.last_us, FAST_HALF_LIFE_US)
    older = recent(stats, now) - fast
    age = now - stats.first_us
    if fast < BURST_LEAST or older < BURST_PAST or age < BURST_AGE_US:
        return 0, 0
    usual = older * FAST_HALF_LIFE_US // min(age, pace(stats))
    known = decay(stats.noticed, now - stats.habit_us, pace(stats))
    ratio = fast * MICRO // max(usual, known, 1)
    if ratio < BURST_RATIO * MICRO:
        return ratio, 0
    octaves = log2_micro(ratio // BURST_RATIO) - log2_micro(MICRO)
    return ratio, min(MICRO, (octaves + MICRO) // 4)


def evict(topics: Mapping[str, TopicStats], cap: int) -> dict[str, TopicStats]:
    """Return the topics, without the least recently seen ones if there are more than `cap`.

    An eighth of the cap goes at once, so that the sort is paid for by many new topics. Of topics
    last seen at the same time the first by key (in code points) go first; the order of the rest is
    as it was.
    """
    if len(topics) <= cap:
        return dict(topics)
    keep = max(0, cap - cap // 8)
    ranked = sorted(topics, key=lambda key: (topics[key].last_us, key))
    gone = set(ranked[: len(topics) - keep])
    return {key: stats for key, stats in topics.items() if key not in gone}

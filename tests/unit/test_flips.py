"""The flip panel's answer flips, a hair less does not, and where it says nothing, nothing flips."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.cognition.attention import MAX_WEIGHT, Entry, Proposal, decide, effective_weights
from noema.cognition.defaults import DEFAULTS
from noema.cognition.flips import Flip, Why, flips
from noema.cognition.model import FEATURES, MICRO, Candidate, MindSettings, Mode, Outcome
from noema.core.errors import InvalidInput

ORDER = ("dialogue", "burst", "surprise", "perception")
USED = ("novelty", "urgency", "surprise", "habituation", "cost", "social")


def mode_of(
    profile: dict[str, int] | None = None, processes: tuple[str, ...] | None = None
) -> Mode:
    return Mode(
        name="awake",
        version=1,
        title="Awake",
        description="",
        k=3,
        timer_min_s=60,
        timer_max_s=60,
        triggers=("stimulus",),
        profile=profile or {},
        processes=processes,
        may_act=True,
        expires_s=None,
        exits=(),
    )


def entry(process: str, ordinal: int, key: str | None = None, **features: int) -> Entry:
    key = key or f"{process} {ordinal}"
    candidate = Candidate(process=process, key=key, topic=key, text=key)
    return Entry(Proposal(ORDER.index(process), ordinal, candidate), features, {})


def settings_of(threshold: int = 0, quota: int = 400, **weights: int) -> MindSettings:
    return msgspec.structs.replace(
        DEFAULTS, weights=dict.fromkeys(FEATURES, 0) | weights, threshold=threshold, quota=quota
    )


def decided(entries: list[Entry], settings: MindSettings, mode: Mode) -> Outcome:
    return decide(entries, effective_weights(settings, mode), settings, mode)


def why(
    entries: list[Entry],
    settings: MindSettings,
    mode: Mode | None = None,
    instead: int | None = None,
) -> Why:
    mode = mode or mode_of()
    return flips(decided(entries, settings, mode), settings, mode, order=ORDER, instead=instead)


def named(found: Why, kind: str, name: str) -> Flip:
    return next(f for f in found.flips if (f.kind, f.name) == (kind, name))


micro = st.one_of(st.integers(0, MICRO), st.sampled_from([0, 1, MICRO // 2, MICRO]))
weight = st.one_of(
    st.integers(0, MAX_WEIGHT), st.sampled_from([0, 1, MICRO, 2 * MICRO, MAX_WEIGHT])
)


@st.composite
def cycles(draw: st.DrawFn) -> tuple[list[Entry], MindSettings, Mode]:
    entries = []
    for process in ORDER:
        for ordinal in range(draw(st.integers(0, 3))):
            key = draw(st.sampled_from(["a", "b", "c", None]))
            features = draw(st.dictionaries(st.sampled_from(USED), micro, max_size=5))
            entries.append(entry(process, ordinal, key, **features))
    settings = settings_of(
        threshold=draw(st.sampled_from([-(10**12), 0, MICRO, 10**11, 10**12])),
        quota=draw(st.sampled_from([2, 400])),
        **draw(st.fixed_dictionaries(dict.fromkeys(USED, weight))),
    )
    profile = draw(
        st.dictionaries(
            st.sampled_from(USED), st.sampled_from([0, 1, 333_333, 2_000_000, 7_000_001])
        )
    )
    processes = draw(st.sampled_from([None, ORDER[1:]]))
    return entries, settings, mode_of(profile, processes)


def winner_after(
    outcome: Outcome, settings: MindSettings, mode: Mode, flip: Flip, value: int
) -> int | None:
    """Decide again, from nothing, with the one change made."""
    entries = []
    for i, s in enumerate(outcome.scored):
        features = dict(s.features)
        if flip.kind == "feature" and flip.candidate == i:
            features[flip.name] = value
        place = ORDER.index(s.candidate.process)
        entries.append(Entry(Proposal(place, s.ordinal, s.candidate), features, {}))
    if flip.kind == "weight":
        weights = {**settings.weights, flip.name: value}
        settings = msgspec.structs.replace(settings, weights=weights)
    first = decided(entries, settings, mode).scored[0]
    if not first.admitted:
        return None
    return next(i for i, s in enumerate(outcome.scored) if s.candidate is first.candidate)


@given(cycles(), st.data())
def test_a_flip_flips_and_a_hair_less_does_not(
    cycle: tuple[list[Entry], MindSettings, Mode], data: st.DataObject
) -> None:
    entries, settings, mode = cycle
    outcome = decided(entries, settings, mode)
    instead = data.draw(st.none() | st.integers(0, len(entries) - 1)) if entries else None

    found = flips(outcome, settings, mode, order=ORDER, instead=instead)

    assert bool(found.flips) != bool(found.reason)
    for flip in found.flips:
        step = 1 if flip.after > flip.before else -1
        assert flip.low <= flip.after <= flip.high
        assert flip.confirmed
        assert flip.new_winner != 0
        assert winner_after(outcome, settings, mode, flip, flip.after) == flip.new_winner
        assert winner_after(outcome, settings, mode, flip, flip.after - step) in (0, None)
        nearer = data.draw(st.integers(0, abs(flip.after - flip.before) - 1))
        assert winner_after(outcome, settings, mode, flip, flip.before + step * nearer) in (0, None)


@given(cycles(), st.sampled_from(USED), weight)
def test_a_weight_that_is_not_listed_flips_nowhere_and_a_listed_one_nowhere_nearer(
    cycle: tuple[list[Entry], MindSettings, Mode], name: str, value: int
) -> None:
    entries, settings, mode = cycle
    outcome = decided(entries, settings, mode)
    found = flips(outcome, settings, mode, order=ORDER)
    if found.winner is None:
        assert found.flips == ()
        return
    listed = {f.name: f for f in found.flips if f.kind == "weight"}
    before = settings.weights[name]
    probe = Flip(
        kind="weight", name=name, candidate=None, before=before, after=value, low=0, high=0,
        new_winner=0, confirmed=False, size=0,
    )  # fmt: skip

    turned = winner_after(outcome, settings, mode, probe, value) not in (0, None)

    if turned:
        assert name in listed
        assert abs(listed[name].after - before) <= abs(value - before)


@given(cycles(), st.sampled_from(USED), micro, st.data())
def test_a_feature_that_is_not_listed_flips_nowhere_and_a_listed_one_nowhere_nearer(
    cycle: tuple[list[Entry], MindSettings, Mode], name: str, value: int, data: st.DataObject
) -> None:
    entries, settings, mode = cycle
    outcome = decided(entries, settings, mode)
    found = flips(outcome, settings, mode, order=ORDER)
    if found.against is None or not effective_weights(settings, mode)[name]:
        return
    index = data.draw(st.sampled_from([0, found.against]))
    before = outcome.scored[index].features.get(name, 0)
    probe = Flip(
        kind="feature", name=name, candidate=index, before=before, after=value, low=0, high=MICRO,
        new_winner=0, confirmed=False, size=0,
    )  # fmt: skip

    turned = winner_after(outcome, settings, mode, probe, value) not in (0, None)

    if turned:
        listed = [
            f for f in found.flips if (f.kind, f.name, f.candidate) == ("feature", name, index)
        ]
        assert listed
        assert abs(listed[0].after - before) <= abs(value - before)


@given(cycles())
def test_the_smallest_relative_change_comes_first(
    cycle: tuple[list[Entry], MindSettings, Mode],
) -> None:
    sizes = [f.size for f in why(*cycle).flips]

    assert sizes == sorted(sizes)


def test_a_third_candidate_may_win_by_a_weight() -> None:
    entries = [
        entry("perception", 0, novelty=900_000),
        entry("perception", 1, novelty=800_000),
        entry("perception", 2, novelty=100_000, social=MICRO),
    ]

    found = why(entries, settings_of(novelty=MICRO, social=0))

    flip = named(found, "weight", "social")
    assert found.against == 1
    assert flip.new_winner == 2
    assert (flip.before, flip.after) == (0, 800_001)


def test_a_tie_goes_by_urgency_then_by_the_order_of_the_processes() -> None:
    entries = [
        entry("burst", 0, novelty=MICRO),
        entry("surprise", 0, novelty=900_000),
        entry("surprise", 1, novelty=900_000, urgency=1),
    ]
    settings = settings_of(novelty=MICRO)

    urgent = why(entries, settings, instead=1)
    plain = why(entries, settings, instead=2)

    assert [(f.name, f.after) for f in urgent.flips if f.candidate == 1] == [("novelty", MICRO)]
    assert [f for f in plain.flips if f.candidate == 2] == []


def test_lowering_the_winners_feature_lets_the_next_win_not_the_one_asked_about() -> None:
    entries = [
        entry("perception", 0, novelty=900_000),
        entry("perception", 1, novelty=800_000),
        entry("perception", 2, novelty=100_000),
    ]

    found = why(entries, settings_of(novelty=MICRO), instead=2)

    flip = next(f for f in found.flips if f.candidate == 0)
    assert (flip.name, flip.before, flip.after, flip.new_winner) == ("novelty", 900_000, 799_999, 1)


def test_it_is_no_flip_where_nobody_ignites_afterwards() -> None:
    entries = [entry("perception", 0, novelty=900_000), entry("perception", 1, novelty=300_000)]

    found = why(entries, settings_of(novelty=MICRO, threshold=500_000 * MICRO))

    assert [(f.kind, f.candidate) for f in found.flips] == [("feature", 1)]


def test_a_duplicate_of_the_winner_may_win_in_its_place() -> None:
    entries = [
        entry("surprise", 0, "topic", surprise=900_000),
        entry("perception", 0, "topic", novelty=MICRO),
    ]

    found = why(entries, settings_of(surprise=MICRO, novelty=MICRO // 2))

    assert found.against is None
    assert named(found, "weight", "novelty").new_winner == 1


def test_a_weight_is_the_saved_one_whatever_the_mode_makes_of_it() -> None:
    entries = [entry("perception", 0, novelty=900_000), entry("perception", 1, social=600_000)]
    mode = mode_of({"social": 2_000_000})

    flip = named(why(entries, settings_of(novelty=MICRO, social=100_000), mode), "weight", "social")

    # 2 x 750,000 x 600,000 is a tie, which the first keeps; one more micro-unit turns it.
    assert (flip.before, flip.after) == (100_000, 750_001)


@pytest.mark.parametrize(
    ("entries", "instead", "says"),
    [
        ([], None, "Nothing was proposed"),
        ([entry("perception", 0)], None, "no winner"),
        ([entry("perception", 0, novelty=MICRO)], None, "No other candidate"),
        ([entry("perception", 0, novelty=MICRO)], 0, "is the winner"),
        (
            [entry("perception", 0, novelty=MICRO), entry("dialogue", 0, social=1)],
            1,
            "The gate mode",
        ),
    ],
)
def test_where_nothing_flips_a_sentence_says_why(
    entries: list[Entry], instead: int | None, says: str
) -> None:
    settings = settings_of(novelty=1, threshold=MICRO)
    mode = mode_of(processes=ORDER[1:])

    found = why(entries, settings, mode, instead)

    assert found.flips == ()
    assert says in (found.reason or "")


def test_nothing_within_bounds_turns_it_and_it_says_so() -> None:
    entries = [entry("perception", 0, novelty=MICRO), entry("perception", 1)]

    found = why(entries, settings_of(novelty=2, cost=1, threshold=2 * MICRO))

    assert found.flips == ()
    assert found.reason == "No change of one weight or of one feature, within its bounds, turns it."


def test_an_index_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput):
        why([entry("perception", 0, novelty=MICRO)], settings_of(novelty=1), instead=1)


@given(cycles(), st.data())
def test_the_leads_of_all_features_are_the_margin(
    cycle: tuple[list[Entry], MindSettings, Mode], data: st.DataObject
) -> None:
    entries, settings, mode = cycle
    if not entries:
        return

    found = why(entries, settings, mode, data.draw(st.integers(0, len(entries) - 1)))

    if found.margin is not None:
        assert sum(c.lead for c in found.contributions) == found.margin

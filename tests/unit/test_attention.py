"""Attention is exact: like proposals lead to a like outcome, whatever order they arrive in."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.cognition.attention import (
    MAX_WEIGHT,
    OWNED,
    Entry,
    Proposal,
    attend,
    decide,
    effective_weight,
    effective_weights,
    entries_of,
)
from noema.cognition.defaults import DEFAULTS
from noema.cognition.model import FEATURES, MICRO, NEGATIVE, Candidate, MindSettings, Outcome
from tests.unit.minds import MODES, brain_of, mode_of

ORDER = ("dialogue", "burst", "surprise", "perception")

micro = st.integers(0, MICRO)
weights = st.fixed_dictionaries(dict.fromkeys(FEATURES, st.integers(0, MAX_WEIGHT)))


@st.composite
def proposals(draw: st.DrawFn) -> list[Proposal]:
    made = []
    for index, process in enumerate(ORDER):
        for ordinal in range(draw(st.integers(0, 4))):
            key = draw(st.sampled_from(["a", "b", "c"])) + draw(st.sampled_from(["", process]))
            features = draw(st.dictionaries(st.sampled_from(FEATURES), micro))
            candidate = Candidate(
                process=process, key=key, topic=key, text=f"{key} error", features=features
            )
            made.append(Proposal(index, ordinal, candidate))
    return made


def settings_of(
    chosen: dict[str, int], *, threshold: int = 0, quota: int = 400, capacity: int = 7
) -> MindSettings:
    return msgspec.structs.replace(
        DEFAULTS, weights=chosen, threshold=threshold, quota=quota, capacity=capacity
    )


def entry(process: str, ordinal: int, key: str | None = None, /, **features: int) -> Entry:
    candidate = Candidate(process=process, key=key or f"{process}{ordinal}", topic="t", text="t")
    return Entry(Proposal(ORDER.index(process), ordinal, candidate), features, {})


def weighed(
    entries: list[Entry], settings: MindSettings, processes: tuple[str, ...] | None = None
) -> Outcome:
    chosen = mode_of(processes=processes)
    return decide(entries, effective_weights(settings, chosen), settings, chosen)


@given(proposals(), weights, st.randoms(use_true_random=False))
def test_the_order_of_arrival_never_decides(
    made: list[Proposal], chosen: dict[str, int], chance: random.Random
) -> None:
    brain = brain_of(settings=settings_of(chosen, quota=3))
    shuffled = list(made)
    chance.shuffle(shuffled)

    one, other = attend(made, brain), attend(shuffled, brain)

    assert msgspec.json.encode(one) == msgspec.json.encode(other)


@given(proposals(), weights)
def test_a_score_is_the_exact_sum_of_its_contributions_below_two_to_the_53(
    made: list[Proposal], chosen: dict[str, int]
) -> None:
    brain = brain_of(settings=settings_of(chosen))

    outcome = attend(made, brain)

    for scored in outcome.scored:
        for name, value in scored.features.items():
            sign = -1 if name in NEGATIVE else 1
            assert scored.contributions[name] == sign * outcome.weights[name] * value
        assert scored.score == sum(scored.contributions.values())
        assert abs(scored.score) < 2**53


def test_even_the_largest_score_is_below_two_to_the_53() -> None:
    everything = dict.fromkeys(FEATURES, MICRO)
    settings = settings_of(dict.fromkeys(FEATURES, MAX_WEIGHT))

    outcome = weighed([entry("perception", 0, **everything)], settings)

    assert sum(abs(c) for c in outcome.scored[0].contributions.values()) < 2**53


@given(proposals(), weights, st.integers(0, 10**13), st.integers(1, 9))
def test_ranks_count_from_one_open_candidates_first_and_winners_on_top(
    made: list[Proposal], chosen: dict[str, int], threshold: int, capacity: int
) -> None:
    settings = settings_of(chosen, threshold=threshold, quota=3, capacity=capacity)

    outcome = attend(made, brain_of(settings=settings))

    open_ = [s for s in outcome.scored if s.gate is None]
    assert [s.rank for s in outcome.scored] == list(range(1, len(made) + 1))
    assert list(outcome.scored[: len(open_)]) == open_
    assert [s.score for s in open_] == sorted((s.score for s in open_), reverse=True)
    assert outcome.k == min(7, capacity)
    for scored in outcome.scored:
        wins = scored.gate is None and scored.rank <= outcome.k and scored.score >= threshold
        assert scored.admitted == wins


@given(proposals(), weights)
def test_of_two_with_one_key_only_the_better_one_passes(
    made: list[Proposal], chosen: dict[str, int]
) -> None:
    outcome = attend(made, brain_of(settings=settings_of(chosen)))

    open_ = {s.candidate.key: s for s in outcome.scored if s.gate is None}
    assert len(open_) == sum(s.gate is None for s in outcome.scored)
    for scored in outcome.scored:
        if scored.gate == "duplicate":
            assert open_[scored.candidate.key].score >= scored.score


@given(proposals(), weights)
def test_what_was_recorded_is_decided_the_same_again(
    made: list[Proposal], chosen: dict[str, int]
) -> None:
    settings = settings_of(chosen, quota=3)
    brain = brain_of(settings=settings)
    outcome = attend(made, brain)

    again = decide(entries_of(outcome, ORDER), outcome.weights, settings, brain.mode)

    assert again == outcome


def test_a_tie_goes_by_urgency_then_by_process_then_by_ordinal() -> None:
    settings = settings_of(dict.fromkeys(FEATURES, 0) | {"novelty": MICRO})
    entries = [
        entry("perception", 1, novelty=5),
        entry("perception", 0, novelty=5),
        entry("surprise", 0, novelty=5),
        entry("perception", 2, novelty=5, urgency=1),
        entry("perception", 3, novelty=6),
    ]

    outcome = weighed(entries, settings)

    assert [(s.candidate.process, s.ordinal) for s in outcome.scored] == [
        ("perception", 3),
        ("perception", 2),
        ("surprise", 0),
        ("perception", 0),
        ("perception", 1),
    ]


def test_gates_stop_by_mode_quota_and_duplicate_and_the_stopped_are_scored_too() -> None:
    settings = settings_of(dict.fromkeys(FEATURES, MICRO), quota=2)
    entries = [
        entry("dialogue", 0, novelty=9),
        entry("perception", 0, "same", novelty=1),
        entry("perception", 1, "same", novelty=8),
        entry("perception", 2, novelty=7),
    ]

    outcome = weighed(entries, settings, processes=ORDER[1:])

    found = [(s.candidate.process, s.ordinal, s.gate, s.score) for s in outcome.scored]
    assert found == [
        ("perception", 1, None, 8 * MICRO),
        ("dialogue", 0, "mode", 9 * MICRO),
        ("perception", 2, "quota", 7 * MICRO),
        ("perception", 0, "duplicate", MICRO),
    ]


def test_below_the_threshold_nothing_ignites_however_much_room_there_is() -> None:
    settings = settings_of(dict.fromkeys(FEATURES, MICRO), threshold=10 * MICRO)

    outcome = weighed([entry("burst", 0, novelty=10), entry("burst", 1, novelty=9)], settings)

    assert [s.admitted for s in outcome.scored] == [True, False]
    assert outcome.margin == MICRO


@pytest.mark.parametrize("name", OWNED)
def test_a_process_cannot_claim_a_feature_that_attention_owns(name: str) -> None:
    candidate = Candidate(
        process="burst", key="a", topic="nothing", text="", features={name: MICRO, "valence": 7}
    )

    outcome = attend([Proposal(0, 0, candidate)], brain_of())

    assert outcome.scored[0].features == {"valence": 7}


@given(st.integers(0, MAX_WEIGHT), st.integers(0, 10 * MICRO))
def test_an_effective_weight_is_rounded_down_and_capped(weight: int, multiplier: int) -> None:
    effective = effective_weight(weight, multiplier)

    assert effective == min(weight * multiplier // MICRO, MAX_WEIGHT)
    assert 0 <= effective <= MAX_WEIGHT


def test_every_mode_names_features_that_exist() -> None:
    assert all(set(mode.profile) <= set(FEATURES) for mode in MODES.values())

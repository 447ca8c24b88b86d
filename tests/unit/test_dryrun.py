"""The dry-run says which recorded admissions other settings would have changed."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from noema.cognition.defaults import DEFAULTS
from noema.cognition.dryrun import dry_run
from noema.cognition.model import FEATURES, MindSettings
from noema.cognition.record import RecordedCycle
from tests.unit.minds import MODES, Log, live, mode_of, newborn, settings_of


async def recorded(**chosen: Any) -> list[RecordedCycle]:
    log = Log()
    state = newborn(**chosen)
    cycles = []
    for number in range(4):
        stimuli = [log.line(f"disk error {i}") for i in range(3)]
        stimuli += [log.line(f"{word} panic") for word in ("ann", "bob", "cid")[: number + 1]]
        control = [log.message("what happened?")] if number == 2 else []
        cycle = await live(log, state, control, stimuli, at_s=number * 10)
        cycles.append(cycle.recorded)
        state = cycle.state
    return cycles


async def test_the_settings_in_force_change_nothing() -> None:
    cycles = await recorded()

    found = dry_run(cycles, DEFAULTS, MODES)

    assert (found.cycles, found.skipped, found.changed, found.differences) == (4, 0, 0, ())
    assert found.admissions == found.would_admit == sum(len(c.thoughts) for c in cycles)


async def test_a_threshold_that_nothing_reaches_empties_every_cycle() -> None:
    cycles = await recorded()

    found = dry_run(cycles, settings_of(threshold=10**15), MODES)

    assert found.would_admit == 0
    assert [d.number for d in found.differences] == [c.number for c in cycles if c.thoughts]
    for difference in found.differences:
        assert difference.would == ()
        assert difference.gone == tuple(c.id for c in difference.was)


async def test_a_difference_names_candidates_by_their_events_and_texts() -> None:
    cycles = await recorded()

    found = dry_run(cycles, settings_of(capacity=1), MODES)

    for difference in found.differences:
        cycle = cycles[difference.number - 1]
        texts = {e.id: e.content["text"] for e in cycle.candidates}
        assert len(difference.would) == 1
        assert difference.would[0].id == difference.was[0].id
        assert all(texts[c.id] == c.text for c in difference.was)
        assert difference.new == ()
    assert found.changed


async def test_the_order_among_the_admitted_alone_is_no_difference() -> None:
    cycles = await recorded()
    weights = {**DEFAULTS.weights, "social": 0}

    found = dry_run(cycles, settings_of(weights=weights), MODES)

    for difference in found.differences:
        assert {c.id for c in difference.was} != {c.id for c in difference.would}


async def test_a_mode_is_looked_up_as_given_and_an_unknown_one_is_skipped() -> None:
    cycles = await recorded()
    narrow = {("awake", 1): mode_of("awake", k=1)}

    assert dry_run(cycles, DEFAULTS, narrow).would_admit == 4
    assert dry_run(cycles, DEFAULTS, {}).skipped == 4


async def test_a_cycle_of_another_scorer_is_skipped_and_counted() -> None:
    cycles = [msgspec.structs.replace(c, scorer_version=99) for c in await recorded()]

    found = dry_run(cycles, settings_of(threshold=10**15), MODES)

    assert (found.cycles, found.skipped, found.changed) == (4, 4, 0)


@given(st.fixed_dictionaries(dict.fromkeys(FEATURES, st.integers(0, 10**7))), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
async def test_it_tells_what_a_decision_under_those_settings_admits(
    weights: dict[str, int], capacity: int
) -> None:
    cycles = await recorded()
    chosen: MindSettings = settings_of(weights=weights, capacity=capacity)

    found = dry_run(cycles, chosen, MODES)

    assert found.changed == len(found.differences)
    for difference in found.differences:
        assert len(difference.would) <= capacity
        assert set(difference.gone) | set(difference.new)
        scores = [c.score for c in difference.would]
        assert scores == sorted(scores, reverse=True)
        assert all(s >= chosen.threshold for s in scores)

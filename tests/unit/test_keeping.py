"""What is worth remembering: chosen from what was admitted, within an allowance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.cognition.keeping import ACT, ALLOWANCE, REFILL_US, choose
from noema.cognition.model import MICRO, Outcome
from noema.events.unit import NewIntent
from tests.unit.minds import START_US, Lived, Log, brain_of, live, newborn, remembered


def wanted(cycle: Lived) -> list[NewIntent]:
    return [i for i in cycle.written.intents if i.act == ACT]


def events_of(cycle: Lived) -> list[str]:
    return [i.content["event"] for i in wanted(cycle)]


async def test_a_new_line_is_kept_as_an_episode_and_names_the_line_not_its_text() -> None:
    log = Log()
    line = log.line("kernel: Out of memory")

    cycle = await live(log, newborn(), (), [line])

    (intent,) = wanted(cycle)
    assert dict(intent.content) == {
        "event": str(line.id),
        "kind": "episode",
        "importance": "100000",
    }
    assert intent.thought_id == cycle.recorded.thoughts[0]


async def test_a_stimulus_of_kind_fact_is_kept_as_a_fact() -> None:
    log = Log()
    data = {"kind": "fact", "urgency": 0}
    told = log.event("stimulus.received", data, {"text": "the backup window is at two"})

    cycle = await live(log, newborn(), (), [told])

    assert [i.content["kind"] for i in wanted(cycle)] == ["fact"]


async def test_of_a_flood_only_the_news_is_kept() -> None:
    log, state = Log(), newborn()
    kept = []
    for n in range(10):
        cycle = await live(log, state, (), [log.line(f"login {n} refused", at_s=n)], at_s=n)
        state = cycle.state
        kept.append(len(wanted(cycle)))

    assert kept == [1] + [0] * 9


async def test_what_was_said_is_kept_and_the_answer_is_left_to_who_sends_it() -> None:
    log = Log()
    message = log.message("what failed?")

    cycle = await live(log, newborn(), [message], trigger="message")

    processes = {s.candidate.process for s in cycle.recorded.outcome.admitted}
    assert {"dialogue", "perception"} <= processes
    assert events_of(cycle) == [str(message.id)]


async def test_what_was_said_is_kept_before_what_was_seen_in_the_order_it_was_said() -> None:
    log = Log()
    messages = [log.message("second", at_s=2), log.message("first", at_s=1)]
    line = log.line("panic", urgency=MICRO)

    cycle = await live(log, newborn(), messages, [line], at_s=3)

    assert events_of(cycle) == [str(messages[1].id), str(messages[0].id), str(line.id)]


async def test_neither_a_recall_nor_a_look_back_is_kept() -> None:
    log = Log()
    line = log.line("kernel: Out of memory")
    memory = remembered(1, "kernel: Out of memory")

    cycle = await live(log, newborn(reflect_every=1), (), [line], memories=[memory])
    after = await live(log, cycle.state, at_s=60, trigger="timer")

    assert "recall" in {s.candidate.process for s in cycle.recorded.outcome.admitted}
    assert [s.candidate.process for s in after.recorded.outcome.admitted] == ["reflection"]
    assert events_of(cycle) == [str(line.id)]
    assert wanted(after) == []


@pytest.mark.parametrize("rate", [1, 5])
async def test_a_flood_of_news_keeps_no_more_than_the_allowance(rate: int) -> None:
    log, state = Log(), newborn(capacity=7)
    words = [a + b + c for a in "abcdefghij" for b in "klmnopqrst" for c in "uvwxyz"]
    kept, seconds = 0, 60
    for n in range(seconds):
        lines = [log.line(f"alarm {words[n * rate + i]}", at_s=n) for i in range(rate)]
        cycle = await live(log, state, (), lines, at_s=n)
        state = cycle.state
        kept += len(wanted(cycle))

    refilled = seconds * MICRO // REFILL_US["perceived"]
    assert kept <= ALLOWANCE["perceived"] + refilled


@given(st.lists(st.integers(-100, 100), max_size=50))
def test_an_allowance_never_grows_past_its_most_whatever_the_clock_does(steps: list[int]) -> None:
    left: dict[str, tuple[int, int]] = {}
    spoken = Outcome(scored=(), weights={}, threshold=1, k=1)
    now_us = START_US
    for step in steps:
        now_us += step * MICRO
        _, left = choose(brain_of(now_us=now_us), spoken, left)

    assert all(0 <= amount <= ALLOWANCE["people"] * MICRO for amount, _ in left.values())

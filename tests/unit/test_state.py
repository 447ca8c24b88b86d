"""The fold: bounded whatever comes, the same live and refolded, fair to who waits."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noema.cognition.cycle import decode_state, encode_state, refold
from noema.cognition.model import MICRO
from noema.cognition.state import (
    GOALS_KEPT,
    GROUP_IDS,
    GROUP_SAMPLE,
    QUESTIONS_KEPT,
    RECENT_KEPT,
    TEXT_KEPT,
    TOPIC_CAP,
    MindState,
    room,
    timer_after,
)
from noema.events.model import REDACTED, Event
from tests.unit.minds import MODES, START, START_US, Log, live, newborn, settings_of

WORDS = [
    "alpha",
    "bravo",
    "charlie",
    "delta",
    "echo",
    "foxtrot",
    "golf",
    "hotel",
    "india",
    "juliett",
    "kilo",
    "lima",
]


def word(number: int) -> str:
    return "".join(chr(97 + int(d)) for d in str(number))


inputs = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "line",
                "line",
                "line",
                "message",
                "goal.set",
                "mode.set",
                "settings.set",
                "step",
                "quiet",
            ]
        ),
        st.integers(0, 60),
        st.integers(1, 8),
    ),
    max_size=10,
)


def control_of(log: Log, kind: str, number: int, at_s: float) -> Event:
    if kind == "message":
        return log.message(f"what about {WORDS[number % 12]}?", at_s=at_s)
    if kind == "goal.set":
        data: dict[str, Any] = {"goal": log.ids.new(), "priority": MICRO // 2}
        return log.event("goal.set", data, {"text": WORDS[number % 12]}, at_s=at_s)
    if kind == "mode.set":
        mode = list(MODES.values())[number % len(MODES)]
        until = None if mode.expires_s is None else START_US + int((at_s + mode.expires_s) * MICRO)
        data = {"mode": mode.name, "version": 1, "epoch": number, "until_us": until}
        return log.event("mode.set", data, {"focus": WORDS[number % 12]}, at_s=at_s)
    if kind == "settings.set":
        chosen = settings_of(capacity=1 + number % 9, pending_limit=1 + number, pending_cycles=2)
        data = {"version": number, "settings": msgspec.to_builtins(chosen)}
        return log.event("settings.set", data, at_s=at_s)
    return log.event("step.requested", at_s=at_s)


@given(inputs)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_a_refolded_mind_is_the_live_one_byte_for_byte(
    script: list[tuple[str, int, int]],
) -> None:
    """Guarantee 3: recovery and replay go on from the very state that the mind had."""
    log = Log()
    lived = refolded = newborn(pending_limit=40, reflect_every=3)
    at_s = 0.0
    for kind, number, count in script:
        at_s += number * 20
        control, stimuli = [], []
        trigger = "stimulus"
        if kind == "line":
            stimuli = [
                log.line(f"{WORDS[(number * i) % 12]} {word(number)} failed {i}", at_s=at_s + i)
                for i in range(count)
            ]
        elif kind == "quiet":
            trigger, at_s = "timer", at_s + 300
        else:
            control = [control_of(log, kind, number, at_s)]
        cycle = await live(log, lived, control, stimuli, at_s=at_s, trigger=trigger)
        lived = cycle.state

        refolded = refold(refolded, cycle.recorded, control, stimuli, MODES)

        assert encode_state(refolded) == encode_state(lived)
        assert encode_state(decode_state(encode_state(lived))) == encode_state(lived)
        assert cycle.recorded.processes == (
            "dialogue", "goal", "burst", "surprise", "perception", "reflection", "recall",
            "planning",
        )  # fmt: skip


async def test_the_state_is_bounded_whatever_is_fed() -> None:
    """Guarantee 7."""
    log = Log()
    state = newborn(pending_limit=20, batch=50)
    for cycle in range(12):
        control = [log.message(f"{word(cycle * 50 + i)} is broken?") for i in range(40)]
        control += [control_of(log, "goal.set", i, 0) for i in range(20)]
        stimuli = [
            log.line(f"panic {word(cycle * 50 + i)} " + "x" * 3_000) for i in range(room(state))
        ]

        state = (await live(log, state, control, stimuli, at_s=cycle)).state

        assert len(state.pending) <= 20
        assert len(state.slots) <= state.settings.capacity
        assert len(state.questions) <= QUESTIONS_KEPT
        assert len(state.goals) <= GOALS_KEPT
        assert len(state.recent) <= RECENT_KEPT
        assert len(state.topics) <= TOPIC_CAP + state.settings.capacity
        for group in state.pending.values():
            assert len(group.stimuli) <= GROUP_SAMPLE
            assert all(len(s.text) <= TEXT_KEPT for s in group.stimuli)
        assert len(encode_state(state)) < 500_000


async def test_a_flood_of_one_topic_is_one_group_that_counts_them_all() -> None:
    log = Log()
    stimuli = [log.line(f"connection {i} refused") for i in range(GROUP_IDS + 50)]

    cycle = await live(log, newborn(), stimuli=stimuli)

    (group,) = cycle.brain.groups
    assert group.count == len(stimuli)
    assert len(group.ids) == GROUP_IDS
    assert len(group.stimuli) == GROUP_SAMPLE
    assert group.latest.id == stimuli[-1].id


@given(st.permutations(range(6)))
@settings(deadline=None)
async def test_topics_of_one_moment_are_counted_alike_in_any_order(order: list[int]) -> None:
    def fed(numbers: list[int]) -> list[Event]:
        log = Log()
        return [log.line(f"{WORDS[i]} failed", at_s=0) for i in numbers]

    one = await live(Log(), newborn(capacity=50), stimuli=fed(list(range(6))))
    other = await live(Log(), newborn(capacity=50), stimuli=fed(order))

    assert one.state.topics == other.state.topics
    assert {s.topic for s in one.state.slots} == {s.topic for s in other.state.slots}


async def test_what_loses_only_on_k_waits_and_wins_later() -> None:
    log = Log()
    stimuli = [log.line(f"{word(i)} panic") for i in range(20)]
    cycle = await live(log, newborn(), stimuli=stimuli)
    assert len(cycle.state.pending) == 13
    won = {s.candidate.topic for s in cycle.recorded.outcome.admitted}

    while cycle.state.pending:
        cycle = await live(log, cycle.state, trigger="pending")
        won |= {s.candidate.topic for s in cycle.recorded.outcome.admitted}

    assert len(won) == 20
    assert cycle.state.cycle == 3


async def test_what_waited_too_long_expires_and_is_named() -> None:
    log = Log()
    state = newborn(pending_cycles=1)
    stimuli = [log.line(f"{word(i)} panic") for i in range(9)]

    cycle = await live(log, state, stimuli=stimuli)

    assert len(cycle.concluded.expired) == 2
    assert cycle.state.pending == {}


async def test_more_than_may_wait_expires_the_least_urgent_first() -> None:
    log = Log()
    messages = [log.message(f"{word(i)}?") for i in range(30)]
    stimuli = [log.line("panic panic", urgency=MICRO)]
    first = await live(log, newborn(pending_limit=5, capacity=1), messages, stimuli)

    assert len(first.state.pending) == 5
    assert len(first.concluded.expired) == 31 - 1 - 5


async def test_a_topic_that_comes_again_while_it_waits_is_as_rare_as_when_it_first_came() -> None:
    log = Log()
    stimuli = [log.line(f"{word(i)} panic") for i in range(9)]
    cycle = await live(log, newborn(), stimuli=stimuli)
    waiting = next(iter(cycle.state.pending))
    again = log.line(cycle.state.pending[waiting].latest.text)

    after = await live(log, cycle.state, stimuli=[again])

    group = next(g for g in after.brain.groups if g.topic == waiting)
    assert (group.count, group.before) == (2, None)


async def test_a_message_is_never_delayed_by_stimuli() -> None:
    log = Log()
    state = newborn(batch=1_000)
    stimuli = [log.line(f"{word(i)} panic emergency") for i in range(300)]
    state = (await live(log, state, stimuli=stimuli)).state
    assert len(state.pending) > 200
    more = [log.line(f"{word(1_000 + i)} panic emergency") for i in range(100)]
    message = log.message("what is going on?")

    cycle = await live(log, state, [message], more, at_s=5, trigger="message")

    answers = [s for s in cycle.recorded.outcome.admitted if s.candidate.process == "dialogue"]
    assert [a.candidate.replies_to for a in answers] == [message.id]
    assert cycle.state.questions == ()


async def test_a_message_competes_at_once_even_where_everything_waiting_is_urgent() -> None:
    log = Log()
    stimuli = [log.line(f"{word(i)} panic", urgency=MICRO) for i in range(90)]
    state = (await live(log, newborn(), stimuli=stimuli)).state
    message = log.message("what is going on?")

    cycle = await live(log, state, [message], trigger="message")

    assert f"message {message.id}" in {g.topic for g in cycle.brain.groups}
    assert message.id in {s.candidate.replies_to for s in cycle.recorded.outcome.scored}


async def test_a_question_stays_open_until_it_is_answered() -> None:
    log = Log()
    silent = settings_of(threshold=10**15)
    state = newborn()
    state = msgspec.structs.replace(state, settings=silent)

    cycle = await live(log, state, [log.message("hello?")], trigger="message")

    assert len(cycle.state.questions) == 1


@pytest.mark.parametrize(
    ("start", "at_s", "trigger", "entered", "on"),
    [
        ("awake", 599, "timer", None, None),
        ("awake", 600, "timer", "idle", "quiet"),
        ("idle", 14_399, "timer", None, None),
        ("idle", 14_400, "timer", "dreaming", "quiet"),
        ("focused", 899, "timer", None, None),
        ("focused", 900, "timer", "awake", "expired"),
        ("dreaming", 7_200, "timer", "idle", "expired"),
    ],
)
async def test_a_mode_is_left_by_its_exits_and_at_their_time(
    start: str, at_s: float, trigger: str, entered: str | None, on: str | None
) -> None:
    log = Log()
    expires = MODES[start, 1].expires_s
    until = None if expires is None else START_US + expires * MICRO
    data = {"mode": start, "version": 1, "epoch": 1, "until_us": until}
    state = (await live(log, newborn(), [log.event("mode.set", data)], trigger="operator")).state

    cycle = await live(log, state, at_s=at_s, trigger=trigger)

    change = cycle.concluded.mode_change
    assert (None if change is None else change.entered) == entered
    assert (None if change is None else change.on) == on
    assert cycle.state.mode == (entered or start)


async def test_a_line_wakes_an_idle_mind_and_a_message_a_dreaming_one() -> None:
    for mode, kind in (("idle", "line"), ("dreaming", "message")):
        log = Log()
        state = msgspec.structs.replace(newborn(), mode=mode)
        control = [log.message("wake up")] if kind == "message" else []
        stimuli = [log.line("panic")] if kind == "line" else []

        cycle = await live(log, state, control, stimuli)

        assert cycle.state.mode == "awake"


async def test_a_new_mind_does_not_believe_that_it_was_quiet_since_1970() -> None:
    cycle = await live(Log(), newborn(), trigger="timer")

    assert cycle.concluded.mode_change is None
    assert cycle.state.mode == "awake"


async def test_an_operators_mode_ends_when_they_said() -> None:
    log = Log()
    data = {"mode": "focused", "version": 1, "epoch": 3, "until_us": START_US + 60 * MICRO}
    event = log.event("mode.set", data, {"focus": "kernel"})
    state = (await live(log, newborn(), [event], trigger="operator")).state
    assert (state.focus, state.mode_epoch) == ("kernel", 3)

    assert timer_after(state, MODES["focused", 1], START_US) == START_US + 60 * MICRO
    ended = (await live(log, state, at_s=60, trigger="timer")).state

    assert (ended.mode, ended.focus, ended.mode_until_us) == ("awake", "", None)


def test_an_idle_mind_waits_longer_after_each_quiet_cycle_to_a_limit() -> None:
    idle = MODES["idle", 1]

    def wait_s(quiet: int) -> int:
        state = msgspec.structs.replace(newborn(), quiet_timers=quiet)
        due = timer_after(state, idle, START_US)
        assert due is not None
        return (due - START_US) // MICRO

    assert [wait_s(n) for n in (0, 1, 2, 3, 100)] == [300, 450, 675, 900, 900]


async def test_a_line_from_the_far_future_stops_no_topics_clock() -> None:
    log = Log()
    future = msgspec.structs.replace(
        log.line("clock broken"), occurred_at=START + timedelta(days=40_000), recorded_at=START
    )

    state = (await live(log, newborn(), stimuli=[future])).state

    (stats,) = state.topics.values()
    assert stats.last_us == START_US + 86_400 * MICRO


async def test_a_redacted_stimulus_says_so_and_its_text_is_nowhere() -> None:
    log = Log()
    gone = msgspec.structs.replace(log.line("secret"), content=REDACTED, salt=None)

    cycle = await live(log, newborn(), stimuli=[gone])

    assert b"secret" not in encode_state(cycle.state)
    assert cycle.brain.groups[0].latest.text == "[redacted]"


def test_there_is_always_room_for_one() -> None:
    full: MindState = newborn(pending_limit=1)
    busy = msgspec.structs.replace(full, pending={"a": None, "b": None})

    assert room(full) == 1
    assert room(busy) == 1
    assert room(newborn(batch=3)) == 3


async def test_a_refolded_mind_enters_the_version_of_a_mode_that_it_entered_then() -> None:
    log = Log()
    quiet = msgspec.structs.replace(newborn(), cycle=1, quiet_since_us=START_US)
    lived = await live(log, quiet, at_s=700, trigger="timer")
    newer = {**MODES, ("idle", 2): msgspec.structs.replace(MODES["idle", 1], version=2)}

    refolded = refold(quiet, lived.recorded, (), (), newer)

    assert (lived.state.mode, lived.state.mode_version) == ("idle", 1)
    assert encode_state(refolded) == encode_state(lived.state)


def test_a_mode_that_does_not_expire_is_not_due_the_moment_its_time_is_up() -> None:
    state = msgspec.structs.replace(newborn(), mode_until_us=START_US - 1)

    assert timer_after(state, MODES["awake", 1], START_US) == START_US + 60 * MICRO

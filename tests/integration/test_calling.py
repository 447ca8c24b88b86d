"""What calls a mind that sleeps or is paused, and how long a mode lasts."""

from collections.abc import AsyncIterator

import pytest

from noema.cognition.minds import NewStimulus
from noema.cognition.runner import CONTROL_AT_ONCE
from noema.core.errors import InvalidInput
from noema.events.model import new_event
from noema.events.unit import Unit
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.running import Daemon, daemon


@pytest.fixture
async def here(database: TestDatabase) -> AsyncIterator[Daemon]:
    async with daemon(database) as running:
        await running.client.post("/v1/minds", json={"slug": "ada"})
        yield running


async def test_an_urgent_stimulus_wakes_a_sleeper_from_behind_any_number_of_others(
    here: Daemon,
) -> None:
    minds = here.noema.minds
    await minds.set_mode("ada", "asleep", actor="user:t")
    for start in range(0, 600, 200):
        lines = [NewStimulus(text=f"line {n}") for n in range(start, start + 200)]
        await minds.receive("ada", lines, actor="user:t")

    await minds.receive("ada", [NewStimulus(text="fire", urgency=1_000_000)], actor="user:t")

    await eventually(lambda: here.is_idle("ada"))
    assert (await minds.get("ada")).mode == "awake"


async def test_a_sleeper_is_not_woken_by_any_number_of_ordinary_stimuli(here: Daemon) -> None:
    minds = here.noema.minds
    await minds.set_mode("ada", "asleep", actor="user:t")
    await minds.step("ada", actor="user:t")
    await eventually(lambda: _steps(here, 1))

    lines = [NewStimulus(text=f"line {n}") for n in range(500)]
    await minds.receive("ada", lines, actor="user:t")
    await minds.step("ada", actor="user:t")
    await eventually(lambda: _steps(here, 2))

    assert (await minds.get("ada")).mode == "asleep"
    cycles = (await here.client.get("/v1/minds/ada/cycles")).json()["items"]
    assert {c["trigger"] for c in cycles} <= {"operator", "timer"}


async def test_a_step_is_taken_however_much_was_said_to_a_paused_mind_before(
    here: Daemon,
) -> None:
    noema = here.noema
    await noema.minds.set_mode("ada", "paused", actor="user:t")
    mind = await noema.minds.get("ada")
    await eventually(lambda: _is_held(here))
    noise = tuple(
        new_event(
            noema.ids,
            type="goal.closed",
            occurred_at=noema.clock.now(),
            actor="user:t",
            mind_id=mind.id,
            data={"goal": noema.ids.new()},
        )
        for _ in range(2 * CONTROL_AT_ONCE)
    )
    await noema.writer.submit(Unit(events=noise))
    before = (await noema.minds.get("ada")).cycles

    await noema.minds.step("ada", actor="user:t")

    await eventually(lambda: _cycles(here, before + 1))


@pytest.mark.parametrize("mode", ["awake", "asleep", "paused", "idle"])
async def test_a_mode_that_does_not_expire_takes_no_time_to_last(here: Daemon, mode: str) -> None:
    with pytest.raises(InvalidInput, match="leave the time out"):
        await here.noema.minds.set_mode("ada", mode, for_s=1, actor="user:t")

    focused = await here.noema.minds.set_mode("ada", "focused", for_s=60, actor="user:t")
    assert focused.mode_until is not None


async def _cycles(here: Daemon, at_least: int) -> bool:
    return (await here.noema.minds.get("ada")).cycles >= at_least


async def _is_held(here: Daemon) -> bool:
    return bool(here.noema.runner.statuses)


async def _steps(here: Daemon, expected: int) -> bool:
    stepped = (await here.client.get("/v1/minds/ada/cycles?trigger=operator")).json()["items"]
    return len(stepped) == expected


async def test_many_who_speak_at_once_are_all_answered_without_waiting_for_the_timer(
    here: Daemon,
) -> None:
    minds = here.noema.minds
    await minds.set_mode("ada", "paused", actor="user:t")
    for n in range(9):
        await minds.say("ada", f"question {n}?", speaker="t", actor="user:t")

    await minds.set_mode("ada", "awake", actor="user:t")

    await eventually(lambda: _answers(here, 9))


async def _answers(here: Daemon, expected: int) -> bool:
    spoken = await here.noema.minds.transcript(await here.noema.minds.get("ada"))
    return sum(m.speaker == "ada" for m in spoken) == expected

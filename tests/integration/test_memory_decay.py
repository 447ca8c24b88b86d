"""Decay in the database: the same integers as in Python, once a period, and in place."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import pytest

from noema.core.clock import ManualClock
from noema.memory import decay as module
from noema.memory.decay import PERIOD_S, Decay, bumped, decayed, epoch_of
from noema.memory.model import MICRO
from noema.memory.telemetry import Telemetry
from tests.conftest import TestDatabase
from tests.governed import World, world

PLACE = "acme/eng"


@pytest.fixture
async def here(database: TestDatabase, clock: ManualClock) -> AsyncIterator[World]:
    async with world(database, clock) as made:
        yield made


async def activations(here: World) -> dict[UUID, tuple[int, int]]:
    rows = await here.fetch("SELECT id, activation, activation_epoch FROM memories")
    return {r["id"]: (r["activation"], r["activation_epoch"]) for r in rows}


async def filled(here: World, count: int) -> dict[UUID, tuple[int, int]]:
    """Store memories of many activations, last decayed 0 to 40 periods ago."""
    now = epoch_of(here.clock.now())
    given = {}
    for n in range(count):
        id_ = await here.put(PLACE, f"memory {n}")
        activation, epoch = (MICRO * n * 7919) // count % (MICRO + 1), now - n % 41
        await here.execute(
            "UPDATE memories SET activation = $2, activation_epoch = $3 WHERE id = $1",
            id_, activation, epoch,
        )  # fmt: skip
        given[id_] = activation, epoch
    return given


async def test_the_database_computes_what_python_does_whatever_the_batches(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 7)
    given = await filled(here, 60)
    now = epoch_of(here.clock.now())
    decay = Decay(db=here.db, clock=here.clock)

    changed = await decay.once()

    found = await activations(here)
    assert {i: a for i, (a, _) in found.items()} == {
        i: decayed(a, now - epoch) for i, (a, epoch) in given.items()
    }
    assert changed == sum(a > 0 and epoch < now for a, epoch in given.values())
    assert await decay.once() == 0
    assert len(found) == 60


async def test_runs_side_by_side_decay_once(here: World) -> None:
    given = await filled(here, 30)
    now = here.clock.now() + timedelta(seconds=5 * PERIOD_S)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(Decay(db=here.db, clock=here.clock).once(now))
    # Rows that were held by another at that moment are brought up by the next run.
    await Decay(db=here.db, clock=here.clock).once(now)

    assert {i: a for i, (a, _) in (await activations(here)).items()} == {
        i: decayed(a, epoch_of(now) - epoch) for i, (a, epoch) in given.items()
    }


async def test_it_updates_in_place_and_touches_nothing_else(here: World) -> None:
    await filled(here, 40)
    everything = (
        "SELECT to_jsonb(m) - 'activation' - 'activation_epoch' AS row FROM memories m ORDER BY id"
    )
    before = await here.fetch(everything)
    indexed = await here.fetch(
        "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
        " WHERE i.indrelid = 'memories'::regclass AND a.attnum = ANY(i.indkey)"
        " AND a.attname LIKE 'activation%'"
    )

    await Decay(db=here.db, clock=here.clock).once(here.clock.now() + timedelta(days=1))

    assert await here.fetch(everything) == before
    # What no index has may be updated in place (HOT).
    assert indexed == []


async def test_it_decays_when_a_period_turns_and_goes_on_where_a_clock_jumped(
    here: World,
) -> None:
    id_ = await here.put(PLACE, "once")
    decay = Decay(db=here.db, clock=here.clock)
    await decay.once()
    await here.execute("UPDATE memories SET activation = $2 WHERE id = $1", id_, MICRO)
    here.clock.jump(2 * 86_400)  # type: ignore[attr-defined]
    await decay.once()
    assert (await activations(here))[id_][0] == MICRO // 2

    here.clock.jump(-86_400)  # type: ignore[attr-defined]
    assert await decay.once() == 0


async def test_accesses_are_worth_the_very_integers_of_the_formula(here: World) -> None:
    given = {await here.put(PLACE, f"seen {n} times"): n for n in (0, 1, 2, 7, 64, 65, 10_000)}
    await here.execute("UPDATE memories SET activation = 123457")
    telemetry = Telemetry(db=here.db)
    for id_, times in given.items():
        for _ in range(times):
            telemetry.accessed([id_], here.clock.now())

    await telemetry.flush()

    rows = await here.fetch("SELECT id, activation FROM memories")
    assert {row["id"]: row["activation"] for row in rows} == {
        id_: bumped(123_457, times) for id_, times in given.items()
    }
    assert [bumped(a) for a in (0, MICRO // 2, MICRO)] == [250_000, 625_000, MICRO]

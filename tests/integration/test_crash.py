"""Guarantees 3 and 6: a daemon killed at any await, two daemons, one frozen past its lease."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from noema.app import Noema, build
from noema.cognition.minds import NewStimulus
from noema.config import Settings
from noema.core.clock import SystemClock, UuidV7Ids
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.running import dsns_of

_ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def child(
    database: TestDatabase, *checkpoint: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A daemon in its own process, ready to run minds; ended when the block is left."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.child", database.app_dsn, database.owner_dsn,
        *map(str, checkpoint),
        cwd=_ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.stdin.close()
        await process.wait()


@asynccontextmanager
async def watcher(database: TestDatabase, *, lease_s: float = 2.0) -> AsyncIterator[Noema]:
    """A daemon in this process."""
    clock = SystemClock()
    settings = Settings(data_dir=Path("/nonexistent"))
    async with build(
        settings, dsns_of(database), clock=clock, ids=UuidV7Ids(clock), lease_s=lease_s
    ) as noema:
        yield noema


async def prepare(database: TestDatabase) -> None:
    """A mind that nobody runs, with lines of many topics and a question waiting for it."""
    async with watcher(database) as noema:
        noema.runner.stop()
        await noema.minds.create(slug="ada", actor="user:t")
        lines = [
            f"component {'abcdefghijklmnopqrstuvwxyz'[n % 26]}{n // 26 * 'x'} failed"
            for n in range(60)
        ]
        for start in range(0, 60, 20):
            batch = [NewStimulus(text=line) for line in lines[start : start + 20]]
            await noema.minds.receive("ada", batch, actor="user:t")
        await noema.minds.say("ada", "what failed?", speaker="t", actor="user:t")


async def is_settled(noema: Noema) -> bool:
    mind = await noema.minds.get("ada")
    waiting = await noema.minds.backlog(mind)
    spoken = await noema.minds.transcript(mind)
    async with noema.db.reading() as tx:
        # What is to be remembered is written beside the cycles.
        undone = await tx.conn.fetchval("SELECT count(*) FROM intents WHERE state <> 'done'")
    is_through = mind.cycles > 0 and not waiting and not mind.pending and not undone
    return is_through and len(spoken) >= 2


async def check_whole(noema: Noema) -> None:
    """No event lost or doubled, nothing said twice, and every cycle replays to the same bytes."""
    mind = await noema.minds.get("ada")
    async with noema.db.reading() as tx:
        numbers = [
            r["n"]
            for r in await tx.conn.fetch(
                "SELECT (data ->> 'number')::int AS n FROM cognitive_events"
                " WHERE type = 'cycle.completed' ORDER BY seq"
            )
        ]
        doubled = await tx.conn.fetch(
            "SELECT id FROM cognitive_events GROUP BY id HAVING count(*) > 1"
        )
        noticed = await tx.conn.fetchval(
            "SELECT count(DISTINCT from_id) FROM derivations WHERE kind = 'noticed'"
        )
        sent = await tx.conn.fetchval(
            "SELECT count(*) FROM cognitive_events WHERE type = 'message.sent'"
        )
        done = await tx.conn.fetchval("SELECT count(*) FROM intents WHERE state <> 'done'")
    assert numbers == list(range(1, mind.cycles + 1))
    assert doubled == []
    assert noticed == 61
    assert (sent, done) == (1, 0)
    spoken = await noema.minds.transcript(mind)
    assert [m.speaker for m in spoken] == ["t", "ada"]
    replay = await noema.replays.start_verify(mind, actor="user:t")
    run = await eventually(lambda: _finished(noema, replay))
    assert run.first_difference is None
    assert run.verified == run.cycles == mind.cycles


async def _finished(noema: Noema, replay: object):  # type: ignore[no-untyped-def]
    run = await noema.replays.get(replay)  # type: ignore[arg-type]
    return run if run.state != "running" else None


@pytest.mark.parametrize("occurrence", [1, 4])
@pytest.mark.parametrize("checkpoint", [1, 2, 3])
async def test_guarantee_3_kill_9_at_every_await_of_a_cycle_loses_and_doubles_nothing(
    database: TestDatabase, checkpoint: int, occurrence: int
) -> None:
    await prepare(database)

    async with child(database, checkpoint, occurrence) as killed:
        assert await killed.wait() == -signal.SIGKILL

    async with watcher(database) as noema:
        await eventually(lambda: is_settled(noema))
        await check_whole(noema)


async def test_guarantee_3_kill_9_after_speaking_does_not_say_it_again(
    database: TestDatabase,
) -> None:
    await prepare(database)

    async with child(database, 4, 1) as killed:
        assert await killed.wait() == -signal.SIGKILL

    async with watcher(database) as noema:
        await eventually(lambda: is_settled(noema))
        await check_whole(noema)


async def test_guarantee_6_two_daemons_run_each_mind_in_one_of_them(
    database: TestDatabase,
) -> None:
    await prepare(database)

    async with child(database), child(database), watcher(database) as noema:
        await eventually(lambda: is_settled(noema))
        await check_whole(noema)


async def test_guarantee_6_a_daemon_frozen_past_its_lease_commits_nothing_afterwards(
    database: TestDatabase,
) -> None:
    await prepare(database)
    async with child(database) as frozen, watcher(database) as noema:
        await eventually(lambda: is_settled(noema))
        os.kill(frozen.pid, signal.SIGSTOP)
        await eventually(lambda: noema.runner.statuses)
        before = (await noema.minds.get("ada")).cycles
        await noema.minds.receive("ada", [NewStimulus(text="late news")], actor="user:t")
        await eventually(lambda: _cycles(noema, before + 1))

        os.kill(frozen.pid, signal.SIGCONT)
        await noema.minds.receive("ada", [NewStimulus(text="latest news")], actor="user:t")
        await eventually(lambda: _cycles(noema, before + 2))
        await eventually(lambda: is_settled(noema))

        mind = await noema.minds.get("ada")
        assert mind.owner == noema.runner.owner
        async with noema.db.reading() as tx:
            numbers = await tx.conn.fetch(
                "SELECT data ->> 'number' FROM cognitive_events WHERE type = 'cycle.completed'"
            )
        assert len(numbers) == len({r[0] for r in numbers}) == mind.cycles


async def _cycles(noema: Noema, at_least: int) -> bool:
    return (await noema.minds.get("ada")).cycles >= at_least

"""Durable cycles per second: eight minds that think as fast as their cycles are kept."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter
from typing import Any, Final
from uuid import UUID

from noema.cognition.cycle import Thinker, Trigger
from noema.cognition.minds import Minds
from noema.cognition.model import Brain, Candidate
from noema.cognition.process import Ports
from noema.cognition.runner import first_state, load_modes
from noema.cognition.state import MindState, Modes
from noema.core.clock import SystemClock, UuidV7Ids
from noema.db.tx import Database, single
from noema.events.log import EventLog
from noema.events.model import new_event
from noema.events.unit import Unit
from noema.events.writer import Writer, running
from tests.bench import bare
from tests.bench.measure import Figure, compared, side_by_side
from tests.bench.place import Place, Server

MINDS: Final = 8
CANDIDATES: Final = 40
_LEASE: Final = """
    INSERT INTO mind_leases (mind_id, owner, epoch, until)
    VALUES ($1, $2, 1, clock_timestamp() + interval '1 hour')
"""
_WORDS: Final = [
    "connection",
    "closed",
    "by",
    "invalid",
    "user",
    "failed",
    "password",
    "for",
    "root",
    "from",
    "port",
    "accepted",
    "session",
    "opened",
    "disk",
    "queue",
    "worker",
    "request",
    "timeout",
    "upstream",
    "retry",
    "checkpoint",
    "segment",
    "replica",
    "lag",
    "memory",
]


class Forty:
    """Proposes forty thoughts about things it has seen; prepared, so that it costs nothing."""

    name = "forty"
    version = 1

    def __init__(self, stimuli: Sequence[UUID]) -> None:
        rng = random.Random(7)
        self._prepared = [_forty(rng, stimuli) for _ in range(50)]

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        return self._prepared[brain.cycle % len(self._prepared)]


def _forty(rng: random.Random, stimuli: Sequence[UUID]) -> list[Candidate]:
    proposed = []
    for number, stimulus in enumerate(rng.sample(stimuli, CANDIDATES)):
        text = " ".join(rng.choices(_WORDS, k=14))
        topic = f"{text[:60]} {number}"
        proposed.append(
            Candidate(
                process=Forty.name,
                key=topic,
                topic=topic,
                text=text,
                stimuli=(stimulus,),
                folded=1,
                features={
                    "intensity": rng.randrange(1_000_000),
                    "surprise": rng.randrange(1_000_000),
                    "urgency": rng.randrange(200_000),
                    "confidence": 700_000,
                },
                raw={"intensity": 1, "surprise": number},
            )
        )
    return proposed


class _Bench:
    """Eight minds with their state, ready to think, and eight connections for the limit."""

    def __init__(
        self,
        *,
        thinker: Thinker,
        writer: Writer,
        modes: Modes,
        ids: UuidV7Ids,
        states: dict[UUID, MindState],
        connections: Sequence[Any],
        seconds: float,
    ) -> None:
        self._thinker = thinker
        self._writer = writer
        self._modes = modes
        self._ids = ids
        self._states = states
        self._connections = connections
        self._seconds = seconds
        self._recorded: list[bare.Cycle] = []
        self._written = 0

    async def ours(self) -> float:
        done = 0
        until = perf_counter() + self._seconds

        async def live(mind: UUID) -> None:
            nonlocal done
            while perf_counter() < until:
                unit = await self._think(mind)
                await self._writer.submit(unit)
                done += 1

        started = perf_counter()
        async with asyncio.TaskGroup() as group:
            for mind in self._states:
                group.create_task(live(mind))
        return done / (perf_counter() - started)

    async def _think(self, mind: UUID) -> Unit:
        thought = await self._thinker.think(
            self._states[mind], (), (), mind=mind, actor="mind:bench",
            trigger=Trigger(name="operator"), modes=self._modes, epoch=1,
        )  # fmt: skip
        self._states[mind] = thought.state
        return thought.unit

    async def record(self) -> None:
        """Think once for each mind, to know which rows a cycle writes; nothing is kept of it."""
        for mind in self._states:
            state = self._states[mind]
            self._recorded.append(bare.Cycle(await self._think(mind)))
            self._states[mind] = state

    async def limit(self) -> float:
        done = 0
        until = perf_counter() + self._seconds

        async def write(conn: Any, cycle: bare.Cycle) -> None:
            nonlocal done
            while perf_counter() < until:
                self._written += 1
                await cycle.write(conn, self._ids, self._written)
                done += 1

        started = perf_counter()
        async with asyncio.TaskGroup() as group:
            for conn, cycle in zip(self._connections, self._recorded, strict=True):
                group.create_task(write(conn, cycle))
        return done / (perf_counter() - started)


async def _minds(db: Database, events: EventLog, writer: Writer, ids: UuidV7Ids) -> list[UUID]:
    minds = Minds(db=db, events=events, writer=writer, clock=SystemClock(), ids=ids)
    made = []
    for number in range(MINDS):
        mind = await minds.create(slug=f"bench-{number}", actor="bench")
        async with db.transaction() as tx:
            await tx.conn.execute(_LEASE, mind.id, ids.new())
            await bare.add_mind(tx.conn, mind.id, mind.slug)
        made.append(mind.id)
    return made


async def _stimuli(events: EventLog, db: Database, ids: UuidV7Ids) -> list[UUID]:
    seen = [
        new_event(
            ids, type="stimulus.received", occurred_at=SystemClock().now(), actor="bench",
            content={"text": "something was seen"},
        )
        for _ in range(2_000)
    ]  # fmt: skip
    async with db.transaction() as tx:
        await events.append(tx, seen)
    return [e.id for e in seen]


@asynccontextmanager
async def _prepared(place: Place, seconds: float) -> AsyncIterator[_Bench]:
    clock = SystemClock()
    ids = UuidV7Ids(clock)
    await bare.prepare(place)
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(place.open())
        events = EventLog(db=db)
        writer = Writer(connect=lambda: single(place.app_dsn, place.role), clock=clock)
        await stack.enter_async_context(running(writer))
        minds = await _minds(db, events, writer, ids)
        forty = Forty(await _stimuli(events, db, ids))
        async with db.reading() as tx:
            rows = {
                row["id"]: row["slug"] for row in await tx.conn.fetch("SELECT id, slug FROM minds")
            }
        reader = Minds(db=db, events=events, writer=writer, clock=clock, ids=ids)
        states = {m: await first_state(db, await reader.get(rows[m])) for m in minds}
        bench = _Bench(
            thinker=Thinker(processes=(forty,), events=events, clock=clock, ids=ids),
            writer=writer,
            modes=await load_modes(db),
            ids=ids,
            states=states,
            connections=[
                await stack.enter_async_context(single(place.app_dsn, place.role))
                for _ in range(MINDS)
            ],
            seconds=seconds,
        )
        await bench.record()
        yield bench


async def cycles_per_second(server: Server, *, quick: bool) -> list[Figure]:
    """Measure with commits as fast as the disk is."""
    async with server.database() as place, _prepared(place, 1.0) as bench:
        mine, theirs = await side_by_side(bench.ours, bench.limit, rounds=5 if quick else 15)
    return [compared("cycles_per_second", mine, theirs, unit="cycles/s", target=0.6)]


async def cycles_slow_commits(server: Server, *, quick: bool) -> list[Figure]:
    """Measure with 4 ms added to every commit, as on a disk that syncs slowly."""
    async with server.database() as place:
        async with place.admin() as conn:
            # Only a superuser may set these; both sides connect afterwards and so both have them.
            await conn.execute(f'ALTER DATABASE "{place.name}" SET commit_delay = 4000')
            await conn.execute(f'ALTER DATABASE "{place.name}" SET commit_siblings = 0')
        async with _prepared(place, 1.0) as bench:
            mine, theirs = await side_by_side(bench.ours, bench.limit, rounds=5 if quick else 15)
    return [compared("cycles_per_second_slow_commits", mine, theirs, unit="cycles/s", target=0.6)]

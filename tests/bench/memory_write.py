"""Writes of governed memory against bare inserts of the same rows, and a long import.

A bare write is a transaction with three inserts whose values are ready beforehand: a memory, its
vector and its audit row, into tables with the same columns and indexes, without foreign keys,
triggers and guards. Ours is `WritePath.write` from the text on: terms, names, labels, the vector,
the dedupe, the audit row with its commitment.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter
from typing import Any, Final

import psutil

from noema.core.clock import SystemClock, UuidV7Ids
from noema.db.tx import Database
from noema.llm.embedders.hash import HashEmbedder, vector_of
from noema.memory.analyse import terms
from noema.memory.model import Write
from noema.memory.normalise import dedupe_key
from tests.bench.measure import Figure, compared, percentile, side_by_side
from tests.bench.place import Place, Server
from tests.writing import WriteHouse, frame_of, identity

NAMESPACE: Final = "acme/eng"
_MB: Final = 1024 * 1024
_IMPORTED: Final = 100_000
_IN_FLIGHT: Final = 8

_TABLES: Final = """
    CREATE TABLE bare_memories (LIKE memories INCLUDING ALL) WITH (fillfactor = 85);
    CREATE TABLE bare_embeddings (LIKE memory_embeddings_fresh INCLUDING ALL);
    CREATE TABLE bare_audit (LIKE audit_log INCLUDING ALL);
"""

_MEMORY: Final = """
    INSERT INTO bare_memories
        (id, namespace, kind, epistemic_kind, text, content, dedupe_key, terms, assertion_time,
         t_valid_from, source, route, trust, actor, agent_id, sensitivity, destinations, classifier,
         activation_epoch)
    VALUES ($1, $2, 'fact', 'fact', $3, '{}', $4, $5, $6, $6, '', 'document', 40, 'user:ada',
            'http', 'internal', '{local,peer,provider}', 'rules-1', 0)
"""

_EMBEDDING: Final = """
    INSERT INTO bare_embeddings (memory_id, model, dims, namespace, kind, shelf, embedding)
    VALUES ($1, $2, $3, $4, 'fact', 'fresh', $5::real[])
"""

_AUDIT: Final = """
    INSERT INTO bare_audit
        (id, occurred_at, actor, agent_id, op, target, namespace, result, content, salt, commitment)
    VALUES ($1, $2, 'user:ada', 'http', 'mem.write', $3, $4, 'ok', '{"detail": "stored=1"}', $5, $6)
"""

_SUBJECTS: Final = "Ada Grace Linus Barbara Edsger Donald Tim Margaret Alan Radia"
_WORDS: Final = (
    "prefers reviews deployment backlog cluster replica ticket customer invoice schedule meeting "
    "release branch coverage metrics latency budget garden kitchen window coffee train morning "
    "evening project report archive storage network sensor battery station harbour mountain river"
)


def facts(seed: int = 5) -> Iterator[str]:
    """Yield facts of twenty words about ten people, no two the same."""
    rng = random.Random(seed)
    subjects, words = _SUBJECTS.split(), _WORDS.split()
    number = 0
    while True:
        number += 1
        yield f"{rng.choice(subjects)} {' '.join(rng.choices(words, k=17))} in case {number}"


@asynccontextmanager
async def _house(place: Place, *, size: int = 10) -> AsyncIterator[WriteHouse]:
    async with place.open(size=size) as db:
        yield await WriteHouse.open(db, embedder=HashEmbedder(), namespaces=(NAMESPACE,))


async def _warm(db: Database, size: int) -> None:
    """Open as many connections as there will be writers."""

    async def hold(all_here: asyncio.Barrier) -> None:
        async with db.statements():
            await all_here.wait()

    barrier = asyncio.Barrier(size)
    async with asyncio.TaskGroup() as group:
        for _ in range(size):
            group.create_task(hold(barrier))


class _Bare:
    """Rows that are ready, one connection for each client."""

    def __init__(self, connections: list[Any], texts: Iterator[str]) -> None:
        self._connections = connections
        self._ids = UuidV7Ids(SystemClock())
        self._texts = texts
        self._ready: list[tuple[Any, ...]] = []

    def prepare(self, rows: int) -> None:
        now = SystemClock().now()
        for _ in range(rows - len(self._ready)):
            text = next(self._texts)
            self._ready.append(
                (self._ids.new(), text, dedupe_key(text), terms(text), vector_of(text), now,
                 self._ids.new(), self._ids.salt())
            )  # fmt: skip

    async def write(self, client: int) -> None:
        id_, text, key, found, vector, now, audit, salt = self._ready.pop()
        conn = self._connections[client]
        async with conn.transaction():
            await conn.execute(_MEMORY, id_, NAMESPACE, text, key, found, now)
            await conn.execute(_EMBEDDING, id_, "hash", len(vector), NAMESPACE, vector)
            await conn.execute(_AUDIT, audit, now, f"memory:{id_}", NAMESPACE, salt, key)


async def _rate(write: Any, *, clients: int, count: int) -> float:
    """Return how many a second come of so many clients that write one after the other."""

    async def client(number: int) -> None:
        for _ in range(count // clients):
            await write(number)

    started = perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(client(number))
    return count // clients * clients / (perf_counter() - started)


async def mem_write(server: Server, *, quick: bool) -> list[Figure]:
    """Compare writes with bare inserts, from one client and from eight."""
    return [await _compared(server, clients=n, quick=quick) for n in (1, 8)]


async def _compared(server: Server, *, clients: int, quick: bool) -> Figure:
    rounds, count = (3, 400) if quick else (7, 1_600)
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(server.database())
        async with place.admin() as admin:
            await admin.execute(_TABLES)
        house = await stack.enter_async_context(_house(place))
        await _warm(house.db, clients)
        connections = [await stack.enter_async_context(place.admin()) for _ in range(clients)]
        bare = _Bare(connections, facts(7))
        texts = facts(5)
        who, clock = identity(NAMESPACE), SystemClock()

        async def write(_: int) -> None:
            await house.path.write(frame_of(who, clock.now()), Write(text=next(texts)))

        async def ours() -> float:
            return await _rate(write, clients=clients, count=count)

        async def limit() -> float:
            bare.prepare(count)
            return await _rate(bare.write, clients=clients, count=count)

        mine, theirs = await side_by_side(ours, limit, rounds=rounds)
    name = f"mem_write_{clients}_client{'s' if clients > 1 else ''}"
    return compared(name, mine, theirs, unit="writes/s", target=0.4)


async def mem_import(server: Server, *, quick: bool) -> list[Figure]:
    """Write a hundred thousand facts, and watch how much memory that takes.

    The limit is the memory after the first tenth and a tenth more: what is imported is not kept.
    """
    count = _IMPORTED // 20 if quick else _IMPORTED
    process = psutil.Process()
    async with server.database() as place, _house(place) as house:
        await _warm(house.db, _IN_FLIGHT)
        texts = facts(11)
        who, clock = identity(NAMESPACE), SystemClock()
        took: list[float] = []

        async def write(_: int) -> None:
            started = perf_counter()
            await house.path.write(frame_of(who, clock.now()), Write(text=next(texts)))
            if len(took) < 10_000:
                took.append(perf_counter() - started)

        tenth = count // 10
        before = perf_counter()
        await _rate(write, clients=_IN_FLIGHT, count=tenth)
        first = process.memory_info().rss / _MB
        await _rate(write, clients=_IN_FLIGHT, count=count - tenth)
        spent = perf_counter() - before
        last = process.memory_info().rss / _MB
        stored = (await house.fetch("SELECT count(*) FROM memories"))[0][0]
        assert (
            stored == tenth // _IN_FLIGHT * _IN_FLIGHT + (count - tenth) // _IN_FLIGHT * _IN_FLIGHT
        )
    return [
        Figure(
            name="mem_import_memory",
            ours=last,
            limit=max(first * 1.1, first + 20),
            unit="MB",
            higher_is_better=False,
            target=1.0,
            note=f"{count:,} facts, {count / spent:,.0f}/s, "
            f"p99 {percentile(took, 0.99) * 1e3:.1f} ms, {first:.0f} MB after a tenth",
        )
    ]

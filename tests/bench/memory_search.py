"""Searches of governed memory against the bare SQL of their two lanes.

A hundred thousand memories of twenty words in two hundred namespaces, and callers that see a
hundredth, a tenth and all of them. Ours is `Kernel.mem_search` with everything it does: rights,
policy, scope, both lanes, ranking, the rows themselves. Audit rows and telemetry, which the daemon
writes in batches beside it, are written between the rounds. The limit is the two statements alone,
on plain connections that plan each anew, their arguments ready beforehand. The rows are put in by
COPY: this is about reading.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import accumulate, cycle
from statistics import median
from time import perf_counter
from typing import Any, Final
from uuid import UUID

import asyncpg
import numpy as np

from noema.core.clock import SystemClock
from noema.core.identity import Identity, MemoryRole
from noema.db.pgvector import Vectors
from noema.db.tx import Database, connect
from noema.llm.model import Purpose
from noema.memory.analyse import query_terms, terms
from noema.memory.ann import AnnKeeper
from noema.memory.model import Search, Share
from noema.memory.retrieve import FEW, SESSION_SETTINGS
from noema.memory.store import search as store
from noema.memory.store.search import Fence, Wanted
from noema.memory.tsquery import Frequencies, Plan, fence, plan
from noema.memory.vectors import EXACT_BELOW, Sizes, VectorLane
from tests.bench.governed import governed, prepared
from tests.bench.measure import Figure, compared, side_by_side, spread
from tests.bench.place import Place, Server
from tests.memories import Memories

ROWS: Final = 100_000
QUICK_ROWS: Final = 10_000
NAMESPACES: Final = 200
WORDS: Final = 20
DIMS: Final = 384
MODEL: Final = "bench-384"
K: Final = 10
CLIENTS: Final = 8
TENANT: Final = "bench"
# Two of the namespaces, twenty of them, all.
SHARES: Final = {"1pct": "bench/a/b", "10pct": "bench/ten", "100pct": "bench/all"}
_VOCABULARY: Final = 20_000
_ZIPF: Final = 1.05
_CLUSTERS: Final = 300
_BATCH: Final = 5_000
_COLUMNS: Final = (
    "id namespace kind epistemic_kind status text content dedupe_key terms assertion_time "
    "t_valid_from source route trust actor agent_id sensitivity classifier activation_epoch"
)

_PLACES: Final = """
    INSERT INTO namespaces (path, tenant, created_by)
    SELECT p, 'bench', 'bench' FROM unnest($1::text[]) p ON CONFLICT DO NOTHING
"""

_STAGE: Final = """
    CREATE TEMP TABLE stage (memory_id uuid, model text, dims int, namespace text, kind text,
                             shelf text, embedding real[])
"""

_UNSTAGE: Final = "INSERT INTO memory_embeddings SELECT * FROM stage"


def _places() -> list[str]:
    found = ["bench/a", "bench/a/b", *[f"bench/t/n{number:02}" for number in range(20)]]
    return found + [f"bench/o/n{number:03}" for number in range(NAMESPACES - len(found))]


class Cloud:
    """Clustered points of length 1."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._centres = self._rng.standard_normal((_CLUSTERS, DIMS)) * 0.8

    def points(self, count: int) -> list[list[float]]:
        chosen = self._centres[self._rng.integers(0, _CLUSTERS, count)]
        found = chosen + self._rng.standard_normal((count, DIMS))
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).tolist()  # type: ignore[no-any-return]


class Ready:
    """An embedder whose answers are ready: what a query costs is the search alone."""

    model: Final = MODEL
    dims: Final = DIMS
    weight: Final = 0.5

    def __init__(self) -> None:
        self.known: dict[str, list[float]] = {}

    async def embed(self, texts: Sequence[str], *, purpose: Purpose) -> list[Sequence[float]]:
        return [self.known[text] for text in texts]


@dataclass(slots=True, kw_only=True)
class Texts:
    """Texts of words that are as unevenly frequent as words are."""

    rng: random.Random
    words: list[str] = field(init=False)
    weights: list[float] = field(init=False)

    def __post_init__(self) -> None:
        syllables = [c + v for c in "bcdfghjklmnprstvz" for v in "aeiou"]
        made = ("".join(self.rng.choices(syllables, k=3)) for _ in range(2 * _VOCABULARY))
        self.words = list(dict.fromkeys(made))[:_VOCABULARY]
        self.weights = list(accumulate((n + 1) ** -_ZIPF for n in range(len(self.words))))

    def next(self) -> str:
        return " ".join(self.rng.choices(self.words, cum_weights=self.weights, k=WORDS))


async def _fill(place: Place, rows: int, cloud: Cloud) -> list[str]:
    """Put the memories in; return what some of them say, for queries."""
    rng = random.Random(5)
    texts, places = Texts(rng=rng), _places()
    now, said = datetime(2026, 1, 1, tzinfo=UTC), []
    async with place.admin() as conn:
        await conn.execute(_PLACES, [*places, "bench/ten", "bench/all", "bench/t", "bench/o"])
        await conn.execute(_STAGE)
        for begin in range(0, rows, _BATCH):
            records, staged = [], []
            for number, point in enumerate(cloud.points(_BATCH), begin):
                text, at = texts.next(), now - timedelta(minutes=number)
                id_, namespace = UUID(int=rng.getrandbits(128)), places[number % NAMESPACES]
                records.append(
                    (id_, namespace, "fact", "fact", "active", text, "{}",
                     sha256(id_.bytes).digest(), terms(text), at, at, "", "document", 40, "bench",
                     "bench", "internal", "bench", 0)
                )  # fmt: skip
                staged.append((id_, MODEL, DIMS, namespace, "fact", "fresh", point))
            said += [record[5] for record in records[:: max(1, _BATCH // 40)]]
            await conn.copy_records_to_table("memories", records=records, columns=_COLUMNS.split())
            await conn.execute("TRUNCATE stage")
            await conn.copy_records_to_table("stage", records=staged)
            await conn.execute(_UNSTAGE)
        await conn.execute("VACUUM ANALYZE memories, memory_embeddings", timeout=600)
    return said


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A query, and the arguments of its bare statements."""

    text: str
    plan: Plan
    wanted: Wanted


class _Bare:
    """The two lanes as statements on connections of their own, one after the other."""

    def __init__(self, connections: Sequence[Any], namespaces: Sequence[str], visible: int) -> None:
        self._connections = connections
        self._lane = store.exact if visible <= EXACT_BELOW else store.nearest
        self._fence = Fence(tuple(namespaces))
        self._is_few = visible <= FEW
        self._within = fence(namespaces)

    async def search(self, client: int, asked: _Asked) -> None:
        conn, chosen = self._connections[client], asked.plan
        await store.text(
            conn,
            self._fence,
            self._within + chosen.strict,
            chosen.strict,
            chosen,
            pool=160,
            is_few=self._is_few,
        )
        await self._lane(conn, self._fence, asked.wanted)

    async def recall(self, lane: VectorLane, db: Database, asked: _Asked) -> float:
        """Return what share of the truly nearest the lane finds."""
        found = await lane.search(db, self._fence, asked.wanted)
        true = await store.exact(self._connections[0], self._fence, asked.wanted)
        return len({id_ for id_, _ in found} & {row["id"] for row in true}) / len(true)


async def mem_search(server: Server, *, quick: bool) -> list[Figure]:
    """Measure the median of single searches, the rate of eight clients, and the lane's recall."""
    rows, queries = (QUICK_ROWS, 60) if quick else (ROWS, 300)
    cloud, embedder = Cloud(7), Ready()
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(server.database())
        vectors = await prepared(place)
        mem = await stack.enter_async_context(governed(place, TENANT, embedder=embedder))
        said = await _fill(place, rows, cloud)
        await AnnKeeper(place.owner_dsn, vectors=vectors, clock=SystemClock()).once()
        callers = await _callers(mem)
        connections = [await stack.enter_async_context(_plain(place)) for _ in range(CLIENTS)]
        searching = await stack.enter_async_context(
            connect(place.app_dsn, clock=SystemClock(), role=place.role, settings=SESSION_SETTINGS)
        )
        known = await store.frequencies(connections[0])
        rng = random.Random(11)
        texts = [" ".join(rng.sample(rng.choice(said).split(), 5)) for _ in range(queries)]
        embedder.known = dict(zip(texts, cloud.points(len(texts)), strict=True))
        figures: list[Figure] = []
        for share, who in callers.items():
            figures += await _measured(
                mem,
                share,
                who,
                connections,
                searching,
                vectors,
                texts,
                embedder,
                known,
                quick=quick,
            )
        return figures


async def _measured(
    mem: Memories,
    share: str,
    who: Identity,
    connections: Sequence[Any],
    searching: Database,
    vectors: Vectors,
    texts: Sequence[str],
    embedder: Ready,
    known: Frequencies,
    *,
    quick: bool,
) -> list[Figure]:
    namespaces = _seen(share)
    visible = len(namespaces) * ((QUICK_ROWS if quick else ROWS) // NAMESPACES)
    queries = [
        _Asked(
            text=text,
            plan=plan(query_terms(text), known, visible),
            wanted=Wanted(embedder.known[text], MODEL, 2 * K),
        )
        for text in texts
    ]
    lane = VectorLane(vectors=vectors, sizes=Sizes(SystemClock()))
    bare = _Bare(connections, namespaces, visible)

    async def search(_: int, asked: _Asked) -> None:
        found = await mem.kernel.mem_search(who, Search(query=asked.text, k=K))
        assert len(found.hits) == K, f"{len(found.hits)} rows where there are {visible:,}"
        assert all(hit.memory.namespace in namespaces for hit in found.hits)

    rounds, count = (3, 20) if quick else (7, 60)
    seconds = 0.7 if quick else 2.0

    async def median_ms() -> float:
        found = await _median_ms(search, queries, count)
        await mem.service.flush()
        return found

    async def rate() -> float:
        found = await _rate(search, queries, seconds)
        await mem.service.flush()
        return found

    mine, theirs = await side_by_side(
        median_ms,
        lambda: _median_ms(bare.search, queries, count),
        rounds=rounds,
    )
    rates, limits = await side_by_side(
        rate,
        lambda: _rate(bare.search, queries, seconds),
        rounds=rounds,
    )
    recalls = [await bare.recall(lane, searching, asked) for asked in queries[:50]]
    return [
        Figure(
            name=f"mem_search_p50_{share}",
            ours=median(mine),
            limit=median(theirs),
            unit="ms",
            higher_is_better=False,
            target=1.5,
            note=f"{visible:,} rows seen, rounds {spread(mine)}, limit {spread(theirs)}",
        ),
        compared(f"mem_search_8_clients_{share}", rates, limits, unit="searches/s", target=0.5),
        Figure(
            name=f"mem_search_recall_{share}",
            ours=sum(recalls) / len(recalls),
            limit=1.0,
            unit="share",
            higher_is_better=True,
            target=0.98,
            note="of the truly nearest, by the vector lane",
        ),
    ]


Search1 = Callable[[int, _Asked], Awaitable[None]]


async def _median_ms(search: Search1, queries: Sequence[_Asked], count: int) -> float:
    took = []
    for asked in random.Random(count).sample(list(queries), count):
        started = perf_counter()
        await search(0, asked)
        took.append((perf_counter() - started) * 1e3)
    return median(took)


async def _rate(search: Search1, queries: Sequence[_Asked], seconds: float) -> float:
    """Return how many a second come of eight clients that search one after the other."""
    done = 0
    until = perf_counter() + seconds
    following = cycle(queries)

    async def client(number: int) -> None:
        nonlocal done
        while perf_counter() < until:
            await search(number, next(following))
            done += 1

    started = perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(client(number))
    return done / (perf_counter() - started)


def _seen(share: str) -> list[str]:
    """Return the namespaces with rows that the caller of that share sees."""
    match share:
        case "1pct":
            return ["bench/a", "bench/a/b"]
        case "10pct":
            return [path for path in _places() if path.startswith("bench/t/")]
        case _:
            return _places()


async def _callers(mem: Memories) -> dict[str, Identity]:
    """Let two see subtrees by grants; the first sees what it does by its place."""
    for subtree, reader in (("bench/t", "bench/ten"), ("bench", "bench/all")):
        owner = mem.who(subtree, "owner", MemoryRole.OWNER)
        await mem.kernel.mem_share(owner, Share(subtree=subtree, to_namespace=reader))
    return {share: mem.who(path, "reader") for share, path in SHARES.items()}


@asynccontextmanager
async def _plain(place: Place) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    settings = dict(SESSION_SETTINGS) | ({"role": place.role} if place.role else {})
    conn: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
        place.app_dsn, server_settings=settings
    )
    try:
        yield conn
    finally:
        await conn.close()

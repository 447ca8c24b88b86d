"""Retrieval: what a search finds, for whom, as of when, and that it finds as much as there is."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from math import isclose
from uuid import UUID, uuid4

import asyncpg
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noema.core.clock import ManualClock, SystemClock
from noema.core.errors import InvalidInput, Unavailable
from noema.core.identity import MemoryRole
from noema.db.pgvector import Vectors, inspect
from noema.db.tx import Database, connect
from noema.llm.model import Purpose
from noema.memory import vectors as lanes
from noema.memory.ann import AnnKeeper, Bounds
from noema.memory.model import (
    Kind,
    Scope,
    Search,
    SearchResult,
    Share,
    TurnIn,
    Write,
    WriteResult,
)
from noema.memory.retrieve import SESSION_SETTINGS, TEXT_ONLY, Retriever
from noema.memory.store import ann as ann_store
from tests.conftest import TestDatabase
from tests.memories import Memories, memories
from tests.raw_memories import remember

DIMS = 24


@pytest.fixture
async def mem(database: TestDatabase, clock: ManualClock) -> AsyncIterator[Memories]:
    async with memories(database, clock) as opened:
        yield opened


async def search(mem: Memories, place: str, query: str, **fields: object) -> SearchResult:
    who = mem.who(place, role=MemoryRole.MEMBER)
    return await mem.kernel.mem_search(who, Search(query=query, **fields))  # type: ignore[arg-type]


def texts(found: SearchResult) -> list[str]:
    return [hit.memory.text for hit in found.hits]


class Fixed:
    """An embedder whose vectors a test has chosen; it fails where it is told to."""

    model = "fixed"
    weight = 0.5

    def __init__(self, known: dict[str, Sequence[float]] | None = None, *, dims: int = 4) -> None:
        self.known = known or {}
        self.dims = dims
        self.fails = False

    async def embed(self, texts: Sequence[str], *, purpose: Purpose) -> list[Sequence[float]]:
        if self.fails:
            raise Unavailable("The embedder is away.")
        other = [0.0] * (self.dims - 1) + [1.0]
        return [self.known.get(text, other) for text in texts]


# --- what is found ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("東京都に住んでいます", "東京"),
        ("東京都に住んでいます", "都"),
        ("대한민국의 수도는 서울이다", "서울"),
        ("Мы развернули новые серверы", "сервер"),
        ("Crème brûlée after dinner", "creme brulee"),
        ("Deployed 🚀 on Friday", "🚀"),
        ("ฉันรักภาษาไทย", "ภาษา"),
    ],
)
async def test_guarantee_24_text_of_every_script_is_found(
    mem: Memories, stored: str, asked: str
) -> None:
    await mem.places("acme/eng")
    who = mem.who("acme/eng")
    for filler in ("Nothing to see here.", "ничего", "何もない", "아무것도", "ไม่มี"):
        await mem.wrote(who, filler)
    wanted = await mem.wrote(who, stored)

    found = await search(mem, "acme/eng", asked, explain=True)

    assert found.hits[0].memory.id == wanted
    assert found.hits[0].components is not None
    assert found.hits[0].components.bm25 > 0


async def test_a_rare_word_beats_frequent_ones(mem: Memories) -> None:
    await mem.places("acme")
    who = mem.who("acme")
    for number in range(30):
        await mem.wrote(who, f"The service answered request {number} of the cluster.")
    wanted = await mem.wrote(who, "The quorum was lost.")

    found = await search(mem, "acme", "quorum of the service cluster")

    assert found.hits[0].memory.id == wanted


async def test_components_are_told_where_they_are_asked_for_and_add_up(mem: Memories) -> None:
    await mem.places("acme")
    await mem.wrote(mem.who("acme"), "Ada Lovelace prefers tea.")
    await mem.wrote(mem.who("acme"), "Grace prefers coffee.")

    plain = await search(mem, "acme", "What does Ada Lovelace prefer?")
    told = await search(mem, "acme", "What does Ada Lovelace prefer?", explain=True)

    assert all(hit.components is None for hit in plain.hits)
    assert texts(plain) == texts(told)
    for hit in told.hits:
        assert hit.components is not None
        parts = (w * getattr(hit.components, name) for name, w in hit.components.weights.items())
        assert isclose(sum(parts), hit.score)


async def test_what_mentions_an_entity_of_the_query_is_nearer(mem: Memories) -> None:
    await mem.places("acme")
    who = mem.who("acme")
    await mem.wrote(who, "We met Ada Lovelace in Turin.")
    await mem.wrote(who, "Somebody met the caterer.")

    found = await search(mem, "acme", "who met Ada Lovelace?", explain=True)

    graph = {h.memory.text: h.components.graph for h in found.hits if h.components is not None}
    assert graph == {"We met Ada Lovelace in Turin.": 1.0, "Somebody met the caterer.": 0.0}
    assert found.hits[0].memory.entities == ("Ada Lovelace", "Turin")


async def test_an_answer_is_found_by_its_question_and_not_in_another_session(mem: Memories) -> None:
    await mem.places("acme")
    who = mem.who("acme")
    said = ["Hello!", "What is your favourite colour, Ada?", "It was always green.", "I see."]
    other = ["Hi!", "How was the weather?", "It was always raining.", "A pity."]
    for lines in (said, other):
        turns = tuple(TurnIn(speaker="ab"[n % 2], text=line) for n, line in enumerate(lines))
        written = await mem.kernel.mem_write(who, Write(messages=turns))
        assert isinstance(written, WriteResult)
        assert written.stored == 4

    found = await search(mem, "acme", "favourite colour", k=2)

    assert texts(found) == ["What is your favourite colour, Ada?", "It was always green."]


async def test_a_query_without_words_answers_with_the_newest(
    database: TestDatabase, clock: ManualClock
) -> None:
    async with retriever(database, size=2) as (db, retrieve, _):
        async with owner(database) as conn:
            for text in ("old", "new"):
                await remember(conn, text=text)
        found = await retrieve.search(
            scope("acme"), Search(query=" … "), now=clock.now(), embedder=None
        )
        assert len(found.hits) == 2
        assert db is not None


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(query=st.text(max_size=120) | st.text(alphabet="'\\|&!():*@<-> ab\x00\ud800", max_size=40))
async def test_no_query_breaks_the_search(mem: Memories, query: str) -> None:
    await mem.places("acme")

    found = await search(mem, "acme", f".{query}")

    assert found.degraded is None


# --- who finds it -------------------------------------------------------------------------------


async def test_guarantee_20_filters_apply_before_the_first_k(mem: Memories) -> None:
    await mem.places("acme/eng", "acme/sales")
    for number in range(120):
        await mem.wrote(mem.who("acme/sales"), f"The disk of host {number} failed.")
    own = [await mem.wrote(mem.who("acme/eng"), f"A disk, number {n}.") for n in range(6)]
    rules = [
        await mem.wrote(mem.who("acme/eng"), f"Disk rule {n}.", kind=Kind.SEMANTIC)
        for n in range(5)
    ]

    found = await search(mem, "acme/eng", "the disk of host 7 failed", k=11)
    only = await search(mem, "acme/eng", "the disk of host 7 failed", k=5, kinds=(Kind.SEMANTIC,))

    assert {hit.memory.id for hit in found.hits} == {*own, *rules}
    assert {hit.memory.id for hit in only.hits} == set(rules)


async def test_what_others_store_changes_no_score(mem: Memories) -> None:
    await mem.places("acme/eng", "acme/sales")
    for number in range(5):
        await mem.wrote(mem.who("acme/eng"), f"Disk {number} of the quorum.")
    before = await search(mem, "acme/eng", "quorum disk", explain=True)

    for number in range(40):
        await mem.wrote(mem.who("acme/sales"), f"A quorum of customers, {number}.")
    after = await search(mem, "acme/eng", "quorum disk", explain=True)

    assert [h.components for h in before.hits] == [h.components for h in after.hits]


async def test_a_shared_memory_is_found_and_its_neighbours_are_not(mem: Memories) -> None:
    await mem.places("acme/eng", "acme/sales")
    boss = mem.who("acme/sales", "boss", MemoryRole.OWNER)
    shared = await mem.wrote(boss, "The quarterly forecast is bright.")
    await mem.wrote(boss, "The quarterly forecast is secret.")
    await mem.wrote(mem.who("acme/eng"), "A forecast of rain.")
    await mem.kernel.mem_share(boss, Share(memory=shared, to_namespace="acme/eng"))

    found = await search(mem, "acme/eng", "quarterly forecast")

    assert found.hits[0].memory.id == shared
    assert found.hits[0].memory.is_shared
    assert texts(found)[1:] == ["A forecast of rain."]


async def test_more_namespaces_than_a_query_names_are_still_a_fence(
    database: TestDatabase, clock: ManualClock
) -> None:
    places = [f"acme/n{number}" for number in range(20)]
    async with retriever(database) as (_, retrieve, _embedder), owner(database) as conn:
        for place in [*places, "acme/other"]:
            await put(conn, place, "disk")
        found = await retrieve.search(
            scope(*places), Search(query="disk", k=50), now=clock.now(), embedder=None
        )

    assert {hit.memory.namespace for hit in found.hits} == set(places)


async def test_a_missing_scope_is_an_error(database: TestDatabase, clock: ManualClock) -> None:
    async with retriever(database) as (_, retrieve, _embedder):
        empty = Scope(writable="acme", own=(), namespaces=())
        with pytest.raises(Exception, match="without a scope"):
            await retrieve.search(empty, Search(query="x"), now=clock.now(), embedder=None)


# --- as of when ---------------------------------------------------------------------------------


async def test_what_is_closed_is_found_only_where_the_past_is_asked_for(
    mem: Memories, clock: ManualClock
) -> None:
    await mem.places("acme")
    who = mem.who("acme")
    old = await mem.wrote(who, "Ada lives in Rome.")
    clock.advance(3600)
    then = clock.now()
    clock.advance(3600)
    new = await mem.wrote(who, "Ada lives in Paris.", supersedes=old)

    now = await search(mem, "acme", "where does Ada live")
    every = await search(mem, "acme", "where does Ada live", valid_only=False)
    before = await search(mem, "acme", "where does Ada live", as_of=then)
    long_ago = await search(mem, "acme", "Ada", as_of=then - timedelta(days=1))

    assert [hit.memory.id for hit in now.hits] == [new]
    assert {hit.memory.id for hit in every.hits} == {old, new}
    assert [hit.memory.superseded_by for hit in every.hits if hit.memory.id == old] == [new]
    assert [hit.memory.id for hit in before.hits] == [old]
    assert long_ago.hits == ()


async def test_what_was_retracted_later_was_believed_before(
    mem: Memories, clock: ManualClock
) -> None:
    await mem.places("acme")
    boss = mem.who("acme", "boss", MemoryRole.OWNER)
    wrong = await mem.wrote(boss, "The moon is made of cheese.")
    clock.advance(60)
    then = clock.now()
    clock.advance(60)
    await mem.kernel.mem_retract(boss, wrong, "it is not")

    assert (await search(mem, "acme", "moon cheese")).hits == ()
    assert len((await search(mem, "acme", "moon cheese", as_of=then)).hits) == 1
    assert (await search(mem, "acme", "moon cheese", as_of=clock.now())).hits == ()


async def test_guarantee_24_a_moment_without_a_zone_is_refused(mem: Memories) -> None:
    await mem.places("acme")
    with pytest.raises(InvalidInput):
        await search(mem, "acme", "x", as_of=datetime(2026, 1, 1))  # noqa: DTZ001


# --- how much of it -----------------------------------------------------------------------------


async def test_a_budget_trims_and_keeps_the_top_whatever_it_costs(mem: Memories) -> None:
    await mem.places("acme")
    who = mem.who("acme")
    await mem.wrote(who, "quorum quorum " + "and so on " * 40)
    await mem.wrote(who, "A small note on the quorum.")

    tight = await search(mem, "acme", "quorum", token_budget=1)
    loose = await search(mem, "acme", "quorum", token_budget=10_000)

    assert (len(tight.hits), tight.trimmed) == (1, 1)
    assert tight.hits[0].memory.id == loose.hits[0].memory.id
    assert (len(loose.hits), loose.trimmed) == (2, 0)
    assert loose.tokens == sum(-(-len(text) // 4) for text in texts(loose))


async def test_as_many_rows_as_asked_come_where_there_are_as_many(mem: Memories) -> None:
    await mem.places("acme")
    for number in range(230):
        await mem.wrote(mem.who("acme"), f"Note {number} about gardens.")

    assert len((await search(mem, "acme", "harbour", k=200)).hits) == 200
    assert len((await search(mem, "acme", "gardens", k=200)).hits) == 200


# --- when something is missing ------------------------------------------------------------------


async def test_a_failing_embedder_leaves_text_search_and_says_so(
    database: TestDatabase, clock: ManualClock
) -> None:
    embedder = Fixed()
    async with memories(database, clock, embedder=embedder) as mem:
        await mem.places("acme")
        await mem.wrote(mem.who("acme"), "The disk failed.")
        embedder.fails = True
        found = await search(mem, "acme", "disk")
        await mem.service.flush()
        row = (await mem.audited("mem.search"))[-1]

    assert texts(found) == ["The disk failed."]
    assert found.driver == TEXT_ONLY
    assert found.degraded is not None
    assert "driver=bm25-degraded" in row.detail


async def test_a_driver_nobody_knows_is_replaced_and_the_answer_says_so(
    database: TestDatabase, clock: ManualClock
) -> None:
    async with retriever(database) as (_, retrieve, _embedder):
        found = await retrieve.search(
            scope("acme"), Search(query="x"), now=clock.now(), embedder=None, driver="gone"
        )

    assert (found.driver, found.degraded) == ("baseline", "driver_fallback=gone->baseline")


async def test_guarantee_23_vectors_of_another_model_or_length_are_never_compared(
    database: TestDatabase, clock: ManualClock
) -> None:
    async with retriever(database, dims=4) as (_, retrieve, embedder), owner(database) as conn:
        embedder.known["q"] = [1.0, 0.0, 0.0, 0.0]
        mine = await remember(conn, [1.0, 0.0, 0.0, 0.0], model="fixed", text="mine")
        await remember(conn, [1.0, 0.0, 0.0, 0.0], model="other", text="other")
        await remember(conn, [1.0, 0.0], model="another", text="shorter")
        found = await retrieve.search(
            scope("acme"), Search(query="q"), now=clock.now(), embedder=embedder
        )

    assert [hit.memory.id for hit in found.hits] == [mine]


# --- the vector lane ----------------------------------------------------------------------------


def scope(*places: str) -> Scope:
    return Scope(writable=places[0], own=places, namespaces=places)


@asynccontextmanager
async def owner(
    database: TestDatabase,
) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    conn = await asyncpg.connect(database.owner_dsn)
    try:
        yield conn
    finally:
        await conn.close()


@asynccontextmanager
async def retriever(
    database: TestDatabase, *, size: int = 1, dims: int = DIMS, arrays: bool = False
) -> AsyncIterator[tuple[Database, Retriever, Fixed]]:
    """Yield a retriever, by default on one connection that every search shares."""
    clock = SystemClock()
    async with connect(
        database.app_dsn, clock=clock, min_size=1, max_size=size, role=database.role,
        settings=SESSION_SETTINGS,
    ) as db:  # fmt: skip
        async with db.reading() as tx:
            found = await inspect(tx)
        if arrays:
            found = Vectors(kind="array", version=None, reason="as without pgvector")
        yield db, Retriever(db=db, vectors=found, clock=clock), Fixed(dims=dims)


_PUT = """
    INSERT INTO memories (id, namespace, kind, epistemic_kind, text, dedupe_key, terms,
        assertion_time, t_valid_from, route, trust, actor, agent_id, sensitivity, classifier,
        activation_epoch)
    SELECT g.id, g.namespace, 'fact', 'fact', g.text, sha256(uuid_send(g.id)),
           string_to_array(g.text, ' '),
           $4, $4, 'manual', 50, 't', 't', 'internal', 't', 0
    FROM unnest($1::uuid[], $2::text[], $3::text[]) AS g (id, namespace, text)
"""

_EMBED = """
    INSERT INTO memory_embeddings (memory_id, model, dims, namespace, kind, shelf, embedding)
    SELECT g.id, $4, $5::int, g.namespace, 'fact', 'fresh',
           ($3::real[])[(g.n - 1) * $5::int + 1 : g.n * $5::int]
    FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS g (id, namespace, n)
"""

_PLACES = """
    INSERT INTO namespaces (path, tenant, created_by)
    SELECT p, 'acme', 't' FROM unnest($1::text[]) p
    ON CONFLICT DO NOTHING
"""

_TENANT = "INSERT INTO tenants (name, created_by) VALUES ('acme', 't') ON CONFLICT DO NOTHING"


async def put(conn: "asyncpg.Connection[asyncpg.Record]", place: str, text: str) -> None:
    await fill(conn, [place], [text], None)


async def fill(
    conn: "asyncpg.Connection[asyncpg.Record]",
    places: Sequence[str],
    words: Sequence[str],
    matrix: "np.ndarray[tuple[int, int], np.dtype[np.float64]] | None",
) -> list[UUID]:
    """Store one memory a place and word, with the rows of the matrix for vectors."""
    ids = [uuid4() for _ in places]
    await conn.execute(_TENANT)
    await conn.execute(_PLACES, sorted(set(places)))
    when = datetime(2026, 1, 1, tzinfo=UTC)
    await conn.execute(_PUT, ids, list(places), list(words), when)
    if matrix is not None:
        flat = matrix.ravel().tolist()
        await conn.execute(_EMBED, ids, list(places), flat, "fixed", matrix.shape[1])
    return ids


class Cloud:
    """Clustered vectors in a hundred namespaces, and the true neighbours of any query."""

    def __init__(self, rows: int) -> None:
        self.rng = np.random.default_rng(3)
        self.centres = self.rng.standard_normal((40, DIMS))
        self.matrix = self.points(rows)
        self.places = [f"acme/n{number % 100}" for number in range(rows)]
        self.ids: list[UUID] = []

    def points(self, count: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
        chosen = self.centres[self.rng.integers(0, len(self.centres), count)]
        found = chosen + self.rng.standard_normal((count, DIMS))
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))

    def nearest(self, query: Sequence[float], seen: set[str], k: int) -> set[UUID]:
        cosines = self.matrix @ np.asarray(query)
        order = [n for n in np.argsort(-cosines) if self.places[n] in seen]
        return {self.ids[n] for n in order[:k]}


async def recall(
    retrieve: Retriever, cloud: Cloud, embedder: Fixed, seen: Sequence[str], searches: int
) -> float:
    """Return the share of the ten true neighbours that searches find; each returns ten rows."""
    found = 0
    for query in cloud.points(searches).tolist():
        embedder.known["?"] = query
        result = await retrieve.search(
            scope(*seen), Search(query="?"), now=datetime(2026, 1, 1, tzinfo=UTC), embedder=embedder
        )
        assert len(result.hits) == 10
        found += len({h.memory.id for h in result.hits} & cloud.nearest(query, set(seen), 10))
    return found / (10 * searches)


async def test_recall_holds_at_every_selectivity_after_200_searches_on_one_connection(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "EXACT_BELOW", 100)
    cloud = Cloud(6_000)
    bounds = Bounds(index_from=1_000, own_from=2_000, settle_from=1)
    async with retriever(database) as (db, retrieve, embedder), owner(database) as conn:
        cloud.ids = await fill(conn, cloud.places, ["w"] * 6_000, cloud.matrix)
        async with db.reading() as tx:
            vectors = await inspect(tx)
        keeper = AnnKeeper(database.owner_dsn, vectors=vectors, clock=SystemClock(), bounds=bounds)
        done = await keeper.once()
        assert done == (6_001 if vectors.has_iterative_scan else 0)
        every = [f"acme/n{number}" for number in range(100)]
        shares = [await recall(retrieve, cloud, embedder, every[:n], 70) for n in (1, 10, 100)]

    assert min(shares) >= 0.98, shares


async def test_a_large_namespace_is_searched_by_an_index_of_its_own(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "EXACT_BELOW", 100)
    monkeypatch.setattr(lanes, "SHARE_OF_INDEX", 2.0)
    cloud = Cloud(3_000)
    cloud.places = ["acme/large" if n % 3 else f"acme/n{n % 100}" for n in range(3_000)]
    bounds = Bounds(index_from=1_000, own_from=1_500, settle_from=1)
    async with retriever(database) as (db, retrieve, embedder), owner(database) as conn:
        cloud.ids = await fill(conn, cloud.places, ["w"] * 3_000, cloud.matrix)
        async with db.reading() as tx:
            vectors = await inspect(tx)
        keeper = AnnKeeper(database.owner_dsn, vectors=vectors, clock=SystemClock(), bounds=bounds)
        await keeper.once()
        if vectors.has_iterative_scan:
            there = await ann_store.existing(conn, lanes.INDEX_PREFIX)
            expected = {lanes.index_name("fixed"), lanes.index_name("fixed", "acme/large")}
            assert there == dict.fromkeys(expected, True)
        share = await recall(retrieve, cloud, embedder, ["acme/large", "acme/n3"], 40)

    assert share >= 0.98


async def test_many_searches_at_once_find_what_each_finds_alone(database: TestDatabase) -> None:
    cloud = Cloud(400)
    words = [f"w{n % 7} shared" for n in range(400)]
    async with retriever(database, size=4) as (_, retrieve, embedder), owner(database) as conn:
        cloud.ids = await fill(conn, cloud.places, words, cloud.matrix)
        every = scope(*[f"acme/n{number}" for number in range(100)])
        queries = [f"w{n} other" for n in range(7)]
        embedder.known = dict(zip(queries, cloud.points(7).tolist(), strict=True))

        async def found(query: str) -> list[tuple[UUID, float, object]]:
            result = await retrieve.search(
                every, Search(query=query, explain=True),
                now=datetime(2026, 1, 1, tzinfo=UTC), embedder=embedder,
            )  # fmt: skip
            return [(hit.memory.id, hit.score, hit.components) for hit in result.hits]

        alone = [await found(query) for query in queries]
        async with asyncio.TaskGroup() as group:
            together = [group.create_task(found(query)) for query in queries]

    assert [task.result() for task in together] == alone
    assert all(len(hits) == 10 for hits in alone)


async def test_without_pgvector_the_same_rows_are_found(database: TestDatabase) -> None:
    cloud = Cloud(500)
    async with (
        retriever(database) as (_, usual, embedder),
        retriever(database, arrays=True) as (_db, plain, _embedder),
        owner(database) as conn,
    ):
        cloud.ids = await fill(conn, cloud.places, ["w"] * 500, cloud.matrix)
        every = [f"acme/n{number}" for number in range(100)]
        for query in cloud.points(20).tolist():
            embedder.known["w"] = query
            found = [
                await one.search(
                    scope(*every), Search(query="w", explain=True),
                    now=datetime(2026, 1, 1, tzinfo=UTC), embedder=embedder,
                )
                for one in (usual, plain)
            ]  # fmt: skip
            assert [h.memory.id for h in found[0].hits] == [h.memory.id for h in found[1].hits]
            assert all(h.components and h.components.cosine is not None for h in found[1].hits)


async def test_vectors_of_closed_rows_are_found_where_the_past_is_asked_for(
    database: TestDatabase, clock: ManualClock
) -> None:
    for arrays in (False, True):
        async with (
            retriever(database, dims=4, arrays=arrays) as (_, retrieve, embedder),
            owner(database) as conn,
        ):
            embedder.known["q"] = [1.0, 0.0, 0.0, 0.0]
            old = await remember(conn, [1.0, 0.0, 0.0, 0.0], model="fixed", text="old")
            await conn.execute("UPDATE memories SET t_valid_to = now() WHERE id = $1", old)

            async def ids(
                request: Search, by: Retriever = retrieve, to: Fixed = embedder
            ) -> list[UUID]:
                found = await by.search(scope("acme"), request, now=clock.now(), embedder=to)
                return [hit.memory.id for hit in found.hits]

            assert old not in await ids(Search(query="q"))
            assert old in await ids(Search(query="q", valid_only=False))
            assert old in await ids(Search(query="q", as_of=datetime(2026, 1, 2, tzinfo=UTC)))


# --- the keeper ---------------------------------------------------------------------------------


@asynccontextmanager
async def keeping(database: TestDatabase, db: Database, **bounds: int) -> AsyncIterator[AnnKeeper]:
    async with db.reading() as tx:
        vectors = await inspect(tx)
    if not vectors.has_iterative_scan:
        pytest.skip("this server has no pgvector with iterative index scans")
    made = Bounds(**{"index_from": 100, "own_from": 10_000, "settle_from": 1} | bounds)
    yield AnnKeeper(database.owner_dsn, vectors=vectors, clock=SystemClock(), bounds=made)


async def test_what_is_fresh_is_found_before_and_after_it_is_settled(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "EXACT_BELOW", 50)
    cloud = Cloud(400)
    async with (
        retriever(database) as (db, retrieve, embedder),
        owner(database) as conn,
        keeping(database, db) as keeper,
    ):
        cloud.ids = await fill(conn, cloud.places, ["w"] * 400, cloud.matrix)
        assert await keeper.once() == 401
        late = cloud.points(1)
        new = (await fill(conn, ["acme/n5"], ["late"], late))[0]
        embedder.known["?"] = late[0].tolist()
        every = scope(*[f"acme/n{number}" for number in range(100)])
        for _ in range(2):
            found = await retrieve.search(
                every, Search(query="?"), now=datetime(2026, 1, 1, tzinfo=UTC), embedder=embedder
            )
            assert found.hits[0].memory.id == new
            await keeper.once()
        assert await keeper.once() == 0


async def test_settling_passes_by_a_memory_that_is_being_superseded(
    database: TestDatabase, db: Database
) -> None:
    cloud = Cloud(120)
    async with owner(database) as conn:
        cloud.ids = await fill(conn, cloud.places, ["w"] * 120, cloud.matrix)
        victim = cloud.ids[0]
        async with db.transaction() as tx:
            await tx.conn.execute("UPDATE memories SET t_valid_to = now() WHERE id = $1", victim)
            async with asyncio.timeout(30):
                assert await ann_store.settle(conn, "fixed", limit=500) == 119
        shelves = await conn.fetch("SELECT shelf, count(*) FROM memory_embeddings GROUP BY 1")

    assert {row["shelf"]: row["count"] for row in shelves} == {"settled": 119, "closed": 1}


async def test_the_index_of_a_model_that_is_gone_is_dropped(
    database: TestDatabase, db: Database
) -> None:
    cloud = Cloud(150)
    async with owner(database) as conn, keeping(database, db) as keeper:
        await fill(conn, cloud.places, ["w"] * 150, cloud.matrix)
        await keeper.once()
        assert await ann_store.existing(conn, lanes.INDEX_PREFIX)
        await conn.execute("DELETE FROM memory_embeddings")
        assert await keeper.once() == 1
        assert not await ann_store.existing(conn, lanes.INDEX_PREFIX)


async def test_without_many_rows_nothing_is_settled_or_built(
    database: TestDatabase, db: Database
) -> None:
    cloud = Cloud(60)
    async with owner(database) as conn, keeping(database, db) as keeper:
        await fill(conn, cloud.places, ["w"] * 60, cloud.matrix)
        assert await keeper.once() == 0

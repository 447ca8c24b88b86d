"""Every memory comes to have a vector of the active model, whatever goes wrong meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import asyncpg
import pytest

from noema.core.clock import ManualClock, SystemClock
from noema.core.errors import ConfigError, Conflict, NotFound, Unavailable
from noema.db import pgvector
from noema.db.tx import Database
from noema.llm.embedders.hash import HashEmbedder
from noema.llm.model import Embedder, Purpose
from noema.memory.embedding import Destination, Embeddings, Progress
from noema.memory.model import Search
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.memories import memories
from tests.raw_memories import remember


class Scripted:
    """An embedder that fails where it is told to, and points every text in one direction."""

    weight = 0.5

    def __init__(self, model: str = "scripted", dims: int = 3, *, poison: str = "\x00") -> None:
        self.model = model
        self.dims = dims
        self.is_down = False
        self.poison = poison
        self.seen: list[str] = []
        self.before_answer: asyncio.Event | None = None

    async def embed(self, texts: Sequence[str], *, purpose: Purpose) -> list[Sequence[float]]:
        if self.is_down or any(self.poison in text for text in texts):
            raise Unavailable("The scripted embedder is down.")
        if self.before_answer is not None:
            await self.before_answer.wait()
        self.seen.extend(texts)
        return [[1.0] + [0.0] * (self.dims - 1) for _ in texts]


@pytest.fixture
async def admin(database: TestDatabase) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    conn: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(database.admin_dsn)
    yield conn
    await conn.close()


async def shelves(conn: "asyncpg.Connection[asyncpg.Record]", model: str) -> dict[UUID, str]:
    rows = await conn.fetch(
        "SELECT memory_id, shelf FROM memory_embeddings WHERE model = $1", model
    )
    assert len(rows) == len({row["memory_id"] for row in rows})
    return {row["memory_id"]: row["shelf"] for row in rows}


async def started(db: Database, embedder: Embedder | None, *, take: int = 64) -> Embeddings:
    embeddings = Embeddings(
        db=db,
        embedder=embedder,
        destination="local",
        clock=SystemClock(),
        take=take,
        settle_s=0.0,
    )
    await embeddings.start()
    return embeddings


async def fill(embeddings: Embeddings) -> int:
    stored = 0
    while some := await embeddings.once():
        stored += some
    return stored


async def active(embeddings: Embeddings) -> Progress:
    return next(row for row in await embeddings.progress() if row.is_active)


async def test_current_and_past_memories_get_vectors_on_their_shelves(
    db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    current = [await remember(admin) for _ in range(5)]
    past = [await remember(admin, closed=True) for _ in range(2)]
    embeddings = await started(db, HashEmbedder(), take=3)

    stored = await fill(embeddings)

    assert stored == 7
    found = await shelves(admin, "hash-256-v1")
    assert found == dict.fromkeys(current, "fresh") | dict.fromkeys(past, "closed")
    row = await active(embeddings)
    assert (row.filled, row.wanted, row.state, row.reason) == (7, 7, "idle", "")


async def test_vectors_are_stored_alike_once_they_are_pgvectors(
    database: TestDatabase, db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await pgvector.prepare(database.owner_dsn)
    memory = await remember(admin, text="The disk failed.")
    embeddings = await started(db, HashEmbedder())

    await fill(embeddings)

    stored = await admin.fetchval(
        "SELECT embedding::real[] FROM memory_embeddings WHERE memory_id = $1", memory
    )
    [wanted] = await HashEmbedder().embed(["The disk failed."], purpose="document")
    assert stored == pytest.approx(wanted, abs=1e-3)


async def test_guarantee_23_a_new_model_fills_beside_the_old_one_and_dims_never_mix(
    db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    memories = [await remember(admin) for _ in range(4)]
    await fill(await started(db, Scripted("old", 3)))

    changed = await started(db, Scripted("new", 5), take=2)
    assert await changed.once() == 2
    meanwhile = {row.model: (row.is_active, row.filled) for row in await changed.progress()}
    await fill(changed)

    assert meanwhile == {"new": (True, 2), "old": (False, 4)}
    assert set(await shelves(admin, "old")) == set(await shelves(admin, "new")) == set(memories)
    rows = await admin.fetch(
        "SELECT DISTINCT model, dims, cardinality(embedding::real[]) AS long FROM memory_embeddings"
    )
    assert {tuple(row) for row in rows} == {("old", 3, 3), ("new", 5, 5)}


async def test_guarantee_23_one_name_with_other_dimensions_is_refused(db: Database) -> None:
    await started(db, Scripted("m", 3))

    with pytest.raises(ConfigError, match="3"):
        await started(db, Scripted("m", 4))


async def test_an_embedder_that_changes_its_dimensions_gives_no_vectors_and_a_reason(
    db: Database,
) -> None:
    embedder = Scripted("m", 3)
    embeddings = await started(db, embedder)
    embedder.dims = 4

    with pytest.raises(Unavailable, match="not mixed"):
        await embeddings.embed(["a"], purpose="query")


async def test_dimensions_that_nobody_set_are_learned_from_the_first_answer(db: Database) -> None:
    embedder = Scripted("m", 3)
    embedder.dims = 0
    embeddings = await started(db, embedder)
    before = embeddings.dims
    embedder.dims = 3

    vectors = await embeddings.embed(["a"], purpose="query")

    assert (before, embeddings.dims) == (0, 3)
    assert vectors == [[1.0, 0.0, 0.0]]
    assert [row.dims for row in await embeddings.progress()] == [3]


async def test_guarantee_10_an_embedder_that_is_down_is_a_reason_and_no_error(
    db: Database,
) -> None:
    embedder = Scripted()
    embedder.is_down = True
    embeddings = await started(db, embedder)

    with pytest.raises(Unavailable, match="The scripted embedder is down"):
        await embeddings.embed(["a"], purpose="query")


async def test_guarantee_10_an_embedder_that_hangs_is_given_up(db: Database) -> None:
    embedder = Scripted()
    embedder.before_answer = asyncio.Event()
    embeddings = Embeddings(
        db=db,
        embedder=embedder,
        destination="local",
        clock=SystemClock(),
        patience_s={"query": 0.05},
    )
    await embeddings.start()

    with pytest.raises(Unavailable, match=r"within 0\.05 s"):
        await embeddings.embed(["a"], purpose="query")


async def test_without_an_embedder_nothing_is_missing(db: Database) -> None:
    await started(db, Scripted())

    embeddings = await started(db, None)

    assert (embeddings.model, embeddings.dims) == ("", 0)
    assert [row.is_active for row in await embeddings.progress()] == [False]
    assert await embeddings.once() == 0


async def test_filling_goes_on_where_it_stopped_when_the_embedder_comes_back(
    db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    memories = [await remember(admin) for _ in range(5)]
    embedder = Scripted()
    embeddings = await started(db, embedder, take=2)
    await embeddings.once()
    embedder.is_down = True
    for _ in range(4):
        with pytest.raises(Unavailable):
            await embeddings.once()
    embedder.is_down = False

    await fill(embeddings)

    assert set(await shelves(admin, "scripted")) == set(memories)


async def test_a_restart_goes_on_at_the_saved_place_and_then_looks_at_everything_again(
    db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    memories = [await remember(admin) for _ in range(6)]
    embedder = Scripted()
    first = await started(db, embedder, take=2)
    await first.once()
    embedder.is_down = True
    with pytest.raises(Unavailable):
        # Two are taken here, and lost with the process.
        await first.once()
    embedder.is_down = False
    embedder.seen.clear()

    second = await started(db, embedder, take=2)
    await second.once()
    below = set(await shelves(admin, "scripted"))
    await fill(second)

    assert below == set(sorted(memories)[:2]) | set(sorted(memories)[-2:])
    assert set(await shelves(admin, "scripted")) == set(memories)
    assert len([text for text in embedder.seen if text != "Noema"]) == 4


async def test_a_memory_that_alone_makes_the_embedder_fail_does_not_stop_the_others(
    db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    good = [await remember(admin, text=f"fine {n}") for n in range(3)]
    bad = [await remember(admin, text=f"poison {n}") for n in range(2)]
    embeddings = await started(db, Scripted(poison="poison"))
    for _ in range(2):
        with pytest.raises(Unavailable):
            await embeddings.once()

    await fill(embeddings)

    assert set(await shelves(admin, "scripted")) == set(good)
    row = await active(embeddings)
    assert (row.filled, row.wanted, row.state) == (3, 5, "idle")
    assert any(str(memory) in row.reason for memory in bad)


async def test_a_memory_superseded_while_it_was_embedded_lands_on_the_closed_shelf(
    db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    memory = await remember(admin)
    gone = await remember(admin)
    embedder = Scripted()
    embedder.before_answer = asyncio.Event()
    embeddings = await started(db, embedder)

    async with asyncio.TaskGroup() as group:
        filling = group.create_task(embeddings.once())
        await eventually(lambda: embeddings._pending)
        await admin.execute("UPDATE memories SET t_valid_to = t_valid_from WHERE id = $1", memory)
        await admin.execute("DELETE FROM memories WHERE id = $1", gone)
        embedder.before_answer.set()

    assert filling.result() == 1
    assert await shelves(admin, "scripted") == {memory: "closed"}


async def test_a_memory_that_is_just_being_superseded_is_waited_for(
    database: TestDatabase, db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    memory = await remember(admin)
    embeddings = await started(db, Scripted())
    superseding = admin.transaction()
    await superseding.start()
    await admin.execute("UPDATE memories SET t_valid_to = t_valid_from WHERE id = $1", memory)
    watcher: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(database.admin_dsn)

    async with asyncio.TaskGroup() as group:
        filling = group.create_task(embeddings.once())
        await eventually(
            lambda: watcher.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                "AND datname = current_database()"
            )
        )
        await superseding.commit()
    await watcher.close()

    assert filling.result() == 1
    assert await shelves(admin, "scripted") == {memory: "closed"}


async def test_two_daemons_share_the_work_and_store_nothing_twice(
    db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    memories = [await remember(admin) for _ in range(40)]
    embedders = [Scripted(), Scripted()]
    daemons = [await started(db, embedder, take=3) for embedder in embedders]

    async with asyncio.TaskGroup() as group:
        fills = [group.create_task(fill(daemon)) for daemon in daemons]

    assert sum(task.result() for task in fills) == 40
    assert set(await shelves(admin, "scripted")) == set(memories)


async def test_what_may_not_leave_this_machine_gets_no_vector_from_elsewhere(
    db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    kept = await remember(admin, text="my password is hunter2")
    sent = await remember(admin, text="The disk failed.")
    await admin.execute("UPDATE memories SET destinations = '{local,provider}' WHERE id = $1", sent)
    await admin.execute("UPDATE memories SET destinations = '{local}' WHERE id = $1", kept)
    embedder = Scripted()
    embeddings = Embeddings(db=db, embedder=embedder, destination="provider", clock=SystemClock())
    await embeddings.start()

    await fill(embeddings)

    assert embedder.seen == ["The disk failed."]
    assert (await active(embeddings)).wanted == 1


async def test_the_worker_survives_failure_says_so_and_fills_what_writers_missed(
    db: Database, admin: "asyncpg.Connection[asyncpg.Record]", clock: ManualClock
) -> None:
    embedder = Scripted()
    embedder.is_down = True
    embeddings = Embeddings(db=db, embedder=embedder, destination="local", clock=clock)
    await embeddings.start()
    first = await remember(admin)

    async with asyncio.TaskGroup() as group:
        worker = group.create_task(embeddings.run())

        async def failing() -> bool:
            row = await active(embeddings)
            return (row.state, row.reason) == ("failing", "The scripted embedder is down.")

        await eventually(failing)
        embedder.is_down = False

        async def filled() -> bool:
            return (await active(embeddings)).state == "idle" and first in await shelves(
                admin, "scripted"
            )

        await eventually(filled)
        embedder.is_down = True
        with pytest.raises(Unavailable):
            await embeddings.embed(["The fan failed."], purpose="document")
        second = await remember(admin, text="The fan failed.")
        embedder.is_down = False

        async def caught_up() -> bool:
            return second in await shelves(admin, "scripted")

        await eventually(caught_up)
        worker.cancel()


async def test_an_old_models_vectors_stay_until_they_are_dropped(
    db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    for _ in range(3):
        await remember(admin)
    await fill(await started(db, Scripted("old", 3)))
    embeddings = await started(db, Scripted("new", 3))
    await fill(embeddings)

    with pytest.raises(Conflict):
        await embeddings.drop("new")
    with pytest.raises(NotFound):
        await embeddings.drop("unheard-of")
    dropped = await embeddings.drop("old")

    assert dropped == 3
    assert await shelves(admin, "old") == {}
    assert len(await shelves(admin, "new")) == 3
    assert [row.model for row in await embeddings.progress()] == ["new"]


async def test_a_write_that_got_no_vector_is_embedded_as_soon_as_the_embedder_is_back(
    database: TestDatabase, admin: "asyncpg.Connection[asyncpg.Record]", clock: ManualClock
) -> None:
    embedder = Scripted("scripted", 256)
    async with memories(database, clock, embedder=embedder) as mem:
        embeddings = next(w for w in mem.service._workers if isinstance(w, Embeddings))
        assert await fill(embeddings) == 0
        embedder.is_down = True
        missed = await mem.wrote(mem.who(), "The fan failed.")
        assert missed not in await shelves(admin, "scripted")
        embedder.is_down = False

        async def has_one() -> bool:
            return missed in await shelves(admin, "scripted")

        async with asyncio.TaskGroup() as group:
            working = group.create_task(embeddings.run())
            await eventually(has_one)
            working.cancel()


@pytest.mark.parametrize(("destination", "is_sent"), [("local", True), ("provider", False)])
async def test_a_sensitive_query_is_not_shown_to_an_embedder_outside(
    database: TestDatabase, clock: ManualClock, destination: Destination, is_sent: bool
) -> None:
    embedder = Scripted("scripted", 256)
    async with memories(database, clock, embedder=embedder, destination=destination) as mem:
        ada = mem.who()
        await mem.wrote(ada, "The fan failed.")

        plain = await mem.kernel.mem_search(ada, Search(query="which fan?"))
        secret = await mem.kernel.mem_search(ada, Search(query="whose fan?", sensitive=True))

    assert [hit.memory.text for hit in secret.hits] == ["The fan failed."]
    assert ("whose fan?" in embedder.seen, plain.degraded) == (is_sent, None)
    assert (secret.degraded is None) == is_sent

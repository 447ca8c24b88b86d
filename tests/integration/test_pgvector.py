"""Vectors are pgvector's where the server offers it, and arrays that work where it does not."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from noema.core.errors import MigrationError, Unavailable
from noema.db import pgvector
from noema.db.tx import Database
from tests.conftest import Server, TestDatabase
from tests.raw_memories import remember

_OFFERED = "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"


@pytest.fixture
async def admin(database: TestDatabase) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection to a database as the migrations leave it, before anything was prepared."""
    conn: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(database.admin_dsn)
    await conn.execute(
        "ALTER TABLE memory_embeddings ALTER COLUMN embedding TYPE real[] USING embedding::real[]"
    )
    yield conn
    await conn.close()


async def needs_pgvector(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    if await conn.fetchval(_OFFERED) is None:
        pytest.skip("this PostgreSQL has no pgvector to install; the embedded one does")


async def column_type(conn: "asyncpg.Connection[asyncpg.Record]", table: str) -> str:
    found: str = await conn.fetchval(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = $1::text::regclass AND attname = 'embedding'",
        table,
    )
    return found


async def test_stored_arrays_become_halfvec_and_the_same_statements_go_on(
    database: TestDatabase, db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await needs_pgvector(admin)
    before = await remember(admin, [0.5, -0.25, 0.125])

    vectors = await pgvector.prepare(database.owner_dsn)

    after = await remember(admin, [1.0, 0.0, -1.0])
    rows = await admin.fetch("SELECT memory_id, embedding::real[] AS v FROM memory_embeddings")
    assert {row["memory_id"]: row["v"] for row in rows} == {
        before: [0.5, -0.25, 0.125],
        after: [1.0, 0.0, -1.0],
    }
    assert vectors.kind == "pgvector"
    assert vectors.version is not None
    assert vectors.version >= pgvector.OLDEST
    for shelf in ("", "_fresh", "_settled", "_closed"):
        assert await column_type(admin, f"memory_embeddings{shelf}") == "halfvec"
    async with db.reading() as tx:
        assert await pgvector.inspect(tx) == vectors


async def test_several_vectors_travel_as_one_flat_array(
    database: TestDatabase, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await pgvector.prepare(database.owner_dsn)
    memories = [await remember(admin, [0.0, 1.0]) for _ in range(2)]
    await admin.execute("DELETE FROM memory_embeddings")

    await admin.execute(
        """
        INSERT INTO memory_embeddings (memory_id, model, dims, namespace, kind, shelf, embedding)
        SELECT m, 'm', 2, 'acme', 'fact', 'fresh', ($2::real[])[(n - 1) * 2 + 1 : n * 2]
        FROM unnest($1::uuid[]) WITH ORDINALITY AS t(m, n)
        """,
        memories,
        [0.0, 1.0, 0.5, 0.25],
    )

    rows = await admin.fetch("SELECT memory_id, embedding::real[] AS v FROM memory_embeddings")
    assert {row["memory_id"]: row["v"] for row in rows} == {
        memories[0]: [0.0, 1.0],
        memories[1]: [0.5, 0.25],
    }


async def test_daemons_that_start_at_once_prepare_once(
    database: TestDatabase, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await remember(admin, [1.0, 0.0])

    async with asyncio.TaskGroup() as group:
        starts = [group.create_task(pgvector.prepare(database.owner_dsn)) for _ in range(6)]

    assert len({start.result() for start in starts}) == 1
    assert await admin.fetchval("SELECT count(*) FROM memory_embeddings") == 1


async def test_a_server_without_pgvector_says_so_and_keeps_arrays(
    database: TestDatabase, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    if await admin.fetchval(_OFFERED) is not None:
        pytest.skip("this PostgreSQL has pgvector; Debian's PostgreSQL 15 has not")

    vectors = await pgvector.prepare(database.owner_dsn)

    assert (vectors.kind, vectors.version) == ("array", None)
    assert "does not have pgvector" in vectors.reason
    assert await column_type(admin, "memory_embeddings") == "real[]"


async def test_an_owner_who_may_not_install_it_keeps_arrays_and_is_told_what_to_ask_for(
    server: Server, database: TestDatabase, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await needs_pgvector(admin)
    if not server.embedded:
        pytest.skip("the login of DATABASE_URL may be a superuser's, who may install anything")
    await admin.execute("DROP EXTENSION vector")

    vectors = await pgvector.prepare(database.owner_dsn)

    assert vectors.kind == "array"
    assert "CREATE EXTENSION vector" in vectors.reason
    assert await column_type(admin, "memory_embeddings") == "real[]"


async def test_vectors_that_went_with_the_extension_are_made_anew(
    database: TestDatabase, db: Database, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await needs_pgvector(admin)
    await pgvector.prepare(database.owner_dsn)
    await remember(admin, [1.0, 0.0])
    await admin.execute("DROP EXTENSION vector CASCADE")

    async with db.reading() as tx:
        with pytest.raises(Unavailable, match="gone together with pgvector"):
            await pgvector.inspect(tx)
    vectors = await pgvector.prepare(database.owner_dsn)

    assert "computed again" in vectors.reason
    assert await admin.fetchval("SELECT count(*) FROM memory_embeddings") == 0
    await remember(admin, [0.0, 1.0])
    assert await column_type(admin, "memory_embeddings") in ("halfvec", "real[]")


async def test_pgvector_in_a_schema_nobody_looks_in_is_named(
    database: TestDatabase, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await needs_pgvector(admin)
    await admin.execute("CREATE EXTENSION IF NOT EXISTS vector; CREATE SCHEMA tucked_away")
    await admin.execute("ALTER EXTENSION vector SET SCHEMA tucked_away")

    vectors = await pgvector.prepare(database.owner_dsn)

    assert vectors.kind == "array"
    assert "tucked_away" in vectors.reason


async def test_before_the_migrations_there_is_nothing_to_prepare(empty_dsn: str) -> None:
    with pytest.raises(MigrationError, match="migrations"):
        await pgvector.prepare(empty_dsn)


@pytest.mark.parametrize(
    ("text", "numbers"), [("0.8.5", (0, 8, 5)), ("0.7.0-beta", (0, 7)), ("", ()), ("1", (1,))]
)
def test_a_version_is_read_as_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert pgvector._version(text) == numbers

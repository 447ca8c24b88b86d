"""Pool, transactions and roles on a real server; connections that are really cut."""

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from noema.core.clock import ManualClock, SystemClock
from noema.core.errors import DatabaseTooOld, Unavailable
from noema.db import tx as tx_module
from noema.db.protection import choose_role, inspect
from noema.db.tx import Database, Tx, connect, place_of, single
from tests.conftest import Server, TestDatabase

HISTORY = "cognitive_events"


async def as_owner(database: TestDatabase, sql: str) -> None:
    conn = await asyncpg.connect(database.owner_dsn)
    try:
        await conn.execute(sql)
    finally:
        await conn.close()


async def cut(database: TestDatabase, pid: int) -> None:
    conn = await asyncpg.connect(database.admin_dsn)
    try:
        await conn.execute("SELECT pg_terminate_backend($1, 5000)", pid)
    finally:
        await conn.close()


async def use_after_cut(
    opening: "AbstractAsyncContextManager[Tx | asyncpg.Connection[asyncpg.Record]]",
    database: TestDatabase,
) -> None:
    async with opening as opened:
        conn = opened.conn if isinstance(opened, Tx) else opened
        await cut(database, await conn.fetchval("SELECT pg_backend_pid()"))
        await conn.execute("SELECT 1")


async def write_and_fail(db: Database) -> None:
    async with db.transaction() as tx:
        await tx.conn.execute("INSERT INTO t VALUES (2)")
        await tx.conn.execute("INSERT INTO t (none) VALUES (3)")


class TestTransaction:
    async def test_what_it_wrote_is_there_after_it_and_gone_after_an_error(
        self, db: Database, database: TestDatabase
    ) -> None:
        await as_owner(database, "CREATE TABLE t (n int); GRANT ALL ON t TO PUBLIC")
        async with db.transaction() as tx:
            await tx.conn.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(asyncpg.UndefinedColumnError):
            await write_and_fail(db)

        async with db.reading() as tx:
            rows = await tx.conn.fetch("SELECT n FROM t")

        assert [row["n"] for row in rows] == [1]

    async def test_everything_in_it_happens_at_one_moment_of_the_clock(
        self, database: TestDatabase, clock: ManualClock
    ) -> None:
        async with connect(database.app_dsn, clock=clock, role=database.role) as db:
            began = clock.now()
            async with db.transaction() as tx:
                clock.advance(5)

                assert tx.now == began
            async with db.reading() as tx:
                assert tx.now == clock.now()

    async def test_reading_refuses_to_write_and_sees_one_state(
        self, db: Database, database: TestDatabase
    ) -> None:
        await as_owner(database, "CREATE TABLE t (n int); GRANT ALL ON t TO PUBLIC")
        async with db.reading() as tx:
            before = await tx.conn.fetchval("SELECT count(*) FROM t")
            await as_owner(database, "INSERT INTO t VALUES (1)")

            assert await tx.conn.fetchval("SELECT count(*) FROM t") == before == 0
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            async with db.reading() as tx:
                await tx.conn.execute("INSERT INTO t VALUES (2)")

    async def test_a_connection_that_is_cut_is_unavailable_and_the_next_one_works(
        self, db: Database, database: TestDatabase
    ) -> None:
        with pytest.raises(Unavailable, match="was lost"):
            await use_after_cut(db.transaction(), database)

        async with db.transaction() as tx:
            assert await tx.conn.fetchval("SELECT 1") == 1

    async def test_a_connection_that_is_cut_before_the_commit_is_unavailable(
        self, db: Database, database: TestDatabase
    ) -> None:
        with pytest.raises(Unavailable, match="was lost"):
            async with db.transaction() as tx:
                await cut(database, await tx.conn.fetchval("SELECT pg_backend_pid()"))

    async def test_a_cut_while_reading_is_unavailable_too(
        self, db: Database, database: TestDatabase
    ) -> None:
        with pytest.raises(Unavailable, match="was lost"):
            await use_after_cut(db.reading(), database)

    async def test_errors_of_the_caller_are_left_alone(self, db: Database) -> None:
        for error in (FileNotFoundError("mine"), TimeoutError("mine"), ValueError("mine")):
            with pytest.raises(type(error), match="mine"):
                async with db.transaction():
                    raise error
        with pytest.raises(asyncpg.DivisionByZeroError):
            async with db.transaction() as tx:
                await tx.conn.execute("SELECT 1 / 0")

    async def test_a_pool_with_nothing_free_gives_up_in_bounded_time(
        self, database: TestDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tx_module, "ACQUIRE_TIMEOUT_S", 0.05)
        async with (
            connect(database.app_dsn, clock=SystemClock(), max_size=1) as db,
            db.transaction(),
        ):
            with pytest.raises(Unavailable, match="came free"):
                async with db.transaction():
                    pytest.fail("there is one connection only")

    async def test_a_cancelled_transaction_gives_its_connection_back(
        self, database: TestDatabase
    ) -> None:
        async with connect(database.app_dsn, clock=SystemClock(), max_size=1) as db:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), db.transaction() as tx:
                    await tx.conn.execute("SELECT pg_sleep(60)")

            async with db.transaction() as tx:
                assert await tx.conn.fetchval("SELECT 1") == 1


class TestConnection:
    @pytest.mark.parametrize("kind", ["json", "jsonb"])
    @pytest.mark.parametrize(
        "value", [{"a": [1, None, True, "é\U0001f600"]}, "text", 9007199254740993, None, []]
    )
    async def test_json_goes_in_and_comes_out_as_values(
        self, db: Database, kind: str, value: Any
    ) -> None:
        async with db.reading() as tx:
            found = await tx.conn.fetchval(f"SELECT $1::{kind}", [value])
            many = await tx.conn.fetchval(f"SELECT $1::{kind}[]", [{"a": value}, {}])

        assert found == [value]
        assert many == [{"a": value}, {}]

    async def test_times_are_utc_and_the_server_knows_who_we_are(self, db: Database) -> None:
        async with db.reading() as tx:
            zone = await tx.conn.fetchval("SHOW timezone")
            name = await tx.conn.fetchval("SHOW application_name")
            moment = await tx.conn.fetchval("SELECT '2026-01-01 12:00'::timestamptz")

        assert (zone, name) == ("UTC", "noema")
        assert moment == datetime(2026, 1, 1, 12, tzinfo=UTC)

    async def test_a_role_holds_from_the_first_statement_and_after_reuse(
        self, database: TestDatabase
    ) -> None:
        if database.role is None:
            pytest.skip("the application has its own login here")
        async with connect(
            database.app_dsn, clock=SystemClock(), max_size=1, role=database.role
        ) as db:
            for _ in range(2):
                async with db.reading() as tx:
                    user = await tx.conn.fetchval("SELECT current_user::text")

                assert user == database.role

    async def test_a_role_that_may_not_be_taken_is_unavailable(
        self, database: TestDatabase
    ) -> None:
        with pytest.raises(Unavailable, match="no_such_role"):
            async with connect(database.app_dsn, clock=SystemClock(), role="no_such_role"):
                pytest.fail("there is no such role")

    async def test_a_dedicated_connection_has_the_same_codecs(self, database: TestDatabase) -> None:
        async with single(database.app_dsn, database.role) as conn:
            assert await conn.fetchval("SELECT $1::jsonb", {"a": 1}) == {"a": 1}

        assert conn.is_closed()

    async def test_a_dedicated_connection_that_is_cut_is_unavailable(
        self, database: TestDatabase
    ) -> None:
        with pytest.raises(Unavailable, match="was lost"):
            await use_after_cut(single(database.app_dsn), database)

    @pytest.mark.parametrize(
        "dsn",
        [
            "postgresql://someone:s3cret@127.0.0.1:1/nowhere",
            "postgresql://someone:s3cret@127.0.0.1:none/nowhere",
            "postgresql://someone:s3cret@/nowhere?host=/no/such/dir",
            "mysql://someone:s3cret@127.0.0.1/nowhere",
        ],
    )
    async def test_a_server_that_cannot_be_reached_is_unavailable_without_its_password(
        self, dsn: str
    ) -> None:
        for opening in (connect(dsn, clock=SystemClock()), single(dsn)):
            with pytest.raises(Unavailable, match="Cannot use PostgreSQL at") as caught:
                async with opening:
                    pytest.fail("nobody is there")

            assert "s3cret" not in str(caught.value)

    async def test_a_database_that_does_not_exist_is_named(self, server: Server) -> None:
        dsn = urlunsplit(urlsplit(server.app_dsn)._replace(path="/no_such_database"))

        with pytest.raises(Unavailable, match='database "no_such_database" does not exist'):
            async with connect(dsn, clock=SystemClock()):
                pytest.fail("there is no such database")

    async def test_a_server_that_is_too_old_is_refused(
        self, database: TestDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tx_module, "OLDEST_SERVER", 99)

        for opening in (
            connect(database.app_dsn, clock=SystemClock()),
            single(database.app_dsn),
        ):
            with pytest.raises(DatabaseTooOld, match="needs 99 or newer"):
                async with opening:
                    pytest.fail("the server is too old")


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        ("postgresql://u:p@db.example:6543/noema", "db.example:6543, database noema"),
        ("postgresql://u:p@/noema?host=/run/pg&port=5433", "/run/pg:5433, database noema"),
        ("postgresql://u:p@[::1]/", "::1:5432, database default"),
        ("postgresql://u:p@h:port/", "an address that cannot be read"),
    ],
)
def test_the_place_of_a_dsn_is_readable_and_has_no_password(dsn: str, place: str) -> None:
    assert place_of(dsn) == place


class TestProtection:
    async def test_a_fresh_schema_has_nothing_to_report(
        self, db: Database, server: Server, database: TestDatabase
    ) -> None:
        async with db.reading() as tx:
            found = await inspect(tx)

        assert found.findings == ()
        assert found.kind == ("separate roles" if server.embedded else "lowered role")
        assert found.current_user == "noema_app"
        assert int(found.server_version.split(".")[0]) >= 15
        assert found.pgvector is not None or not server.embedded

    async def test_the_owner_itself_has_accident_protection_only(
        self, database: TestDatabase
    ) -> None:
        async with (
            connect(database.owner_dsn, clock=SystemClock()) as db,
            db.reading() as tx,
        ):
            found = await inspect(tx)

        assert found.kind == "accident protection only"
        assert found.findings == ()

    @pytest.mark.parametrize(
        ("damage", "finding"),
        [
            (
                f"ALTER TABLE {HISTORY} DISABLE TRIGGER guard_row",
                "trigger guard_row is not ENABLE ALWAYS",
            ),
            (
                f"ALTER TABLE {HISTORY} ENABLE TRIGGER guard_truncate",
                "trigger guard_truncate is not ENABLE ALWAYS",
            ),
            (f"DROP TRIGGER guard_truncate ON {HISTORY}", "lacks the trigger guard_truncate"),
            (
                f"DROP TRIGGER guard_truncate ON {HISTORY}_p0001",
                f"{HISTORY}_p0001 lacks the trigger guard_truncate",
            ),
            (
                "DROP TRIGGER guard_row ON redactions; DROP TRIGGER guard_truncate ON redactions",
                "redactions is history and has no guard trigger",
            ),
            (
                f"CREATE RULE swallow AS ON INSERT TO {HISTORY}_p0001 DO INSTEAD NOTHING",
                f"{HISTORY}_p0001 has the rule swallow",
            ),
            (
                f"GRANT INSERT ON {HISTORY} TO noema_app",
                f"noema_app may insert into {HISTORY}.seq",
            ),
            (f"GRANT DELETE ON {HISTORY} TO noema_app", "granted UPDATE, DELETE or TRUNCATE"),
            (
                "CREATE TABLE heir () INHERITS (redactions)",
                "heir lacks the trigger guard_row",
            ),
        ],
    )
    async def test_every_damage_to_the_guards_is_found(
        self, db: Database, database: TestDatabase, damage: str, finding: str
    ) -> None:
        await as_owner(database, damage)

        async with db.reading() as tx:
            found = await inspect(tx)

        assert any(finding in line for line in found.findings), found.findings

    async def test_a_schema_that_was_never_made_is_a_finding(self, empty_dsn: str) -> None:
        async with connect(empty_dsn, clock=SystemClock()) as db, db.reading() as tx:
            found = await inspect(tx)

        assert "No history table is under guard" in found.findings[0]

    async def test_the_daemon_lowers_itself_only_where_it_is_not_low_already(
        self, server: Server, database: TestDatabase
    ) -> None:
        admin = await choose_role(database.admin_dsn)
        app = await choose_role(database.app_dsn)

        assert admin == "noema_app"
        assert app == (None if server.embedded else "noema_app")

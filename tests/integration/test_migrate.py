"""The migration runner, against temporary folders; and the real migrations, up and down."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from noema.core.errors import InvalidInput, MigrationError
from noema.db import migrate

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Put a migration into the folder of this test, which is returned."""

    def put(number: int, name: str, up: str, down: str | None = None) -> Path:
        (tmp_path / f"{number:04d}_{name}.up.sql").write_text(up)
        if down is not None:
            (tmp_path / f"{number:04d}_{name}.down.sql").write_text(down)
        return tmp_path

    return put


@pytest.fixture
def folder(write: Write) -> Path:
    write(1, "first", "CREATE TABLE first (); CREATE TABLE also ();", "DROP TABLE first, also;")
    return write(2, "second", "CREATE TABLE second ();", "DROP TABLE second;")


async def tables(dsn: str) -> set[str]:
    conn = await asyncpg.connect(dsn)
    try:
        rows = await conn.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    finally:
        await conn.close()
    return {row[0] for row in rows}


async def execute(dsn: str, sql: str) -> None:
    conn = await asyncpg.connect(dsn)
    try:
        await conn.execute(sql)
    finally:
        await conn.close()


async def states(dsn: str, folder: Path) -> list[tuple[int, str]]:
    return [(s.version, s.state) for s in await migrate.status(dsn, folder=folder)]


async def test_up_applies_what_is_pending_and_a_second_time_nothing(
    empty_dsn: str, folder: Path
) -> None:
    first = await migrate.up(empty_dsn, folder=folder)
    second = await migrate.up(empty_dsn, folder=folder)

    assert [(a.version, a.name) for a in first] == [(1, "first"), (2, "second")]
    assert second == []
    assert await tables(empty_dsn) == {"first", "also", "second", "schema_migrations"}


async def test_up_stops_at_its_target(empty_dsn: str, folder: Path) -> None:
    await migrate.up(empty_dsn, target=1, folder=folder)

    assert await states(empty_dsn, folder) == [(1, "applied"), (2, "pending")]


@pytest.mark.parametrize("target", [-1, 3])
async def test_a_target_that_does_not_exist_is_refused(
    empty_dsn: str, folder: Path, target: int
) -> None:
    with pytest.raises(InvalidInput, match=f"no migration {target}"):
        await migrate.up(empty_dsn, target=target, folder=folder)


async def test_down_undoes_the_last_step_first(empty_dsn: str, folder: Path) -> None:
    await migrate.up(empty_dsn, folder=folder)

    one = await migrate.down(empty_dsn, folder=folder)
    left = await tables(empty_dsn)
    rest = await migrate.down(empty_dsn, steps=5, folder=folder)

    assert [a.version for a in one] == [2]
    assert left == {"first", "also", "schema_migrations"}
    assert [a.version for a in rest] == [1]
    assert await tables(empty_dsn) == {"schema_migrations"}


async def test_down_needs_at_least_one_step_and_a_down_file(empty_dsn: str, write: Write) -> None:
    folder = write(1, "one_way", "CREATE TABLE one_way ();")
    await migrate.up(empty_dsn, folder=folder)

    with pytest.raises(InvalidInput, match="1 or more"):
        await migrate.down(empty_dsn, steps=0, folder=folder)
    with pytest.raises(MigrationError, match="0001_one_way has no down file"):
        await migrate.down(empty_dsn, folder=folder)


async def test_status_of_a_database_that_was_never_migrated_changes_nothing(
    empty_dsn: str, folder: Path
) -> None:
    found = await states(empty_dsn, folder)

    assert found == [(1, "pending"), (2, "pending")]
    assert await tables(empty_dsn) == set()


async def test_a_failing_step_keeps_nothing_of_itself_and_all_before_it(
    empty_dsn: str, folder: Path, write: Write
) -> None:
    write(3, "broken", "CREATE TABLE third ();\n\nCREATE TABEL fourth ();\n")

    with pytest.raises(MigrationError, match=r"0003_broken\.up\.sql, line 3, failed.*TABEL"):
        await migrate.up(empty_dsn, folder=folder)

    assert await states(empty_dsn, folder) == [(1, "applied"), (2, "applied"), (3, "pending")]
    assert "third" not in await tables(empty_dsn)


async def test_a_step_may_change_the_session_without_hurting_the_next(
    empty_dsn: str, write: Write
) -> None:
    write(1, "rude", "SET search_path = ''; CREATE TABLE public.one ();")
    folder = write(2, "next", "CREATE TABLE two ();")

    await migrate.up(empty_dsn, folder=folder)

    assert await tables(empty_dsn) >= {"one", "two"}


async def test_a_file_that_changed_after_it_was_applied_is_named(
    empty_dsn: str, folder: Path, write: Write
) -> None:
    await migrate.up(empty_dsn, folder=folder)
    write(1, "first", "CREATE TABLE other ();")

    for refused in (migrate.up, migrate.down):
        with pytest.raises(MigrationError, match=r"0001_first\.up\.sql has changed"):
            await refused(empty_dsn, folder=folder)
    assert await states(empty_dsn, folder) == [(1, "changed"), (2, "applied")]


async def test_line_ends_do_not_count_as_a_change(empty_dsn: str, write: Write) -> None:
    folder = write(1, "first", "CREATE TABLE first\n();\n")
    await migrate.up(empty_dsn, folder=folder)
    (folder / "0001_first.up.sql").write_bytes(b"CREATE TABLE first\r\n();\r\n")

    assert await migrate.up(empty_dsn, folder=folder) == []


async def test_a_database_that_is_newer_than_the_files_is_refused(
    empty_dsn: str, folder: Path
) -> None:
    await migrate.up(empty_dsn, folder=folder)
    (folder / "0002_second.up.sql").unlink()
    (folder / "0002_second.down.sql").unlink()

    with pytest.raises(MigrationError, match="newer than this Noema: it is at migration 2"):
        await migrate.up(empty_dsn, folder=folder)
    assert await states(empty_dsn, folder) == [(1, "applied"), (2, "missing file")]


async def test_a_hole_in_what_was_applied_is_refused(empty_dsn: str, folder: Path) -> None:
    await migrate.up(empty_dsn, folder=folder)
    await execute(empty_dsn, "DELETE FROM schema_migrations WHERE version = 1")

    with pytest.raises(MigrationError, match="has migration 2 without 1"):
        await migrate.up(empty_dsn, folder=folder)


def test_a_gap_in_the_numbers_is_refused(write: Write) -> None:
    write(1, "first", "")
    folder = write(3, "third", "")

    with pytest.raises(MigrationError, match=r"0002 is missing before 0003_third\.up\.sql"):
        migrate.load(folder)


def test_two_files_of_one_number_are_refused(write: Write) -> None:
    write(1, "first", "")
    folder = write(1, "other", "")

    with pytest.raises(MigrationError, match="have the same number"):
        migrate.load(folder)


def test_a_down_file_without_its_up_file_is_refused(write: Write) -> None:
    folder = write(1, "first", "")
    (folder / "0001_frist.down.sql").write_text("")

    with pytest.raises(MigrationError, match=r"0001_frist\.down\.sql has no up file"):
        migrate.load(folder)


def test_a_file_with_a_strange_name_is_refused(write: Write) -> None:
    folder = write(1, "first", "")
    (folder / "2_second.up.sql").write_text("")

    with pytest.raises(MigrationError, match=r"2_second\.up\.sql is not named"):
        migrate.load(folder)


async def test_two_migrations_at_once_apply_each_step_once(empty_dsn: str, write: Write) -> None:
    for number in range(1, 9):
        write(number, f"step{number}", f"CREATE TABLE step{number} ();")
    folder = write(9, "step9", "CREATE TABLE step9 ();")

    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(migrate.up(empty_dsn, folder=folder)) for _ in range(4)]

    applied = [a.version for run in runs for a in run.result()]
    assert sorted(applied) == list(range(1, 10))


async def test_the_real_migrations_go_down_to_nothing_and_up_again(empty_dsn: str) -> None:
    count = len(migrate.load())
    await migrate.up(empty_dsn)
    before = await tables(empty_dsn)

    await migrate.down(empty_dsn, steps=count)
    nothing = await tables(empty_dsn)
    await migrate.up(empty_dsn)

    assert nothing == {"schema_migrations"}
    assert await tables(empty_dsn) == before


async def test_accounts_keep_the_tokens_and_minds_that_were_there_before_them(
    empty_dsn: str,
) -> None:
    await migrate.up(empty_dsn, target=3)
    await execute(
        empty_dsn,
        """
        INSERT INTO minds (id, slug, name, namespace)
            VALUES (gen_random_uuid(), 'ada', 'Ada', 'acme/minds/ada');
        INSERT INTO api_tokens (id, name, hash, hint, namespace, memory_role, console_role,
                                created_at)
            VALUES (gen_random_uuid(), 'old', decode(repeat('ab', 32), 'hex'), 'noema_abcd', 'home',
                    'owner', 'administrator', now());
        """,
    )

    await migrate.up(empty_dsn, target=4)
    conn = await asyncpg.connect(empty_dsn)
    try:
        paths = [r[0] for r in await conn.fetch("SELECT path FROM namespaces ORDER BY path")]
        await conn.execute(
            """
            INSERT INTO users (id, name, console_role, created_by, created_at)
                VALUES (gen_random_uuid(), 'ada', 'operator', 'test', now());
            INSERT INTO api_tokens (id, name, hash, hint, namespace, memory_role, console_role,
                                    created_at, user_id)
                SELECT gen_random_uuid(), 'new', decode(repeat('cd', 32), 'hex'), 'noema_cdcd',
                       'home', 'owner', 'operator', now(), id FROM users;
            """
        )
        await migrate.down(empty_dsn, steps=1)
        left = [r[0] for r in await conn.fetch("SELECT name FROM api_tokens")]
    finally:
        await conn.close()

    assert paths == ["acme/minds/ada", "home"]
    assert left == ["old"]


async def test_minds_that_were_there_before_memory_get_a_place_to_remember_in(
    empty_dsn: str,
) -> None:
    await migrate.up(empty_dsn, target=4)
    await execute(
        empty_dsn,
        """
        INSERT INTO tenants (name, created_by) VALUES ('acme', 'test');
        INSERT INTO namespaces (path, tenant, created_by) VALUES ('acme/eng', 'acme', 'test');
        INSERT INTO minds (id, slug, name, namespace)
            VALUES (gen_random_uuid(), 'ada', 'Ada', 'acme/eng');
        """,
    )

    await migrate.up(empty_dsn)
    conn = await asyncpg.connect(empty_dsn)
    try:
        paths = [r[0] for r in await conn.fetch("SELECT path FROM namespaces ORDER BY path")]
        grants = await conn.fetch("SELECT subtree, to_namespace, t_valid_to FROM grants")
    finally:
        await conn.close()
    await migrate.down(empty_dsn, steps=1)
    await migrate.up(empty_dsn)

    assert paths == ["acme/eng", "acme/eng/minds", "acme/eng/minds/ada", "home"]
    assert [tuple(g) for g in grants] == [("acme/eng/minds/ada", "acme/eng", None)]

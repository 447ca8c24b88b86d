"""Bring the schema up or down, one file and one transaction at a time.

A migration is `NNNN_name.up.sql` with its `NNNN_name.down.sql`, numbered from 0001 without a gap.
`schema_migrations` keeps the checksum of each up file that was applied; a file that changed since
is an error, because nobody can tell any more what the database looks like. A session advisory lock
lets one migration run at a time, whoever starts it.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

import asyncpg

from noema import resources
from noema.core.errors import InvalidInput, MigrationError
from noema.db.tx import Conn, single

State = Literal["applied", "pending", "changed", "missing file"]

_LOCK: Final = 0x6E6F656D61  # "noema"
_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.(up|down)\.sql\Z")

# Reading the state needs no rights of the owner: the daemon asks for it as well.
_CREATE_TABLE = """
    CREATE TABLE public.schema_migrations (
        version int PRIMARY KEY,
        name text NOT NULL,
        checksum text NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT now()
    );
    GRANT SELECT ON public.schema_migrations TO PUBLIC;
"""

_HAS_TABLE = "SELECT to_regclass('public.schema_migrations') IS NOT NULL"

_ROWS = "SELECT version, name, checksum, applied_at FROM public.schema_migrations ORDER BY version"

_INSERT = """
    INSERT INTO public.schema_migrations (version, name, checksum) VALUES ($1, $2, $3)
    RETURNING applied_at
"""

_DELETE = "DELETE FROM public.schema_migrations WHERE version = $1"

# Bounds the wait for another migration, and of a migration for tables that somebody holds.
_BOUND_WAITS = "SET lock_timeout = '60s'"

_TAKE_LOCK = "SELECT pg_advisory_lock($1)"

_FORGET_SETTINGS = "RESET ROLE; RESET search_path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One numbered step, as its files describe it."""

    version: int
    name: str
    up: str
    down: str | None

    @property
    def label(self) -> str:
        return f"{self.version:04d}_{self.name}"

    @property
    def checksum(self) -> str:
        return sha256(self.up.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """One step that the database has taken, and when."""

    version: int
    name: str
    applied_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationStatus:
    """Where one step stands; `applied_at` is None while it is pending."""

    version: int
    name: str
    state: State
    applied_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    version: int
    name: str
    checksum: str
    applied_at: datetime


async def up(dsn: str, *, target: int | None = None, folder: Path | None = None) -> list[Applied]:
    """Apply what is pending, up to and including `target`; return what was applied now.

    Raises MigrationError, with everything before the failing step kept, when a file fails, has
    changed since it was applied or is misnumbered, or when the database is newer than the files.
    """
    migrations = load(folder)
    if target is not None and not 0 <= target <= len(migrations):
        raise InvalidInput(
            f"There is no migration {target}; the last one is {len(migrations)}.", field="target"
        )
    wanted = migrations if target is None else migrations[:target]
    async with _locked(dsn) as conn:
        await _ensure_table(conn)
        rows = await _rows(conn)
        _check(migrations, rows)
        return [await _apply(conn, migration) for migration in wanted[len(rows) :]]


async def down(dsn: str, *, steps: int = 1, folder: Path | None = None) -> list[Applied]:
    """Undo the last `steps` migrations; return them, the last applied first.

    Raises MigrationError as `up` does, and when a step has no down file.
    """
    if steps < 1:
        raise InvalidInput("The number of steps must be 1 or more.", field="steps")
    migrations = load(folder)
    async with _locked(dsn) as conn:
        rows = await _rows(conn) if await conn.fetchval(_HAS_TABLE) else []
        _check(migrations, rows)
        return [
            await _undo(conn, migrations[row.version - 1], row) for row in reversed(rows[-steps:])
        ]


async def status(dsn: str, *, folder: Path | None = None) -> list[MigrationStatus]:
    """Return where every step stands, in order; changes nothing and needs no owner."""
    async with single(dsn) as conn:
        return await status_of(conn, folder=folder)


async def status_of(conn: Conn, *, folder: Path | None = None) -> list[MigrationStatus]:
    """Return what `status` does, over a connection that is open already."""
    files = {migration.version: migration for migration in load(folder)}
    rows = await _rows(conn) if await conn.fetchval(_HAS_TABLE) else []
    applied = {row.version: row for row in rows}
    return [
        _status(files.get(version), applied.get(version))
        for version in sorted(files.keys() | applied.keys())
    ]


def load(folder: Path | None = None) -> tuple[Migration, ...]:
    """Return the folder's migrations in order; raise MigrationError on a gap or a duplicate."""
    folder = resources.directory("migrations") if folder is None else folder
    ups: dict[int, tuple[str, Path]] = {}
    downs: dict[int, tuple[str, Path]] = {}
    for path in sorted(folder.glob("*.sql")):
        match = _FILE.match(path.name)
        if match is None:
            raise MigrationError(f"{path.name} is not named NNNN_name.up.sql or .down.sql.")
        version, name = int(match.group(1)), match.group(2)
        side = ups if match.group(3) == "up" else downs
        if version in side:
            raise MigrationError(
                f"{path.name} and {side[version][1].name} have the same number; renumber one."
            )
        side[version] = (name, path)
    _check_numbers(ups, downs)
    return tuple(
        Migration(
            version=version,
            name=name,
            up=_read(path),
            down=_read(downs[version][1]) if version in downs else None,
        )
        for version, (name, path) in sorted(ups.items())
    )


def _check_numbers(ups: dict[int, tuple[str, Path]], downs: dict[int, tuple[str, Path]]) -> None:
    for expected, version in enumerate(sorted(ups), start=1):
        if version != expected:
            raise MigrationError(
                f"Migration {expected:04d} is missing before {ups[version][1].name}."
            )
    for version, (name, path) in downs.items():
        if version not in ups or ups[version][0] != name:
            raise MigrationError(f"{path.name} has no up file of the same number and name.")


def _read(path: Path) -> str:
    # Line ends are made alike, so that a checkout on another system has the same checksum.
    return path.read_text(encoding="utf-8")


def _status(migration: Migration | None, row: _Row | None) -> MigrationStatus:
    if migration is None:
        assert row is not None  # noqa: S101 - one of the two named the version
        return MigrationStatus(
            version=row.version, name=row.name, state="missing file", applied_at=row.applied_at
        )
    if row is None:
        return MigrationStatus(
            version=migration.version, name=migration.name, state="pending", applied_at=None
        )
    return MigrationStatus(
        version=migration.version,
        name=migration.name,
        state="applied" if row.checksum == migration.checksum else "changed",
        applied_at=row.applied_at,
    )


@asynccontextmanager
async def _locked(dsn: str) -> AsyncIterator[Conn]:
    async with single(dsn) as conn:
        await conn.execute(_BOUND_WAITS)
        try:
            await conn.execute(_TAKE_LOCK, _LOCK)
        except asyncpg.LockNotAvailableError as exc:
            raise MigrationError(
                "Another migration of this database has been running for a minute. "
                "Wait until it is done, then try again."
            ) from exc
        # The lock goes with the session, so a crash in between leaves nothing to clean up.
        yield conn


async def _ensure_table(conn: Conn) -> None:
    if await conn.fetchval(_HAS_TABLE):
        return
    try:
        await conn.execute(_CREATE_TABLE)
    except asyncpg.InsufficientPrivilegeError as exc:
        raise MigrationError(
            f"This role may not create tables here: {exc}. "
            "Name the owner of the database in NOEMA_OWNER_DATABASE_URL."
        ) from exc


async def _rows(conn: Conn) -> list[_Row]:
    return [_Row(**row) for row in await conn.fetch(_ROWS)]


def _check(migrations: Sequence[Migration], rows: Sequence[_Row]) -> None:
    """Raise MigrationError unless the rows are the first of the migrations, unchanged."""
    if rows and rows[-1].version > len(migrations):
        raise MigrationError(
            f"The database is newer than this Noema: it is at migration {rows[-1].version}, "
            f"the files end at {len(migrations)}. Install the Noema that made it, or a later one."
        )
    for expected, row in enumerate(rows, start=1):
        if row.version != expected:
            raise MigrationError(
                f"The database has migration {row.version} without {expected}: "
                "schema_migrations was changed by hand. Restore it from a backup."
            )
        migration = migrations[expected - 1]
        if row.checksum != migration.checksum:
            raise MigrationError(
                f"{migration.label}.up.sql has changed since it was applied. Restore the file, "
                "and put the change into a new migration."
            )


async def _apply(conn: Conn, migration: Migration) -> Applied:
    async with _step(conn, f"{migration.label}.up.sql", migration.up):
        applied_at: datetime = await conn.fetchval(
            _INSERT, migration.version, migration.name, migration.checksum
        )
    return Applied(version=migration.version, name=migration.name, applied_at=applied_at)


async def _undo(conn: Conn, migration: Migration, row: _Row) -> Applied:
    if migration.down is None:
        raise MigrationError(f"{migration.label} has no down file, so it cannot be undone.")
    async with _step(conn, f"{migration.label}.down.sql", migration.down):
        await conn.execute(_DELETE, migration.version)
    return Applied(version=row.version, name=row.name, applied_at=row.applied_at)


@asynccontextmanager
async def _step(conn: Conn, file: str, sql: str) -> AsyncIterator[None]:
    """Run the file, then the caller's bookkeeping, in one transaction."""
    try:
        async with conn.transaction():
            await conn.execute(sql)
            await conn.execute(_FORGET_SETTINGS)
            yield
    except asyncpg.PostgresConnectionError:
        raise
    except asyncpg.PostgresError as exc:
        raise MigrationError(
            f"{file}{_line(sql, exc)} failed and nothing of it was kept: {exc}."
        ) from exc


def _line(sql: str, exc: asyncpg.PostgresError) -> str:
    position = str(getattr(exc, "position", None) or "")
    if not position.isdigit():
        return ""
    return f", line {sql.count(chr(10), 0, int(position) - 1) + 1},"

"""Whether vectors are pgvector's, and making them so where the server offers it.

    vectors = await prepare(owner_dsn)      # at start, after the migrations, as the owner
    vectors = await inspect(tx)             # the same finding, for the daemon's role

`memory_embeddings.embedding` is made as `real[]` and works so everywhere. Where pgvector 0.7 or
later is there, `prepare` turns it into `halfvec` once and for all. Statements need not know which:

    write   INSERT … SELECT …, $5::real[]           the cast to halfvec is one of assignment
    read    embedding::real[]                       a cast in the one case, nothing in the other

Several vectors travel as one flat array, `($5::real[])[(n - 1) * dims + 1 : n * dims]` for the
n-th; a two-dimensional one would not cast. Only distance operators and index expressions need
`kind`, and iterative index scans `has_iterative_scan`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal

import asyncpg

from noema.core.errors import MigrationError, Unavailable
from noema.db.tx import Conn, Tx, single

# The first with halfvec, and the first that goes on searching an index until enough rows pass.
OLDEST: Final = (0, 7)
ITERATIVE: Final = (0, 8)

_LOCK: Final = 0x6E6F656D62  # "noemb": one start prepares at a time

_BOUND_WAITS = "SET LOCAL lock_timeout = '60s'"

_TAKE_LOCK = "SELECT pg_advisory_xact_lock($1)"

# relation: whether the table is there at all. type: of its column, or NULL where that was dropped.
# visible: whether this role's search_path finds the type; elsewhere: the schema where it is.
_STATE = """
    SELECT to_regclass('public.memory_embeddings') IS NOT NULL AS relation,
           (SELECT t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = to_regclass('public.memory_embeddings')
              AND a.attname = 'embedding' AND NOT a.attisdropped) AS type,
           (SELECT default_version FROM pg_available_extensions WHERE name = 'vector') AS offered,
           (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS installed,
           to_regtype('halfvec') IS NOT NULL AS visible,
           (SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
            WHERE e.extname = 'vector') AS elsewhere
"""

_CREATE_EXTENSION = "CREATE EXTENSION IF NOT EXISTS vector"

# Loads the library: the catalogue may know an extension whose files this server does not have.
_TRY = "SELECT '[1]'::halfvec::real[]"

# Stored in the row while it fits a page: an exact search reads every one, and fetching each from
# the side would be most of its cost.
_CONVERT = """
    ALTER TABLE public.memory_embeddings
        ALTER COLUMN embedding TYPE halfvec USING embedding::halfvec,
        ALTER COLUMN embedding SET STORAGE MAIN
"""

# DROP EXTENSION … CASCADE took the column with it. What it held can be computed again.
_RESTORE = """
    TRUNCATE public.memory_embeddings;
    ALTER TABLE public.memory_embeddings ADD COLUMN embedding real[] NOT NULL;
    UPDATE public.embedding_models SET fill_after = NULL, filled = 0;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """How vectors are kept: `pgvector` as halfvec, `array` as real[]; `reason` is for people.

    `version` is that of the installed extension, such as (0, 8, 1), None without one.
    """

    kind: Literal["pgvector", "array"]
    version: tuple[int, ...] | None
    reason: str

    @property
    def has_iterative_scan(self) -> bool:
        """Whether an approximate index may be searched under a filter without losing rows."""
        return self.kind == "pgvector" and self.version is not None and self.version >= ITERATIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    relation: bool
    type: str | None
    offered: str | None
    installed: str | None
    visible: bool
    elsewhere: str | None


async def prepare(owner_dsn: str) -> Vectors:
    """Install the extension and convert the column where the server allows; say what came of it.

    Safe to run from several starting daemons at once; never turns vectors back into arrays. Raises
    MigrationError where the schema is not there yet, Unavailable where the vectors are pgvector's
    and the server can no longer read them, or another holds the table for a minute.
    """
    async with single(owner_dsn) as conn, _alone(conn):
        state = await _state(conn)
        note = ""
        if state.type is None:
            await conn.execute(_RESTORE)
            note = (
                " The stored vectors had gone together with an earlier pgvector; they are "
                "computed again in the background."
            )
        refusal = await _install(conn, state)
        state = await _state(conn)
        if refusal is None and state.type != "halfvec":
            await conn.execute(_CONVERT)
            state = await _state(conn)
        found = await _finding(conn, state, refusal)
        return Vectors(kind=found.kind, version=found.version, reason=found.reason + note)


async def inspect(tx: Tx) -> Vectors:
    """Return how vectors are kept; changes nothing.

    Raises MigrationError where the schema is not there, Unavailable where nobody can read them.
    """
    return await _finding(tx.conn, await _state(tx.conn), None)


@asynccontextmanager
async def _alone(conn: Conn) -> AsyncIterator[None]:
    try:
        async with conn.transaction():
            await conn.execute(_BOUND_WAITS)
            await conn.execute(_TAKE_LOCK, _LOCK)
            yield
    except asyncpg.LockNotAvailableError as exc:
        raise Unavailable(
            "The table of vectors has been in use by others for a minute, so it could not be "
            "prepared for pgvector. Start again when their transactions have ended."
        ) from exc


async def _state(conn: Conn) -> _State:
    row = await conn.fetchrow(_STATE)
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    state = _State(**row)
    if not state.relation:
        raise MigrationError("There is no table of vectors yet. Apply the migrations first.")
    return state


async def _install(conn: Conn, state: _State) -> str | None:
    """Make sure of the extension; return why it is not to be had, or None where it is."""
    if state.installed is None:
        if state.offered is None:
            return "this server does not have pgvector"
        if _version(state.offered) < OLDEST:
            return f"this server has pgvector {state.offered}, and halfvec came with 0.7"
        refusal = await _create(conn)
        if refusal is not None:
            return refusal
        state = await _state(conn)
    return _unusable(state)


async def _create(conn: Conn) -> str | None:
    try:
        # A savepoint of its own: a refusal must not end the transaction around it.
        async with conn.transaction():
            await conn.execute(_CREATE_EXTENSION)
    except asyncpg.InsufficientPrivilegeError:
        return (
            "the owner of this database may not install pgvector. "
            "Let a superuser run CREATE EXTENSION vector in it, then start again"
        )
    except asyncpg.PostgresError as exc:
        return f"pgvector cannot be installed: {exc}"
    return None


def _unusable(state: _State) -> str | None:
    if state.installed is None:
        return "pgvector is not installed in this database"
    if _version(state.installed) < OLDEST:
        return (
            f"this database has pgvector {state.installed}, and halfvec came with 0.7. "
            "Run ALTER EXTENSION vector UPDATE, then start again"
        )
    if not state.visible:
        return (
            f"pgvector is in the schema {state.elsewhere}, which is not on the search_path. "
            "Add it there with ALTER DATABASE … SET search_path, then start again"
        )
    return None


async def _finding(conn: Conn, state: _State, refusal: str | None) -> Vectors:
    version = None if state.installed is None else _version(state.installed)
    if state.type is None:
        raise Unavailable(
            "The column of vectors has gone together with pgvector. Start Noema again with the "
            "owner's login: it makes the column and computes the vectors anew."
        )
    if state.type != "halfvec":
        why = refusal or _unusable(state) or "they have not been converted yet; start Noema again"
        return Vectors(
            kind="array",
            version=version,
            reason=f"Vectors are plain arrays and searched exactly: {why}.",
        )
    await _check_readable(conn, state)
    limit = "" if version is not None and version >= ITERATIVE else _EXACT_ONLY
    return Vectors(
        kind="pgvector",
        version=version,
        reason=f"Vectors are pgvector's halfvec, version {state.installed}.{limit}",
    )


_EXACT_ONLY: Final = " Iterative index scans came with 0.8, so searches are exact."


async def _check_readable(conn: Conn, state: _State) -> None:
    why = None if state.visible else _unusable(state)
    if why is None:
        try:
            async with conn.transaction():
                await conn.fetchval(_TRY)
        except asyncpg.PostgresError as exc:
            why = str(exc)
    if why is not None:
        raise Unavailable(
            f"The stored vectors are pgvector's, and this server cannot read them: {why}. "
            "Install pgvector 0.7 or later on the server."
        )


def _version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, such as (0, 8, 1); what is no number ends it."""
    numbers: list[int] = []
    for part in text.split("."):
        if not (part.isascii() and part.isdigit()):
            break
        numbers.append(int(part))
    return tuple(numbers)

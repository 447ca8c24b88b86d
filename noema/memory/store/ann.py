"""SQL of approximate indexes: what is settled, what indexes there are, making and dropping them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg

from noema.core.errors import Unavailable
from noema.db.tx import Conn

_LOCK: Final = 0x6E6F656D64  # "noemd": one keeper at a time

_TAKE = "SELECT pg_try_advisory_lock($1)"

_GIVE_BACK = "SELECT pg_advisory_unlock($1)"


async def take(conn: Conn) -> bool:
    """Become the one keeper until `give_back` or the session ends; False where there is one."""
    return bool(await conn.fetchval(_TAKE, _LOCK))


async def give_back(conn: Conn) -> None:
    await conn.execute(_GIVE_BACK, _LOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """How many current vectors a model has in one namespace."""

    model: str
    dims: int
    namespace: str
    fresh: int
    settled: int


_SHELVES = """
    SELECT model, dims, namespace,
           count(*) FILTER (WHERE shelf = 'fresh') AS fresh,
           count(*) FILTER (WHERE shelf = 'settled') AS settled
    FROM memory_embeddings WHERE shelf IN ('fresh', 'settled')
    GROUP BY model, dims, namespace
"""


async def shelves(conn: Conn) -> list[Shelf]:
    return [Shelf(**row) for row in await conn.fetch(_SHELVES)]


# A supersede locks the memory first and then moves its vector. So does this, and it passes by who
# is being superseded just now.
_SETTLE = """
    WITH chosen AS (
        SELECT m.id FROM memories m
        WHERE m.id IN (SELECT memory_id FROM memory_embeddings_fresh WHERE model = $1 LIMIT $2)
          AND m.t_valid_to IS NULL AND m.status = 'active'
        ORDER BY m.id
        FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE memory_embeddings e SET shelf = 'settled'
    FROM chosen WHERE e.memory_id = chosen.id AND e.model = $1 AND e.shelf = 'fresh'
"""


async def settle(conn: Conn, model: str, *, limit: int) -> int:
    """Move at most so many vectors to where the approximate index is; return how many moved."""
    async with conn.transaction():
        status = await conn.execute(_SETTLE, model, limit)
    return int(status.rpartition(" ")[2])


_EXISTING = """
    SELECT c.relname AS name, i.indisvalid AS is_valid
    FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
    WHERE i.indrelid = 'public.memory_embeddings_settled'::regclass AND starts_with(c.relname, $1)
"""


async def existing(conn: Conn, prefix: str) -> dict[str, bool]:
    """Return the approximate indexes by name, and whether each was finished."""
    rows = await conn.fetch(_EXISTING, prefix)
    return {row["name"]: row["is_valid"] for row in rows}


# The server writes the statement: it knows how names and literals are quoted. The cast says how
# long a vector is, because the column does not.
_STATEMENT = """
    SELECT format(
        'CREATE INDEX CONCURRENTLY %I ON public.memory_embeddings_settled '
        'USING hnsw ((embedding::halfvec(%s)) halfvec_ip_ops) WHERE model = %L%s',
        $1::text, $2::int, $3::text,
        CASE WHEN $4::text IS NULL THEN '' ELSE format(' AND namespace = %L', $4::text) END)
"""

_DROP_STATEMENT = "SELECT format('DROP INDEX CONCURRENTLY IF EXISTS public.%I', $1::text)"

_ROOM = "SET maintenance_work_mem = '256MB'"

_NO_LIMIT = "SET statement_timeout = 0"

# What was settled left dead rows behind, which every comparison of fresh ones would still pass.
_VACUUM = "VACUUM (ANALYZE) memory_embeddings_fresh, memory_embeddings_settled"


async def create(
    conn: Conn, name: str, *, model: str, dims: int, namespace: str | None = None
) -> None:
    """Build an index without holding anybody up. Raises Unavailable where it could not be built.

    What is left of a failed attempt is invalid, and `existing` says so.
    """
    await conn.execute(_NO_LIMIT)
    await conn.execute(_ROOM)
    statement = await conn.fetchval(_STATEMENT, name, dims, model, namespace)
    try:
        await conn.execute(statement, timeout=_LONG_S)
        await conn.execute(_VACUUM, timeout=_LONG_S)
    except asyncpg.PostgresError as exc:
        raise Unavailable(
            f"The index of vectors {name} could not be built: {exc}. It is tried again later; "
            "until then searches compare every vector."
        ) from exc


async def drop(conn: Conn, names: Sequence[str]) -> None:
    for name in names:
        await conn.execute(await conn.fetchval(_DROP_STATEMENT, name), timeout=_LONG_S)


_LONG_S: Final = 6 * 3600.0

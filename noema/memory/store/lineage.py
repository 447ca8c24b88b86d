"""SQL of lineage: what rests on what, and what a retraction holds down."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from noema.db.tx import Conn

Row = Mapping[str, Any]

RETRIABLE: Final = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""What PostgreSQL raises where two transactions met, and one of them is to begin again."""

# UNION keeps each once, so that a circle ends; the limit stops the walk itself.
_DOWN = """
    WITH RECURSIVE down AS (
        SELECT $1::uuid AS id
        UNION
        SELECT d.to_id FROM down JOIN derivations d
            ON d.from_id = down.id AND d.kind = 'memory.derived'
    )
    SELECT id FROM down LIMIT $2
"""

_UNSOUND = """
    WITH RECURSIVE up AS (
        SELECT d.from_id AS id FROM derivations d
        WHERE d.to_id = $1 AND d.kind = 'memory.derived'
        UNION
        SELECT d.from_id FROM up JOIN derivations d
            ON d.to_id = up.id AND d.kind = 'memory.derived'
    )
    SELECT m.id, m.status, m.namespace, m.t_valid_to
    FROM (SELECT id FROM up LIMIT $2) found JOIN memories m ON m.id = found.id
    WHERE m.status <> 'active' OR m.t_valid_to IS NOT NULL
    ORDER BY m.id
"""

_LOCK = """
    SELECT id, namespace, status, actor FROM memories
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE
"""

_OPEN_OF_ROOT = "SELECT id FROM memory_retractions WHERE root = $1 AND restored_at IS NULL"

_RETRACTION = """
    INSERT INTO memory_retractions (id, namespace, root, reason, actor, retracted_at)
    VALUES ($1, $2, $3, $4, $5, $6)
"""

# What another retraction holds down already would have the status that one remembers.
_HOLD = """
    INSERT INTO memory_retracted (retraction_id, memory_id, namespace, before)
    SELECT $1, m.id, m.namespace,
           CASE WHEN m.status <> 'retracted' THEN m.status
                ELSE coalesce((SELECT r.before FROM memory_retracted r WHERE r.memory_id = m.id
                               ORDER BY r.retraction_id DESC LIMIT 1), 'active') END
    FROM memories m WHERE m.id = ANY($2::uuid[])
"""

_RETRACT = """
    UPDATE memories SET status = 'retracted'
    WHERE id = ANY($1::uuid[]) AND status <> 'retracted'
"""

_GET = """
    SELECT id, namespace, root, reason, actor, retracted_at, restored_at, restored_by
    FROM memory_retractions WHERE id = $1 FOR UPDATE
"""

# taken_by is the current row that has the same key, so that this one cannot be current beside it:
# one that never left, or the oldest of those that would come back with it.
_HELD = """
    WITH back AS (
        SELECT m.id, m.namespace, m.status, r.before, m.t_valid_to, m.dedupe_key,
               (SELECT o.retraction_id FROM memory_retracted o
                JOIN memory_retractions t ON t.id = o.retraction_id AND t.restored_at IS NULL
                WHERE o.memory_id = m.id AND o.retraction_id <> $1 LIMIT 1) AS held_by
        FROM memory_retracted r JOIN memories m ON m.id = r.memory_id
        WHERE r.retraction_id = $1
    )
    SELECT b.id, b.namespace, b.status, b.before, b.held_by,
           coalesce(
               (SELECT c.id FROM memories c
                WHERE c.namespace = b.namespace AND c.dedupe_key = b.dedupe_key
                  AND c.t_valid_to IS NULL AND c.status <> 'retracted' AND c.id <> b.id LIMIT 1),
               (SELECT c.id FROM back c
                WHERE c.namespace = b.namespace AND c.dedupe_key = b.dedupe_key
                  AND c.t_valid_to IS NULL AND c.status = 'retracted' AND c.held_by IS NULL
                  AND c.id < b.id ORDER BY c.id LIMIT 1)
           ) AS taken_by,
           b.t_valid_to IS NULL AS is_open
    FROM back b ORDER BY b.id
"""

_RESTORE = """
    UPDATE memories m SET status = r.before
    FROM memory_retracted r
    WHERE r.retraction_id = $1 AND r.memory_id = m.id AND m.id = ANY($2::uuid[])
      AND m.status = 'retracted'
"""

_RESTORED = "UPDATE memory_retractions SET restored_at = $2, restored_by = $3 WHERE id = $1"

_MEMBERS = "SELECT memory_id FROM memory_retracted WHERE retraction_id = $1"


class Taken(Exception):  # noqa: N818
    """Another writer took the place of a row that was about to become current again."""


async def down(conn: Conn, root: UUID, *, limit: int) -> list[UUID]:
    """Return the memory and all that rests on it, at most so many."""
    return [r["id"] for r in await conn.fetch(_DOWN, root, limit)]


async def unsound(conn: Conn, id_: UUID, *, limit: int) -> list[Row]:
    """Return which of the memories this one rests on are not current and active."""
    return [dict(r) for r in await conn.fetch(_UNSOUND, id_, limit)]


async def lock(conn: Conn, ids: Sequence[UUID]) -> list[Row]:
    """Hold the rows until the transaction ends, in one order for everybody."""
    return [dict(r) for r in await conn.fetch(_LOCK, list(ids))]


async def open_of_root(conn: Conn, root: UUID) -> UUID | None:
    found: UUID | None = await conn.fetchval(_OPEN_OF_ROOT, root)
    return found


async def retract(
    conn: Conn,
    id_: UUID,
    ids: Sequence[UUID],
    *,
    namespace: str,
    root: UUID,
    reason: str,
    actor: str,
    at: datetime,
) -> None:
    await conn.execute(_RETRACTION, id_, namespace, root, reason, actor, at)
    await conn.execute(_HOLD, id_, list(ids))
    await conn.execute(_RETRACT, list(ids))


async def retraction(conn: Conn, id_: UUID) -> Row | None:
    row = await conn.fetchrow(_GET, id_)
    return None if row is None else dict(row)


async def members(conn: Conn, id_: UUID) -> list[UUID]:
    return [r["memory_id"] for r in await conn.fetch(_MEMBERS, id_)]


async def held(conn: Conn, id_: UUID) -> list[Row]:
    """Return each row it holds down: what it was, who else holds it, who has its place."""
    return [dict(r) for r in await conn.fetch(_HELD, id_)]


async def restore(conn: Conn, id_: UUID, ids: Sequence[UUID], *, actor: str, at: datetime) -> None:
    """Bring the rows back. Raises Taken where somebody took a place since `held` looked."""
    try:
        await conn.execute(_RESTORE, id_, list(ids))
    except asyncpg.UniqueViolationError as exc:
        raise Taken from exc
    await conn.execute(_RESTORED, id_, at, actor)

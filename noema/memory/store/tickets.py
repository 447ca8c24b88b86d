"""SQL of writes that were accepted and are done soon."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from noema.core.identity import Identity
from noema.db.tx import Conn

_INSERT = """
    INSERT INTO write_tickets
        (id, namespace, actor, agent_id, memory_role, console_role, request, due_at, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)
"""

_GET = """
    SELECT id, namespace, actor, state, result, error, created_at, finished_at
    FROM write_tickets WHERE id = $1 AND namespace = $2
"""

# A ticket that somebody takes is due again when the lease ends: whoever died over it is followed.
_TAKE = """
    UPDATE write_tickets SET state = 'running', attempts = attempts + 1, due_at = $1 + $2
    WHERE id IN (
        SELECT id FROM write_tickets
        WHERE state IN ('waiting', 'running') AND due_at <= $1
        ORDER BY due_at, id LIMIT $3 FOR UPDATE SKIP LOCKED
    )
    RETURNING id, namespace, actor, agent_id, memory_role, console_role, request, attempts,
              created_at
"""

_WAIT = """
    UPDATE write_tickets SET state = 'waiting', due_at = $2, error = $3
    WHERE id = $1 AND state = 'running'
"""

# What was asked for is not needed any more, however it ended, and may be what nobody should keep.
_FINISH = """
    UPDATE write_tickets
    SET state = $2, result = $3, error = $4, finished_at = $5, request = NULL
    WHERE id = $1 AND state IN ('waiting', 'running')
"""


async def insert(
    conn: Conn, id_: UUID, who: Identity, request: Mapping[str, Any], at: datetime
) -> None:
    await conn.execute(
        _INSERT, id_, who.namespace, who.actor, who.agent_id, who.role.value, who.console.value,
        request, at,
    )  # fmt: skip


async def get(conn: Conn, id_: UUID, namespace: str) -> asyncpg.Record | None:
    return await conn.fetchrow(_GET, id_, namespace)


async def take(conn: Conn, at: datetime, lease: timedelta, limit: int) -> list[dict[str, Any]]:
    """Take due tickets for the time of a lease, oldest first."""
    rows = await conn.fetch(_TAKE, at, lease, limit)
    return [dict(row) for row in sorted(rows, key=lambda row: (row["created_at"], row["id"]))]


async def wait(conn: Conn, id_: UUID, due_at: datetime, error: str) -> None:
    await conn.execute(_WAIT, id_, due_at, error)


async def finish(
    conn: Conn, id_: UUID, state: str, *, result: Any, error: str, at: datetime
) -> None:
    await conn.execute(_FINISH, id_, state, result, error, at)

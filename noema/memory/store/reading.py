"""SQL of reading memories: one, its chain, a page of them. Everything is fenced by a scope."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from noema.core.canonical import unescape
from noema.db.tx import Conn
from noema.memory.model import Memory, Retraction, Scope
from noema.memory.scope import fence
from noema.memory.store.rows import memory_of

_GET = """
    SELECT m.*,
           (SELECT n.id FROM memories n
            WHERE n.supersedes = m.id AND (n.namespace = ANY($2) OR n.id = ANY($3))
            ORDER BY n.t_valid_from DESC, n.id DESC LIMIT 1) AS superseded_by,
           (SELECT array_agg(e.name ORDER BY e.name)
            FROM memory_entities me JOIN entities e ON e.id = me.entity_id
            WHERE me.memory_id = m.id AND e.namespace = ANY($2)) AS entities
    FROM memories m
    WHERE m.id = ANY($1::uuid[]) AND (m.namespace = ANY($2) OR m.id = ANY($3))
"""

_EXISTS = "SELECT EXISTS (SELECT FROM memories WHERE id = $1)"

_PLACE = "SELECT id, namespace, status, t_valid_from, t_valid_to FROM memories WHERE id = $1"

# Both ways along supersedes, never through a row that the caller may not see.
_CHAIN = """
    WITH RECURSIVE older AS (
        SELECT m.id, m.supersedes FROM memories m
        WHERE m.id = $1 AND (m.namespace = ANY($2) OR m.id = ANY($3))
        UNION
        SELECT m.id, m.supersedes FROM memories m JOIN older o ON m.id = o.supersedes
        WHERE m.namespace = ANY($2) OR m.id = ANY($3)
    ), newer AS (
        SELECT m.id FROM memories m
        WHERE m.id = $1 AND (m.namespace = ANY($2) OR m.id = ANY($3))
        UNION
        SELECT m.id FROM memories m JOIN newer n ON m.supersedes = n.id
        WHERE m.namespace = ANY($2) OR m.id = ANY($3)
    )
    SELECT id FROM older UNION SELECT id FROM newer
"""

_BROWSE = """
    SELECT m.*,
           (SELECT n.id FROM memories n
            WHERE n.supersedes = m.id AND (n.namespace = ANY($1) OR n.id = ANY($2))
            ORDER BY n.t_valid_from DESC, n.id DESC LIMIT 1) AS superseded_by,
           (SELECT array_agg(e.name ORDER BY e.name)
            FROM memory_entities me JOIN entities e ON e.id = me.entity_id
            WHERE me.memory_id = m.id AND e.namespace = ANY($1)) AS entities
    FROM (
        SELECT b.id FROM memories b
        WHERE (b.namespace = ANY($1) OR b.id = ANY($2))
          AND ($3::uuid IS NULL OR b.id < $3)
          AND (cardinality($4::text[]) = 0 OR b.kind = ANY($4))
          AND ($5::text IS NULL OR b.status = $5)
        ORDER BY b.id DESC LIMIT $6
    ) page JOIN memories m ON m.id = page.id
    ORDER BY m.id DESC
"""


# Turns of one session, within so many places of one of them.
_AROUND = """
    SELECT m.* FROM memories m
    WHERE m.session_id = $1 AND m.position BETWEEN $2 AND $3
      AND (m.namespace = ANY($4) OR m.id = ANY($5))
    ORDER BY m.position
"""

# What holds a memory down, the latest where there are several; of the rest what may be seen.
_RETRACTION = """
    SELECT r.id, r.namespace, r.root, r.reason, r.actor, r.retracted_at,
           (SELECT array_agg(h.memory_id ORDER BY h.memory_id) FROM memory_retracted h
            WHERE h.retraction_id = r.id
              AND (h.namespace = ANY($2) OR h.memory_id = ANY($3))) AS shown,
           (SELECT count(*) FROM memory_retracted h WHERE h.retraction_id = r.id) AS all_of_them
    FROM memory_retracted d JOIN memory_retractions r ON r.id = d.retraction_id
    WHERE d.memory_id = $1 AND r.restored_at IS NULL
      AND (d.namespace = ANY($2) OR d.memory_id = ANY($3))
    ORDER BY r.retracted_at DESC, r.id DESC LIMIT 1
"""


def _is_shared(scope: Scope, row: Any) -> bool:
    return row["namespace"] not in scope.own


async def get(conn: Conn, scope: Scope, ids: Sequence[UUID]) -> dict[UUID, Memory]:
    """Return those of the memories that the scope sees, by id."""
    rows = await conn.fetch(_GET, list(ids), *fence(scope))
    return {r["id"]: memory_of(dict(r), is_shared=_is_shared(scope, r)) for r in rows}


async def exists(conn: Conn, id_: UUID) -> bool:
    """Whether there is such a memory at all; for the audit log, never for the caller."""
    return bool(await conn.fetchval(_EXISTS, id_))


async def place_of(conn: Conn, id_: UUID) -> tuple[str, str, datetime, datetime | None] | None:
    """Return namespace, status and validity of a memory, whoever may see it."""
    row = await conn.fetchrow(_PLACE, id_)
    if row is None:
        return None
    return row["namespace"], row["status"], row["t_valid_from"], row["t_valid_to"]


async def chain(conn: Conn, scope: Scope, id_: UUID) -> list[Memory]:
    """Return what the memory superseded and what superseded it, itself included, newest first."""
    found = await conn.fetch(_CHAIN, id_, *fence(scope))
    memories = await get(conn, scope, [r["id"] for r in found])
    return sorted(memories.values(), key=lambda m: (m.valid_from, m.id), reverse=True)


async def browse(
    conn: Conn,
    scope: Scope,
    *,
    before: UUID | None,
    kinds: Sequence[str],
    status: str | None,
    limit: int,
) -> list[Memory]:
    rows = await conn.fetch(_BROWSE, *fence(scope), before, list(kinds), status, limit)
    return [memory_of(dict(r), is_shared=_is_shared(scope, r)) for r in rows]


async def around(conn: Conn, scope: Scope, session: UUID, *, first: int, last: int) -> list[Memory]:
    rows = await conn.fetch(_AROUND, session, first, last, *fence(scope))
    return [memory_of(dict(r), is_shared=_is_shared(scope, r)) for r in rows]


async def retraction_of(conn: Conn, scope: Scope, memory: UUID) -> Retraction | None:
    row = await conn.fetchrow(_RETRACTION, memory, *fence(scope))
    if row is None:
        return None
    shown = tuple(row["shown"] or ())
    # Where, by whom and why is told to whoever may read the source itself.
    is_seen = row["root"] in shown
    return Retraction(
        id=row["id"],
        namespace=row["namespace"] if is_seen else "",
        root=row["root"],
        memories=shown,
        reason=unescape(row["reason"]) if is_seen else "",
        actor=row["actor"] if is_seen else "",
        retracted_at=row["retracted_at"],
        elsewhere=row["all_of_them"] - len(shown),
    )

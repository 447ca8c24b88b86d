"""SQL of grants: given, ended, listed, and written out for a scope."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from noema.db.tx import Conn
from noema.memory.model import Grant

# A grant to a namespace holds for who acts in exactly that one. One to an actor goes along with the
# actor, but leaves the tenant only where an owner gave it.
_HELD = """
    WITH held AS MATERIALIZED (
        SELECT g.memory_id, g.subtree, g.namespace FROM grants g
        WHERE (g.to_namespace = $1
               OR (g.to_actor = $2
                   AND (g.beyond_tenant
                        OR split_part(g.namespace, '/', 1) = split_part($1, '/', 1))))
          AND g.t_valid_from <= $3 AND (g.t_valid_to IS NULL OR g.t_valid_to > $3)
          AND ($4::timestamptz IS NULL
               OR (g.t_valid_from <= $4 AND (g.t_valid_to IS NULL OR g.t_valid_to > $4)))
    )
    SELECT h.memory_id, h.namespace, n.path
    FROM held h LEFT JOIN namespaces n
      ON h.subtree IS NOT NULL AND noema_in_subtree(n.path, h.subtree)
"""

_GRANTS_THAT_OPEN = """
    SELECT g.id, g.namespace, g.memory_id, g.subtree, g.to_namespace, g.to_actor, g.granted_by,
           g.t_valid_from, g.t_valid_to, g.revoked_by
    FROM grants g
    WHERE (g.to_namespace = $1
           OR (g.to_actor = $2
               AND (g.beyond_tenant OR split_part(g.namespace, '/', 1) = split_part($1, '/', 1))))
      AND (g.memory_id = $3 OR (g.subtree IS NOT NULL AND noema_in_subtree($4, g.subtree)))
    ORDER BY g.t_valid_from, g.id LIMIT 100
"""

_INSERT = """
    INSERT INTO grants (id, namespace, memory_id, subtree, to_namespace, to_actor, beyond_tenant,
                        granted_by, t_valid_from, t_valid_to)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    RETURNING id, namespace, memory_id, subtree, to_namespace, to_actor, granted_by, t_valid_from,
              t_valid_to, revoked_by
"""

_GET = """
    SELECT id, namespace, memory_id, subtree, to_namespace, to_actor, granted_by, t_valid_from,
           t_valid_to, revoked_by
    FROM grants WHERE id = $1 FOR NO KEY UPDATE
"""

_READ = """
    SELECT id, namespace, memory_id, subtree, to_namespace, to_actor, granted_by, t_valid_from,
           t_valid_to, revoked_by
    FROM grants WHERE id = $1
"""

_END = """
    UPDATE grants SET t_valid_to = greatest(t_valid_from, $2), revoked_by = $3 WHERE id = $1
    RETURNING id, namespace, memory_id, subtree, to_namespace, to_actor, granted_by, t_valid_from,
              t_valid_to, revoked_by
"""

# What an actor gave while acting in other places is told there.
_LISTED = """
    SELECT g.id, g.namespace, g.memory_id, g.subtree, g.to_namespace, g.to_actor, g.granted_by,
           g.t_valid_from, g.t_valid_to, g.revoked_by
    FROM grants g
    WHERE ((g.granted_by = $1 AND noema_in_subtree(g.namespace, $2))
           OR g.to_namespace = $2
           OR (g.to_actor = $1
               AND (g.beyond_tenant OR split_part(g.namespace, '/', 1) = split_part($2, '/', 1)))
           OR ($3 AND noema_in_subtree(g.namespace, $2)))
      AND ($4 OR g.t_valid_to IS NULL OR g.t_valid_to > $5)
    ORDER BY g.t_valid_from DESC, g.id DESC LIMIT 500
"""

_HAS_NAMESPACE = "SELECT EXISTS (SELECT FROM namespaces WHERE path = $1)"


def _grant(row: Any) -> Grant:
    return Grant(
        id=row["id"],
        namespace=row["namespace"],
        memory=row["memory_id"],
        subtree=row["subtree"],
        to_namespace=row["to_namespace"],
        to_actor=row["to_actor"],
        granted_by=row["granted_by"],
        valid_from=row["t_valid_from"],
        valid_to=row["t_valid_to"],
        revoked_by=row["revoked_by"],
    )


async def held(
    conn: Conn, namespace: str, actor: str, *, at: datetime, also_at: datetime | None
) -> Sequence[Any]:
    return await conn.fetch(_HELD, namespace, actor, at, also_at)


async def that_open(
    conn: Conn, namespace: str, actor: str, *, memory: UUID, place: str
) -> list[Grant]:
    """Return every grant, ended ones too, that ever let them read the memory of that place."""
    return [_grant(r) for r in await conn.fetch(_GRANTS_THAT_OPEN, namespace, actor, memory, place)]


async def insert(conn: Conn, *values: object) -> Grant:
    return _grant(await conn.fetchrow(_INSERT, *values))


async def locked(conn: Conn, id_: UUID) -> Grant | None:
    row = await conn.fetchrow(_GET, id_)
    return None if row is None else _grant(row)


async def get(conn: Conn, id_: UUID) -> Grant | None:
    row = await conn.fetchrow(_READ, id_)
    return None if row is None else _grant(row)


async def end(conn: Conn, id_: UUID, at: datetime, by: str) -> Grant:
    return _grant(await conn.fetchrow(_END, id_, at, by))


async def listed(
    conn: Conn, actor: str, namespace: str, *, whole_subtree: bool, ended: bool, now: datetime
) -> list[Grant]:
    rows = await conn.fetch(_LISTED, actor, namespace, whole_subtree, ended, now)
    return [_grant(r) for r in rows]


async def has_namespace(conn: Conn, path: str) -> bool:
    return bool(await conn.fetchval(_HAS_NAMESPACE, path))

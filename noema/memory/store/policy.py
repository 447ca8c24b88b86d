"""SQL of memory policies, of who acknowledged their directives, and of pins."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from noema.db.tx import Conn
from noema.memory.model import Pin, Scope
from noema.memory.scope import fence

_ALONG = """
    SELECT DISTINCT ON (namespace) namespace, version, document FROM memory_policies
    WHERE namespace = ANY($1) ORDER BY namespace, version DESC
"""

# Whoever sets a policy waits here for whoever is setting one of the same namespace.
_LOCK_NAMESPACE = "SELECT path FROM namespaces WHERE path = $1 FOR NO KEY UPDATE"

_HAS_NAMESPACE = "SELECT EXISTS (SELECT FROM namespaces WHERE path = $1)"

_INSERT = """
    INSERT INTO memory_policies (namespace, version, document, actor, set_at)
    SELECT $1, coalesce(max(version), 0) + 1, $2, $3, $4 FROM memory_policies WHERE namespace = $1
    RETURNING version
"""

_ACKNOWLEDGE = """
    INSERT INTO policy_acks (namespace, actor, digest, acknowledged_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT DO NOTHING
"""

_IS_ACKNOWLEDGED = """
    SELECT EXISTS (SELECT FROM policy_acks WHERE namespace = $1 AND actor = $2 AND digest = $3)
"""

_PIN = """
    INSERT INTO pins (id, namespace, memory_id, actor, pinned_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (namespace, memory_id) WHERE unpinned_at IS NULL DO NOTHING
"""

_PINNED = """
    SELECT id, namespace, memory_id, actor, pinned_at FROM pins
    WHERE namespace = $1 AND memory_id = $2 AND unpinned_at IS NULL
"""

_UNPIN = """
    UPDATE pins SET unpinned_at = $3, unpinned_by = $4
    WHERE namespace = $1 AND memory_id = $2 AND unpinned_at IS NULL RETURNING id
"""

# In the order in which they were made; a pin never shows what its reader may not see.
_PINS = """
    SELECT p.id, p.namespace, p.memory_id, p.actor, p.pinned_at
    FROM pins p JOIN memories m ON m.id = p.memory_id
    WHERE p.namespace = ANY($3) AND p.unpinned_at IS NULL
      AND (m.namespace = ANY($1) OR m.id = ANY($2))
    ORDER BY p.pinned_at, p.id LIMIT $4
"""


async def along(conn: Conn, path: Sequence[str]) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """Return the newest version and document of each of the namespaces that has one."""
    rows = await conn.fetch(_ALONG, list(path))
    return {r["namespace"]: (r["version"], r["document"]) for r in rows}


async def has_namespace(conn: Conn, namespace: str) -> bool:
    """Whether there is such a namespace at all; for the audit log, never for the caller."""
    return bool(await conn.fetchval(_HAS_NAMESPACE, namespace))


async def lock_namespace(conn: Conn, namespace: str) -> bool:
    return await conn.fetchval(_LOCK_NAMESPACE, namespace) is not None


async def insert(
    conn: Conn, namespace: str, document: Mapping[str, Any], actor: str, at: datetime
) -> int:
    return int(await conn.fetchval(_INSERT, namespace, dict(document), actor, at))


async def acknowledge(conn: Conn, namespace: str, actor: str, digest: bytes, at: datetime) -> None:
    await conn.execute(_ACKNOWLEDGE, namespace, actor, digest, at)


async def is_acknowledged(conn: Conn, namespace: str, actor: str, digest: bytes) -> bool:
    return bool(await conn.fetchval(_IS_ACKNOWLEDGED, namespace, actor, digest))


def _pin(row: Any) -> Pin:
    return Pin(**dict(row))


async def pin(conn: Conn, id_: UUID, namespace: str, memory: UUID, actor: str, at: datetime) -> Pin:
    """Pin the memory; return the pin, the earlier one where it was pinned already."""
    await conn.execute(_PIN, id_, namespace, memory, actor, at)
    return _pin(await conn.fetchrow(_PINNED, namespace, memory))


async def unpin(conn: Conn, namespace: str, memory: UUID, at: datetime, by: str) -> UUID | None:
    found: UUID | None = await conn.fetchval(_UNPIN, namespace, memory, at, by)
    return found


async def pins(conn: Conn, scope: Scope, *, limit: int) -> list[Pin]:
    rows = await conn.fetch(_PINS, *fence(scope), list(scope.own), limit)
    return [_pin(r) for r in rows]

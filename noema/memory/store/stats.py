"""SQL of the figures of memory: counts over what a scope sees, rows and audit rows alike."""

from datetime import datetime
from typing import Any

from noema.db.tx import Conn
from noema.memory.model import Scope
from noema.memory.scope import fence

_COUNTS = """
    SELECT m.kind,
           CASE WHEN m.t_valid_to IS NOT NULL AND m.status = 'active' THEN 'superseded'
                ELSE m.status END AS state,
           count(*)::bigint AS rows
    FROM memories m WHERE m.namespace = ANY($1) OR m.id = ANY($2)
    GROUP BY 1, 2
"""

_EMBEDDED = """
    SELECT count(*) FROM memory_embeddings e
    WHERE e.model = $3 AND (e.namespace = ANY($1) OR e.memory_id = ANY($2))
"""

_AUDIT = """
    SELECT op, count(*)::bigint AS rows,
           count(*) FILTER (WHERE result = 'ok')::bigint AS hits,
           count(*) FILTER (WHERE result IN ('ok', 'miss'))::bigint AS asked,
           (avg(substring(content ->> 'detail' FROM 'tokens=([0-9]{1,12})')::bigint)
               FILTER (WHERE op = 'mem.assemble' AND result = 'ok'))::float8 AS tokens
    FROM audit_log
    WHERE namespace = ANY($1) AND occurred_at >= $2 AND starts_with(op, 'mem.')
    GROUP BY op
"""


async def counts(conn: Conn, scope: Scope) -> list[tuple[str, str, int]]:
    """Return kind, state (`superseded` where it was closed) and number of rows."""
    rows = await conn.fetch(_COUNTS, *fence(scope))
    return [(r["kind"], r["state"], r["rows"]) for r in rows]


async def embedded(conn: Conn, scope: Scope, model: str) -> int:
    return int(await conn.fetchval(_EMBEDDED, *fence(scope), model))


async def audited(conn: Conn, scope: Scope, since: datetime) -> dict[str, Any]:
    """Return by op how many rows there are, and what faults and assemblies came to."""
    namespaces, _ = fence(scope)
    return {r["op"]: dict(r) for r in await conn.fetch(_AUDIT, namespaces, since)}

"""SQL of relationships, and of the graph: nodes and edges, fenced by a scope at both ends."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from noema.db.tx import Conn
from noema.memory.model import Scope
from noema.memory.scope import fence

Row = Mapping[str, Any]

ENDS_PER_NODE: Final = 40

# --- relationships ------------------------------------------------------------------------------

_RELATE_MEMORIES = """
    INSERT INTO memory_relationships (id, namespace, from_memory, to_memory, kind, confidence,
                                      source, actor, assertion_time, t_valid_from)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)
    ON CONFLICT (namespace, from_memory, to_memory, kind) WHERE t_valid_to IS NULL DO NOTHING
    RETURNING id
"""

_RELATED_MEMORIES = """
    SELECT id FROM memory_relationships
    WHERE namespace = $1 AND from_memory = $2 AND to_memory = $3 AND kind = $4
      AND t_valid_to IS NULL
"""

_RELATE_ENTITIES = """
    INSERT INTO entity_relationships (id, namespace, from_entity, to_entity, kind, confidence,
                                      source, source_memory, actor, assertion_time, t_valid_from)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)
    ON CONFLICT (namespace, from_entity, to_entity, kind, source_memory) WHERE t_valid_to IS NULL
    DO NOTHING
    RETURNING id
"""

_RELATED_ENTITIES = """
    SELECT id FROM entity_relationships
    WHERE namespace = $1 AND from_entity = $2 AND to_entity = $3 AND kind = $4
      AND source_memory IS NOT DISTINCT FROM $5 AND t_valid_to IS NULL
"""

_SEEN_ENTITIES = "SELECT id FROM entities WHERE id = ANY($1::uuid[]) AND namespace = ANY($2)"

_PLACE_OF_RELATION = """
    SELECT namespace, t_valid_to IS NULL AS is_open FROM (
        SELECT id, namespace, t_valid_to FROM memory_relationships WHERE id = $1
        UNION ALL
        SELECT id, namespace, t_valid_to FROM entity_relationships WHERE id = $1
    ) found
"""

_UNRELATE_MEMORIES = """
    UPDATE memory_relationships SET t_valid_to = greatest($2, t_valid_from)
    WHERE id = $1 AND t_valid_to IS NULL
"""

_UNRELATE_ENTITIES = """
    UPDATE entity_relationships SET t_valid_to = greatest($2, t_valid_from)
    WHERE id = $1 AND t_valid_to IS NULL
"""


async def relate_memories(
    conn: Conn,
    id_: UUID,
    namespace: str,
    ends: tuple[UUID, UUID],
    kind: str,
    *,
    confidence: int,
    source: str,
    actor: str,
    at: datetime,
) -> UUID | None:
    """Add the relationship; return its id, or that of the one there is."""
    made: UUID | None = await conn.fetchval(
        _RELATE_MEMORIES, id_, namespace, *ends, kind, confidence, source, actor, at
    )
    return made or await conn.fetchval(_RELATED_MEMORIES, namespace, *ends, kind)


async def relate_entities(
    conn: Conn,
    id_: UUID,
    namespace: str,
    ends: tuple[UUID, UUID],
    kind: str,
    *,
    confidence: int,
    source: str,
    memory: UUID | None,
    actor: str,
    at: datetime,
) -> UUID | None:
    """Add the relationship as a memory tells it, or somebody; return its id, or what there is."""
    made: UUID | None = await conn.fetchval(
        _RELATE_ENTITIES, id_, namespace, *ends, kind, confidence, source, memory, actor, at
    )
    return made or await conn.fetchval(_RELATED_ENTITIES, namespace, *ends, kind, memory)


async def seen_entities(conn: Conn, scope: Scope, ids: Sequence[UUID]) -> set[UUID]:
    namespaces, _ = fence(scope)
    return {r["id"] for r in await conn.fetch(_SEEN_ENTITIES, list(ids), namespaces)}


async def place_of_relation(conn: Conn, id_: UUID) -> tuple[str, bool] | None:
    """Return the namespace of a relationship of either sort, and whether it still holds."""
    row = await conn.fetchrow(_PLACE_OF_RELATION, id_)
    return None if row is None else (row["namespace"], row["is_open"])


async def unrelate(conn: Conn, id_: UUID, at: datetime) -> None:
    await conn.execute(_UNRELATE_MEMORIES, id_, at)
    await conn.execute(_UNRELATE_ENTITIES, id_, at)


# --- the graph ----------------------------------------------------------------------------------

# Where a walk begins without a centre: the newest memories that are current, and the entities most
# spoken of lately.
_NEWEST = """
    SELECT m.id FROM memories m
    WHERE (m.namespace = ANY($1) OR m.id = ANY($2)) AND m.t_valid_to IS NULL
      AND m.status <> 'retracted'
      AND (cardinality($3::text[]) = 0 OR m.kind = ANY($3))
    ORDER BY m.id DESC LIMIT $4
"""

_CONNECTED = """
    SELECT me.entity_id AS id, count(*) AS weight
    FROM memory_entities me JOIN entities e ON e.id = me.entity_id
    WHERE me.memory_id = ANY($1::uuid[]) AND e.namespace = ANY($2)
    GROUP BY me.entity_id ORDER BY count(*) DESC, me.entity_id LIMIT $3
"""

# Who stands at the other end of an edge at these nodes, a bounded number for each of them and each
# sort of edge, newest first, and only who is seen: what is not seen takes nobody's place.
_ENDS = """
    SELECT DISTINCT e.id, e.is_memory FROM unnest($1::uuid[]) AS n (id) CROSS JOIN LATERAL (
        (SELECT me.entity_id AS id, false AS is_memory
         FROM memory_entities me JOIN entities o ON o.id = me.entity_id
         WHERE me.memory_id = n.id AND o.namespace = ANY($2)
         ORDER BY me.entity_id DESC LIMIT $5)
        UNION ALL
        (SELECT m.id, true
         FROM memory_entities me JOIN memories m ON m.id = me.memory_id
         WHERE me.entity_id = n.id AND (m.namespace = ANY($2) OR m.id = ANY($3))
           AND m.status <> 'retracted' AND (cardinality($4::text[]) = 0 OR m.kind = ANY($4))
         ORDER BY m.id DESC LIMIT $5)
        UNION ALL
        (SELECT m.id, true FROM memories s JOIN memories m ON m.id = s.supersedes
         WHERE s.id = n.id AND (m.namespace = ANY($2) OR m.id = ANY($3))
           AND m.status <> 'retracted' AND (cardinality($4::text[]) = 0 OR m.kind = ANY($4)))
        UNION ALL
        (SELECT m.id, true FROM memories m
         WHERE m.supersedes = n.id AND (m.namespace = ANY($2) OR m.id = ANY($3))
           AND m.status <> 'retracted' AND (cardinality($4::text[]) = 0 OR m.kind = ANY($4))
         ORDER BY m.id DESC LIMIT $5)
        UNION ALL
        (SELECT m.id, true FROM derivations d JOIN memories m ON m.id = d.to_id
         WHERE d.from_id = n.id AND d.kind = 'memory.derived'
           AND (m.namespace = ANY($2) OR m.id = ANY($3))
           AND m.status <> 'retracted' AND (cardinality($4::text[]) = 0 OR m.kind = ANY($4))
         ORDER BY m.id DESC LIMIT $5)
        UNION ALL
        (SELECT m.id, true FROM derivations d JOIN memories m ON m.id = d.from_id
         WHERE d.to_id = n.id AND d.kind = 'memory.derived'
           AND (m.namespace = ANY($2) OR m.id = ANY($3))
           AND m.status <> 'retracted' AND (cardinality($4::text[]) = 0 OR m.kind = ANY($4))
         ORDER BY m.id DESC LIMIT $5)
        UNION ALL
        (SELECT m.id, true FROM memory_relationships r JOIN memories m ON m.id = r.to_memory
         WHERE r.from_memory = n.id AND r.t_valid_to IS NULL AND r.namespace = ANY($2)
           AND (m.namespace = ANY($2) OR m.id = ANY($3))
           AND m.status <> 'retracted' AND (cardinality($4::text[]) = 0 OR m.kind = ANY($4))
         ORDER BY m.id DESC LIMIT $5)
        UNION ALL
        (SELECT m.id, true FROM memory_relationships r JOIN memories m ON m.id = r.from_memory
         WHERE r.to_memory = n.id AND r.t_valid_to IS NULL AND r.namespace = ANY($2)
           AND (m.namespace = ANY($2) OR m.id = ANY($3))
           AND m.status <> 'retracted' AND (cardinality($4::text[]) = 0 OR m.kind = ANY($4))
         ORDER BY m.id DESC LIMIT $5)
        UNION ALL
        (SELECT o.id, false FROM entity_relationships r JOIN entities o ON o.id = r.to_entity
         WHERE r.from_entity = n.id AND r.t_valid_to IS NULL AND r.namespace = ANY($2)
           AND o.namespace = ANY($2)
         ORDER BY o.id DESC LIMIT $5)
        UNION ALL
        (SELECT o.id, false FROM entity_relationships r JOIN entities o ON o.id = r.from_entity
         WHERE r.to_entity = n.id AND r.t_valid_to IS NULL AND r.namespace = ANY($2)
           AND o.namespace = ANY($2)
         ORDER BY o.id DESC LIMIT $5)
    ) e
    ORDER BY e.id DESC
"""

# Edges with both ends among these nodes, all of which are seen. What a memory told of two entities
# holds as long as that memory does.
_EDGES = """
    SELECT me.memory_id AS source, me.entity_id AS target, 'mentions' AS kind, me.confidence
    FROM memory_entities me
    WHERE me.memory_id = ANY($1::uuid[]) AND me.entity_id = ANY($1)
    UNION ALL
    SELECT m.id, m.supersedes, 'supersedes', 1000000 FROM memories m
    WHERE m.id = ANY($1) AND m.supersedes = ANY($1)
    UNION ALL
    SELECT d.from_id, d.to_id, 'derived', 1000000 FROM derivations d
    WHERE d.from_id = ANY($1) AND d.to_id = ANY($1) AND d.kind = 'memory.derived'
    UNION ALL
    SELECT r.from_memory, r.to_memory, r.kind, r.confidence FROM memory_relationships r
    WHERE r.from_memory = ANY($1) AND r.to_memory = ANY($1) AND r.t_valid_to IS NULL
      AND r.namespace = ANY($2)
    UNION ALL
    SELECT r.from_entity, r.to_entity, r.kind, r.confidence FROM entity_relationships r
    WHERE r.from_entity = ANY($1) AND r.to_entity = ANY($1) AND r.t_valid_to IS NULL
      AND r.namespace = ANY($2)
      AND (r.source_memory IS NULL
           OR EXISTS (SELECT FROM memories s WHERE s.id = r.source_memory
                        AND s.t_valid_to IS NULL AND s.status = 'active'))
    LIMIT $3
"""

_MEMORIES = """
    SELECT m.id, m.namespace, m.kind, m.status, left(m.text, 200) AS text,
           m.t_valid_to IS NULL AS is_open
    FROM memories m
    WHERE m.id = ANY($3::uuid[]) AND (m.namespace = ANY($1) OR m.id = ANY($2))
      AND m.status <> 'retracted'
      AND (cardinality($4::text[]) = 0 OR m.kind = ANY($4))
"""

_ENTITIES = """
    SELECT e.id, e.namespace, e.kind, e.name FROM entities e
    WHERE e.id = ANY($2::uuid[]) AND e.namespace = ANY($1)
"""

# Merged entities lead to the one that was kept, as far as the scope sees the way.
_KEPT = """
    WITH RECURSIVE up AS (
        SELECT e.id AS start, e.id, e.merged_into, 0 AS hops FROM entities e
        WHERE e.id = ANY($1::uuid[]) AND e.namespace = ANY($2)
        UNION ALL
        SELECT up.start, e.id, e.merged_into, up.hops + 1
        FROM up JOIN entities e ON e.id = up.merged_into
        WHERE e.namespace = ANY($2) AND up.hops < 64
    )
    SELECT DISTINCT ON (start) start, id FROM up ORDER BY start, hops DESC
"""

_MERGED = """
    WITH RECURSIVE down AS (
        SELECT e.id AS root, e.id FROM entities e
        WHERE e.id = ANY($1::uuid[]) AND e.namespace = ANY($2)
        UNION
        SELECT down.root, e.id FROM down JOIN entities e ON e.merged_into = down.id
        WHERE e.namespace = ANY($2)
    )
    SELECT root, id FROM down LIMIT 2000
"""


async def newest(conn: Conn, scope: Scope, *, kinds: Sequence[str], limit: int) -> list[UUID]:
    rows = await conn.fetch(_NEWEST, *fence(scope), list(kinds), limit)
    return [r["id"] for r in rows]


async def connected(
    conn: Conn, scope: Scope, memories: Sequence[UUID], *, limit: int
) -> list[UUID]:
    """Return the entities that most of these memories mention."""
    namespaces, _ = fence(scope)
    return [r["id"] for r in await conn.fetch(_CONNECTED, list(memories), namespaces, limit)]


async def ends(
    conn: Conn, scope: Scope, nodes: Sequence[UUID], *, kinds: Sequence[str]
) -> list[tuple[UUID, bool]]:
    """Return who the nodes are joined with, as far as seen: ids, and whether each is a memory."""
    rows = await conn.fetch(_ENDS, list(nodes), *fence(scope), list(kinds), ENDS_PER_NODE)
    return [(r["id"], r["is_memory"]) for r in rows]


async def edges(conn: Conn, scope: Scope, nodes: Sequence[UUID], *, limit: int) -> list[Row]:
    """Return `source, target, kind, confidence` of the edges between nodes the scope sees."""
    namespaces, _ = fence(scope)
    return [dict(r) for r in await conn.fetch(_EDGES, list(nodes), namespaces, limit)]


async def memories(
    conn: Conn, scope: Scope, ids: Sequence[UUID], *, kinds: Sequence[str]
) -> list[Row]:
    """Return those of the ids that are memories the scope sees, not retracted, of these kinds."""
    found = await conn.fetch(_MEMORIES, *fence(scope), list(ids), list(kinds))
    return [dict(r) for r in found]


async def entities(conn: Conn, scope: Scope, ids: Sequence[UUID]) -> list[Row]:
    namespaces, _ = fence(scope)
    return [dict(r) for r in await conn.fetch(_ENTITIES, namespaces, list(ids))]


async def kept(conn: Conn, scope: Scope, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Return, for each entity the scope sees, the one it was merged into, or itself."""
    namespaces, _ = fence(scope)
    return {r["start"]: r["id"] for r in await conn.fetch(_KEPT, list(ids), namespaces)}


async def merged(conn: Conn, scope: Scope, ids: Sequence[UUID]) -> list[tuple[UUID, UUID]]:
    """Return `(kept, merged)` for all that was merged into these entities, themselves included."""
    namespaces, _ = fence(scope)
    return [(r["root"], r["id"]) for r in await conn.fetch(_MERGED, list(ids), namespaces)]

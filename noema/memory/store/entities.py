"""SQL of entities, the names they go by, merges and suggestions."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from noema.db.tx import Conn
from noema.memory.model import Scope
from noema.memory.scope import fence

Row = Mapping[str, Any]

# --- linking ------------------------------------------------------------------------------------

# $1 lists the namespaces, nearest first. A merged entity leads to the one that was kept, which
# lives in the same namespace or above it and is therefore seen by whoever sees the merged one.
_KNOWN = """
    WITH RECURSIVE hit AS (
        SELECT DISTINCT ON (a.normal) a.normal, a.entity_id
        FROM entity_aliases a
        WHERE a.namespace = ANY($1::text[]) AND a.normal = ANY($2::text[])
        ORDER BY a.normal, array_position($1::text[], a.namespace)
    ), up AS (
        SELECT h.normal, e.id, e.namespace, e.name, e.merged_into, 0 AS hops
        FROM hit h JOIN entities e ON e.id = h.entity_id
        UNION ALL
        SELECT up.normal, e.id, e.namespace, e.name, e.merged_into, up.hops + 1
        FROM up JOIN entities e ON e.id = up.merged_into
        WHERE up.hops < 64
    )
    SELECT normal, id, namespace, name FROM up WHERE merged_into IS NULL
"""

# The name is claimed first: of two writers that meet it for the first time, the second waits here
# and then finds the first one's entity. Sorted, so that two with several names cannot deadlock.
_CREATE = """
    WITH given AS (
        SELECT * FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::int[])
            AS g (id, normal, name, kind, confidence)
    ), claimed AS (
        INSERT INTO entity_aliases (namespace, normal, entity_id, actor, created_at)
        SELECT $1, normal, id, $7, $8 FROM given ORDER BY normal
        ON CONFLICT (namespace, normal) DO NOTHING
        RETURNING entity_id
    )
    INSERT INTO entities (id, namespace, name, kind, confidence, actor, created_at)
    SELECT g.id, $1, g.name, g.kind, g.confidence, $7, $8
    FROM given g JOIN claimed c ON c.entity_id = g.id
    RETURNING id
"""

# Names that share their beginning or their last word with a new one, nearest in length first; at
# most thirty for each, and of each namespace sixty are read, however many there are.
_NEIGHBOURS = """
    SELECT g.id AS new_id, near.entity_id, near.normal
    FROM unnest($2::uuid[], $3::text[]) AS g (id, normal)
    CROSS JOIN LATERAL (
        SELECT a.entity_id, a.normal FROM unnest($1::text[]) AS p (place) CROSS JOIN LATERAL (
            (SELECT a.entity_id, a.normal FROM entity_aliases a
             WHERE a.namespace = p.place AND left(a.normal, 3) = left(g.normal, 3)
               AND length(a.normal) >= length(g.normal) AND a.entity_id <> g.id
             ORDER BY length(a.normal), a.normal LIMIT 30)
            UNION ALL
            (SELECT a.entity_id, a.normal FROM entity_aliases a
             WHERE a.namespace = p.place AND left(a.normal, 3) = left(g.normal, 3)
               AND length(a.normal) < length(g.normal) AND a.entity_id <> g.id
             ORDER BY length(a.normal) DESC, a.normal DESC LIMIT 30)
        ) a
        ORDER BY abs(length(a.normal) - length(g.normal)), a.normal LIMIT 30
    ) near
    UNION
    SELECT g.id, near.entity_id, near.normal
    FROM unnest($2::uuid[], $3::text[]) AS g (id, normal)
    CROSS JOIN LATERAL (
        SELECT a.entity_id, a.normal FROM unnest($1::text[]) AS p (place) CROSS JOIN LATERAL (
            (SELECT a.entity_id, a.normal FROM entity_aliases a
             WHERE a.namespace = p.place AND substring(a.normal FROM '[^ ]*$')
                 = substring(g.normal FROM '[^ ]*$')
               AND length(a.normal) >= length(g.normal) AND a.entity_id <> g.id
             ORDER BY length(a.normal), a.normal LIMIT 30)
            UNION ALL
            (SELECT a.entity_id, a.normal FROM entity_aliases a
             WHERE a.namespace = p.place AND substring(a.normal FROM '[^ ]*$')
                 = substring(g.normal FROM '[^ ]*$')
               AND length(a.normal) < length(g.normal) AND a.entity_id <> g.id
             ORDER BY length(a.normal) DESC, a.normal DESC LIMIT 30)
        ) a
        ORDER BY abs(length(a.normal) - length(g.normal)), a.normal LIMIT 30
    ) near
"""

_SUGGEST = """
    INSERT INTO entity_suggestions (namespace, entity_id, similar_id, similarity, suggested_at)
    SELECT $1, g.entity_id, g.similar_id, g.similarity, $5
    FROM unnest($2::uuid[], $3::uuid[], $4::int[]) AS g (entity_id, similar_id, similarity)
    ON CONFLICT DO NOTHING
"""

_ATTACH = """
    INSERT INTO memory_entities (memory_id, entity_id, mention, how, confidence)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::int[])
    ON CONFLICT DO NOTHING
"""


async def known(conn: Conn, namespaces: Sequence[str], normals: Sequence[str]) -> list[Row]:
    """Return `normal, id, namespace, name` of the entity that each known name stands for."""
    return [dict(r) for r in await conn.fetch(_KNOWN, list(namespaces), list(normals))]


async def create(
    conn: Conn,
    namespace: str,
    rows: Sequence[tuple[UUID, str, str, str, int]],
    *,
    actor: str,
    at: datetime,
) -> set[UUID]:
    """Add `(id, normal, name, kind, confidence)` where the name is free; return the added ids."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return {r["id"] for r in await conn.fetch(_CREATE, namespace, *columns, actor, at)}


async def neighbours(
    conn: Conn, namespaces: Sequence[str], new: Sequence[tuple[UUID, str]]
) -> list[Row]:
    """Return `new_id, entity_id, normal` of names that may be nearly the same."""
    ids, normals = [i for i, _ in new], [n for _, n in new]
    return [dict(r) for r in await conn.fetch(_NEIGHBOURS, list(namespaces), ids, normals)]


async def suggest(
    conn: Conn, namespace: str, rows: Sequence[tuple[UUID, UUID, int]], *, at: datetime
) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    await conn.execute(_SUGGEST, namespace, *columns, at)


async def attach(conn: Conn, rows: Sequence[tuple[UUID, UUID, str, str, int]]) -> None:
    """Add `(memory, entity, mention, how, confidence)`; what is linked already stays."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    await conn.execute(_ATTACH, *columns)


# --- looking at them ----------------------------------------------------------------------------

_NEWEST = """
    SELECT e.id FROM entities e
    WHERE e.namespace = ANY($1) AND e.merged_into IS NULL
    ORDER BY e.id DESC LIMIT $2
"""

_NAMED = """
    SELECT DISTINCT a.entity_id AS id FROM entity_aliases a JOIN entities e ON e.id = a.entity_id
    WHERE a.namespace = ANY($1) AND e.namespace = ANY($1) AND strpos(a.normal, $2) > 0
    ORDER BY a.entity_id DESC LIMIT $3
"""

# $3 and $4 pair each entity with all that were merged into it, itself included.
_GET = """
    SELECT e.*,
           (SELECT array_agg(DISTINCT a.normal ORDER BY a.normal)
            FROM unnest($3::uuid[], $4::uuid[]) AS g (root, id)
            JOIN entity_aliases a ON a.entity_id = g.id AND a.namespace = ANY($1)
            WHERE g.root = e.id) AS aliases,
           (SELECT count(DISTINCT m.id)
            FROM unnest($3::uuid[], $4::uuid[]) AS g (root, id)
            JOIN memory_entities me ON me.entity_id = g.id
            JOIN memories m ON m.id = me.memory_id AND m.status <> 'retracted'
             AND (m.namespace = ANY($1) OR m.id = ANY($2))
            WHERE g.root = e.id) AS memories
    FROM entities e
    WHERE e.id IN (SELECT root FROM unnest($3::uuid[], $4::uuid[]) AS g (root, id))
      AND e.namespace = ANY($1)
    ORDER BY e.id DESC
"""

_SUGGESTIONS = """
    SELECT s.entity_id, e.name AS entity_name, s.similar_id, o.name AS similar_name, s.namespace,
           s.similarity, s.suggested_at
    FROM entity_suggestions s
    JOIN entities e ON e.id = s.entity_id JOIN entities o ON o.id = s.similar_id
    WHERE s.answered_at IS NULL AND s.namespace = ANY($1)
      AND e.namespace = ANY($1) AND o.namespace = ANY($1)
    ORDER BY s.similarity DESC, s.entity_id, s.similar_id LIMIT $2
"""

_MERGES = """
    SELECT g.id, g.namespace, g.kept, k.name AS kept_name, g.merged, m.name AS merged_name, g.actor,
           g.merged_at
    FROM entity_merges g JOIN entities k ON k.id = g.kept JOIN entities m ON m.id = g.merged
    WHERE g.undone_at IS NULL AND k.namespace = ANY($1) AND m.namespace = ANY($1)
    ORDER BY g.id DESC LIMIT $2
"""


async def newest(conn: Conn, scope: Scope, *, limit: int) -> list[UUID]:
    namespaces, _ = fence(scope)
    return [r["id"] for r in await conn.fetch(_NEWEST, namespaces, limit)]


async def named(conn: Conn, scope: Scope, text: str, *, limit: int) -> list[UUID]:
    """Return entities one of whose names has the (normalised) text in it, newest first."""
    namespaces, _ = fence(scope)
    return [r["id"] for r in await conn.fetch(_NAMED, namespaces, text, limit)]


async def get(conn: Conn, scope: Scope, stands_for: Sequence[tuple[UUID, UUID]]) -> list[Row]:
    """Return the entities, from pairs of each with all it stands for, newest first.

    Aliases and memories are those the scope sees, of everything merged.
    """
    roots, ids = [r for r, _ in stands_for], [i for _, i in stands_for]
    return [dict(r) for r in await conn.fetch(_GET, *fence(scope), roots, ids)]


async def suggestions(conn: Conn, scope: Scope, *, limit: int) -> list[Row]:
    namespaces, _ = fence(scope)
    return [dict(r) for r in await conn.fetch(_SUGGESTIONS, namespaces, limit)]


async def merges(conn: Conn, scope: Scope, *, limit: int) -> list[Row]:
    """Return the merges that hold, newest first."""
    namespaces, _ = fence(scope)
    return [dict(r) for r in await conn.fetch(_MERGES, namespaces, limit)]


# --- merging ------------------------------------------------------------------------------------

_ROOTS = """
    WITH RECURSIVE up AS (
        SELECT e.id AS start, e.id, e.merged_into, 0 AS hops FROM entities e
        WHERE e.id = ANY($1::uuid[])
        UNION ALL
        SELECT up.start, e.id, e.merged_into, up.hops + 1
        FROM up JOIN entities e ON e.id = up.merged_into
        WHERE up.hops < 64
    )
    SELECT start, id FROM up WHERE merged_into IS NULL
"""

_LOCK = """
    SELECT id, namespace, name, merged_into FROM entities
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""

_MERGE = """
    WITH pointed AS (UPDATE entities SET merged_into = $3 WHERE id = $4)
    INSERT INTO entity_merges (id, namespace, kept, merged, actor, merged_at)
    VALUES ($1, $2, $3, $4, $5, $6)
"""

_ANSWER = """
    UPDATE entity_suggestions
    SET answered_at = $4, answer = $3, answered_by = $5
    WHERE answered_at IS NULL
      AND ((entity_id = $1 AND similar_id = $2) OR (entity_id = $2 AND similar_id = $1))
    RETURNING namespace
"""

_REOPEN = """
    UPDATE entity_suggestions SET answered_at = NULL, answer = NULL, answered_by = NULL
    WHERE answer = 'merged'
      AND ((entity_id = $1 AND similar_id = $2) OR (entity_id = $2 AND similar_id = $1))
"""

_MERGE_ROW = """
    SELECT id, namespace, kept, merged, undone_at FROM entity_merges WHERE id = $1 FOR UPDATE
"""

_UNMERGE = """
    WITH undone AS (UPDATE entity_merges SET undone_at = $3, undone_by = $4 WHERE id = $1)
    UPDATE entities SET merged_into = NULL WHERE id = $2
"""

_ALIAS = """
    INSERT INTO entity_aliases (namespace, normal, entity_id, actor, created_at)
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT (namespace, normal) DO NOTHING
"""

_ALIAS_OF = "SELECT entity_id FROM entity_aliases WHERE namespace = $1 AND normal = $2"


async def roots(conn: Conn, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Return what each entity stands at, whoever sees it."""
    return {r["start"]: r["id"] for r in await conn.fetch(_ROOTS, list(ids))}


async def lock(conn: Conn, ids: Sequence[UUID]) -> dict[UUID, Row]:
    """Hold the rows until the transaction ends, in one order for everybody."""
    return {r["id"]: dict(r) for r in await conn.fetch(_LOCK, list(ids))}


async def merge(
    conn: Conn, id_: UUID, namespace: str, kept: UUID, merged: UUID, *, actor: str, at: datetime
) -> None:
    await conn.execute(_MERGE, id_, namespace, kept, merged, actor, at)


async def answer(
    conn: Conn, one: UUID, other: UUID, given: str, *, actor: str, at: datetime
) -> bool:
    """Answer the open suggestion about the two; return whether there was one."""
    return await conn.fetchval(_ANSWER, one, other, given, at, actor) is not None


async def reopen(conn: Conn, one: UUID, other: UUID) -> None:
    await conn.execute(_REOPEN, one, other)


async def merge_row(conn: Conn, id_: UUID) -> Row | None:
    row = await conn.fetchrow(_MERGE_ROW, id_)
    return None if row is None else dict(row)


async def unmerge(conn: Conn, id_: UUID, merged: UUID, *, actor: str, at: datetime) -> None:
    await conn.execute(_UNMERGE, id_, merged, at, actor)


async def alias(
    conn: Conn, namespace: str, normal: str, entity: UUID, *, actor: str, at: datetime
) -> UUID | None:
    """Give the entity one more name; return whose name it is now."""
    await conn.execute(_ALIAS, namespace, normal, entity, actor, at)
    found: UUID | None = await conn.fetchval(_ALIAS_OF, namespace, normal)
    return found

"""SQL of the lanes that retrieval is made of. Every statement carries the fence itself.

What everybody asks most, current rows of enumerated namespaces, has statements of its own. The
`_WIDE` ones add what is past, what held at a moment, and single shared rows; arms that are not
asked for are folded away when the statement is planned, as every one of a search connection is.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final, TypeAlias
from uuid import UUID

import asyncpg

from noema.db.tx import Conn
from noema.memory.tsquery import Frequencies, Plan

Row: TypeAlias = asyncpg.Record


@dataclass(frozen=True, slots=True)
class Fence:
    """What a lane may return: who may see it, of which kinds, and of which time."""

    namespaces: tuple[str, ...]
    memories: tuple[UUID, ...] = ()
    kinds: list[str] | None = None
    is_past: bool = False
    as_of: datetime | None = None

    @property
    def is_plain(self) -> bool:
        return not self.memories and not self.is_past and self.as_of is None


SESSION_SETTINGS: Final[Mapping[str, str]] = {
    # A generic plan does not know how many rows a caller sees, and takes an index that filters
    # afterwards: a search then finds next to nothing, silently.
    "plan_cache_mode": "force_custom_plan",
    # Lanes are bounded; starting other processes, or a compiler, costs more than they save.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "hnsw.ef_search": "100",
    "hnsw.iterative_scan": "relaxed_order",
}

# Where statistics were wrong, a text lane ranks no more than this many of the rows that match.
_MATCHES: Final = 20_000

# --- what is known of the tables ----------------------------------------------------------------

_FREQUENCIES = """
    SELECT most_common_elems::text::text[] AS terms, most_common_elem_freqs AS shares
    FROM pg_stats
    WHERE schemaname = 'public' AND tablename = 'memories' AND attname = 'tsv'
      AND most_common_elems IS NOT NULL
"""


async def frequencies(conn: Conn) -> Frequencies:
    """Return what ANALYZE found of terms; nothing where it has not run yet."""
    row = await conn.fetchrow(_FREQUENCIES)
    if row is None:
        return Frequencies({})
    known = dict(zip(row["terms"], row["shares"], strict=False))
    return Frequencies(known, min(known.values(), default=0.001) / 2)


_SIZES = """
    SELECT n.namespace, c.rows
    FROM unnest($1::text[]) AS n (namespace)
    CROSS JOIN LATERAL (
        SELECT count(*) AS rows
        FROM (SELECT FROM memories m WHERE m.namespace = n.namespace LIMIT $2) counted
    ) c
"""


async def sizes(conn: Conn, namespaces: Sequence[str], most: int) -> dict[str, int]:
    """Return how many memories each namespace has, counting no further than `most`."""
    rows = await conn.fetch(_SIZES, namespaces, most)
    return {row["namespace"]: row["rows"] for row in rows}


_INDEXES = """
    SELECT c.relname AS name, greatest(c.reltuples, 0)::bigint AS rows
    FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
    WHERE c.relname = ANY($1::text[]) AND c.relnamespace = 'public'::regnamespace AND i.indisvalid
"""


async def indexes(conn: Conn, names: Sequence[str]) -> dict[str, int]:
    """Return those of the named indexes that can be used, with the rows each holds."""
    return {row["name"]: row["rows"] for row in await conn.fetch(_INDEXES, names)}


# --- the text lane ------------------------------------------------------------------------------

# The fence is `namespace = ANY`; the lexeme of the namespace inside $1 is only the way in.
# A long text hands out the terms of the query alone, a short one all of them, which is cheaper.
_POOL_OF: Final = """
    SELECT pool.id, pool.session_id, pool.position, cardinality(pool.terms) AS length,
           array_to_string(CASE WHEN cardinality(pool.terms) <= 128 THEN pool.terms
               ELSE ARRAY(SELECT t FROM unnest(pool.terms) t WHERE t = ANY($12::text[])) END,
               '  ') AS terms
    FROM (
        SELECT id, session_id, position, terms
        FROM (
            SELECT id, session_id, position, terms, tsv
            FROM memories
"""

_RANKED: Final = """
              AND t_valid_to IS NULL AND status = 'active'
              AND ($3::text[] IS NULL OR kind = ANY($3::text[]))
            LIMIT $13
        ) matching
        ORDER BY ts_rank(tsv, $4::text::tsquery) * $8::float8
               + ts_rank(tsv, $5::text::tsquery) * $9::float8
               + ts_rank(tsv, $6::text::tsquery) * $10::float8
               + ts_rank(tsv, $7::text::tsquery) * $11::float8 DESC,
                 id
        LIMIT $14
    ) pool
"""

_BY_INDEX: Final = """
            WHERE tsv @@ $1::text::tsquery AND namespace = ANY($2::text[])
"""

# Where there is little to see, looking at all of it is quicker than asking the index of terms.
_BY_NAMESPACE: Final = """
            WHERE (tsv @@ $1::text::tsquery) IS TRUE AND namespace = ANY($2::text[])
"""

_TEXT: Final = _POOL_OF + _BY_INDEX + _RANKED
_TEXT_OF_FEW: Final = _POOL_OF + _BY_NAMESPACE + _RANKED

# $15: past rows too; $16: the moment; $17: single shared rows; $18: $1 without the namespaces.
_TEXT_WIDE = """
    SELECT pool.id, pool.session_id, pool.position, cardinality(pool.terms) AS length,
           array_to_string(CASE WHEN cardinality(pool.terms) <= 128 THEN pool.terms
               ELSE ARRAY(SELECT t FROM unnest(pool.terms) t WHERE t = ANY($12::text[])) END,
               '  ') AS terms
    FROM (
        SELECT m.id, m.session_id, m.position, m.terms
        FROM (
            (SELECT * FROM memories
             WHERE tsv @@ $1::text::tsquery AND namespace = ANY($2::text[])
               AND t_valid_to IS NULL AND status = 'active'
             LIMIT $13)
            UNION ALL
            (SELECT * FROM memories
             WHERE ($15::boolean OR $16::timestamptz IS NOT NULL)
               AND tsv @@ $1::text::tsquery AND namespace = ANY($2::text[])
               AND NOT (t_valid_to IS NULL AND status = 'active')
             LIMIT $13)
            UNION ALL
            (SELECT * FROM memories
             WHERE id = ANY($17::uuid[]) AND NOT namespace = ANY($2::text[])
               AND tsv @@ $18::text::tsquery
               AND ($15::boolean OR $16::timestamptz IS NOT NULL
                    OR (t_valid_to IS NULL AND status = 'active'))
             LIMIT $13)
        ) m
        WHERE ($3::text[] IS NULL OR m.kind = ANY($3::text[]))
          AND ($16::timestamptz IS NULL OR (
              m.assertion_time <= $16 AND m.t_valid_from <= $16
              AND ($15::boolean OR (
                  (m.t_valid_to IS NULL OR m.t_valid_to > $16)
                  AND (m.status = 'active' OR noema_was_active(m.id, m.status, $16))))))
        ORDER BY ts_rank(m.tsv, $4::text::tsquery) * $8::float8
               + ts_rank(m.tsv, $5::text::tsquery) * $9::float8
               + ts_rank(m.tsv, $6::text::tsquery) * $10::float8
               + ts_rank(m.tsv, $7::text::tsquery) * $11::float8 DESC,
                 m.id
        LIMIT $14
    ) pool
"""


async def text(
    conn: Conn, fence: Fence, asked: str, terms: str, plan: Plan, *, pool: int, is_few: bool = False
) -> list[Row]:
    """Return at most `pool` matching rows: id, session_id, position, length, terms.

    `asked` is the tsquery with the namespaces in it, `terms` the one without. `is_few` says that
    all the fence lets through is little.
    """
    common = (
        asked, list(fence.namespaces), fence.kinds, *plan.groups, *plan.weights, list(plan.terms),
        _MATCHES, pool,
    )  # fmt: skip
    if fence.is_plain and is_few:
        return await conn.fetch(_TEXT_OF_FEW, terms, *common[1:])
    if fence.is_plain:
        return await conn.fetch(_TEXT, *common)
    return await conn.fetch(
        _TEXT_WIDE, *common, fence.is_past, fence.as_of, list(fence.memories), terms
    )


# Turns around the candidates; those without any of the terms count by their length alone.
_SESSIONS = """
    SELECT m.id, m.session_id, m.position, cardinality(m.terms) AS length,
           array_to_string(CASE WHEN NOT m.tsv @@ $4::text::tsquery THEN '{}'
               WHEN cardinality(m.terms) <= 128 THEN m.terms
               ELSE ARRAY(SELECT t FROM unnest(m.terms) t WHERE t = ANY($5::text[])) END,
               '  ') AS terms
    FROM memories m
    WHERE m.session_id = ANY($1::uuid[])
      AND (m.namespace = ANY($2::text[]) OR m.id = ANY($3::uuid[]))
      AND ($6::text[] IS NULL OR m.kind = ANY($6::text[]))
      AND (CASE WHEN $8::timestamptz IS NULL
               THEN $7::boolean OR (m.t_valid_to IS NULL AND m.status = 'active')
           ELSE m.assertion_time <= $8 AND m.t_valid_from <= $8
                AND ($7::boolean OR (
                    (m.t_valid_to IS NULL OR m.t_valid_to > $8)
                    AND (m.status = 'active' OR noema_was_active(m.id, m.status, $8)))) END)
    ORDER BY array_position($1::uuid[], m.session_id), m.position
    LIMIT $9
"""


async def sessions(
    conn: Conn, fence: Fence, ids: Sequence[UUID], plan: Plan, terms: str, *, most: int
) -> list[Row]:
    """Return the turns of the sessions, in the order of `ids`, as `text` does."""
    return await conn.fetch(
        _SESSIONS, ids, list(fence.namespaces), list(fence.memories), terms, list(plan.terms),
        fence.kinds, fence.is_past, fence.as_of, most,
    )  # fmt: skip


# --- the vector lane ----------------------------------------------------------------------------

# Vectors have length 1, so the inner product is the cosine; pgvector's <#> is its negative.
# Materialised, so that no approximate index is taken: it would filter afterwards.
_EXACT = """
    WITH seen AS MATERIALIZED (
        SELECT memory_id AS id, -(embedding <#> $1::text::halfvec) AS cosine
        FROM memory_embeddings
        WHERE model = $2 AND namespace = ANY($3::text[]) AND shelf IN ('fresh', 'settled')
          AND ($4::text[] IS NULL OR kind = ANY($4::text[]))
    )
    SELECT id, cosine FROM seen ORDER BY cosine DESC, id LIMIT $5
"""

# $6: past rows too; $7: the moment; $8: single shared rows.
_EXACT_WIDE = """
    WITH seen AS MATERIALIZED (
        SELECT e.memory_id AS id, -(e.embedding <#> $1::text::halfvec) AS cosine
        FROM memory_embeddings e
        WHERE e.model = $2 AND (e.namespace = ANY($3::text[]) OR e.memory_id = ANY($8::uuid[]))
          AND ($6::boolean OR $7::timestamptz IS NOT NULL OR e.shelf IN ('fresh', 'settled'))
          AND ($4::text[] IS NULL OR e.kind = ANY($4::text[]))
          AND ($7::timestamptz IS NULL OR EXISTS (
              SELECT FROM memories m
              WHERE m.id = e.memory_id AND m.assertion_time <= $7 AND m.t_valid_from <= $7
                AND ($6::boolean OR (
                    (m.t_valid_to IS NULL OR m.t_valid_to > $7)
                    AND (m.status = 'active' OR noema_was_active(m.id, m.status, $7))))))
    )
    SELECT id, cosine FROM seen ORDER BY cosine DESC, id LIMIT $5
"""

# The index is on the cast, and the cast must say how long a vector is: a number, put in as one.
# What is fresh has no approximate index and is compared in full.
_NEAREST = """
    WITH fresh AS MATERIALIZED (
        SELECT memory_id, -(embedding <#> $1::text::halfvec) AS cosine FROM memory_embeddings
        WHERE shelf = 'fresh' AND model = $2 AND namespace = ANY($3::text[])
          AND ($4::text[] IS NULL OR kind = ANY($4::text[]))
    )
    (SELECT memory_id AS id, -(embedding::halfvec({dims}) <#> $1::text::halfvec({dims})) AS cosine
     FROM memory_embeddings
     WHERE shelf = 'settled' AND model = $2 AND namespace = ANY($3::text[])
       AND ($4::text[] IS NULL OR kind = ANY($4::text[]))
     ORDER BY embedding::halfvec({dims}) <#> $1::text::halfvec({dims}) LIMIT $5)
    UNION ALL
    (SELECT memory_id, cosine FROM fresh ORDER BY 2 DESC, 1 LIMIT $5)
"""

# For an index of one namespace, which only an equality is known to fit.
_NEAREST_IN = """
    SELECT memory_id AS id, -(embedding::halfvec({dims}) <#> $1::text::halfvec({dims})) AS cosine
    FROM memory_embeddings
    WHERE shelf = 'settled' AND model = $2 AND namespace = $3
      AND ($4::text[] IS NULL OR kind = ANY($4::text[]))
    ORDER BY embedding::halfvec({dims}) <#> $1::text::halfvec({dims}) LIMIT $5
"""

# What is left beside them: other namespaces, and what is fresh in these ($6).
_BESIDE = """
    WITH seen AS MATERIALIZED (
        SELECT memory_id, -(embedding <#> $1::text::halfvec) AS cosine FROM memory_embeddings
        WHERE model = $2 AND namespace = ANY($3::text[]) AND shelf IN ('fresh', 'settled')
          AND ($4::text[] IS NULL OR kind = ANY($4::text[]))
        UNION ALL
        SELECT memory_id, -(embedding <#> $1::text::halfvec) AS cosine FROM memory_embeddings
        WHERE shelf = 'fresh' AND model = $2 AND namespace = ANY($6::text[])
          AND ($4::text[] IS NULL OR kind = ANY($4::text[]))
    )
    SELECT memory_id AS id, cosine FROM seen ORDER BY 2 DESC, 1 LIMIT $5
"""


@dataclass(frozen=True)
class Wanted:
    """What the vector lane is asked: the `limit` nearest vectors of the model."""

    vector: list[float]
    model: str
    limit: int

    @cached_property
    def literal(self) -> str:
        """The vector as pgvector reads it: quicker to send than a list, and exact to a halfvec."""
        return f"[{('%.8f,' * len(self.vector) % tuple(self.vector))[:-1]}]"


# Both lanes of a caller that sees little in one statement, with the cosines of the pool as well.
# What has no terms is of the vector lane.
_TEXT_POOL: Final = " WITH pool AS MATERIALIZED ( " + _TEXT_OF_FEW

_WITH_VECTORS: Final = """
    ), seen AS MATERIALIZED (
        SELECT memory_id AS id, -(embedding <#> $15::text::halfvec) AS cosine
        FROM memory_embeddings
        WHERE model = $16 AND namespace = ANY($2::text[]) AND shelf IN ('fresh', 'settled')
          AND ($3::text[] IS NULL OR kind = ANY($3::text[]))
    )
    SELECT p.id, p.session_id, p.position, p.length, p.terms, s.cosine
    FROM pool p LEFT JOIN seen s ON s.id = p.id
    UNION ALL
    (SELECT id, NULL, NULL, NULL, NULL, cosine FROM seen ORDER BY cosine DESC, id LIMIT $17)
"""

_LANES: Final = _TEXT_POOL + _WITH_VECTORS


async def lanes(
    conn: Conn, fence: Fence, terms: str, plan: Plan, wanted: Wanted, *, pool: int
) -> list[Row]:
    """Return the rows of `text`, with their cosines, and after them those of `exact`.

    For plain fences that let little through; needs pgvector.
    """
    return await conn.fetch(
        _LANES, terms, list(fence.namespaces), fence.kinds, *plan.groups, *plan.weights,
        list(plan.terms), _MATCHES, pool, wanted.literal, wanted.model, wanted.limit,
    )  # fmt: skip


async def exact(conn: Conn, fence: Fence, wanted: Wanted) -> list[Row]:
    """Compare every visible row; return id and cosine of the nearest."""
    common = (wanted.literal, wanted.model, list(fence.namespaces), fence.kinds, wanted.limit)
    if fence.is_plain:
        return await conn.fetch(_EXACT, *common)
    return await conn.fetch(_EXACT_WIDE, *common, fence.is_past, fence.as_of, list(fence.memories))


async def nearest(conn: Conn, fence: Fence, wanted: Wanted) -> list[Row]:
    """As `exact`, by the model's index: about the nearest rows, in no order."""
    return await conn.fetch(
        _NEAREST.format(dims=len(wanted.vector)), wanted.literal, wanted.model,
        list(fence.namespaces), fence.kinds, wanted.limit,
    )  # fmt: skip


async def nearest_in(
    conn: Conn, fence: Fence, wanted: Wanted, namespaces: Sequence[str]
) -> list[Row]:
    """As `nearest`, by the indexes that these namespaces of the fence have of their own."""
    rows: list[Row] = []
    statement = _NEAREST_IN.format(dims=len(wanted.vector))
    for namespace in namespaces:
        rows += await conn.fetch(
            statement, wanted.literal, wanted.model, namespace, fence.kinds, wanted.limit
        )
    others = [namespace for namespace in fence.namespaces if namespace not in namespaces]
    rows += await conn.fetch(
        _BESIDE, wanted.literal, wanted.model, others, fence.kinds, wanted.limit, list(namespaces),
    )  # fmt: skip
    return rows


# Without pgvector the vectors come here: after $7 in the order of ids, as bytes of real[].
_VECTORS = """
    SELECT e.memory_id AS id, array_send(e.embedding::real[]) AS vector
    FROM memory_embeddings e
    WHERE e.model = $1 AND (e.namespace = ANY($2::text[]) OR e.memory_id = ANY($3::uuid[]))
      AND ($5::boolean OR $6::timestamptz IS NOT NULL OR e.shelf IN ('fresh', 'settled'))
      AND ($4::text[] IS NULL OR e.kind = ANY($4::text[]))
      AND ($6::timestamptz IS NULL OR EXISTS (
          SELECT FROM memories m
          WHERE m.id = e.memory_id AND m.assertion_time <= $6 AND m.t_valid_from <= $6
            AND ($5::boolean OR (
                (m.t_valid_to IS NULL OR m.t_valid_to > $6)
                AND (m.status = 'active' OR noema_was_active(m.id, m.status, $6))))))
"""


async def vectors(
    conn: Conn, fence: Fence, model: str, *, at_once: int
) -> AsyncIterator[Sequence[Row]]:
    """Yield every visible row's id and vector, so many at once; needs an open transaction."""
    cursor = await conn.cursor(
        _VECTORS, model, list(fence.namespaces), list(fence.memories), fence.kinds,
        fence.is_past, fence.as_of,
    )  # fmt: skip
    while rows := await cursor.fetch(at_once):
        yield rows


_NEWEST = """
    SELECT m.id FROM memories m
    WHERE (m.namespace = ANY($1::text[]) OR m.id = ANY($2::uuid[]))
      AND ($3::text[] IS NULL OR m.kind = ANY($3::text[]))
      AND (CASE WHEN $5::timestamptz IS NULL
               THEN $4::boolean OR (m.t_valid_to IS NULL AND m.status = 'active')
           ELSE m.assertion_time <= $5 AND m.t_valid_from <= $5
                AND ($4::boolean OR (
                    (m.t_valid_to IS NULL OR m.t_valid_to > $5)
                    AND (m.status = 'active' OR noema_was_active(m.id, m.status, $5)))) END)
    ORDER BY m.assertion_time DESC, m.id DESC LIMIT $6
"""


async def newest(conn: Conn, fence: Fence, *, limit: int) -> list[UUID]:
    """Return the ids told last, newest first."""
    rows = await conn.fetch(
        _NEWEST, list(fence.namespaces), list(fence.memories), fence.kinds, fence.is_past,
        fence.as_of, limit,
    )  # fmt: skip
    return [row["id"] for row in rows]


# --- what the candidates are --------------------------------------------------------------------

_COLUMNS: Final = """
    SELECT m.id, m.namespace, m.kind, m.epistemic_kind, m.status, m.text, m.content::text,
           m.event_time,
           m.assertion_time, m.t_valid_from, m.t_valid_to, m.supersedes, m.source, m.route, m.trust,
           m.actor, m.agent_id, m.extraction, m.sensitivity, m.pii, m.secrets, m.destinations,
           m.classifier, m.importance, m.salience, m.credibility, m.activation, m.access_count,
           m.last_accessed_at, m.repeat_count, m.conversation_id, m.session_id, m.position,
           m.speaker, a.entities, coalesce(a.nearness, 0) AS nearness,
           cardinality(m.terms) AS length,
           CASE WHEN $4::boolean OR $5::timestamptz IS NOT NULL THEN
               (SELECT n.id FROM memories n
                WHERE n.supersedes = m.id
                  AND (n.namespace = ANY($2::text[]) OR n.id = ANY($3::uuid[]))
                ORDER BY n.t_valid_from DESC, n.id DESC LIMIT 1) END AS superseded_by,
           CASE WHEN m.id = ANY($9::uuid[]) THEN
               array_to_string(
                   ARRAY(SELECT t FROM unnest(m.terms) t WHERE t = ANY($7::text[])), '  ')
               END AS terms,
"""

# $8 are the word groups of the query that may be names; $9 are those whose terms are still unknown.
_FROM: Final = """
    FROM memories m
    LEFT JOIN noema_around($1::uuid[], $8::text[], $2::text[]) a ON a.memory_id = m.id
    WHERE m.id = ANY($1::uuid[]) AND (m.namespace = ANY($2::text[]) OR m.id = ANY($3::uuid[]))
      AND ($4::boolean OR $5::timestamptz IS NOT NULL
           OR (m.t_valid_to IS NULL AND m.status = 'active'))
      AND ($6::text[] IS NULL OR m.kind = ANY($6::text[]))
"""

_CURRENT: Final = ["fresh", "settled"]
_EVERY: Final = [*_CURRENT, "closed"]

_NO_COSINE: Final = " NULL::float8 AS cosine "

# $10: whose cosine is still unknown, since the text lane alone found them. The vector is read once,
# not for each of them.
_COSINE: Final = """
    CASE WHEN m.id = ANY($10::uuid[]) THEN
        (SELECT -(e.embedding <#> (SELECT $12::text::halfvec)) FROM memory_embeddings e
         WHERE e.memory_id = m.id AND e.model = $11 AND e.shelf = ANY($13::text[]) LIMIT 1)
        END AS cosine
"""

_CANDIDATES: Final = _COLUMNS + _NO_COSINE + _FROM
_CANDIDATES_NEAR: Final = _COLUMNS + _COSINE + _FROM


async def candidates(
    conn: Conn,
    fence: Fence,
    ids: Sequence[UUID],
    *,
    terms: Sequence[str],
    names: Sequence[str],
    uncounted: Sequence[UUID],
    unmeasured: Sequence[UUID] = (),
    wanted: Wanted | None = None,
) -> list[Row]:
    """Return the rows of the candidates that are still to be seen, in no order.

    `terms` are those of the query, told for the `uncounted`; `nearness` is 2 where a row mentions
    what the query names, 1 where it mentions what is one relationship away. With `wanted`, cosines
    of the `unmeasured` come along; that needs pgvector. `content` is JSON still: most candidates
    are read for their rank alone.
    """
    common = (
        ids, list(fence.namespaces), list(fence.memories), fence.is_past, fence.as_of,
        fence.kinds, terms, names, uncounted,
    )  # fmt: skip
    if wanted is None or not unmeasured:
        return await conn.fetch(_CANDIDATES, *common)
    shelves = _EVERY if fence.is_past or fence.as_of is not None else _CURRENT
    return await conn.fetch(
        _CANDIDATES_NEAR, *common, unmeasured, wanted.model, wanted.literal, shelves
    )


_VECTORS_OF = """
    SELECT e.memory_id AS id, array_send(e.embedding::real[]) AS vector
    FROM memory_embeddings e WHERE e.memory_id = ANY($1::uuid[]) AND e.model = $2
"""


async def vectors_of(conn: Conn, ids: Sequence[UUID], model: str) -> list[Row]:
    """Return the vectors of rows that have passed the fence."""
    return await conn.fetch(_VECTORS_OF, ids, model)

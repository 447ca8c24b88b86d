"""SQL of the conflict check: what is due, who may contradict whom, what was decided."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from noema.core.canonical import escape, unescape
from noema.db.tx import Conn
from noema.memory.model import ConflictCase, Memory, Scope
from noema.memory.scope import fence
from noema.memory.store.rows import memory_of

Row = Mapping[str, Any]

RETRIABLE: Final = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""What PostgreSQL raises where two transactions met, and one of them is to begin again."""

# --- what is due --------------------------------------------------------------------------------

# Claimed by being put off: a checker that died is followed when that is over.
_CLAIM = """
    WITH due AS (
        SELECT memory_id, due_at FROM conflict_checks WHERE due_at <= $1
        ORDER BY due_at, memory_id LIMIT $2 FOR UPDATE SKIP LOCKED
    ), claimed AS (
        UPDATE conflict_checks c SET due_at = $3, attempts = c.attempts + 1
        FROM due WHERE c.memory_id = due.memory_id
        RETURNING c.memory_id, c.attempts, due.due_at AS was_due
    )
    SELECT m.*, k.attempts FROM claimed k JOIN memories m ON m.id = k.memory_id
    ORDER BY k.was_due, m.id
"""

# Only what is still one's own claim: where it became due anew meanwhile, it is checked anew.
_POSTPONE = "UPDATE conflict_checks SET due_at = $3 WHERE memory_id = $1 AND due_at = $2"

_DONE = "DELETE FROM conflict_checks WHERE memory_id = ANY($1::uuid[]) AND due_at = $2"

_DUE = """
    INSERT INTO conflict_checks (memory_id, due_at)
    SELECT id, $2 FROM memories
    WHERE id = ANY($1::uuid[]) AND kind IN ('fact', 'preference')
      AND t_valid_to IS NULL AND status = 'active'
    ORDER BY id
    ON CONFLICT (memory_id) DO UPDATE SET due_at = excluded.due_at, attempts = 0
"""

# --- neighbours ---------------------------------------------------------------------------------

_BY_SUBJECT = """
    SELECT m.* FROM memories m
    WHERE m.namespace = $1 AND m.t_valid_to IS NULL AND m.status = 'active'
      AND lower(coalesce(m.content ->> 'subject', m.content ->> 'holder')) = ANY($3::text[])
      AND m.id <> $2
    ORDER BY m.id DESC LIMIT $4
"""

# Materialised, so that the text index is entered by all the words at once, of which the namespace
# is one. Where a namespace is compared as an expression, the planner cannot walk all of it:
# without fresh statistics it takes the largest one for the smallest.
_BY_TEXT = """
    WITH hits AS MATERIALIZED (
        SELECT m.id FROM memories m
        WHERE m.tsv @@ $3::text::tsquery AND m.t_valid_to IS NULL AND m.status = 'active'
          AND m.namespace || '' = $1 AND m.id <> $2
    )
    SELECT m.* FROM memories m
    WHERE m.id IN (SELECT id FROM hits ORDER BY id DESC LIMIT $4)
    ORDER BY m.id DESC
"""

# Of what everybody speaks of, the newest hundred, each looked up by its id (without statistics all
# current rows would be): a check costs the same however many there are.
_BY_ENTITIES = """
    WITH near AS MATERIALIZED (
        SELECT o.memory_id FROM memory_entities s
        CROSS JOIN LATERAL (
            SELECT e.memory_id FROM memory_entities e
            WHERE e.entity_id = s.entity_id AND e.memory_id <> $2
            ORDER BY e.memory_id DESC LIMIT 100
        ) o
        WHERE s.memory_id = $2
        GROUP BY o.memory_id ORDER BY count(*) DESC, o.memory_id DESC LIMIT 200
    )
    SELECT m.* FROM near CROSS JOIN LATERAL (
        SELECT * FROM memories WHERE id = near.memory_id OFFSET 0
    ) m
    WHERE m.namespace = $1 AND m.t_valid_to IS NULL AND m.status = 'active'
    ORDER BY m.id DESC LIMIT $3
"""

_HAS_VECTORS = """
    SELECT format_type(a.atttypid, NULL) <> 'real[]' FROM pg_attribute a
    WHERE a.attrelid = 'memory_embeddings'::regclass AND a.attname = 'embedding'
"""

# Exact, over the newest rows of the namespace with a vector of the same model.
_BY_VECTOR = """
    WITH own AS MATERIALIZED (
        SELECT e.embedding, e.model FROM memory_embeddings e
        JOIN embedding_models k ON k.model = e.model AND k.is_active
        WHERE e.memory_id = $2 LIMIT 1
    ), near AS MATERIALIZED (
        SELECT e.memory_id, e.embedding FROM memory_embeddings e JOIN own ON e.model = own.model
        WHERE e.namespace = $1 AND e.shelf IN ('fresh', 'settled') AND e.memory_id <> $2
        ORDER BY e.memory_id DESC LIMIT 5000
    )
    SELECT m.* FROM (
        SELECT near.memory_id FROM near, own
        ORDER BY near.embedding <=> own.embedding, near.memory_id LIMIT $3
    ) found JOIN memories m ON m.id = found.memory_id
    WHERE m.t_valid_to IS NULL AND m.status = 'active'
"""

_BY_ARRAY = """
    WITH own AS MATERIALIZED (
        SELECT e.embedding, e.model FROM memory_embeddings e
        JOIN embedding_models k ON k.model = e.model AND k.is_active
        WHERE e.memory_id = $2 LIMIT 1
    ), near AS MATERIALIZED (
        SELECT e.memory_id, e.embedding FROM memory_embeddings e JOIN own ON e.model = own.model
        WHERE e.namespace = $1 AND e.shelf IN ('fresh', 'settled') AND e.memory_id <> $2
        ORDER BY e.memory_id DESC LIMIT 500
    )
    SELECT m.* FROM (
        SELECT near.memory_id FROM near, own
        ORDER BY (SELECT sum(a::float8 * b)
                  FROM unnest(near.embedding, own.embedding) AS u (a, b)) DESC, near.memory_id
        LIMIT $3
    ) found JOIN memories m ON m.id = found.memory_id
    WHERE m.t_valid_to IS NULL AND m.status = 'active'
"""

# --- deciding -----------------------------------------------------------------------------------

_LOCK = """
    SELECT * FROM memories WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""

_CLOSE = """
    UPDATE memories SET t_valid_to = greatest($2, t_valid_from)
    WHERE id = $1 AND t_valid_to IS NULL AND status = 'active' RETURNING t_valid_to
"""

_DISPUTE = "UPDATE memories SET status = 'disputed' WHERE id = $1 AND status = 'active'"

# Only where the chain stays a chain: the winner follows nothing yet, nothing else follows the
# loser, and the loser does not follow the winner.
_SUPERSEDE = """
    UPDATE memories w SET supersedes = $2
    WHERE w.id = $1 AND w.supersedes IS NULL
      AND NOT EXISTS (SELECT FROM memories n WHERE n.supersedes = $2)
      AND NOT EXISTS (
          WITH RECURSIVE older AS (
              SELECT supersedes AS id FROM memories WHERE id = $2
              UNION
              SELECT m.supersedes FROM memories m JOIN older o ON m.id = o.id
          ) SELECT FROM older WHERE id = $1)
    RETURNING w.id
"""

_LINK = """
    INSERT INTO memory_relationships (id, namespace, from_memory, to_memory, kind, confidence,
                                      source, actor, assertion_time, t_valid_from)
    VALUES ($1, $2, $3, $4, 'supersedes', 1000000, $5, $6, $7, $7)
    ON CONFLICT DO NOTHING RETURNING id
"""

_UNLINK = """
    UPDATE memory_relationships SET t_valid_to = greatest($2, t_valid_from)
    WHERE id = $1 AND t_valid_to IS NULL
"""

_UNDO = """
    UPDATE memories SET status = $2, t_valid_to = $3, supersedes = $4 WHERE id = $1
"""

_TAKEN = """
    SELECT c.id FROM memories m JOIN memories c
        ON c.namespace = m.namespace AND c.dedupe_key = m.dedupe_key AND c.id <> m.id
       AND c.t_valid_to IS NULL AND c.status <> 'retracted'
    WHERE m.id = $1 LIMIT 1
"""

_KNOWN_PAIR = """
    SELECT EXISTS (SELECT FROM memory_conflicts
                   WHERE (newcomer = $1 AND incumbent = $2) OR (newcomer = $2 AND incumbent = $1))
"""

_INSERT = """
    INSERT INTO memory_conflicts (id, namespace, newcomer, incumbent, judge, reason, outcome,
                                  before, decided_by, decided_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""

_DECIDED = """
    UPDATE memory_conflicts
    SET outcome = $2, before = $3, decided_by = $4, decided_at = $5, reverted_by = NULL,
        reverted_at = NULL
    WHERE id = $1
"""

_REVERTED = """
    UPDATE memory_conflicts SET reverted_by = $2, reverted_at = $3, before = '{}' WHERE id = $1
"""

_CASE = "SELECT * FROM memory_conflicts WHERE id = $1 FOR UPDATE"

_SHOWN = """
    SELECT c.*,
           CASE WHEN n.namespace = ANY($1) OR n.id = ANY($2) THEN n.text ELSE '' END
               AS newcomer_text,
           CASE WHEN i.namespace = ANY($1) OR i.id = ANY($2) THEN i.text ELSE '' END
               AS incumbent_text,
           c.namespace = ANY($1) OR (n.id = ANY($2) AND i.id = ANY($2)) AS is_seen
    FROM memory_conflicts c
    JOIN memories n ON n.id = c.newcomer JOIN memories i ON i.id = c.incumbent
    WHERE (c.namespace = ANY($1) OR ($3::text IS NOT NULL AND noema_in_subtree(c.namespace, $3)))
      AND ($4::uuid IS NULL OR c.id = $4)
      AND (NOT $5 OR (c.outcome = 'for_review' AND c.reverted_at IS NULL))
    ORDER BY c.id DESC LIMIT $6
"""


class Taken(Exception):  # noqa: N818
    """The same text is current again as another row, so this one cannot be."""


async def claim(
    conn: Conn, *, now: datetime, until: datetime, limit: int
) -> list[tuple[Memory, int]]:
    """Return memories whose check is due, claimed until then, with how often that was begun."""
    rows = await conn.fetch(_CLAIM, now, limit, until)
    return [(memory_of(dict(r)), r["attempts"]) for r in rows]


async def postpone(conn: Conn, id_: UUID, claimed: datetime, until: datetime) -> None:
    """Put off a check that was claimed until `claimed`."""
    await conn.execute(_POSTPONE, id_, claimed, until)


async def done(conn: Conn, ids: Sequence[UUID], claimed: datetime) -> None:
    """Forget the checks, as far as they are still those that were claimed until then."""
    await conn.execute(_DONE, list(ids), claimed)


async def due(conn: Conn, ids: Sequence[UUID], at: datetime) -> None:
    """Let those that are current, and of a kind that is checked, be checked from then on."""
    await conn.execute(_DUE, list(ids), at)


async def by_subject(
    conn: Conn, memory: Memory, subjects: Sequence[str], limit: int
) -> list[Memory]:
    """Return current memories of the namespace about one of these subjects, newest first."""
    given = [escape(s) for s in subjects]
    rows = await conn.fetch(_BY_SUBJECT, memory.namespace, memory.id, given, limit)
    return [memory_of(dict(r)) for r in rows]


async def by_text(conn: Conn, memory: Memory, words: Sequence[str], limit: int) -> list[Memory]:
    """Return current memories of the namespace that have all of these terms, newest first."""
    query = " & ".join(_lexeme(w) for w in ("@" + memory.namespace, *map(escape, words)))
    rows = await conn.fetch(_BY_TEXT, memory.namespace, memory.id, query, limit)
    return [memory_of(dict(r)) for r in rows]


def _lexeme(term: str) -> str:
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"


async def by_entities(conn: Conn, memory: Memory, limit: int) -> list[Memory]:
    rows = await conn.fetch(_BY_ENTITIES, memory.namespace, memory.id, limit)
    return [memory_of(dict(r)) for r in rows]


async def by_vector(conn: Conn, memory: Memory, limit: int) -> list[Memory]:
    """Return the nearest in meaning, nearest first; none where the memory has no vector yet."""
    query = _BY_VECTOR if await conn.fetchval(_HAS_VECTORS) else _BY_ARRAY
    return [memory_of(dict(r)) for r in await conn.fetch(query, memory.namespace, memory.id, limit)]


async def lock(conn: Conn, ids: Sequence[UUID]) -> dict[UUID, Memory]:
    """Hold the rows until the transaction ends, in one order for everybody; return them."""
    return {r["id"]: memory_of(dict(r)) for r in await conn.fetch(_LOCK, list(ids))}


async def close(conn: Conn, id_: UUID, at: datetime) -> datetime | None:
    """End the validity of a current row; return when, or None where it is not current."""
    ended: datetime | None = await conn.fetchval(_CLOSE, id_, at)
    return ended


async def dispute(conn: Conn, id_: UUID) -> None:
    await conn.execute(_DISPUTE, id_)


async def supersede(conn: Conn, winner: UUID, loser: UUID) -> bool:
    """Let the winner follow the loser where the chain stays whole; return whether it does."""
    return await conn.fetchval(_SUPERSEDE, winner, loser) is not None


async def link(
    conn: Conn,
    id_: UUID,
    namespace: str,
    winner: UUID,
    loser: UUID,
    *,
    source: str,
    actor: str,
    at: datetime,
) -> bool:
    """Record beside the chain that the winner superseded the loser."""
    found = await conn.fetchval(_LINK, id_, namespace, winner, loser, source, actor, at)
    return found is not None


async def unlink(conn: Conn, id_: UUID, at: datetime) -> None:
    await conn.execute(_UNLINK, id_, at)


async def undo(
    conn: Conn, id_: UUID, *, status: str, valid_to: datetime | None, supersedes: UUID | None
) -> None:
    """Set the row as it was. Raises Taken where its place has been taken."""
    try:
        await conn.execute(_UNDO, id_, status, valid_to, supersedes)
    except asyncpg.UniqueViolationError as exc:
        raise Taken from exc


async def taken(conn: Conn, id_: UUID) -> UUID | None:
    """Return the current row that says the same as this one, if there is another."""
    found: UUID | None = await conn.fetchval(_TAKEN, id_)
    return found


async def is_known_pair(conn: Conn, one: UUID, other: UUID) -> bool:
    return bool(await conn.fetchval(_KNOWN_PAIR, one, other))


async def insert(
    conn: Conn,
    case: ConflictCase,
    *,
    before: Mapping[str, Any],
) -> None:
    await conn.execute(
        _INSERT, case.id, case.namespace, case.newcomer, case.incumbent, case.judge,
        escape(case.reason), case.outcome, before, case.decided_by, case.decided_at,
    )  # fmt: skip


async def decided(
    conn: Conn, id_: UUID, outcome: str, before: Mapping[str, Any], *, by: str, at: datetime
) -> None:
    await conn.execute(_DECIDED, id_, outcome, before, by, at)


async def reverted(conn: Conn, id_: UUID, *, by: str, at: datetime) -> None:
    await conn.execute(_REVERTED, id_, by, at)


async def case(conn: Conn, id_: UUID) -> Row | None:
    """Return the case with what it needs to be undone, held until the transaction ends."""
    row = await conn.fetchrow(_CASE, id_)
    return None if row is None else dict(row)


async def shown(
    conn: Conn,
    scope: Scope,
    *,
    managed: str | None,
    id_: UUID | None,
    open_only: bool,
    limit: int,
) -> list[ConflictCase]:
    """Return cases the scope sees, and those below `managed`; texts only where they are seen."""
    rows = await conn.fetch(_SHOWN, *fence(scope), managed, id_, open_only, limit)
    return [_case_of(dict(r)) for r in rows]


def _case_of(row: Row) -> ConflictCase:
    return ConflictCase(
        id=row["id"],
        namespace=row["namespace"],
        newcomer=row["newcomer"],
        incumbent=row["incumbent"],
        newcomer_text=unescape(row["newcomer_text"]),
        incumbent_text=unescape(row["incumbent_text"]),
        judge=row["judge"],
        # The reason quotes both.
        reason=unescape(row["reason"]) if row["is_seen"] else "",
        outcome=row["outcome"],
        decided_by=row["decided_by"],
        decided_at=row["decided_at"],
        reverted_at=row["reverted_at"],
        reverted_by=row["reverted_by"],
    )

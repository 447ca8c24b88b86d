"""All SQL of minds: rows, settings, modes, leases, checkpoints, goals, intents, conversations."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from noema.cognition.model import Mind, Mode
from noema.core.canonical import escape, escape_tree, unescape, unescape_tree
from noema.core.errors import Conflict, NotFound
from noema.db.tx import Conn

_INSERT_MIND = """
    INSERT INTO minds (id, slug, name, namespace, mode, settings_version, next_due)
    VALUES ($1, $2, $3, $4, 'awake', 1, $5)
"""

# A mind remembers in a namespace of its own, below the one it lives in.
_INSERT_PLACES = """
    INSERT INTO namespaces (path, tenant, created_by, created_at)
    SELECT p.path, split_part(p.path, '/', 1), $2, $3 FROM unnest($1::text[]) AS p(path)
    WHERE EXISTS (SELECT FROM tenants t WHERE t.name = split_part(p.path, '/', 1))
    ON CONFLICT DO NOTHING
"""

# Whoever acts where the mind lives reads what it remembers, until somebody revokes that.
_LET_READ = """
    INSERT INTO grants (id, namespace, subtree, to_namespace, granted_by, t_valid_from)
    VALUES ($1, $2, $2, $3, $4, $5)
"""

_MINDS = """
    SELECT m.id, m.slug, m.name, m.namespace, m.status, m.mode, m.mode_epoch, m.mode_until,
           m.cursor, m.next_due, m.settings_version, m.cycles, m.pending, m.last_cycle_at,
           m.last_error, l.owner, l.until AS lease_until
    FROM minds m LEFT JOIN mind_leases l ON l.mind_id = m.id
    WHERE ($1::text IS NULL OR m.slug = $1) AND ($2::text IS NULL OR m.slug > $2)
      AND ($3::uuid IS NULL OR m.id = $3)
    ORDER BY m.slug LIMIT $4
"""

_RENAME = "UPDATE minds SET name = $2 WHERE id = $1"

_SET_MODE = """
    UPDATE minds SET mode = $2, mode_epoch = mode_epoch + 1, mode_until = $3, next_due = $4
    WHERE id = $1 RETURNING mode_epoch
"""

_INSERT_SETTINGS = """
    INSERT INTO mind_settings_versions (mind_id, version, settings, content, actor)
    VALUES ($1, $2, $3, $4, $5)
"""

_NEXT_SETTINGS_VERSION = """
    UPDATE minds SET settings_version = settings_version + 1 WHERE id = $1
    RETURNING settings_version
"""

_SETTINGS = """
    SELECT version, settings, content, actor, recorded_at FROM mind_settings_versions
    WHERE mind_id = $1 AND version <= $2 ORDER BY version DESC LIMIT $3
"""

_MODES = """
    SELECT name, version, title, description, k, timer_min_s, timer_max_s, triggers, profile,
           processes, may_act, expires_s, exits
    FROM modes ORDER BY name, version
"""

# Only an absent or lapsed lease changes hands; the epoch grows each time, our own return included.
_TAKE_LEASE = """
    INSERT INTO mind_leases AS l (mind_id, owner, epoch, until)
    VALUES ($1, $2, 1, clock_timestamp() + make_interval(secs => $3))
    ON CONFLICT (mind_id) DO UPDATE SET
        owner = excluded.owner, epoch = l.epoch + 1, until = excluded.until
    WHERE l.until < clock_timestamp()
    RETURNING epoch
"""

# Locked in the order of the ids, as the group commit does it: neither waits for the other in a
# circle.
_RENEW_LEASES = """
    WITH ours AS (
        SELECT l.mind_id FROM mind_leases l
        JOIN unnest($1::uuid[], $2::bigint[]) AS held(mind, epoch)
          ON l.mind_id = held.mind AND l.epoch = held.epoch
        WHERE l.owner = $3 AND l.until > clock_timestamp()
        ORDER BY l.mind_id FOR NO KEY UPDATE OF l
    )
    UPDATE mind_leases l SET until = clock_timestamp() + make_interval(secs => $4)
    FROM ours WHERE l.mind_id = ours.mind_id
    RETURNING l.mind_id
"""

_RELEASE_LEASES = """
    UPDATE mind_leases l SET until = clock_timestamp()
    FROM unnest($1::uuid[], $2::bigint[]) AS held(mind, epoch)
    WHERE l.mind_id = held.mind AND l.epoch = held.epoch AND l.owner = $3
"""

_FREE_MINDS = """
    SELECT m.id FROM minds m LEFT JOIN mind_leases l ON l.mind_id = m.id
    WHERE m.status = 'active' AND (l.mind_id IS NULL OR l.until < clock_timestamp())
    ORDER BY m.created_at LIMIT $1
"""

_CHECKPOINT = """
    SELECT state, state_cycle, state_version FROM workspace_states
    WHERE mind_id = $1 AND state IS NOT NULL
"""

_WORKSPACE = "SELECT cycle, workspace FROM workspace_states WHERE mind_id = $1"

_CYCLE_HEADS = """
    SELECT cycle_id, (data ->> 'number')::bigint AS number, seq FROM cognitive_events
    WHERE mind_id = $1 AND type = 'cycle.completed'
      AND (data ->> 'number')::bigint >= $2 AND (data ->> 'number')::bigint <= $3
    ORDER BY (data ->> 'number')::bigint LIMIT $4
"""

_CREATION = """
    SELECT data FROM cognitive_events WHERE mind_id = $1 AND type = 'mind.created'
    ORDER BY seq LIMIT 1
"""

_NOTE_ERROR = "UPDATE minds SET last_error = $2 WHERE id = $1"

_INSERT_GOAL = """
    INSERT INTO goals (id, mind_id, text, priority, actor, created_at)
    VALUES ($1, $2, $3, $4, $5, $6)
"""

_CLOSE_GOAL = """
    UPDATE goals SET closed_at = $3 WHERE id = $2 AND mind_id = $1 AND closed_at IS NULL
    RETURNING id
"""

_GOALS = """
    SELECT id, text, priority, actor, created_at, closed_at FROM goals
    WHERE mind_id = $1 AND ($2 OR closed_at IS NULL) ORDER BY created_at DESC LIMIT 200
"""

_LOCK_MIND = "SELECT FROM minds WHERE id = $1 FOR NO KEY UPDATE"

_COUNT_GOALS = "SELECT count(*) FROM goals WHERE mind_id = $1 AND closed_at IS NULL"

_GOAL = "SELECT id, text, priority, actor, created_at, closed_at FROM goals WHERE id = $1"

_OPEN_INTENTS = """
    SELECT id, cycle_id, cycle, ordinal, thought_id, act, content, state FROM intents
    WHERE mind_id = $1 AND state IN ('pending', 'started') AND (act = 'remember') = $2
    ORDER BY cycle, ordinal, id LIMIT $3
"""

_CONVERSATIONS = """
    SELECT id, started_at, actor FROM conversations WHERE mind_id = $1
    ORDER BY started_at DESC LIMIT $2
"""

_CONVERSATION_OF = "SELECT mind_id FROM conversations WHERE id = $1"

_MESSAGES = """
    SELECT id, conversation_id, speaker, text, at, in_reply_to, cycle FROM (
        SELECT id, conversation_id, speaker, text, at, in_reply_to, cycle, seq FROM messages
        WHERE mind_id = $1 AND ($2::uuid IS NULL OR conversation_id = $2)
        ORDER BY seq DESC LIMIT $3
    ) newest ORDER BY seq
"""


async def insert_mind(
    conn: Conn, *, id_: UUID, slug: str, name: str, namespace: str, next_due: datetime
) -> None:
    try:
        await conn.execute(_INSERT_MIND, id_, slug, escape(name), namespace, next_due)
    except asyncpg.UniqueViolationError:
        raise Conflict(f"There is a mind {slug} already; choose another slug.") from None


async def insert_place(
    conn: Conn, *, grant: UUID, namespace: str, memory: str, actor: str, at: datetime
) -> None:
    """Make the namespace that a mind remembers in, readable from the one it lives in."""
    await conn.execute(_INSERT_PLACES, [f"{namespace}/minds", memory], actor, at)
    await conn.execute(_LET_READ, grant, memory, namespace, actor, at)


async def minds(
    conn: Conn,
    *,
    slug: str | None = None,
    after: str | None = None,
    id_: UUID | None = None,
    limit: int = 500,
) -> list[Mind]:
    rows = await conn.fetch(_MINDS, slug, after, id_, limit)
    return [Mind(**{**r, "name": unescape(r["name"])}) for r in rows]


async def rename(conn: Conn, mind: UUID, name: str) -> None:
    await conn.execute(_RENAME, mind, escape(name))


async def set_mode(
    conn: Conn, mind: UUID, mode: str, *, until: datetime | None, next_due: datetime | None
) -> int:
    return int(await conn.fetchval(_SET_MODE, mind, mode, until, next_due))


async def insert_settings(
    conn: Conn, mind: UUID, version: int, settings: Mapping[str, Any], *, note: str, actor: str
) -> None:
    content = escape_tree({"note": note} if note else {})
    await conn.execute(_INSERT_SETTINGS, mind, version, settings, content, actor)


async def next_settings_version(conn: Conn, mind: UUID) -> int:
    return int(await conn.fetchval(_NEXT_SETTINGS_VERSION, mind))


async def settings_versions(
    conn: Conn, mind: UUID, *, at_most: int = 2**31 - 1, limit: int = 100
) -> list[Mapping[str, Any]]:
    rows = await conn.fetch(_SETTINGS, mind, at_most, limit)
    return [{**r, "content": unescape_tree(r["content"])} for r in rows]


async def modes(conn: Conn) -> dict[tuple[str, int], Mode]:
    rows = [msgspec.convert(dict(r), Mode) for r in await conn.fetch(_MODES)]
    return {(m.name, m.version): m for m in rows}


async def take_lease(conn: Conn, mind: UUID, *, owner: UUID, for_s: float) -> int | None:
    epoch = await conn.fetchval(_TAKE_LEASE, mind, owner, for_s)
    return None if epoch is None else int(epoch)


async def renew_leases(
    conn: Conn, held: Mapping[UUID, int], *, owner: UUID, for_s: float
) -> set[UUID]:
    rows = await conn.fetch(_RENEW_LEASES, list(held), list(held.values()), owner, for_s)
    return {r["mind_id"] for r in rows}


async def release_leases(conn: Conn, held: Mapping[UUID, int], *, owner: UUID) -> None:
    await conn.execute(_RELEASE_LEASES, list(held), list(held.values()), owner)


async def free_minds(conn: Conn, limit: int) -> list[UUID]:
    return [r["id"] for r in await conn.fetch(_FREE_MINDS, limit)]


async def checkpoint(conn: Conn, mind: UUID) -> tuple[bytes, int, int] | None:
    row = await conn.fetchrow(_CHECKPOINT, mind)
    return None if row is None else (row["state"], row["state_cycle"], row["state_version"])


async def workspace(conn: Conn, mind: UUID) -> tuple[int, list[dict[str, Any]]]:
    row = await conn.fetchrow(_WORKSPACE, mind)
    return (0, []) if row is None else (row["cycle"], unescape_tree(row["workspace"]))


async def cycle_heads(
    conn: Conn, mind: UUID, first: int, last: int, *, limit: int
) -> list[tuple[UUID, int]]:
    rows = await conn.fetch(_CYCLE_HEADS, mind, first, last, limit)
    return [(r["cycle_id"], r["number"]) for r in rows]


async def creation(conn: Conn, mind: UUID) -> Mapping[str, Any] | None:
    data: Mapping[str, Any] | None = await conn.fetchval(_CREATION, mind)
    return data


async def note_error(conn: Conn, mind: UUID, error: str) -> None:
    await conn.execute(_NOTE_ERROR, mind, error)


async def insert_goal(
    conn: Conn, mind: UUID, goal: UUID, text: str, priority: int, *, actor: str, at: datetime
) -> None:
    await conn.execute(_INSERT_GOAL, goal, mind, escape(text), priority, actor, at)


async def close_goal(conn: Conn, mind: UUID, goal: UUID, at: datetime) -> bool:
    return await conn.fetchval(_CLOSE_GOAL, mind, goal, at) is not None


async def goals(conn: Conn, mind: UUID, *, closed: bool) -> list[Mapping[str, Any]]:
    rows = await conn.fetch(_GOALS, mind, closed)
    return [{**r, "text": unescape(r["text"])} for r in rows]


async def goal(conn: Conn, goal_id: UUID) -> dict[str, Any]:
    row = await conn.fetchrow(_GOAL, goal_id)
    if row is None:
        raise NotFound("goal", goal_id)
    return {**row, "text": unescape(row["text"])}


async def count_open_goals(conn: Conn, mind: UUID) -> int:
    # Locked in a statement before: of two goals that come at once, the second sees the first.
    await conn.execute(_LOCK_MIND, mind)
    return int(await conn.fetchval(_COUNT_GOALS, mind))


async def open_intents(
    conn: Conn, mind: UUID, *, to_remember: bool, limit: int
) -> Sequence[Mapping[str, Any]]:
    rows = await conn.fetch(_OPEN_INTENTS, mind, to_remember, limit)
    return [{**r, "content": unescape_tree(r["content"])} for r in rows]


async def conversations(conn: Conn, mind: UUID, *, limit: int) -> list[Mapping[str, Any]]:
    return [dict(r) for r in await conn.fetch(_CONVERSATIONS, mind, limit)]


async def conversation_mind(conn: Conn, conversation: UUID) -> UUID | None:
    mind: UUID | None = await conn.fetchval(_CONVERSATION_OF, conversation)
    return mind


async def messages(
    conn: Conn, mind: UUID, *, conversation: UUID | None, limit: int
) -> list[Mapping[str, Any]]:
    rows = await conn.fetch(_MESSAGES, mind, conversation, limit)
    return [{**r, "speaker": unescape(r["speaker"]), "text": unescape(r["text"])} for r in rows]

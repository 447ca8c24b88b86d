"""All SQL of replays."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from noema.db.tx import Conn
from noema.replay.model import Difference, Replay, Report

# With the number of events of each, so that a page can be cut by how heavy it is.
_HEADS = """
    SELECT e.cycle_id, (e.data ->> 'number')::bigint AS number,
           (SELECT count(*) FROM cognitive_events c WHERE c.cycle_id = e.cycle_id) AS events
    FROM cognitive_events e
    WHERE e.mind_id = $1 AND e.type = 'cycle.completed'
      AND (e.data ->> 'number')::bigint >= $2 AND (e.data ->> 'number')::bigint <= $3
    ORDER BY (e.data ->> 'number')::bigint, e.seq LIMIT $4
"""

_REDACTIONS = "SELECT event_id FROM redactions WHERE event_id = ANY($1::uuid[])"

_INSERT = """
    INSERT INTO replays (id, mind_id, kind, state, from_cycle, to_cycle, cycles, actor, created_at)
    VALUES ($1, $2, 'verify', 'running', $3, $4, $5, $6, $7)
"""

# What goes on is running, even if another daemon that has just started took it for dead.
_PROGRESS = """
    UPDATE replays SET verified = $2, state = 'running', error = NULL, finished_at = NULL
    WHERE id = $1
"""

_FINISH = """
    UPDATE replays SET state = 'done', cycles = $2, verified = $3, first_difference = $4,
           notes = $5, error = NULL, finished_at = $6
    WHERE id = $1
"""

_FAIL = """
    UPDATE replays SET state = 'failed', error = $2, finished_at = $3
    WHERE id = $1 AND state = 'running'
"""

_FAIL_ALL = """
    UPDATE replays SET state = 'failed', error = $1, finished_at = $2 WHERE state = 'running'
"""

_SELECT = """
    SELECT r.id, m.slug AS mind, r.kind, r.state, r.from_cycle AS "from", r.to_cycle AS "to",
           r.cycles, r.verified, r.first_difference, r.notes, r.error, r.actor, r.created_at,
           r.finished_at
    FROM replays r JOIN minds m ON m.id = r.mind_id
    WHERE ($1::uuid IS NULL OR r.id = $1) AND ($2::text IS NULL OR m.slug = $2)
    ORDER BY r.created_at DESC, r.id DESC LIMIT $3
"""


async def heads(
    conn: Conn, mind: UUID, first: int, last: int, *, limit: int
) -> list[tuple[UUID | None, int, int]]:
    """Return (cycle id, number, number of events) of the completed cycles, by number."""
    rows = await conn.fetch(_HEADS, mind, first, last, limit)
    return [(r["cycle_id"], r["number"], r["events"]) for r in rows]


async def redactions(conn: Conn, event_ids: Sequence[UUID]) -> frozenset[UUID]:
    """Return those of the events whose redaction is on record."""
    return frozenset(r["event_id"] for r in await conn.fetch(_REDACTIONS, list(event_ids)))


async def insert(
    conn: Conn,
    id_: UUID,
    mind: UUID,
    *,
    first: int,
    last: int,
    cycles: int,
    actor: str,
    at: datetime,
) -> None:
    await conn.execute(_INSERT, id_, mind, first, last, cycles, actor, at)


async def progress(conn: Conn, id_: UUID, verified: int) -> None:
    await conn.execute(_PROGRESS, id_, verified)


async def finish(conn: Conn, id_: UUID, report: Report, at: datetime) -> None:
    found = report.first_difference
    difference: Any = None if found is None else msgspec.to_builtins(found)
    await conn.execute(
        _FINISH, id_, report.cycles, report.verified, difference, list(report.notes), at
    )


async def fail(conn: Conn, id_: UUID, error: str, at: datetime) -> None:
    await conn.execute(_FAIL, id_, error, at)


async def fail_all_running(conn: Conn, error: str, at: datetime) -> None:
    await conn.execute(_FAIL_ALL, error, at)


async def replays(
    conn: Conn, *, id_: UUID | None = None, mind: str | None = None, limit: int
) -> list[Replay]:
    rows = [dict(r) for r in await conn.fetch(_SELECT, id_, mind, limit)]
    for row in rows:
        if row["first_difference"] is not None:
            row["first_difference"] = msgspec.convert(row["first_difference"], Difference)
    return [msgspec.convert(row, Replay) for row in rows]

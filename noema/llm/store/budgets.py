"""All SQL of budgets, their windows and what is reserved in them.

Whoever changes windows locks all of them first, in the order of their keys, so that two daemons
never wait for each other.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from noema.db.tx import Conn

WindowKey: TypeAlias = tuple[UUID, str, str]
"""budget, key, starts"""

_CURRENT = """
    SELECT id, scope, key, period, money_micros, tokens, actor, set_at
    FROM budgets WHERE ended_at IS NULL
    ORDER BY id
"""

_OPEN_WINDOWS = """
    INSERT INTO budget_windows (budget_id, key, starts)
    SELECT budget, key, starts
    FROM unnest($1::uuid[], $2::text[], $3::text[]) AS wanted (budget, key, starts)
    ORDER BY budget, key, starts
    ON CONFLICT DO NOTHING
"""

_LOCK = """
    SELECT budget_id, key, starts
    FROM budget_windows w
    WHERE (w.budget_id, w.key, w.starts) IN (
        SELECT budget, key, starts
        FROM unnest($1::uuid[], $2::text[], $3::text[]) AS wanted (budget, key, starts)
        UNION
        SELECT r.budget_id, r.key, r.starts FROM budget_reservations r
        WHERE r.call_id = ANY($4::uuid[])
    )
    ORDER BY w.budget_id, w.key, w.starts
    FOR UPDATE
"""

# A null size is an unknown one: what was reserved counts as spent.
_SETTLE = """
    WITH told AS (
        SELECT *
        FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::bool[])
             AS s (call, attempt, micros, tokens, is_unknown)
    ), settled AS (
        DELETE FROM budget_reservations r
        USING told s
        WHERE r.call_id = s.call
          AND (r.attempt = s.attempt
               OR s.attempt IS NULL AND NOT EXISTS (
                   SELECT FROM told o WHERE o.call = r.call_id AND o.attempt = r.attempt))
        RETURNING r.budget_id, r.key, r.starts, r.micros AS held_micros, r.tokens AS held_tokens,
                  coalesce(s.micros, r.micros) AS micros, coalesce(s.tokens, r.tokens) AS tokens,
                  s.is_unknown
    ), summed AS (
        SELECT budget_id, key, starts, sum(held_micros)::bigint AS held_micros,
               sum(held_tokens)::bigint AS held_tokens, sum(micros)::bigint AS micros,
               sum(tokens)::bigint AS tokens, count(*) FILTER (WHERE is_unknown) AS unknown
        FROM settled GROUP BY budget_id, key, starts
    )
    UPDATE budget_windows w
    SET reserved_micros = w.reserved_micros - s.held_micros,
        reserved_tokens = w.reserved_tokens - s.held_tokens,
        spent_micros = w.spent_micros + s.micros,
        spent_tokens = w.spent_tokens + s.tokens,
        unknown_calls = w.unknown_calls + s.unknown
    FROM summed s
    WHERE w.budget_id = s.budget_id AND w.key = s.key AND w.starts = s.starts
"""

_WINDOWS = """
    SELECT w.budget_id, w.key, w.starts, w.reserved_micros, w.spent_micros, w.reserved_tokens,
           w.spent_tokens, w.unknown_calls, w.stopped
    FROM budget_windows w
    JOIN unnest($1::uuid[], $2::text[], $3::text[]) AS wanted (budget, key, starts)
      ON w.budget_id = wanted.budget AND w.key = wanted.key AND w.starts = wanted.starts
"""

_HELD = "SELECT DISTINCT call_id, attempt FROM budget_reservations WHERE call_id = ANY($1::uuid[])"

_RESERVE = """
    INSERT INTO budget_reservations (call_id, attempt, budget_id, key, starts, micros, tokens)
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::text[], $5::text[],
                         $6::bigint[], $7::bigint[])
"""

_ADD = """
    UPDATE budget_windows w
    SET reserved_micros = w.reserved_micros + a.micros,
        reserved_tokens = w.reserved_tokens + a.tokens,
        stopped = w.stopped + a.stopped
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::int[])
         AS a (budget, key, starts, micros, tokens, stopped)
    WHERE w.budget_id = a.budget AND w.key = a.key AND w.starts = a.starts
"""

_LATEST_OF = """
    SELECT id, scope, key, period, money_micros, tokens, actor, set_at, ended_at
    FROM budgets WHERE scope = $1 AND key = $2 AND period = $3
    ORDER BY ended_at DESC NULLS FIRST, id DESC LIMIT 1
    FOR UPDATE
"""

_ADD_BUDGET = """
    INSERT INTO budgets (id, scope, key, period, money_micros, tokens, actor, set_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT DO NOTHING
    RETURNING id
"""

_CHANGE_BUDGET = """
    UPDATE budgets
    SET money_micros = $2, tokens = $3, actor = $4, set_at = $5, ended_at = NULL
    WHERE id = $1
"""

_END_BUDGET = """
    UPDATE budgets SET ended_at = $2 WHERE id = $1 AND ended_at IS NULL
    RETURNING scope, key, period
"""

_LATEST_WINDOWS = """
    SELECT budget_id, key, starts, reserved_micros, spent_micros, reserved_tokens, spent_tokens,
           unknown_calls, stopped
    FROM budget_windows
    WHERE budget_id = $1 AND ($2::text[] IS NULL OR key = ANY($2))
      AND ($3::text IS NULL OR starts = $3)
    ORDER BY starts DESC, key LIMIT $4
"""


async def current(conn: Conn) -> list[dict[str, Any]]:
    return [dict(row) for row in await conn.fetch(_CURRENT)]


async def open_windows(conn: Conn, keys: Sequence[WindowKey]) -> None:
    """Add the windows that are not there yet."""
    await conn.execute(_OPEN_WINDOWS, *_columns(keys))


async def lock(conn: Conn, keys: Sequence[WindowKey], calls: Sequence[UUID]) -> None:
    """Lock these windows and those in which the calls hold something."""
    await conn.fetch(_LOCK, *_columns(keys), list(calls))


async def settle(
    conn: Conn, rows: Sequence[tuple[UUID, int | None, int | None, int | None, bool]]
) -> None:
    """Turn what is reserved into what was spent: call, attempt (None: the rest), micros, tokens.

    A size of None is what was reserved; the last says whether to count it as unknown.
    """
    await conn.execute(_SETTLE, *(list(column) for column in zip(*rows, strict=True)))


async def windows(conn: Conn, keys: Sequence[WindowKey]) -> list[dict[str, Any]]:
    return [dict(row) for row in await conn.fetch(_WINDOWS, *_columns(keys))]


async def held(conn: Conn, calls: Sequence[UUID]) -> set[tuple[UUID, int]]:
    """Return which attempts of the calls hold something."""
    return {(row["call_id"], row["attempt"]) for row in await conn.fetch(_HELD, list(calls))}


async def reserve(conn: Conn, rows: Sequence[tuple[UUID, int, UUID, str, str, int, int]]) -> None:
    """Add reservations: call, attempt, budget, key, starts, micros, tokens."""
    await conn.execute(_RESERVE, *(list(column) for column in zip(*rows, strict=True)))


async def add(conn: Conn, rows: Sequence[tuple[UUID, str, str, int, int, int]]) -> None:
    """Add to windows, each at most once: budget, key, starts, micros, tokens, stopped."""
    await conn.execute(_ADD, *(list(column) for column in zip(*rows, strict=True)))


async def latest_of(conn: Conn, scope: str, key: str, period: str) -> dict[str, Any] | None:
    """Return the budget for this, the one that holds or the last that ended, locked."""
    row = await conn.fetchrow(_LATEST_OF, scope, key, period)
    return None if row is None else dict(row)


async def add_budget(
    conn: Conn,
    *,
    id: UUID,  # noqa: A002
    place: tuple[str, str, str],
    limits: tuple[int | None, int | None],
    actor: str,
    now: datetime,
) -> bool:
    """Add a budget; False where somebody else just did."""
    return await conn.fetchval(_ADD_BUDGET, id, *place, *limits, actor, now) is not None


async def change_budget(
    conn: Conn,
    *,
    id: UUID,  # noqa: A002
    limits: tuple[int | None, int | None],
    actor: str,
    now: datetime,
) -> None:
    await conn.execute(_CHANGE_BUDGET, id, *limits, actor, now)


async def end_budget(conn: Conn, id: UUID, now: datetime) -> tuple[str, str, str] | None:  # noqa: A002
    """End it; return its scope, key and period, None where there is none that holds."""
    row = await conn.fetchrow(_END_BUDGET, id, now)
    return None if row is None else tuple(row)


async def latest_windows(
    conn: Conn, budget: UUID, *, keys: Sequence[str] | None, starts: str | None, limit: int
) -> list[dict[str, Any]]:
    rows = await conn.fetch(
        _LATEST_WINDOWS, budget, None if keys is None else list(keys), starts, limit
    )
    return [dict(row) for row in rows]


def _columns(keys: Sequence[WindowKey]) -> tuple[list[UUID], list[str], list[str]]:
    return [k[0] for k in keys], [k[1] for k in keys], [k[2] for k in keys]

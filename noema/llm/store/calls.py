"""All SQL of calls on record, and of which daemon is alive."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import asyncpg

from noema.core.errors import Conflict, NoemaError, Unavailable
from noema.db.tx import Conn, connection_lost

CallKey: TypeAlias = tuple[UUID, int, str, int, bytes]
"""mind, cycle, process, ordinal, request hash"""

# A daemon holds this for as long as its connection lives; who gets it alone knows it dead. It is
# shared with its own connections before, whose end the server may not have noticed yet.
_BE_PRESENT = "SELECT pg_advisory_lock_shared(hashtextextended('noema llm ' || $1::text, 0))"
_IS_ABSENT = "SELECT pg_try_advisory_xact_lock(hashtextextended('noema llm ' || $1::text, 0))"

_INSERT = """
    INSERT INTO llm_calls (id, namespace, mind_id, cycle, process, ordinal, request_hash, role,
                           prompt_name, prompt_version, state, daemon, content, parameters,
                           started_at, due_at)
    SELECT id, namespace, mind, cycle, process, ordinal, hash, role, prompt, version, 'in flight',
           $1, content, parameters, started, due
    FROM unnest($2::uuid[], $3::text[], $4::uuid[], $5::bigint[], $6::text[], $7::int[],
                $8::bytea[], $9::text[], $10::text[], $11::int[], $12::jsonb[], $13::jsonb[],
                $14::timestamptz[], $15::timestamptz[])
         AS new (id, namespace, mind, cycle, process, ordinal, hash, role, prompt, version,
                 content, parameters, started, due)
    ON CONFLICT DO NOTHING
    RETURNING id
"""

_STATES = "SELECT id, state FROM llm_calls WHERE id = ANY($1::uuid[])"

_BY_KEY = """
    SELECT c.id, c.namespace, c.mind_id, c.cycle, c.process, c.ordinal, c.request_hash, c.role,
           c.prompt_name, c.prompt_version, c.state, c.daemon, c.content, c.provider, c.model,
           c.parameters, c.finish, c.attempts, c.input_tokens, c.output_tokens, c.reasoning_tokens,
           c.cache_read_tokens, c.cache_write_tokens, c.cost_micros, c.cost_kind, c.latency_ms,
           c.error, c.started_at, c.finished_at
    FROM llm_calls c
    WHERE c.mind_id = $1 AND c.cycle = $2 AND c.process = $3 AND c.ordinal = $4
      AND c.request_hash = $5 AND c.state IN ('in flight', 'answered')
"""

_NOTE = """
    UPDATE llm_calls c SET attempts = n.tried->'attempts', content = c.content || n.content
    FROM unnest($1::uuid[], $2::jsonb[], $3::jsonb[]) AS n (id, tried, content)
    WHERE c.id = n.id AND c.state = 'in flight'
    RETURNING c.id
"""

_FINISH = """
    UPDATE llm_calls c
    SET state = f.state, content = c.content || f.content, provider = f.provider, model = f.model,
        finish = f.finish, attempts = f.tried->'attempts', input_tokens = f.input,
        output_tokens = f.output, reasoning_tokens = f.reasoning, cache_read_tokens = f.cache_read,
        cache_write_tokens = f.cache_write, cost_micros = f.cost, cost_kind = f.cost_kind,
        latency_ms = f.latency, error = f.error, finished_at = f.finished
    FROM unnest($1::uuid[], $2::text[], $3::jsonb[], $4::text[], $5::text[], $6::text[],
                $7::jsonb[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],
                $12::bigint[], $13::bigint[], $14::text[], $15::int[], $16::text[],
                $17::timestamptz[])
         AS f (id, state, content, provider, model, finish, tried, input, output, reasoning,
               cache_read, cache_write, cost, cost_kind, latency, error, finished)
    WHERE c.id = f.id AND c.state = 'in flight'
    RETURNING c.id
"""

_FINISHED = "SELECT id FROM llm_calls WHERE id = ANY($1::uuid[]) AND state = $2"

_FLYING = """
    SELECT DISTINCT daemon FROM llm_calls
    WHERE state = 'in flight' AND (daemon <> $1 OR due_at < $2)
    ORDER BY daemon
"""

# Of what it took, what the attempts before knew is known.
_LOSE = """
    UPDATE llm_calls
    SET state = 'unknown', cost_kind = 'unknown', error = 'lost', finished_at = $4,
        cost_micros = (SELECT nullif(sum((tried->>'cost_micros')::bigint), 0)
                       FROM jsonb_array_elements(attempts) AS tried)
    WHERE state = 'in flight' AND daemon = $1 AND ($2 OR due_at < $3)
    RETURNING id
"""

_GET = """
    SELECT id, namespace, mind_id, cycle, process, ordinal, request_hash, role, prompt_name,
           prompt_version, state, daemon, content, provider, model, parameters, finish, attempts,
           input_tokens, output_tokens, reasoning_tokens, cache_read_tokens, cache_write_tokens,
           cost_micros, cost_kind, latency_ms, error, started_at, finished_at
    FROM llm_calls
    WHERE id = $1 AND ($2::text[] IS NULL OR namespace = ANY($2))
"""

_PAGE = """
    SELECT id, namespace, mind_id, cycle, process, ordinal, request_hash, role, prompt_name,
           prompt_version, state, daemon, '{}'::jsonb AS content, provider, model, parameters,
           finish, attempts, input_tokens, output_tokens, reasoning_tokens, cache_read_tokens,
           cache_write_tokens, cost_micros, cost_kind, latency_ms, error, started_at, finished_at
    FROM llm_calls
    WHERE ($1::text[] IS NULL OR namespace = ANY($1))
      AND ($2::uuid IS NULL OR mind_id = $2) AND ($3::bigint IS NULL OR cycle = $3)
      AND ($4::text IS NULL OR role = $4) AND ($5::text IS NULL OR provider = $5)
      AND ($6::text IS NULL OR state = $6)
      AND ($7::timestamptz IS NULL OR (started_at, id) < ($7, $8::uuid))
    ORDER BY started_at DESC, id DESC LIMIT $9
"""

_SPEND = """
    SELECT (started_at AT TIME ZONE 'UTC')::date AS day, role, coalesce(provider, '') AS provider,
           count(*) AS calls, count(*) FILTER (WHERE cost_kind = 'unknown') AS unknown_calls,
           coalesce(sum(cost_micros), 0)::bigint AS cost_micros,
           coalesce(sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)
                        + coalesce(reasoning_tokens, 0) + coalesce(cache_read_tokens, 0)
                        + coalesce(cache_write_tokens, 0)), 0)::bigint AS tokens
    FROM llm_calls
    WHERE started_at >= $1 AND started_at < $2 AND ($3::text[] IS NULL OR namespace = ANY($3))
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""


class NewRow(NamedTuple):
    """A call that is about to be made, column by column as `_INSERT` takes them."""

    id: UUID
    namespace: str
    mind: UUID | None
    cycle: int | None
    process: str
    ordinal: int
    request_hash: bytes
    role: str
    prompt_name: str | None
    prompt_version: int | None
    content: Any
    parameters: Any
    started_at: datetime
    due_at: datetime

    @property
    def key(self) -> CallKey | None:
        """The key under which an answer is used again, None where none is."""
        if self.mind is None or self.cycle is None:
            return None
        return self.mind, self.cycle, self.process, self.ordinal, self.request_hash


class FinishedRow(NamedTuple):
    """How a call ended, column by column as `_FINISH` takes them."""

    id: UUID
    state: str
    content: Any
    provider: str | None
    model: str | None
    finish: str | None
    tried: Any
    input: int | None
    output: int | None
    reasoning: int | None
    cache_read: int | None
    cache_write: int | None
    cost_micros: int | None
    cost_kind: str
    latency_ms: int
    error: str
    finished_at: datetime


class Refused(Exception):  # noqa: N818
    """The server did not take a batch; nothing of it was kept."""

    def __init__(self, error: NoemaError) -> None:
        super().__init__(str(error))
        self.error = error


FAILURES: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, OverflowError)
"""What a statement may fail with: the server's errors, and values that cannot be sent to it."""


def refused(exc: Exception, conn: Conn) -> Refused | None:
    """Return the error as ours, None where it means that the connection is gone."""
    if connection_lost(exc, conn):
        return None
    if isinstance(exc, asyncpg.UniqueViolationError):
        return Refused(Conflict("The same call is being made elsewhere."))
    # What PostgreSQL says may quote what was to be stored.
    code = getattr(exc, "sqlstate", None) or type(exc).__name__
    return Refused(Unavailable(f"The call could not be recorded ({code})."))


async def be_present(conn: Conn, daemon: UUID) -> None:
    """Show others that the daemon lives, for as long as this connection does."""
    await conn.execute(_BE_PRESENT, str(daemon))


async def insert(conn: Conn, daemon: UUID, rows: Sequence[NewRow]) -> set[UUID]:
    """Add calls in flight; return those that were added: one key is in flight or answered once."""
    columns = (list(column) for column in zip(*rows, strict=True))
    return {row["id"] for row in await conn.fetch(_INSERT, daemon, *columns)}


async def states(conn: Conn, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the states of those that there are."""
    return {row["id"]: row["state"] for row in await conn.fetch(_STATES, list(ids))}


async def by_key(conn: Conn, key: CallKey) -> dict[str, Any] | None:
    """Return the call with the key that is in flight or answered."""
    row = await conn.fetchrow(_BY_KEY, *key)
    return None if row is None else dict(row)


async def note(conn: Conn, rows: Sequence[tuple[UUID, Any, Any]]) -> set[UUID]:
    """Keep what was tried so far of calls in flight; return those that are.

    Each row is the call, `{"attempts": [...]}`, and content to merge.
    """
    columns = (list(column) for column in zip(*rows, strict=True))
    return {row["id"] for row in await conn.fetch(_NOTE, *columns)}


async def finish(conn: Conn, rows: Sequence[FinishedRow]) -> set[UUID]:
    """End calls that are in flight; return those that were."""
    columns = (list(column) for column in zip(*rows, strict=True))
    return {row["id"] for row in await conn.fetch(_FINISH, *columns)}


async def is_finished(conn: Conn, id: UUID, state: str) -> bool:  # noqa: A002
    return bool(await conn.fetch(_FINISHED, [id], state))


async def lose(conn: Conn, daemon: UUID, *, long_ago: datetime, now: datetime) -> list[UUID]:
    """End the calls of daemons that no longer live, as unknown; return them.

    A daemon is dead where nobody holds its lock. Calls that were due `long_ago` are lost even so:
    the machine of a connection that nobody closed may be gone, and of one's own calls the end may
    not have been taken by the server.
    """
    lost: list[UUID] = []
    for row in await conn.fetch(_FLYING, daemon, long_ago):
        # Its own lock it would get.
        is_absent = row["daemon"] != daemon and await conn.fetchval(_IS_ABSENT, str(row["daemon"]))
        ended = await conn.fetch(_LOSE, row["daemon"], is_absent, long_ago, now)
        lost += [call["id"] for call in ended]
    return lost


async def get(
    conn: Conn,
    id: UUID,  # noqa: A002
    namespaces: Sequence[str] | None,
) -> dict[str, Any] | None:
    row = await conn.fetchrow(_GET, id, None if namespaces is None else list(namespaces))
    return None if row is None else dict(row)


async def page(conn: Conn, values: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return calls, newest first, without content.

    `values`: namespaces, mind, cycle, role, provider, state, before time, before id, limit.
    """
    return [dict(row) for row in await conn.fetch(_PAGE, *values)]


async def spend(
    conn: Conn, since: datetime, until: datetime, namespaces: Sequence[str] | None
) -> list[dict[str, Any]]:
    names = None if namespaces is None else list(namespaces)
    return [dict(row) for row in await conn.fetch(_SPEND, since, until, names)]

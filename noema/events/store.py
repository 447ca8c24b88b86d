"""All SQL of the log."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec

from noema.core.canonical import canonical_escaped, escape, escape_tree, unescape_tree
from noema.core.errors import IdempotencyReuse, InvalidInput, NoemaError, Unavailable
from noema.db.tx import Conn, connection_lost
from noema.events.model import INPUTS, Event, NewEvent
from noema.events.unit import Idempotency, Message, Unit

KEY_REUSED: Final = "This idempotency key came before with another body; use a new key."

# The wake-up and the rows travel together: a second round trip would cost as much as ten rows.
_APPEND = """
    WITH added AS (
        INSERT INTO cognitive_events
            (id, mind_id, cycle_id, type, occurred_at, actor, causes,
             data, content, salt, commitment)
        SELECT e.id, coalesce(e.mind, c.mind), coalesce(e.cycle, c.cycle), e.type,
               coalesce(e.occurred, c.occurred), coalesce(e.actor, c.actor),
               coalesce(e.causes, '{}'), e.data, e.content,
               decode(e.salt, 'base64'), decode(e.commitment, 'base64')
        FROM jsonb_to_record($1::jsonb)
                 AS c(mind uuid, cycle uuid, occurred timestamptz, actor text, events jsonb),
             jsonb_to_recordset(c.events)
                 AS e(id uuid, mind uuid, cycle uuid, type text, occurred timestamptz, actor text,
                      causes uuid[], data jsonb, content jsonb, salt text, commitment text)
    )
    SELECT pg_notify('noema_events', $2)
"""

_COMMIT = "SELECT ord, outcome, answer FROM noema_commit($1, $2, $3, $4)"

_COMMITTED = "SELECT id FROM cognitive_events WHERE id = ANY($1::uuid[])"

_AFTER = """
    SELECT seq, id, type, occurred_at, recorded_at, actor, mind_id, cycle_id, causes, data, content,
           salt, commitment
    FROM cognitive_events
    WHERE seq > $1 AND ($2::uuid IS NULL OR mind_id = $2) AND ($3::text IS NULL OR type = $3)
      AND ($5::uuid[] IS NULL OR mind_id IS NULL OR mind_id = ANY($5))
    ORDER BY seq LIMIT $4
"""

_BEFORE = """
    SELECT seq, id, type, occurred_at, recorded_at, actor, mind_id, cycle_id, causes, data, content,
           salt, commitment
    FROM cognitive_events
    WHERE seq < $1 AND ($2::uuid IS NULL OR mind_id = $2) AND ($3::text IS NULL OR type = $3)
      AND ($5::text IS NULL OR content::text ILIKE $5 ESCAPE '\\')
      AND ($6::timestamptz IS NULL OR recorded_at >= $6)
      AND ($7::timestamptz IS NULL OR recorded_at < $7)
      AND ($8::uuid[] IS NULL OR mind_id IS NULL OR mind_id = ANY($8))
    ORDER BY seq DESC LIMIT $4
"""

_STIMULI_AFTER = """
    SELECT seq, id, type, occurred_at, recorded_at, actor, mind_id, cycle_id, causes, data, content,
           salt, commitment
    FROM cognitive_events
    WHERE mind_id = $1 AND seq > $2 AND seq <= $3 AND type = 'stimulus.received'
    ORDER BY seq LIMIT $4
"""

# The types are spelt out, because only then does the planner know that the partial index serves.
_CONTROL_AFTER = """
    SELECT seq, id, type, occurred_at, recorded_at, actor, mind_id, cycle_id, causes, data, content,
           salt, commitment
    FROM cognitive_events
    WHERE mind_id = $1 AND seq > $2 AND seq <= $3
      AND type IN ('message.received', 'step.requested', 'mode.set', 'settings.set',
                   'goal.set', 'goal.closed')
    ORDER BY seq LIMIT $4
"""

_COUNT_STIMULI = """
    SELECT count(*) FROM (
        SELECT FROM cognitive_events
        WHERE mind_id = $1 AND seq > $2 AND type = 'stimulus.received' LIMIT $3
    ) waiting
"""

_AHEAD = """
    SELECT EXISTS (
               SELECT FROM cognitive_events
               WHERE mind_id = $1 AND seq > $2 AND type = 'step.requested'
           ) AS is_stepped,
           coalesce(bool_or((s.data ->> 'urgency')::bigint >= $4), false) AS is_urgent,
           coalesce(max(s.seq), $3) AS through
    FROM cognitive_events s
    WHERE s.mind_id = $1 AND s.seq > $3 AND s.type = 'stimulus.received'
"""

_GET = """
    SELECT seq, id, type, occurred_at, recorded_at, actor, mind_id, cycle_id, causes, data, content,
           salt, commitment
    FROM cognitive_events WHERE id = ANY($1::uuid[]) ORDER BY seq
"""

_OF_CYCLES = """
    SELECT seq, id, type, occurred_at, recorded_at, actor, mind_id, cycle_id, causes, data, content,
           salt, commitment
    FROM cognitive_events WHERE cycle_id = ANY($1::uuid[]) ORDER BY seq
"""

_CONSEQUENCES = """
    SELECT e.seq, e.id, e.type, e.occurred_at, e.recorded_at, e.actor, e.mind_id, e.cycle_id,
           e.causes, e.data, e.content, e.salt, e.commitment
    FROM derivations d JOIN cognitive_events e ON e.id = d.to_id
    WHERE d.from_id = $1 ORDER BY e.seq LIMIT $2
"""

_SOURCES = """
    SELECT d.kind, e.seq, e.id, e.type, e.occurred_at, e.recorded_at, e.actor, e.mind_id,
           e.cycle_id, e.causes, e.data, e.content, e.salt, e.commitment
    FROM derivations d JOIN cognitive_events e ON e.id = d.from_id
    WHERE d.to_id = $1 ORDER BY e.seq LIMIT $2
"""

_HEAD = "SELECT coalesce(max(seq), 0) FROM cognitive_events"

_SEARCH_LOG = """
    SELECT id, type, occurred_at, content ->> 'text' AS text FROM (
        SELECT id, type, occurred_at, content, seq FROM cognitive_events
        WHERE mind_id = $1 AND seq <= $2 AND type IN ('stimulus.received', 'thought.admitted')
        ORDER BY seq DESC LIMIT $4
    ) recent
    WHERE content ->> 'text' ILIKE ANY ($3::text[])
    ORDER BY seq DESC LIMIT $5
"""

_SAID_BEFORE = """
    SELECT id, type, occurred_at, text FROM (
        SELECT m.id, m.at AS occurred_at, m.text, m.seq,
               CASE WHEN m.cycle IS NULL THEN 'message.received' ELSE 'message.sent' END AS type
        FROM messages m
        WHERE m.mind_id = $1 AND m.conversation_id = $2
          AND m.seq < (SELECT seq FROM messages WHERE id = $3)
        ORDER BY m.seq DESC LIMIT $4
    ) newest ORDER BY seq
"""

_GET_CONSUMER = "SELECT position FROM event_consumers WHERE name = $1"

_SET_CONSUMER = """
    INSERT INTO event_consumers AS c (name, position) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET position = excluded.position, updated_at = clock_timestamp()
    WHERE c.position < excluded.position
"""

_LIMIT_SEARCH = "SELECT set_config('statement_timeout', $1, true)"

_CLAIM_KEY = """
    INSERT INTO idempotency_keys (scope, key, request_hash, response) VALUES ($1, $2, $3, $4)
    ON CONFLICT DO NOTHING RETURNING key
"""

_CLAIMED_KEY = "SELECT request_hash, response FROM idempotency_keys WHERE scope = $1 AND key = $2"

_KEEP_ANSWER = "UPDATE idempotency_keys SET response = $3 WHERE scope = $1 AND key = $2"

_PRUNE_KEYS = "DELETE FROM idempotency_keys WHERE created_at < $1"

_AUDIT = """
    INSERT INTO audit_log
        (id, occurred_at, actor, agent_id, op, target, namespace, result, content, salt, commitment)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
"""

# One document for many rows, as with events. A batch whose answer was lost is sent again whole.
_AUDIT_MANY = """
    INSERT INTO audit_log
        (id, occurred_at, actor, agent_id, op, target, namespace, result, content, salt, commitment)
    SELECT a.id, a.occurred_at, a.actor, a.agent_id, a.op, a.target, a.namespace, a.result,
           a.content, decode(a.salt, 'base64'), decode(a.commitment, 'base64')
    FROM jsonb_to_recordset($1::jsonb)
             AS a(id uuid, occurred_at timestamptz, actor text, agent_id text, op text,
                  target text, namespace text, result text, content jsonb, salt text,
                  commitment text)
    ON CONFLICT (id) DO NOTHING
"""

# `op` may name a whole group: `user` finds `user.create`.
_SEARCH_AUDIT = """
    SELECT seq, id, occurred_at, recorded_at, actor, agent_id, op, target, namespace, result,
           content, salt IS NULL AS is_redacted
    FROM audit_log
    WHERE seq < $1
      AND ($2::text IS NULL OR actor = $2)
      AND ($3::text IS NULL OR op = $3 OR starts_with(op, $3 || '.'))
      AND ($4::text IS NULL OR target = $4)
      AND ($5::text[] IS NULL OR namespace = ANY ($5))
      AND ($6::text IS NULL OR result = $6)
      AND ($7::timestamptz IS NULL OR occurred_at >= $7)
      AND ($8::timestamptz IS NULL OR occurred_at < $8)
    ORDER BY seq DESC LIMIT $9
"""

_AUDIT_COLUMNS: Final = (
    "id", "occurred_at", "actor", "agent_id", "op", "target", "namespace", "result", "content",
    "salt", "commitment",
)  # fmt: skip

_MOST_NAMED: Final = 150


def wake_payload(minds: Iterable[UUID]) -> str:
    """Return what NOTIFY carries: the minds that have new input, or `*` where they are too many."""
    names = sorted(map(str, minds))
    return ",".join(names) if len(names) <= _MOST_NAMED else "*"


class _Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An event on its way to the server, without what it shares with all of its unit."""

    id: UUID
    type: str
    data: Mapping[str, Any]
    content: msgspec.Raw
    salt: bytes
    commitment: bytes
    causes: Sequence[UUID] = ()
    mind: UUID | None = None
    cycle: UUID | None = None
    occurred: datetime | None = None
    actor: str | None = None


class _Rows(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Events with what is the same in all of them said once."""

    events: list[_Row]
    mind: UUID | None = None
    cycle: UUID | None = None
    occurred: datetime | None = None
    actor: str | None = None


_encode: Final = msgspec.json.Encoder().encode


def encode_events(events: Sequence[NewEvent]) -> bytes:
    """Return the events as the one document that the server takes apart again.

    One document costs a fifth of an array per column: the driver looks at every element of an array
    for arrays inside it.
    """
    first = events[0]
    # Tuples compare their elements by identity first, and mostly these are the very same objects.
    shared = (first.mind_id, first.cycle_id, first.occurred_at, first.actor)
    if all((e.mind_id, e.cycle_id, e.occurred_at, e.actor) == shared for e in events):
        rows = [
            _Row(
                id=e.id,
                type=e.type,
                data=e.data,
                content=msgspec.Raw(e.content),
                salt=e.salt,
                commitment=e.commitment,
                causes=e.causes,
            )
            for e in events
        ]
        mind, cycle, occurred, actor = shared
        return _encode(_Rows(events=rows, mind=mind, cycle=cycle, occurred=occurred, actor=actor))
    rows = [
        _Row(
            id=e.id,
            type=e.type,
            data=e.data,
            content=msgspec.Raw(e.content),
            salt=e.salt,
            commitment=e.commitment,
            causes=e.causes,
            mind=e.mind_id,
            cycle=e.cycle_id,
            occurred=e.occurred_at,
            actor=e.actor,
        )
        for e in events
    ]
    return _encode(_Rows(events=rows))


class Refused(Exception):  # noqa: N818
    """The server refused a statement while the connection holds.

    `is_duplicate`: an event of that id stands in the log already.
    """

    def __init__(self, cause: asyncpg.PostgresError) -> None:
        super().__init__(str(cause))
        self.error = refusal(cause)
        self.is_duplicate = isinstance(cause, asyncpg.UniqueViolationError)


async def append(conn: Conn, events: Sequence[NewEvent]) -> None:
    """Append as the last statement of an open transaction; see `noema.events.append`."""
    if not events:
        return
    wake = wake_payload(_woken(events))
    try:
        await conn.execute(_APPEND, msgspec.Raw(encode_events(events)), wake)
    except asyncpg.PostgresError as exc:
        raise refusal(exc) from exc


def _woken(events: Sequence[NewEvent]) -> set[UUID]:
    return {e.mind_id for e in events if e.type in INPUTS and e.mind_id is not None}


def refusal(exc: asyncpg.PostgresError) -> NoemaError:
    """Return what a refused append means to the caller."""
    if exc.sqlstate == "NE002":
        return InvalidInput(f"{exc.message}.".capitalize(), field="causes")
    if isinstance(exc, (asyncpg.DiskFullError, asyncpg.ReadOnlySQLTransactionError)):
        return Unavailable(f"The database cannot write now: {exc.message}. Nothing was kept.")
    return Unavailable(f"The database refused the append ({exc.sqlstate}). Nothing was kept.")


class UnitAnswer(msgspec.Struct, frozen=True):
    """How one unit of a batch fared: committed, lease_lost, repeated or key_reused."""

    outcome: str
    answer: Mapping[str, Any] | None = None


COMMITTED: Final = UnitAnswer("committed")


class EncodedUnit(msgspec.Struct, frozen=True, kw_only=True):
    """A unit as the server takes it; the unit itself is not needed any more."""

    first_id: UUID
    rows: int
    size: int
    description: bytes
    parts: frozenset[str]
    events: bytes
    woken: frozenset[UUID]


def encode(unit: Unit) -> EncodedUnit:
    """Return the unit encoded. Raises TypeError for what JSON cannot hold."""
    described = _describe(unit)
    description = _encode(described)
    events = encode_events(unit.events)
    return EncodedUnit(
        first_id=unit.events[0].id,
        rows=len(unit.events),
        size=len(description) + len(events),
        description=description,
        parts=frozenset(described),
        events=events,
        woken=frozenset(_woken(unit.events)),
    )


def _describe(unit: Unit) -> dict[str, Any]:
    described: dict[str, Any] = {}
    if unit.fence is not None:
        described |= {"mind": unit.fence.mind, "epoch": unit.fence.epoch}
    if unit.idempotency is not None:
        idem = unit.idempotency
        described["idem"] = {
            "scope": idem.scope,
            "key": escape(idem.key),
            "hash": idem.digest.hex(),
            "response": idem.response,
        }
    if unit.cycle is not None:
        cycle = unit.cycle
        update = {
            "number": cycle.number,
            "cursor": cycle.cursor,
            "at": cycle.at,
            "next_due": cycle.next_due,
            "mode": cycle.mode,
            "mode_epoch": cycle.mode_epoch,
            "mode_until": cycle.mode_until,
            "pending": cycle.pending,
            "workspace": msgspec.Raw(canonical_escaped(cycle.workspace)),
        }
        if cycle.state is not None:
            update["state"] = cycle.state
            update["state_version"] = cycle.state_version
        described["cycle"] = update
    if unit.messages:
        described["messages"] = [_describe_message(m) for m in unit.messages]
    if unit.intents:
        described["intents"] = [
            msgspec.to_builtins(i) | {"content": escape_tree(i.content)} for i in unit.intents
        ]
    if unit.acts:
        described["acts"] = unit.acts
    if unit.derivations:
        described["links"] = unit.derivations
    return described


def _describe_message(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "conversation": message.conversation,
        "mind": message.mind,
        "speaker": escape(message.speaker),
        "text": escape(message.text),
        "at": message.at,
        "in_reply_to": message.in_reply_to,
        "cycle": message.cycle,
    }


async def commit(conn: Conn, batch: Sequence[EncodedUnit]) -> list[UnitAnswer]:
    """Commit the batch in one server-side call; answers in the order of the units.

    Raises Refused, nothing kept, when the server refuses it; one bad unit refuses the whole batch.
    """
    descriptions = b"[" + b",".join([unit.description for unit in batch]) + b"]"
    parts = frozenset().union(*(unit.parts for unit in batch))
    woken = frozenset().union(*(unit.woken for unit in batch))
    try:
        rows = await conn.fetch(
            _COMMIT,
            msgspec.Raw(descriptions),
            sorted(parts),
            [msgspec.Raw(unit.events) for unit in batch],
            wake_payload(woken),
        )
    except asyncpg.PostgresError as exc:
        if connection_lost(exc, conn):
            raise
        raise Refused(exc) from exc
    refused = {row["ord"]: UnitAnswer(row["outcome"], row["answer"]) for row in rows}
    return [refused.get(place, COMMITTED) for place in range(1, len(batch) + 1)]


async def committed(conn: Conn, event_ids: Sequence[UUID]) -> set[UUID]:
    """Return those of the ids that stand in the log."""
    return {row["id"] for row in await conn.fetch(_COMMITTED, list(event_ids))}


def _event(row: asyncpg.Record) -> Event:
    return Event(
        seq=row["seq"],
        id=row["id"],
        type=row["type"],
        occurred_at=row["occurred_at"],
        recorded_at=row["recorded_at"],
        actor=row["actor"],
        mind_id=row["mind_id"],
        cycle_id=row["cycle_id"],
        causes=tuple(row["causes"]),
        data=row["data"],
        content=unescape_tree(row["content"]),
        salt=row["salt"],
        commitment=row["commitment"],
    )


async def after(
    conn: Conn,
    seq: int,
    *,
    mind: UUID | None,
    type_: str | None,
    limit: int,
    minds: Sequence[UUID] | None = None,
) -> list[Event]:
    return [_event(r) for r in await conn.fetch(_AFTER, seq, mind, type_, limit, minds)]


async def limit_search(conn: Conn, seconds: int) -> None:
    await conn.execute(_LIMIT_SEARCH, f"{seconds}s")


async def before(
    conn: Conn,
    seq: int,
    *,
    mind: UUID | None,
    type_: str | None,
    limit: int,
    text: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    minds: Sequence[UUID] | None = None,
) -> list[Event]:
    pattern = None if text is None else contains(escape(text))
    try:
        rows = await conn.fetch(_BEFORE, seq, mind, type_, limit, pattern, since, until, minds)
    except asyncpg.QueryCanceledError:
        raise InvalidInput(
            "The search took too long; narrow it by mind, type or time.", field="text"
        ) from None
    return [_event(r) for r in rows]


def contains(text: str) -> str:
    """Return the ILIKE pattern (with ESCAPE backslash) of texts that hold this one."""
    for special in ("\\", "%", "_"):
        text = text.replace(special, "\\" + special)
    return f"%{text}%"


async def stimuli_after(
    conn: Conn, mind: UUID, seq: int, *, through: int, limit: int
) -> list[Event]:
    return [_event(r) for r in await conn.fetch(_STIMULI_AFTER, mind, seq, through, limit)]


async def control_after(
    conn: Conn, mind: UUID, seq: int, *, through: int, limit: int
) -> list[Event]:
    return [_event(r) for r in await conn.fetch(_CONTROL_AFTER, mind, seq, through, limit)]


async def ahead(
    conn: Conn, mind: UUID, *, control: int, stimuli: int, urgency: int
) -> tuple[bool, bool, int]:
    row = await conn.fetchrow(_AHEAD, mind, control, stimuli, urgency)
    return (False, False, stimuli) if row is None else tuple(row)


async def count_stimuli(conn: Conn, mind: UUID, seq: int, *, at_most: int) -> int:
    return int(await conn.fetchval(_COUNT_STIMULI, mind, seq, at_most))


async def get(conn: Conn, ids: Sequence[UUID]) -> list[Event]:
    return [_event(r) for r in await conn.fetch(_GET, list(ids))]


async def of_cycles(conn: Conn, cycle_ids: Sequence[UUID]) -> list[Event]:
    return [_event(r) for r in await conn.fetch(_OF_CYCLES, list(cycle_ids))]


async def consequences(conn: Conn, event: UUID, *, limit: int) -> list[Event]:
    return [_event(r) for r in await conn.fetch(_CONSEQUENCES, event, limit)]


async def sources(conn: Conn, event: UUID, *, limit: int) -> list[tuple[str, Event]]:
    return [(r["kind"], _event(r)) for r in await conn.fetch(_SOURCES, event, limit)]


async def head(conn: Conn) -> int:
    return int(await conn.fetchval(_HEAD))


async def search_log(
    conn: Conn, mind: UUID, *, through: int, words: Sequence[str], scan: int, limit: int
) -> list[asyncpg.Record]:
    patterns = [contains(escape(word)) for word in words]
    return list(await conn.fetch(_SEARCH_LOG, mind, through, patterns, scan, limit))


async def said_before(
    conn: Conn, mind: UUID, conversation: UUID, *, before: UUID, limit: int
) -> list[asyncpg.Record]:
    return list(await conn.fetch(_SAID_BEFORE, mind, conversation, before, limit))


async def consumer_position(conn: Conn, name: str) -> int | None:
    position = await conn.fetchval(_GET_CONSUMER, name)
    return None if position is None else int(position)


async def set_consumer_position(conn: Conn, name: str, position: int) -> None:
    await conn.execute(_SET_CONSUMER, name, position)


async def claim_key(conn: Conn, wanted: Idempotency) -> Mapping[str, Any] | None:
    key = escape(wanted.key)
    if await conn.fetchval(_CLAIM_KEY, wanted.scope, key, wanted.digest, dict(wanted.response)):
        return None
    before = await answered(conn, wanted)
    if before is None:
        raise IdempotencyReuse(KEY_REUSED)
    return before


async def answered(conn: Conn, wanted: Idempotency) -> Mapping[str, Any] | None:
    row = await conn.fetchrow(_CLAIMED_KEY, wanted.scope, escape(wanted.key))
    if row is None:
        return None
    if bytes(row["request_hash"]) != wanted.digest:
        raise IdempotencyReuse(KEY_REUSED)
    response: Mapping[str, Any] = row["response"]
    return response


async def keep_answer(conn: Conn, claimed: Idempotency, response: Mapping[str, Any]) -> None:
    await conn.execute(_KEEP_ANSWER, claimed.scope, escape(claimed.key), response)


async def prune_keys(conn: Conn, older_than: datetime) -> None:
    await conn.execute(_PRUNE_KEYS, older_than)


async def audit(conn: Conn, values: Sequence[Any]) -> None:
    await conn.execute(_AUDIT, *values)


async def audit_many(conn: Conn, rows: Sequence[Sequence[Any]]) -> None:
    document = [dict(zip(_AUDIT_COLUMNS, row, strict=True)) for row in rows]
    try:
        await conn.execute(_AUDIT_MANY, document)
    except asyncpg.PostgresError as exc:
        if connection_lost(exc, conn):
            raise
        raise Unavailable(f"The audit log cannot be written: {exc}") from exc


async def search_audit(conn: Conn, *, values: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(row) for row in await conn.fetch(_SEARCH_AUDIT, *values)]

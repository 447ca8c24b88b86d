"""SQL of the write path.

The common write is one statement, and so a transaction of its own with nothing around it: the
memory, its vector, what it mentions and the audit row, all or nothing, in one round trip. What else
a write may need (a victim to close, sources, a place in a session, many rows) runs in a transaction
that somebody opened.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec

from noema.core.canonical import escape, escape_tree, unescape
from noema.core.errors import NotFound, Unavailable
from noema.db.tx import Conn
from noema.memory.decay import epoch_of
from noema.memory.draft import Draft
from noema.memory.model import Kind, Label, Route, Sensitivity

_CREDIBILITY_PER_RANK: Final = 20_000
_CHECKED: Final = frozenset({Kind.FACT, Kind.PREFERENCE})

# The audit row says what became of it: $42 to $44 where it was stored, $45 to $47 where the same
# was current already. Its target is the row that stands. $48 to $51 are what the label of that row
# has to be at least; where it is looser, or less trusted, nothing is done and nothing told.
_INSERT_ONE = """
    WITH kept AS (
        INSERT INTO memories AS m
            (id, namespace, kind, epistemic_kind, text, content, dedupe_key, terms, event_time,
             assertion_time, t_valid_from, supersedes, source, route, trust, actor, agent_id,
             extraction, sensitivity, pii, secrets, destinations, classifier, importance, salience,
             credibility, activation_epoch, conversation_id, session_id, position, speaker)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                $19, $20, $21, $22, $23, $24, $24, $25, $26, $27, $28, $29, $30)
        ON CONFLICT (namespace, dedupe_key) WHERE t_valid_to IS NULL AND status <> 'retracted'
        DO UPDATE SET repeat_count = m.repeat_count + 1, access_count = m.access_count + 1,
                      last_accessed_at = greatest(m.last_accessed_at, excluded.assertion_time)
        WHERE m.trust >= excluded.trust AND m.sensitivity = ANY($48::text[])
          AND m.destinations <@ $49::text[] AND m.pii @> $50::text[] AND m.secrets @> $51::text[]
        RETURNING m.id
    ), due AS (
        INSERT INTO conflict_checks (memory_id, due_at)
        SELECT id, $31 FROM kept WHERE id = $1 AND $31::timestamptz IS NOT NULL
    ), embedded AS (
        INSERT INTO memory_embeddings (memory_id, model, dims, namespace, kind, shelf, embedding)
        SELECT id, $32, $33, $2, $3, 'fresh', $34::text::real[] FROM kept
        WHERE id = $1 AND $32::text IS NOT NULL
    ), mentioned AS (
        INSERT INTO memory_entities (memory_id, entity_id, mention, how, confidence)
        SELECT kept.id, g.entity, g.mention, g.how, g.confidence
        FROM kept, unnest($35::uuid[], $36::text[], $37::text[], $38::int[])
            AS g (entity, mention, how, confidence)
        WHERE kept.id = $1
        ON CONFLICT DO NOTHING
    ), audited AS (
        INSERT INTO audit_log
            (id, occurred_at, actor, agent_id, op, target, namespace, result, content, salt,
             commitment)
        SELECT $39, $10, $16, $17, $40, coalesce($41, 'memory:' || id), $2, 'ok',
               CASE WHEN id = $1 THEN $42::jsonb ELSE $45::jsonb END,
               CASE WHEN id = $1 THEN $43::bytea ELSE $46::bytea END,
               CASE WHEN id = $1 THEN $44::bytea ELSE $47::bytea END
        FROM kept
    )
    SELECT id FROM kept
"""

# One document for many rows costs the driver a fifth of an array for each column. In the order of
# their keys, so that two that write the same ones cannot wait for each other.
_INSERT_MANY = """
    WITH given AS MATERIALIZED (
        SELECT g.*, decode(g.key64, 'base64') AS dedupe_key
        FROM jsonb_to_recordset($1::jsonb) AS g (
            ord int, id uuid, kind text, epistemic_kind text, text text, content jsonb, key64 text,
            terms text[], event_time timestamptz, extraction text, sensitivity text, pii text[],
            secrets text[], destinations text[], classifier text, importance int,
            conversation uuid, session uuid, position int, speaker text, slot int,
            is_checked boolean, supersedes uuid, since timestamptz, levels text[], allowed text[],
            least_pii text[], least_secrets text[])
    ), kept AS (
        INSERT INTO memories AS m
            (id, namespace, kind, epistemic_kind, text, content, dedupe_key, terms, event_time,
             assertion_time, t_valid_from, supersedes, source, route, trust, actor, agent_id,
             extraction, sensitivity, pii, secrets, destinations, classifier, importance, salience,
             credibility, activation_epoch, conversation_id, session_id, position, speaker)
        SELECT id, $2, kind, epistemic_kind, text, content, dedupe_key, terms, event_time,
               $3, coalesce(since, $3), supersedes, $4, $5, $6, $7, $8, extraction, sensitivity,
               pii, secrets, destinations, classifier, importance, importance, $9, $10,
               conversation, session, position, speaker
        FROM given ORDER BY dedupe_key
        ON CONFLICT (namespace, dedupe_key) WHERE t_valid_to IS NULL AND status <> 'retracted'
        DO UPDATE SET repeat_count = m.repeat_count + 1, access_count = m.access_count + 1,
                      last_accessed_at = greatest(m.last_accessed_at, excluded.assertion_time)
        WHERE m.trust >= excluded.trust AND (
            SELECT m.sensitivity = ANY(g.levels) AND m.destinations <@ g.allowed
                   AND m.pii @> g.least_pii AND m.secrets @> g.least_secrets
            FROM given g WHERE g.dedupe_key = excluded.dedupe_key)
        RETURNING m.id, m.dedupe_key
    ), due AS (
        INSERT INTO conflict_checks (memory_id, due_at)
        SELECT g.id, $3 FROM given g JOIN kept k ON k.id = g.id WHERE g.is_checked
    ), embedded AS (
        INSERT INTO memory_embeddings (memory_id, model, dims, namespace, kind, shelf, embedding)
        SELECT g.id, $11, $12, $2, g.kind, 'fresh',
               v.all_of_them[(g.slot - 1) * $12 + 1 : g.slot * $12]
        FROM given g JOIN kept k ON k.id = g.id, (SELECT $13::text::real[]) AS v (all_of_them)
        WHERE g.slot > 0
    )
    SELECT g.ord, k.id FROM given g JOIN kept k ON k.dedupe_key = g.dedupe_key
"""

# Guarded: of two that supersede the same memory, one closes no row. What follows begins where this
# one ends, whatever the clocks of two machines say.
_CLOSE = """
    UPDATE memories
    SET t_valid_to = greatest($3, t_valid_from)
    WHERE id = $1 AND namespace = $2 AND t_valid_to IS NULL AND status = 'active' AND trust <= $4
    RETURNING t_valid_to
"""

_PLACE = """
    SELECT trust, t_valid_to IS NULL AND status = 'active' AS is_current FROM memories
    WHERE id = $1 AND namespace = $2
"""

# What stands in the way of these keys, held until the end.
_STANDING = """
    SELECT id, dedupe_key, trust, sensitivity, pii, secrets, destinations, classifier FROM memories
    WHERE namespace = $1 AND dedupe_key = ANY($2::bytea[]) AND t_valid_to IS NULL
      AND status <> 'retracted'
    ORDER BY id FOR NO KEY UPDATE
"""

# Also one in quarantine: whoever is trusted more says the same, and is heard.
_OUTDO = """
    UPDATE memories SET t_valid_to = greatest($2, t_valid_from)
    WHERE id = $1 AND t_valid_to IS NULL RETURNING t_valid_to
"""

_LABEL = """
    UPDATE memories SET sensitivity = $2, pii = $3, secrets = $4, destinations = $5, classifier = $6
    WHERE id = $1
"""

# What was derived is not said to hold what was found in its source; it is as protected as that.
_TIGHTEN = """
    UPDATE memories m
    SET sensitivity = CASE WHEN m.sensitivity = ANY($3::text[]) THEN m.sensitivity ELSE $2 END,
        destinations = ARRAY(SELECT d FROM unnest(m.destinations) AS d WHERE d = ANY($4::text[]))
    WHERE m.id = ANY($1::uuid[])
      AND NOT (m.sensitivity = ANY($3::text[]) AND m.destinations <@ $4::text[])
    RETURNING m.namespace
"""

_SOURCES = """
    SELECT id, trust, sensitivity, destinations, status FROM memories
    WHERE id = ANY($1::uuid[]) AND (namespace = ANY($2::text[]) OR id = ANY($3::uuid[]))
"""

# Held to the end: whoever retracts one of them waits, and then finds what was derived.
_HOLD_SOURCES = """
    SELECT id, sensitivity, destinations FROM memories
    WHERE id = ANY($1::uuid[]) AND status <> 'retracted'
    ORDER BY id FOR SHARE
"""

_DERIVE = """
    INSERT INTO derivations (from_id, to_id, kind)
    SELECT s, t, 'memory.derived' FROM unnest($1::uuid[]) s, unnest($2::uuid[]) t
    ON CONFLICT DO NOTHING
"""

_TAKE = "SELECT pg_advisory_xact_lock(hashtextextended($1, 7308332246147735395))"

_LAST_TURN = """
    SELECT l.session_id, coalesce(l.event_time, l.assertion_time) AS at,
           (SELECT max(position) FROM memories WHERE session_id = l.session_id) AS position
    FROM (
        SELECT session_id, event_time, assertion_time FROM memories
        WHERE conversation_id = $1 AND session_id IS NOT NULL
        ORDER BY id DESC LIMIT 1
    ) l
"""

_COPIES = """
    SELECT id, dedupe_key, text, trust FROM memories
    WHERE namespace = $1 AND kind = $2 AND hashtextextended(source, 0) = hashtextextended($3, 0)
      AND source = $3 AND source <> '' AND t_valid_to IS NULL AND status = 'active'
    ORDER BY id DESC LIMIT 2
"""

_REPEAT = """
    UPDATE memories
    SET repeat_count = repeat_count + 1, access_count = access_count + 1,
        last_accessed_at = greatest(last_accessed_at, $2)
    WHERE id = $1 AND t_valid_to IS NULL AND status = 'active'
    RETURNING id
"""


class Again(Exception):  # noqa: N818
    """Somebody else changed what this transaction rests on: roll back and begin anew."""


class Writer(msgspec.Struct, kw_only=True):
    """What all memories of one request have in common; `now` is that of the transaction."""

    namespace: str
    actor: str
    agent_id: str
    source: str
    route: Route
    trust: int
    now: datetime
    model: str | None
    dims: int
    is_checked: bool


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The audit row of a single write, with both of the things it may say.

    `target` None means the memory. `stored` and `repeated` are content, salt and commitment each.
    """

    id: UUID
    op: str
    target: str | None
    stored: tuple[Any, bytes, bytes]
    repeated: tuple[Any, bytes, bytes]


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what the server refuses into Again, NotFound or Unavailable."""
    try:
        yield
    except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError) as exc:
        # "Moved to another partition" is one of these: a vector that somebody closes right now.
        raise Again from exc
    except asyncpg.UniqueViolationError as exc:
        if exc.constraint_name == "memories_session":
            raise Again from exc
        raise
    except asyncpg.ForeignKeyViolationError as exc:
        if exc.constraint_name == "memories_namespace_fkey":
            raise NotFound("namespace", "of yours") from exc
        # An entity or a source that was erased meanwhile.
        raise Again from exc
    except (asyncpg.DiskFullError, asyncpg.ReadOnlySQLTransactionError) as exc:
        raise Unavailable(
            f"The database cannot write now: {exc.args[0]}. Nothing was kept."
        ) from exc


async def insert_one(
    conn: Conn,
    draft: Draft,
    writer: Writer,
    links: Sequence[tuple[UUID, str, str, int]],
    line: Line,
) -> UUID | None:
    """Insert a memory with its vector, links and audit row; return the id of the row that stands.

    Another id than the draft's says that the same was current already. None says that it was, but
    less trusted or less protected than this one is: nothing was done. Links are (entity, mention,
    how, confidence).
    """
    label = draft.label
    has_vector = draft.vector is not None
    entities, names, hows, confidences = zip(*links, strict=True) if links else ((), (), (), ())
    with refusals():
        kept: UUID | None = await conn.fetchval(
            _INSERT_ONE,
            draft.id, writer.namespace, draft.kind, draft.epistemic_kind, escape(draft.text),
            escape_tree(draft.content), draft.key, draft.terms, draft.event_time, writer.now,
            draft.since or writer.now, draft.supersedes, escape(writer.source), writer.route,
            writer.trust, writer.actor,
            writer.agent_id, escape(draft.extraction), label.sensitivity, label.pii, label.secrets,
            label.destinations, label.classifier, draft.importance,
            writer.trust * _CREDIBILITY_PER_RANK, epoch_of(writer.now), draft.conversation,
            draft.session, draft.position,
            None if draft.speaker is None else escape(draft.speaker),
            writer.now if _is_due(draft, writer) else None,
            writer.model if has_vector else None, writer.dims if has_vector else None,
            None if draft.vector is None else _array(draft.vector),
            entities, [escape(name) for name in names], hows, confidences,
            line.id, line.op, line.target, *line.stored, *line.repeated,
            at_least(draft.binds.sensitivity), draft.binds.destinations, draft.binds.pii,
            draft.binds.secrets,
        )  # fmt: skip
    return kept


def _is_due(draft: Draft, writer: Writer) -> bool:
    return writer.is_checked and draft.kind in _CHECKED


def _array(values: Sequence[float]) -> str:
    # As text: of an array the driver asks of every element whether it is one itself.
    return "{" + msgspec.json.encode(values)[1:-1].decode() + "}"


async def insert_many(conn: Conn, drafts: Sequence[Draft], writer: Writer) -> Mapping[int, UUID]:
    """Insert memories with their vectors; return, by place in `drafts`, the id that stands.

    No two of them have the same key. One is missing where `insert_one` would return None.
    """
    vectors: list[float] = []
    document = []
    slots = 0
    for ord_, draft in enumerate(drafts):
        if draft.vector is not None:
            vectors.extend(draft.vector)
            slots += 1
        document.append(
            {
                "ord": ord_,
                "id": draft.id,
                "kind": draft.kind,
                "epistemic_kind": draft.epistemic_kind,
                "text": escape(draft.text),
                "content": escape_tree(draft.content),
                "key64": draft.key,
                "terms": draft.terms,
                "event_time": draft.event_time,
                "extraction": escape(draft.extraction),
                "sensitivity": draft.label.sensitivity,
                "pii": draft.label.pii,
                "secrets": draft.label.secrets,
                "destinations": draft.label.destinations,
                "classifier": draft.label.classifier,
                "importance": draft.importance,
                "conversation": draft.conversation,
                "session": draft.session,
                "position": draft.position,
                "speaker": None if draft.speaker is None else escape(draft.speaker),
                "slot": slots if draft.vector is not None else 0,
                "is_checked": _is_due(draft, writer),
                "supersedes": draft.supersedes,
                "since": draft.since,
                "levels": at_least(draft.binds.sensitivity),
                "allowed": draft.binds.destinations,
                "least_pii": draft.binds.pii,
                "least_secrets": draft.binds.secrets,
            }
        )
    with refusals():
        rows = await conn.fetch(
            _INSERT_MANY, document, writer.namespace, writer.now, escape(writer.source),
            writer.route, writer.trust, writer.actor, writer.agent_id,
            writer.trust * _CREDIBILITY_PER_RANK, epoch_of(writer.now), writer.model, writer.dims,
            _array(vectors),
        )  # fmt: skip
    return {row["ord"]: row["id"] for row in rows}


async def close(
    conn: Conn, id_: UUID, namespace: str, at: datetime, *, trust: int
) -> datetime | None:
    """Close a current memory of the namespace, trusted no more than that; return since when.

    None where there is none.
    """
    with refusals():
        closed: datetime | None = await conn.fetchval(_CLOSE, id_, namespace, at, trust)
    return closed


async def place(conn: Conn, id_: UUID, namespace: str) -> asyncpg.Record | None:
    """Return `trust, is_current` of a memory of the namespace."""
    return await conn.fetchrow(_PLACE, id_, namespace)


async def standing(
    conn: Conn, namespace: str, keys: Sequence[bytes]
) -> list[tuple[UUID, bytes, int, Label]]:
    """Return id, key, trust and label of what is current, or disputed, under these keys; held."""
    with refusals():
        rows = await conn.fetch(_STANDING, namespace, list(keys))
    return [(row["id"], bytes(row["dedupe_key"]), row["trust"], _label_of(row)) for row in rows]


def _label_of(row: asyncpg.Record) -> Label:
    return Label(
        sensitivity=Sensitivity(row["sensitivity"]),
        pii=tuple(row["pii"]),
        secrets=tuple(row["secrets"]),
        destinations=tuple(row["destinations"]),
        classifier=row["classifier"],
    )


async def outdo(conn: Conn, id_: UUID, at: datetime) -> datetime | None:
    """Close a row that is held; return since when."""
    with refusals():
        closed: datetime | None = await conn.fetchval(_OUTDO, id_, at)
    return closed


async def label(conn: Conn, id_: UUID, new: Label) -> None:
    """Give a row that is held another label."""
    await conn.execute(
        _LABEL, id_, new.sensitivity, new.pii, new.secrets, new.destinations, new.classifier
    )


async def tighten(conn: Conn, ids: Sequence[UUID], as_is: Label) -> list[str]:
    """Protect rows that are held no less than that; return the namespace of each that changed."""
    rows = await conn.fetch(
        _TIGHTEN, list(ids), as_is.sensitivity, at_least(as_is.sensitivity), as_is.destinations
    )
    return [row["namespace"] for row in rows]


def at_least(level: Sensitivity) -> list[str]:
    """Return the levels that are no less strict."""
    levels = [str(one) for one in Sensitivity]
    return levels[levels.index(level) :]


async def sources(
    conn: Conn, ids: Sequence[UUID], namespaces: Sequence[str], memories: Sequence[UUID]
) -> list[asyncpg.Record]:
    """Return `id, trust, sensitivity, destinations, status` of those that may be read."""
    return list(await conn.fetch(_SOURCES, list(ids), list(namespaces), list(memories)))


async def hold_sources(conn: Conn, ids: Sequence[UUID]) -> dict[UUID, Label]:
    """Return how those that are not retracted are protected, and keep them so until the end."""
    with refusals():
        rows = await conn.fetch(_HOLD_SOURCES, list(ids))
    return {
        row["id"]: Label(
            sensitivity=Sensitivity(row["sensitivity"]), destinations=tuple(row["destinations"])
        )
        for row in rows
    }


async def derive(conn: Conn, from_ids: Sequence[UUID], to_ids: Sequence[UUID]) -> None:
    await conn.execute(_DERIVE, list(from_ids), list(to_ids))


async def take(conn: Conn, name: str) -> None:
    """Be the only one with this name until the transaction ends."""
    await conn.execute(_TAKE, name)


async def last_turn(conn: Conn, conversation: UUID) -> asyncpg.Record | None:
    """Return `session_id, at, position` of the conversation's last turn."""
    return await conn.fetchrow(_LAST_TURN, conversation)


async def copies(
    conn: Conn, namespace: str, kind: str, source: str
) -> list[tuple[UUID, bytes, str, int]]:
    """Return id, key, text and trust of the current memories of a kind and source: two at most."""
    rows = await conn.fetch(_COPIES, namespace, kind, escape(source))
    return [
        (row["id"], bytes(row["dedupe_key"]), unescape(row["text"]), row["trust"]) for row in rows
    ]


async def repeat(conn: Conn, id_: UUID, at: datetime) -> bool:
    """Count one more write of what a memory says; False where it is not current any more."""
    with refusals():
        return await conn.fetchval(_REPEAT, id_, at) is not None

"""SQL of embedding models and of the vectors that are computed in the background."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Final
from uuid import UUID

import asyncpg

from noema.core.canonical import unescape
from noema.core.errors import Unavailable
from noema.db.tx import Tx

# Before the first id when one goes down from the newest.
TOP: Final = UUID(int=(1 << 128) - 1)
BOTTOM: Final = UUID(int=0)
_ACTIVATING: Final = 0x6E6F656D63  # "noemc"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A model that has been used, and how far its vectors are complete."""

    model: str
    dims: int
    is_active: bool
    fill_after: UUID | None
    filled: int
    wanted: int
    state: str
    reason: str
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A stretch of memories that was looked through: those without a vector, and where it ends."""

    missing: tuple[tuple[UUID, str], ...]
    end: UUID | None


_COLUMNS_OF_ALL = """
    SELECT model, dims, is_active, fill_after, filled, wanted, state, reason, updated_at
    FROM embedding_models ORDER BY is_active DESC, model
"""


async def models(tx: Tx) -> tuple[ModelRow, ...]:
    """Return every model on record, the active one first."""
    return tuple(ModelRow(**row) for row in await tx.conn.fetch(_COLUMNS_OF_ALL))


_DIMS = "SELECT dims FROM embedding_models WHERE model = $1"


async def dims_of(tx: Tx, model: str) -> int | None:
    """Return the length of that model's vectors, None where it was never used."""
    found: int | None = await tx.conn.fetchval(_DIMS, model)
    return found


# One at a time: of two daemons that start with different models the later wins, without an error.
_ONE_ACTIVATES = "SELECT pg_advisory_xact_lock($1)"

_ADD_MODEL = """
    INSERT INTO embedding_models (model, dims, updated_at) VALUES ($1, $2, $3)
    ON CONFLICT (model) DO NOTHING
"""

_DEACTIVATE = """
    UPDATE embedding_models SET is_active = false, state = 'idle', updated_at = $2
    WHERE is_active AND model IS DISTINCT FROM $1
"""

_ACTIVATE = """
    UPDATE embedding_models SET is_active = true, updated_at = $2 WHERE model = $1 AND NOT is_active
"""


async def activate(tx: Tx, model: str, dims: int) -> int:
    """Make the model the active one unless it is known with other dims; return those on record."""
    await tx.conn.execute(_ONE_ACTIVATES, _ACTIVATING)
    await tx.conn.execute(_ADD_MODEL, model, dims, tx.now)
    known: int = await tx.conn.fetchval(_DIMS, model)
    if known == dims:
        await tx.conn.execute(_DEACTIVATE, model, tx.now)
        await tx.conn.execute(_ACTIVATE, model, tx.now)
    return known


async def deactivate(tx: Tx) -> None:
    """Leave no model active."""
    await tx.conn.execute(_ONE_ACTIVATES, _ACTIVATING)
    await tx.conn.execute(_DEACTIVATE, None, tx.now)


# Counted anew when a sweep begins and when it ends: in between, writers add vectors of their own.
_COUNT = """
    UPDATE embedding_models SET
        wanted = (SELECT count(*) FROM memories
                  WHERE NOT $2::boolean OR 'provider' = ANY(destinations)),
        filled = (SELECT count(DISTINCT memory_id) FROM memory_embeddings WHERE model = $1),
        state = $3, reason = $4, updated_at = $5
    WHERE model = $1
    RETURNING fill_after
"""


async def count(
    tx: Tx, model: str, *, to_provider: bool, state: str, reason: str = ""
) -> UUID | None:
    """Count what is wanted and what is there; return where an earlier sweep came to."""
    found: UUID | None = await tx.conn.fetchval(_COUNT, model, to_provider, state, reason, tx.now)
    return found


_SAY = """
    UPDATE embedding_models SET state = $2, reason = $3, updated_at = $4
    WHERE model = $1 AND (state, reason) IS DISTINCT FROM ($2, $3)
"""


async def say(tx: Tx, model: str, state: str, reason: str) -> None:
    """Put on record how the filling goes."""
    await tx.conn.execute(_SAY, model, state, reason, tx.now)


# The lock makes the stretches of several daemons follow each other instead of overlapping.
_CURSOR = "SELECT coalesce(fill_after, $2) FROM embedding_models WHERE model = $1 FOR UPDATE"

# Looks at a bounded number of rows, however few lack a vector, and stops when it has enough.
# OFFSET 0 keeps it a look into the index for each row: joined, it would read all vectors each time.
# What may not leave this machine is no candidate for a model that is elsewhere.
_MISSING = """
    SELECT p.id, p.text
    FROM (SELECT id, text, destinations FROM memories
          WHERE id < $2 ORDER BY id DESC LIMIT $3) p
    WHERE (NOT $5::boolean OR 'provider' = ANY(p.destinations)) AND NOT EXISTS (
        SELECT FROM memory_embeddings e WHERE e.memory_id = p.id AND e.model = $1 OFFSET 0)
    ORDER BY p.id DESC LIMIT $4
"""

_END_OF_PAGE = "SELECT id FROM memories WHERE id < $1 ORDER BY id DESC OFFSET $2 - 1 LIMIT 1"

_MOVE_CURSOR = "UPDATE embedding_models SET fill_after = $2 WHERE model = $1"


async def claim(tx: Tx, model: str, *, look_at: int, take: int, to_provider: bool) -> Page:
    """Look through the next `look_at` memories, newest first; take up to `take` without a vector.

    The cursor moves past them, so that nobody else takes them too. At the end it goes back to the
    top and the page has no `end`.
    """
    cursor = await tx.conn.fetchval(_CURSOR, model, TOP)
    if cursor is None:
        return Page(missing=(), end=None)
    rows = await tx.conn.fetch(_MISSING, model, cursor, look_at, take, to_provider)
    missing = tuple((row["id"], unescape(row["text"])) for row in rows)
    end: UUID | None
    if len(missing) == take:
        end = missing[-1][0]
    else:
        end = await tx.conn.fetchval(_END_OF_PAGE, cursor, look_at)
        if end is None and missing:
            end = BOTTOM
    await tx.conn.execute(_MOVE_CURSOR, model, end)
    return Page(missing=missing, end=end)


# Held until the commit, so that of two who fill the second sees what the first one stored.
_LOCK_MODEL = "SELECT true FROM embedding_models WHERE model = $1 FOR UPDATE"

# The shelf is read from rows that are locked against being closed meanwhile: who waits for one that
# is just being closed sees it closed, and who closes one after us moves what we stored.
_INSERT = """
    WITH added AS (
        INSERT INTO memory_embeddings (memory_id, model, dims, namespace, kind, shelf, embedding)
        SELECT m.id, $2, $3::int, m.namespace, m.kind,
               CASE WHEN m.t_valid_to IS NULL AND m.status = 'active'
                    THEN 'fresh' ELSE 'closed' END,
               ($4::real[])[(v.n - 1) * $3::int + 1 : v.n * $3::int]
        FROM unnest($1::uuid[]) WITH ORDINALITY v(id, n) JOIN memories m ON m.id = v.id
        WHERE NOT EXISTS (
            SELECT FROM memory_embeddings e WHERE e.memory_id = m.id AND e.model = $2)
        ORDER BY v.n
        FOR SHARE OF m
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), said AS (SELECT count(*) AS n FROM added)
    UPDATE embedding_models
    SET filled = filled + said.n, state = 'filling', reason = '', updated_at = $5
    FROM said WHERE model = $2
    RETURNING said.n
"""


async def insert(
    tx: Tx, model: str, dims: int, vectors: Sequence[tuple[UUID, Sequence[float]]]
) -> int:
    """Store vectors of memories that have none of the model; return how many there were.

    A memory that is gone is left out. Raises Unavailable where others hold the memories in a way
    that only trying again resolves.
    """
    if await tx.conn.fetchval(_LOCK_MODEL, model) is None:
        return 0
    flat = list(chain.from_iterable(vector for _, vector in vectors))
    try:
        added: int = await tx.conn.fetchval(
            _INSERT, [memory for memory, _ in vectors], model, dims, flat, tx.now
        )
    except asyncpg.DeadlockDetectedError as exc:
        raise Unavailable("Others changed the same memories at once; tried again soon.") from exc
    return added


_DROP_SOME = """
    WITH gone AS (
        DELETE FROM memory_embeddings
        WHERE model = $1 AND (memory_id, shelf) IN (
            SELECT memory_id, shelf FROM memory_embeddings WHERE model = $1 LIMIT $2)
        RETURNING 1
    )
    SELECT count(*) FROM gone
"""


async def drop_some(tx: Tx, model: str, most: int) -> int:
    """Delete up to `most` vectors of the model; return how many."""
    gone: int = await tx.conn.fetchval(_DROP_SOME, model, most)
    return gone


_FORGET = "DELETE FROM embedding_models WHERE model = $1 AND NOT is_active"


async def forget(tx: Tx, model: str) -> None:
    """Take the model off the record, unless it is the active one."""
    await tx.conn.execute(_FORGET, model)

"""The append-only log: the one place to add to it inside a transaction, and to read from it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from noema.core.canonical import unescape
from noema.core.errors import NotFound
from noema.db.tx import Database, Tx
from noema.events import store
from noema.events.model import Event, NewEvent
from noema.events.unit import Idempotency

KEEP_KEYS: Final = timedelta(days=7)
_SCANNED_LINES: Final = 5_000
_SEARCH_WITHIN_S: Final = 5
_END: Final = 2**62


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line found in a mind's log: a stimulus or a thought."""

    id: UUID
    type: str
    at: datetime
    text: str


class EventLog:
    """Appends within a transaction, reads by position. Positions grow and may have gaps."""

    def __init__(self, *, db: Database) -> None:
        self._db = db

    async def append(self, tx: Tx, events: Sequence[NewEvent]) -> None:
        """Append as the last statement of the transaction: it takes the lock that orders the log.

        Raises InvalidInput when a cause does not exist. Where a transaction has no other work, use
        the writer instead; it shares the lock among many.
        """
        await store.append(tx.conn, events)

    async def claim(self, tx: Tx, idempotency: Idempotency) -> Mapping[str, Any] | None:
        """Take the key for this transaction; return what was answered where it came before.

        Raises IdempotencyReuse where it came with another body. Two that come at once wait for
        each other, and the second is told what the first did.
        """
        return await store.claim_key(tx.conn, idempotency)

    async def answered(self, idempotency: Idempotency) -> Mapping[str, Any] | None:
        """Return what was answered when the key came before, None where it did not.

        Raises IdempotencyReuse as `claim` does, and claims nothing.
        """
        async with self._db.reading() as tx:
            return await store.answered(tx.conn, idempotency)

    async def answer(self, tx: Tx, idempotency: Idempotency, response: Mapping[str, Any]) -> None:
        """Keep the (escaped) answer of a key that this transaction has claimed."""
        await store.keep_answer(tx.conn, idempotency, response)

    async def after(
        self,
        seq: int,
        *,
        mind: UUID | None = None,
        type_: str | None = None,
        minds: Sequence[UUID] | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """Return the next events after the position, oldest first.

        With `minds` only theirs, and those of no mind.
        """
        async with self._db.reading() as tx:
            return await store.after(tx.conn, seq, mind=mind, type_=type_, minds=minds, limit=limit)

    async def before(
        self,
        seq: int | None = None,
        *,
        mind: UUID | None = None,
        type_: str | None = None,
        text: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        minds: Sequence[UUID] | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """Return the events before the position (the newest where None), newest first.

        With `minds` only theirs, and those of no mind. Raises InvalidInput where a search for a
        text takes longer than five seconds.
        """
        async with self._db.reading() as tx:
            if text is not None:
                await store.limit_search(tx.conn, _SEARCH_WITHIN_S)
            return await store.before(
                tx.conn,
                _END if seq is None else seq,
                mind=mind,
                type_=type_,
                limit=limit,
                text=text,
                since=since,
                until=until,
                minds=minds,
            )

    async def waiting(
        self, mind: UUID, *, control: int, stimuli: int, most_control: int, most_stimuli: int
    ) -> tuple[list[Event], list[Event]]:
        """Return what the mind has not observed after the two positions: control, stimuli."""
        async with self._db.reading() as tx:
            return (
                await store.control_after(tx.conn, mind, control, through=_END, limit=most_control),
                await store.stimuli_after(tx.conn, mind, stimuli, through=_END, limit=most_stimuli),
            )

    async def ahead(
        self, mind: UUID, *, control: int, stimuli: int, urgency: int
    ) -> tuple[bool, bool, int]:
        """Return what calls after the two positions, however much stands before it.

        Whether a step was requested, whether a stimulus is as urgent as that, and the position up
        to which stimuli were looked at.
        """
        async with self._db.reading() as tx:
            return await store.ahead(
                tx.conn, mind, control=control, stimuli=stimuli, urgency=urgency
            )

    async def stimuli_between(
        self, mind: UUID, after: int, through: int, *, limit: int
    ) -> list[Event]:
        """Return the mind's stimuli after one position and up to another, oldest first."""
        async with self._db.reading() as tx:
            return await store.stimuli_after(tx.conn, mind, after, through=through, limit=limit)

    async def control_between(
        self, mind: UUID, after: int, through: int, *, limit: int
    ) -> list[Event]:
        """Return what people sent the mind after one position and up to another, oldest first."""
        async with self._db.reading() as tx:
            return await store.control_after(tx.conn, mind, after, through=through, limit=limit)

    async def count_waiting(self, mind: UUID, seq: int, *, at_most: int = 100_000) -> int:
        """Return how many stimuli after the position wait for the mind, counted to `at_most`."""
        async with self._db.reading() as tx:
            return await store.count_stimuli(tx.conn, mind, seq, at_most=at_most)

    async def get(self, event_id: UUID) -> Event:
        """Return the event, or raise NotFound."""
        found = await self.get_many([event_id])
        if not found:
            raise NotFound("event", event_id)
        return found[0]

    async def get_many(self, ids: Sequence[UUID]) -> list[Event]:
        """Return those events that exist, in the order of the log."""
        async with self._db.reading() as tx:
            return await store.get(tx.conn, ids)

    async def of_cycles(self, cycle_ids: Sequence[UUID]) -> list[Event]:
        """Return all events of the cycles, in the order of the log."""
        async with self._db.reading() as tx:
            return await store.of_cycles(tx.conn, cycle_ids)

    async def sources(self, event_id: UUID, *, limit: int = 200) -> list[tuple[str, Event]]:
        """Return what the event was derived from, each with the kind of the link."""
        async with self._db.reading() as tx:
            return await store.sources(tx.conn, event_id, limit=limit)

    async def consequences(self, event_id: UUID, *, limit: int = 200) -> list[Event]:
        """Return what was derived from the event."""
        async with self._db.reading() as tx:
            return await store.consequences(tx.conn, event_id, limit=limit)

    async def head(self) -> int:
        """Return the position of the newest event, 0 where there is none."""
        async with self._db.reading() as tx:
            return await store.head(tx.conn)

    async def search(
        self, mind: UUID, words: Sequence[str], *, through: int, limit: int
    ) -> list[LogLine]:
        """Return the mind's newest stimuli and thoughts that hold any of the words.

        It looks at the newest 5,000 up to the position, so that the answer can be repeated.
        """
        if not words:
            return []
        async with self._db.reading() as tx:
            rows = await store.search_log(
                tx.conn, mind, through=through, words=words, scan=_SCANNED_LINES, limit=limit
            )
        return [
            LogLine(id=r["id"], type=r["type"], at=r["occurred_at"], text=unescape(r["text"] or ""))
            for r in rows
        ]

    async def said_before(
        self, mind: UUID, conversation: UUID, *, before: UUID, limit: int
    ) -> list[LogLine]:
        """Return what was said in the conversation before that message, oldest first.

        At most the newest so many; what the mind said is a `message.sent`. What comes later changes
        nothing of the answer.
        """
        async with self._db.reading() as tx:
            rows = await store.said_before(tx.conn, mind, conversation, before=before, limit=limit)
        return [
            LogLine(id=r["id"], type=r["type"], at=r["occurred_at"], text=unescape(r["text"]))
            for r in rows
        ]

    async def prune_keys(self, now: datetime) -> None:
        """Forget idempotency keys older than seven days."""
        async with self._db.transaction() as tx:
            await store.prune_keys(tx.conn, now - KEEP_KEYS)

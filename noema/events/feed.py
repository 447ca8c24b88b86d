"""Following the log: durable consumers by position, and a live tail shared by many watchers.

NOTIFY only says "look"; what is read comes from the log by position, and a poll behind it sees
what no notification announced. The tail is read once for all watchers and kept in a short ring; a
watcher that falls out of the ring reads from the log itself, so a slow one loses nothing. While
nobody watches nothing is read.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final
from uuid import UUID

import structlog

from noema.core.errors import Unavailable
from noema.db.listen import Listener
from noema.db.tx import Database
from noema.events import store
from noema.events.log import EventLog
from noema.events.model import Event

log = structlog.get_logger()

POLL_S: Final = 2.0
RING_EVENTS: Final = 1_000
_PAGE: Final = 500


class Feed:
    """The live end of the log. `run` must be running for `follow` to see new events."""

    def __init__(self, *, log: EventLog, listener: Listener) -> None:
        self._log = log
        self._listener = listener
        self._ring: deque[Event] = deque(maxlen=RING_EVENTS)
        self._head = -1
        self._ring_from = 0
        self._ready = asyncio.Event()
        self._wanted = asyncio.Event()
        self._turn: asyncio.Future[None] | None = None
        self._closed = False
        self.watchers = 0
        self.is_lagging = False

    @property
    def head(self) -> int:
        """The newest position this process has seen."""
        return max(self._head, 0)

    async def run(self) -> None:
        """Read the log as it grows, until cancelled."""
        wake = self._listener.subscribe()
        while not self._closed:
            try:
                if self.watchers:
                    await self._read_on()
                else:
                    self._forget()
                    self._wanted.clear()
                self.is_lagging = False
            except (Unavailable, TimeoutError) as exc:
                self.is_lagging = True
                log.warning("feed_waits", reason=str(exc))
            if self.watchers:
                await wake.wait(POLL_S)
            else:
                await self._wanted.wait()

    def _forget(self) -> None:
        self._ring.clear()
        self._head = -1
        self._ready.clear()

    def close(self) -> None:
        """End every follower, so that their connections can end in good order."""
        self._closed = True
        self._wanted.set()
        self._ready.set()
        self._wake_followers()

    async def _read_on(self) -> None:
        if self._head < 0:
            self._head = self._ring_from = await self._log.head()
            self._ready.set()
        while True:
            events = await self._log.after(self._head, limit=_PAGE)
            if not events:
                return
            if len(self._ring) + len(events) > RING_EVENTS:
                spilled = len(self._ring) + len(events) - RING_EVENTS
                self._ring_from = (
                    self._ring[spilled - 1].seq if spilled <= len(self._ring) else events[0].seq - 1
                )
            self._ring.extend(events)
            self._head = events[-1].seq
            self._wake_followers()
            if len(events) < _PAGE:
                return

    def _wake_followers(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None and not turn.done():
            turn.set_result(None)

    async def _next_turn(self, seen: int, timeout_s: float | None) -> bool:
        # The ring may have moved on while the follower was writing; only then is there no wait.
        if self._head > seen or self._closed:
            return True
        if self._turn is None:
            self._turn = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._turn)
        except TimeoutError:
            return False
        return True

    async def follow(
        self,
        after: int | None,
        *,
        mind: UUID | None = None,
        type_: str | None = None,
        idle_s: float | None = None,
    ) -> AsyncGenerator[Event | None, None]:
        """Yield every event after the position (from now on where None), as it comes.

        Nothing is missed and nothing comes twice, however slow the caller is. With `idle_s` it
        yields None whenever nothing came for that long. It ends when the feed is closed.
        """
        self.watchers += 1
        self._wanted.set()
        try:
            await self._ready.wait()
            seen = self._head if after is None else after
            while not self._closed:
                if seen < self._ring_from:
                    # What is committed up to the head now is seen by the query that follows.
                    horizon = self._head
                    page = await self._log.after(seen, mind=mind, type_=type_, limit=_PAGE)
                    for event in page:
                        yield event
                    last = page[-1].seq if page else 0
                    seen = last if len(page) == _PAGE else max(last, horizon)
                elif fresh := self._fresh(seen):
                    for event in fresh:
                        if mind in (None, event.mind_id) and type_ in (None, event.type):
                            yield event
                    seen = fresh[-1].seq
                elif not await self._next_turn(seen, idle_s):
                    yield None
        finally:
            self.watchers -= 1

    def _fresh(self, seen: int) -> list[Event]:
        fresh: list[Event] = []
        for event in reversed(self._ring):
            if event.seq <= seen:
                break
            fresh.append(event)
        fresh.reverse()
        return fresh


class Consumers:
    """Durable readers: each has a name and a position that survives a restart."""

    def __init__(self, *, db: Database, log: EventLog) -> None:
        self._db = db
        self._log = log

    async def position(self, name: str) -> int:
        """Return how far the consumer has come, 0 where it is new."""
        async with self._db.reading() as tx:
            return await store.consumer_position(tx.conn, name) or 0

    async def drain(self, name: str, handle: Callable[[Event], Awaitable[None]]) -> int:
        """Hand every event after the consumer's position to `handle`, in order; return how many.

        The position is kept after each page, so after a crash the last page may come again: at
        least once. It never moves back, also when two run at a time.
        """
        done = 0
        seq = await self.position(name)
        while events := await self._log.after(seq, limit=_PAGE):
            for event in events:
                await handle(event)
            seq = events[-1].seq
            done += len(events)
            async with self._db.transaction() as tx:
                await store.set_consumer_position(tx.conn, name, seq)
        return done

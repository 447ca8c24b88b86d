"""Wake-ups: NOTIFY says that something may have changed, the database says what.

Nothing is carried by a notification, so losing one must not matter: everybody is woken on every
connect as well, and a subscriber reads after every wake-up and after every time-out.

    Subscribe, then read, then wait, then read, ...

In this order no change falls between reading and waiting.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import asyncpg
import structlog

from noema.core.clock import Clock
from noema.core.errors import Unavailable

log = structlog.get_logger(__name__)

_FIRST_BACKOFF_S: Final = 0.1
_LONGEST_BACKOFF_S: Final = 10.0
# Under a storm of notifications a thousand subscribers are woken a hundred times a second, not
# once for each; the first of a storm is passed on at once.
_SHORTEST_GAP_S: Final = 0.01
# A connection that died without a word (a firewall, a pulled cable) is found out by asking.
_HEARTBEAT_S: Final = 30.0
_ANSWER_S: Final = 10.0

Connect = Callable[[], AbstractAsyncContextManager["asyncpg.Connection[asyncpg.Record]"]]


class Subscription:
    """One watcher's place in the sequence of wake-ups; needs no closing."""

    __slots__ = ("_listener", "_seen")

    def __init__(self, listener: "Listener") -> None:
        self._listener = listener
        self._seen = listener.wakes

    async def wait(self, timeout_s: float) -> bool:
        """Return True once woken since the last call (at once if already), False on time-out."""
        if self._seen == self._listener.wakes:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._listener.next_wake()
            except TimeoutError:
                return False
        self._seen = self._listener.wakes
        return True


class Listener:
    """LISTEN on one channel over one connection, for any number of subscribers in this process."""

    def __init__(
        self,
        connect: Connect,
        channel: str,
        *,
        clock: Clock,
        on_payload: Callable[[str], None] | None = None,
    ) -> None:
        """`connect` opens a dedicated connection, for example `lambda: single(dsn)`.

        `on_payload` is called at once with what each notification says, and with `*` on every
        connect, when any number may have been missed.
        """
        self._connect = connect
        self._on_payload = on_payload
        self._channel = channel
        self._clock = clock
        # One event stands for the next wake-up of everybody: waiting registers nothing that would
        # have to be removed again, and waking is one call.
        self._next = asyncio.Event()
        self._stirred = asyncio.Event()
        self._lost = False
        self.wakes = 0
        self.connected = False

    def subscribe(self) -> Subscription:
        """Return a subscription that is woken by everything from now on."""
        return Subscription(self)

    async def next_wake(self) -> None:
        """Return at the next wake-up."""
        await self._next.wait()

    async def run(self) -> None:
        """Listen until cancelled, reconnecting with a capped back-off; never raises Unavailable."""
        backoff_s = _FIRST_BACKOFF_S
        while True:
            try:
                async with self._connect() as conn:
                    await self._listen(conn)
                    backoff_s = _FIRST_BACKOFF_S
                    await self._relay(conn)
            except (Unavailable, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
                log.warning("listening_lost", channel=self._channel, reason=str(exc))
            finally:
                self.connected = False
            await self._clock.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _LONGEST_BACKOFF_S)

    async def _listen(self, conn: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._lost = False
        conn.add_termination_listener(self._on_lost)
        await conn.add_listener(self._channel, self._on_notify)
        self.connected = True
        if self._on_payload is not None:
            self._on_payload("*")
        self._wake()

    async def _relay(self, conn: "asyncpg.Connection[asyncpg.Record]") -> None:
        """Pass wake-ups on until the connection is lost."""
        while not self._lost:
            try:
                async with asyncio.timeout(_HEARTBEAT_S):
                    await self._stirred.wait()
            except TimeoutError:
                await conn.execute("SELECT 1", timeout=_ANSWER_S)
                continue
            self._stirred.clear()
            self._wake()
            await self._clock.sleep(_SHORTEST_GAP_S)

    def _wake(self) -> None:
        self.wakes += 1
        woken, self._next = self._next, asyncio.Event()
        woken.set()

    def _on_notify(self, _conn: object, _pid: int, _channel: str, payload: object) -> None:
        if self._on_payload is not None:
            self._on_payload(str(payload))
        self._stirred.set()

    def _on_lost(self, _conn: object) -> None:
        self._lost = True
        self._stirred.set()

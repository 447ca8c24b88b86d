"""Server-sent events: frames, streams that end when their session does, and shared readings.

`id:` is the position of a durable event and nothing else carries one. A comment line keeps quiet
connections open. A reader that does not take what it is sent is dropped after a time limit; it
loses nothing, because it resumes by position.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from typing import Final, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from noema.core.errors import Unavailable

T = TypeVar("T")

HEARTBEAT_S: Final = 15.0
SEND_LIMIT_S: Final = 20.0
HEARTBEAT: Final = b": still here\n\n"
REFRESH_S: Final = 0.25
_READINGS_KEPT: Final = 4_096


def frame(*, event: str, data: bytes, position: str | None = None) -> bytes:
    """Return one event on the wire. JSON has no raw line breaks, so one data line holds it."""
    head = f"event: {event}\n" if position is None else f"id: {position}\nevent: {event}\n"
    return b"%bdata: %b\n\n" % (head.encode("ascii"), data)


SESSION_ENDED: Final = frame(event="end", data=b'"the session has ended"')
ACCESS_CHANGED: Final = frame(event="end", data=b'"what you may see has changed"')
DAEMON_STOPS: Final = frame(event="end", data=b'"the daemon is stopping"')


class EventStream(Response):
    """An answer that goes on until the frames end, the reader leaves or stops reading."""

    media_type = "text/event-stream"

    def __init__(
        self, frames: AsyncIterator[bytes], *, ending: Callable[[], Awaitable[bytes]]
    ) -> None:
        """`ending` returns the last frame once whoever reads may not go on reading."""
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._frames = frames
        self._ending = ending
        # What Response computed for its empty body does not hold for a stream.
        self.raw_headers = [h for h in self.raw_headers if h[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._write(send), name="sse")
            leaving = group.create_task(_left(receive, writing), name="sse left")
            ending = group.create_task(_ended(self._ending, writing), name="sse ending")
            await asyncio.wait({writing})
            leaving.cancel()
            ending.cancel()
        if writing.cancelled() and not ending.cancelled():
            await _finish(send, ending.result())

    async def _write(self, send: Send) -> None:
        frames = self._frames
        try:
            await _send(send, b"retry: 2000\n\n")
            async for chunk in frames:
                await _send(send, chunk)
            await _send(send, b"", more=False)
        except (TimeoutError, OSError, Unavailable):
            return
        finally:
            if isinstance(frames, AsyncGenerator):
                await frames.aclose()


async def _send(send: Send, chunk: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(SEND_LIMIT_S):
        await send({"type": "http.response.body", "body": chunk, "more_body": more})


async def _finish(send: Send, last: bytes) -> None:
    try:
        await _send(send, last, more=False)
    except (TimeoutError, OSError):
        return


async def _left(receive: Receive, writing: "asyncio.Task[None]") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    writing.cancel()


async def _ended(ending: Callable[[], Awaitable[bytes]], writing: "asyncio.Task[None]") -> bytes:
    last = await ending()
    writing.cancel()
    return last


class Readings:
    """Present states that many watchers share, each read at most a few times a second.

    Whoever asks says how old an answer may be, by the loop's clock; the ones who come while a
    reading is under way get that one if it is young enough, or wait for the next.
    """

    def __init__(
        self, kept: "dict[Hashable, _Reading] | None" = None, *, view: Hashable = ()
    ) -> None:
        self._kept = {} if kept is None else kept
        self._view = view

    def of(self, view: Hashable) -> "Readings":
        """Return the readings that only those share who see the same."""
        return Readings(self._kept, view=view)

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]], *, since: float) -> T:
        """Return what `make` answers, from a call that began at `since` or later."""
        key = (self._view, key)
        reading = self._kept.get(key)
        if reading is None:
            if len(self._kept) >= _READINGS_KEPT:
                self._kept.clear()
            reading = self._kept[key] = _Reading()
        answer: T = await reading.since(since, make)
        return answer


class _Reading:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._began = float("-inf")
        self._rests_until = float("-inf")
        self._value: object = None

    async def since(self, since: float, make: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        async with self._lock:
            if self._began < since:
                await asyncio.sleep(max(0.0, self._rests_until - loop.time()))
                began = loop.time()
                self._value = await make()
                self._began = began
                # What takes long to read is read less often, so that watching never costs more
                # than a fifth of a connection.
                took = loop.time() - began
                self._rests_until = began + max(REFRESH_S, 5 * took)
            return self._value  # type: ignore[return-value]

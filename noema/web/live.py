"""Server-sent events: the log as it grows, resumable by position.

`id:` is the position of a durable event and nothing else carries one. A comment line keeps quiet
connections open. A reader that does not take what it is sent is dropped after a time limit; it
loses nothing, because it resumes by position.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from noema.core.errors import Unavailable

HEARTBEAT_S: Final = 15.0
SEND_LIMIT_S: Final = 20.0
HEARTBEAT: Final = b": still here\n\n"


def frame(*, event: str, data: bytes, position: str | None = None) -> bytes:
    """Return one event on the wire. JSON has no raw line breaks, so one data line holds it."""
    head = f"event: {event}\n" if position is None else f"id: {position}\nevent: {event}\n"
    return b"%bdata: %b\n\n" % (head.encode("ascii"), data)


class EventStream(Response):
    """An answer that goes on until the frames end, the reader leaves or stops reading."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncIterator[bytes]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._frames = frames
        # What Response computed for its empty body does not hold for a stream.
        self.raw_headers = [h for h in self.raw_headers if h[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        )
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._write(send), name="sse")
            leaving = group.create_task(_left(receive, writing), name="sse left")
            await asyncio.wait({writing})
            leaving.cancel()

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
            if hasattr(frames, "aclose"):
                await frames.aclose()


async def _send(send: Send, chunk: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(SEND_LIMIT_S):
        await send({"type": "http.response.body", "body": chunk, "more_body": more})


async def _left(receive: Receive, writing: "asyncio.Task[None]") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    writing.cancel()


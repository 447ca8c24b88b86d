"""Guarantee 8: a reader that takes nothing holds nothing for ever."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message

from noema.web import live


async def never() -> bytes:
    """The last frame of a stream whose reader stays let in."""
    await asyncio.Event().wait()
    raise AssertionError


async def test_guarantee_8_a_reader_that_takes_nothing_is_dropped_after_a_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "SEND_LIMIT_S", 0.05)
    let_go = asyncio.Event()
    taken: list[bytes] = []

    async def frames() -> AsyncIterator[bytes]:
        try:
            for n in range(1_000):
                yield live.frame(event="event", data=b"%d" % n, position=f"p{n:x}")
        finally:
            let_go.set()

    async def send(message: Message) -> None:
        taken.append(message.get("body", b""))
        if len(taken) > 5:
            await asyncio.Event().wait()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.timeout(10):
        await live.EventStream(frames(), ending=never)({"type": "http"}, receive, send)

    assert let_go.is_set()
    assert len(taken) == 6
    assert taken[-1].startswith(b"id: p3\n")


async def test_guarantee_8_a_reader_that_leaves_ends_its_stream_at_once() -> None:
    let_go = asyncio.Event()

    async def frames() -> AsyncIterator[bytes]:
        try:
            yield live.HEARTBEAT
            await asyncio.Event().wait()
        finally:
            let_go.set()

    async def send(message: Message) -> None:
        return

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async with asyncio.timeout(10):
        await live.EventStream(frames(), ending=never)({"type": "http"}, receive, send)

    assert let_go.is_set()

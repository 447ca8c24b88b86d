"""What the benchmarks need of a daemon over real HTTP: minds, stimuli, and thousands of streams."""

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx

from tests.bench.place import Daemon
from tests.helpers import eventually


def client(daemon: Daemon) -> httpx.AsyncClient:
    """Return a client that is let in."""
    return httpx.AsyncClient(base_url=daemon.url, headers=daemon.headers, timeout=60)


async def make_mind(http: httpx.AsyncClient, slug: str) -> None:
    answer = await http.post("/v1/minds", json={"slug": slug})
    answer.raise_for_status()


async def send(http: httpx.AsyncClient, slug: str, lines: Sequence[str]) -> None:
    """Send the lines as one batch; return when they are accepted."""
    items = [{"text": line} for line in lines]
    answer = await http.post(f"/v1/minds/{slug}/stimuli", json={"items": items})
    answer.raise_for_status()


async def set_mode(http: httpx.AsyncClient, slug: str, mode: str) -> None:
    answer = await http.post(f"/v1/minds/{slug}/mode", json={"mode": mode})
    answer.raise_for_status()


async def idle(http: httpx.AsyncClient, slug: str) -> None:
    """Return once the mind has thought through all it was sent."""

    async def is_idle() -> bool:
        mind = (await http.get(f"/v1/minds/{slug}")).json()
        return bool(mind["backlog"] == 0 and mind["pending"] == 0)

    await eventually(is_idle, within_s=600, every_s=0.25)


class Stream:
    """One server-sent event stream, read with as little as it takes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, daemon: Daemon, query: str) -> "Stream":
        """Return the stream once the daemon has answered with its first bytes."""
        place = urlsplit(daemon.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=2**20)
        head = (
            f"GET /v1/events/stream?{query} HTTP/1.1\r\nHost: {place.netloc}\r\n"
            f"Authorization: Bearer {daemon.token}\r\nAccept: text/event-stream\r\n\r\n"
        )
        writer.write(head.encode())
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"the stream was refused: {status!r}")
        await reader.readuntil(b"retry: 2000")
        return cls(reader, writer)

    async def line(self) -> bytes:
        """Return the next line, whatever it is; empty at the end."""
        return await self._reader.readline()

    async def until(self, *wanted: bytes) -> None:
        """Read on until a line holds all that is wanted."""
        while line := await self.line():
            if all(part in line for part in wanted):
                return
        raise RuntimeError("the stream ended")

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return

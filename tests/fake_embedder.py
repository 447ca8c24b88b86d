"""A server on loopback that speaks the wire formats of embedding services, well or badly."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from struct import pack
from typing import Any

Misbehave = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class FakeService:
    """What came in, and what goes out: `answers` first, one a request, then honest vectors."""

    url: str = ""
    dims: int = 4
    asked: list[Asked] = field(default_factory=list)
    answers: list[bytes | Misbehave] = field(default_factory=list)
    knows_api_embed: bool = True
    ignores_base64: bool = False
    is_shuffled: bool = False
    longest: int = 1_000_000

    def vector(self, text: str, dims: int | None = None) -> list[float]:
        """Return the vector this service has for the text: not of length 1, on purpose."""
        digest = sha256(text.encode()).digest()
        return [float(byte + 1) for byte in digest[: dims or self.dims]]


def reply(status: int, body: bytes | str | dict[str, Any], **headers: str) -> bytes:
    """Return the bytes of an answer."""
    raw = json.dumps(body) if isinstance(body, dict) else body
    content = raw if isinstance(raw, bytes) else raw.encode()
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(content)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


async def hang(writer: asyncio.StreamWriter) -> None:
    """Say nothing, until the server ends."""
    await asyncio.Event().wait()


async def drip(writer: asyncio.StreamWriter) -> None:
    """Say one byte at a time, and never the end."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def break_off(writer: asyncio.StreamWriter) -> None:
    """Promise more than is sent."""
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"data": [')
    await writer.drain()


async def flood(writer: asyncio.StreamWriter) -> None:
    """Send far more than anybody wants."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    block = b" " * 65_536
    for _ in range(1_600):
        if writer.is_closing():
            return
        writer.write(block)
        await writer.drain()


@asynccontextmanager
async def fake_service() -> AsyncIterator[FakeService]:
    """Run the server for as long as the block lasts."""
    service = FakeService()
    # Held here, since the loop itself holds tasks so loosely that a hanging one could vanish.
    serving: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            while (asked := await _request(reader)) is not None:
                service.asked.append(asked)
                answer = service.answers.pop(0) if service.answers else _honest(service, asked)
                if not isinstance(answer, bytes):
                    await answer(writer)
                    break
                writer.write(answer)
                await writer.drain()
                if b"connection: close" in answer:
                    break
        except ConnectionError:
            pass
        finally:
            serving.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    service.url = f"http://{host}:{port}"
    try:
        yield service
    finally:
        server.close()
        for task in tuple(serving):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(path=first.split(" ")[1], headers=headers, body=json.loads(raw))


def _honest(service: FakeService, asked: Asked) -> bytes:
    path, body = asked.path.partition("?")[0], asked.body
    if path == "/api/embed" and service.knows_api_embed:
        texts = body["input"]
        answer: dict[str, Any] = {
            "model": body["model"],
            "embeddings": [service.vector(text, body.get("dimensions")) for text in texts],
        }
    elif path == "/api/embeddings":
        answer = {"embedding": service.vector(body["prompt"])}
    elif path.endswith("/embeddings"):
        if any(len(text) > service.longest for text in body["input"]):
            error = {"message": "too long", "code": "context_length_exceeded"}
            return reply(400, {"error": error})
        rows = [
            {"object": "embedding", "index": index, "embedding": _encoded(service, text, body)}
            for index, text in enumerate(body["input"])
        ]
        answer = {
            "object": "list",
            "model": body.get("model", ""),
            "data": rows[::-1] if service.is_shuffled else rows,
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
    else:
        return reply(404, {"error": "no such path"})
    return reply(200, answer, content_type="application/json").replace(
        b"connection: close\r\n", b""
    )


def _encoded(service: FakeService, text: str, body: dict[str, Any]) -> list[float] | str:
    vector = service.vector(text, body.get("dimensions"))
    if body.get("encoding_format") == "base64" and not service.ignores_base64:
        return b64encode(pack(f"<{len(vector)}f", *vector)).decode()
    return vector

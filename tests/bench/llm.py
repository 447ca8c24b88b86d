"""A call through the model service, beside the same request by bare httpx at the same server.

The server is a process of its own that speaks the wire format of chat completions. It streams an
answer of forty pieces, one every few milliseconds, as a small model on a good machine does; both
sides read it to its end. What the service adds is the record, the budgets and two commits.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Final
from uuid import UUID

import httpx

from noema.core.clock import SystemClock, UuidV7Ids
from noema.core.identity import LOCAL
from noema.db.tx import single
from noema.events.audit import Audit
from noema.llm.budget import Budgets
from noema.llm.model import (
    CallContext,
    Chain,
    ChatMessage,
    CognitiveRequest,
    Entry,
    Parameters,
    Prices,
    Provider,
    Role,
)
from noema.llm.providers.make import make_provider
from noema.llm.recorder import Recorder, recording
from noema.llm.service import LanguageService
from tests.bench.measure import Figure, side_by_side, spread
from tests.bench.place import Place, Server
from tests.llm_scripted import Switch

AT_ONCE: Final = 32
PIECES: Final = 40
PIECE_EVERY_S: Final = 0.005
_TEXT: Final = "Four lines of the log say that a password failed for the user root. " * 20
_ROOT: Final = Path(__file__).resolve().parents[2]
_MIND: Final = UUID(int=10)


def _record(text: str | None, finish: str | None) -> bytes:
    choice = {"index": 0, "delta": {} if text is None else {"content": text}}
    body = {"id": "1", "object": "chat.completion.chunk", "model": "m", "created": 1}
    return (
        b"data: %s\n\n"
        % json.dumps(body | {"choices": [choice | {"finish_reason": finish}]}).encode()
    )


def _chunk(raw: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(raw), raw)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request of one connection with the same stream."""
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    usage = (
        b'data: {"id":"1","choices":[],"usage":{"prompt_tokens":300,"completion_tokens":40}}\n\n'
    )
    try:
        while True:
            request = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(request.partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(size)
            writer.write(head)
            for number in range(PIECES):
                await asyncio.sleep(PIECE_EVERY_S)
                writer.write(_chunk(_record(f"word{number} ", None)))
            writer.write(_chunk(_record(None, "stop")))
            writer.write(_chunk(usage) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _run_server() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)
        # Connections are dropped with the process: what is under way has no end.
        os._exit(0)


@asynccontextmanager
async def _model_server() -> AsyncIterator[str]:
    """Yield the address of the server, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.llm",
        cwd=_ROOT, env=os.environ | {"PYTHONPATH": str(_ROOT)},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.stdin.close()
        await process.wait()


def _request(number: int) -> CognitiveRequest:
    return CognitiveRequest(
        role=Role.REFLECT,
        messages=(
            ChatMessage(role="system", text="Say what happened."),
            ChatMessage(role="user", text=_TEXT),
        ),
        context=CallContext(
            namespace="bench", actor="mind:bench", mind=_MIND, cycle=number, process="reflect"
        ),
    )


@asynccontextmanager
async def _service(place: Place, url: str) -> AsyncIterator[LanguageService]:
    """Yield a service on the database, with three budgets that every call falls into."""
    clock = SystemClock()
    ids = UuidV7Ids(clock)
    provider = make_provider("openai", url, "sk-bench", True, Parameters())
    entry = Entry(
        provider=UUID(int=1),
        name="local",
        model="m",
        parameters=Parameters(max_tokens=100),
        prices=Prices(input=1_000_000, output=2_000_000),
    )
    switch = Switch()

    async def chain_of(role: Role) -> Chain:
        return Chain(entries=(entry,), deadline_s=60.0)

    async def provider_of(provider_id: UUID) -> Provider:
        return provider

    recorder = Recorder(
        connect=lambda: single(place.app_dsn, place.role), clock=clock, daemon=ids.new()
    )
    async with place.open(size=2) as db, recording(recorder):
        budgets = Budgets(db=db, audit=Audit(db=db, ids=ids), ids=ids)
        for scope in ("mind", "role", "everything"):
            await budgets.set(LOCAL, scope=scope, period="day", money_micros=10**12)
        yield LanguageService(
            recorder=recorder,
            chain_of=chain_of,
            provider_of=provider_of,
            breaker_of=lambda _: switch,
            clock=clock,
            ids=ids,
            chance=Random(1),
            most_at_once=AT_ONCE,
        )
    await provider.aclose()


async def llm_overhead(server: Server, *, quick: bool) -> list[Figure]:
    """Measure the median time of one call while `AT_ONCE` are under way."""
    rounds, each = (3, 4) if quick else (9, 8)
    number = 0
    body = {
        "model": "m",
        "max_tokens": 100,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": message.role, "content": message.text} for message in _request(0).messages
        ],
    }

    async with (
        server.database() as place,
        _model_server() as url,
        _service(place, url) as service,
        httpx.AsyncClient(limits=httpx.Limits(max_connections=AT_ONCE), timeout=60) as client,
    ):

        async def through_service() -> float:
            nonlocal number
            number += 1
            started = perf_counter()
            answer = await service.complete(_request(number))
            assert answer.cost_micros
            return perf_counter() - started

        async def bare() -> float:
            started = perf_counter()
            text = ""
            async with client.stream("POST", f"{url}/chat/completions", json=body) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        for choice in json.loads(line[6:])["choices"]:
                            text += choice["delta"].get("content", "")
            assert text
            return perf_counter() - started

        async def ours() -> float:
            return await _at_once(through_service, each)

        async def limit() -> float:
            return await _at_once(bare, each)

        mine, theirs = await side_by_side(ours, limit, rounds=rounds)
    return [_figure(mine, theirs)]


async def _at_once(call: Callable[[], Awaitable[float]], each: int) -> float:
    """Return the median milliseconds of a call with `AT_ONCE` callers that make `each` in turn."""
    spent: list[float] = []

    async def caller() -> None:
        spent.extend([await call() for _ in range(each)])

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(caller())
    return median(spent) * 1000


def _figure(mine: Sequence[float], theirs: Sequence[float]) -> Figure:
    return Figure(
        name="llm_overhead",
        ours=median(mine),
        limit=median(theirs),
        unit="ms",
        higher_is_better=False,
        target=1.5,
        note=f"rounds {spread(mine)}, limit {spread(theirs)}",
    )


if __name__ == "__main__":
    asyncio.run(_run_server())

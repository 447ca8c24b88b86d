"""A local server that speaks a model service's wire format, and misbehaves as it is told.

    async with FakeOpenAI() as fake:
        fake.text = "Yes."            # what it answers as long as nothing else is scripted
        fake.then(hang())             # the next request only; more calls, more requests
        …
        assert fake.requests[-1].json["model"] == "gpt-5"

`FakeService` is the part that knows HTTP and no wire format: a wire of another vendor is a subclass
with its own `usual`. The faults below it are the same for every wire.
"""

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Literal, Self

MIB: Final = 1024 * 1024
HTML: Final = b"<!DOCTYPE html><html><body><h1>Welcome to nginx!</h1></body></html>"


class Hang:
    """From here on nothing is sent until the client goes away."""


class Break:
    """The connection is broken off here."""


@dataclass(frozen=True)
class Drip:
    """The piece is sent again and again, until the client goes away."""

    piece: bytes
    every_s: float = 0.02


Piece = bytes | Hang | Break | Drip


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer. Its pieces are sent one by one, each as a chunk of its own."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Iterable[Piece] = ()
    # Nothing at all is sent, not even a status.
    is_silent: bool = False


@dataclass(frozen=True, kw_only=True)
class Request:
    """What came in."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class FakeService:
    """An HTTP/1.1 server on a free port of this machine. `sent` counts bytes of bodies."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.sent = 0
        self.closed_by_client = asyncio.Event()
        self._script: deque[Reply] = deque()
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[Any]] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        serving = list(self._serving.values())
        for writer in list(self._serving):
            writer.transport.abort()
        if serving:
            await asyncio.wait(serving)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:<port>`, without a path."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def open(self) -> int:
        """How many connections are open now."""
        return len(self._serving)

    def then(self, *replies: Reply) -> None:
        """Answer the next requests with these, one each, and as usual after that."""
        self._script.extend(replies)

    def usual(self, request: Request) -> Reply:
        """Return what the service answers when it is well."""
        raise NotImplementedError

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[writer] = task
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    request = await _read(reader)
                    self.requests.append(request)
                    reply = self._script.popleft() if self._script else self.usual(request)
                    if not await self._answer(reply, reader, writer):
                        break
        finally:
            del self._serving[writer]
            writer.close()
            self.closed_by_client.set()

    async def _answer(
        self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Send the reply; return whether the connection is still good for another request."""
        if reply.is_silent:
            await reader.read(1)
            return False
        headers = {"content-type": "application/json", **reply.headers}
        is_chunked = "content-length" not in headers
        if is_chunked:
            headers["transfer-encoding"] = "chunked"
        try:
            phrase = HTTPStatus(reply.status).phrase
        except ValueError:
            phrase = "Odd"
        lines = [f"HTTP/1.1 {reply.status} {phrase}", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for piece in reply.pieces:
            if isinstance(piece, Hang):
                await writer.drain()
                await reader.read(1)
                return False
            if isinstance(piece, Break):
                await writer.drain()
                writer.transport.abort()
                return False
            if isinstance(piece, Drip):
                while not reader.at_eof():
                    await self._send(writer, piece.piece, is_chunked=is_chunked)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(1), piece.every_s)
                return False
            await self._send(writer, piece, is_chunked=is_chunked)
        if is_chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _send(self, writer: asyncio.StreamWriter, piece: bytes, *, is_chunked: bool) -> None:
        if not piece:
            return
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
        await writer.drain()
        self.sent += len(piece)


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    pairs = (line.split(":", 1) for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method=method, target=target, headers=headers, body=body)


# Faults that have no wire format.


def hang() -> Reply:
    """It takes the request and says nothing."""
    return Reply(is_silent=True)


def hang_after(*pieces: bytes, media_type: str = "text/event-stream") -> Reply:
    """It begins to answer and stops."""
    return Reply(headers={"content-type": media_type}, pieces=[*pieces, Hang()])


def drip(piece: bytes = b": still here\n\n", media_type: str = "text/event-stream") -> Reply:
    """It sends a little, always in time, and comes to no end."""
    return Reply(headers={"content-type": media_type}, pieces=[Drip(piece)])


def web_page(*, status: int = 200, media_type: str = "text/html; charset=utf-8") -> Reply:
    """It sends a web page, as a proxy does, or a server that is no model's."""
    return Reply(status=status, headers={"content-type": media_type}, pieces=[HTML])


def broken_after(*pieces: bytes, media_type: str = "text/event-stream") -> Reply:
    """It begins to answer, and the connection breaks off."""
    return Reply(headers={"content-type": media_type}, pieces=[*pieces, Break()])


def endless(piece: bytes, *, size: int = 100 * MIB, media_type: str = "text/event-stream") -> Reply:
    """It sends the piece until that many bytes are sent, 100 MB unless told otherwise."""
    block = piece * max(1, 65_536 // len(piece))
    # The same block again and again: the list is all the memory that it takes.
    return Reply(headers={"content-type": media_type}, pieces=[block] * (size // len(block)))


def in_pieces(raw: bytes, size: int, *, media_type: str) -> Reply:
    """It sends the body cut into pieces of that many bytes, wherever that is."""
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)]
    return Reply(headers={"content-type": media_type}, pieces=pieces)


def refusal(status: int, body: Any, *, retry_after: str | None = None) -> Reply:
    """It answers with an error status and a body of JSON, or of text where it is a string."""
    raw = body if isinstance(body, str) else json.dumps(body)
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return Reply(status=status, headers=headers, pieces=[raw.encode()])


# OpenAI's chat completions.

UsageAt = Literal["own", "last", "after", "none"]
CHAT: Final = "/chat/completions"


def openai_error(
    message: str,
    *,
    kind: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
) -> dict[str, Any]:
    """Return the body of an error as OpenAI writes it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def sse(*records: Any) -> bytes:
    """Return the records as an event stream; a string stands as it is, as [DONE] does."""
    texts = (r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in records)
    return b"".join(f"data: {text}\n\n".encode() for text in texts)


class FakeOpenAI(FakeService):
    """Chat completions, streamed and whole.

    `usage_at` is where a stream has its usage: in a record of its own with empty choices, as
    OpenAI; in the last record with choices; in a record with choices after the one with the finish
    reason; or nowhere. `refuses` are parameters that it does not know.
    """

    def __init__(self) -> None:
        super().__init__()
        self.text = "Certainly: 17 °C."
        self.refusal_text: str | None = None
        self.finish: str | None = "stop"
        self.usage: dict[str, Any] = {
            "prompt_tokens": 30,
            "completion_tokens": 20,
            "total_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 10},
            "completion_tokens_details": {"reasoning_tokens": 12},
        }
        self.usage_at: UsageAt = "own"
        self.has_done = True
        self.refuses: set[str] = set()
        self.formats = {"json_schema", "json_object", "text"}
        self.key: str | None = None

    def usual(self, request: Request) -> Reply:
        if not request.target.partition("?")[0].endswith(CHAT):
            return refusal(404, openai_error(f"Invalid URL (POST {request.target})"))
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = request.headers.get("api-key", given)
        if self.key is not None and given != self.key:
            message = f"Incorrect API key provided: {given}."
            return refusal(401, openai_error(message, code="invalid_api_key"))
        body = request.json
        refused = self._refused(body)
        if refused is not None:
            return refused
        if body.get("stream"):
            wants_usage = (body.get("stream_options") or {}).get("include_usage", False)
            stream = self.stream(body.get("model", "gpt-fake"), wants_usage=wants_usage)
            return Reply(headers={"content-type": "text/event-stream"}, pieces=stream)
        whole = json.dumps(self.whole(body.get("model", "gpt-fake"))).encode()
        return Reply(headers={"content-length": str(len(whole))}, pieces=[whole])

    def _refused(self, body: Mapping[str, Any]) -> Reply | None:
        for name in ("max_tokens", "stream_options", "max_completion_tokens", "stream"):
            if name in self.refuses and name in body:
                message = f"Unknown parameter: '{name}'."
                code = "unknown_parameter"
                if name == "max_tokens":
                    code = "unsupported_parameter"
                    message = (
                        "Unsupported parameter: 'max_tokens' is not supported with this model. "
                        "Use 'max_completion_tokens' instead."
                    )
                return refusal(400, openai_error(message, param=name, code=code))
        wanted = body.get("response_format", {}).get("type", "text")
        if wanted not in self.formats:
            message = f"This response_format type is unavailable now: {wanted}"
            return refusal(400, openai_error(message, param="response_format"))
        is_said = "json" in json.dumps(body["messages"]).lower()
        if wanted == "json_object" and not is_said:
            message = (
                "'messages' must contain the word 'json' in some form, to use 'response_format' "
                "of type 'json_object'."
            )
            return refusal(400, openai_error(message, param="messages"))
        return None

    def whole(self, model: str) -> dict[str, Any]:
        """Return an answer that is not streamed."""
        message = {"role": "assistant", "content": self.text, "refusal": self.refusal_text}
        if self.refusal_text is not None:
            message["content"] = None
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_790_000_000,
            "model": model,
            "choices": [
                {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish}
            ],
            "usage": self.usage,
        }

    def records(self, model: str, *, wants_usage: bool = True) -> list[dict[str, Any]]:
        """Return the records of a stream."""
        name = "content" if self.refusal_text is None else "refusal"
        said = self.text if self.refusal_text is None else self.refusal_text
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{name: said[start : start + 4]} for start in range(0, len(said), 4)]
        records = [self._record(model, [_choice(delta, None)]) for delta in deltas]
        if self.finish is not None:
            records.append(self._record(model, [_choice({}, self.finish)]))
        if wants_usage and self.usage_at == "own":
            for record in records:
                record["usage"] = None
            records.append({**self._record(model, []), "usage": self.usage})
        elif wants_usage and self.usage_at == "last":
            records[-1]["usage"] = self.usage
        elif wants_usage and self.usage_at == "after":
            late = self._record(model, [_choice({"content": ""}, None)])
            records.append({**late, "usage": self.usage})
        return records

    def stream(self, model: str = "gpt-fake", *, wants_usage: bool = True) -> list[bytes]:
        """Return the pieces of a stream, one for each record."""
        pieces = [sse(record) for record in self.records(model, wants_usage=wants_usage)]
        return [*pieces, sse("[DONE]")] if self.has_done else pieces

    def _record(self, model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1_790_000_000,
            "model": model,
            "choices": choices,
        }


def _choice(delta: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}

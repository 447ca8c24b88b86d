"""One request to a model's service: bounded in time and size, and silent about the key.

    wire = Wire(endpoint=…, secrets=(key,), transport=…, clock=clock, limits=Limits())
    async with wire.post(url, body, headers=…, deadline_s=60.0) as answer:
        async for event in answer.events():
            chunk = wire.decoded(event.data, Chunk)

Whatever goes wrong is AttemptFailed: a connection that is refused or breaks, a service that hangs
or drips, too many bytes, text that is not UTF-8, a web page where JSON should be, an error status.
Nothing is tried twice, no redirect is followed, and no proxy of the environment is used.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NoReturn, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from noema.core.clock import Clock
from noema.core.errors import NoemaError
from noema.llm.errors import AttemptFailed
from noema.llm.model import Usage
from noema.llm.providers.lines import Event, Events, Lines
from noema.llm.providers.refused import Refused, error_of, retry_after_s
from noema.llm.providers.scrub import Scrubber

T = TypeVar("T")

_LONGEST_DETAIL: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one attempt may take: seconds for each part of it, bytes, and characters of text.

    `first_byte_s` runs from the request to the first byte of the answer's body, for answers that
    are streamed; `between_s` from each piece to the next; `after_s` is how long, in all, what may
    follow the end of the text, as the count of tokens, is waited for, and the body of an error.
    What the whole may take is an argument of the attempt. A token may come in a record of hundreds
    of bytes, hence two sizes.
    """

    connect_s: float = 10.0
    first_byte_s: float = 120.0
    between_s: float = 60.0
    after_s: float = 2.0
    max_bytes: int = 32 * 1024 * 1024
    max_text: int = 2 * 1024 * 1024
    max_error_bytes: int = 16 * 1024
    max_connections: int = 64


class Answer:
    """An answer with status 200 whose body is still to come; read it once, by one of its ways."""

    def __init__(
        self,
        response: httpx.Response,
        wire: "Wire",
        *,
        first_byte_at: float | None,
        whole_by: float,
    ) -> None:
        self._response = response
        self._wire = wire
        self._first_byte_at = first_byte_at
        self._whole_by = whole_by
        self._over_by: float | None = None

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, found in upper or lower case."""
        return self._response.headers

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case; empty where there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_compressed(self) -> bool:
        """Whether the body would have to be opened first."""
        return self.headers.get("content-encoding", "").strip().lower() not in ("", "identity")

    def hurry(self) -> None:
        """Wait no longer than `after_s` in all for what may follow: the text is at its end.

        Nor longer than half of what is left: the text would be lost with the deadline.
        """
        if self._over_by is None:
            now = asyncio.get_running_loop().time()
            self._over_by = now + min(self._wire.limits.after_s, (self._whole_by - now) / 2)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Give the body's bytes as they come."""
        source = self._response.aiter_raw()
        limits = self._wire.limits
        limit = asyncio.timeout_at(self._first_byte_at if self._over_by is None else self._over_by)
        waited = "did not begin to answer in time"
        size = 0
        while True:
            try:
                async with limit:
                    piece = await anext(source, None)
            except TimeoutError:
                failure = self._wire.failure(waited, retryable=True)
            except httpx.HTTPError as exc:
                failure = self._wire.failure(_what_broke(exc), retryable=True)
            else:
                if piece is None:
                    return
                size += len(piece)
                if size > limits.max_bytes:
                    # The same question would be answered by the same flood.
                    self._wire.fail(
                        f"answered with more than {limits.max_bytes:,} bytes", retryable=False
                    )
                yield piece
                if self._over_by is None:
                    limit = asyncio.timeout(limits.between_s)
                    waited = f"paused for more than {limits.between_s:g} s"
                else:
                    limit = asyncio.timeout_at(self._over_by)
                    waited = "did not end after its text"
                continue
            raise failure

    async def events(self) -> AsyncIterator[Event]:
        """Give the events of an event stream."""
        events = Events()
        async for piece in self.pieces():
            for event in self._read(events.feed(piece)):
                yield event
        for event in self._read(events.end()):
            yield event

    async def lines(self) -> AsyncIterator[str]:
        """Give the lines of NDJSON, without the empty ones."""
        lines = Lines(cr_ends=False)
        async for piece in self.pieces():
            for line in self._read(lines.feed(piece)):
                if line.strip():
                    yield line
        for line in self._read(lines.end()):
            if line.strip():
                yield line

    async def whole(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self.pieces()])

    def _read(self, items: Iterable[T]) -> list[T]:
        try:
            return list(items)
        except UnicodeDecodeError:
            # It quotes the bytes, which may be an echo: it does not go along.
            failure = self._wire.failure("answered with bytes that are not UTF-8", retryable=True)
        raise failure


class Text:
    """Collects an answer's text, up to a number of characters."""

    def __init__(self, wire: "Wire") -> None:
        self._wire = wire
        self._parts: list[str] = []
        self._size = 0

    def add(self, part: object) -> None:
        """Add what is a string; anything else a service puts there is not text."""
        if not isinstance(part, str) or not part:
            return
        self._size += len(part)
        if self._size > self._wire.limits.max_text:
            self._wire.fail(
                f"wrote more than {self._wire.limits.max_text:,} characters", retryable=False
            )
        self._parts.append(part)

    def __str__(self) -> str:
        """Return all of it, with the key masked where the service put it into its answer."""
        return self._wire.scrubber.remove("".join(self._parts))


class Wire:
    """The connections of one provider. `secrets` are what must not come back in a message.

    `transport` decides which addresses may be reached, and over how many connections at once;
    without one, any may, over as many as the limits say.
    """

    def __init__(
        self,
        *,
        endpoint: str,
        secrets: Sequence[str],
        transport: httpx.AsyncBaseTransport | None,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self.limits = limits
        self.scrubber = Scrubber(secrets)
        self._name = f"The model at {_host(endpoint)}"
        self._clock = clock
        self._client = httpx.AsyncClient(
            transport=transport,
            headers={
                "user-agent": "noema",
                # What is compressed can grow without limit when it is opened.
                "accept-encoding": "identity",
            },
            timeout=httpx.Timeout(
                None, connect=limits.connect_s, pool=limits.connect_s, write=limits.between_s
            ),
            limits=httpx.Limits(
                max_connections=limits.max_connections,
                max_keepalive_connections=limits.max_connections,
            ),
            follow_redirects=False,
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Close what is open; may be called again."""
        await self._client.aclose()

    @asynccontextmanager
    async def post(
        self,
        url: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        deadline_s: float,
        is_streamed: bool = True,
    ) -> AsyncIterator[Answer]:
        """Send the body, JSON, and lend the answer where its status is 200.

        `deadline_s` counts for everything until the block ends. An answer that is not streamed may
        take all of it before its first byte. Raises AttemptFailed.
        """
        if deadline_s <= 0.0:
            self.fail("was not asked: no time was left", is_cost_unknown=False)
        loop = asyncio.get_running_loop()
        began = loop.time()
        patience_s = self.limits.connect_s + self.limits.first_byte_s
        first_byte_at = began + patience_s if is_streamed else None
        whole = asyncio.timeout(deadline_s)
        try:
            async with whole:
                response = await self._sent(url, body, headers, first_byte_at)
                try:
                    answer = Answer(
                        response, self, first_byte_at=first_byte_at, whole_by=began + deadline_s
                    )
                    await self._accept(answer)
                    yield answer
                finally:
                    await response.aclose()
                return
        except TimeoutError:
            if not whole.expired():
                raise
        self.fail(f"did not finish its answer within {deadline_s:.3g} s")

    async def _sent(
        self, url: str, body: bytes, headers: Mapping[str, str], first_byte_at: float | None
    ) -> httpx.Response:
        # A failure is raised outside the handlers: what httpx says may quote a header, and would
        # go along as the failure's context.
        try:
            request = self._client.build_request(
                "POST",
                url,
                content=body,
                headers={"content-type": "application/json", **_plain(headers)},
            )
            async with asyncio.timeout_at(first_byte_at):
                return await self._client.send(request, stream=True)
        except TimeoutError:
            failure = self.failure("did not begin to answer in time", retryable=True)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
            failure = self.failure(_what_broke(exc), retryable=True, is_cost_unknown=False)
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError):
            failure = self.failure(
                "cannot be asked. Check its address and its key",
                retryable=False,
                is_cost_unknown=False,
            )
        except (httpx.InvalidURL, ValueError):
            failure = self.failure(
                "cannot be asked: its address or its key has characters that have no place there",
                retryable=False,
                is_cost_unknown=False,
            )
        except NoemaError as exc:
            # The guard of addresses; its message stands as it is.
            failure = AttemptFailed(
                self.scrubber.scrub(str(exc)), retryable=False, is_cost_unknown=False
            )
        except httpx.HTTPError as exc:
            failure = self.failure(_what_broke(exc), retryable=True)
        raise failure

    async def _accept(self, answer: Answer) -> None:
        """Raise AttemptFailed where this is no answer to read."""
        if answer.status != HTTPStatus.OK:
            raise await self._refusal(answer)
        if answer.is_compressed:
            self.fail("compressed its answer, which was not asked for", retryable=False)
        if answer.media_type in ("text/html", "application/xhtml+xml"):
            self.fail("answered with a web page. Check its address", retryable=False)
        announced = answer.headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self.limits.max_bytes:
            self.fail(f"answered with more than {self.limits.max_bytes:,} bytes", retryable=False)

    async def _refusal(self, answer: Answer) -> Refused:
        text = await self._error_body(answer)
        if text.lstrip()[:1] == "<":
            text = "a web page"
        detail, code, param = map(self.quoted, error_of(text))
        return Refused(
            self._name,
            status=answer.status,
            retry_after_s=retry_after_s(answer.headers, self._clock.now()),
            detail=detail,
            error_code=code,
            param=param,
        )

    async def _error_body(self, answer: Answer) -> str:
        if answer.is_compressed:
            return ""
        limit = self.limits.max_error_bytes
        raw = b""
        # The status says the most: nobody waits long for the rest, and what came of it is enough.
        answer.hurry()
        try:
            async for piece in answer.pieces():
                raw += piece
                if len(raw) >= limit:
                    break
        except AttemptFailed:
            pass
        return raw[:limit].decode("utf-8", errors="replace")

    def quoted(self, text: str) -> str:
        """Return what a service wrote, fit for a message: scrubbed, on one line and short."""
        # Scrubbed first: cut short it might keep a piece of the key.
        plain = self.scrubber.scrub(text[: self.limits.max_error_bytes])
        line = " ".join("".join(c if c.isprintable() else " " for c in plain).split())
        if len(line) <= _LONGEST_DETAIL:
            return line
        return line[: _LONGEST_DETAIL - 1] + "…"

    def decoded(self, raw: bytes | str, kind: type[T]) -> T:
        """Return JSON as the msgspec type; raises AttemptFailed where it is not that."""
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            is_page = raw.lstrip()[:1] in (b"<", "<")
        raise self.failure(
            "answered with a web page. Check its address"
            if is_page
            else "answered with something that is not its JSON, or with only a part of it",
            retryable=not is_page,
        )

    def failure(
        self,
        what: str,
        *,
        retryable: bool,
        status: int | None = None,
        usage: Usage | None = None,
        is_cost_unknown: bool = True,
    ) -> AttemptFailed:
        """Return a failure whose message begins with the service's name."""
        return AttemptFailed(
            f"{self._name} {what}.",
            retryable=retryable,
            status=status,
            usage=usage,
            is_cost_unknown=is_cost_unknown,
        )

    def fail(
        self,
        what: str,
        *,
        retryable: bool = True,
        status: int | None = None,
        usage: Usage | None = None,
        is_cost_unknown: bool = True,
    ) -> NoReturn:
        """Raise that failure."""
        raise self.failure(
            what,
            retryable=retryable,
            status=status,
            usage=usage,
            is_cost_unknown=is_cost_unknown,
        )


def _what_broke(exc: httpx.HTTPError) -> str:
    if isinstance(exc, httpx.ConnectTimeout):
        return "cannot be reached in time"
    if isinstance(exc, httpx.ConnectError):
        return "cannot be reached"
    if isinstance(exc, httpx.PoolTimeout):
        return "was not asked: too many requests to it are under way"
    if isinstance(exc, httpx.TimeoutException):
        return "does not take the request"
    return "broke the connection off"


def _host(endpoint: str) -> str:
    try:
        return urlsplit(endpoint).hostname or "an unknown address"
    except ValueError:
        return "an unknown address"


def _plain(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers of which each is printable ASCII; raises ValueError without quoting any."""
    if all(value.isascii() and value.isprintable() for value in headers.values()):
        return headers
    raise ValueError("a header that is not printable ASCII")

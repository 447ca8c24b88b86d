"""Asking a service over HTTP for JSON: bounded in time, size and tries, and silent about its key.

    async with Remote(name="the embedder", url=…, clock=clock, headers=…) as remote:
        answer = await remote.post("/embeddings", body, Answer)

Whatever goes wrong is Unavailable with a reason that holds neither key nor text, since both the
service and what stands between may echo what they were sent. Tries are made again here and
nowhere else, so that they do not multiply. Proxies of the environment are not used.
"""

import asyncio
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from noema.config import off_limits
from noema.core.clock import Clock
from noema.core.errors import Unavailable
from noema.net.circuit import Circuit
from noema.net.guard import AddressRefused, guarded_transport

T = TypeVar("T")

Sign = Callable[[str, bytes], Mapping[str, str]]
"""Returns the headers that sign a request, from its path and its body, at this moment."""

# A service that says so itself, and those in front of it that cannot reach it.
_TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
# The service is well, it is this one request that it will not have.
_THIS_REQUEST: Final = frozenset({400, 413, 422})
_ERROR_BYTES: Final = 16_384
_MAX_CONNECTIONS: Final = 8
# A name such as `context_length_exceeded`; longer or other text might be an echo.
_CODE: Final = re.compile(r"[a-z][a-z0-9_.]{2,63}\Z")
# Who gave up after this long did so because of the service.
_SLOW_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one call may take: seconds to connect, between bytes and in all, bytes, and tries."""

    connect_s: float = 5.0
    read_s: float = 20.0
    total_s: float = 30.0
    max_bytes: int = 32 * 1024 * 1024
    tries: int = 3
    first_wait_s: float = 0.25
    longest_wait_s: float = 5.0
    longest_rest_s: float = 600.0


class HttpRefused(Unavailable):
    """The service answered with an error status; `status` is its number.

    Of the family of Unavailable, so that who does not care need not know it.
    """

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_this_request(self) -> bool:
        """Whether the service is well and another request may pass."""
        return self.status in _THIS_REQUEST


class _TryAgain(Exception):  # noqa: N818 - a step of the loop below, never seen outside
    def __init__(self, failure: Unavailable, *, after_s: float | None = None) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.after_s = after_s


class Remote:
    """One service at one address. `headers` carry its key and go to no other host.

    Where a key is not sent but signed with, `sign` makes the headers of each try. No redirect is
    followed. `name` begins the messages: "the embedder". Private addresses are meant where whoever
    sets the address runs the daemon.
    """

    def __init__(
        self,
        *,
        name: str,
        url: str,
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        sign: Sign | None = None,
        limits: Limits | None = None,
        allows_private: bool = True,
    ) -> None:
        self._sign = sign
        self._url = url.rstrip("/")
        self._host = urlsplit(url).hostname or ""
        self._name = f"{name[:1].upper()}{name[1:]} at {self._host}"
        self._clock = clock
        self._limits = Limits() if limits is None else limits
        self._circuit = Circuit(self._name, clock)
        self._client = httpx.AsyncClient(
            headers={
                "user-agent": "noema",
                "accept": "application/json",
                # What is compressed can grow without limit when it is opened.
                "accept-encoding": "identity",
                **(headers or {}),
            },
            timeout=httpx.Timeout(
                self._limits.read_s,
                connect=self._limits.connect_s,
                pool=self._limits.connect_s,
            ),
            transport=guarded_transport(
                allows_private=allows_private, max_connections=_MAX_CONNECTIONS
            ),
            follow_redirects=False,
            trust_env=False,
        )

    async def __aenter__(self) -> "Remote":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what is open; may be called again."""
        await self._client.aclose()

    @property
    def name(self) -> str:
        """The service and its host, as messages begin."""
        return self._name

    async def post(self, path: str, body: Any, answer: type[T]) -> T:
        """Send JSON, return the answer as the msgspec type `answer`.

        Raises HttpRefused for an error status, Unavailable for all else, and both at once, without
        asking, for a while after repeated failure.
        """
        content = msgspec.json.encode(body)
        with self._circuit.call():
            began = self._clock.monotonic()
            try:
                decoded = await self._bounded(path, content, answer)
            except asyncio.CancelledError:
                if self._clock.monotonic() - began >= _SLOW_S:
                    self._circuit.failed(f"{self._name} is too slow.")
                raise
            except HttpRefused as exc:
                if not exc.is_this_request:
                    self._circuit.failed(str(exc))
                raise
            except _TryAgain as exc:
                self._circuit.failed(str(exc.failure), rest_s=exc.after_s or 0.0)
                raise exc.failure from None
            except Unavailable as exc:
                self._circuit.failed(str(exc))
                raise
            self._circuit.succeeded()
            return decoded

    async def _bounded(self, path: str, content: bytes, answer: type[T]) -> T:
        try:
            async with asyncio.timeout(self._limits.total_s):
                await self._check_address()
                return await self._tried(path, content, answer)
        except TimeoutError:
            raise Unavailable(
                f"{self._name} did not answer within {self._limits.total_s:.0f} s."
            ) from None

    async def _tried(self, path: str, content: bytes, answer: type[T]) -> T:
        wait_s = self._limits.first_wait_s
        for left in range(self._limits.tries - 1, -1, -1):
            try:
                return _decoded(await self._once(path, content), answer, self._name)
            except _TryAgain as exc:
                asked_s = exc.after_s
                if left == 0 or (asked_s or 0.0) > self._limits.longest_wait_s:
                    raise
                await self._clock.sleep(wait_s if asked_s is None else max(asked_s, wait_s))
                wait_s = min(wait_s * 2, self._limits.longest_wait_s)
        raise AssertionError("the last try returns or raises")

    async def _check_address(self) -> None:
        """Refuse a name that leads to where machines keep their own secrets."""
        try:
            # A number needs no asking, and was looked at when the settings were read.
            ipaddress.ip_address(self._host)
        except ValueError:
            pass
        else:
            return
        try:
            found = await asyncio.get_running_loop().getaddrinfo(self._host, None)
        except OSError as exc:
            raise Unavailable(
                f"{self._name} cannot be found: the name is not known. Check its address."
            ) from exc
        except UnicodeError:
            raise Unavailable(f"{self._name}: that is no name of a host.") from None
        for *_, place in found:
            address = str(place[0]).partition("%")[0]
            if off_limits(ipaddress.ip_address(address)):
                raise Unavailable(
                    f"{self._name} leads to {address}, where machines keep their own secrets; "
                    "it is not asked."
                )

    async def _once(self, path: str, content: bytes) -> bytes:
        try:
            async with self._client.stream(
                "POST",
                self._url + path,
                content=content,
                headers={
                    "content-type": "application/json",
                    **({} if self._sign is None else self._sign(path, content)),
                },
            ) as response:
                if response.status_code != HTTPStatus.OK:
                    raise await self._refusal(response)
                return await self._body(response, self._limits.max_bytes)
        except AddressRefused as exc:
            # The name led elsewhere since it was looked at, or to what is nobody's service.
            raise Unavailable(f"{self._name} is not asked: {exc}") from None
        except httpx.ConnectError as exc:
            failure = Unavailable(f"{self._name} cannot be reached.")
            raise _TryAgain(failure) from exc
        except httpx.TimeoutException as exc:
            # Not again: the time that is left is better spent without it.
            raise Unavailable(f"{self._name} does not answer.") from exc
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError) as exc:
            failure = Unavailable(f"{self._name} broke the connection off.")
            raise _TryAgain(failure) from exc
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError) as exc:
            raise Unavailable(f"{self._name} cannot be asked ({type(exc).__name__}).") from exc

    async def _body(self, response: httpx.Response, limit: int) -> bytes:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise Unavailable(f"{self._name} compressed its answer, which was not asked for.")
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.aiter_raw():
            size += len(chunk)
            if size > limit:
                raise Unavailable(f"{self._name} answered with more than {limit:,} bytes.")
            chunks.append(chunk)
        return b"".join(chunks)

    async def _refusal(self, response: httpx.Response) -> Exception:
        status = response.status_code
        if 300 <= status < 400:
            return HttpRefused(
                f"{self._name} redirects elsewhere ({status}), and no redirect is followed. "
                "Set the address it redirects to.",
                status=status,
            )
        message = f"{self._name} answered {_named(status)}{await self._code(response)}."
        hint = _HINTS.get(status)
        refused = HttpRefused(message if hint is None else f"{message} {hint}", status=status)
        if status in _TRANSIENT:
            return _TryAgain(refused, after_s=self._retry_after(response))
        return refused

    async def _code(self, response: httpx.Response) -> str:
        """Return the error's code in brackets where the body has one that can be no echo."""
        try:
            raw = await self._body(response, _ERROR_BYTES)
            error = msgspec.json.decode(raw, type=_ErrorBody).error
        except (msgspec.MsgspecError, UnicodeDecodeError, Unavailable, httpx.HTTPError):
            return ""
        if not isinstance(error, dict):
            return ""
        codes = (error.get("code"), error.get("type"))
        code = next((c for c in codes if isinstance(c, str) and _CODE.match(c)), None)
        if code is None or any(code in value for value in self._client.headers.values()):
            return ""
        return f" ({code})"

    def _retry_after(self, response: httpx.Response) -> float | None:
        """Return the seconds the service asks us to wait, capped; None where it does not say."""
        text = response.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return min(float(text[:9]), self._limits.longest_rest_s)
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        seconds = (when - self._clock.now()).total_seconds()
        return min(max(seconds, 0.0), self._limits.longest_rest_s)


class _ErrorBody(msgspec.Struct):
    error: Any = None


_HINTS: Final = {
    401: "Check the key.",
    403: "Check the key, and what it may do.",
    404: "Check the address and the model's name.",
}


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _decoded(raw: bytes, answer: type[T], name: str) -> T:
    try:
        return msgspec.json.decode(raw, type=answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # What exactly was wrong would quote it.
        what = "a web page" if raw.lstrip()[:1] == b"<" else "something that is not its JSON"
        raise Unavailable(f"{name} answered {what}. Check its address.") from None

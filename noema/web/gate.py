"""The gate every request passes: host, credential, role, origin and CSRF token, size; then headers.

A bearer token and a cookie are never mixed: where an Authorization header stands, the cookie counts
for nothing, so a bogus token beside a good cookie is refused.
"""

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import SimpleCookie
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import structlog
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noema.auth.limits import Addresses
from noema.auth.model import Bearer, Origin, Session
from noema.auth.roles import require_console
from noema.auth.sight import OutOfReach
from noema.auth.tokens import PREFIX
from noema.core.errors import (
    Denied,
    InvalidInput,
    NoemaError,
    RateLimited,
    TooLarge,
    Unauthorised,
    Unavailable,
)
from noema.web import forms, problem
from noema.web.call import Call, Endpoint
from noema.web.forwarded import client_address
from noema.web.origin import transport_of
from noema.web.refused import Refusals
from noema.web.services import Services
from noema.web.sighted import Sighted

log = structlog.get_logger()

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

ErrorPage = Callable[[problem.Problem, Call], Awaitable[Response]]


class Edge:
    """The outermost layer: refuses foreign hosts, and puts the security headers on every answer."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services
        self._strict = services.settings.secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if self._strict:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        request = Request(scope)
        _name_client(scope, request, self._services)
        if not self._is_own_host(request.headers.get("host", "")):
            refused = problem.of(
                InvalidInput("This host name is not one Noema answers to; see NOEMA_PUBLIC_URL.")
            )
            await problem.response(refused, request)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _is_own_host(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        settings = self._services.settings
        own = {_bracketed(settings.host)}
        if settings.public_url is not None:
            own.add(_bracketed(urlsplit(settings.public_url).hostname or ""))
        return name.lower() in _LOOPBACK or name.lower() in own


def _name_client(scope: Scope, request: Request, services: Services) -> None:
    """Let everything behind the edge see the client's address, not that of a proxy of ours."""
    peer = scope.get("client")
    trusted = services.settings.trusted_proxies
    if peer is not None and trusted:
        forwarded = request.headers.getlist("x-forwarded-for")
        scope["client"] = (client_address(peer[0], forwarded, trusted), peer[1])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def cookie_name(services: Services) -> str:
    """Return the session cookie's name; the prefix makes browsers insist on TLS and one host."""
    return "__Host-noema" if services.settings.secure else "noema_session"


def session_cookie(services: Services, secret: str, *, max_age_s: int) -> str:
    """Return the Set-Cookie value that carries a session, or ends it with an age of 0."""
    cookie: SimpleCookie = SimpleCookie()
    name = cookie_name(services)
    cookie[name] = secret
    cookie[name]["path"] = "/"
    cookie[name]["httponly"] = True
    cookie[name]["samesite"] = "Lax"
    cookie[name]["max-age"] = max_age_s
    if services.settings.secure:
        cookie[name]["secure"] = True
    return cookie[name].OutputString()


class Gate:
    """Turns an endpoint of the table into a Starlette handler."""

    def __init__(self, services: Services, error_page: ErrorPage) -> None:
        self._services = services
        self._error_page = error_page
        self._bad_tokens = Addresses(clock=services.clock)
        self._refusals = Refusals(audit=services.access.audit, clock=services.clock)

    def guard(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler with everything in front of it that the endpoint's line asks for."""

        async def handle(request: Request) -> Response:
            call = Call(request=request, services=self._services)
            is_in = False
            try:
                await self._let_in(call, endpoint)
                is_in = True
                return await endpoint.handler(call)
            except ClientDisconnect as exc:
                await self._tell_of_syscall(call, endpoint, exc)
                return Response(status_code=499)
            except Denied as exc:
                # What a domain refuses it has put on record itself.
                if endpoint.op is None and (not is_in or isinstance(exc, OutOfReach)):
                    await self._refusals.tell(call, f"{endpoint.method} {endpoint.path}", exc)
                await self._tell_of_syscall(call, endpoint, exc)
                return await self.failed(call, exc, is_page=endpoint.is_page)
            except (NoemaError, HTTPException, MultiPartException, TimeoutError) as exc:
                await self._tell_of_syscall(call, endpoint, exc)
                return await self.failed(call, exc, is_page=endpoint.is_page)
            except Exception as exc:
                # The last resort: what nobody foresaw is logged whole and shown as nothing.
                log.exception("request_failed", path=request.url.path)
                await self._tell_of_syscall(call, endpoint, exc)
                return await self.failed(call, exc, is_page=endpoint.is_page)

        return handle

    async def _tell_of_syscall(self, call: Call, endpoint: Endpoint, exc: Exception) -> None:
        """Put a request on record that was turned away before its syscall began."""
        if endpoint.op is None or call.is_dispatched:
            return
        if call.identity is None:
            route = f"{endpoint.method} {endpoint.path}"
            await self._refusals.tell(call, route, exc, verb=endpoint.op)
        else:
            told = forms.unquoted(exc)
            await self._services.memory.refused(call.identity, endpoint.op, told)

    async def failed(self, call: Call, exc: Exception, *, is_page: bool) -> Response:
        """Return the error as a page for people, a problem for programs."""
        found = _problem(exc)
        if not is_page:
            return problem.response(found, call.request)
        if found.status == 401 and call.request.method == "GET":
            return RedirectResponse(_login_path(call.request), status_code=303)
        return await self._error_page(found, call)

    async def _let_in(self, call: Call, endpoint: Endpoint) -> None:
        request = call.request
        if any(v.startswith(PREFIX) for v in request.query_params.values()):
            # Nothing that is shown of this request may show it again.
            call.request = Request({**request.scope, "query_string": b""}, request.receive)
            raise InvalidInput(
                "A token in a URL ends up in logs; send it as Authorization: Bearer instead."
            )
        if endpoint.need != "public":
            await self._identify(call, endpoint)
            require_console(call.who, endpoint.role)
            call.services = Sighted(self._services, call.sight)
        call.body = await _body(request, endpoint.limit_bytes)
        if request.method not in _SAFE:
            if endpoint.need != "public":
                await self._look_again(call, endpoint)
            await self._check_origin(call, endpoint)

    async def _identify(self, call: Call, endpoint: Endpoint) -> None:
        header = call.request.headers.get("authorization")
        if header is not None and endpoint.need != "session":
            kind, _, token = header.partition(" ")
            if kind.lower() != "bearer":
                raise Unauthorised("Use Authorization: Bearer with a token of Noema.")
            call.bearer = await self._bearer(call, token.strip())
            call.identity = call.bearer.identity
            return
        secret = call.request.cookies.get(cookie_name(self._services), "")
        session = await self._services.access.session(secret) if secret else None
        if session is None:
            raise Unauthorised(
                "Log in first: open the link the daemon printed, or send a token"
                " (noemactl login, or Authorization: Bearer)."
            )
        call.session, call.identity = session, session.identity

    async def _look_again(self, call: Call, endpoint: Endpoint) -> None:
        """Raise unless who began to send still may: a body can take as long as its sender likes."""
        now = await self._services.access.again(call.credential)
        if now is None:
            raise Unauthorised("What you came in with has ended; log in again.")
        if isinstance(now, Bearer):
            call.bearer = now
        else:
            call.session = now
        call.identity = now.identity
        require_console(call.who, endpoint.role)
        call.services = Sighted(self._services, call.sight)

    async def _bearer(self, call: Call, token: str) -> Bearer:
        client = call.request.client
        address = "" if client is None else client.host
        origin = Origin(
            address=address,
            user_agent=call.request.headers.get("user-agent", ""),
            agent_id=transport_of(call.request),
        )
        try:
            return await self._services.access.bearer(token, origin=origin)
        except Unauthorised:
            # Failures alone count: a good token never waits for what others do at its address.
            if wait_s := self._bad_tokens.take(address):
                raise RateLimited(
                    f"Too many bad tokens from here; try again in {wait_s} s.",
                    retry_after_s=wait_s,
                ) from None
            raise

    async def _check_origin(self, call: Call, endpoint: Endpoint) -> None:
        request = call.request
        by_token = call.session is None and endpoint.need != "public"
        if by_token:
            return
        origin = request.headers.get("origin")
        if origin is not None:
            if not self._is_own_origin(origin, request.headers.get("host", "")):
                raise Denied("This came from another site; reload the page and try again.")
        elif request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Denied("This came from another site; reload the page and try again.")
        call.form = await _form(request, call.body)
        if call.session is not None:
            _check_csrf(call, call.session)

    def _is_own_origin(self, origin: str, host: str) -> bool:
        """Whether a page of this very host made the request; `null` and other schemes are not."""
        public = self._services.settings.public_url
        if public is not None and origin.lower() == _origin_of(public):
            return authority(public) == host.lower()
        if not origin.lower().startswith(("http://", "https://")) or origin.count("/") > 2:
            return False
        return authority(origin) == host.lower() and not self._must_be_tls(host)

    def _must_be_tls(self, host: str) -> bool:
        # Where people come in over TLS, a page of the same name over http is another site.
        public = self._services.settings.public_url or ""
        return self._services.settings.secure and authority(public) == host.lower()


def _origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def authority(url: str) -> str:
    """Return host and port of the URL, in lower case; nothing of what is no URL."""
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""


def _login_path(request: Request) -> str:
    """Return the sign-in page, which leads on to the page that was asked for."""
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return "/login" if asked == "/" else f"/login?{urlencode({'next': asked})}"


def _check_csrf(call: Call, session: Session) -> None:
    sent = call.request.headers.get("x-csrf-token") or call.form.get("csrf_token", "")
    if not secrets.compare_digest(sent.encode(), session.csrf.encode()):
        raise Denied("The page is out of date: its form token is not valid. Reload and try again.")


async def _body(request: Request, limit: int) -> bytes:
    if request.method in _SAFE:
        return b""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"The body is over {limit:,} bytes, the most that is taken here.")
        chunks.append(chunk)
    return b"".join(chunks)


async def _form(request: Request, body: bytes) -> dict[str, str]:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in ("application/x-www-form-urlencoded", "multipart/form-data"):
        return {}

    async def again() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    replayed = Request(request.scope, again)
    async with replayed.form(max_files=0, max_fields=200) as parsed:
        return {k: v for k, v in parsed.multi_items() if isinstance(v, str)}


def _problem(exc: Exception) -> problem.Problem:
    if isinstance(exc, TimeoutError):
        return problem.of(Unavailable("The database did not answer in time; try again later."))
    if isinstance(exc, MultiPartException):
        return problem.of(InvalidInput("The form cannot be read; reload the page and try again."))
    if isinstance(exc, HTTPException):
        status = exc.status_code if exc.status_code in problem.TITLES else 400
        return problem.Problem(
            status=status,
            code={404: "not_found", 405: "method_not_allowed"}.get(status, "invalid"),
            title=problem.TITLES[status],
            detail={404: "There is nothing at this address.", 405: "Not with this method."}.get(
                status, str(exc.detail)
            ),
        )
    return problem.of(exc)

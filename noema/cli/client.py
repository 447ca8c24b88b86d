"""How `noemactl` reaches the daemon: the address, the token, requests, pages and streams.

Whatever goes wrong comes out as a CommandError with the exit code that scripts rely on. A redirect
is never followed, so that a token goes to the address it was given for and nowhere else.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import click
import httpx

from noema import config
from noema.cli.output import FAILED, NOT_FOUND, UNAUTHORISED, UNREACHABLE, CommandError, one_line
from noema.core.clock import Clock

DEFAULT_URL: Final = "http://127.0.0.1:8420"
PAGE: Final = 200
_TIMEOUT = httpx.Timeout(60, connect=5)
# The daemon sends a comment every 15 seconds, so three missed ones mean that the line is dead.
_STREAM_TIMEOUT = httpx.Timeout(45, connect=5)
_EXIT_CODES = {401: UNAUTHORISED, 403: UNAUTHORISED, 404: NOT_FOUND, 410: NOT_FOUND}
_JSON: Final = {"Content-Type": "application/json"}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Unreachable(CommandError):  # noqa: N818
    """Nothing answers at the address, or the connection broke off."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=UNREACHABLE)


class Refusal(CommandError):  # noqa: N818
    """The daemon answered no; `index` names the item of a batch that was at fault."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str = "",
        index: int | None = None,
        retry_after: str | None = None,
    ) -> None:
        super().__init__(message, exit_code=_EXIT_CODES.get(status, FAILED))
        self.status, self.problem, self.index, self.retry_after = status, code, index, retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Where to go, and with which token."""

    url: str
    token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSent:
    """One event of a stream: its position, its name, its data."""

    id: str | None
    name: str
    data: str


@dataclass(slots=True, kw_only=True)
class Ctl:
    """What every command is given: the settings, the clock, and a way to wait in seconds."""

    settings: config.ClientSettings
    clock: Clock
    pause: Callable[[float], None]

    def daemon(self) -> "Daemon":
        """Return the daemon to talk to, closed when the command ends."""
        return self.daemon_at(find_login(self.settings))

    def daemon_at(self, login: Login) -> "Daemon":
        """Return the daemon at another address than the usual one."""
        daemon = Daemon(login)
        click.get_current_context().call_on_close(daemon.close)
        return daemon


pass_ctl = click.make_pass_decorator(Ctl)


class Daemon:
    """One Noema daemon over HTTP."""

    def __init__(self, login: Login) -> None:
        self.url = login.url
        headers = {"Accept": "application/json", "User-Agent": "noemactl"}
        if login.token is not None:
            headers["Authorization"] = f"Bearer {login.token}"
        self._http = httpx.Client(
            base_url=login.url,
            headers=headers,
            timeout=_TIMEOUT,
            follow_redirects=False,
            # A proxy from the environment is for the world outside, not for this machine.
            trust_env=urlsplit(login.url).hostname not in _LOOPBACK,
        )

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON of a GET; parameters that are None are left out."""
        return self._ask("GET", path, params=_present(params))

    def post(
        self,
        path: str,
        body: Mapping[str, Any] | bytes,
        *,
        idempotency_key: str | None = None,
    ) -> Any:
        """Return the JSON of a POST of a JSON body, given as a mapping or already encoded."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = dict(_JSON)
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        return self._ask("POST", path, content=content, headers=headers)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the JSON of a PATCH."""
        content = json.dumps(body).encode()
        return self._ask("PATCH", path, content=content, headers=_JSON)

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the JSON of a PUT."""
        content = json.dumps(body).encode()
        return self._ask("PUT", path, content=content, headers=_JSON)

    def delete(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON of a DELETE, {} where the answer has none."""
        return self._ask("DELETE", path, params=_present(params))

    def items(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        *,
        cursor: str = "after",
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the items of a paged list, page after page; at most `limit`, None for all."""
        found: list[dict[str, Any]] = []
        query = dict(params or {})
        while limit is None or len(found) < limit:
            wanted = PAGE if limit is None else min(PAGE, limit - len(found))
            page = self.get(path, {**query, "limit": wanted})
            found += items_of(page)
            following = page.get("next")
            if following is None or following == query.get(cursor):
                break
            query[cursor] = following
        return found if limit is None else found[:limit]

    def stream(self, path: str, params: Mapping[str, Any]) -> Iterator[ServerSent]:
        """Yield the events of a stream until it ends; raise Unreachable where it breaks off.

        The first, of the name `open` and without an id, says that the daemon has answered.
        """
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if params.get("after"):
            headers["Last-Event-ID"] = str(params["after"])
        try:
            with self._http.stream(
                "GET", path, params=_present(params), headers=headers, timeout=_STREAM_TIMEOUT
            ) as response:
                if response.status_code != 200:
                    response.read()
                    raise self._refusal(response)
                yield ServerSent(id=None, name="open", data="")
                yield from server_sent(response.iter_bytes())
        except httpx.HTTPError as exc:
            raise self._unreachable(exc) from exc

    def _ask(self, method: str, path: str, **kwargs: Any) -> Any:
        try:
            response = self._http.request(method, path, **kwargs)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise self._unreachable(exc) from exc
        if not response.is_success:
            raise self._refusal(response)
        if not response.content:
            return {}
        try:
            return response.json()
        except ValueError:
            raise self._stranger(response) from None

    def _unreachable(self, exc: Exception) -> Unreachable:
        if isinstance(exc, (httpx.ConnectError, httpx.ConnectTimeout)):
            return Unreachable(
                f"Nothing answers at {self.url}. Start the daemon with `noema serve`, "
                "or name another address with NOEMA_URL or `noemactl login --url`."
            )
        if isinstance(exc, httpx.TimeoutException):
            return Unreachable(f"{self.url} does not answer in time; it may be busy.")
        return Unreachable(
            f"The connection to {self.url} broke off before the answer; see whether it is running."
        )

    def _refusal(self, response: httpx.Response) -> Refusal:
        status = response.status_code
        retry_after = response.headers.get("Retry-After")
        try:
            problem = response.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict):
            strange = self._stranger(response)
            return Refusal(strange.message, status=status, retry_after=retry_after)
        detail = problem.get("detail") or problem.get("title") or f"Refused with status {status}."
        message = one_line(str(detail))
        if status == 401:
            message += " Log in with `noemactl login`, or set NOEMA_TOKEN."
        index = problem.get("index")
        return Refusal(
            message,
            status=status,
            code=str(problem.get("code", "")),
            index=index if isinstance(index, int) else None,
            retry_after=retry_after,
        )

    def _stranger(self, response: httpx.Response) -> CommandError:
        return CommandError(
            f"{self.url} answered {response.status_code} with something that is not Noema's; "
            "check the address."
        )


def api(*segments: str | int) -> str:
    """Return the path `/v1/…` of the segments, each quoted so that none can leave its place."""
    quoted = []
    for segment in segments:
        text = quote(str(segment), safe="")
        # Dots are never quoted, and `..` would climb to another route.
        quoted.append(text.replace(".", "%2E") if text in (".", "..") else text)
    return "/v1/" + "/".join(quoted)


def items_of(page: Any) -> list[dict[str, Any]]:
    """Return the items of a page, whatever else it holds."""
    items = page.get("items") if isinstance(page, dict) else None
    if not isinstance(items, list):
        raise CommandError("The daemon answered with a list that has no items; is it of this age?")
    return items


def server_sent(chunks: Iterator[bytes]) -> Iterator[ServerSent]:
    """Yield the events in the bytes of a `text/event-stream`; one cut off at the end is dropped.

    Lines end with CR, LF or both, and with nothing else: JSON may hold other line separators.
    """
    last_id: str | None = None
    name, data = "", list[str]()
    for line in _lines(chunks):
        if not line:
            if data:
                yield ServerSent(id=last_id, name=name or "message", data="\n".join(data))
            name, data = "", []
            continue
        label, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if label == "data":
            data.append(value)
        elif label == "event":
            name = value
        elif label == "id" and "\0" not in value:
            last_id = value


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        rest += chunk
        # A CR at the very end may be half of a CRLF; it waits for what follows.
        held = rest.endswith(b"\r")
        whole = rest[:-1] if held else rest
        whole = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, tail = whole.split(b"\n")
        rest = tail + b"\r" if held else tail
        for line in lines:
            yield line.decode("utf-8", "replace")


def _present(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (params or {}).items() if value is not None}


def checked_url(url: str) -> str:
    """Return the address in one spelling; refuse what is none, or holds a secret."""
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError:
        raise CommandError(f"{url!r} is not an address; write http://127.0.0.1:8420.") from None
    if "@" in parts.netloc or parts.query or parts.fragment or "noema_" in url:
        # Not quoted back: it may be the secret itself.
        raise CommandError(
            "A token never belongs in an address, where logs and histories keep it; "
            "pass it to `noemactl login`, or set NOEMA_TOKEN."
        )
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        raise CommandError(f"{url!r} is not an address; write http://127.0.0.1:8420.")
    path = parts.path.rstrip("/")
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), path, "", ""))


def checked_token(token: str) -> str:
    """Return the token without white space around it; refuse what no header can carry."""
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CommandError("That is not a token; one starts with noema_ and has no spaces.")
    return token


def travels_in_clear(url: str) -> bool:
    """Whether a token sent to this address can be read on the way."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in _LOOPBACK


def find_login(settings: config.ClientSettings) -> Login:
    """Return where to go: the environment, else what was stored, else this machine.

    A stored token goes only to the address it was stored with.
    """
    url = None if settings.url is None else checked_url(settings.url)
    token = None if settings.token is None else checked_token(settings.token)
    if url is not None and token is not None:
        return Login(url=url, token=token)
    stored = stored_login(settings.config_dir)
    if stored is None:
        return Login(url=url or DEFAULT_URL, token=token)
    if url is None or url == stored.url:
        return Login(url=stored.url, token=token or stored.token)
    return Login(url=url, token=token)


def login_file(config_dir: Path) -> Path:
    """Return where a login is kept."""
    return config_dir / "credentials.json"


def stored_login(config_dir: Path) -> Login | None:
    """Return what `noemactl login` stored, None where nobody has logged in."""
    path = login_file(config_dir)
    broken = f"Cannot use {path}; log in again with `noemactl login`."
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise CommandError(broken) from None
    url = stored.get("url") if isinstance(stored, dict) else None
    token = stored.get("token") if isinstance(stored, dict) else None
    if not isinstance(url, str) or not isinstance(token, str):
        raise CommandError(broken)
    return Login(url=checked_url(url), token=checked_token(token))


def store_login(config_dir: Path, login: Login) -> Path:
    """Keep a login where only its owner can read it: whole, or not at all."""
    path = login_file(config_dir)
    try:
        config_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp makes the file 0600 from the start; the name becomes ours in one step.
        handle, name = tempfile.mkstemp(dir=config_dir, prefix=".credentials-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"url": login.url, "token": login.token}, file)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as exc:
        raise CommandError(f"Cannot keep the login in {path}: {exc.strerror}.") from exc
    return path

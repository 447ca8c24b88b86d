"""Running the daemon: database, minds and the HTTP server, in one event loop, with a clean stop."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Final

import structlog
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from noema import __version__
from noema.app import Noema, build, open_database
from noema.config import Settings
from noema.core.clock import SystemClock, UuidV7Ids
from noema.core.errors import ConfigError, InvalidInput, NotFound
from noema.web.app import create

log = structlog.get_logger()

BOOTSTRAP: Final = "bootstrap"
MAX_HEAD_BYTES: Final = 64 * 1024
_STOP_S: Final = 10

Say = Callable[[str], None]
After = Callable[[Noema], Coroutine[None, None, None]]


def configure_logging(settings: Settings) -> None:
    """Log to stderr, as text for people or JSON for machines."""
    level = getattr(logging, settings.log_level.upper())
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            # A traceback with local variables would print texts and secrets from outside.
            exception_formatter=structlog.dev.plain_traceback,
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info
            if settings.log_format == "json"
            else structlog.processors.UnicodeDecoder(),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")


def bind(settings: Settings) -> socket.socket:
    """Return the listening socket, bound before anything is started.

    Raises ConfigError where the port is taken or the address is not ours.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((settings.host, settings.port))
        sock.listen(2048)
    except OSError as exc:
        sock.close()
        raise ConfigError(
            f"Cannot listen on {settings.host} port {settings.port}: {exc.strerror}. Stop what "
            "uses it, or set NOEMA_PORT to another port (0 takes a free one)."
        ) from exc
    return sock


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run to the end on uvloop."""

    async def awaited() -> None:
        await main()

    uvloop.run(awaited())


class BoundedHttp(HttpToolsProtocol):
    """HTTP as uvicorn speaks it, for heads of at most 64 KiB.

    The parser itself takes a head of any length, and puts it together so slowly that one endless
    header, sent by anybody, would stand still all minds.
    """

    _head_bytes = 0
    _is_in_head = True

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > MAX_HEAD_BYTES and self.parser is not None:
            self.send_400_response("The head of this request is over 64 KiB.")

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_head, self._head_bytes = True, 0
        super().on_message_complete()


class Server(uvicorn.Server):
    """uvicorn in our loop. Signals are ours, because streams have to end before it does."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: Settings, *, say: Say, after: After | None = None) -> None:
    """Run the daemon until SIGINT or SIGTERM; `after` runs beside it once it listens."""
    sock = bind(settings)
    try:
        await _serve(settings, sock, say=say, after=after)
    finally:
        sock.close()


async def _serve(settings: Settings, sock: socket.socket, *, say: Say, after: After | None) -> None:
    port = sock.getsockname()[1]
    settings = settings.with_port(port)
    clock = SystemClock()
    ids = UuidV7Ids(clock)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with open_database(settings, clock) as dsns:
        for note in dsns.notes:
            say(note)
        async with build(settings, dsns, clock=clock, ids=ids) as noema:
            await _first_start(noema, say, is_demo=after is not None)
            await _run_http(noema, sock, stop, say, after)


async def _first_start(noema: Noema, say: Say, *, is_demo: bool) -> None:
    if noema.settings.bootstrap_admin is not None:
        name, password = noema.settings.bootstrap_admin
        try:
            if await noema.access.setup.bootstrap(name, password):
                say(f"The first administrator is {name}, by NOEMA_BOOTSTRAP_ADMIN.")
        except InvalidInput as exc:
            raise ConfigError(f"NOEMA_BOOTSTRAP_ADMIN cannot be used. {exc}") from None
    if not is_demo or await noema.access.has_token() or await noema.access.users.has_any():
        return
    # Nobody sets up a demo: its link is a local token's, so that one click leads inside.
    token = await noema.access.create_token(BOOTSTRAP)
    if sys.stdout.isatty():
        say(f"Your first token, for noemactl login; it is not shown again:\n  {token}")
    else:
        # What is not a terminal is often kept somewhere; a secret must not be.
        say("A first token was made. For one to use: noemactl token create --local")


async def _say_the_way_in(noema: Noema, say: Say, *, is_demo: bool) -> None:
    """Print the one link that is of use now: to set Noema up, or to come in."""
    base_url, access = noema.settings.base_url, noema.access
    first = None if is_demo else await access.setup.first_link(base_url=base_url)
    if first is not None:
        say(
            "Nobody has an account yet. This link makes the first administrator's; it works once, "
            f"for a day:\n  {first}"
        )
        return
    if not is_demo and await access.users.has_administrator():
        # What is said here is often kept in a journal: no way in may stand there at every start.
        say(f"Sign in at {base_url}/login; where nobody can, noema link prints a link to come in.")
        return
    try:
        link = await access.new_link(base_url=base_url)
    except NotFound:
        say(
            "Nobody is an administrator; make one: "
            "noemactl user create NAME --role administrator --local"
        )
        return
    say(f"Open this link to come in; it works once, for half an hour:\n  {link}")


def _say_what_is_missing(settings: Settings, say: Say) -> None:
    if not settings.secure:
        say(
            "People reach this daemon by plain http, so its cookies are not marked Secure; for "
            "more than this machine put TLS in front and set NOEMA_PUBLIC_URL."
        )


async def _run_http(
    noema: Noema, sock: socket.socket, stop: asyncio.Event, say: Say, after: After | None
) -> None:
    config = uvicorn.Config(
        create(noema),
        http=BoundedHttp,
        loop="none",
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_S,
    )
    server = Server(config)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(sockets=[sock]), name="http")
        extra: asyncio.Task[None] | None = None
        try:
            protection = noema.protection
            say(f"Noema {__version__} listens on {noema.settings.base_url}")
            say(f"Database: PostgreSQL {protection.server_version}, protection: {protection.kind}")
            for finding in protection.findings:
                say(f"Warning: {finding}")
            await _say_the_way_in(noema, say, is_demo=after is not None)
            if after is None:
                _say_what_is_missing(noema.settings, say)
            else:
                extra = group.create_task(after(noema), name="after")
            stopped = group.create_task(stop.wait(), name="stop")
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            say("Stopping: the cycles under way are finished first.")
        finally:
            if extra is not None:
                extra.cancel()
            noema.feed.close()
            server.should_exit = True

"""What the browser tests share: a watched page, a sign-in, and a wire that can be cut."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Response,
    StorageState,
)

from tests.helpers import eventually
from tests.running import Daemon

# Said on the console, which is the one way out of a page that is about to be left.
_REPORT_CSP = """
document.addEventListener('securitypolicyviolation', (event) => {
  console.error(`csp: ${event.effectiveDirective} refused ${event.blockedURI || 'inline'}`);
});
"""


@dataclass(slots=True, kw_only=True)
class Watch:
    """What went wrong in the pages of one test, and what of it the test meant to see."""

    problems: list[str] = field(default_factory=list)
    _meant: list[re.Pattern[str]] = field(default_factory=list)

    def expect(self, *patterns: str) -> None:
        """Let problems pass in which one of the patterns is found."""
        self._meant.extend(re.compile(p) for p in patterns)

    @property
    def unexpected(self) -> list[str]:
        return [p for p in self.problems if not any(m.search(p) for m in self._meant)]

    async def over(self, context: BrowserContext, url: str) -> None:
        """Watch every page of the context; answers count where they come from this origin."""
        origin = urlsplit(url).netloc

        async def said(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                at = urlsplit(message.location.get("url", "")).path
                self.problems.append(f"console {message.type}: {message.text} ({at})")

        async def answered(response: Response) -> None:
            asked = urlsplit(response.url)
            if asked.netloc == origin and not 200 <= response.status < 400:
                self.problems.append(f"answer {response.status}: {asked.path}")

        async def opened(dialog: Dialog) -> None:
            self.problems.append(f"dialog: {dialog.message}")
            await dialog.dismiss()

        context.on("console", said)
        context.on("response", answered)
        context.on("dialog", opened)
        context.on("weberror", lambda e: self.problems.append(f"page error: {e.error}"))
        await context.add_init_script(_REPORT_CSP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Somebody at the browser, signed in unless asked otherwise, every page of theirs watched."""

    browser: Browser
    daemon: Daemon
    signed_in: StorageState
    watch: Watch
    _contexts: list[BrowserContext] = field(default_factory=list)

    async def context(self, *, url: str | None = None, **options: Any) -> BrowserContext:
        """Return a fresh browser profile; `storage_state=None` is one that nobody let in."""
        base = url or self.daemon.url
        options = {"storage_state": self.signed_in, "reduced_motion": "reduce"} | options
        context = await self.browser.new_context(base_url=base, **options)
        context.set_default_timeout(20_000)
        self._contexts.append(context)
        await self.watch.over(context, base)
        return context

    async def page(self, **options: Any) -> Page:
        return await (await self.context(**options)).new_page()

    async def leave(self) -> None:
        for context in self._contexts:
            await context.close()


async def thinks(daemon: Daemon, slug: str, lines: list[str]) -> None:
    """Feed the lines as one batch and wait until the mind is done with them."""
    await daemon.fed(slug, lines)
    await settles(daemon, slug)


async def settles(daemon: Daemon, slug: str) -> None:
    """Wait until the mind has thought and nothing waits."""

    async def is_done() -> bool:
        mind = await daemon.noema.minds.get(slug)
        return mind.cycles > 0 and await daemon.is_idle(slug)

    await eventually(is_done, within_s=60, every_s=0.05)


async def is_live(page: Page) -> None:
    """Wait until the page says that its tail is live."""
    await page.wait_for_selector("#live[data-state='live']")


async def texts(page: Page, selector: str) -> list[str]:
    """Return the trimmed text of everything that the selector finds."""
    return [t.strip() for t in await page.locator(selector).all_inner_texts()]


class Wire:
    """A relay on a loopback port in front of the daemon, which a test can cut and mend."""

    def __init__(self, to: str) -> None:
        self._to = urlsplit(to)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def mend(self) -> None:
        """Take connections, on the port of before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Drop every connection in the middle and refuse new ones."""
        assert self._server is not None
        self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()
        await self._server.wait_closed()
        await eventually(lambda: not self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection(self._to.hostname, self._to.port)
        both = {writer, to}
        self._open |= both
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, to, both))
                group.create_task(_pump(there, writer, both))
        finally:
            self._open -= both


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, both: Iterable[asyncio.StreamWriter]
) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    for one in both:
        one.close()


@asynccontextmanager
async def wire(to: str) -> AsyncIterator[Wire]:
    """Put a wire in front of the daemon for as long as the block lasts."""
    between = Wire(to)
    await between.mend()
    try:
        yield between
    finally:
        await between.cut()

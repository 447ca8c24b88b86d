"""One Chromium and one daemon with a fed mind for each pytest process; a watched page each test."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import uuid4

import pytest
from playwright.async_api import Browser, Page, StorageState, async_playwright, expect

from tests.conftest import Server, fresh_database
from tests.e2e.browsing import Visitor, Watch, settles, thinks
from tests.e2e.find_browser import find
from tests.helpers import eventually
from tests.running import Daemon, daemon

_ARGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_SHELL_LOG = (
    "sshd[{n}]: Failed password for root from 203.0.113.{i} port 4{n} ssh2",
    "sshd[{n}]: Connection closed by 198.51.100.{i} [preauth]",
    "CRON[{n}]: (root) CMD (run-parts /etc/cron.hourly)",
    "systemd[1]: Started Session {n} of user deploy.",
)
RARE = (
    "kernel: Out of memory: Killed process 4242 (indexer) total-vm:8123456kB",
    "kernel: EXT4-fs error (device sda1): ext4_find_entry: reading directory lblock 0",
    "smartd[611]: Device: /dev/sda, 8 Currently unreadable (pending) sectors",
    f"app: token={'y7Qz' * 60} was refused",
    "sudo: intruder : user NOT in sudoers ; TTY=pts/0 ; COMMAND=/bin/cat /etc/shadow",
    "日本語のログ行: ディスクがいっぱいです",
)
_BATCHES = 6

expect.set_options(timeout=20_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """A daemon and where to find something in it."""

    daemon: Daemon
    slug: str
    cycle: int
    thought: str
    loser: str
    event: str
    replay: str


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The Chromium of this pytest process."""
    path = await asyncio.to_thread(find)
    if path is None:
        pytest.fail("No Chromium here. `make test` fetches one; TEST_CHROMIUM names one.")
    root = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=path, args=[*_ARGS, *root], timeout=120_000
        )
        try:
            yield chromium
        finally:
            await chromium.close()


@pytest.fixture(scope="session")
async def running(server: Server, template: str) -> AsyncIterator[Daemon]:
    """The daemon of this pytest process; every test that changes a mind makes its own."""
    async with fresh_database(server, template) as database, daemon(database) as started:
        yield started


def _lines(batch: int) -> list[str]:
    lines = [
        _SHELL_LOG[i % len(_SHELL_LOG)].format(n=1000 + 40 * batch + i, i=i % 250)
        for i in range(33)
    ]
    return [*lines[:20], RARE[batch % len(RARE)], *lines[20:]]


@pytest.fixture(scope="session")
async def fed(running: Daemon) -> Fed:
    """A mind `ada` with a history, only to be looked at, and one without, `bob`."""
    minds, client = running.noema.minds, running.client
    await minds.create(slug="ada", name="Ada", actor="test")
    await minds.create(slug="bob", name="Bob, who has not thought yet", actor="test")
    await minds.set_mode("bob", "paused", actor="test")
    for batch in range(_BATCHES):
        await thinks(running, "ada", _lines(batch))
    await minds.add_goal("ada", "failures of the disk sda", priority=700_000, actor="test")
    await minds.tune("ada", {"weights": {"goal": 1_700_000}}, note="disks matter", actor="test")
    await thinks(running, "ada", ["smartd[611]: Device: /dev/sda, SMART error count rose to 3"])
    await client.post("/v1/minds/ada/messages", json={"text": "What happened to the disk sda?"})

    async def has_answered() -> bool:
        said = await minds.transcript(await minds.get("ada"))
        return any(s.in_reply_to for s in said)

    await eventually(has_answered, within_s=60)
    await settles(running, "ada")
    replay = (await client.post("/v1/replays", json={"mind": "ada"})).json()["id"]

    async def is_verified() -> bool:
        return bool((await client.get(f"/v1/replays/{replay}")).json()["state"] == "done")

    await eventually(is_verified, within_s=60, every_s=0.05)
    scored = await running.noema.events.before(type_="candidate.scored", limit=2_000)
    lost = next(e for e in scored if e.data["rank"] == 2)
    thought = next(
        e
        for e in await running.noema.events.before(type_="thought.admitted", limit=500)
        if e.cycle_id == lost.cycle_id
    )
    assert lost.cycle_id is not None
    numbers = await running.noema.pages.cycle_numbers([lost.cycle_id])
    return Fed(
        daemon=running,
        slug="ada",
        cycle=numbers[lost.cycle_id],
        thought=str(thought.id),
        loser=str(lost.id),
        event=str(thought.id),
        replay=replay,
    )


@pytest.fixture(scope="session")
async def signed_in(browser: Browser, running: Daemon) -> StorageState:
    """The cookies of somebody who opened the one-time link."""
    context = await browser.new_context()
    try:
        page = await context.new_page()
        await page.goto(await running.noema.access.new_link(base_url=running.url))
        await expect(page.get_by_role("heading", name="Minds")).to_be_visible()
        return await context.storage_state()
    finally:
        await context.close()


@pytest.fixture
async def visitor(
    browser: Browser, running: Daemon, signed_in: StorageState
) -> AsyncIterator[Visitor]:
    """Somebody at the browser; the test fails on whatever goes wrong in their pages unmeant."""
    watch = Watch()
    visitor = Visitor(browser=browser, daemon=running, signed_in=signed_in, watch=watch)
    try:
        yield visitor
    finally:
        await visitor.leave()
    assert not watch.unexpected


@pytest.fixture
async def page(visitor: Visitor) -> Page:
    """A page of somebody who is signed in."""
    return await visitor.page()


@pytest.fixture
async def mind(running: Daemon, request: pytest.FixtureRequest) -> str:
    """The slug of a new mind for this test alone."""
    words: str = request.node.name.removeprefix("test_").replace("_", "-").split("[")[0]
    slug = f"{words[:36].strip('-')}-{uuid4().hex[:4]}"
    await running.noema.minds.create(slug=slug, actor="test")
    return slug

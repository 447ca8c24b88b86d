"""What docs/security.md promises and no other test has in view."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from noema.app import build
from noema.auth.model import SecondFactorDue
from noema.config import Settings
from noema.core.clock import ManualClock, SystemClock, UuidV7Ids
from noema.core.errors import Unauthorised
from noema.core.identity import LOCAL
from noema.web.app import create
from tests.conftest import TestDatabase
from tests.house import HERE, OTHER, House, house
from tests.running import Daemon, daemon, dsns_of


@pytest.fixture
async def here(database: TestDatabase, clock: ManualClock) -> AsyncIterator[House]:
    async with house(database, clock) as opened:
        await opened.person()
        yield opened


@pytest.fixture
async def running(database: TestDatabase) -> AsyncIterator[Daemon]:
    async with daemon(database) as started:
        yield started


async def test_a_new_password_by_link_leaves_the_second_factor_on(here: House) -> None:
    seed, _ = await here.with_totp()
    setup = here.access.setup
    link = (await setup.password_link(LOCAL, "ada", base_url="")).rpartition("link=")[2]

    await setup.choose_password(link, OTHER, origin=HERE)
    due = await here.access.log_in("ada", OTHER, origin=HERE)

    assert isinstance(due, SecondFactorDue)
    with pytest.raises(Unauthorised):
        await here.access.finish_log_in(due.ticket, "000000x", origin=HERE)
    again = await here.access.log_in("ada", OTHER, origin=HERE)
    assert isinstance(again, SecondFactorDue)
    entered = await here.access.finish_log_in(again.ticket, here.code(seed), origin=HERE)
    assert await here.is_in(await here.session(entered.secret))


async def test_no_answer_may_be_kept_by_a_cache(running: Daemon) -> None:
    link = await running.noema.access.new_link(base_url=running.url)
    async with httpx.AsyncClient(base_url=running.url) as browser:
        came_in = await browser.get(link)
        pages = [await browser.get(path) for path in ("/", "/system", "/events", "/login")]
    answers = [
        came_in, *pages,
        *[await running.client.get(path) for path in ("/v1/whoami", "/v1/tokens", "/v1/minds/x")],
    ]  # fmt: skip

    kept = [str(a.url) for a in answers if a.headers.get("cache-control") != "no-store"]
    assert kept == []


@pytest.mark.parametrize("method", ["TRACE", "PUT", "CONNECTED"])
async def test_only_the_methods_of_the_table_are_answered(running: Daemon, method: str) -> None:
    answer = await raw(running.url, f"{method} /v1/minds HTTP/1.1", running.token)

    assert answer.split()[1] in ("400", "404", "405")
    assert running.token not in answer


async def raw(url: str, line: str, token: str) -> str:
    """Return what comes back for a request line that no client would send."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        head = f"{line}\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode())
        await writer.drain()
        return (await asyncio.wait_for(reader.read(), 10)).decode()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_behind_https_every_cookie_is_secure_and_bound_to_the_host(
    database: TestDatabase,
) -> None:
    site = "https://noema.example.org"
    clock = SystemClock()
    settings = Settings(data_dir=Path("/nonexistent"), public_url=site)
    async with build(settings, dsns_of(database), clock=clock, ids=UuidV7Ids(clock)) as noema:
        await noema.access.create_token("test")
        link = await noema.access.new_link(base_url=site)
        inside = httpx.ASGITransport(app=create(noema))
        async with httpx.AsyncClient(transport=inside, base_url=site) as browser:
            door = await browser.get("/login")
            came_in = await browser.get(link)

    cookies = [*door.headers.get_list("set-cookie"), *came_in.headers.get_list("set-cookie")]
    assert any(cookie.startswith("__Host-noema=") for cookie in cookies)
    for cookie in cookies:
        assert cookie.startswith("__Host-")
        assert {"secure", "httponly", "path=/", "samesite=lax"} <= {
            part.strip().lower() for part in cookie.split(";")
        }
    assert "max-age=31536000" in came_in.headers["strict-transport-security"]

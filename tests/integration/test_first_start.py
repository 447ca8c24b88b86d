"""What `noema serve` says at its start about how to come in."""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tests.conftest import TestDatabase
from tests.house import PASSWORD
from tests.integration.test_serving import environment


@asynccontextmanager
async def said(until: str, **settings: str) -> AsyncIterator[str]:
    """Everything that a daemon says up to the line with these words, or up to its link."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "noema", "serve", env=environment(NOEMA_PORT="0", **settings),
        cwd="/", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        text = ""
        while not re.search(until, text):
            line = (await asyncio.wait_for(process.stdout.readline(), 120)).decode()
            assert line, f"the daemon ended after saying {text!r}"
            text += line
        yield text
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 60)


async def test_while_nobody_has_an_account_a_link_makes_the_first_administrator(
    database: TestDatabase,
) -> None:
    link_form = r"http\S+/setup\?link=(\S+)\n"
    async with said(link_form, DATABASE_URL=database.owner_dsn) as text:
        found = re.search(link_form, text)
        assert found is not None
        link, secret = found.group().strip(), found.group(1)
        site = link.partition("/setup")[0]
        async with httpx.AsyncClient(base_url=site, headers={"Origin": site}) as browser:
            looked = await browser.get(link)
            form = dict(re.findall(r'name="([^"]+)"[^>]*value="([^"]*)"', looked.text))
            form |= {"link": secret, "name": "ada", "password": PASSWORD, "again": PASSWORD}
            made = await browser.post("/setup", data=form)
            who = (await browser.get("/v1/whoami")).json()
            again = await browser.get(link)

    assert looked.status_code == 200
    assert made.status_code == 303
    assert (who["actor"], who["console_role"]) == ("user:ada", "administrator")
    assert again.status_code == 401


async def test_with_an_account_no_link_is_printed_and_plain_http_is_told(
    database: TestDatabase,
) -> None:
    settings = {"DATABASE_URL": database.owner_dsn, "NOEMA_BOOTSTRAP_ADMIN": f"ada:{PASSWORD}"}
    async with said("NOEMA_PUBLIC_URL", **settings) as text:
        assert "link=" not in text
        assert "/login" in text
        assert PASSWORD not in text
        assert "not marked Secure" in text

"""People with accounts in a browser: set up, come in, prove it twice, make tokens, be put out."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pyotp
import pytest
from playwright.async_api import Browser, Page, expect

from noema.core.clock import SystemClock
from noema.core.identity import LOCAL, ConsoleRole, MemoryRole
from tests.conftest import Server, fresh_database
from tests.e2e.browsing import Visitor, is_live
from tests.e2e.test_every_page import WIDTHS, beyond_the_edge, violations
from tests.running import Daemon, daemon

PASSWORD = "canary-9f1c-correct-horse"
OTHER = "canary-77ab-battery-staple"


async def person(running: Daemon, name: str, role: ConsoleRole = ConsoleRole.OPERATOR) -> str:
    await running.noema.access.users.create(
        LOCAL, name=name, role=role, password=PASSWORD, namespace="home",
        memory_role=MemoryRole.OWNER,
    )  # fmt: skip
    return name


async def comes_in(page: Page, name: str, password: str = PASSWORD) -> None:
    await page.goto("/login")
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Sign in", exact=True).click()


async def is_in_bounds_and_accessible(page: Page) -> None:
    """Check the page in both themes, on a phone and on a desk."""
    for width, height in WIDTHS.items():
        await page.set_viewport_size({"width": width, "height": height})
        assert await beyond_the_edge(page) == []
        assert await violations(page) == []


@asynccontextmanager
async def empty_daemon(server: Server, template: str) -> AsyncIterator[Daemon]:
    async with fresh_database(server, template) as database, daemon(database) as started:
        yield started


async def test_the_set_up_link_makes_an_administrator_who_comes_in_again_by_password(
    visitor: Visitor, browser: Browser, server: Server, template: str
) -> None:
    visitor.watch.expect(r"answer 40[01]", "status of 40[01]")
    async with empty_daemon(server, template) as fresh:
        context = await visitor.context(url=fresh.url, storage_state=None)
        page = await context.new_page()
        link = await fresh.noema.access.setup.first_link(base_url=fresh.url)
        assert link is not None
        await page.goto(link)
        await is_in_bounds_and_accessible(page)

        await page.get_by_label("Name").fill("ada")
        await page.get_by_label("New password").fill("ada is short")
        await page.get_by_label("The same again").fill("another one here")
        await page.get_by_role("button", name="Create the account").click()
        await expect(page.locator("#setup-error")).to_contain_text("differ")
        await page.get_by_label("New password").fill(PASSWORD)
        await page.get_by_label("The same again").fill(PASSWORD)
        await page.get_by_role("button", name="Create the account").click()
        await expect(page.get_by_role("heading", name="Minds")).to_be_visible()
        await expect(page.get_by_role("link", name="Access")).to_be_visible()

        await page.locator(".me > summary").click()
        await expect(page.locator(".me-who")).to_contain_text("user:ada")
        await is_in_bounds_and_accessible(page)
        await page.get_by_role("button", name="Sign out").click()
        await comes_in(page, "ada", "not the right one")
        await expect(page.locator("#login-error")).to_contain_text("wrong")
        await is_in_bounds_and_accessible(page)
        await comes_in(page, "ada")
        await expect(page.get_by_role("heading", name="Minds")).to_be_visible()
        await page.goto(link)
        await expect(page.locator("#login-error")).to_contain_text("used before")
        await context.close()


@pytest.mark.parametrize("scripts", [True, False])
async def test_a_second_factor_is_set_up_and_asked_for_and_a_recovery_code_stands_in(
    visitor: Visitor, running: Daemon, scripts: bool
) -> None:
    visitor.watch.expect(r"answer 401", "status of 401")
    name = await person(running, f"totp{'-js' if scripts else ''}")
    page = await visitor.page(storage_state=None, java_script_enabled=scripts)
    await comes_in(page, name)
    await page.goto("/account")
    await page.get_by_role("button", name="Set up a second factor").click()
    await expect(page.get_by_role("img", name="QR code")).to_be_visible()
    if scripts:
        await is_in_bounds_and_accessible(page)
    seed = await page.locator("#seed").inner_text()

    await page.get_by_role("textbox", name="Code").fill(pyotp.TOTP(seed).now())
    await page.get_by_role("button", name="Turn it on").click()
    codes = (await page.locator("#codes").inner_text()).split()
    if scripts:
        await is_in_bounds_and_accessible(page)
    await page.get_by_role("link", name="I have kept them").click()
    await expect(page.locator("#h-totp + .badge")).to_have_text("on")
    if scripts:
        await is_in_bounds_and_accessible(page)

    again = await visitor.page(storage_state=None, java_script_enabled=scripts)
    await comes_in(again, name)
    await expect(again.get_by_role("heading", name="Second step")).to_be_visible()
    await again.get_by_role("textbox", name="Code").fill("000000")
    await again.get_by_role("button", name="Go on").click()
    await expect(again.locator("#code-error")).to_be_visible()
    if scripts:
        await is_in_bounds_and_accessible(again)
    await again.get_by_role("textbox", name="Code").fill(codes[0].lower())
    await again.get_by_role("button", name="Go on").click()
    await expect(again.get_by_role("heading", name="Minds")).to_be_visible()

    third = await visitor.page(storage_state=None, java_script_enabled=scripts)
    await comes_in(third, name)
    await third.get_by_role("textbox", name="Code").fill(pyotp.TOTP(seed).at(_next_step()))
    await third.get_by_role("button", name="Go on").click()
    await expect(third.get_by_role("heading", name="Minds")).to_be_visible()


def _next_step() -> int:
    """A moment of the step to come, whose code counts already: this one's was used to confirm."""
    return int(SystemClock().now().timestamp()) + 30


async def test_a_token_is_made_shown_once_and_lets_a_script_in_until_it_is_revoked(
    visitor: Visitor, running: Daemon
) -> None:
    name = await person(running, "tokens")
    page = await visitor.page(storage_state=None)
    await comes_in(page, name)
    await page.goto("/account")

    form = page.get_by_role("form", name="New token")
    await form.get_by_role("textbox", name="Name").fill("ci <b>bold</b>")
    await form.get_by_label("Console role").select_option("observer")
    await form.get_by_role("button", name="Create token").click()
    token = await page.locator("#new-token").inner_text()
    await is_in_bounds_and_accessible(page)
    bearer = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=running.url, headers=bearer) as script:
        before = await script.get("/v1/whoami")
        await page.goto("/account")
        await expect(page.locator("#new-token")).to_have_count(0)
        await page.get_by_role("button", name="Revoke ci").click()
        await page.locator("[data-confirm-yes]").click()
        await expect(page.get_by_role("status").first).to_contain_text("revoked")
        after = await script.get("/v1/whoami")

    assert before.json()["actor"] == f"token:{name}/ci <b>bold</b>"
    assert after.status_code == 401


async def test_an_administrator_ends_a_session_and_its_live_page_says_so(
    visitor: Visitor, running: Daemon
) -> None:
    name = await person(running, "kicked")
    admin = await person(running, "kicker", ConsoleRole.ADMINISTRATOR)
    theirs, mine = [await visitor.page(storage_state=None) for _ in range(2)]
    await comes_in(theirs, name)
    await expect(theirs.get_by_role("heading", name="Minds")).to_be_visible()
    await is_live(theirs)
    await comes_in(mine, admin)
    await mine.goto(f"/access/users/{name}")
    await is_in_bounds_and_accessible(mine)

    await mine.get_by_role("button", name=re.compile("End the session")).click()
    await mine.locator("[data-confirm-yes]").click()

    await expect(theirs.locator("#live")).to_have_text("Signed out", timeout=3_000)
    await theirs.goto("/account")
    await expect(theirs).to_have_url(re.compile("/login"))


async def test_a_person_is_made_and_let_in_where_they_belong_and_switches_there(
    visitor: Visitor, running: Daemon
) -> None:
    await running.noema.access.tenants.create(LOCAL, "acme")
    admin = await person(running, "maker", ConsoleRole.ADMINISTRATOR)
    page = await visitor.page(storage_state=None)
    await page.goto("/login")
    await comes_in(page, admin)
    await page.get_by_role("link", name="Access").click()
    form = page.get_by_role("form", name="New person")
    await form.get_by_role("textbox", name="Name").fill("newcomer")
    await form.get_by_label("Namespace").select_option("home")
    await form.get_by_role("button", name="Create").click()
    link = await page.locator("#password-link").inner_text()
    await is_in_bounds_and_accessible(page)
    await page.get_by_label("Namespace").select_option("acme")
    await page.get_by_role("button", name="Give").click()
    await expect(page.get_by_role("status").first).to_contain_text("given")

    new = await visitor.page(storage_state=None)
    await new.goto(link)
    await new.get_by_label("New password").fill(OTHER)
    await new.get_by_label("The same again").fill(OTHER)
    await new.get_by_role("button", name="Set the password").click()
    await expect(new.get_by_role("heading", name="Minds")).to_be_visible()
    await new.locator(".me > summary").click()
    await is_in_bounds_and_accessible(new)
    await new.get_by_role("button", name="acme").click()

    await expect(new.locator(".me-space")).to_have_text("acme")


async def test_what_is_sensitive_asks_for_the_password_on_a_page_of_its_own(
    visitor: Visitor, running: Daemon
) -> None:
    visitor.watch.expect(r"answer 401", "status of 401")
    name = await person(running, "stale")
    page = await visitor.page(storage_state=None)
    await comes_in(page, name)
    async with running.noema.db.transaction() as tx:
        await tx.conn.execute("UPDATE sessions SET re_authenticated_at = NULL")
    await page.goto("/account")
    form = page.get_by_role("form", name="New token")
    await form.get_by_role("textbox", name="Name").fill("kept while asking")
    await form.get_by_role("button", name="Create token").click()

    await expect(page.get_by_role("heading", name="Confirm it is you")).to_be_visible()
    await is_in_bounds_and_accessible(page)
    await page.get_by_label("Password of").fill("wrong")
    await page.get_by_role("button", name="Confirm and go on").click()
    await expect(page.locator("#proof-error")).to_be_visible()
    await page.get_by_label("Password of").fill(PASSWORD)
    await page.get_by_role("button", name="Confirm and go on").click()

    await expect(page.locator(".once")).to_contain_text("kept while asking")

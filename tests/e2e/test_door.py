"""Coming in and going out."""

import re

from playwright.async_api import expect

from tests.e2e.browsing import Visitor, is_live


async def test_a_link_lets_one_browser_in_once(visitor: Visitor) -> None:
    visitor.watch.expect(r"answer 401: /login", "status of 401")
    link = await visitor.daemon.noema.access.new_link(base_url=visitor.daemon.url)
    first = await visitor.page(storage_state=None)
    second = await visitor.page(storage_state=None)

    await first.goto(link)
    await second.goto(link)

    await expect(first.get_by_role("heading", name="Minds")).to_be_visible()
    await expect(second.locator("#login-error")).to_contain_text("used before")
    await second.goto("/")
    await expect(second).to_have_url("/login")


async def test_who_is_not_signed_in_gets_to_the_page_they_asked_for_after_it(
    visitor: Visitor,
) -> None:
    visitor.watch.expect(r"answer 401: /login", "status of 401")
    page = await visitor.page(storage_state=None)
    await page.goto("/events?type=mind.created")
    await expect(page).to_have_url(re.compile(r"/login\?next="))

    await page.get_by_text("Use an API token instead").click()
    await page.get_by_label("Token").fill("noema_of-somebody-else")
    await page.get_by_role("button", name="Sign in with the token").click()
    await expect(page.locator("#token-error")).to_be_visible()
    await page.get_by_label("Token").fill(visitor.daemon.token)
    await page.get_by_role("button", name="Sign in with the token").click()

    await expect(page).to_have_url("/events?type=mind.created")


async def test_signing_out_ends_the_access_of_every_tab_at_once(
    visitor: Visitor, mind: str
) -> None:
    context = await visitor.context(storage_state=None)
    page, other = await context.new_page(), await context.new_page()
    await page.goto(await visitor.daemon.noema.access.new_link(base_url=visitor.daemon.url))
    await other.goto(f"/minds/{mind}")
    await is_live(other)

    await page.locator(".me > summary").click()
    await page.get_by_role("button", name="Sign out").click()

    await expect(page).to_have_url("/login")
    await expect(other.locator("#live")).to_have_text("Signed out")
    await other.locator("#say-text").fill("Still me?")
    visitor.watch.expect("answer 401", "status of 401")
    await other.get_by_role("button", name="Say").click()
    await expect(other.locator("#toasts")).to_contain_text(re.compile("[Ss]ign|[Ll]og in"))
    await other.goto("/")
    await expect(other).to_have_url("/login")
    said = await visitor.daemon.noema.minds.transcript(await visitor.daemon.noema.minds.get(mind))
    assert said == []

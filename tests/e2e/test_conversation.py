"""Speaking with a mind while looking at it."""

import pytest
from playwright.async_api import Route, expect

from tests.e2e.browsing import Visitor, is_live, thinks


@pytest.mark.parametrize("rest", ["", "/conversation"])
async def test_a_message_gets_its_answer_in_the_open_page(
    visitor: Visitor, mind: str, rest: str
) -> None:
    await thinks(visitor.daemon, mind, ["raid: array md0 is degraded, disk sdb failed"])
    page = await visitor.page()
    await page.goto(f"/minds/{mind}{rest}")
    await is_live(page)

    await page.locator("#say-text").fill("What is wrong with the array md0?")
    await page.locator("#say-text").press("Enter")

    mine = page.locator("#messages .from-person")
    answer = page.locator("#messages .from-mind")
    await expect(answer).to_contain_text("degraded")
    await expect(mine).to_have_count(1)
    await expect(answer).to_have_count(1)
    await expect(mine).to_contain_text("What is wrong with the array md0?")
    await expect(mine.locator(".badge", has_text="waits")).to_have_count(0)
    await expect(page.locator("#say-text")).to_have_value("")
    await answer.locator("a.cycle-no").click()
    await expect(page.locator(".cycle-title")).to_be_visible()


async def test_an_answer_that_outruns_the_page_it_belongs_to_stays(
    visitor: Visitor, mind: str
) -> None:
    minds = visitor.daemon.noema.minds
    await thinks(visitor.daemon, mind, ["raid: array md0 is degraded, disk sdb failed"])
    await minds.set_mode(mind, "paused", actor="test")
    page = await visitor.page()
    await page.goto(f"/minds/{mind}/conversation")
    await is_live(page)

    async def answer_late(route: Route) -> None:
        without_answer = await route.fetch()
        await minds.set_mode(mind, "awake", actor="test")
        await page.wait_for_selector("#messages .from-mind")
        await route.fulfill(response=without_answer)

    await page.route("**/say", answer_late)
    await page.locator("#say-text").fill("What is wrong with the array?")
    await page.locator("#say-text").press("Enter")

    await expect(page.locator("#say-text")).to_have_value("")
    await expect(page.locator("#messages .from-mind")).to_have_count(1)
    await expect(page.locator("#messages .from-person")).to_have_count(1)
    await expect(page.locator("#messages .badge", has_text="waits")).to_have_count(0)


async def test_what_was_typed_is_not_lost_when_the_daemon_cannot_be_reached(
    visitor: Visitor, mind: str
) -> None:
    visitor.watch.expect("ERR_INTERNET_DISCONNECTED")
    page = await visitor.page()
    await page.goto(f"/minds/{mind}/conversation")
    await is_live(page)
    await page.context.set_offline(True)

    await page.locator("#say-text").fill("Are you there?")
    await page.get_by_role("button", name="Say").click()

    await expect(page.locator("#toasts")).to_contain_text("cannot be reached")
    await expect(page.locator("#say-text")).to_have_value("Are you there?")
    await page.context.set_offline(False)
    await page.get_by_role("button", name="Say").click()
    await expect(page.locator("#messages .from-person")).to_have_count(1)

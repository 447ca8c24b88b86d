"""With scripts turned off everything but the live tail works."""

import re

import pytest
from playwright.async_api import Page, expect

from tests.e2e.browsing import Visitor, settles, thinks
from tests.e2e.conftest import Fed
from tests.e2e.test_every_page import PAGES
from tests.helpers import eventually


@pytest.fixture
async def plain(visitor: Visitor) -> Page:
    """A page that runs no script, in a browser let in by its own link."""
    page = await visitor.page(java_script_enabled=False, storage_state=None)
    await page.goto(await visitor.daemon.noema.access.new_link(base_url=visitor.daemon.url))
    await expect(page.get_by_role("heading", name="Minds")).to_be_visible()
    return page


async def test_every_page_can_be_read(plain: Page, fed: Fed) -> None:
    for name, path in PAGES.items():
        if name in ("sign-in", "not found", "no events"):
            continue
        answer = await plain.goto(path(fed))

        assert answer is not None
        assert answer.status == 200, name
        await expect(plain.locator("main")).not_to_be_empty()
        await expect(plain.locator("#tail-tools, #live")).to_have_count(2)
        await expect(plain.locator("#live")).to_be_hidden()


async def test_a_mind_is_spoken_to(plain: Page, visitor: Visitor, mind: str) -> None:
    await thinks(visitor.daemon, mind, ["pump: pressure of pump 3 is low"])
    await plain.goto(f"/minds/{mind}/conversation")

    await plain.locator("#say-text").fill("How is the pump?")
    await plain.get_by_role("button", name="Say").click()

    await expect(plain).to_have_url(f"/minds/{mind}/conversation")
    await expect(plain.locator(".from-person")).to_contain_text("How is the pump?")

    async def has_answered() -> bool:
        await plain.reload()
        return await plain.locator(".from-mind").count() == 1

    await eventually(has_answered, within_s=60, every_s=0.2)


async def test_a_mind_is_tuned(plain: Page, visitor: Visitor, mind: str) -> None:
    await thinks(visitor.daemon, mind, ["tide: high at noon", "tide: low at night"])
    await plain.goto(f"/minds/{mind}/tuning")

    await plain.get_by_label("Novelty").fill("2.5")
    await plain.get_by_role("button", name="Dry-run").click()
    await expect(plain.locator("#dry-run .dry-lead")).to_contain_text("Of the last")
    await plain.get_by_label("Why, for the history").fill("by hand")
    await plain.get_by_role("button", name="Save as version 2").click()

    await expect(plain.get_by_text("version 2 is in force")).to_be_visible()
    await expect(plain.locator(".versions li").first).to_contain_text("by hand")


async def test_a_mind_is_paused_stepped_and_given_a_goal(
    plain: Page, visitor: Visitor, mind: str
) -> None:
    await plain.goto(f"/minds/{mind}")

    await plain.get_by_role("button", name="Pause mind").click()
    await expect(plain.locator(f"#vitals-{mind}")).to_contain_text("paused")
    await plain.get_by_role("button", name="Step").click()
    await settles(visitor.daemon, mind)
    await plain.get_by_label("New goal").fill("keep the tide table")
    await plain.get_by_role("button", name="Add").click()

    await expect(plain.locator("#goals .goal")).to_contain_text("keep the tide table")
    await expect(plain.locator(f"#cycles-{mind} tr")).not_to_have_count(0)


async def test_the_flip_panel_answers(plain: Page, fed: Fed) -> None:
    await plain.goto(f"/minds/{fed.slug}/cycles/{fed.cycle}")

    await plain.get_by_label("What would have made this win instead?").select_option(fed.loser)
    await plain.get_by_role("button", name="Ask").click()

    await expect(plain).to_have_url(re.compile(rf"instead={fed.loser}"))
    await expect(plain.locator("#flip .flip-lead")).not_to_be_empty()


async def test_events_are_filtered_and_the_theme_is_switched(plain: Page, fed: Fed) -> None:
    await plain.goto("/events")

    await plain.get_by_label("Mind", exact=True).select_option(fed.slug)
    await plain.get_by_label("Type").fill("settings.set")
    await plain.get_by_role("button", name="Filter").click()
    await expect(plain.locator("#events-rows tr")).not_to_have_count(0)
    await expect(plain.locator("#events-rows tr").first).to_contain_text("settings.set")
    await plain.get_by_role("button", name="Switch theme").click()

    await expect(plain.locator("html")).to_have_attribute("data-theme", "dark")
    await expect(plain).to_have_url(re.compile(r"type=settings\.set"))

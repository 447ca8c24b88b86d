"""Changing what a mind attends to: seen first, saved then, never over somebody else's change."""

import re

from playwright.async_api import Page, expect

from tests.e2e.browsing import Visitor, thinks

LINES = [
    *[f"sshd[{n}]: Failed password for root from 203.0.113.9" for n in range(12)],
    "kernel: nvme0: I/O timeout, reset controller",
    "cron[7]: job backup ended with 1",
]


async def tuning_of(visitor: Visitor, mind: str) -> Page:
    page = await visitor.page()
    await page.goto(f"/minds/{mind}/tuning")
    await expect(page.get_by_text("version 1 is in force")).to_be_visible()
    return page


async def dry_run(page: Page) -> None:
    await page.get_by_role("button", name="Dry-run").click()
    await expect(page.locator("#dry-run .dry-lead")).to_contain_text("Of the last")


async def test_a_changed_weight_is_tried_on_the_past_and_saved_as_the_next_version(
    visitor: Visitor, mind: str
) -> None:
    await thinks(visitor.daemon, mind, LINES)
    page = await tuning_of(visitor, mind)

    await page.get_by_label("Novelty").fill("0")
    await expect(page.locator("[data-changed]")).to_have_text("1 changed")
    await dry_run(page)
    await expect(page.locator("#dry-run .dry-lead")).to_contain_text("would have been different")
    await expect(page.locator("#dry-run tbody tr").first).to_contain_text("nothing")

    # What the dry-run said no longer holds once the form is touched again.
    await page.get_by_label("Surprise").fill("0")
    await expect(page.locator("#dry-run")).to_contain_text("dry-run it again")
    await expect(page.get_by_role("button", name="Save as version 2")).to_be_hidden()
    await dry_run(page)
    await page.get_by_label("Why, for the history").fill("old news is news too")
    await page.get_by_role("button", name="Save as version 2").click()

    await expect(page.get_by_text("version 2 is in force")).to_be_visible()
    newest = page.locator(".versions li").first
    await expect(newest).to_contain_text("old news is news too")
    await expect(newest.locator(".diff")).to_contain_text(re.compile(r"novelty\s*2\s*→\s*0"))
    await expect(page.get_by_label("Novelty")).to_have_value("0")


async def test_who_saves_second_is_told_so_and_loses_nothing(visitor: Visitor, mind: str) -> None:
    visitor.watch.expect(r"answer 409: /minds/", "status of 409")
    await thinks(visitor.daemon, mind, LINES)
    mine = await tuning_of(visitor, mind)
    await mine.get_by_label("Novelty").fill("0.25")
    await dry_run(mine)
    await mine.get_by_label("Why, for the history").fill("calmer")
    theirs = await tuning_of(visitor, mind)
    await theirs.get_by_label("Goal").fill("3")
    await dry_run(theirs)
    await theirs.get_by_role("button", name="Save as version 2").click()
    await expect(theirs.get_by_text("version 2 is in force")).to_be_visible()

    await mine.get_by_role("button", name="Save as version 2").click()

    await expect(mine.get_by_role("alert")).to_contain_text("was saved meanwhile")
    await expect(mine.get_by_label("Novelty")).to_have_value("0.25")
    await expect(mine.get_by_label("Why, for the history")).to_have_value("calmer")
    await expect(mine.get_by_label("Goal")).to_have_value("3")
    await mine.get_by_role("button", name="Save as version 3").click()
    await expect(mine.get_by_text("version 3 is in force")).to_be_visible()
    settings = await visitor.daemon.noema.minds.settings(await visitor.daemon.noema.minds.get(mind))
    assert (settings.weights["novelty"], settings.weights["goal"]) == (250_000, 3_000_000)

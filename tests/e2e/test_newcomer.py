"""The way of somebody who opens the link for the first time, to a verified replay."""

import re

from playwright.async_api import expect

from tests.e2e.browsing import Visitor, is_live, settles, thinks

SMALL_TALK = [f"sshd[{n}]: Accepted publickey for deploy from 198.51.100.7" for n in range(5)]
ALARMS = [
    "kernel: CPU0: Core temperature above threshold, cpu clock throttled",
    "app: connection pool exhausted, error: 0 of 50 free",
    "FATAL: panic: disk failure, emergency shutdown",
]


async def test_a_newcomer_comes_from_the_link_to_a_verified_replay(
    visitor: Visitor, mind: str
) -> None:
    daemon = visitor.daemon
    await thinks(daemon, mind, SMALL_TALK)
    page = await visitor.page(storage_state=None)

    # The link leads to the minds, and to the mind.
    await page.goto(await daemon.noema.access.new_link(base_url=daemon.url))
    await expect(page).to_have_url(f"{daemon.url}/")
    await page.locator(f"#mind-{mind}").get_by_role("link", name=mind).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(mind)
    await is_live(page)

    # Lines that come in while the page is open become a row of it.
    await daemon.fed(mind, ALARMS)
    row = page.locator(f"#cycles-{mind} tr", has_text=re.compile("|".join(ALARMS)))
    await row.first.wait_for()
    await settles(daemon, mind)
    await row.first.locator("a.cycle-no").click()

    # The cycle says who won, by how much, and shows what every candidate was worth.
    await expect(page.locator(".headline")).to_contain_text("won by")
    heat = page.get_by_role("table", name="Contribution of every feature")
    await expect(heat.locator("tbody tr[data-row]")).not_to_have_count(0)
    await expect(heat.locator("tr.won")).not_to_have_count(0)
    for name in ("intensity", "novelty"):
        await expect(heat.locator("th.feat", has_text=name)).to_be_visible()

    # The flip panel answers for whichever candidate is chosen.
    choice = page.get_by_label("What would have made this win instead?")
    last = await choice.locator("option").last.get_attribute("value")
    assert last is not None
    await page.evaluate("document.querySelector('#flip').dataset.before = 'yes'")
    await choice.select_option(last)
    await page.wait_for_selector("#flip:not([data-before])")
    await expect(page).to_have_url(re.compile(rf"\?instead={last}$"))
    await expect(choice).to_have_value(last)
    reason = "confirmed|bounds|fell short|already|admitted"
    await expect(page.locator("#flip table, #flip .flip-lead").last).to_have_text(
        re.compile(reason)
    )

    # A thought names the line it came from.
    await heat.locator("tr.won th a").first.click()
    because = page.get_by_role("region", name="Because of")
    await expect(because).to_contain_text(re.compile("|".join(ALARMS)))
    await expect(because).to_contain_text("stimulus.received")

    # And the whole record holds when it is computed again.
    await page.get_by_role("navigation", name="Main").get_by_role("link", name="Replays").click()
    await page.get_by_label("Mind", exact=True).select_option(mind)
    await page.get_by_role("button", name="Verify").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(
        re.compile(rf"All \d+ cycles of {mind} agree with the record")
    )
    cycles = (await daemon.noema.minds.get(mind)).cycles
    done = page.locator(".runs tbody tr")
    await expect(done).to_contain_text("agrees")
    await expect(done.get_by_role("img", name=f"{cycles} of {cycles} cycles")).to_be_visible()


async def test_a_first_mind_is_made_in_the_browser(visitor: Visitor) -> None:
    page = await visitor.page()
    await page.goto("/")
    await is_live(page)

    # There may be minds of other tests, and then the form is behind a button.
    if await page.locator("summary", has_text="New mind").count():
        await page.locator("summary", has_text="New mind").click()
    await page.get_by_label("Slug").fill("first-of-mine")
    await page.get_by_label("Name", exact=True).fill("Mine")
    await page.get_by_role("button", name="Create mind").click()

    await expect(page).to_have_url(f"{visitor.daemon.url}/minds/first-of-mine")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Mine")


async def test_a_goal_is_given_and_closed_without_leaving_the_page(
    visitor: Visitor, mind: str
) -> None:
    page = await visitor.page()
    await page.goto(f"/minds/{mind}")
    await page.get_by_label("New goal").fill("heat in the server room")
    await page.get_by_label("Priority, 0 to 1").fill("0.8")

    await page.get_by_role("button", name="Add").click()

    goal = page.locator("#goals .goal")
    await expect(goal).to_have_text(re.compile(r"0\.80?\s*heat in the server room"))
    await expect(page.get_by_label("New goal")).to_have_value("")
    await page.get_by_role("button", name="Close goal 1").click()
    await expect(goal).to_have_count(0)


async def test_a_mind_is_paused_stepped_and_resumed_from_its_page(
    visitor: Visitor, mind: str
) -> None:
    page = await visitor.page()
    await page.goto(f"/minds/{mind}")
    await is_live(page)
    vitals = page.locator(f"#vitals-{mind}")

    await page.get_by_role("button", name="Pause mind").click()
    await expect(vitals).to_contain_text("paused")
    await page.get_by_role("button", name="Step").click()
    await page.wait_for_selector(f"#cycles-{mind} tr")
    await (
        page.get_by_role("button", name="Resume", exact=True)
        .and_(page.locator("#mind-actions button"))
        .click()
    )

    await expect(vitals).to_contain_text("awake")
    await expect(page.get_by_role("button", name="Pause mind")).to_be_visible()

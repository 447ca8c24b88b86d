"""Whatever a line, a name or a message contains, the browser shows it and runs none of it."""

import pytest
from playwright.async_api import Page, expect

from tests.e2e.browsing import Visitor, is_live, settles, thinks

PROBES = [
    "<script>alert('line')</script>",
    "\"'><img src=x onerror=alert('attribute')>",
    "</textarea></title></script><svg onload=alert('end')>",
    "javascript:alert('scheme')",
    "<iframe srcdoc=\"<script>alert('frame')</script>\">",
    "{{ 7 * 7 }} ${7 * 7} <style>*{display:none}</style>",
]
SPOKEN = "<details open ontoggle=alert('spoken')> said"
PLANTED = "main script, main iframe, main style, main img, main [onerror], main [onload], title *"


async def is_inert(page: Page) -> None:
    assert await page.locator(PLANTED).count() == 0, page.url


@pytest.fixture
async def poisoned(visitor: Visitor, mind: str) -> str:
    """A mind whose every text is a probe."""
    minds = visitor.daemon.noema.minds
    await minds.rename(mind, f"{PROBES[1]} the mind", actor="user:t")
    await minds.add_goal(mind, f"{PROBES[2]} the goal", priority=500_000, actor="test")
    await minds.tune(mind, {"weights": {"goal": 1_100_000}}, note=PROBES[0], actor="test")
    await thinks(visitor.daemon, mind, [f"{probe} logged" for probe in PROBES])
    return mind


async def test_probes_in_pages_are_text(visitor: Visitor, poisoned: str) -> None:
    page = await visitor.page()
    thought = (await visitor.daemon.noema.events.before(type_="thought.admitted", limit=1))[0].id
    cycle = (await visitor.daemon.noema.minds.get(poisoned)).cycles
    for path in (
        "/", f"/minds/{poisoned}", f"/minds/{poisoned}/cycles", f"/minds/{poisoned}/cycles/{cycle}",
        f"/minds/{poisoned}/cycles/1", f"/minds/{poisoned}/thoughts/{thought}",
        f"/minds/{poisoned}/conversation", f"/minds/{poisoned}/tuning",
        f"/events?mind={poisoned}", f"/events/{thought}", f"/palette?q={poisoned}",
    ):  # fmt: skip
        await page.goto(path)

        await expect(page.locator("main")).not_to_be_empty()
        await is_inert(page)


async def test_probes_that_arrive_live_are_text(visitor: Visitor, poisoned: str) -> None:
    page = await visitor.page()
    await page.goto(f"/minds/{poisoned}")
    await is_live(page)

    await visitor.daemon.fed(poisoned, [f"late: {probe}" for probe in PROBES])
    await page.locator("#say-text").fill(SPOKEN)
    await page.locator("#say-text").press("Enter")

    await expect(page.locator("#messages .from-person")).to_contain_text(SPOKEN)
    await page.wait_for_selector("#messages .from-mind")
    await settles(visitor.daemon, poisoned)
    await is_inert(page)


async def test_probes_in_the_palette_and_in_refused_forms_are_text(
    visitor: Visitor, poisoned: str
) -> None:
    page = await visitor.page()
    await page.goto(f"/minds/{poisoned}")
    await is_live(page)

    await page.keyboard.press("/")
    await page.keyboard.type(poisoned)
    await page.wait_for_selector("#palette-list [role=option]:has-text('the mind')")
    await is_inert(page)
    await page.locator("#palette-q").fill(PROBES[1])
    await expect(page.locator("#palette-list")).to_contain_text("onerror=alert")
    await is_inert(page)
    assert await page.locator("#palette-list img").count() == 0

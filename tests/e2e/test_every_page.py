"""Every page, in both themes, on a phone and on a desk: accessible, in bounds, without an error."""

from collections.abc import Callable

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from tests.e2e.browsing import Visitor, is_live
from tests.e2e.conftest import Fed

AXE = {
    "resultTypes": ["violations"],
    "preload": False,
    "runOnly": {
        "type": "tag",
        "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    },
}
# What another theme can break and nothing else: the colours.
COLOURS = AXE | {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
# Of a long table some rows stand for all; every cell of hundreds of rows takes axe half a minute.
FEW_ROWS = {"exclude": [["tbody tr:nth-child(n+16)"]]}
PAGES: dict[str, Callable[[Fed], str]] = {
    "minds": lambda _: "/",
    "mind": lambda f: f"/minds/{f.slug}",
    "a mind that has not thought": lambda _: "/minds/bob",
    "cycles": lambda f: f"/minds/{f.slug}/cycles",
    "no cycles": lambda _: "/minds/bob/cycles",
    "cycle": lambda f: f"/minds/{f.slug}/cycles/{f.cycle}",
    "thought": lambda f: f"/minds/{f.slug}/thoughts/{f.thought}",
    "conversation": lambda f: f"/minds/{f.slug}/conversation",
    "tuning": lambda f: f"/minds/{f.slug}/tuning",
    "events": lambda _: "/events",
    "no events": lambda _: "/events?q=zebra&from=yesterday",
    "event": lambda f: f"/events/{f.event}",
    "replays": lambda _: "/replays",
    "replay": lambda f: f"/replays/{f.replay}",
    "system": lambda _: "/system",
    "palette": lambda _: "/palette?q=a",
    "account": lambda _: "/account",
    "access": lambda _: "/access",
    "namespaces": lambda _: "/access/tenants",
    "sessions and tokens": lambda _: "/access/sessions",
    "audit": lambda _: "/audit",
    "no audit": lambda _: "/audit?who=nobody",
    "sign-in": lambda _: "/login?next=/events",
    "not found": lambda _: "/minds/nobody",
}
WIDTHS = {360: 780, 1440: 900}


async def violations(page: Page) -> list[str]:
    """Return what axe finds wrong in either theme, a line for each; nothing where all is well."""
    await page.emulate_media(color_scheme="light")
    found = await _violations(page, AXE)
    await page.emulate_media(color_scheme="dark")
    return found + [f"dark: {line}" for line in await _violations(page, COLOURS)]


async def _violations(page: Page, options: dict[str, object]) -> list[str]:
    # What the sticky head half covers is a matter of scrolling, and would count as too small.
    await page.evaluate("window.scrollTo(0, 0)")
    found = (await Axe().run(page, context=FEW_ROWS, options=options)).response["violations"]
    return [f"{v['id']}: {n['target']} {n['html'][:200]}" for v in found for n in v["nodes"]]


async def beyond_the_edge(page: Page) -> list[str]:
    """Return what makes the document wider than the window."""
    wide: list[str] = await page.evaluate(
        """() => {
          const edge = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= edge) return [];
          return [...document.body.querySelectorAll('*')]
            .filter((n) => n.getBoundingClientRect().right > edge + 0.5)
            .map((n) => `${n.tagName}.${n.className?.baseVal ?? n.className}#${n.id}`)
            .slice(0, 12);
        }"""
    )
    return wide


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
async def test_a_page_is_accessible_and_within_the_window(
    visitor: Visitor, fed: Fed, name: str, width: int
) -> None:
    if name in ("not found", "no events"):
        visitor.watch.expect(r"answer 40[04]", r"Failed to load resource")
    options = {"storage_state": None} if name == "sign-in" else {}
    page = await visitor.page(viewport={"width": width, "height": WIDTHS[width]}, **options)

    await page.goto(PAGES[name](fed))

    assert await page.locator("main h1, main .page").count()
    if await page.locator("[data-live]").count():
        await is_live(page)
    assert await beyond_the_edge(page) == []
    assert await violations(page) == []


async def test_what_opens_over_a_page_is_accessible_too(visitor: Visitor, fed: Fed) -> None:
    page = await visitor.page(viewport={"width": 360, "height": 780})
    await page.goto(f"/minds/{fed.slug}/cycles/{fed.cycle}")

    await page.keyboard.press("?")
    await page.wait_for_selector("#help[open]")
    assert await beyond_the_edge(page) == []
    assert await violations(page) == []
    await page.keyboard.press("Escape")

    await page.keyboard.press("/")
    await page.keyboard.type("ada")
    await page.wait_for_selector("#palette-list [role=option]:has-text('Ada')")
    assert await beyond_the_edge(page) == []
    assert await violations(page) == []


@pytest.mark.parametrize("width", WIDTHS)
async def test_a_dry_run_is_accessible_and_within_the_window(
    visitor: Visitor, fed: Fed, width: int
) -> None:
    page = await visitor.page(viewport={"width": width, "height": WIDTHS[width]})
    await page.goto(f"/minds/{fed.slug}/tuning")
    await page.fill("#threshold", "5")

    await page.get_by_role("button", name="Dry-run").click()
    await page.wait_for_selector("#dry-run .save-line")

    await expect(page.locator("#dry-run .dry-lead")).to_be_in_viewport()
    assert await beyond_the_edge(page) == []
    assert await violations(page) == []

"""The live tail: paused when asked, and whole again after a connection was lost."""

import re

from playwright.async_api import Page, expect

from tests.e2e.browsing import Visitor, is_live, settles, texts, thinks, wire

CUT = ("ERR_CONNECTION", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED")


def lines(first: int, count: int) -> list[str]:
    return [f"probe: mark {n:03d} seen" for n in range(first, first + count)]


async def marks(page: Page) -> list[str]:
    """Return the marks in the tail, newest first, each as often as it stands there."""
    found = (re.search(r"mark \d{3}", row) for row in await texts(page, "#events-rows tr"))
    return [m[0] for m in found if m]


async def has_mark(page: Page, number: int) -> None:
    await page.locator("#events-rows tr", has_text=f"mark {number:03d}").wait_for()


def newest_first(last: int) -> list[str]:
    return [f"mark {n:03d}" for n in range(last, -1, -1)]


async def test_space_pauses_the_tail_and_nothing_is_missing_when_it_goes_on(
    visitor: Visitor, mind: str
) -> None:
    page = await visitor.page()
    await page.goto(f"/events?mind={mind}&type=stimulus.received")
    await is_live(page)
    await visitor.daemon.fed(mind, lines(0, 2))
    await has_mark(page, 1)

    await page.keyboard.press("Space")
    await expect(page.locator("#live")).to_have_text("Paused")
    await visitor.daemon.fed(mind, lines(2, 5))
    await expect(page.locator("[data-new]")).to_have_text("5 new")
    while_paused = await marks(page)
    await page.get_by_role("button", name="Resume").click()

    await has_mark(page, 6)
    await expect(page.locator("[data-new]")).to_be_hidden()
    await expect(page.locator("#live")).to_have_text("Live")
    assert while_paused == newest_first(1)
    assert await marks(page) == newest_first(6)


async def test_what_happened_while_the_connection_was_lost_is_made_good(
    visitor: Visitor, mind: str
) -> None:
    visitor.watch.expect(*CUT)
    await thinks(visitor.daemon, mind, ["raid: array md0 is degraded"])
    async with wire(visitor.daemon.url) as between:
        page = await visitor.page(url=between.url)
        await page.goto(f"/minds/{mind}")
        await is_live(page)

        await between.cut()
        await expect(page.locator("#live")).to_have_text("Lost, retrying")
        await thinks(visitor.daemon, mind, ["fan: fan 3 stands still"])
        await visitor.daemon.noema.minds.say(
            mind, "What about the fan?", speaker="eve", actor="test"
        )
        await between.mend()

        await expect(page.locator("#messages .from-mind")).to_have_count(1)
        await expect(page.locator("#messages .from-person")).to_have_count(1)
        await expect(page.locator("#live")).to_have_text("Live")
        await settles(visitor.daemon, mind)
        numbers = [int(n) for n in await texts(page, f"#cycles-{mind} .cycle-no")]
        assert numbers == list(range(numbers[0], 0, -1))


async def test_a_wire_cut_in_a_flood_neither_loses_nor_repeats_a_row(
    visitor: Visitor, mind: str
) -> None:
    visitor.watch.expect(*CUT)
    async with wire(visitor.daemon.url) as between:
        page = await visitor.page(url=between.url)
        await page.goto(f"/events?mind={mind}&type=stimulus.received")
        await is_live(page)

        for round_ in range(3):
            await visitor.daemon.fed(mind, lines(60 * round_, 30))
            await has_mark(page, 60 * round_ + 5)
            await between.cut()
            await expect(page.locator("#live")).to_have_text("Lost, retrying")
            await visitor.daemon.fed(mind, lines(60 * round_ + 30, 30))
            await between.mend()
            await has_mark(page, 60 * round_ + 59)

        await expect(page.locator("#live")).to_have_text("Live")
        assert await marks(page) == newest_first(179)


async def test_two_tabs_share_one_stream_and_both_are_live(visitor: Visitor, mind: str) -> None:
    await thinks(visitor.daemon, mind, ["first: light"])
    context = await visitor.context()
    tail, talk = await context.new_page(), await context.new_page()
    await tail.goto(f"/events?mind={mind}&type=stimulus.received")
    await talk.goto(f"/minds/{mind}")
    await is_live(tail)
    await is_live(talk)

    await visitor.daemon.fed(mind, ["probe: mark 000 seen"])

    await has_mark(tail, 0)
    await talk.locator(f"#cycles-{mind} tr", has_text="mark 000").first.wait_for()
    assert visitor.daemon.noema.feed.watchers == 1

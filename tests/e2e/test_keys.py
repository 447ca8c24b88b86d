"""Everything by keyboard."""

from playwright.async_api import Page, expect

from tests.e2e.browsing import Visitor, is_live
from tests.e2e.conftest import Fed


async def test_the_keys_are_listed_and_esc_closes_the_list(page: Page) -> None:
    await page.goto("/")

    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await page.keyboard.press("Escape")

    await expect(page.locator("#help")).to_be_hidden()
    await expect(page).to_have_url("/")


async def test_the_palette_leads_to_a_mind_and_to_a_cycle(page: Page, fed: Fed) -> None:
    await page.goto("/system")

    await page.keyboard.press("/")
    await page.keyboard.type("bob")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url("/minds/bob")

    await page.keyboard.press("Control+k")
    await page.keyboard.type(f"#{fed.cycle}")
    option = page.locator("#palette-list [role=option]", has_text=f"Cycle {fed.cycle} of Ada")
    await option.wait_for()
    while await option.get_attribute("aria-selected") != "true":
        await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"/minds/ada/cycles/{fed.cycle}")


async def test_g_and_a_letter_go_to_a_page(page: Page, fed: Fed) -> None:
    await page.goto(f"/minds/{fed.slug}")

    for key, path in (("e", "/events"), ("r", "/replays"), ("s", "/system"), ("m", "/")):
        await page.keyboard.press("g")
        await page.keyboard.press(key)
        await expect(page).to_have_url(path)
    await page.goto(f"/minds/{fed.slug}/tuning")
    await page.keyboard.press("g")
    await page.keyboard.press("c")
    await expect(page).to_have_url(f"/minds/{fed.slug}/cycles")


async def test_j_and_k_move_enter_opens_and_esc_goes_back(page: Page, fed: Fed) -> None:
    path = f"/minds/{fed.slug}/cycles"
    await page.goto(f"/minds/{fed.slug}")
    await page.goto(path)
    rows = page.locator("[data-row] a.cycle-no")

    await page.keyboard.press("j")
    await expect(rows.nth(0)).to_be_focused()
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("k")
    await expect(rows.nth(1)).to_be_focused()
    to = await rows.nth(1).get_attribute("href")
    assert to is not None
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(to)
    await page.keyboard.press("Escape")

    await expect(page).to_have_url(path)


async def test_brackets_turn_the_pages_of_cycles(page: Page, fed: Fed) -> None:
    await page.goto(f"/minds/{fed.slug}/cycles/2")

    await page.keyboard.press("]")
    await expect(page).to_have_url(f"/minds/{fed.slug}/cycles/3")
    await page.keyboard.press("[")

    await expect(page).to_have_url(f"/minds/{fed.slug}/cycles/2")


async def test_the_theme_that_t_chose_outlives_a_reload(visitor: Visitor) -> None:
    page = await visitor.page(color_scheme="light")
    await page.goto("/")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(paper)

    await page.keyboard.press("t")
    await page.wait_for_function(f"{paper} !== '{light}'")
    dark = await page.evaluate(paper)
    await page.reload()

    assert await page.evaluate(paper) == dark
    await page.keyboard.press("t")
    await page.wait_for_function(f"{paper} === '{light}'")
    await page.reload()
    assert await page.evaluate(paper) == light


async def test_letters_typed_into_a_field_are_letters(page: Page, mind: str) -> None:
    await page.goto(f"/minds/{mind}")
    await is_live(page)

    await page.locator("#say-text").press_sequentially("get? /j k t")

    await expect(page.locator("#say-text")).to_have_value("get? /j k t")
    await expect(page.locator("dialog[open]")).to_have_count(0)
    await expect(page).to_have_url(f"/minds/{mind}")


async def test_single_keys_can_be_turned_off(page: Page) -> None:
    await page.goto("/")
    await page.keyboard.press("?")
    await page.get_by_label("Single-key shortcuts").uncheck()
    await page.keyboard.press("Escape")
    await page.reload()

    await page.keyboard.press("?")

    await expect(page.locator("#help")).to_be_hidden()


async def test_the_first_tab_stop_skips_to_the_content(page: Page) -> None:
    await page.goto("/")

    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    await page.keyboard.press("Enter")

    await expect(page.locator("#main")).to_be_focused()


async def test_what_has_the_focus_is_never_covered(page: Page, fed: Fed) -> None:
    await page.set_viewport_size({"width": 1440, "height": 700})
    await page.goto(f"/minds/{fed.slug}/tuning")
    fields = page.locator("#tuning-form fieldset input")
    await fields.first.focus()

    for field in await fields.all():
        await expect(field).to_be_focused()
        is_seen = await field.evaluate(
            """(field) => {
              const box = field.getBoundingClientRect();
              const middle = [box.x + box.width / 2, box.y + box.height / 2];
              return document.elementFromPoint(...middle) === field;
            }"""
        )
        assert is_seen, await field.get_attribute("name")
        await page.keyboard.press("Tab")

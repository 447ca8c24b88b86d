"""Governed memory in a browser: looked at in both themes, drawn, written, decided, by keyboard."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import Page, expect

from noema.core.identity import ConsoleRole, Identity, MemoryRole
from noema.memory.model import (
    Directive,
    Kind,
    PolicyDocument,
    Search,
    Share,
    TurnIn,
    Write,
    WriteResult,
)
from tests.e2e.browsing import Visitor, texts
from tests.e2e.test_every_page import WIDTHS, beyond_the_edge, violations
from tests.helpers import eventually
from tests.running import Daemon

WHO = Identity(
    namespace="home",
    actor="user:test",
    role=MemoryRole.OWNER,
    console=ConsoleRole.ADMINISTRATOR,
    agent_id="console",
)
EVIL = "<script>alert('memory')</script>\"'><img src=x onerror=alert('memory')>"
PLANTED = "main script, main iframe, main style, main img, main [onerror], main [onload], title *"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What was written, by what it is good for."""

    latest: str
    turn: str
    withdrawn: str
    labelled: str
    evil: str


@pytest.fixture(scope="session")
async def remembered(running: Daemon) -> Remembered:
    """Some sixty memories of every sort, only to be looked at."""
    kernel = running.noema.memory

    async def wrote(text: str, **more: Any) -> UUID:
        done = await kernel.mem_write(WHO, Write(text=text, **more))
        assert isinstance(done, WriteResult)
        assert done.items[0].id is not None
        return done.items[0].id

    await kernel.set_policy(
        WHO,
        "home",
        PolicyDocument(
            conflict_review="review",
            directives=(
                Directive(id="no-phones", text="Never repeat phone numbers to outsiders."),
                Directive(id="evil", text=EVIL),
            ),
        ),
    )
    pump = await wrote("Maria Santos looks after the pump in Lisbon.", source="handbook")
    for text in (
        "会議室は三階にあり、定員は十二名です。",
        "Сервер резервного копирования стоит в Новосибирске.",
        "회의는 매주 화요일 오전 열 시에 시작합니다.",
        "القهوة في المطبخ مجانية لجميع الموظفين.",
        "Crème brûlée is on the menu every second Thursday 🍮.",
        "Jonas Weber moved the gateway to Lisbon for Maria Santos.",
        "x" * 300,
    ):
        await wrote(text, source="https://wiki.example.test/" + "long-path/" * 6)
    labelled = await wrote(
        "Maria Santos: phone +351 912 345 678, mail maria.santos@example.test,"
        " password: hunter2-hunter2"
    )
    await wrote("Pumps want oil every month.", kind=Kind.SEMANTIC, derived_from=(pump,))
    for i in range(30):
        await wrote(f"Rack {i} holds {10 + i} machines.", source="inventory.csv")
    latest = await wrote("Jonas has the phone.")
    for name in ("Maria", "Ada", "Ben"):
        latest = await wrote(f"{name} has the phone.", supersedes=latest)
    await kernel.mem_share(WHO, Share(memory=latest, to_actor="user:carl"))
    evil = await wrote(f"{EVIL} says Maria Santos", source=EVIL)
    told = await kernel.mem_write(
        WHO,
        Write(
            messages=tuple(
                TurnIn(speaker=s, text=t)
                for s, t in (
                    ("Ada", "Where did the orders go?"),
                    ("Ben", "To Lisbon, on Monday."),
                    (EVIL[:150], EVIL),
                    ("Ada", "Yes."),
                )
            )
        ),
    )
    assert isinstance(told, WriteResult)
    rumour = await wrote("All invoices are paid in cash.")
    await wrote("The safe is full.", derived_from=(rumour,))
    await kernel.mem_retract(WHO, rumour, f"A rumour. {EVIL}")
    for place in ("Lisbon", f"Oslo {EVIL}"):
        content = {
            "subject": "orders", "attribute": "place", "value": place, "single_valued": True,
        }  # fmt: skip
        await wrote(f"Orders run in {place}.", content=content)

    async def is_found() -> bool:
        return bool(await kernel.conflicts(WHO, open_only=True))

    await eventually(is_found, within_s=60)
    return Remembered(
        latest=str(latest),
        turn=str(told.items[1].id),
        withdrawn=str(rumour),
        labelled=str(labelled),
        evil=str(evil),
    )


PAGES: dict[str, Callable[[Remembered], str]] = {
    "memories": lambda _: "/memories",
    "a search": lambda _: "/memories?q=Maria+Santos+in+Lisbon&status=all",
    "a search in detail": lambda _: "/memories?q=phone&k=3&at=2099-01-01&ns=home&actor=user:x",
    "nothing found": lambda _: "/memories?q=zebra&kind=preference",
    "a chain": lambda r: f"/memories/{r.latest}",
    "a turn": lambda r: f"/memories/{r.turn}",
    "a withdrawn memory": lambda r: f"/memories/{r.withdrawn}",
    "a labelled memory": lambda r: f"/memories/{r.labelled}",
    "graph": lambda _: "/graph",
    "graph around one": lambda _: "/graph?about=Maria+Santos",
    "conflicts": lambda _: "/conflicts",
    "shares": lambda _: "/shares?ended=1",
    "memory policy": lambda _: "/memory-policy",
    "audit of memory": lambda _: "/audit?syscall=mem",
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
async def test_a_page_of_memory_is_accessible_and_within_the_window(
    visitor: Visitor, remembered: Remembered, name: str, width: int
) -> None:
    page = await visitor.page(viewport={"width": width, "height": WIDTHS[width]})

    await page.goto(PAGES[name](remembered))

    assert await page.locator("main h1").count() == 1
    assert await beyond_the_edge(page) == []
    assert await violations(page) == []


async def test_a_page_of_memory_is_within_a_wide_window(
    visitor: Visitor, remembered: Remembered
) -> None:
    page = await visitor.page(viewport={"width": 1920, "height": 1080})

    for path in PAGES.values():
        await page.goto(path(remembered))
        assert await beyond_the_edge(page) == []


async def test_probes_in_memory_are_text(visitor: Visitor, remembered: Remembered) -> None:
    # Guarantee 18
    page = await visitor.page()
    for path in (
        *(p(remembered) for p in PAGES.values()), f"/memories/{remembered.evil}",
        "/graph?about=script", "/memories?q=script+alert&status=all",
    ):  # fmt: skip
        answer = await page.goto(path)
        if answer is not None and answer.status == 400:
            visitor.watch.expect("answer 400: /graph", "Failed to load resource")

        await expect(page.locator("main")).not_to_be_empty()
        assert await page.locator(PLANTED).count() == 0, page.url


async def inked(page: Page) -> int:
    """Return how many points of the canvas are not empty."""
    count: int = await page.locator("#graph").evaluate(
        """(canvas) => {
          const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          let drawn = 0;
          for (let i = 3; i < all.length; i += 4) drawn += all[i] > 0;
          return drawn;
        }"""
    )
    return count


async def has_drawn(page: Page) -> None:
    async def is_drawn() -> bool:
        return await inked(page) > 1000

    await eventually(is_drawn, every_s=0.05)


class TestGraph:
    async def test_the_same_list_gives_the_same_picture(
        self, visitor: Visitor, remembered: Remembered
    ) -> None:
        page = await visitor.page()
        pictures = []
        for _ in range(2):
            await page.goto("/graph?about=Maria+Santos")
            await has_drawn(page)
            pictures.append(await page.locator("#graph").evaluate("(c) => c.toDataURL()"))

        assert pictures[0] == pictures[1]

    async def test_arrow_keys_choose_a_point_and_enter_opens_it(
        self, visitor: Visitor, remembered: Remembered
    ) -> None:
        page = await visitor.page()
        await page.goto("/graph?about=Maria+Santos")
        await has_drawn(page)
        links = page.locator("#graph-list a")

        await links.first.focus()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowUp")

        await expect(links.nth(1)).to_be_focused()
        await expect(page.locator("#graph-list .chosen")).to_have_count(1)
        said = await links.nth(1).inner_text()
        await expect(page.locator("[data-graph-said]")).to_have_text(said.strip())
        to = await links.nth(1).get_attribute("href")
        await page.keyboard.press("End")
        await expect(links.last).to_be_focused()
        await page.keyboard.press("Home")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        assert to is not None
        await expect(page).to_have_url(to)

    async def test_a_point_is_named_under_the_pointer_and_opened_by_a_click(
        self, visitor: Visitor, remembered: Remembered
    ) -> None:
        page = await visitor.page(viewport={"width": 1440, "height": 900})
        await page.goto("/graph?about=Maria+Santos")
        await has_drawn(page)
        box = await page.locator("#graph").bounding_box()
        assert box is not None
        canvas = page.locator("#graph.over")
        spots = [(x, y) for y in range(10, int(box["height"]), 12) for x in range(20, 900, 12)]
        for x, y in spots:
            await page.mouse.move(box["x"] + x, box["y"] + y)
            if await canvas.count():
                break

        name = await page.locator("[data-graph-said]").inner_text()
        link = page.locator("#graph-list .chosen a")
        assert (await link.inner_text()).strip() == name
        to = await link.get_attribute("href")
        await page.mouse.down()
        await page.mouse.up()

        assert to is not None
        await expect(page).to_have_url(to)

    async def test_the_picture_is_moved_zoomed_and_fitted_again(
        self, visitor: Visitor, remembered: Remembered
    ) -> None:
        page = await visitor.page(viewport={"width": 1440, "height": 900})
        await page.goto("/graph")
        await has_drawn(page)
        look = "(c) => c.toDataURL()"
        first = await page.locator("#graph").evaluate(look)

        await page.get_by_role("button", name="Zoom in").click()
        await page.mouse.move(400, 600)
        await page.mouse.down()
        await page.mouse.move(480, 640, steps=4)
        await page.mouse.up()
        await page.mouse.move(5, 5)

        async def is_other() -> bool:
            return bool(await page.locator("#graph").evaluate(look) != first)

        async def is_first() -> bool:
            return bool(await page.locator("#graph").evaluate(look) == first)

        await eventually(is_other)
        await expect(page).to_have_url("/graph")
        await page.get_by_role("button", name="Fit").click()
        await eventually(is_first)

    async def test_it_comes_to_rest_where_motion_is_welcome(
        self, visitor: Visitor, remembered: Remembered
    ) -> None:
        page = await visitor.page(reduced_motion="no-preference")
        await page.add_init_script(
            """window.frames_asked = 0;
            const ask = window.requestAnimationFrame.bind(window);
            window.requestAnimationFrame = (f) => { window.frames_asked += 1; return ask(f); };"""
        )
        await page.goto("/graph?about=Maria+Santos")
        await has_drawn(page)
        seen: list[int] = []

        async def is_still() -> bool:
            seen.append(await page.evaluate("window.frames_asked"))
            return len(seen) > 5 and len(set(seen[-5:])) == 1

        await eventually(is_still, within_s=60, every_s=0.1)

    async def test_the_colours_follow_the_theme(
        self, visitor: Visitor, remembered: Remembered
    ) -> None:
        page = await visitor.page(color_scheme="light")
        await page.goto("/graph?about=Maria+Santos")
        await has_drawn(page)
        light = await page.locator("#graph").evaluate("(c) => c.toDataURL()")

        await page.locator("h1").click()
        await page.keyboard.press("t")

        async def is_other() -> bool:
            return bool(await page.locator("#graph").evaluate("(c) => c.toDataURL()") != light)

        await eventually(is_other)

    async def test_without_scripts_the_list_is_all_there_is(
        self, visitor: Visitor, remembered: Remembered
    ) -> None:
        page = await visitor.page(java_script_enabled=False)
        await page.goto("/graph?about=Maria+Santos")

        await expect(page.locator("#graph")).to_be_hidden()
        assert len(await texts(page, "#graph-list li")) > 3
        await page.locator("#graph-list a").nth(1).click()
        await expect(page.locator("main h1")).to_be_visible()


class TestForms:
    async def test_a_memory_is_written_and_found(
        self, visitor: Visitor, remembered: Remembered
    ) -> None:
        page = await visitor.page()
        await page.goto("/memories")

        await page.get_by_text("Write a memory").click()
        await page.get_by_label("Text", exact=True).fill("The lighthouse keeper is called Ines.")
        await page.get_by_role("button", name="Write", exact=True).click()
        await expect(page.locator(".notice.good")).to_have_text("Stored.")
        await page.goto("/memories")
        await page.get_by_label("Search for").fill("lighthouse keeper")
        await page.keyboard.press("Enter")

        await expect(page).to_have_url("/memories?q=lighthouse+keeper")
        await expect(page.locator(".mem-text").first).to_contain_text("Ines")
        await expect(page.locator(".score-bar").first).to_be_visible()

    async def test_a_pin_changes_in_place(self, visitor: Visitor, remembered: Remembered) -> None:
        page = await visitor.page()
        await page.goto(f"/memories/{remembered.labelled}")
        await page.evaluate("window.stayed = true")

        await page.get_by_role("button", name="Pin", exact=True).click()
        await expect(page.get_by_role("button", name="Unpin")).to_be_visible()
        await expect(page.locator("#mem-said")).to_contain_text("Pinned")
        await page.get_by_role("button", name="Unpin").click()

        await expect(page.get_by_role("button", name="Pin", exact=True)).to_be_visible()
        assert await page.evaluate("window.stayed")

    async def test_a_retraction_asks_and_is_undone(
        self, visitor: Visitor, remembered: Remembered
    ) -> None:
        done = await visitor.daemon.noema.memory.mem_write(WHO, Write(text="The moon is cheese."))
        assert isinstance(done, WriteResult)
        page = await visitor.page()
        await page.goto(f"/memories/{done.items[0].id}")

        await page.get_by_text("Retract it").click()
        await page.get_by_label("Why", exact=True).fill("It is not.")
        await page.get_by_role("button", name="Retract").click()
        await expect(page.locator("#confirm")).to_contain_text("You can undo that")
        await page.locator("[data-confirm-yes]").click()
        await expect(page.locator(".notice.retracted")).to_contain_text("It is not.")
        await page.get_by_role("button", name="Restore").click()
        await page.locator("[data-confirm-yes]").click()

        await expect(page.locator(".notice.good")).to_contain_text("Restored")

    async def test_a_conflict_is_decided_and_undone_in_place(
        self, visitor: Visitor, remembered: Remembered
    ) -> None:
        page = await visitor.page()
        await page.goto("/conflicts")
        await page.evaluate("window.stayed = true")
        case = page.locator(".case.open").first
        id_ = await case.get_attribute("id")

        await case.get_by_role("button", name="Both hold").click()
        await expect(page.locator(f"#{id_} h2")).to_have_text("Both hold")
        await expect(page.locator("#conflicts-head")).to_contain_text("none waits")
        await page.locator(f"#{id_}").get_by_role("button", name="The first holds").click()
        await expect(page.locator(f"#{id_} h2")).to_contain_text("The first holds")
        await page.locator(f"#{id_}").get_by_role("button", name="Undo").click()

        await expect(page.locator(f"#{id_} h2")).to_contain_text("Undone")
        assert await page.evaluate("window.stayed")


class TestKeys:
    async def test_g_y_leads_to_memories_and_g_g_from_there_to_the_graph(
        self, page: Page, remembered: Remembered
    ) -> None:
        await page.goto("/system")

        await page.keyboard.press("g")
        await page.keyboard.press("y")
        await expect(page).to_have_url("/memories")
        await page.keyboard.press("g")
        await page.keyboard.press("g")

        await expect(page).to_have_url("/graph")
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_contain_text("Memories")

    async def test_j_and_enter_open_a_memory_and_the_palette_finds_others(
        self, page: Page, remembered: Remembered
    ) -> None:
        await page.goto("/memories?q=Maria+Santos")
        first = page.locator(".mem-text").first
        to = await first.get_attribute("href")
        assert to is not None

        await page.keyboard.press("j")
        await expect(first).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(to)
        await page.keyboard.press("/")
        await page.keyboard.type("lisbon pump")
        option = page.locator("#palette-list [role=option]", has_text="Memories about lisbon pump")
        await option.wait_for()
        await page.keyboard.press("Enter")

        await expect(page).to_have_url("/memories?q=lisbon+pump")


async def test_a_search_of_a_page_is_the_search_of_the_kernel(
    visitor: Visitor, remembered: Remembered
) -> None:
    page = await visitor.page()
    await page.goto("/memories?q=Maria+Santos+in+Lisbon")

    shown = await page.locator(".mem-text").evaluate_all("(a) => a.map((x) => x.pathname)")

    found = await visitor.daemon.noema.memory.mem_search(
        WHO, Search(query="Maria Santos in Lisbon")
    )
    assert shown == [f"/memories/{hit.memory.id}" for hit in found.hits]

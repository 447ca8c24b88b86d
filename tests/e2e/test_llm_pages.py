"""The pages of models in a browser: both themes, without a script, and by keyboard."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
from playwright.async_api import Page, expect

from noema.core.errors import NoemaError
from noema.core.identity import ConsoleRole, Identity, MemoryRole
from noema.llm.configured import Link, NewProvider, ProviderChange
from noema.llm.inputs import Data, Dialogue, Remembered
from noema.llm.model import CallContext, CognitiveRequest, Parameters, Prices, Role
from tests.e2e.browsing import Visitor, texts
from tests.e2e.test_every_page import WIDTHS, beyond_the_edge, violations
from tests.llm_fake import FakeOpenAI, refusal
from tests.running import Daemon

WHO = Identity(
    namespace="home",
    actor="user:test",
    role=MemoryRole.OWNER,
    console=ConsoleRole.ADMINISTRATOR,
    agent_id="console",
)
EVIL = "<script>alert('model')</script>\"'><img src=x onerror=alert('model')>"
PLANTED = "main script, main iframe, main style, main img, main [onerror], main [onload]"
PRICED = Prices(input=400_000, output=1_600_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was configured and asked, by what it is good for."""

    fake: FakeOpenAI
    answered: UUID
    failed: UUID
    hidden: UUID


@pytest.fixture(scope="session")
async def asked(running: Daemon) -> AsyncIterator[Asked]:
    """Providers, roles, prompts, budgets and a month of calls, only to be looked at."""
    llm = running.noema.llm
    async with FakeOpenAI() as fake:
        await llm.registry.create(
            WHO,
            NewProvider(
                name="gateway",
                kind="openai",
                endpoint=f"{fake.url}/v1",
                model="gpt-fake-4.1-mini-with-a-long-name-2025-04-14",
                parameters=Parameters(temperature=0.2, stop=("END", EVIL)),
                prices=PRICED,
                allows_private=True,
            ),
            secret="canary-secret-of-the-browser-tests",
        )
        for name in ("unpriced", "resting"):
            await llm.registry.create(
                WHO,
                NewProvider(
                    name=name, kind="openai", endpoint=f"{fake.url}/v1", model=EVIL,
                    allows_private=True,
                ),
            )  # fmt: skip
        await llm.registry.change(WHO, "resting", ProviderChange(is_enabled=False))
        await llm.registry.create(WHO, NewProvider(name="echo", kind="echo"))
        chain = (Link(provider="gateway"), Link(provider="resting"), Link(provider="echo"))
        # Only roles that no mind of the other tests asks.
        await llm.registry.set_role(WHO, Role.PERCEIVE, chain)
        await llm.registry.set_role(
            WHO, Role.SUMMARISE, (Link(provider="gateway", parameters=Parameters(seed=7)),)
        )
        await llm.registry.set_role(WHO, Role.SUMMARISE, chain[:1])
        await llm.registry.set_role(WHO, Role.RECALL, (Link(provider="unpriced"),))
        before = await llm.library.get("dialogue")
        await llm.library.save(
            WHO, "dialogue", system=before.system + "Be kind.\n", template=before.template,
            note=EVIL,
        )  # fmt: skip
        await llm.budgets.set(WHO, scope="everything", period="month", money_micros=5_000_000)
        await llm.budgets.set(WHO, scope="role", period="day", tokens=1_000_000)
        await llm.budgets.set(WHO, scope="role", period="day", key="recall", tokens=5)
        mind = await running.noema.minds.create(slug="asker", name="Asker", actor="test")

        async def ask(text: str, role: Role = Role.PERCEIVE, namespace: str = "home") -> UUID:
            ready = await llm.library.render(
                "dialogue",
                Dialogue(
                    mind="Asker",
                    now="Monday",
                    message=Data(text=text, kind="message"),
                    memories=(
                        Remembered(ref="m1", text=Data(text=f"The pump runs at 3 bar. {EVIL}")),
                        Remembered(ref="m2", text=Data(text="会議室は三階にあります。" * 12)),
                    ),
                ),
            )
            try:
                done = await llm.service.complete(
                    CognitiveRequest(
                        role=role,
                        messages=ready.messages,
                        prompt=ready.prompt,
                        context=CallContext(
                            namespace=namespace, actor="mind:asker", mind=mind.id, cycle=3,
                            process=f"dialogue {uuid4().hex[:4]}",
                        ),
                    )
                )  # fmt: skip
            except NoemaError:
                found = await llm.calls.page(namespaces=None, state="failed", limit=1)
                return found[0].id
            return done.call

        fake.text = f"At 3 bar [m1]. {EVIL}"
        for i in range(24):
            await ask(f"How is the pump? {i}", (Role.PERCEIVE, Role.SUMMARISE, Role.RECALL)[i % 3])
        failed = await ask("Which is right?", Role.RECALL)
        fake.then(refusal(503, {"error": {"message": f"no room {EVIL} " + "long" * 60}}))
        answered = await ask(f"How is the pump? {EVIL}")
        hidden = await ask("Elsewhere", namespace="home/elsewhere")
        # Time goes by: the calls of this minute become those of a month.
        async with running.noema.db.transaction() as tx:
            await tx.conn.execute(
                "UPDATE llm_calls SET started_at = started_at - make_interval(days => n::int)"
                " FROM (SELECT id AS i, row_number() OVER (ORDER BY id DESC) AS n FROM llm_calls"
                " WHERE state = 'answered') x WHERE id = i AND n > 3"
            )
        yield Asked(fake=fake, answered=answered, failed=failed, hidden=hidden)


PAGES: dict[str, Callable[[Asked], str]] = {
    "providers": lambda _: "/models",
    "a new provider": lambda _: "/models/new",
    "a provider": lambda _: "/models/providers/gateway",
    "a disabled provider": lambda _: "/models/providers/resting",
    "the echo": lambda _: "/models/providers/echo",
    "roles": lambda _: "/models/roles",
    "a role": lambda _: "/models/roles/perceive",
    "a role that is off": lambda _: "/models/roles/verify",
    "prompts": lambda _: "/models/prompts",
    "a prompt": lambda _: "/models/prompts/dialogue",
    "a diff": lambda _: "/models/prompts/dialogue?from=1&to=2",
    "calls": lambda _: "/models/calls",
    "no calls": lambda _: "/models/calls?role=verify",
    "a call": lambda a: f"/models/calls/{a.answered}",
    "a call that failed": lambda a: f"/models/calls/{a.failed}",
    "a call of elsewhere": lambda a: f"/models/calls/{a.hidden}",
    "spend": lambda _: "/models/spend",
    "spend by provider": lambda _: "/models/spend?by=provider&of=calls&days=90",
    "no spend": lambda _: "/models/spend?from=2020-01-01&to=2020-01-31",
    "budgets": lambda _: "/models/budgets",
    "the system": lambda _: "/system",
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
async def test_a_page_of_models_is_accessible_and_within_the_window(
    visitor: Visitor, asked: Asked, name: str, width: int
) -> None:
    page = await visitor.page(viewport={"width": width, "height": WIDTHS[width]})

    await page.goto(PAGES[name](asked))

    assert await page.locator("main h1").count() == 1
    assert await page.locator(PLANTED).count() == 0
    assert await beyond_the_edge(page) == []
    assert await violations(page) == []


async def test_the_data_blocks_of_a_call_are_marked(page: Page, asked: Asked) -> None:
    await page.goto(f"/models/calls/{asked.answered}")

    marked = await texts(page, ".data-block .said-text")

    assert marked[0].startswith("The pump runs at 3 bar. <script>")
    assert marked[-1].startswith("How is the pump? <script>")
    assert await texts(page, ".data-block figcaption") == [
        "data kind=text", "data kind=text", "data kind=message",
    ]  # fmt: skip
    await expect(page.locator(".attempts tbody tr")).to_have_count(2)


async def test_without_a_script_a_provider_is_made_tested_and_asked_by_a_role(
    visitor: Visitor, asked: Asked
) -> None:
    page = await visitor.page(java_script_enabled=False)
    name = f"e2e-{uuid4().hex[:6]}"
    await page.goto("/models")
    await page.get_by_role("link", name="Add a provider").click()
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Endpoint").fill(f"{asked.fake.url}/v1")
    await page.get_by_label("Model", exact=True).fill("gpt-fake")
    await page.get_by_label("Secret").fill("canary-e2e-secret-typed")
    await page.get_by_label("Private addresses are meant").check()
    await page.get_by_text("Parameters and prices").click()
    await page.get_by_label("Input").fill("0.4")
    await page.get_by_label("Output").fill("1.6")
    await page.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("status").first).to_contain_text("Made.")
    await expect(page.locator("#h-secret + .more")).to_have_text("set, ends in yped")

    await page.get_by_label("Ask", exact=True).fill("Who are you?")
    await page.get_by_role("button", name="Test", exact=True).click()
    await expect(page.locator("#test .wire .code")).to_contain_text('"Who are you?"')
    await expect(page.locator("#test .answer")).to_contain_text("At 3 bar")
    assert "canary-e2e-secret-typed" not in await page.content()

    await page.goto("/models/roles/summarise")
    await page.get_by_label("Primary").select_option(name)
    await page.get_by_label("Deadline, seconds").fill("7.5")
    await page.get_by_role("button", name="Set as version").click()
    await expect(page.get_by_role("status").first).to_contain_text("Set as a new version")
    await page.get_by_role("button", name="Turn it off").click()
    await expect(page.get_by_role("status").first).to_contain_text("Turned off")
    # Versions 1 and 2 were there before.
    await page.get_by_role("button", name="Put back version 1").click()
    await expect(page.locator(".page-head .badge")).to_have_text("version 5")


async def test_without_a_script_a_prompt_is_previewed_saved_and_rolled_back(
    visitor: Visitor, asked: Asked
) -> None:
    page = await visitor.page(java_script_enabled=False)
    await page.goto("/models/prompts/summarise")
    await page.get_by_label("Template").fill("Say it in {{ words }} words.\n{% for t in texts %}\n"
                                             "{{ t.text }}\n{% endfor %}")  # fmt: skip
    await page.get_by_role("button", name="Preview").click()
    await expect(page.locator(".sent-msg.role-user")).to_contain_text("Say it in 3 words.")
    await expect(page.locator(".data-block")).to_have_count(2)
    await page.get_by_label("Why").fill("plainer")
    await page.get_by_role("button", name="Save and use").click()
    await expect(page.locator(".page-head .badge").first).to_have_text("version 2 in use")

    await page.get_by_role("link", name="Diff to version 1").click()
    await expect(page.locator("#diff .diff-del").first).to_be_visible()
    await page.get_by_role("button", name="Roll back to version 1").click()
    await expect(page.locator(".page-head .badge").first).to_have_text("version 1 in use")


async def test_without_a_script_a_budget_is_set_changed_and_ended(
    visitor: Visitor, asked: Asked
) -> None:
    page = await visitor.page(java_script_enabled=False)
    await page.goto("/models/budgets")
    await page.get_by_label("For", exact=True).select_option("provider")
    await page.get_by_label("Which").fill("echo")
    await page.get_by_label("Tokens, at most").fill("500")
    await page.get_by_role("button", name="Set the budget").click()
    own = page.locator(".budget", has_text="Provider echo")
    await expect(own).to_contain_text("500 tokens in a day (UTC)")

    await own.get_by_role("link", name="Change").click()
    await page.get_by_label("Tokens, at most").fill("900")
    await page.get_by_role("button", name="Set the budget").click()
    await expect(own).to_contain_text("900 tokens")
    await own.get_by_role("button", name="End").click()
    await expect(own).to_have_count(0)


async def test_the_keys_lead_to_them(page: Page, asked: Asked) -> None:
    await page.goto("/events")
    await page.keyboard.press("g")
    await page.keyboard.press("o")
    await page.wait_for_url("**/models")

    await page.get_by_role("link", name="Calls", exact=True).click()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/models/calls/*")


async def test_a_deed_that_ends_something_is_confirmed(page: Page, asked: Asked) -> None:
    await page.goto("/models/providers/gateway")

    await page.get_by_role("button", name="Delete").click()

    await expect(page.locator("#confirm")).to_contain_text("its secret are destroyed")
    await page.get_by_role("button", name="Cancel").click()
    assert page.url.endswith("/models/providers/gateway")

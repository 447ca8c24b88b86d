"""The role `embed`: vectors by providers, others where one fails, and NOEMA_EMBEDDER where off."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from noema.config import EmbedderSettings
from noema.core.clock import ManualClock
from noema.core.errors import InvalidInput, Unavailable
from noema.core.identity import ConsoleRole, MemoryRole
from noema.db.tx import Database
from noema.llm.configured import Link, NewProvider, ProviderChange
from noema.llm.embedders.chain import EmbedderChain
from noema.llm.embedders.choice import Choice
from noema.llm.embedders.hash import MODEL as HASH
from noema.llm.embedders.make import aclose
from noema.llm.model import Parameters, Purpose, Role
from tests.conftest import TestDatabase
from tests.fake_embedder import FakeService, fake_service, hang, reply
from tests.helpers import eventually
from tests.llm_fake_bedrock import FakeBedrock
from tests.llm_house import ADMIN, Desk, desk
from tests.llm_keys import KEY_ID
from tests.llm_keys import SECRET as AWS_SECRET
from tests.people import person
from tests.running import daemon

PAGES = ("/system", "/models/roles/embed")
SECRET = "canary-secret-7c41-do-not-show"
DOWN = reply(404, {"error": {"code": "model_not_found", "message": SECRET}})


@pytest.fixture
async def first() -> AsyncIterator[FakeService]:
    async with fake_service() as running:
        yield running


@pytest.fixture
async def second() -> AsyncIterator[FakeService]:
    async with fake_service() as running:
        yield running


@pytest.fixture
def house(db: Database, clock: ManualClock) -> Desk:
    return desk(db, clock)


async def provider(house: Desk, service: FakeService, name: str, **changes: Any) -> None:
    values: dict[str, Any] = {
        "kind": "openai",
        "endpoint": f"{service.url}/v1",
        "model": "m",
        "allows_private": True,
    }
    await house.registry.create(ADMIN, NewProvider(name=name, **(values | changes)), secret=SECRET)


async def set_role(house: Desk, *names: str, **parameters: Any) -> None:
    links = [Link(provider=n, parameters=Parameters(**parameters)) for n in names]
    await house.registry.set_role(ADMIN, Role.EMBED, links)


@asynccontextmanager
async def chosen(
    house: Desk, setting: str = "hash", *, search_s: float | None = None
) -> AsyncIterator[tuple[Choice, Any]]:
    choice = Choice(registry=house.registry, clock=house.clock)
    made = await choice.made(EmbedderSettings(kind=setting))  # type: ignore[arg-type]
    if search_s is not None and isinstance(made, EmbedderChain):
        made._search_s = search_s
    try:
        yield choice, made
    finally:
        await aclose(made)


class TestChoice:
    async def test_while_the_role_is_off_the_setting_says(
        self, house: Desk, first: FakeService
    ) -> None:
        await provider(house, first, "one")
        for _ in range(2):
            async with chosen(house) as (choice, made):
                assert made.model == choice.in_force.model == HASH
                assert choice.in_force.source == "NOEMA_EMBEDDER"
            async with chosen(house, "none") as (choice, made):
                assert (made, choice.in_force.model) == (None, "")
            await set_role(house, "one")
            await set_role(house)
        assert first.asked == []

    async def test_the_role_takes_the_place_of_the_setting(
        self, house: Desk, first: FakeService
    ) -> None:
        await provider(house, first, "one")
        await set_role(house, "one", extra={"dimensions": 3})

        async with chosen(house) as (choice, made):
            (vector,) = await made.embed(["the pump"], purpose="document")

            assert (made.model, made.dims, len(vector)) == ("embed:m@3", 3, 3)
            told = choice.in_force
        assert (told.source, told.version, told.destination) == ("role embed", 1, "local")
        (asked,) = first.asked
        assert asked.path == "/v1/embeddings"
        assert (asked.body["model"], asked.body["dimensions"]) == ("m", 3)
        assert asked.headers["authorization"] == f"Bearer {SECRET}"

    async def test_bedrock_signs_for_the_region_of_the_provider(self, house: Desk) -> None:
        async with FakeBedrock() as fake:
            new = NewProvider(
                name="aws",
                kind="bedrock",
                endpoint=fake.url,
                model="amazon.titan-embed-text-v2:0",
                parameters=Parameters(extra={"region": "eu-central-1"}),
                allows_private=True,
            )
            await house.registry.create(ADMIN, new, secret=f"{KEY_ID}:{AWS_SECRET}")
            await set_role(house, "aws", extra={"dims": 8})
            async with chosen(house) as (_, made):
                assert len(await made.embed(["the pump"], purpose="document")) == 1

        (asked,) = fake.requests
        assert asked.json == {"inputText": "the pump", "dimensions": 8}
        assert "/eu-central-1/bedrock/aws4_request" in asked.headers["authorization"]
        assert AWS_SECRET not in str(asked)

    async def test_one_outside_makes_it_go_outside(self, house: Desk, first: FakeService) -> None:
        await provider(house, first, "one")
        await provider(house, first, "far", endpoint="https://x.example.com", allows_private=False)
        await set_role(house, "one", "far")

        async with chosen(house) as (choice, _):
            assert choice.in_force.destination == "provider"

    @pytest.mark.parametrize("purpose", ["query", "document"])
    async def test_the_fallback_answers_while_the_first_is_down_and_rests(
        self, house: Desk, first: FakeService, second: FakeService, purpose: Purpose
    ) -> None:
        await provider(house, first, "one")
        await provider(house, second, "two", kind="ollama", endpoint=second.url)
        await set_role(house, "one", "two")
        first.answers.extend([DOWN] * 3)

        async with chosen(house) as (_, made):
            for _ in range(5):
                assert len(await made.embed(["the pump"], purpose=purpose)) == 1
            resting = len(first.asked), len(second.asked)
            house.clock.advance(60.0)
            await made.embed(["the pump"], purpose=purpose)

        assert resting == (3, 5)
        assert (len(first.asked), len(second.asked)) == (4, 5)

    async def test_one_that_hangs_leaves_a_search_the_next(
        self, house: Desk, first: FakeService, second: FakeService
    ) -> None:
        await provider(house, first, "one")
        await provider(house, second, "two")
        await set_role(house, "one", "two")
        first.answers.append(hang)

        async with chosen(house, search_s=0.05) as (_, made):
            assert len(await made.embed(["the pump"], purpose="query")) == 1

    async def test_where_none_is_left_it_is_told_of_each_and_of_no_secret(
        self,
        house: Desk,
        first: FakeService,
        second: FakeService,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        for service, name in ((first, "one"), (second, "two"), (second, "three")):
            await provider(house, service, name)
        await set_role(house, "one", "two", "three")
        await house.registry.change(ADMIN, "three", ProviderChange(is_enabled=False))
        first.answers.append(DOWN)
        second.answers.append(DOWN)

        with caplog.at_level(logging.DEBUG):
            async with chosen(house) as (choice, made):
                with pytest.raises(Unavailable) as raised:
                    await made.embed(["the pump"], purpose="document")
                shown = f"{raised.value} {choice.in_force} {made!r} {vars(made)!r}"
        for name in ("provider one", "provider two", "three is disabled"):
            assert name in shown
        assert SECRET not in shown + caplog.text

    async def test_all_disabled_are_no_reason_to_take_other_vectors(
        self, house: Desk, first: FakeService
    ) -> None:
        await provider(house, first, "one")
        await set_role(house, "one")
        await house.registry.change(ADMIN, "one", ProviderChange(is_enabled=False))

        async with chosen(house) as (_, made):
            assert made.model == "embed:m"
            with pytest.raises(Unavailable, match="one is disabled"):
                await made.embed(["the pump"], purpose="query")

    async def test_a_secret_that_does_not_open_is_told_and_the_daemon_starts(
        self, house: Desk, first: FakeService, second: FakeService
    ) -> None:
        await provider(house, first, "one")
        await provider(house, second, "two")
        await set_role(house, "one", "two")
        row = await house.registry.provider("one")
        async with house.db.transaction() as tx:
            await tx.conn.execute(
                "UPDATE secrets SET sealed = $2 WHERE id = $1", row.secret_id, bytes(64)
            )

        async with chosen(house) as (_, made):
            assert len(await made.embed(["the pump"], purpose="document")) == 1
        assert (len(first.asked), len(second.asked)) == (0, 1)

    async def test_a_private_address_is_asked_only_where_it_is_meant(
        self, house: Desk, first: FakeService
    ) -> None:
        # As a name, since numbers are refused when they are set.
        port = first.url.rpartition(":")[2]
        await provider(
            house, first, "one", endpoint=f"https://localhost:{port}/v1", allows_private=False
        )
        await set_role(house, "one")

        async with chosen(house) as (_, made):
            with pytest.raises(Unavailable, match="this machine itself"):
                await made.embed(["the pump"], purpose="document")
        assert first.asked == []


class TestSetting:
    async def test_a_chain_of_two_models_is_refused_and_nothing_changes(
        self, house: Desk, first: FakeService
    ) -> None:
        await provider(house, first, "one")
        await provider(house, first, "two", model="n")
        await set_role(house, "one")

        with pytest.raises(InvalidInput, match="not comparable"):
            await set_role(house, "one", "two")
        assert (await house.registry.role(Role.EMBED)).version == 1

    async def test_a_provider_in_the_chain_does_not_get_another_model_alone(
        self, house: Desk, first: FakeService
    ) -> None:
        await provider(house, first, "one")
        await provider(house, first, "two")
        await set_role(house, "one", "two")

        with pytest.raises(InvalidInput, match="not comparable"):
            await house.registry.change(ADMIN, "two", ProviderChange(model="n"))
        assert (await house.registry.provider("two")).model == "m"
        await set_role(house, "two")
        await house.registry.change(ADMIN, "two", ProviderChange(model="n"))


class TestDaemon:
    async def test_it_takes_effect_when_the_daemon_starts_again(
        self, database: TestDatabase, tmp_path: Path, first: FakeService
    ) -> None:
        async with daemon(database, data_dir=tmp_path) as one:
            created = await one.client.post(
                "/v1/llm/providers",
                json={
                    "name": "vectors",
                    "kind": "openai",
                    "endpoint": f"{first.url}/v1",
                    "model": "m",
                    "allows_private": True,
                    "secret": SECRET,
                },
            )
            assert created.status_code == 201, created.text
            made = ok(
                await one.client.put(
                    "/v1/llm/roles/embed", json={"chain": [{"provider": "vectors"}]}
                )
            )
            assert made["takes_effect"] == "when the daemon starts again"
            assert made["in_force"]["source"] == "NOEMA_EMBEDDER"
            assert made["in_force"]["model"] == HASH
        asked_before = len(first.asked)

        async with daemon(database, data_dir=tmp_path) as two:
            roles = ok(await two.client.get("/v1/llm/roles"))["items"]
            (embed,) = [row for row in roles if row["role"] == "embed"]
            system = ok(await two.client.get("/v1/system"))
            await eventually(lambda: first.asked)
            ada = await person(
                two, "ada", ("home", MemoryRole.MEMBER), role=ConsoleRole.ADMINISTRATOR
            )
            async with ada.browser() as browser:
                pages = [(await browser.get(path)).text for path in PAGES]
                form = {"provider.0": "vectors", "provider.1": "vectors", "model.1": "n"}
                refused = await browser.post("/models/roles/embed", data=form)
                off = await browser.post("/models/roles/embed", data={"base": "1"})
                turned = (await browser.get(off.headers["location"])).text
            texts = f"{roles} {system} {pages}"
        assert asked_before == 0
        assert embed["in_force"] == system["embedder"]
        assert embed["in_force"]["model"] == "embed:m"
        assert embed["in_force"]["version"] == embed["version"] == 1
        assert (refused.status_code, off.status_code) == (400, 303)
        assert "vectors of two models are not comparable" in refused.text
        assert "Vectors come by NOEMA_EMBEDDER when the daemon starts again" in turned
        assert all("embed:m, by role embed, version 1" in page for page in pages)
        assert SECRET not in texts


def ok(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()

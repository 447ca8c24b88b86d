"""Where a provider's secret may go, and what becomes of it when rows or the key are changed."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from noema.core.clock import ManualClock
from noema.core.errors import ConfigError, InvalidInput, Unavailable
from noema.db.keys import Keys
from noema.db.tx import Database
from noema.llm import checks
from noema.llm.configured import NewProvider, ProviderChange
from noema.llm.model import Parameters
from tests.conftest import TestDatabase
from tests.llm_house import ADMIN, NO_FILE, Desk, desk
from tests.llm_keys import CREDENTIAL, KEY_ID, SECRET, TOKEN

KEY = "canary-secret-7c41-do-not-show"
OPENAI = NewProvider(name="openai", kind="openai", model="m")
BEDROCK = NewProvider(
    name="rock",
    kind="bedrock",
    endpoint="https://bedrock-runtime.eu-central-1.amazonaws.com",
    model="m",
)
ANOTHER_KEY = bytes(reversed(range(32)))


@pytest.fixture
async def house(db: Database, clock: ManualClock) -> AsyncIterator[Desk]:
    made = desk(db, clock)
    yield made
    await made.registry.aclose()


class TestBound:
    async def test_guarantee_18_who_writes_to_the_database_sends_a_secret_nowhere(
        self, house: Desk
    ) -> None:
        await house.registry.create(ADMIN, OPENAI, secret=KEY)
        for endpoint in (
            "https://evil.test/v1",
            "http://api.openai.com/v1",
            "https://api.openai.com:8443/v1",
            "https://api.openai.com.evil.test/v1",
        ):
            async with house.db.transaction() as tx:
                await tx.conn.execute("UPDATE llm_providers SET endpoint = $1", endpoint)
            with pytest.raises(Unavailable, match="cannot be opened"):
                await house.registry.secret_of(await house.registry.provider("openai"))

    async def test_guarantee_18_a_provider_cannot_be_given_the_secret_of_another(
        self, house: Desk
    ) -> None:
        await house.registry.create(ADMIN, OPENAI, secret=KEY)
        evil = NewProvider(name="evil", kind="openai", endpoint="https://evil.test", model="m")
        await house.registry.create(ADMIN, evil)
        async with house.db.transaction() as tx:
            await tx.conn.execute(
                "UPDATE llm_providers SET secret_id ="
                " (SELECT secret_id FROM llm_providers WHERE name = 'openai')"
                " WHERE name = 'evil'"
            )

        with pytest.raises(Unavailable, match="cannot be opened"):
            await house.registry.secret_of(await house.registry.provider("evil"))

    async def test_a_secret_that_comes_with_a_new_host_is_bound_to_that(self, house: Desk) -> None:
        await house.registry.create(ADMIN, OPENAI, secret=KEY)
        moved = await house.registry.change(
            ADMIN, "openai", ProviderChange(endpoint="https://eu.example.com/v1"), secret=KEY
        )
        stayed = await house.registry.change(
            ADMIN, "openai", ProviderChange(endpoint="https://EU.example.com:443/v2")
        )

        assert await house.registry.secret_of(moved) == KEY
        assert await house.registry.secret_of(stayed) == KEY

    @pytest.mark.parametrize(
        ("one", "other", "is_same"),
        [
            ("https://a.test/v1", "https://A.test:443/v2", True),
            ("http://a.test", "http://a.test:80", True),
            ("https://bücher.test", "https://xn--bcher-kva.test", True),
            ("https://a.test", "http://a.test", False),
            ("https://a.test", "https://a.test:444", False),
            ("https://a.test", "https://a.test.", False),
            ("https://a.test", "https://a.test.evil.test", False),
        ],
    )
    def test_what_is_the_same_host(self, one: str, other: str, is_same: bool) -> None:
        assert (checks.host_of(one) == checks.host_of(other)) is is_same


class TestKey:
    async def test_guarantee_26_another_key_opens_nothing_and_the_documented_change_of_it_works(
        self, house: Desk, db: Database, database: TestDatabase, clock: ManualClock
    ) -> None:
        await house.registry.create(ADMIN, OPENAI, secret=KEY)
        other = desk(db, clock, key=ANOTHER_KEY)
        row = await other.registry.provider("openai")
        # Not started, and where it were: nothing is opened, and nothing sealed with a second key.
        with pytest.raises(ConfigError, match="not the one this database was sealed with"):
            await Keys(db=db, key=ANOTHER_KEY, data_dir=NO_FILE).check()
        with pytest.raises(ConfigError, match="not the one"):
            await other.registry.secret_of(row)
        with pytest.raises(ConfigError, match="not the one"):
            await other.registry.provider_of(row.id)
        with pytest.raises(ConfigError, match="not the one"):
            await other.registry.set_secret(ADMIN, "openai", "another-secret-4242")

        # docs/security.md: the owner of the database forgets the fingerprint.
        owner = await asyncpg.connect(database.owner_dsn)
        await owner.execute("DELETE FROM key_fingerprints WHERE name = 'secret'")
        await owner.close()
        changed = desk(db, clock, key=ANOTHER_KEY)
        await Keys(db=db, key=ANOTHER_KEY, data_dir=NO_FILE).check()
        with pytest.raises(Unavailable, match="cannot be opened"):
            await changed.registry.secret_of(row)
        again = await changed.registry.set_secret(ADMIN, "openai", KEY)

        assert await changed.registry.secret_of(again) == KEY
        with pytest.raises(Unavailable, match="cannot be opened"):
            await house.registry.secret_of(again)


class TestBedrock:
    @pytest.mark.parametrize(
        "secret",
        [KEY, KEY_ID, f"{KEY_ID}:", f"{KEY_ID}:{SECRET}:", f"{KEY_ID} {SECRET}", f":{SECRET}",
         f"{CREDENTIAL}:x", f"{KEY_ID}:{SECRET}:é"],
    )  # fmt: skip
    async def test_a_credential_of_another_form_is_refused_when_it_is_set(
        self, house: Desk, secret: str
    ) -> None:
        with pytest.raises(InvalidInput) as raised:
            await house.registry.create(ADMIN, BEDROCK, secret=secret)

        assert raised.value.field == "secret"
        assert not any(part in str(raised.value) for part in (KEY, KEY_ID, SECRET, TOKEN))
        assert await house.registry.providers() == ()

    @pytest.mark.parametrize(
        "endpoint",
        [
            "https://bedrock-runtime.eu-central-1.amazonaws.com.evil.test",
            "https://bedrock-runtime.eu-central-1.amazonaws.com.",
            "https://bedrock-runtime.eu-central-1.amazonaws.com:8443",
            "https://bedrock-runtime.eu-central-1.amazonaws.com/model",
            "https://bedrock-runtime.evil.test",
            "https://bedrock.eu-central-1.amazonaws.com",
            "https://xbedrock-runtime.eu-central-1.amazonaws.com",
        ],
    )
    async def test_another_endpoint_is_refused_when_it_is_set(
        self, house: Desk, endpoint: str
    ) -> None:
        await house.registry.create(ADMIN, BEDROCK, secret=CREDENTIAL)
        with pytest.raises(InvalidInput, match="Amazon Bedrock") as raised:
            await house.registry.change(
                ADMIN, "rock", ProviderChange(endpoint=endpoint), secret=CREDENTIAL
            )

        assert raised.value.field == "endpoint"
        assert await house.registry.secret_of(await house.registry.provider("rock")) == CREDENTIAL

    async def test_a_private_endpoint_tells_its_region(self, house: Desk) -> None:
        told = ProviderChange(
            endpoint="https://10.0.0.7",
            allows_private=True,
            parameters=Parameters(extra={"region": "eu-central-1"}),
        )
        await house.registry.create(ADMIN, BEDROCK)
        with pytest.raises(InvalidInput, match="region"):
            await house.registry.change(
                ADMIN, "rock", ProviderChange(endpoint="https://10.0.0.7", allows_private=True)
            )
        changed = await house.registry.change(ADMIN, "rock", told)

        assert changed.endpoint == "https://10.0.0.7"


class TestParameters:
    @pytest.mark.parametrize(
        "extra",
        [
            {"api_key": KEY},
            {"API-Key": KEY},
            {"apiKey": KEY},
            {"extra_headers": {"Authorization": KEY}},
            {"a": [{"b": [{"x-api-key": KEY}]}]},
            {"access_token": KEY},
            {"password": KEY},
        ],
    )
    async def test_a_key_among_the_parameters_is_refused_and_not_quoted(
        self, house: Desk, extra: dict[str, Any]
    ) -> None:
        new = NewProvider(name="x", kind="openai", model="m", parameters=Parameters(extra=extra))
        with pytest.raises(InvalidInput, match="given as the secret") as raised:
            await house.registry.create(ADMIN, new)

        assert raised.value.field == "parameters.extra"
        assert KEY not in str(raised.value)

    def test_what_only_sounds_like_one_is_let_in(self) -> None:
        extra = {"max_completion_tokens": 5, "token_limit": 3, "key": "v", "author": "x"}

        checks.check_parameters(Parameters(extra=extra))

"""The role `embed`: what its chain may hold, and where a provider's row leads."""

from typing import Any

import pytest

from noema.core.clock import EPOCH, UuidV7Ids
from noema.core.clock import ManualClock as Clock
from noema.core.errors import InvalidInput
from noema.llm.configured import Link, ProviderRow
from noema.llm.embedders.links import check_links, settings_of, space_of
from noema.llm.embedders.make import destination_of, remote_embedder
from noema.llm.model import Parameters, Prices

CLOCK = Clock(EPOCH)
IDS = UuidV7Ids(CLOCK)
TITAN = "amazon.titan-embed-text-v2:0"
AMAZON = "https://bedrock-runtime.eu-central-1.amazonaws.com"
CANARY = "canary-secret-7c41-do-not-show"


def row(**changes: Any) -> ProviderRow:
    values: dict[str, Any] = {
        "id": IDS.new(),
        "name": "one",
        "kind": "openai",
        "endpoint": "https://api.example.com/v1",
        "model": "m",
        "parameters": Parameters(),
        "prices": Prices(),
        "secret_id": None,
        "secret_hint": "",
        "secret_set_by": None,
        "secret_set_at": None,
        "allows_private": False,
        "is_enabled": True,
        "version": 1,
        "created_by": "ada",
        "created_at": EPOCH,
        "updated_by": "ada",
        "updated_at": EPOCH,
    }
    return ProviderRow(**(values | changes))


def link(model: str = "", **parameters: Any) -> Link:
    return Link(provider="one", model=model, parameters=Parameters(**parameters))


@pytest.mark.parametrize(
    ("chain", "why"),
    [
        ([(row(kind="anthropic"), link())], "is of the kind anthropic"),
        ([(row(kind="echo"), link())], "openai, azure, ollama, bedrock"),
        ([(row(), link()), (row(model="n"), link())], "vectors of two models are not comparable"),
        ([(row(), link()), (row(), link("n"))], "vectors of two models are not comparable"),
        ([(row(), link()), (row(), link(extra={"dims": 8}))], "the same dimensions"),
        ([(row(), link(temperature=0.5))], "no parameter temperature"),
        ([(row(), link(extra={"user": "x"}))], "no parameter user"),
        ([(row(), link(extra={"dims": 0}))], "whole number from 1 to 4,000"),
        ([(row(), link(extra={"dimensions": True}))], "whole number"),
        ([(row(model="m" * 201), link())], "at most 200"),
        ([(row(kind="bedrock", model="amazon.nova"), link())], "only Titan's and Cohere's"),
        (
            [(row(kind="bedrock", model="amazon.titan-embed-text-v1"), link(extra={"dims": 8}))],
            "take extra.dimensions away",
        ),
    ],
)
def test_what_makes_no_vectors_that_compare_is_refused_and_told_why(chain: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        check_links(chain)


def test_ways_of_several_kinds_to_one_model_are_one_space() -> None:
    chain = [
        (row(kind=kind, parameters=Parameters(temperature=0.5)), link(extra={"dimensions": 8}))
        for kind in ("openai", "azure", "ollama")
    ]

    check_links(chain)
    assert {space_of(*place) for place in chain} == {"embed:m@8"}
    assert space_of(row(model="n"), link("m")) == "embed:m"


@pytest.mark.parametrize(
    ("kind", "endpoint", "extra", "url", "version"),
    [
        ("openai", "https://h", {}, "https://h/v1", ""),
        ("openai", "https://h/v1/", {}, "https://h/v1", ""),
        ("openai", "https://h/api/v3/chat/completions", {}, "https://h/api/v3", ""),
        ("ollama", "http://127.0.0.1:11434/api", {}, "http://127.0.0.1:11434", ""),
        ("ollama", "http://h:1/x/api/chat", {}, "http://h:1/x", ""),
        ("azure", "https://h", {}, "https://h/openai/v1", "2024-10-21"),
        ("azure", "https://h/openai", {}, "https://h/openai/v1", "2024-10-21"),
        ("azure", "https://h", {"api_version": "2025-01-01"}, "https://h", "2025-01-01"),
        ("azure", "https://h/openai?api-version=2025-02-02", {}, "https://h", "2025-02-02"),
        ("azure", "https://h/openai/deployments/chat", {}, "https://h", "2024-10-21"),
        ("bedrock", AMAZON, {}, AMAZON, ""),
    ],
)
def test_the_address_of_a_provider_is_read_as_its_chat_reads_it(
    kind: str, endpoint: str, extra: dict[str, str], url: str, version: str
) -> None:
    found = settings_of(
        row(kind=kind, endpoint=endpoint, parameters=Parameters(extra=extra)), link(TITAN), CANARY
    )

    assert (found.url, found.api_version) == (url, version)
    assert (found.model, found.query_model, found.key) == (TITAN, TITAN, CANARY)
    assert CANARY not in repr(found)


async def test_bedrock_takes_a_region_that_is_set_only_where_private_ones_are_meant() -> None:
    told = Parameters(extra={"region": "eu-west-1"})
    for changes, region in (
        ({"endpoint": AMAZON}, ""),
        ({"endpoint": "https://vpce.example.com", "allows_private": True}, "eu-west-1"),
    ):
        one = row(kind="bedrock", model=TITAN, parameters=told, **changes)
        settings = settings_of(one, link(), "AKIDEXAMPLE:sk-canary")
        assert settings.region == region
        assert destination_of(settings) == "provider"
        await remote_embedder(settings, CLOCK).aclose()

"""From a row to a provider."""

import pytest

from noema.core.errors import ConfigError
from noema.llm.model import ChatMessage, Parameters
from noema.llm.providers.echo import SAYS
from noema.llm.providers.make import KINDS, make_provider

ENDPOINTS = {"bedrock": "https://bedrock-runtime.eu-central-1.amazonaws.com"}


async def test_the_echo_needs_nothing() -> None:
    made = make_provider("echo", "", "", False, Parameters())

    done = await made.complete(
        (ChatMessage(role="user", text="Hello"),),
        model="",
        parameters=Parameters(),
        schema=None,
        deadline_s=1.0,
    )

    assert done.text == f"{SAYS} You said: Hello"


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_is_made_and_closed_twice(kind: str) -> None:
    endpoint = ENDPOINTS.get(kind, "https://models.example.org")

    made = make_provider(kind, endpoint, "AKID:secret", False, Parameters())

    await made.aclose()
    await made.aclose()


def test_a_kind_that_is_none_is_named_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"'magic'.*openai, azure, anthropic"):
        make_provider("magic", "", "", False, Parameters())

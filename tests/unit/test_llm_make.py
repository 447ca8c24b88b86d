"""From a row to a provider."""

import pytest

from noema.core.errors import ConfigError
from noema.llm.model import ChatMessage, Parameters, Prices
from noema.llm.providers import ollama
from noema.llm.providers.echo import SAYS
from noema.llm.providers.make import KINDS, make_provider, usual_prices

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


@pytest.mark.parametrize(
    ("kind", "endpoint", "model", "is_free"),
    [
        ("echo", "", "", True),
        ("ollama", "", "qwen3:8b", True),
        ("ollama", "http://127.0.0.1:11434", "qwen3:8b", True),
        ("ollama", "http://[::1]:11434", "qwen3:8b", True),
        ("ollama", "http://10.0.0.5:11434", "qwen3:8b", True),
        ("ollama", "http://ollama:11434", "qwen3:8b", True),
        ("ollama", "http://gpu.lan:11434/api", "qwen3:8b", True),
        ("ollama", "http://localhost:11434", "gpt-oss:120b-cloud", False),
        ("ollama", "https://ollama.com", "gpt-oss:120b", False),
        ("ollama", "http://8.8.8.8:11434", "qwen3:8b", False),
        ("openai", "http://127.0.0.1:8081/v1", "model", False),
        ("bedrock", ENDPOINTS["bedrock"], "model", False),
    ],
)
def test_without_prices_only_what_is_ones_own_is_free(
    kind: str, endpoint: str, model: str, is_free: bool
) -> None:
    free = Prices(input=0, output=0, reasoning=0, cache_read=0, cache_write=0)

    assert free == ollama.PRICES
    assert usual_prices(kind, endpoint, model) == (free if is_free else Prices())

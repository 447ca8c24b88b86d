"""From a provider's row to a provider."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import httpx

from noema.core.clock import Clock, SystemClock
from noema.core.errors import ConfigError
from noema.llm.model import Parameters, Prices, Provider
from noema.llm.providers import echo, ollama
from noema.llm.providers.anthropic import AnthropicProvider
from noema.llm.providers.azure import AzureProvider
from noema.llm.providers.bedrock import BedrockProvider
from noema.llm.providers.echo import EchoProvider
from noema.llm.providers.ollama import OllamaProvider
from noema.llm.providers.openai import OpenAIProvider
from noema.llm.providers.setup import Setup
from noema.llm.providers.wire import Limits
from noema.net.guard import guarded_transport


class OpenProvider(Provider, Protocol):
    """A provider with connections, which whoever made it closes."""

    async def aclose(self) -> None:
        """Close the connections; may be called again."""
        ...


class MakeProvider(Protocol):
    """How a row becomes a provider: `make_provider`, or what stands in its place."""

    def __call__(
        self,
        kind: str,
        endpoint: str,
        secret: str,
        allows_private: bool,
        parameters: Parameters,
        transport: httpx.AsyncBaseTransport | None = None,
        /,
    ) -> OpenProvider: ...


_KINDS: Final[Mapping[str, Callable[[Setup], OpenProvider]]] = {
    "openai": OpenAIProvider,
    "azure": AzureProvider,
    "anthropic": AnthropicProvider,
    "ollama": OllamaProvider,
    "bedrock": BedrockProvider,
}
KINDS: Final = (*_KINDS, "echo")


def make_provider(
    kind: str,
    endpoint: str,
    secret: str,
    allows_private: bool,
    parameters: Parameters,
    transport: httpx.AsyncBaseTransport | None = None,
    *,
    clock: Clock | None = None,
    limits: Limits | None = None,
) -> OpenProvider:
    """Return the provider of that kind; close it when its row changes or goes.

    Without a `transport` the guard of addresses decides what may be reached: private addresses
    only where the row `allows_private`. Raises ConfigError where there is no such kind, or the
    endpoint cannot be one of its kind.
    """
    if kind == "echo":
        return EchoProvider()
    if kind not in _KINDS:
        raise ConfigError(
            f"No provider is of the kind {kind!r}. The kinds are: {', '.join(KINDS)}."
        )
    limits = limits or Limits()
    return _KINDS[kind](
        Setup(
            endpoint=endpoint,
            secret=secret,
            allows_private=allows_private,
            parameters=parameters,
            transport=transport
            or guarded_transport(
                allows_private=allows_private, max_connections=limits.max_connections
            ),
            clock=clock or SystemClock(),
            limits=limits,
        )
    )


def usual_prices(kind: str, endpoint: str, model: str) -> Prices:
    """Return the prices of a provider for which nobody set any.

    The echo costs nothing, nor does an Ollama on a machine of one's own. Of all others the prices
    are unknown, which is never nothing.
    """
    if kind == "echo":
        return echo.PRICES
    if kind == "ollama" and ollama.is_own(endpoint, model):
        return ollama.PRICES
    return Prices()

"""From settings to an embedder."""

from typing import Literal

from noema.config import EmbedderSettings
from noema.core.clock import Clock
from noema.llm.embedders.bedrock import InvokeModelWire, check_model, signing
from noema.llm.embedders.chain import EmbedderChain
from noema.llm.embedders.hash import HashEmbedder
from noema.llm.embedders.local import LocalEmbedder
from noema.llm.embedders.remote import RemoteEmbedder
from noema.llm.embedders.wire import OllamaWire, Wire, azure_wire, openai_wire
from noema.llm.here import stays_here
from noema.llm.model import Embedder
from noema.net.http import Limits, Remote, Sign


def make_embedder(
    settings: EmbedderSettings, clock: Clock, *, limits: Limits | None = None
) -> Embedder | None:
    """Return the embedder that the settings name, or None for `none`; asks nobody yet.

    Raises ConfigError where the local model is wanted and not installed, and where Bedrock's
    address, key or model cannot be used. Give it to `aclose` when it is no longer needed.
    """
    match settings.kind:
        case "none":
            return None
        case "hash":
            return HashEmbedder()
        case "local":
            return LocalEmbedder()
        case _:
            return remote_embedder(settings, clock, limits=limits)


def remote_embedder(
    settings: EmbedderSettings,
    clock: Clock,
    *,
    name: str = "the embedder",
    allows_private: bool = True,
    limits: Limits | None = None,
    wire: Wire | None = None,
) -> RemoteEmbedder:
    """Return an embedder over HTTP, in its kind's wire format unless told; see make_embedder."""
    remote = Remote(
        name=name,
        url=settings.url,
        clock=clock,
        headers=_headers(settings),
        sign=_sign(settings, clock),
        limits=limits,
        allows_private=allows_private,
    )
    return RemoteEmbedder(settings=settings, remote=remote, wire=wire or _wire(settings))


def destination_of(settings: EmbedderSettings) -> Literal["local", "provider"]:
    """Return where the texts go that are embedded: `local` where they stay on this machine."""
    if not settings.url or stays_here(settings.url, settings.model, settings.query_model):
        return "local"
    return "provider"


async def aclose(embedder: Embedder | None) -> None:
    """Close what the embedder holds open, if anything."""
    if isinstance(embedder, (EmbedderChain, RemoteEmbedder, LocalEmbedder)):
        await embedder.aclose()


def _headers(settings: EmbedderSettings) -> dict[str, str]:
    if settings.key is None or settings.kind == "bedrock":
        return {}
    if settings.kind == "azure":
        return {"api-key": settings.key}
    return {"authorization": f"Bearer {settings.key}"}


def _sign(settings: EmbedderSettings, clock: Clock) -> Sign | None:
    if settings.kind != "bedrock":
        return None
    for model in {settings.query_model, settings.model}:
        check_model(model, settings.dims)
    return signing(settings.url, settings.region, settings.key or "", clock)


def _wire(settings: EmbedderSettings) -> Wire:
    match settings.kind:
        case "ollama":
            return OllamaWire()
        case "bedrock":
            return InvokeModelWire()
        case "azure":
            return azure_wire(settings.url, settings.api_version)
        case _:
            return openai_wire(settings.url)

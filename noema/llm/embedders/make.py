"""From settings to an embedder."""

import ipaddress
from typing import Literal
from urllib.parse import urlsplit

from noema.config import EmbedderSettings
from noema.core.clock import Clock
from noema.llm.embedders.hash import HashEmbedder
from noema.llm.embedders.local import LocalEmbedder
from noema.llm.embedders.remote import RemoteEmbedder
from noema.llm.embedders.wire import OllamaWire, Wire, azure_wire, openai_wire
from noema.llm.model import Embedder
from noema.net.http import Limits, Remote


def make_embedder(
    settings: EmbedderSettings, clock: Clock, *, limits: Limits | None = None
) -> Embedder | None:
    """Return the embedder that the settings name, or None for `none`; asks nobody yet.

    Raises ConfigError where the local model is wanted and not installed. Give it to `aclose` when
    it is no longer needed.
    """
    match settings.kind:
        case "none":
            return None
        case "hash":
            return HashEmbedder()
        case "local":
            return LocalEmbedder()
        case _:
            remote = Remote(
                name="the embedder",
                url=settings.url,
                clock=clock,
                headers=_headers(settings),
                limits=limits,
            )
            return RemoteEmbedder(settings=settings, remote=remote, wire=_wire(settings))


def destination_of(settings: EmbedderSettings) -> Literal["local", "provider"]:
    """Return where the texts go that are embedded: `local` where they stay on this machine."""
    if not settings.url:
        return "local"
    host = urlsplit(settings.url).hostname or ""
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost"
    return "local" if is_here else "provider"


async def aclose(embedder: Embedder | None) -> None:
    """Close what the embedder holds open, if anything."""
    if isinstance(embedder, (RemoteEmbedder, LocalEmbedder)):
        await embedder.aclose()


def _headers(settings: EmbedderSettings) -> dict[str, str]:
    if settings.key is None:
        return {}
    if settings.kind == "azure":
        return {"api-key": settings.key}
    return {"authorization": f"Bearer {settings.key}"}


def _wire(settings: EmbedderSettings) -> Wire:
    match settings.kind:
        case "ollama":
            return OllamaWire()
        case "azure":
            return azure_wire(settings.url, settings.api_version)
        case _:
            return openai_wire(settings.url)

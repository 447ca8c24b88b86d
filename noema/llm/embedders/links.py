"""What the role `embed` may ask, and how a provider's row becomes where vectors come from.

A chain's places are other ways to the same vectors: those of two models are never compared.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import msgspec

from noema.config import MAX_DIMS, EmbedderKind, EmbedderSettings
from noema.core.errors import ConfigError, InvalidInput
from noema.llm.configured import Link, ProviderRow
from noema.llm.embedders.bedrock import check_model
from noema.llm.providers.asking import merged
from noema.llm.providers.azure import VERSION
from noema.llm.providers.bedrock import REGION
from noema.llm.providers.ollama import base_of
from noema.llm.providers.openai import API_VERSION

KINDS: Final[Mapping[str, EmbedderKind]] = {
    kind: kind
    for kind in get_args(EmbedderKind)
    if kind in ("openai", "azure", "ollama", "bedrock")
}
# As services call it, and as the setting does.
_DIMS: Final = ("dimensions", "dims")
_MODEL_CHARS: Final = 200


def check_links(chain: Sequence[tuple[ProviderRow, Link]], *, field: str = "chain") -> None:
    """Check the chain of the role `embed`; raises InvalidInput."""
    for row, link in chain:
        if row.kind not in KINDS:
            raise InvalidInput(
                f"{row.name} is of the kind {row.kind}, which makes no vectors here. The role "
                f"embed asks {', '.join(KINDS)}.",
                field=field,
            )
        told = set(msgspec.to_builtins(link.parameters)) - {"extra"}
        told |= set(link.parameters.extra) - set(_DIMS)
        if told:
            raise InvalidInput(
                f"Vectors have no parameter {min(told)}; extra.dimensions is the only one.",
                field=field,
            )
        model, dims = model_of(row, link), dims_of(row, link, field=field)
        if len(model) > _MODEL_CHARS:
            raise InvalidInput(
                f"The name of a model of vectors has at most {_MODEL_CHARS} characters.",
                field=field,
            )
        if row.kind == "bedrock":
            try:
                check_model(model, dims, setting="extra.dimensions")
            except ConfigError as exc:
                raise InvalidInput(str(exc), field=field) from None
    if len({model_of(row, link) for row, link in chain}) > 1:
        raise InvalidInput(
            "All places in the chain of the role embed name the same model: vectors of two models "
            "are not comparable. Another model for all of them is fine; memories get its vectors "
            "in the background then.",
            field=field,
        )
    if len({dims_of(row, link) for row, link in chain}) > 1:
        raise InvalidInput(
            "All places in the chain of the role embed ask for the same dimensions: vectors of two "
            "lengths are not comparable.",
            field=field,
        )


def model_of(row: ProviderRow, link: Link) -> str:
    """Return the model that is asked for."""
    return link.model or row.model


def dims_of(row: ProviderRow, link: Link, *, field: str = "chain") -> int | None:
    """Return how many dimensions are asked for, None where the model says; raises InvalidInput."""
    extra = merged(row.parameters, link.parameters).extra
    dims = next((extra[name] for name in _DIMS if extra.get(name) is not None), None)
    if dims is None:
        return None
    if isinstance(dims, bool) or not isinstance(dims, int) or not 1 <= dims <= MAX_DIMS:
        raise InvalidInput(
            f"extra.dimensions is a whole number from 1 to {MAX_DIMS:,}.", field=field
        )
    return dims


def space_of(row: ProviderRow, link: Link) -> str:
    """Return the name of the vectors: the model's and their length, whichever way they come."""
    dims = dims_of(row, link)
    return f"embed:{model_of(row, link)}" + ("" if dims is None else f"@{dims}")


def settings_of(row: ProviderRow, link: Link, secret: str) -> EmbedderSettings:
    """Return where the vectors of one place in the chain come from."""
    extra, model = merged(row.parameters, link.parameters).extra, model_of(row, link)
    url, version = _address(row, extra)
    return EmbedderSettings(
        kind=KINDS[row.kind],
        url=url.rstrip("/"),
        model=model,
        query_model=model,
        key=secret or None,
        dims=dims_of(row, link),
        api_version=version,
        # Only where another address than Amazon's own may be asked.
        region=str(extra.get(REGION, "")) if row.allows_private else "",
    )


def _address(row: ProviderRow, extra: Mapping[str, Any]) -> tuple[str, str]:
    """Return the address up to what embedding adds, and Azure's version."""
    if row.kind == "ollama":
        return base_of(row.endpoint), ""
    parts = urlsplit(row.endpoint)
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    version = ""
    if row.kind == "openai":
        path = path or "/v1"
    elif row.kind == "azure":
        told = extra.get(API_VERSION) or dict(parse_qsl(parts.query)).get("api-version")
        before, deployments, _ = path.partition("/openai/deployments")
        if "/openai/v1" in path:
            path = path.partition("/openai/v1")[0] + "/openai/v1"
        elif told or deployments:
            path = before.removesuffix("/openai")
        else:
            path = f"{path.removesuffix('/openai')}/openai/v1"
        version = str(told or VERSION)
    return urlunsplit(parts._replace(path=path, query="", fragment="")), version

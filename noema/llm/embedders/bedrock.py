"""How Amazon Bedrock is asked for vectors: InvokeModel, in the shapes of Titan and of Cohere.

Titan takes one text at a time; Cohere takes up to 96, and wants to know what they are for. Requests
are signed, so the secret itself is never sent.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from noema.core.clock import Clock
from noema.core.errors import ConfigError, Unavailable
from noema.llm.model import Purpose
from noema.llm.providers.bedrock import SERVICE, place_of
from noema.llm.providers.sigv4 import credential_from, segment, signed_headers, without_host
from noema.net.http import Remote, Sign

Shape = Literal["titan", "cohere"]

# Side by side, since it takes no more than one.
_TITAN_AT_ONCE: Final = 4
_COHERE_AT_ONCE: Final = 96
# What a text may have: Titan's and Cohere's fourth model read some 8,000 tokens and more; before
# it, Cohere refuses more characters than these.
_CHARS: Final = 8_000
_COHERE_3_CHARS: Final = 2_048


class _TitanAnswer(msgspec.Struct):
    embedding: list[float]


class _ByType(msgspec.Struct):
    float: list[list[float]]


class _CohereAnswer(msgspec.Struct):
    embeddings: list[list[float]] | _ByType


class InvokeModelWire:
    """`POST /model/{model}/invoke`; the model's name, or its ARN, tells whose it is."""

    def at_once(self, model: str) -> int:
        """Return how many texts the model is given in one go."""
        return _TITAN_AT_ONCE if shape_of(model) == "titan" else _COHERE_AT_ONCE

    def max_chars(self, model: str) -> int:
        """Return how much of a text the model is given."""
        is_third = shape_of(model) == "cohere" and not _is_fourth(model)
        return _COHERE_3_CHARS if is_third else _CHARS

    async def ask(
        self,
        remote: Remote,
        model: str,
        texts: Sequence[str],
        dims: int | None,
        purpose: Purpose,
    ) -> Sequence[Sequence[float]]:
        """Return the vectors as they came; raises Unavailable."""
        path = f"/model/{segment(model)}/invoke"
        if shape_of(model) == "titan":
            return await _titan(remote, path, texts, dims)
        body: dict[str, Any] = {
            "texts": list(texts),
            "input_type": "search_query" if purpose == "query" else "search_document",
            "truncate": "RIGHT" if _is_fourth(model) else "END",
            "embedding_types": ["float"],
        }
        if dims is not None:
            body["output_dimension"] = dims
        answer = (await remote.post(path, body, _CohereAnswer)).embeddings
        return answer.float if isinstance(answer, _ByType) else answer


async def _titan(
    remote: Remote, path: str, texts: Sequence[str], dims: int | None
) -> Sequence[Sequence[float]]:
    async def one(text: str) -> Sequence[float] | Unavailable:
        body: dict[str, Any] = {"inputText": text}
        if dims is not None:
            body["dimensions"] = dims
        try:
            return (await remote.post(path, body, _TitanAnswer)).embedding
        except Unavailable as exc:
            # It is raised once all have ended, and as itself, not as a group.
            return exc

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(text)) for text in texts]
    vectors = []
    for task in tasks:
        found = task.result()
        if isinstance(found, Unavailable):
            raise found
        vectors.append(found)
    return vectors


def shape_of(model: str) -> Shape:
    """Return whose model it is; raises ConfigError where the name does not tell."""
    if "titan-embed" in model:
        return "titan"
    if "cohere.embed" in model:
        return "cohere"
    raise ConfigError(
        "Of Bedrock's embedding models only Titan's and Cohere's are known; "
        "the name of this one is neither's."
    )


def check_model(model: str, dims: int | None, *, setting: str = "NOEMA_EMBEDDER_DIMS") -> None:
    """Raise ConfigError where the model is not known, or has but one length and another is set."""
    shape = shape_of(model)
    takes_dims = "titan-embed-text-v2" in model if shape == "titan" else _is_fourth(model)
    if dims is not None and not takes_dims:
        raise ConfigError(
            f"The embedding model {model} has one length of its own; take {setting} away."
        )


def signing(url: str, region: str, key: str, clock: Clock) -> Sign:
    """Return what signs requests to the address.

    Another address than Amazon's own needs its region. Raises ConfigError, which holds nothing of
    the key, where the address or the key cannot be used.
    """
    try:
        place, region = place_of(url, region, allows_private=bool(region))
    except ConfigError as exc:
        hint = "" if region else " Where another is meant, set NOEMA_EMBEDDER_REGION to its region."
        raise ConfigError(f"{exc}{hint}") from None
    credential = credential_from(key)
    host = place.netloc.decode("ascii")

    def sign(path: str, body: bytes) -> Mapping[str, str]:
        return without_host(
            signed_headers(
                credential=credential,
                region=region,
                service=SERVICE,
                host=host,
                path=path,
                body=body,
                now=clock.now(),
            )
        )

    return sign


def _is_fourth(model: str) -> bool:
    return "embed-v4" in model

"""Vectors from Amazon Bedrock by InvokeModel, in the shapes of Titan and of Cohere.

Titan takes one text at a time; Cohere takes up to 96, and wants to know what they are for.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import httpx
import msgspec

from noema.core.clock import Clock
from noema.core.errors import ConfigError
from noema.llm.errors import AttemptFailed
from noema.llm.model import Purpose
from noema.llm.providers.asking import encoded
from noema.llm.providers.bedrock import BedrockWire
from noema.llm.providers.wire import Limits

Shape = Literal["titan", "cohere"]

WEIGHT: Final = 0.5

_TITAN_AT_ONCE: Final = 4
_COHERE_AT_ONCE: Final = 96
# What a request may hold: Titan's longest text; Cohere's before its fourth model, and with it.
_TITAN_CHARS: Final = 8_000
_COHERE_CHARS: Final = 2_048
_COHERE_4_CHARS: Final = 8_000
_DEADLINE_S: Final = 30.0
_TRIES: Final = 3
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 5.0


class _TitanAnswer(msgspec.Struct):
    embedding: list[float]


class _ByType(msgspec.Struct):
    float: list[list[float]]


class _CohereAnswer(msgspec.Struct):
    embeddings: list[list[float]] | _ByType


class BedrockEmbedder:
    """Vectors from one model of Bedrock. `dims` is 0 until it is known: set, or learned.

    `shape` is needed where the model is an ARN that does not tell it. Each request is tried three
    times at most, since nobody above does. Raises ConfigError where the endpoint, the credential or
    the model cannot be used.
    """

    weight: Final = WEIGHT

    def __init__(
        self,
        *,
        endpoint: str,
        secret: str,
        model: str,
        clock: Clock,
        dims: int | None = None,
        shape: Shape | None = None,
        region: str = "",
        allows_private: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._shape: Final = shape or _shape(model)
        self._id = model
        self._wanted = dims
        self._dims = dims or 0
        self._clock = clock
        self._bedrock = BedrockWire(
            endpoint=endpoint,
            secret=secret,
            allows_private=allows_private,
            region=region,
            transport=transport,
            clock=clock,
            limits=limits or Limits(),
        )
        self.model: Final = f"bedrock:{model}" + ("" if dims is None else f"@{dims}")

    @property
    def dims(self) -> int:
        return self._dims

    async def embed(self, texts: Sequence[str], *, purpose: Purpose) -> list[Sequence[float]]:
        """Return one vector of length 1 per text, in order; raises Unavailable where it cannot.

        Texts are cut at 8,000 characters, for Cohere's third generation at 2,048.
        """
        # The empty text is refused; a space says as little.
        if self._shape == "titan":
            found = await self._titan([text[:_TITAN_CHARS] or " " for text in texts])
        else:
            limit = _COHERE_4_CHARS if self._is_fourth else _COHERE_CHARS
            found = await self._cohere([text[:limit] or " " for text in texts], purpose)
        return [self._unit(vector) for vector in found]

    async def aclose(self) -> None:
        """Close the connections; may be called again."""
        await self._bedrock.wire.aclose()

    @property
    def _is_fourth(self) -> bool:
        return "embed-v4" in self._id

    async def _titan(self, texts: Sequence[str]) -> list[list[float]]:
        found: list[list[float]] = []
        for begin in range(0, len(texts), _TITAN_AT_ONCE):
            # Whatever fails is raised once all have ended, and as itself, not as a group.
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._titan_one(text))
                    for text in texts[begin : begin + _TITAN_AT_ONCE]
                ]
            for task in tasks:
                vector = task.result()
                if isinstance(vector, AttemptFailed):
                    raise vector
                found.append(vector)
        return found

    async def _titan_one(self, text: str) -> list[float] | AttemptFailed:
        body: dict[str, Any] = {"inputText": text}
        if self._wanted is not None:
            body["dimensions"] = self._wanted
        try:
            raw = await self._asked(body)
            return self._bedrock.wire.decoded(raw, _TitanAnswer).embedding
        except AttemptFailed as exc:
            return exc

    async def _cohere(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        found: list[list[float]] = []
        for begin in range(0, len(texts), _COHERE_AT_ONCE):
            some = texts[begin : begin + _COHERE_AT_ONCE]
            body: dict[str, Any] = {
                "texts": list(some),
                "input_type": "search_query" if purpose == "query" else "search_document",
                "truncate": "RIGHT" if self._is_fourth else "END",
                "embedding_types": ["float"],
            }
            if self._wanted is not None and self._is_fourth:
                body["output_dimension"] = self._wanted
            answer = self._bedrock.wire.decoded(await self._asked(body), _CohereAnswer).embeddings
            vectors = answer.float if isinstance(answer, _ByType) else answer
            if len(vectors) != len(some):
                self._bedrock.wire.fail(
                    f"answered {len(vectors)} vectors for {len(some)} texts", retryable=False
                )
            found.extend(vectors)
        return found

    async def _asked(self, body: dict[str, Any]) -> bytes:
        content = encoded(body)
        wait_s = _FIRST_WAIT_S
        for left in range(_TRIES - 1, -1, -1):
            try:
                async with self._bedrock.post(
                    self._id, "invoke", content, deadline_s=_DEADLINE_S, is_streamed=False
                ) as answer:
                    return await answer.whole()
            except AttemptFailed as exc:
                asked_s = exc.retry_after_s or 0.0
                if left == 0 or not exc.retryable or asked_s > _LONGEST_WAIT_S:
                    raise
            await self._clock.sleep(max(wait_s, asked_s))
            wait_s *= 2
        raise AssertionError("the last try returns or raises")

    def _unit(self, vector: Sequence[float]) -> Sequence[float]:
        wire = self._bedrock.wire
        if not vector or len(vector) != (self._dims or len(vector)):
            wire.fail(
                f"answered a vector of {len(vector)} dimensions, not {self._dims}", retryable=False
            )
        # Divided twice, since the square of a number may be beyond what a float holds.
        largest = max(map(abs, vector))
        if not 0.0 < largest < math.inf:
            wire.fail("answered a vector without a direction", retryable=False)
        self._dims = len(vector)
        scaled = [number / largest for number in vector]
        length = math.sqrt(math.fsum(number * number for number in scaled))
        return [number / length for number in scaled]


def _shape(model: str) -> Shape:
    if "titan-embed" in model:
        return "titan"
    if "cohere.embed" in model:
        return "cohere"
    raise ConfigError(
        "Of Bedrock's embedding models only Titan's and Cohere's are known; "
        "the name of this one is neither's."
    )

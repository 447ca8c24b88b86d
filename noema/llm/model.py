"""What cognitive code knows of models: roles and shapes, never vendors.

Money is in micro-units of one currency; prices are micro-units per million tokens. The token
classes of a `Usage` are disjoint: what was read from a cache is not input, what was reasoned is not
output.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, Protocol
from uuid import UUID

import msgspec

Purpose = Literal["query", "document"]
Finish = Literal["stop", "length", "refusal", "filtered", "tool", "other"]


class Role(StrEnum):
    """What a model is asked for; each role maps to a primary model and ordered fallbacks.

    Of `embed` the fallbacks are other ways to the same model, else theirs were another space; see
    `Embedder`.
    """

    PERCEIVE = "perceive"
    RECALL = "recall"
    REFLECT = "reflect"
    PLAN = "plan"
    DIALOGUE = "dialogue"
    EXTRACT = "extract"
    VERIFY = "verify"
    JUDGE = "judge"
    SUMMARISE = "summarise"
    EMBED = "embed"


class Embedder(Protocol):
    """Turns texts into vectors of one length.

    `model` names vectors that may be compared: another name means another space. `weight` is how
    much its cosine counts beside text search, 0 to 1: hashing knows spelling, a model meaning.
    """

    @property
    def model(self) -> str: ...

    @property
    def dims(self) -> int: ...

    @property
    def weight(self) -> float: ...

    async def embed(self, texts: Sequence[str], *, purpose: Purpose) -> list[Sequence[float]]:
        """Return one vector of length 1 per text, in order; raises Unavailable where it cannot."""
        ...


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message as it is sent. Text from outside stands in data blocks; see `prompts`."""

    role: Literal["system", "user", "assistant"]
    text: str


class Parameters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is sent only where it was set. `extra` goes into the request body as it is."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    num_ctx: int | None = None
    extra: Mapping[str, Any] = {}


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: the key under which an answer is recorded and never asked for again.

    Without a mind (the memory kernel asks) nothing is looked up; `namespace` says who may see it.
    """

    namespace: str
    actor: str
    mind: UUID | None = None
    cycle: int | None = None
    process: str = ""
    ordinal: int = 0


class CognitiveRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a role. `schema` asks for a JSON object and is sent where the provider can."""

    role: Role
    messages: tuple[ChatMessage, ...]
    context: CallContext
    prompt: tuple[str, int] | None = None
    schema: Mapping[str, Any] | None = None
    parameters: Parameters = Parameters()
    deadline_s: float | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens by disjoint class; None where the provider did not say."""

    input: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None

    @property
    def total(self) -> int | None:
        """All classes together, or None where not even input and output are known."""
        if self.input is None or self.output is None:
            return None
        rest = (self.reasoning, self.cache_read, self.cache_write)
        return self.input + self.output + sum(n or 0 for n in rest)


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Micro-units per million tokens, by class; None where unknown, which is never free."""

    input: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try at one provider. `error` is empty where it succeeded, and scrubbed of secrets."""

    provider: str
    model: str
    started_ms: int
    latency_ms: int
    status: int | None = None
    error: str = ""
    usage: Usage = Usage()
    cost_micros: int | None = None
    cost_kind: Literal["known", "estimated", "unknown", "free"] = "unknown"


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What one provider answered to one attempt."""

    text: str
    finish: Finish
    model: str
    usage: Usage
    status: int = 200


class CognitiveResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An answer on record. `is_replayed` where it was recorded before and not asked for again.

    `value` is the parsed JSON object where a schema was asked for.
    """

    call: UUID
    text: str
    value: Any = None
    finish: Finish
    provider: str
    model: str
    usage: Usage
    cost_micros: int | None
    cost_kind: Literal["known", "estimated", "unknown", "free"]
    latency_ms: int
    attempts: tuple[Attempt, ...] = ()
    is_replayed: bool = False
    is_approximate: bool = False


class LanguageModel(Protocol):
    """The service that cognitive code asks."""

    async def complete(self, request: CognitiveRequest) -> CognitiveResponse:
        """Answer, recorded before it is returned.

        Raises NoModel where the role has none, BudgetExceeded where a budget stops every attempt,
        BadAnswer where JSON was asked for and none came even after one repair, Unavailable
        where every attempt failed or the deadline passed.
        """
        ...


class Provider(Protocol):
    """One configured way to one model. Stateless apart from its connection pool."""

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        model: str,
        parameters: Parameters,
        schema: Mapping[str, Any] | None,
        deadline_s: float,
    ) -> Completion:
        """Make one attempt, no retries.

        Raises AttemptFailed, which says whether trying again may help, after how long, what was
        used as far as it is known, and nothing of the secret.
        """
        ...


MICRO: Final = 1_000_000


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One way to answer a role: a provider, what is asked of it, and what it costs.

    `parameters` are what the request does not set itself. `version` is that of the provider's row.
    """

    provider: UUID
    name: str
    model: str
    version: int = 0
    parameters: Parameters = Parameters()
    prices: Prices = Prices()


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """How a role is answered: the primary first, then fallbacks in order; empty is off."""

    entries: tuple[Entry, ...]
    deadline_s: float

"""OpenAI's chat completions, and the many services that speak the same format.

What such a service does not know, it refuses with status 400 and the name of the parameter. It is
then asked without it, at once and from then on, for this model: that is no second attempt, since no
model worked for the first.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec

from noema.llm.errors import AttemptFailed
from noema.llm.model import ChatMessage, Completion, Finish, Parameters, Usage
from noema.llm.providers.asking import (
    count_in,
    encoded,
    merged,
    spoken,
    with_path,
    with_schema_told,
)
from noema.llm.providers.refused import Refused, error_in, is_transient
from noema.llm.providers.setup import Setup, counted
from noema.llm.providers.wire import Answer, Text, Wire

ENDPOINT: Final = "https://api.openai.com/v1"

# Names of `extra` that say how to ask, and are not sent themselves.
LIMIT_AS: Final = "limit_as"
API_VERSION: Final = "api_version"
_NOT_SENT: Final = frozenset({LIMIT_AS, API_VERSION})

_FINISHES: Final[Mapping[str, Finish]] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "filtered",
    "refusal": "refusal",
    "tool_calls": "tool",
    "function_call": "tool",
}
# Statuses with which a service says that it does not know a parameter.
_WITH_REASON: Final = frozenset({400, 422, 501})
_UNKNOWN: Final = re.compile(
    r"un(?:supported|known|recogni[sz]ed|expected|available)|extra|incompatible|"
    r"not\s+(?:\w+\s+){0,2}(?:support|allow|permit|available|implement)",
    re.IGNORECASE,
)
_STREAM: Final = re.compile(r"\bstream(?:s|ed|ing)?\b", re.IGNORECASE)
# The newest models take no other than their own.
_SAMPLING: Final = ("temperature", "top_p", "seed")
_FORMAT: Final = re.compile(r"response_format|json_schema|json_object", re.IGNORECASE)
_BAD_SCHEMA: Final = re.compile(r"invalid.{0,8}schema", re.IGNORECASE)
# Models that reason know the limit by its newer name alone: o1, o3-mini, gpt-5, codex-…
_NEWER: Final = re.compile(r"(?:.*/)?(?:o[1-9]|gpt-(?:[5-9]|[1-9]\d)|codex)(?![a-z0-9])")
_SPENT: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
# What makes a schema one that strict mode does not take.
_LOOSE: Final = frozenset(
    {"allOf", "oneOf", "not", "if", "patternProperties", "dependentRequired", "dependentSchemas"}
)

LimitName = Literal["max_tokens", "max_completion_tokens"]
Format = Literal["schema", "object", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How one model of one service wants to be asked."""

    limit_as: LimitName
    is_streamed: bool = True
    counts_in_stream: bool = True
    format: Format = "schema"
    leaves_out: frozenset[str] = frozenset()


class OpenAIProvider:
    """Chat completions at one address.

    `endpoint` is the address up to and with `/v1`; OpenAI's own where it is empty. `parameters` are
    the row's, below those of a call. `extra` goes into the body of the request, apart from
    `limit_as`, which names the parameter that limits the answer where neither the model's name nor
    the service's refusal tells: "max_tokens" or "max_completion_tokens". `"stream": false` is
    obeyed. `num_ctx` is Ollama's alone and not sent.
    """

    def __init__(self, setup: Setup) -> None:
        self._endpoint = setup.endpoint.strip() or ENDPOINT
        self._secret = setup.secret.strip()
        self._parameters = setup.parameters
        self._learned: dict[tuple[str, Manner], Manner] = {}
        self._wire = setup.wire(self._endpoint, secrets=(self._secret,))

    async def aclose(self) -> None:
        """Close the connections; may be called again."""
        await self._wire.aclose()

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        model: str,
        parameters: Parameters,
        schema: Mapping[str, Any] | None,
        deadline_s: float,
    ) -> Completion:
        """Make one attempt; see Provider."""
        asked = merged(self._parameters, parameters)
        key = (model, _first_manner(model, asked))
        manner = before = self._learned.get(key, key[1])
        tried = {manner}
        until = asyncio.get_running_loop().time() + deadline_s
        is_bad_schema = False
        while True:
            body = self._body(messages, model, asked, schema, manner)
            left_s = until - asyncio.get_running_loop().time()
            try:
                done = await self._ask(body, model, asked, manner, left_s)
            except Refused as exc:
                refused = exc
            else:
                # Such a refusal says nothing about the next schema.
                self._learned[key] = (
                    replace(manner, format=before.format) if is_bad_schema else manner
                )
                return done
            other = _other_manner(manner, refused, body, has_schema=schema is not None)
            if other is None or other in tried:
                if refused.error_code in _SPENT:
                    refused.retryable = False
                raise refused
            is_bad_schema = is_bad_schema or _BAD_SCHEMA.search(refused.detail) is not None
            tried.add(other)
            manner = other

    async def _ask(
        self,
        body: Mapping[str, Any],
        model: str,
        parameters: Parameters,
        manner: Manner,
        left_s: float,
    ) -> Completion:
        reading = _Reading(self._wire, model)
        with counted(reading):
            async with self._wire.post(
                self._url(model, parameters),
                encoded(body),
                headers=self._headers(),
                deadline_s=left_s,
                is_streamed=manner.is_streamed,
            ) as answer:
                await reading.read(answer, is_streamed=manner.is_streamed)
                return reading.completion()

    def _body(
        self,
        messages: Sequence[ChatMessage],
        model: str,
        parameters: Parameters,
        schema: Mapping[str, Any] | None,
        manner: Manner,
    ) -> dict[str, Any]:
        body = {k: v for k, v in parameters.extra.items() if k not in _NOT_SENT and k != "stream"}
        if self._names_model(parameters):
            body["model"] = model
        if schema is not None and manner.format != "schema":
            messages = with_schema_told(messages, schema)
        body["messages"] = [{"role": m.role, "content": m.text} for m in messages]
        settings = {
            "temperature": parameters.temperature,
            "top_p": parameters.top_p,
            manner.limit_as: parameters.max_tokens,
            "seed": parameters.seed,
            "stop": parameters.stop or None,
        }
        body |= {
            name: value
            for name, value in settings.items()
            if value is not None and name not in manner.leaves_out
        }
        if manner.is_streamed:
            body["stream"] = True
            if manner.counts_in_stream:
                body["stream_options"] = {"include_usage": True}
        if schema is not None and manner.format == "schema":
            wanted = {"name": "answer", "schema": schema, "strict": _fits_strict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        elif schema is not None and manner.format == "object":
            body["response_format"] = {"type": "json_object"}
        return body

    def _url(self, model: str, parameters: Parameters) -> str:
        del model, parameters
        return with_path(self._endpoint, "/chat/completions", bare="/v1")

    def _headers(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self._secret}"} if self._secret else {}

    def _names_model(self, parameters: Parameters) -> bool:
        """Whether the model's name belongs into the body."""
        del parameters
        return True


class _Part(msgspec.Struct):
    content: Any = None
    refusal: Any = None


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Part | None = None
    message: _Part | None = None
    finish_reason: str | None = None


class _Record(msgspec.Struct):
    """One record of a stream, or a whole answer: they differ in `delta` and `message`."""

    choices: list[_Choice] | None = None
    usage: Any = None
    model: Any = None
    error: Any = None


class _Reading:
    """One answer as it comes."""

    def __init__(self, wire: Wire, model: str) -> None:
        self._wire = wire
        self._model = model
        self._text = Text(wire)
        self._refusal = Text(wire)
        self._has_choice = False
        self._finish: Finish | None = None
        self.usage = Usage()

    async def read(self, answer: Answer, *, is_streamed: bool) -> None:
        """Take the answer, streamed or whole, whichever the service chose to send."""
        is_json = answer.media_type.endswith("json")
        if answer.media_type != "text/event-stream" and (is_json or not is_streamed):
            self._take(self._wire.decoded(await answer.whole(), _Record))
            self._finish = self._finish or "other"
            return
        try:
            async for event in answer.events():
                if event.data.strip() == "[DONE]":
                    self._finish = self._finish or "other"
                elif event.name == "error":
                    self._fail(event.data)
                elif event.data.strip():
                    self._take(self._wire.decoded(event.data, _Record))
                if self._finish is not None:
                    answer.hurry()
        except AttemptFailed:
            # What breaks or stays open after the end of the text takes nothing from it.
            if self._finish is None or not self._has_choice:
                raise

    def completion(self) -> Completion:
        """Return the whole answer; raises AttemptFailed where it is not whole."""
        is_unpriced = self.usage.total is None
        if self._finish is None:
            self._wire.fail("broke its answer off in the middle", usage=self.usage)
        if not self._has_choice:
            self._wire.fail(
                "answered without any choice", usage=self.usage, is_cost_unknown=is_unpriced
            )
        refusal = str(self._refusal)
        return Completion(
            text=spoken(str(self._text), finish=self._finish) or refusal,
            finish="refusal" if refusal else self._finish,
            model=self._wire.quoted(self._model),
            usage=self.usage,
        )

    def _take(self, record: _Record) -> None:
        if record.error:
            self._fail(record.error)
        if isinstance(record.model, str) and record.model:
            self._model = record.model
        if isinstance(record.usage, dict):
            # An empty one after the real one says nothing.
            counted = _usage(record.usage)
            self.usage = self.usage if counted == Usage() else counted
        for choice in record.choices or ():
            if choice.index:
                continue
            self._has_choice = True
            part = choice.message or choice.delta
            if part is not None:
                self._refusal.add(part.refusal)
                for text in _texts(part.content):
                    self._text.add(text)
            if choice.finish_reason:
                self._finish = _FINISHES.get(choice.finish_reason.lower(), "other")

    def _fail(self, error: Any) -> None:
        message, code, _ = error_in({"error": error})
        status = int(code) if re.fullmatch(r"[45]\d\d", code) else None
        self._wire.fail(
            f"failed while it answered: {self._wire.quoted(message).rstrip('.')}",
            retryable=code not in _SPENT and (status is None or is_transient(status)),
            status=status,
            usage=self.usage,
        )


def _texts(content: Any) -> list[Any]:
    """Return the texts of a message's content: a string, or a list of parts of several kinds."""
    if not isinstance(content, list):
        return [content]
    return [p.get("text") for p in content if isinstance(p, dict) and p.get("type") == "text"]


def _usage(body: Mapping[str, Any]) -> Usage:
    """Return the tokens by disjoint class.

    OpenAI counts what was cached within the prompt, and what was reasoned within the completion.
    Some services count what was reasoned beside it, as xAI does: their total shows it.
    """
    prompt = count_in(body, "prompt_tokens")
    cached = count_in(body, "prompt_tokens_details", "cached_tokens")
    if cached is None:
        cached = count_in(body, "prompt_cache_hit_tokens")
    written = count_in(body, "prompt_tokens_details", "cache_write_tokens")
    completion = count_in(body, "completion_tokens")
    reasoned = count_in(body, "completion_tokens_details", "reasoning_tokens")
    total = count_in(body, "total_tokens")
    if prompt is not None and (cached or 0) + (written or 0) <= prompt:
        prompt -= (cached or 0) + (written or 0)
    if completion is not None and reasoned:
        whole = sum(n or 0 for n in (prompt, cached, written, completion, reasoned))
        if total != whole and reasoned <= completion:
            completion -= reasoned
    return Usage(
        input=prompt, output=completion, reasoning=reasoned, cache_read=cached, cache_write=written
    )


def _first_manner(model: str, parameters: Parameters) -> Manner:
    named = parameters.extra.get(LIMIT_AS)
    is_newer = (
        named == "max_completion_tokens"
        if named in ("max_tokens", "max_completion_tokens")
        else _NEWER.match(model.lower()) is not None
    )
    return Manner(
        limit_as="max_completion_tokens" if is_newer else "max_tokens",
        is_streamed=parameters.extra.get("stream") is not False,
    )


def _other_manner(
    manner: Manner, refused: Refused, body: Mapping[str, Any], *, has_schema: bool
) -> Manner | None:
    """Return another way to ask where the refusal names something that was sent, else None."""
    if refused.status not in _WITH_REASON:
        return None
    said = f"{refused.param} {refused.detail}"
    is_unknown = _UNKNOWN.search(f"{refused.error_code} {said}") is not None
    if "stream_options" in body and ("stream_options" in said or "include_usage" in said):
        return replace(manner, counts_in_stream=False)
    if manner.limit_as in body and "max_completion_tokens" in said:
        if manner.limit_as == "max_tokens":
            return replace(manner, limit_as="max_completion_tokens")
        if is_unknown:
            return replace(manner, limit_as="max_tokens")
    refuses = next((n for n in _SAMPLING if n in body and re.search(rf"\b{n}\b", said)), None)
    if is_unknown and refuses is not None:
        return replace(manner, leaves_out=manner.leaves_out | {refuses})
    if (
        has_schema
        and manner.format != "none"
        and (_FORMAT.search(said) or _BAD_SCHEMA.search(said))
    ):
        return replace(manner, format="none" if manner.format == "object" else "object")
    if "stream" in body and is_unknown and _STREAM.search(said):
        return replace(manner, is_streamed=False)
    return None


def _fits_strict(schema: Any) -> bool:
    """Whether every object in the schema is closed and all its properties are required."""
    if isinstance(schema, list):
        return all(map(_fits_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    if not _LOOSE.isdisjoint(schema):
        return False
    properties = schema.get("properties")
    if properties is not None or schema.get("type") == "object":
        names = set(properties or ())
        if (
            schema.get("additionalProperties") is not False
            or set(schema.get("required", ())) != names
        ):
            return False
    below = [*(properties or {}).values(), *schema.get("$defs", {}).values()]
    below += [schema[key] for key in ("items", "anyOf") if key in schema]
    return all(map(_fits_strict, below))

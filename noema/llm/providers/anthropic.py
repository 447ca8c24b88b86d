"""Anthropic's Messages, streamed, and the services that speak the same format.

`max_tokens` is required there: where neither a call nor the row sets it, it is `MAX_TOKENS`. A
`seed` is unknown there and not sent, no more than `num_ctx`, which is Ollama's alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from noema.llm.errors import AttemptFailed
from noema.llm.model import ChatMessage, Completion, Finish, Parameters, Usage
from noema.llm.providers.asking import count_in, encoded, merged, with_path
from noema.llm.providers.learned import Learned
from noema.llm.providers.refused import error_in, is_transient
from noema.llm.providers.setup import Setup, counted
from noema.llm.providers.turns import turns
from noema.llm.providers.wire import Answer, Text, Wire

ENDPOINT: Final = "https://api.anthropic.com"
# The one that every such service knows, and the last that takes a temperature from the models that
# take one. A name of `extra` sets another, and is not sent itself.
VERSION: Final = "2023-06-01"
VERSION_AS: Final = "anthropic_version"
# As many as the smallest model takes; a model that thinks may want more.
MAX_TOKENS: Final = 4096

_FINISHES: Final[Mapping[str, Finish]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "tool_use": "tool",
}
# An error in mid-stream has no status any more; these are those of its types.
_STATUSES: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_MAY_HAVE_WORKED: Final = frozenset({500, 504})


class AnthropicProvider:
    """Messages at one address.

    `endpoint` is the address with or without `/v1`; Anthropic's own where it is empty. `extra` goes
    into the body of the request, as `{"thinking": {"type": "adaptive"}}`, apart from
    `anthropic_version`, the header. A schema is sent as `output_config.format`, and told in words
    where the model or the schema does not allow that; a `temperature` or `top_p` that the model
    refuses is left out.
    """

    def __init__(self, setup: Setup) -> None:
        self._url = with_path(setup.endpoint.strip() or ENDPOINT, "/messages", bare="/v1")
        self._secret = setup.secret.strip()
        self._parameters = setup.parameters
        self._learned = Learned()
        self._wire = setup.wire(self._url, secrets=(self._secret,))

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
        return await self._learned.asked(
            self._ask,
            messages,
            model=model,
            parameters=merged(self._parameters, parameters),
            schema=schema,
            deadline_s=deadline_s,
        )

    async def _ask(
        self,
        messages: Sequence[ChatMessage],
        model: str,
        parameters: Parameters,
        schema: Mapping[str, Any] | None,
        left_s: float,
    ) -> Completion:
        reading = _Reading(self._wire, model)
        headers = {"anthropic-version": str(parameters.extra.get(VERSION_AS, VERSION))}
        if self._secret:
            headers["x-api-key"] = self._secret
        body = encoded(_body(messages, model, parameters, schema))
        with counted(reading):
            async with self._wire.post(
                self._url, body, headers=headers, deadline_s=left_s
            ) as answer:
                await reading.read(answer)
                return reading.completion()


def _body(
    messages: Sequence[ChatMessage],
    model: str,
    parameters: Parameters,
    schema: Mapping[str, Any] | None,
) -> dict[str, Any]:
    body = {name: value for name, value in parameters.extra.items() if name != VERSION_AS}
    system, said = turns(messages)
    body["model"] = model
    body["messages"] = [{"role": turn.role, "content": turn.text} for turn in said]
    settings = {
        "system": system or None,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "max_tokens": parameters.max_tokens,
        "stop_sequences": parameters.stop or None,
    }
    body |= {name: value for name, value in settings.items() if value is not None}
    body.setdefault("max_tokens", MAX_TOKENS)
    body["stream"] = True
    if schema is not None:
        given = body.get("output_config")
        wanted = {"format": {"type": "json_schema", "schema": schema}}
        body["output_config"] = {**(given if isinstance(given, Mapping) else {}), **wanted}
    return body


class _Reading:
    """One answer as it comes."""

    def __init__(self, wire: Wire, model: str) -> None:
        self._wire = wire
        self._model = model
        self._text = Text(wire)
        self._why = ""
        self._has_begun = False
        self._has_content = False
        self._finish: Finish | None = None
        self._counts: dict[str, Any] = {}

    @property
    def usage(self) -> Usage:
        """What was used as far as the service has said."""
        return _usage(self._counts)

    async def read(self, answer: Answer) -> None:
        """Take the answer, streamed or whole, whichever the service chose to send."""
        if answer.media_type.endswith("json"):
            self._take_whole(self._wire.decoded(await answer.whole(), dict[str, Any]))
            return
        try:
            async for event in answer.events():
                if event.data.strip():
                    self._take(event.name, self._wire.decoded(event.data, dict[str, Any]))
                if self._finish is not None:
                    answer.hurry()
        except AttemptFailed:
            # What breaks or stays open after the end of the text takes nothing from it.
            if self._finish is None:
                raise

    def completion(self) -> Completion:
        """Return the whole answer; raises AttemptFailed where it is not whole."""
        usage = self.usage
        if self._finish is None:
            self._wire.fail("broke its answer off in the middle", usage=usage)
        if not self._has_content and self._finish not in ("refusal", "length"):
            self._wire.fail(
                "answered without any content", usage=usage, is_cost_unknown=usage.total is None
            )
        text = str(self._text)
        if not text and self._finish == "refusal":
            text = self._why
        return Completion(text=text, finish=self._finish, model=self._model, usage=usage)

    def _take(self, name: str, event: Mapping[str, Any]) -> None:
        match event.get("type", name):
            case "error":
                self._fail(event.get("error"))
            case "message_start":
                self._has_begun = True
                self._take_head(event.get("message"))
            case "content_block_start":
                self._take_block(event.get("content_block"))
            case "content_block_delta":
                # Of the kinds of deltas only the text's has a `text`.
                self._has_content = True
                self._text.add(_in(event.get("delta"), "text"))
            case "message_delta":
                self._take_end(event.get("delta"))
                self._take_counts(event.get("usage"))
            case "message_stop":
                self._finish = self._finish or "other"

    def _take_whole(self, message: Mapping[str, Any]) -> None:
        if message.get("type") == "error" or message.get("error"):
            self._fail(message.get("error"))
        self._has_begun = True
        self._take_head(message)
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            self._take_block(block)
        self._take_end(message)
        self._finish = self._finish or "other"

    def _take_head(self, message: Any) -> None:
        model = _in(message, "model")
        if isinstance(model, str) and model:
            self._model = self._wire.quoted(model)
        self._take_counts(_in(message, "usage"))

    def _take_block(self, block: Any) -> None:
        self._has_content = True
        self._text.add(_in(block, "text"))

    def _take_end(self, delta: Any) -> None:
        reason = _in(delta, "stop_reason")
        if isinstance(reason, str):
            self._finish = _FINISHES.get(reason, "other")
        why = _in(_in(delta, "stop_details"), "explanation")
        if isinstance(why, str):
            self._why = self._wire.quoted(why)

    def _take_counts(self, usage: Any) -> None:
        # They are totals so far: the last one counts, and one that is missing changes nothing.
        if isinstance(usage, dict):
            self._counts |= {name: count for name, count in usage.items() if count is not None}

    def _fail(self, error: Any) -> None:
        message, code, _ = error_in({"error": error})
        status = _STATUSES.get(code)
        self._wire.fail(
            f"failed while it answered: {self._wire.quoted(message).rstrip('.')}",
            retryable=status is None or is_transient(status),
            status=status,
            usage=self.usage,
            is_cost_unknown=self._has_begun or status is None or status in _MAY_HAVE_WORKED,
        )


def _usage(counts: Mapping[str, Any]) -> Usage:
    """Return the tokens by disjoint class: only what was thought is counted within another."""
    output = count_in(counts, "output_tokens")
    thought = count_in(counts, "output_tokens_details", "thinking_tokens")
    if output is not None and thought is not None and thought <= output:
        output -= thought
    return Usage(
        input=count_in(counts, "input_tokens"),
        output=output,
        reasoning=thought,
        cache_read=count_in(counts, "cache_read_input_tokens"),
        cache_write=count_in(counts, "cache_creation_input_tokens"),
    )


def _in(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None

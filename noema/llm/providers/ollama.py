"""Ollama's own `/api/chat`, streamed as NDJSON.

Its own format and not the one of OpenAI that it speaks as well, since only there `num_ctx` counts:
without it, Ollama cuts a long prompt at a few thousand tokens and says nothing.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from noema.llm.errors import AttemptFailed
from noema.llm.model import ChatMessage, Completion, Finish, Parameters, Prices, Usage
from noema.llm.providers.asking import (
    count_in,
    encoded,
    merged,
    spoken,
    with_path,
    with_schema_told,
)
from noema.llm.providers.refused import error_in
from noema.llm.providers.setup import Setup, counted
from noema.llm.providers.wire import Answer, Text, Wire

ENDPOINT: Final = "http://127.0.0.1:11434"
# On somebody's own machine the cost is known, and nothing.
PRICES: Final = Prices(input=0, output=0, reasoning=0, cache_read=0, cache_write=0)
# Models that it hands on to its makers' machines.
HANDED_ON: Final = ("-cloud", ":cloud")

# Names that lead nowhere outside.
_NEAR: Final = ("localhost", ".localhost", ".local", ".internal", ".lan", ".home.arpa")
_PATH: Final = "/api/chat"
# Addresses that people have from elsewhere, or that are cut short.
_ENDS: Final = ("/v1", "/api")
_FINISHES: Final[Mapping[str, Finish]] = {"stop": "stop", "length": "length"}


class OllamaProvider:
    """One Ollama, on this machine where `endpoint` is empty.

    `secret` is the token of a proxy before it, or none. `extra` goes into the body of the request,
    as `{"keep_alive": "10m", "think": false}`; its `options` are Ollama's, below what is set by
    name. A schema is sent as `format` and told in words as well: it constrains what is written, and
    only who is told knows what is wanted.
    """

    def __init__(self, setup: Setup) -> None:
        self._url = _url(setup.endpoint.strip() or ENDPOINT)
        self._secret = setup.secret.strip()
        self._parameters = setup.parameters
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
        body = _body(messages, model, merged(self._parameters, parameters), schema)
        headers = {"authorization": f"Bearer {self._secret}"} if self._secret else {}
        reading = _Reading(self._wire, model)
        with counted(reading):
            async with self._wire.post(
                self._url, encoded(body), headers=headers, deadline_s=deadline_s
            ) as answer:
                await reading.read(answer)
                return reading.completion()


def is_own(endpoint: str, model: str) -> bool:
    """Whether the model runs on a machine of one's own, as far as the names tell."""
    host = (urlsplit(endpoint.strip() or ENDPOINT).hostname or "").rstrip(".")
    try:
        is_near = not ipaddress.ip_address(host).is_global
    except ValueError:
        # A name without a dot is one of a network of one's own, as a container's.
        is_near = "." not in host or host.endswith(_NEAR)
    return is_near and not model.endswith(HANDED_ON)


def base_of(endpoint: str) -> str:
    """Return the endpoint without what belongs to its calls."""
    parts = urlsplit(endpoint)
    path = parts.path.rstrip("/").removesuffix(_PATH)
    for end in _ENDS:
        path = path.removesuffix(end)
    return urlunsplit(parts._replace(path=path))


def _url(endpoint: str) -> str:
    return with_path(base_of(endpoint), _PATH)


def _body(
    messages: Sequence[ChatMessage],
    model: str,
    parameters: Parameters,
    schema: Mapping[str, Any] | None,
) -> dict[str, Any]:
    body = dict(parameters.extra)
    settings = {
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "num_predict": parameters.max_tokens,
        "seed": parameters.seed,
        "stop": parameters.stop or None,
        "num_ctx": parameters.num_ctx,
    }
    given = body.pop("options", None)
    options = dict(given) if isinstance(given, Mapping) else {}
    options |= {name: value for name, value in settings.items() if value is not None}
    if options:
        body["options"] = options
    if schema is not None:
        messages = with_schema_told(messages, schema)
        body["format"] = schema
    body["model"] = model
    body["messages"] = [{"role": m.role, "content": m.text} for m in messages]
    body["stream"] = True
    return body


class _Reading:
    """One answer as it comes."""

    def __init__(self, wire: Wire, model: str) -> None:
        self._wire = wire
        self._model = model
        self._text = Text(wire)
        self._has_message = False
        self._has_tool = False
        self._finish: Finish | None = None
        self.usage = Usage()

    async def read(self, answer: Answer) -> None:
        """Take the answer line by line; one that is not streamed is one line."""
        try:
            async for line in answer.lines():
                self._take(self._wire.decoded(line, dict[str, Any]))
                if self._finish is not None:
                    answer.hurry()
        except AttemptFailed:
            # What breaks or stays open after the end of the text takes nothing from it.
            if self._finish is None:
                raise

    def completion(self) -> Completion:
        """Return the whole answer; raises AttemptFailed where it is not whole."""
        if self._finish is None:
            self._wire.fail("broke its answer off in the middle", usage=self.usage)
        if not self._has_message:
            self._wire.fail(
                "answered without any message",
                usage=self.usage,
                is_cost_unknown=self.usage.total is None,
            )
        return Completion(
            text=spoken(str(self._text), finish=self._finish),
            finish=self._finish,
            model=self._model,
            usage=self.usage,
        )

    def _take(self, record: Mapping[str, Any]) -> None:
        if record.get("error"):
            said, _, _ = error_in(record)
            self._wire.fail(
                f"failed while it answered: {self._wire.quoted(said).rstrip('.')}",
                usage=self.usage,
            )
        model = record.get("model")
        if isinstance(model, str) and model:
            self._model = self._wire.quoted(model)
        message = record.get("message")
        if isinstance(message, dict):
            # What it thinks comes beside it, as `thinking`, and is not the answer.
            self._has_message = True
            self._text.add(message.get("content"))
            self._has_tool = self._has_tool or bool(message.get("tool_calls"))
        if record.get("done") is True:
            self._finish = _FINISHES.get(str(record.get("done_reason")), "other")
            if self._has_tool and self._finish == "stop":
                self._finish = "tool"
            # What is thought is counted within the rest, and nothing tells it apart.
            self.usage = Usage(
                input=count_in(record, "prompt_eval_count"), output=count_in(record, "eval_count")
            )

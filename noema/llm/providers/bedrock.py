"""Amazon Bedrock: Converse, streamed in Amazon's binary frames, each request signed.

`ConverseStream` and not `Converse`, so that a service that hangs or drips is noticed by the time
between two pieces as well; a model that cannot stream is asked for its answer in one piece where
its row says `{"stream": false}`, and has the whole deadline for it. A `seed` is unknown there.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgspec

from noema.core.errors import ConfigError
from noema.llm.errors import AttemptFailed
from noema.llm.model import ChatMessage, Completion, Finish, Parameters, Usage
from noema.llm.providers.asking import count_in, encoded, merged
from noema.llm.providers.eventstream import DamagedStream, Frame, Frames
from noema.llm.providers.learned import Learned
from noema.llm.providers.refused import Refused, error_in
from noema.llm.providers.setup import Setup, counted
from noema.llm.providers.sigv4 import credential_from, segment, signed_headers, without_host
from noema.llm.providers.turns import turns
from noema.llm.providers.wire import Answer, Text, Wire

SERVICE: Final = "bedrock"
# A name of `extra` that says how to sign, and is not sent itself.
REGION: Final = "region"
_NOT_SENT: Final = frozenset({REGION, "stream"})

_PUBLIC: Final = re.compile(r"bedrock-runtime\.([a-z]{2}(?:-[a-z]+)+-\d{1,2})\.amazonaws\.com\Z")
# Also in the names of endpoints within a private network.
_REGION: Final = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z]{2}(?:-[a-z]+)+-\d{1,2})\.")
_REGION_NAME: Final = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d{1,2}\Z")
_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,2047}\Z")

_FINISHES: Final[Mapping[str, Finish]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "guardrail_intervened": "filtered",
    "content_filtered": "filtered",
    "tool_use": "tool",
}
# Errors of the model itself, which its documentation says to try again.
_MODEL_FAILED: Final = frozenset({408, 424})
# In mid-stream only these mean that the same request would fail again.
_FINAL: Final = frozenset({"validationexception", "accessdeniedexception"})


class BedrockWire:
    """Signed requests to one endpoint of Bedrock.

    `endpoint` is `https://bedrock-runtime.<region>.amazonaws.com`; another only where private
    endpoints are allowed, with the region in its name or given. Raises ConfigError where the
    endpoint or the credential cannot be used.
    """

    def __init__(self, setup: Setup) -> None:
        endpoint = setup.endpoint.strip()
        region = str(setup.parameters.extra.get(REGION, ""))
        self._endpoint, self._region = place_of(
            endpoint, region, allows_private=setup.allows_private
        )
        self._credential = credential_from(setup.secret)
        self._clock = setup.clock
        self.wire = setup.wire(endpoint, secrets=self._credential.parts)

    @asynccontextmanager
    async def post(
        self, model: str, action: str, body: bytes, *, deadline_s: float, is_streamed: bool
    ) -> AsyncIterator[Answer]:
        """Ask the model, by id or ARN, for the action; see `Wire.post`."""
        if not _MODEL.match(model):
            self.wire.fail(
                "was not asked: the model is neither an id nor an ARN",
                retryable=False,
                is_cost_unknown=False,
            )
        url = self._endpoint.copy_with(raw_path=f"/model/{segment(model)}/{action}".encode())
        headers = signed_headers(
            credential=self._credential,
            region=self._region,
            service=SERVICE,
            host=url.netloc.decode("ascii"),
            path=url.raw_path.decode("ascii"),
            body=body,
            now=self._clock.now(),
        )
        try:
            async with self.wire.post(
                str(url),
                body,
                headers=without_host(headers),
                deadline_s=deadline_s,
                is_streamed=is_streamed,
            ) as answer:
                yield answer
        except Refused as exc:
            if exc.status in _MODEL_FAILED:
                exc.retryable = exc.is_cost_unknown = True
            raise


class BedrockProvider:
    """Converse at one endpoint of Bedrock.

    `secret` is `ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]`. `extra` goes into the body of the
    request, as `{"additionalModelRequestFields": {…}}`, apart from `region`, for an endpoint whose
    name does not tell it, and `"stream": false`. A schema is sent as `outputConfig`, and told in
    words where the model or the schema does not allow that; a `temperature` or `top_p` that the
    model refuses is left out.
    """

    def __init__(self, setup: Setup) -> None:
        self._bedrock = BedrockWire(setup)
        self._parameters = setup.parameters
        self._learned = Learned()

    async def aclose(self) -> None:
        """Close the connections; may be called again."""
        await self._bedrock.wire.aclose()

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
        reading = _Reading(self._bedrock.wire, model)
        is_streamed = parameters.extra.get("stream") is not False
        with counted(reading):
            async with self._bedrock.post(
                model,
                "converse-stream" if is_streamed else "converse",
                encoded(_body(messages, parameters, schema)),
                deadline_s=left_s,
                is_streamed=is_streamed,
            ) as answer:
                await reading.read(answer)
                return reading.completion()


def place_of(endpoint: str, region: str, *, allows_private: bool) -> tuple[httpx.URL, str]:
    """Return the endpoint without a path, and its region; raises ConfigError."""
    try:
        parts = urlsplit(endpoint)
        url = httpx.URL(endpoint)
        host = url.host
        is_bare = not (parts.path.strip("/") or parts.query or parts.fragment or url.userinfo)
    except (ValueError, httpx.InvalidURL):
        host, is_bare, url = "", False, httpx.URL()
    public = _PUBLIC.match(host)
    if public and is_bare and url.scheme == "https" and url.port is None:
        return url, public[1]
    if not allows_private:
        raise ConfigError(
            "The endpoint of Amazon Bedrock is https://bedrock-runtime.<region>.amazonaws.com. "
            "Another is asked only where private addresses are allowed for it."
        )
    if not host or not is_bare or url.scheme not in ("http", "https"):
        raise ConfigError("The endpoint of Amazon Bedrock is an address without a path.")
    named = _REGION.search(host)
    region = named[1] if named else region.strip()
    if not _REGION_NAME.match(region):
        raise ConfigError(
            "The endpoint's name does not tell its region. Set the parameter region, "
            'as in {"region": "eu-central-1"}.'
        )
    return url, region


def _body(
    messages: Sequence[ChatMessage], parameters: Parameters, schema: Mapping[str, Any] | None
) -> dict[str, Any]:
    body = {name: value for name, value in parameters.extra.items() if name not in _NOT_SENT}
    system, said = turns(messages)
    if system:
        body["system"] = [{"text": system}]
    body["messages"] = [{"role": turn.role, "content": [{"text": turn.text}]} for turn in said]
    settings = {
        "maxTokens": parameters.max_tokens,
        "temperature": parameters.temperature,
        "topP": parameters.top_p,
        "stopSequences": parameters.stop or None,
    }
    given = body.pop("inferenceConfig", None)
    config = dict(given) if isinstance(given, Mapping) else {}
    config |= {name: value for name, value in settings.items() if value is not None}
    if config:
        body["inferenceConfig"] = config
    if schema is not None:
        # The schema is a string there.
        wanted = {"name": "answer", "schema": msgspec.json.encode(schema).decode("utf-8")}
        text_format = {"type": "json_schema", "structure": {"jsonSchema": wanted}}
        given = body.get("outputConfig")
        others = given if isinstance(given, Mapping) else {}
        body["outputConfig"] = {**others, "textFormat": text_format}
    return body


class _Reading:
    """One answer as it comes."""

    def __init__(self, wire: Wire, model: str) -> None:
        self._wire = wire
        self._model = model
        self._text = Text(wire)
        self._has_content = False
        self._finish: Finish | None = None
        self.usage = Usage()

    async def read(self, answer: Answer) -> None:
        """Take the answer, streamed or whole, whichever the service chose to send."""
        if answer.media_type.endswith("json"):
            self._take_whole(self._wire.decoded(await answer.whole(), dict[str, Any]))
            return
        frames = Frames()
        try:
            async for piece in answer.pieces():
                for frame in frames.feed(piece):
                    self._take(frame)
                if self._finish is not None:
                    answer.hurry()
            frames.end()
        except DamagedStream as exc:
            failure = self._wire.failure(f"sent a damaged stream: {exc}", retryable=True)
        except AttemptFailed as exc:
            failure = exc
        else:
            return
        # What breaks or stays open after the end of the text takes nothing from it.
        if self._finish is None:
            raise failure

    def completion(self) -> Completion:
        """Return the whole answer; raises AttemptFailed where it is not whole."""
        if self._finish is None:
            self._wire.fail("broke its answer off in the middle", usage=self.usage)
        if not self._has_content and self._finish in ("stop", "other"):
            self._wire.fail(
                "answered without any content",
                usage=self.usage,
                is_cost_unknown=self.usage.total is None,
            )
        return Completion(
            text=str(self._text), finish=self._finish, model=self._model, usage=self.usage
        )

    def _take(self, frame: Frame) -> None:
        kind = frame.headers.get(":message-type", "event")
        if kind == "exception":
            message, _, _ = error_in(self._wire.decoded(frame.payload or b"{}", dict[str, Any]))
            self._fail(frame.headers.get(":exception-type", ""), message)
        if kind == "error":
            code = frame.headers.get(":error-code", "")
            self._fail(code, frame.headers.get(":error-message", code))
        event = self._wire.decoded(frame.payload or b"{}", dict[str, Any])
        match frame.headers.get(":event-type"):
            case "contentBlockDelta":
                # What was reasoned is in another place than the text.
                self._has_content = True
                self._text.add(_in(event.get("delta"), "text"))
            case "messageStop":
                self._finish = _finish(event.get("stopReason"))
            case "metadata":
                self._take_counts(event.get("usage"))

    def _take_whole(self, answer: Mapping[str, Any]) -> None:
        content = _in(_in(answer.get("output"), "message"), "content")
        for block in content if isinstance(content, list) else ():
            self._has_content = True
            self._text.add(_in(block, "text"))
        self._take_counts(answer.get("usage"))
        self._finish = _finish(answer.get("stopReason"))

    def _take_counts(self, usage: Any) -> None:
        # Disjoint already; what was reasoned is within the output, and nothing tells it apart.
        self.usage = Usage(
            input=count_in(usage, "inputTokens"),
            output=count_in(usage, "outputTokens"),
            cache_read=count_in(usage, "cacheReadInputTokens"),
            cache_write=count_in(usage, "cacheWriteInputTokens"),
        )

    def _fail(self, code: str, message: str) -> None:
        told = self._wire.quoted(f"{code}: {message}" if message and code else code or message)
        self._wire.fail(
            f"failed while it answered: {told.rstrip('.')}",
            retryable=code.lower() not in _FINAL,
            usage=self.usage,
        )


def _finish(reason: Any) -> Finish:
    return _FINISHES.get(reason, "other") if isinstance(reason, str) else "other"


def _in(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None

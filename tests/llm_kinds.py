"""The kinds of providers side by side: what each wire says where all say the same.

A piece of a stream that a wire cannot send is a `Never` with the reason.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from noema.llm.model import Usage
from noema.llm.providers.make import OpenProvider
from noema.llm.providers.wire import Limits
from tests.llm_asked import LIMITS, opened
from tests.llm_fake import FakeOpenAI, FakeService, Reply, openai_error, sse
from tests.llm_fake_anthropic import FakeAnthropic, anthropic_error
from tests.llm_fake_anthropic import event as anthropic_event
from tests.llm_fake_bedrock import FakeBedrock, exception
from tests.llm_fake_bedrock import event as frame_of
from tests.llm_fake_ollama import FakeOllama, line
from tests.llm_keys import KEY_ID
from tests.llm_keys import SECRET as AWS_SECRET

CANARY: Final = "canary-4f1d/9Zq+71bbKEY=="


@dataclass(frozen=True)
class Never:
    """It cannot occur on this wire, and why."""

    why: str


Stream = bytes | Never


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of provider, the server it is asked of here, and the pieces of its streams.

    `begun` is a first piece of text; `idle` says nothing; `ended` is a stream to its end without
    any count, `counted` the count after it, which is `used`.
    """

    name: str
    fake: Callable[[], FakeService]
    path: str = ""
    model: str
    secret: str
    secrets: tuple[str, ...]
    extra: Mapping[str, Any]
    media: str
    begun: bytes
    idle: bytes
    ended: bytes
    counted: Stream
    used: Usage
    # A whole stream each.
    empty: bytes
    tool: bytes
    refused: Stream
    filtered: Stream
    cut: bytes
    thought: bytes
    thought_aloud: Stream
    several: Stream
    unknown: bytes
    huge_count: bytes
    # An error after some text, with the secret in it.
    failed: bytes
    # A body of JSON where the answer should be, with nothing in it.
    hollow: tuple[bytes, ...]
    error: Callable[[str], Any]

    def streamed(self, *pieces: Any) -> Reply:
        """Return an answer that is a stream of this wire."""
        return Reply(headers={"content-type": self.media}, pieces=list(pieces))

    @asynccontextmanager
    async def provider(
        self, fake: FakeService, *, limits: Limits = LIMITS, **parameters: Any
    ) -> AsyncIterator[OpenProvider]:
        """Lend a provider of the kind, behind the guard of addresses as in the daemon."""
        async with opened(
            self.name,
            fake.url + self.path,
            self.secret,
            limits=limits,
            extra=dict(self.extra),
            **parameters,
        ) as made:
            yield made


# OpenAI, and Azure, which speaks the same.


def _chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": dict(delta), "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], **more}


def _counted(**counts: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [], "usage": counts}


_CALL: Final = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "look", "arguments": "{}"},
}
_OPENAI_COUNTS: Final = {
    "prompt_tokens": 30,
    "completion_tokens": 20,
    "total_tokens": 50,
    "prompt_tokens_details": {"cached_tokens": 10},
    "completion_tokens_details": {"reasoning_tokens": 12},
}


def _openai(name: str, path: str) -> Kind:
    return Kind(
        name=name,
        fake=FakeOpenAI,
        path=path,
        model="gpt-4o",
        secret=CANARY,
        secrets=(CANARY,),
        extra={},
        media="text/event-stream",
        begun=sse(_chunk({"role": "assistant", "content": "Cert"})),
        idle=b": still here\n\n",
        ended=sse(_chunk({"content": "Certainly: 17 °C."}), _chunk({}, "stop")),
        counted=sse(_counted(**_OPENAI_COUNTS), "[DONE]"),
        used=Usage(input=20, output=8, reasoning=12, cache_read=10),
        empty=sse(_counted(**_OPENAI_COUNTS), "[DONE]"),
        tool=sse(_chunk({"content": None, "tool_calls": [_CALL]}), _chunk({}, "tool_calls")),
        refused=sse(
            _chunk({"refusal": "I will "}), _chunk({"refusal": "not."}), _chunk({}, "stop")
        ),
        filtered=sse(_chunk({"content": "Cert"}), _chunk({}, "content_filter")),
        cut=sse(_chunk({"content": "Cert"}), _chunk({}, "length")),
        thought=sse(
            _chunk({"reasoning_content": "Hm, warm."}),
            _chunk({"reasoning": "Hm, warm."}),
            _chunk({"content": "Certainly: 17 °C."}),
            _chunk({}, "stop"),
        ),
        thought_aloud=sse(
            _chunk({"content": "<think>\nHm, "}),
            _chunk({"content": "warm.</think>\n\nCertainly: 17 °C."}),
            _chunk({}, "stop"),
        ),
        several=sse(
            {"choices": [{"index": 1, "delta": {"content": "No."}, "finish_reason": "length"}]},
            _chunk({"content": "Certainly: 17 °C."}),
            _chunk({}, "stop"),
        ),
        unknown=sse(
            {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
            _chunk({"content": "Certainly: 17 °C.", "novel": [1]}, novelty={"a": 1}),
            _chunk({}, "stop"),
        ),
        huge_count=sse(
            _chunk({"content": "Certainly: 17 °C."}),
            _chunk({}, "stop"),
            _counted(prompt_tokens=10**30, completion_tokens=10**30),
        ),
        failed=sse(openai_error(f"Out of memory, {CANARY}", kind="server_error")),
        hollow=(
            b"{}",
            b'{"choices": null}',
            b'{"choices": []}',
            json.dumps({"choices": [], "usage": _OPENAI_COUNTS}).encode(),
        ),
        error=openai_error,
    )


# Anthropic.

_HEAD: Final = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-fake",
        "content": [],
        "stop_reason": None,
    },
}
_ANTHROPIC_COUNTS: Final = {
    "input_tokens": 20,
    "cache_creation_input_tokens": 5,
    "cache_read_input_tokens": 10,
    "output_tokens": 20,
    "output_tokens_details": {"thinking_tokens": 12},
}


def _block(start: Mapping[str, Any], *deltas: Mapping[str, Any], index: int = 0) -> list[Any]:
    return [
        {"type": "content_block_start", "index": index, "content_block": dict(start)},
        *({"type": "content_block_delta", "index": index, "delta": dict(d)} for d in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _said(text: str, index: int = 0) -> list[Any]:
    return _block({"type": "text", "text": ""}, {"type": "text_delta", "text": text}, index=index)


def _stopped(reason: str, **counts: Any) -> list[Any]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": counts},
        {"type": "message_stop"},
    ]


def _events(*events: Any) -> bytes:
    return b"".join(anthropic_event(event) for event in (_HEAD, *events))


_ANTHROPIC: Final = Kind(
    name="anthropic",
    fake=FakeAnthropic,
    model="claude-sonnet-5",
    secret=CANARY,
    secrets=(CANARY,),
    extra={},
    media="text/event-stream; charset=utf-8",
    begun=_events(*_said("Cert")[:2]),
    idle=anthropic_event({"type": "ping"}),
    ended=_events(*_said("Certainly: 17 °C."), *_stopped("end_turn")[:1]),
    counted=b"".join(
        anthropic_event(event)
        for event in (
            {"type": "message_delta", "delta": {}, "usage": _ANTHROPIC_COUNTS},
            {"type": "message_stop"},
        )
    ),
    used=Usage(input=20, output=8, reasoning=12, cache_read=10, cache_write=5),
    empty=_events(*_stopped("end_turn", **_ANTHROPIC_COUNTS)),
    tool=_events(
        *_block(
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
            {"type": "input_json_delta", "partial_json": "{}"},
        ),
        *_stopped("tool_use"),
    ),
    refused=_events(*_said("I will not."), *_stopped("refusal")),
    filtered=Never("what is filtered there stops as a refusal"),
    cut=_events(*_said("Cert"), *_stopped("max_tokens")),
    thought=_events(
        *_block(
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm, warm."},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        *_block({"type": "redacted_thinking", "data": "c2ln"}, index=1),
        *_said("Certainly: 17 °C.", 2),
        *_stopped("end_turn"),
    ),
    thought_aloud=Never("what is thought comes in blocks of its own"),
    several=Never("it answers once"),
    unknown=_events(
        {"type": "novelty", "a": 1},
        *_said("Certainly: 17 °C."),
        *_block({"type": "novel_block", "novel": 1}, {"type": "novel_delta", "b": 2}, index=1),
        *_stopped("end_turn"),
    ),
    huge_count=_events(
        *_said("Certainly: 17 °C."),
        *_stopped("end_turn", input_tokens=10**30, output_tokens=10**30),
    ),
    failed=anthropic_event(anthropic_error(f"Out of memory, {CANARY}", "novel_error")),
    hollow=(
        b"{}",
        b'{"type": "message", "content": null}',
        b'{"type": "message", "content": [], "stop_reason": "end_turn"}',
        json.dumps(
            {"type": "message", "content": [], "stop_reason": "end_turn"}
            | {"usage": _ANTHROPIC_COUNTS}
        ).encode(),
    ),
    error=anthropic_error,
)


# Ollama.


def _line(message: Mapping[str, Any], **more: Any) -> bytes:
    record = {"model": "llama3.2", "message": {"role": "assistant", **message}, "done": False}
    return line(record | more)


def _done(reason: str = "stop", **more: Any) -> bytes:
    return _line({"content": ""}, done=True, done_reason=reason, **more)


_OLLAMA_COUNTS: Final = {"prompt_eval_count": 30, "eval_count": 20}
_OLLAMA: Final = Kind(
    name="ollama",
    fake=FakeOllama,
    model="llama3.2",
    secret=CANARY,
    secrets=(CANARY,),
    extra={},
    media="application/x-ndjson",
    begun=_line({"content": "Cert"}),
    idle=b"\n",
    ended=_line({"content": "Certainly: 17 °C."}) + _done(),
    counted=Never("the counts are in the last record, and that is the end"),
    used=Usage(input=30, output=20),
    empty=line({"model": "llama3.2", "done": True, "done_reason": "stop", **_OLLAMA_COUNTS}),
    tool=_line({"content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]})
    + _done(),
    refused=Never("it has no sign for a refusal"),
    filtered=Never("it has no filter"),
    cut=_line({"content": "Cert"}) + _done("length"),
    thought=_line({"content": "", "thinking": "Hm, warm."})
    + _line({"content": "Certainly: 17 °C."})
    + _done(),
    thought_aloud=_line({"content": "<think>\nHm, "})
    + _line({"content": "warm.</think>\n\nCertainly: 17 °C."})
    + _done(),
    several=Never("it answers once"),
    unknown=line({"novelty": 1})
    + _line({"content": "Certainly: 17 °C.", "novel": [1]}, novelty={"a": 1})
    + _done(),
    huge_count=_line({"content": "Certainly: 17 °C."})
    + _done(prompt_eval_count=10**30, eval_count=10**30),
    failed=line({"error": f"Out of memory, {CANARY}"}),
    hollow=(
        b"{}",
        b'{"message": null, "done": true}',
        json.dumps({"done": True, **_OLLAMA_COUNTS}).encode(),
    ),
    error=lambda message: {"error": message},
)


# Bedrock.


def _delta(delta: Mapping[str, Any], index: int = 0) -> bytes:
    return frame_of("contentBlockDelta", {"contentBlockIndex": index, "delta": dict(delta)})


def _stop(reason: str) -> bytes:
    return frame_of("messageStop", {"stopReason": reason})


_START: Final = frame_of("messageStart", {"role": "assistant"})
_BEDROCK_COUNTS: Final = {
    "inputTokens": 20,
    "outputTokens": 20,
    "totalTokens": 55,
    "cacheReadInputTokens": 10,
    "cacheWriteInputTokens": 5,
}
_METADATA: Final = frame_of("metadata", {"usage": _BEDROCK_COUNTS, "metrics": {"latencyMs": 1}})
_BEDROCK: Final = Kind(
    name="bedrock",
    fake=FakeBedrock,
    model="anthropic.claude-sonnet-5-v1:0",
    secret=f"{KEY_ID}:{AWS_SECRET}",
    secrets=(KEY_ID, AWS_SECRET),
    extra={"region": "eu-central-1"},
    media="application/vnd.amazon.eventstream",
    begun=_START + _delta({"text": "Cert"}),
    idle=frame_of("contentBlockStop", {"contentBlockIndex": 0}),
    ended=_START + _delta({"text": "Certainly: 17 °C."}) + _stop("end_turn"),
    counted=_METADATA,
    used=Usage(input=20, output=20, cache_read=10, cache_write=5),
    empty=_START + _stop("end_turn") + _METADATA,
    tool=_START
    + frame_of(
        "contentBlockStart",
        {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "1", "name": "look"}}},
    )
    + _delta({"toolUse": {"input": "{}"}})
    + _stop("tool_use"),
    refused=Never("its models refuse in words, or stop as filtered"),
    filtered=_START + _delta({"text": "Cert"}) + _stop("guardrail_intervened"),
    cut=_START + _delta({"text": "Cert"}) + _stop("max_tokens"),
    thought=_START
    + _delta({"reasoningContent": {"text": "Hm, warm."}})
    + _delta({"reasoningContent": {"signature": "c2ln"}})
    + _delta({"text": "Certainly: 17 °C."}, 1)
    + _stop("end_turn"),
    thought_aloud=Never("what is thought comes in blocks of its own"),
    several=Never("it answers once"),
    unknown=_START
    + frame_of("novelty", {"a": 1})
    + _delta({"novel": {"b": 2}})
    + _delta({"text": "Certainly: 17 °C."})
    + _stop("end_turn"),
    huge_count=_START
    + _delta({"text": "Certainly: 17 °C."})
    + _stop("end_turn")
    + frame_of("metadata", {"usage": {"inputTokens": 10**30, "outputTokens": 10**30}}),
    failed=exception("modelStreamErrorException", f"Out of memory, {AWS_SECRET}"),
    hollow=(
        b"{}",
        b'{"output": null, "stopReason": "end_turn"}',
        b'{"Output": {"__type": "com.amazon.coral.service#UnknownOperationException"}}',
        json.dumps({"stopReason": "end_turn", "usage": _BEDROCK_COUNTS}).encode(),
    ),
    error=lambda message: {"message": message},
)

KINDS: Final[Mapping[str, Kind]] = {
    "openai": _openai("openai", "/v1"),
    "azure": _openai("azure", "/openai/v1"),
    "anthropic": _ANTHROPIC,
    "ollama": _OLLAMA,
    "bedrock": _BEDROCK,
}

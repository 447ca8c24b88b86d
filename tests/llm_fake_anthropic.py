"""A local server that speaks Anthropic's Messages; see `llm_fake` for its faults."""

import json
from typing import Any, Final

from tests.llm_fake import FakeService, Reply, Request, refusal

MESSAGES: Final = "/v1/messages"
STREAM: Final = {"content-type": "text/event-stream; charset=utf-8"}


def anthropic_error(message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    """Return the body of an error as Anthropic writes it."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def event(data: dict[str, Any]) -> bytes:
    """Return one event with its type as its name."""
    text = json.dumps(data, ensure_ascii=False)
    return f"event: {data['type']}\ndata: {text}\n\n".encode()


def _refused_messages(messages: list[dict[str, Any]]) -> str:
    for number, message in enumerate(messages):
        if message["role"] not in ("user", "assistant"):
            return f"messages.{number}.role: Input should be 'user' or 'assistant'"
        if not message["content"]:
            return f"messages.{number}: all messages must have non-empty content"
    if not messages or messages[0]["role"] != "user":
        return "messages: first message must use the user role"
    return ""


class FakeAnthropic(FakeService):
    """Messages, streamed and whole. `knows_schemas` is whether `output_config.format` is known."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "Certainly: 17 °C."
        self.thinking = ""
        self.stop: str | None = "end_turn"
        self.stop_details: dict[str, Any] | None = None
        self.usage: dict[str, Any] = {
            "input_tokens": 20,
            "cache_creation_input_tokens": 5,
            "cache_read_input_tokens": 10,
            "output_tokens": 1,
        }
        self.end_usage: dict[str, Any] = {
            "output_tokens": 20,
            "output_tokens_details": {"thinking_tokens": 12},
        }
        self.knows_schemas = True
        self.bad_schema = ""
        self.key: str | None = None

    def usual(self, request: Request) -> Reply:
        if request.target != MESSAGES:
            return refusal(404, anthropic_error("Not found", "not_found_error"))
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = request.headers.get("x-api-key", bearer)
        if self.key is not None and given != self.key:
            return refusal(
                401, anthropic_error(f"invalid x-api-key: {given}", "authentication_error")
            )
        refused = self._refused(request)
        if refused:
            return refusal(400, anthropic_error(refused))
        body = request.json
        if body.get("stream"):
            return Reply(headers=STREAM, pieces=self.stream(body["model"]))
        return Reply(pieces=[json.dumps(self.whole(body["model"])).encode()])

    def _refused(self, request: Request) -> str:
        body = request.json
        if "anthropic-version" not in request.headers:
            return "anthropic-version: header is required"
        for name in ("model", "max_tokens", "messages"):
            if name not in body:
                return f"{name}: Field required"
        refused = _refused_messages(body["messages"])
        if refused:
            return refused
        for name in ("seed", "num_ctx", "stop"):
            if name in body:
                return f"{name}: Extra inputs are not permitted"
        wanted = body.get("output_config", {}).get("format")
        if wanted and not self.knows_schemas:
            return f"'{body['model']}' does not support output format."
        return self.bad_schema if wanted else ""

    def whole(self, model: str) -> dict[str, Any]:
        """Return an answer that is not streamed."""
        blocks: list[dict[str, Any]] = []
        if self.thinking:
            blocks.append({"type": "thinking", "thinking": self.thinking, "signature": "c2ln"})
        blocks.append({"type": "text", "text": self.text})
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": blocks,
            "stop_reason": self.stop,
            "stop_sequence": None,
            "stop_details": self.stop_details,
            "usage": {**self.usage, **self.end_usage},
        }

    def stream(self, model: str = "claude-fake") -> list[bytes]:
        """Return the pieces of a stream, one for each event."""
        head = {**self.whole(model), "content": [], "stop_reason": None, "usage": self.usage}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": head},
            {"type": "ping"},
        ]
        index = 0
        if self.thinking:
            start = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": self.thinking},
                {"type": "signature_delta", "signature": "c2ln"},
            ]
            events += self._block(index, start, deltas)
            index = 1
        if self.text:
            said = [self.text[at : at + 4] for at in range(0, len(self.text), 4)]
            texts = [{"type": "text_delta", "text": part} for part in said]
            events += self._block(index, {"type": "text", "text": ""}, texts)
        if self.stop is not None:
            delta = {
                "stop_reason": self.stop,
                "stop_sequence": None,
                "stop_details": self.stop_details,
            }
            events.append({"type": "message_delta", "delta": delta, "usage": self.end_usage})
            events.append({"type": "message_stop"})
        return [event(data) for data in events]

    def _block(
        self, index: int, start: dict[str, Any], deltas: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        return [
            {"type": "content_block_start", "index": index, "content_block": start},
            *({"type": "content_block_delta", "index": index, "delta": d} for d in deltas),
            {"type": "content_block_stop", "index": index},
        ]

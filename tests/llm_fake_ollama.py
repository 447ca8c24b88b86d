"""A local server that speaks Ollama's own `/api/chat`; see `llm_fake` for its faults."""

import json
from typing import Any, Final

from tests.llm_fake import FakeService, Reply, Request, refusal

CHAT: Final = "/api/chat"
STREAM: Final = {"content-type": "application/x-ndjson"}


def line(data: dict[str, Any]) -> bytes:
    """Return one line of a stream."""
    return json.dumps(data, ensure_ascii=False).encode() + b"\n"


class FakeOllama(FakeService):
    """`/api/chat`, streamed and whole. `models` are those that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "Certainly: 17 °C."
        self.thinking = ""
        self.done_reason: str | None = "stop"
        self.counts: dict[str, Any] = {"prompt_eval_count": 30, "eval_count": 20}
        self.models = {"llama3.2"}
        self.key: str | None = None

    def usual(self, request: Request) -> Reply:
        if request.method != "POST" or request.target != CHAT:
            return refusal(404, "404 page not found")
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.key is not None and given != self.key:
            return refusal(401, {"error": f"unauthorized: {given}"})
        body = request.json
        if body["model"] not in self.models:
            return refusal(404, {"error": f"model '{body['model']}' not found"})
        if body.get("stream", True):
            return Reply(headers=STREAM, pieces=self.stream(body["model"]))
        whole = {
            **self._record(body["model"], {"role": "assistant", "content": self.text}),
            **self._end(),
        }
        return Reply(pieces=[json.dumps(whole).encode()])

    def stream(self, model: str = "llama3.2") -> list[bytes]:
        """Return the lines of a stream."""
        messages: list[dict[str, Any]] = []
        if self.thinking:
            messages.append({"role": "assistant", "content": "", "thinking": self.thinking})
        said = [self.text[at : at + 4] for at in range(0, len(self.text), 4)]
        messages += [{"role": "assistant", "content": part} for part in said]
        records = [{**self._record(model, m), "done": False} for m in messages]
        last = self._record(model, {"role": "assistant", "content": ""})
        return [line(record) for record in (*records, {**last, **self._end()})]

    def _record(self, model: str, message: dict[str, Any]) -> dict[str, Any]:
        return {"model": model, "created_at": "2027-03-01T12:00:00.123456789Z", "message": message}

    def _end(self) -> dict[str, Any]:
        end: dict[str, Any] = {"done": True}
        if self.done_reason is not None:
            end["done_reason"] = self.done_reason
        durations = {"total_duration": 9, "load_duration": 1, "eval_duration": 5}
        return {**end, **durations, **self.counts}

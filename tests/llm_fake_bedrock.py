"""A local server that speaks Amazon Bedrock's runtime; see `llm_fake` for its faults.

It verifies signatures with Amazon's own library, as far as that can be done without its clock.
"""

import json
import re
from binascii import crc32
from datetime import datetime
from itertools import pairwise
from struct import pack
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import unquote

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.llm_fake import FakeService, Reply, Request

STREAM: Final = {"content-type": "application/vnd.amazon.eventstream"}
_TARGET: Final = re.compile(r"/model/([^/]+)/(converse|converse-stream|invoke)\Z")


def frame(payload: bytes, **headers: str) -> bytes:
    """Return one frame; names of headers begin with a colon, dashes are underscores here."""
    raw = b""
    for name, value in headers.items():
        label = f":{name.replace('_', '-')}".encode()
        text = value.encode()
        raw += pack("!B", len(label)) + label + b"\x07" + pack("!H", len(text)) + text
    prelude = pack("!II", 16 + len(raw) + len(payload), len(raw))
    prelude += pack("!I", crc32(prelude))
    body = prelude + raw + payload
    return body + pack("!I", crc32(body))


def event(kind: str, data: dict[str, Any]) -> bytes:
    """Return an event of a stream."""
    payload = json.dumps(data, ensure_ascii=False).encode()
    return frame(payload, event_type=kind, content_type="application/json", message_type="event")


def exception(kind: str, message: str) -> bytes:
    """Return an exception in mid-stream."""
    payload = json.dumps({"message": message}).encode()
    return frame(
        payload, exception_type=kind, content_type="application/json", message_type="exception"
    )


def aws_error(status: int, kind: str, message: str, *, retry_after: str | None = None) -> Reply:
    """Answer with an error as Amazon writes it."""
    headers = {
        "x-amzn-errortype": f"{kind}:http://internal.amazon.com/coral/",
        "x-amzn-requestid": "1",
    }
    if retry_after is not None:
        headers["retry-after"] = retry_after
    body = json.dumps({"message": message}).encode()
    return Reply(status=status, headers=headers, pieces=[body])


class FakeBedrock(FakeService):
    """Converse, ConverseStream, and InvokeModel of embedding models."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "Certainly: 17 °C."
        self.reasoning = ""
        self.stop = "end_turn"
        self.usage: dict[str, Any] = {
            "inputTokens": 20,
            "outputTokens": 20,
            "totalTokens": 55,
            "cacheReadInputTokens": 10,
            "cacheWriteInputTokens": 5,
        }
        self.knows_schemas = True
        self.bad_schema = ""
        self.dims = 3
        self.credential: tuple[str, str, str | None] | None = None
        self.region = "eu-central-1"

    def usual(self, request: Request) -> Reply:
        target = _TARGET.match(request.target)
        if target is None:
            return aws_error(404, "UnknownOperationException", "Unknown operation")
        refused = self._unsigned(request)
        if refused is not None:
            return refused
        body = request.json
        model = unquote(target[1])
        if target[2] == "invoke":
            return self._embedded(model, body)
        told = self._invalid(body)
        if told:
            return aws_error(400, "ValidationException", told)
        if target[2] == "converse-stream":
            return Reply(headers=STREAM, pieces=self.stream())
        return Reply(pieces=[json.dumps(self.whole()).encode()])

    def _unsigned(self, request: Request) -> Reply | None:
        if self.credential is None:
            return None
        key_id, secret, token = self.credential
        made = AWSRequest(
            method="POST",
            url=f"http://{request.headers['host']}{request.target}",
            data=request.body,
            headers={"Content-Type": request.headers["content-type"]},
        )
        moment = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%S%z")
        with patch("botocore.auth.get_current_datetime", return_value=moment):
            SigV4Auth(Credentials(key_id, secret, token), "bedrock", self.region).add_auth(made)
        if made.headers["Authorization"] == request.headers.get("authorization"):
            return None
        message = (
            "The request signature we calculated does not match the signature you provided. The "
            "Canonical String for this request should have been\n'POST\n"
            f"x-amz-security-token:{request.headers.get('x-amz-security-token', '')}'"
        )
        return aws_error(403, "InvalidSignatureException", message)

    def _invalid(self, body: dict[str, Any]) -> str:
        roles = [message["role"] for message in body["messages"]]
        texts = [b["text"] for m in body["messages"] for b in m["content"]]
        texts += [block["text"] for block in body.get("system", [])]
        if not roles or roles[0] != "user":
            return "A conversation must start with a user message."
        if any(one == other for one, other in pairwise(roles)):
            return "A conversation must alternate between user and assistant roles."
        if not all(text.strip() for text in texts):
            return "The text field in the ContentBlock object is blank."
        if "textFormat" in body.get("outputConfig", {}):
            if not self.knows_schemas:
                return "This model doesn't support the outputConfig.textFormat field."
            return self.bad_schema
        return ""

    def _embedded(self, model: str, body: dict[str, Any]) -> Reply:
        if "titan" in model:
            dims = body.get("dimensions", self.dims)
            answer: dict[str, Any] = {
                "embedding": self.vector(body["inputText"], dims),
                "inputTextTokenCount": 3,
            }
        else:
            dims = body.get("output_dimension", self.dims)
            vectors = [self.vector(text, dims) for text in body["texts"]]
            answer = {"id": "1", "response_type": "embeddings_floats", "embeddings": vectors}
            if "embedding_types" in body:
                answer["response_type"] = "embeddings_by_type"
                answer["embeddings"] = {"float": vectors}
        return Reply(pieces=[json.dumps(answer).encode()])

    def vector(self, text: str, dims: int) -> list[float]:
        """Return what a text's vector is here: not of length 1."""
        return [float(len(text)), 2.0] + [0.0] * (dims - 2)

    def whole(self) -> dict[str, Any]:
        """Return an answer that is not streamed."""
        blocks: list[dict[str, Any]] = [{"text": self.text}]
        if self.reasoning:
            told = {"reasoningText": {"text": self.reasoning, "signature": "c2ln"}}
            blocks.insert(0, {"reasoningContent": told})
        return {
            "output": {"message": {"role": "assistant", "content": blocks}},
            "stopReason": self.stop,
            "usage": self.usage,
            "metrics": {"latencyMs": 12},
        }

    def stream(self) -> list[bytes]:
        """Return the frames of a stream."""
        frames = [event("messageStart", {"role": "assistant"})]
        index = 0
        if self.reasoning:
            reasoned = ({"text": self.reasoning}, {"signature": "c2ln"})
            frames += [self._delta(index, {"reasoningContent": part}) for part in reasoned]
            frames.append(event("contentBlockStop", {"contentBlockIndex": index}))
            index = 1
        if self.text:
            said = [self.text[at : at + 4] for at in range(0, len(self.text), 4)]
            frames += [self._delta(index, {"text": part}) for part in said]
            frames.append(event("contentBlockStop", {"contentBlockIndex": index}))
        frames.append(event("messageStop", {"stopReason": self.stop}))
        frames.append(event("metadata", {"usage": self.usage, "metrics": {"latencyMs": 12}}))
        return frames

    def _delta(self, index: int, delta: dict[str, Any]) -> bytes:
        return event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})

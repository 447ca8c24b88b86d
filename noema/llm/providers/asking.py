"""What the wire formats share on the way out: parameters, addresses, and a schema in words."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from noema.llm.model import ChatMessage, Finish, Parameters

_TOLD: Final = (
    "Answer with one JSON object that is valid under this JSON Schema, and nothing else:\n"
)

# Where a server does not tell them apart, what a model thinks stands before what it says.
_THOUGHT: Final = re.compile(r"\s*<think>(?:.*?</think>\s*|(?P<open>.*))", re.DOTALL)


def merged(below: Parameters, above: Parameters) -> Parameters:
    """Return both, `above` counting where both set the same; `extra` is merged by name."""
    return Parameters(
        temperature=below.temperature if above.temperature is None else above.temperature,
        top_p=below.top_p if above.top_p is None else above.top_p,
        max_tokens=below.max_tokens if above.max_tokens is None else above.max_tokens,
        seed=below.seed if above.seed is None else above.seed,
        stop=above.stop or below.stop,
        num_ctx=below.num_ctx if above.num_ctx is None else above.num_ctx,
        extra={**below.extra, **above.extra},
    )


def with_path(endpoint: str, path: str, *, bare: str = "") -> str:
    """Return the endpoint with the path put after its own, unless it ends with it already.

    `bare` goes between where the endpoint has no path at all. A query stays.
    """
    parts = urlsplit(endpoint)
    own = parts.path.rstrip("/")
    if not own.endswith(path):
        own = f"{own or bare}{path}"
    return urlunsplit(parts._replace(path=own, fragment=""))


def with_schema_told(
    messages: Sequence[ChatMessage], schema: Mapping[str, Any]
) -> tuple[ChatMessage, ...]:
    """Return the messages with the schema in words, for a service that takes none.

    It stands at the end of the first system message: some services take no second one.
    """
    told = _TOLD + msgspec.json.encode(schema).decode("utf-8")
    if messages and messages[0].role == "system":
        first = ChatMessage(role="system", text=f"{messages[0].text}\n\n{told}")
        return (first, *messages[1:])
    return (ChatMessage(role="system", text=told), *messages)


def spoken(text: str, *, finish: Finish) -> str:
    """Return the text without `<think>…</think>` at its beginning, which is not the answer.

    A thought that the limit of length cut off leaves nothing.
    """
    thought = _THOUGHT.match(text)
    if thought is None or (thought["open"] is not None and finish != "length"):
        return text
    return text[thought.end() :]


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return the body as JSON in UTF-8; half a surrogate pair, which has no place there, as "?"."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body, ensure_ascii=False).encode("utf-8", errors="replace")


def count_in(body: Any, *path: str) -> int | None:
    """Return the count at the path in decoded JSON, None where there is no whole number of 0 up."""
    for name in path:
        body = body.get(name) if isinstance(body, dict) else None
    if isinstance(body, float) and body.is_integer():
        body = int(body)
    return body if isinstance(body, int) and not isinstance(body, bool) and body >= 0 else None

"""A stand-in for a model: it answers at once, always the same to the same, and says what it is."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from noema.llm.errors import AttemptFailed
from noema.llm.model import ChatMessage, Completion, Parameters, Prices, Usage

NAME: Final = "echo"
PRICES: Final = Prices(input=0, output=0, reasoning=0, cache_read=0, cache_write=0)
SAYS: Final = "This is an echo, no model."
_CHARACTERS_PER_TOKEN: Final = 4
_LONGEST_QUOTE: Final = 500
# A schema that refers to itself has no smallest value below this.
_DEEPEST: Final = 16
_COMBINED: Final = ("allOf", "anyOf", "oneOf")
_SHAPES: Final[Mapping[str, str]] = {
    "date-time": "1970-01-01T00:00:00Z",
    "date": "1970-01-01",
    "time": "00:00:00Z",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "email": "echo@example.org",
    "uri": "urn:noema:echo",
}


class EchoProvider:
    """Repeats what was said last; to a schema it answers with the smallest values that are valid.

    Tokens are counted as one per four characters, rounded up. It costs nothing: see PRICES.
    """

    async def aclose(self) -> None:
        """There is nothing to close."""

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        model: str,
        parameters: Parameters,
        schema: Mapping[str, Any] | None,
        deadline_s: float,
    ) -> Completion:
        """Answer; `max_tokens` and `stop` are obeyed where no schema is given."""
        if deadline_s <= 0.0:
            raise AttemptFailed(
                "The echo was not asked: no time was left.", retryable=True, is_cost_unknown=False
            )
        said = sum(len(message.text) for message in messages)
        is_cut = False
        if schema is None:
            text, is_cut = _cut(_echo(messages), parameters)
        else:
            text = msgspec.json.encode(smallest(schema)).decode("utf-8")
        return Completion(
            text=text,
            finish="length" if is_cut else "stop",
            model=model or NAME,
            usage=Usage(input=_tokens(said), output=_tokens(len(text))),
        )


def smallest(schema: Mapping[str, Any]) -> Any:
    """Return a small value that is valid under the JSON Schema; strings say that it is an echo.

    Knows what schemas for answers use: types, enum, const, bounds of length and size, `$ref` within
    the schema, anyOf, oneOf and allOf. A `pattern` is not looked at.
    """
    return _value(schema, schema, 0)


def _value(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if "$ref" in schema:
        return _value(_referred(schema["$ref"], root), root, depth + 1)
    if any(schema.get(name) for name in _COMBINED):
        return _value(_combined(schema, root), root, depth + 1)
    return _plain(schema, root, depth)


def _combined(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with one of its ways chosen, or all its parts put together."""
    whole = {key: value for key, value in schema.items() if key not in _COMBINED}
    parts = [*schema.get("allOf", ())]
    # What may be nothing is nothing.
    parts += [
        next((option for option in options if _kind(option) == "null"), options[0])
        for options in (schema.get("anyOf"), schema.get("oneOf"))
        if options
    ]
    for part in parts:
        one = _referred(part["$ref"], root) if "$ref" in part else part
        properties = {**whole.get("properties", {}), **one.get("properties", {})}
        required = [*whole.get("required", ()), *one.get("required", ())]
        whole |= one
        if properties or required:
            whole |= {"properties": properties, "required": required}
    return whole


def _plain(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = _kind(schema)
    if kind == "object":
        return _object(schema, root, depth)
    if kind == "array":
        item = schema.get("items", {"type": "null"})
        return [_value(item, root, depth + 1) for _ in range(schema.get("minItems", 0))]
    if kind == "string":
        return _string(schema)
    if kind in ("integer", "number"):
        return _number(schema)
    return False if kind == "boolean" else None


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        return "null" if "null" in kind else str(kind[0])
    if kind is None:
        return "object" if "properties" in schema or "required" in schema else "null"
    return str(kind)


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return {
        name: _value(properties.get(name, {"type": "null"}), root, depth + 1)
        for name in schema.get("required", ())
    }


def _string(schema: Mapping[str, Any]) -> str:
    shape = _SHAPES.get(schema.get("format", ""))
    if shape is not None:
        return shape
    text = SAYS.ljust(schema.get("minLength", 0), ".")
    return text[: schema.get("maxLength", len(text))]


def _number(schema: Mapping[str, Any]) -> int | float:
    """Return the number nearest to zero within the bounds; a whole one where there is one."""
    step = schema.get("multipleOf", 1)
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    least = max((n for n in (low, above) if n is not None), default=-math.inf)
    most = min((n for n in (high, below) if n is not None), default=math.inf)
    if least <= 0 <= most and 0 not in (above, below):
        return 0
    number: int | float
    if least > 0 or least == above == 0:
        number = math.ceil(least / step) * step
        number += step if number == above else 0
    else:
        number = math.floor(most / step) * step
        number -= step if number == below else 0
    if "multipleOf" not in schema and not least <= number <= most:
        number = (least + most) / 2
    return number


def _referred(reference: Any, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for step in str(reference).removeprefix("#").strip("/").split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name, {}) if name and isinstance(found, Mapping) else found
    return found


def _echo(messages: Sequence[ChatMessage]) -> str:
    last = next((m.text for m in reversed(messages) if m.role == "user"), "")
    quote = " ".join(last.split())
    if len(quote) > _LONGEST_QUOTE:
        quote = f"{quote[: _LONGEST_QUOTE - 1]}…"
    return f"{SAYS} You said: {quote}" if quote else SAYS


def _cut(text: str, parameters: Parameters) -> tuple[str, bool]:
    for stop in parameters.stop:
        text = text.partition(stop)[0] if stop else text
    most = len(text)
    if parameters.max_tokens is not None:
        most = parameters.max_tokens * _CHARACTERS_PER_TOKEN
    return text[:most], len(text) > most


def _tokens(characters: int) -> int:
    return math.ceil(characters / _CHARACTERS_PER_TOKEN)

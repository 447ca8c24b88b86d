"""A JSON Schema in the words that Anthropic's constrained decoding knows.

What it does not know is left out: the answer is validated against the whole schema afterwards. What
cannot be said in its words at all has to be told to the model in the prompt.
"""

from collections.abc import Mapping
from typing import Any, Final

_KEPT: Final = frozenset({"type", "enum", "const", "description", "title", "default", "$ref"})
_FORMATS: Final = frozenset(
    {
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "uri",
        "ipv4",
        "ipv6",
        "uuid",
    }
)
_DEEPEST: Final = 32
# That exactly one of several fits is checked afterwards.
_COMBINED: Final[Mapping[str, str]] = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}


def constrained(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema, or None where it has an object of any names, or is none of an object."""
    try:
        said = _said(schema, 0)
    except _CannotBeSaid:
        return None
    return said if said.get("type") == "object" else None


class _CannotBeSaid(ValueError):  # noqa: N818
    pass


def _said(schema: Any, depth: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        # `true` and `false` are schemas as well.
        raise _CannotBeSaid
    said = {name: schema[name] for name in schema if name in _KEPT}
    if schema.get("format") in _FORMATS:
        said["format"] = schema["format"]
    for name, as_name in _COMBINED.items():
        if name in schema:
            said[as_name] = [_said(option, depth + 1) for option in schema[name]]
    for name in ("$defs", "definitions"):
        if name in schema:
            said[name] = {key: _said(value, depth + 1) for key, value in schema[name].items()}
    if "items" in schema:
        said |= _array(schema, depth)
    if "properties" in schema or schema.get("type") == "object":
        said |= _object(schema, depth)
    if not said:
        raise _CannotBeSaid
    return said


def _array(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    said: dict[str, Any] = {"items": _said(schema["items"], depth + 1)}
    if schema.get("minItems") in (0, 1):
        said["minItems"] = schema["minItems"]
    return said


def _object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping) or "patternProperties" in schema or not properties:
        raise _CannotBeSaid
    said = {
        "type": "object",
        "properties": {name: _said(value, depth + 1) for name, value in properties.items()},
        "additionalProperties": False,
    }
    if "required" in schema:
        said["required"] = list(schema["required"])
    return said

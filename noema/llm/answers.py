"""From what a model wrote to the JSON object that was asked for.

Only a fence around the whole message is taken off; a fence inside may be part of a value. What JSON
leaves open is refused rather than guessed: a key that comes twice, NaN, and numbers without bounds.
"""

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NoReturn

import jsonschema_rs

from noema.core.canonical import canonical
from noema.core.errors import InvalidInput
from noema.llm.errors import BadAnswer

_FENCE: Final = re.compile(r"`{3,}")
_LANGUAGE: Final = re.compile(r"[A-Za-z0-9_+-]*")
_MOST_REASONS: Final = 3
_LONGEST_REASON: Final = 300
# What a bigint holds, as everything does that stores one.
_LARGEST: Final = 2**63 - 1
_MOST_DIGITS: Final = 20
_TOO_LARGE: Final = "The answer is not usable: a number in it is too large."


class Shape:
    """A JSON Schema that answers are held against. Nothing is ever fetched for it."""

    def __init__(self, validator: jsonschema_rs.Validator) -> None:
        self._validator = validator

    def reasons(self, value: Any) -> list[str]:
        """Return what is wrong with the value, at most three reasons, none of which quotes it."""
        found = []
        try:
            for error in self._validator.iter_errors(value):
                place = "".join(
                    f"[{step}]" if isinstance(step, int) else f".{step}"
                    for step in error.instance_path
                )
                reason = f"at ${place}: {error.message}"
                found.append(reason[:_LONGEST_REASON])
                if len(found) == _MOST_REASONS:
                    break
        except UnicodeEncodeError:
            found.append("a string holds half of a surrogate pair")
        except ValueError:
            found.append("it is nested too deeply")
        return found


def shape_of(schema: Mapping[str, Any]) -> Shape:
    """Return the schema made ready; raises InvalidInput where it is none or points elsewhere."""
    return _shape(canonical(plain(schema)))


def plain(value: Any) -> Any:
    """Return the JSON value with dicts for mappings and lists for sequences."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


@lru_cache(maxsize=64)
def _shape(schema: bytes) -> Shape:
    try:
        validator = jsonschema_rs.validator_for(
            json.loads(schema), offline=True, validate_formats=False, mask="the value"
        )
    except (jsonschema_rs.ReferencingError, ValueError) as exc:
        first = str(exc).partition("\n")[0]
        raise InvalidInput(f"This is no JSON Schema: {first}.", field="schema") from None
    return Shape(validator)


def unfenced(text: str) -> str:
    """Return the text without white space around it, and without a fence around all of it."""
    bare = text.strip().removeprefix("\ufeff").strip()
    # Line by line: one pattern for all of it can be kept busy for hours by what a model writes.
    first, _, rest = bare.partition("\n")
    body, _, last = rest.rpartition("\n")
    fence = _FENCE.match(first)
    if fence is None or last.strip() != fence.group():
        return bare
    is_language = _LANGUAGE.fullmatch(first[fence.end() :].strip()) is not None
    return body.strip() if is_language else bare


def read(text: str, shape: Shape) -> dict[str, Any]:
    """Return the object that the text is; raises BadAnswer that says what is wrong with it."""
    bare = unfenced(text)
    if not bare:
        raise BadAnswer("The answer is empty; a JSON object was asked for.")
    value = _parsed(bare)
    if not isinstance(value, dict):
        raise BadAnswer("The answer is JSON, but not an object.")
    if reasons := shape.reasons(value):
        raise BadAnswer(f"The answer does not fit the schema: {'; '.join(reasons)}.")
    return value


def _parsed(text: str) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=_once,
            parse_float=_bounded,
            parse_int=_whole,
            parse_constant=_no_constant,
        )
    except json.JSONDecodeError as exc:
        reason = f"{exc.msg} in line {exc.lineno}, column {exc.colno}"
    except RecursionError:
        reason = "it is nested too deeply"
    raise BadAnswer(f"The answer is not JSON: {reason}.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise BadAnswer("The answer is not usable: an object in it has one key twice.")
    return value


def _bounded(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise BadAnswer(_TOO_LARGE)
    return number


def _whole(digits: str) -> int:
    # The length first: to read thousands of digits takes long, and of more Python reads none.
    if len(digits) > _MOST_DIGITS or abs(number := int(digits)) > _LARGEST:
        raise BadAnswer(_TOO_LARGE)
    return number


def _no_constant(name: str) -> NoReturn:
    raise BadAnswer(f"The answer is not JSON: {name} is no JSON number.")

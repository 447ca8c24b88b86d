"""Untrusted input becomes a typed value here, or a message for the person."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from math import isfinite
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from noema.cognition.minds import EARLIEST, LATEST
from noema.cognition.model import MICRO
from noema.core.canonical import escape
from noema.core.errors import InvalidInput

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
_PATH = re.compile(r" - at `\$\.?([^`]*)`")
# What msgspec says with a piece of the body in it, and the same without.
_QUOTING: Final = {
    "Invalid enum value": "Invalid enum value",
    "Invalid value": "Invalid value",
    "Object contains unknown field": "Object contains an unknown field",
}
_MAX_LIMIT: Final = 500
_MOST_DIGITS: Final = 18


class StimulusBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stimulus of POST …/stimuli. `urgency` from 0 to 1."""

    text: str
    occurred_at: datetime | None = None
    kind: str = "line"
    urgency: float = 0.0
    pin: bool = False
    source: str = ""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)


class StimuliBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch of stimuli: all are kept or none."""

    items: list[StimulusBody]


class MessageBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST …/messages."""

    text: str
    conversation: UUID | None = None


class MindBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/minds. It lives in `namespace`, or where the caller acts."""

    slug: str
    name: str | None = None
    namespace: str | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


class MindPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PATCH /v1/minds/{slug}: only what is named changes."""

    name: str | None = None
    status: str | None = None
    settings: dict[str, Any] | None = None
    settings_version: int | None = None
    note: str = ""


class ModeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST …/mode."""

    mode: str
    for_s: int | None = None
    focus: str = ""


class GoalBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST …/goals. `priority` from 0 to 1."""

    text: str
    priority: float = 0.5


class DryRunBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST …/attention/dry-run: what the last cycles would have been under other settings."""

    settings: dict[str, Any]
    last: int = 100


class ReplayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/replays; `from` and `to` are cycle numbers."""

    mind: str
    kind: str = "verify"
    first: int | None = msgspec.field(default=None, name="from")
    last: int | None = msgspec.field(default=None, name="to")


class Malformed(InvalidInput):
    """A body that is not of its type. `unquoted` says so without a word of the body's own."""

    def __init__(self, message: str, *, field: str | None, unquoted: str) -> None:
        super().__init__(message, field=field)
        self.unquoted = unquoted


def unquoted(exc: Exception) -> Exception:
    """Return the error as a log may have it: a body may be what nobody should keep."""
    return InvalidInput(exc.unquoted, field=exc.field) if isinstance(exc, Malformed) else exc


def decode(body: bytes, type_: type[T]) -> T:
    """Return the body as that type, or raise InvalidInput that names what is wrong and where."""
    try:
        return msgspec.json.decode(body, type=type_)
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"The body is not UTF-8: byte {exc.start} cannot be read.") from None
    except RecursionError:
        raise InvalidInput("The body is nested too deeply.") from None
    except msgspec.ValidationError as exc:
        raise _invalid(exc) from None
    except msgspec.DecodeError as exc:
        fault = str(exc)
    # JSON may spell half a surrogate pair; Python holds it, and the log keeps it escaped.
    try:
        return msgspec.convert(_loads(body), type_)
    except msgspec.ValidationError as exc:
        raise _invalid(exc) from None
    except (ValueError, RecursionError):
        raise InvalidInput(f"The body is not JSON: {fault}.") from None


def _loads(body: bytes) -> Any:
    """Return what JSON says, and nothing that only Python takes for it."""
    return json.loads(body.decode("utf-8-sig"), parse_constant=_no_number, parse_float=_finite)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if isfinite(number) else _no_number("infinity")


def _invalid(exc: msgspec.ValidationError) -> InvalidInput:
    text = str(exc)
    found = _PATH.search(text)
    field = found.group(1) if found else None
    message = _PATH.sub("", text)
    where = f"{field}: " if field else ""
    if "datetime" in message or "RFC3339" in message:
        message += "; write it like 2026-01-31T12:00:00Z"
    plain = next((told for start, told in _QUOTING.items() if message.startswith(start)), message)
    return Malformed(f"{where}{message}.", field=field, unquoted=f"{where}{plain}.")


def micro(value: float | str, field: str) -> int:
    """Return the decimal number in whole micro-units, or raise InvalidInput."""
    try:
        number = Decimal(str(value).strip())
        # Of 1e900000 the digits alone would take a minute to write down.
        if not number.is_finite() or number.adjusted() > _MOST_DIGITS:
            raise InvalidInput(f"{field} is not a number of a usable size.", field=field)
        return int((number * MICRO).to_integral_value())
    except (InvalidOperation, ValueError):
        raise InvalidInput(f"{field} is not a number: {str(value)[:40]!r}.", field=field) from None


def settings_changes(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they are kept: integers stay, decimals written as text become micro-units.

    A weight is a whole number of micro-units (1500000) or a decimal as text ("1.5"); a threshold a
    whole number of micro-units squared or a decimal as text ("0.4").
    """
    changes = dict(raw)
    weights = changes.get("weights")
    if isinstance(weights, Mapping):
        changes["weights"] = {
            name: micro(value, f"weights.{name}") if isinstance(value, (str, float)) else value
            for name, value in weights.items()
        }
    threshold = changes.get("threshold")
    if isinstance(threshold, (str, float)):
        changes["threshold"] = micro(threshold, "threshold") * MICRO
    for name, value in changes.items():
        if name not in ("weights", "threshold") and isinstance(value, str) and value.isdecimal():
            changes[name] = int(value[: _MOST_DIGITS + 1])
    return changes


def limit_of(query: Mapping[str, str], *, default: int = 50) -> int:
    """Return the page size that was asked for, 1 to 500."""
    return whole(query, "limit", low=1, high=_MAX_LIMIT) or default


def whole(query: Mapping[str, str], name: str, *, low: int, high: int = 2**53) -> int | None:
    """Return a whole number of the query, None where it is absent or empty."""
    text = query.get(name, "")
    if not text:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    if not is_number or not low <= int(text) <= high:
        raise InvalidInput(f"{name} is a whole number from {low:,} to {high:,}.", field=name)
    return int(text)


def moment(query: Mapping[str, str], name: str) -> datetime | None:
    """Return a time of the query with its zone, None where it is absent or empty."""
    text = query.get(name, "")
    if not text:
        return None
    try:
        # In a query a plus sign that nobody encoded arrives as a space.
        value = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise InvalidInput(
            f"{name} is a time such as 2026-01-31T12:00:00Z, not {text[:40]!r}.", field=name
        ) from None
    if value.tzinfo is None:
        raise InvalidInput(f"{name} has no time zone; add one, such as Z.", field=name)
    return within_reach(value)


def within_reach(value: datetime) -> datetime:
    """Return the time, or the nearest one that an event can have."""
    return min(LATEST, max(EARLIEST, value))


def text_of(query: Mapping[str, str], name: str) -> str | None:
    """Return a text of the query as the database spells it, None where it is absent or empty."""
    return escape(query.get(name, "")) or None


def choice(form: Mapping[str, str], name: str, choices: type[E]) -> E:
    """Return what was chosen of the enumeration, or raise InvalidInput."""
    text = form.get(name, "")
    try:
        return choices(text)
    except ValueError:
        words = ", ".join(choices)
        raise InvalidInput(f"{name} is one of {words}, not {text[:40]!r}.", field=name) from None


def uuid_of(text: str, kind: str) -> UUID:
    """Return the id, or raise InvalidInput."""
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput(f"{text[:60]!r} is not the id of a {kind}.", field="id") from None

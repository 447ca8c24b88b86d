"""What a service says with an error status: why, and when it may be asked again."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec

from noema.llm.errors import AttemptFailed

# The service is busy or ill, or those in front of it cannot reach it.
_TRANSIENT: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# How Cloudflare, which stands before many of them, says that it does not reach them.
_NOT_REACHED: Final = range(520, 528)
# Too busy to begin: no model worked.
_COST_NOTHING: Final = frozenset({503, 529})
_LONGEST_WAIT_S: Final = 86_400.0
_HINTS: Final = {
    401: "Check the key.",
    403: "Check the key, and what it may do.",
    404: "Check the address and the model's name.",
}


class Refused(AttemptFailed):
    """The service answered with another status than 200.

    `detail`, `error_code` and `param` are what its body says, scrubbed; empty where it says none.
    """

    def __init__(
        self,
        name: str,
        *,
        status: int,
        retry_after_s: float | None = None,
        detail: str = "",
        error_code: str = "",
        param: str = "",
    ) -> None:
        if 300 <= status < 400:
            message = (
                f"{name} redirects elsewhere ({status}), and no redirect is followed. "
                "Set the address it redirects to."
            )
        else:
            said = f": {detail.rstrip('.')}" if detail else ""
            message = f"{name} answered {_named(status)}{said}. {_HINTS.get(status, '')}".rstrip()
        super().__init__(
            message,
            retryable=is_transient(status),
            retry_after_s=retry_after_s,
            status=status,
            is_cost_unknown=status < 300 or (status >= 500 and status not in _COST_NOTHING),
        )
        self.detail = detail
        self.error_code = error_code
        self.param = param


def is_transient(status: int) -> bool:
    """Whether the same request may do better later."""
    return status in _TRANSIENT or status in _NOT_REACHED


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds a service asks us to wait, at most a day; None where it says none.

    `retry-after` is a number of seconds or a date (RFC 9110, 10.2.3); OpenAI and Azure send
    `retry-after-ms` beside it, which is finer.
    """
    millis = _number(headers.get("retry-after-ms", ""))
    if millis is not None:
        return min(millis / 1000.0, _LONGEST_WAIT_S)
    text = headers.get("retry-after", "").strip()
    seconds = _number(text)
    if seconds is None:
        try:
            when = parsedate_to_datetime(text)
            when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
            seconds = max((when - now).total_seconds(), 0.0)
        except (ValueError, OverflowError):
            return None
    return min(seconds, _LONGEST_WAIT_S)


def error_of(text: str) -> tuple[str, str, str]:
    """Return message, code and parameter of an error body, as it wrote them: not scrubbed."""
    try:
        body = msgspec.json.decode(text.encode("utf-8", errors="replace"))
    except (msgspec.MsgspecError, RecursionError):
        return text, "", ""
    return error_in(body)


def error_in(body: Any) -> tuple[str, str, str]:
    """Return message, code and parameter of an error as services write it in JSON, not scrubbed."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, str):
        return error, "", ""
    if not isinstance(error, dict):
        return msgspec.json.encode(error).decode("utf-8"), "", ""
    said = (error.get(key) for key in ("message", "Message", "detail", "error"))
    message = next((m for m in said if isinstance(m, str)), None)
    if message is None:
        message = msgspec.json.encode(error).decode("utf-8")
    return message, str(error.get("code") or error.get("type") or ""), str(error.get("param") or "")


def _number(text: str) -> float | None:
    """Return a number of zero or more, None where the text is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0.0 else None


def _named(status: int) -> str:
    if status == 529:
        return "529 Overloaded"
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)

r"""How a fed line becomes a stimulus: the fields that the daemon takes, as one JSON object.

Nothing in a line is dropped. A byte that is not UTF-8 is kept as the text `\xNN`, NUL as what JSON
makes of it, a leading time stays in the text and is told apart as `occurred_at`.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

from noema.cli.commands.feed_lines import MAX_TEXT_BYTES, Line, LineRefused

_BOM = b"\xef\xbb\xbf"


class Parser(Protocol):
    """Makes the stimulus of a line."""

    def __call__(self, line: Line) -> dict[str, Any] | None:
        """Return the stimulus, None for an empty line; raise LineRefused for a bad one."""
        ...

    def skip(self, line: Line) -> None:
        """Take note of a line that is not to be sent."""
        ...


class TextParser:
    """Each line is the text of one stimulus."""

    def __init__(
        self,
        *,
        source: str | None,
        time_of: Callable[[str], datetime | None],
        on_bad_bytes: Callable[[], None],
    ) -> None:
        self._source, self._time_of, self._on_bad_bytes = source, time_of, on_bad_bytes

    def __call__(self, line: Line) -> dict[str, Any] | None:
        raw = stripped(line)
        if not raw.strip():
            return None
        text = self._text(raw)
        check_length(line, text)
        item: dict[str, Any] = {"text": text}
        moment = self._time_of(text)
        if moment is not None:
            item["occurred_at"] = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        if self._source is not None:
            item["source"] = self._source
        return item

    def skip(self, line: Line) -> None:
        # A year may turn over in a line that is skipped.
        self._time_of(stripped(line).decode("utf-8", "backslashreplace"))

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._on_bad_bytes()
            return raw.decode("utf-8", "backslashreplace")


class JsonParser:
    """Each line is one stimulus, an object with the fields that the daemon takes."""

    def __init__(self, *, source: str | None, on_bad_bytes: Callable[[], None]) -> None:
        self._source, self._on_bad_bytes = source, on_bad_bytes

    def __call__(self, line: Line) -> dict[str, Any] | None:
        raw = stripped(line)
        if not raw.strip():
            return None
        # Bad bytes ride through the JSON as lone surrogates, and are made visible in its strings.
        text = raw.decode("utf-8", "surrogateescape")
        try:
            item = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as exc:
            reason = getattr(exc, "msg", None) or str(exc)
            raise LineRefused(line.number, f"is not JSON ({reason})") from None
        if not isinstance(item, dict) or not isinstance(item.get("text"), str):
            raise LineRefused(line.number, 'is not an object with a "text"')
        try:
            item = _without_bad_bytes(item)
            check_length(line, item["text"])
        except UnicodeEncodeError:
            raise LineRefused(line.number, "holds half of a surrogate pair") from None
        if _is_bad(raw):
            self._on_bad_bytes()
        if self._source is not None:
            item.setdefault("source", self._source)
        return dict(item)

    def skip(self, line: Line) -> None:
        return


def stripped(line: Line) -> bytes:
    """Return the bytes of the line without a CR at its end or a byte order mark at the start."""
    raw = line.raw.removesuffix(b"\r")
    return raw.removeprefix(_BOM) if line.start == 0 else raw


def check_length(line: Line, text: str) -> None:
    """Refuse a text that is longer than the daemon takes."""
    length = len(text.encode())
    if length > MAX_TEXT_BYTES:
        raise LineRefused(line.number, f"has {length} bytes of text; {MAX_TEXT_BYTES} may be sent")


def _without_bad_bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_without_bad_bytes(k): _without_bad_bytes(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_bad_bytes(inner) for inner in value]
    return value


def _is_bad(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return True
    return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")

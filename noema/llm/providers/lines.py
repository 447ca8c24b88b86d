"""Lines and events out of bytes that come in pieces cut anywhere.

Only bytes are looked at until a line is whole, so that a piece may end within a character; and only
CR and LF end a line, not the other separators that Unicode knows.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_ENDS: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = "\ufeff"
_COLON: Final = ":"


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event: its name, empty where it has none, and its data."""

    name: str
    data: str


class Lines:
    """Cuts bytes into lines of UTF-8, without their ends.

    `cr_ends` is whether a lone CR ends a line, as in an event stream; in NDJSON it is white space.
    `feed` and `end` raise UnicodeDecodeError where a line is not UTF-8.
    """

    def __init__(self, *, cr_ends: bool) -> None:
        self._cr_ends = cr_ends
        self._pieces: list[bytes] = []
        self._skips_lf = False

    def feed(self, piece: bytes) -> Iterator[str]:
        """Take the next piece; give the lines that it completes."""
        if not piece:
            return
        if self._skips_lf:
            piece = piece.removeprefix(b"\n")
        start = 0
        for found in _ENDS.finditer(piece) if self._cr_ends else re.finditer(rb"\n", piece):
            yield self._taken(piece[start : found.start()])
            start = found.end()
        if start < len(piece):
            self._pieces.append(piece[start:])
        # The other half of this end may come with the next piece.
        self._skips_lf = self._cr_ends and piece.endswith(b"\r")

    def end(self) -> Iterator[str]:
        """Give the last line where nothing ended it."""
        if self._pieces:
            yield self._taken(b"")

    def _taken(self, last: bytes) -> str:
        self._pieces.append(last)
        line = b"".join(self._pieces)
        self._pieces.clear()
        return line.decode("utf-8")


class Events:
    """Reads an event stream (HTML Living Standard, 9.2.6) from pieces of bytes.

    An event that the end of the stream cut off is given too: services leave the last empty line
    out, and what is really cut off is no valid JSON.
    """

    def __init__(self) -> None:
        self._lines = Lines(cr_ends=True)
        self._is_first = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Take the next piece; give the events that it completes."""
        for line in self._lines.feed(piece):
            yield from self._read(line)

    def end(self) -> Iterator[Event]:
        """Give what the last lines make."""
        for line in self._lines.end():
            yield from self._read(line)
        yield from self._read("")

    def _read(self, line: str) -> Iterator[Event]:
        if self._is_first:
            line, self._is_first = line.removeprefix(_BOM), False
        if not line:
            if self._data:
                yield Event(self._name, "\n".join(self._data))
            self._name, self._data = "", []
            return
        field, _, value = line.partition(_COLON)
        value = value.removeprefix(" ")
        # A line that begins with a colon is a comment: its field is empty.
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value

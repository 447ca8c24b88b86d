"""What `noemactl` writes: tables and text for people, JSON for programs, one line for an error.

Text from a mind may come from anywhere, so what a terminal would act on is shown, never sent: a
control character, or one that turns the direction of writing, appears as its escape. JSON keeps
every value as it is; the same characters are written there as JSON escapes.
"""

import io
import json
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import click

from noema.core.errors import NoemaError

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
UNAUTHORISED: Final = 4
UNREACHABLE: Final = 5
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141  # what a shell shows for a program that a closed pipe ended

_TURNS = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[\x00-\x1f\x7f-\x9f{_TURNS}\ud800-\udfff]")
_UNSAFE_JSON = re.compile(f"[\x7f-\x9f{_TURNS}\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SCORE_SCALE = -12  # a score is a sum of weight times feature, both in millionths


class CommandError(NoemaError):
    """A command that did not do what was asked; the message is one line for a person."""

    code = "command"

    def __init__(self, message: str, *, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.message, self.exit_code = message, exit_code


def visible(text: str, *, keep: str = "") -> str:
    """Return the text with everything a terminal would act on written as an escape.

    The characters in `keep` pass: a reply of several paragraphs keeps its line feeds.
    """

    def shown(match: re.Match[str]) -> str:
        char = match.group()
        if char in keep:
            return char
        code = ord(char)
        return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")

    return _UNSAFE.sub(shown, text)


def one_line(text: str) -> str:
    """Return the text as one line that is safe to print."""
    return visible(" ".join(text.split()))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return the value as JSON that is safe to print and means exactly the value."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    text = json.dumps(value, ensure_ascii=encoding != "utf8", indent=indent)
    return _UNSAFE_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def put_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json_text(value, indent=2))


def put_json_line(value: Any) -> None:
    """Print one JSON document on one line, at once."""
    click.echo(json_text(value))


def note(message: str) -> None:
    """Tell the person something that is not the answer, on stderr."""
    click.echo(one_line(message), err=True)


def put_error(message: str) -> None:
    """Print what went wrong, as one line on stderr."""
    click.echo(f"Error: {one_line(message)}", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table: its heading, and the key of the row it shows."""

    heading: str
    key: str
    right: bool = False
    score: bool = False


def put_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[Column],
    *,
    as_json: bool,
    empty: str,
) -> None:
    """Print the rows as a table, or as one JSON array; `empty` is said when there are none."""
    if as_json:
        put_json(list(rows))
    elif rows:
        click.echo("\n".join(table(rows, columns, width=_terminal_width())))
    else:
        note(empty)


def put_one(value: Any, *, as_json: bool) -> None:
    """Print one thing as indented lines `key: value`, or as one JSON document."""
    if as_json:
        put_json(value)
    else:
        click.echo("\n".join(lines_of(value)))


def table(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], *, width: int | None
) -> list[str]:
    """Return the lines of a table, headings first; `width` cuts the last column, None nothing."""
    cells = [[column.heading for column in columns]]
    cells += [[_cell(row.get(column.key), column) for column in columns] for row in rows]
    widths = [max(cell_width(line[i]) for line in cells) for i in range(len(columns))]
    lines = []
    for line in cells:
        padded = [_pad(text, widths[i], right=columns[i].right) for i, text in enumerate(line[:-1])]
        last = _pad(line[-1], widths[-1], right=True) if columns[-1].right else line[-1]
        used = sum(widths[:-1]) + 2 * len(padded)
        if width is not None:
            last = _cut(last, max(width - used, 20))
        lines.append("  ".join([*padded, last]).rstrip())
    return lines


def lines_of(value: Any, *, indent: str = "") -> list[str]:
    """Return any JSON value as indented lines for a person."""
    if isinstance(value, Mapping):
        return _lines_of_mapping(value, indent)
    if isinstance(value, list):
        lines = []
        for item in value:
            inner = lines_of(item, indent=indent + "  ")
            lines += [f"{indent}- {inner[0].lstrip()}", *inner[1:]] if inner else [f"{indent}-"]
        return lines
    return [indent + plain(value)]


def _lines_of_mapping(value: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for key, inner in value.items():
        name = f"{indent}{visible(str(key))}:"
        if isinstance(inner, (Mapping, list)) and inner:
            lines += [name, *lines_of(inner, indent=indent + "  ")]
        else:
            lines.append(f"{name} {plain(inner)}")
    return lines


def plain(value: Any) -> str:
    """Return a value as a person would write it, on one line."""
    if value is None or value in ({}, []):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return visible(value)
    return json_text(value)


def score_text(score: Any) -> str:
    """Return a score or a margin, an integer of 10^-12, as a decimal with six places."""
    if isinstance(score, int) and not isinstance(score, bool):
        return f"{Decimal(score).scaleb(_SCORE_SCALE):.6f}"
    return plain(score)


def cell_width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _cell(value: Any, column: Column) -> str:
    return score_text(value) if column.score else plain(value)


def _pad(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - cell_width(text))
    return space + text if right else text + space


def _cut(text: str, width: int) -> str:
    if cell_width(text) <= width:
        return text
    kept, used = [], 1
    for char in text:
        used += _char_width(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept) + "…"


def _terminal_width() -> int | None:
    # A pipe gets whole lines: what reads them can cut for itself.
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def forgive_encodings() -> None:
    """Let a terminal that lacks a character show its escape instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

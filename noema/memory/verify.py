"""What may become a memory. What may not is turned away with a reason, never dropped silently.

A text that gives orders is data like any other and is kept: nothing here obeys what it reads.
"""

import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from noema.core.canonical import escape_tree
from noema.memory.contents import content_of, stored
from noema.memory.model import MAX_TEXT_CHARS, Kind
from noema.memory.normalise import strip_annotation

MAX_SPEAKER_CHARS: Final = 200
_EARLIEST_YEAR: Final = 100
_FURTHEST_AHEAD: Final = timedelta(days=366 * 200)
_CONTENT_BYTES: Final = 16_384
# Longer than any token, key or signature that people mention, shorter than a small picture.
_BLOB_CHARS: Final = 2_000
_BLOB = re.compile(rf"[A-Za-z0-9+/_=\r\n-]{{{_BLOB_CHARS},}}")
# One control character in a short text is a slip.
_FEW_CONTROLS: Final = 4
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_SILENT: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})


def check_text(text: str, *, most: int) -> str | None:
    """Return why the text cannot be a memory, None where it can. `most` is in characters."""
    most = min(most, MAX_TEXT_CHARS)
    if len(text) > most:
        return (
            f"The text has {len(text):,} characters; at most {most:,} are kept as one memory. "
            "Split it, or let `noemactl mem import` do so."
        )
    plain = strip_annotation(text)
    if not plain.strip():
        return (
            "The text is empty."
            if plain == text
            else "The text holds nothing but an entity annotation."
        )
    if not _says_something(plain):
        return "The text holds nothing but control and invisible characters."
    if (controls := len(_CONTROLS.findall(plain))) >= _FEW_CONTROLS and 4 * controls > len(plain):
        return "The text is binary data. Keep it elsewhere, and a pointer to it here."
    blob = _BLOB.search(plain)
    if blob is not None and _is_encoded(blob.group()):
        return "The text holds encoded binary data. Keep it elsewhere, and a pointer to it here."
    return None


def _says_something(text: str) -> bool:
    return any(unicodedata.category(char) not in _SILENT for char in text)


def _is_encoded(run: str) -> bool:
    # Words are separated and mostly of one case; what was encoded has all sorts of characters and
    # no end.
    return (
        any(c.isdigit() for c in run)
        and any(c.isupper() for c in run)
        and any(c.islower() for c in run)
    )


def check_time(moment: datetime | None, now: datetime) -> str | None:
    """Return why the moment cannot be when something happened, None where it can."""
    if moment is None:
        return None
    if moment.tzinfo is None or moment.utcoffset() is None:
        return (
            f"The time {moment.isoformat()} has no time zone. Write 2024-05-01T12:00:00Z, or with "
            "an offset such as +02:00."
        )
    if moment.year < _EARLIEST_YEAR:
        return f"The time {moment.isoformat()} is before the year {_EARLIEST_YEAR}."
    if moment - now > _FURTHEST_AHEAD:
        return f"The time {moment.isoformat()} is more than 200 years ahead."
    return None


def check_speaker(speaker: str) -> str | None:
    """Return why nobody can be called that, None where somebody can."""
    if not speaker.strip() or not _says_something(speaker):
        return "The message names no speaker."
    if len(speaker) > MAX_SPEAKER_CHARS:
        return f"The name of a speaker has at most {MAX_SPEAKER_CHARS} characters."
    return None


def check_content(kind: Kind, raw: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return the content as it is kept, and why it does not fit its kind, None where it does."""
    try:
        content = stored(content_of(kind, raw))
    except msgspec.ValidationError as exc:
        return {}, f"The content is not that of a {kind}: {str(exc).rstrip('.')}."
    # Measured as it will be kept: escaped, because that is longer.
    if len(msgspec.json.encode(escape_tree(content))) > _CONTENT_BYTES:
        return {}, f"The content takes more than {_CONTENT_BYTES:,} bytes."
    return content, None

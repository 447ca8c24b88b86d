r"""Canonical bytes of a JSON value, text that jsonb can hold, and commitments over both.

jsonb refuses NUL and lone surrogates, and text from outside has both. They are written with an
introducer from the private-use area, U+E000: `U+E000 '0'` is NUL, `U+E000 'dXYZ'` the surrogate
U+DXYZ, and `U+E000 'e'` a real U+E000. `unescape` undoes it exactly.

Canonical JSON follows RFC 8785 where Noema needs it: sorted keys, no white space, UTF-8, shortest
escapes. Floats are refused, because their text form differs between writers; every number that
Noema commits to is an integer.
"""

import re
from hashlib import sha256
from typing import Any, Final

import msgspec

from noema.core.errors import InvalidInput

MARK: Final = "\ue000"
_MARK_BYTES: Final = MARK.encode()
_UNSTORABLE = re.compile("[\x00\ud800-\udfff\ue000]")
_ESCAPED = re.compile("\ue000(0|e|d[89a-f][0-9a-f]{2})")
_SORTED = msgspec.json.Encoder(order="sorted")


def escape(text: str) -> str:
    """Return the text with NUL, lone surrogates and U+E000 written so that jsonb takes them."""
    if not _UNSTORABLE.search(text):
        return text
    return _UNSTORABLE.sub(_escape_one, text)


def _escape_one(match: re.Match[str]) -> str:
    char = match.group()
    if char == "\x00":
        return MARK + "0"
    return MARK + "e" if char == MARK else f"{MARK}{ord(char):04x}"


def unescape(text: str) -> str:
    """Return what `escape` was given."""
    if MARK not in text:
        return text
    return _ESCAPED.sub(_unescape_one, text)


def _unescape_one(match: re.Match[str]) -> str:
    code = match.group(1)
    if code == "0":
        return "\x00"
    return MARK if code == "e" else chr(int(code, 16))


def escape_tree(value: Any) -> Any:
    """Return the JSON value with every string, keys included, escaped."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict):
        return {escape(k): escape_tree(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [escape_tree(v) for v in value]
    return value


def unescape_tree(value: Any) -> Any:
    """Return the JSON value that `escape_tree` was given (tuples come back as lists)."""
    if isinstance(value, str):
        return unescape(value)
    if isinstance(value, dict):
        return {unescape(k): unescape_tree(v) for k, v in value.items()}
    if isinstance(value, list):
        return [unescape_tree(v) for v in value]
    return value


def refuse_floats(value: Any) -> None:
    """Raise InvalidInput if a float stands anywhere in the value."""
    if isinstance(value, float):
        raise InvalidInput("Canonical JSON holds integers only; a float has no one spelling.")
    if isinstance(value, dict):
        for item in value.values():
            refuse_floats(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            refuse_floats(item)


def canonical(value: Any) -> bytes:
    """Return the one spelling of the (already escaped) value: sorted keys, no white space."""
    return _SORTED.encode(value)


def canonical_escaped(value: Any) -> bytes:
    """Return `canonical(escape_tree(value))`, faster where there is nothing to escape."""
    try:
        raw = _SORTED.encode(value)
    except UnicodeEncodeError:
        return canonical(escape_tree(value))
    # Encoded, NUL is \u0000 and the introducer three bytes; a false alarm costs time only.
    if b"\\u0000" in raw or _MARK_BYTES in raw:
        return canonical(escape_tree(value))
    return raw


def commitment(salt: bytes, canonical_content: bytes) -> bytes:
    """Return SHA-256(salt ‖ content): proof of the content that nobody can guess back.

    Destroying the salt makes the commitment useless for guessing; see the design's correction 5.
    """
    return sha256(salt + canonical_content).digest()

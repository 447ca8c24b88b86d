"""When two texts are the same: the normal form, and the keys that exact dedupe rests on.

The normal form is NFKC, casefolded, white space collapsed, and without the `[entities: …]`
annotation, which is derived and must never decide whether two facts are one.
"""

import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final
from uuid import UUID

from noema.core.clock import to_micros

_OPENS = re.compile(r"\s{0,8}\[entities:", re.IGNORECASE)
# The forms settle in two or three rounds; the bound is for what Unicode may still think of.
_ROUNDS: Final = 8
# UTF-8 never holds these bytes, so a key with a place in it is never the key of a mere text.
_OF_TURN: Final = b"\xff"
_OF_COPY: Final = b"\xfe"


def strip_annotation(text: str) -> str:
    """Return the text without `[entities: …]`; unchanged where there is none."""
    if "[" not in text:
        return text
    kept: list[str] = []
    at = 0
    # Not one pattern: without a closing bracket it would look for one from every opening.
    while (opening := _OPENS.search(text, at)) and (closing := text.find("]", opening.end())) >= 0:
        kept.append(text[at : opening.start()])
        at = closing + 1
    return "".join((*kept, text[at:])).strip() if kept else text


def normal_text(text: str) -> str:
    """Return the normal form; of a normal form it returns the same."""
    for _ in range(_ROUNDS):
        form = _once(text)
        if form == text:
            break
        text = form
    return text


def _once(text: str) -> str:
    if text.isascii():
        return " ".join(strip_annotation(text.lower()).split())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(strip_annotation(folded).split())


def dedupe_key(text: str) -> bytes:
    """Return SHA-256 of the normal form: equal exactly where the normal forms are."""
    return sha256(_bytes(normal_text(text))).digest()


def turn_key(
    text: str, *, conversation: UUID, speaker: str, at: datetime | None, occurrence: int
) -> bytes:
    """Return the key of a turn: its text, who said it, where, when, and for which time.

    `occurrence` counts equal turns within one transcript from 0, so that two "Yes." are two turns
    and the same transcript sent again is nothing new.
    """
    moment = "" if at is None else str(to_micros(at))
    return _key(
        _OF_TURN, conversation.hex, normal_text(speaker), moment, str(occurrence), normal_text(text)
    )


def copy_key(text: str, *, kind: str, source: str) -> bytes:
    """Return the key of what is refreshed: two sources may say the same and are still two."""
    return _key(_OF_COPY, kind, source, normal_text(text))


def conversation_id(namespace: str, name: str) -> UUID:
    """Return the id of the conversation that its namespace calls by this name."""
    return _uuid(b"conversation", namespace, name)


def transcript_id(namespace: str, turns: Sequence[tuple[str, str, datetime | None]]) -> UUID:
    """Return the id of a conversation without a name, from its (speaker, text, at)."""
    said = (
        part
        for speaker, text, at in turns
        for part in (
            normal_text(speaker),
            normal_text(text),
            "" if at is None else str(to_micros(at)),
        )
    )
    return _uuid(b"transcript", namespace, *said)


def _uuid(purpose: bytes, *parts: str) -> UUID:
    # Name-based as version 5 is, with SHA-256 in the place of SHA-1.
    return UUID(bytes=_key(purpose, *parts)[:16], version=5)


def _key(tag: bytes, *parts: str) -> bytes:
    # Each part with its length, so that no two lists of parts run together to the same bytes.
    hashed = sha256(tag)
    for part in parts:
        raw = _bytes(part)
        hashed.update(len(raw).to_bytes(8, "big"))
        hashed.update(raw)
    return hashed.digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogatepass")

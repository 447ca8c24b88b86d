"""Taking secrets out of what a service sent, before it becomes part of a message or an answer.

A service, or whatever stands before it, may echo the key it was sent: whole, cut short, or encoded.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from string import ascii_lowercase, ascii_uppercase
from typing import Final
from urllib.parse import quote, quote_plus

MASK: Final = "[secret]"
# So much of a secret in a row is no coincidence, and less gives nothing away. In an answer, where a
# model may write of keys and how they begin, it takes more.
_IN_MESSAGES: Final = 8
_IN_ANSWERS: Final = 16
# A secret this short is a word that a server without keys wants to be given, if not a letter.
_LEAST_IN_MESSAGES: Final = 4
_LEAST_IN_ANSWERS: Final = 8
_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


class Scrubber:
    """Knows the secrets of one provider, and the forms in which they come back.

    Upper and lower case count as the same.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        forms = {
            (form.translate(_LOWER), of_each)
            for secret in secrets
            if secret
            for form, of_each in _forms(secret)
        }
        self._message = _Runs(forms, width=_IN_MESSAGES, least=_LEAST_IN_MESSAGES)
        self._answer = _Runs(forms, width=_IN_ANSWERS, least=_LEAST_IN_ANSWERS)

    def scrub(self, text: str) -> str:
        """Return the text with every run of 8 or more characters of a secret masked.

        A secret shorter than that is masked where it stands whole, one of less than 4 characters
        nowhere. For short texts: the work is one look-up per character.
        """
        return self._message.masked(text)

    def remove(self, text: str) -> str:
        """Return an answer with every run of 16 or more characters of a secret masked.

        A secret shorter than that is masked where it stands whole, one of less than 8 characters
        nowhere: it is a word, which an answer may hold. Cheap where there is nothing to mask.
        """
        return self._answer.masked(text) if self._answer.may_be_in(text) else text


class _Runs:
    """Finds runs of at least `width` characters of a secret, and those of `least` that stand whole.

    `forms` are what is looked for, each with how many characters stand for one of the secret.
    """

    def __init__(self, forms: Iterable[tuple[str, int]], *, width: int, least: int) -> None:
        self._windows: dict[int, set[str]] = {}
        self._whole: list[str] = []
        # Whatever run is as long as a window holds one of these as a whole.
        self._probes: set[str] = set()
        for form, of_each in sorted(forms):
            run = width * of_each
            if len(form) >= run:
                self._windows.setdefault(run, set()).update(_cut(form, run, every=1))
                self._probes.update(_cut(form, run // 2, every=run // 2))
            elif len(form) >= least * of_each:
                self._whole.append(form)
                self._probes.add(form)

    def may_be_in(self, text: str) -> bool:
        """Whether it is worth looking."""
        folded = _folded(text)
        return any(probe in folded for probe in self._probes)

    def masked(self, text: str) -> str:
        """Return the text with what was found masked."""
        if not self._probes:
            return text
        folded = _folded(text)
        hidden = bytearray(len(text))
        for run, windows in self._windows.items():
            for start in range(len(text) - run + 1):
                if folded[start : start + run] in windows:
                    hidden[start : start + run] = b"\1" * run
        for form in self._whole:
            start = folded.find(form)
            while start >= 0:
                hidden[start : start + len(form)] = b"\1" * len(form)
                start = folded.find(form, start + len(form))
        return "".join(_masked(text, hidden))


def _cut(form: str, size: int, *, every: int) -> Iterator[str]:
    return (form[start : start + size] for start in range(0, len(form) - size + 1, every))


def parts_of(kind: str, secret: str) -> tuple[str, ...]:
    """Return what of a provider's secret must not come back: of Amazon's credential every part."""
    return tuple(secret.split(":")) if kind == "bedrock" else (secret,)


def _folded(text: str) -> str:
    # Of the same length as the text, which lower() is not for every character.
    return text.lower() if text.isascii() else text.translate(_LOWER)


def _forms(secret: str) -> Iterator[tuple[str, int]]:
    """Give the forms in which it may come back, each with how many characters stand for one."""
    raw = secret.encode("utf-8", errors="surrogatepass")
    written = json.dumps(secret)[1:-1]
    for form in (
        secret,
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        escape(secret),
        written,
        written.replace("/", "\\/"),
        json.dumps(written)[1:-1],
    ):
        yield form, 1
    yield raw.hex(), 2
    yield "".join(f"%{byte:02x}" for byte in raw), 3
    yield "".join(f"\\u{ord(c):04x}" for c in secret), 6
    # In base64 it looks different at each of the three places within a group where it may begin;
    # the characters at either end depend on what stands beside it.
    for lead in range(3):
        encoded = b64encode(b"\0" * lead + raw).decode("ascii").rstrip("=")
        inner = encoded[(0, 2, 3)[lead] : len(encoded) - 1]
        if len(inner) >= _IN_MESSAGES:
            yield inner, 1
            yield inner.replace("+", "-").replace("/", "_"), 1


def _masked(text: str, hidden: bytearray) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = hidden.find(1 - hidden[start], start)
        end = len(text) if end < 0 else end
        yield MASK if hidden[start] else text[start:end]
        start = end

"""Taking secrets out of what a service sent, before it becomes part of a message.

A service, or whatever stands before it, may echo the key it was sent: whole, cut short, or encoded.
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Final
from urllib.parse import quote, quote_plus

MASK: Final = "[secret]"
# So much of a secret in a row is no coincidence, and less gives nothing away.
_WINDOW: Final = 8
_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


class Scrubber:
    """Knows the secrets of one provider, and the forms in which they come back."""

    def __init__(self, secrets: Sequence[str]) -> None:
        forms = {form for secret in secrets if secret for form in _forms(secret)}
        # The longest first: another may be a part of it.
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        self._short = [form.translate(_LOWER) for form in self._forms if len(form) < _WINDOW]
        self._windows = {
            window for form in self._forms for window in _windows(form.translate(_LOWER))
        }

    def scrub(self, text: str) -> str:
        """Return the text with every run of 8 or more characters of a secret masked.

        Upper and lower case count as the same. A secret shorter than that is masked where it
        stands whole. For short texts: the work is one look-up per character.
        """
        if not self._forms:
            return text
        folded = text.translate(_LOWER)
        hidden = bytearray(len(text))
        for start in range(len(text) - _WINDOW + 1):
            if folded[start : start + _WINDOW] in self._windows:
                hidden[start : start + _WINDOW] = b"\1" * _WINDOW
        for form in self._short:
            start = folded.find(form)
            while start >= 0:
                hidden[start : start + len(form)] = b"\1" * len(form)
                start = folded.find(form, start + len(form))
        return "".join(_masked(text, hidden))

    def remove(self, text: str) -> str:
        """Return the text with every whole secret masked; cheap enough for a long answer."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text


def _forms(secret: str) -> Iterator[str]:
    raw = secret.encode("utf-8", errors="surrogatepass")
    yield secret
    yield quote(raw, safe="")
    yield quote(raw)
    yield quote_plus(raw)
    yield json.dumps(secret)[1:-1]
    yield raw.hex()
    # In base64 it looks different at each of the three places within a group where it may begin;
    # the characters at either end depend on what stands beside it.
    for lead in range(3):
        encoded = b64encode(b"\0" * lead + raw).decode("ascii").rstrip("=")
        inner = encoded[(0, 2, 3)[lead] : len(encoded) - 1]
        if len(inner) >= _WINDOW:
            yield inner
            yield inner.replace("+", "-").replace("/", "_")


def _windows(form: str) -> Iterator[str]:
    return (form[start : start + _WINDOW] for start in range(len(form) - _WINDOW + 1))


def _masked(text: str, hidden: bytearray) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = hidden.find(1 - hidden[start], start)
        end = len(text) if end < 0 else end
        yield MASK if hidden[start] else text[start:end]
        start = end

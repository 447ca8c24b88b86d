"""An embedder that needs no model: hashed words and the three-letter pieces of words.

Signed feature hashing after Weinberger, Dasgupta, Langford, Smola and Attenberg (2009), "Feature
hashing for large scale multitask learning": a feature's hash chooses the place it is added to and
the sign it is added with, so that features which share a place cancel on average. It knows how
words are spelled, not what they mean: inflections and typing errors stay near, synonyms do not.
"""

import asyncio
import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from math import sqrt
from typing import Final
from unicodedata import normalize

from noema.llm.model import Purpose

DIMS: Final = 256
MODEL: Final = f"hash-{DIMS}-v1"
WEIGHT: Final = 0.2

# What has letters or digits, in pieces that bound the work a word can make, and emoji.
_PIECE: Final = 32
_WORD: Final = re.compile(rf"\w{{1,{_PIECE}}}|[\u2600-\u27bf\U0001f000-\U0001faff]")
_GRAM: Final = 3
_WORD_COUNTS: Final = 2
_CACHED_WORDS: Final = 32_768
# A long import must not keep everybody else waiting: the loop gets its turn between these.
_AT_ONCE: Final = 64


class HashEmbedder:
    """The default embedder: no download, no network, the same vector on every machine.

    Whole numbers are added up and divided once by the root of their squares' sum, so there is no
    order of additions that could matter. Only letters that a later Unicode folds differently can
    make two Python versions differ.
    """

    model: Final = MODEL
    dims: Final = DIMS
    weight: Final = WEIGHT

    async def embed(self, texts: Sequence[str], *, purpose: Purpose) -> list[Sequence[float]]:
        """Return one vector of 256 floats and length 1 per text; never fails."""
        vectors: list[Sequence[float]] = []
        for begin in range(0, len(texts), _AT_ONCE):
            if begin:
                await asyncio.sleep(0)
            vectors.extend(vector_of(text) for text in texts[begin : begin + _AT_ONCE])
        return vectors


def vector_of(text: str) -> list[float]:
    """Return the text's vector of `DIMS` floats and length 1."""
    folded = normalize("NFKC", text).casefold()
    # Where there is nothing but punctuation, that is what the text is.
    words: Sequence[str] = _WORD.findall(folded) or [part[:_PIECE] for part in folded.split()]
    sums = [0] * DIMS
    for word in words:
        for place, amount in _features(word):
            sums[place] += amount
    squares = sum(value * value for value in sums)
    if squares == 0:
        # Nothing at all, or features that cancel to nothing: a direction has to be chosen.
        sums[0] = squares = 1
    length = sqrt(squares)
    return [value / length for value in sums]


@lru_cache(maxsize=_CACHED_WORDS)
def _features(word: str) -> tuple[tuple[int, int], ...]:
    """Return place and signed amount of the word and of its pieces, ends marked."""
    marked = f"<{word}>"
    pieces = [marked[at : at + _GRAM] for at in range(len(marked) - _GRAM + 1)]
    return (
        _feature(f"w{word}", _WORD_COUNTS),
        *(_feature(f"g{piece}", 1) for piece in pieces),
    )


def _feature(name: str, amount: int) -> tuple[int, int]:
    digest = blake2b(name.encode("utf-8", errors="surrogatepass"), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    # The top bit is the sign, the rest the place: independent of each other.
    return (number & ((1 << 63) - 1)) % DIMS, amount if number >> 63 else -amount

"""What every service's answer goes through: the right number of vectors, finite, of length 1."""

from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Iterator, Sequence
from struct import unpack
from typing import Final

import numpy as np

from noema.config import MAX_DIMS
from noema.core.errors import Unavailable

_FLOAT_BYTES: Final = 4


def from_base64(text: str, *, name: str) -> tuple[float, ...]:
    """Return the little-endian float32 numbers; raises Unavailable where it is none."""
    try:
        raw = a2b_base64(text, strict_mode=True)
    except (Base64Error, ValueError):
        raw = b"?"
    if len(raw) % _FLOAT_BYTES:
        raise Unavailable(f"{name} answered a vector that is not base64 of floats.")
    return unpack(f"<{len(raw) // _FLOAT_BYTES}f", raw)


def checked(
    vectors: Sequence[Sequence[float]], *, count: int, dims: int | None, name: str
) -> list[Sequence[float]]:
    """Return the vectors scaled to length 1.

    Raises Unavailable where there are not `count` of them, where they do not have `dims` numbers
    (of None, all equally many), and where one has no direction: zeros, infinities.
    """
    if len(vectors) != count:
        raise Unavailable(f"{name} answered {len(vectors)} vectors for {count} texts.")
    return [_unit(vector, dims or len(vectors[0]), name) for vector in vectors]


def _unit(vector: Sequence[float], dims: int, name: str) -> Sequence[float]:
    if len(vector) != dims or not 1 <= dims <= MAX_DIMS:
        raise Unavailable(
            f"{name} answered a vector of {len(vector)} dimensions, not {min(dims, MAX_DIMS)}. "
            "Check the model, and the dimensions that are asked for."
        )
    numbers = np.asarray(vector, dtype=np.float64)
    # Divided twice, since the square of a number may be beyond what a float holds.
    largest = float(np.abs(numbers).max())
    if not 0.0 < largest < np.inf:
        raise Unavailable(f"{name} answered a vector without a direction (zeros or no numbers).")
    numbers /= largest
    scaled: list[float] = (numbers / np.sqrt(numbers @ numbers)).tolist()
    return scaled


def batches(texts: Sequence[str], *, at_once: int, chars: int) -> Iterator[list[str]]:
    """Yield the texts in order, in groups of at most so many, and of so many characters.

    A text that is longer than that by itself is a group of its own.
    """
    group: list[str] = []
    size = 0
    for text in texts:
        if group and (len(group) >= at_once or size + len(text) > chars):
            yield group
            group, size = [], 0
        group.append(text)
        size += len(text)
    if group:
        yield group

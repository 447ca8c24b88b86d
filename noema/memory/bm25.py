"""BM25 over a handful of candidates, nothing indexed.

Robertson and Zaragoza (2009), "The Probabilistic Relevance Framework: BM25 and Beyond". The inverse
document frequency has 1 added inside the logarithm, as Lucene does, so that a term in every
candidate counts little and never against.

Candidates are columns and terms of the query are rows, so that a search scores all of them in a few
steps. Sums are added up term by term in one order: the same candidates get the same scores
everywhere.
"""

from collections.abc import Sequence
from math import log
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

K1: Final = 1.2
B: Final = 0.75
SEPARATOR: Final = "  "
"""What stands between the terms of a text, so that each has a space of its own on either side."""


def frequencies(texts: Sequence[str], query: Sequence[str]) -> Floats:
    """Return how often each term of the query (row) is in each text (column).

    The terms of a text are joined by `SEPARATOR`. All texts are searched as one, term by term:
    several times quicker than taking every text apart.
    """
    found = np.zeros((len(query), len(texts)))
    whole = f" {_BETWEEN.join(texts)} "
    ends = np.cumsum(_lengths(texts) + len(_BETWEEN)) + 1
    for row, term in enumerate(query):
        needle = f" {term} "
        parts = whole.split(needle)
        if len(parts) > 1:
            at = np.cumsum(_lengths(parts)[:-1] + len(needle)) - len(needle) + 1
            columns = np.searchsorted(ends, at, side="right")
            found[row] = np.bincount(columns, minlength=len(texts))
    return found


_BETWEEN: Final = " \n "


def _lengths(texts: Sequence[str]) -> NDArray[np.int64]:
    return np.fromiter(map(len, texts), np.int64, len(texts))


def inverse_frequencies(counts: Floats) -> Floats:
    """Return the weight of each term: ln(1 + (N - n + 0.5) / (n + 0.5))."""
    total = counts.shape[1]
    having = np.count_nonzero(counts, axis=1).tolist()
    return np.asarray([log(1 + (total - n + 0.5) / (n + 0.5)) for n in having])


def mean(lengths: Floats) -> float:
    """Return the mean number of terms; 1 where there is nothing to average."""
    return float(lengths.sum() / len(lengths)) if len(lengths) else 1.0


def scores(counts: Floats, lengths: Floats, idf: Floats, average: float) -> Floats:
    """Return the BM25 of each text."""
    norms = K1 * (1 - B + B * lengths / (average or 1.0))
    total = np.zeros(len(lengths))
    for of_term, weight in zip(counts, idf, strict=True):
        total += weight * (K1 + 1) * of_term / (of_term + norms)
    return total

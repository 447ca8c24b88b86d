"""BM25 over a handful of candidates, nothing indexed.

Robertson and Zaragoza (2009), "The Probabilistic Relevance Framework: BM25 and Beyond". The inverse
document frequency has 1 added inside the logarithm, as Lucene does, so that a term in every
candidate counts little and never against.
"""

from collections.abc import Collection, Iterable, Mapping
from math import log
from typing import Final, NamedTuple

K1: Final = 1.2
B: Final = 0.75


class Counted(NamedTuple):
    """A document as BM25 sees it: how many terms it has, and how often each term of the query."""

    length: int
    counts: Mapping[str, int]


def counted(terms: Collection[str], wanted: Collection[str], length: int | None = None) -> Counted:
    """Return the counts of the wanted terms; `length` where `terms` are not all there are."""
    found = [term for term in terms if term in wanted]
    counts = dict.fromkeys(found, 1)
    if len(counts) != len(found):
        counts = {term: found.count(term) for term in counts}
    return Counted(len(terms) if length is None else length, counts)


def merged(documents: Iterable[Counted]) -> Counted:
    """Return the documents as one."""
    length = 0
    counts: dict[str, int] = {}
    for document in documents:
        length += document.length
        for term, count in document.counts.items():
            counts[term] = counts.get(term, 0) + count
    return Counted(length, counts)


def inverse_frequencies(query: Iterable[str], documents: Collection[Counted]) -> dict[str, float]:
    """Return the weight of each term of the query: ln(1 + (N - n + 0.5) / (n + 0.5))."""
    found = dict.fromkeys(query, 0)
    for document in documents:
        for term in document.counts:
            if term in found:
                found[term] += 1
    total = len(documents)
    return {term: log(1 + (total - n + 0.5) / (n + 0.5)) for term, n in found.items()}


def average_length(documents: Collection[Counted]) -> float:
    """Return the mean number of terms; 1 where there is nothing to average."""
    return sum(document.length for document in documents) / len(documents) if documents else 1.0


def score(document: Counted, idf: Mapping[str, float], average: float) -> float:
    """Return the BM25 of one document; terms without a weight count nothing."""
    if not document.counts:
        return 0.0
    norm = K1 * (1 - B + B * document.length / max(average, 1.0))
    total = 0.0
    for term, count in document.counts.items():
        total += idf.get(term, 0.0) * count * (K1 + 1) / (count + norm)
    return total

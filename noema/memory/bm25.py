"""BM25 over a handful of candidates, nothing indexed.

Robertson and Zaragoza (2009), "The Probabilistic Relevance Framework: BM25 and Beyond". The inverse
document frequency has 1 added inside the logarithm, as Lucene does, so that a term in every
candidate counts little and never against.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import log
from typing import Final, NamedTuple, Protocol

K1: Final = 1.2
B: Final = 0.75


class Document(Protocol):
    """A text as BM25 sees it: how many terms it has, and how often each term of the query."""

    @property
    def length(self) -> int: ...

    @property
    def counts(self) -> Mapping[str, int]: ...


class Counted(NamedTuple):
    """A document and nothing else."""

    length: int
    counts: Mapping[str, int]


def tally(texts: Sequence[str], wanted: Iterable[str]) -> list[dict[str, int]]:
    """Return how often each wanted term is in each text; terms are separated by single spaces.

    All texts are searched as one, term by term, which is several times quicker than taking every
    text apart.
    """
    counts: list[dict[str, int]] = [{} for _ in texts]
    whole = " " + " \n ".join(texts) + " "
    ends: list[int] = []
    end = 1
    for text in texts:
        end += len(text) + 3
        ends.append(end)
    for term in wanted:
        needle = f" {term} "
        step = len(needle) - 1
        row = 0
        at = whole.find(needle)
        while at >= 0:
            while ends[row] <= at + 1:
                row += 1
            of_row = counts[row]
            of_row[term] = of_row.get(term, 0) + 1
            at = whole.find(needle, at + step)
    return counts


def merged(documents: Iterable[Document]) -> Counted:
    """Return the documents as one."""
    length = 0
    counts: dict[str, int] = {}
    for document in documents:
        length += document.length
        for term, count in document.counts.items():
            counts[term] = counts.get(term, 0) + count
    return Counted(length, counts)


def inverse_frequencies(query: Iterable[str], documents: Collection[Document]) -> dict[str, float]:
    """Return the weight of each term of the query: ln(1 + (N - n + 0.5) / (n + 0.5))."""
    found = dict.fromkeys(query, 0)
    for document in documents:
        for term in document.counts:
            if term in found:
                found[term] += 1
    total = len(documents)
    return {term: log(1 + (total - n + 0.5) / (n + 0.5)) for term, n in found.items()}


def average_length(documents: Collection[Document]) -> float:
    """Return the mean number of terms; 1 where there is nothing to average."""
    return sum([d.length for d in documents]) / len(documents) if documents else 1.0


def score(document: Document, idf: Mapping[str, float], average: float) -> float:
    """Return the BM25 of one document; terms without a weight count nothing."""
    counts = document.counts
    if not counts:
        return 0.0
    norm = K1 * (1 - B + B * document.length / (average or 1.0))
    total = 0.0
    for term, count in counts.items():
        total += idf.get(term, 0.0) * count * (K1 + 1) / (count + norm)
    return total

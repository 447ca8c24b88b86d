"""What a turn owes to the conversation around it.

An answer rarely repeats the words of its question, so a turn is scored together with the one
before, and a little for its neighbours and for the session as a whole. What stands alone is its own
window and its own session, so that the two kinds compare.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import numpy as np

from noema.memory.bm25 import Floats, frequencies, inverse_frequencies, mean, scores

OWN: Final = 1.0
WITH_PREVIOUS: Final = 1.0
NEIGHBOURS: Final = 0.25
SESSION: Final = 0.6
_ALONE: Final = OWN + WITH_PREVIOUS + SESSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Candidates, their terms, and where in which session each stands (None outside of any).

    `texts` are terms joined by `bm25.SEPARATOR`, those of the query at least; `lengths` count all.
    """

    ids: Sequence[UUID]
    texts: Sequence[str]
    lengths: Sequence[int]
    sessions: Sequence[UUID | None]
    positions: Sequence[int]

    def beside(self, others: "Places") -> "Places":
        """Return these and those of the others that are not among them."""
        here = set(self.ids)
        new = [n for n, id_ in enumerate(others.ids) if id_ not in here]
        return Places(
            ids=[*self.ids, *[others.ids[n] for n in new]],
            texts=[*self.texts, *[others.texts[n] for n in new]],
            lengths=[*self.lengths, *[others.lengths[n] for n in new]],
            sessions=[*self.sessions, *[others.sessions[n] for n in new]],
            positions=[*self.positions, *[others.positions[n] for n in new]],
        )


NOWHERE: Final = Places(ids=(), texts=(), lengths=(), sessions=(), positions=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """BM25 of each candidate alone (`own`) and with what is around it (`whole`).

    `idf` and `average` are the statistics they were weighed by.
    """

    ids: Sequence[UUID]
    own: Floats
    whole: Floats
    query: Sequence[str]
    idf: Floats
    average: float

    def alone(self, texts: Sequence[str], lengths: Sequence[int]) -> tuple[Floats, Floats]:
        """Return own and whole scores of further texts, by the same statistics."""
        counts = frequencies(texts, self.query)
        own = scores(counts, np.asarray(lengths, dtype=float), self.idf, self.average)
        return own, own * _ALONE

    def best(self, limit: int) -> list[UUID]:
        """Return the ids of the highest whole scores above zero; of equal ones, the lower id."""
        whole = self.whole
        least = 0.0
        if len(whole) > limit:
            least = float(np.partition(whole, len(whole) - limit)[len(whole) - limit])
        chosen = np.nonzero((whole >= least) & (whole > 0))[0].tolist()
        ranked = sorted((-float(whole[n]), self.ids[n]) for n in chosen)
        return [id_ for _, id_ in ranked[:limit]]


def weigh(query: Sequence[str], places: Places) -> Weighed:
    """Return the scores of the candidates.

    Term weights are those of single candidates at every level: a session holds most words, so
    weights of its own would say nothing.
    """
    counts = frequencies(places.texts, query)
    lengths = np.asarray(places.lengths, dtype=float)
    idf, average = inverse_frequencies(counts), mean(lengths)
    own = scores(counts, lengths, idf, average)
    whole = own * _ALONE
    turns = [n for n, session in enumerate(places.sessions) if session is not None]
    if turns:
        order, starts = _in_order(places, turns)
        whole[order] = _with_context(
            counts[:, order], lengths[order], own[order], starts,
            np.asarray([places.positions[n] for n in order]), idf,
        )  # fmt: skip
    return Weighed(ids=places.ids, own=own, whole=whole, query=query, idf=idf, average=average)


def _in_order(places: Places, turns: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the turns session by session in their order, and where each session starts."""
    numbers: dict[UUID | None, int] = {}
    for n in turns:
        numbers.setdefault(places.sessions[n], len(numbers))
    order = sorted(turns, key=lambda n: (numbers[places.sessions[n]], places.positions[n]))
    starts = [
        at
        for at, n in enumerate(order)
        if at == 0 or places.sessions[n] != places.sessions[order[at - 1]]
    ]
    return order, starts


def _with_context(
    counts: Floats,
    lengths: Floats,
    own: Floats,
    starts: Sequence[int],
    positions: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    idf: Floats,
) -> Floats:
    follows = np.diff(positions) == 1
    # Whoever opens a session follows nobody, and neither does a turn after one that is missing.
    follows[np.asarray(starts[1:], dtype=int) - 1] = False
    window, window_lengths, beside = counts.copy(), lengths.copy(), np.zeros(len(own))
    window[:, 1:] += counts[:, :-1] * follows
    window_lengths[1:] += lengths[:-1] * follows
    beside[1:] += own[:-1] * follows
    beside[:-1] += own[1:] * follows
    paired = scores(window, window_lengths, idf, mean(window_lengths))
    session_lengths = np.add.reduceat(lengths, starts)
    of_session = scores(
        np.add.reduceat(counts, starts, axis=1), session_lengths, idf, mean(session_lengths)
    )
    sizes = np.diff([*starts, len(own)])
    total: Floats = OWN * own + WITH_PREVIOUS * paired + NEIGHBOURS * beside
    total += SESSION * np.repeat(of_session, sizes)
    return total

"""What a turn owes to the conversation around it.

An answer rarely repeats the words of its question, so a turn is scored together with the one
before, and a little for its neighbours and for the session as a whole. What stands alone is its own
window and its own session, so that the two kinds compare.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from noema.memory.bm25 import Counted, average_length, inverse_frequencies, merged, score

OWN: Final = 1.0
WITH_PREVIOUS: Final = 1.0
NEIGHBOURS: Final = 0.25
SESSION: Final = 0.6


class Place(NamedTuple):
    """A candidate, its terms, and where in which session it stands; `session` is None outside."""

    id: UUID
    document: Counted
    session: UUID | None = None
    position: int = 0


class TextScore(NamedTuple):
    """BM25 of the candidate alone, and with what is around it."""

    own: float
    whole: float


@dataclass(frozen=True, slots=True)
class Weighing:
    """The statistics of one search: term weights and mean lengths of its candidates."""

    idf: Mapping[str, float]
    average: float

    def alone(self, document: Counted) -> TextScore:
        """Return the score of a candidate outside any conversation."""
        own = score(document, self.idf, self.average)
        return TextScore(own, own * (OWN + WITH_PREVIOUS + SESSION))


def weigh(query: Sequence[str], places: Sequence[Place]) -> tuple[dict[UUID, TextScore], Weighing]:
    """Return the score of each candidate, and the statistics for any that come later.

    Term weights are those of single candidates at every level: a session holds most words, so
    weights of its own would say nothing.
    """
    documents = [place.document for place in places]
    weighing = Weighing(inverse_frequencies(query, documents), average_length(documents))
    scores = {place.id: weighing.alone(place.document) for place in places if place.session is None}
    sessions: dict[UUID, list[Place]] = {}
    for place in places:
        if place.session is not None:
            sessions.setdefault(place.session, []).append(place)
    if sessions:
        _weigh_turns(list(sessions.values()), weighing, scores)
    return scores, weighing


def _weigh_turns(
    sessions: Sequence[list[Place]], weighing: Weighing, scores: dict[UUID, TextScore]
) -> None:
    for turns in sessions:
        turns.sort(key=lambda turn: turn.position)
    windows = [_windows(turns) for turns in sessions]
    wholes = [merged(turn.document for turn in turns) for turns in sessions]
    in_window = average_length([window for of_session in windows for window in of_session])
    in_session = average_length(wholes)
    for turns, pairs, whole in zip(sessions, windows, wholes, strict=True):
        own = [score(turn.document, weighing.idf, weighing.average) for turn in turns]
        session = SESSION * score(whole, weighing.idf, in_session)
        for at, turn in enumerate(turns):
            beside = sum(own[near] for near in (at - 1, at + 1) if _beside(turns, at, near))
            paired = score(pairs[at], weighing.idf, in_window)
            total = OWN * own[at] + WITH_PREVIOUS * paired + NEIGHBOURS * beside + session
            scores[turn.id] = TextScore(own[at], total)


def _windows(turns: Sequence[Place]) -> list[Counted]:
    return [
        merged((turns[at - 1].document, turn.document))
        if _beside(turns, at, at - 1)
        else turn.document
        for at, turn in enumerate(turns)
    ]


def _beside(turns: Sequence[Place], at: int, near: int) -> bool:
    """Whether there is a turn at `near` and none is missing between the two."""
    return 0 <= near < len(turns) and abs(turns[at].position - turns[near].position) == 1

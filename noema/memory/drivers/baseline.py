"""The driver one has without choosing: both lanes, the conversation around turns, one sum."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from noema.memory.bm25 import average_length, inverse_frequencies, score
from noema.memory.context import Place, TextScore, Weighing, weigh
from noema.memory.drivers.model import Candidate, Query, ScopedView
from noema.memory.fuse import Scored, Signals, fuse

LEAST_LANE: Final = 10
LEAST_POOL: Final = 128
POOL_OF_LANE: Final = 8
MOST_SESSIONS: Final = 64

_A = TypeVar("_A")
_B = TypeVar("_B")


class Baseline:
    """Text and vectors, each fetched with room to spare, then fused with what else is known."""

    name: Final = "baseline"

    async def plan(self, view: ScopedView, query: Query) -> list[Scored]:
        lane = max(2 * query.k, LEAST_LANE)
        pool, near = await _both(
            view.text(pool=max(POOL_OF_LANE * lane, LEAST_POOL)), view.nearest(limit=lane)
        )
        scores, weighing = weigh(query.terms, await _with_turns(view, query, pool))
        by_text = _best(scores, lane)
        cosines = dict(near)
        ids = list(dict.fromkeys([*by_text, *cosines]))
        if not ids and not query.terms and query.vector_weight is None:
            ids = await view.newest(limit=query.k)
        found = await view.candidates(
            ids,
            uncounted=[id_ for id_ in ids if id_ not in scores],
            unmeasured=[id_ for id_ in ids if id_ not in cosines],
        )
        signals = [_signals(c, scores, weighing, cosines) for c in found.values()]
        return fuse(signals, k=query.k, now=query.now, vector_weight=query.vector_weight)


async def _both(first: Coroutine[Any, Any, _A], second: Coroutine[Any, Any, _B]) -> tuple[_A, _B]:
    """Run both lanes at once; raise the first error as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(first)
            two = group.create_task(second)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return one.result(), two.result()


async def _with_turns(view: ScopedView, query: Query, places: Sequence[Place]) -> Sequence[Place]:
    """Return the candidates and, where some are turns, the turns of their sessions."""
    turns = [place for place in places if place.session is not None]
    if not turns:
        return places
    documents = [place.document for place in places]
    idf, average = inverse_frequencies(query.terms, documents), average_length(documents)
    best: dict[UUID, float] = {}
    for turn in turns:
        worth = score(turn.document, idf, average)
        if turn.session is not None and worth > best.get(turn.session, -1.0):
            best[turn.session] = worth
    sessions = sorted(best, key=lambda session: (-best[session], session))[:MOST_SESSIONS]
    around = await view.around(sessions)
    every = {place.id: place for place in places} | {place.id: place for place in around}
    return list(every.values())


def _best(scores: Mapping[UUID, TextScore], lane: int) -> list[UUID]:
    found = sorted((-text.whole, id_) for id_, text in scores.items() if text.whole > 0)
    return [id_ for _, id_ in found[:lane]]


def _signals(
    c: Candidate,
    scores: Mapping[UUID, TextScore],
    weighing: Weighing,
    cosines: Mapping[UUID, float],
) -> Signals:
    text = scores.get(c.id)
    if text is None:
        text = TextScore(0.0, 0.0) if c.document is None else weighing.alone(c.document)
    return Signals(
        c.id,
        text.whole,
        text.own,
        cosines.get(c.id, c.cosine),
        c.at,
        c.importance,
        c.activation,
        c.nearness,
    )

"""The driver one has without choosing: both lanes, the conversation around turns, one sum."""

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from noema.memory.context import Places, Weighed, weigh
from noema.memory.drivers.model import Candidate, Query, ScopedView
from noema.memory.fuse import Scored, Signals, fuse

LEAST_LANE: Final = 10
LEAST_POOL: Final = 128
POOL_OF_LANE: Final = 8
MOST_SESSIONS: Final = 64


class Baseline:
    """Text and vectors, each fetched with room to spare, then fused with what else is known."""

    name: Final = "baseline"

    async def plan(self, view: ScopedView, query: Query) -> list[Scored]:
        lane = max(2 * query.k, LEAST_LANE)
        lanes = await view.lanes(pool=max(POOL_OF_LANE * lane, LEAST_POOL), limit=lane)
        weighed = weigh(query.terms, await _with_turns(view, query, lanes.text))
        ids = list(dict.fromkeys([*weighed.best(lane), *lanes.nearest]))
        if not ids and not query.terms and query.vector_weight is None:
            ids = await view.newest(limit=query.k)
        where = {id_: n for n, id_ in enumerate(weighed.ids)}
        found = await view.candidates(
            ids,
            uncounted=[id_ for id_ in ids if id_ not in where],
            unmeasured=[id_ for id_ in ids if id_ not in lanes.cosines],
        )
        signals = _signals(found.values(), weighed, where, lanes.cosines)
        return fuse(signals, k=query.k, now=query.now, vector_weight=query.vector_weight)


async def _with_turns(view: ScopedView, query: Query, pool: Places) -> Places:
    """Return the candidates and, where some are turns, the turns of their sessions."""
    if not any(pool.sessions):
        return pool
    weighed = weigh(query.terms, pool)
    best: dict[UUID, float] = {}
    for session, worth in zip(pool.sessions, weighed.own.tolist(), strict=True):
        if session is not None and worth > best.get(session, -1.0):
            best[session] = worth
    sessions = sorted(best, key=lambda session: (-best[session], session))[:MOST_SESSIONS]
    return pool.beside(await view.around(sessions))


def _signals(
    found: Collection[Candidate],
    weighed: Weighed,
    where: Mapping[UUID, int],
    cosines: Mapping[UUID, float],
) -> list[Signals]:
    late = [c for c in found if c.id not in where]
    own, whole = weighed.alone([c.terms or "" for c in late], [c.length for c in late])
    of_late = {
        c.id: both
        for c, both in zip(late, zip(own.tolist(), whole.tolist(), strict=True), strict=True)
    }
    signals = []
    for c in found:
        at = where.get(c.id)
        alone, around = (
            of_late[c.id] if at is None else (float(weighed.own[at]), float(weighed.whole[at]))
        )
        signals.append(
            Signals(
                c.id,
                around,
                alone,
                cosines.get(c.id, c.cosine),
                c.at,
                c.importance,
                c.activation,
                c.nearness,
            )
        )
    return signals

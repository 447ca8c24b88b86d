"""The boundary of a retriever: what it is asked, all that it may look at, and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from noema.memory.context import Places
from noema.memory.fuse import Scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One search. `terms` are distinct; `vector_weight` is None where there is no vector."""

    text: str
    terms: Sequence[str]
    k: int
    now: datetime
    vector_weight: float | None


class Candidate(NamedTuple):
    """What ranking needs of a row.

    `terms` and `cosine` are there where they were asked for; `cosine` not where the row has no
    vector. `length` is how many terms there are in all.
    """

    id: UUID
    at: datetime
    importance: int
    activation: int
    nearness: int
    terms: str | None
    length: int
    cosine: float | None


class Lanes(NamedTuple):
    """What both lanes found.

    `nearest` is empty without a vector; `cosines` are those of its rows, and of others where they
    are known by the way.
    """

    text: Places
    nearest: Sequence[UUID]
    cosines: Mapping[UUID, float]


class ScopedView(Protocol):
    """One caller's memories as one query may see them: a driver's entire world.

    Every method filters before it limits, and returns nothing outside the caller's scope.
    """

    async def lanes(self, *, pool: int, limit: int) -> Lanes:
        """Return at most `pool` rows that have terms of the query, and the `limit` nearest."""
        ...

    async def around(self, sessions: Sequence[UUID]) -> Places:
        """Return the turns of the sessions, as far as a bound goes, the first sessions first."""
        ...

    async def newest(self, *, limit: int) -> list[UUID]:
        """Return the rows told last, newest first."""
        ...

    async def candidates(
        self,
        ids: Sequence[UUID],
        *,
        uncounted: Sequence[UUID] = (),
        unmeasured: Sequence[UUID] = (),
    ) -> Mapping[UUID, Candidate]:
        """Return those still there, with terms of the `uncounted`, cosines of the `unmeasured`."""
        ...


class RetrieverDriver(Protocol):
    """A way to rank. It reads through the view, and nothing else."""

    @property
    def name(self) -> str: ...

    async def plan(self, view: ScopedView, query: Query) -> list[Scored]:
        """Return at most `k` rows, best first."""
        ...

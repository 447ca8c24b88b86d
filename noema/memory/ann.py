"""The keeper of approximate indexes: builds and extends them away from the write path.

A row that is written has no approximate index to wait for; it is `fresh` and compared with every
query. Where a model has so many rows that comparing all is slow, the keeper settles them, in small
batches or, where there is much to settle, before the index is built at once; and it builds indexes
of their own for namespaces that are large by themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from noema.core.clock import Clock
from noema.core.errors import Unavailable
from noema.db.pgvector import Vectors
from noema.db.tx import Conn, single
from noema.memory.store import ann as store
from noema.memory.vectors import INDEX_PREFIX, index_name

log = structlog.get_logger(__name__)

INDEX_FROM: Final = 10_000
"""So many rows of a model are worth an index."""

OWN_FROM: Final = 20_000
"""So many rows of one namespace are worth an index of its own, beside others."""

SETTLE_FROM: Final = 1_000
_OWN_SHARE: Final = 0.9
_MOST_OWN: Final = 64
_BATCH: Final = 500
_EVERY_S: Final = 20.0
_LONGEST_WAIT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """From how many rows on the keeper acts; smaller in tests."""

    index_from: int = INDEX_FROM
    own_from: int = OWN_FROM
    settle_from: int = SETTLE_FROM


@dataclass(frozen=True, slots=True)
class _Index:
    name: str
    model: str
    dims: int
    namespace: str | None


class AnnKeeper:
    """Keeps the indexes of one database; of several daemons one does at a time."""

    def __init__(
        self, owner_dsn: str, *, vectors: Vectors, clock: Clock, bounds: Bounds | None = None
    ) -> None:
        self._owner_dsn = owner_dsn
        self._vectors = vectors
        self._clock = clock
        self._bounds = bounds or Bounds()

    async def run(self) -> None:
        """Keep them for ever; where the database is away, wait longer each time, to ten minutes."""
        wait = _EVERY_S
        while True:
            try:
                await self.once()
                wait = _EVERY_S
            except Unavailable as exc:
                wait = min(2 * wait, _LONGEST_WAIT_S)
                log.warning("ann_keeper_waits", seconds=wait, reason=str(exc))
            await self._clock.sleep(wait)

    async def once(self) -> int:
        """Do all there is to do; return how many rows were settled and indexes made or dropped.

        Raises Unavailable where the database is.
        """
        if not self._vectors.has_iterative_scan:
            return 0
        async with single(self._owner_dsn) as conn:
            if not await store.take(conn):
                return 0
            try:
                return await self._keep(conn)
            finally:
                await store.give_back(conn)

    async def _keep(self, conn: Conn) -> int:
        shelves = await store.shelves(conn)
        wanted = self._wanted(shelves)
        existing = await store.existing(conn, INDEX_PREFIX)
        unwanted = [name for name, valid in existing.items() if name not in wanted or not valid]
        await store.drop(conn, unwanted)
        there = {name for name, valid in existing.items() if valid} - set(unwanted)
        done = len(unwanted)
        for model in sorted({index.model for index in wanted.values()}):
            of_model = [index for index in wanted.values() if index.model == model]
            fresh = sum(shelf.fresh for shelf in shelves if shelf.model == model)
            settled = sum(shelf.settled for shelf in shelves if shelf.model == model)
            present = [index.name for index in of_model if index.name in there]
            if present and fresh > max(settled, self._bounds.index_from):
                # Row by row this would take longer than building it again.
                await store.drop(conn, present)
                there -= set(present)
                done += len(present)
            is_due = fresh >= self._bounds.settle_from or (not present and fresh > 0)
            if is_due:
                done += await self._settle(conn, model)
            for index in of_model:
                if index.name not in there:
                    log.info("ann_index_building", model=model, namespace=index.namespace)
                    await store.create(
                        conn, index.name, model=model, dims=index.dims, namespace=index.namespace
                    )
                    done += 1
        return done

    async def _settle(self, conn: Conn, model: str) -> int:
        total = 0
        while moved := await store.settle(conn, model, limit=_BATCH):
            total += moved
        return total

    def _wanted(self, shelves: Sequence[store.Shelf]) -> dict[str, _Index]:
        wanted: dict[str, _Index] = {}
        for model, dims in sorted({(shelf.model, shelf.dims) for shelf in shelves}):
            of_model = [shelf for shelf in shelves if shelf.model == model]
            total = sum(shelf.fresh + shelf.settled for shelf in of_model)
            if total < self._bounds.index_from:
                continue
            wanted[index_name(model)] = _Index(index_name(model), model, dims, None)
            large = sorted(
                of_model, key=lambda shelf: (-shelf.fresh - shelf.settled, shelf.namespace)
            )
            for shelf in large[:_MOST_OWN]:
                rows = shelf.fresh + shelf.settled
                if self._bounds.own_from <= rows < _OWN_SHARE * total:
                    name = index_name(model, shelf.namespace)
                    wanted[name] = _Index(name, model, dims, shelf.namespace)
        return wanted

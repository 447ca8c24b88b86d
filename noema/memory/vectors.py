"""The vector lane: which rows are nearest to a vector, of those that may be seen.

An approximate index under a filter finds too few rows, or the wrong ones, where the filter leaves
little; comparing everything is quick as long as that is little, about 3 µs a row. So the way is
chosen by how many rows the caller sees:

    few                                every one compared
    many, in namespaces that have
    an index of their own              those indexes, and what is beside them compared
    a fair share of all                the model's index, searched on until enough rows pass
    many, and none of these            every one compared

Whatever an index returns is checked: where it found fewer rows than were asked for, though more are
there, every one is compared after all.
"""

import heapq
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import numpy as np

from noema.core.clock import Clock
from noema.db.pgvector import Vectors
from noema.db.tx import Conn, Database
from noema.memory.store import search as store
from noema.memory.store.search import Fence, Wanted

EXACT_BELOW: Final = 3_000
SHARE_OF_INDEX: Final = 0.08
"""Below this share of an index's rows it is passed by: most of what it finds would be filtered."""

INDEX_PREFIX: Final = "memory_embeddings_ann_"
_COUNTED_TO: Final = 50_000
_SIZES_LAST_S: Final = 30.0
_INDEXES_LAST_S: Final = 10.0
_CACHED: Final = 20_000
_SCOPES: Final = 1_000
_AT_ONCE: Final = 2_000
# Binary form of real[]: five numbers of four bytes, then length and value of each element.
_ARRAY_HEADER: Final = 20
_ARRAY_ELEMENT: Final = 8

Near: TypeAlias = tuple[UUID, float]


def index_name(model: str, namespace: str | None = None) -> str:
    """Return what the approximate index of a model, or of one namespace in it, is called."""
    named = model if namespace is None else f"{model}\0{namespace}"
    digest = blake2b(named.encode("utf-8", errors="surrogatepass"), digest_size=12)
    return INDEX_PREFIX + digest.hexdigest()


class _Known(NamedTuple):
    value: int
    until: float


class Sizes:
    """How many rows there are: of namespaces and of indexes, asked for anew after a while.

    They decide how a search goes about it, never what it finds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._namespaces: dict[str, _Known] = {}
        self._scopes: dict[tuple[str, ...], tuple[float, dict[str, int], int]] = {}
        self._indexes: dict[str, _Known] = {}

    async def of_namespaces(
        self, db: Database, namespaces: tuple[str, ...]
    ) -> tuple[dict[str, int], int]:
        """Return how many memories each has, closed ones too, counted to 50,000; and the sum."""
        now = self._clock.monotonic()
        scope = self._scopes.get(namespaces)
        if scope is not None and scope[0] > now:
            return scope[1], scope[2]
        asked = [name for name in namespaces if not _is_known(self._namespaces, name, now)]
        if asked:
            async with db.statements() as tx:
                found = await store.sizes(tx.conn, asked, _COUNTED_TO)
            _keep(self._namespaces, asked, found, now + _SIZES_LAST_S)
        known = [self._namespaces.get(name, _Known(0, now)) for name in namespaces]
        sizes = {name: max(0, at.value) for name, at in zip(namespaces, known, strict=True)}
        total = sum(sizes.values())
        if len(self._scopes) >= _SCOPES:
            self._scopes.clear()
        self._scopes[namespaces] = min(at.until for at in known), sizes, total
        return sizes, total

    async def of_indexes(self, conn: Conn, names: Sequence[str]) -> dict[str, int]:
        """Return the rows of those indexes that exist."""
        now = self._clock.monotonic()
        asked = [name for name in names if not _is_known(self._indexes, name, now)]
        if asked:
            found = await store.indexes(conn, asked)
            _keep(self._indexes, asked, found, now + _INDEXES_LAST_S)
        known = {name: self._indexes.get(name, _Known(-1, now)).value for name in names}
        return {name: rows for name, rows in known.items() if rows >= 0}


def _is_known(cache: dict[str, _Known], name: str, now: float) -> bool:
    known = cache.get(name)
    return known is not None and known.until > now


def _keep(
    cache: dict[str, _Known], asked: Sequence[str], found: dict[str, int], until: float
) -> None:
    if len(cache) > _CACHED:
        cache.clear()
    for name in asked:
        cache[name] = _Known(found.get(name, -1), until)


class VectorLane:
    """Finds the nearest rows in whichever way is right for the caller."""

    def __init__(self, *, vectors: Vectors, sizes: Sizes) -> None:
        self._vectors = vectors
        self._sizes = sizes

    async def search(self, db: Database, fence: Fence, wanted: Wanted) -> list[Near]:
        """Return id and cosine of the `limit` nearest, nearest first.

        Vectors of another model, or of another length, are never looked at.
        """
        sizes, visible = await self._sizes.of_namespaces(db, fence.namespaces)
        async with db.statements() as tx:
            if self._vectors.kind == "array":
                return await _here(tx.conn, fence, wanted)
            rows = None
            if visible > EXACT_BELOW and fence.is_plain and self._vectors.has_iterative_scan:
                rows = await self._by_index(tx.conn, fence, wanted, sizes, visible)
            if rows is None:
                rows = await store.exact(tx.conn, fence, wanted)
        near = {row["id"]: row["cosine"] for row in rows}
        return sorted(near.items(), key=_rank)[: wanted.limit]

    @property
    def measures_rows(self) -> bool:
        """Whether the server can tell the cosine of a row it hands out anyway."""
        return self._vectors.kind == "pgvector"

    async def measure(self, conn: Conn, ids: Sequence[UUID], wanted: Wanted) -> dict[UUID, float]:
        """Return the cosines of rows that have passed the fence, where the server cannot."""
        rows = await store.vectors_of(conn, ids, wanted.model)
        return dict(_cosines(rows, np.asarray(wanted.vector, dtype=np.float32)))

    async def _by_index(
        self,
        conn: Conn,
        fence: Fence,
        wanted: Wanted,
        sizes: Mapping[str, int],
        visible: int,
    ) -> Sequence[store.Row] | None:
        """Return the nearest by an index; None where none fits, or where it found too few."""
        own = {
            index_name(wanted.model, name): name
            for name, size in sizes.items()
            if size > EXACT_BELOW
        }
        whole = index_name(wanted.model)
        there = await self._sizes.of_indexes(conn, [whole, *own])
        indexed = [name for index, name in own.items() if index in there]
        if indexed and visible - sum(sizes[name] for name in indexed) <= EXACT_BELOW:
            rows = await store.nearest_in(conn, fence, wanted, indexed)
        elif whole in there and visible >= SHARE_OF_INDEX * there[whole]:
            rows = await store.nearest(conn, fence, wanted)
        else:
            return None
        is_short = len({row["id"] for row in rows}) < wanted.limit
        return None if is_short else rows


async def _here(conn: Conn, fence: Fence, wanted: Wanted) -> list[Near]:
    """Compare every visible row in this process, a bounded number at a time."""
    query = np.asarray(wanted.vector, dtype=np.float32)
    best: list[Near] = []
    async with conn.transaction(readonly=True):
        async for rows in store.vectors(conn, fence, wanted.model, at_once=_AT_ONCE):
            best = heapq.nsmallest(wanted.limit, [*best, *_cosines(rows, query)], key=_rank)
    return best


def _cosines(
    rows: Sequence[store.Row], query: "np.ndarray[tuple[int], np.dtype[np.float32]]"
) -> list[Near]:
    size = _ARRAY_HEADER + _ARRAY_ELEMENT * len(query)
    fitting = [row for row in rows if len(row["vector"]) == size]
    if not fitting:
        return []
    data = np.frombuffer(b"".join(row["vector"] for row in fitting), dtype=np.uint8)
    elements = data.reshape(len(fitting), size)[:, _ARRAY_HEADER:].reshape(len(fitting), -1, 8)
    values = np.ascontiguousarray(elements[:, :, 4:]).view(">f4").reshape(len(fitting), -1)
    cosines = values.astype(np.float32) @ query
    return [(row["id"], float(cosine)) for row, cosine in zip(fitting, cosines, strict=True)]


def _rank(near: Near) -> tuple[float, UUID]:
    return -near[1], near[0]

"""The graph of memories and entities: a capped part of it, as far as the caller sees.

One walks from node to node and asks at every step who stands at the other end and is seen; what is
not seen takes no place, and an edge is drawn only where both ends are among the nodes. Entities
that were merged stand at the one that was kept.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from noema.core.canonical import unescape
from noema.core.errors import InvalidInput, NotFound
from noema.db.tx import Database, Tx
from noema.memory.frame import Frame
from noema.memory.model import Edge, Graph, Kind, Node, Scope
from noema.memory.store import graph as store

MOST_NODES: Final = 500
_EDGES_PER_NODE: Final = 6
_STEPS: Final = 4
_AT_ONCE: Final = 25
_LABEL_CHARS: Final = 80


class Graphs:
    """Draws graphs."""

    def __init__(self, *, db: Database) -> None:
        self._db = db

    async def around(
        self,
        frame: Frame,
        *,
        centre: UUID | None = None,
        limit: int = 200,
        kinds: Sequence[Kind] = (),
    ) -> Graph:
        """Return the surroundings of a memory or an entity, or of what is newest, nearest first.

        At most `limit` nodes, 1 to 500; `kinds` leaves memories of these kinds. Raises NotFound
        where there is no such centre for the caller.
        """
        if not 1 <= limit <= MOST_NODES:
            raise InvalidInput(f"limit is a whole number from 1 to {MOST_NODES}.", field="limit")
        async with self._db.reading() as tx:
            walk = _Walk(tx, frame.scope, limit=limit, kinds=[k.value for k in kinds])
            if centre is None:
                await walk.begin_with_newest()
            else:
                frame.target = f"node:{centre}"
                await walk.begin_at(centre)
            await walk.go()
            graph = await walk.drawn()
        frame.detail = f"nodes={len(graph.nodes)} edges={len(graph.edges)}"
        return graph


class _Walk:
    def __init__(self, tx: Tx, scope: Scope, *, limit: int, kinds: list[str]) -> None:
        self._tx = tx
        self._scope = scope
        self._limit = limit
        self._kinds = kinds
        # Whether each is a memory, in the order in which they were met: nearest first.
        self._met: dict[UUID, bool] = {}
        self._frontier: list[UUID] = []
        # Newest memories that have a place only once the walk has left some.
        self._spare: list[UUID] = []
        self._is_capped = False

    async def begin_at(self, centre: UUID) -> None:
        # Of whatever kind the centre is, it is drawn.
        if await store.memories(self._tx.conn, self._scope, [centre], kinds=()):
            self._meet([(centre, True)], {})
            return
        kept = await store.kept(self._tx.conn, self._scope, [centre])
        if centre not in kept:
            raise NotFound("memory or entity", centre)
        self._meet([(centre, False)], kept)

    async def begin_with_newest(self) -> None:
        # Half of the places for what is newest; what that speaks of comes with the first step.
        at_most = max(1, self._limit // 2)
        newest = await store.newest(
            self._tx.conn, self._scope, kinds=self._kinds, limit=self._limit + 1
        )
        found, self._spare = newest[:at_most], newest[at_most:]
        entities = await store.connected(
            self._tx.conn, self._scope, found, limit=max(1, self._limit // 4)
        )
        kept = await store.kept(self._tx.conn, self._scope, entities)
        self._meet([*((i, True) for i in found), *((i, False) for i in entities)], kept)

    async def go(self) -> None:
        await self._walk()
        if self._spare:
            self._meet(((memory, True) for memory in self._spare), {})
            await self._walk()

    async def _walk(self) -> None:
        for _ in range(_STEPS):
            frontier, self._frontier = self._frontier, []
            for start in range(0, len(frontier), _AT_ONCE):
                if self._is_full():
                    break
                await self._step(frontier[start : start + _AT_ONCE])
        # Where nodes were not asked any more, there may be more.
        self._is_capped |= bool(self._frontier)

    async def _step(self, nodes: Sequence[UUID]) -> None:
        stand_for = await self._with_merged(nodes)
        ends = await store.ends(self._tx.conn, self._scope, stand_for, kinds=self._kinds)
        entities = [i for i, is_memory in ends if not is_memory]
        kept = await store.kept(self._tx.conn, self._scope, entities) if entities else {}
        self._meet(ends, kept)

    async def _with_merged(self, nodes: Iterable[UUID]) -> list[UUID]:
        """Return the nodes, and every entity that one of them stands for."""
        given = list(nodes)
        entities = [i for i in given if not self._met[i]]
        if not entities:
            return given
        merged = await store.merged(self._tx.conn, self._scope, entities)
        return list(dict.fromkeys([*given, *(i for _, i in merged)]))

    def _meet(self, ends: Iterable[tuple[UUID, bool]], kept: dict[UUID, UUID]) -> None:
        for end, is_memory in ends:
            id_ = end if is_memory else kept[end]
            if id_ in self._met:
                continue
            if self._is_full():
                self._is_capped = True
                return
            self._met[id_] = is_memory
            self._frontier.append(id_)

    def _is_full(self) -> bool:
        return len(self._met) >= self._limit

    async def drawn(self) -> Graph:
        """Return what was met, with the edges between."""
        conn, scope = self._tx.conn, self._scope
        spoken_of = [i for i, is_memory in self._met.items() if not is_memory]
        told = [i for i, is_memory in self._met.items() if is_memory]
        memories = await store.memories(conn, scope, told, kinds=())
        entities = await store.entities(conn, scope, spoken_of)
        merged = await store.merged(conn, scope, spoken_of) if spoken_of else []
        stands_at = {i: root for root, i in merged}
        at_most = _EDGES_PER_NODE * self._limit
        everybody = [*self._met, *stands_at]
        found = await store.edges(conn, scope, list(dict.fromkeys(everybody)), limit=at_most + 1)
        self._is_capped |= len(found) > at_most
        strongest: dict[tuple[UUID, UUID, str], int] = {}
        for row in found[:at_most]:
            ends: tuple[UUID, UUID] = row["source"], row["target"]
            source, target = (stands_at.get(end, end) for end in ends)
            if source != target:
                key = (source, target, row["kind"])
                strongest[key] = max(strongest.get(key, 0), row["confidence"])
        weight = Counter(end for source, target, _ in strongest for end in (source, target))
        nodes = {
            **{row["id"]: _memory(row, weight[row["id"]]) for row in memories},
            **{row["id"]: _entity(row, weight[row["id"]]) for row in entities},
        }
        order = [i for i in self._met if i in nodes]
        return Graph(
            nodes=tuple(nodes[i] for i in order),
            edges=tuple(
                Edge(source=source, target=target, kind=kind, confidence=confidence)
                for (source, target, kind), confidence in sorted(strongest.items())
                if source in nodes and target in nodes
            ),
            is_capped=self._is_capped,
        )


def _memory(row: store.Row, weight: int) -> Node:
    text = " ".join(unescape(row["text"]).split())
    is_past = row["status"] == "active" and not row["is_open"]
    state = "past" if is_past else row["status"]
    return Node(
        id=row["id"],
        kind="memory",
        label=text if len(text) <= _LABEL_CHARS else text[: _LABEL_CHARS - 1] + "…",
        namespace=row["namespace"],
        detail=row["kind"] if state == "active" else f"{row['kind']}, {state}",
        weight=weight,
    )


def _entity(row: store.Row, weight: int) -> Node:
    return Node(
        id=row["id"],
        kind="entity",
        label=unescape(row["name"]),
        namespace=row["namespace"],
        detail=row["kind"],
        weight=weight,
    )

"""mem_search: what answers a query best, of what one identity may read.

    terms ─▶ text lane ─▶ turns around ─┐
    embed ─▶ vector lane ───────────────┴▶ candidates ─▶ fuse ─▶ trim

Both lanes at once, then their candidates; one round trip more where turns of conversations are
among them. Where others are searching as well and little is seen, both lanes are one statement: it
takes a little longer and costs less. Rows are committed ones, each seen at its own statement, so
one that is closed in between is left out.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from noema.core.canonical import escape
from noema.core.clock import Clock
from noema.core.errors import Unavailable
from noema.db.pgvector import Vectors
from noema.db.tx import Conn, Database
from noema.llm.model import Embedder
from noema.memory.analyse import query_terms
from noema.memory.context import NOWHERE, Places
from noema.memory.drivers import BASELINE, DRIVERS
from noema.memory.drivers.model import Candidate, Lanes, Query
from noema.memory.fuse import Scored, tokens, trim
from noema.memory.mentions import mentions, normal_name
from noema.memory.model import Hit, Memory, Scope, Search, SearchResult
from noema.memory.scope import aware
from noema.memory.scope import fence as check_scope
from noema.memory.store import search as store
from noema.memory.store.rows import memory_of
from noema.memory.store.search import Fence, Row, Wanted
from noema.memory.tsquery import Frequencies, Plan, any_of, fence, plan
from noema.memory.vectors import Sizes, VectorLane

SESSION_SETTINGS: Final = store.SESSION_SETTINGS
"""What the connections of a search are set to; `noema.db.tx.connect(settings=…)` takes them."""

TEXT_ONLY: Final = "bm25-degraded"
FEW: Final = 1_500
"""Up to so many visible rows the text lane looks at each of them."""

_FREQUENCIES_LAST_S: Final = 60.0
_QUERY_CHARS: Final = 8_192
_NAME_WORDS: Final = 4
_WORDS: Final = 48
_MOST_TURNS: Final = 4_000

_A = TypeVar("_A")
_B = TypeVar("_B")


class Retriever:
    """Searches; `db` is a pool of its own whose sessions have `SESSION_SETTINGS`.

    `embeds_outside` says that the embedder is a service outside of this daemon: a query that is
    sensitive is not shown to it.
    """

    def __init__(
        self, *, db: Database, vectors: Vectors, clock: Clock, embeds_outside: bool = False
    ) -> None:
        self._db = db
        self._embeds_outside = embeds_outside
        self._clock = clock
        self._sizes = Sizes(clock)
        self._lane = VectorLane(vectors=vectors, sizes=self._sizes)
        self._frequencies = Frequencies({})
        self._frequencies_until = float("-inf")
        self._running = 0

    async def search(
        self,
        scope: Scope,
        request: Search,
        *,
        now: datetime,
        embedder: Embedder | None,
        driver: str = BASELINE.name,
    ) -> SearchResult:
        """Return at most `k` hits, best first, within the token budget.

        Where the embedder fails only text is searched, and the result says so; a driver nobody
        knows is replaced by the baseline, which it says too. Raises Unavailable where the database
        is, InvalidInput on a moment without a time zone.
        """
        check_scope(scope)
        degraded = []
        vector = None
        name = driver if driver in DRIVERS else BASELINE.name
        if name != driver:
            degraded.append(f"driver_fallback={driver}->{name}")
        if embedder is not None and request.sensitive and self._embeds_outside:
            degraded.append("a sensitive query is not sent to the embedder, text only")
            name = TEXT_ONLY
        elif embedder is not None:
            try:
                vector = await _embedded(embedder, request.query)
            except Unavailable:
                degraded.append("embedder unavailable, text only")
                name = TEXT_ONLY
        view = await self._view(scope, request, vector, embedder)
        query = Query(
            text=request.query,
            terms=view.plan.terms,
            k=request.k,
            now=now,
            vector_weight=None if vector is None or embedder is None else embedder.weight,
        )
        self._running += 1
        try:
            ranked = await DRIVERS.get(name, BASELINE).plan(view, query)
        finally:
            self._running -= 1
        hits = view.hits(ranked, is_explained=request.explain)
        costs = [tokens(hit.memory.text) for hit in hits]
        kept = trim(costs, request.token_budget)
        return SearchResult(
            hits=tuple(hits[place] for place in kept),
            driver=name,
            degraded="; ".join(degraded) or None,
            tokens=sum(costs[place] for place in kept),
            trimmed=len(hits) - len(kept),
        )

    async def _view(
        self,
        scope: Scope,
        request: Search,
        vector: list[float] | None,
        embedder: Embedder | None,
    ) -> "View":
        terms = query_terms(request.query[:_QUERY_CHARS])
        chosen, visible = _NO_TERMS, 0
        if terms:
            _, visible = await self._sizes.of_namespaces(self._db, scope.namespaces)
            chosen = plan(terms, await self._known(), visible + len(scope.memories))
        return View(
            db=self._db,
            lane=self._lane,
            scope=scope,
            fence=Fence(
                namespaces=scope.namespaces,
                memories=scope.memories,
                kinds=[kind.value for kind in request.kinds] or None,
                is_past=not request.valid_only,
                as_of=aware(request.as_of, "as_of"),
            ),
            plan=chosen,
            is_few=visible <= FEW,
            names=_names(request.query[:_QUERY_CHARS]),
            vector=vector,
            model="" if embedder is None else embedder.model,
            is_busy=lambda: self._running > 1,
        )

    async def _known(self) -> Frequencies:
        now = self._clock.monotonic()
        if now >= self._frequencies_until:
            self._frequencies_until = now + _FREQUENCIES_LAST_S
            async with self._db.statements() as tx:
                self._frequencies = await store.frequencies(tx.conn)
        return self._frequencies


_NO_TERMS: Final = Plan("", None, (), (), ())


class View:
    """A `ScopedView`; a statement has a connection only while it runs, so that lanes may meet."""

    def __init__(
        self,
        *,
        db: Database,
        lane: VectorLane,
        scope: Scope,
        fence: Fence,
        plan: Plan,
        is_few: bool,
        names: Sequence[str],
        vector: list[float] | None,
        model: str,
        is_busy: Callable[[], bool],
    ) -> None:
        self.plan = plan
        self._db = db
        self._lane = lane
        self._scope = scope
        self._fence = fence
        self._names = names
        self._is_few = is_few
        self._wanted = None if vector is None else Wanted(vector, model, 0)
        self._is_busy = is_busy
        self._found: dict[UUID, Row] = {}

    async def lanes(self, *, pool: int, limit: int) -> Lanes:
        wanted = self._wanted = None if self._wanted is None else replace(self._wanted, limit=limit)
        if wanted is None:
            return Lanes(await self._text(pool), (), {})
        if not self.plan.terms:
            near = await self._lane.search(self._db, self._fence, wanted)
            return Lanes(NOWHERE, [id_ for id_, _ in near], dict(near))
        if self._is_busy() and self._is_few and self._lane.measures_rows and self._fence.is_plain:
            return await self._in_one(wanted, pool)
        text, near = await _both(self._text(pool), self._lane.search(self._db, self._fence, wanted))
        return Lanes(text, [id_ for id_, _ in near], dict(near))

    async def _in_one(self, wanted: Wanted, pool: int) -> Lanes:
        async with self._db.statements() as tx:
            rows = await store.lanes(
                tx.conn, self._fence, self.plan.strict, self.plan, wanted, pool=pool
            )
        matching = [row[:5] for row in rows if row[4] is not None]
        near = [row[0] for row in rows if row[4] is None]
        cosines = {row[0]: row[5] for row in rows if row[5] is not None}
        return Lanes(self._places(matching), near, cosines)

    async def _text(self, pool: int) -> Places:
        async with self._db.statements() as tx:
            rows = await self._matching(tx.conn, self.plan.strict, pool) if self.plan.terms else []
            if self.plan.loose is not None and len(rows) < pool:
                rows = await self._matching(tx.conn, self.plan.loose, pool)
        return self._places(rows)

    async def _matching(self, conn: Conn, terms: str, pool: int) -> list[Row]:
        asked = fence(self._fence.namespaces) + terms
        return await store.text(
            conn, self._fence, asked, terms, self.plan, pool=pool, is_few=self._is_few
        )

    async def around(self, sessions: Sequence[UUID]) -> Places:
        terms = any_of(self.plan.terms)
        async with self._db.statements() as tx:
            rows = await store.sessions(
                tx.conn, self._fence, sessions, self.plan, terms, most=_MOST_TURNS
            )
        return self._places(rows)

    async def newest(self, *, limit: int) -> list[UUID]:
        async with self._db.statements() as tx:
            return await store.newest(tx.conn, self._fence, limit=limit)

    async def candidates(
        self,
        ids: Sequence[UUID],
        *,
        uncounted: Sequence[UUID] = (),
        unmeasured: Sequence[UUID] = (),
    ) -> Mapping[UUID, Candidate]:
        if not ids:
            return {}
        wanted = self._wanted
        measured: Mapping[UUID, float] = {}
        async with self._db.statements() as tx:
            rows = await store.candidates(
                tx.conn,
                self._fence,
                ids,
                terms=self.plan.terms,
                names=self._names,
                uncounted=uncounted,
                unmeasured=unmeasured,
                wanted=wanted if self._lane.measures_rows else None,
            )
            if wanted is not None and unmeasured and not self._lane.measures_rows:
                measured = await self._lane.measure(tx.conn, [row["id"] for row in rows], wanted)
        self._found |= {row["id"]: row for row in rows}
        return {row["id"]: self._candidate(row, measured) for row in rows}

    def hits(self, ranked: Sequence[Scored], *, is_explained: bool) -> list[Hit]:
        """Return the ranked rows as what the caller gets; a driver cannot add others."""
        return [
            Hit(
                memory=self._memory(self._found[scored.id]),
                score=scored.score,
                components=scored.components if is_explained else None,
            )
            for scored in ranked
            if scored.id in self._found
        ]

    def _places(self, rows: Sequence[Iterable[Any]]) -> Places:
        if not rows:
            return NOWHERE
        ids, sessions, positions, lengths, texts = zip(*rows, strict=True)
        return Places(
            ids=ids,
            texts=texts,
            lengths=lengths,
            sessions=sessions,
            positions=[position or 0 for position in positions],
        )

    def _candidate(self, row: Row, measured: Mapping[UUID, float]) -> Candidate:
        id_ = row["id"]
        return Candidate(
            id_,
            row["event_time"] or row["assertion_time"],
            row["importance"],
            row["activation"],
            row["nearness"],
            row["terms"],
            row["length"],
            measured.get(id_, row["cosine"]),
        )

    def _memory(self, row: Row) -> Memory:
        values = dict(row)
        values["content"] = msgspec.json.decode(values["content"])
        return memory_of(values, is_shared=row["namespace"] not in self._scope.own)


async def _both(first: Coroutine[Any, Any, _A], second: Coroutine[Any, Any, _B]) -> tuple[_A, _B]:
    """Run both at once; raise the first error as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(first)
            two = group.create_task(second)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return one.result(), two.result()


async def _embedded(embedder: Embedder, text: str) -> list[float] | None:
    """Return the query's vector; None where it points nowhere."""
    if not text.strip():
        return None
    vector = [float(x) for x in (await embedder.embed([text], purpose="query"))[0]]
    return vector if any(vector) else None


def _names(text: str) -> list[str]:
    """Return what in the query may be a name: groups of one to four words, normalised."""
    words = text.split()[:_WORDS]
    groups = [
        " ".join(words[begin : begin + size])
        for begin in range(len(words))
        for size in range(1, min(_NAME_WORDS, len(words) - begin) + 1)
    ]
    names = [normal_name(group) for group in groups]
    owned = [name[:-2] for name in names if name.endswith(("'s", "’s"))]
    # Scripts without spaces have no words; what is a name there, shows by what stands around it.
    found = [] if text.isascii() else [mention.normal for mention in mentions(text)]
    return [escape(name) for name in dict.fromkeys([*names, *owned, *found]) if name]

"""Vectors of memories: which model is active, and how memories come to have its vectors.

Writers and searches embed through it and go on without where that fails: text search finds what
has no vector yet. In the background every memory gets one of the active model, past ones too, the
newest first. Vectors of other models stay until somebody drops them, and are never compared with
these, since every query of vectors names its model.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

import structlog

from noema.core.clock import Clock
from noema.core.errors import ConfigError, Conflict, InvalidInput, NotFound, Unavailable
from noema.db.tx import Database
from noema.llm.model import Embedder, Purpose
from noema.memory.store import embedding as store

log = structlog.get_logger()

Destination = Literal["local", "provider"]

PATIENCE_S: Final[Mapping[Purpose, float]] = {"query": 5.0, "document": 20.0}
"""How long a search, or a write, waits for its vectors before it goes on without."""

_TAKE: Final = 64
_LOOK_AT: Final = 2_000
_DROP_AT_ONCE: Final = 5_000
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
# A write that got no vector commits within this.
_SETTLE_S: Final = 10.0
# Also without a word from anybody: another process may have died between a write and its vector.
_EVERY_S: Final = 3_600.0
_FAILURES_TOGETHER: Final = 2
_PROBE: Final = "Noema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a model's vectors are complete: `filled` of `wanted` memories have one.

    Where the state is `failing`, `reason` says why; after that the filling goes on by itself.
    """

    model: str
    dims: int
    is_active: bool
    filled: int
    wanted: int
    state: str
    reason: str
    updated_at: datetime


class Embeddings:
    """The active embedder, as an `Embedder` that is never waited for long, and what it still owes.

    Call `start` once, and `run` in a task. `destination` is where texts go that are embedded:
    `provider` unless the model is on this machine. A memory whose label does not allow that gets no
    vector here; who calls `embed` sees to that for what it gives.
    """

    def __init__(
        self,
        *,
        db: Database,
        embedder: Embedder | None,
        destination: Destination,
        clock: Clock,
        patience_s: Mapping[Purpose, float] = PATIENCE_S,
        take: int = _TAKE,
        every_s: float = _EVERY_S,
        settle_s: float = _SETTLE_S,
    ) -> None:
        self._db = db
        self._embedder = embedder
        self._to_provider = destination == "provider"
        self._clock = clock
        self._patience_s = patience_s
        self._take = take
        self._every_s = every_s
        self._settle_s = settle_s
        # The length of its vectors, once it is on record as the active model.
        self._dims: int | None = None
        self._activating = asyncio.Lock()
        self._pending: list[tuple[UUID, str]] = []
        self._failures = 0
        self._skipped = ""
        self._is_due = True
        self._is_sweeping = False
        self._was_resumed = False
        self._missed = asyncio.Event()

    @property
    def model(self) -> str:
        """The name of the active model, empty where there is none."""
        return "" if self._embedder is None else self._embedder.model

    @property
    def dims(self) -> int:
        """The length of the active model's vectors, 0 until it is known."""
        return self._dims or 0

    @property
    def weight(self) -> float:
        return 0.0 if self._embedder is None else self._embedder.weight

    async def start(self) -> None:
        """Make the embedder's model the active one, as soon as its dimensions are known.

        Raises ConfigError where the model is on record with other dimensions.
        """
        if self._embedder is None:
            async with self._db.transaction() as tx:
                await store.deactivate(tx)
            return
        dims = self._embedder.dims
        if not dims:
            async with self._db.reading() as tx:
                dims = await store.dims_of(tx, self._embedder.model) or 0
        if dims:
            await self._activate(self._embedder.model, dims)

    async def embed(self, texts: Sequence[str], *, purpose: Purpose) -> list[Sequence[float]]:
        """Return the texts' vectors; open no transaction around it.

        Raises Unavailable where they do not come soon, or do not fit those on record. Documents
        are embedded in the background then, once they are stored.
        """
        embedder = self._embedder
        if embedder is None:
            raise Unavailable("No embedder is set; see NOEMA_EMBEDDER and the role embed.")
        patience_s = self._patience_s[purpose]
        try:
            async with asyncio.timeout(patience_s):
                return await self._embed(embedder, texts, purpose)
        except TimeoutError:
            reason = f"The embedder did not answer within {patience_s:g} s."
        except (Unavailable, ConfigError) as exc:
            reason = str(exc)
        if purpose == "document":
            self._missed.set()
        raise Unavailable(reason)

    async def run(self) -> None:
        """Fill in what is missing, for ever; survives embedder and database being away."""
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                stored = await self.once()
            except (Unavailable, ConfigError, TimeoutError) as exc:
                log.warning("embedding.failing", reason=str(exc), again_in_s=wait_s)
                await self._say_failing(str(exc))
                await self._clock.sleep(wait_s)
                wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
                continue
            wait_s = _FIRST_WAIT_S
            if stored:
                continue
            if await _wait(self._missed, self._every_s):
                self._missed.clear()
                await self._clock.sleep(self._settle_s)
            self._is_due = True

    async def once(self) -> int:
        """Store vectors of the next few memories that have none; return how many, 0 at the end.

        Raises Unavailable where the embedder or the database is away; the next call goes on there.
        """
        embedder = self._embedder
        if embedder is None:
            return 0
        if self._dims is None:
            await self._embed(embedder, [_PROBE], "document")
        stored = 0
        while not stored:
            if not self._pending and not await self._look(embedder.model):
                return 0
            if self._pending:
                stored = await self._store_pending(embedder)
        return stored

    async def progress(self) -> tuple[Progress, ...]:
        """Return how complete every model's vectors are, the active one's first."""
        async with self._db.reading() as tx:
            rows = await store.models(tx)
        return tuple(
            Progress(
                model=row.model,
                dims=row.dims,
                is_active=row.is_active,
                filled=row.filled,
                wanted=row.wanted,
                state=row.state,
                reason=row.reason,
                updated_at=row.updated_at,
            )
            for row in rows
        )

    async def drop(self, model: str) -> int:
        """Delete an old model's vectors; return how many there were.

        Raises Conflict for the active model, NotFound for one that was never used.
        """
        async with self._db.reading() as tx:
            row = next((row for row in await store.models(tx) if row.model == model), None)
        if row is None:
            raise NotFound("embedding model", model)
        if row.is_active or model == self.model:
            raise Conflict(
                f"{model} is the active embedding model, and searches need its vectors. "
                "Set another first, with the role embed or NOEMA_EMBEDDER."
            )
        dropped = 0
        while True:
            async with self._db.transaction() as tx:
                some = await store.drop_some(tx, model, _DROP_AT_ONCE)
                if not some:
                    await store.forget(tx, model)
                    return dropped
            dropped += some

    async def _embed(
        self, embedder: Embedder, texts: Sequence[str], purpose: Purpose
    ) -> list[Sequence[float]]:
        if not texts:
            return []
        vectors = await embedder.embed(texts, purpose=purpose)
        dims = len(vectors[0]) if vectors else 0
        if self._dims is None:
            await self._activate(embedder.model, dims)
        if len(vectors) != len(texts) or any(len(vector) != self._dims for vector in vectors):
            raise Unavailable(
                f"The embedder answered vectors of {dims} dimensions, and those of "
                f"{embedder.model} have {self._dims}. They are not mixed: check the embedder, "
                "or give the new model another name."
            )
        return vectors

    async def _activate(self, model: str, dims: int) -> None:
        async with self._activating:
            if self._dims is not None:
                return
            async with self._db.transaction() as tx:
                known = await store.activate(tx, model, dims)
            if known != dims:
                raise ConfigError(
                    f"The embedding model {model} makes vectors of {dims} dimensions, and those "
                    f"on record under that name have {known}. Set the dimensions back, give the "
                    "new model another name, or drop the old one's vectors."
                )
            self._dims = dims

    async def _look(self, model: str) -> bool:
        """Find the next memories without a vector; False where a look at all of them is over."""
        if not self._is_due:
            return False
        if not self._is_sweeping:
            async with self._db.transaction() as tx:
                begun = await store.count(tx, model, to_provider=self._to_provider, state="filling")
            self._is_sweeping, self._was_resumed = True, begun is not None
        async with self._db.transaction() as tx:
            page = await store.claim(
                tx, model, look_at=_LOOK_AT, take=self._take, to_provider=self._to_provider
            )
        self._pending = list(page.missing)
        if page.end is None:
            await self._end_sweep(model)
        return True

    async def _end_sweep(self, model: str) -> None:
        async with self._db.transaction() as tx:
            await store.count(
                tx, model, to_provider=self._to_provider, state="idle", reason=self._skipped
            )
        self._is_sweeping = False
        # One that went on where an earlier process stopped has not seen what is above, nor what
        # that process had taken and not stored.
        self._is_due = self._was_resumed
        self._was_resumed = False
        self._skipped = ""

    async def _store_pending(self, embedder: Embedder) -> int:
        if self._failures >= _FAILURES_TOGETHER:
            return await self._one_by_one(embedder)
        try:
            vectors = await self._embed(embedder, [text for _, text in self._pending], "document")
        except Unavailable:
            self._failures += 1
            raise
        ids = [memory for memory, _ in self._pending]
        stored = await self._store(embedder.model, list(zip(ids, vectors, strict=True)))
        self._pending, self._failures = [], 0
        return stored

    async def _one_by_one(self, embedder: Embedder) -> int:
        """Embed each pending text alone, and leave out what alone makes the embedder fail.

        A harmless text tells whether it is the embedder that fails: then Unavailable goes on.
        """
        await self._embed(embedder, [_PROBE], "document")
        stored = 0
        while self._pending:
            memory, text = self._pending[0]
            try:
                vectors = await self._embed(embedder, [text], "document")
            except Unavailable as exc:
                await self._embed(embedder, [_PROBE], "document")
                self._skipped = f"Memory {memory} and perhaps others got no vector: {exc}"
                log.warning("embedding.skipped", memory=str(memory), reason=str(exc))
            else:
                stored += await self._store(embedder.model, [(memory, vectors[0])])
            self._pending.pop(0)
        self._failures = 0
        return stored

    async def _store(self, model: str, vectors: list[tuple[UUID, Sequence[float]]]) -> int:
        async with self._db.transaction() as tx:
            return await store.insert(tx, model, self._known_dims(), vectors)

    def _known_dims(self) -> int:
        if self._dims is None:
            raise InvalidInput("No embedding model is active.")
        return self._dims

    async def _say_failing(self, reason: str) -> None:
        if self._embedder is None:
            return
        with suppress(Unavailable, TimeoutError):
            async with self._db.transaction() as tx:
                await store.say(tx, self._embedder.model, "failing", reason)


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    """Return True once the event is set, False when the time is up first."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True

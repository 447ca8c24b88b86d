"""The group-committing writer: many minds, one lock, one call.

The append lock is held through each commit, so on a disk that syncs slowly a commit per cycle would
serialise everything. Instead all that waits is committed together: the more waits, the larger the
batch. While one batch is being committed, the minds that are not in it go on thinking; taking all
of them every time would leave the processor idle during the commit and the server idle during the
thinking. So a batch takes at most a share of those in play, unless commits themselves are slow.

    queued ──take──▶ encode ──call──▶ committed │ lease_lost │ repeated
                                └─connection lost──▶ read again ──▶ committed │ once more
                                └─refused──▶ unit by unit, so that one bad unit harms no other
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import structlog

from noema.core.clock import Clock
from noema.core.errors import IdempotencyReuse, LeaseLost, NoemaError, Unavailable
from noema.db.tx import Conn
from noema.events import store
from noema.events.unit import Receipt, Unit

log = structlog.get_logger()

MAX_ROWS: Final = 5_000
MAX_QUEUED_ROWS: Final = 100_000
_BACKOFF_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)

Connect = Callable[[], AbstractAsyncContextManager[Conn]]


class _Queued:
    __slots__ = ("answer", "unit")

    def __init__(self, unit: Unit, answer: asyncio.Future[Receipt]) -> None:
        self.unit = unit
        self.answer = answer


class Writer:
    """Commits units for everybody in this process, in the order they were submitted.

    `connect` opens a dedicated connection; it is opened anew, with growing pauses, when it is lost.
    """

    def __init__(self, *, connect: Connect, clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._queue: deque[_Queued] = deque()
        self._rows_queued = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closing = False
        self._in_play = 0
        self._asked_at: float | None = None
        self._fixed_s = 0.0
        self._per_unit_s = 0.0
        self.connected = False
        self.units_committed = 0
        self.batches_committed = 0

    @property
    def stalled_s(self) -> float:
        """For how long the commit under way has gone without an answer, in seconds."""
        return 0.0 if self._asked_at is None else self._clock.monotonic() - self._asked_at

    @property
    def queued_units(self) -> int:
        """How many units wait for the writer."""
        return len(self._queue)

    async def submit(self, unit: Unit) -> Receipt:
        """Commit the unit; return once it is durable.

        Raises LeaseLost when its fence is no longer held, IdempotencyReuse when its key came before
        with another body, InvalidInput when an event names a cause that does not exist, Unavailable
        when the writer stops first. A unit is committed once or not at all, whatever is lost on the
        way.
        """
        while self._rows_queued > MAX_QUEUED_ROWS and not self._closing:
            self._room.clear()
            await self._room.wait()
        if self._closing:
            raise Unavailable("Noema is stopping; send it again when it is back.")
        item = _Queued(unit, asyncio.get_running_loop().create_future())
        self._queue.append(item)
        self._rows_queued += len(unit.events)
        self._in_play += 1
        self._arrived.set()
        try:
            # Shielded, because a caller that goes away must not take a committed answer from others.
            return await asyncio.shield(item.answer)
        finally:
            self._in_play -= 1

    async def run(self) -> None:
        """Serve the queue until `stop` was called and everything that waited is committed."""
        failures = 0
        retry: list[_Queued] = []
        while not (self._closing and not self._queue and not retry):
            try:
                async with self._connect() as conn:
                    self.connected = True
                    failures = 0
                    if retry:
                        retry = await self._settle(conn, retry)
                    while True:
                        batch = retry or await self._take()
                        if not batch:
                            return
                        retry = batch
                        await self._commit(conn, batch)
                        retry = []
            except (Unavailable, OSError) as exc:
                self.connected = False
                retry = [item for item in retry if not item.answer.done()]
                log.warning("writer_disconnected", reason=str(exc), waiting=len(self._queue))
                if self._closing and failures >= len(_BACKOFF_S):
                    break
                await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
                failures += 1
        self._abandon(retry)

    def stop(self) -> None:
        """Refuse new units; `run` ends when the waiting ones are committed."""
        self._closing = True
        self._arrived.set()
        self._room.set()

    def _abandon(self, retry: list[_Queued]) -> None:
        for item in (*retry, *self._queue):
            _fail(item, Unavailable("The database went away before this could be kept."))
        self._queue.clear()

    async def _take(self) -> list[_Queued]:
        while not self._queue:
            if self._closing:
                return []
            self._arrived.clear()
            await self._arrived.wait()
        wanted = self._batch_units()
        batch: list[_Queued] = []
        rows = 0
        while self._queue and len(batch) < wanted:
            size = len(self._queue[0].unit.events)
            if batch and rows + size > MAX_ROWS:
                break
            batch.append(self._queue.popleft())
            rows += size
        self._rows_queued -= rows
        if self._rows_queued <= MAX_QUEUED_ROWS:
            self._room.set()
        return batch

    def _batch_units(self) -> int:
        # Half of those in play keeps thinking and committing side by side. Where the fixed price of
        # a commit outweighs what its units cost, waiting for company is cheaper than a second trip.
        if self._fixed_s > self._per_unit_s * max(self._in_play, 1):
            return 10_000
        return max(1, (self._in_play + 1) // 2)

    def _learn(self, units: int, took_s: float) -> None:
        # Two slow averages: what the smallest commits cost is mostly fixed, the rest is per unit.
        fixed = min(took_s, self._fixed_s * 1.02) if self._fixed_s else took_s / 2
        self._fixed_s = fixed
        per_unit = max(took_s - fixed, 0.0) / units
        self._per_unit_s += (per_unit - self._per_unit_s) * 0.1

    async def _commit(self, conn: Conn, batch: list[_Queued]) -> None:
        encoded = store.encode([item.unit for item in batch])
        started = self._asked_at = self._clock.monotonic()
        try:
            answers = await store.commit(conn, encoded)
        except store.Refused as exc:
            if len(batch) == 1:
                await self._refuse(conn, batch[0], exc)
                return
            log.warning("batch_refused", units=len(batch), reason=str(exc.error))
            for item in batch:
                await self._commit(conn, [item])
            return
        finally:
            self._asked_at = None
        self._learn(len(batch), self._clock.monotonic() - started)
        self.batches_committed += 1
        self.units_committed += len(batch)
        for item, answer in zip(batch, answers, strict=True):
            _resolve(item, answer)

    async def _refuse(self, conn: Conn, item: _Queued, refused: store.Refused) -> None:
        # An earlier try whose answer was lost may have been committed after we looked.
        if refused.is_duplicate and await store.committed(conn, [item.unit.events[0].id]):
            _resolve(item, store.UnitAnswer("committed", None))
        else:
            _fail(item, refused.error)

    async def _settle(self, conn: Conn, batch: list[_Queued]) -> list[_Queued]:
        # The connection broke in mid-call: what stands in the log was committed, the rest was not.
        present = await store.committed(conn, [item.unit.events[0].id for item in batch])
        unsettled = []
        for item in batch:
            if item.unit.events[0].id in present:
                _resolve(item, store.UnitAnswer("committed", None))
            else:
                unsettled.append(item)
        log.info(
            "unknown_commit_settled", committed=len(batch) - len(unsettled), again=len(unsettled)
        )
        return unsettled


def _resolve(item: _Queued, answer: store.UnitAnswer) -> None:
    if answer.outcome == "lease_lost":
        _fail(item, LeaseLost("Another daemon runs this mind now; its cycle here was refused."))
    elif answer.outcome == "key_reused":
        _fail(item, IdempotencyReuse(store.KEY_REUSED))
    elif not item.answer.done():
        item.answer.set_result(Receipt(repeated=answer.answer))


def _fail(item: _Queued, error: NoemaError) -> None:
    if not item.answer.done():
        item.answer.set_exception(error)
        # A caller that has gone away leaves nobody to look at the error.
        item.answer.exception()


@asynccontextmanager
async def running(writer: Writer) -> AsyncIterator[Writer]:
    """Run the writer for as long as the block lasts, and let it finish what waits."""
    async with asyncio.TaskGroup() as group:
        group.create_task(writer.run(), name="writer")
        try:
            yield writer
        finally:
            writer.stop()

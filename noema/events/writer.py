"""The group-committing writer: many minds, one lock, one call.

The append lock is held through each commit, so on a disk that syncs slowly a commit per cycle would
serialise everything. Instead what waits is committed together, over two connections: while one
batch is being committed, the next is gathered and sent, and the server has read it by the time the
lock is free. A batch takes at most half of those who take part, so that one half thinks while the
other is committed; all in lockstep would leave the server idle during the thinking and the
processor idle during the commit.

    encoded ──queue──▶ taken ──call──▶ committed │ lease_lost │ repeated
                                 └─connection lost──▶ read again ──▶ committed │ once more
                                 └─refused──▶ unit by unit, so that one bad unit harms no other
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
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
MAX_BYTES: Final = 16 * 1024 * 1024
MAX_QUEUED_ROWS: Final = 100_000
MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024
LANES: Final = 2
_FORGET: Final = 0.98
_BACKOFF_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)

Connect = Callable[[], AbstractAsyncContextManager[Conn]]


class _Queued:
    __slots__ = ("answer", "unit")

    def __init__(self, unit: store.EncodedUnit, answer: asyncio.Future[Receipt]) -> None:
        self.unit = unit
        self.answer = answer


class Writer:
    """Commits units for everybody in this process.

    A caller that awaits each answer before it submits again keeps the order of its units; units of
    different callers have none. `connect` opens a dedicated connection; one that is lost is opened
    anew, with growing pauses.
    """

    def __init__(self, *, connect: Connect, clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._queue: deque[_Queued] = deque()
        self._rows_queued = 0
        self._bytes_queued = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closing = False
        self._lanes_connected = 0
        self._in_flight: list[float] = []
        self._in_play = 0
        self._company = 1.0
        self.units_committed = 0
        self.batches_committed = 0

    @property
    def connected(self) -> bool:
        """Whether there is a connection to commit over."""
        return self._lanes_connected > 0

    @property
    def stalled_s(self) -> float:
        """For how long the oldest commit under way has gone without an answer, in seconds."""
        return self._clock.monotonic() - min(self._in_flight) if self._in_flight else 0.0

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
        # Encoded here and not in the batch: what cannot be encoded is its caller's trouble alone.
        encoded = store.encode(unit)
        while self._is_full and not self._closing:
            self._room.clear()
            await self._room.wait()
        if self._closing:
            raise Unavailable("Noema is stopping; send it again when it is back.")
        item = _Queued(encoded, asyncio.get_running_loop().create_future())
        self._queue.append(item)
        self._rows_queued += encoded.rows
        self._bytes_queued += encoded.size
        self._in_play += 1
        self._changed.set()
        try:
            # Shielded: a caller that goes away must not take the unit out of a batch under way.
            return await asyncio.shield(item.answer)
        finally:
            self._in_play -= 1

    @property
    def _is_full(self) -> bool:
        return self._rows_queued > MAX_QUEUED_ROWS or self._bytes_queued > MAX_QUEUED_BYTES

    async def run(self) -> None:
        """Serve the queue until `stop` was called and everything that waited is committed."""
        async with asyncio.TaskGroup() as group:
            for number in range(LANES):
                group.create_task(self._serve(), name=f"writer lane {number}")
        _abandon(self._queue)
        self._queue.clear()

    def stop(self) -> None:
        """Refuse new units; `run` ends when the waiting ones are committed."""
        self._closing = True
        self._changed.set()
        self._room.set()

    async def _serve(self) -> None:
        failures = 0
        batch: list[_Queued] = []
        while not (self._closing and not self._queue and not batch):
            try:
                async with self._connected() as conn:
                    failures = 0
                    if batch:
                        batch = await self._settle(conn, batch)
                    while batch or (batch := await self._take()):
                        await self._commit_counted(conn, batch)
                        batch = []
                    return
            except (Unavailable, OSError) as exc:
                batch = [item for item in batch if not item.answer.done()]
                log.warning("writer_disconnected", reason=str(exc), waiting=len(self._queue))
                if self._closing and failures >= len(_BACKOFF_S):
                    break
                await self._clock.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
                failures += 1
        _abandon(batch)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Conn]:
        async with self._connect() as conn:
            self._lanes_connected += 1
            try:
                yield conn
            finally:
                self._lanes_connected -= 1

    async def _take(self) -> list[_Queued]:
        """Return the next batch, empty once there is none and will be none."""
        while not self._is_worthwhile:
            if self._closing and not self._queue:
                return []
            self._changed.clear()
            await self._changed.wait()
        most = self._half
        batch: list[_Queued] = []
        rows = size = 0
        while self._queue and len(batch) < most:
            unit = self._queue[0].unit
            if batch and (rows + unit.rows > MAX_ROWS or size + unit.size > MAX_BYTES):
                break
            batch.append(self._queue.popleft())
            rows += unit.rows
            size += unit.size
        self._rows_queued -= rows
        self._bytes_queued -= size
        if not self._is_full:
            self._room.set()
        return batch

    @property
    def _half(self) -> int:
        return (math.ceil(self._company) + 1) // 2

    @property
    def _is_worthwhile(self) -> bool:
        # Behind a batch that is being committed nothing is gained by hurrying: wait for company,
        # but only until the lock is free.
        if not self._queue:
            return False
        return not self._in_flight or len(self._queue) >= self._half

    async def _commit_counted(self, conn: Conn, batch: list[_Queued]) -> None:
        # How many take part: the most at any one time, lately. Those who think are not seen now.
        self._company = max(self._in_play, self._company * _FORGET)
        asked_at = self._clock.monotonic()
        self._in_flight.append(asked_at)
        try:
            await self._commit(conn, batch)
        finally:
            self._in_flight.remove(asked_at)
            self._changed.set()

    async def _commit(self, conn: Conn, batch: list[_Queued]) -> None:
        try:
            answers = await store.commit(conn, [item.unit for item in batch])
        except store.Refused as exc:
            if len(batch) == 1:
                await self._refuse(conn, batch[0], exc)
                return
            log.warning("batch_refused", units=len(batch), reason=str(exc.error))
            for item in batch:
                await self._commit(conn, [item])
            return
        self.batches_committed += 1
        self.units_committed += len(batch)
        for item, answer in zip(batch, answers, strict=True):
            _resolve(item, answer)

    async def _refuse(self, conn: Conn, item: _Queued, refused: store.Refused) -> None:
        # An earlier try whose answer was lost may have been committed after we looked.
        if refused.is_duplicate and await store.committed(conn, [item.unit.first_id]):
            _resolve(item, store.COMMITTED)
        else:
            _fail(item, refused.error)

    async def _settle(self, conn: Conn, batch: list[_Queued]) -> list[_Queued]:
        # The connection broke in mid-call: what stands in the log was committed, the rest was not.
        present = await store.committed(conn, [item.unit.first_id for item in batch])
        unsettled = []
        for item in batch:
            if item.unit.first_id in present:
                _resolve(item, store.COMMITTED)
            else:
                unsettled.append(item)
        log.info(
            "unknown_commit_settled", committed=len(batch) - len(unsettled), again=len(unsettled)
        )
        return unsettled


def _abandon(items: Iterable[_Queued]) -> None:
    for item in items:
        _fail(item, Unavailable("The database went away before this could be kept."))


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

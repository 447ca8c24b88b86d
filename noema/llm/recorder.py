"""Every call on record: written before it is made, and again before its answer is used.

    begin ──▶ in flight ──finish──▶ answered │ failed │ unknown
                  └─the daemon died──▶ unknown; what it had reserved counts as spent

What waits is committed together over one connection, so that many calls at once cost few commits.
The same connection holds a lock that shows that this daemon lives: a call in flight whose daemon's
lock is free was lost in a crash. A daemon that lost its connection can record nothing until it has
both again, so that nobody takes a call from one that could still finish it; where it happens all
the same, the answer is refused and not used, and nobody else is asked for it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import structlog

from noema.core.canonical import escape_tree
from noema.core.clock import Clock
from noema.core.errors import Conflict, NoemaError, Unavailable
from noema.db.tx import Conn
from noema.llm import budget
from noema.llm.calls import CallRecord, Ended, finished_row, record_of, without_text
from noema.llm.errors import BudgetExceeded
from noema.llm.model import Attempt
from noema.llm.store import calls as store

log = structlog.get_logger(__name__)

Connect = Callable[[], AbstractAsyncContextManager[Conn]]

MOST_QUEUED: Final = 10_000
MOST_AT_ONCE: Final = 256
LONG_AGO: Final = timedelta(minutes=10)
_LOOK_EVERY_S: Final = 5.0
_BACKOFF_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)
# A server that is frozen closes nothing; another connection may find it well.
_FROZEN_S: Final = 20.0
_LOST: Final = "This call was taken for lost: its daemon seemed gone. Its answer is not used."


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What came of beginning a call.

    `recorded` is the answer of the same call before; `is_elsewhere` says that another daemon is
    making it now; `stopped` is the budget that has no room for its first attempt.
    """

    recorded: CallRecord | None = None
    is_elsewhere: bool = False
    stopped: BudgetExceeded | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    recorded: Mapping[str, Any] | None = None
    is_elsewhere: bool = False
    stopped: BudgetExceeded | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class _Queued:
    done: asyncio.Future[Any]
    new: store.NewRow | None = None
    noted: tuple[UUID, Any, Any] | None = None
    settled: Sequence[budget.Settled] = ()
    hold: budget.Hold | None = None
    ended: store.FinishedRow | None = None
    is_again: bool = False
    answer: Any = None


class Recorder:
    """Writes calls and what they reserve. `run` does the writing; without it everything waits."""

    def __init__(self, *, connect: Connect, clock: Clock, daemon: UUID) -> None:
        """`connect` opens a dedicated connection; `daemon` is this start of this process."""
        self._connect = connect
        self._clock = clock
        self._daemon = daemon
        self._queue: deque[_Queued] = deque()
        # What is being written. Kept until it is answered: a lost connection leaves it to be
        # written again, which is harmless.
        self._batch: list[_Queued] = []
        self._changed = asyncio.Event()
        self._closing = False
        self._is_over = False
        self._look_at = 0.0
        self.batches_committed = 0

    async def begin(self, new: store.NewRow, hold: budget.Hold | None) -> Begun:
        """Write the call as in flight and reserve for its first attempt, or tell why not.

        Where it was answered before, or is being made elsewhere, nothing is written. Raises
        Unavailable where the recorder stops or has too much to do.
        """
        begun: _Begun = await self._submit(new=new, hold=hold)
        return Begun(
            recorded=None if begun.recorded is None else record_of(begun.recorded),
            is_elsewhere=begun.is_elsewhere,
            stopped=begun.stopped,
        )

    async def step(
        self,
        call: UUID,
        *,
        attempts: Sequence[Attempt] = (),
        refused: Sequence[Mapping[str, str]] = (),
        settled: Sequence[budget.Settled] = (),
        hold: budget.Hold | None = None,
    ) -> BudgetExceeded | None:
        """Settle the last attempt and reserve for the next; return the budget that stops it.

        `refused` are answers that a repair is asked for. Raises Conflict where the call was taken
        for lost meanwhile: nobody is to be asked for it any more.
        """
        tried, errors = without_text(attempts)
        content: dict[str, Any] = {"errors": errors}
        if refused:
            content["refused"] = list(refused)
        noted = (call, tried, escape_tree(content))
        stopped: BudgetExceeded | None = await self._submit(noted=noted, settled=settled, hold=hold)
        return stopped

    async def finish(
        self, call: UUID, ended: Ended, *, settled: Sequence[budget.Settled] = ()
    ) -> None:
        """Write how the call ended; return once it is durable.

        It is written even where nobody waits for it any more. Raises Conflict where the call was
        taken for lost meanwhile: its answer is not to be used.
        """
        await asyncio.shield(self._end_soon(call, ended, settled))

    def abandon(self, call: UUID, ended: Ended, *, settled: Sequence[budget.Settled] = ()) -> None:
        """Write how the call ended, for a caller that has gone away."""
        _ = self._end_soon(call, ended, settled)

    def _end_soon(
        self, call: UUID, ended: Ended, settled: Sequence[budget.Settled]
    ) -> asyncio.Future[Any]:
        item = _Queued(
            done=asyncio.get_running_loop().create_future(),
            ended=finished_row(call, ended, self._clock.now()),
            settled=(*settled, _rest_of(call)),
        )
        item.done.add_done_callback(_looked_at)
        if self._is_over:
            _fail(item, _gone())
        else:
            # Never turned away, be there ever so many or Noema stopping: a call that is not ended
            # would hold what it reserved.
            self._queue.append(item)
            self._changed.set()
        return item.done

    async def _submit(self, **what: Any) -> Any:
        if self._closing:
            raise Unavailable("Noema is stopping; ask again when it is back.")
        if len(self._queue) >= MOST_QUEUED:
            raise Unavailable("Too many calls of models wait to be recorded. Try again later.")
        item = _Queued(done=asyncio.get_running_loop().create_future(), **what)
        self._queue.append(item)
        self._changed.set()
        return await item.done

    async def run(self) -> None:
        """Write until `stop` was called and everything that waited is written."""
        try:
            await self._run()
        finally:
            self._is_over = self._closing = True
            for item in (*self._batch, *self._queue):
                _fail(item, _gone())
            self._queue.clear()

    async def _run(self) -> None:
        failures = 0
        while not (self._closing and not self._queue and not self._batch):
            try:
                async with self._connect() as conn:
                    with _watched(conn):
                        await store.be_present(conn, self._daemon)
                    await self._recover(conn)
                    failures = 0
                    while self._batch or await self._wait(conn):
                        self._batch = self._batch or self._take()
                        with _watched(conn):
                            await self._commit(conn, self._batch)
                        self._batch = []
                    return
            except (Unavailable, OSError) as exc:
                self._batch = [item for item in self._batch if not item.done.done()]
                for item in self._batch:
                    item.is_again = True
                log.warning("recorder_disconnected", reason=str(exc), waiting=len(self._queue))
                if self._closing and failures >= len(_BACKOFF_S):
                    return
                await self._clock.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
                failures += 1

    def stop(self) -> None:
        """Refuse new calls; `run` ends when what waits is written."""
        self._closing = True
        self._changed.set()

    async def _wait(self, conn: Conn) -> bool:
        """Wait for work, looking after the dead meanwhile; False once there will be none."""
        while True:
            rest_s = self._look_at - self._clock.monotonic()
            if rest_s <= 0.0:
                await self._recover(conn)
            elif self._queue:
                return True
            elif self._closing:
                return False
            else:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(rest_s):
                        await self._changed.wait()

    def _take(self) -> list[_Queued]:
        batch: list[_Queued] = []
        while self._queue and len(batch) < MOST_AT_ONCE:
            item = self._queue.popleft()
            # Whoever began a call and went away at once did not begin it.
            if not item.done.cancelled():
                batch.append(item)
        return batch

    async def _recover(self, conn: Conn) -> None:
        self._look_at = self._clock.monotonic() + _LOOK_EVERY_S
        try:
            with _watched(conn):
                lost = await self._lose(conn)
        except store.FAILURES as exc:
            if (refusal := store.refused(exc, conn)) is None:
                raise
            log.warning("recovery_refused", reason=str(refusal))
            return
        if lost:
            log.warning("calls_lost", calls=len(lost))

    async def _lose(self, conn: Conn) -> Sequence[UUID]:
        async with conn.transaction():
            now = self._clock.now()
            lost = await store.lose(conn, self._daemon, long_ago=now - LONG_AGO, now=now)
            if lost:
                settled = [_rest_of(call) for call in lost]
                await budget.apply(conn, settled=settled, holds=(), now=now)
        return lost

    async def _commit(self, conn: Conn, batch: Sequence[_Queued]) -> None:
        if not batch:
            return
        try:
            try:
                async with conn.transaction():
                    await self._write(conn, batch)
            except store.FAILURES as exc:
                if (refusal := store.refused(exc, conn)) is None:
                    raise
                raise refusal from None
        except store.Refused as exc:
            if len(batch) == 1:
                _fail(batch[0], exc.error)
                return
            log.warning("batch_refused", calls=len(batch), reason=str(exc.error))
            for item in batch:
                await self._commit(conn, [item])
            return
        self.batches_committed += 1
        for item in batch:
            _resolve(item)

    async def _write(self, conn: Conn, batch: Sequence[_Queued]) -> None:
        now = self._clock.now()
        for item in batch:
            item.answer = None
        if begun := [item for item in batch if item.new is not None]:
            await self._begin(conn, begun)
        if noted := [item for item in batch if item.noted is not None]:
            await self._note(conn, noted)
        if ended := [item for item in batch if item.ended is not None]:
            await self._end(conn, ended)
        # Whoever has an answer already is not to be asked.
        holding = [item for item in batch if item.hold is not None and item.answer is None]
        stops = await budget.apply(
            conn,
            settled=[one for item in batch for one in item.settled],
            holds=[item.hold for item in holding if item.hold is not None],
            now=now,
            is_again=any(item.is_again for item in batch),
        )
        for item, stopped in zip(holding, stops, strict=True):
            item.answer = stopped
        for item in begun:
            if not isinstance(item.answer, (_Begun, Conflict)):
                item.answer = _Begun(stopped=item.answer)

    async def _begin(self, conn: Conn, items: Sequence[_Queued]) -> None:
        """Add the rows; whoever is not to be asked has its answer then."""
        rows = [item.new for item in items if item.new is not None]
        added = await store.insert(conn, self._daemon, rows)
        states: Mapping[UUID, str] = {}
        if len(added) < len(rows) and any(item.is_again for item in items):
            states = await store.states(conn, [row.id for row in rows])
        for item, row in zip(items, rows, strict=True):
            if row.id in added or states.get(row.id) == "in flight":
                continue
            if row.id in states:
                item.answer = Conflict(_LOST)
                continue
            before = None if row.key is None else await store.by_key(conn, row.key)
            if before is not None and before["state"] == "answered":
                item.answer = _Begun(recorded=before)
            else:
                item.answer = _Begun(is_elsewhere=True)

    async def _note(self, conn: Conn, items: Sequence[_Queued]) -> None:
        rows = [item.noted for item in items if item.noted is not None]
        noted = await store.note(conn, rows)
        for item, row in zip(items, rows, strict=True):
            if row[0] not in noted:
                item.answer = Conflict(_LOST)

    async def _end(self, conn: Conn, items: Sequence[_Queued]) -> None:
        rows = [item.ended for item in items if item.ended is not None]
        ended = await store.finish(conn, rows)
        for item, row in zip(items, rows, strict=True):
            if row.id in ended:
                continue
            if item.is_again and await store.is_finished(conn, row.id, row.state):
                continue
            item.answer = Conflict(_LOST)


def _rest_of(call: UUID) -> budget.Settled:
    # Whatever nobody settled is unknown, and none of it stays reserved.
    return budget.Settled(call=call, attempt=None, micros=None, tokens=None, is_unknown=True)


@contextmanager
def _watched(conn: Conn) -> Iterator[None]:
    """Give the connection up where the block takes too long."""
    end = asyncio.get_running_loop().call_later(_FROZEN_S, conn.terminate)
    try:
        yield
    finally:
        end.cancel()


def _gone() -> Unavailable:
    return Unavailable("The database went away before the call could be recorded.")


def _resolve(item: _Queued) -> None:
    if isinstance(item.answer, Conflict):
        _fail(item, item.answer)
    elif not item.done.done():
        item.done.set_result(item.answer)


def _fail(item: _Queued, error: NoemaError) -> None:
    if not item.done.done():
        item.done.set_exception(error)
        _looked_at(item.done)


def _looked_at(done: asyncio.Future[Any]) -> None:
    # A caller that has gone away leaves nobody to look at the error.
    if not done.cancelled():
        done.exception()


@asynccontextmanager
async def recording(recorder: Recorder) -> AsyncIterator[Recorder]:
    """Run the recorder for as long as the block lasts, and let it write what waits."""
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run(), name="recorder of calls")
        try:
            yield recorder
        finally:
            recorder.stop()

"""Every call on record: written before it is made, and again before its answer is used.

    begin ──▶ in flight ──finish──▶ answered │ failed │ unknown
                  └─the daemon died──▶ unknown; what it had reserved counts as spent

What waits is committed together over one connection, so that many calls at once cost few commits.
The same connection holds a lock that shows that this daemon lives: a call in flight whose daemon's
lock is free was lost in a crash. A daemon that lost its connection can record nothing until it has
both again, so that nobody takes a call from one that could still finish it; where it happens all
the same, the answer is refused and not used.

`content` holds all text: messages, schema, answers, reasons. The hash of a request can be guessed
back from its text: a redaction replaces both, and nothing that history keeps is made from it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, Literal
from uuid import UUID

import msgspec
import structlog

from noema.core.canonical import canonical_escaped, escape, escape_tree, unescape_tree
from noema.core.clock import Clock
from noema.core.errors import Conflict, InvalidInput, NoemaError, NotFound, Unavailable
from noema.db.tx import Conn, Database
from noema.llm import budget
from noema.llm.answers import plain
from noema.llm.errors import BudgetExceeded
from noema.llm.model import Attempt, CognitiveRequest, Usage
from noema.llm.store import calls as store

log = structlog.get_logger(__name__)

State = Literal["in flight", "answered", "failed", "unknown"]
Connect = Callable[[], AbstractAsyncContextManager[Conn]]

MOST_QUEUED: Final = 10_000
MOST_AT_ONCE: Final = 256
LONG_AGO: Final = timedelta(minutes=10)
NOTHING_KNOWN: Final = Usage()
_LOOK_EVERY_S: Final = 5.0
_BACKOFF_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call as it stands on record.

    `content` has `messages`, `schema`, `actor`, and once it has ended `answer`, `reason` (why it
    is not usable, or what failed) and `refused`, answers that a repair was asked for. It is empty
    in lists and after a redaction. `error` is a code, empty where all went well.
    """

    id: UUID
    namespace: str
    mind_id: UUID | None
    cycle: int | None
    process: str
    ordinal: int
    request_hash: bytes
    role: str
    prompt_name: str | None
    prompt_version: int | None
    state: State
    daemon: UUID
    content: Mapping[str, Any]
    provider: str | None
    model: str | None
    parameters: Mapping[str, Any]
    finish: str | None
    attempts: tuple[Attempt, ...]
    input_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    cost_micros: int | None
    cost_kind: budget.CostKind | None
    latency_ms: int | None
    error: str
    started_at: datetime
    finished_at: datetime | None

    @property
    def usage(self) -> Usage:
        return Usage(
            input=self.input_tokens,
            output=self.output_tokens,
            reasoning=self.reasoning_tokens,
            cache_read=self.cache_read_tokens,
            cache_write=self.cache_write_tokens,
        )


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    """What one role took from one provider on one UTC day; unknown costs are counted, not added."""

    day: Any
    role: str
    provider: str
    calls: int
    unknown_calls: int
    cost_micros: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a call ended, as the service knows it."""

    state: State
    attempts: Sequence[Attempt] = ()
    answer: str | None = None
    refused: Sequence[Mapping[str, str]] = ()
    reason: str = ""
    error: str = ""
    provider: str | None = None
    model: str | None = None
    finish: str | None = None
    usage: Usage = NOTHING_KNOWN
    cost_micros: int | None = None
    cost_kind: budget.CostKind = "unknown"
    latency_ms: int = 0


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
    answer: Any = field(default=None)


def request_hash(request: CognitiveRequest) -> bytes:
    """Return SHA-256 over role, messages, parameters, schema and prompt, 32 bytes.

    Floats count by their bits: their text form differs between writers. Raises InvalidInput where
    one is no number.
    """
    asked = {
        "role": request.role.value,
        "messages": [[m.role, m.text] for m in request.messages],
        "parameters": msgspec.to_builtins(request.parameters),
        "schema": request.schema,
        "prompt": request.prompt,
    }
    return sha256(canonical_escaped(_floats_spelt(asked))).digest()


def _floats_spelt(value: Any) -> Any:
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise InvalidInput("A parameter is no number.", field="parameters")
        return {"float": value.hex()}
    if isinstance(value, Mapping):
        return {k: _floats_spelt(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_floats_spelt(v) for v in value]
    return value


def new_row(id: UUID, request: CognitiveRequest, *, now: datetime, due: datetime) -> store.NewRow:  # noqa: A002
    """Return the row of a call that is about to be made."""
    context = request.context
    content: dict[str, Any] = {
        "actor": context.actor,
        "messages": [{"role": m.role, "text": m.text} for m in request.messages],
    }
    if request.schema is not None:
        content["schema"] = plain(request.schema)
    name, version = request.prompt or (None, None)
    return store.NewRow(
        id=id,
        namespace=context.namespace,
        mind=context.mind,
        cycle=context.cycle,
        process=escape(context.process),
        ordinal=context.ordinal,
        request_hash=request_hash(request),
        role=request.role.value,
        prompt_name=name,
        prompt_version=version,
        content=escape_tree(content),
        parameters=escape_tree(msgspec.to_builtins(request.parameters)),
        started_at=now,
        due_at=due,
    )


def _finished_row(id: UUID, ended: Ended, now: datetime) -> store.FinishedRow:  # noqa: A002
    tried, errors = _without_text(ended.attempts)
    content: dict[str, Any] = {"errors": errors}
    if ended.answer is not None:
        content["answer"] = ended.answer
    if ended.refused:
        content["refused"] = list(ended.refused)
    if ended.reason:
        content["reason"] = ended.reason
    usage = ended.usage
    return store.FinishedRow(
        id=id,
        state=ended.state,
        content=escape_tree(content),
        provider=ended.provider,
        model=None if ended.model is None else str(escape_tree(ended.model)),
        finish=ended.finish,
        tried=tried,
        input=usage.input,
        output=usage.output,
        reasoning=usage.reasoning,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        cost_micros=ended.cost_micros,
        cost_kind=ended.cost_kind,
        latency_ms=ended.latency_ms,
        error=ended.error,
        finished_at=now,
    )


def _without_text(attempts: Sequence[Attempt]) -> tuple[Any, list[str]]:
    # What a provider says of an error may quote what was asked: it is content.
    rows = [
        escape_tree(msgspec.to_builtins(msgspec.structs.replace(attempt, error="")))
        for attempt in attempts
    ]
    # An array of lists would be one of two dimensions, which PostgreSQL unnests into one.
    return {"attempts": rows}, [attempt.error for attempt in attempts]


def record_of(row: Mapping[str, Any]) -> CallRecord:
    """Return the row as it was before it was stored."""
    content = unescape_tree(row["content"])
    errors = content.pop("errors", [])
    attempts = msgspec.convert(unescape_tree(row["attempts"]), list[Attempt])
    if len(errors) == len(attempts):
        attempts = [
            msgspec.structs.replace(attempt, error=error)
            for attempt, error in zip(attempts, errors, strict=True)
        ]
    rest = {k: v for k, v in row.items() if k not in ("content", "attempts", "parameters")}
    return CallRecord(
        content=content,
        attempts=tuple(attempts),
        parameters=unescape_tree(row["parameters"]),
        **rest,
    )


class Recorder:
    """Writes calls and what they reserve. `run` does the writing; without it everything waits."""

    def __init__(self, *, connect: Connect, clock: Clock, daemon: UUID) -> None:
        """`connect` opens a dedicated connection; `daemon` is this start of this process."""
        self._connect = connect
        self._clock = clock
        self._daemon = daemon
        self._queue: deque[_Queued] = deque()
        self._changed = asyncio.Event()
        self._closing = False
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
        settled: Sequence[budget.Settled] = (),
        hold: budget.Hold | None = None,
    ) -> BudgetExceeded | None:
        """Settle the last attempt and reserve for the next; return the budget that stops it."""
        tried, errors = _without_text(attempts)
        noted = (call, tried, escape_tree({"errors": errors}))
        stopped: BudgetExceeded | None = await self._submit(noted=noted, settled=settled, hold=hold)
        return stopped

    async def finish(
        self, call: UUID, ended: Ended, *, settled: Sequence[budget.Settled] = ()
    ) -> None:
        """Write how the call ended; return once it is durable.

        Raises Conflict where the call was taken for lost meanwhile: its answer is not to be used.
        """
        await self._submit(
            ended=_finished_row(call, ended, self._clock.now()), settled=self._all(call, settled)
        )

    def abandon(self, call: UUID, ended: Ended, *, settled: Sequence[budget.Settled] = ()) -> None:
        """Write how the call ended, for a caller that has gone away."""
        item = _Queued(
            done=asyncio.get_running_loop().create_future(),
            ended=_finished_row(call, ended, self._clock.now()),
            settled=self._all(call, settled),
        )
        item.done.add_done_callback(_looked_at)
        # Never turned away: a call that is not ended would hold what it reserved.
        self._queue.append(item)
        self._changed.set()

    def _all(self, call: UUID, settled: Sequence[budget.Settled]) -> Sequence[budget.Settled]:
        # Whatever nobody settled is unknown, and none of it stays reserved.
        rest = budget.Settled(call=call, attempt=None, micros=None, tokens=None, is_unknown=True)
        return (*settled, rest)

    async def _submit(self, **what: Any) -> Any:
        if self._closing:
            raise Unavailable("Noema is stopping; ask again when it is back.")
        if len(self._queue) >= MOST_QUEUED:
            raise Unavailable("Too many calls of models wait to be recorded. Try again later.")
        item = _Queued(done=asyncio.get_running_loop().create_future(), **what)
        self._queue.append(item)
        self._changed.set()
        if item.ended is not None:
            # How a call ended is kept, whether or not somebody still waits for it.
            item.done.add_done_callback(_looked_at)
            return await asyncio.shield(item.done)
        return await item.done

    async def run(self) -> None:
        """Write until `stop` was called and everything that waited is written."""
        failures = 0
        batch: list[_Queued] = []
        while not (self._closing and not self._queue and not batch):
            try:
                async with self._connect() as conn:
                    await store.be_present(conn, self._daemon)
                    await self._recover(conn)
                    failures = 0
                    while batch or await self._wait(conn):
                        # Kept here until it is answered: a lost connection leaves it to be
                        # written again, which is harmless.
                        batch = batch or self._take()
                        await self._commit(conn, batch)
                        batch = []
                    return
            except (Unavailable, OSError) as exc:
                batch = [item for item in batch if not item.done.done()]
                for item in batch:
                    item.is_again = True
                log.warning("recorder_disconnected", reason=str(exc), waiting=len(self._queue))
                if self._closing and failures >= len(_BACKOFF_S):
                    break
                await self._clock.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
                failures += 1
        for item in (*batch, *self._queue):
            _fail(item, Unavailable("The database went away before the call could be recorded."))
        self._queue.clear()

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
            async with conn.transaction():
                now = self._clock.now()
                lost = await store.lose(conn, self._daemon, long_ago=now - LONG_AGO, now=now)
                if lost:
                    settled = [one for call in lost for one in self._all(call, ())]
                    await budget.apply(conn, settled=settled, holds=(), now=now)
        except store.FAILURES as exc:
            if (refusal := store.refused(exc, conn)) is None:
                raise
            log.warning("recovery_refused", reason=str(refusal))
            return
        if lost:
            log.warning("calls_lost", calls=len(lost))

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
        if noted := [item.noted for item in batch if item.noted is not None]:
            await store.note(conn, noted)
        if ended := [item for item in batch if item.ended is not None]:
            await self._end(conn, ended)
        holding = [
            item for item in batch if item.hold is not None and not isinstance(item.answer, _Begun)
        ]
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
            if not isinstance(item.answer, _Begun):
                item.answer = _Begun(stopped=item.answer)

    async def _begin(self, conn: Conn, items: Sequence[_Queued]) -> None:
        """Add the rows; whoever is not to be asked has its answer then."""
        rows = [item.new for item in items if item.new is not None]
        added = await store.insert(conn, self._daemon, rows)
        if len(added) < len(rows) and any(item.is_again for item in items):
            added |= await store.present(conn, [row.id for row in rows])
        for item, row in zip(items, rows, strict=True):
            if row.id in added or row.key is None:
                continue
            before = await store.by_key(conn, row.key)
            if before is not None and before["state"] == "answered":
                item.answer = _Begun(recorded=before)
            else:
                item.answer = _Begun(is_elsewhere=True)

    async def _end(self, conn: Conn, items: Sequence[_Queued]) -> None:
        rows = [item.ended for item in items if item.ended is not None]
        ended = await store.finish(conn, rows)
        for item, row in zip(items, rows, strict=True):
            if row.id in ended:
                continue
            if item.is_again and await store.is_finished(conn, row.id, row.state):
                continue
            item.answer = Conflict(
                "This call was taken for lost: its daemon seemed gone. The answer is not used."
            )


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


class Calls:
    """Reading calls. `namespaces` are those that the reader may see; None is all of them."""

    def __init__(self, *, db: Database) -> None:
        self._db = db

    async def get(self, call: UUID, *, namespaces: Sequence[str] | None) -> CallRecord:
        """Return the call with its content; raises NotFound."""
        async with self._db.reading() as tx:
            row = await store.get(tx.conn, call, namespaces)
        if row is None:
            raise NotFound("call", call)
        return record_of(row)

    async def page(
        self,
        *,
        namespaces: Sequence[str] | None,
        mind: UUID | None = None,
        cycle: int | None = None,
        role: str | None = None,
        provider: str | None = None,
        state: State | None = None,
        before: tuple[datetime, UUID] | None = None,
        limit: int = 50,
    ) -> list[CallRecord]:
        """Return calls without content, newest first; `before` is started_at and id of the last."""
        at, last = before or (None, None)
        names = None if namespaces is None else list(namespaces)
        async with self._db.reading() as tx:
            rows = await store.page(
                tx.conn, (names, mind, cycle, role, provider, state, at, last, limit)
            )
        return [record_of(row) for row in rows]

    async def spend(
        self, *, since: datetime, until: datetime, namespaces: Sequence[str] | None
    ) -> list[Spend]:
        """Return what was spent by UTC day, role and provider, in this order."""
        async with self._db.reading() as tx:
            rows = await store.spend(tx.conn, since, until, namespaces)
        return [Spend(**row) for row in rows]

    async def answered(self, request: CognitiveRequest) -> CallRecord | None:
        """Return the recorded answer to this request, None where there is none."""
        context = request.context
        if context.mind is None or context.cycle is None:
            return None
        key = (
            context.mind, context.cycle, escape(context.process), context.ordinal,
            request_hash(request),
        )  # fmt: skip
        async with self._db.reading() as tx:
            row = await store.by_key(tx.conn, key)
        return None if row is None or row["state"] != "answered" else record_of(row)

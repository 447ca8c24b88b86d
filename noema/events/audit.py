"""The audit log: one row for every outcome at a door, denied and failed ones too.

Where the act has a transaction, its row commits with the work: there is no work without its row.
An act that fails leaves nothing but its row, which then has a transaction of its own. Reads have no
transaction to share; their rows are written together, by `AuditBuffer`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import islice
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog

from noema.core.act import Act, Outcome, act_of
from noema.core.canonical import canonical_escaped, commitment, escape, unescape
from noema.core.clock import Clock, Ids
from noema.core.errors import Denied, NoemaError, NotFound, RateLimited, Unauthorised, Unavailable
from noema.core.identity import Identity
from noema.db.tx import Database, Tx
from noema.events import store

log = structlog.get_logger(__name__)

PURPOSE_CHARS: Final = 200
_DETAIL_CHARS: Final = 1_000
_TARGET_CHARS: Final = 300
_END: Final = 2**62

FLUSH_EVERY_S: Final = 0.4
"""How long a row of a read waits at most before it is written, in seconds; a flush comes on top."""
MOST_BUFFERED: Final = 10_000
_AT_ONCE: Final = 2_000
_FAILING_S: Final = 10.0
_RETRY_S: Final = (0.1, 0.5, 1.0, 2.0)

Row = tuple[Any, ...]
"""A row of `audit_log`: id, occurred_at, actor, agent_id, op, target, namespace, result, content,
salt, commitment."""


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome. `seq` orders rows and may have gaps; `purpose` and `detail` may be redacted."""

    seq: int
    id: UUID
    occurred_at: datetime
    recorded_at: datetime
    actor: str
    agent_id: str
    op: str
    target: str
    namespace: str
    result: str
    purpose: str
    detail: str
    is_redacted: bool


class Deed:
    """An act under way: its transaction, and what its row will say where that is known later."""

    __slots__ = ("detail", "target", "tx")

    def __init__(self, tx: Tx, target: str) -> None:
        self.tx = tx
        self.target = target
        self.detail = ""


class Audit:
    """Writes and searches the audit log."""

    def __init__(self, *, db: Database, ids: Ids) -> None:
        self._db = db
        self._ids = ids
        self._before_search: list[Callable[[], Awaitable[object]]] = []

    def before_search(self, flush: Callable[[], Awaitable[object]]) -> None:
        """Let `flush` write what waits before a search, so that one finds one's own reads."""
        self._before_search.append(flush)

    def row_of(self, act: Act, at: datetime) -> Row:
        """Return the values of the act's row, in the order of `Row`, for whoever inserts it.

        What was written by people is escaped, and committed to with a fresh salt.
        """
        told = {"purpose": act.purpose[:PURPOSE_CHARS], "detail": act.detail[:_DETAIL_CHARS]}
        content = canonical_escaped({k: v for k, v in told.items() if v})
        salt = self._ids.salt()
        return (
            self._ids.new(),
            at,
            act.actor,
            act.agent_id,
            act.verb,
            escape(act.target[:_TARGET_CHARS]),
            act.namespace,
            act.outcome.value,
            msgspec.json.decode(content),
            salt,
            commitment(salt, content),
        )

    async def record(self, tx: Tx, act: Act) -> None:
        """Add the act's row to the transaction."""
        await store.audit(tx.conn, self.row_of(act, tx.now))

    async def record_alone(self, act: Act) -> None:
        """Add the act's row in a transaction of its own."""
        async with self._db.transaction() as tx:
            await self.record(tx, act)

    @asynccontextmanager
    async def doing(
        self, who: Identity, verb: str, target: str, *, purpose: str = ""
    ) -> AsyncIterator[Deed]:
        """Yield a transaction for the act, and leave one row whatever comes of it.

        On leaving, the row says `ok` and commits with the work. An error undoes the work, and the
        row says what kind it was: `denied`, `miss` where there is no such thing, else `error`.
        """
        deed: Deed | None = None
        try:
            async with self._db.transaction() as tx:
                deed = Deed(tx, target)
                yield deed
                await self.record(
                    tx,
                    act_of(who, verb, deed.target, Outcome.OK, purpose=purpose, detail=deed.detail),
                )
        except Exception as exc:
            failed = act_of(
                who,
                verb,
                target if deed is None else deed.target,
                outcome_of(exc),
                purpose=purpose,
                detail=reason_of(exc),
            )
            await self._record_failure(failed)
            raise

    async def _record_failure(self, act: Act) -> None:
        try:
            await self.record_alone(act)
        except NoemaError as exc:
            # The caller's own error says more than this one would.
            log.warning("audit_row_lost", op=act.verb, result=act.outcome, reason=str(exc))

    async def search(
        self,
        *,
        before: int | None = None,
        actor: str | None = None,
        op: str | None = None,
        target: str | None = None,
        namespaces: Sequence[str] | None = None,
        result: Outcome | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
    ) -> list[AuditRow]:
        """Return the rows before the position (the newest where None), newest first.

        `op` names one act (`user.create`) or a group of them (`user`); `until` is exclusive.
        """
        values = (
            _END if before is None else before,
            actor,
            op,
            target,
            None if namespaces is None else list(namespaces),
            None if result is None else result.value,
            since,
            until,
            limit,
        )
        for flush in self._before_search:
            try:
                await flush()
            except (NoemaError, TimeoutError) as exc:
                # What is on record can be read all the same.
                log.warning("audit_flush_failed", reason=str(exc))
        async with self._db.reading() as tx:
            rows = await store.search_audit(tx.conn, values=values)
        found = []
        for row in rows:
            content = row.pop("content")
            purpose, detail = content.get("purpose", ""), content.get("detail", "")
            found.append(AuditRow(purpose=unescape(purpose), detail=unescape(detail), **row))
        return found


class AuditBuffer:
    """Writes the rows of reads in batches: within half a second, and on a clean stop all of them.

    It is bounded. Before a read begins it asks for `room`, and waits while there is none; where
    rows could not be written for ten seconds the read fails, because it would go unaudited. What
    was not written yet is lost with the process, if that is killed.
    """

    def __init__(
        self, *, audit: Audit, db: Database, clock: Clock, most: int = MOST_BUFFERED
    ) -> None:
        self._audit = audit
        self._db = db
        self._clock = clock
        self._most = most
        self._rows: deque[Row] = deque()
        self._writing = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._freed = asyncio.Event()
        self._failing_since: float | None = None
        audit.before_search(self.flush)

    def __len__(self) -> int:
        return len(self._rows)

    async def room(self) -> None:
        """Return when a row can be taken; raise Unavailable where none could be for long."""
        while len(self._rows) >= self._most:
            self._refuse_where_failing()
            self._freed.clear()
            self._wanted.set()
            try:
                async with asyncio.timeout(_FAILING_S):
                    await self._freed.wait()
            except TimeoutError:
                raise _unaudited() from None
        self._refuse_where_failing()

    def _refuse_where_failing(self) -> None:
        since = self._failing_since
        if since is not None and self._clock.monotonic() - since > _FAILING_S:
            self._wanted.set()
            raise _unaudited()

    def add(self, act: Act, at: datetime) -> None:
        """Take the act's row; it is written soon.

        Whoever is refused does not wait for room. Where the log cannot be written and refusals
        pile up all the same, further rows are lost, and the daemon's own log says so.
        """
        if len(self._rows) >= 2 * self._most:
            log.warning("audit_row_lost", op=act.verb, result=act.outcome, reason="no room")
            return
        self._rows.append(self._audit.row_of(act, at))
        if len(self._rows) * 2 >= self._most or self._failing_since is not None:
            self._wanted.set()

    async def flush(self) -> int:
        """Write everything that waits; return how many rows. Raises Unavailable, and keeps them."""
        written = 0
        async with self._writing:
            while self._rows:
                batch = list(islice(self._rows, _AT_ONCE))
                try:
                    async with self._db.transaction() as tx:
                        await store.audit_many(tx.conn, batch)
                except (NoemaError, TimeoutError):
                    if self._failing_since is None:
                        self._failing_since = self._clock.monotonic()
                    raise
                for _ in batch:
                    self._rows.popleft()
                self._failing_since = None
                self._freed.set()
                written += len(batch)
        return written

    async def run(self) -> None:
        """Flush for ever; what is left at the end is for `flush`."""
        failures = 0
        while True:
            try:
                async with asyncio.timeout(FLUSH_EVERY_S):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                await self.flush()
                failures = 0
            except (NoemaError, TimeoutError) as exc:
                log.warning("audit_flush_failed", waiting=len(self._rows), reason=str(exc))
                await asyncio.sleep(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
                failures += 1


def _unaudited() -> Unavailable:
    return Unavailable(
        "The audit log cannot be written now, and nothing is read unaudited. Try again later."
    )


def outcome_of(exc: BaseException) -> Outcome:
    """Return how the audit log calls an act that ended in this error."""
    if isinstance(exc, (Denied, Unauthorised, RateLimited)):
        return Outcome.DENIED
    return Outcome.MISS if isinstance(exc, NotFound) else Outcome.ERROR


def reason_of(exc: BaseException) -> str:
    """Return what the audit log says of an error: only our own messages hold no secret."""
    return f"{exc.code}: {exc}" if isinstance(exc, NoemaError) else type(exc).__name__

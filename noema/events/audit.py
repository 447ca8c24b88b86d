"""The audit log: one row for every outcome at a door, denied and failed ones too.

Where the act has a transaction, its row commits with the work: there is no work without its row.
An act that fails leaves nothing but its row, which then has a transaction of its own.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
import structlog

from noema.core.act import Act, Outcome, act_of
from noema.core.canonical import canonical_escaped, commitment, escape, unescape
from noema.core.clock import Ids
from noema.core.errors import Denied, NoemaError, NotFound, RateLimited, Unauthorised
from noema.core.identity import Identity
from noema.db.tx import Database, Tx
from noema.events import store

log = structlog.get_logger(__name__)

PURPOSE_CHARS: Final = 200
_DETAIL_CHARS: Final = 1_000
_TARGET_CHARS: Final = 300
_END: Final = 2**62


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

    async def record(self, tx: Tx, act: Act) -> None:
        """Add the act's row to the transaction."""
        told = {"purpose": act.purpose[:PURPOSE_CHARS], "detail": act.detail[:_DETAIL_CHARS]}
        content = canonical_escaped({k: v for k, v in told.items() if v})
        salt = self._ids.salt()
        values = (
            self._ids.new(),
            tx.now,
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
        await store.audit(tx.conn, values)

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
                detail=_reason(exc),
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
        async with self._db.reading() as tx:
            rows = await store.search_audit(tx.conn, values=values)
        found = []
        for row in rows:
            content = row.pop("content")
            purpose, detail = content.get("purpose", ""), content.get("detail", "")
            found.append(AuditRow(purpose=unescape(purpose), detail=unescape(detail), **row))
        return found


def outcome_of(exc: BaseException) -> Outcome:
    """Return how the audit log calls an act that ended in this error."""
    if isinstance(exc, (Denied, Unauthorised, RateLimited)):
        return Outcome.DENIED
    return Outcome.MISS if isinstance(exc, NotFound) else Outcome.ERROR


def _reason(exc: Exception) -> str:
    # Only our own messages are known to hold no secret.
    return f"{exc.code}: {exc}" if isinstance(exc, NoemaError) else type(exc).__name__

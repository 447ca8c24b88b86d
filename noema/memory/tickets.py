"""Writes that are accepted at once and done soon.

    accept ─▶ waiting ─▶ running ─▶ done │ failed (with the reason)
                 ▲          │
                 └──────────┘  something is unavailable: again, after growing pauses

A ticket is a row from the moment it is answered with. Whoever takes one has it for the time of a
lease; should they die over it, another takes it up. The ticket's id is the idempotency key of the
write, so that however often it is tried, it is done once. It is done as who asked for it, with the
role they had then, and through the whole prologue again: a tenant that is suspended meanwhile makes
it fail. However it ends, what was asked for is not kept.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog

from noema.core.act import Outcome
from noema.core.canonical import escape, escape_tree, unescape, unescape_tree
from noema.core.clock import Clock, Ids
from noema.core.errors import NoemaError, NotFound, RateLimited, Unavailable
from noema.core.identity import ConsoleRole, Identity, MemoryRole
from noema.db.tx import Database
from noema.events.audit import Audit
from noema.events.log import EventLog
from noema.memory.frame import Frame
from noema.memory.model import Ticket, Write, WriteResult
from noema.memory.prepare import check
from noema.memory.store import tickets as store
from noema.memory.write import claim_of

log = structlog.get_logger()

Perform = Callable[[Identity, Write, str], Awaitable[WriteResult]]
"""Does the write as that identity, under that idempotency key, through the prologue."""

LEASE: Final = timedelta(minutes=2)
AT_ONCE: Final = 4
MOST_ATTEMPTS: Final = 40
_LONGEST_PAUSE_S: Final = 300.0
_LOOK_EVERY_S: Final = 5.0
_KEY_PREFIX: Final = "ticket:"
_SEE_ALL: Final = frozenset({MemoryRole.ADMIN, MemoryRole.OWNER})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    id: UUID
    who: Identity
    request: Any
    attempts: int


class Tickets:
    """Accepts writes, and does them in the background: `run` is for one task of the daemon."""

    def __init__(
        self, *, db: Database, audit: Audit, ids: Ids, clock: Clock, perform: Perform
    ) -> None:
        self._db = db
        self._audit = audit
        self._ids = ids
        self._clock = clock
        self._perform = perform
        self._log = EventLog(db=db)
        self._wanted = asyncio.Event()

    async def accept(self, frame: Frame, request: Write, *, key: str | None = None) -> Ticket:
        """Keep the write, to be done soon; with an idempotency key, once for all repetitions.

        Raises InvalidInput for a request that makes no sense as a whole.
        """
        check(request)
        claim = None if key is None else claim_of(frame, request, key)
        kept = escape_tree(msgspec.to_builtins(msgspec.structs.replace(request, is_async=False)))
        id_ = self._ids.new()
        async with self._db.transaction() as tx:
            if claim is not None:
                answered = await self._log.claim(tx, claim)
                if answered is not None:
                    return await self._repeated(frame, UUID(answered["ticket"]))
                await self._log.answer(tx, claim, {"ticket": str(id_)})
            await store.insert(tx.conn, id_, frame.who, kept, tx.now)
            frame.target = f"ticket:{id_}"
            frame.detail = f"ticket={id_}"
            await self._audit.record(tx, frame.act(Outcome.OK))
        frame.is_recorded = True
        self._wanted.set()
        return Ticket(id=id_, state="waiting", created_at=tx.now)

    async def _repeated(self, frame: Frame, id_: UUID) -> Ticket:
        frame.detail = f"ticket={id_} repeated=1"
        frame.target = f"ticket:{id_}"
        return await self.get(frame, id_)

    async def get(self, frame: Frame, id_: UUID) -> Ticket:
        """Return how far a write has come: one's own, for admins and owners any of the namespace.

        Raises NotFound for all others.
        """
        async with self._db.reading() as tx:
            row = await store.get(tx.conn, id_, frame.who.namespace)
        if row is None or not (row["actor"] == frame.who.actor or frame.who.role in _SEE_ALL):
            raise NotFound("ticket", id_)
        result = row["result"]
        return Ticket(
            id=row["id"],
            state=row["state"],
            created_at=row["created_at"],
            finished_at=row["finished_at"],
            result=None if result is None else msgspec.convert(unescape_tree(result), WriteResult),
            error=unescape(row["error"]),
        )

    # --- doing them ---

    async def run(self) -> None:
        """Do what is due, for ever; whatever is unavailable is waited for."""
        while True:
            try:
                if await self.once() == 0:
                    await self._rest()
            except (Unavailable, TimeoutError) as exc:
                log.warning("tickets_waiting", reason=str(exc))
                await self._clock.sleep(_LOOK_EVERY_S)

    async def _rest(self) -> None:
        # Tickets of other daemons, and those that are to be tried again, are found by looking.
        try:
            async with asyncio.timeout(_LOOK_EVERY_S):
                await self._wanted.wait()
        except TimeoutError:
            return

    async def once(self) -> int:
        """Do the tickets that are due, a few; return how many were taken."""
        self._wanted.clear()
        async with self._db.transaction() as tx:
            rows = await store.take(tx.conn, tx.now, LEASE, AT_ONCE)
        if rows:
            # What came with these may be more than was taken.
            self._wanted.set()
        for row in rows:
            await self._do(_taken(row))
        return len(rows)

    async def _do(self, ticket: _Taken) -> None:
        if ticket.attempts > MOST_ATTEMPTS:
            # Whoever tried it last did not live to say so; it may be what they died of.
            await self._finish(
                ticket, "failed", error=f"given up after {MOST_ATTEMPTS} attempts: none ended"
            )
            return
        try:
            request = msgspec.convert(unescape_tree(ticket.request), Write)
            result = await self._perform(ticket.who, request, f"{_KEY_PREFIX}{ticket.id}")
        except (Unavailable, RateLimited, TimeoutError) as exc:
            await self._again(ticket, exc)
        except NoemaError as exc:
            await self._finish(ticket, "failed", error=f"{exc.code}: {exc}")
        except Exception as exc:
            log.exception("ticket_failed", ticket=str(ticket.id))
            await self._finish(
                ticket, "failed", error=f"internal: {type(exc).__name__}; the log says more."
            )
        else:
            kept = escape_tree(msgspec.to_builtins(result))
            await self._finish(ticket, "done", result=kept)

    async def _again(self, ticket: _Taken, exc: Exception) -> None:
        reason = str(exc) or type(exc).__name__
        if ticket.attempts >= MOST_ATTEMPTS:
            await self._finish(
                ticket, "failed", error=f"given up after {ticket.attempts} attempts: {reason}"
            )
            return
        pause = timedelta(seconds=min(2.0 ** (ticket.attempts - 1), _LONGEST_PAUSE_S))
        async with self._db.transaction() as tx:
            await store.wait(tx.conn, ticket.id, tx.now + pause, escape(reason))

    async def _finish(
        self, ticket: _Taken, state: str, *, result: Any = None, error: str = ""
    ) -> None:
        async with self._db.transaction() as tx:
            await store.finish(
                tx.conn, ticket.id, state, result=result, error=escape(error), at=tx.now
            )


def _taken(row: Mapping[str, Any]) -> _Taken:
    return _Taken(
        id=row["id"],
        who=Identity(
            namespace=row["namespace"],
            actor=row["actor"],
            role=MemoryRole(row["memory_role"]),
            console=ConsoleRole(row["console_role"]),
            agent_id=row["agent_id"],
        ),
        request=row["request"],
        attempts=row["attempts"],
    )

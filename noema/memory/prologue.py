"""The one prologue of every syscall, and the row that every outcome leaves.

    timing ─▶ role ─▶ policy ─▶ tenant ─▶ rate ─▶ scope ─▶ body ─▶ audit row
         └──────── denied · miss · error, each with its row ────────┘

Rows of reads wait in a buffer for a moment; a body that changes something commits its row with its
work. What cannot be decided is an error, never a permit.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from noema.core.act import Act, Outcome, act_of
from noema.core.clock import Clock
from noema.core.errors import Denied, NoemaError, NotFound, RateLimited
from noema.core.fresh import Fresh
from noema.core.identity import Identity
from noema.events.audit import PURPOSE_CHARS, Audit, AuditBuffer, outcome_of, reason_of
from noema.memory import rights
from noema.memory.frame import Frame
from noema.memory.limits import Limits
from noema.memory.policy import Policies
from noema.memory.reading import Concealed
from noema.memory.scope import Scopes
from noema.memory.timings import Timings

log = structlog.get_logger()

T = TypeVar("T")
Body = Callable[[Frame], Awaitable[T]]
IsActive = Callable[[str], Awaitable[bool]]
"""Whether a namespace is there and its tenant is not suspended."""

CANCELLED: Final = "cancelled: the caller went away"


class TenantGate:
    """Lets nobody act in a suspended tenant; known for less than a second, and never guessed."""

    def __init__(self, is_active: IsActive, clock: Clock) -> None:
        self._is_active = is_active
        self._fresh: Fresh[str, bool] = Fresh(clock)

    async def require(self, namespace: str) -> None:
        """Raise Denied where the tenant is suspended, or the namespace is not there."""
        if not await self._fresh.get(namespace, lambda: self._is_active(namespace)):
            raise Denied(
                f"The tenant of {namespace} is suspended; its administrator can resume it."
            )


class Prologue:
    """Runs bodies of syscalls."""

    def __init__(
        self,
        *,
        clock: Clock,
        audit: Audit,
        buffer: AuditBuffer,
        policies: Policies,
        tenants: TenantGate,
        limits: Limits,
        scopes: Scopes,
        timings: Timings,
    ) -> None:
        self._clock = clock
        self._audit = audit
        self._buffer = buffer
        self._policies = policies
        self._tenants = tenants
        self._limits = limits
        self._scopes = scopes
        self._timings = timings

    async def run(
        self, who: Identity, op: str, body: Body[T], *, purpose: str = "", target: str = ""
    ) -> T:
        """Return what the body returns, once the caller may have it; one row whatever comes of it.

        Raises Denied, RateLimited, NotFound (what is hidden and what is missing are the same),
        Unavailable, and whatever else the body raises.
        """
        started = self._clock.monotonic()
        now = self._clock.now()
        outcome = Outcome.ERROR
        frame: Frame | None = None
        try:
            line = rights.require(who, op)
            policy = await self._policies.effective(who.namespace)
            await self._tenants.require(who.namespace)
            per_minute = policy.writes_per_minute if line.writes else policy.reads_per_minute
            self._limits.take(who, writes=line.writes, per_minute=per_minute)
            if not line.writes:
                await self._buffer.room()
            frame = Frame(
                who=who,
                op=op,
                scope=await self._scopes.of(who),
                policy=policy,
                now=now,
                purpose=purpose[:PURPOSE_CHARS],
                target=target,
            )
            answer = await body(frame)
            outcome = Outcome.OK
            if not frame.is_recorded:
                await self._record_done(frame, writes=line.writes)
        except asyncio.CancelledError:
            self._buffer.add(_act(who, op, frame, purpose, target, outcome, CANCELLED), now)
            raise
        except Exception as exc:
            outcome = _outcome_of(exc)
            act = _act(who, op, frame, purpose, target, outcome, reason_of(exc))
            await self._record_failure(act, exc)
            if isinstance(exc, Concealed):
                raise NotFound(exc.kind, exc.key) from None
            raise
        finally:
            self._timings.observe(op, outcome, self._clock.monotonic() - started)
        return answer

    async def refused(self, who: Identity, op: str, error: Exception) -> None:
        """Keep that the transport turned a request for this syscall away, and why."""
        outcome = _outcome_of(error)
        self._timings.observe(op, outcome, 0.0)
        self._buffer.add(act_of(who, op, "", outcome, detail=reason_of(error)), self._clock.now())

    async def _record_done(self, frame: Frame, *, writes: bool) -> None:
        if writes:
            await self._audit.record_alone(frame.act(Outcome.OK))
        else:
            self._buffer.add(frame.act(Outcome.OK), frame.now)

    async def _record_failure(self, act: Act, exc: Exception) -> None:
        # A caller who asks too often must not cost a transaction each time; and of what only
        # reads, refused and answered are to look alike.
        if isinstance(exc, RateLimited) or not rights.SYSCALLS[act.verb].writes:
            self._buffer.add(act, self._clock.now())
            return
        try:
            await self._audit.record_alone(act)
        except (NoemaError, TimeoutError) as lost:
            log.warning("audit_row_delayed", op=act.verb, reason=str(lost))
            self._buffer.add(act, self._clock.now())


def _outcome_of(exc: Exception) -> Outcome:
    return Outcome.DENIED if isinstance(exc, Concealed) else outcome_of(exc)


def _act(
    who: Identity,
    op: str,
    frame: Frame | None,
    purpose: str,
    target: str,
    outcome: Outcome,
    reason: str,
) -> Act:
    if frame is None:
        return act_of(who, op, target, outcome, purpose=purpose[:PURPOSE_CHARS], detail=reason)
    return act_of(
        who, op, frame.target, outcome, purpose=frame.purpose, detail=_both(frame.detail, reason)
    )


def _both(detail: str, reason: str) -> str:
    return f"{reason} ({detail})" if detail else reason

"""How a mind uses governed memory: as a principal like any other, through the kernel's syscalls.

`MindMemory` asks and writes; `Remembering` carries out the intents to remember, outside the cycle:

    cycle's commit (intent) ─▶ action.started ─▶ mem_write, key = the intent's id
        ─▶ memory.written, action.completed │ action.refused

A crash anywhere leaves the intent open, and it is carried out again; the key makes the second write
the first one. What the kernel refuses is refused; while it cannot answer, intents wait.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec
import structlog

from noema.cognition import store
from noema.cognition.keeping import ACT
from noema.cognition.minds import memory_namespace
from noema.cognition.model import MICRO, Mind
from noema.cognition.process import Recalled, Recollection
from noema.core.clock import Clock, Ids, to_micros
from noema.core.errors import InvalidInput, LeaseLost, NoemaError, RateLimited, Unavailable
from noema.core.identity import ConsoleRole, Identity, MemoryRole
from noema.db.tx import Database
from noema.events.log import EventLog
from noema.events.model import Event, NewEvent, new_event
from noema.events.unit import ActState, Derivation, Fence, Unit
from noema.events.writer import Writer
from noema.memory.model import (
    MAX_TEXT_CHARS,
    EpistemicKind,
    Hit,
    Kind,
    Search,
    SearchResult,
    Sensitivity,
    Ticket,
    TurnIn,
    Write,
    WriteResult,
)

log = structlog.get_logger()

WRITE_DEADLINE_S: Final = 30.0
_AT_ONCE: Final = 20
_RETRY_S: Final = (5.0, 15.0, 30.0, 60.0)
_TRIES: Final = 3
_READ_BY_ALL: Final = (Sensitivity.PUBLIC, Sensitivity.INTERNAL)
_SPOKEN: Final = ("message.received", "message.sent")


class Kernel(Protocol):
    """What a mind needs of the memory kernel."""

    async def mem_search(self, who: Identity, request: Search, /) -> SearchResult: ...

    async def mem_write(
        self, who: Identity, request: Write, /, *, key: str | None = None
    ) -> WriteResult | Ticket: ...


def identity_of(mind: Mind) -> Identity | None:
    """Return who the mind is to memory; None where it lives too deep to have a place below."""
    try:
        namespace = memory_namespace(mind.namespace, mind.slug)
    except InvalidInput:
        return None
    return Identity(
        namespace=namespace,
        actor=mind.actor,
        role=MemoryRole.AGENT,
        console=ConsoleRole.NONE,
        agent_id="mind",
    )


class MindMemory:
    """Memory as one mind sees it, whichever mind that is."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def recall(self, who: Identity, query: str, k: int) -> Recollection:
        """Return at most k memories, best first; raises what mem_search raises.

        Left out are what the mind said itself, which is no news to it, and what the mind may read
        and those who watch it perhaps not: they see its log, and an answer is recorded there.
        """
        found = await self._kernel.mem_search(who, Search(query=query, k=k, explain=True))
        heard = [h for h in found.hits if not _is_own_word(h, who)]
        shown = [h for h in heard if _may_be_logged(h, who)]
        return Recollection(
            memories=tuple(_recalled(h) for h in shown),
            degraded=found.degraded,
            withheld=len(heard) - len(shown),
        )

    async def keep(self, who: Identity, request: Write, *, key: str) -> WriteResult:
        """Write, once for a key; raises what mem_write raises, TimeoutError after 30 seconds."""
        async with asyncio.timeout(WRITE_DEADLINE_S):
            result = await self._kernel.mem_write(who, request, key=key)
        if isinstance(result, Ticket):
            raise Unavailable("Memory gave a ticket for a write that was to be done at once.")
        return result


def _is_own_word(hit: Hit, who: Identity) -> bool:
    memory = hit.memory
    return memory.actor == who.actor and f"mind:{memory.speaker}" == who.actor


def _may_be_logged(hit: Hit, who: Identity) -> bool:
    memory, label = hit.memory, hit.memory.label
    if memory.namespace == who.namespace:
        return True
    if memory.is_shared:
        return label.sensitivity in _READ_BY_ALL and not label.secrets
    return label.sensitivity is not Sensitivity.RESTRICTED and not label.secrets


def _recalled(hit: Hit) -> Recalled:
    memory = hit.memory
    cosine = None if hit.components is None else hit.components.cosine
    return Recalled(
        id=memory.id,
        kind=memory.kind.value,
        text=memory.text[:1_000],
        speaker=memory.speaker or "",
        at_us=to_micros(memory.event_time or memory.assertion_time),
        cosine=None if cosine is None else max(0, min(MICRO, round(cosine * MICRO))),
        trust=memory.trust,
        credibility=memory.credibility,
        source=memory.source,
        status=memory.status,
        may_leave="provider" in memory.label.destinations,
    )


class _Owed(msgspec.Struct, kw_only=True):
    """A mind with open intents to remember, and when they are next looked at.

    `is_fresh` where more may have come since they were looked at last.
    """

    mind: Mind
    epoch: int
    is_fresh: bool = True
    due_s: float = 0.0
    failures: int = 0


class _Intent(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    cycle_id: UUID
    thought_id: UUID
    event: UUID
    kind: Kind
    importance: int
    is_started: bool
    sources: tuple[UUID, ...] = ()
    is_heard: bool = False


class Remembering:
    """Writes what the minds of this process want to remember; `run` is its owner.

    Outside of the minds' own turns, so that a slow memory holds up no thought and no answer.
    """

    def __init__(
        self,
        *,
        db: Database,
        events: EventLog,
        writer: Writer,
        memory: MindMemory,
        clock: Clock,
        ids: Ids,
        checkpoint: Callable[[int], Awaitable[None]],
    ) -> None:
        self._db = db
        self._events = events
        self._writer = writer
        self._memory = memory
        self._clock = clock
        self._ids = ids
        self._checkpoint = checkpoint
        self._owed: dict[UUID, _Owed] = {}
        self._woken = asyncio.Event()
        self._stopping = False

    def owes(self, mind: Mind, epoch: int) -> None:
        """Say that the mind, held under that epoch of its lease, may have something to remember."""
        owed = self._owed.get(mind.id)
        if owed is None or owed.epoch != epoch:
            self._owed[mind.id] = _Owed(mind=mind, epoch=epoch)
        else:
            owed.is_fresh = True
        self._woken.set()

    def stop(self) -> None:
        """Finish the write under way and end `run`; what is left is done after the next start."""
        self._stopping = True
        self._woken.set()

    async def run(self) -> None:
        """Work until `stop`; database and memory may come and go."""
        while not self._stopping:
            self._woken.clear()
            now_s = self._clock.monotonic()
            for owed in [o for o in self._owed.values() if o.due_s <= now_s]:
                await self._serve(owed)
            await self._wait()

    async def _wait(self) -> None:
        if self._stopping:
            return
        soonest = min((o.due_s for o in self._owed.values()), default=None)
        wait_s = None if soonest is None else max(0.0, soonest - self._clock.monotonic())
        try:
            async with asyncio.timeout(wait_s):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _serve(self, owed: _Owed) -> None:
        slug = owed.mind.slug
        owed.is_fresh = False
        try:
            if await self.once(owed):
                owed.due_s, owed.failures = 0.0, 0
            elif not owed.is_fresh:
                self._settle(owed)
        except LeaseLost:
            # Whoever runs the mind now finds what is open.
            self._settle(owed)
        except _Waits as exc:
            self._put_off(owed, exc.seconds)
        except (Unavailable, TimeoutError) as exc:
            log.warning("remembering_waits", mind=slug, reason=str(exc))
            self._put_off(owed, 0.0)
        except Exception:
            # One mind's trouble must not stop the others; it is shown, and tried again.
            log.exception("remembering_failed", mind=slug)
            self._put_off(owed, _RETRY_S[-1])

    def _settle(self, owed: _Owed) -> None:
        if self._owed.get(owed.mind.id) is owed:
            del self._owed[owed.mind.id]

    def _put_off(self, owed: _Owed, at_least_s: float) -> None:
        wait_s = max(at_least_s, _RETRY_S[min(owed.failures, len(_RETRY_S) - 1)])
        owed.due_s = self._clock.monotonic() + wait_s
        owed.failures += 1

    async def once(self, owed: _Owed) -> int:
        """Carry out the oldest open intents of the mind, at most twenty; return how many.

        Raises LeaseLost when another daemon took the mind over.
        """
        async with self._db.reading() as tx:
            rows = await store.open_intents(tx.conn, owed.mind.id, to_remember=True, limit=_AT_ONCE)
        intents = [_intent(r) for r in rows]
        if not intents:
            return 0
        await self._start(owed, [i for i in intents if not i.is_started])
        told = {e.id: e for e in await self._events.get_many([i.event for i in intents])}
        await self._checkpoint(5)
        made: list[Unit] = []
        waits: _Waits | None = None
        for intent in intents:
            try:
                made.append(await self._keep(owed, intent, told.get(intent.event)))
            except _Waits as exc:
                waits = exc
            if waits is not None or self._stopping:
                break
        await self._checkpoint(6)
        await self._conclude(owed, made)
        await self._checkpoint(7)
        if waits is not None:
            raise waits
        return len(made)

    async def _start(self, owed: _Owed, intents: Sequence[_Intent]) -> None:
        if intents:
            unit = Unit(
                events=[self._event(owed, i, "action.started", {}) for i in intents],
                fence=_fence(owed),
                acts=[ActState(intent=i.id, state="started") for i in intents],
            )
            await self._writer.submit(unit)

    async def _conclude(self, owed: _Owed, units: Sequence[Unit]) -> None:
        if units:
            unit = Unit(
                events=[e for u in units for e in u.events],
                fence=_fence(owed),
                acts=[a for u in units for a in u.acts],
                derivations=[d for u in units for d in u.derivations],
            )
            await self._writer.submit(unit)

    async def _keep(self, owed: _Owed, intent: _Intent, told: Event | None) -> Unit:
        who = identity_of(owed.mind)
        if who is None:
            return self._refused(owed, intent, "the mind's namespace is too deep")
        if told is None or told.is_redacted:
            return self._refused(owed, intent, "the text was redacted")
        try:
            result = await self._memory.keep(
                who, _write(owed.mind, intent, told), key=str(intent.id)
            )
        except RateLimited as exc:
            raise await self._waits(owed, intent, exc.code, exc.retry_after_s) from exc
        except (Unavailable, TimeoutError) as exc:
            code = exc.code if isinstance(exc, NoemaError) else "late"
            raise await self._waits(owed, intent, code, 0) from exc
        except NoemaError as exc:
            return self._refused(owed, intent, exc.code, str(exc))
        except Exception as exc:
            log.exception("memory_not_written", mind=owed.mind.slug, intent=str(intent.id))
            if owed.failures < _TRIES:
                raise await self._waits(owed, intent, "failed", 0) from exc
            # What fails so often by a bug would hold up for ever all that comes after it.
            return self._refused(owed, intent, f"failed: {type(exc).__name__}")
        item = result.items[0] if result.items else None
        if item is None or item.id is None:
            return self._refused(owed, intent, "rejected", (item and item.reason) or "")
        return self._written(owed, intent, item.id, item.outcome)

    def _written(self, owed: _Owed, intent: _Intent, memory: UUID, outcome: str) -> Unit:
        data = {"memory": memory, "outcome": outcome, "kind": intent.kind.value}
        # An insight is told by the thought itself.
        causes = tuple(dict.fromkeys((intent.thought_id, intent.event)))
        written = self._event(owed, intent, "memory.written", data, causes=causes)
        done = self._event(owed, intent, "action.completed", {}, causes=(written.id,))
        return Unit(
            events=(written, done),
            acts=(ActState(intent=intent.id, state="done"),),
            derivations=tuple(
                Derivation(source=cause, to=memory, kind="remembered") for cause in causes
            ),
        )

    def _refused(self, owed: _Owed, intent: _Intent, reason: str, said: str = "") -> Unit:
        content = {"said": said} if said else None
        event = self._event(owed, intent, "action.refused", {"reason": reason}, content=content)
        return Unit(
            events=(event,),
            acts=(ActState(intent=intent.id, state="refused"),),
            derivations=(Derivation(source=intent.thought_id, to=event.id, kind="refused"),),
        )

    async def _waits(self, owed: _Owed, intent: _Intent, code: str, seconds: float) -> "_Waits":
        """Say so in the log of the mind, once for as long as it lasts."""
        log.warning("remembering_waits", mind=owed.mind.slug, reason=code)
        if not owed.failures:
            event = self._event(owed, intent, "memory.waits", {"reason": code})
            await self._writer.submit(Unit(events=(event,), fence=_fence(owed)))
        return _Waits(seconds)

    def _event(
        self,
        owed: _Owed,
        intent: _Intent,
        type_: str,
        data: Mapping[str, Any],
        *,
        causes: Sequence[UUID] = (),
        content: Mapping[str, Any] | None = None,
    ) -> NewEvent:
        return new_event(
            self._ids,
            type=type_,
            occurred_at=self._clock.now(),
            actor=owed.mind.actor,
            mind_id=owed.mind.id,
            cycle_id=intent.cycle_id,
            causes=causes or (intent.thought_id,),
            data={"intent": intent.id, "act": ACT, **data},
            content=content,
        )


class _Waits(Exception):  # noqa: N818
    """Memory could not take it now; again after so many seconds at the earliest."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def _fence(owed: _Owed) -> Fence:
    return Fence(mind=owed.mind.id, epoch=owed.epoch)


def _intent(row: Mapping[str, Any]) -> _Intent:
    content = row["content"]
    return _Intent(
        id=row["id"],
        cycle_id=row["cycle_id"],
        thought_id=row["thought_id"],
        event=UUID(content["event"]),
        kind=Kind(content["kind"]),
        importance=int(content["importance"]),
        sources=tuple(UUID(source) for source in content.get("sources", "").split()),
        is_started=row["state"] == "started",
        is_heard="heard" in content,
    )


def _write(mind: Mind, intent: _Intent, told: Event) -> Write:
    """Return what is written of the event: always the same, or the key would be used twice."""
    text = str(told.content.get("text", ""))[:MAX_TEXT_CHARS]
    source = f"thought:{intent.thought_id}"
    importance = intent.importance / MICRO
    if told.type in _SPOKEN:
        speaker = mind.slug if told.type == "message.sent" else str(told.content.get("speaker", ""))
        turn = TurnIn(speaker=speaker or "someone", text=text, at=told.occurred_at)
        return Write(
            messages=(turn,),
            conversation=str(told.data["conversation"]),
            source=source,
            importance=importance,
            verbatim=True,
        )
    if intent.kind is Kind.SEMANTIC:
        # By way of consolidation where it rests on memories alone: no more trusted than the least
        # of them, no less protected than the strictest, and withdrawn with any of them. What rests
        # on something heard as well is a claim, and no more trusted than that.
        return Write(
            text=text,
            kind=intent.kind,
            epistemic_kind=EpistemicKind.CLAIM if intent.is_heard else None,
            source=source,
            importance=importance,
            derived_from=intent.sources,
            verbatim=True,
        )
    is_fact = intent.kind is Kind.FACT
    return Write(
        text=text,
        kind=intent.kind,
        epistemic_kind=EpistemicKind.CLAIM if is_fact else EpistemicKind.OBSERVATION,
        event_time=told.occurred_at,
        source=source,
        importance=importance,
        verbatim=True,
    )

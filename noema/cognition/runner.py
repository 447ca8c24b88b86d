"""The runner: which minds this process runs, when each of them thinks, and who may.

One task per mind whose lease is held. It sleeps until woken or until its mode's timer, in capped
chunks against a persisted wall-clock time, and never spins.

    free ──take (epoch+1)──▶ held ──renew──▶ held ──lapsed, or a commit refused──▶ free
                               │
                               └─ load: checkpoint, refold, open intents ─▶ wait ⇄ cycle

A notification says which minds have new input; a poll behind it sees what none announced.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final
from uuid import UUID

import msgspec
import structlog

from noema.cognition import record, store
from noema.cognition.cycle import Thinker, Trigger, decode_state, refold
from noema.cognition.executive import Executive
from noema.cognition.model import MICRO, Mind, MindSettings, Mode
from noema.cognition.remembering import Remembering, identity_of
from noema.cognition.state import STATE_VERSION, MindState, Modes, room
from noema.core.clock import Clock, to_micros
from noema.core.errors import LeaseLost, NoemaError, NotFound, Unavailable
from noema.db.tx import Database
from noema.events.log import EventLog
from noema.events.model import Event
from noema.events.writer import Writer

log = structlog.get_logger()

LEASE_S: Final = 15.0
POLL_S: Final = 5.0
CONTROL_AT_ONCE: Final = 200
URGENT: Final = 800_000
_REFOLD_PAGE: Final = 50
_RETRY_S: Final = (1.0, 5.0, 15.0, 60.0)

Checkpoint = Callable[[int], Awaitable[None]]
"""Called at every numbered await of a cycle, so that a test can end the process there.

1 inputs read · 2 thought out, nothing kept · 3 committed · 4 acted. Beside the cycle, of what is to
be remembered: 5 started · 6 written, result not kept · 7 result kept.
"""


async def no_checkpoint(number: int) -> None:
    """Do nothing, as in every process that is not being tested."""


class MindStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a mind that this process runs is doing. Lateness of its last timer in microseconds."""

    slug: str
    epoch: int
    cycle: int
    timer_late_us: int


class Runner:
    """Runs the minds whose leases this process can get, until `stop`."""

    def __init__(
        self,
        *,
        db: Database,
        events: EventLog,
        writer: Writer,
        thinker: Thinker,
        executive: Executive,
        clock: Clock,
        owner: UUID,
        lease_s: float = LEASE_S,
        checkpoint: Checkpoint = no_checkpoint,
        remembering: Remembering | None = None,
    ) -> None:
        self.remembering = remembering
        self.db = db
        self.events = events
        self.writer = writer
        self.thinker = thinker
        self.executive = executive
        self.clock = clock
        self.owner = owner
        self.checkpoint = checkpoint
        self._lease_s = lease_s
        self._held: dict[UUID, _MindLoop] = {}
        self._stopping = asyncio.Event()
        self._look = asyncio.Event()

    @property
    def statuses(self) -> list[MindStatus]:
        """The minds this process runs."""
        return [loop.status for loop in self._held.values()]

    def wake(self, payload: str) -> None:
        """Tell the named minds that there is something for them; `*` tells all."""
        if payload == "*":
            for loop in self._held.values():
                loop.wake()
            self._look.set()
            return
        for name in payload.split(",") if payload else ():
            try:
                loop_ = self._held.get(UUID(name))
            except ValueError:
                continue
            if loop_ is not None:
                loop_.wake()

    def look_for_minds(self) -> None:
        """Look at once whether there is a mind to run, rather than at the next renewal."""
        self._look.set()

    def stop(self) -> None:
        """Let every cycle under way finish, give the leases back, and end `run`."""
        self._stopping.set()
        self._look.set()
        for loop in self._held.values():
            loop.stop()

    async def run(self) -> None:
        """Hold leases and run their minds until `stop` was called."""
        async with asyncio.TaskGroup() as group:
            if self.remembering is not None:
                group.create_task(self.remembering.run(), name="remembering")
            while not self._stopping.is_set():
                # Cleared before the work, not after: who asks meanwhile is not made to wait.
                self._look.clear()
                try:
                    await self._renew()
                    await self._take(group)
                except (Unavailable, TimeoutError) as exc:
                    log.warning("leases_wait", reason=str(exc))
                await _wait(self._look, self._lease_s / 3)
            for loop in self._held.values():
                loop.stop()
            if self.remembering is not None:
                self.remembering.stop()
        await self._release()

    async def _renew(self) -> None:
        held = {mind: loop.epoch for mind, loop in self._held.items() if not loop.is_done}
        for mind in [m for m, loop in self._held.items() if loop.is_done]:
            del self._held[mind]
        if not held:
            return
        async with self.db.transaction() as tx:
            kept = await store.renew_leases(tx.conn, held, owner=self.owner, for_s=self._lease_s)
        for mind in held.keys() - kept:
            log.warning("lease_lost", mind=self._held[mind].slug)
            self._held.pop(mind).stop()

    async def _take(self, group: asyncio.TaskGroup) -> None:
        async with self.db.reading() as tx:
            free = await store.free_minds(tx.conn, 100)
        for mind in free:
            if mind in self._held:
                continue
            async with self.db.transaction() as tx:
                epoch = await store.take_lease(tx.conn, mind, owner=self.owner, for_s=self._lease_s)
            if epoch is not None:
                loop = _MindLoop(self, mind, epoch)
                self._held[mind] = loop
                group.create_task(loop.run(), name=f"mind {mind}")

    async def _release(self) -> None:
        held = {mind: loop.epoch for mind, loop in self._held.items()}
        self._held.clear()
        if not held:
            return
        try:
            async with self.db.transaction() as tx:
                await store.release_leases(tx.conn, held, owner=self.owner)
        except Unavailable:
            log.warning("leases_left_to_lapse", minds=len(held))


class _MindLoop:
    """One mind under one lease."""

    def __init__(self, runner: Runner, mind: UUID, epoch: int) -> None:
        self._runner = runner
        self._mind = mind
        self.epoch = epoch
        self.slug = str(mind)
        self.is_done = False
        self._stopping = False
        self._woken = asyncio.Event()
        self._woken.set()
        self._cycle = 0
        self._looked_at = 0
        self._answering = False
        self._timer_late_us = 0

    @property
    def status(self) -> MindStatus:
        return MindStatus(
            slug=self.slug,
            epoch=self.epoch,
            cycle=self._cycle,
            timer_late_us=self._timer_late_us,
        )

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        self._stopping = True
        self._woken.set()

    async def run(self) -> None:
        failures = 0
        while not self._stopping:
            try:
                await self._live()
                failures = 0
            except LeaseLost:
                log.warning("lease_lost", mind=self.slug)
                break
            except (Unavailable, TimeoutError) as exc:
                log.warning("mind_waits", mind=self.slug, reason=str(exc))
                await self._pause(_RETRY_S[min(failures, 1)])
                failures += 1
            except Exception as exc:
                # One mind's trouble must not stop the others; it is shown, and tried again.
                log.exception("mind_failed", mind=self.slug)
                await self._note(type(exc).__name__)
                await self._pause(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
                failures += 1
        self.is_done = True
        self._runner.look_for_minds()

    async def _pause(self, seconds: float) -> None:
        self._woken.clear()
        if not self._stopping:
            await _wait(self._woken, seconds)

    async def _note(self, kind: str) -> None:
        try:
            async with self._runner.db.transaction() as tx:
                text = (
                    f"A cycle failed with {kind}; the daemon's log tells where. It is tried again."
                )
                await store.note_error(tx.conn, self._mind, text)
        except NoemaError:
            log.warning("error_not_noted", mind=self.slug)

    async def _live(self) -> None:
        runner = self._runner
        async with runner.db.reading() as tx:
            row = (await store.minds(tx.conn, id_=self._mind, limit=1))[0]
            modes = await store.modes(tx.conn)
        self.slug = row.slug
        state = await load_state(runner.db, runner.events, row, modes)
        self._cycle = state.cycle
        await self._act(state, modes)
        self._remember(row)
        control: Sequence[Event] = ()
        stimuli: Sequence[Event] = ()
        ahead: Trigger | None = None
        self._looked_at = 0
        self._woken.set()
        while not self._stopping:
            if self._woken.is_set():
                self._woken.clear()
                control, stimuli, row = await self._read(state)
                ahead = await self._look_ahead(state, control, stimuli, row, modes)
            await runner.checkpoint(1)
            trigger = self._trigger(state, control, stimuli, row, modes) or ahead
            if trigger is None:
                await self._sleep(row)
                continue
            thought = await runner.thinker.think(
                state,
                control,
                stimuli,
                mind=self._mind,
                actor=row.actor,
                trigger=trigger,
                modes=modes,
                epoch=self.epoch,
                who=identity_of(row),
            )
            await runner.checkpoint(2)
            await runner.writer.submit(thought.unit)
            await runner.checkpoint(3)
            state = thought.state
            self._cycle = state.cycle
            # A cycle answers a few; the others need not wait for the timer. Only while answers are
            # given, or a mode that lets none through would go round and round.
            answered = any(s.candidate.replies_to for s in thought.outcome.admitted)
            self._answering = answered and bool(state.questions)
            update = thought.unit.cycle
            if update is not None and row.mode_epoch == state.mode_epoch:
                row = msgspec.structs.replace(row, mode=update.mode, next_due=update.next_due)
            if stimuli or control:
                # There may be more than fitted; read on at once rather than wait to be told.
                control, stimuli, ahead = (), (), None
                self._looked_at = 0
                self._woken.set()
            if thought.has_intents:
                await self._act(state, modes)
                await runner.checkpoint(4)
            if thought.has_intents or thought.has_memories:
                self._remember(row)

    async def _read(self, state: MindState) -> tuple[Sequence[Event], Sequence[Event], Mind]:
        runner = self._runner
        async with runner.db.reading() as tx:
            found = await store.minds(tx.conn, id_=self._mind, limit=1)
        if not found:
            raise NotFound("mind", self._mind)
        control, stimuli = await runner.events.waiting(
            self._mind,
            control=state.control,
            stimuli=state.cursor,
            most_control=CONTROL_AT_ONCE,
            most_stimuli=room(state),
        )
        return control, stimuli, found[0]

    async def _look_ahead(
        self,
        state: MindState,
        control: Sequence[Event],
        stimuli: Sequence[Event],
        row: Mind,
        modes: Modes,
    ) -> Trigger | None:
        """Return what calls the mind from behind more than it takes at once, where it sleeps."""
        mode = mode_in_force(row, modes)
        # Behind less than a full page stands nothing that was there when it was read; what came
        # since wakes the mind by itself, and would count twice.
        more_control = len(control) >= CONTROL_AT_ONCE
        more_stimuli = len(stimuli) >= room(state)
        if "stimulus" in mode.triggers or not (more_control or more_stimuli):
            return None
        is_stepped, is_urgent, self._looked_at = await self._runner.events.ahead(
            self._mind,
            control=control[-1].seq if control else state.control,
            # What was looked at and did not call is not looked at again at every wake-up.
            stimuli=max(self._looked_at, stimuli[-1].seq if stimuli else state.cursor),
            urgency=URGENT,
        )
        if is_stepped and more_control:
            return Trigger(name="operator")
        is_called = is_urgent and more_stimuli and "urgent" in mode.triggers
        return Trigger(name="urgent") if is_called else None

    async def _act(self, state: MindState, modes: Modes) -> None:
        may_act = modes[state.mode, state.mode_version].may_act
        await self._runner.executive.act(
            mind=self._mind, slug=self.slug, epoch=self.epoch, may_act=may_act
        )

    def _remember(self, row: Mind) -> None:
        if self._runner.remembering is not None:
            self._runner.remembering.owes(row, self.epoch)

    def _trigger(
        self,
        state: MindState,
        control: Sequence[Event],
        stimuli: Sequence[Event],
        row: Mind,
        modes: Modes,
    ) -> Trigger | None:
        mode = mode_in_force(row, modes)
        types = {e.type for e in control}
        if "step.requested" in types:
            return Trigger(name="operator")
        if "message.received" in types:
            if "message" in mode.triggers:
                return Trigger(name="message")
            if "urgent" in mode.triggers:
                return Trigger(name="urgent")
        if types & {"goal.set", "goal.closed"} and "goal" in mode.triggers:
            return Trigger(name="goal")
        if stimuli:
            if "stimulus" in mode.triggers:
                return Trigger(name="stimulus")
            urgent = any(e.data.get("urgency", 0) >= URGENT for e in stimuli)
            if urgent and "urgent" in mode.triggers:
                return Trigger(name="urgent")
        if (state.pending or self._answering) and "pending" in mode.triggers:
            return Trigger(name="pending")
        return self._timer(mode, row)

    def _timer(self, mode: Mode, row: Mind) -> Trigger | None:
        if row.next_due is None or "timer" not in mode.triggers or mode.timer_min_s is None:
            return None
        now_us, due_us = to_micros(self._runner.clock.now()), to_micros(row.next_due)
        longest_us = (mode.timer_max_s or mode.timer_min_s) * MICRO
        if due_us - now_us > longest_us:
            # The wall clock was set back; nobody meant the mind to sleep until it catches up.
            due_us = now_us
        if now_us < due_us:
            return None
        self._timer_late_us = now_us - due_us
        return Trigger(
            name="timer", due_us=due_us, missed=(now_us - due_us) // (mode.timer_min_s * MICRO)
        )

    async def _sleep(self, row: Mind) -> None:
        wait_s = POLL_S
        if row.next_due is not None:
            until = (row.next_due - self._runner.clock.now()).total_seconds()
            wait_s = min(max(until, 0.0), POLL_S)
        if not await _wait(self._woken, wait_s) and wait_s >= POLL_S:
            self._woken.set()


def mode_in_force(row: Mind, modes: Modes) -> Mode:
    """Return the mode by the mind's row, which an operator changes before the mind observes it."""
    return modes[row.mode, max(v for name, v in modes if name == row.mode)]


async def load_state(db: Database, events: EventLog, mind: Mind, modes: Modes) -> MindState:
    """Return the mind's present state: its last checkpoint, folded on over what came after.

    A checkpoint of another version of the fold is not used; the state is then folded from the log.
    """
    async with db.reading() as tx:
        kept = await store.checkpoint(tx.conn, mind.id)
    if kept is not None and kept[2] == STATE_VERSION:
        state = decode_state(kept[0])
    else:
        state = await first_state(db, mind)
    states = [state]
    async for folded in fold_cycles(db, events, mind.id, state, modes, through=mind.cycles):
        states[0] = folded
    return states[0]


async def first_state(db: Database, mind: Mind) -> MindState:
    """Return the state of the mind before its first cycle."""
    async with db.reading() as tx:
        created = await store.creation(tx.conn, mind.id)
    if created is None:
        raise NotFound("beginning of mind", mind.slug)
    return MindState(
        settings=msgspec.convert(created["settings"], MindSettings),
        settings_version=created["settings_version"],
    )


async def recorded_cycles(
    db: Database, events: EventLog, mind: UUID, *, first: int, last: int
) -> list[record.RecordedCycle]:
    """Return the recorded cycles from the first on, at most a page of them."""
    async with db.reading() as tx:
        heads = await store.cycle_heads(tx.conn, mind, first, last, limit=_REFOLD_PAGE)
    rows: dict[UUID, list[Event]] = {cycle: [] for cycle, _ in heads}
    for event in await events.of_cycles(list(rows)):
        if event.cycle_id is not None:
            rows[event.cycle_id].append(event)
    return [record.read(rows[cycle]) for cycle, _ in heads]


async def inputs_of(
    events: EventLog, mind: UUID, cycle: record.RecordedCycle, state: MindState
) -> tuple[list[Event], list[Event]]:
    """Return what the recorded cycle observed, given the state before it."""
    control: list[Event] = []
    stimuli: list[Event] = []
    if cycle.control_through > state.control:
        control = await events.control_between(
            mind, state.control, cycle.control_through, limit=CONTROL_AT_ONCE + 1
        )
    if cycle.through > state.cursor:
        stimuli = await events.stimuli_between(mind, state.cursor, cycle.through, limit=2_001)
    return control, stimuli


async def fold_cycles(
    db: Database,
    events: EventLog,
    mind: UUID,
    state: MindState,
    modes: Modes,
    *,
    through: int,
) -> AsyncIterator[MindState]:
    """Yield the state after each recorded cycle that follows `state`, up to cycle `through`."""
    while state.cycle < through:
        page = await recorded_cycles(db, events, mind, first=state.cycle + 1, last=through)
        if not page:
            return
        for cycle in page:
            control, stimuli = await inputs_of(events, mind, cycle, state)
            state = refold(state, cycle, control, stimuli, modes)
            yield state
        await asyncio.sleep(0)


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    """Return True once the event is set, False when the time is up first."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def load_modes(db: Database) -> Modes:
    """Return every version of every mode."""
    async with db.reading() as tx:
        return await store.modes(tx.conn)

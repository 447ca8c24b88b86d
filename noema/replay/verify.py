"""`verify`: rebuild a mind from its log, and recompute every recorded cycle of a range.

    mind.created ─▶ fold cycles 1 … first-1 (as recorded) ─▶ think first … last again, compare each

The checkpoint is never read: it is a copy, and the log is the truth. The walk ends at the first
difference, because the state after it would be a guess.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NoReturn
from uuid import UUID

import msgspec

from noema.cognition.model import Mind, MindSettings
from noema.cognition.process import Process
from noema.cognition.runner import CONTROL_AT_ONCE
from noema.cognition.state import MindState, Modes
from noema.core.errors import NoemaError
from noema.db.tx import Database
from noema.events.log import EventLog
from noema.events.model import Event
from noema.replay import store
from noema.replay.check import Checker
from noema.replay.compare import Differs, raise_difference
from noema.replay.model import Difference, Report
from noema.replay.recorded import Head, Recorded

Progress = Callable[[int], Awaitable[None]]
"""Called after every page with the number of cycles verified so far."""

_PAGE_CYCLES: Final = 100
_PAGE_EVENTS: Final = 400
_STIMULI_AT_ONCE: Final = 2_001
_END: Final = 2**63 - 1
_TEXT_INPUTS: Final = ("stimulus.received", "message.received", "goal.set", "mode.set")
_FIELD = re.compile(r"`\$\.([^`]+)`|required field `([^`]+)`")


async def no_progress(verified: int) -> None:
    """Tell nobody."""


async def verify(
    db: Database,
    events: EventLog,
    mind: Mind,
    modes: Modes,
    processes: Sequence[Process],
    *,
    first: int,
    last: int,
    progress: Progress = no_progress,
) -> Report:
    """Return how many cycles of the range agree with what this code computes, and where not.

    Whatever stands in the log is a finding, never an error; Unavailable is raised where the
    database cannot be read. Cycles before the range are folded as they are recorded: what was
    falsified there shows where its consequences reach the range. The event loop is given a turn
    every few milliseconds.
    """
    checker = Checker(mind=mind.id, actor=mind.actor, modes=modes, processes=processes)
    walk = _Walk(db, events, mind, checker, first=first, last=last)
    found: Difference | None = None
    try:
        await walk.run(progress)
    except Differs as exc:
        found = exc.difference
        if found.cycle < first:
            what = f"{found.what}; what cycle {first} began with cannot be rebuilt"
            found = msgspec.structs.replace(found, what=what)
    return Report(
        cycles=max(0, last - first + 1),
        verified=walk.verified,
        first_difference=found,
        notes=tuple(checker.notes),
    )


class _Walk:
    """One walk over a mind's cycles, from the first on."""

    def __init__(
        self,
        db: Database,
        events: EventLog,
        mind: Mind,
        checker: Checker,
        *,
        first: int,
        last: int,
    ) -> None:
        self._db = db
        self._events = events
        self._mind = mind
        self._checker = checker
        self._first = first
        self._last = last
        # From the first redaction on a difference may be its doing; once something that a cycle
        # observed was redacted, features can only be taken as recorded.
        self._is_redacted = False
        self._is_recounting = False
        self.verified = 0

    async def run(self, progress: Progress) -> None:
        if self._last < self._first:
            return
        state = await self._beginning()
        while state.cycle < self._last:
            async for cycle, own in self._page(state.cycle + 1):
                state = await self._step(state, cycle, own)
                if state.cycle >= self._first:
                    self.verified += 1
                await asyncio.sleep(0)
            await progress(self.verified)

    async def _beginning(self) -> MindState:
        found = await self._events.after(0, mind=self._mind.id, type_="mind.created", limit=2)
        try:
            data = found[0].data
            state = MindState(
                settings=msgspec.convert(data["settings"], MindSettings),
                settings_version=data["settings_version"],
            )
        except (LookupError, TypeError, msgspec.ValidationError):
            raise_difference(
                1, None, "mind.created", (len(found), 1), "", "the mind's beginning cannot be read"
            )
        if not (found[0].is_intact or found[0].is_redacted):
            what = f"the content of mind.created {found[0].id} is not what was committed to"
            values = found[0].commitment.hex(), "another"
            raise_difference(1, None, "commitment", values, "mind.created", what)
        return state

    async def _page(self, number: int) -> AsyncIterator[tuple[int, list[Event]]]:
        """Yield the next cycles with their events; raise Differs where the next one is missing."""
        async with self._db.reading() as tx:
            heads = await store.heads(
                tx.conn, self._mind.id, number, self._last, limit=_PAGE_CYCLES + 1
            )
        if not heads:
            _missing(number)
        taken = 0
        # The last one is looked at only to see that it is not the one before it again.
        whole = min(len(heads), _PAGE_CYCLES)
        twice = {h[1] for h, after in pairwise(heads) if h[1] == after[1]}
        while taken < whole:
            ids: list[UUID] = []
            weight = 0
            start = taken
            while taken < whole and (not ids or weight + heads[taken][2] <= _PAGE_EVENTS):
                cycle_id, found, size = heads[taken]
                if found != number + taken or found in twice:
                    break
                if cycle_id is None:
                    raise_difference(found, None, "cycle_id", (None, "an id"), "cycle.completed")
                ids.append(cycle_id)
                weight += size
                taken += 1
            own: dict[UUID | None, list[Event]] = {}
            for event in await self._events.of_cycles(ids) if ids else ():
                own.setdefault(event.cycle_id, []).append(event)
            for i, id_ in enumerate(ids):
                yield number + start + i, own.get(id_, [])
            if taken < whole and heads[taken][1] != number + taken:
                _missing(number + taken)
            if taken < whole and number + taken in twice:
                what = f"cycle {number + taken} is recorded twice"
                raise_difference(number + taken, None, "cycle", (2, 1), "", what)

    async def _step(self, state: MindState, number: int, own: list[Event]) -> MindState:
        cycle = await self._recorded(state, number, own)
        try:
            if number < self._first:
                return await self._fold(state, cycle)
            return await self._check(state, cycle)
        except (Differs, NoemaError):
            raise
        except Exception as exc:  # noqa: BLE001
            # A falsified event can break any line of the code it is put through; that it does is
            # the finding.
            what = f"what is recorded of cycle {number} cannot be read: {type(exc).__name__}"
            raise_difference(number, None, "malformed", (type(exc).__name__, None), "", what)

    async def _recorded(self, state: MindState, number: int, own: list[Event]) -> Recorded:
        completed = [e for e in own if e.type == "cycle.completed"]
        if len(completed) != 1:
            what = f"cycle {number} has {len(completed)} completions"
            raise_difference(number, None, "cycle", (len(completed), 1), "", what)
        try:
            head = msgspec.convert(completed[0].data, Head)
        except msgspec.ValidationError as exc:
            field = _FIELD.search(str(exc))
            feature = "cycle.completed" if field is None else field[1] or field[2]
            recorded: Any = completed[0].data.get(feature) if field is not None else None
            what = f"cycle.completed of cycle {number} cannot be read: {exc}"
            raise_difference(number, None, feature, (recorded, None), "", what)
        if sorted(head.processes) != sorted(head.versions):
            values = list(head.processes), sorted(head.versions)
            raise_difference(number, None, "processes", values, "cycle.completed")
        for name, position in (
            ("through", head.through),
            ("control_through", head.control_through),
        ):
            if not 0 <= position <= _END:
                raise_difference(number, None, name, (position, None), "cycle.completed")
        control: list[Event] = []
        stimuli: list[Event] = []
        if head.control_through > state.control:
            control = await self._events.control_between(
                self._mind.id, state.control, head.control_through, limit=CONTROL_AT_ONCE + 1
            )
        if head.through > state.cursor:
            stimuli = await self._events.stimuli_between(
                self._mind.id, state.cursor, head.through, limit=_STIMULI_AT_ONCE
            )
        redacted = [e.id for e in (*control, *stimuli, *own) if e.is_redacted]
        redactions: frozenset[UUID] = frozenset()
        if redacted:
            async with self._db.reading() as tx:
                redactions = await store.redactions(tx.conn, redacted)
        return Recorded(
            head=head,
            events=tuple(own),
            control=tuple(control),
            stimuli=tuple(stimuli),
            redactions=redactions,
        )

    def _notice_redactions(self, cycle: Recorded) -> None:
        number = cycle.head.number
        inputs = [e for e in cycle.inputs if e.is_redacted and e.type in _TEXT_INPUTS]
        own = [e for e in cycle.events if e.is_redacted]
        if own:
            self._checker.note(
                f"Cycle {number}: {_counted(own)} redacted; the rest of the cycle was compared."
            )
        if inputs and not self._is_recounting:
            self._is_recounting = True
            self._checker.note(
                f"Cycle {number}: {_counted(inputs)} redacted. What was proposed and its features"
                " hang on that text: from here on they are taken as recorded, and weights, scores,"
                " gates, ranks and admissions are recomputed from them."
            )
        self._is_redacted = self._is_redacted or bool(inputs or own)

    async def _fold(self, state: MindState, cycle: Recorded) -> MindState:
        self._notice_redactions(cycle)
        if self._is_recounting:
            return self._checker.fold(state, cycle, mode_too=True)
        if any(e.is_redacted for e in cycle.events):
            try:
                return await self._checker.rethink(state, cycle)
            except Differs:
                self._recount_from(cycle)
                return self._checker.fold(state, cycle, mode_too=True)
        return self._checker.fold(state, cycle, mode_too=False)

    async def _check(self, state: MindState, cycle: Recorded) -> MindState:
        await self._checker.check_integrity(cycle)
        self._notice_redactions(cycle)
        if not self._is_recounting:
            try:
                return await self._checker.rethink(state, cycle)
            except Differs as exc:
                if not (self._is_redacted and exc.is_inexact):
                    raise
                self._recount_from(cycle)
        return await self._checker.recount(state, cycle)

    def _recount_from(self, cycle: Recorded) -> None:
        self._is_recounting = True
        self._checker.note(
            f"Cycle {cycle.head.number} does not follow from the log any more, as can be after the"
            " redaction named before: a mind started again since went on without that text."
            " From here on features are taken as recorded, and weights, scores, gates, ranks and"
            " admissions are recomputed from them."
        )


def _counted(events: Sequence[Event]) -> str:
    return f"{len(events)} event{' is' if len(events) == 1 else 's are'}"


def _missing(number: int) -> NoReturn:
    what = f"cycle {number} is missing from the log"
    raise_difference(number, None, "cycle", ("absent", number), "", what)

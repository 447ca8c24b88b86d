"""Checking one recorded cycle: think it again from the state before it, and compare every event.

    inputs intact? ─▶ observe ─▶ weights ─▶ propose (recorded port answers) ─▶ attend ─▶ conclude
          each result against its event, canonical bytes of data and content ─▶ the state after it

What cannot be recomputed is taken as recorded: the proposals of a process of another version, the
answers of ports, times taken. After something that a cycle observed was redacted, the same holds
for all features, since they hang on the text: then weights, contributions, scores, gates, ranks,
admissions, digests and numbering are still recomputed.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from noema.cognition.attention import (
    SCORER_VERSION,
    Proposal,
    attend,
    decide,
    effective_weights,
    entries_of,
)
from noema.cognition.model import Brain, Outcome
from noema.cognition.process import Process
from noema.cognition.record import (
    PortAnswer,
    Turn,
    Writing,
    candidate_set,
    read,
    read_answer,
)
from noema.cognition.state import (
    STATE_VERSION,
    MindState,
    Modes,
    conclude,
    modes_then,
    observe,
)
from noema.events.model import REDACTED, Event, NewEvent
from noema.replay.compare import (
    Differs,
    compare_content,
    compare_data,
    compare_frame,
    differing,
    plain,
    raise_difference,
    same,
)
from noema.replay.recorded import (
    NO_ID,
    Recorded,
    RecordedIds,
    RecordedPorts,
    proposals_of,
    thoughts_of,
)

_CHUNK: Final = 50


class Checker:
    """Checks the cycles of one mind, with the processes of this code."""

    def __init__(
        self, *, mind: UUID, actor: str, modes: Modes, processes: Sequence[Process]
    ) -> None:
        self._mind = mind
        self._actor = actor
        self._modes = modes
        self._processes = {p.name: p for p in processes}
        self.notes: dict[str, None] = {}

    # -- what holds of every cycle ---------------------------------------------------------------

    async def check_integrity(self, cycle: Recorded) -> None:
        """Raise Differs unless every event is what was committed to, or redacted by the book."""
        number = cycle.head.number
        if cycle.head.scorer_version != SCORER_VERSION:
            self._other_version(cycle, "scorer_version", "scorer", SCORER_VERSION)
        if cycle.head.state_version != STATE_VERSION:
            self._other_version(cycle, "state_version", "state", STATE_VERSION)
        folded = {c: e.id for e in cycle.of("candidate.scored") for c in e.causes}
        for i, event in enumerate((*cycle.inputs, *cycle.events)):
            if i % _CHUNK == 0:
                await asyncio.sleep(0)
            about = event.id if event.type == "candidate.scored" else folded.get(event.id)
            if event.is_redacted:
                if dict(event.content) != REDACTED or event.id not in cycle.redactions:
                    what = f"{event.type} {event.id} looks redacted, but no redaction is on record"
                    values = "no salt", "a redaction on record"
                    raise_difference(
                        number, about, "redaction", values, event.type, what, is_inexact=False
                    )
            elif not event.is_intact:
                what = f"the content of {event.type} {event.id} is not what was committed to"
                values = event.commitment.hex(), "another"
                raise_difference(
                    number, about, "commitment", values, event.type, what, is_inexact=False
                )

    def _other_version(self, cycle: Recorded, feature: str, name: str, ours: int) -> None:
        theirs = getattr(cycle.head, feature)
        what = f"recorded by {name} {theirs}, this code has {ours}"
        self.note(f"Cycle {cycle.head.number} was {what}.")
        raise_difference(
            cycle.head.number, None, feature, (theirs, ours), "", what, is_inexact=False
        )

    def note(self, sentence: str) -> None:
        """Keep the sentence, once, for the report."""
        if len(self.notes) < 100:
            self.notes[sentence] = None

    def observe(self, state: MindState, cycle: Recorded) -> tuple[MindState, Brain]:
        """Return the state and the snapshot that the cycle began with."""
        return observe(
            state,
            cycle.control,
            cycle.stimuli,
            now_us=cycle.head.as_of_us,
            trigger=cycle.head.trigger,
            modes=self._modes,
        )

    def fold(self, state: MindState, cycle: Recorded, *, mode_too: bool) -> MindState:
        """Return the state after the cycle, its outcome taken as recorded.

        With `mode_too` the mode is taken as recorded as well, before and after.
        """
        recorded = read(cycle.events)
        state, brain = self.observe(state, cycle)
        if mode_too:
            mode = self._modes[cycle.head.mode, cycle.head.mode_version]
            brain = msgspec.structs.replace(brain, mode=mode)
            state = msgspec.structs.replace(state, mode=mode.name, mode_version=mode.version)
        modes = self._modes_then(cycle)
        return conclude(
            state, brain, recorded.outcome, recorded.thoughts, modes, recall=recorded.recall
        ).state

    def _modes_then(self, cycle: Recorded) -> Modes:
        changes = ((e.data["to"], e.data["version"]) for e in cycle.of("mode.changed"))
        return modes_then(self._modes, next(changes, None))

    # -- thinking it again -----------------------------------------------------------------------

    async def rethink(self, state: MindState, cycle: Recorded) -> MindState:
        """Think the cycle again; return the state after it, raise Differs at a difference."""
        state, brain = self.observe(state, cycle)
        self._compare_observed(cycle, state, brain)
        proposals, asked_else = await self._propose(brain, cycle)
        outcome = attend(proposals, brain)
        await asyncio.sleep(0)
        turn = self._turn(cycle, state, brain, outcome)
        places = [(s.candidate.process, s.ordinal) for s in outcome.scored]
        found = self._matched(cycle, outcome)
        ids = RecordedIds()
        events = [found[p] for p in places]
        thoughts = thoughts_of(
            cycle, [e for e, s in zip(events, outcome.scored, strict=True) if s.admitted]
        )
        ids.next = [(e.id, e.salt or b"") for e in (*events, *thoughts)]
        writing = Writing(turn, ids)
        await asyncio.sleep(0)
        await self._compare_candidates(cycle, outcome, events, writing.candidates)
        self._compare_thoughts(cycle, writing, events, thoughts)
        if asked_else is not None:
            raise asked_else
        concluded = conclude(
            state,
            brain,
            outcome,
            [t.id for t in writing.thoughts],
            self._modes_then(cycle),
            recall=cycle.recall,
        )
        made = writing.finish(concluded).events
        for type_ in ("stimulus.expired", "mode.changed", "workspace.broadcast"):
            self._compare_others(cycle, type_, [e for e in made if e.type == type_])
        self._compare_completed(cycle, made[-1], events)
        return concluded.state

    def _compare_observed(self, cycle: Recorded, state: MindState, brain: Brain) -> None:
        settings, mode = state.settings, brain.mode
        data = cycle.completed.data
        observed: Sequence[tuple[str, Any]] = (
            ("through", state.cursor),
            ("control_through", state.control),
            ("mode", mode.name),
            ("mode_version", mode.version),
            ("settings_version", state.settings_version),
            ("weights", effective_weights(settings, mode)),
            ("threshold", settings.threshold),
            ("k", min(mode.k, settings.capacity)),
        )
        for name, value in observed:
            if not same(data.get(name), plain(value)):
                path, one, other = next(differing(data.get(name), plain(value)))
                feature = f"{name}.{path}" if path else name
                raise_difference(
                    cycle.head.number, None, feature, (one, other), "cycle.completed",
                    is_inexact=name in ("mode", "mode_version"),
                )  # fmt: skip

    async def _propose(
        self, brain: Brain, cycle: Recorded
    ) -> tuple[list[Proposal], Differs | None]:
        """Return all proposals, and how the first that asks something else than it did differs.

        That one's proposals are taken as recorded: what led it to ask something else is likely to
        show in others, and names the matter better.
        """
        number = cycle.head.number
        failed = {e.data.get("process") for e in cycle.of("process.failed")}
        answers: dict[str, list[PortAnswer]] = {}
        unknown: set[str] = set()
        for event in cycle.of("port.answered"):
            answers.setdefault(str(event.data.get("process")), []).append(read_answer(event))
            if event.is_redacted:
                unknown.add(str(event.data.get("process")))
        proposals: list[Proposal] = []
        asked_else: Differs | None = None
        for index, name in enumerate(cycle.head.processes):
            process, recorded = self._processes.get(name), cycle.head.versions.get(name)
            if name in failed:
                continue
            if process is None or process.version != recorded or name in unknown:
                self._note_recorded(number, name, recorded, process, is_redacted=name in unknown)
                proposals.extend(proposals_of(cycle, index, name))
                continue
            ports = RecordedPorts(number, name, answers.get(name, ()))
            try:
                made = await process.propose(brain, ports)
            except Exception as exc:  # noqa: BLE001
                what = f"{name} fails now and did not then: {type(exc).__name__}"
                values = "proposals", "a failure"
                raise_difference(number, None, "process.failed", values, "", what)
            try:
                ports.close()
            except Differs as exc:
                asked_else = asked_else or exc
                proposals.extend(proposals_of(cycle, index, name))
            else:
                proposals.extend(Proposal(index, i, c) for i, c in enumerate(made))
            await asyncio.sleep(0)
        return proposals, asked_else

    def _note_recorded(
        self,
        number: int,
        name: str,
        version: int | None,
        process: Process | None,
        *,
        is_redacted: bool,
    ) -> None:
        if is_redacted:
            self.note(
                f"Cycle {number}: what {name} was answered is redacted; its proposals were taken as"
                " recorded."
            )
        else:
            ours = "none" if process is None else f"version {process.version}"
            self.note(
                f"{name} ran as version {version} and this code has {ours}; its proposals were"
                " taken as recorded."
            )

    def _turn(self, cycle: Recorded, state: MindState, brain: Brain, outcome: Outcome) -> Turn:
        head = cycle.head
        return Turn(
            id=cycle.completed.cycle_id or NO_ID,
            mind_id=self._mind,
            actor=self._actor,
            brain=brain,
            through=state.cursor,
            control_through=state.control,
            outcome=outcome,
            answers=(),
            failures=(),
            timings_us=head.timings_us,
            versions={name: head.versions[name] for name in head.processes},
            duration_us=head.duration_us,
            timer_due_us=None,
            missed=0,
        )

    # -- comparing -------------------------------------------------------------------------------

    def _matched(self, cycle: Recorded, outcome: Outcome) -> dict[tuple[str, int], Event]:
        number = cycle.head.number
        found: dict[Any, Event] = {}
        for event in cycle.of("candidate.scored"):
            place = event.data.get("process"), str(event.data.get("ordinal"))
            if place in found:
                what = f"candidate {place[0]} {place[1]} is recorded twice"
                raise_difference(
                    number, event.id, "candidate", (2, 1), event.type, what, is_inexact=False
                )
            found[place] = event
        matched = {}
        order = {name: i for i, name in enumerate(cycle.head.processes)}
        scored = sorted(outcome.scored, key=lambda s: (order[s.candidate.process], s.ordinal))
        for one in scored:
            name = one.candidate.process
            recorded = found.pop((name, str(one.ordinal)), None)
            if recorded is None:
                what = f"the candidate {one.ordinal} of {name} is missing"
                place_ = f"{name} {one.ordinal}"
                raise_difference(number, place_, "candidate", ("absent", place_), "", what)
            matched[name, one.ordinal] = recorded
        if found:
            (name_, ordinal), extra = next(iter(found.items()))
            what = f"a candidate {ordinal} of {name_} is recorded that {name_} does not propose"
            values = f"{name_} {ordinal}", "absent"
            raise_difference(number, extra.id, "candidate", values, "", what)
        return matched

    async def _compare_candidates(
        self,
        cycle: Recorded,
        outcome: Outcome,
        events: Sequence[Event],
        made: Sequence[NewEvent],
    ) -> None:
        number = cycle.head.number
        order = {name: i for i, name in enumerate(cycle.head.processes)}
        pairs = list(zip(outcome.scored, events, made, strict=True))
        # What was proposed first, in the order of proposing; then what attention made of it.
        pairs.sort(key=lambda p: (order[p[0].candidate.process], p[0].ordinal))
        for i, (_, event, expected) in enumerate(pairs):
            if i % _CHUNK == 0:
                await asyncio.sleep(0)
            compare_content(number, event, expected, event.id)
            compare_frame(number, event, expected, event.id, causes="stimuli")
        for i, (_, event, expected) in enumerate(pairs):
            if i % _CHUNK == 0:
                await asyncio.sleep(0)
            compare_data(number, event, expected.data, event.id)

    def _compare_thoughts(
        self,
        cycle: Recorded,
        writing: Writing,
        candidates: Sequence[Event],
        thoughts: Sequence[Event],
    ) -> None:
        number = cycle.head.number
        for expected, event in zip(writing.thoughts, thoughts, strict=True):
            about = expected.causes[0]
            if event.id == NO_ID:
                what = f"candidate {about} was admitted, but its thought is missing"
                raise_difference(number, about, "thought", ("absent", "present"), "", what)
            compare_data(number, event, expected.data, about)
            compare_content(number, event, expected, about)
            compare_frame(number, event, expected, about)
        known = {t.id for t in thoughts}
        for event in cycle.of("thought.admitted"):
            if event.id not in known:
                what = f"thought {event.id} is recorded, but no candidate was admitted for it"
                about_ = next((c.id for c in candidates if c.id in event.causes), None)
                raise_difference(number, about_, "thought", ("present", "absent"), "", what)

    def _compare_others(self, cycle: Recorded, type_: str, made: Sequence[NewEvent]) -> None:
        number, recorded = cycle.head.number, cycle.of(type_)
        if len(recorded) != len(made):
            what = f"{len(recorded)} events {type_} are recorded, {len(made)} follow from the log"
            raise_difference(number, None, type_, (len(recorded), len(made)), type_, what)
        for event, expected in zip(recorded, made, strict=True):
            compare_data(number, event, expected.data, None)
            compare_content(number, event, expected, None)
            compare_frame(number, event, expected, None)

    def _compare_completed(
        self, cycle: Recorded, made: NewEvent, candidates: Sequence[Event]
    ) -> None:
        data: dict[str, Any] = dict(made.data)
        data["candidate_set"] = candidate_set([e.commitment for e in candidates])
        compare_data(cycle.head.number, cycle.completed, data, None)
        compare_content(cycle.head.number, cycle.completed, made, None)
        compare_frame(cycle.head.number, cycle.completed, made, None)

    # -- what is left when text is gone ----------------------------------------------------------

    async def recount(self, state: MindState, cycle: Recorded) -> MindState:
        """Return the state after the cycle; raise Differs where its arithmetic does not hold.

        Features are taken as recorded, for a mind whose state hangs on text that was redacted.
        """
        number, head = cycle.head.number, cycle.head
        recorded = read(cycle.events)
        after = self.fold(state, cycle, mode_too=True)
        observed, _ = self.observe(state, cycle)
        mode = self._modes[head.mode, head.mode_version]
        data: dict[str, Any] = dict(cycle.completed.data)
        settings = observed.settings
        weights = effective_weights(settings, mode)
        await asyncio.sleep(0)
        decided = decide(entries_of(recorded.outcome, head.processes), weights, settings, mode)
        expected = {
            "number": after.cycle,
            "settings_version": observed.settings_version,
            "weights": weights,
            "threshold": settings.threshold,
            "k": decided.k,
            "through": observed.cursor,
            "control_through": observed.control,
            "candidates": len(decided.scored),
            "admitted": len(decided.admitted),
            "margin": decided.margin,
            "candidate_set": candidate_set([e.commitment for e in recorded.candidates]),
        }
        self._compare_arithmetic(cycle, decided, recorded.candidates)
        compare_data(number, cycle.completed, data | expected, None)
        if len(recorded.thoughts) != len(decided.admitted):
            values = len(recorded.thoughts), len(decided.admitted)
            raise_difference(number, None, "thought", values, "thought.admitted")
        return after

    def _compare_arithmetic(
        self, cycle: Recorded, decided: Outcome, candidates: Sequence[Event]
    ) -> None:
        events = {(e.data["process"], e.data["ordinal"]): e for e in candidates}
        for scored in decided.scored:
            event = events[scored.candidate.process, scored.ordinal]
            computed = {
                "contributions": scored.contributions,
                "score": scored.score,
                "gate": scored.gate,
                "rank": scored.rank,
                "admitted": scored.admitted,
            }
            compare_data(cycle.head.number, event, {**event.data, **computed}, event.id)

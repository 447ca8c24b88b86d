"""A cycle as events, and events as a cycle: what is written here is what replay reads back."""

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import msgspec

from noema.cognition.attention import SCORER_VERSION
from noema.cognition.keeping import ACT, keep_params
from noema.cognition.model import Brain, Candidate, Group, Intent, Outcome, Scored, Slot
from noema.cognition.process import Answer, Found, Recollection
from noema.cognition.state import STATE_VERSION, Concluded, Recall
from noema.core.canonical import canonical_escaped
from noema.core.clock import Ids, from_micros, to_micros
from noema.events.model import Event, NewEvent, new_event
from noema.events.unit import Derivation, NewIntent

REDACTED: Final = "[redacted]"
RECALL: Final = "recall"
"""The port that asks memory, and the process that is for it."""

COMPLETE: Final = "complete"
"""The port that asks a model."""

SAID: Final = "said_before"
"""The port that asks what was said in a conversation."""


class PortAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one process asked outside the snapshot, and got. `ordinal` counts within the process.

    The log was asked for `words` and gave `found`; memory was asked `query` and gave
    `recollection`; of the conversation `query`, what was said before the message `asked` was
    `found`. `limit` is the most that was wanted of these. A model was asked by the prompt `query`,
    for the input whose digest is `asked`, and gave `answer` after `waited_us`.
    """

    process: str
    ordinal: int
    limit: int
    port: str = "search_log"
    words: tuple[str, ...] = ()
    found: tuple[Found, ...] = ()
    query: str = ""
    recollection: Recollection | None = None
    asked: str = ""
    answer: Answer | None = None
    waited_us: int = 0


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A process that proposed nothing because it failed or was late."""

    process: str
    why: str


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One finished cycle, before it is written. `does_remember`: there is a memory to write to."""

    id: UUID
    mind_id: UUID
    actor: str
    brain: Brain
    through: int
    control_through: int
    outcome: Outcome
    answers: tuple[PortAnswer, ...]
    failures: tuple[Failure, ...]
    timings_us: Mapping[str, int]
    versions: Mapping[str, int]
    duration_us: int
    timer_due_us: int | None
    missed: int
    does_remember: bool = False


class RecordedCycle(msgspec.Struct, frozen=True, kw_only=True):
    """One cycle as the log tells it; `entered` is the mode and version it changed to, if it did."""

    id: UUID
    number: int
    trigger: str
    as_of_us: int
    through: int
    control_through: int
    mode: str
    mode_version: int
    settings_version: int
    scorer_version: int
    state_version: int
    versions: Mapping[str, int]
    processes: tuple[str, ...]
    candidate_set: str
    outcome: Outcome
    candidates: tuple[Event, ...]
    thoughts: tuple[UUID, ...]
    entered: tuple[str, int] | None
    answers: tuple[PortAnswer, ...]
    failed: frozenset[str]
    completed: Event
    is_redacted: bool

    @property
    def recall(self) -> Recall | None:
        """Whether memory was asked, and how that went."""
        return recall_of(self.answers, self.failed)


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A cycle's events with the links and intents that go with them."""

    events: tuple[NewEvent, ...]
    thoughts: tuple[UUID, ...]
    derivations: tuple[Derivation, ...]
    intents: tuple[NewIntent, ...]


class Writing:
    """Turns a cycle into events. `ids` gives their ids and salts."""

    def __init__(self, turn: Turn, ids: Ids) -> None:
        self._turn = turn
        self._ids = ids
        self._now = from_micros(turn.brain.now_us)
        self.candidates = tuple(self._candidate(s) for s in turn.outcome.scored)
        self.thoughts = tuple(
            self._thought(s, e)
            for s, e in zip(turn.outcome.scored, self.candidates, strict=True)
            if s.admitted
        )

    def _event(self, type_: str, **fields: Any) -> NewEvent:
        turn = self._turn
        return new_event(
            self._ids,
            type=type_,
            occurred_at=self._now,
            actor=turn.actor,
            mind_id=turn.mind_id,
            cycle_id=turn.id,
            **fields,
        )

    def _candidate(self, scored: Scored) -> NewEvent:
        candidate = scored.candidate
        data: dict[str, Any] = {
            "process": candidate.process,
            "ordinal": scored.ordinal,
            "folded": candidate.folded,
            "raw": scored.raw,
            "features": scored.features,
            "contributions": scored.contributions,
            "score": scored.score,
            "gate": scored.gate,
            "rank": scored.rank,
            "admitted": scored.admitted,
        }
        if candidate.replies_to is not None:
            data["replies_to"] = candidate.replies_to
        if candidate.memory is not None:
            data["memory"] = candidate.memory
        if candidate.sources:
            data["sources"] = candidate.sources
        if candidate.is_insight:
            data["is_insight"] = True
        if candidate.is_local:
            data["is_local"] = True
        content: dict[str, Any] = {"text": candidate.text, "topic": candidate.topic}
        if candidate.key != candidate.topic:
            content["key"] = candidate.key
        if candidate.intent is not None:
            content["intent"] = msgspec.to_builtins(candidate.intent)
        return self._event("candidate.scored", causes=candidate.stimuli, data=data, content=content)

    def _thought(self, scored: Scored, event: NewEvent) -> NewEvent:
        return self._event(
            "thought.admitted",
            causes=(event.id,),
            data={
                "candidate": event.id,
                "process": scored.candidate.process,
                "rank": scored.rank,
                "score": scored.score,
            },
            content={"text": scored.candidate.text, "topic": scored.candidate.topic},
        )

    def finish(self, concluded: Concluded) -> Written:
        """Return all events of the cycle, in order; the completed cycle comes last."""
        turn = self._turn
        events: list[NewEvent] = []
        if turn.timer_due_us is not None:
            due = {"due": from_micros(turn.timer_due_us), "missed": turn.missed}
            events.append(self._event("timer.fired", data=due))
        answers = [self._answer(a) for a in turn.answers]
        events.extend(answers)
        events.extend(
            self._event("process.failed", data={"process": f.process, "why": f.why})
            for f in turn.failures
        )
        events.extend(self.candidates)
        events.extend(self.thoughts)
        events.extend(self._expired(group) for group in concluded.expired)
        change = concluded.mode_change
        if change is not None:
            data = {"from": change.left, "to": change.entered, "on": change.on}
            data["version"] = change.entered_version  # type: ignore[assignment]
            events.append(self._event("mode.changed", data=data))
        if self.thoughts:
            events.append(self._broadcast(concluded.state.slots))
        events.append(self._completed(concluded))
        return Written(
            events=tuple(events),
            thoughts=tuple(t.id for t in self.thoughts),
            derivations=self._derivations(answers),
            intents=self._intents(concluded),
        )

    def _answer(self, answer: PortAnswer) -> NewEvent:
        data: dict[str, Any] = {
            "process": answer.process,
            "ordinal": answer.ordinal,
            "port": answer.port,
        }
        if answer.answer is not None:
            came = answer.answer
            data |= {"prompt": answer.query, "waited_us": answer.waited_us}
            said = {"call": came.call, "asked_in": came.asked_in, "failed": came.failed or None}
            return self._event(
                "port.answered",
                data=data | {name: value for name, value in said.items() if value is not None},
                content={
                    "request": {"prompt": answer.query, "digest": answer.asked},
                    "answer": msgspec.to_builtins(came),
                },
            )
        if answer.recollection is None:
            request: dict[str, Any] = {"words": answer.words, "limit": answer.limit}
            if answer.port == SAID:
                request = {
                    "conversation": answer.query,
                    "before": answer.asked,
                    "limit": answer.limit,
                }
            return self._event(
                "port.answered",
                causes=tuple(dict.fromkeys(f.id for f in answer.found)),
                data=data,
                content={
                    "request": request,
                    "answer": msgspec.to_builtins(answer.found),
                },
            )
        recollection = answer.recollection
        return self._event(
            "port.answered",
            data=data
            | {
                "memories": [m.id for m in recollection.memories],
                "withheld": recollection.withheld,
            },
            content={
                "request": {"query": answer.query, "limit": answer.limit},
                "answer": msgspec.to_builtins(recollection),
            },
        )

    def _expired(self, group: Group) -> NewEvent:
        return self._event(
            "stimulus.expired",
            causes=group.ids,
            data={"folded": group.count, "waited": group.waited + 1},
            content={"topic": group.topic},
        )

    def _broadcast(self, slots: Sequence[Slot]) -> NewEvent:
        return self._event(
            "workspace.broadcast",
            causes=tuple(t.id for t in self.thoughts),
            data={
                "slots": [
                    {"thought": s.thought, "process": s.process, "strength": s.strength}
                    for s in slots
                ]
            },
        )

    def _completed(self, concluded: Concluded) -> NewEvent:
        turn, brain = self._turn, self._turn.brain
        outcome = turn.outcome
        admitted = outcome.admitted
        data = {
            "number": brain.cycle,
            "trigger": brain.trigger,
            "as_of_us": brain.now_us,
            "through": turn.through,
            "control_through": turn.control_through,
            "mode": brain.mode.name,
            "mode_version": brain.mode.version,
            "settings_version": brain.settings_version,
            "scorer_version": SCORER_VERSION,
            "state_version": STATE_VERSION,
            "versions": turn.versions,
            # jsonb keeps an object's keys in an order of its own, and the registry's breaks ties.
            "processes": tuple(turn.versions),
            "weights": outcome.weights,
            "threshold": outcome.threshold,
            "k": outcome.k,
            "candidates": len(outcome.scored),
            "admitted": len(admitted),
            "observed": sum(g.count for g in brain.groups),
            "pending": len(concluded.state.pending),
            "candidate_set": candidate_set([c.commitment for c in self.candidates]),
            "winner": self.thoughts[0].id if self.thoughts else None,
            "margin": outcome.margin,
            "duration_us": turn.duration_us,
            "timings_us": turn.timings_us,
        }
        content = {"winner": admitted[0].candidate.text[:300]} if admitted else None
        return self._event("cycle.completed", data=data, content=content)

    def _derivations(self, answers: Sequence[NewEvent]) -> tuple[Derivation, ...]:
        links: list[Derivation] = []
        # From a memory forward to all that it caused: what was answered with it, what it became.
        for answer, event in zip(self._turn.answers, answers, strict=True):
            if answer.recollection is not None:
                links.extend(
                    Derivation(source=m.id, to=event.id, kind="answered")
                    for m in answer.recollection.memories
                )
        admitted = self._turn.outcome.admitted
        for scored, thought in zip(admitted, self.thoughts, strict=True):
            candidate = scored.candidate
            kind = "noticed"
            if candidate.memory is not None:
                links.append(Derivation(source=candidate.memory, to=thought.id, kind="recalled"))
                kind = "reminded"
            links.extend(
                Derivation(source=memory, to=thought.id, kind="rests on")
                for memory in candidate.sources
            )
            links.extend(
                Derivation(source=stimulus, to=thought.id, kind=kind)
                for stimulus in candidate.stimuli
            )
        return tuple(links)

    def _intents(self, concluded: Concluded) -> tuple[NewIntent, ...]:
        intents = []
        admitted = self._turn.outcome.admitted
        for ordinal, (scored, thought) in enumerate(zip(admitted, self.thoughts, strict=True)):
            intent = scored.candidate.intent
            if intent is not None:
                intents.append(self._intent(ordinal, thought, intent.act, intent.params))
        if self._turn.does_remember:
            for ordinal, keep in enumerate(concluded.keeps):
                thought = self.thoughts[keep.place]
                # What is known by thinking is told by the thought itself.
                event = thought.id if keep.event is None else keep.event
                params = keep_params(
                    event, keep.kind, keep.importance, keep.sources, is_heard=keep.is_heard
                )
                intents.append(self._intent(ordinal, thought, ACT, params))
        return tuple(intents)

    def _intent(
        self, ordinal: int, thought: NewEvent, act: str, params: Mapping[str, str]
    ) -> NewIntent:
        return NewIntent(
            id=self._ids.new(),
            cycle_id=self._turn.id,
            cycle=self._turn.brain.cycle,
            ordinal=ordinal,
            thought_id=thought.id,
            act=act,
            content=params,
        )


def digest_of(given: msgspec.Struct) -> str:
    """Return SHA-256 over the canonical JSON of what a prompt was given, in hex."""
    return sha256(canonical_escaped(msgspec.to_builtins(given))).hexdigest()


def candidate_set(commitments: Sequence[bytes]) -> str:
    """Return the digest of a cycle's candidates in rank order: SHA-256 over their commitments."""
    return sha256(b"".join(commitments)).hexdigest()


def read(events: Sequence[Event]) -> RecordedCycle:
    """Return the cycle that these events, all of one cycle and in order, record."""
    by_type: dict[str, list[Event]] = {}
    for event in events:
        by_type.setdefault(event.type, []).append(event)
    completed = by_type["cycle.completed"][0]
    candidates = tuple(by_type.get("candidate.scored", ()))
    data = completed.data
    outcome = Outcome(
        scored=_all_scored(candidates),
        weights=data["weights"],
        threshold=data["threshold"],
        k=data["k"],
    )
    answers = tuple(read_answer(e) for e in by_type.get("port.answered", ()))
    return RecordedCycle(
        id=completed.cycle_id or completed.id,
        number=data["number"],
        trigger=data["trigger"],
        as_of_us=data["as_of_us"],
        through=data["through"],
        control_through=data["control_through"],
        mode=data["mode"],
        mode_version=data["mode_version"],
        settings_version=data["settings_version"],
        scorer_version=data["scorer_version"],
        state_version=data["state_version"],
        versions=data["versions"],
        processes=tuple(data["processes"]),
        candidate_set=data["candidate_set"],
        outcome=outcome,
        candidates=candidates,
        thoughts=tuple(e.id for e in by_type.get("thought.admitted", ())),
        entered=next(
            ((e.data["to"], e.data["version"]) for e in by_type.get("mode.changed", ())), None
        ),
        answers=answers,
        failed=frozenset(e.data["process"] for e in by_type.get("process.failed", ())),
        completed=completed,
        is_redacted=any(e.is_redacted for e in events),
    )


def _all_scored(candidates: Sequence[Event]) -> tuple[Scored, ...]:
    scored = [read_candidate(e) for e in candidates]
    for i, (one, event) in enumerate(zip(scored, candidates, strict=True)):
        if event.is_redacted and one.gate == "duplicate":
            # Whose duplicate it was is gone with the key; that it was one is still on record.
            candidate = msgspec.structs.replace(one.candidate, key=scored[0].candidate.key)
            scored[i] = msgspec.structs.replace(one, candidate=candidate)
    return tuple(scored)


def read_candidate(event: Event) -> Scored:
    """Return the candidate of the event; `features` of the candidate itself are not told apart."""
    data, content = event.data, event.content
    topic = f"{REDACTED} {event.id}" if event.is_redacted else content["topic"]
    intent = content.get("intent")
    replies_to, memory = data.get("replies_to"), data.get("memory")
    return Scored(
        candidate=Candidate(
            process=data["process"],
            key=content.get("key", topic),
            topic=topic,
            text=REDACTED if event.is_redacted else content["text"],
            stimuli=tuple(event.causes),
            folded=data["folded"],
            intent=None if intent is None else msgspec.convert(intent, Intent),
            replies_to=None if replies_to is None else UUID(replies_to),
            memory=None if memory is None else UUID(memory),
            sources=tuple(UUID(source) for source in data.get("sources", ())),
            is_insight=bool(data.get("is_insight", False)),
            is_local=bool(data.get("is_local", False)),
        ),
        ordinal=data["ordinal"],
        features=data["features"],
        raw=data["raw"],
        contributions=data["contributions"],
        score=data["score"],
        gate=data["gate"],
        rank=data["rank"],
        admitted=data["admitted"],
    )


def read_answer(event: Event) -> PortAnswer:
    """Return what the event says was asked and answered; nothing of it where it was redacted."""
    data, content = event.data, event.content
    request = content.get("request", {})
    if data["port"] == RECALL:
        return PortAnswer(
            process=data["process"],
            ordinal=data["ordinal"],
            port=RECALL,
            query=request.get("query", ""),
            limit=request.get("limit", 0),
            recollection=msgspec.convert(content.get("answer", {}), Recollection),
        )
    if data["port"] == COMPLETE:
        return PortAnswer(
            process=data["process"],
            ordinal=data["ordinal"],
            limit=0,
            port=COMPLETE,
            query=request.get("prompt", ""),
            asked=request.get("digest", ""),
            answer=msgspec.convert(
                content.get("answer", {"reach": "provider", "failed": REDACTED}), Answer
            ),
        )
    return PortAnswer(
        process=data["process"],
        ordinal=data["ordinal"],
        port=data["port"],
        query=request.get("conversation", ""),
        asked=request.get("before", ""),
        words=tuple(request.get("words", ())),
        limit=request.get("limit", 0),
        found=msgspec.convert(content.get("answer", []), tuple[Found, ...]),
    )


def recall_of(answers: Iterable[PortAnswer], failed: Container[str]) -> Recall | None:
    """Return whether the process for it asked memory, by a cycle's answers, and how it went.

    What others ask memory for is no question of its.
    """
    if RECALL in failed:
        return "failed"
    return "answered" if any(a.port == RECALL == a.process for a in answers) else None


def as_of(cycle: RecordedCycle) -> datetime:
    """Return the moment the cycle's snapshot was fixed."""
    return from_micros(cycle.as_of_us)


def micros(moment: datetime | None) -> int | None:
    """Return the moment in microseconds, None for None."""
    return None if moment is None else to_micros(moment)

"""Minds without a database: snapshots, events as the log gives them back, whole cycles."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from noema.cognition.attention import attend
from noema.cognition.cycle import propose
from noema.cognition.defaults import DEFAULTS
from noema.cognition.model import Brain, Exit, MindSettings, Mode
from noema.cognition.process import (
    Answer,
    Found,
    Given,
    Process,
    Recalled,
    Recollection,
    Unanswered,
)
from noema.cognition.processes import ALL
from noema.cognition.record import (
    RECALL,
    PortAnswer,
    RecordedCycle,
    Turn,
    Writing,
    Written,
    read,
    recall_of,
)
from noema.cognition.state import Concluded, MindState, conclude, observe
from noema.core.clock import ManualClock, SequentialIds, to_micros
from noema.events.model import Event, NewEvent, new_event
from noema.llm.asker import Reach

START = datetime(2026, 1, 1, tzinfo=UTC)
START_US = to_micros(START)
MIND = UUID(int=77)


def mode_of(name: str = "awake", version: int = 1, **changes: Any) -> Mode:
    mode = Mode(
        name=name,
        version=version,
        title=name,
        description="",
        k=7,
        timer_min_s=60,
        timer_max_s=60,
        triggers=("stimulus", "message", "pending", "timer", "operator"),
        profile={},
        processes=None,
        may_act=True,
        expires_s=None,
        exits=(),
    )
    return msgspec.structs.replace(mode, **changes)


MODES = {
    (m.name, m.version): m
    for m in (
        mode_of("awake", exits=(Exit(on="quiet", to="idle", after_s=600),)),
        mode_of(
            "focused",
            k=3,
            profile={"relevance": 2_000_000, "goal": 2_000_000},
            expires_s=900,
            exits=(Exit(on="expired", to="awake"),),
        ),
        mode_of(
            "idle",
            k=5,
            timer_min_s=300,
            timer_max_s=900,
            exits=(
                Exit(on="stimulus", to="awake"),
                Exit(on="quiet", to="dreaming", after_s=14_400),
            ),
        ),
        mode_of(
            "dreaming",
            k=3,
            processes=("reflection",),
            may_act=False,
            expires_s=7_200,
            exits=(
                Exit(on="message", to="awake"),
                Exit(on="stimulus", to="awake"),
                Exit(on="expired", to="idle"),
            ),
        ),
    )
}


def settings_of(**changes: Any) -> MindSettings:
    return msgspec.structs.replace(DEFAULTS, **changes)


def brain_of(**changes: Any) -> Brain:
    brain = Brain(
        now_us=START_US,
        cycle=1,
        trigger="stimulus",
        mode=mode_of(),
        settings=DEFAULTS,
        settings_version=1,
        groups=(),
        questions=(),
        slots=(),
        goals=(),
        focus="",
        topics={},
        total=None,
        fatigue={},
        admitted_since_reflection=0,
        observed_since_reflection=0,
        recent=(),
        reflected_us=0,
        log_before=0,
    )
    return msgspec.structs.replace(brain, **changes)


class NoPorts:
    """A log and a memory in which nothing is found, and no model."""

    async def search_log(self, words: Sequence[str], *, limit: int) -> Sequence[Found]:
        return ()

    async def recall(self, query: str, *, k: int) -> Recollection:
        return Recollection()

    async def model_for(self, prompt: str) -> Reach | None:
        return None

    async def said_before(self, conversation: UUID, *, before: UUID, limit: int) -> Sequence[Found]:
        return ()

    async def complete(
        self, prompt: str, given: msgspec.Struct, *, matter: str, marks: Given
    ) -> Answer:
        raise AssertionError("there is no model to ask")


class Asked(NoPorts):
    """An empty log, and a memory that answers every question with the same, and keeps what it said.

    `memories` None is a memory that does not answer.
    """

    def __init__(self, process: str, memories: Sequence[Recalled] | None) -> None:
        self._process = process
        self._memories = memories
        self.answers: list[PortAnswer] = []

    async def recall(self, query: str, *, k: int) -> Recollection:
        if self._memories is None:
            why = "unanswered: memory says unavailable"
            raise Unanswered(why)
        recollection = Recollection(memories=tuple(self._memories))
        self.answers.append(
            PortAnswer(
                process=self._process,
                ordinal=len(self.answers),
                port=RECALL,
                query=query,
                limit=k,
                recollection=recollection,
            )
        )
        return recollection


def remembered(number: int, text: str, **changes: Any) -> Recalled:
    """A memory that memory finds: the number makes its id, and it is a week old."""
    memory = Recalled(
        id=UUID(int=number),
        kind="episode",
        text=text,
        speaker="",
        at_us=START_US - 7 * 86_400 * 1_000_000,
        cosine=None,
        trust=10,
        credibility=500_000,
        source="",
    )
    return msgspec.structs.replace(memory, **changes)


class Log:
    """Events as a log would give them back: through JSON, with positions."""

    def __init__(self) -> None:
        self.ids = SequentialIds()
        self.seq = 0

    def kept(self, event: NewEvent) -> Event:
        self.seq += 1
        return Event(
            seq=self.seq,
            id=event.id,
            type=event.type,
            occurred_at=event.occurred_at,
            recorded_at=START + timedelta(days=400),
            actor=event.actor,
            mind_id=event.mind_id,
            cycle_id=event.cycle_id,
            causes=tuple(event.causes),
            # jsonb keeps the keys of an object in an order of its own.
            data=msgspec.json.decode(msgspec.json.encode(event.data, order="sorted")),
            content=msgspec.json.decode(event.content),
            salt=event.salt,
            commitment=event.commitment,
        )

    def event(
        self,
        type_: str,
        data: dict[str, Any] | None = None,
        content: dict[str, Any] | None = None,
        *,
        at_s: float = 0,
    ) -> Event:
        return self.kept(
            new_event(
                self.ids,
                type=type_,
                occurred_at=START + timedelta(seconds=at_s),
                actor="test",
                mind_id=MIND,
                data=data,
                content=content,
            )
        )

    def line(self, text: str, *, at_s: float = 0, urgency: int = 0) -> Event:
        data = {"kind": "line", "urgency": urgency}
        return self.event("stimulus.received", data, {"text": text}, at_s=at_s)

    def message(self, text: str, *, at_s: float = 0) -> Event:
        data = {"conversation": UUID(int=5)}
        content = {"text": text, "speaker": "eve"}
        return self.event("message.received", data, content, at_s=at_s)


def newborn(**settings: Any) -> MindState:
    return MindState(settings=settings_of(**settings), settings_version=1)


class Lived(msgspec.Struct, frozen=True, kw_only=True):
    """One cycle as it was lived and as it was recorded."""

    brain: Brain
    concluded: Concluded
    recorded: RecordedCycle
    written: Written

    @property
    def state(self) -> MindState:
        return self.concluded.state


async def live(
    log: Log,
    state: MindState,
    control: Sequence[Event] = (),
    stimuli: Sequence[Event] = (),
    *,
    at_s: float = 0,
    trigger: str = "stimulus",
    processes: Sequence[Process] = ALL,
    memories: Sequence[Recalled] | None = (),
) -> Lived:
    """Let the mind think one cycle; `memories` are what it finds whenever it asks memory."""
    now_us = START_US + int(at_s * 1_000_000)
    observed, brain = observe(state, control, stimuli, now_us=now_us, trigger=trigger, modes=MODES)
    clock = ManualClock(START)
    asked: list[Asked] = []

    def ports(process: Process) -> Asked:
        asked.append(Asked(process.name, memories))
        return asked[-1]

    proposed = await propose(processes, brain, ports, clock=clock)
    outcome = attend(proposed.proposals, brain)
    turn = Turn(
        id=log.ids.new(),
        mind_id=MIND,
        actor="mind:ada",
        brain=brain,
        through=observed.cursor,
        control_through=observed.control,
        outcome=outcome,
        answers=tuple(a for ports_ in asked for a in ports_.answers),
        failures=proposed.failures,
        timings_us=proposed.timings_us,
        versions={p.name: p.version for p in processes},
        duration_us=1,
        timer_due_us=None,
        missed=0,
        does_remember=True,
    )
    writing = Writing(turn, log.ids)
    concluded = conclude(
        observed,
        brain,
        outcome,
        [t.id for t in writing.thoughts],
        MODES,
        recall=recall_of(turn.answers, {f.process for f in turn.failures}),
    )
    written = writing.finish(concluded)
    events = [log.kept(e) for e in written.events]
    return Lived(brain=brain, concluded=concluded, recorded=read(events), written=written)

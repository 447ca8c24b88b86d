"""One turn of a mind: observe, propose, attend, and everything that must be committed with it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID

import msgspec
import structlog

from noema.cognition import record
from noema.cognition.attention import Proposal, attend
from noema.cognition.keeping import ACT
from noema.cognition.model import Brain, Candidate, Outcome
from noema.cognition.process import (
    Answer,
    Found,
    Given,
    Ports,
    Process,
    Recollection,
    Unanswered,
    believed,
)
from noema.cognition.record import (
    COMPLETE,
    RECALL,
    SAID,
    Failure,
    PortAnswer,
    Turn,
    Writing,
    digest_of,
    recall_of,
)
from noema.cognition.state import (
    STATE_VERSION,
    MindState,
    Modes,
    conclude,
    modes_then,
    observe,
    timer_after,
)
from noema.core.clock import Clock, Ids, from_micros, to_micros
from noema.core.errors import NoemaError
from noema.core.identity import Identity
from noema.events.log import EventLog, LogLine
from noema.events.model import Event
from noema.events.unit import CycleUpdate, Fence, Unit
from noema.llm.asker import Reach
from noema.llm.model import CallContext

log = structlog.get_logger()

CHECKPOINT_EVERY: Final = 100
PROCESS_DEADLINE_S: Final = 5.0
RECALL_DEADLINE_S: Final = 1.0


class Memory(Protocol):
    """Where a mind's questions to memory go; answers as the identity that asks may see it."""

    async def recall(self, who: Identity, query: str, k: int) -> Recollection: ...


class Models(Protocol):
    """Where a mind's questions to models go."""

    async def reach(self, prompt: str) -> Reach | None: ...

    async def complete(
        self,
        context: CallContext,
        prompt: str,
        given: msgspec.Struct,
        *,
        reach: Reach,
        matter: str,
        marks: Given,
    ) -> Answer: ...


class RecordingPorts:
    """The ports of one process in one cycle: they answer, and keep what they answered.

    Without a memory, or without an identity to ask it as, nothing is remembered; without models,
    or without that identity, none is asked.
    """

    def __init__(
        self,
        log_: EventLog,
        *,
        mind: UUID,
        process: str,
        through: int,
        clock: Clock,
        cycle: int = 0,
        memory: Memory | None = None,
        models: Models | None = None,
        who: Identity | None = None,
    ) -> None:
        self._log = log_
        self._mind = mind
        self._process = process
        self._through = through
        self._clock = clock
        self._cycle = cycle
        self._memory = memory
        self._models = models
        self._who = who
        self._reach: Reach | None = None
        self._completed = 0
        self.answers: list[PortAnswer] = []

    async def _lines(self, asked: Awaitable[Sequence[LogLine]]) -> tuple[Found, ...]:
        try:
            async with asyncio.timeout(PROCESS_DEADLINE_S):
                lines = await asked
        except TimeoutError:
            why = f"late: the log gave no answer within {PROCESS_DEADLINE_S:g} s"
            raise Unanswered(why) from None
        return tuple(Found(id=line.id, type=line.type, text=line.text[:1_000]) for line in lines)

    async def search_log(self, words: Sequence[str], *, limit: int) -> Sequence[Found]:
        ordinal = len(self.answers)
        found = await self._lines(
            self._log.search(self._mind, words, through=self._through, limit=limit)
        )
        self.answers.append(
            PortAnswer(
                process=self._process,
                ordinal=ordinal,
                words=tuple(words),
                limit=limit,
                found=found,
            )
        )
        return found

    async def said_before(self, conversation: UUID, *, before: UUID, limit: int) -> Sequence[Found]:
        ordinal = len(self.answers)
        found = await self._lines(
            self._log.said_before(self._mind, conversation, before=before, limit=limit)
        )
        self.answers.append(
            PortAnswer(
                process=self._process,
                ordinal=ordinal,
                port=SAID,
                query=str(conversation),
                asked=str(before),
                limit=limit,
                found=found,
            )
        )
        return found

    async def recall(self, query: str, *, k: int) -> Recollection:
        ordinal = len(self.answers)
        recollection = Recollection()
        if self._memory is not None and self._who is not None:
            try:
                async with asyncio.timeout(RECALL_DEADLINE_S):
                    recollection = await self._memory.recall(self._who, query, k)
            except TimeoutError:
                why = f"late: memory gave no answer within {RECALL_DEADLINE_S:g} s"
                recollection = Recollection(degraded=why)
            except NoemaError as exc:
                recollection = Recollection(degraded=f"unanswered: memory says {exc.code}")
        # That there was no answer is on record too: who goes on without does so in a replay.
        self.answers.append(
            PortAnswer(
                process=self._process,
                ordinal=ordinal,
                port=RECALL,
                query=query,
                limit=k,
                recollection=recollection,
            )
        )
        believed(recollection)
        return recollection

    async def model_for(self, prompt: str) -> Reach | None:
        if self._models is None or self._who is None:
            return None
        self._reach = await self._models.reach(prompt)
        return self._reach

    async def complete(
        self, prompt: str, given: msgspec.Struct, *, matter: str, marks: Given
    ) -> Answer:
        started = self._clock.monotonic()
        ordinal, place = len(self.answers), self._completed
        self._completed += 1
        answer = Answer(reach="provider", failed="no model is set")
        if self._models is not None and self._who is not None and self._reach is not None:
            who = self._who
            context = CallContext(
                # Who may watch the mind may see what it asked.
                namespace=who.namespace.rpartition("/minds/")[0] or who.namespace,
                actor=who.actor,
                mind=self._mind,
                cycle=self._cycle,
                process=self._process,
                ordinal=place,
            )
            answer = await self._models.complete(
                context, prompt, given, reach=self._reach, matter=matter, marks=marks
            )
        self.answers.append(
            PortAnswer(
                process=self._process,
                ordinal=ordinal,
                limit=0,
                port=COMPLETE,
                query=prompt,
                asked=digest_of(given),
                answer=answer,
                waited_us=int((self._clock.monotonic() - started) * 1_000_000),
            )
        )
        return answer


class Proposed(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes proposed, in the order of the registry, and how long each took."""

    proposals: tuple[Proposal, ...]
    failures: tuple[Failure, ...]
    timings_us: Mapping[str, int]


async def propose(
    processes: Sequence[Process],
    brain: Brain,
    ports: Callable[[Process], Ports],
    *,
    clock: Clock,
    deadline_s: float = PROCESS_DEADLINE_S,
) -> Proposed:
    """Ask every process at once; one that fails or is late proposes nothing, and is recorded."""
    answers: dict[str, Sequence[Candidate]] = {}
    failures: dict[str, str] = {}
    timings: dict[str, int] = {}

    async def ask(process: Process) -> None:
        started = clock.monotonic()
        within_s = getattr(process, "deadline_s", deadline_s)
        try:
            async with asyncio.timeout(within_s):
                answers[process.name] = await process.propose(brain, ports(process))
        except TimeoutError:
            failures[process.name] = f"late: no answer within {within_s:g} s"
        except Unanswered as exc:
            failures[process.name] = exc.why
            log.warning("process_unanswered", process=process.name, reason=exc.why)
        except Exception as exc:
            # A faculty is a plug-in: its bug must not stop the mind, but must be seen. Only the
            # kind of the error is kept, because its message may quote what came from outside.
            failures[process.name] = f"failed: {type(exc).__name__}"
            log.exception("process_failed", process=process.name)
        timings[process.name] = int((clock.monotonic() - started) * 1_000_000)

    async with asyncio.TaskGroup() as group:
        for process in processes:
            group.create_task(ask(process), name=process.name)
    proposals = tuple(
        Proposal(index, ordinal, candidate)
        for index, process in enumerate(processes)
        for ordinal, candidate in enumerate(answers.get(process.name, ()))
    )
    return Proposed(
        proposals=proposals,
        failures=tuple(
            Failure(process=p.name, why=failures[p.name]) for p in processes if p.name in failures
        ),
        timings_us={p.name: timings[p.name] for p in processes},
    )


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """Why a cycle runs. For a timer: when it was due, and how many earlier ones it stands for."""

    name: str
    due_us: int | None = None
    missed: int = 0


class Thought(msgspec.Struct, frozen=True, kw_only=True):
    """A cycle that is ready to be committed, and the state the mind is in once it is.

    `has_intents` where there is something to do then, `has_memories` something to remember.
    """

    unit: Unit
    state: MindState
    outcome: Outcome
    has_intents: bool
    has_memories: bool


class Thinker:
    """Runs single cycles for minds; keeps nothing between them."""

    def __init__(
        self,
        *,
        processes: Sequence[Process],
        events: EventLog,
        clock: Clock,
        ids: Ids,
        memory: Memory | None = None,
        models: Models | None = None,
    ) -> None:
        self._processes = processes
        self._versions = {p.name: p.version for p in processes}
        self._events = events
        self._clock = clock
        self._ids = ids
        self._memory = memory
        self._models = models

    async def think(
        self,
        state: MindState,
        control: Sequence[Event],
        stimuli: Sequence[Event],
        *,
        mind: UUID,
        actor: str,
        trigger: Trigger,
        modes: Modes,
        epoch: int,
        checkpoint: bool = False,
        who: Identity | None = None,
    ) -> Thought:
        """Return the mind's next cycle, ready to commit. Nothing has happened until it is.

        `who` is the identity that the mind remembers and asks models as; without it, it does not.
        """
        started = self._clock.monotonic()
        now_us = to_micros(self._clock.now())
        state, brain = observe(
            state, control, stimuli, now_us=now_us, trigger=trigger.name, modes=modes
        )
        recorders: dict[str, RecordingPorts] = {}

        def ports(process: Process) -> RecordingPorts:
            recorder = RecordingPorts(
                self._events,
                mind=mind,
                process=process.name,
                through=brain.log_before,
                clock=self._clock,
                cycle=brain.cycle,
                memory=self._memory,
                models=self._models,
                who=who,
            )
            recorders[process.name] = recorder
            return recorder

        proposed = await propose(self._processes, brain, ports, clock=self._clock)
        outcome = attend(proposed.proposals, brain)
        turn = Turn(
            id=self._ids.new(),
            mind_id=mind,
            actor=actor,
            brain=brain,
            through=state.cursor,
            control_through=state.control,
            outcome=outcome,
            answers=tuple(
                a for p in self._processes if p.name in recorders for a in recorders[p.name].answers
            ),
            failures=proposed.failures,
            timings_us=proposed.timings_us,
            versions=self._versions,
            duration_us=int((self._clock.monotonic() - started) * 1_000_000),
            timer_due_us=trigger.due_us,
            missed=trigger.missed,
            does_remember=self._memory is not None and who is not None,
        )
        writing = Writing(turn, self._ids)
        concluded = conclude(
            state,
            brain,
            outcome,
            [t.id for t in writing.thoughts],
            modes,
            recall=recall_of(turn.answers, {f.process for f in turn.failures}),
        )
        written = writing.finish(concluded)
        state = concluded.state
        unit = Unit(
            events=written.events,
            fence=Fence(mind=mind, epoch=epoch),
            cycle=_update(state, brain, modes, checkpoint=checkpoint),
            intents=written.intents,
            derivations=written.derivations,
        )
        return Thought(
            unit=unit,
            state=state,
            outcome=outcome,
            has_intents=any(i.act != ACT for i in written.intents),
            has_memories=any(i.act == ACT for i in written.intents),
        )


def _update(state: MindState, brain: Brain, modes: Modes, *, checkpoint: bool) -> CycleUpdate:
    due_us = timer_after(state, modes[state.mode, state.mode_version], brain.now_us)
    keep = checkpoint or state.cycle % CHECKPOINT_EVERY == 0
    return CycleUpdate(
        number=state.cycle,
        cursor=state.cursor,
        at=from_micros(brain.now_us),
        next_due=None if due_us is None else from_micros(due_us),
        mode=state.mode,
        mode_epoch=state.mode_epoch,
        mode_until=None if state.mode_until_us is None else from_micros(state.mode_until_us),
        pending=len(state.pending),
        workspace=[msgspec.to_builtins(slot) for slot in state.slots],
        state=encode_state(state) if keep else None,
        state_version=STATE_VERSION if keep else None,
    )


def encode_state(state: MindState) -> bytes:
    """Return the checkpoint of a state."""
    return msgspec.msgpack.encode(state)


def decode_state(raw: bytes) -> MindState:
    """Return the state of a checkpoint that `encode_state` made under the same version."""
    return msgspec.msgpack.decode(raw, type=MindState)


def refold(
    state: MindState,
    cycle: record.RecordedCycle,
    control: Sequence[Event],
    stimuli: Sequence[Event],
    modes: Modes,
) -> MindState:
    """Return the state after a recorded cycle, trusting what was recorded of its outcome."""
    state, brain = observe(
        state, control, stimuli, now_us=cycle.as_of_us, trigger=cycle.trigger, modes=modes
    )
    modes = modes_then(modes, cycle.entered)
    return conclude(state, brain, cycle.outcome, cycle.thoughts, modes, recall=cycle.recall).state

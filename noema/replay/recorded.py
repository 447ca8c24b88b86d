"""A cycle as verification reads it: its events, what it observed, stand-ins for the rest."""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from noema.cognition.attention import Proposal, owned_of
from noema.cognition.model import Candidate
from noema.cognition.process import Answer, Found, Given, Recollection, believed
from noema.cognition.record import (
    COMPLETE,
    RECALL,
    SAID,
    PortAnswer,
    digest_of,
    read_answer,
    read_candidate,
    recall_of,
)
from noema.cognition.state import Recall
from noema.events.model import Event
from noema.llm.asker import Reach
from noema.replay.compare import raise_difference

NO_ID: Final = UUID(int=0)
_OTHERS: Final = (RECALL, COMPLETE, SAID)
_WHOM: Final = {RECALL: "memory", COMPLETE: "a model", SAID: "a conversation"}


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What a completed cycle says of itself that cannot be computed, but has to fit."""

    number: int
    trigger: str
    as_of_us: int
    through: int
    control_through: int
    mode: str
    mode_version: int
    scorer_version: int
    state_version: int
    versions: dict[str, int]
    processes: tuple[str, ...]
    duration_us: int
    timings_us: dict[str, int]


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A cycle's events and what it observed, as the log holds them."""

    head: Head
    events: tuple[Event, ...]
    control: tuple[Event, ...]
    stimuli: tuple[Event, ...]
    redactions: frozenset[UUID]

    @property
    def completed(self) -> Event:
        return self.of("cycle.completed")[0]

    @property
    def inputs(self) -> tuple[Event, ...]:
        return (*self.control, *self.stimuli)

    @property
    def recall(self) -> Recall | None:
        """Whether memory was asked in this cycle, and how that went."""
        failed = {str(e.data.get("process")) for e in self.of("process.failed")}
        return recall_of([read_answer(e) for e in self.of("port.answered")], failed)

    def of(self, type_: str) -> list[Event]:
        """Return the cycle's own events of the type, in order."""
        return [e for e in self.events if e.type == type_]


class RecordedPorts:
    """Serves one process the answers on record; what it asks must be what it asked then."""

    def __init__(self, cycle: int, process: str, answers: Sequence[PortAnswer]) -> None:
        self._cycle = cycle
        self._process = process
        self._left = list(answers)
        self.problem: str | None = None

    async def search_log(self, words: Sequence[str], *, limit: int) -> Sequence[Found]:
        answer = self._next("the log")
        if answer is None:
            return ()
        if answer.words != tuple(words) or answer.limit != limit or answer.port in _OTHERS:
            self.problem = f"{self._process} asks the log something else than it did"
        return answer.found

    async def said_before(self, conversation: UUID, *, before: UUID, limit: int) -> Sequence[Found]:
        answer = self._next("a conversation")
        if answer is None:
            return ()
        wanted = SAID, str(conversation), str(before), limit
        if (answer.port, answer.query, answer.asked, answer.limit) != wanted:
            self.problem = f"{self._process} asks a conversation something else than it did"
        return answer.found

    async def recall(self, query: str, *, k: int) -> Recollection:
        answer = self._next("memory")
        if answer is None:
            return Recollection()
        if answer.query != query or answer.limit != k or answer.recollection is None:
            self.problem = f"{self._process} asks memory something else than it did"
        recollection = answer.recollection or Recollection()
        believed(recollection)
        return recollection

    async def model_for(self, prompt: str) -> Reach | None:
        """Return where the model was that was asked then; None where none was.

        That none was asked is not on record. Had it been struck from there, the thoughts that are
        made without it would be others than those on record.
        """
        for left in self._left:
            if left.port == COMPLETE and left.query == prompt and left.answer is not None:
                return left.answer.reach
        return None

    async def complete(
        self, prompt: str, given: msgspec.Struct, *, matter: str, marks: Given
    ) -> Answer:
        answer = self._next("a model")
        if answer is None or answer.answer is None:
            self.problem = f"{self._process} asks a model that it did not ask"
            return Answer(reach="provider", failed="not on record")
        if answer.query != prompt or answer.asked != digest_of(given):
            self.problem = f"{self._process} asks a model something else than it did"
        return answer.answer

    def _next(self, whom: str) -> PortAnswer | None:
        if self._left:
            return self._left.pop(0)
        self.problem = f"{self._process} asks more of {whom} than it did"
        return None

    def close(self) -> None:
        if self._left and self.problem is None:
            whom = _WHOM.get(self._left[0].port, "the log")
            self.problem = f"{self._process} asks less of {whom} than it did"
        if self.problem is not None:
            values = "the request on record", "another request"
            raise_difference(
                self._cycle, None, "port.answered", values, "port.answered", self.problem
            )


class RecordedIds:
    """Hands the ids and salts on record to the events that are made again."""

    def __init__(self) -> None:
        self.next: list[tuple[UUID, bytes]] = []

    def salt(self) -> bytes:
        return self.next[0][1] if self.next else b""

    def new(self) -> UUID:
        return self.next.pop(0)[0] if self.next else NO_ID


def proposals_of(cycle: Recorded, index: int, name: str) -> list[Proposal]:
    """Return what the process proposed, from the record, without what attention added."""
    proposals = []
    for event in cycle.of("candidate.scored"):
        if event.data.get("process") == name:
            scored = read_candidate(event)
            owned = owned_of(scored.candidate)
            candidate: Candidate = msgspec.structs.replace(
                scored.candidate,
                features={k: v for k, v in scored.features.items() if k not in owned},
                raw={k: v for k, v in scored.raw.items() if k not in owned},
            )
            proposals.append(Proposal(index, scored.ordinal, candidate))
    return proposals


def thoughts_of(cycle: Recorded, admitted: Sequence[Event]) -> list[Event]:
    """Return the thought on record for each admitted candidate; one without id where none is."""
    recorded = cycle.of("thought.admitted")
    if len(recorded) == len(admitted):
        return recorded
    by_cause: Mapping[UUID, Event] = {c: e for e in recorded for c in e.causes}
    missing = msgspec.structs.replace(cycle.completed, id=NO_ID)
    return [by_cause.get(e.id, missing) for e in admitted]

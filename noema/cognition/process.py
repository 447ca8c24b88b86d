"""What a cognitive process must do, and what it may ask."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec

from noema.cognition.model import Brain, Candidate
from noema.llm.asker import Reach


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the mind's own log that answers a search."""

    id: UUID
    type: str
    text: str


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that answers a question to the memory kernel.

    `cosine` (None where there were no vectors) and `credibility` are micro-units, `trust` is the
    rank of the route it came by (10 to 50). `at_us` is when it happened, or when we were told.
    `may_leave` says that its label lets it be shown to a model outside of this machine.
    """

    id: UUID
    kind: str
    text: str
    speaker: str
    at_us: int
    cosine: int | None
    trust: int
    credibility: int
    source: str
    status: str = ""
    may_leave: bool = False


class Recollection(msgspec.Struct, frozen=True, kw_only=True):
    """What memory answered, best first. `degraded` says what was missing; None where nothing was.

    `withheld` counts the memories that were found and whose label forbids to put them into a log
    that others read.
    """

    memories: tuple[Recalled, ...] = ()
    degraded: str | None = None
    withheld: int = 0


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a model was given by which mark: memories and thoughts by their ids."""

    memories: Mapping[str, Recalled] = {}
    thoughts: Mapping[str, UUID] = {}

    def known(self, marks: Sequence[Any]) -> tuple[str, ...]:
        """Return the marks that were given, each once, in their order."""
        found = (m.strip("[] ") for m in marks if isinstance(m, str))
        return tuple(dict.fromkeys(m for m in found if m in self.memories or m in self.thoughts))

    def memories_of(self, marks: Sequence[str]) -> tuple[UUID, ...]:
        """Return what rests on them: the memories cited, and those that may not leave.

        A model leaves out whom it likes; what it was shown of such a one may be in its words.
        """
        cited = [self.memories[m] for m in marks if m in self.memories]
        closed = [m for m in self.memories.values() if not m.may_leave]
        return tuple(dict.fromkeys(m.id for m in (*cited, *closed)))

    def thoughts_of(self, marks: Sequence[str]) -> tuple[UUID, ...]:
        """Return the ids of the thoughts among the marks."""
        return tuple(dict.fromkeys(self.thoughts[m] for m in marks if m in self.thoughts))


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model answered: a text, or a JSON object in which shares are micro-units.

    `model` names who answered, in `call`. `failed` says in the program's words why there is no
    answer, and is empty where there is one. `reach` is where the question went. `asked_in` and
    `given` are the cycle that asked, and what its marks stand for, where that was an earlier one.
    """

    reach: Reach
    text: str = ""
    value: Any = None
    model: str = ""
    failed: str = ""
    call: UUID | None = None
    asked_in: int | None = None
    given: Given | None = None


class Unanswered(Exception):  # noqa: N818
    """A port could not answer. The reason is the program's words, never those of what was asked."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def believed(recollection: Recollection) -> None:
    """Raise Unanswered where nothing was found, and not everything was looked through."""
    why = recollection.degraded
    if why is None or recollection.memories:
        return
    if why.startswith(("late: ", "unanswered: ")):
        raise Unanswered(why)
    raise Unanswered("unanswered: memory found nothing, and was degraded")


class Ports(Protocol):
    """What a process can ask beyond its snapshot. Every answer is recorded with the cycle.

    A replay serves the recorded answers, so a process that asks is as repeatable as one that does
    not. What cannot be answered raises Unanswered; the process then proposes nothing, and an event
    says why.
    """

    async def search_log(self, words: Sequence[str], *, limit: int) -> Sequence[Found]:
        """Return the newest lines of the mind's log that hold any of the words."""
        ...

    async def said_before(self, conversation: UUID, *, before: UUID, limit: int) -> Sequence[Found]:
        """Return what was said in the conversation before the message, oldest first.

        What the mind said itself is of type `message.sent`.
        """
        ...

    async def recall(self, query: str, *, k: int) -> Recollection:
        """Return what the memory kernel finds for the query, as the mind's own identity sees it."""
        ...

    async def model_for(self, prompt: str) -> Reach | None:
        """Return where a model for the prompt is, None where none is set. It is not asked."""
        ...

    async def complete(
        self, prompt: str, given: msgspec.Struct, *, matter: str, marks: Given
    ) -> Answer:
        """Ask a model by the prompt; never raises for what a model or a budget does.

        Asked only where `model_for` says that there is one. `given` is the prompt's input; its
        field `mind` is filled in, and `marks` is what its marks stand for. What was answered to the
        same `matter` a few cycles ago is answered again, and nobody asked: then the answer brings
        the marks of then.
        """
        ...


class Process(Protocol):
    """A cognitive faculty. It proposes; attention disposes.

    `version` changes whenever the same brain would lead to other candidates; verify re-runs a
    process only where its version is the recorded one. One that asks models has a `deadline_s`, how
    many seconds it may take in all; any other takes what every process may.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        """Return candidates, best first; all it sees is the brain and what its ports answer."""
        ...

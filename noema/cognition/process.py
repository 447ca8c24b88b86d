"""What a cognitive process must do, and what it may ask."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from noema.cognition.model import Brain, Candidate


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the mind's own log that answers a search."""

    id: UUID
    type: str
    text: str


class Ports(Protocol):
    """What a process can ask beyond its snapshot. Every answer is recorded with the cycle.

    A replay serves the recorded answers, so a process that asks is as repeatable as one that does
    not.
    """

    async def search_log(self, words: Sequence[str], *, limit: int) -> Sequence[Found]:
        """Return the newest lines of the mind's log that hold any of the words."""
        ...


class Process(Protocol):
    """A cognitive faculty. It proposes; attention disposes.

    `version` changes whenever the same brain would lead to other candidates; verify re-runs a
    process only where its version is the recorded one.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        """Return candidates, best first; all it sees is the brain and what its ports answer."""
        ...

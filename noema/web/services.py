"""What the HTTP surface needs of the rest; the composition root provides it."""

from collections.abc import AsyncGenerator
from typing import Protocol
from uuid import UUID

from noema.auth.access import Access
from noema.cognition.minds import Minds
from noema.cognition.model import Mind
from noema.cognition.runner import Runner
from noema.config import Settings
from noema.core.clock import Clock, Ids
from noema.db.protection import Protection
from noema.db.tx import Database
from noema.events.log import EventLog
from noema.events.model import Event
from noema.events.writer import Writer
from noema.llm.desk import Llm
from noema.memory.kernel import Kernel
from noema.replay.model import Replay
from noema.web.store import Pages


class Pulse(Protocol):
    """How the process itself is doing; lag is how late the event loop ran, in seconds."""

    @property
    def loop_lag_s(self) -> float: ...

    @property
    def worst_loop_lag_s(self) -> float: ...


class Tail(Protocol):
    """The live end of the log; see `noema.events.feed.Feed`."""

    @property
    def head(self) -> int: ...

    @property
    def watchers(self) -> int: ...

    @property
    def is_lagging(self) -> bool: ...

    def follow(
        self,
        after: int | None,
        *,
        mind: UUID | None = None,
        type_: str | None = None,
        idle_s: float | None = None,
    ) -> AsyncGenerator[Event | None, None]: ...


class Verifications(Protocol):
    """Replays; see `noema.replay.service.Replays`."""

    async def start_verify(
        self,
        mind: Mind,
        *,
        first: int | None = None,
        last: int | None = None,
        actor: str,
        key: str | None = None,
    ) -> UUID: ...

    async def get(self, id_: UUID) -> Replay: ...

    async def list_(self, *, mind: str | None = None, limit: int = 50) -> list[Replay]: ...


class Services(Protocol):
    """Everything that a handler may call."""

    @property
    def settings(self) -> Settings: ...

    @property
    def is_embedded(self) -> bool: ...

    @property
    def protection(self) -> Protection: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def ids(self) -> Ids: ...

    @property
    def db(self) -> Database: ...

    @property
    def events(self) -> EventLog: ...

    @property
    def writer(self) -> Writer: ...

    @property
    def feed(self) -> Tail: ...

    @property
    def minds(self) -> Minds: ...

    @property
    def runner(self) -> Runner: ...

    @property
    def replays(self) -> Verifications: ...

    @property
    def access(self) -> Access: ...

    @property
    def pages(self) -> Pages: ...

    @property
    def llm(self) -> Llm: ...

    @property
    def memory(self) -> Kernel: ...

    @property
    def health(self) -> Pulse: ...

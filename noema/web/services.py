"""What the HTTP surface needs of the rest; the composition root provides it."""

from typing import Protocol

from noema.auth.access import Access
from noema.cognition.minds import Minds
from noema.cognition.runner import Runner
from noema.config import Settings
from noema.core.clock import Clock, Ids
from noema.db.protection import Protection
from noema.db.tx import Database
from noema.events.feed import Feed
from noema.events.log import EventLog
from noema.events.writer import Writer
from noema.replay.service import Replays
from noema.web.store import Pages


class Pulse(Protocol):
    """How the process itself is doing; lag is how late the event loop ran, in seconds."""

    @property
    def loop_lag_s(self) -> float: ...

    @property
    def worst_loop_lag_s(self) -> float: ...


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
    def feed(self) -> Feed: ...

    @property
    def minds(self) -> Minds: ...

    @property
    def runner(self) -> Runner: ...

    @property
    def replays(self) -> Replays: ...

    @property
    def access(self) -> Access: ...

    @property
    def pages(self) -> Pages: ...

    @property
    def health(self) -> Pulse: ...

"""One act at a door: who did what to which thing, and how it ended."""

from dataclasses import dataclass
from enum import StrEnum

from noema.core.identity import Identity


class Outcome(StrEnum):
    """How an act ended; the audit log knows these four."""

    OK = "ok"
    DENIED = "denied"
    MISS = "miss"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What the audit log keeps of one attempt at a door."""

    who: Identity
    verb: str
    target: str
    outcome: Outcome
    detail: str = ""

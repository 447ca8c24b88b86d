"""One act at a door: who did what to which thing, and how it ended."""

from dataclasses import dataclass, field
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
    """What the audit log keeps of one attempt at a door.

    `verb` is `noun.verb` (`user.create`), `target` is `kind:key`. What a person wrote goes to
    `purpose` and `detail` only: a redaction replaces these two and nothing else.
    """

    actor: str
    agent_id: str
    namespace: str
    verb: str
    target: str
    outcome: Outcome
    purpose: str = field(default="", repr=False)
    detail: str = field(default="", repr=False)


def act_of(
    who: Identity, verb: str, target: str, outcome: Outcome, *, purpose: str = "", detail: str = ""
) -> Act:
    """Return the act of a known identity, in the namespace it acts in."""
    return Act(
        actor=who.actor,
        agent_id=who.agent_id,
        namespace=who.namespace,
        verb=verb,
        target=target,
        outcome=outcome,
        purpose=purpose,
        detail=detail,
    )

"""What the prologue of a syscall has settled, handed to its body."""

from dataclasses import dataclass, field
from datetime import datetime

from noema.core.act import Act, Outcome, act_of
from noema.core.identity import Identity
from noema.memory.model import EffectivePolicy, Scope


@dataclass(slots=True, kw_only=True)
class Frame:
    """One syscall under way: role, policy, tenant and rate are settled; the body does the work.

    `target` (`memory:<id>`) and `detail` (`returned=2 tokens=60 driver=baseline`) are what its
    audit row will say; the body fills them in. A body with a transaction of its own writes the row
    in it and sets `is_recorded`; the prologue records every other outcome.
    """

    who: Identity
    op: str
    scope: Scope
    policy: EffectivePolicy
    now: datetime
    purpose: str = field(default="", repr=False)
    target: str = ""
    detail: str = field(default="", repr=False)
    is_recorded: bool = False

    def act(self, outcome: Outcome) -> Act:
        """Return the act that the audit row of this syscall keeps."""
        return act_of(
            self.who, self.op, self.target, outcome, purpose=self.purpose, detail=self.detail
        )

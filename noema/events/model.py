"""What an event is, and the catalogue of every type there is.

Data and content are apart from the first row on: `data` holds ids, numbers and scores, `content`
holds all text from outside (topic keys included) and is the only thing a redaction replaces.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from noema.core.canonical import canonical, canonical_escaped, commitment, escape_tree
from noema.core.clock import Ids
from noema.core.errors import InvalidInput

REDACTED: Final[Mapping[str, Any]] = {"redacted": True}

CATALOGUE: Final[Mapping[str, str]] = {
    "mind.created": (
        "A mind began. data: settings_version, settings; content: slug, name, namespace."
    ),
    "mind.renamed": "An operator gave the mind another name. content: name.",
    "stimulus.received": (
        "Something from outside that can start a cycle. data: kind, urgency (micro-units), pin; "
        "content: text, source, meta."
    ),
    "message.received": "Someone spoke to the mind. data: conversation; content: text, speaker.",
    "step.requested": "An operator asked for one cycle now.",
    "mode.set": "An operator chose a mode. data: mode, version, epoch, until_us; content: focus.",
    "mode.changed": (
        "The mind changed its own mode by one of its mode's exits. data: from, to, version, on."
    ),
    "settings.set": "An operator saved settings. data: version, settings; content: note.",
    "goal.set": "An operator gave the mind a goal. data: goal, priority; content: text.",
    "goal.closed": "An operator closed a goal. data: goal.",
    "timer.fired": "A timer came due. data: due, missed (earlier ones that coalesced into this).",
    "candidate.scored": (
        "One proposed thought and how it fared. data: process, ordinal, stimuli folded, raw, "
        "features, contributions, score, gate, rank, admitted, memory (that it brings back), "
        "sources (memories it rests on), is_insight, is_local (no provider may be shown it); "
        "content: text, topic, key."
    ),
    "thought.admitted": (
        "A candidate that won a place. data: candidate, process, rank, score; content: text, topic."
    ),
    "workspace.broadcast": (
        "The workspace after the cycle. data: slots, each with thought, process and strength."
    ),
    "cycle.completed": (
        "One turn of a mind. data: number, trigger, as_of, through, mode, weights in effect, "
        "threshold, k, versions, candidate_set, winner, margin, timings."
    ),
    "port.answered": (
        "What a process asked outside the snapshot and got. data: process, ordinal, port, "
        "memories, withheld (found, and not for the log), of a model also prompt, call, waited_us "
        "(how long the mind waited), asked_in (the earlier cycle that asked), failed (why there is "
        "no answer); content: request, answer."
    ),
    "stimulus.expired": (
        "Stimuli that waited too long for attention. data: folded, waited (cycles)."
    ),
    "process.failed": "A process failed or was late and proposed nothing. data: process, why.",
    "action.started": "An act is about to touch the world. data: intent, act.",
    "action.completed": "An act is done. data: intent, act.",
    "action.refused": "An act was refused. data: intent, act, reason; content: said (by memory).",
    "action.outcome_unknown": "An act was started and its result never came. data: intent, act.",
    "memory.written": (
        "A thought became a memory, or met one that says the same. data: intent, act, memory, "
        "outcome, kind."
    ),
    "memory.waits": (
        "Memory cannot take what is to be remembered; it is tried again. data: intent, act, reason."
    ),
    "message.sent": "The mind said something. data: conversation, in_reply_to; content: text, to.",
    "daemon.started": "A daemon took up work on this database. data: version, protection.",
}

CONTROL: Final = (
    "message.received",
    "step.requested",
    "mode.set",
    "settings.set",
    "goal.set",
    "goal.closed",
)
"""What people send a mind; it is observed before any stimulus. Migration 0001 indexes the same."""

INPUTS: Final = frozenset((*CONTROL, "stimulus.received"))
"""Everything that may wake a mind."""


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event that is about to be appended; `new_event` makes one.

    Its position and recording time come from the log. `content` is already canonical bytes.
    """

    id: UUID
    type: str
    occurred_at: datetime
    actor: str
    mind_id: UUID | None
    cycle_id: UUID | None
    causes: Sequence[UUID]
    data: Mapping[str, Any]
    content: bytes
    salt: bytes
    commitment: bytes


def new_event(
    ids: Ids,
    *,
    type: str,  # noqa: A002
    occurred_at: datetime,
    actor: str,
    mind_id: UUID | None = None,
    cycle_id: UUID | None = None,
    causes: Sequence[UUID] = (),
    data: Mapping[str, Any] | None = None,
    content: Mapping[str, Any] | None = None,
    id: UUID | None = None,  # noqa: A002
) -> NewEvent:
    """Return an event with its id (a new one unless given), salt and commitment."""
    raw = canonical_escaped(content) if content else b"{}"
    salt = ids.salt()
    return NewEvent(
        id=id or ids.new(),
        type=type,
        occurred_at=occurred_at,
        actor=actor,
        mind_id=mind_id,
        cycle_id=cycle_id,
        causes=causes,
        data=data or {},
        content=raw,
        salt=salt,
        commitment=commitment(salt, raw),
    )


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event as the log holds it. `seq` orders events and may have gaps."""

    seq: int
    id: UUID
    type: str
    occurred_at: datetime
    recorded_at: datetime
    actor: str
    mind_id: UUID | None
    cycle_id: UUID | None
    causes: Sequence[UUID]
    data: Mapping[str, Any]
    content: Mapping[str, Any]
    salt: bytes | None
    commitment: bytes

    @property
    def is_redacted(self) -> bool:
        """Whether the content was replaced by the marker."""
        return self.salt is None

    @property
    def is_intact(self) -> bool:
        """Whether the content is what was committed to; a redacted event cannot tell and is not."""
        if self.salt is None:
            return False
        raw = canonical(escape_tree(self.content))
        return commitment(self.salt, raw) == self.commitment

    @property
    def payload(self) -> dict[str, Any]:
        """Data and content merged, as the public interfaces show them."""
        return {**self.data, **self.content}


def encode_position(seq: int) -> str:
    """Return the opaque public spelling of a place in the log."""
    return f"p{seq:x}"


def decode_position(text: str) -> int:
    """Return the place that `encode_position` spelt, or raise InvalidInput."""
    digits = text[1:]
    if not text.startswith("p") or not digits or len(digits) > 16:
        raise InvalidInput(f"{text[:40]!r} is not a position of this log.", field="after")
    try:
        seq = int(digits, 16)
    except ValueError:
        seq = -1
    if not 0 <= seq < 2**63 or f"{seq:x}" != digits:
        raise InvalidInput(f"{text[:40]!r} is not a position of this log.", field="after")
    return seq

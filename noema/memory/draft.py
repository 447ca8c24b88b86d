"""A memory that is about to be written: everything the insert needs, settled beforehand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from noema.memory.mentions import Mention
from noema.memory.model import EpistemicKind, Kind, Label


@dataclass(slots=True, kw_only=True)
class Draft:
    """One memory on its way in; `index` is its place among the items of the answer.

    `binds` is what the label of the same text has to be at least, where that is current already. It
    is the label, without what a classifier that failed would have it be.

    `session` and `position` of a single turn are settled in the transaction, where nobody else can
    take the same place; so are `supersedes` and `since`, when it is
    believed from. `importance` is in micro-units.
    """

    id: UUID
    index: int
    kind: Kind
    epistemic_kind: EpistemicKind
    text: str = field(repr=False)
    content: Mapping[str, Any] = field(repr=False)
    key: bytes
    terms: Sequence[str] = field(repr=False)
    event_time: datetime | None
    extraction: str
    label: Label
    binds: Label
    importance: int
    conversation: UUID | None = None
    session: UUID | None = None
    position: int | None = None
    speaker: str | None = None
    mentions: Sequence[Mention] = field(default=(), repr=False)
    supersedes: UUID | None = None
    since: datetime | None = None
    vector: Sequence[float] | None = field(default=None, repr=False)

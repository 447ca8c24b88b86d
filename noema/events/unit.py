"""A unit: everything that must be committed together, as data only.

The writer commits the units of many minds in one call; each is fenced and answered on its own.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from noema.events.model import NewEvent


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """The lease under which a unit may be committed; another epoch, or a lapsed one, refuses it."""

    mind: UUID
    epoch: int


class Idempotency(msgspec.Struct, frozen=True, kw_only=True):
    """A key under which the same request is done once. `digest` tells one body from another."""

    scope: str
    key: str
    digest: bytes
    response: Mapping[str, Any]


class CycleUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished cycle changes of its mind's row and checkpoint."""

    number: int
    cursor: int
    at: datetime
    next_due: datetime | None
    mode: str
    mode_epoch: int
    mode_until: datetime | None
    pending: int
    workspace: Sequence[Mapping[str, Any]]
    state: bytes | None = None
    state_version: int | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a conversation, a projection of the event of the same id."""

    id: UUID
    conversation: UUID
    mind: UUID
    speaker: str
    text: str
    at: datetime
    in_reply_to: UUID | None = None
    cycle: int | None = None


class NewIntent(msgspec.Struct, frozen=True, kw_only=True):
    """An act that an admitted thought wants done."""

    id: UUID
    cycle_id: UUID
    cycle: int
    ordinal: int
    thought_id: UUID
    act: str
    content: Mapping[str, Any]


class ActState(msgspec.Struct, frozen=True, kw_only=True):
    """How far an intent has come."""

    intent: UUID
    state: Literal["started", "done", "refused", "unknown"]


class Derivation(msgspec.Struct, frozen=True, kw_only=True):
    """`to` came from `source`, in the way that `kind` says."""

    source: UUID
    to: UUID
    kind: str


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """Work for the writer. It holds at least one event: the first's id settles a lost answer."""

    events: Sequence[NewEvent]
    fence: Fence | None = None
    idempotency: Idempotency | None = None
    cycle: CycleUpdate | None = None
    messages: Sequence[Message] = ()
    intents: Sequence[NewIntent] = ()
    acts: Sequence[ActState] = ()
    derivations: Sequence[Derivation] = ()


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A committed unit. `repeated` holds what was answered when the key came the first time."""

    repeated: Mapping[str, Any] | None = None

"""What a verification finds."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Where the record first leaves what this code computes.

    `candidate` is the id of the candidate's event (its process and ordinal where the record has
    none), None where it is not about one. `feature` names what differs: a feature, or a path such
    as `score`, `gate`, `text`, `contributions.novelty`, `weights.novelty`, `commitment`, `cycle`.
    Text is never quoted here, only measured: it stays where it can be redacted.
    """

    cycle: int
    candidate: str | None
    feature: str
    recorded: Any
    recomputed: Any
    what: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a verification: it ends at the first difference.

    `cycles` is the size of the range, `verified` how many of them agree; `notes` say in sentences
    what could not be recomputed and was taken as recorded.
    """

    cycles: int
    verified: int
    first_difference: Difference | None
    notes: tuple[str, ...]


class Replay(msgspec.Struct, frozen=True, kw_only=True, rename={"first": "from", "last": "to"}):
    """A verification, under way or done. `mind` is its slug; `error` says why it failed."""

    id: UUID
    mind: str
    kind: str
    state: Literal["running", "done", "failed"]
    first: int | None
    last: int | None
    cycles: int
    verified: int
    first_difference: Difference | None
    notes: tuple[str, ...]
    error: str | None
    actor: str
    created_at: datetime
    finished_at: datetime | None

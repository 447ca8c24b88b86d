"""The values a mind thinks with. All numbers are integers; features and weights are micro-units."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

import msgspec

from noema.cognition.habits import TopicStats

MICRO: Final = 1_000_000

POSITIVE: Final = (
    "intensity",
    "novelty",
    "urgency",
    "relevance",
    "goal",
    "surprise",
    "confidence",
    "credibility",
    "social",
    "valence",
    "recency",
    "pin",
)
NEGATIVE: Final = ("cost", "fatigue", "habituation")
FEATURES: Final = POSITIVE + NEGATIVE

Trigger = Literal["stimulus", "message", "goal", "timer", "operator", "pending", "urgent"]


class Stimulus(msgspec.Struct, frozen=True, kw_only=True):
    """Something from outside, as a mind observes it. `text` is cut to what attention needs."""

    id: UUID
    text: str
    kind: str
    at_us: int
    urgency: int = 0
    pin: bool = False
    speaker: str = ""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Like stimuli that compete as one; `before` is what the mind knew of the topic at the first.

    `stimuli` holds at most `GROUP_SAMPLE` of them, the first ones and the last; `ids` names all
    that are folded, to a stated bound, and `count` counts them all.
    """

    topic: str
    stimuli: tuple[Stimulus, ...]
    ids: tuple[UUID, ...]
    count: int
    before: TopicStats | None
    total_before: int
    since_us: int
    waited: int = 0

    @property
    def latest(self) -> Stimulus:
        return self.stimuli[-1]


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator wants attention paid to. Priority in micro-units."""

    id: UUID
    text: str
    priority: int


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One thought in focus; its strength halves every `slot_half_life_s` of the mind's own time.

    `is_local`: see `Candidate`.
    """

    thought: UUID
    process: str
    topic: str
    text: str
    cycle: int
    admitted_us: int
    strength: int
    is_local: bool = False


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Someone spoke to the mind and waits for an answer."""

    id: UUID
    conversation: UUID
    speaker: str
    text: str
    at_us: int


class MindSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator may tune. One version of these is in force at a time; all are kept."""

    weights: Mapping[str, int]
    threshold: int
    capacity: int
    slot_half_life_s: int
    batch: int
    quota: int
    pending_limit: int
    pending_cycles: int
    reflect_every: int


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `modes`: what starts a cycle, how many thoughts win, and how to leave it."""

    name: str
    version: int
    title: str
    description: str
    k: int
    timer_min_s: int | None
    timer_max_s: int | None
    triggers: tuple[str, ...]
    profile: Mapping[str, int]
    processes: tuple[str, ...] | None
    may_act: bool
    expires_s: int | None
    exits: tuple["Exit", ...]

    @property
    def does_expire(self) -> bool:
        """Whether a mind leaves it when its time is up."""
        return any(way.on == "expired" for way in self.exits)


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """A way out of a mode: on `quiet` (nothing for after_s), `expired`, or a trigger's name."""

    on: str
    to: str
    after_s: int | None = None


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What a thought wants done if it wins."""

    act: str
    params: Mapping[str, str]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A proposed thought. `features` are the process's own; attention adds those it owns.

    `key` says what it is about to say: of two with one key, one cycle admits the better only.
    `raw` keeps the number each feature's curve was applied to. `memory` is the memory that it
    brings back, if it does. `sources` are memories that it rests on without bringing one back, and
    `is_insight` says that it is itself knowledge, worth keeping; `is_local` that a model on this
    machine made it, of what no provider may be shown perhaps.
    """

    process: str
    key: str
    topic: str
    text: str
    stimuli: tuple[UUID, ...] = ()
    folded: int = 0
    features: Mapping[str, int] = msgspec.field(default_factory=dict)
    raw: Mapping[str, int] = msgspec.field(default_factory=dict)
    intent: Intent | None = None
    replies_to: UUID | None = None
    memory: UUID | None = None
    sources: tuple[UUID, ...] = ()
    is_insight: bool = False
    is_local: bool = False


class RecallHabit(msgspec.Struct, frozen=True, kw_only=True):
    """When memory was asked last and may be asked again, by the mind's own time.

    `focus` is the focus that was in force then. `levels` says of each memory (by its id) how used
    the mind is to it, in micro-units, and as of when.
    """

    asked_us: int = 0
    due_us: int = 0
    focus: str = ""
    levels: Mapping[str, tuple[int, int]] = msgspec.field(default_factory=dict)


class Brain(msgspec.Struct, frozen=True, kw_only=True):
    """All that a process may look at: a snapshot fixed at Observe, never a handle."""

    now_us: int
    cycle: int
    trigger: str
    mode: Mode
    settings: MindSettings
    settings_version: int
    groups: tuple[Group, ...]
    questions: tuple[Question, ...]
    slots: tuple[Slot, ...]
    goals: tuple[Goal, ...]
    focus: str
    topics: Mapping[str, TopicStats]
    total: TopicStats | None
    fatigue: Mapping[str, tuple[int, int]]
    admitted_since_reflection: int
    observed_since_reflection: int
    recent: tuple[str, ...]
    reflected_us: int
    log_before: int
    recall: RecallHabit = RecallHabit()


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate after attention: all features, each one's contribution, and how it fared.

    `score` is the exact sum of effective weight times feature (micro-units squared). `rank` counts
    from 1 over all candidates, gated ones last; `gate` names the gate that stopped it, or None.
    """

    candidate: Candidate
    ordinal: int
    features: Mapping[str, int]
    raw: Mapping[str, int]
    contributions: Mapping[str, int]
    score: int
    gate: str | None
    rank: int
    admitted: bool


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What attention decided, with the constants it decided by."""

    scored: tuple[Scored, ...]
    weights: Mapping[str, int]
    threshold: int
    k: int

    @property
    def admitted(self) -> tuple[Scored, ...]:
        """The winners, best first."""
        return tuple(s for s in self.scored if s.admitted)

    @property
    def margin(self) -> int | None:
        """How far the winner stood above the next candidate that passed the gates, if any."""
        open_ = [s for s in self.scored if s.gate is None]
        if not open_ or not open_[0].admitted or len(open_) < 2:
            return None
        return open_[0].score - open_[1].score


class Mind(msgspec.Struct, frozen=True, kw_only=True):
    """A mind's row: who it is and how far it has come. `cursor` is a position in the log."""

    id: UUID
    slug: str
    name: str
    namespace: str
    status: str
    mode: str
    mode_epoch: int
    mode_until: datetime | None
    cursor: int
    next_due: datetime | None
    settings_version: int
    cycles: int
    pending: int
    last_cycle_at: datetime | None
    last_error: str | None
    owner: UUID | None
    lease_until: datetime | None

    @property
    def actor(self) -> str:
        """How the mind signs what it does."""
        return f"mind:{self.slug}"

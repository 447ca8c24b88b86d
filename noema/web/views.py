"""What the pages show: one frozen context per template, filled by the page modules.

Units, everywhere: a *micro* is an integer of millionths (features, weights, strengths); a *score*
is a sum of products of two micros, so 10**12 is 1.0; moments are aware datetimes; durations are
whole microseconds (`_us`) or milliseconds (`_ms`). A text that is None was redacted, or the reader
may not see it. Positions and cursors are opaque strings.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

FlipKind = Literal["weight", "feature"]
SpanStatus = Literal["ok", "empty", "late", "failed", "refused"]
RunState = Literal["queued", "running", "done", "failed"]
Level = Literal["ok", "warn", "bad", "quiet"]


Context = Any
"""A context is any of the dataclasses here and in `panels`; the renderer takes them by fields."""

# --- shared pieces ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MindRow:
    """One mind in the list; `cycles_per_minute` holds the last hour, oldest first."""

    slug: str
    name: str
    namespace: str
    mode: str
    status: str
    cycles: int
    last_cycle_at: datetime | None
    cycles_per_minute: tuple[int, ...]
    backlog: int
    pending: int
    latest_winner: str | None
    latest_cycle: int | None
    errors: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MindHead:
    """What the head of every page of one mind needs."""

    slug: str
    name: str
    namespace: str
    mode: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One place of the workspace; an empty place has no `event_id`."""

    index: int
    event_id: str | None = None
    text: str | None = None
    process: str = ""
    topic: str = ""
    strength: int = 0
    entered_at: datetime | None = None
    cycle: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRow:
    """One cycle in a list; `margin` is a score, None where nothing was admitted or lost."""

    slug: str
    number: int
    id: str
    trigger: str
    started_at: datetime
    duration_us: int
    candidates: int
    admitted: int
    winner: str | None
    process: str | None
    margin: int | None
    redacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """One utterance; a reply names the cycle it came from."""

    id: str
    slug: str
    speaker: str
    from_mind: bool
    text: str | None
    at: datetime
    cycle: int | None = None
    thought_id: str | None = None
    waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalRow:
    """One goal; `priority` is a micro."""

    id: str
    text: str | None
    priority: int
    status: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One event of the log; `gap_before` counts positions before it that no event holds."""

    position: str
    id: str
    type: str
    occurred_at: datetime
    mind: str | None
    actor: str
    summary: str | None
    cycle: int | None = None
    redacted: bool = False
    gap_before: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """One step of provenance or of consequence; `depth` 1 is next to the thing itself."""

    event_id: str
    type: str
    relation: str
    text: str | None
    at: datetime
    depth: int = 1
    folded: int = 0
    redacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One choice of a select."""

    value: str
    label: str
    selected: bool = False


# --- small pages -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginPage:
    """`login.html`."""

    error: str | None = None
    next: str = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPage:
    """`error.html`: what happened, and what to do."""

    status: int
    code: str
    happened: str
    remedy: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaletteItem:
    """One line of the command palette."""

    href: str
    label: str
    kind: str
    detail: str | None = ""
    keys: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaletteList:
    """`fragments/palette.html`; `palette.html` shows the same without JavaScript."""

    query: str
    items: tuple[PaletteItem, ...]


# --- minds -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MindForm:
    """What was typed into the create form, and what is wrong with it."""

    slug: str = ""
    name: str = ""
    namespace: str = "home"
    error: str | None = None
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MindsPage:
    """`minds.html`; `lacks_model` where no role asks one, for those who may look at models."""

    minds: tuple[MindRow, ...]
    form: MindForm = MindForm()
    lacks_model: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MindRowFragment:
    """`fragments/mind_row.html`."""

    row: MindRow


@dataclass(frozen=True, slots=True, kw_only=True)
class MindVitals:
    """`fragments/vitals.html`: what changes with every cycle."""

    slug: str
    mode: str
    status: str
    cycles: int
    last_cycle_at: datetime | None
    cycles_per_minute: tuple[int, ...]
    next_due: datetime | None
    backlog: int
    pending: int
    cursor: str
    behind: int
    settings_version: int
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """`fragments/workspace.html`."""

    slug: str
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRowFragment:
    """`fragments/cycle_row.html`."""

    row: CycleRow


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFragment:
    """`fragments/message.html`."""

    message: MessageRow


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRowFragment:
    """`fragments/event_row.html`."""

    row: EventRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """`fragments/{cycle,event,message}_body.html`: the newest rows of a tail, all of it anew."""

    topic: str
    slug: str
    rows: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SayForm:
    """What was typed into the say box, and what is wrong with it."""

    text: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalForm:
    """What was typed into the form for a new goal, and what is wrong with it."""

    text: str = ""
    priority: str = "0.5"
    error: str | None = None
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MindPage:
    """`mind.html`; cycles newest first, messages oldest first."""

    mind: MindHead
    vitals: MindVitals
    workspace: Workspace
    cycles: tuple[CycleRow, ...]
    messages: tuple[MessageRow, ...]
    goals: tuple[GoalRow, ...]
    modes: tuple[str, ...]
    say: SayForm = SayForm()
    goal: GoalForm = GoalForm()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclesPage:
    """`cycles.html`; rows newest first; `newer` and `older` are whole links or None."""

    mind: MindHead
    rows: tuple[CycleRow, ...]
    triggers: tuple[str, ...]
    trigger: str
    newer: str | None = None
    older: str | None = None
    json_href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """One feature of one candidate: `value` and `weight` are micros, `amount` is a score."""

    feature: str
    raw: str
    value: int
    weight: int
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate of a cycle, with its contributions in the order of `CyclePage.features`.

    `margin` is a score: how far above the best loser the admitted stood, how far below the last
    admitted a loser fell. `gate` is None for a candidate that passed.
    """

    id: str
    rank: int | None
    process: str
    topic: str
    text: str | None
    score: int
    margin: int | None
    admitted: bool
    gate: str | None
    gate_reason: str
    contributions: tuple[Contribution, ...]
    stimuli: int = 1
    redacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureColumn:
    """One column of the heat table: base and effective weight are micros."""

    name: str
    weight: int
    effective: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCount:
    """How many candidates one gate let through and held."""

    name: str
    passed: int
    held: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One smallest change that makes another candidate win; numbers are micros.

    `of` says whose feature changes, empty for a weight.
    """

    kind: FlipKind
    name: str
    of: str = ""
    before: int
    after: int
    low: int
    high: int
    new_winner: str | None
    new_winner_id: str
    confirmed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipPanel:
    """`fragments/flip.html`: the winner against one other candidate.

    `margin` is a score, None with nobody to compare with; `reason` says why nothing flips.
    """

    slug: str
    number: int
    winner: str | None
    against: str | None
    against_id: str
    margin: int | None
    choices: tuple[Option, ...]
    flips: tuple[Flip, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One bar of the latency waterfall."""

    name: str
    start_us: int
    duration_us: int
    status: SpanStatus = "ok"
    candidates: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePage:
    """`cycle.html`; candidates in rank order, those held by a gate last."""

    mind: MindHead
    row: CycleRow
    mode: str
    winner: Candidate | None
    runner_up: Candidate | None
    candidates: tuple[Candidate, ...]
    features: tuple[FeatureColumn, ...]
    threshold: int
    capacity: int
    gates: tuple[GateCount, ...]
    flip: FlipPanel | None
    spans: tuple[Span, ...]
    events: tuple[EventRow, ...]
    settings_version: int
    scorer_version: str
    code_version: str
    as_of: datetime
    candidate_set_hash: str
    stimuli: int
    previous: int | None
    next: int | None
    json_href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedModel:
    """A question to a model on a thought's way; `call` is None where nobody answered."""

    prompt: str
    call: str | None
    failed: str
    waited_us: int
    asked_in: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtPage:
    """`thought.html`: causes nearest first, consequences nearest first.

    `rests_on` are ids of memories.
    """

    mind: MindHead
    event_id: str
    text: str | None
    process: str
    topic: str
    cycle: int
    at: datetime
    rank: int | None
    score: int
    margin: int | None
    admitted: bool
    outcome: str
    contributions: tuple[Contribution, ...]
    causes: tuple[LinkRow, ...]
    consequences: tuple[LinkRow, ...]
    rests_on: tuple[str, ...] = ()
    asked: tuple[AskedModel, ...] = ()
    folded: int = 0
    redacted: bool = False
    json_href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationPage:
    """`conversation.html`; messages oldest first."""

    mind: MindHead
    messages: tuple[MessageRow, ...]
    older: str | None = None
    say: SayForm = SayForm()

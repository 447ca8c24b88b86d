"""What the pages of governed memory show: one frozen context per template, as in `views`.

Micros are integers of millionths. Parts of a score are floats as the kernel answers them. A `state`
is what a reader wants to know first of a memory: `current`, `closed` (superseded, or no longer
held), `disputed` or `retracted`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from noema.web.panels import Fact, Tiles
from noema.web.views import Option

State = Literal["current", "closed", "disputed", "retracted"]

# --- pieces ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorePart:
    """One component of a score: `amount` is `value` times `weight`; amounts add up to the score."""

    name: str
    label: str
    value: float
    weight: float
    amount: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What classification found; `failed` is why it could not, and the label is the strictest."""

    sensitivity: str
    pii: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    classifier: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """One memory in a list; `text` is clipped. `score` and `parts` come with a search."""

    id: str
    text: str
    kind: str
    namespace: str
    state: State
    valid_from: datetime
    valid_to: datetime | None
    told_at: datetime
    source: str
    route: str
    trust: int
    speaker: str | None
    labels: Labels
    is_shared: bool
    score: float | None = None
    parts: tuple[ScorePart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A memory or an entity that this one is tied to, and how."""

    href: str
    text: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message around this one in its conversation."""

    id: str
    speaker: str
    text: str
    at: datetime
    position: int
    is_this: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One row of a chain, `number` 1 being the oldest that is seen."""

    number: int
    id: str
    text: str
    state: State
    valid_from: datetime
    valid_to: datetime | None
    told_at: datetime
    event_time: datetime | None
    actor: str
    is_this: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantLine:
    """One share; `what` reads as a sentence's object, `state` is on, ended or to come."""

    id: str
    what: str
    memory_href: str | None
    to: str
    to_kind: Literal["namespace", "actor"]
    namespace: str
    granted_by: str
    valid_from: datetime
    valid_to: datetime | None
    revoked_by: str | None
    state: Literal["on", "ended"]
    may_end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareForm:
    """What was typed into the form for a share; times are in UTC."""

    to_kind: str = "namespace"
    to: str = ""
    until: str = ""
    subtree: str = ""
    error: str | None = None
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why somebody sees the memory, or does not; `is_self` where it is the reader."""

    viewer: str
    namespace: str
    is_self: bool
    is_visible: bool
    is_found: bool
    reasons: tuple[str, ...]
    namespaces: tuple[str, ...]
    grants: tuple[GrantLine, ...]
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyForm:
    """Whose eyes were asked for; all empty means one's own, now."""

    namespace: str = ""
    actor: str = ""
    at: str = ""
    error: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether other eyes, or another time, were asked for."""
        return any((self.namespace, self.actor, self.at))


# --- memories ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFilter:
    """What the address asked for. `status` is current, all, disputed or retracted."""

    q: str = ""
    kinds: tuple[str, ...] = ()
    status: str = ""
    at: str = ""
    k: str = ""
    namespace: str = ""
    actor: str = ""
    explain: bool = True
    error: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether anything is asked for beyond the newest."""
        return any(
            (self.q, self.kinds, self.status, self.at, self.k, self.namespace, self.actor)
        )  # fmt: skip

    @property
    def is_detailed(self) -> bool:
        """Whether one of the fields behind "More" is in use."""
        return any((self.at, self.k, self.namespace, self.actor)) or not self.explain


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryForm:
    """What was typed into the form that writes a memory, and what is wrong with it."""

    text: str = ""
    kind: str = ""
    source: str = ""
    importance: str = ""
    event_time: str = ""
    error: str | None = None
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How a search went, beside its lines."""

    driver: str
    degraded: str | None
    tokens: int
    trimmed: int
    view_namespace: str | None = None
    view_actor: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoriesPage:
    """`memories.html`: what a search found, best first, or the newest.

    `written_as` is the route, and `written_trust` its rank, that the form gives a memory.
    """

    lines: tuple[MemoryLine, ...]
    filter: MemoryFilter
    kinds: tuple[Option, ...]
    statuses: tuple[Option, ...]
    found: Found | None
    tiles: Tiles | None
    by_kind: Mapping[str, int]
    form: MemoryForm
    may_write: bool
    written_as: str
    written_trust: int
    may_view_as: bool
    is_fresh: bool
    older: str | None = None
    newest: str | None = None
    json_href: str = ""


# --- one memory --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """One figure from 0 to 1 as a micro."""

    name: str
    value: int
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictLink:
    """A conflict that this memory is one side of."""

    id: str
    other_href: str
    other_text: str
    outcome: str
    is_newcomer: bool
    is_open: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MayDo:
    """What the reader may do with this memory; the kernel decides again."""

    pin: bool = False
    share: bool = False
    supersede: bool = False
    retract: bool = False
    restore: bool = False
    view_as: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetractionLine:
    """Why the memory was withdrawn, and what went with it."""

    id: str
    root_href: str | None
    reason: str
    actor: str
    at: datetime
    others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPage:
    """`memory.html`. `said` is what an act on the page did."""

    line: MemoryLine
    text: str
    epistemic_kind: str
    content: tuple[Fact, ...]
    event_time: datetime | None
    actor: str
    agent_id: str
    extraction: str
    versions: tuple[Version, ...]
    derived_from: tuple[Link, ...]
    derived_to: tuple[Link, ...]
    related: tuple[Link, ...]
    entities: tuple[Link, ...]
    turns: tuple[Turn, ...]
    conversation: str | None
    gauges: tuple[Gauge, ...]
    accesses: int
    last_accessed_at: datetime | None
    repeats: int
    pinned_at: datetime | None
    pinned_by: str
    grants: tuple[GrantLine, ...]
    conflicts: tuple[ConflictLink, ...]
    retraction: RetractionLine | None
    why: Why | None
    why_form: WhyForm
    share: ShareForm
    may: MayDo
    now: datetime
    supersede_text: str = ""
    supersede_error: str | None = None
    retract_reason: str = ""
    retract_error: str | None = None
    said: str | None = None
    audit_href: str | None = None
    json_href: str = ""


# --- graph -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    """A point of the graph as the list beside the picture has it; `group` gives its colour."""

    id: str
    kind: Literal["memory", "entity"]
    group: str
    label: str
    detail: str
    namespace: str
    weight: int
    href: str
    is_centre: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPage:
    """`graph.html`. `edges` is JSON: a list of from, to (places in `nodes`) and kind."""

    nodes: tuple[NodeLine, ...]
    edges: str
    edge_count: int
    groups: tuple[str, ...]
    is_capped: bool
    kinds: tuple[Option, ...]
    namespaces: tuple[str, ...]
    namespace: str
    about: str
    limit: int
    centre: NodeLine | None
    suggestions: tuple[Link, ...]
    error: str | None = None
    json_href: str = ""


# --- conflicts ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two that contradict each other; `line` is None where it is not seen any more."""

    id: str
    text: str
    line: MemoryLine | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictRow:
    """One case of the conflict check."""

    id: str
    namespace: str
    newcomer: Side
    incumbent: Side
    judge: str
    reason: str
    outcome: str
    outcome_text: str
    decided_by: str
    decided_at: datetime
    reverted_at: datetime | None
    reverted_by: str | None
    is_open: bool
    may_resolve: bool
    decisions: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictsPage:
    """`conflicts.html`: those that wait for somebody first."""

    cases: tuple[ConflictRow, ...]
    waiting: int
    only_open: bool
    error: str | None = None
    json_href: str = ""


# --- shares ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesPage:
    """`shares.html`."""

    grants: tuple[GrantLine, ...]
    with_ended: bool
    form: ShareForm
    may_share: bool
    error: str | None = None
    json_href: str = ""


# --- policy ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectiveLine:
    """One guardrail as it stands in the form."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyForm:
    """A namespace's own document as the form has it; empty means that it says nothing."""

    namespace: str
    version: int
    driver: str = ""
    reads: str = ""
    writes: str = ""
    chars: str = ""
    retention: str = ""
    review: str = ""
    directives: tuple[DirectiveLine, ...] = ()
    error: str | None = None
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPage:
    """`memory_policy.html`: what holds where one acts, and the namespace's own part of it."""

    namespace: str
    limits: tuple[Fact, ...]
    directives: tuple[DirectiveLine, ...]
    digest: str
    acknowledged: bool
    may_acknowledge: bool
    form: PolicyForm | None
    may_save: bool
    free_rows: int
    reviews: tuple[Option, ...]
    said: str | None = None
    error: str | None = None
    history_href: str | None = None
    json_href: str = ""

"""Values of governed memory: what a memory is, what a syscall takes and what it answers.

Importance, salience, credibility, activation and confidence are micro-units, 0 to 1,000,000. All
times are UTC and aware. Requests come from outside as JSON and refuse fields they do not know; what
is camel case there is so because the interface promises it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

MICRO: Final = 1_000_000
MAX_TEXT_CHARS: Final = 32_768
MAX_MESSAGES: Final = 2_000
MAX_K: Final = 200
DEFAULT_K: Final = 10


class Kind(StrEnum):
    """What a memory is. Each has its own typed content; see `noema.memory.contents`.

    A `fact` is a statement that can be contradicted by a later one about the same thing. `semantic`
    is general knowledge, distilled from many sources, that no single observation overturns.
    """

    FACT = "fact"
    PREFERENCE = "preference"
    EPISODE = "episode"
    ENTITY = "entity"
    POINTER = "pointer"
    SEMANTIC = "semantic"
    PROCEDURAL = "procedural"
    AUTOBIOGRAPHICAL = "autobiographical"


class EpistemicKind(StrEnum):
    """How we come to hold it, whatever it is about."""

    OBSERVATION = "observation"
    FACT = "fact"
    MEMORY = "memory"
    CLAIM = "claim"
    HYPOTHESIS = "hypothesis"
    BELIEF = "belief"
    PREDICTION = "prediction"
    ASSUMPTION = "assumption"
    INFERENCE = "inference"
    OPINION = "opinion"


class Status(StrEnum):
    """Whether a memory is believed, quarantined by a conflict, or withdrawn."""

    ACTIVE = "active"
    DISPUTED = "disputed"
    RETRACTED = "retracted"


class Sensitivity(StrEnum):
    """How carefully a memory is to be handled, least first."""

    PUBLIC = "public"
    INTERNAL = "internal"
    CONFIDENTIAL = "confidential"
    RESTRICTED = "restricted"


class Route(StrEnum):
    """By which way a memory came in: the server's finding, never the writer's word."""

    MANUAL = "manual"
    DOCUMENT = "document"
    LIVE_FETCH = "live-fetch"
    CONSOLIDATION = "consolidation"
    SWAP_IMPORT = "swap-import"
    CONVERSATION = "conversation"


class Trust(IntEnum):
    """The trust lattice: rank of each route. `document` and `live-fetch` are equal."""

    CONVERSATION = 10
    SWAP_IMPORT = 20
    CONSOLIDATION = 30
    DOCUMENT = 40
    MANUAL = 50


TRUST_OF: Final[Mapping[Route, Trust]] = {
    Route.MANUAL: Trust.MANUAL,
    Route.DOCUMENT: Trust.DOCUMENT,
    Route.LIVE_FETCH: Trust.DOCUMENT,
    Route.CONSOLIDATION: Trust.CONSOLIDATION,
    Route.SWAP_IMPORT: Trust.SWAP_IMPORT,
    Route.CONVERSATION: Trust.CONVERSATION,
}


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What classification found. `classifier` names it, or says `error:…` and why it is restricted.

    `pii` are kinds of personal data (`email`, `phone`, `iban`, …), `secrets` kinds of credential,
    `destinations` where the text may be sent (`local`, `provider`, `peer`).
    """

    sensitivity: Sensitivity
    pii: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    classifier: str = ""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """One memory as its readers see it."""

    id: UUID
    namespace: str
    kind: Kind
    epistemic_kind: EpistemicKind
    status: Status
    text: str
    content: Mapping[str, Any]
    event_time: datetime | None
    assertion_time: datetime
    valid_from: datetime
    valid_to: datetime | None
    supersedes: UUID | None
    superseded_by: UUID | None = None
    source: str
    route: Route
    trust: int
    actor: str
    agent_id: str
    extraction: str
    label: Label
    importance: int
    salience: int
    credibility: int
    activation: int
    access_count: int
    last_accessed_at: datetime | None
    repeat_count: int
    conversation: UUID | None = None
    session: UUID | None = None
    position: int | None = None
    speaker: str | None = None
    entities: tuple[str, ...] = ()
    is_shared: bool = False


class Read(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mem_read: one memory. `history` adds what it superseded and what superseded it."""

    id: UUID
    history: bool = False


class ReadResult(msgspec.Struct, frozen=True, kw_only=True):
    """The memory, and with `history` its chain, newest first."""

    memory: Memory
    history: tuple[Memory, ...] = ()


class Search(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """mem_search. `token_budget` counts ceil(characters / 4) a row; the first is always kept.

    `valid_only` false opens the lane of closed, disputed and retracted rows as well; `as_of` asks
    what held, and was known, and might be seen, at that moment. `sensitive` keeps the query out of
    the audit log.
    """

    query: str
    k: int = DEFAULT_K
    token_budget: int | None = None
    valid_only: bool = True
    as_of: datetime | None = None
    kinds: tuple[Kind, ...] = ()
    explain: bool = False
    sensitive: bool = False


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """What a score is made of; each was multiplied by its weight and they add up to the score.

    `text` is BM25 (of the row and, for a turn, of its conversation around it), `vector` the cosine,
    both scaled within this query; the rest are 0 to 1.
    """

    text: float
    vector: float
    recency: float
    activation: float
    importance: float
    graph: float
    bm25: float
    cosine: float | None
    weights: Mapping[str, float]


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One found memory with its score, and its parts where they were asked for."""

    memory: Memory
    score: float
    components: Components | None = None


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Hits, best first. `degraded` says what was missing, and is None where nothing was.

    `trimmed` counts the rows that the token budget left out.
    """

    hits: tuple[Hit, ...]
    driver: str
    degraded: str | None
    tokens: int
    trimmed: int = 0


class TurnIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message of a transcript."""

    speaker: str
    text: str
    at: datetime | None = None


class Write(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mem_write: a text or the messages of a transcript, never both.

    `content` is the typed content of the kind. `derived_from` names readable memories this one
    rests on: it is no more trusted and no less protected than any of them. `supersedes` replaces
    one current memory of the caller's own namespace. `refresh` replaces the current memory of the
    same `source` (a pointer, or a cached copy). `importance` is 0 to 1. `is_async` answers a
    ticket.
    """

    text: str | None = None
    messages: tuple[TurnIn, ...] | None = None
    conversation: str | None = None
    kind: Kind | None = None
    epistemic_kind: EpistemicKind | None = None
    content: dict[str, Any] | None = None
    event_time: datetime | None = None
    source: str = ""
    importance: float | None = None
    verbatim: bool = False
    derived_from: tuple[UUID, ...] = ()
    supersedes: UUID | None = None
    refresh: bool = False
    sensitive: bool = False
    is_async: bool = msgspec.field(default=False, name="async")


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that verification turned away, by its place in the request, and why."""

    index: int
    reason: str


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one message or fact, in order; `id` is None where it was rejected."""

    id: UUID | None
    outcome: Literal["stored", "rejected", "superseded", "deduplicated"]
    reason: str | None = None
    supersedes: UUID | None = None


class WriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each outcome, and each item in order. `superseded` items were stored as well."""

    stored: int
    rejected: tuple[Rejection, ...]
    superseded: int
    deduplicated: int
    items: tuple[Item, ...]
    conversation: UUID | None = None
    degraded: str | None = None


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """A write that was accepted to be done soon; `result` and `error` come with its end."""

    id: UUID
    state: Literal["waiting", "running", "done", "failed"]
    created_at: datetime
    finished_at: datetime | None = None
    result: WriteResult | None = None
    error: str = ""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over what the caller sees; the rest over audit rows of its places, for 24 hours.

    `fault_hit_rate` and `average_working_set` are None where there was no fault and no assembly.
    """

    by_kind: Mapping[str, int]
    by_tier: Mapping[str, int]
    by_status: Mapping[str, int]
    total: int
    fault_hit_rate: float | None
    average_working_set: float | None
    audit_rows: Mapping[str, int]
    embedding_model: str | None
    embedded: int


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that belongs into every working set of its namespace."""

    id: UUID
    namespace: str
    memory_id: UUID
    actor: str
    pinned_at: datetime


class Directive(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A guardrail that every agent of the namespace is to be shown and to acknowledge."""

    id: str
    text: str


class PolicyDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory policy as one namespace sets it; None and empty mean that it says nothing.

    Limits are calls a minute and key. Of limits the least counts, along the path; of
    `conflict_review` the strictest (`review` before `auto` before `off`); of `driver` and
    `retention_days` the nearest; directives add up, outermost first.
    """

    driver: str | None = None
    reads_per_minute: int | None = None
    writes_per_minute: int | None = None
    max_text_chars: int | None = None
    retention_days: int | None = None
    conflict_review: Literal["auto", "review", "off"] | None = None
    directives: tuple[Directive, ...] = ()


class EffectivePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds in a namespace; `digest` changes with the directives and is acknowledged."""

    namespace: str
    driver: str
    reads_per_minute: int
    writes_per_minute: int
    max_text_chars: int
    retention_days: int | None
    conflict_review: Literal["auto", "review", "off"]
    directives: tuple[Directive, ...]
    digest: str
    acknowledged: bool = False


class Share(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mem_share: let one namespace, or one actor, read one memory or a subtree of one's own.

    A grant to a namespace holds for who acts in exactly that one. It never lets anybody write.
    """

    memory: UUID | None = None
    subtree: str | None = None
    to_namespace: str | None = None
    to_actor: str | None = None
    expires_at: datetime | None = None


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A share as it is on record."""

    id: UUID
    namespace: str
    memory: UUID | None
    subtree: str | None
    to_namespace: str | None
    to_actor: str | None
    granted_by: str
    valid_from: datetime
    valid_to: datetime | None
    revoked_by: str | None


class Explain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mem_explain: why one sees a memory, or does not, now or at `as_of`.

    `view_namespace` and `view_actor` ask for somebody else's eyes; for auditors, admins and owners,
    within their subtree.
    """

    id: UUID
    view_namespace: str | None = None
    view_actor: str | None = None
    as_of: datetime | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, each rule that was looked at, and which grants opened the door.

    `namespaces` are those the viewer sees by place; `is_found_by_search` is false for what is
    closed, disputed or retracted, with the reason among `reasons`.
    """

    id: UUID
    viewer_namespace: str
    viewer_actor: str
    is_visible: bool
    is_found_by_search: bool
    reasons: tuple[str, ...]
    namespaces: tuple[str, ...]
    grants: tuple[Grant, ...] = ()


class Stayed(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that a restore could not bring back, and why."""

    id: UUID
    reason: str


class Retraction(msgspec.Struct, frozen=True, kw_only=True):
    """A source withdrawn with everything derived from it; undone, `restored_at` says when.

    `memories` are those the caller may see; `elsewhere` counts the rest. `stayed` are those that
    the restore left withdrawn.
    """

    id: UUID
    namespace: str
    root: UUID
    memories: tuple[UUID, ...]
    reason: str
    actor: str
    retracted_at: datetime
    restored_at: datetime | None = None
    restored_by: str | None = None
    elsewhere: int = 0
    stayed: tuple[Stayed, ...] = ()


class ConflictCase(msgspec.Struct, frozen=True, kw_only=True):
    """What the conflict check made of a newcomer and one neighbour, or people made of it since.

    The newcomer is what was told later. A text that the reader may not see is empty.
    """

    id: UUID
    namespace: str
    newcomer: UUID
    incumbent: UUID
    newcomer_text: str
    incumbent_text: str
    judge: str
    reason: str
    outcome: Literal[
        "newcomer_wins", "incumbent_wins", "newcomer_disputed", "for_review", "coexist"
    ]
    decided_by: str
    decided_at: datetime
    reverted_at: datetime | None = None
    reverted_by: str | None = None


class Entity(msgspec.Struct, frozen=True, kw_only=True):
    """Something that memories speak of, with every name it goes by."""

    id: UUID
    namespace: str
    name: str
    kind: str
    aliases: tuple[str, ...]
    merged_into: UUID | None
    memories: int
    created_at: datetime


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A point of the graph: a memory or an entity. `weight` is how many edges it has."""

    id: UUID
    kind: Literal["memory", "entity"]
    label: str
    namespace: str
    detail: str
    weight: int


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the graph: who mentions, supersedes, derives from or relates to whom."""

    source: UUID
    target: UUID
    kind: str
    confidence: int


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A capped part of what the caller may see; `is_capped` where there was more."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    is_capped: bool


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """All that one identity may read, enumerated: the only thing a query is ever fenced by.

    `namespaces` are its own, the ancestors, and those below shared subtrees; `own` are the first
    two. `memories` are single shared rows in other namespaces. `writable` is the one namespace it
    writes to.
    """

    writable: str
    own: tuple[str, ...]
    namespaces: tuple[str, ...]
    memories: tuple[UUID, ...] = ()

    def sees(self, namespace: str, memory: UUID) -> bool:
        """Whether the row may be read; the same rule that the SQL spells `= ANY`."""
        return namespace in self.namespaces or memory in self.memories


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A list of memories for people, newest first; `before` asks for the next page."""

    memories: Sequence[Memory]
    before: UUID | None

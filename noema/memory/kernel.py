"""The memory kernel: the one door to knowledge, for minds and for every other agent.

    who ─▶ prologue ─▶ reading · search · write · policy · pins · shares · explain · stats
                  └──▶ lineage · conflicts · entities · graph

Identity comes in, resolved from a credential; no request names a namespace, an actor or a role. The
kernel says which syscall runs what; how, is each module's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

from noema.core.errors import Denied, InvalidInput
from noema.core.identity import Identity, check_namespace
from noema.llm.model import Embedder
from noema.memory.explain import Explainer
from noema.memory.frame import Frame
from noema.memory.management import Management, Tools
from noema.memory.model import (
    MAX_K,
    EffectivePolicy,
    Explain,
    Explanation,
    Grant,
    Kind,
    Memory,
    Page,
    Pin,
    PolicyDocument,
    Read,
    ReadResult,
    Retraction,
    Scope,
    Search,
    SearchResult,
    Share,
    Stats,
    Status,
    Ticket,
    Write,
    WriteResult,
)
from noema.memory.pins import Pins
from noema.memory.policy import Policies
from noema.memory.prologue import Prologue
from noema.memory.reading import Reader
from noema.memory.rights import may_look_through
from noema.memory.scope import Scopes, aware, check_actor
from noema.memory.shares import Shares
from noema.memory.stats import Figures
from noema.memory.telemetry import Telemetry
from noema.memory.timings import Timings

_QUERY_CHARS: Final = 10_000
_MOST_TOKENS: Final = 10_000_000
_LISTED: Final = 500


class Searches(Protocol):
    """Ranked retrieval inside one scope; see `noema.memory.retrieve.Retriever`."""

    async def search(
        self,
        scope: Scope,
        request: Search,
        *,
        now: datetime,
        embedder: Embedder | None,
        driver: str,
    ) -> SearchResult: ...


class Writes(Protocol):
    """The write path; see `noema.memory.write.WritePath`."""

    async def write(
        self, frame: Frame, request: Write, *, key: str | None = None
    ) -> WriteResult: ...


class Accepts(Protocol):
    """Writes that are done soon; see `noema.memory.tickets.Tickets`."""

    async def accept(self, frame: Frame, request: Write, *, key: str | None = None) -> Ticket: ...

    async def get(self, frame: Frame, id_: UUID) -> Ticket: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the kernel calls; `noema.memory.service.make_memory` puts it together."""

    prologue: Prologue
    scopes: Scopes
    reader: Reader
    retriever: Searches
    writes: Writes
    tickets: Accepts
    policies: Policies
    pins: Pins
    shares: Shares
    explainer: Explainer
    figures: Figures
    telemetry: Telemetry
    timings: Timings
    tools: Tools
    embedder: Embedder | None


class Kernel(Management):
    """The syscalls. Each raises Denied, RateLimited, NotFound, InvalidInput and Unavailable.

    What is hidden and what is missing are the same NotFound.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.prologue, parts.tools)
        self._parts = parts
        self.timings = parts.timings

    async def refused(self, who: Identity, op: str, error: Exception) -> None:
        """Keep that the transport turned a request for this syscall away."""
        await self._parts.prologue.refused(who, op, error)

    # --- reading ---

    async def mem_read(self, who: Identity, request: Read) -> ReadResult:
        """Return one memory, with its chain of supersedence where that is asked for."""

        async def body(frame: Frame) -> ReadResult:
            found = await self._parts.reader.read(frame, request)
            self._parts.telemetry.accessed([found.memory.id], frame.now)
            return found

        return await self._run(who, "mem.read", body, target=f"memory:{request.id}")

    async def mem_search(
        self, who: Identity, request: Search, *, view: tuple[str, str] | None = None
    ) -> SearchResult:
        """Return what answers the query best of what the caller may read.

        `view` is a namespace and an actor to search as, for auditors, admins and owners in their
        own subtree. With `as_of` a grant counts that was valid then, and still is; through other
        eyes, one that was valid then.
        """
        parts = self._parts

        async def body(frame: Frame) -> SearchResult:
            _check_search(request)
            scope = frame.scope
            if view is not None:
                scope = await self._through(who, view, request.as_of)
            elif request.as_of is not None:
                scope = await parts.scopes.of(who, request.as_of)
            found = await parts.retriever.search(
                scope,
                request,
                now=frame.now,
                embedder=parts.embedder,
                driver=frame.policy.driver,
            )
            frame.detail = _found(found, view)
            if view is None:
                parts.telemetry.accessed([h.memory.id for h in found.hits], frame.now)
            return found

        purpose = "" if request.sensitive else request.query
        return await self._run(who, "mem.search", body, purpose=purpose)

    async def _through(self, who: Identity, view: tuple[str, str], as_of: datetime | None) -> Scope:
        namespace, actor = view
        check_namespace(namespace)
        check_actor(actor, "viewActor")
        if not may_look_through(who, namespace):
            raise Denied(
                "Only auditors, admins and owners look through other eyes, in their own subtree."
            )
        return await self._parts.scopes.through(who, namespace, actor, as_of)

    async def browse(
        self,
        who: Identity,
        *,
        kinds: Sequence[Kind] = (),
        status: Status | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> Page:
        """Return a page of what the caller may read, newest first, closed rows too."""

        async def body(frame: Frame) -> Page:
            return await self._parts.reader.browse(
                frame, kinds=tuple(kinds), status=status, before=before, limit=limit
            )

        return await self._run(who, "mem.browse", body)

    async def several(self, who: Identity, ids: Sequence[UUID]) -> tuple[Memory, ...]:
        """Return those of the memories that the caller may read."""

        async def body(frame: Frame) -> tuple[Memory, ...]:
            return await self._parts.reader.several(frame, ids)

        return await self._run(who, "mem.browse", body)

    async def around(self, who: Identity, id_: UUID, *, reach: int = 10) -> tuple[Memory, ...]:
        """Return the turns around one of a conversation, as far as the caller may read them."""

        async def body(frame: Frame) -> tuple[Memory, ...]:
            return await self._parts.reader.around(frame, id_, reach=reach)

        return await self._run(who, "mem.browse", body, target=f"memory:{id_}")

    async def retraction_of(self, who: Identity, id_: UUID) -> Retraction | None:
        """Return what holds a memory down now, None where nothing does."""

        async def body(frame: Frame) -> Retraction | None:
            return await self._parts.reader.retraction_of(frame, id_)

        return await self._run(who, "mem.browse", body, target=f"memory:{id_}")

    async def mem_stats(self, who: Identity) -> Stats:
        """Return counts over what the caller may read, and figures of the last day."""
        return await self._run(who, "mem.stats", self._parts.figures.of)

    async def mem_explain(self, who: Identity, request: Explain) -> Explanation:
        """Return why somebody sees a memory, or does not."""

        async def body(frame: Frame) -> Explanation:
            return await self._parts.explainer.explain(frame, request)

        return await self._run(who, "mem.explain", body, target=f"memory:{request.id}")

    # --- writing ---

    async def mem_write(
        self, who: Identity, request: Write, *, key: str | None = None
    ) -> WriteResult | Ticket:
        """Write a text or a transcript; with `async` return a ticket for it.

        With an idempotency key a repeated call returns what the first one did.
        """
        parts = self._parts

        async def body(frame: Frame) -> WriteResult | Ticket:
            if request.is_async:
                return await parts.tickets.accept(frame, request, key=key)
            return await parts.writes.write(frame, request, key=key)

        return await self._run(who, "mem.write", body)

    async def ticket(self, who: Identity, id_: UUID) -> Ticket:
        """Return how far a write of the caller's own namespace has come."""

        async def body(frame: Frame) -> Ticket:
            return await self._parts.tickets.get(frame, id_)

        return await self._run(who, "mem.ticket", body, target=f"ticket:{id_}")

    # --- pins, policy, shares ---

    async def mem_pin(self, who: Identity, memory: UUID) -> Pin:
        """Pin a readable memory into every working set of the caller's namespace."""

        async def body(frame: Frame) -> Pin:
            return await self._parts.pins.pin(frame, memory)

        return await self._run(who, "mem.pin", body, target=f"memory:{memory}")

    async def mem_unpin(self, who: Identity, memory: UUID) -> None:
        """End a pin of the caller's namespace."""

        async def body(frame: Frame) -> None:
            await self._parts.pins.unpin(frame, memory)

        await self._run(who, "mem.unpin", body, target=f"memory:{memory}")

    async def pins(self, who: Identity) -> tuple[Pin, ...]:
        """Return the pins of the caller's namespace and those above it."""
        return await self._run(who, "mem.pins", self._parts.pins.shown)

    async def mem_policy(self, who: Identity) -> EffectivePolicy:
        """Return the policy that holds where the caller acts."""
        return await self._run(who, "mem.policy", self._parts.policies.shown)

    async def mem_policy_ack(self, who: Identity, digest: str) -> EffectivePolicy:
        """Keep that the caller has read the directives of this digest."""

        async def body(frame: Frame) -> EffectivePolicy:
            return await self._parts.policies.acknowledge(frame, digest)

        return await self._run(who, "mem.policy-ack", body)

    async def policy_of(self, who: Identity, namespace: str) -> tuple[int, PolicyDocument]:
        """Return version and document that a namespace itself sets; 0 and nothing where none."""

        async def body(frame: Frame) -> tuple[int, PolicyDocument]:
            return await self._parts.policies.of(frame, namespace)

        return await self._run(who, "mem.policy-show", body, target=f"namespace:{namespace}")

    async def set_policy(
        self, who: Identity, namespace: str, document: PolicyDocument
    ) -> EffectivePolicy:
        """Set a namespace's policy; return what holds in it then."""

        async def body(frame: Frame) -> EffectivePolicy:
            return await self._parts.policies.set(frame, namespace, document)

        return await self._run(who, "mem.policy-set", body, target=f"namespace:{namespace}")

    async def mem_share(self, who: Identity, request: Share, *, key: str | None = None) -> Grant:
        """Let somebody read a memory or a subtree; a repeated idempotency key gives one grant."""

        async def body(frame: Frame) -> Grant:
            return await self._parts.shares.share(frame, request, key=key)

        return await self._run(who, "mem.share", body)

    async def unshare(self, who: Identity, id_: UUID) -> Grant:
        """End a grant."""

        async def body(frame: Frame) -> Grant:
            return await self._parts.shares.unshare(frame, id_)

        return await self._run(who, "mem.unshare", body, target=f"grant:{id_}")

    async def shares(self, who: Identity, *, ended: bool = False) -> tuple[Grant, ...]:
        """Return the grants by and to the caller, with `ended` the past ones as well."""

        async def body(frame: Frame) -> tuple[Grant, ...]:
            return await self._parts.shares.shown(frame, ended=ended)

        return await self._run(who, "mem.shares", body)


def _check_search(request: Search) -> None:
    aware(request.as_of, "asOf")
    if not request.query.strip():
        raise InvalidInput("The query is empty; say what to look for.", field="query")
    if len(request.query) > _QUERY_CHARS:
        raise InvalidInput(f"A query has at most {_QUERY_CHARS:,} characters.", field="query")
    if not 1 <= request.k <= MAX_K:
        raise InvalidInput(f"k is a whole number from 1 to {MAX_K}.", field="k")
    budget = request.token_budget
    if budget is not None and not 1 <= budget <= _MOST_TOKENS:
        raise InvalidInput(
            f"tokenBudget is a whole number from 1 to {_MOST_TOKENS:,}.", field="tokenBudget"
        )


def _found(found: SearchResult, view: tuple[str, str] | None) -> str:
    detail = f"returned={len(found.hits)} tokens={found.tokens} driver={found.driver}"
    if found.trimmed:
        detail += f" trimmed={found.trimmed}"
    if found.degraded:
        detail += f" degraded={found.degraded}"
    return detail if view is None else f"{detail} view={view[0]} {view[1]}"

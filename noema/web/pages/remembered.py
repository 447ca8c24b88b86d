"""Memories, grants and conflicts as the lines that pages show."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from noema.auth.roles import MemoryRight, console_allows, memory_allows
from noema.core.identity import ConsoleRole, Identity
from noema.memory import rights
from noema.memory.model import Components, ConflictCase, Grant, Label, Memory, Status
from noema.web import memory_views as views
from noema.web.pages.shown import clipped

LONGEST: Final = 480
OPEN: Final = "for_review"
OUTCOMES: Final[Mapping[str, str]] = {
    "newcomer_wins": "the newcomer holds, the first is closed",
    "incumbent_wins": "the first holds, the newcomer is closed",
    "newcomer_disputed": "the first holds, the newcomer is disputed",
    "for_review": "waits for a decision",
    "coexist": "both hold",
}
_PARTS: Final = (
    ("text", "text"),
    ("vector", "meaning"),
    ("recency", "recency"),
    ("activation", "activation"),
    ("importance", "importance"),
    ("graph", "graph"),
)


def memory_path(id_: UUID | str, rest: str = "") -> str:
    """Return the address of a memory's page, or of an act on it."""
    return f"/memories/{id_}{rest}"


def address(path: str, asked: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Return the path with a query that leaves out what is empty."""
    pairs = asked.items() if isinstance(asked, Mapping) else asked
    kept = [(k, v) for k, v in pairs if v]
    return f"{path}?{urlencode(kept)}" if kept else path


# -- who may ---------------------------------------------------------------------------------


def may_write(who: Identity) -> bool:
    """Whether the forms that write are shown; the kernel decides again."""
    is_operator = console_allows(who.console, ConsoleRole.OPERATOR)
    return is_operator and memory_allows(who.role, MemoryRight.WRITE)


def may_manage(who: Identity, namespace: str) -> bool:
    """Whether the forms that manage memory of the namespace are shown."""
    return console_allows(who.console, ConsoleRole.OPERATOR) and rights.may_manage(who, namespace)


def may_view_as(who: Identity) -> bool:
    """Whether they may look with somebody else's eyes."""
    return rights.may_look_through(who, who.namespace)


# -- memories --------------------------------------------------------------------------------


def state_of(memory: Memory) -> views.State:
    """Return what a reader wants to know first of the memory."""
    if memory.status is Status.RETRACTED:
        return "retracted"
    if memory.valid_to is not None:
        return "closed"
    return "disputed" if memory.status is Status.DISPUTED else "current"


def labels_of(label: Label) -> views.Labels:
    """Return what classification found."""
    return views.Labels(
        sensitivity=label.sensitivity.value,
        pii=label.pii,
        secrets=label.secrets,
        destinations=label.destinations,
        classifier=label.classifier,
        failed=label.classifier.startswith("error"),
    )


def line(
    memory: Memory, *, score: float | None = None, components: Components | None = None
) -> views.MemoryLine:
    """Return the memory as a line of a list."""
    return views.MemoryLine(
        id=str(memory.id),
        text=clipped(memory.text, LONGEST),
        kind=memory.kind.value,
        namespace=memory.namespace,
        state=state_of(memory),
        valid_from=memory.valid_from,
        valid_to=memory.valid_to,
        told_at=memory.assertion_time,
        source=memory.source,
        route=memory.route.value,
        trust=memory.trust,
        speaker=memory.speaker,
        labels=labels_of(memory.label),
        is_shared=memory.is_shared,
        score=score,
        parts=() if components is None else parts_of(components),
    )


def parts_of(components: Components) -> tuple[views.ScorePart, ...]:
    """Return what the score is made of, in the order of the legend."""
    parts = []
    for name, label in _PARTS:
        value, weight = float(getattr(components, name)), components.weights.get(name, 0.0)
        parts.append(
            views.ScorePart(
                name=name, label=label, value=value, weight=weight, amount=value * weight
            )
        )
    return tuple(parts)


def versions_of(memory: Memory, history: Iterable[Memory]) -> tuple[views.Version, ...]:
    """Return the chain of the memory, newest first; a memory without a chain is its only row."""
    chain = list(history) or [memory]
    return tuple(
        views.Version(
            number=len(chain) - i,
            id=str(m.id),
            text=clipped(m.text, LONGEST),
            state=state_of(m),
            valid_from=m.valid_from,
            valid_to=m.valid_to,
            told_at=m.assertion_time,
            event_time=m.event_time,
            actor=m.actor,
            is_this=m.id == memory.id,
        )
        for i, m in enumerate(chain)
    )


# -- grants ----------------------------------------------------------------------------------


def grant_line(grant: Grant, who: Identity, now: datetime) -> views.GrantLine:
    """Return one share as a line."""
    is_on = grant.valid_to is None or grant.valid_to > now
    is_memory = grant.memory is not None
    return views.GrantLine(
        id=str(grant.id),
        what=f"memory {str(grant.memory)[-8:]}" if is_memory else f"{grant.subtree} and below",
        memory_href=memory_path(grant.memory) if grant.memory is not None else None,
        to=grant.to_namespace or grant.to_actor or "",
        to_kind="namespace" if grant.to_namespace is not None else "actor",
        namespace=grant.namespace,
        granted_by=grant.granted_by,
        valid_from=grant.valid_from,
        valid_to=grant.valid_to,
        revoked_by=grant.revoked_by,
        state="on" if is_on else "ended",
        may_end=is_on and may_end(grant, who),
    )


def may_end(grant: Grant, who: Identity) -> bool:
    """Whether the button that ends the share is shown: to who gave it, and to who manages."""
    gave = grant.granted_by == who.actor and grant.namespace == who.namespace
    return (gave and may_write(who)) or may_manage(who, grant.namespace)


# -- conflicts -------------------------------------------------------------------------------


def is_open(case: ConflictCase) -> bool:
    """Whether the case waits for somebody to decide."""
    return case.outcome == OPEN and case.reverted_at is None


def conflict_link(case: ConflictCase, memory: Memory) -> views.ConflictLink:
    """Return the case from the side of one of its two memories."""
    is_newcomer = case.newcomer == memory.id
    return views.ConflictLink(
        id=str(case.id),
        other_href=memory_path(case.incumbent if is_newcomer else case.newcomer),
        other_text=clipped(case.incumbent_text if is_newcomer else case.newcomer_text),
        outcome="undone" if case.reverted_at is not None else OUTCOMES[case.outcome],
        is_newcomer=is_newcomer,
        is_open=is_open(case),
        at=case.decided_at,
    )

"""By which way a memory came in: found from the credential and the transport, never told."""

from typing import Final

from noema.core.identity import Identity, MemoryRole
from noema.memory.model import TRUST_OF, EpistemicKind, Kind, Route, Trust, Write

_PEOPLE: Final = frozenset({MemoryRole.MEMBER, MemoryRole.ADMIN, MemoryRole.OWNER})
# What speaks over these is a script somebody wrote; whatever else there is, is an agent's mouth.
_SCRIPTED: Final = frozenset({"http", "cli"})
_PERSON: Final = "user:"

_HELD_AS: Final = {
    Kind.FACT: EpistemicKind.FACT,
    Kind.PREFERENCE: EpistemicKind.OPINION,
    Kind.EPISODE: EpistemicKind.OBSERVATION,
    Kind.ENTITY: EpistemicKind.FACT,
    Kind.POINTER: EpistemicKind.OBSERVATION,
    Kind.SEMANTIC: EpistemicKind.BELIEF,
    Kind.PROCEDURAL: EpistemicKind.BELIEF,
    Kind.AUTOBIOGRAPHICAL: EpistemicKind.MEMORY,
}


def route_of(who: Identity, request: Write) -> Route:
    """Return the route of everything this request writes.

    Words that were said are a conversation, whoever hands them in. An agent's word is one too; a
    mind that distils memories into another one consolidates, unless it calls that a claim. A person
    at the console writes by hand, a script of theirs brings documents, or what it fetched where it
    refreshes.
    """
    if request.messages is not None:
        return Route.CONVERSATION
    if who.agent_id == "mind":
        is_claim = request.epistemic_kind is EpistemicKind.CLAIM
        is_distilled = bool(request.derived_from) and not is_claim
        return Route.CONSOLIDATION if is_distilled else Route.CONVERSATION
    if who.role not in _PEOPLE:
        return Route.CONVERSATION
    is_console = who.agent_id == "console"
    if is_console and who.actor.startswith(_PERSON):
        return Route.MANUAL
    # A browser that a token let in is no more than the token.
    if who.agent_id not in _SCRIPTED and not is_console:
        return Route.CONVERSATION
    return Route.LIVE_FETCH if request.refresh else Route.DOCUMENT


def trust_of(route: Route, *sources: int) -> int:
    """Return the rank of the route, or of the weakest source where that is less."""
    return min(int(TRUST_OF[route]), *sources) if sources else int(TRUST_OF[route])


def epistemic_kind_of(kind: Kind, route: Route) -> EpistemicKind:
    """Return how a memory is held where the writer does not say.

    What was merely said is a claim, until somebody vouches for it.
    """
    held = _HELD_AS[kind]
    if held is EpistemicKind.FACT and TRUST_OF[route] <= Trust.CONVERSATION:
        return EpistemicKind.CLAIM
    return held

"""Who acts: resolved from a credential on the server, never from a request body."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from noema.core.errors import InvalidInput

_SEGMENT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
MAX_DEPTH = 8
NOWHERE: Final = ""
"""The namespace of somebody without a membership: nothing lives there, so nothing is visible."""


class ConsoleRole(StrEnum):
    """Which pages and management calls a person may use, least first."""

    NONE = "none"
    OBSERVER = "observer"
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"


class MemoryRole(StrEnum):
    """What an identity may do inside a namespace; `none` comes with `NOWHERE`."""

    NONE = "none"
    AGENT = "agent"
    MEMBER = "member"
    AUDITOR = "auditor"
    ADMIN = "admin"
    OWNER = "owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One resolved principal: a person, a script or a mind.

    `actor` is `user:<name>`, `mind:<slug>`, `token:<user>/<name>` for a personal token, and
    `token:<name>` for one that was made on the daemon's own machine; `agent_id` names the transport
    (`http`, `mcp`, `cli`, `mind` or `console`).
    """

    namespace: str
    actor: str
    role: MemoryRole
    console: ConsoleRole
    agent_id: str


LOCAL: Final = Identity(
    namespace=NOWHERE,
    actor="local",
    role=MemoryRole.NONE,
    console=ConsoleRole.ADMINISTRATOR,
    agent_id="cli",
)
"""Whoever may open the database on the daemon's own machine. It manages, and sees no content."""


class InNamespace(Protocol):
    """What stands in a namespace: an identity, or a membership that is valid now."""

    @property
    def namespace(self) -> str: ...


def can_read_namespace(who: InNamespace | Iterable[InNamespace], namespace: str) -> bool:
    """Whether an identity, or any of these memberships, sees what lives in the namespace.

    One sees one's own namespace and that path's ancestors, nothing else: not siblings, not what is
    below, and not what merely begins with the same letters.
    """
    return namespace in readable_namespaces(who)


def readable_namespaces(who: InNamespace | Iterable[InNamespace]) -> frozenset[str]:
    """Return every namespace that `can_read_namespace` allows, for `namespace = ANY($1)` in SQL."""
    places = who if isinstance(who, Iterable) else (who,)
    return frozenset(
        path
        for place in places
        if place.namespace != NOWHERE
        for path in namespace_ancestors(place.namespace)
    )


def namespace_ancestors(namespace: str) -> tuple[str, ...]:
    """Return the namespace's ancestors and itself, outermost first: `a/b` gives `a`, `a/b`."""
    parts = namespace.split("/")
    return tuple("/".join(parts[: n + 1]) for n in range(len(parts)))


def check_namespace(namespace: str) -> str:
    """Return the namespace unchanged, or raise InvalidInput that says which segment is wrong."""
    parts = namespace.split("/")
    if len(parts) > MAX_DEPTH:
        raise InvalidInput(f"A namespace has at most {MAX_DEPTH} segments.", field="namespace")
    for part in parts:
        if not _SEGMENT.match(part):
            raise InvalidInput(
                f"Namespace segment {part!r} is not usable: use 1 to 63 of a-z, 0-9, dot, dash "
                "and underscore, starting with a letter or digit.",
                field="namespace",
            )
    return namespace

"""Who acts: resolved from a credential on the server, never from a request body."""

import re
from dataclasses import dataclass
from enum import StrEnum

from noema.core.errors import InvalidInput

_SEGMENT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
MAX_DEPTH = 8


class ConsoleRole(StrEnum):
    """Which pages and management calls a person may use, least first."""

    NONE = "none"
    OBSERVER = "observer"
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"


class MemoryRole(StrEnum):
    """What an identity may do inside a namespace."""

    AGENT = "agent"
    MEMBER = "member"
    AUDITOR = "auditor"
    ADMIN = "admin"
    OWNER = "owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One resolved principal: a person, a script or a mind.

    `actor` is `user:<name>`, `token:<name>` or `mind:<slug>`; `agent_id` names the transport
    (`http`, `mcp`, `cli`, `mind` or `console`).
    """

    namespace: str
    actor: str
    role: MemoryRole
    console: ConsoleRole
    agent_id: str


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

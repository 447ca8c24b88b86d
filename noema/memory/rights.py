"""The one table of who may call what: each syscall, the roles that may, and whether it writes.

Agents and members have the syscalls; auditors read and look through other eyes; admins and owners
have everything, and manage inside their own subtree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from noema.core.errors import Denied
from noema.core.identity import NOWHERE, Identity, MemoryRole
from noema.memory.scope import in_subtree

_MANAGERS: Final = frozenset({MemoryRole.ADMIN, MemoryRole.OWNER})
_WRITERS: Final = _MANAGERS | {MemoryRole.AGENT, MemoryRole.MEMBER}
_READERS: Final = _WRITERS | {MemoryRole.AUDITOR}
_WATCHERS: Final = _MANAGERS | {MemoryRole.AUDITOR}


@dataclass(frozen=True, slots=True, kw_only=True)
class Syscall:
    """One line of the table. What `writes` is counted against the limit of writes."""

    roles: frozenset[MemoryRole]
    writes: bool = False


SYSCALLS: Final[Mapping[str, Syscall]] = {
    "mem.read": Syscall(roles=_READERS),
    "mem.search": Syscall(roles=_READERS),
    "mem.browse": Syscall(roles=_READERS),
    "mem.write": Syscall(roles=_WRITERS, writes=True),
    "mem.ticket": Syscall(roles=_WRITERS),
    "mem.stats": Syscall(roles=_READERS),
    "mem.pin": Syscall(roles=_WRITERS, writes=True),
    "mem.unpin": Syscall(roles=_WRITERS, writes=True),
    "mem.pins": Syscall(roles=_READERS),
    "mem.policy": Syscall(roles=_READERS),
    "mem.policy-ack": Syscall(roles=_WRITERS, writes=True),
    "mem.policy-show": Syscall(roles=_READERS),
    "mem.policy-set": Syscall(roles=_MANAGERS, writes=True),
    "mem.share": Syscall(roles=_WRITERS, writes=True),
    "mem.unshare": Syscall(roles=_WRITERS, writes=True),
    "mem.shares": Syscall(roles=_READERS),
    "mem.explain": Syscall(roles=_READERS),
    "mem.retract": Syscall(roles=_WRITERS, writes=True),
    "mem.restore": Syscall(roles=_WRITERS, writes=True),
    "mem.conflicts": Syscall(roles=_READERS),
    "mem.conflict-resolve": Syscall(roles=_MANAGERS, writes=True),
    "mem.conflict-revert": Syscall(roles=_MANAGERS, writes=True),
    "mem.entities": Syscall(roles=_READERS),
    "mem.entity-suggestions": Syscall(roles=_READERS),
    "mem.entity-merges": Syscall(roles=_READERS),
    "mem.entity-alias": Syscall(roles=_WRITERS, writes=True),
    "mem.entity-refuse": Syscall(roles=_MANAGERS, writes=True),
    "mem.entity-merge": Syscall(roles=_MANAGERS, writes=True),
    "mem.entity-unmerge": Syscall(roles=_MANAGERS, writes=True),
    "mem.relate": Syscall(roles=_WRITERS, writes=True),
    "mem.unrelate": Syscall(roles=_WRITERS, writes=True),
    "mem.graph": Syscall(roles=_READERS),
}


def require(who: Identity, op: str) -> Syscall:
    """Return the line of the syscall, or raise Denied where the identity's role is not in it."""
    line = SYSCALLS[op]
    if who.namespace == NOWHERE or who.role is MemoryRole.NONE:
        raise Denied("This needs a membership, and you act in no namespace.")
    if who.role not in line.roles:
        needed = ", ".join(role for role in MemoryRole if role in line.roles)
        raise Denied(f"{op} is for the roles {needed}; you are {who.role} in {who.namespace}.")
    return line


def may_manage(who: Identity, namespace: str) -> bool:
    """Whether the identity manages what lives in the namespace: its own, or one below it."""
    return who.role in _MANAGERS and in_subtree(namespace, who.namespace)


def require_management(who: Identity, namespace: str) -> None:
    """Raise Denied unless the identity manages what lives in the namespace."""
    if not may_manage(who, namespace):
        raise Denied(
            f"You manage {who.namespace} and what is below it, and {namespace} is not."
            if who.role in _MANAGERS
            else f"This needs the role admin or owner in {namespace} or above it."
        )


def may_look_through(who: Identity, namespace: str) -> bool:
    """Whether the identity may see what somebody in the namespace sees."""
    return who.role in _WATCHERS and in_subtree(namespace, who.namespace)

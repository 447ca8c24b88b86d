"""The one place that decides what a role may do, and which role another may lend."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from noema.core.errors import Denied
from noema.core.identity import ConsoleRole, Identity, MemoryRole

_CONSOLE: Final = tuple(ConsoleRole)


class MemoryRight(StrEnum):
    """What may be done with memory in a namespace."""

    READ = "read"
    WRITE = "write"
    AUDIT = "audit"
    MANAGE = "manage"


_RIGHTS: Final[Mapping[MemoryRole, frozenset[MemoryRight]]] = {
    MemoryRole.NONE: frozenset(),
    MemoryRole.AGENT: frozenset({MemoryRight.READ, MemoryRight.WRITE}),
    MemoryRole.MEMBER: frozenset({MemoryRight.READ, MemoryRight.WRITE}),
    MemoryRole.AUDITOR: frozenset({MemoryRight.READ, MemoryRight.AUDIT}),
    MemoryRole.ADMIN: frozenset(MemoryRight),
    MemoryRole.OWNER: frozenset(MemoryRight),
}

# The roles no greater than each, greatest first. An auditor and a member are not comparable.
_WITHIN: Final[Mapping[MemoryRole, tuple[MemoryRole, ...]]] = {
    MemoryRole.NONE: (MemoryRole.NONE,),
    MemoryRole.AGENT: (MemoryRole.AGENT, MemoryRole.NONE),
    MemoryRole.MEMBER: (MemoryRole.MEMBER, MemoryRole.AGENT, MemoryRole.NONE),
    MemoryRole.AUDITOR: (MemoryRole.AUDITOR, MemoryRole.NONE),
    MemoryRole.ADMIN: (
        MemoryRole.ADMIN, MemoryRole.AUDITOR, MemoryRole.MEMBER, MemoryRole.AGENT, MemoryRole.NONE,
    ),
    MemoryRole.OWNER: (
        MemoryRole.OWNER, MemoryRole.ADMIN, MemoryRole.AUDITOR, MemoryRole.MEMBER, MemoryRole.AGENT,
        MemoryRole.NONE,
    ),
}  # fmt: skip


def console_allows(have: ConsoleRole, least: ConsoleRole) -> bool:
    """Whether a console role is at least the other."""
    return _CONSOLE.index(have) >= _CONSOLE.index(least)


def require_console(who: Identity, least: ConsoleRole) -> None:
    """Raise Denied unless the identity has at least the console role."""
    if not console_allows(who.console, least):
        raise Denied(f"This needs the role {least.value}; you have {who.console.value}.")


def memory_allows(role: MemoryRole, right: MemoryRight) -> bool:
    """Whether a memory role may do that in its namespace."""
    return right in _RIGHTS[role]


def lesser_console(one: ConsoleRole, other: ConsoleRole) -> ConsoleRole:
    """Return the lesser of two console roles."""
    return min(one, other, key=_CONSOLE.index)


def lesser_memory(wanted: MemoryRole, present: MemoryRole) -> MemoryRole:
    """Return the greatest role that is no more than either, `none` where nothing is."""
    return next(role for role in _WITHIN[wanted] if role in _WITHIN[present])


def may_lend(present: MemoryRole, wanted: MemoryRole) -> bool:
    """Whether somebody with the first role may give out the second."""
    return wanted in _WITHIN[present]

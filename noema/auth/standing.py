"""From rows to an identity: what a session or a token stands for at this moment.

A person acts in the session's namespace with the role of the membership there; without a valid one
they keep their console role, are nowhere, and see no content. A token without the membership of its
creator behind it, or in a suspended tenant, is nothing at all.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from noema.auth.model import Membership
from noema.auth.roles import lesser_console, lesser_memory
from noema.core.identity import NOWHERE, ConsoleRole, Identity, MemoryRole


def memberships_of(row: Mapping[str, Any]) -> tuple[Membership, ...]:
    """Return the memberships that a row carries as JSON."""
    return msgspec.convert(row["memberships"], tuple[Membership, ...])


def of_person(row: Mapping[str, Any], *, agent_id: str) -> Identity:
    """Return the identity of a person, in the namespace their session acts in."""
    held = next((m for m in memberships_of(row) if m.namespace == row["active"]), None)
    return Identity(
        namespace=NOWHERE if held is None else held.namespace,
        actor=f"user:{row['user_name']}",
        role=MemoryRole.NONE if held is None else held.role,
        console=ConsoleRole(row["user_console"]),
        agent_id=agent_id,
    )


def of_token(row: Mapping[str, Any], *, agent_id: str) -> Identity | None:
    """Return the identity of a token, no more than its creator's now; None where nothing is left.

    A token that was made on the daemon's own machine has no creator and keeps the roles it has.
    """
    if not row["is_tenant_active"]:
        return None
    console, memory = ConsoleRole(row["token_console"]), MemoryRole(row["token_memory"])
    actor = f"token:{row['token_name']}"
    if row["user_id"] is not None:
        here = [m for m in memberships_of(row) if m.namespace == row["token_namespace"]]
        present = here[0].role if here else MemoryRole.NONE
        memory = lesser_memory(memory, present)
        console = lesser_console(console, ConsoleRole(row["user_console"]))
        actor = f"token:{row['user_name']}/{row['token_name']}"
    if memory is MemoryRole.NONE:
        return None
    return Identity(
        namespace=row["token_namespace"],
        actor=actor,
        role=memory,
        console=console,
        agent_id=agent_id,
    )

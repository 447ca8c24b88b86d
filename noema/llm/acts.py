"""Who may change what is configured here."""

from noema.core.errors import Denied
from noema.core.identity import ConsoleRole, Identity


def is_administrator(who: Identity) -> bool:
    """Whether the identity administers the console."""
    return who.console is ConsoleRole.ADMINISTRATOR


def require_administrator(who: Identity) -> None:
    """Raise Denied unless the identity administers the console."""
    if not is_administrator(who):
        raise Denied(
            f"This needs the role {ConsoleRole.ADMINISTRATOR}; you have {who.console.value}."
        )

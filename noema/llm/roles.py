"""Who asks which role.

A role that nobody asks may be set already, and whoever sets it is told that nothing comes of it.
"""

from collections.abc import Mapping
from typing import Final

from noema.llm.model import Role

ASKED_BY: Final[Mapping[Role, str]] = {
    Role.DIALOGUE: "a mind, for a message to it",
    Role.REFLECT: "a mind, about its latest thoughts",
    Role.PLAN: "a mind, for a goal of its own",
    Role.EXTRACT: "memory, for a text that is written to it",
    Role.VERIFY: "memory, for the statements that were extracted",
    Role.JUDGE: "memory, where form leaves open whether two statements agree",
    Role.EMBED: "memory, for the vectors of what it keeps and is asked",
}
"""Of each role that is asked, by whom and for what."""


def asked_by(role: Role) -> str:
    """Return by whom the role is asked, empty where nothing asks it yet."""
    return ASKED_BY.get(role, "")

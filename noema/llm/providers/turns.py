"""A conversation in turns that alternate, the user's first, and what the system says apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from noema.llm.model import ChatMessage

# What the user's first turn says where there is none.
OPENING: Final = "Begin."
_BETWEEN: Final = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one side said, all of it until the other side's turn."""

    role: Literal["user", "assistant"]
    text: str


def turns(messages: Sequence[ChatMessage]) -> tuple[str, tuple[Turn, ...]]:
    """Return what the system says, empty where it says nothing, and the turns.

    Messages of the same role in a row become one, with an empty line between; so do all of the
    system's, wherever they stand. Blank messages are left out, since these services refuse them.
    """
    system: list[str] = []
    found: list[Turn] = []
    for message in messages:
        text = message.text
        if not text.strip():
            continue
        if message.role == "system":
            system.append(text)
        elif found and found[-1].role == message.role:
            found[-1] = Turn(role=message.role, text=f"{found[-1].text}{_BETWEEN}{text}")
        else:
            found.append(Turn(role=message.role, text=text))
    if not found or found[0].role != "user":
        found.insert(0, Turn(role="user", text=OPENING))
    return _BETWEEN.join(system), tuple(found)

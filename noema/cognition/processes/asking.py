"""What the processes that ask a model have in common: when it is worth it, and what came of it.

What a model wrote is data: cut, its marks checked against what it was given, and never obeyed.
"""

import re
from collections.abc import Mapping
from typing import Final

from noema.cognition.attention import Proposal, attend
from noema.cognition.model import Brain, Candidate, Slot
from noema.cognition.process import Ports, Recalled, Unanswered
from noema.core.clock import from_micros
from noema.llm.asker import Reach
from noema.llm.inputs import Data, Remembered, Thought

DEADLINE_S: Final = 130.0
"""Longer than a model may take, so that there is time for what is done without one."""

COST: Final = 100_000
"""What a thought costs that a model was asked for, as a feature."""

_SPACE: Final = re.compile(r"\s+")
_TRUST: Final = ((50, "manual"), (40, "document"), (30, "consolidation"), (20, "import"))


def is_worth_asking(candidate: Candidate, brain: Brain) -> bool:
    """Whether such a thought may be had now and would ignite, so that asking is not in vain."""
    return bool(attend([Proposal(0, 0, candidate)], brain).admitted)


def moment(at_us: int) -> str:
    return from_micros(at_us).strftime("%Y-%m-%d %H:%M UTC")


def as_of(brain: Brain) -> str:
    """Return the time of the latest thought in mind.

    The present would make another question of the same one, asked again after a crash.
    """
    return moment(max((s.admitted_us for s in brain.slots), default=0))


async def memories_for(
    query: str, ports: Ports, reach: Reach, *, k: int
) -> tuple[tuple[Remembered, ...], Mapping[str, Recalled]]:
    """Return what is remembered for the query, as a prompt takes it, and by its marks.

    Nothing where memory does not answer. What may not leave this machine is left out where the
    model is not on it.
    """
    try:
        found = (await ports.recall(query, k=k)).memories
    except Unanswered:
        found = ()
    usable = [m for m in found if m.may_leave or reach == "local"]
    by_mark = {f"m{n}": memory for n, memory in enumerate(usable, start=1)}
    return tuple(_remembered(mark, memory) for mark, memory in by_mark.items()), by_mark


def _remembered(mark: str, memory: Recalled) -> Remembered:
    # Who said it is text from outside, and so stands inside the block.
    text = f"{memory.speaker} said: {memory.text}" if memory.speaker else memory.text
    return Remembered(
        ref=mark,
        text=Data(text=text, kind="memory", ref=mark),
        at=moment(memory.at_us),
        kind=memory.kind,
        status="" if memory.status == "active" else memory.status,
        trust=next((name for rank, name in _TRUST if memory.trust >= rank), "conversation"),
    )


def slots_for(brain: Brain, reach: Reach) -> tuple[Slot, ...]:
    """Return the thoughts in mind that a model may be shown.

    One that brings back a memory is shown to a model outside only as that memory, whose label says
    whether it may be; what a model on this machine made of all it was shown, not at all.
    """
    if reach == "local":
        return brain.slots
    return tuple(s for s in brain.slots if s.process != "recall" and not s.is_local)


def thought(mark: str, slot: Slot) -> Thought:
    return Thought(
        ref=mark,
        text=Data(text=slot.text, kind="thought", ref=mark),
        cycle=slot.cycle,
        topic=Data(text=slot.topic, kind="topic"),
    )


def line(value: object, most: int) -> str:
    """Return what a model wrote as one line of at most so many characters."""
    return _SPACE.sub(" ", value).strip()[:most] if isinstance(value, str) else ""

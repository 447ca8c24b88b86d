"""Reflection: every so often, a thought about what was thought."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from noema.cognition.model import MICRO, Brain, Candidate
from noema.cognition.process import Ports

_LEAST_ON_TIMER: Final = 3
_NAMED: Final = 3
# A path, which the topic of a line never is, so that no line can stand in its way.
TOPIC: Final = "/self/reflection"


class Reflection:
    """Proposes a summary when enough was admitted since the last one, or when it is quiet."""

    name = "reflection"
    version = 2

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        due = brain.admitted_since_reflection >= brain.settings.reflect_every
        quiet = (
            brain.trigger == "timer"
            and not brain.groups
            and brain.admitted_since_reflection >= _LEAST_ON_TIMER
        )
        if not (due or quiet):
            return ()
        return [_summary(brain)]


def _summary(brain: Brain) -> Candidate:
    admitted, observed = brain.admitted_since_reflection, brain.observed_since_reflection
    by_process = Counter(line.split(":", 1)[0] for line in brain.recent)
    shares = ", ".join(f"{n} by {name}" for name, n in sorted(by_process.items()))
    last = "\n".join(f"• {line.split(': ', 1)[-1]}" for line in brain.recent[-_NAMED:])
    text = (
        f"Looking back: {admitted} thoughts admitted out of {observed} stimuli observed"
        f" ({shares}). The latest:\n{last}"
    )
    fullness = min(MICRO, admitted * MICRO // brain.settings.reflect_every)
    # In a quiet moment nothing else asks for attention, so a short look back is worth it too.
    pressing = max(fullness // 4, 150_000)
    return Candidate(
        process="reflection",
        key=TOPIC,
        topic=TOPIC,
        text=text,
        features={
            "confidence": MICRO,
            "valence": MICRO // 2,
            "urgency": pressing,
        },
        raw={"urgency": admitted},
    )

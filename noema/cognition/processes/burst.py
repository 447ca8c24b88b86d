"""Burst: a topic that comes far faster than in its own past."""

from collections.abc import Sequence
from typing import Final

from noema.cognition import habits
from noema.cognition.model import MICRO, Brain, Candidate, Group
from noema.cognition.process import Ports
from noema.cognition.severity import intensity

_EXCERPT: Final = 500


class Burst:
    """Proposes a candidate for each group whose topic comes at eight times its usual rate."""

    name = "burst"
    version = 1

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        candidates = []
        for group in brain.groups:
            ratio, value = habits.burst(brain.topics.get(group.topic), group.latest.at_us)
            if value:
                candidates.append(_alarm(group, ratio, value))
        return candidates


def _alarm(group: Group, ratio: int, value: int) -> Candidate:
    times = ratio // MICRO
    return Candidate(
        process="burst",
        key=group.topic,
        topic=group.topic,
        text=f"{times} times its usual rate: {group.latest.text[:_EXCERPT]}",
        stimuli=group.ids,
        folded=group.count,
        features={
            "intensity": max(intensity(s.text) for s in group.stimuli),
            "urgency": max(value, *(s.urgency for s in group.stimuli)),
        },
        raw={"urgency": ratio},
    )

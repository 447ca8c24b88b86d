"""Perception: what came in becomes thoughts, one per topic."""

from collections.abc import Sequence
from typing import Final

from noema.cognition.model import MICRO, Brain, Candidate, Group
from noema.cognition.process import Ports
from noema.cognition.severity import intensity

_EXCERPT: Final = 500


class Perception:
    """Proposes one candidate for each group of like stimuli."""

    name = "perception"
    version = 1

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        return [_perceived(group) for group in brain.groups]


def _perceived(group: Group) -> Candidate:
    latest = group.latest
    features = {
        "intensity": max(intensity(s.text) for s in group.stimuli),
        "urgency": max(s.urgency for s in group.stimuli),
    }
    if latest.kind == "message":
        features["social"] = MICRO // 2
        text = f"{latest.speaker or 'Someone'} says: {latest.text[:_EXCERPT]}"
    else:
        text = latest.text[:_EXCERPT]
    if group.count > 1:
        text = f"{text} (×{group.count})"
    return Candidate(
        process="perception",
        key=group.topic,
        topic=group.topic,
        text=text,
        stimuli=group.ids,
        folded=group.count,
        features=features,
        raw={"intensity": group.count},
    )

"""Surprise: what is rare under the mind's own running counts."""

from collections.abc import Sequence
from typing import Final

from noema.cognition import habits
from noema.cognition.model import Brain, Candidate, Group
from noema.cognition.process import Ports
from noema.cognition.severity import intensity

_EXCERPT: Final = 500


class Surprise:
    """Proposes a candidate for each group whose topic was rare when it came."""

    name = "surprise"
    version = 1

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        candidates = []
        for group in brain.groups:
            if group.latest.kind == "message":
                continue
            value = habits.surprise(group.before, group.total_before, group.since_us)
            if value >= habits.RARE:
                candidates.append(_remark(group, value))
        return candidates


def _remark(group: Group, value: int) -> Candidate:
    before = 0 if group.before is None else group.before.seen
    how = "Never seen before" if before == 0 else f"Rare, seen {before} times before"
    if before == 1:
        how = "Rare, seen once before"
    return Candidate(
        process="surprise",
        key=group.topic,
        topic=group.topic,
        text=f"{how}: {group.latest.text[:_EXCERPT]}",
        stimuli=group.ids,
        folded=group.count,
        features={
            "surprise": value,
            "intensity": max(intensity(s.text) for s in group.stimuli),
            "urgency": max(s.urgency for s in group.stimuli),
        },
        raw={"surprise": before},
    )

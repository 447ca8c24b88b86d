"""Goal: what an operator asked the mind to watch for."""

from collections.abc import Sequence
from typing import Final

from noema.cognition.attention import match, words
from noema.cognition.model import MICRO, Brain, Candidate, Group
from noema.cognition.process import Ports

_EXCERPT: Final = 500
LEAST: Final = MICRO // 2
"""A stimulus matches a goal that shares at least half of the goal's words."""


class GoalWatch:
    """Proposes a candidate for each group that matches a goal, however usual its topic is."""

    name = "goal"
    version = 1

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        goals = [(words(g.text), g.text) for g in brain.goals]
        candidates = []
        for group in brain.groups if goals else ():
            found = words(group.latest.text)
            share, text = max(((match(wanted, found), text) for wanted, text in goals))
            if share >= LEAST:
                candidates.append(_matched(group, text, share))
        return candidates


def _matched(group: Group, goal: str, share: int) -> Candidate:
    return Candidate(
        process="goal",
        key=group.topic,
        topic=group.topic,
        text=f"Matches the goal “{goal[:120]}”: {group.latest.text[:_EXCERPT]}",
        stimuli=group.ids,
        folded=group.count,
        features={"confidence": share, "urgency": max(s.urgency for s in group.stimuli)},
        raw={"confidence": share},
    )

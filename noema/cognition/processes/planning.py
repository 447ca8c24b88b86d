"""Planning: what might bring the mind nearer to a goal. Needs a model; without one, nothing.

One goal at a time, in a quiet moment or when a goal was set, and only where something was thought
since the goal was planned for last. What it proposes are thoughts: no step is carried out by that.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from noema.cognition.model import MICRO, Brain, Candidate, Goal
from noema.cognition.process import Given, Ports
from noema.cognition.processes.asking import (
    COST,
    DEADLINE_S,
    as_of,
    is_worth_asking,
    line,
    memories_for,
    slots_for,
    thought,
)
from noema.llm.asker import Reach
from noema.llm.inputs import Data, Plan

NAME: Final = "planning"
_MOST_STEPS: Final = 3
_STEP_CHARS: Final = 400
_REMEMBERED: Final = 6
_GOAL_CHARS: Final = 1_000
_URGENCY: Final = 150_000
# What a mind makes of itself is no news to plan with.
_OWN: Final = (NAME, "reflection")


class Planning:
    """Proposes the next steps towards one goal."""

    name = NAME
    version = 2
    deadline_s = DEADLINE_S

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        goal = goal_of(brain)
        if goal is None or not is_worth_asking(_thought(goal, 1, goal.text, Given()), brain):
            return ()
        reach = await ports.model_for("plan")
        if reach is None:
            return ()
        slots = {f"t{n}": s for n, s in enumerate(slots_for(brain, reach), start=1)}
        memories, by_mark = await memories_for(goal.text, ports, reach, k=_REMEMBERED)
        given = Given(memories=by_mark, thoughts={m: s.thought for m, s in slots.items()})
        answer = await ports.complete(
            "plan",
            Plan(
                mind="",
                now=as_of(brain),
                goal=Data(text=goal.text[:_GOAL_CHARS], kind="goal"),
                most=_MOST_STEPS,
                thoughts=tuple(thought(mark, slot) for mark, slot in slots.items()),
                memories=memories,
            ),
            matter=f"{goal.id} {_planned_us(goal, brain)}",
            marks=given,
        )
        if answer.failed or not isinstance(answer.value, Mapping):
            return ()
        given = answer.given or given
        if answer.value.get("is_done"):
            return [
                _thought(
                    goal,
                    1,
                    f"This goal looks reached: {goal.text[:_STEP_CHARS]}",
                    given,
                    reach=answer.reach,
                )
            ]
        steps = [
            _thought(
                goal,
                n,
                f"Towards “{goal.text[:120]}”: {text}",
                given,
                step["sources"],
                reach=answer.reach,
            )
            for n, step in enumerate(answer.value.get("steps", ())[:_MOST_STEPS], start=1)
            if (text := line(step.get("text"), _STEP_CHARS))
        ]
        if not steps:
            # Thought, too: or it would be asked again and again.
            text = f"I see no next step towards “{goal.text[:120]}”."
            return [_thought(goal, 1, text, given, reach=answer.reach)]
        return steps


def topic_of(goal: Goal) -> str:
    """Return what the topics of all steps towards the goal begin with."""
    return f"/self/plan/{goal.id}"


def goal_of(brain: Brain) -> Goal | None:
    """Return the goal to plan for in this cycle: of those with news, the one left longest."""
    quiet = brain.trigger == "timer" and not brain.groups
    if not brain.goals or not (quiet or brain.trigger == "goal"):
        return None
    news_us = max((s.admitted_us for s in brain.slots if s.process not in _OWN), default=0)
    open_ = []
    for goal in brain.goals:
        planned_us = _planned_us(goal, brain)
        if planned_us < news_us or (brain.trigger == "goal" and not planned_us):
            open_.append((planned_us, -goal.priority, goal))
    return min(open_, key=lambda g: g[:2])[2] if open_ else None


def _planned_us(goal: Goal, brain: Brain) -> int:
    topic = topic_of(goal)
    return max((s.admitted_us for s in brain.slots if s.topic.startswith(topic)), default=0)


def _thought(
    goal: Goal,
    number: int,
    text: str,
    given: Given,
    sources: Sequence[object] = (),
    reach: Reach = "provider",
) -> Candidate:
    known = given.known(sources)
    return Candidate(
        process=NAME,
        key=f"{topic_of(goal)}/{number}",
        topic=f"{topic_of(goal)}/{number}",
        text=text,
        stimuli=given.thoughts_of(known),
        features={"urgency": _URGENCY, "confidence": MICRO // 2, "cost": COST},
        raw={"confidence": len(known)},
        sources=given.memories_of(known),
        is_local=reach == "local",
    )

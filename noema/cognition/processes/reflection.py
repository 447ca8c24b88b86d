"""Reflection: every so often, a thought about what was thought.

With a model it looks for insights, which join several thoughts into knowledge worth keeping;
without one, and where it finds none, it counts and lists.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from noema.cognition.model import MICRO, Brain, Candidate
from noema.cognition.process import Ports
from noema.cognition.processes.asking import (
    COST,
    DEADLINE_S,
    Given,
    as_of,
    is_worth_asking,
    line,
    memories_for,
    slots_for,
)
from noema.llm.asker import Reach
from noema.llm.inputs import Data, Reflect, Thought

_LEAST_ON_TIMER: Final = 3
_NAMED: Final = 3
_MOST_INSIGHTS: Final = 3
_INSIGHT_CHARS: Final = 600
_REMEMBERED: Final = 6
_QUERY: Final = 300
# A path, which the topic of a line never is, so that no line can stand in its way.
TOPIC: Final = "/self/reflection"
_RECENT_CUT: Final = 160


class Reflection:
    """Proposes insights or a summary when enough was admitted since, or when it is quiet."""

    name = "reflection"
    version = 3
    deadline_s = DEADLINE_S

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        due = brain.admitted_since_reflection >= brain.settings.reflect_every
        quiet = (
            brain.trigger == "timer"
            and not brain.groups
            and brain.admitted_since_reflection >= _LEAST_ON_TIMER
        )
        if not (due or quiet):
            return ()
        summary = _summary(brain)
        if not is_worth_asking(summary, brain):
            return [summary]
        reach = await ports.model_for("reflect")
        insights = [] if reach is None else await _insights(brain, ports, reach, summary)
        return insights or [summary]


async def _insights(
    brain: Brain, ports: Ports, reach: Reach, summary: Candidate
) -> list[Candidate]:
    thoughts, given = _thoughts(brain, reach)
    if len(thoughts) < 2:
        return []
    query = " ".join(t.text.text for t in thoughts[-_NAMED:])[:_QUERY]
    memories, by_mark = await memories_for(query, ports, reach, k=_REMEMBERED)
    answer = await ports.complete(
        "reflect", Reflect(mind="", now=as_of(brain), thoughts=thoughts, memories=memories)
    )
    if answer.failed or not isinstance(answer.value, Mapping):
        return []
    given = Given(memories=by_mark, thoughts=given.thoughts)
    marks = {t.ref for t in thoughts} | by_mark.keys()
    made = (
        _insight(n, found, given, marks, summary)
        for n, found in enumerate(answer.value.get("insights", ())[:_MOST_INSIGHTS], start=1)
    )
    return [candidate for candidate in made if candidate is not None]


def _thoughts(brain: Brain, reach: Reach) -> tuple[tuple[Thought, ...], Given]:
    """Return the lately admitted, oldest first, and the ids of those that are still in mind."""
    in_mind = {s.text[:_RECENT_CUT]: s for s in slots_for(brain, reach)}
    thoughts: list[Thought] = []
    ids: dict[str, UUID] = {}
    for said in brain.recent:
        process, _, text = said.partition(": ")
        if process == "recall" and reach != "local":
            continue
        mark = f"t{len(thoughts) + 1}"
        slot = in_mind.get(text)
        if slot is not None:
            ids[mark] = slot.thought
        data = Data(text=text if slot is None else slot.text, kind="thought", ref=mark)
        thoughts.append(Thought(ref=mark, text=data, cycle=0 if slot is None else slot.cycle))
    return tuple(thoughts), Given(thoughts=ids)


def _insight(
    number: int, found: Mapping[str, Any], given: Given, marks: set[str], summary: Candidate
) -> Candidate | None:
    text = line(found.get("text"), _INSIGHT_CHARS)
    named = [m.strip("[] ") for m in found.get("sources", ()) if isinstance(m, str)]
    # What joins fewer than two things that were given is none of ours.
    if not text or len(marks.intersection(named)) < 2:
        return None
    known = given.known(named)
    confidence = max(0, min(MICRO, int(found.get("confidence", 0))))
    return Candidate(
        process="reflection",
        key=f"{TOPIC}/{number}",
        topic=f"{TOPIC}/{number}",
        text=text,
        stimuli=given.thoughts_of(known),
        features={**summary.features, "confidence": confidence, "cost": COST},
        raw={**summary.raw, "confidence": len(known)},
        sources=given.memories_of(known),
        is_insight=True,
    )


def _summary(brain: Brain) -> Candidate:
    admitted, observed = brain.admitted_since_reflection, brain.observed_since_reflection
    by_process = Counter(said.split(":", 1)[0] for said in brain.recent)
    shares = ", ".join(f"{n} by {name}" for name, n in sorted(by_process.items()))
    last = "\n".join(f"• {said.split(': ', 1)[-1]}" for said in brain.recent[-_NAMED:])
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

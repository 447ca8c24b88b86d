"""Reflection: every so often, a thought about what was thought.

With a model it looks for insights, which join several thoughts into knowledge worth keeping;
without one, and where it finds none, it counts and lists. Where a model was asked in vain, that
says so.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from noema.cognition.keeping import HEARD
from noema.cognition.model import MICRO, Brain, Candidate
from noema.cognition.process import Given, Ports
from noema.cognition.processes.asking import (
    COST,
    DEADLINE_S,
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
# What these thought may rest on more than their words show.
_RESTING: Final = ("recall", "dialogue", "planning")
_NO_LONGER: Final = UUID(int=0)
"""Stands for a thought that is no longer in mind."""


class Reflection:
    """Proposes insights or a summary when enough was admitted since, or when it is quiet."""

    name = "reflection"
    version = 4
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
        return [summary] if reach is None else await _insights(brain, ports, reach, summary)


async def _insights(
    brain: Brain, ports: Ports, reach: Reach, summary: Candidate
) -> list[Candidate]:
    """Return the insights, or the summary, which says why there are none."""
    thoughts, given = _thoughts(brain, reach)
    if len(thoughts) < 2:
        return [summary]
    query = " ".join(t.text.text for t in thoughts[-_NAMED:])[:_QUERY]
    memories, by_mark = await memories_for(query, ports, reach, k=_REMEMBERED)
    given = Given(memories=by_mark, thoughts=given.thoughts)
    answer = await ports.complete(
        "reflect",
        Reflect(mind="", now=as_of(brain), thoughts=thoughts, memories=memories),
        matter=str(brain.reflected_us),
        marks=given,
    )
    if answer.failed or not isinstance(answer.value, Mapping):
        return [_in_vain(summary, f"gave no answer: {answer.failed or 'no object'}")]
    given = answer.given or given
    made = (
        _insight(n, found, given, summary, reach=answer.reach)
        for n, found in enumerate(answer.value.get("insights", ())[:_MOST_INSIGHTS], start=1)
    )
    insights = [candidate for candidate in made if candidate is not None]
    return insights or [_in_vain(summary, "found no insight in them")]


def _in_vain(summary: Candidate, why: str) -> Candidate:
    text = f"{summary.text}\nMy language model {why}."
    return msgspec.structs.replace(summary, text=text)


def _thoughts(brain: Brain, reach: Reach) -> tuple[tuple[Thought, ...], Given]:
    """Return the lately admitted, oldest first, and the ids of those that are still in mind.

    A model outside is shown of the mind's own words only those known to have been made outside.
    """
    in_mind = {s.text[:_RECENT_CUT]: s for s in slots_for(brain, reach)}
    thoughts: list[Thought] = []
    ids: dict[str, UUID] = {}
    for said in brain.recent:
        process, _, text = said.partition(": ")
        slot = in_mind.get(text)
        if slot is None and process in _RESTING and reach != "local":
            continue
        mark = f"t{len(thoughts) + 1}"
        ids[mark] = _NO_LONGER if slot is None else slot.thought
        data = Data(text=text if slot is None else slot.text, kind="thought", ref=mark)
        thoughts.append(Thought(ref=mark, text=data, cycle=0 if slot is None else slot.cycle))
    return tuple(thoughts), Given(thoughts=ids)


def _insight(
    number: int, found: Mapping[str, Any], given: Given, summary: Candidate, *, reach: Reach
) -> Candidate | None:
    text = line(found.get("text"), _INSIGHT_CHARS)
    known = given.known(found.get("sources", ()))
    # What joins fewer than two things that were given is none of ours.
    if not text or len(known) < 2:
        return None
    thoughts = [m for m in known if m in given.thoughts]
    confidence = max(0, min(MICRO, int(found.get("confidence", 0))))
    return Candidate(
        process="reflection",
        key=f"{TOPIC}/{number}",
        topic=f"{TOPIC}/{number}",
        text=text,
        stimuli=tuple(id_ for id_ in given.thoughts_of(thoughts) if id_ != _NO_LONGER),
        features={**summary.features, "confidence": confidence, "cost": COST},
        raw={**summary.raw, "confidence": len(known), HEARD: len(thoughts)},
        sources=given.memories_of(known),
        is_insight=True,
        is_local=reach == "local",
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

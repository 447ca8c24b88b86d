"""What is worth remembering: which admitted thoughts become memories. Pure, and bounded.

A mind that kept all it noticed would keep its log twice. Kept is

- what somebody said to it, in the conversation it was said in;
- what it answered, once that was sent (`executive`);
- of what it perceived, the thoughts that stood well above the threshold: at least twice as high,
  which is what is new, urgent, asked for by a goal, or loud;
- an insight that a look back brought, as general knowledge that rests on the memories it names.

Not kept are recalls (they are memories already) and plain looks back (made of what was kept).
Each lane has an allowance that refills with the mind's own time, so that a flood of lines cannot
flood memory, nor keep out what people say.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal
from uuid import UUID

import msgspec

from noema.cognition.model import MICRO, Brain, Group, Outcome, Scored

ACT: Final = "remember"
STANDS_OUT: Final = 2
"""A perceived thought is kept from this many times the threshold on."""

HEARD: Final = "heard"
"""How many thoughts an insight rests on, beside memories; a raw number of its candidate."""

Lane = Literal["people", "perceived", "insights"]

ALLOWANCE: Final[Mapping[Lane, int]] = {"people": 30, "perceived": 20, "insights": 6}
"""How many thoughts of a lane may be kept at once."""

REFILL_US: Final[Mapping[Lane, int]] = {
    "people": 2 * MICRO,
    "perceived": 10 * MICRO,
    "insights": 300 * MICRO,
}
"""After how long, of the mind's own time, one more may be kept."""

_LEAST_IMPORTANCE: Final = 100_000
_WEIGHTY: Final = ("intensity", "urgency", "goal")

Allowances = Mapping[str, tuple[int, int]]
"""Of each lane: how much is left, in millionths of a thought, and as of when."""


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """A thought to remember, by its place among the admitted, and the event that says it.

    `importance` is in micro-units. `event` is None where the thought itself says it; `sources` are
    the memories that it rests on, and `is_heard` says that it rests on something else, too.
    """

    place: int
    event: UUID | None
    kind: Literal["episode", "fact", "semantic"]
    importance: int
    sources: tuple[UUID, ...] = ()
    is_heard: bool = False


def keep_params(
    event: UUID,
    kind: str,
    importance: int,
    sources: Sequence[UUID] = (),
    *,
    is_heard: bool = False,
) -> dict[str, str]:
    """Return the content of an intent to remember the event: names and numbers, no text."""
    params = {"event": str(event), "kind": kind, "importance": str(importance)}
    if sources:
        params["sources"] = " ".join(str(source) for source in sources)
    if is_heard:
        params["heard"] = "yes"
    return params


def choose(
    brain: Brain, outcome: Outcome, allowances: Allowances
) -> tuple[tuple[Keep, ...], dict[str, tuple[int, int]]]:
    """Return what of the cycle is to be remembered, and what is left of the allowances.

    What people said comes first, in the order it was said; then what was perceived, then insights,
    each best first.
    """
    groups = {g.topic: g for g in brain.groups}
    left = dict(allowances)
    said: list[tuple[int, Keep]] = []
    perceived: list[Keep] = []
    insights: list[Keep] = []
    for place, scored in enumerate(outcome.admitted):
        if scored.candidate.is_insight:
            insights.append(_insight(place, scored))
            continue
        group = groups.get(scored.candidate.topic)
        if group is None or scored.candidate.memory is not None:
            continue
        keep = _keep(place, scored, group)
        if group.latest.kind == "message":
            said.append((group.latest.at_us, keep))
        elif scored.score >= STANDS_OUT * outcome.threshold:
            perceived.append(keep)
    said.sort(key=lambda s: s[0])
    kept = [k for _, k in said if _take(left, "people", brain.now_us)]
    kept += [k for k in perceived if _take(left, "perceived", brain.now_us)]
    kept += [k for k in insights if _take(left, "insights", brain.now_us)]
    return tuple(kept), left


def _keep(place: int, scored: Scored, group: Group) -> Keep:
    importance = max(_LEAST_IMPORTANCE, *(scored.features.get(name, 0) for name in _WEIGHTY))
    return Keep(
        place=place,
        event=group.latest.id,
        kind="fact" if group.latest.kind == "fact" else "episode",
        importance=min(MICRO, importance),
    )


def _insight(place: int, scored: Scored) -> Keep:
    importance = max(_LEAST_IMPORTANCE, scored.features.get("confidence", 0) // 2)
    return Keep(
        place=place,
        event=None,
        kind="semantic",
        importance=importance,
        sources=scored.candidate.sources,
        is_heard=scored.raw.get(HEARD, 0) > 0,
    )


def _take(left: dict[str, tuple[int, int]], lane: Lane, now_us: int) -> bool:
    most = ALLOWANCE[lane] * MICRO
    amount, at_us = left.get(lane, (most, now_us))
    # A clock that was set back refills nothing, and takes nothing away.
    amount = min(most, amount + max(0, now_us - at_us) * MICRO // REFILL_US[lane])
    if amount < MICRO:
        left[lane] = (amount, now_us)
        return False
    left[lane] = (amount - MICRO, now_us)
    return True

"""Recall: what the mind once kept, when something reminds it of that.

It asks memory only where there is something new to ask about, one question a cycle and one every
two seconds at most, half a minute after memory failed. What reminds, in this order:

1. a focus that is in force and was not asked about yet;
2. what somebody just said; then, of what just came, what is new (came at most once lately), the
   most urgent and loudest first;
3. when nothing comes and a timer runs: the latest thought since memory was last asked.

How well a memory fits is not the kernel's score, which tells only which of these few is best: it is
half the share of the question's words that the memory has, half the greater of that share and the
cosine of the two. So the best of a dull lot does not look brilliant, and a likeness of vectors
alone does not ignite.
"""

import re
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from noema.cognition import habits
from noema.cognition.attention import RECALL_HALF_LIFE_US, match, words
from noema.cognition.model import MICRO, Brain, Candidate, Group
from noema.cognition.process import Ports, Recalled
from noema.cognition.processes.dialogue import COMMON
from noema.cognition.severity import intensity
from noema.core.clock import from_micros

NAME: Final = "recall"
_ASKED_FOR: Final = 8
_AT_ONCE: Final = 3
_QUERY: Final = 300
_EXCERPT: Final = 500
_NEW: Final = MICRO // 2
_USED_TO: Final = MICRO // 4
_TRUST_FULL: Final = 50
_AGE_HALF_LIFE_US: Final = 7 * 86_400 * MICRO
_LATEST_PAUSE_US: Final = 60 * MICRO
_MASKS = re.compile(r"\*|~[0-9a-f]{12}\Z")
_SPACE = re.compile(r"\s+")


class Cue(msgspec.Struct, frozen=True, kw_only=True):
    """What reminds: the question to memory, and the events it comes from."""

    query: str
    causes: tuple[UUID, ...] = ()


class Recall:
    """Proposes up to three memories that what is on the mind reminds of."""

    name = NAME
    version = 1

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        cue = cue_of(brain)
        if cue is None:
            return ()
        found = await ports.recall(cue.query, k=_ASKED_FOR)
        asked = _wanted(cue.query)
        # What somebody has in mind need not be brought back, and what was brought back lately not
        # again.
        in_mind = {f"thought:{slot.thought}" for slot in brain.slots}
        topics = {slot.topic for slot in brain.slots}
        fits = [
            (_fit(asked, memory), memory)
            for memory in found.memories
            if memory.source not in in_mind
            and topic_of(memory.id) not in topics
            and _level(memory.id, brain) <= _USED_TO
        ]
        # Sorting keeps the order of equals, which is that of the kernel's score.
        fits.sort(key=lambda f: -f[0])
        return [_remembered(m, fit, cue, brain) for fit, m in fits[:_AT_ONCE] if fit]


def topic_of(memory: UUID) -> str:
    """Return the topic of a thought that brings the memory back."""
    return f"memory {memory}"


def cue_of(brain: Brain) -> Cue | None:
    """Return what memory is to be asked about in this cycle, None for nothing."""
    allowed = brain.mode.processes
    if allowed is not None and NAME not in allowed:
        return None
    # A due time further off than any pause is: the clock was set back meanwhile.
    if 0 < brain.recall.due_us - brain.now_us <= _LATEST_PAUSE_US:
        return None
    if brain.focus and brain.focus != brain.recall.focus and (cue := _cue(brain.focus)):
        return cue
    news = [g for g in brain.groups if g.waited == 0 and _novelty(g) >= _NEW]
    for group in sorted(news, key=_pressing, reverse=True):
        # The topic is the line without what varies, which reminds of nothing.
        said = group.latest.kind == "message"
        text = group.latest.text if said else _MASKS.sub(" ", group.topic)
        if cue := _cue(text, group.latest.id):
            return cue
    if brain.trigger == "timer" and not brain.groups and brain.slots:
        latest = max(brain.slots, key=lambda s: (s.admitted_us, s.cycle))
        if latest.admitted_us > brain.recall.asked_us and latest.process != NAME:
            return _cue(latest.text, latest.thought)
    return None


def _cue(text: str, *causes: UUID) -> Cue | None:
    query = _SPACE.sub(" ", text).strip()[:_QUERY]
    return Cue(query=query, causes=causes) if _wanted(query) else None


def _wanted(query: str) -> frozenset[str]:
    return words(query) - COMMON


def _novelty(group: Group) -> int:
    return habits.novelty(group.before, group.since_us)


def _pressing(group: Group) -> tuple[bool, int, int, int]:
    stimuli = group.stimuli
    return (
        group.latest.kind == "message",
        max(s.urgency for s in stimuli),
        max(intensity(s.text) for s in stimuli),
        _novelty(group),
    )


def _level(memory: UUID, brain: Brain) -> int:
    level, at_us = brain.recall.levels.get(str(memory), (0, 0))
    return habits.decay(level, brain.now_us - at_us, RECALL_HALF_LIFE_US)


def _fit(asked: frozenset[str], memory: Recalled) -> int:
    share = match(asked, words(memory.text))
    return (share + max(share, min(memory.cosine or 0, MICRO))) // 2


def _remembered(memory: Recalled, fit: int, cue: Cue, brain: Brain) -> Candidate:
    when = from_micros(memory.at_us).strftime("%Y-%m-%d %H:%M UTC")
    who = f"{memory.speaker} said: " if memory.speaker else ""
    age_us = max(0, brain.now_us - memory.at_us)
    topic = topic_of(memory.id)
    return Candidate(
        process=NAME,
        key=topic,
        topic=topic,
        text=f"I remember from {when}: {who}{memory.text[:_EXCERPT]}",
        stimuli=cue.causes,
        features={
            "relevance": fit,
            "confidence": fit,
            "credibility": min(MICRO, memory.trust * memory.credibility // _TRUST_FULL),
            "recency": habits.decay(MICRO, age_us, _AGE_HALF_LIFE_US),
        },
        raw={
            "relevance": memory.cosine or 0,
            "credibility": memory.trust,
            "recency": age_us // MICRO,
        },
        memory=memory.id,
    )

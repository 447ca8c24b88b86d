"""Dialogue: someone spoke to the mind and waits.

Without a model it cannot converse; it quotes what its workspace and its log hold on the matter, and
says that this is what it does.
"""

import re
from collections.abc import Sequence
from typing import Final

from noema.cognition import habits
from noema.cognition.attention import match, words
from noema.cognition.model import MICRO, Brain, Candidate, Intent, Question
from noema.cognition.process import Found, Ports

_AT_ONCE: Final = 3
_QUOTES: Final = 3
_SEARCHED: Final = 50
_QUOTED: Final = 240
_WAITING_FULL_S: Final = 60
_MARKS = re.compile(r"[\s]+")
# Words that carry a question rather than its matter.
COMMON: Final = frozenset(
    [
        "about",
        "all",
        "and",
        "any",
        "are",
        "but",
        "can",
        "could",
        "did",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "hello",
        "her",
        "him",
        "his",
        "how",
        "into",
        "its",
        "just",
        "like",
        "may",
        "more",
        "most",
        "much",
        "not",
        "now",
        "of",
        "off",
        "one",
        "our",
        "out",
        "over",
        "please",
        "say",
        "see",
        "she",
        "some",
        "tell",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "was",
        "were",
        "what",
        "when",
        "where",
        "which",
        "while",
        "who",
        "whom",
        "whose",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
        "anything",
        "something",
        "happened",
        "happening",
        "know",
        "think",
        "thank",
        "thanks",
    ]
)


class Dialogue:
    """Proposes an answer to each of the oldest open questions."""

    name = "dialogue"
    version = 1

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        return [await _answer(q, brain, ports) for q in brain.questions[:_AT_ONCE]]


async def _answer(question: Question, brain: Brain, ports: Ports) -> Candidate:
    asked = words(question.text) - COMMON
    in_focus = [(match(asked, words(s.text)), s.text) for s in brain.slots]
    found: Sequence[Found] = ()
    if asked:
        found = await ports.search_log(sorted(asked), limit=_SEARCHED)
    # The question itself is in the log, and no answer to itself.
    in_log = [(match(asked, words(f.text)), f.text) for f in found if f.id != question.id]
    quotes = _best([q for q in (*in_focus, *in_log) if q[0]])
    text, confidence = _say(quotes, brain, asked=bool(asked))
    waited_us = max(0, brain.now_us - question.at_us)
    social = MICRO - habits.decay(MICRO // 4, waited_us, _WAITING_FULL_S * MICRO)
    return Candidate(
        process="dialogue",
        key=f"answer {question.id}",
        topic=f"answer {question.id}",
        text=text,
        stimuli=(question.id,),
        folded=1,
        features={"social": social, "urgency": 800_000, "confidence": confidence},
        raw={"social": waited_us // MICRO, "confidence": len(quotes)},
        intent=Intent(
            act="speak",
            params={
                "text": text,
                "to": question.speaker,
                "conversation": str(question.conversation),
                "in_reply_to": str(question.id),
            },
        ),
        replies_to=question.id,
    )


def _best(quotes: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    seen: dict[str, tuple[int, str]] = {}
    for share, text in quotes:
        line = _MARKS.sub(" ", text).strip()[:_QUOTED]
        known = seen.get(line.casefold())
        if known is None or known[0] < share:
            seen[line.casefold()] = (share, line)
    # Sorting keeps the order of equals: the workspace before the log, the newest line first.
    return sorted(seen.values(), key=lambda q: -q[0])[:_QUOTES]


def _say(quotes: Sequence[tuple[int, str]], brain: Brain, *, asked: bool) -> tuple[str, int]:
    if quotes:
        lines = "\n".join(f"• {line}" for _, line in quotes)
        return f"I have no language model, so I quote what I hold on that:\n{lines}", quotes[0][0]
    held = brain.slots[::-1][:_QUOTES]
    if not held:
        return "I have no language model and nothing in mind yet that I could quote.", 100_000
    lines = "\n".join(f"• {_MARKS.sub(' ', s.text).strip()[:_QUOTED]}" for s in held)
    why = "found nothing on that in my log" if asked else "cannot tell what you ask about"
    return f"I have no language model and {why}. What I have in mind now:\n{lines}", 200_000

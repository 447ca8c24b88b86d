"""Dialogue: someone spoke to the mind and waits.

With a model it answers from what it remembers and what was said before, and cites it: a mark of
what the model was not given is taken out, and the answer says so. Without one it cannot converse;
it quotes what its workspace and its log hold on the matter, and says that this is what it does.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from noema.cognition import habits
from noema.cognition.attention import match, words
from noema.cognition.model import MICRO, Brain, Candidate, Intent, Question
from noema.cognition.process import Found, Given, Ports
from noema.cognition.processes.asking import (
    COST,
    DEADLINE_S,
    is_worth_asking,
    memories_for,
    moment,
    slots_for,
    thought,
)
from noema.llm import inputs
from noema.llm.asker import Reach

_AT_ONCE: Final = 3
_QUOTES: Final = 3
_SEARCHED: Final = 50
_QUOTED: Final = 240
_WAITING_FULL_S: Final = 60
_MARKS = re.compile(r"[\s]+")
_REMEMBERED: Final = 8
_EARLIER: Final = 12
_EARLIER_CHARS: Final = 600
_ANSWER_CHARS: Final = 4_000
_CITED_CHARS: Final = 120
# One mark or several in square brackets: [m1], [m1, t2].
_CITATION: Final = re.compile(r" ?\[([mt]\d{1,4}(?:\s*[,;]\s*[mt]\d{1,4}){0,20})\]")
_LEFT_OUT: Final = "A citation of something that I was not given was left out."
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
    version = 3
    deadline_s = DEADLINE_S

    async def propose(self, brain: Brain, ports: Ports) -> Sequence[Candidate]:
        questions = brain.questions[:_AT_ONCE]
        if questions and is_worth_asking(_candidate(questions[0], brain, "", 0), brain):
            reach = await ports.model_for("dialogue")
            if reach is not None:
                # One at a time: the next is answered in the cycle after, without a pause.
                return [await _conversed(questions[0], brain, ports, reach)]
        return [await _answer(q, brain, ports) for q in questions]


async def _conversed(question: Question, brain: Brain, ports: Ports, reach: Reach) -> Candidate:
    slots = {
        f"t{n}": slot
        for n, slot in enumerate(slots_for(brain, reach), start=1)
        if slot.topic != f"message {question.id}"
    }
    earlier = await ports.said_before(question.conversation, before=question.id, limit=_EARLIER)
    memories, by_mark = await memories_for(question.text, ports, reach, k=_REMEMBERED)
    given = Given(memories=by_mark, thoughts={m: s.thought for m, s in slots.items()})
    answer = await ports.complete(
        "dialogue",
        inputs.Dialogue(
            mind="",
            now=moment(question.at_us),
            message=inputs.Data(text=question.text, kind="message"),
            earlier=tuple(_turn(found) for found in earlier),
            memories=memories,
            thoughts=tuple(thought(mark, slot) for mark, slot in slots.items()),
        ),
        matter=str(question.id),
        marks=given,
    )
    if answer.failed or not answer.text:
        return await _answer(question, brain, ports, why="no answer of my language model")
    given = answer.given or given
    text, cited = cite(answer.text, given)
    if not text:
        return await _answer(question, brain, ports, why="no answer of my language model")
    confidence = MICRO if cited else MICRO // 4
    made = _candidate(question, brain, text, confidence, quotes=len(cited))
    return msgspec.structs.replace(
        made,
        stimuli=(question.id, *given.thoughts_of(cited)),
        features={**made.features, "cost": COST},
        sources=given.memories_of(cited),
        is_local=answer.reach == "local",
    )


def _turn(found: Found) -> inputs.Turn:
    speaker = "mind" if found.type == "message.sent" else "person"
    # What the mind listed below an answer cites marks that mean nothing any more.
    text = found.text
    if speaker == "mind":
        text = _CITATION.sub("", text.partition("\n\n[")[0])
    return inputs.Turn(speaker=speaker, text=inputs.Data(text=text[:_EARLIER_CHARS], kind="turn"))


def cite(text: str, given: Given) -> tuple[str, tuple[str, ...]]:
    """Return the answer with its sources listed below it, and the marks that it cites.

    Marks of what was not given are taken out, and that they were is said. Empty where the answer
    says nothing beside its marks.
    """
    cited: dict[str, None] = {}
    invented = 0

    def kept(found: re.Match[str]) -> str:
        nonlocal invented
        marks = re.split(r"\s*[,;]\s*", found[1])
        known = given.known(marks)
        invented += len(marks) - len(known)
        cited.update(dict.fromkeys(known))
        space = " " if found[0].startswith(" ") else ""
        return f"{space}[{', '.join(known)}]" if known else ""

    said, before = text[:_ANSWER_CHARS], ""
    while said != before:
        # What is taken out of the midst of one mark may leave another.
        said, before = _CITATION.sub(kept, said), said
    said = said.strip()
    if not _CITATION.sub("", said).strip():
        return "", ()
    lines = [_source(mark, given) for mark in cited]
    if invented:
        lines.append(_LEFT_OUT)
    return "\n".join([said, "", *lines] if lines else [said]), tuple(cited)


def _source(mark: str, given: Given) -> str:
    memory = given.memories.get(mark)
    if memory is None:
        return f"[{mark}] thought {given.thoughts[mark]}"
    text = _MARKS.sub(" ", memory.text).strip()[:_CITED_CHARS]
    return f"[{mark}] memory {memory.id}, {moment(memory.at_us)}: {text}"


async def _answer(
    question: Question, brain: Brain, ports: Ports, why: str = "no language model"
) -> Candidate:
    asked = words(question.text) - COMMON
    in_focus = [(match(asked, words(s.text)), s.text) for s in brain.slots]
    found: Sequence[Found] = ()
    if asked:
        found = await ports.search_log(sorted(asked), limit=_SEARCHED)
    # The question itself is in the log, and no answer to itself.
    in_log = [(match(asked, words(f.text)), f.text) for f in found if f.id != question.id]
    quotes = _best([q for q in (*in_focus, *in_log) if q[0]])
    text, confidence = _say(quotes, brain, asked=bool(asked), why=why)
    return _candidate(question, brain, text, confidence, quotes=len(quotes))


def _candidate(
    question: Question, brain: Brain, text: str, confidence: int, *, quotes: int = 0
) -> Candidate:
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
        raw={"social": waited_us // MICRO, "confidence": quotes},
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


def _say(
    quotes: Sequence[tuple[int, str]], brain: Brain, *, asked: bool, why: str
) -> tuple[str, int]:
    if quotes:
        lines = "\n".join(f"• {line}" for _, line in quotes)
        return f"I have {why}, so I quote what I hold on that:\n{lines}", quotes[0][0]
    held = brain.slots[::-1][:_QUOTES]
    if not held:
        return f"I have {why} and nothing in mind yet that I could quote.", 100_000
    lines = "\n".join(f"• {_MARKS.sub(' ', s.text).strip()[:_QUOTED]}" for s in held)
    found = "found nothing on that in my log" if asked else "cannot tell what you ask about"
    return f"I have {why} and {found}. What I have in mind now:\n{lines}", 200_000

"""Whether two memories can both be true, judged without a model.

Certain is only what was said in structured content: the same subject and attribute with two values,
or one thing both liked and disliked. Two sentences of the same shape, or a sentence and its
negation, are a suspicion for people to look at. Everything else is compatible.

Knows nothing of databases and syscalls: a mind's contradiction detection and the background check
judge alike.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, runtime_checkable

from noema.memory.analyse import terms
from noema.memory.model import Kind, Memory
from noema.memory.normalise import normal_text

_MOST_CHARS: Final = 400
"""Longer texts say more than one thing; their shape tells nothing."""

_FEWEST_TERMS: Final = 2


class Finding(StrEnum):
    """What a judge says of two memories."""

    CONTRADICTION = "contradiction"
    COMPATIBLE = "compatible"
    SUSPECTED = "suspected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The finding, why in words for people, and who judged."""

    kind: Finding
    reason: str
    judge: str


class ConflictJudge(Protocol):
    """Says whether a newcomer and an incumbent contradict each other.

    `reads_meaning` says that it understands more than shape, and is worth being shown neighbours
    that are merely near in meaning. It may call out, so it is never asked inside a transaction.
    """

    @property
    def name(self) -> str: ...

    @property
    def reads_meaning(self) -> bool: ...

    async def judge(self, newcomer: Memory, incumbent: Memory) -> Verdict: ...


@runtime_checkable
class Looks(Protocol):
    """A judge that finds out before each memory whether it reads meaning just now."""

    async def look(self) -> None: ...


OPEN_REASON: Final = "nothing in their form contradicts"


def is_open(verdict: Verdict) -> bool:
    """Whether form alone could not tell: a suspicion, or nothing was found either way."""
    return verdict.kind is Finding.SUSPECTED or verdict.reason == OPEN_REASON


class PlainJudge:
    """The judge that needs no model; deterministic."""

    name: Final = "plain-1"
    reads_meaning: Final = False

    async def judge(self, newcomer: Memory, incumbent: Memory) -> Verdict:
        return self.compare(newcomer, incumbent)

    def compare(self, newcomer: Memory, incumbent: Memory) -> Verdict:
        """Return the verdict; the same whichever of the two is called the newcomer."""
        if not _overlap(newcomer, incumbent):
            return self._says(Finding.COMPATIBLE, "they held at different times")
        found = _by_content(newcomer, incumbent) or _by_text(newcomer, incumbent)
        return self._says(*(found or (Finding.COMPATIBLE, OPEN_REASON)))

    def _says(self, kind: Finding, reason: str) -> Verdict:
        return Verdict(kind=kind, reason=reason, judge=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence taken apart, each part normalised: the `attribute` of `subject` is `value`."""

    subject: str
    attribute: str
    value: str


# The parts exclude what separates them, so that each pattern reads a text once.
_OF: Final = re.compile(
    r"(?:the |an? )?(?P<attribute>[^\W\d_][\w -]{0,60}?) of (?P<subject>[^,;:=]{1,80}?)"
    r" (?:is|are)(?: now| currently)? (?P<value>[^;]{1,160})"
)
_OWNED: Final = re.compile(
    r"(?P<subject>[^,;:='’]{1,80})['’]s? (?P<attribute>[\w -]{1,60}?)"
    r" (?:is|are)(?: now| currently)? (?P<value>[^;]{1,160})"
)
_MY: Final = re.compile(
    r"(?P<subject>my|our) (?P<attribute>[\w -]{1,60}?)"
    r" (?:is|are)(?: now| currently)? (?P<value>[^;]{1,160})"
)
_ASSIGNED: Final = re.compile(
    r"(?P<subject>[^:=]{1,80}): *(?P<attribute>[^:=]{1,60}?) *= *(?P<value>[^=]{1,160})"
)
_SHAPES: Final = (_ASSIGNED, _OF, _MY, _OWNED)
_ARTICLE: Final = re.compile(r"^(?:the|an?) ")
_NEGATION: Final = re.compile(r"\b(?:no longer|not any ?more|not|never|cannot|no)\b|\w*n['’]t\b")
_FIRST_PERSON: Final = re.compile(r"\b(?:i|i'm|i've|i'd|me|my|mine|we|our|ours|us)\b")
_SENTENCES: Final = re.compile(r"[.!?]\s+\S")


def claim_of(text: str) -> Claim | None:
    """Return what a single English sentence of a known shape claims, or None.

    Shapes: `the Y of X is Z`, `X's Y is Z`, `my Y is Z`, `X: Y = Z`.
    """
    normal = normal_text(text[: _MOST_CHARS + 1])
    if len(normal) > _MOST_CHARS or _SENTENCES.search(normal):
        return None
    normal = normal.rstrip(".! ")
    for shape in _SHAPES:
        found = shape.fullmatch(normal)
        if found is not None:
            return Claim(**{k: _ARTICLE.sub("", v.strip()) for k, v in found.groupdict().items()})
    return None


def asserted(text: str) -> tuple[tuple[str, ...], bool]:
    """Return the search terms of a text without its negations, and whether it is negated.

    No terms where the text is too long or too short for that to mean anything.
    """
    normal = normal_text(text[: _MOST_CHARS + 1])
    bare, count = _NEGATION.subn(" ", normal)
    found = tuple(terms(bare))
    if len(normal) > _MOST_CHARS or len(found) < _FEWEST_TERMS or count > 1:
        return (), False
    return found, count == 1


def _overlap(one: Memory, other: Memory) -> bool:
    ends = [m.valid_to for m in (one, other)]
    return (ends[0] is None or other.valid_from < ends[0]) and (
        ends[1] is None or one.valid_from < ends[1]
    )


def _by_content(one: Memory, other: Memory) -> tuple[Finding, str] | None:
    """Return what structured content tells, or None where it tells nothing about the two."""
    if one.kind is not other.kind:
        return None
    if one.kind is Kind.FACT:
        return _facts(one.content, other.content)
    if one.kind is Kind.PREFERENCE:
        return _preferences(one.content, other.content)
    return None


def _facts(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[Finding, str] | None:
    if not (
        _has(one, "subject", "attribute", "value") and _has(other, "subject", "attribute", "value")
    ):
        return None
    if not (_same(one, other, "subject") and _same(one, other, "attribute")):
        return Finding.COMPATIBLE, "they are about different things"
    if _value(one["value"]) == _value(other["value"]):
        return Finding.COMPATIBLE, "they say the same"
    what = f"the {one['attribute']} of {one['subject']}"
    if one.get("single_valued") or other.get("single_valued"):
        return (
            Finding.CONTRADICTION,
            f"{what} has one value at a time, and here are two: {_shown(one)} and {_shown(other)}",
        )
    return Finding.COMPATIBLE, f"{what} may have several values"


_FOR: Final = frozenset({"likes", "prefers", "wants"})
_AGAINST: Final = frozenset({"dislikes", "avoids"})


def _preferences(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[Finding, str] | None:
    needed = ("holder", "about", "stance")
    if not (_has(one, *needed) and _has(other, *needed)):
        return None
    if not _same(one, other, "holder"):
        return Finding.COMPATIBLE, "they are different people's"
    holder, stances = one["holder"], {one["stance"], other["stance"]}
    if _same(one, other, "about"):
        if stances & _FOR and stances & _AGAINST:
            both = f"{one['stance']} and {other['stance']}"
            return Finding.CONTRADICTION, f"{holder} both {both} {one['about']}"
        return Finding.COMPATIBLE, "both say the same of it"
    is_turned = (
        _has(one, "over")
        and _has(other, "over")
        and _value(one["about"]) == _value(other["over"])
        and _value(one["over"]) == _value(other["about"])
    )
    if is_turned and stances <= _FOR:
        return (
            Finding.CONTRADICTION,
            f"{holder} prefers {one['about']} over {one['over']}, and the other way round",
        )
    return Finding.COMPATIBLE, "they are about different things"


def _by_text(one: Memory, other: Memory) -> tuple[Finding, str] | None:
    texts = [m.text for m in (one, other)]
    if _is_personal(*texts) and (one.speaker, one.actor) != (other.speaker, other.actor):
        return Finding.COMPATIBLE, "two people speak of themselves"
    claims = [claim_of(text) for text in texts]
    if claims[0] is not None and claims[1] is not None:
        found = _claims(claims[0], claims[1])
        if found is not None:
            return found
    (words, negated), (others, is_other_negated) = asserted(texts[0]), asserted(texts[1])
    if words and words == others and negated != is_other_negated:
        return Finding.SUSPECTED, "one sentence is the other with a negation"
    return None


def _claims(one: Claim, other: Claim) -> tuple[Finding, str] | None:
    if (one.subject, one.attribute) != (other.subject, other.attribute):
        return None
    values = one.value, other.value
    if any(_NEGATION.match(v) for v in values):
        return None
    # "Paris" and "Paris, France" are one answer, more and less exact.
    words, others = ({w.strip(",()") for w in v.split()} for v in values)
    if words <= others or others <= words:
        return Finding.COMPATIBLE, "they give the same value"
    return (
        Finding.SUSPECTED,
        f"both give the {one.attribute} of {one.subject}: {values[0]} and {values[1]}",
    )


def _is_personal(*texts: str) -> bool:
    return any(_FIRST_PERSON.search(text[:_MOST_CHARS].casefold()) for text in texts)


def _has(content: Mapping[str, Any], *fields: str) -> bool:
    return all(content.get(field) is not None for field in fields)


def _same(one: Mapping[str, Any], other: Mapping[str, Any], field: str) -> bool:
    return _value(one[field]) == _value(other[field])


def _value(value: object) -> object:
    # True is not 1; 1 and 1.0 are the same number, and "1" may be either.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return (
            f"{value:g}" if isinstance(value, float) and not value.is_integer() else str(int(value))
        )
    return normal_text(str(value)).strip(" .")


def _shown(content: Mapping[str, Any]) -> str:
    return str(content["value"])[:120]

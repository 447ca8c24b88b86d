"""Attention: which of the proposed thoughts win, and why. Pure, and exact.

A feature is an integer from 0 to 1,000,000 by a fixed curve, a weight an integer in micro-units;
the effective weight is floor(weight × mode profile / 10^6), at most 10^7, and a score the sum of
integer products. Fifteen products of at most 10^13 stay below 2^53, so no reader of JSON rounds
them, and a sum of integers is the same in every order and every Python.

    gates (mode, quota, duplicate) ─▶ score ─▶ threshold (ignition) ─▶ top K

Every candidate is scored, a gated one too, so that people see what a gate cost. Ties go by score,
urgency, the order of the processes, the ordinal within one; never by id or time of arrival.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from noema.cognition import habits
from noema.cognition.model import (
    FEATURES,
    MICRO,
    NEGATIVE,
    Brain,
    Candidate,
    Group,
    MindSettings,
    Mode,
    Outcome,
    Scored,
)

SCORER_VERSION: Final = 1
MAX_WEIGHT: Final = 10_000_000
FATIGUE_HALF_LIFE_US: Final = 60 * 1_000_000
RECENCY_HALF_LIFE_CYCLES: Final = 32
RECALL_HALF_LIFE_US: Final = 3_600 * 1_000_000
"""How fast the habit of a memory that was brought back wears off, on the mind's own time."""

OWNED: Final = ("novelty", "relevance", "goal", "recency", "fatigue", "habituation", "pin")
"""The features attention computes from the brain; a process cannot claim them."""

LENT: Final = ("relevance", "recency")
"""Of these, what brings back a memory says how it stands: only the memory knows."""

_OWNED_OF_MEMORY: Final = tuple(name for name in OWNED if name not in LENT)
_SIGN: Final = {name: -1 if name in NEGATIVE else 1 for name in FEATURES}
_WORD = re.compile(r"\w{3,}")


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """A candidate with its place: the process's in the registry, its own within the process."""

    process_index: int
    ordinal: int
    candidate: Candidate


def effective_weights(settings: MindSettings, mode: Mode) -> dict[str, int]:
    """Return the weight of each feature in this mode, in micro-units."""
    return {
        name: effective_weight(settings.weights.get(name, 0), mode.profile.get(name, MICRO))
        for name in FEATURES
    }


def effective_weight(weight: int, multiplier: int) -> int:
    """Return floor(weight × multiplier / 10^6), at most 10^7."""
    return min(weight * multiplier // MICRO, MAX_WEIGHT)


def words(text: str) -> frozenset[str]:
    """Return the words of three letters or more, folded in case."""
    return frozenset(_WORD.findall(text[:4096].casefold()))


def match(wanted: frozenset[str], found: frozenset[str]) -> int:
    """Return 0 to 1,000,000: the share of the wanted words that were found."""
    return len(wanted & found) * MICRO // len(wanted) if wanted else 0


class _Owned:
    """Computes the features attention owns, each by its curve, for the candidates of one cycle."""

    def __init__(self, brain: Brain) -> None:
        self._brain = brain
        self._groups: Mapping[str, Group] = {g.topic: g for g in brain.groups}
        self._focus = words(brain.focus)
        self._goals = tuple((words(g.text), g.priority) for g in brain.goals)
        self._fatigue: dict[str, int] = {}

    def add_to(self, candidate: Candidate, features: dict[str, int], raw: dict[str, int]) -> None:
        group = self._groups.get(candidate.topic)
        if group is not None:
            self._add_of_topic(group, features, raw)
        if self._focus or self._goals:
            # A process may quote a goal in what it says; what it speaks of is the stimulus.
            found = words(candidate.text if group is None else group.latest.text)
            if self._focus:
                fits = match(self._focus, found)
                features["relevance"] = max(fits, features.get("relevance", 0))
            if self._goals:
                features["goal"] = max(
                    match(wanted, found) * priority // MICRO for wanted, priority in self._goals
                )
        if candidate.memory is not None:
            level, at_us = self._brain.recall.levels.get(str(candidate.memory), (0, 0))
            elapsed_us = self._brain.now_us - at_us
            features["habituation"] = habits.decay(level, elapsed_us, RECALL_HALF_LIFE_US)
        features["fatigue"] = self._fatigue_of(candidate.process)

    def _add_of_topic(self, group: Group, features: dict[str, int], raw: dict[str, int]) -> None:
        features["novelty"] = habits.novelty(group.before, group.since_us)
        if group.before is not None:
            raw["novelty"] = group.before.seen
        features["recency"] = habits.decay(MICRO, group.waited, RECENCY_HALF_LIFE_CYCLES)
        if group.waited:
            raw["recency"] = group.waited
        stats = self._brain.topics.get(group.topic)
        if stats is not None and stats.habit:
            at_us = max(stats.last_us, group.latest.at_us)
            features["habituation"] = habits.habituation(stats, at_us)
        if any(s.pin for s in group.stimuli):
            features["pin"] = MICRO

    def _fatigue_of(self, process: str) -> int:
        fatigue = self._fatigue.get(process)
        if fatigue is None:
            level, at_us = self._brain.fatigue.get(process, (0, 0))
            fatigue = habits.decay(level, self._brain.now_us - at_us, FATIGUE_HALF_LIFE_US)
            self._fatigue[process] = fatigue
        return fatigue


def attend(proposals: Iterable[Proposal], brain: Brain) -> Outcome:
    """Return every candidate scored and ranked, and which of them were admitted.

    The order in which proposals arrive makes no difference to anything.
    """
    ordered = sorted(proposals, key=lambda p: (p.process_index, p.ordinal))
    weights = effective_weights(brain.settings, brain.mode)
    own = _Owned(brain)
    entries = []
    for proposal in ordered:
        candidate = proposal.candidate
        owned = owned_of(candidate)
        features = {k: v for k, v in candidate.features.items() if v and k not in owned}
        raw = dict(candidate.raw)
        own.add_to(candidate, features, raw)
        if not all(features.values()):
            features = {k: v for k, v in features.items() if v}
        entries.append(Entry(proposal, features, raw))
    return decide(entries, weights, brain.settings, brain.mode)


def owned_of(candidate: Candidate) -> Sequence[str]:
    """Return the features that attention computes for it, whatever the candidate says."""
    return OWNED if candidate.memory is None else _OWNED_OF_MEMORY


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A proposal with all its features, ready to be weighed."""

    proposal: Proposal
    features: Mapping[str, int]
    raw: Mapping[str, int]


def entries_of(outcome: Outcome, order: Sequence[str]) -> list[Entry]:
    """Return what was weighed in a recorded outcome; `order` names the processes as registered."""
    index = {name: i for i, name in enumerate(order)}
    return [
        Entry(
            Proposal(index.get(s.candidate.process, len(index)), s.ordinal, s.candidate),
            s.features,
            s.raw,
        )
        for s in outcome.scored
    ]


def decide(
    entries: Sequence[Entry], weights: Mapping[str, int], settings: MindSettings, mode: Mode
) -> Outcome:
    """Weigh, gate, rank and admit. Flip panel, dry-run and verify call this too."""
    signed = {name: _SIGN[name] * weight for name, weight in weights.items()}
    weighed = []
    for entry in entries:
        contributions = {k: signed[k] * v for k, v in entry.features.items()}
        score = sum(contributions.values())
        proposal = entry.proposal
        key = (-score, -entry.features.get("urgency", 0), proposal.process_index, proposal.ordinal)
        weighed.append((key, entry, contributions, score))
    weighed.sort(key=lambda w: w[0])
    k = min(mode.k, settings.capacity)
    allowed = mode.processes
    taken: set[str] = set()
    open_, gated = [], []
    for item in weighed:
        proposal = item[1].proposal
        candidate = proposal.candidate
        if allowed is not None and candidate.process not in allowed:
            gated.append((item, "mode"))
        elif proposal.ordinal >= settings.quota:
            gated.append((item, "quota"))
        elif candidate.key in taken:
            gated.append((item, "duplicate"))
        else:
            taken.add(candidate.key)
            open_.append((item, None))
    scored = []
    for rank, ((_, entry, contributions, score), gate) in enumerate((*open_, *gated), start=1):
        scored.append(
            Scored(
                candidate=entry.proposal.candidate,
                ordinal=entry.proposal.ordinal,
                features=entry.features,
                raw=entry.raw,
                contributions=contributions,
                score=score,
                gate=gate,
                rank=rank,
                admitted=gate is None and rank <= k and score >= settings.threshold,
            )
        )
    return Outcome(scored=tuple(scored), weights=weights, threshold=settings.threshold, k=k)

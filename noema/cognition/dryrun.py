"""The dry-run: which of the last admissions would have been different under other settings.

Each recorded cycle is decided again on its own, with the features on record. What the difference
would have led to is not carried on: with other admissions the mind would have become used to other
topics, other things would have waited, another mode might have been in force, and so the features
of the cycles after would have differed too. Nor do processes propose again, so a changed batch,
reflection interval or half-life of the workspace shows nothing here. Within those limits the answer
is exact.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec

from noema.cognition.attention import SCORER_VERSION, decide, effective_weights, entries_of
from noema.cognition.model import MindSettings, Scored
from noema.cognition.record import RecordedCycle
from noema.cognition.state import Modes


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """An admission: the candidate's event, its text and its score (weight times feature)."""

    id: UUID
    process: str
    text: str
    score: int


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A cycle that would have admitted others, best first; `gone` and `new` are the difference."""

    number: int
    cycle: UUID
    was: tuple[Chosen, ...]
    would: tuple[Chosen, ...]
    gone: tuple[UUID, ...]
    new: tuple[UUID, ...]


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What would have been different, over all the cycles looked at.

    `admissions` and `would_admit` count thoughts. `skipped` counts cycles of another scorer or of a
    mode that is not known, which cannot be decided again here.
    """

    cycles: int
    skipped: int
    admissions: int
    would_admit: int
    changed: int
    differences: tuple[Difference, ...]


def dry_run(cycles: Iterable[RecordedCycle], settings: MindSettings, modes: Modes) -> DryRun:
    """Return which of the cycles would have admitted other candidates under these settings.

    A cycle is decided in the mode it ran in, by that mode's row in `modes`.
    """
    looked_at = skipped = admissions = would_admit = 0
    differences = []
    for cycle in cycles:
        looked_at += 1
        would = decide_again(cycle, settings, modes)
        if would is None:
            skipped += 1
            continue
        was = [s for s in cycle.outcome.scored if s.admitted]
        admissions += len(was)
        would_admit += len(would)
        difference = _difference(cycle, was, would)
        if difference is not None:
            differences.append(difference)
    return DryRun(
        cycles=looked_at,
        skipped=skipped,
        admissions=admissions,
        would_admit=would_admit,
        changed=len(differences),
        differences=tuple(differences),
    )


def decide_again(cycle: RecordedCycle, settings: MindSettings, modes: Modes) -> list[Scored] | None:
    """Return what the cycle would have admitted, best first; None where that cannot be told."""
    mode = modes.get((cycle.mode, cycle.mode_version))
    if mode is None or cycle.scorer_version != SCORER_VERSION:
        return None
    entries = entries_of(cycle.outcome, cycle.processes)
    outcome = decide(entries, effective_weights(settings, mode), settings, mode)
    return [s for s in outcome.scored if s.admitted]


def _difference(
    cycle: RecordedCycle, was: Sequence[Scored], would: Sequence[Scored]
) -> Difference | None:
    ids = {
        (s.candidate.process, s.ordinal): event.id
        for s, event in zip(cycle.outcome.scored, cycle.candidates, strict=True)
    }
    before = tuple(_chosen(s, ids[s.candidate.process, s.ordinal]) for s in was)
    after = tuple(_chosen(s, ids[s.candidate.process, s.ordinal]) for s in would)
    had, has = {c.id for c in before}, {c.id for c in after}
    if had == has:
        return None
    return Difference(
        number=cycle.number,
        cycle=cycle.id,
        was=before,
        would=after,
        gone=tuple(c.id for c in before if c.id not in has),
        new=tuple(c.id for c in after if c.id not in had),
    )


def _chosen(scored: Scored, event: UUID) -> Chosen:
    candidate = scored.candidate
    return Chosen(id=event, process=candidate.process, text=candidate.text, score=scored.score)

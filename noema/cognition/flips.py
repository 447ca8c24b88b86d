"""The flip panel: the smallest single change that would have made another candidate win.

A score is a sum of integer products, so along one weight or one feature it is a straight line, and
the point from which another line is on top follows from integer differences alone. Every answer is
then run through `attention.decide` again, as it is and a hair (one micro-unit) less.

The winner is the candidate of rank 1, if it was admitted. Eligible is what a changed score could
put first: every candidate that passed the gates, and those stopped as duplicates only, since of two
with one key the better one passes. So a third candidate may win by the change, not the one that the
winner is compared with. A change after which nobody reaches the threshold is no flip.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from noema.cognition.attention import (
    MAX_WEIGHT,
    Entry,
    decide,
    effective_weight,
    effective_weights,
    entries_of,
)
from noema.cognition.model import FEATURES, MICRO, NEGATIVE, MindSettings, Mode, Outcome
from noema.core.errors import InvalidInput

_ELIGIBLE: Final = (None, "duplicate")


class Contribution(msgspec.Struct, frozen=True, kw_only=True):
    """One feature of the winner beside the other's: features in micro-units, amounts of the score.

    `lead` is how much of the margin comes from it; the leads sum up to the margin.
    """

    feature: str
    weight: int
    winner_feature: int
    against_feature: int
    winner: int
    against: int
    lead: int


class Flip(msgspec.Struct, frozen=True, kw_only=True, rename={"before": "from", "after": "to"}):
    """A smallest change. A weight's numbers are those of the saved weight, not the effective one.

    `candidate` is the index of the candidate whose feature changes, None for a weight;
    `new_winner` the index of who wins then. `size` is the change against the larger of the two
    numbers, in micro-units. `confirmed`: a re-run agreed that it flips, and a hair less does not.
    """

    kind: Literal["weight", "feature"]
    name: str
    candidate: int | None
    before: int
    after: int
    low: int
    high: int
    new_winner: int
    confirmed: bool
    size: int


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why the winner won. Candidates are indices into `outcome.scored`; scores are exact.

    `reason` says in a sentence why `flips` is empty, and is None where it is not.
    """

    winner: int | None
    against: int | None
    margin: int | None
    contributions: tuple[Contribution, ...]
    flips: tuple[Flip, ...]
    reason: str | None


def flips(
    outcome: Outcome,
    settings: MindSettings,
    mode: Mode,
    *,
    order: Sequence[str],
    instead: int | None = None,
) -> Why:
    """Return how the winner compares with another candidate, and what would have turned it.

    `settings` and `mode` are those the cycle ran under, `order` names the processes as registered;
    `instead` is the index of the candidate to compare with, by default the best that did not win.
    Weights and features are listed by the relative size of the change, the smallest first. Needs no
    I/O, but decides again twice per flip: milliseconds for a hundred candidates.

    Raises InvalidInput where there is no candidate `instead`.
    """
    scored = outcome.scored
    if instead is not None and not 0 <= instead < len(scored):
        raise InvalidInput("There is no such candidate in this cycle.", field="instead")
    if not scored:
        return _nothing(None, None, "Nothing was proposed in this cycle.")
    if not scored[0].admitted:
        return _nothing(
            None, instead, "Nothing was admitted in this cycle, so there is no winner to overtake."
        )
    if instead == 0:
        return _nothing(0, None, "This candidate is the winner; name another to compare it with.")
    against = instead
    if against is None:
        against = next((i for i, s in enumerate(scored) if i and s.gate is None), None)
    margin = None if against is None else scored[0].score - scored[against].score
    contributions = () if against is None else _compare(outcome, against)
    found: tuple[Flip, ...] = ()
    if against is not None and scored[against].gate not in _ELIGIBLE:
        gate = scored[against].gate
        reason = f"The gate {gate} stopped this candidate; no weight and no feature opens it."
    else:
        panel = _Panel(outcome, settings, mode, order)
        if not panel.others:
            reason = "No other candidate passed the gates, so nothing could have overtaken it."
        elif not panel.reproduces():
            reason = "This cycle was decided by other settings than those given."
        else:
            found = panel.all(against)
            reason = "No change of one weight or of one feature, within its bounds, turns it."
    return Why(
        winner=0,
        against=against,
        margin=margin,
        contributions=contributions,
        flips=found,
        reason=None if found else reason,
    )


def _nothing(winner: int | None, against: int | None, reason: str) -> Why:
    return Why(
        winner=winner, against=against, margin=None, contributions=(), flips=(), reason=reason
    )


def _compare(outcome: Outcome, against: int) -> tuple[Contribution, ...]:
    first, other = outcome.scored[0], outcome.scored[against]
    rows = []
    for name in FEATURES:
        ours, theirs = first.features.get(name, 0), other.features.get(name, 0)
        if ours or theirs:
            one, two = first.contributions.get(name, 0), other.contributions.get(name, 0)
            rows.append(
                Contribution(
                    feature=name,
                    weight=outcome.weights.get(name, 0),
                    winner_feature=ours,
                    against_feature=theirs,
                    winner=one,
                    against=two,
                    lead=one - two,
                )
            )
    return tuple(rows)


class _Line(msgspec.Struct, frozen=True, gc=False):
    """An eligible candidate: its score, its place in a tie (less is better) and its features."""

    index: int
    score: int
    tie: tuple[int, int, int]
    features: Mapping[str, int]


class _Panel:
    """One cycle, ready to be asked what turns it."""

    def __init__(
        self, outcome: Outcome, settings: MindSettings, mode: Mode, order: Sequence[str]
    ) -> None:
        self._settings = settings
        self._mode = mode
        self._weights = effective_weights(settings, mode)
        # The mode and quota gates look at no score: what they stopped can never be first.
        self._entries: dict[int, Entry] = {
            i: entry
            for i, entry in enumerate(entries_of(outcome, order))
            if outcome.scored[i].gate in _ELIGIBLE
        }
        self._places = {(s.candidate.process, s.ordinal): i for i, s in enumerate(outcome.scored)}
        lines = [
            _Line(
                i,
                outcome.scored[i].score,
                (
                    -entry.features.get("urgency", 0),
                    entry.proposal.process_index,
                    entry.proposal.ordinal,
                ),
                entry.features,
            )
            for i, entry in self._entries.items()
        ]
        self._winner = next(line for line in lines if line.index == 0)
        self.others = [line for line in lines if line.index != 0]
        self._lines = {line.index: line for line in lines}

    def reproduces(self) -> bool:
        """Whether these settings lead to the recorded winner."""
        return self._winner_of(self._entries, self._settings) == 0

    def all(self, against: int | None) -> tuple[Flip, ...]:
        found = [flip for name in FEATURES if (flip := self._of_weight(name)) is not None]
        moved = [] if against is None else [self._lines[against]]
        for name in FEATURES:
            if self._weights[name]:
                found.extend(f for line in moved if (f := self._of_rival(name, line)) is not None)
                lowered = self._of_winner(name)
                if lowered is not None:
                    found.append(lowered)
        # The sort is stable, so equals stay in the order of the features, weights first.
        return tuple(sorted(found, key=lambda f: (f.size, abs(f.after - f.before))))

    # -- weights -------------------------------------------------------------------------------

    def _of_weight(self, name: str) -> Flip | None:
        multiplier = self._mode.profile.get(name, MICRO)
        if multiplier <= 0:
            return None
        before = self._settings.weights.get(name, 0)
        targets = [
            after
            for direction in (-1, 1)
            if (after := self._weight_towards(name, direction, multiplier)) is not None
        ]
        if not targets:
            return None
        after = min(targets, key=lambda a: abs(a - before))
        closer = after + (1 if after < before else -1)
        new_winner = self._with_weight(name, after)
        return self._flip(
            "weight",
            name,
            None,
            (before, after),
            MAX_WEIGHT,
            new_winner,
            still=self._with_weight(name, closer),
        )

    def _weight_towards(self, name: str, direction: int, multiplier: int) -> int | None:
        """Return the nearest saved weight in that direction that flips, within its bounds."""
        sign = direction * (-1 if name in NEGATIVE else 1)
        first = self._overtaken_after(name, sign)
        if first is None:
            return None
        now = self._weights[name]
        steps = first
        # Where the mode multiplies a weight, its effective values have gaps; each turn of the loop
        # lands on one that exists, and what flips is at most two stretches long.
        while True:
            reached = self._ignites_from(name, sign, steps)
            if reached is None:
                return None
            effective = now + direction * reached
            if not 0 <= effective <= MAX_WEIGHT:
                return None
            if direction > 0:
                weight = -(-effective * MICRO // multiplier)
            else:
                weight = ((effective + 1) * MICRO - 1) // multiplier
            if weight > MAX_WEIGHT:
                return None
            steps = abs(effective_weight(weight, multiplier) - now)
            if steps == reached or self._ignites_from(name, sign, steps) == steps:
                return weight

    def _overtaken_after(self, name: str, sign: int) -> int | None:
        """Return after how many steps of the effective weight the winner is no longer on top."""
        best: int | None = None
        ours = self._winner.features.get(name, 0)
        for line in self.others:
            gain = sign * (line.features.get(name, 0) - ours)
            if gain > 0:
                gap = self._winner.score - line.score
                steps = -(-gap // gain) if line.tie < self._winner.tie else gap // gain + 1
                best = steps if best is None else min(best, steps)
        return best

    def _ignites_from(self, name: str, sign: int, steps: int) -> int | None:
        """Return the first number of steps, from the given one, at which anyone ignites."""
        best: int | None = None
        for line in self._lines.values():
            slope = sign * line.features.get(name, 0)
            missing = self._settings.threshold - (line.score + steps * slope)
            if missing <= 0:
                return steps
            if slope > 0:
                reached = steps - (-missing // slope)
                best = reached if best is None else min(best, reached)
        return best

    # -- features ------------------------------------------------------------------------------

    def _of_rival(self, name: str, line: _Line) -> Flip | None:
        """Return the smallest change of the rival's feature by which it wins itself."""
        step = -1 if name in NEGATIVE else 1
        gap = self._winner.score - line.score
        return self._of_feature(name, line, step, gap, self._winner, rises=True)

    def _of_winner(self, name: str) -> Flip | None:
        """Return the smallest change of the winner's feature by which it loses to the next one."""
        step = 1 if name in NEGATIVE else -1
        second = min(self.others, key=lambda other: (-other.score, other.tie))
        if second.score < self._settings.threshold:
            return None
        gap = self._winner.score - second.score
        return self._of_feature(name, self._winner, step, gap, second, rises=False)

    def _of_feature(
        self, name: str, line: _Line, step: int, gap: int, other: _Line, *, rises: bool
    ) -> Flip | None:
        weight = self._weights[name]
        before = line.features.get(name, 0)
        steps = gap // weight
        if steps * weight == gap:
            # It comes to a tie; who is ahead in one may itself hang on the urgency that changes.
            tie = line.tie
            if name == "urgency":
                tie = (-(before + step * steps), *tie[1:])
            turns = tie < other.tie if rises else other.tie < tie
            steps += not (turns and steps)
        else:
            steps += 1
        after = before + step * steps
        if not 0 <= after <= MICRO:
            return None
        return self._flip(
            "feature",
            name,
            line.index,
            (before, after),
            MICRO,
            self._with_feature(line.index, name, after),
            still=self._with_feature(line.index, name, after - step),
        )

    # -- the re-run ----------------------------------------------------------------------------

    def _flip(
        self,
        kind: Literal["weight", "feature"],
        name: str,
        candidate: int | None,
        change: tuple[int, int],
        high: int,
        new_winner: int | None,
        *,
        still: int | None,
    ) -> Flip | None:
        if new_winner is None:
            return None
        before, after = change
        return Flip(
            kind=kind,
            name=name,
            candidate=candidate,
            before=before,
            after=after,
            low=0,
            high=high,
            new_winner=new_winner,
            confirmed=new_winner != 0 and not self._is_flipped(still),
            size=abs(after - before) * MICRO // max(before, after, 1),
        )

    @staticmethod
    def _is_flipped(winner: int | None) -> bool:
        return winner is not None and winner != 0

    def _with_weight(self, name: str, weight: int) -> int | None:
        weights = {**self._settings.weights, name: weight}
        return self._winner_of(
            self._entries, msgspec.structs.replace(self._settings, weights=weights)
        )

    def _with_feature(self, index: int, name: str, value: int) -> int | None:
        entry = self._entries[index]
        changed = Entry(entry.proposal, {**entry.features, name: value}, entry.raw)
        return self._winner_of({**self._entries, index: changed}, self._settings)

    def _winner_of(self, entries: Mapping[int, Entry], settings: MindSettings) -> int | None:
        weights = effective_weights(settings, self._mode)
        decided = decide(list(entries.values()), weights, settings, self._mode)
        first = decided.scored[0]
        if not first.admitted:
            return None
        return self._places[first.candidate.process, first.ordinal]

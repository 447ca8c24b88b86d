"""Which terms of a query the index is asked for, and how that is written.

A query of six frequent words matches half a table, and reading that costs more than all else. So
rare terms come first, and frequent ones only as far as a budget of rows goes. Those left out still
count when the rows found are scored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

MAX_TERMS: Final = 64
"""How many terms of a query count at all; the rarest ones do."""

BUDGET: Final = 2_000
"""How many rows the terms asked for may match together, as far as statistics tell."""

MAX_FENCE: Final = 16
"""Up to so many namespaces are lexemes of the query; beyond, the index is entered by the terms."""

GROUPS: Final = 4
# Where statistics know nothing of a term, or there are none yet.
_UNKNOWN: Final = 0.001
_NOTHING: Final = "'@'"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to ask: `strict` first, `loose` where that finds too little; None where it is the same.

    `groups` are terms of like rarity and `weights` what a match in each is worth, for the order in
    which rows enter the pool. `terms` are all that count in scoring.
    """

    strict: str
    loose: str | None
    terms: tuple[str, ...]
    groups: tuple[str, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Frequencies:
    """In what share of all memories the commonest terms are; `rest` bounds that of the others."""

    known: Mapping[str, float]
    rest: float = _UNKNOWN

    def of(self, term: str) -> float:
        return self.known.get(term, self.rest)


def quoted(lexeme: str) -> str:
    """Return the lexeme as a literal of tsquery."""
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"


def any_of(lexemes: Sequence[str]) -> str:
    return "(" + " | ".join(quoted(lexeme) for lexeme in lexemes) + ")"


def all_of(lexemes: Sequence[str]) -> str:
    return "(" + " & ".join(quoted(lexeme) for lexeme in lexemes) + ")"


def fence(namespaces: Sequence[str]) -> str:
    """Return what must hold besides the terms for the index to be entered by namespace; or ""."""
    if len(namespaces) > MAX_FENCE:
        return ""
    return any_of(["@" + namespace for namespace in namespaces]) + " & "


def plan(terms: Sequence[str], frequencies: Frequencies, visible: int) -> Plan:
    """Choose among distinct terms; `visible` is how many rows the caller may see."""
    rarest = sorted(terms, key=lambda term: (frequencies.of(term), term))[:MAX_TERMS]
    matches = [max(1.0, frequencies.of(term) * visible) for term in rarest]
    chosen, together = 1, matches[0]
    while chosen < len(rarest) and min(visible, together + matches[chosen]) <= BUDGET:
        together += matches[chosen]
        chosen += 1
    loose = any_of(rarest[:chosen])
    strict = None
    if min(visible, together) > BUDGET and len(rarest) > 1:
        # Even the rarest is everywhere: ask for rows that have several of them at once.
        with_all = 1
        while with_all < len(rarest) and together > BUDGET:
            together *= frequencies.of(rarest[with_all])
            with_all += 1
        strict = all_of(rarest[:with_all])
    groups, weights = _groups(rarest, frequencies)
    return Plan(strict or loose, loose if strict else None, tuple(rarest), groups, weights)


def _groups(
    rarest: Sequence[str], frequencies: Frequencies
) -> tuple[tuple[str, ...], tuple[float, ...]]:
    size = -(-len(rarest) // GROUPS)
    groups, weights = [], []
    for begin in range(0, len(rarest), size):
        members = rarest[begin : begin + size]
        worth = sum(log(1 + 1 / max(frequencies.of(term), 1e-6)) for term in members)
        groups.append(any_of(members))
        # ts_rank divides by the number of terms, so the sum of the weights is that of the group.
        weights.append(worth)
    missing = GROUPS - len(groups)
    return (*groups, *[_NOTHING] * missing), (*weights, *[0.0] * missing)

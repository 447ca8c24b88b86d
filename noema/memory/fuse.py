"""From what the lanes found to one order: a weighted sum whose every part is on record.

    score = Σ weight × component          both from 0 to 1, the weights adding up to 1

Text and vector are scaled within the query, by the best of its candidates; the rest mean the same
in every query. The sum is always added up in one order, and equal scores are ordered by id, so the
same candidates are always ranked the same.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

from noema.memory.model import MICRO, Components

WEIGHTS: Final[Mapping[str, float]] = {
    "text": 1.0,
    # Times the embedder's own weight: hashing knows spelling, a model knows meaning.
    "vector": 1.0,
    "graph": 0.1,
    "recency": 0.05,
    "importance": 0.05,
    "activation": 0.03,
}
"""What each component is worth before all are divided by their sum."""

HALF_LIFE_DAYS: Final = 30.0
NEAR: Final = 0.5
"""Worth of what is one relationship away from what the query names, which itself is worth 1."""

CHARS_PER_TOKEN: Final = 4
_DAY_S: Final = 86_400.0


class Signals(NamedTuple):
    """What is known of one candidate before it is compared with the others.

    `text` is BM25 with the conversation around it, `bm25` that of the row alone; `cosine` is None
    where it has no vector. `at` is when it happened, or else when we were told. `importance` and
    `activation` are micro-units, `nearness` is 2, 1 or 0 relationships short of unrelated.
    """

    id: UUID
    text: float
    bm25: float
    cosine: float | None
    at: datetime
    importance: int
    activation: int
    nearness: int = 0


class Scored(NamedTuple):
    """A candidate's place in the order, and why."""

    id: UUID
    score: float
    components: Components


def fuse(
    candidates: Sequence[Signals], *, k: int, now: datetime, vector_weight: float | None
) -> list[Scored]:
    """Return the `k` best candidates, best first.

    `vector_weight` is the embedder's, 0 to 1; None where there is no vector lane at all.
    """
    weights = _weights(vector_weight)
    most_text = max((c.text for c in candidates), default=0.0)
    most_near = max((c.cosine for c in candidates if c.cosine is not None), default=0.0)
    ranked = []
    for c in candidates:
        parts = (
            c.text / most_text if most_text > 0 else 0.0,
            max(0.0, c.cosine) / most_near if c.cosine is not None and most_near > 0 else 0.0,
            (0.0, NEAR, 1.0)[c.nearness],
            recency(c.at, now),
            c.importance / MICRO,
            c.activation / MICRO,
        )
        ranked.append((-_weighed(weights, parts), c.id, parts, c))
    ranked.sort(key=itemgetter(0, 1))
    named = dict(zip(WEIGHTS, weights, strict=True))
    return [
        Scored(
            c.id,
            -negated,
            Components(
                **dict(zip(WEIGHTS, parts, strict=True)),
                bm25=c.bm25,
                cosine=c.cosine,
                weights=named,
            ),
        )
        for negated, _, parts, c in ranked[:k]
    ]


def recency(at: datetime, now: datetime) -> float:
    """Return 0.5 to the power of age in half-lives; 1 for what lies ahead."""
    age_days = max(0.0, (now - at).total_seconds()) / _DAY_S
    return float(0.5 ** (age_days / HALF_LIFE_DAYS))


def _weights(vector_weight: float | None) -> tuple[float, ...]:
    """Return the weights in the order of `WEIGHTS`, adding up to 1."""
    trusted = min(1.0, max(0.0, vector_weight or 0.0))
    raw = [w * trusted if name == "vector" else w for name, w in WEIGHTS.items()]
    total = sum(raw)
    return tuple(weight / total for weight in raw)


def _weighed(weights: Sequence[float], parts: Sequence[float]) -> float:
    """Return the sum of the products, always added up in the same order."""
    total = 0.0
    for weight, part in zip(weights, parts, strict=True):
        total += weight * part
    return total


def tokens(text: str) -> int:
    """Return about how many tokens a text is: a guardrail, no accounting."""
    return -(-len(text) // CHARS_PER_TOKEN)


def trim(costs: Sequence[int], budget: int | None) -> list[int]:
    """Return which of the ranked rows fit the budget, by their place.

    Greedy from the top: the first is kept whatever it costs; a later one that does not fit is left
    out whole, and those after it may still fit.
    """
    kept: list[int] = []
    spent = 0
    for place, cost in enumerate(costs):
        if kept and budget is not None and spent + cost > budget:
            continue
        kept.append(place)
        spent += cost
    return kept

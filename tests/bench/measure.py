"""What a benchmark hands back, and how two things are measured side by side.

A shared machine has no absolute figures. So ours and its limit take turns in one run, round by
round, and what counts is the ratio of their medians.
"""

from collections.abc import Awaitable, Callable, Sequence
from statistics import median

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report; `target` is what ours / limit must reach or must not exceed."""

    name: str
    ours: float
    limit: float
    unit: str
    higher_is_better: bool
    target: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.limit if self.limit else float("inf")

    @property
    def is_reached(self) -> bool:
        """Whether the target holds; true where there is none."""
        if self.target is None:
            return True
        return self.ratio >= self.target if self.higher_is_better else self.ratio <= self.target


def spread(values: Sequence[float]) -> str:
    """Return the least and the most of the rounds, for people who wonder about the noise."""
    return f"{min(values):,.0f} to {max(values):,.0f}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that the share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def side_by_side(
    ours: Callable[[], Awaitable[float]], limit: Callable[[], Awaitable[float]], *, rounds: int
) -> tuple[list[float], list[float]]:
    """Run both once to warm up, then in turns; return the rounds of each.

    Who goes first changes every round, so that neither always finds the caches warm.
    """
    await ours()
    await limit()
    mine: list[float] = []
    theirs: list[float] = []
    for number in range(rounds):
        if number % 2:
            theirs.append(await limit())
            mine.append(await ours())
        else:
            mine.append(await ours())
            theirs.append(await limit())
    return mine, theirs


def compared(
    name: str, mine: Sequence[float], theirs: Sequence[float], *, unit: str, target: float
) -> Figure:
    """Return the figure of two rates, higher being better."""
    return Figure(
        name=name,
        ours=median(mine),
        limit=median(theirs),
        unit=unit,
        higher_is_better=True,
        target=target,
        note=f"rounds {spread(mine)}, limit {spread(theirs)}",
    )

"""Geometry of spend over time: amounts per day in, SVG coordinates out; see `charts`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

COLOURS: Final = 8
"""How many series have a colour of their own; the last is what all others share."""

_STEPS: Final = (1, 2, 4, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What one series took on one day; `place` is its colour."""

    place: int
    day: date
    amount: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A day on which the cost of some calls is not known."""

    day: date
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendChart:
    """Stacked bars, oldest day at the left, on an axis from 0 to `top`; marks stand above them."""

    width: int
    height: int
    top: int
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]


def round_up(amount: int) -> int:
    """Return the next number that an axis ends with: 1, 2, 4 or 5 and zeros; even beyond 1."""
    size = 1
    while size * 10 < amount:
        size *= 10
    return next(step * size for step in _STEPS if step * size >= amount)


def spend_chart(
    days: Sequence[date],
    amounts: Mapping[tuple[date, int], int],
    unknown: Sequence[date] = (),
    *,
    width: int = 1000,
    height: int = 200,
) -> SpendChart:
    """Return the bars for amounts by day and place; what is on no day of `days` is left out."""
    sums = dict.fromkeys(days, 0)
    for (day, _), amount in amounts.items():
        if day in sums:
            sums[day] += amount
    top = round_up(max([1, *sums.values()]))
    slot = width / max(1, len(days))
    gap = slot * (0.14 if len(days) <= 120 else 0.04)
    bars = []
    for i, day in enumerate(days):
        base = float(height)
        for place in range(COLOURS):
            amount = amounts.get((day, place), 0)
            if amount <= 0:
                continue
            tall = amount * height / top
            base -= tall
            bars.append(
                Bar(
                    place=place,
                    day=day,
                    amount=amount,
                    x=round(i * slot + gap, 2),
                    y=round(max(0.0, base), 2),
                    width=round(slot - 2 * gap, 2),
                    height=round(tall, 2),
                )
            )
    marked = set(unknown)
    marks = tuple(
        Mark(day=day, x=round(i * slot + gap, 2), width=round(slot - 2 * gap, 2))
        for i, day in enumerate(days)
        if day in marked
    )
    return SpendChart(width=width, height=height, top=top, bars=tuple(bars), marks=marks)

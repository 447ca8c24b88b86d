"""Geometry of the inline charts: numbers in, SVG coordinates out; no colour, no markup.

Coordinates are plain numbers with at most two decimals. Colours are classes, because the content
security policy forbids inline style.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p

from noema.web.views import Candidate, Contribution, CycleRow, Span

HEAT_STEPS = 10


def heat(amount: int, largest: int) -> str:
    """Return the class of a cell: `heat-0` to `heat-9`, `cold-0` to `cold-9`, or `` for zero.

    The scale is linear in |amount| up to `largest`, the largest magnitude in the table.
    """
    if amount == 0 or largest <= 0:
        return ""
    step = min(HEAT_STEPS - 1, abs(amount) * HEAT_STEPS // largest)
    return f"{'heat' if amount > 0 else 'cold'}-{step}"


def percent(value: int, whole: int) -> float:
    """Return value in hundredths of whole, within 0 and 100."""
    if whole <= 0:
        return 0.0
    return round(max(0.0, min(100.0, 100 * value / whole)), 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A line and the area under it, in a box of `width` by `height`."""

    width: int
    height: int
    line: str
    area: str
    peak: int
    last: int
    total: int
    end_x: float
    end_y: float


def sparkline(values: Sequence[int], width: int = 120, height: int = 24) -> Sparkline:
    """Return the line through the values, oldest at the left; the highest touches the top."""
    points = list(values) or [0]
    peak = max(points)
    scale = (height - 3) / peak if peak > 0 else 0.0
    step = width / max(1, len(points) - 1)
    marks = [(round(i * step, 2), round(height - 1.5 - v * scale, 2)) for i, v in enumerate(points)]
    line = " ".join(f"{x},{y}" for x, y in marks)
    return Sparkline(
        width=width,
        height=height,
        line=line,
        area=f"0,{height} {line} {width},{height}",
        peak=peak,
        last=points[-1],
        total=sum(points),
        end_x=marks[-1][0],
        end_y=marks[-1][1],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One contribution in a stacked bar."""

    feature: str
    x: float
    width: float
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One candidate's bar: negatives left of zero, positives right, a tick at the score."""

    candidate: Candidate
    segments: tuple[Segment, ...]
    score_x: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """All bars of a cycle on one scale from 0 to 1000, with zero and the threshold marked."""

    bars: tuple[Stack, ...]
    zero_x: float
    threshold_x: float
    features: tuple[str, ...]


STACK_WIDTH = 1000


def stacks(candidates: Sequence[Candidate], threshold: int) -> Stacks:
    """Return the stacked bars; the features named are those that contribute anywhere."""
    above = max([threshold, 1, *(_side(c.contributions, 1) for c in candidates)])
    below = max([0, -threshold, *(_side(c.contributions, -1) for c in candidates)])
    unit = STACK_WIDTH / (above + below)
    zero = below * unit
    bars = tuple(
        Stack(
            candidate=c,
            segments=_segments(c.contributions, zero, unit),
            score_x=round(zero + c.score * unit, 2),
        )
        for c in candidates
    )
    seen = {s.feature for bar in bars for s in bar.segments}
    order = [part.feature for c in candidates[:1] for part in c.contributions]
    return Stacks(
        bars=bars,
        zero_x=round(zero, 2),
        threshold_x=round(zero + threshold * unit, 2),
        features=tuple(f for f in order if f in seen),
    )


def _side(parts: Sequence[Contribution], sign: int) -> int:
    return sum(abs(p.amount) for p in parts if p.amount * sign > 0)


def _segments(parts: Sequence[Contribution], zero: float, unit: float) -> tuple[Segment, ...]:
    right = left = zero
    out: list[Segment] = []
    for part in parts:
        width = abs(part.amount) * unit
        if part.amount > 0:
            x, right = right, right + width
        elif part.amount < 0:
            left -= width
            x = left
        else:
            continue
        out.append(
            Segment(feature=part.feature, x=round(x, 2), width=round(width, 2), amount=part.amount)
        )
    return tuple(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallBar:
    """One span in hundredths of the whole; `width` is never too thin to see."""

    span: Span
    x: float
    width: float


def waterfall(spans: Sequence[Span], total_us: int) -> tuple[WaterfallBar, ...]:
    """Return one bar per span on a common axis that ends with the later of total and last span."""
    end = max([total_us, 1, *(s.start_us + s.duration_us for s in spans)])
    bars = []
    for span in spans:
        width = max(0.6, percent(span.duration_us, end))
        bars.append(
            WaterfallBar(span=span, x=min(percent(span.start_us, end), 100 - width), width=width)
        )
    return tuple(bars)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One cycle in the timeline strip."""

    row: CycleRow
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Cycles as bars, oldest at the left; the height is the logarithm of the duration."""

    width: int
    height: int
    ticks: tuple[Tick, ...]


def timeline(rows: Sequence[CycleRow], width: int = 1200, height: int = 64) -> Timeline:
    """Return the strip for rows that come newest first."""
    ordered = list(reversed(rows))
    longest = max((log1p(r.duration_us / 1000) for r in ordered), default=0.0) or 1.0
    slot = width / max(40, len(ordered))
    start = width - slot * len(ordered)
    ticks = []
    for i, row in enumerate(ordered):
        tall = max(4.0, (height - 8) * log1p(row.duration_us / 1000) / longest)
        ticks.append(
            Tick(
                row=row,
                x=round(start + i * slot + slot * 0.12, 2),
                y=round(height - tall, 2),
                width=round(slot * 0.76, 2),
                height=round(tall, 2),
            )
        )
    return Timeline(width=width, height=height, ticks=tuple(ticks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """A change from one value to another on a track of 100."""

    before: float
    after: float
    left: float
    width: float


def slider(before: int, after: int, low: int, high: int) -> Slider:
    """Return where both values stand between low and high."""
    a, b = percent(before - low, high - low), percent(after - low, high - low)
    return Slider(before=a, after=b, left=min(a, b), width=round(abs(a - b), 2))

"""Geometry of the pictures of memory: numbers in, SVG coordinates out; no colour, no markup."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from noema.web.memory_views import MemoryLine, ScorePart, State, Version

BAR_WIDTH: Final = 1000
_DRAWN: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSegment:
    """One component in a bar."""

    part: ScorePart
    x: float
    width: float


def score_bar(line: MemoryLine, largest: float) -> tuple[ScoreSegment, ...]:
    """Return the components of a line side by side, on a scale where `largest` is 1000 wide.

    What takes away from a score is left out: there is nothing of it to draw.
    """
    segments = []
    x = 0.0
    for part in line.parts:
        if part.amount <= 0 or largest <= 0:
            continue
        width = BAR_WIDTH * part.amount / largest
        segments.append(ScoreSegment(part=part, x=round(x, 2), width=round(width, 2)))
        x += width
    return tuple(segments)


def largest_score(lines: Sequence[MemoryLine]) -> float:
    """Return the largest score of the lines, or of what adds to it."""
    sums = [sum(max(0.0, p.amount) for p in line.parts) for line in lines]
    return max([0.0, *sums, *(line.score or 0.0 for line in lines)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A moment on an axis; None is now."""

    at: datetime | None
    place: float
    is_low: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """For which valid times, and as known when, a version held."""

    version: Version
    state: State
    x: float
    y: float
    width: float
    height: float
    is_named: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """When what a version tells of happened, at the time it was told."""

    version: Version
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bitemporal:
    """A chain in two times: valid time to the right, assertion time upwards.

    Neighbouring moments stand equally far apart, whatever lies between them.
    """

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    across: tuple[Tick, ...]
    upwards: tuple[Tick, ...]
    areas: tuple[Area, ...]
    marks: tuple[Mark, ...]
    left_out: int


def bitemporal(versions: Sequence[Version], now: datetime) -> Bitemporal:
    """Return the picture of the newest versions of a chain, which come newest first.

    A version is believed for all time from its start until it is known to have ended; from then on
    for the interval alone. That is known when its successor was told, or else when it ended.
    """
    drawn = sorted(versions[:_DRAWN], key=lambda v: v.number)
    closings = [_known_end(drawn, i) for i in range(len(drawn))]
    starts = [v.valid_from for v in drawn]
    ends = [v.valid_to for v in drawn if v.valid_to is not None]
    events = [v.event_time for v in drawn if v.event_time is not None]
    moments_x = _moments([*starts, *ends, *events], now)
    moments_y = _moments([*(v.told_at for v in drawn), *(c for c in closings if c)], now)
    left, top, right = 128.0, 14.0, 700.0
    bottom = top + max(64.0, 46.0 * (len(moments_y) - 1))
    x_of = _scale(moments_x, left, right)
    y_of = _scale(moments_y, bottom, top)
    areas: list[Area] = []
    for version, closed in zip(drawn, closings, strict=True):
        areas.extend(_areas(version, closed, now, x_of, y_of))
    crowded = len(moments_x) > _DRAWN
    return Bitemporal(
        width=760,
        height=bottom + (56 if crowded else 40),
        left=left,
        right=right,
        top=top,
        bottom=bottom,
        across=tuple(
            Tick(at=_past(m, now), place=x_of[m], is_low=crowded and i % 2 == 1)
            for i, m in enumerate(moments_x)
        ),
        upwards=tuple(Tick(at=_past(m, now), place=y_of[m]) for m in moments_y),
        areas=tuple(areas),
        marks=tuple(
            Mark(version=v, x=x_of[v.event_time], y=y_of[min(v.told_at, now)])
            for v in drawn
            if v.event_time is not None and v.event_time in x_of
        ),
        left_out=len(versions) - len(drawn),
    )


def _known_end(drawn: Sequence[Version], index: int) -> datetime | None:
    version = drawn[index]
    if version.valid_to is None:
        return None
    if index + 1 < len(drawn):
        return max(version.told_at, drawn[index + 1].told_at)
    return max(version.told_at, version.valid_to)


def _moments(found: Sequence[datetime], now: datetime) -> list[datetime]:
    return sorted({*(m for m in found if m < now), now})


def _past(moment: datetime, now: datetime) -> datetime | None:
    return None if moment == now else moment


def _scale(moments: Sequence[datetime], first: float, last: float) -> dict[datetime, float]:
    step = (last - first) / max(1, len(moments) - 1)
    return {m: round(first + i * step, 2) for i, m in enumerate(moments)}


def _areas(
    version: Version,
    closed: datetime | None,
    now: datetime,
    x_of: dict[datetime, float],
    y_of: dict[datetime, float],
) -> list[Area]:
    told, start = min(version.told_at, now), min(version.valid_from, now)
    spans = [(start, now, told, min(closed or now, now))]
    if closed is not None and version.valid_to is not None:
        spans.append((start, min(version.valid_to, now), min(closed, now), now))
    areas: list[Area] = []
    for from_x, to_x, from_y, to_y in spans:
        width, height = x_of[to_x] - x_of[from_x], y_of[from_y] - y_of[to_y]
        if width > 0 and height > 0:
            areas.append(
                Area(
                    version=version,
                    state=version.state,
                    x=x_of[from_x],
                    y=y_of[to_y],
                    width=round(width, 2),
                    height=round(height, 2),
                    is_named=not areas,
                )
            )
    return areas

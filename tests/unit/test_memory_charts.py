"""The pictures of memory: bars that add up, and versions that share out two times."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.web.memory_charts import Area, bitemporal, largest_score, score_bar
from noema.web.memory_views import Labels, MemoryLine, ScorePart, Version

T0 = datetime(2026, 1, 1, tzinfo=UTC)
NOW = T0 + timedelta(days=100)


def part(name: str, value: float, weight: float) -> ScorePart:
    return ScorePart(name=name, label=name, value=value, weight=weight, amount=value * weight)


def line(*parts: ScorePart) -> MemoryLine:
    return MemoryLine(
        id="m", text="text", kind="fact", namespace="home", state="current", valid_from=T0,
        valid_to=None, told_at=T0, source="", route="manual", trust=50, speaker=None,
        labels=Labels(sensitivity="internal"), is_shared=False,
        score=sum(p.amount for p in parts), parts=parts,
    )  # fmt: skip


def version(
    number: int,
    start: int,
    end: int | None,
    *,
    told: int | None = None,
    happened: int | None = None,
) -> Version:
    """Return a version; the moments are days from the first."""

    def at(day: int | None) -> datetime | None:
        return None if day is None else T0 + timedelta(days=day)

    return Version(
        number=number, id=f"v{number}", text=f"version {number}", state="current",
        valid_from=T0 + timedelta(days=start), valid_to=at(end),
        told_at=T0 + timedelta(days=start if told is None else told), event_time=at(happened),
        actor="user:ada", is_this=False,
    )  # fmt: skip


def chain(days: list[int]) -> list[Version]:
    """Return versions that follow each other, newest first."""
    ends: list[int | None] = [*days[1:], None]
    made = [version(i + 1, a, b) for i, (a, b) in enumerate(zip(days, ends, strict=True))]
    return made[::-1]


class TestScores:
    def test_segments_lie_side_by_side_and_the_largest_fills_the_bar(self) -> None:
        best, other = (
            line(part("text", 1.0, 0.6), part("vector", 0.5, 0.4)),
            line(part("text", 0.5, 0.6)),
        )

        largest = largest_score([best, other])
        bar = score_bar(best, largest)

        assert [(s.part.name, s.x, s.width) for s in bar] == [
            ("text", 0.0, 750.0), ("vector", 750.0, 250.0),
        ]  # fmt: skip
        assert score_bar(other, largest)[0].width == 375.0

    def test_what_adds_nothing_takes_no_room(self) -> None:
        assert score_bar(line(part("graph", 0.0, 0.1)), 1.0) == ()
        assert score_bar(line(part("text", 1.0, 1.0)), 0.0) == ()

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
    def test_the_widths_are_the_score_in_thousandths(self, values: list[float]) -> None:
        shown = line(*(part(f"p{i}", v, 0.2) for i, v in enumerate(values)))

        bar = score_bar(shown, 2.0)

        assert sum(s.width for s in bar) == pytest.approx((shown.score or 0.0) * 500, abs=0.05)


class TestTwoTimes:
    def test_one_version_is_believed_from_its_start_on_since_it_was_told(self) -> None:
        shown = bitemporal([version(1, 10, None)], NOW)

        (area,) = shown.areas
        assert (area.x, area.width) == (shown.left, shown.right - shown.left)
        assert (area.y, area.height) == (shown.top, shown.bottom - shown.top)
        assert [t.at for t in shown.across] == [T0 + timedelta(days=10), None]

    def test_a_superseded_version_is_believed_for_its_interval_alone_afterwards(self) -> None:
        shown = bitemporal(chain([0, 40]), NOW)

        first = [a for a in shown.areas if a.version.number == 1]
        second = [a for a in shown.areas if a.version.number == 2]
        assert [(a.x, a.width) for a in first] == [
            (shown.left, shown.right - shown.left), (shown.left, second[0].x - shown.left),
        ]  # fmt: skip
        assert first[0].y == second[0].y + second[0].height

    def test_what_happened_earlier_is_marked_at_the_time_it_was_told(self) -> None:
        shown = bitemporal([version(1, 10, None, happened=2)], NOW)

        (mark,) = shown.marks
        assert (mark.x, mark.y) == (shown.left, shown.bottom)
        assert shown.areas[0].x > mark.x

    def test_times_to_come_are_drawn_up_to_now(self) -> None:
        shown = bitemporal([version(1, 10, 400, told=10, happened=300)], NOW)

        assert all(a.x + a.width <= shown.right for a in shown.areas)
        assert shown.marks == ()

    def test_of_a_long_chain_the_newest_are_drawn(self) -> None:
        shown = bitemporal(chain(list(range(0, 90, 10))), NOW)

        assert shown.left_out == 3
        assert {a.version.number for a in shown.areas} == {4, 5, 6, 7, 8, 9}

    @given(st.lists(st.integers(0, 99), min_size=1, max_size=6, unique=True))
    def test_no_two_versions_claim_the_same_moment_of_both_times(self, days: list[int]) -> None:
        shown = bitemporal(chain(sorted(days)), NOW)

        for i, one in enumerate(shown.areas):
            for other in shown.areas[i + 1 :]:
                assert not overlap(one, other)
        whole = (shown.right - shown.left) * (shown.bottom - shown.top)
        assert sum(a.width * a.height for a in shown.areas) == pytest.approx(whole, rel=0.001)


def overlap(one: Area, other: Area) -> bool:
    slack = 0.02
    across = one.x + slack < other.x + other.width and other.x + slack < one.x + one.width
    upwards = one.y + slack < other.y + other.height and other.y + slack < one.y + one.height
    return across and upwards

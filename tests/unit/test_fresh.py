"""What was looked up a moment ago is not looked up again, and never older than was said."""

import asyncio
from datetime import UTC, datetime

import pytest

from noema.core.clock import ManualClock
from noema.core.errors import Unavailable
from noema.core.fresh import Fresh
from tests.helpers import eventually


class Source:
    """Counts how often it is asked; answers how often that was."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self) -> int:
        self.asked += 1
        mine = self.asked
        await self.may_answer.wait()
        return mine


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


async def test_an_answer_is_kept_for_as_long_as_was_said(
    clock: ManualClock, source: Source
) -> None:
    fresh: Fresh[str, int] = Fresh(clock, for_s=0.5)

    assert await fresh.get("a", source) == 1
    clock.advance(0.4)
    assert await fresh.get("a", source) == 1
    clock.advance(0.2)
    assert await fresh.get("a", source) == 2


async def test_of_many_who_want_the_same_at_once_one_asks(
    clock: ManualClock, source: Source
) -> None:
    fresh: Fresh[str, int] = Fresh(clock)
    source.may_answer.clear()
    async with asyncio.TaskGroup() as group:
        same = [group.create_task(fresh.get("a", source)) for _ in range(20)]
        await eventually(lambda: source.asked == 1)
        other = group.create_task(fresh.get("b", source))
        await eventually(lambda: source.asked == 2)
        source.may_answer.set()

    assert [task.result() for task in same] == [1] * 20
    assert other.result() == 2


async def test_what_was_asked_for_before_a_change_is_not_kept(
    clock: ManualClock, source: Source
) -> None:
    fresh: Fresh[str, int] = Fresh(clock)
    source.may_answer.clear()
    async with asyncio.TaskGroup() as group:
        before = group.create_task(fresh.get("a", source))
        await eventually(lambda: source.asked == 1)
        fresh.forget()
        after = group.create_task(fresh.get("a", source))
        source.may_answer.set()

    assert (before.result(), after.result()) == (1, 2)
    assert await fresh.get("a", source) == 2


async def test_what_fails_or_is_given_up_is_asked_for_by_the_next(
    clock: ManualClock, source: Source
) -> None:
    fresh: Fresh[str, int] = Fresh(clock)

    async def fails() -> int:
        raise Unavailable("Away.")

    with pytest.raises(Unavailable):
        await fresh.get("a", fails)
    source.may_answer.clear()
    async with asyncio.TaskGroup() as group:
        gives_up = group.create_task(fresh.get("a", source))
        await eventually(lambda: source.asked == 1)
        waits = group.create_task(fresh.get("a", source))
        gives_up.cancel()
        source.may_answer.set()

    assert waits.result() == 2


async def test_no_more_is_kept_than_was_said(clock: ManualClock, source: Source) -> None:
    fresh: Fresh[int, int] = Fresh(clock, most=2)

    for key in (1, 2, 3):
        await fresh.get(key, source)

    assert await fresh.get(3, source) == 3
    assert await fresh.get(1, source) == 4

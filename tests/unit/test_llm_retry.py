"""Who is asked next, after how long, and when it is given up."""

from datetime import UTC, datetime
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.core.clock import ManualClock
from noema.core.errors import Unavailable
from noema.llm.errors import AttemptFailed, BudgetExceeded, NoModel
from noema.llm.model import Completion, Entry
from noema.llm.retry import TRIES, Retrier, pause_s
from tests.llm_scripted import Switch, entry, fails, says

Outcome = Completion | Exception


class Walk:
    """A chain of entries whose attempts are scripted by name, on a clock that a test moves."""

    def __init__(self, takes_s: float = 0.0, **script: list[Outcome]) -> None:
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.entries = [entry(name, n + 1) for n, name in enumerate(script)]
        self.script = script
        self.switches: dict[UUID, Switch] = {e.provider: Switch() for e in self.entries}
        self.asked: list[tuple[str, float]] = []
        self.given: list[float] = []
        self.skips: list[tuple[str, str]] = []
        self.takes_s = takes_s

    def switch(self, name: str) -> Switch:
        return next(self.switches[e.provider] for e in self.entries if e.name == name)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.asked]

    async def _try_once(self, one: Entry, left_s: float) -> Completion:
        self.asked.append((one.name, self.clock.monotonic()))
        self.given.append(left_s)
        self.clock.advance(min(self.takes_s, left_s))
        outcome = self.script[one.name].pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def answer(self, within_s: float = 60.0) -> str:
        retrier = Retrier(
            clock=self.clock, chance=Random(1), breaker_of=lambda e: self.switches[e.provider]
        )
        _, completion = await retrier.answer(
            self.entries,
            ends_at=self.clock.monotonic() + within_s,
            try_once=self._try_once,
            skipped=lambda one, why: self.skips.append((one.name, why)),
        )
        return completion.text


async def test_the_primary_answers_and_nobody_else_is_asked() -> None:
    walk = Walk(primary=[says("one")], second=[says("two")])

    assert await walk.answer() == "one"

    assert walk.names == ["primary"]


async def test_what_may_pass_is_tried_again_at_the_same_provider_and_then_at_the_next() -> None:
    walk = Walk(primary=[fails()] * TRIES, second=[fails(), says("two")])

    assert await walk.answer() == "two"

    assert walk.names == ["primary"] * TRIES + ["second"] * 2


async def test_what_will_not_pass_goes_to_the_next_at_once() -> None:
    walk = Walk(primary=[fails(retryable=False, status=401)], second=[says("two")])

    assert await walk.answer() == "two"

    assert walk.asked == [("primary", 0.0), ("second", 0.0)]


async def test_a_pause_that_the_provider_asks_for_is_kept() -> None:
    walk = Walk(primary=[fails(status=429, retry_after_s=7.0), says("one")])

    assert await walk.answer() == "one"

    assert walk.asked[1][1] >= 7.0
    assert walk.switch("primary").failures == []


async def test_a_pause_longer_than_the_time_left_is_not_waited_for_and_opens_the_circuit() -> None:
    walk = Walk(primary=[fails(status=429, retry_after_s=3600.0)], second=[says("two")])

    assert await walk.answer(within_s=10.0) == "two"

    assert walk.asked == [("primary", 0.0), ("second", 0.0)]
    assert walk.switch("primary").failures == [("It broke.", 3600.0)]


async def test_whoever_rests_is_skipped_and_the_reason_is_noted() -> None:
    walk = Walk(primary=[], second=[says("two")])
    walk.switch("primary").is_open = True

    assert await walk.answer() == "two"

    assert walk.names == ["second"]
    assert [name for name, _ in walk.skips] == ["primary"]


async def test_one_that_hangs_leaves_half_of_the_time_for_its_fallback() -> None:
    walk = Walk(takes_s=1_000.0, primary=[fails(status=None)], second=[says("two")])

    assert await walk.answer(within_s=60.0) == "two"

    assert walk.given == pytest.approx([30.0, 30.0])


async def test_whoever_is_last_may_take_all_that_is_left() -> None:
    walk = Walk(primary=[says("one")], second=[])
    walk.switch("second").is_open = True

    await walk.answer(within_s=60.0)

    assert walk.given == [60.0]


async def test_the_deadline_holds_whatever_fails() -> None:
    walk = Walk(takes_s=4.0, primary=[fails()] * 9, second=[fails()] * 9, third=[fails()] * 9)

    with pytest.raises(Unavailable):
        await walk.answer(within_s=30.0)

    assert walk.clock.monotonic() <= 30.0 + 1e-6


async def test_every_reason_is_told_where_nobody_answered() -> None:
    walk = Walk(
        primary=[fails("Gone.", retryable=False)], second=[fails("Broken.", retryable=False)]
    )

    with pytest.raises(Unavailable, match=r"primary: Gone\. second: Broken\."):
        await walk.answer()


async def test_a_budget_that_stops_everybody_is_what_is_raised() -> None:
    walk = Walk(primary=[BudgetExceeded("day")], second=[BudgetExceeded("month")])

    with pytest.raises(BudgetExceeded, match="day"):
        await walk.answer()


async def test_a_budget_that_stops_the_dear_one_leaves_the_cheap_one() -> None:
    walk = Walk(primary=[BudgetExceeded("day")], second=[says("two")])

    assert await walk.answer() == "two"


async def test_a_budget_that_stops_a_second_try_is_not_why_the_first_failed() -> None:
    walk = Walk(primary=[fails("Broken."), BudgetExceeded("day")])

    with pytest.raises(Unavailable, match=r"Broken\."):
        await walk.answer()


async def test_a_failure_of_the_request_says_nothing_about_the_provider() -> None:
    walk = Walk(primary=[fails(retryable=False, status=400)])

    with pytest.raises(Unavailable):
        await walk.answer()

    assert walk.switch("primary").failures == []


async def test_a_caller_in_a_hurry_does_not_close_a_slow_provider_to_others() -> None:
    walk = Walk(takes_s=2.0, primary=[fails(status=None)])

    with pytest.raises(Unavailable):
        await walk.answer(within_s=2.0)

    assert walk.switch("primary").failures == []


async def test_an_empty_chain_is_no_model() -> None:
    with pytest.raises(NoModel):
        await Walk().answer()


@given(
    tries=st.integers(1, 6),
    left_s=st.floats(0, 1e6),
    retry_after_s=st.none() | st.floats(0, 1e9),
    seed=st.integers(0, 100),
)
def test_a_pause_never_outlasts_the_time_left_and_is_never_shorter_than_asked_for(
    tries: int, left_s: float, retry_after_s: float | None, seed: int
) -> None:
    failure: AttemptFailed = fails(retry_after_s=retry_after_s)

    wait_s = pause_s(failure, tries, left_s=left_s, chance=Random(seed))

    if wait_s is None:
        return
    assert tries < TRIES
    assert 0 < wait_s < left_s
    assert wait_s >= (retry_after_s or 0.0)

"""Circuits under many calls at once; what they do one after another is in `test_embedders.py`."""

import asyncio
from contextlib import ExitStack

import pytest

from noema.core.clock import ManualClock
from noema.core.errors import Unavailable
from noema.net.circuit import FAILURES, FIRST_S, LONGEST_REST_S, Circuit


def opened_by(circuit: Circuit, calls: int) -> None:
    """Have so many calls under way at once, and all fail."""
    with ExitStack() as under_way:
        for _ in range(calls):
            under_way.enter_context(circuit.call())
        for _ in range(calls):
            circuit.failed("It is down.")


def rest_of(circuit: Circuit, clock: ManualClock) -> float:
    waited = 0.0
    while circuit.is_open and waited < 2 * LONGEST_REST_S:
        clock.advance(0.5)
        waited += 0.5
    return waited


@pytest.mark.parametrize("calls", [FAILURES, 32])
def test_many_that_fail_together_open_it_once(clock: ManualClock, calls: int) -> None:
    circuit = Circuit("x", clock)
    opened_by(circuit, calls)

    assert rest_of(circuit, clock) == FIRST_S
    with circuit.call():
        circuit.failed("It is still down.")
    assert rest_of(circuit, clock) == 2 * FIRST_S


def test_whoever_was_under_way_when_it_opened_fails_later_and_it_rests_no_longer(
    clock: ManualClock,
) -> None:
    circuit = Circuit("x", clock)
    with circuit.call():
        opened_by(circuit, FAILURES)
        clock.advance(FIRST_S / 2)
        circuit.failed("It broke off.")
        assert rest_of(circuit, clock) == FIRST_S / 2
        circuit.failed("It broke off at last.")
        assert not circuit.is_open


def test_a_failure_beside_the_one_that_tries_counts_with_it(clock: ManualClock) -> None:
    circuit = Circuit("x", clock)
    with circuit.call():
        opened_by(circuit, FAILURES)
        clock.advance(FIRST_S)
        with circuit.call():
            circuit.failed("An old one broke off.")
            circuit.failed("It is still down.")
    assert rest_of(circuit, clock) == 2 * FIRST_S


def test_of_many_that_come_when_the_time_is_up_one_is_let_through(clock: ManualClock) -> None:
    circuit = Circuit("x", clock)
    opened_by(circuit, 32)
    clock.advance(FIRST_S)

    passed = 0
    with ExitStack() as under_way:
        for _ in range(32):
            try:
                under_way.enter_context(circuit.call())
            except Unavailable:
                continue
            passed += 1
    assert passed == 1


async def test_one_that_tries_and_is_cancelled_leaves_the_trying_to_the_next(
    clock: ManualClock,
) -> None:
    circuit = Circuit("x", clock)
    opened_by(circuit, FAILURES)
    clock.advance(FIRST_S)

    async def tries() -> None:
        with circuit.call():
            await asyncio.Event().wait()

    trying = asyncio.ensure_future(tries())
    await asyncio.sleep(0)
    with pytest.raises(Unavailable), circuit.call():
        pass
    trying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trying

    assert not circuit.is_open
    with circuit.call():
        circuit.succeeded()
    with circuit.call(), circuit.call():
        pass


@pytest.mark.parametrize("rest_s", [float("nan"), -5.0, float("-inf")])
def test_a_wish_that_is_no_time_is_none(clock: ManualClock, rest_s: float) -> None:
    circuit = Circuit("x", clock)
    with circuit.call():
        circuit.failed("Busy.", rest_s=rest_s)
    assert not circuit.is_open


@pytest.mark.parametrize("rest_s", [float("inf"), 1e18])
def test_a_wish_without_end_has_one(clock: ManualClock, rest_s: float) -> None:
    circuit = Circuit("x", clock)
    with circuit.call():
        circuit.failed("Busy.", rest_s=rest_s)
    assert rest_of(circuit, clock) == LONGEST_REST_S

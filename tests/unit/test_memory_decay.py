"""Decay of activation in integers."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.core.errors import InvalidInput
from noema.memory.decay import FACTORS, PERIOD_S, bumped, decayed, epoch_of
from noema.memory.model import MICRO

activations = st.integers(0, MICRO)


def test_the_factors_are_the_eighth_roots_of_a_half_rounded_down() -> None:
    for k, factor in enumerate(FACTORS):
        assert factor**8 <= 2 ** (256 - k) < (factor + 1) ** 8


@given(activations, st.integers(0, 400))
def test_what_is_left_is_the_exact_value_rounded_down(activation: int, periods: int) -> None:
    left = decayed(activation, periods)

    # left ≤ a·2^(-n/8) < left + 1 + what the rounded factor costs, all to the eighth power.
    assert Fraction(left) ** 8 <= Fraction(activation) ** 8 / 2**periods
    assert Fraction(left + 2) ** 8 > Fraction(activation) ** 8 / 2**periods


@given(activations, st.integers(0, 60), st.integers(0, 60))
def test_two_runs_leave_what_one_does_but_for_the_rounding(a: int, n: int, m: int) -> None:
    at_once, in_turn = decayed(a, n + m), decayed(decayed(a, n), m)

    assert 0 <= at_once - in_turn <= 2


def test_two_days_halve_and_no_time_changes_nothing() -> None:
    assert decayed(MICRO, 8) == MICRO // 2
    assert decayed(MICRO, 16) == MICRO // 4
    assert decayed(777, 0) == decayed(777, -3) == 777
    assert decayed(MICRO, 10**9) == 0


@given(activations, st.integers(0, 200))
def test_an_access_takes_a_quarter_of_what_is_missing(activation: int, times: int) -> None:
    left = (MICRO - activation) * 3**times
    assert 0 <= bumped(activation, times) - (MICRO - left / 4**times) < 1.001


@given(st.integers(31_536_000, 7_258_118_400).map(lambda s: datetime.fromtimestamp(s, UTC)))
def test_a_period_is_six_hours(moment: datetime) -> None:
    assert epoch_of(moment) == int(moment.timestamp()) // PERIOD_S
    assert epoch_of(moment + timedelta(seconds=PERIOD_S)) == epoch_of(moment) + 1


def test_a_time_without_a_zone_is_refused() -> None:
    # Guarantee 24
    with pytest.raises(InvalidInput):
        epoch_of(datetime(2026, 1, 1))  # noqa: DTZ001

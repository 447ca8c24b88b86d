"""Fusion: every part on record, one order for the same candidates, a budget that keeps the top."""

from datetime import UTC, datetime, timedelta
from math import isclose
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.memory.fuse import HALF_LIFE_DAYS, Signals, fuse, recency, tokens, trim

NOW = datetime(2026, 1, 1, tzinfo=UTC)

signals = st.builds(
    Signals,
    id=st.uuids(),
    text=st.floats(0, 40),
    bm25=st.floats(0, 20),
    cosine=st.none() | st.floats(-1, 1),
    at=st.floats(-3000, 3000).map(lambda days: NOW + timedelta(days=days)),
    importance=st.integers(0, 1_000_000),
    activation=st.integers(0, 1_000_000),
    nearness=st.integers(0, 2),
)


def signal(number: int, *, text: float = 0.0, cosine: float | None = None) -> Signals:
    return Signals(
        id=UUID(int=number), text=text, bm25=text, cosine=cosine, at=NOW, importance=500_000,
        activation=1_000_000,
    )  # fmt: skip


@given(st.lists(signals, max_size=30), st.none() | st.floats(0, 1))
def test_weighted_components_add_up_to_the_score(
    found: list[Signals], weight: float | None
) -> None:
    for one in fuse(found, k=30, now=NOW, vector_weight=weight):
        parts = [w * getattr(one.components, name) for name, w in one.components.weights.items()]

        assert isclose(sum(parts), one.score, abs_tol=1e-9)
        assert all(0 <= getattr(one.components, name) <= 1 for name in one.components.weights)
        assert 0 <= one.score <= 1 + 1e-9


@given(st.lists(signals, max_size=30, unique_by=lambda s: s.id), st.randoms())
def test_the_order_does_not_depend_on_the_order_of_arrival(
    found: list[Signals], rng: object
) -> None:
    shuffled = list(found)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]

    ranked = fuse(found, k=9, now=NOW, vector_weight=0.5)

    assert ranked == fuse(shuffled, k=9, now=NOW, vector_weight=0.5)


def test_equal_scores_are_ordered_by_id() -> None:
    ranked = fuse([signal(3), signal(1), signal(2)], k=3, now=NOW, vector_weight=None)

    assert [one.id.int for one in ranked] == [1, 2, 3]


def test_the_vector_counts_as_much_as_its_embedder_is_trusted() -> None:
    found = [signal(1, text=1.0, cosine=0.1), signal(2, text=0.6, cosine=0.9)]

    assert fuse(found, k=2, now=NOW, vector_weight=0.1)[0].id.int == 1
    assert fuse(found, k=2, now=NOW, vector_weight=0.9)[0].id.int == 2


def test_recency_halves_with_every_half_life_and_nothing_is_newer_than_now() -> None:
    assert isclose(recency(NOW - timedelta(days=2 * HALF_LIFE_DAYS), NOW), 0.25)
    assert recency(NOW + timedelta(days=3), NOW) == 1


@pytest.mark.parametrize(("text", "cost"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_a_token_is_four_characters_begun(text: str, cost: int) -> None:
    assert tokens(text) == cost


@given(st.lists(st.integers(0, 50), max_size=20), st.none() | st.integers(0, 200))
def test_trimming_keeps_the_top_and_otherwise_the_budget(
    costs: list[int], budget: int | None
) -> None:
    kept = trim(costs, budget)

    assert kept == sorted(kept)
    assert kept[:1] == ([0] if costs else [])
    if budget is None:
        assert len(kept) == len(costs)
    elif len(kept) > 1:
        assert sum(costs[place] for place in kept) <= budget


def test_a_row_that_does_not_fit_makes_room_for_a_smaller_one() -> None:
    assert trim([10, 50, 5], 20) == [0, 2]

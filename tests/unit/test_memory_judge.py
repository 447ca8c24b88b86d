"""What is a contradiction, what a suspicion, and what neither."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.memory.judge import Finding, PlainJudge, claim_of
from noema.memory.model import (
    EpistemicKind,
    Kind,
    Label,
    Memory,
    Route,
    Sensitivity,
    Status,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def memory(
    text: str,
    content: Mapping[str, Any] | None = None,
    *,
    kind: Kind = Kind.FACT,
    actor: str = "user:ada",
    valid_to: datetime | None = None,
    valid_from: datetime = NOW,
) -> Memory:
    return Memory(
        id=UUID(int=1), namespace="acme", kind=kind, epistemic_kind=EpistemicKind.FACT,
        status=Status.ACTIVE, text=text, content=content or {}, event_time=None,
        assertion_time=NOW, valid_from=valid_from, valid_to=valid_to, supersedes=None, source="",
        route=Route.DOCUMENT, trust=40, actor=actor, agent_id="http", extraction="verbatim",
        label=Label(sensitivity=Sensitivity.INTERNAL), importance=0, salience=0, credibility=0,
        activation=0, access_count=0, last_accessed_at=None, repeat_count=0,
    )  # fmt: skip


def found(one: Memory, other: Memory) -> Finding:
    judge = PlainJudge()
    verdict = judge.compare(one, other)
    assert judge.compare(other, one).kind is verdict.kind
    assert verdict.reason
    assert verdict.judge == judge.name
    return verdict.kind


def fact(
    value: object, *, attribute: str = "employer", subject: str = "Ada", **more: Any
) -> Memory:
    content = {"subject": subject, "attribute": attribute, "value": value, **more}
    return memory(f"{subject} {attribute} {value!s}", content)


def test_two_values_of_what_has_one_are_a_contradiction() -> None:
    one = fact("Acme", single_valued=True)

    assert found(one, fact("Globex", single_valued=True)) is Finding.CONTRADICTION
    assert found(one, fact("Globex", subject=" ADA ")) is Finding.CONTRADICTION
    assert found(one, fact(" acme.")) is Finding.COMPATIBLE
    assert found(one, fact("Globex", attribute="school")) is Finding.COMPATIBLE
    assert found(one, fact("Globex", subject="Bob")) is Finding.COMPATIBLE


def test_what_may_have_several_values_is_added_to() -> None:
    assert found(fact("tea"), fact("coffee")) is Finding.COMPATIBLE


def test_numbers_and_truth_are_compared_as_what_they_are() -> None:
    assert found(fact(1, single_valued=True), fact(1.0)) is Finding.COMPATIBLE
    assert found(fact(1, single_valued=True), fact(2)) is Finding.CONTRADICTION
    assert found(fact(True, single_valued=True), fact(1)) is Finding.CONTRADICTION


def test_what_held_at_another_time_does_not_contradict() -> None:
    past = memory("a", fact("Acme", single_valued=True).content, valid_to=NOW)
    later = NOW + timedelta(days=1)
    now = memory("b", fact("Globex", single_valued=True).content, valid_from=later)

    assert found(past, now) is Finding.COMPATIBLE


def preference(stance: str, about: str, over: str | None = None, holder: str = "Ada") -> Memory:
    content = {"holder": holder, "about": about, "stance": stance, "over": over}
    return memory(f"{holder} {stance} {about}", content, kind=Kind.PREFERENCE)


def test_preferences_contradict_where_they_point_both_ways() -> None:
    tea = preference("likes", "tea")

    assert found(tea, preference("dislikes", "Tea")) is Finding.CONTRADICTION
    assert found(tea, preference("prefers", "tea")) is Finding.COMPATIBLE
    assert found(tea, preference("dislikes", "coffee")) is Finding.COMPATIBLE
    assert found(tea, preference("avoids", "tea", holder="Bob")) is Finding.COMPATIBLE
    turned = preference("prefers", "coffee", over="tea")
    assert found(preference("prefers", "tea", over="coffee"), turned) is Finding.CONTRADICTION


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ada's employer is Acme.", "Ada’s employer is now Globex"),
        ("The capital of France is Paris.", "The capital of France is Lyon."),
        ("db1: port = 5432", "DB1: port = 5433"),
        ("Ada likes coffee", "Ada does not like coffee."),
        ("The door is open", "The door isn't open"),
        ("Ada lives in Paris", "Ada no longer lives in Paris"),
        ("My favourite colour is blue", "my favourite colour is red"),
    ],
)  # fmt: skip
def test_sentences_of_one_shape_are_a_suspicion_and_no_more(one: str, other: str) -> None:
    assert found(memory(one), memory(other)) is Finding.SUSPECTED


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ada's employer is Acme.", "Bob's employer is Globex."),
        ("Ada's employer is Acme.", "Ada's school is Globex."),
        ("Ada lives in Paris, France", "Ada likes Paris"),
        ("The capital of France is Paris.", "The capital of France is Paris, on the Seine"),
        ("The disk failed.", "The disk was replaced."),
        ("no", "not"),
        ("", ""),
    ],
)
def test_other_sentences_are_compatible(one: str, other: str) -> None:
    assert found(memory(one), memory(other)) is Finding.COMPATIBLE


def test_two_people_speak_of_themselves() -> None:
    one, other = memory("I like tea"), memory("I do not like tea", actor="user:bob")

    assert found(one, other) is Finding.COMPATIBLE
    assert found(one, memory("I do not like tea")) is Finding.SUSPECTED


@given(st.text(max_size=500), st.text(max_size=500))
def test_any_two_texts_are_judged_alike_both_ways_and_never_a_contradiction(a: str, b: str) -> None:
    assert found(memory(a), memory(b)) is not Finding.CONTRADICTION


@given(st.text(max_size=500))
def test_nothing_contradicts_itself(text: str) -> None:
    assert found(memory(text), memory(text)) is Finding.COMPATIBLE


def test_a_claim_is_taken_apart() -> None:
    claim = claim_of("The Capital of the Kingdom is now Paris.")

    assert claim is not None
    assert (claim.subject, claim.attribute, claim.value) == ("kingdom", "capital", "paris")
    assert claim_of("It rained. The capital of France is Paris.") is None

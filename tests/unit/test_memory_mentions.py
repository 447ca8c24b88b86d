"""Which names are found in a text."""

import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.memory.entities import SUGGEST_FROM, similarity
from noema.memory.mentions import MAX_MENTIONS, mentions, normal_name


def names(text: str) -> list[str]:
    return [m.text for m in mentions(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yesterday Caroline went to Paris.", ["Caroline", "Paris"]),
        ("We met Ada Lovelace and Jean-Luc de la Cruz.", ["Ada Lovelace", "Jean-Luc de la Cruz"]),
        ("Ada's cat likes milk.", ["Ada"]),
        ("Caroline works there.", ["Caroline"]),
        ("I asked Dr. Smith about it.", ["Smith"]),
        ('I read "The Lord of the Rings" twice.', ["The Lord of the Rings"]),
        ("The service PaymentService raised INC-1234.", ["PaymentService", "INC-1234"]),
        ("see user_id on my iPhone", ["user_id", "iPhone"]),
        ("ping @ada or ada@example.com now", ["@ada", "ada@example.com"]),
        ("db1.prod.example.internal is 10.2.3.4", ["db1.prod.example.internal", "10.2.3.4"]),
        ("traffic from fe80::1 at 12:30:45", ["fe80::1"]),
        ("Тогда приехала Анна Каренина", ["Анна Каренина"]),
        ("田中さんは「雪国」を読んだ", ["田中", "雪国"]),
        ("김민수님이 왔다", ["김민수"]),
        ("この会社はマイクロソフトです", ["マイクロソフト"]),
    ],
)
def test_names_are_found(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "the quick brown fox jumps over the lazy dog",
        "Everything is fine. Nothing happened! Thanks",
        "Deploy it on Monday, or in March",
        "THE DISK HAS FAILED AND NOBODY CARES",
        "2026-01-01 12:30:45 ERROR GET /index version 1.2.3 of main.py, e.g. this",
        'she said "I am happy."',
        "999.1.1.1 is no address",
        "",
        "   \n\t",
    ],
)
def test_a_capital_that_begins_a_sentence_and_the_like_are_no_names(text: str) -> None:
    assert names(text) == []


def test_whoever_speaks_comes_first_and_once() -> None:
    found = mentions("I told Bob that Ada is here.", speaker="Ada")

    assert [(m.text, m.kind) for m in found] == [("Ada", "person"), ("Bob", "thing")]
    assert found[0].confidence == 1_000_000


def test_a_text_has_a_bounded_number_of_names_and_each_once() -> None:
    many = " and ".join(f"we met Person{chr(97 + n % 26)}{chr(97 + n // 26)}x" for n in range(100))

    assert len(mentions(many)) == MAX_MENTIONS
    assert names("we met Ada, then Ada, then ADA and Ada") == ["Ada"]


@given(st.text(max_size=300))
def test_any_text_is_read_and_every_name_is_normal(text: str) -> None:
    for mention in mentions(text):
        assert mention.normal == normal_name(mention.text) != ""
        assert normal_name(mention.normal) == mention.normal or len(mention.normal) >= 100
        assert 0 < mention.confidence <= 1_000_000


@pytest.mark.parametrize(
    "hostile",
    ["A" * 40_000, "A " * 20_000, "@a" * 20_000, '"A ' * 15_000, "a_" * 20_000, "1." * 20_000,
     ":1" * 20_000, "x@" + "a-" * 20_000, "a." * 20_000, "Aa" * 20_000],
)  # fmt: skip
def test_no_text_takes_long(hostile: str) -> None:
    assert min(timeit.repeat(lambda: mentions(hostile), number=1, repeat=3)) < 0.1


def test_twenty_words_take_microseconds() -> None:
    plain = "we moved the nightly backup of the ledger to the second region because it was full"
    named = f"{plain} and Caroline Smith told PaymentService so"

    for text in (plain, named):
        best_s = min(timeit.repeat(lambda text=text: mentions(text), number=200, repeat=5)) / 200  # type: ignore[misc]
        # Fifty on an idle machine; the tests share theirs.
        assert best_s < 250e-6


@pytest.mark.parametrize(
    ("one", "other", "is_near"),
    [
        ("jon smith", "john smith", True),
        ("smith john", "john smith", True),
        ("ada", "ada lovelace", True),
        ("katherine", "catherine", True),
        ("server 1", "server 2", False),
        ("ada", "bob", False),
        ("a", "a b", False),
    ],
)
def test_names_are_near_or_not(one: str, other: str, *, is_near: bool) -> None:
    assert (similarity(one, other) >= SUGGEST_FROM) is is_near
    assert similarity(one, other) == similarity(other, one)

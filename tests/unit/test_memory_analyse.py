"""From text to terms: scripts without spaces, accents, stems, identifiers, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.memory.analyse import MAX_TERM_CHARS, query_terms, terms


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("She was running the deployments.", "deployment run"),
        ("Мы развернули новые серверы", "сервер"),
        ("Ёлка стоит", "елка"),
        ("Crème brûlée à la carte", "creme brulee"),
        ("Straße nach Łódź", "STRASSE lodz"),
        ("Μεγάλη η ΑΘΉΝΑ", "αθηνα"),
        ("東京都に住んでいます", "東京"),
        ("東京都に住んでいます", "都"),
        ("ｶﾞﾝﾀﾞﾑを見た", "ガンダム"),
        ("대한민국의 수도는 서울이다", "서울"),
        ("물을 마셨다", "물"),
        ("ฉันรักภาษาไทย", "ภาษา"),
        ("मुझे हिन्दी आती है", "हिन्दी"),
        ("كَتَبَ الطالبُ", "كتب"),
        ("Deployed 🚀🚀", "🚀"),
        ("Great work 👍🏽", "👍"),
        ("A developer 👩\u200d💻 wrote it", "💻"),
        ("Love it ❤️", "❤"),
        ("From 🇩🇪 with love", "🇩🇪"),
    ],
)
def test_guarantee_24_words_of_every_script_are_found(stored: str, asked: str) -> None:
    wanted = query_terms(asked)

    assert wanted
    assert set(wanted) <= set(terms(stored))


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("error E1234 again", "e1234"),
        ("call foo_bar(1)", "foo_bar"),
        ("host 10.0.0.1 is down", "10.0.0.1"),
        ("mail ada.l+x@example.com now", "ada.l+x@example.com"),
        ("see https://example.com/a/b?x=1.", "https://example.com/a/b?x=1"),
        ("cost 1,250,000.50 in all", "1250000.50"),
        ("written in C++ once", "c++"),
        ("on 2023-05-07 early", "2023-05-07"),
    ],
)
def test_an_identifier_is_kept_whole(text: str, whole: str) -> None:
    assert whole in terms(text)
    assert whole in query_terms(text)


def test_the_parts_of_an_identifier_are_found_too() -> None:
    assert {"foo", "bar"} <= set(terms("foo_bar"))
    assert "example.com" in terms("https://example.com/a/b")
    assert {"well", "known"} <= set(terms("well-known"))


def test_an_apostrophe_hides_no_word() -> None:
    assert terms("Caroline's cake") == terms("Caroline cake")
    assert terms("Caroline’s cake") == terms("Caroline cake")
    assert {"obrien", "brien"} <= set(terms("O'Brien"))


def test_stop_words_are_left_out_unless_there_is_nothing_else() -> None:
    assert terms("What is the plan for it?") == ["plan"]
    assert terms("To be or not to be") == ["to", "be", "or", "not", "to", "be"]
    assert query_terms("To be or not to be") == ["to", "be", "or", "not"]


def test_what_the_apostrophe_negates_is_no_word_but_alone_it_is() -> None:
    assert terms("They won't come, Don") == ["come", "don"]
    assert terms("We won it") == ["won"]


def test_a_query_does_not_ask_for_single_characters_of_a_longer_run() -> None:
    assert query_terms("東京都") == ["東京", "京都"]
    assert {"東", "京", "都"} <= set(terms("東京都"))


def test_repeats_are_kept_in_what_is_stored_and_not_in_what_is_asked() -> None:
    assert terms("disk disk full") == ["disk", "disk", "full"]
    assert query_terms("disk disk full") == ["disk", "full"]


@given(st.text(max_size=300))
def test_every_term_can_be_a_lexeme_and_is_no_namespace(text: str) -> None:
    for term in [*terms(text), *query_terms(text)]:
        assert 1 <= len(term) <= MAX_TERM_CHARS
        assert not term.startswith("@")
        assert not any(char.isspace() for char in term)
        assert "\x00" not in term
        term.encode()


@given(st.text(max_size=300))
def test_the_same_text_has_the_same_terms_whatever_its_case(text: str) -> None:
    assert terms(text) == terms(text)
    if text.isascii():
        assert terms(text.upper()) == terms(text.lower())


@given(st.text(max_size=200))
def test_a_text_is_found_by_itself(text: str) -> None:
    assert set(query_terms(text)) <= set(terms(text))


def test_the_longest_text_stays_within_a_tsvector() -> None:
    # Eighteen characters come of each of these, and four bytes of each of those below.
    assert sum(len(t.encode()) for t in set(terms("\ufdfa" * 32_768))) < 1_048_575
    rare = "".join(chr(0x20000 + number) for number in range(32_768))
    assert sum(len(t.encode()) for t in set(terms(rare))) < 1_048_575

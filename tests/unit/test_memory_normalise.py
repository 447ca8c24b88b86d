"""When two texts are the same, and the keys that exact dedupe rests on."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.memory.normalise import (
    conversation_id,
    copy_key,
    dedupe_key,
    normal_text,
    strip_annotation,
    transcript_id,
    turn_key,
)
from tests.helpers import not_for_ever

CONVERSATION = UUID(int=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
# What people write, what Unicode makes difficult, and pieces of annotations.
texts = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            ["A", "ǅ", "ﬁ", "İ", "ß", "ς", "Å", "Å", "\u0345", " ", "\u3000", "\n", "\uff3b", "[",
             "[entities:", "[Entities: Ada, Bob]", "]", "\uff45", "x", "한글", "\U0001d49c",
             "\ud800", "\x00"]
        ),
        max_size=12,
    ).map("".join),
)  # fmt: skip


@given(texts)
def test_the_normal_form_of_a_normal_form_is_the_same(text: str) -> None:
    form = normal_text(text)

    assert normal_text(form) == form


@given(texts, texts)
def test_keys_are_equal_exactly_where_normal_forms_are(one: str, other: str) -> None:
    is_same = normal_text(one) == normal_text(other)

    assert (dedupe_key(one) == dedupe_key(other)) is is_same
    assert len(dedupe_key(one)) == 32


@given(texts)
def test_stripping_an_annotation_twice_strips_no_more(text: str) -> None:
    stripped = strip_annotation(text)

    assert strip_annotation(stripped) == stripped


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The disk failed.", "  the  DISK\tfailed.\n"),
        ("Straße", "STRASSE"),
        ("ﬁle", "file"),
        ("Café", "Cafe\u0301"),
        ("\uff21\uff22\uff23", "abc"),
        ("Ada lives in Rome.", "Ada lives in Rome. [entities: Ada, Rome]"),
        ("Ada lives in Rome.", "[ENTITIES: Ada] Ada lives in Rome."),
    ],
)
def test_case_width_white_space_and_annotations_tell_no_two_texts_apart(
    one: str, other: str
) -> None:
    assert dedupe_key(one) == dedupe_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ada lives in Rome.", "Ada lives in Rome"),
        ("On 1 May", "On 2 May"),
        ("resume", "résumé"),
        ("a [note: b]", "a"),
        ("a [entities: b", "a"),
    ],
)
def test_anything_else_tells_two_texts_apart(one: str, other: str) -> None:
    assert dedupe_key(one) != dedupe_key(other)


def test_the_key_of_a_text_is_the_digest_of_its_normal_form() -> None:
    assert dedupe_key(" The  Disk ") == sha256(b"the disk").digest()


def test_a_turn_is_told_apart_by_place_speaker_time_and_occurrence() -> None:
    key = turn_key("Yes.", conversation=CONVERSATION, speaker="Ada", at=NOON, occurrence=0)

    others = [
        turn_key("No.", conversation=CONVERSATION, speaker="Ada", at=NOON, occurrence=0),
        turn_key("Yes.", conversation=UUID(int=2), speaker="Ada", at=NOON, occurrence=0),
        turn_key("Yes.", conversation=CONVERSATION, speaker="Bob", at=NOON, occurrence=0),
        turn_key("Yes.", conversation=CONVERSATION, speaker="Ada", at=None, occurrence=0),
        turn_key(
            "Yes.",
            conversation=CONVERSATION,
            speaker="Ada",
            at=NOON + timedelta(microseconds=1),
            occurrence=0,
        ),
        turn_key("Yes.", conversation=CONVERSATION, speaker="Ada", at=NOON, occurrence=1),
        dedupe_key("Yes."),
        copy_key("Yes.", kind="pointer", source="s"),
    ]

    assert key not in others
    assert len(set(others)) == len(others)


def test_a_turn_said_again_in_other_letters_is_the_same_turn() -> None:
    one = turn_key("Yes.", conversation=CONVERSATION, speaker="Ada", at=NOON, occurrence=0)
    other = turn_key(" YES. ", conversation=CONVERSATION, speaker="ada", at=NOON, occurrence=0)

    assert one == other


@given(
    st.lists(st.text(max_size=4), min_size=2, max_size=2),
    st.lists(st.text(max_size=4), min_size=2, max_size=2),
)
def test_parts_of_a_key_never_run_together(one: list[str], other: list[str]) -> None:
    first = copy_key("t", kind=one[0], source=one[1])
    second = copy_key("t", kind=other[0], source=other[1])

    assert (first == second) is (one == other)


def test_a_conversation_has_one_id_in_its_namespace_and_another_elsewhere() -> None:
    assert conversation_id("acme", "standup") == conversation_id("acme", "standup")
    assert conversation_id("acme", "standup") != conversation_id("acme/eng", "standup")
    assert conversation_id("acme", "standup") != conversation_id("acme", "Standup")


def test_a_transcript_without_a_name_is_known_by_what_was_said() -> None:
    turns = [("Ada", "Hi.", NOON), ("Bob", "Hello.", None)]

    assert transcript_id("acme", turns) == transcript_id("acme", list(turns))
    assert transcript_id("acme", turns) != transcript_id("acme", turns[:1])
    assert transcript_id("acme", turns) != transcript_id("acme", list(reversed(turns)))
    assert transcript_id("acme", turns) != transcript_id("other", turns)


@pytest.mark.parametrize("piece", ["[entities:", "[entities: a", " [", "[entities: a]", "]"])
def test_no_text_takes_long_to_normalise(piece: str) -> None:
    text = (piece * 1_049_000)[:1_048_576]

    with not_for_ever():
        assert dedupe_key(text) == dedupe_key(f" {text} ")

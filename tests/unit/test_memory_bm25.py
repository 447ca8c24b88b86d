"""BM25 over candidates, what a turn owes to its conversation, and which terms are asked for."""

from math import isclose, log
from uuid import UUID

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from noema.memory.bm25 import K1, SEPARATOR, B, frequencies, inverse_frequencies, mean, scores
from noema.memory.context import NOWHERE, Places, weigh
from noema.memory.tsquery import BUDGET, Frequencies, fence, plan, quoted

word = st.sampled_from(["a", "aa", "ab", "b", "c", "日本"])
texts = st.lists(st.lists(word, max_size=9), max_size=9)
QUERY = ("a", "ab", "日本", "z")


def joined(text: list[str]) -> str:
    return SEPARATOR.join(text)


def bm25(stored: list[str], query: str) -> list[float]:
    counts = frequencies([joined(text.split()) for text in stored], query.split())
    lengths = np.asarray([float(len(text.split())) for text in stored])
    found = scores(counts, lengths, inverse_frequencies(counts), mean(lengths))
    return [float(score) for score in found]


@given(texts)
def test_whole_terms_are_counted_text_by_text(stored: list[list[str]]) -> None:
    found = frequencies([joined(text) for text in stored], QUERY)

    assert found.tolist() == [[float(text.count(term)) for text in stored] for term in QUERY]


def test_the_formula_is_that_of_robertson_and_zaragoza() -> None:
    found = bm25(["disk full disk", "network slow", "disk"], "disk")

    idf = log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    assert isclose(found[0], idf * 2 * (K1 + 1) / (2 + K1 * (1 - B + B * 3 / 2)))


def test_a_rare_term_counts_more_than_a_frequent_one() -> None:
    found = bm25(["disk", "disk", "disk", "quorum"], "disk quorum")

    assert found[3] > found[0] > 0


@given(texts)
def test_no_score_is_negative_and_only_matches_have_one(stored: list[list[str]]) -> None:
    found = bm25([" ".join(text) for text in stored], " ".join(QUERY))

    assert [score > 0 for score in found] == [bool(set(text) & set(QUERY)) for text in stored]
    assert all(score >= 0 for score in found)


def places(*rows: tuple[int, int | None, int, str]) -> Places:
    """Return candidates of (id, session, position, text)."""
    return Places(
        ids=[UUID(int=id_) for id_, _, _, _ in rows],
        texts=[joined(text.split()) for _, _, _, text in rows],
        lengths=[len(text.split()) for _, _, _, text in rows],
        sessions=[None if session is None else UUID(int=session) for _, session, _, _ in rows],
        positions=[position for _, _, position, _ in rows],
    )


def wholes(query: str, made: Places) -> dict[int, float]:
    found = weigh(query.split(), made)
    return {id_.int: score for id_, score in zip(found.ids, found.whole.tolist(), strict=True)}


def test_an_answer_is_found_by_the_words_of_its_question() -> None:
    made = places(
        (10, 1, 0, "hello there"),
        (13, 1, 3, "see you tomorrow"),
        (11, 1, 1, "what is your favourite colour"),
        (12, 1, 2, "it was always green"),
        (20, 2, 0, "it was always raining"),
    )
    found = weigh(["favourite", "colour"], made)
    score = wholes("favourite colour", made)

    assert found.own[made.ids.index(UUID(int=12))] == 0
    assert score[11] > score[12] > score[13] > 0
    assert score[20] == 0
    assert found.best(2) == [UUID(int=11), UUID(int=12)]


def test_the_first_turn_of_a_session_follows_nobody() -> None:
    apart = wholes("colour", places((1, 1, 0, "what colour"), (2, 2, 1, "green")))

    assert apart[2] == 0


def test_a_missing_turn_breaks_the_neighbourhood() -> None:
    apart = wholes("colour", places((1, 1, 1, "what colour"), (2, 1, 3, "green")))
    together = wholes("colour", places((1, 1, 1, "what colour"), (2, 1, 2, "green")))

    assert apart[2] < together[2]


def test_what_stands_alone_compares_with_a_session_of_one_turn() -> None:
    found = wholes("disk", places((1, None, 0, "disk full"), (2, 5, 0, "disk full")))

    assert isclose(found[1], found[2])


@given(texts, st.integers(1, 9))
def test_the_best_are_those_a_sort_would_put_first(stored: list[list[str]], limit: int) -> None:
    made = places(*[(n, None, 0, " ".join(text)) for n, text in enumerate(stored)])
    found = weigh(QUERY, made)
    ranked = sorted(
        (-score, id_) for id_, score in zip(found.ids, found.whole.tolist(), strict=True) if score
    )

    assert found.best(limit) == [id_ for _, id_ in ranked][:limit]


def test_a_later_text_is_weighed_as_if_it_had_been_there() -> None:
    found = weigh(["disk"], places((1, None, 0, "disk full"), (2, None, 0, "quorum lost")))

    own, whole = found.alone([joined(["disk", "full"])], [2])

    assert (own[0], whole[0]) == (found.own[0], found.whole[0])


def test_nothing_at_all_has_no_scores() -> None:
    assert weigh((), NOWHERE).best(10) == []
    assert weigh(["a"], NOWHERE).best(10) == []


def test_what_is_there_twice_is_kept_once() -> None:
    some, others = places((1, 1, 0, "a"), (2, 1, 1, "b")), places((2, 1, 1, "b"), (3, 1, 2, "c"))

    assert [id_.int for id_ in some.beside(others).ids] == [1, 2, 3]


def test_few_rows_are_asked_for_by_every_term() -> None:
    made = plan(["disk", "full"], Frequencies({"disk": 0.9}), visible=500)

    assert made.strict == "('full' | 'disk')"
    assert made.loose is None


def test_of_little_every_term_is_asked_for_however_frequent() -> None:
    made = plan(["a", "b", "c"], Frequencies({}, 0.9), visible=BUDGET)

    assert made.strict == "('a' | 'b' | 'c')"
    assert made.loose is None


def test_a_frequent_term_is_not_asked_for_beside_a_rare_one_but_counts() -> None:
    made = plan(["service", "quorum"], Frequencies({"service": 0.8}), visible=1_000_000)

    assert made.strict == "('quorum')"
    assert set(made.terms) == {"service", "quorum"}


def test_of_frequent_terms_alone_several_are_asked_for_at_once_first() -> None:
    made = plan(["a", "b", "c"], Frequencies({"a": 0.5, "b": 0.4, "c": 0.6}), visible=100_000)

    assert made.strict == "('b' & 'a' & 'c')"
    assert made.loose == "('b')"


@given(
    st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=100, unique=True),
    st.integers(1, 10_000_000),
    st.floats(0.0001, 0.9),
)
def test_at_least_one_term_is_asked_for_and_no_more_than_the_budget(
    terms: list[str], visible: int, share: float
) -> None:
    made = plan(terms, Frequencies({}, share), visible)
    asked = (made.loose or made.strict).count(" | ") + 1

    assert asked >= 1
    assert asked == 1 or min(visible, asked * max(1.0, share * visible)) <= BUDGET
    assert len(made.groups) == len(made.weights) == 4


def test_quotes_and_backslashes_cannot_leave_a_literal() -> None:
    assert quoted("o'brien\\") == "'o''brien\\\\'"
    assert fence(["acme/o'b"]) == "('@acme/o''b') & "


def test_many_namespaces_are_no_lexemes_of_the_query() -> None:
    assert fence([f"acme/n{number}" for number in range(17)]) == ""

"""BM25 over candidates, what a turn owes to its conversation, and which terms are asked for."""

from math import isclose, log
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from noema.memory.bm25 import (
    K1,
    B,
    Counted,
    average_length,
    counted,
    inverse_frequencies,
    merged,
    score,
)
from noema.memory.context import Place, weigh
from noema.memory.tsquery import BUDGET, Frequencies, fence, plan, quoted

word = st.sampled_from("abcdefgh")
document = st.lists(word, max_size=12)


def of(text: str, query: str) -> Counted:
    return counted(text.split(), query.split())


def test_the_formula_is_that_of_robertson_and_zaragoza() -> None:
    documents = [of("disk full disk", "disk"), of("network slow", "disk"), of("disk", "disk")]
    idf = inverse_frequencies(["disk"], documents)
    average = average_length(documents)

    assert isclose(idf["disk"], log(1 + (3 - 2 + 0.5) / (2 + 0.5)))
    expected = idf["disk"] * 2 * (K1 + 1) / (2 + K1 * (1 - B + B * 3 / 2))
    assert isclose(score(documents[0], idf, average), expected)


def test_a_rare_term_counts_more_than_a_frequent_one() -> None:
    documents = [of(text, "disk quorum") for text in ("disk", "disk", "disk", "quorum")]
    idf = inverse_frequencies(["disk", "quorum"], documents)

    assert score(documents[3], idf, 1.0) > score(documents[0], idf, 1.0) > 0


@given(st.lists(document, min_size=1, max_size=10), st.lists(word, min_size=1, max_size=4))
def test_no_score_is_negative_and_only_matches_have_one(
    texts: list[list[str]], query: list[str]
) -> None:
    documents = [counted(text, query) for text in texts]
    idf = inverse_frequencies(query, documents)

    for text, doc in zip(texts, documents, strict=True):
        assert (score(doc, idf, average_length(documents)) > 0) == bool(set(text) & set(query))


@given(st.lists(document, max_size=6))
def test_merging_counts_every_term_once(texts: list[list[str]]) -> None:
    together = [term for text in texts for term in text]
    wanted = list("abcdefgh")

    assert merged(counted(text, wanted) for text in texts) == counted(together, wanted)


def turn(number: int, text: str, query: str, session: int = 1) -> Place:
    return Place(UUID(int=100 * session + number), of(text, query), UUID(int=session), number)


def test_an_answer_is_found_by_the_words_of_its_question() -> None:
    query = "favourite colour"
    turns = [
        turn(0, "hello there", query),
        turn(1, "what is your favourite colour", query),
        turn(2, "it was always green", query),
        turn(3, "see you tomorrow", query),
        turn(0, "it was always raining", query, session=2),
    ]
    scores, _ = weigh(query.split(), turns)

    assert scores[turns[2].id].own == 0
    assert scores[turns[2].id].whole > scores[turns[3].id].whole > 0
    assert scores[turns[4].id].whole == 0


def test_a_missing_turn_breaks_the_neighbourhood() -> None:
    query = "colour"
    turns = [turn(1, "what colour", query), turn(3, "green", query)]
    beside = [turn(1, "what colour", query), turn(2, "green", query)]

    apart, _ = weigh([query], turns)
    together, _ = weigh([query], beside)

    assert apart[turns[1].id].whole < together[beside[1].id].whole


def test_what_stands_alone_compares_with_a_session_of_one_turn() -> None:
    query = "disk"
    alone = Place(UUID(int=1), of("disk full", query))
    session = turn(0, "disk full", query)
    scores, _ = weigh([query], [alone, session])

    assert isclose(scores[alone.id].whole, scores[session.id].whole)


def test_few_rows_are_asked_for_by_every_term() -> None:
    made = plan(["disk", "full"], Frequencies({"disk": 0.9}), visible=500)

    assert made.strict == "('full' | 'disk')"
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
    assert asked == 1 or asked * max(1.0, share * visible) <= BUDGET
    assert len(made.groups) == len(made.weights) == 4


def test_quotes_and_backslashes_cannot_leave_a_literal() -> None:
    assert quoted("o'brien\\") == "'o''brien\\\\'"
    assert fence(["acme/o'b"]) == "('@acme/o''b') & "


def test_many_namespaces_are_no_lexemes_of_the_query() -> None:
    assert fence([f"acme/n{number}" for number in range(17)]) == ""

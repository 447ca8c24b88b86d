import json
from typing import Any

import pytest

from noema.cli.output import Column, json_text, lines_of, one_line, score_text, table, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\x9b31mred", "a\\x9b31mred"),
        ("bell\x07 del\x7f nul\x00", "bell\\x07 del\\x7f nul\\x00"),
        ("two\r\nlines\t", "two\\r\\nlines\\t"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("half \ud800", "half \\ud800"),
        ("Grüße 日本 👩‍💻", "Grüße 日本 👩‍💻"),
    ],
)
def test_what_a_terminal_would_act_on_is_shown_and_nothing_else_is_touched(
    text: str, shown: str
) -> None:
    assert visible(text) == shown


def test_a_reply_may_keep_its_line_feeds() -> None:
    assert visible("one\ntwo\x1b[A", keep="\n") == "one\ntwo\\x1b[A"


def test_json_means_exactly_the_value_and_holds_no_raw_control_character() -> None:
    value = {"text": "\x1b[2J\x9b\x7f\u202e\ud800\n日本"}

    text = json_text(value)

    assert json.loads(text) == value
    assert "日本" in text
    assert visible(text) == text


def test_an_error_of_several_lines_becomes_one() -> None:
    assert one_line("first\n  second\x1b[0m ") == "first second\\x1b[0m"


def test_a_table_lines_up_under_wide_characters() -> None:
    columns = (Column(heading="NAME", key="name"), Column(heading="N", key="n", right=True))
    rows = [{"name": "日本", "n": 5}, {"name": "a", "n": 1234}]

    lines = table(rows, columns, width=None)

    assert lines == ["NAME     N", "日本     5", "a     1234"]


def test_a_table_cuts_its_last_column_to_the_terminal() -> None:
    columns = (Column(heading="A", key="a"), Column(heading="TEXT", key="text"))

    lines = table([{"a": 1, "text": "x" * 100}], columns, width=30)

    assert lines[1] == "1  " + "x" * 26 + "…"


def test_nested_values_are_indented_and_missing_ones_are_dashes() -> None:
    value: dict[str, Any] = {"a": None, "b": {"c": True, "d": [1, {"e": "x\ny"}]}, "f": []}

    assert lines_of(value) == [
        "a: -",
        "b:",
        "  c: yes",
        "  d:",
        "    - 1",
        "    - e: x\\ny",
        "f: -",
    ]


def test_a_score_is_read_in_units_of_ten_to_the_minus_twelve() -> None:
    assert score_text(1_234_567_000_000) == "1.234567"
    assert score_text(-1) == "-0.000000"
    assert score_text(None) == "-"

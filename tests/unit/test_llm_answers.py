"""Answers that should be JSON, as models write them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.core.errors import InvalidInput
from noema.llm.answers import read, shape_of, unfenced
from noema.llm.errors import BadAnswer

ANYTHING = shape_of({"type": "object"})
FACTS = shape_of(
    {
        "type": "object",
        "properties": {
            "facts": {
                "type": "array",
                "items": {"type": "object", "properties": {"text": {"type": "string"}}},
            }
        },
        "required": ["facts"],
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize(
    "text",
    [
        '{"facts": []}',
        '  \n{"facts": []}\n\n',
        '\ufeff{"facts": []}',
        '```json\n{"facts": []}\n```',
        '```\n{"facts": []}\n```\n',
        '  ```JSON  \r\n{"facts": []}\r\n  ```  ',
        '````json\n{"facts": []}\n````',
    ],
)
def test_an_object_is_read_with_and_without_a_fence_around_the_whole_message(text: str) -> None:
    assert read(text, FACTS) == {"facts": []}


@pytest.mark.parametrize("fenced", [True, False])
def test_backticks_inside_a_value_stay(fenced: bool) -> None:
    code = "Run:\n```sh\nls\n```\nthen ```json\n{}\n``` again"
    text = json.dumps({"facts": [{"text": code}]}, indent=1)

    value = read(f"```json\n{text}\n```" if fenced else text, FACTS)

    assert value["facts"][0]["text"] == code


@pytest.mark.parametrize(
    "text",
    [
        'Here it is:\n```json\n{"facts": []}\n```',
        '```json\n{"facts": []}\n```\nI hope this helps!',
        '```json\n{"facts": []}\n```\n```json\n{"facts": []}\n```',
        '{"facts": []} {"facts": []}',
    ],
)
def test_what_stands_beside_the_object_is_not_guessed_away(text: str) -> None:
    with pytest.raises(BadAnswer):
        read(text, FACTS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("```json\n\n```", "empty"),
        ('{"facts": [', "not JSON"),
        ("<html></html>", "not JSON"),
        ('{"facts": [], "facts": [1]}', "twice"),
        ('{"facts": [{"text": "a", "text": "b"}]}', "twice"),
        ('{"facts": NaN}', "NaN"),
        ('{"facts": -Infinity}', "-Infinity"),
        ('{"facts": 1e999}', "too large"),
        ('{"facts": ' + "9" * 5_000 + "}", "too large"),
        ('{"facts": ' + "9" * 40 + "}", "too large"),
        ('{"facts": -9223372036854775809}', "too large"),
        ('{"facts": ' + "[" * 100_000, "nested"),
        ("[]", "not an object"),
        ('"facts"', "not an object"),
        ("null", "not an object"),
    ],
)
def test_what_json_leaves_open_is_refused_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(BadAnswer, match=says):
        read(text, FACTS)


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, -(2**63) + 1, 0.5, -1e300])
def test_numbers_that_can_be_stored_stay_as_they_are(number: float) -> None:
    assert read(json.dumps({"n": number}), ANYTHING) == {"n": number}


@pytest.mark.parametrize(
    "text",
    [
        "```" + " " * 1_000_000 + "!",
        "```json" + "\t" * 1_000_000 + "`",
        "`" * 1_000_000,
        "```\n" + "\n ``" * 500_000,
        "```" + "a" * 1_000_000,
    ],
    ids=["spaces", "tabs", "backticks", "half fences", "a long word"],
)
def test_no_answer_keeps_the_reader_busy(text: str) -> None:
    # A pattern over the whole of it took time with the square of its length: hours for these.
    assert unfenced(text) == text


def test_a_reason_says_where_and_what_and_never_quotes_a_value() -> None:
    with pytest.raises(BadAnswer) as told:
        read('{"facts": [{"text": 31337}, {"text": ["hunter2"]}]}', FACTS)

    assert "$.facts[0].text" in str(told.value)
    assert "string" in str(told.value)
    assert "31337" not in str(told.value)
    assert "hunter2" not in str(told.value)


def test_a_missing_and_a_surplus_property_are_named() -> None:
    with pytest.raises(BadAnswer, match=r"facts.*required"):
        read('{"fact": []}', FACTS)


def test_half_a_surrogate_pair_in_a_value_that_does_not_fit_is_told_and_not_a_crash() -> None:
    with pytest.raises(BadAnswer, match="surrogate"):
        read('{"facts": [], "more": "\\ud800"}', FACTS)


def test_a_value_deeper_than_a_schema_can_follow_is_refused() -> None:
    tree = shape_of({"type": "object", "additionalProperties": {"$ref": "#"}})

    with pytest.raises(BadAnswer):
        read('{"a":' * 900 + "1" + "}" * 900, tree)


@pytest.mark.parametrize(
    "schema", [{"type": "objekt"}, {"$ref": "http://127.0.0.1:9/schema.json"}, {"pattern": "("}]
)
def test_a_schema_that_is_none_or_lies_elsewhere_is_the_askers_fault(
    schema: dict[str, Any],
) -> None:
    with pytest.raises(InvalidInput, match="JSON Schema"):
        shape_of(schema)


@given(st.text())
def test_only_an_object_or_a_bad_answer_ever_comes_of_a_text(text: str) -> None:
    try:
        value = read(text, ANYTHING)
    except BadAnswer:
        return
    assert isinstance(value, dict)


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.integers(-(2**63) + 1, 2**63 - 1) | st.text(), st.lists, max_leaves=5
        ),
    )
)
def test_every_object_comes_back_as_it_was(value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if any("\ud800" <= char <= "\udfff" for char in text):
        return

    assert read(text, ANYTHING) == value
    assert read(f"```json\n{text}\n```", ANYTHING) == value


def test_a_fence_that_never_closes_stays() -> None:
    assert unfenced('```json\n{"a": 1}') == '```json\n{"a": 1}'

"""The stand-in for a model."""

import json
from typing import Any

import jsonschema
import pytest

from noema.llm.errors import AttemptFailed
from noema.llm.model import ChatMessage, Completion, Parameters, Usage
from noema.llm.providers.echo import PRICES, SAYS, EchoProvider, smallest

MESSAGES = (
    ChatMessage(role="system", text="Be brief."),
    ChatMessage(role="user", text="How warm\nis it?"),
)


async def ask(schema: dict[str, Any] | None = None, **parameters: Any) -> Completion:
    return await EchoProvider().complete(
        MESSAGES,
        model="",
        parameters=Parameters(**parameters),
        schema=schema,
        deadline_s=1.0,
    )


async def test_it_says_what_it_is_and_always_the_same() -> None:
    first, second = await ask(), await ask()

    assert first == second
    assert first.text == f"{SAYS} You said: How warm is it?"
    assert (first.finish, first.model) == ("stop", "echo")


async def test_it_counts_a_token_per_four_characters_and_costs_nothing() -> None:
    done = await ask()

    # 9 and 15 characters were said.
    assert done.usage == Usage(input=6, output=-(-len(done.text) // 4))
    assert PRICES.input == PRICES.output == 0


async def test_it_obeys_the_limit_and_the_stop() -> None:
    cut, stopped = await ask(max_tokens=2), await ask(stop=(" You",))

    assert (cut.text, cut.finish) == (SAYS[:8], "length")
    assert (stopped.text, stopped.finish) == (SAYS, "stop")


async def test_without_time_it_is_not_asked() -> None:
    with pytest.raises(AttemptFailed) as failed:
        await EchoProvider().complete(
            MESSAGES, model="", parameters=Parameters(), schema=None, deadline_s=0.0
        )

    assert not failed.value.is_cost_unknown


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object"},
    {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "number", "minimum": 0.5, "maximum": 0.75}, "minItems": 2},
    {"type": "string", "minLength": 100},
    {"type": "string", "maxLength": 3},
    {"type": "string", "format": "date-time"},
    {"enum": ["new", "known"]},
    {"const": {"a": [1]}},
    {"type": ["string", "null"]},
    {"type": ["string", "integer"]},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"oneOf": [{"type": "integer", "minimum": 3}, {"type": "boolean"}]},
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
            {"properties": {"b": {"type": "null"}}, "required": ["b"]},
        ]
    },
    {
        "type": "object",
        "properties": {"facts": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/F"}}},
        "required": ["facts"],
        "$defs": {
            "F": {
                "type": "object",
                "properties": {"text": {"type": "string", "minLength": 1}},
                "required": ["text"],
            }
        },
    },
    {"type": "integer", "minimum": 1, "maximum": 10},
    {"type": "integer", "maximum": -3},
    {"type": "integer", "exclusiveMinimum": 0},
    {"type": "number", "exclusiveMaximum": 0},
    {"type": "integer", "minimum": 7, "multipleOf": 5},
    {"type": "boolean"},
    {"type": "null"},
    {},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
async def test_its_answer_to_a_schema_is_valid(schema: dict[str, Any]) -> None:
    done = await ask(schema, max_tokens=1)

    jsonschema.Draft202012Validator(schema).validate(json.loads(done.text))


def test_a_schema_that_refers_to_itself_comes_to_an_end() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}

    assert "a" in smallest(schema)

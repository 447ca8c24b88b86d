"""Anthropic's Messages against a server that speaks the format, well and badly.

The server itself is held against Anthropic's own client at the end.
"""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import anthropic
import pytest

from noema.llm.errors import AttemptFailed
from noema.llm.model import ChatMessage, Completion, Usage
from noema.llm.providers.anthropic import MAX_TOKENS
from noema.llm.providers.constrained import constrained
from noema.llm.providers.make import OpenProvider
from noema.llm.providers.turns import OPENING
from noema.llm.providers.wire import Limits
from tests import llm_asked
from tests.llm_asked import LIMITS, NOW, SAID, SCHEMA, limits_for, opened
from tests.llm_fake import (
    Reply,
    broken_after,
    drip,
    endless,
    in_pieces,
    refusal,
)
from tests.llm_fake_anthropic import MESSAGES, STREAM, FakeAnthropic, anthropic_error, event

CANARY = "sk-ant-canary-4f1d/9Zq+71bbKEY=="
MODEL = "claude-sonnet-5"
USED = Usage(input=20, output=8, reasoning=12, cache_read=10, cache_write=5)
BEGUN = b"".join(FakeAnthropic().stream()[:5])
DELTA = FakeAnthropic().stream()[3]


def provider(
    fake: FakeAnthropic, *, path: str = "", limits: Limits = LIMITS, **parameters: Any
) -> AbstractAsyncContextManager[OpenProvider]:
    return opened("anthropic", fake.url + path, CANARY, limits=limits, **parameters)


async def ask(made: OpenProvider, *, model: str = MODEL, **asked: Any) -> Completion:
    return await llm_asked.ask(made, model=model, **asked)


async def failing(made: OpenProvider, *, model: str = MODEL, **asked: Any) -> AttemptFailed:
    return await llm_asked.failing(made, (CANARY,), model=model, **asked)


@pytest.fixture
async def fake() -> AsyncIterator[FakeAnthropic]:
    async with FakeAnthropic() as server:
        server.key = CANARY
        yield server


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/messages"])
async def test_an_answer_is_streamed_and_counted(fake: FakeAnthropic, path: str) -> None:
    async with provider(fake, path=path) as made:
        done = await ask(made)

    assert done == Completion(text=fake.text, finish="stop", model=MODEL, usage=USED)
    assert fake.requests[0].target == MESSAGES
    assert fake.requests[0].headers["x-api-key"] == CANARY
    assert "authorization" not in fake.requests[0].headers


async def test_only_the_limit_is_sent_that_was_not_set(fake: FakeAnthropic) -> None:
    async with provider(fake) as made:
        await ask(made)

    assert fake.requests[0].json == {
        "model": MODEL,
        "max_tokens": MAX_TOKENS,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "How warm is it?"}],
        "stream": True,
    }


async def test_what_was_set_is_sent_and_what_a_call_sets_counts_most(fake: FakeAnthropic) -> None:
    extra = {"metadata": {"user_id": "noema"}}
    async with provider(fake, temperature=0.7, max_tokens=64, extra=extra) as made:
        await ask(made, temperature=0.0, top_p=0.9, stop=("\n",), seed=5, num_ctx=4096)
        await ask(made, max_tokens=9)

    body = fake.requests[0].json
    assert {k: v for k, v in body.items() if k not in ("model", "messages", "system")} == {
        "max_tokens": 64,
        "temperature": 0.0,
        "top_p": 0.9,
        "stop_sequences": ["\n"],
        "metadata": {"user_id": "noema"},
        "stream": True,
    }
    assert fake.requests[1].json["max_tokens"] == 9


async def test_a_row_may_set_the_limit_by_its_own_name(fake: FakeAnthropic) -> None:
    async with provider(fake, extra={"max_tokens": 77}) as made:
        await ask(made)

    assert fake.requests[0].json["max_tokens"] == 77


async def test_messages_of_one_side_become_one_turn(fake: FakeAnthropic) -> None:
    messages = (
        ChatMessage(role="system", text="One."),
        ChatMessage(role="user", text="Two."),
        ChatMessage(role="user", text="Three."),
        ChatMessage(role="user", text=" \n"),
        ChatMessage(role="assistant", text="Four."),
        ChatMessage(role="system", text="Five."),
        ChatMessage(role="assistant", text="Six."),
        ChatMessage(role="user", text="Seven."),
    )
    async with provider(fake) as made:
        await ask(made, messages=messages)

    body = fake.requests[0].json
    assert body["system"] == "One.\n\nFive."
    assert body["messages"] == [
        {"role": "user", "content": "Two.\n\nThree."},
        {"role": "assistant", "content": "Four.\n\nSix."},
        {"role": "user", "content": "Seven."},
    ]


@pytest.mark.parametrize("role", ["system", "assistant"])
async def test_the_user_speaks_first_even_where_nobody_did(fake: FakeAnthropic, role: Any) -> None:
    async with provider(fake) as made:
        done = await ask(made, messages=(ChatMessage(role=role, text="Hello."),))

    assert done.text == fake.text
    assert fake.requests[0].json["messages"][0] == {"role": "user", "content": OPENING}


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_stream_may_be_cut_anywhere(fake: FakeAnthropic, size: int) -> None:
    fake.text, fake.thinking = "Größer als 20 €, 温かい 😀", "Hm …"
    fake.then(in_pieces(b"".join(fake.stream()), size, media_type="text/event-stream"))

    async with provider(fake) as made:
        done = await ask(made)

    assert (done.text, done.usage) == (fake.text, USED)


async def test_what_was_thought_is_not_the_answer(fake: FakeAnthropic) -> None:
    fake.thinking = "Let me think."

    async with provider(fake) as made:
        assert (await ask(made)).text == fake.text


async def test_a_server_that_does_not_stream_is_understood(fake: FakeAnthropic) -> None:
    fake.thinking = "Let me think."
    fake.then(Reply(pieces=[json.dumps(fake.whole("other")).encode()]))

    async with provider(fake) as made:
        done = await ask(made)

    assert done == Completion(text=fake.text, finish="stop", model="other", usage=USED)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool"),
        ("refusal", "refusal"),
        ("pause_turn", "other"),
    ],
)
async def test_the_reason_to_finish_is_named(fake: FakeAnthropic, reason: str, finish: str) -> None:
    fake.stop = reason

    async with provider(fake) as made:
        assert (await ask(made)).finish == finish


async def test_a_refusal_tells_why(fake: FakeAnthropic) -> None:  # Guarantee 9
    fake.text, fake.stop = "", "refusal"
    fake.stop_details = {"type": "refusal", "category": "cyber", "explanation": "It may harm."}

    async with provider(fake) as made:
        done = await ask(made)

    assert (done.text, done.finish, done.usage) == ("It may harm.", "refusal", USED)


@pytest.mark.parametrize(
    ("start", "end", "classes"),
    [
        ({"input_tokens": 3, "output_tokens": 1}, {"output_tokens": 4}, Usage(input=3, output=4)),
        (
            # The totals at the end count, and what is missing there changes nothing.
            {"input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 1},
            {"input_tokens": 5, "cache_read_input_tokens": None, "output_tokens": 4},
            Usage(input=5, output=4, cache_read=7),
        ),
        (
            {"input_tokens": 3},
            {"output_tokens": 4, "output_tokens_details": {"thinking_tokens": 9}},
            Usage(input=3, output=4, reasoning=9),
        ),
        ({"input_tokens": "3"}, {"output_tokens": -1}, Usage()),
        ({}, {}, Usage()),
    ],
)
async def test_token_classes_are_disjoint(
    fake: FakeAnthropic, start: dict[str, Any], end: dict[str, Any], classes: Usage
) -> None:
    fake.usage, fake.end_usage = start, end

    async with provider(fake) as made:
        assert (await ask(made)).usage == classes


async def test_a_key_in_an_answer_is_masked(fake: FakeAnthropic) -> None:
    fake.text = f"Your key is {CANARY}."

    async with provider(fake) as made:
        assert (await ask(made)).text == "Your key is [secret]."


# Schemas.


async def test_a_schema_is_sent_beside_what_the_row_sets(fake: FakeAnthropic) -> None:
    async with provider(fake, extra={"output_config": {"effort": "low"}}) as made:
        await ask(made, schema=SCHEMA)

    assert fake.requests[0].json["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": SCHEMA},
    }
    assert "JSON Schema" not in fake.requests[0].json["system"]


async def test_a_model_without_schemas_is_told_in_words_and_remembered(
    fake: FakeAnthropic,
) -> None:
    fake.knows_schemas = False

    async with provider(fake) as made:
        first = await ask(made, schema=SCHEMA)
        await ask(made, schema=SCHEMA)
        fake.knows_schemas = True
        await ask(made, schema=SCHEMA, model="claude-newer")

    assert first.text == fake.text
    bodies = [r.json for r in fake.requests]
    assert ["output_config" in body for body in bodies] == [True, False, False, True]
    assert '{"warm":{"type":"integer"}}' in bodies[1]["system"]


async def test_a_schema_that_is_refused_says_nothing_about_the_next(fake: FakeAnthropic) -> None:
    fake.bad_schema = "output_config.format.schema: Recursive references are not supported"
    async with provider(fake) as made:
        await ask(made, schema=SCHEMA)
        fake.bad_schema = ""
        await ask(made, schema=SCHEMA)

    assert ["output_config" in r.json for r in fake.requests] == [True, False, True]


async def test_another_refusal_is_not_asked_again(fake: FakeAnthropic) -> None:
    fake.then(refusal(400, anthropic_error("prompt is too long: 200001 tokens > 200000 maximum")))

    async with provider(fake) as made:
        failed = await failing(made, schema=SCHEMA)

    assert len(fake.requests) == 1
    assert "prompt is too long" in str(failed)
    assert not failed.retryable


def test_a_schema_keeps_what_can_be_said() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "score": {"type": "number", "minimum": 0, "maximum": 1, "description": "How sure."},
            "when": {"type": "string", "format": "date", "minLength": 3},
            "what": {"type": "string", "format": "regex"},
            "names": {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "one": {"type": "array", "items": {"$ref": "#/$defs/x"}, "minItems": 1},
            "either": {"oneOf": [{"type": "null"}, {"enum": ["a", "b"]}]},
        },
        "required": ["score"],
        "$defs": {"x": {"type": "object", "properties": {"y": {"type": "integer"}}}},
    }

    assert constrained(schema) == {
        "type": "object",
        "properties": {
            "score": {"type": "number", "description": "How sure."},
            "when": {"type": "string", "format": "date"},
            "what": {"type": "string"},
            "names": {"type": "array", "items": {"type": "string"}},
            "one": {"type": "array", "items": {"$ref": "#/$defs/x"}, "minItems": 1},
            "either": {"anyOf": [{"type": "null"}, {"enum": ["a", "b"]}]},
        },
        "required": ["score"],
        "additionalProperties": False,
        "$defs": {
            "x": {
                "type": "object",
                "properties": {"y": {"type": "integer"}},
                "additionalProperties": False,
            }
        },
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"x": True}},
        {"type": "object", "properties": {"x": {}}},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {"x": 1}, "patternProperties": {"^a": {}}},
    ],
)
async def test_a_schema_that_cannot_be_said_is_told_in_words(
    fake: FakeAnthropic, schema: dict[str, Any]
) -> None:
    async with provider(fake) as made:
        await ask(made, schema=schema)

    assert "output_config" not in fake.requests[0].json
    assert "JSON Schema" in fake.requests[0].json["system"]


# What newer models refuse.


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ("`temperature` is deprecated for this model.", {"top_p"}),
        ("temperature: Extra inputs are not permitted", {"top_p"}),
        ("`temperature` and `top_p` cannot both be specified for this model.", {"temperature"}),
        ("top_p is not supported by this model", {"temperature"}),
        ("`temperature` may only be set to 1 when thinking is enabled.", {"top_p"}),
    ],
)
async def test_a_setting_that_the_model_refuses_is_left_out_from_then_on(
    fake: FakeAnthropic, told: str, left: set[str]
) -> None:
    fake.then(refusal(400, anthropic_error(told)))

    async with provider(fake, temperature=0.2) as made:
        await ask(made, top_p=0.5)
        await ask(made, top_p=0.5)
        await ask(made, top_p=0.5, model="claude-other")

    sampling = [{"temperature", "top_p"} & set(r.json) for r in fake.requests]
    assert sampling == [{"temperature", "top_p"}, left, left, {"temperature", "top_p"}]


async def test_a_model_may_refuse_all_of_it(fake: FakeAnthropic) -> None:
    fake.knows_schemas = False
    fake.then(
        refusal(400, anthropic_error("`top_p` is deprecated for this model.")),
        refusal(400, anthropic_error("`temperature` is deprecated for this model.")),
    )

    async with provider(fake, temperature=0.2, top_p=0.5) as made:
        done = await ask(made, schema=SCHEMA)

    assert done.text == fake.text
    assert len(fake.requests) == 4
    assert not {"temperature", "top_p", "output_config"} & set(fake.requests[-1].json)


async def test_a_value_that_is_wrong_is_no_setting_that_is_refused(fake: FakeAnthropic) -> None:
    message = "temperature: Input should be less than or equal to 1"
    fake.then(refusal(400, anthropic_error(message)))

    async with provider(fake) as made:
        assert message in str(await failing(made, temperature=1.5))
    assert len(fake.requests) == 1


# What a bad answer does.

BAD: dict[str, tuple[Reply, str]] = {
    "drips comments": (drip(), "did not finish its answer within 0.6 s"),
    "sends a list as an event": (Reply(headers=STREAM, pieces=[b"data: []\n\n"]), "not its JSON"),
    "sends 100 MB of thoughts": (
        endless(DELTA.replace(b"text", b"thinking")),
        "more than 1,048,576 bytes",
    ),
    "is overloaded in its answer": (
        Reply(
            headers=STREAM,
            pieces=[BEGUN, event(anthropic_error(f"Overloaded, {CANARY}", "overloaded_error"))],
        ),
        "failed while it answered: Overloaded, [secret]",
    ),
    "fails in its answer": (
        Reply(headers=STREAM, pieces=[BEGUN, event(anthropic_error("Oh no.", "api_error"))]),
        "failed while it answered: Oh no.",
    ),
    "fails in a way of its own": (
        Reply(headers=STREAM, pieces=[BEGUN, b'event: error\ndata: {"message": "?"}\n\n']),
        "failed while it answered",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_answer_is_a_failed_attempt_that_may_have_cost(
    fake: FakeAnthropic, name: str
) -> None:  # Guarantee 9
    reply, told = BAD[name]
    fake.then(replace(reply, pieces=list(reply.pieces)))

    async with provider(fake, limits=limits_for(name)) as made:
        failed = await failing(made, deadline_s=0.6 if "drips" in name else 30.0)

    assert told in str(failed)
    assert str(failed).startswith("The model at 127.0.0.1 ")
    assert (failed.retryable, failed.is_cost_unknown) == ("100 MB" not in name, True)


async def test_what_was_used_before_it_failed_is_told(fake: FakeAnthropic) -> None:
    fake.then(broken_after(BEGUN))

    async with provider(fake) as made:
        failed = await failing(made)

    assert failed.usage == Usage(input=20, output=1, cache_read=10, cache_write=5)
    assert failed.is_cost_unknown


async def test_more_text_than_anyone_reads_is_no_answer(fake: FakeAnthropic) -> None:
    fake.text = "x" * 5000

    async with provider(fake, limits=replace(LIMITS, max_text=4000)) as made:
        failed = await failing(made)

    assert "more than 4,000 characters" in str(failed)


@pytest.mark.parametrize(
    ("kind", "retryable", "status", "is_unknown"),
    [
        ("overloaded_error", True, 529, False),
        ("rate_limit_error", True, 429, False),
        ("api_error", True, 500, True),
        ("timeout_error", True, 504, True),
        ("invalid_request_error", False, 400, False),
        ("authentication_error", False, 401, False),
        ("billing_error", False, 402, False),
        ("new_error", True, None, True),
    ],
)
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_error_instead_of_an_answer_says_whether_to_ask_again(
    fake: FakeAnthropic,
    kind: str,
    retryable: bool,
    status: int | None,
    is_unknown: bool,
    is_streamed: bool,
) -> None:
    error = anthropic_error("No.", kind)
    raw = event(error) if is_streamed else json.dumps(error).encode()
    fake.then(Reply(headers=STREAM if is_streamed else {}, pieces=[raw]))

    async with provider(fake) as made:
        failed = await failing(made)

    assert (failed.retryable, failed.status) == (retryable, status)
    assert failed.is_cost_unknown is is_unknown


@pytest.mark.parametrize(
    ("status", "wait"),
    [
        (429, "7"),
        (429, format_datetime(NOW + timedelta(seconds=7), usegmt=True)),
        (529, "7"),
        (503, "7"),
    ],
)
async def test_who_asks_us_to_wait_is_heard(
    fake: FakeAnthropic, status: int, wait: str
) -> None:  # Guarantee 9
    kind = "overloaded_error" if status == 529 else "rate_limit_error"
    fake.then(refusal(status, anthropic_error(f"Slow down, {CANARY}.", kind), retry_after=wait))

    async with provider(fake) as made:
        failed = await failing(made)

    assert (failed.status, failed.retry_after_s, failed.retryable) == (status, 7.0, True)
    assert not failed.is_cost_unknown
    assert "Slow down, [secret]." in str(failed)


async def test_a_wrong_key_is_told_without_the_key(fake: FakeAnthropic) -> None:
    fake.key = "another"

    async with provider(fake) as made:
        failed = await failing(made)

    assert str(failed) == (
        "The model at 127.0.0.1 answered 401 Unauthorized: invalid x-api-key: [secret]. "
        "Check the key."
    )


async def test_no_redirect_is_followed(fake: FakeAnthropic) -> None:
    async with FakeAnthropic() as other, provider(fake) as made:
        fake.then(Reply(status=307, headers={"location": f"{other.url}{MESSAGES}"}))
        failed = await failing(made)

        assert other.requests == []
    assert "no redirect is followed" in str(failed)


async def test_a_private_address_is_not_asked_where_none_is_meant(fake: FakeAnthropic) -> None:
    endpoint = fake.url.replace("http://", "https://")
    async with opened("anthropic", endpoint, CANARY, allows_private=False) as made:
        failed = await failing(made)

    assert fake.requests == []
    assert "this machine itself, which is not asked" in str(failed)
    assert (failed.retryable, failed.is_cost_unknown) == (False, False)


# The server of these tests, held against Anthropic's own client.


def theirs(fake: FakeAnthropic) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=fake.url, api_key=CANARY, max_retries=0)


async def test_anthropics_own_client_reads_what_our_server_writes(fake: FakeAnthropic) -> None:
    fake.thinking = "Let me think."
    async with theirs(fake) as client:
        messages: list[Any] = [{"role": "user", "content": "Hello"}]
        whole = await client.messages.create(model=MODEL, max_tokens=9, messages=messages)
        async with client.messages.stream(model=MODEL, max_tokens=9, messages=messages) as streamed:
            texts = [text async for text in streamed.text_stream]
            final = await streamed.get_final_message()

    assert [block.type for block in whole.content] == ["thinking", "text"]
    assert "".join(texts) == fake.text
    assert final.stop_reason == whole.stop_reason == "end_turn"
    assert final.usage.output_tokens == whole.usage.output_tokens == 20
    assert final.usage.cache_read_input_tokens == 10
    assert final.usage.output_tokens_details is not None
    assert final.usage.output_tokens_details.thinking_tokens == 12


async def test_anthropics_own_client_understands_our_servers_errors(fake: FakeAnthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "Hello"}]
    async with theirs(fake) as client:
        with pytest.raises(anthropic.BadRequestError):
            await client.messages.create(model=MODEL, max_tokens=9, messages=[])
        fake.then(refusal(529, anthropic_error("Overloaded", "overloaded_error")))
        with pytest.raises(anthropic.APIStatusError) as overloaded:
            await client.messages.create(model=MODEL, max_tokens=9, messages=messages)
        error = event(anthropic_error("Overloaded", "overloaded_error"))
        fake.then(Reply(headers=STREAM, pieces=[BEGUN, error]))
        with pytest.raises(anthropic.APIStatusError) as broken:
            async with client.messages.stream(
                model=MODEL, max_tokens=9, messages=messages
            ) as streamed:
                await streamed.get_final_message()

    assert overloaded.value.status_code == 529
    assert "overloaded_error" in str(broken.value)


async def test_we_ask_as_anthropics_own_client_asks(fake: FakeAnthropic) -> None:
    config: Any = {"format": {"type": "json_schema", "schema": SCHEMA}}
    async with theirs(fake) as client:
        await client.messages.create(
            model=MODEL,
            max_tokens=MAX_TOKENS,
            system=SAID[0].text,
            messages=[{"role": "user", "content": SAID[1].text}],
            output_config=config,
            stream=True,
        )
    version = {"anthropic_version": "2026-10-21"}
    async with provider(fake, extra=version) as made:
        await ask(made, schema=SCHEMA)

    their_request, our_request = fake.requests
    assert (our_request.target, our_request.json) == (their_request.target, their_request.json)
    assert our_request.headers["anthropic-version"] == "2026-10-21"
    assert our_request.headers["content-type"] == their_request.headers["content-type"]
    # Their client writes the key in the one way that Anthropic reads, we in the other.
    assert their_request.headers["authorization"] == f"Bearer {our_request.headers['x-api-key']}"

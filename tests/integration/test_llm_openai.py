"""Chat completions against a server that speaks the format, well and badly.

The server itself is held against OpenAI's own client at the end.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import openai
import pytest

from noema.core.clock import ManualClock
from noema.llm.errors import AttemptFailed
from noema.llm.model import Completion, Parameters, Usage
from noema.llm.providers.azure import AzureProvider
from noema.llm.providers.openai import OpenAIProvider
from noema.llm.providers.setup import Setup
from noema.llm.providers.wire import Limits
from noema.net.guard import guarded_transport
from tests.llm_asked import LIMITS, NOW, SAID, SCHEMA, assert_silent
from tests.llm_fake import (
    CHAT,
    MIB,
    FakeOpenAI,
    Reply,
    UsageAt,
    broken_after,
    drip,
    endless,
    in_pieces,
    openai_error,
    refusal,
    sse,
    web_page,
)

CANARY = "canary-4f1d/9Zq+71bbKEY=="
USED = Usage(input=20, output=8, reasoning=12, cache_read=10)


@asynccontextmanager
async def provider(
    fake: FakeOpenAI,
    *,
    kind: type[OpenAIProvider] = OpenAIProvider,
    path: str = "/v1",
    limits: Limits = LIMITS,
    secret: str = CANARY,
    transport: httpx.AsyncBaseTransport | None = None,
    **parameters: Any,
) -> AsyncIterator[OpenAIProvider]:
    made = kind(
        Setup(
            endpoint=fake.url + path,
            secret=secret,
            allows_private=True,
            parameters=Parameters(**parameters),
            transport=transport,
            clock=ManualClock(NOW),
            limits=limits,
        )
    )
    try:
        yield made
    finally:
        await made.aclose()


async def ask(
    made: OpenAIProvider,
    *,
    model: str = "gpt-4o",
    schema: Mapping[str, Any] | None = None,
    deadline_s: float = 30.0,
    **parameters: Any,
) -> Completion:
    return await made.complete(
        SAID,
        model=model,
        parameters=Parameters(**parameters),
        schema=schema,
        deadline_s=deadline_s,
    )


async def failing(made: OpenAIProvider, **asked: Any) -> AttemptFailed:
    with pytest.raises(AttemptFailed) as failed:
        await ask(made, **asked)
    assert_silent(failed.value, (CANARY,))
    return failed.value


@pytest.fixture
async def fake() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        server.key = CANARY
        yield server


# What is asked, and how the answer is read.


async def test_an_answer_is_streamed_and_counted(fake: FakeOpenAI) -> None:
    async with provider(fake) as made:
        done = await ask(made)

    assert done == Completion(text=fake.text, finish="stop", model="gpt-4o", usage=USED)
    assert fake.requests[0].target == "/v1" + CHAT
    assert fake.requests[0].headers["authorization"] == f"Bearer {CANARY}"


async def test_nothing_is_sent_that_was_not_set(fake: FakeOpenAI) -> None:
    async with provider(fake) as made:
        await ask(made)

    assert fake.requests[0].json == {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How warm is it?"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_what_was_set_is_sent_and_what_a_call_sets_counts_most(fake: FakeOpenAI) -> None:
    async with provider(fake, temperature=0.7, seed=5, extra={"user": "noema"}) as made:
        await ask(made, temperature=0.0, top_p=0.9, max_tokens=64, stop=("\n",), num_ctx=4096)

    body = fake.requests[0].json
    sent = {k: v for k, v in body.items() if k not in ("model", "messages", "stream_options")}
    assert sent == {
        "stream": True,
        "temperature": 0.0,
        "top_p": 0.9,
        "max_tokens": 64,
        "seed": 5,
        "stop": ["\n"],
        "user": "noema",
    }


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_a_stream_may_be_cut_anywhere(fake: FakeOpenAI, size: int) -> None:
    fake.text = "Größer als 20 €, 温かい 😀"
    fake.then(in_pieces(b"".join(fake.stream()), size, media_type="text/event-stream"))

    async with provider(fake) as made:
        done = await ask(made)

    assert (done.text, done.usage) == (fake.text, USED)


@pytest.mark.parametrize("end", [b"\r", b"\r\n"])
async def test_lines_may_end_as_they_like(fake: FakeOpenAI, end: bytes) -> None:
    raw = b": hello\n\n" + b"".join(fake.stream()).replace(b"data: ", b"data:")
    raw = raw.replace(b"\n", end)
    fake.then(in_pieces(raw, 11, media_type="text/event-stream; charset=utf-8"))

    async with provider(fake) as made:
        assert (await ask(made)).text == fake.text


@pytest.mark.parametrize("usage_at", ["own", "last", "after"])
@pytest.mark.parametrize("has_done", [True, False])
async def test_usage_counts_wherever_it_stands(
    fake: FakeOpenAI, usage_at: UsageAt, has_done: bool
) -> None:  # Guarantee 9
    fake.usage_at, fake.has_done = usage_at, has_done

    async with provider(fake) as made:
        done = await ask(made)

    assert (done.text, done.finish, done.usage) == (fake.text, "stop", USED)


async def test_an_empty_count_after_the_real_one_takes_nothing_from_it(fake: FakeOpenAI) -> None:
    pieces = fake.stream()
    empty = sse({"choices": [], "usage": {}}, {"choices": [], "usage": {"prompt_tokens": None}})
    stream = {"content-type": "text/event-stream", "content-encoding": ""}
    fake.then(Reply(headers=stream, pieces=[*pieces[:-1], empty, pieces[-1]]))

    async with provider(fake) as made:
        assert (await ask(made)).usage == USED


async def test_usage_that_never_comes_is_unknown(fake: FakeOpenAI) -> None:
    fake.usage_at = "none"

    async with provider(fake) as made:
        assert (await ask(made)).usage == Usage()


@pytest.mark.parametrize(
    ("usage", "classes"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4}, Usage(input=3, output=4)),
        (
            # Beside the completion, as xAI counts: the total shows it.
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "prompt_tokens_details": {"cached_tokens": 6},
                "completion_tokens_details": {"reasoning_tokens": 94},
            },
            Usage(input=26, output=9, reasoning=94, cache_read=6),
        ),
        (
            # More cached than there was: then it was not counted within.
            {"prompt_tokens": 3, "completion_tokens": 4, "prompt_cache_hit_tokens": 5},
            Usage(input=3, output=4, cache_read=5),
        ),
        ({"prompt_tokens": "3", "completion_tokens": None}, Usage()),
        ({"prompt_tokens": -3, "completion_tokens_details": 7}, Usage()),
    ],
)
async def test_token_classes_are_disjoint(
    fake: FakeOpenAI, usage: dict[str, Any], classes: Usage
) -> None:
    fake.usage = usage

    async with provider(fake) as made:
        assert (await ask(made)).usage == classes


async def test_a_server_that_does_not_stream_although_asked_to_is_understood(
    fake: FakeOpenAI,
) -> None:
    fake.then(Reply(pieces=[json.dumps(fake.whole("local")).encode()]))

    async with provider(fake) as made:
        done = await ask(made)

    assert done == Completion(text=fake.text, finish="stop", model="local", usage=USED)


async def test_a_row_may_ask_for_answers_in_one_piece(fake: FakeOpenAI) -> None:
    async with provider(fake, extra={"stream": False}) as made:
        done = await ask(made)

    assert (done.text, done.usage) == (fake.text, USED)
    assert set(fake.requests[0].json) == {"model", "messages"}


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_refusal_is_a_finish_of_its_own(fake: FakeOpenAI, is_streamed: bool) -> None:
    fake.refusal_text = "I cannot help with that."

    async with provider(fake, extra={} if is_streamed else {"stream": False}) as made:
        done = await ask(made, schema=SCHEMA)

    assert (done.text, done.finish, done.usage) == (fake.refusal_text, "refusal", USED)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "filtered"),
        ("tool_calls", "tool"),
        ("abort", "other"),
    ],
)
async def test_the_reason_to_finish_is_named(fake: FakeOpenAI, reason: str, finish: str) -> None:
    fake.finish = reason

    async with provider(fake) as made:
        assert (await ask(made)).finish == finish


async def test_content_in_parts_is_put_together(fake: FakeOpenAI) -> None:
    parts = [
        {"type": "thinking", "thinking": []},
        {"type": "text", "text": "On"},
        {"type": "text", "text": "e"},
    ]
    choice = {"index": 0, "delta": {"content": parts}, "finish_reason": "stop"}
    other = {"index": 1, "delta": {"content": "Two"}, "finish_reason": "length"}
    records = sse({"choices": [choice, other]}, "[DONE]")
    fake.then(Reply(headers={"content-type": "text/event-stream"}, pieces=[records]))

    async with provider(fake) as made:
        done = await ask(made)

    assert (done.text, done.finish) == ("One", "stop")


async def test_connections_are_used_again(fake: FakeOpenAI) -> None:
    async with provider(fake) as made:
        await ask(made)
        await ask(made)

        assert not fake.closed_by_client.is_set()


async def test_a_key_in_an_answer_is_masked(fake: FakeOpenAI) -> None:
    fake.text = f"Your key is {CANARY}."

    async with provider(fake) as made:
        assert (await ask(made)).text == "Your key is [secret]."


# What a service does not know is left out, and remembered.


async def test_a_server_that_refuses_stream_options_is_asked_without(fake: FakeOpenAI) -> None:
    fake.refuses = {"stream_options"}

    async with provider(fake) as made:
        first, second = await ask(made), await ask(made)

    assert first.text == second.text == fake.text
    assert ["stream_options" in r.json for r in fake.requests] == [True, False, False]
    assert all(r.json["stream"] for r in fake.requests)


async def test_a_server_that_refuses_to_stream_is_asked_without(fake: FakeOpenAI) -> None:
    fake.refuses = {"stream"}

    async with provider(fake) as made:
        first, second = await ask(made), await ask(made)

    assert first.usage == second.usage == USED
    assert ["stream" in r.json for r in fake.requests] == [True, False, False]


@pytest.mark.parametrize("model", ["o3-mini", "gpt-5.1", "openai/gpt-5", "O1"])
async def test_models_that_want_the_newer_limit_get_it(fake: FakeOpenAI, model: str) -> None:
    fake.refuses = {"max_tokens"}

    async with provider(fake) as made:
        await ask(made, model=model, max_tokens=9)

    assert [r.json.get("max_completion_tokens") for r in fake.requests] == [9]


async def test_the_newer_limit_is_learned_for_the_model_that_names_it(fake: FakeOpenAI) -> None:
    fake.refuses = {"max_tokens"}

    async with provider(fake) as made:
        await ask(made, model="later", max_tokens=9)
        await ask(made, model="later", max_tokens=9)
        fake.refuses = {"max_completion_tokens"}
        await ask(made, model="gpt-4o", max_tokens=9)

    names = [next(k for k in r.json if k.startswith("max_")) for r in fake.requests]
    assert names == ["max_tokens", "max_completion_tokens", "max_completion_tokens", "max_tokens"]


async def test_a_server_that_knows_the_older_limit_alone_gets_it(fake: FakeOpenAI) -> None:
    fake.refuses = {"max_completion_tokens"}

    async with provider(fake) as made:
        await ask(made, model="o3", max_tokens=9)

    assert fake.requests[-1].json["max_tokens"] == 9


async def test_a_row_may_name_the_limit(fake: FakeOpenAI) -> None:
    async with provider(fake, extra={"limit_as": "max_completion_tokens"}) as made:
        await ask(made, max_tokens=9)

    body = fake.requests[0].json
    assert body["max_completion_tokens"] == 9
    assert not {"max_tokens", "limit_as"} & set(body)


async def test_a_setting_that_the_model_refuses_is_left_out_from_then_on(fake: FakeOpenAI) -> None:
    unsupported = refusal(
        400,
        openai_error(
            "Unsupported value: 'temperature' does not support 0.2 with this model. Only the "
            "default (1) value is supported.",
            param="temperature",
            code="unsupported_value",
        ),
    )
    unknown = refusal(
        400,
        openai_error(
            "Unsupported parameter: 'top_p' is not supported with this model.",
            param="top_p",
            code="unsupported_parameter",
        ),
    )
    fake.then(unsupported, unknown)

    async with provider(fake) as made:
        for _ in range(2):
            await ask(made, model="gpt-5.1", temperature=0.2, top_p=0.9, seed=7, max_tokens=9)
        await ask(made, model="gpt-4o", temperature=0.2)

    sent = [sorted({"temperature", "top_p", "seed"} & r.json.keys()) for r in fake.requests]
    assert sent == [
        ["seed", "temperature", "top_p"],
        ["seed", "top_p"],
        ["seed"],
        ["seed"],
        ["temperature"],
    ]


async def test_a_value_that_is_wrong_is_no_setting_that_is_refused(fake: FakeOpenAI) -> None:
    message = (
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 "
        "instead."
    )
    fake.then(refusal(400, openai_error(message, param="temperature")))

    async with provider(fake) as made:
        assert message[:60] in str(await failing(made, temperature=3.0))
    assert len(fake.requests) == 1


async def test_a_limit_that_is_too_large_is_no_limit_that_is_unknown(fake: FakeOpenAI) -> None:
    message = "max_tokens is too large: 99999. This model supports at most 4096 tokens."
    fake.then(refusal(400, openai_error(message, param="max_tokens", code="invalid_value")))

    async with provider(fake) as made:
        failed = await failing(made, max_tokens=99_999)

    assert len(fake.requests) == 1
    assert message.rstrip(".") in str(failed)


async def test_a_schema_is_sent_strictly(fake: FakeOpenAI) -> None:
    async with provider(fake) as made:
        await ask(made, schema=SCHEMA)
        await ask(made, schema={**SCHEMA, "required": []})

    first, second = (r.json["response_format"] for r in fake.requests)
    assert first == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
    }
    # Strict mode would refuse a schema with a property that may be missing.
    assert second["json_schema"]["strict"] is False


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        ({"json_object", "text"}, ["json_schema", "json_object", "json_object"]),
        ({"text"}, ["json_schema", "json_object", None, None]),
    ],
)
async def test_without_schemas_the_schema_is_told_in_words(
    fake: FakeOpenAI, known: set[str], asked: list[str | None]
) -> None:
    fake.formats = known

    async with provider(fake) as made:
        await ask(made, schema=SCHEMA)
        await ask(made, schema=SCHEMA)
        await ask(made)

    *with_schema, without = (r.json for r in fake.requests)
    assert [b.get("response_format", {}).get("type") for b in with_schema] == asked
    assert json.dumps(SCHEMA, separators=(",", ":")) in with_schema[-1]["messages"][0]["content"]
    assert "response_format" not in without
    assert without["messages"][0]["content"] == "Be brief."


async def test_a_schema_that_cannot_be_used_says_nothing_about_the_next(fake: FakeOpenAI) -> None:
    message = "Invalid schema for response_format 'answer': 'oneOf' is not permitted."
    fake.then(refusal(400, openai_error(message, param="response_format")))

    async with provider(fake) as made:
        await ask(made, schema=SCHEMA)
        await ask(made, schema=SCHEMA)

    asked = [r.json["response_format"]["type"] for r in fake.requests]
    assert asked == ["json_schema", "json_object", "json_schema"]


async def test_a_server_that_refuses_everything_is_not_asked_for_ever(fake: FakeOpenAI) -> None:
    message = "Unsupported: stream, stream_options, response_format, max_completion_tokens"
    fake.then(*[refusal(400, openai_error(message))] * 50)

    async with provider(fake) as made:
        failed = await failing(made, schema=SCHEMA, max_tokens=5)

    assert not failed.retryable
    assert len(fake.requests) <= 8


# Bad answers. Guarantee 9: bounded, told, and never at no cost where it is unknown.


BEGUN = sse({"choices": [{"index": 0, "delta": {"content": "Cert"}, "finish_reason": None}]})
BAD: dict[str, tuple[Reply, str]] = {
    "drips letters": (drip(b"d"), "did not finish its answer within 0.6 s"),
    "fails in its answer": (
        Reply(
            headers={"content-type": "text/event-stream"},
            pieces=[BEGUN, sse({"error": {"message": f"Overloaded, {CANARY}", "code": 502}})],
        ),
        "failed while it answered: Overloaded, [secret]",
    ),
    "names an error": (
        Reply(
            headers={"content-type": "text/event-stream"},
            pieces=[BEGUN, b'event: error\ndata: {"message": "Out of memory"}\n\n'],
        ),
        "failed while it answered",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_answer_is_a_failed_attempt_that_may_have_cost(
    fake: FakeOpenAI, name: str
) -> None:  # Guarantee 9
    reply, told = BAD[name]
    fake.then(reply)

    async with provider(fake) as made:
        failed = await failing(made, deadline_s=0.6 if "drips" in name else 30.0)

    assert told in str(failed)
    assert str(failed).startswith("The model at 127.0.0.1 ")
    assert (failed.retryable, failed.is_cost_unknown) == (True, True)


async def test_more_text_than_anyone_reads_is_no_answer(fake: FakeOpenAI) -> None:
    fake.text = "x" * 5000

    async with provider(fake, limits=replace(LIMITS, max_text=4000)) as made:
        failed = await failing(made)

    assert "more than 4,000 characters" in str(failed)


@pytest.mark.parametrize(
    ("status", "wait"),
    [
        (429, "7"),
        (429, format_datetime(NOW + timedelta(seconds=7), usegmt=True)),
        (529, "7"),
        (503, format_datetime(NOW + timedelta(seconds=7), usegmt=True)),
    ],
)
async def test_who_asks_us_to_wait_is_heard(
    fake: FakeOpenAI, status: int, wait: str
) -> None:  # Guarantee 9
    body = openai_error(f"Rate limit reached for key {CANARY}.", kind="requests")
    fake.then(refusal(status, body, retry_after=wait))

    async with provider(fake) as made:
        failed = await failing(made)

    assert (failed.status, failed.retry_after_s, failed.retryable) == (status, 7.0, True)
    assert not failed.is_cost_unknown
    assert "Rate limit reached for key [secret]." in str(failed)


async def test_a_spent_account_is_not_asked_again(fake: FakeOpenAI) -> None:
    body = openai_error("You exceeded your current quota.", code="insufficient_quota")
    fake.then(refusal(429, body))

    async with provider(fake) as made:
        assert not (await failing(made)).retryable


async def test_a_wrong_key_is_told_without_the_key(fake: FakeOpenAI) -> None:
    fake.key = "another"

    async with provider(fake) as made:
        failed = await failing(made)

    assert str(failed) == (
        "The model at 127.0.0.1 answered 401 Unauthorized: Incorrect API key provided: [secret]. "
        "Check the key."
    )
    assert not failed.retryable


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (web_page(status=502), "502 Bad Gateway: a web page."),
        (refusal(500, "x" * 10_000), "…"),
        (refusal(500, f"\x1b[31m{CANARY}\n\r\x00\u202eend"), "[31m[secret] end."),
        (refusal(500, {"error": {"trace": ["a", CANARY]}}), '{"trace":["a","[secret]"]}'),
        (Reply(status=500, pieces=[b"\xff\xfe"]), "500 Internal Server Error"),
        (Reply(status=500), "500 Internal Server Error."),
        (broken_after(b"partly", media_type="text/plain"), "broke the connection off"),
    ],
)
async def test_the_body_of_an_error_is_told_short_and_clean(
    fake: FakeOpenAI, reply: Reply, told: str
) -> None:
    fake.then(reply)

    async with provider(fake) as made:
        failed = await failing(made)

    assert told in str(failed)
    assert len(str(failed)) < 450
    assert str(failed).isprintable()


async def test_an_error_without_end_is_an_error(fake: FakeOpenAI) -> None:
    fake.then(replace(endless(b"no ", media_type="text/plain"), status=500))

    async with provider(fake) as made:
        failed = await failing(made)
        await asyncio.wait_for(fake.closed_by_client.wait(), 10)

    assert failed.status == 500
    assert fake.sent < 20 * MIB


async def test_no_redirect_is_followed(fake: FakeOpenAI) -> None:
    async with FakeOpenAI() as other, provider(fake) as made:
        fake.then(Reply(status=307, headers={"location": f"{other.url}/v1{CHAT}"}))
        failed = await failing(made)

        assert other.requests == []
    assert "no redirect is followed" in str(failed)
    assert (failed.retryable, failed.is_cost_unknown) == (False, False)


async def test_an_answer_that_is_compressed_is_not_opened(fake: FakeOpenAI) -> None:
    fake.then(Reply(headers={"content-encoding": "gzip"}, pieces=[b"\x1f\x8b"]))

    async with provider(fake) as made:
        assert "compressed" in str(await failing(made))
    assert fake.requests[0].headers["accept-encoding"] == "identity"


async def test_an_address_that_is_guarded_is_not_asked(fake: FakeOpenAI) -> None:
    async with provider(fake, transport=guarded_transport(allows_private=False)) as made:
        failed = await failing(made)

    assert fake.requests == []
    assert "allow private addresses" in str(failed)
    assert (failed.retryable, failed.is_cost_unknown) == (False, False)


async def test_an_address_that_is_meant_is_asked_through_the_guard(fake: FakeOpenAI) -> None:
    async with provider(fake, transport=guarded_transport(allows_private=True)) as made:
        assert (await ask(made)).usage == USED


async def test_nobody_there_is_no_cost() -> None:
    async with FakeOpenAI() as fake:
        gone = provider(fake)
        made = await gone.__aenter__()
    failed = await failing(made)
    await gone.__aexit__(None, None, None)

    assert "cannot be reached" in str(failed)
    assert (failed.retryable, failed.is_cost_unknown) == (True, False)


async def test_without_time_nobody_is_asked(fake: FakeOpenAI) -> None:
    async with provider(fake) as made:
        failed = await failing(made, deadline_s=0.0)

    assert fake.requests == []
    assert not failed.is_cost_unknown


@pytest.mark.parametrize("secret", [f"{CANARY}\r\nx-evil: 1", f"{CANARY}é", f"{CANARY}\x00"])
async def test_a_key_that_fits_no_header_is_not_told(fake: FakeOpenAI, secret: str) -> None:
    async with provider(fake, secret=secret) as made:
        failed = await failing(made)

    assert fake.requests == []
    assert (failed.retryable, failed.is_cost_unknown) == (False, False)


async def test_white_space_around_a_key_is_not_part_of_it(fake: FakeOpenAI) -> None:
    async with provider(fake, secret=f" {CANARY}\n") as made:
        assert (await ask(made)).text == fake.text


async def test_proxies_of_the_environment_are_not_used(
    fake: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async with provider(fake) as made:
        assert (await ask(made)).text == fake.text


# Azure.


@pytest.mark.parametrize(
    ("path", "extra", "target", "names_model"),
    [
        ("", {}, "/openai/v1/chat/completions", True),
        ("/openai/v1/", {}, "/openai/v1/chat/completions", True),
        (
            "",
            {"api_version": "2025-01-01-preview"},
            "/openai/deployments/my%20chat/chat/completions?api-version=2025-01-01-preview",
            False,
        ),
        (
            "/openai/deployments",
            {},
            "/openai/deployments/my%20chat/chat/completions?api-version=2024-10-21",
            False,
        ),
        (
            "/openai/deployments/other/chat/completions?api-version=2024-06-01",
            {},
            "/openai/deployments/other/chat/completions?api-version=2024-06-01",
            False,
        ),
    ],
)
async def test_azure_is_asked_at_either_address(
    fake: FakeOpenAI, path: str, extra: dict[str, Any], target: str, names_model: bool
) -> None:
    async with provider(fake, kind=AzureProvider, path=path, extra=extra) as made:
        done = await ask(made, model="my chat")

    request = fake.requests[0]
    assert done.text == fake.text
    assert request.target == target
    assert request.headers["api-key"] == CANARY
    assert "authorization" not in request.headers
    assert ("model" in request.json) is names_model
    assert "api_version" not in request.json


# The server of these tests, held against OpenAI's own client.


async def test_openais_own_client_reads_what_our_server_writes(fake: FakeOpenAI) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{fake.url}/v1", api_key=CANARY, max_retries=0
    ) as client:
        whole = await client.chat.completions.create(
            model="gpt-4o", messages=[{"role": "user", "content": "Hello"}]
        )
        stream = await client.chat.completions.create(
            model="gpt-4o",
            messages=[{"role": "user", "content": "Hello"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]

    assert whole.choices[0].message.content == fake.text
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 20
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == fake.text
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 50


async def test_openais_own_client_understands_our_servers_errors(fake: FakeOpenAI) -> None:
    fake.refuses = {"max_tokens"}
    async with openai.AsyncOpenAI(
        base_url=f"{fake.url}/v1", api_key=CANARY, max_retries=0
    ) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(
                model="o3", messages=[{"role": "user", "content": "Hello"}], max_tokens=5
            )
        fake.then(refusal(429, openai_error("Slow down."), retry_after="3"))
        with pytest.raises(openai.RateLimitError) as limited:
            await client.chat.completions.create(
                model="o3", messages=[{"role": "user", "content": "Hello"}]
            )

    assert (refused.value.param, refused.value.code) == ("max_tokens", "unsupported_parameter")
    assert limited.value.response.headers["retry-after"] == "3"


async def test_we_ask_as_openais_own_clients_ask(fake: FakeOpenAI) -> None:
    messages: list[Any] = [{"role": m.role, "content": m.text} for m in SAID]
    options: Any = {"include_usage": True}
    async with openai.AsyncOpenAI(
        base_url=f"{fake.url}/v1", api_key=CANARY, max_retries=0
    ) as plain:
        await plain.chat.completions.create(
            model="gpt-4o", messages=messages, stream=True, stream_options=options, temperature=0.5
        )
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=fake.url, api_key=CANARY, api_version="2024-10-21", max_retries=0
    ) as azure:
        await azure.chat.completions.create(
            model="my-chat", messages=messages, stream=True, stream_options=options
        )
    async with provider(fake) as made:
        await ask(made, temperature=0.5)
    async with provider(
        fake, kind=AzureProvider, path="", extra={"api_version": "2024-10-21"}
    ) as made:
        await ask(made, model="my-chat")

    theirs, theirs_azure, ours, ours_azure = fake.requests
    assert (ours.target, ours.json) == (theirs.target, theirs.json)
    assert ours.headers["authorization"] == theirs.headers["authorization"]
    assert ours_azure.target == theirs_azure.target
    assert ours_azure.headers["api-key"] == theirs_azure.headers["api-key"]
    # Their model is in the body as well, where nothing reads it.
    assert ours_azure.json == {k: v for k, v in theirs_azure.json.items() if k != "model"}

"""Amazon Bedrock against a server that speaks its format, well and badly.

The server verifies every signature with Amazon's own library, and is itself held against Amazon's
own client at the end.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from botocore.session import get_session

from noema.core.clock import ManualClock
from noema.core.errors import ConfigError
from noema.llm.errors import AttemptFailed
from noema.llm.model import ChatMessage, Completion, Parameters, Usage
from noema.llm.providers.constrained import constrained
from noema.llm.providers.make import OpenProvider, make_provider
from noema.llm.providers.turns import OPENING
from noema.llm.providers.wire import Limits
from noema.net.guard import guarded_transport
from tests import llm_asked
from tests.llm_asked import LIMITS, NOW, SCHEMA, assert_silent, limits_for, opened
from tests.llm_fake import (
    Reply,
    hang,
    hang_after,
    in_pieces,
)
from tests.llm_fake_bedrock import STREAM, FakeBedrock, aws_error, exception, frame
from tests.llm_keys import KEY_ID, SECRET, TOKEN

MODEL = "anthropic.claude-sonnet-5-v1:0"
ARN = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.amazon.nova-pro-v1:0"
REGION = {"region": "eu-central-1"}
BINARY = STREAM["content-type"]
USED = Usage(input=20, output=20, cache_read=10, cache_write=5)
BEGUN = b"".join(FakeBedrock().stream()[:2])
DELTA = FakeBedrock().stream()[1]


def provider(
    fake: FakeBedrock,
    *,
    limits: Limits = LIMITS,
    secret: str = f"{KEY_ID}:{SECRET}:{TOKEN}",
    extra: dict[str, Any] = REGION,
    **parameters: Any,
) -> AbstractAsyncContextManager[OpenProvider]:
    return opened("bedrock", fake.url, secret, limits=limits, extra=extra, **parameters)


async def ask(made: OpenProvider, *, model: str = MODEL, **asked: Any) -> Completion:
    return await llm_asked.ask(made, model=model, **asked)


async def failing(made: OpenProvider, *, model: str = MODEL, **asked: Any) -> AttemptFailed:
    return await llm_asked.failing(made, (SECRET, TOKEN, KEY_ID), model=model, **asked)


@pytest.fixture
async def fake() -> AsyncIterator[FakeBedrock]:
    async with FakeBedrock() as server:
        server.credential = (KEY_ID, SECRET, TOKEN)
        yield server


@pytest.mark.parametrize(
    ("model", "segment"),
    [
        ("meta.llama3", "meta.llama3"),
        (MODEL, "anthropic.claude-sonnet-5-v1%3A0"),
        (
            ARN,
            f"{ARN.partition('/')[0].replace(':', '%3A')}%2Feu.amazon.nova-pro-v1%3A0",
        ),
    ],
)
@pytest.mark.parametrize("token", ["", TOKEN])
async def test_a_signed_answer_is_streamed_and_counted(
    fake: FakeBedrock, model: str, segment: str, token: str
) -> None:
    fake.credential = (KEY_ID, SECRET, token or None)
    secret = f"{KEY_ID}:{SECRET}:{token}".removesuffix(":")

    async with provider(fake, secret=secret) as made:
        done = await ask(made, model=model)

    assert done == Completion(text=fake.text, finish="stop", model=model, usage=USED)
    assert fake.requests[0].target == f"/model/{segment}/converse-stream"
    assert fake.requests[0].headers.get("x-amz-security-token") == (token or None)


async def test_nothing_is_sent_that_was_not_set(fake: FakeBedrock) -> None:
    async with provider(fake) as made:
        await ask(made)

    assert fake.requests[0].json == {
        "system": [{"text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"text": "How warm is it?"}]}],
    }


async def test_what_was_set_is_sent_and_what_a_call_sets_counts_most(fake: FakeBedrock) -> None:
    extra = {
        **REGION,
        "additionalModelRequestFields": {"top_k": 5},
        "inferenceConfig": {"maxTokens": 1, "topP": 0.1},
    }
    async with provider(fake, temperature=0.7, max_tokens=64, extra=extra) as made:
        await ask(made, temperature=0.0, stop=("\n",), seed=5, num_ctx=4096)

    body = fake.requests[0].json
    assert {k: v for k, v in body.items() if k not in ("system", "messages")} == {
        "additionalModelRequestFields": {"top_k": 5},
        "inferenceConfig": {
            "maxTokens": 64,
            "topP": 0.1,
            "temperature": 0.0,
            "stopSequences": ["\n"],
        },
    }


async def test_messages_of_one_side_become_one_turn(fake: FakeBedrock) -> None:
    messages = (
        ChatMessage(role="assistant", text="Zero."),
        ChatMessage(role="user", text="One."),
        ChatMessage(role="user", text="Two."),
        ChatMessage(role="system", text="Three."),
    )
    async with provider(fake) as made:
        await ask(made, messages=messages)

    assert fake.requests[0].json == {
        "system": [{"text": "Three."}],
        "messages": [
            {"role": "user", "content": [{"text": OPENING}]},
            {"role": "assistant", "content": [{"text": "Zero."}]},
            {"role": "user", "content": [{"text": "One.\n\nTwo."}]},
        ],
    }


async def test_a_prompt_of_the_system_alone_gets_a_turn(fake: FakeBedrock) -> None:
    async with provider(fake) as made:
        done = await ask(made, messages=(ChatMessage(role="system", text="Sing."),))

    assert done.text == fake.text
    assert fake.requests[0].json["messages"] == [{"role": "user", "content": [{"text": OPENING}]}]


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_stream_may_be_cut_anywhere(fake: FakeBedrock, size: int) -> None:
    fake.text, fake.reasoning = "Größer als 20 €, 温かい 😀", "Hm …"
    fake.then(in_pieces(b"".join(fake.stream()), size, media_type=BINARY))

    async with provider(fake) as made:
        done = await ask(made)

    assert (done.text, done.usage) == (fake.text, USED)


async def test_a_row_may_ask_for_answers_in_one_piece(fake: FakeBedrock) -> None:
    fake.reasoning = "Hm."
    async with provider(fake, extra={**REGION, "stream": False}) as made:
        done = await ask(made)

    assert (done.text, done.finish, done.usage) == (fake.text, "stop", USED)
    assert fake.requests[0].target.endswith("/converse")
    assert "stream" not in fake.requests[0].json


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "filtered"),
        ("content_filtered", "filtered"),
        ("tool_use", "tool"),
        ("refusal", "refusal"),
        ("malformed_model_output", "other"),
    ],
)
async def test_the_reason_to_finish_is_named(fake: FakeBedrock, reason: str, finish: str) -> None:
    fake.stop = reason

    async with provider(fake) as made:
        assert (await ask(made)).finish == finish


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}, Usage(input=3, output=4)),
        ({"inputTokens": "3", "outputTokens": -1}, Usage()),
        ({}, Usage()),
    ],
)
async def test_what_is_not_counted_is_unknown(
    fake: FakeBedrock, counts: dict[str, Any], usage: Usage
) -> None:
    fake.usage = counts

    async with provider(fake) as made:
        assert (await ask(made)).usage == usage


async def test_a_schema_is_sent_as_a_string(fake: FakeBedrock) -> None:
    async with provider(fake, extra={**REGION, "outputConfig": {"effort": "low"}}) as made:
        await ask(made, schema=SCHEMA)

    sent = fake.requests[0].json["outputConfig"]
    assert sent["effort"] == "low"
    assert sent["textFormat"]["type"] == "json_schema"
    assert json.loads(sent["textFormat"]["structure"]["jsonSchema"]["schema"]) == SCHEMA


async def test_a_model_without_schemas_is_told_in_words_and_remembered(fake: FakeBedrock) -> None:
    fake.knows_schemas = False

    async with provider(fake) as made:
        await ask(made, schema=SCHEMA)
        await ask(made, schema=SCHEMA)

    bodies = [r.json for r in fake.requests]
    assert ["outputConfig" in body for body in bodies] == [True, False, False]
    assert '{"warm":{"type":"integer"}}' in bodies[1]["system"][0]["text"]


async def test_a_setting_that_the_model_refuses_is_left_out(fake: FakeBedrock) -> None:
    told = "The model returned the following errors: `temperature` is deprecated for this model."
    fake.then(aws_error(400, "ValidationException", told))

    async with provider(fake, temperature=0.0) as made:
        await ask(made)

    assert ["inferenceConfig" in r.json for r in fake.requests] == [True, False]


# What a bad answer does.


def flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


BAD: dict[str, tuple[Reply, str]] = {
    "hangs within an event": (
        hang_after(BEGUN, DELTA[:20], media_type=BINARY),
        "paused for more than 0.2 s",
    ),
    "ends within an event": (
        Reply(headers=STREAM, pieces=[BEGUN, DELTA[:-3]]),
        "sent a damaged stream: it ends within an event",
    ),
    "sends an event that is no JSON": (
        Reply(headers=STREAM, pieces=[frame(b"{", event_type="contentBlockDelta")]),
        "not its JSON",
    ),
    "is not UTF-8": (
        Reply(
            headers=STREAM,
            pieces=[frame(b'{"delta": {"text": "\xc3\x28"}}', event_type="contentBlockDelta")],
        ),
        "not its JSON",
    ),
    "has a length that is damaged": (
        Reply(headers=STREAM, pieces=[BEGUN, flipped(DELTA, 3)]),
        "the checksum of a length is wrong",
    ),
    "has a payload that is damaged": (
        Reply(headers=STREAM, pieces=[BEGUN, flipped(DELTA, len(DELTA) - 10)]),
        "the checksum of an event is wrong",
    ),
    "is text where frames should be": (
        Reply(headers=STREAM, pieces=[b"data: hello, this is no event stream"]),
        "the checksum of a length is wrong",
    ),
    "is throttled in its answer": (
        Reply(headers=STREAM, pieces=[BEGUN, exception("throttlingException", f"Slow: {SECRET}")]),
        "failed while it answered: throttlingException: Slow: [secret].",
    ),
    "fails without a type": (
        Reply(
            headers=STREAM,
            pieces=[
                frame(b"", message_type="error", error_code="InternalError", error_message=TOKEN)
            ],
        ),
        "failed while it answered: InternalError: [secret].",
    ),
    "fails without a word": (
        Reply(headers=STREAM, pieces=[frame(b"", message_type="exception")]),
        "failed while it answered",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_answer_is_a_failed_attempt_that_may_have_cost(
    fake: FakeBedrock, name: str
) -> None:  # Guarantee 9
    reply, told = BAD[name]
    fake.then(replace(reply, pieces=list(reply.pieces)))

    async with provider(fake, limits=limits_for(name)) as made:
        failed = await failing(made, deadline_s=0.6 if "drips" in name else 30.0)

    assert told in str(failed)
    assert str(failed).startswith("The model at 127.0.0.1 ")
    assert (failed.retryable, failed.is_cost_unknown) == (True, True)


@pytest.mark.parametrize("reply", [hang(), hang_after(b"{", media_type="application/json")])
async def test_an_answer_in_one_piece_has_the_whole_deadline_and_no_more(
    fake: FakeBedrock, reply: Reply
) -> None:  # Guarantee 9
    fake.then(reply)

    async with provider(fake, extra={**REGION, "stream": False}) as made:
        failed = await failing(made, deadline_s=0.3)

    assert "did not finish its answer within 0.3 s" in str(failed)
    assert failed.is_cost_unknown


async def test_a_request_that_is_wrong_is_not_made_again(fake: FakeBedrock) -> None:
    fake.then(Reply(headers=STREAM, pieces=[exception("validationException", "Too long.")]))

    async with provider(fake) as made:
        assert not (await failing(made)).retryable


@pytest.mark.parametrize(
    ("status", "kind", "retryable", "is_unknown"),
    [
        (429, "ThrottlingException", True, False),
        (429, "ModelNotReadyException", True, False),
        (503, "ServiceUnavailableException", True, False),
        (500, "InternalServerException", True, True),
        (408, "ModelTimeoutException", True, True),
        (424, "ModelErrorException", True, True),
        (529, "Overloaded", True, False),
        (400, "ValidationException", False, False),
        (403, "AccessDeniedException", False, False),
        (403, "ExpiredTokenException", False, False),
        (404, "ResourceNotFoundException", False, False),
    ],
)
async def test_an_error_says_whether_to_ask_again(
    fake: FakeBedrock, status: int, kind: str, retryable: bool, is_unknown: bool
) -> None:  # Guarantee 9
    told = f"No: {SECRET}, {TOKEN}, {KEY_ID}."
    fake.then(aws_error(status, kind, told, retry_after="7"))

    async with provider(fake) as made:
        failed = await failing(made)

    assert (failed.retryable, failed.is_cost_unknown) == (retryable, is_unknown)
    assert (failed.status, failed.retry_after_s) == (status, 7.0)
    assert "No: [secret], [secret], [secret]." in str(failed)


async def test_a_wrong_key_is_told_without_key_and_token(fake: FakeBedrock) -> None:
    fake.credential = (KEY_ID, "another", TOKEN)

    async with provider(fake) as made:
        failed = await failing(made)

    assert "The request signature we calculated does not match" in str(failed)
    assert "x-amz-security-token:[secret]" in str(failed)


@pytest.mark.parametrize("model", ["", "..", "../x", "a b", "a?b", "ä", "-x", "x" * 2049])
async def test_what_is_no_model_is_not_asked_for(fake: FakeBedrock, model: str) -> None:
    async with provider(fake) as made:
        failed = await failing(made, model=model)

    assert fake.requests == []
    assert (failed.retryable, failed.is_cost_unknown) == (False, False)


async def test_no_redirect_is_followed(fake: FakeBedrock) -> None:
    async with FakeBedrock() as other, provider(fake) as made:
        fake.then(Reply(status=307, headers={"location": other.url}))
        assert "no redirect is followed" in str(await failing(made))

        assert other.requests == []


# Where it is.


def made_at(
    endpoint: str, *, allows_private: bool = False, extra: dict[str, Any] | None = None
) -> OpenProvider:
    return make_provider(
        "bedrock",
        endpoint,
        f"{KEY_ID}:{SECRET}",
        allows_private,
        Parameters(extra=extra or {}),
        clock=ManualClock(NOW),
    )


@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1", "us-gov-west-1", "ap-southeast-4"])
async def test_the_region_is_that_of_the_endpoint(region: str) -> None:
    found: list[str] = []

    async def resolver(host: str, port: int) -> Sequence[str]:
        found.append(f"{host}:{port}")
        raise OSError("nobody is asked in a test")

    made = make_provider(
        "bedrock",
        f"https://bedrock-runtime.{region}.amazonaws.com/",
        f"{KEY_ID}:{SECRET}",
        False,
        Parameters(),
        guarded_transport(allows_private=False, resolver=resolver),
        clock=ManualClock(NOW),
    )
    failed = await failing(made)
    await made.aclose()

    assert found == [f"bedrock-runtime.{region}.amazonaws.com:443"]
    assert "cannot be reached" in str(failed)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "http://bedrock-runtime.us-east-1.amazonaws.com",
        "https://bedrock-runtime.us-east-1.amazonaws.com:8443",
        "https://bedrock-runtime.us-east-1.amazonaws.com/v1",
        "https://bedrock-runtime.us-east-1.amazonaws.com?x=1",
        "https://user@bedrock-runtime.us-east-1.amazonaws.com",
        "https://bedrock-runtime.us-east-1.amazonaws.com.evil.example",
        "https://evil.example/bedrock-runtime.us-east-1.amazonaws.com",
        "https://xbedrock-runtime.us-east-1.amazonaws.com",
        "https://bedrock.us-east-1.amazonaws.com",
        "https://bedrock-runtime..amazonaws.com",
        "https://bedrock-runtime.us-east-1.amazonaws.com@evil.example",
        "http://127.0.0.1:8080",
        "https://[",
    ],
)
async def test_only_bedrocks_own_endpoints_are_asked(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="The endpoint of Amazon Bedrock is"):
        made_at(endpoint)


async def test_another_endpoint_is_asked_where_private_ones_are_meant() -> None:
    named = "https://vpce-1.bedrock-runtime.eu-west-1.vpce.amazonaws.com"
    await made_at(named, allows_private=True).aclose()
    await made_at("http://127.0.0.1:1", allows_private=True, extra=REGION).aclose()

    with pytest.raises(ConfigError, match="does not tell its region"):
        made_at("http://127.0.0.1:1", allows_private=True)
    with pytest.raises(ConfigError, match="does not tell its region"):
        made_at("http://127.0.0.1:1", allows_private=True, extra={"region": "eu\n"})
    with pytest.raises(ConfigError, match="without a path"):
        made_at("http://127.0.0.1:1/v1", allows_private=True, extra=REGION)


async def test_a_key_of_another_form_is_refused_and_not_told() -> None:
    with pytest.raises(ConfigError) as refused:
        make_provider(
            "bedrock",
            "https://bedrock-runtime.us-east-1.amazonaws.com",
            SECRET,
            False,
            Parameters(),
        )
    assert_silent(refused.value, (SECRET,))


# The server of these tests, held against Amazon's own client.


def theirs(fake: FakeBedrock) -> Any:
    return get_session().create_client(
        "bedrock-runtime",
        region_name="eu-central-1",
        endpoint_url=fake.url,
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        aws_session_token=TOKEN,
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )


TURN = [{"role": "user", "content": [{"text": "How warm is it?"}]}]


async def test_amazons_own_client_reads_what_our_server_writes(fake: FakeBedrock) -> None:
    fake.credential, fake.reasoning = None, "Hm."
    client = theirs(fake)

    def streamed() -> list[dict[str, Any]]:
        with closing(client.converse_stream(modelId=MODEL, messages=TURN)["stream"]) as stream:
            return list(stream)

    whole = await asyncio.to_thread(partial(client.converse, modelId=MODEL, messages=TURN))
    events = await asyncio.to_thread(streamed)
    client.close()

    assert whole["output"]["message"]["content"][1] == {"text": fake.text}
    assert whole["usage"] == events[-1]["metadata"]["usage"] == fake.usage
    deltas = [e["contentBlockDelta"]["delta"] for e in events if "contentBlockDelta" in e]
    assert "".join(d.get("text", "") for d in deltas) == fake.text
    assert deltas[0] == {"reasoningContent": {"text": "Hm."}}
    assert {"messageStop": {"stopReason": "end_turn"}} in events


async def test_amazons_own_client_understands_our_servers_errors(fake: FakeBedrock) -> None:
    fake.credential = None
    client = theirs(fake)

    def streamed() -> None:
        with closing(client.converse_stream(modelId=MODEL, messages=TURN)["stream"]) as stream:
            list(stream)

    fake.then(aws_error(429, "ThrottlingException", "Slow down."))
    with pytest.raises(ClientError) as throttled:
        await asyncio.to_thread(streamed)
    fake.then(Reply(headers=STREAM, pieces=[BEGUN, exception("throttlingException", "Slow.")]))
    with pytest.raises(EventStreamError) as broken:
        await asyncio.to_thread(streamed)
    client.close()

    assert throttled.value.response["Error"] == {
        "Code": "ThrottlingException",
        "Message": "Slow down.",
    }
    assert broken.value.response["Error"]["Message"] == "Slow."


async def test_we_ask_as_amazons_own_client_asks(fake: FakeBedrock) -> None:
    client = theirs(fake)
    fake.credential = None
    schema = json.dumps(constrained(SCHEMA), separators=(",", ":"))
    wanted = {"jsonSchema": {"name": "answer", "schema": schema}}

    def streamed() -> None:
        answer = client.converse_stream(
            modelId=ARN,
            messages=TURN,
            system=[{"text": "Be brief."}],
            inferenceConfig={"maxTokens": 64, "temperature": 0.5, "stopSequences": ["x"]},
            outputConfig={"textFormat": {"type": "json_schema", "structure": wanted}},
        )
        with closing(answer["stream"]) as stream:
            list(stream)

    await asyncio.to_thread(streamed)
    client.close()
    async with provider(fake) as made:
        await ask(made, model=ARN, schema=SCHEMA, max_tokens=64, temperature=0.5, stop=("x",))

    their_request, our_request = fake.requests
    assert our_request.target == their_request.target
    assert our_request.json == their_request.json
    assert their_request.headers["x-amz-security-token"] == TOKEN
    assert our_request.headers["x-amz-security-token"] == TOKEN

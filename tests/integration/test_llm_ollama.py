"""Ollama's `/api/chat` against a server that speaks the format, well and badly.

The server itself is held against Ollama's own client at the end.
"""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import ollama
import pytest

from noema.llm.errors import AttemptFailed
from noema.llm.model import ChatMessage, Completion, Usage
from noema.llm.providers.make import OpenProvider
from noema.llm.providers.wire import Limits
from tests import llm_asked
from tests.llm_asked import LIMITS, NOW, SAID, SCHEMA, limits_for, opened
from tests.llm_fake import (
    Reply,
    endless,
    in_pieces,
    refusal,
)
from tests.llm_fake_ollama import CHAT, STREAM, FakeOllama, line

CANARY = "canary-4f1d/9Zq+71bbKEY=="
MODEL = "llama3.2"
NDJSON = STREAM["content-type"]
USED = Usage(input=30, output=20)
RECORD = FakeOllama().stream()[0]
BEGUN = b"".join(FakeOllama().stream()[:2])


def provider(
    fake: FakeOllama,
    *,
    path: str = "",
    limits: Limits = LIMITS,
    secret: str = CANARY,
    **parameters: Any,
) -> AbstractAsyncContextManager[OpenProvider]:
    return opened("ollama", fake.url + path, secret, limits=limits, **parameters)


async def ask(made: OpenProvider, *, model: str = MODEL, **asked: Any) -> Completion:
    return await llm_asked.ask(made, model=model, **asked)


async def failing(made: OpenProvider, *, model: str = MODEL, **asked: Any) -> AttemptFailed:
    return await llm_asked.failing(made, (CANARY,), model=model, **asked)


@pytest.fixture
async def fake() -> AsyncIterator[FakeOllama]:
    async with FakeOllama() as server:
        yield server


@pytest.mark.parametrize("path", ["", "/", "/api", "/api/chat", "/v1", "/v1/"])
async def test_an_answer_is_streamed_and_counted(fake: FakeOllama, path: str) -> None:
    async with provider(fake, path=path) as made:
        done = await ask(made)

    assert done == Completion(text=fake.text, finish="stop", model=MODEL, usage=USED)
    assert fake.requests[0].target == CHAT


async def test_a_path_before_it_stays(fake: FakeOllama) -> None:
    async with provider(fake, path="/gpu/1") as made:
        await failing(made)

    assert fake.requests[0].target == "/gpu/1/api/chat"


@pytest.mark.parametrize("secret", ["", CANARY])
async def test_a_token_is_sent_where_there_is_one(fake: FakeOllama, secret: str) -> None:
    async with provider(fake, secret=secret) as made:
        await ask(made)

    told = fake.requests[0].headers.get("authorization")
    assert told == (f"Bearer {secret}" if secret else None)


async def test_nothing_is_sent_that_was_not_set(fake: FakeOllama) -> None:
    async with provider(fake) as made:
        await ask(made)

    assert fake.requests[0].json == {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How warm is it?"},
        ],
        "stream": True,
    }


async def test_what_was_set_is_sent_and_what_a_call_sets_counts_most(fake: FakeOllama) -> None:
    extra = {"keep_alive": "10m", "options": {"top_k": 20, "num_ctx": 1}, "stream": False}
    async with provider(fake, temperature=0.7, num_ctx=8192, extra=extra) as made:
        await ask(made, temperature=0.0, top_p=0.9, max_tokens=64, stop=("\n",), seed=5)

    body = fake.requests[0].json
    assert {k: v for k, v in body.items() if k not in ("model", "messages")} == {
        "keep_alive": "10m",
        "stream": True,
        "options": {
            "top_k": 20,
            "num_ctx": 8192,
            "temperature": 0.0,
            "top_p": 0.9,
            "num_predict": 64,
            "stop": ["\n"],
            "seed": 5,
        },
    }


async def test_a_schema_is_sent_and_told(fake: FakeOllama) -> None:
    async with provider(fake) as made:
        await ask(made, schema=SCHEMA)

    body = fake.requests[0].json
    assert body["format"] == SCHEMA
    assert '{"warm":{"type":"integer"}}' in body["messages"][0]["content"]


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_stream_may_be_cut_anywhere(fake: FakeOllama, size: int) -> None:
    fake.text = "Größer als 20 €,\u2028温かい 😀"
    fake.then(in_pieces(b"".join(fake.stream()), size, media_type=NDJSON))

    async with provider(fake) as made:
        done = await ask(made)

    assert (done.text, done.usage) == (fake.text, USED)


async def test_what_was_thought_is_not_the_answer(fake: FakeOllama) -> None:
    fake.thinking = "Let me think."

    async with provider(fake) as made:
        assert (await ask(made)).text == fake.text


async def test_the_last_line_may_lack_its_end(fake: FakeOllama) -> None:
    fake.then(Reply(headers=STREAM, pieces=[b"\n" + b"".join(fake.stream())[:-1]]))

    async with provider(fake) as made:
        assert (await ask(made)).text == fake.text


async def test_a_server_that_does_not_stream_is_understood(fake: FakeOllama) -> None:
    message = {"role": "assistant", "content": "Yes."}
    whole = {"model": "other", "message": message, "done": True, "done_reason": "length"}
    fake.then(Reply(pieces=[json.dumps({**whole, **fake.counts}).encode()]))

    async with provider(fake) as made:
        done = await ask(made)

    assert done == Completion(text="Yes.", finish="length", model="other", usage=USED)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("stop", "stop"), ("length", "length"), ("unload", "other"), (None, "other")],
)
async def test_the_reason_to_finish_is_named(
    fake: FakeOllama, reason: str | None, finish: str
) -> None:
    fake.done_reason = reason

    async with provider(fake) as made:
        assert (await ask(made)).finish == finish


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"eval_count": 4}, Usage(output=4)),
        ({"prompt_eval_count": 0, "eval_count": 4}, Usage(input=0, output=4)),
        ({"prompt_eval_count": "3", "eval_count": -1}, Usage()),
        ({}, Usage()),
    ],
)
async def test_what_is_not_counted_is_unknown(
    fake: FakeOllama, counts: dict[str, Any], usage: Usage
) -> None:
    fake.counts = counts

    async with provider(fake) as made:
        assert (await ask(made)).usage == usage


# What a bad answer does.

BAD: dict[str, tuple[Reply, str]] = {
    "sends 100 MB of nothing": (endless(b"\n", media_type=NDJSON), "more than 1,048,576 bytes"),
    "ends without a message": (
        Reply(headers=STREAM, pieces=[line({"model": MODEL, "done": True})]),
        "without any message",
    ),
    "fails with an object": (
        Reply(headers=STREAM, pieces=[BEGUN, line({"error": {"message": "Out of memory"}})]),
        "failed while it answered: Out of memory.",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_answer_is_a_failed_attempt_that_may_have_cost(
    fake: FakeOllama, name: str
) -> None:  # Guarantee 9
    reply, told = BAD[name]
    fake.then(replace(reply, pieces=list(reply.pieces)))

    async with provider(fake, limits=limits_for(name)) as made:
        failed = await failing(made, deadline_s=0.6 if "drips" in name else 30.0)

    assert told in str(failed)
    assert str(failed).startswith("The model at 127.0.0.1 ")
    assert (failed.retryable, failed.is_cost_unknown) == ("100 MB" not in name, True)


async def test_more_text_than_anyone_reads_is_no_answer(fake: FakeOllama) -> None:
    fake.text = "x" * 5000

    async with provider(fake, limits=replace(LIMITS, max_text=4000)) as made:
        failed = await failing(made)

    assert "more than 4,000 characters" in str(failed)


@pytest.mark.parametrize(
    ("status", "wait"),
    [
        (429, "7"),
        (503, format_datetime(NOW + timedelta(seconds=7), usegmt=True)),
        (529, "7"),
    ],
)
async def test_who_asks_us_to_wait_is_heard(
    fake: FakeOllama, status: int, wait: str
) -> None:  # Guarantee 9
    fake.then(refusal(status, {"error": f"server busy, {CANARY}"}, retry_after=wait))

    async with provider(fake) as made:
        failed = await failing(made)

    assert (failed.status, failed.retry_after_s, failed.retryable) == (status, 7.0, True)
    assert not failed.is_cost_unknown
    assert "server busy, [secret]" in str(failed)


async def test_a_model_that_is_not_there_is_named(fake: FakeOllama) -> None:
    async with provider(fake) as made:
        failed = await failing(made, model="gemma9")

    assert str(failed) == (
        "The model at 127.0.0.1 answered 404 Not Found: model 'gemma9' not found. "
        "Check the address and the model's name."
    )
    assert (failed.retryable, failed.is_cost_unknown) == (False, False)


async def test_a_wrong_token_is_told_without_the_token(fake: FakeOllama) -> None:
    fake.key = "another"

    async with provider(fake) as made:
        assert "unauthorized: [secret]" in str(await failing(made))


async def test_nobody_there_is_no_cost(fake: FakeOllama) -> None:
    async with opened("ollama", "http://127.0.0.1:1", CANARY) as made:
        failed = await failing(made)

    assert "cannot be reached" in str(failed)
    assert (failed.retryable, failed.is_cost_unknown) == (True, False)


async def test_no_redirect_is_followed(fake: FakeOllama) -> None:
    async with FakeOllama() as other, provider(fake) as made:
        fake.then(Reply(status=308, headers={"location": f"{other.url}{CHAT}"}))
        assert "no redirect is followed" in str(await failing(made))

        assert other.requests == []


# The server of these tests, held against Ollama's own client.


async def test_ollamas_own_client_reads_what_our_server_writes(fake: FakeOllama) -> None:
    fake.thinking = "Let me think."
    client = ollama.AsyncClient(host=fake.url)
    messages = [{"role": "user", "content": "Hello"}]
    whole = await client.chat(model=MODEL, messages=messages)
    parts = [part async for part in await client.chat(model=MODEL, messages=messages, stream=True)]
    await client._client.aclose()

    assert whole.message.content == fake.text
    assert "".join(part.message.content or "" for part in parts) == fake.text
    assert parts[0].message.thinking == "Let me think."
    assert (parts[-1].done, parts[-1].done_reason) == (True, "stop")
    assert (parts[-1].prompt_eval_count, parts[-1].eval_count) == (30, 20)


async def test_ollamas_own_client_understands_our_servers_errors(fake: FakeOllama) -> None:
    client = ollama.AsyncClient(host=fake.url)
    with pytest.raises(ollama.ResponseError) as unknown:
        await client.chat(model="gemma9", messages=[])
    fake.then(Reply(headers=STREAM, pieces=[BEGUN, line({"error": "CUDA error"})]))
    with pytest.raises(ollama.ResponseError) as broken:
        async for _ in await client.chat(model=MODEL, messages=[], stream=True):
            pass
    await client._client.aclose()

    assert (unknown.value.status_code, unknown.value.error) == (404, "model 'gemma9' not found")
    assert broken.value.error == "CUDA error"


async def test_we_ask_as_ollamas_own_client_asks(fake: FakeOllama) -> None:
    messages = [
        ChatMessage(role="system", text="Be brief."),
        ChatMessage(role="assistant", text="Ready."),
        ChatMessage(role="user", text="How warm is it?"),
    ]
    client = ollama.AsyncClient(host=fake.url)
    stream = await client.chat(
        model=MODEL,
        messages=[{"role": m.role, "content": m.text} for m in messages],
        options={"num_ctx": 4096, "temperature": 0.5},
        stream=True,
    )
    async for _ in stream:
        pass
    await client._client.aclose()
    async with provider(fake) as made:
        await ask(made, messages=messages, num_ctx=4096, temperature=0.5)

    theirs, ours = fake.requests
    assert ours.target == theirs.target
    # Their client also sends an empty list of tools.
    assert ours.json == {k: v for k, v in theirs.json.items() if k != "tools"}
    assert SAID[0].text == "Be brief."

"""Vectors from Bedrock, in the shapes of Titan and of Cohere, against a server that speaks them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from math import hypot
from typing import Any

import pytest

from noema.core.clock import ManualClock
from noema.core.errors import ConfigError, Unavailable
from noema.llm.embedders.bedrock import BedrockEmbedder
from noema.net.guard import guarded_transport
from tests.llm_asked import LIMITS, NOW, assert_silent
from tests.llm_fake import Reply
from tests.llm_fake_bedrock import FakeBedrock, aws_error

KEY_ID = "AKIAIOSFODNN7CANARY0"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYcanaryKEY1"
TOKEN = "IQoJb3JpZ2luX2VjCANARY//////////wEaCXVzLWVhc3QtMSJHMEUCIQD+abc=="
ARN = "arn:aws:bedrock:eu-central-1:123456789012:provisioned-model/abcdefghijkl"


@pytest.fixture
async def fake() -> AsyncIterator[FakeBedrock]:
    async with FakeBedrock() as server:
        server.credential = (KEY_ID, SECRET, TOKEN)
        yield server


@asynccontextmanager
async def embedder(fake: FakeBedrock, model: str, **asked: Any) -> AsyncIterator[BedrockEmbedder]:
    made = BedrockEmbedder(
        endpoint=fake.url,
        secret=f"{KEY_ID}:{SECRET}:{TOKEN}",
        model=model,
        clock=ManualClock(NOW),
        region="eu-central-1",
        allows_private=True,
        transport=guarded_transport(allows_private=True),
        limits=LIMITS,
        **asked,
    )
    try:
        yield made
    finally:
        await made.aclose()


def assert_vectors_of(texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> None:
    for text, vector in zip(texts, vectors, strict=True):
        length = hypot(len(text), 2.0)
        assert vector[:2] == pytest.approx([len(text) / length, 2.0 / length])
        assert hypot(*vector) == pytest.approx(1.0)


async def test_titan_is_asked_text_by_text(fake: FakeBedrock) -> None:
    texts = [f"{'x' * n}" for n in range(1, 8)]
    async with embedder(fake, "amazon.titan-embed-text-v2:0") as made:
        assert made.dims == 0
        vectors = await made.embed(texts, purpose="document")

        assert (made.dims, made.model) == (3, "bedrock:amazon.titan-embed-text-v2:0")
    assert_vectors_of(texts, vectors)
    assert sorted(r.json["inputText"] for r in fake.requests) == texts
    assert {r.target for r in fake.requests} == {"/model/amazon.titan-embed-text-v2%3A0/invoke"}
    assert all(set(r.json) == {"inputText"} for r in fake.requests)


async def test_titan_is_told_the_dimensions_that_are_set(fake: FakeBedrock) -> None:
    async with embedder(fake, "amazon.titan-embed-text-v2:0", dims=8) as made:
        (vector,) = await made.embed([""], purpose="query")

        assert (made.dims, made.model) == (8, "bedrock:amazon.titan-embed-text-v2:0@8")
    assert len(vector) == 8
    assert fake.requests[0].json == {"inputText": " ", "dimensions": 8}


@pytest.mark.parametrize(
    ("purpose", "kind"), [("query", "search_query"), ("document", "search_document")]
)
async def test_cohere_is_asked_for_96_at_once_and_told_what_for(
    fake: FakeBedrock, purpose: Any, kind: str
) -> None:
    texts = ["x" * (1 + n % 7) for n in range(100)]
    async with embedder(fake, "cohere.embed-multilingual-v3") as made:
        vectors = await made.embed([*texts[:-1], "y" * 5000], purpose=purpose)

    assert_vectors_of([*texts[:-1], "y" * 2048], vectors)
    assert [len(r.json["texts"]) for r in fake.requests] == [96, 4]
    assert fake.requests[0].json | {"texts": []} == {
        "texts": [],
        "input_type": kind,
        "truncate": "END",
        "embedding_types": ["float"],
    }


async def test_coheres_fourth_model_is_asked_in_its_own_way(fake: FakeBedrock) -> None:
    async with embedder(fake, "eu.cohere.embed-v4:0", dims=256) as made:
        (vector,) = await made.embed(["x" * 9000], purpose="document")

    assert len(vector) == 256
    body = fake.requests[0].json
    assert (body["output_dimension"], body["truncate"]) == (256, "RIGHT")
    assert len(body["texts"][0]) == 8000


async def test_coheres_older_answer_is_understood(fake: FakeBedrock) -> None:
    fake.then(Reply(pieces=[b'{"embeddings": [[3, 4]], "response_type": "embeddings_floats"}']))
    async with embedder(fake, "cohere.embed-english-v3") as made:
        assert await made.embed(["x"], purpose="query") == [pytest.approx([0.6, 0.8])]


async def test_an_arn_needs_to_be_told_whose_it_is(fake: FakeBedrock) -> None:
    with pytest.raises(ConfigError, match=r"only Titan's and Cohere's"):
        async with embedder(fake, ARN):
            pass
    async with embedder(fake, f"{ARN}-titan", shape="titan") as made:
        assert len(await made.embed(["x"], purpose="query")) == 1


@pytest.mark.parametrize("model", ["amazon.titan-embed-text-v1", "cohere.embed-english-v3"])
async def test_what_is_too_much_is_asked_again_three_times_in_all(
    fake: FakeBedrock, model: str
) -> None:
    throttled = aws_error(429, "ThrottlingException", f"Slow down, {SECRET}.")
    async with embedder(fake, model) as made:
        fake.then(throttled, throttled)
        assert len(await made.embed(["x"], purpose="query")) == 1
        fake.then(throttled, throttled, throttled)
        with pytest.raises(Unavailable) as failed:
            await made.embed(["x"], purpose="query")

    assert len(fake.requests) == 6
    assert_silent(failed.value, (SECRET, TOKEN))


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b'{"embeddings": [[1, 2], [3, 4]]}', "answered 2 vectors for 1 texts"),
        (b'{"embeddings": [[]]}', "a vector of 0 dimensions"),
        (b'{"embeddings": [[0, 0]]}', "without a direction"),
        (b'{"embeddings": [[1e999, 0]]}', "not its JSON"),
        (b'{"embeddings": [["a"]]}', "not its JSON"),
        (b'{"embedding": [1]}', "not its JSON"),
        (b"<html></html>", "a web page"),
    ],
)
async def test_vectors_that_are_none_are_refused(
    fake: FakeBedrock, raw: bytes, told: str
) -> None:  # Guarantee 9
    fake.then(Reply(pieces=[raw]))
    async with embedder(fake, "cohere.embed-english-v3") as made:
        with pytest.raises(Unavailable, match=told):
            await made.embed(["x"], purpose="query")


async def test_vectors_of_another_length_are_refused(fake: FakeBedrock) -> None:
    async with embedder(fake, "amazon.titan-embed-text-v1") as made:
        await made.embed(["x"], purpose="query")
        fake.dims = 4
        with pytest.raises(Unavailable, match="4 dimensions, not 3"):
            await made.embed(["x"], purpose="query")


async def test_vectors_as_long_as_floats_go_have_length_1(fake: FakeBedrock) -> None:
    fake.then(Reply(pieces=[b'{"embedding": [3e300, 4e300]}']))
    async with embedder(fake, "amazon.titan-embed-text-v1") as made:
        assert await made.embed(["x"], purpose="query") == [pytest.approx([0.6, 0.8])]

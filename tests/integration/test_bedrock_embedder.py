"""Vectors from Bedrock, in the shapes of Titan and of Cohere, against a server that speaks them.

The server verifies every signature with Amazon's own library, and is itself held against Amazon's
own client at the end.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from math import hypot
from typing import Any

import pytest
from botocore.config import Config
from botocore.session import get_session

from noema.config import EmbedderSettings
from noema.core.clock import ManualClock
from noema.core.errors import ConfigError, Unavailable
from noema.llm.embedders.make import aclose, make_embedder
from noema.llm.embedders.remote import RemoteEmbedder
from noema.net.circuit import FAILURES
from noema.net.http import HttpRefused, Limits
from tests.llm_asked import NOW, assert_silent
from tests.llm_fake import Reply, hang, web_page
from tests.llm_fake_bedrock import FakeBedrock, aws_error
from tests.llm_keys import CREDENTIAL as KEY
from tests.llm_keys import KEY_ID, SECRET, TOKEN

TITAN_1 = "amazon.titan-embed-text-v1"
TITAN_2 = "amazon.titan-embed-text-v2:0"
COHERE_3 = "cohere.embed-multilingual-v3"
COHERE_4 = "eu.cohere.embed-v4:0"
ARN = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.cohere.embed-v4:0"
LIMITS = Limits(connect_s=10, read_s=20, total_s=30, max_bytes=1_000_000)


@pytest.fixture
async def fake() -> AsyncIterator[FakeBedrock]:
    async with FakeBedrock() as server:
        server.credential = (KEY_ID, SECRET, TOKEN)
        yield server


def settings_of(url: str, model: str, /, **changes: Any) -> EmbedderSettings:
    values: dict[str, Any] = {
        "kind": "bedrock",
        "url": url,
        "model": model,
        "query_model": model,
        "key": KEY,
        "region": "eu-central-1",
    }
    return EmbedderSettings(**(values | changes))


@asynccontextmanager
async def embedder(
    fake: FakeBedrock, model: str, *, limits: Limits = LIMITS, **changes: Any
) -> AsyncIterator[RemoteEmbedder]:
    made = make_embedder(settings_of(fake.url, model, **changes), ManualClock(NOW), limits=limits)
    assert isinstance(made, RemoteEmbedder)
    try:
        yield made
    finally:
        await aclose(made)


def assert_vectors_of(texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> None:
    for text, vector in zip(texts, vectors, strict=True):
        length = hypot(len(text), 2.0)
        assert vector[:2] == pytest.approx([len(text) / length, 2.0 / length])
        assert hypot(*vector) == pytest.approx(1.0)


async def test_titan_is_asked_text_by_text(fake: FakeBedrock) -> None:
    texts = [f"{'x' * n}" for n in range(1, 8)]
    async with embedder(fake, TITAN_2) as made:
        assert made.dims == 0
        vectors = await made.embed(texts, purpose="document")

        assert (made.dims, made.model) == (3, f"bedrock:{TITAN_2}")
    assert_vectors_of(texts, vectors)
    assert sorted(r.json["inputText"] for r in fake.requests) == texts
    assert {r.target for r in fake.requests} == {"/model/amazon.titan-embed-text-v2%3A0/invoke"}
    assert all(set(r.json) == {"inputText"} for r in fake.requests)


async def test_titan_is_told_the_dimensions_that_are_set(fake: FakeBedrock) -> None:
    async with embedder(fake, TITAN_2, dims=8) as made:
        (vector,) = await made.embed([""], purpose="query")

        assert (made.dims, made.model) == (8, f"bedrock:{TITAN_2}@8")
    assert len(vector) == 8
    assert fake.requests[0].json == {"inputText": " ", "dimensions": 8}


@pytest.mark.parametrize(
    ("purpose", "kind"), [("query", "search_query"), ("document", "search_document")]
)
async def test_cohere_is_asked_for_96_at_once_and_told_what_for(
    fake: FakeBedrock, purpose: Any, kind: str
) -> None:
    texts = ["x" * (1 + n % 7) for n in range(100)]
    async with embedder(fake, COHERE_3) as made:
        vectors = await made.embed([*texts[:-1], "y" * 5000], purpose=purpose)

    assert_vectors_of([*texts[:-1], "y" * 2048], vectors)
    assert [len(r.json["texts"]) for r in fake.requests] == [96, 4]
    assert fake.requests[0].json | {"texts": []} == {
        "texts": [],
        "input_type": kind,
        "truncate": "END",
        "embedding_types": ["float"],
    }


@pytest.mark.parametrize("model", [COHERE_4, ARN])
async def test_coheres_fourth_model_is_asked_in_its_own_way(fake: FakeBedrock, model: str) -> None:
    async with embedder(fake, model, dims=256) as made:
        (vector,) = await made.embed(["x" * 9000], purpose="document")

    assert len(vector) == 256
    body = fake.requests[0].json
    assert (body["output_dimension"], body["truncate"]) == (256, "RIGHT")
    assert len(body["texts"][0]) == 8000


async def test_coheres_older_answer_is_understood(fake: FakeBedrock) -> None:
    fake.then(Reply(pieces=[b'{"embeddings": [[3, 4]], "response_type": "embeddings_floats"}']))
    async with embedder(fake, "cohere.embed-english-v3") as made:
        assert await made.embed(["x"], purpose="query") == [pytest.approx([0.6, 0.8])]


async def test_a_prefix_counts_within_what_a_text_may_have(fake: FakeBedrock) -> None:
    async with embedder(fake, COHERE_3, document_prefix="passage: ") as made:
        await made.embed(["x" * 5000], purpose="document")

    (text,) = fake.requests[0].json["texts"]
    assert (len(text), text[:11]) == (2048, "passage: xx")


async def test_a_text_with_half_a_surrogate_pair_has_a_vector(fake: FakeBedrock) -> None:
    async with embedder(fake, TITAN_2) as made:
        assert len(await made.embed(["a\ud800b"], purpose="document")) == 1

    assert fake.requests[0].json == {"inputText": "a?b"}


async def test_a_text_that_is_refused_is_halved_and_the_others_are_not(fake: FakeBedrock) -> None:
    refused = aws_error(400, "ValidationException", "Too many input tokens.")
    fake.then(refused, refused)
    async with embedder(fake, TITAN_1) as made:
        vectors = await made.embed(["x" * 4000], purpose="document")

    assert [len(r.json["inputText"]) for r in fake.requests] == [4000, 2000, 1000]
    assert_vectors_of(["x" * 1000], vectors)


@pytest.mark.parametrize("model", [TITAN_1, "cohere.embed-english-v3"])
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


async def test_a_service_that_keeps_failing_is_left_alone(fake: FakeBedrock) -> None:
    async with embedder(fake, COHERE_4) as made:
        for _ in range(FAILURES):
            fake.then(aws_error(403, "AccessDeniedException", f"No, {SECRET}."))
            with pytest.raises(HttpRefused, match="Check the key, and what it may do"):
                await made.embed(["x"], purpose="query")
        with pytest.raises(Unavailable, match="Not asked again yet") as failed:
            await made.embed(["x"], purpose="query")

    assert len(fake.requests) == FAILURES
    assert_silent(failed.value, (SECRET, TOKEN))


async def test_of_texts_side_by_side_the_failure_of_one_is_told_as_it_is(
    fake: FakeBedrock,
) -> None:
    async with embedder(fake, TITAN_2) as made:
        fake.then(aws_error(404, "ResourceNotFoundException", "No such model."))
        with pytest.raises(HttpRefused, match="404 Not Found") as failed:
            await made.embed(["a", "b", "c"], purpose="document")

    assert_silent(failed.value, (SECRET, TOKEN))


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b'{"embeddings": [[1, 2], [3, 4]]}', "answered 2 vectors for 1 texts"),
        (b'{"embeddings": {"float": []}}', "answered 0 vectors for 1 texts"),
        (b'{"embeddings": [[]]}', "a vector of 0 dimensions"),
        (b'{"embeddings": [[0, 0]]}', "without a direction"),
        (b'{"embeddings": [[1e999, 0]]}', "not its JSON"),
        (b'{"embeddings": [["a"]]}', "not its JSON"),
        (b'{"embedding": [1]}', "not its JSON"),
        (b"\xff", "not its JSON"),
        (b" " * 2_000_000, "more than 1,000,000 bytes"),
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


@pytest.mark.parametrize("reply", [hang(), web_page(status=500)])
async def test_what_is_no_answer_is_unavailable(
    fake: FakeBedrock, reply: Reply
) -> None:  # Guarantee 9
    fake.then(reply, reply, reply)
    quick = Limits(connect_s=10, read_s=0.2, total_s=20)
    async with embedder(fake, TITAN_2, limits=quick) as made:
        with pytest.raises(Unavailable) as failed:
            await made.embed(["x"], purpose="query")

    assert_silent(failed.value, (SECRET, TOKEN))


async def test_vectors_of_another_length_are_refused(fake: FakeBedrock) -> None:
    async with embedder(fake, TITAN_1) as made:
        await made.embed(["x"], purpose="query")
        fake.dims = 4
        with pytest.raises(Unavailable, match="4 dimensions, not 3"):
            await made.embed(["x"], purpose="query")


async def test_vectors_as_long_as_floats_go_have_length_1(fake: FakeBedrock) -> None:
    fake.then(Reply(pieces=[b'{"embedding": [3e300, 4e300]}']))
    async with embedder(fake, TITAN_1) as made:
        assert await made.embed(["x"], purpose="query") == [pytest.approx([0.6, 0.8])]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "amazon.nova-2-embeddings"}, "only Titan's and Cohere's"),
        ({"query_model": "meta.llama"}, "only Titan's and Cohere's"),
        ({"model": TITAN_1, "query_model": TITAN_1, "dims": 512}, "take NOEMA_EMBEDDER_DIMS away"),
        ({"model": COHERE_3, "dims": 512}, "take NOEMA_EMBEDDER_DIMS away"),
        ({"key": "only-one-part"}, "not of the form"),
        ({"region": ""}, "set NOEMA_EMBEDDER_REGION"),
        ({"region": "Frankfurt"}, "does not tell its region"),
        ({"url": "https://bedrock-runtime.eu-central-1.amazonaws.com/v1"}, "without a path"),
    ],
)
def test_a_setting_that_cannot_work_stops_the_start(changes: dict[str, Any], told: str) -> None:
    settings = settings_of("https://gateway.example.com", TITAN_2, **changes)

    with pytest.raises(ConfigError, match=told) as failed:
        make_embedder(settings, ManualClock(NOW))

    assert "only-one-part" not in str(failed.value)


async def test_amazons_own_client_reads_what_our_server_writes_and_asks_as_we_do(
    fake: FakeBedrock,
) -> None:
    bodies: dict[str, dict[str, Any]] = {
        TITAN_2: {"inputText": "xy", "dimensions": 8},
        COHERE_4: {
            "texts": ["xy"],
            "input_type": "search_query",
            "truncate": "RIGHT",
            "embedding_types": ["float"],
            "output_dimension": 8,
        },
    }

    def theirs() -> list[Any]:
        session = get_session()
        session.set_credentials(KEY_ID, SECRET, TOKEN)
        client: Any = session.create_client(
            "bedrock-runtime",
            region_name="eu-central-1",
            endpoint_url=fake.url,
            config=Config(retries={"total_max_attempts": 1}, proxies={}),
        )
        with closing(client):
            return [
                json.loads(client.invoke_model(modelId=model, body=json.dumps(body))["body"].read())
                for model, body in bodies.items()
            ]

    # Its own clock signs: only the form of the requests is compared.
    fake.credential = None
    titan, cohere = await asyncio.to_thread(theirs)
    assert titan["embedding"] == fake.vector("xy", 8)
    assert cohere["embeddings"]["float"] == [fake.vector("xy", 8)]

    for model in bodies:
        async with embedder(fake, model, dims=8) as made:
            assert_vectors_of(["xy"], await made.embed(["xy"], purpose="query"))
    for theirs_was, ours in zip(fake.requests[:2], fake.requests[2:], strict=True):
        assert (ours.method, ours.target) == (theirs_was.method, theirs_was.target)
        assert ours.json == theirs_was.json

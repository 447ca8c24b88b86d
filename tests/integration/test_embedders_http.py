"""Embedding services over HTTP: each spoken to in its own format, none trusted to behave."""

import asyncio
import logging
from collections.abc import AsyncIterator
from email.utils import format_datetime
from functools import partial
from math import sqrt
from typing import Any

import openai
import pytest

from noema.config import EmbedderSettings
from noema.core.clock import ManualClock, SystemClock
from noema.core.errors import Unavailable
from noema.llm.embedders.make import aclose, make_embedder
from noema.llm.embedders.remote import RemoteEmbedder
from noema.llm.embedders.wire import AT_ONCE
from noema.net import circuit
from noema.net.http import Limits
from tests.fake_embedder import FakeService, break_off, drip, fake_service, flood, hang, reply
from tests.helpers import eventually

CANARY = "sk-canary-5f1d"
QUICK = Limits(connect_s=1.0, read_s=0.2, total_s=0.6, max_bytes=200_000)


@pytest.fixture
async def service() -> AsyncIterator[FakeService]:
    async with fake_service() as running:
        yield running


def settings_of(service: FakeService, **changes: Any) -> EmbedderSettings:
    values: dict[str, Any] = {
        "kind": "openai",
        "url": f"{service.url}/v1",
        "model": "m",
        "query_model": "m",
        "key": CANARY,
    }
    return EmbedderSettings(**(values | changes))


@pytest.fixture
async def made(clock: ManualClock) -> AsyncIterator[Any]:
    """A function that makes an embedder, which is closed after the test."""
    embedders: list[RemoteEmbedder] = []

    def make(service: FakeService, **changes: Any) -> RemoteEmbedder:
        embedder = make_embedder(settings_of(service, **changes), clock, limits=QUICK)
        assert isinstance(embedder, RemoteEmbedder)
        embedders.append(embedder)
        return embedder

    yield make
    for embedder in embedders:
        await aclose(embedder)


def unit(vector: list[float]) -> Any:
    length = sqrt(sum(number * number for number in vector))
    return pytest.approx([number / length for number in vector], abs=1e-6)


async def test_the_official_client_understands_the_fake_service(service: FakeService) -> None:
    async with openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="k") as client:
        answer = await client.embeddings.create(model="m", input=["a", "b"])
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=service.url, api_key="k", api_version="2024-10-21"
    ) as azure:
        other = await azure.embeddings.create(model="deployed", input=["a"])

    assert [row.embedding for row in answer.data] == [service.vector("a"), service.vector("b")]
    assert other.data[0].embedding == service.vector("a")
    assert service.asked[1].path == (
        "/openai/deployments/deployed/embeddings?api-version=2024-10-21"
    )


@pytest.mark.parametrize("ignores_base64", [False, True])
@pytest.mark.parametrize("suffix", ["", "/v1"])
async def test_openai_is_asked_as_it_wants_and_both_number_formats_are_read(
    made: Any, service: FakeService, *, suffix: str, ignores_base64: bool
) -> None:
    service.ignores_base64 = ignores_base64
    service.is_shuffled = True
    embedder = made(service, url=service.url + suffix)

    vectors = await embedder.embed(["a", "b", "c"], purpose="document")

    assert vectors == [unit(service.vector(text)) for text in "abc"]
    [asked] = service.asked
    assert asked.path == "/v1/embeddings"
    assert asked.headers["authorization"] == f"Bearer {CANARY}"
    assert "dimensions" not in asked.body
    assert (embedder.model, embedder.dims) == ("openai:m", 4)


async def test_dimensions_are_sent_only_where_they_are_set(made: Any, service: FakeService) -> None:
    embedder = made(service, dims=3)

    [vector] = await embedder.embed(["a"], purpose="query")

    assert len(vector) == 3
    assert service.asked[0].body["dimensions"] == 3
    assert embedder.model == "openai:m@3"


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/openai/deployments/m/embeddings?api-version=2024-10-21"),
        ("/openai", "/openai/deployments/m/embeddings?api-version=2024-10-21"),
        ("/openai/v1", "/openai/v1/embeddings"),
    ],
)
async def test_azure_is_asked_by_deployment_or_by_version_with_its_own_header(
    made: Any, service: FakeService, base: str, path: str
) -> None:
    embedder = made(service, kind="azure", url=service.url + base)

    [vector] = await embedder.embed(["a"], purpose="query")

    assert vector == unit(service.vector("a"))
    assert service.asked[0].path == path
    assert service.asked[0].headers["api-key"] == CANARY
    assert "authorization" not in service.asked[0].headers


@pytest.mark.parametrize("knows_api_embed", [True, False])
async def test_ollama_is_asked_by_its_newer_call_and_else_by_the_older(
    made: Any, service: FakeService, *, knows_api_embed: bool
) -> None:
    service.knows_api_embed = knows_api_embed
    embedder = made(service, kind="ollama", url=service.url, key=None)

    for _ in range(2):
        vectors = await embedder.embed(["a", "b"], purpose="document")

        assert vectors == [unit(service.vector("a")), unit(service.vector("b"))]
    old = ["/api/embeddings"] * 2
    paths = [asked.path for asked in service.asked]
    assert paths == (["/api/embed"] * 2 if knows_api_embed else ["/api/embed", *old, *old])
    assert "authorization" not in service.asked[0].headers


async def test_queries_and_documents_may_have_models_and_prefixes_of_their_own(
    made: Any, service: FakeService
) -> None:
    embedder = made(
        service,
        query_model="e5-query",
        model="e5-passage",
        query_prefix="query: ",
        document_prefix="passage: ",
    )

    await embedder.embed(["a"], purpose="query")
    await embedder.embed(["a"], purpose="document")

    assert [(asked.body["model"], asked.body["input"]) for asked in service.asked] == [
        ("e5-query", ["query: a"]),
        ("e5-passage", ["passage: a"]),
    ]
    assert embedder.model.startswith("openai:e5-query,e5-passage+")


async def test_many_texts_go_in_bounded_batches_and_come_back_in_order(
    made: Any, service: FakeService
) -> None:
    texts = [f"text {n}" for n in range(AT_ONCE * 2 + 1)]

    vectors = await made(service).embed(texts, purpose="document")

    assert vectors == [unit(service.vector(text)) for text in texts]
    assert [len(asked.body["input"]) for asked in service.asked] == [AT_ONCE, AT_ONCE, 1]


async def test_a_text_too_long_for_the_service_is_cut_and_the_others_are_not(
    made: Any, service: FakeService
) -> None:
    service.longest = 1_500

    vectors = await made(service).embed(["short", "x" * 5_000], purpose="document")

    assert vectors == [unit(service.vector("short")), unit(service.vector("x" * 1_250))]


def openai_answer(*rows: Any) -> bytes:
    return reply(200, {"data": [{"embedding": row, "index": n} for n, row in enumerate(rows)]})


BAD_ANSWERS: dict[str, Any] = {
    "a page with 200": (reply(200, "<html>Log in</html>"), "a web page"),
    "truncated JSON": (reply(200, '{"data": [{"embedding": [1.0, 2'), "not its JSON"),
    "NaN": (reply(200, '{"data": [{"embedding": [NaN]}]}'), "not its JSON"),
    "infinity": (reply(200, '{"data": [{"embedding": [1e999, 1.0]}]}'), "not its JSON"),
    "no UTF-8": (reply(200, b'{"data": [{"embedding": "\xff\xfe"}]}'), "not its JSON"),
    "another shape": (reply(200, '["a"]'), "not its JSON"),
    "nothing": (reply(200, ""), "not its JSON"),
    "too few": (openai_answer(), "0 vectors for 1"),
    "too many": (openai_answer([1.0], [1.0]), "2 vectors for 1"),
    "other dimensions": (openai_answer([1.0, 2.0]), "2 dimensions, not 4"),
    "zeros": (openai_answer([0.0] * 4), "without a direction"),
    "bad base64": (openai_answer("AAA"), "not base64"),
    "bad index": (reply(200, '{"data": [{"embedding": [1], "index": 7}]}'), "makes no sense"),
    "NaN in base64": (openai_answer("AADAfwAAgD8AAIA/AACAPw=="), "without a direction"),
    "no key": (reply(401, {"error": {"message": CANARY, "code": CANARY}}), "401 .*Check the key"),
    "not found": (reply(404, {"error": {"code": "model_not_found"}}), "model_not_found"),
    "a redirect": (reply(302, "", location="http://127.0.0.1:1/"), "no redirect is followed"),
    "compressed": (reply(200, b"\x1f\x8b", content_encoding="gzip"), "compressed"),
    "a hang": (hang, "does not answer"),
    "a slow drip": (drip, "within 1 s"),
    "a flood": (flood, "more than 200,000 bytes"),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_guarantee_18_a_bad_answer_is_unavailable_with_a_reason_and_without_the_key(
    made: Any, service: FakeService, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    answer, reason = BAD_ANSWERS[name]
    caplog.set_level(logging.DEBUG)
    embedder = made(service, dims=4)
    service.answers = [answer]

    with pytest.raises(Unavailable, match=reason) as failed:
        await embedder.embed(["text-canary"], purpose="query")

    assert len(service.asked) == 1
    for told in (str(failed.value), repr(failed.value.__cause__), caplog.text):
        assert CANARY not in told
        assert "text-canary" not in told


@pytest.mark.parametrize(
    "answer", [break_off, reply(503, "busy"), reply(429, "", retry_after="2"), reply(500, "")]
)
async def test_what_passes_by_itself_is_tried_again(
    made: Any, service: FakeService, answer: Any
) -> None:
    service.answers = [answer, answer]

    vectors = await made(service).embed(["a"], purpose="query")

    assert vectors == [unit(service.vector("a"))]
    assert len(service.asked) == 3


async def test_tries_are_bounded(made: Any, service: FakeService) -> None:
    service.answers = [reply(503, "busy")] * 9

    with pytest.raises(Unavailable, match="503 Service Unavailable"):
        await made(service).embed(["a"], purpose="query")

    assert len(service.asked) == 3


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_in_either_form_is_kept_to(
    made: Any, service: FakeService, clock: ManualClock, form: str
) -> None:
    when = ManualClock(clock.now())
    when.advance(90)
    text = "90" if form == "seconds" else format_datetime(when.now(), usegmt=True)
    service.answers = [reply(429, "", retry_after=text)]
    embedder = made(service)

    with pytest.raises(Unavailable, match="429 Too Many Requests"):
        await embedder.embed(["a"], purpose="query")
    clock.advance(80)
    with pytest.raises(Unavailable, match="Not asked again yet"):
        await embedder.embed(["a"], purpose="query")
    clock.advance(11)

    assert len(await embedder.embed(["a"], purpose="query")) == 1
    assert len(service.asked) == 2


@pytest.mark.parametrize("text", ["soon", "-1", "Wed, 99 Foo", "9" * 400, "²"])
async def test_a_retry_after_that_makes_no_sense_does_no_harm(
    made: Any, service: FakeService, text: str
) -> None:
    raw = reply(429, "").replace(b"\r\n\r\n", b"\r\nretry-after: " + text.encode() + b"\r\n\r\n")
    service.answers = [raw] * 3

    with pytest.raises(Unavailable, match="429"):
        await made(service).embed(["a"], purpose="query")


async def test_a_service_that_keeps_failing_is_left_alone_and_then_tried_once(
    made: Any, service: FakeService, clock: ManualClock
) -> None:
    embedder = made(service)
    service.answers = [reply(401, "")] * (circuit.FAILURES + 1)
    for _ in range(circuit.FAILURES):
        with pytest.raises(Unavailable, match="401"):
            await embedder.embed(["a"], purpose="query")

    with pytest.raises(Unavailable, match="Not asked again yet"):
        await embedder.embed(["a"], purpose="query")
    assert len(service.asked) == circuit.FAILURES
    clock.advance(circuit.FIRST_S)
    with pytest.raises(Unavailable, match=r"Check the key\.$"):
        await embedder.embed(["a"], purpose="query")
    clock.advance(circuit.FIRST_S)
    with pytest.raises(Unavailable, match="Not asked again yet"):
        await embedder.embed(["a"], purpose="query")
    clock.advance(circuit.FIRST_S)

    assert len(await embedder.embed(["a"], purpose="query")) == 1
    assert len(await embedder.embed(["b"], purpose="query")) == 1


def _was_asked(service: FakeService, before: int) -> bool:
    return len(service.asked) > before


async def test_who_gives_up_waiting_for_a_slow_service_counts_as_its_failure(
    service: FakeService,
) -> None:
    clock = ManualClock(SystemClock().now())
    embedder = make_embedder(settings_of(service), clock)
    assert embedder is not None
    service.answers = [hang] * circuit.FAILURES

    for _ in range(circuit.FAILURES):
        asked = len(service.asked)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(embedder.embed(["a"], purpose="query"))
            await eventually(partial(_was_asked, service, asked))
            clock.advance(3.0)
            waiting.cancel()

    with pytest.raises(Unavailable, match=r"too slow.*Not asked again yet"):
        await embedder.embed(["a"], purpose="query")
    await aclose(embedder)


async def test_a_name_that_leads_to_the_machines_own_secrets_is_not_asked(
    made: Any, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()

    async def resolve(host: str, port: object, **_: object) -> list[Any]:
        return [(2, 1, 6, "", ("169.254.169.254", 0))]

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    embedder = made(service, url="http://embedder.example")

    with pytest.raises(Unavailable, match="machines keep their own secrets"):
        await embedder.embed(["a"], purpose="query")


async def test_a_server_that_is_not_there_is_named_without_the_key(
    made: Any, service: FakeService
) -> None:
    embedder = made(service, url="http://127.0.0.1:1")

    with pytest.raises(Unavailable, match=r"127\.0\.0\.1 cannot be reached") as failed:
        await embedder.embed(["a"], purpose="query")

    assert CANARY not in str(failed.value)

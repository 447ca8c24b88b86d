"""Amazon's event streams: read wherever they are cut, and never where they are damaged."""

from binascii import crc32
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.llm.providers.eventstream import DamagedStream, Frames
from tests.llm_fake import MIB
from tests.llm_fake_bedrock import frame


def with_headers_of(kind: int, value: bytes) -> bytes:
    """Return a frame with a header of another type than text."""
    good = frame(b"{}", event_type="x")
    old = b"\x0b:event-type\x07\x00\x01x"
    new = b"\x0b:event-type" + bytes([kind]) + value
    assert old in good
    return reframed(new, b"{}")


def reframed(headers: bytes, payload: bytes) -> bytes:
    prelude = pack("!II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + pack("!I", crc32(prelude)) + headers + payload
    return body + pack("!I", crc32(body))


@given(st.lists(st.binary(max_size=60), max_size=5), st.integers(min_value=1, max_value=50))
def test_frames_read_the_same_wherever_they_are_cut(payloads: list[bytes], size: int) -> None:
    raw = b"".join(frame(payload, event_type="x", message_type="event") for payload in payloads)
    frames = Frames()

    read = [f for at in range(0, len(raw), size) for f in frames.feed(raw[at : at + size])]
    frames.end()

    assert [f.payload for f in read] == payloads
    assert all(f.headers == {":event-type": "x", ":message-type": "event"} for f in read)


@given(st.data())
def test_no_flipped_bit_goes_unnoticed(data: st.DataObject) -> None:
    raw = frame(b'{"a": 1}', event_type="x")
    at = data.draw(st.integers(0, len(raw) - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = raw[:at] + bytes([raw[at] ^ (1 << bit)]) + raw[at + 1 :]

    with pytest.raises(DamagedStream):
        list(Frames().feed(damaged))


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_damaged(raw: bytes) -> None:
    frames = Frames()
    try:
        list(frames.feed(raw))
        frames.end()
    except DamagedStream:
        return
    assert not raw


@pytest.mark.parametrize(
    ("kind", "value"),
    [(0, b""), (1, b""), (2, b"1"), (3, b"12"), (4, b"1234"), (5, b"12345678"), (6, b"\x00\x01x"),
     (8, b"12345678"), (9, b"x" * 16)],
)  # fmt: skip
def test_headers_that_are_no_text_are_passed_over(kind: int, value: bytes) -> None:
    (read,) = Frames().feed(with_headers_of(kind, value))

    assert (read.headers, read.payload) == ({}, b"{}")


@pytest.mark.parametrize(
    "headers",
    [b"\x05", b"\x01a", b"\x01a\x0a", b"\x01a\x07", b"\x01a\x07\x00\x05x", b"\x01a\x04\x00",
     b"\x01\xff\x00", b"\x01a\x07\x00\x01\xff"],
)  # fmt: skip
def test_headers_that_cannot_be_read_are_damage(headers: bytes) -> None:
    with pytest.raises(DamagedStream):
        list(Frames().feed(reframed(headers, b"{}")))


def test_a_frame_that_is_too_long_is_refused_before_it_comes() -> None:
    for total, headers in ((17 * MIB, 0), (1000, 500 * 1024), (15, 0), (20, 10)):
        prelude = pack("!II", total, headers)
        with pytest.raises(DamagedStream, match="impossible"):
            list(Frames().feed(prelude + pack("!I", crc32(prelude))))

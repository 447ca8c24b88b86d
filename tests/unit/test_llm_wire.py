"""What comes over the wire in pieces, what is taken out of it, and when to ask again."""

from base64 import b64encode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.llm.model import ChatMessage, Parameters
from noema.llm.providers.asking import count_in, encoded, merged, with_path, with_schema_told
from noema.llm.providers.lines import Event, Events, Lines
from noema.llm.providers.refused import Refused, error_of, retry_after_s
from noema.llm.providers.scrub import MASK, Scrubber

NOW = datetime(2027, 3, 1, 12, 0, 0, tzinfo=UTC)
KEY = "sk/canary+7Q==é-Zx9"
STREAM = (
    'data: {"n": "ä😀"}\n\n'
    ": a comment\r\n"
    "data:without space\r\n\r\n"
    "event: error\rdata: one\rdata:  two\r\r"
    "id: 7\nretry: 10\ndata\n\n"
    "event: nothing\n\n"
    "data: [DONE]\n\n"
)
EVENTS = [
    Event("", '{"n": "ä😀"}'),
    Event("", "without space"),
    Event("error", "one\n two"),
    Event("", ""),
    Event("", "[DONE]"),
]


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(raw) + 1) for place in places} | {0, len(raw)})
    return [raw[start:end] for start, end in pairwise(ends)]


def read(pieces: list[bytes]) -> list[Event]:
    events = Events()
    return [e for piece in pieces for e in events.feed(piece)] + list(events.end())


@given(st.lists(st.integers(min_value=0)))
def test_a_stream_reads_the_same_wherever_it_is_cut(places: list[int]) -> None:
    assert read(cut(STREAM.encode(), places)) == EVENTS


def test_a_stream_reads_the_same_byte_by_byte_and_with_a_mark_at_its_start() -> None:
    raw = b"\xef\xbb\xbf" + STREAM.encode()

    assert read([raw[n : n + 1] for n in range(len(raw))]) == EVENTS


def test_separators_that_only_unicode_knows_end_no_line() -> None:
    text = "a\u2028b\u0085c\x0bd\x0ce\x1cf"

    assert read([f"data: {text}\n\n".encode()]) == [Event("", text)]


def test_the_last_event_counts_without_the_empty_line_after_it() -> None:
    assert read([b"data: one\n\ndata: two"]) == [Event("", "one"), Event("", "two")]


@given(st.lists(st.integers(min_value=0)))
def test_ndjson_reads_the_same_wherever_it_is_cut(places: list[int]) -> None:
    lines = Lines(cr_ends=False)
    raw = '{"a":\r1}\n{"b": "日本"}\r\n{"c": 3}'.encode()

    found = [line for piece in cut(raw, places) for line in lines.feed(piece)] + list(lines.end())

    assert found == ['{"a":\r1}', '{"b": "日本"}\r', '{"c": 3}']


@pytest.mark.parametrize("raw", [b"data: \xff\n\n", b"data: \xc3", b"data: \xed\xa0\x80\n\n"])
def test_bytes_that_are_not_utf_8_are_refused(raw: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        read([raw])


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        KEY.upper(),
        quote(KEY),
        quote(KEY, safe=""),
        quote_plus(KEY).lower(),
        KEY.encode().hex(),
        b64encode(KEY.encode()).decode(),
        urlsafe_b64encode(KEY.encode()).decode(),
        b64encode(f"u:{KEY}".encode()).decode(),
        b64encode(f":{KEY}:".encode()).decode(),
        "sk/canary\\u002b7Q==\\u00e9-Zx9".replace("\\u002b", "+"),
    ],
)
def test_no_form_of_a_key_is_left_in_a_message(form: str) -> None:
    scrubbed = Scrubber([KEY]).scrub(f"The key <{form}> is wrong.")

    assert MASK in scrubbed
    assert scrubbed.startswith("The key <")
    assert scrubbed.endswith("> is wrong.")
    assert not any(form[n : n + 8] in scrubbed for n in range(len(form) - 7))


@given(st.text(alphabet="abcXYZ019-_/+=", min_size=8, max_size=60), st.text(), st.text())
def test_a_key_is_masked_wherever_it_stands(key: str, before: str, after: str) -> None:
    assert key not in Scrubber([key]).scrub(before + key + after)


def test_a_part_of_a_key_is_masked_and_a_few_characters_are_not() -> None:
    scrubber = Scrubber(["sk-0123456789abcdef"])

    assert scrubber.scrub("key 456789ab…") == f"key {MASK}…"
    assert scrubber.scrub("sk-01 is 6789") == "sk-01 is 6789"


def test_a_short_key_is_masked_where_it_stands_whole() -> None:
    assert Scrubber(["tiny"]).scrub("TINY, tin, tiny!") == f"{MASK}, tin, {MASK}!"


def test_without_a_secret_nothing_changes() -> None:
    assert Scrubber(["", ""]).scrub("as it is") == "as it is"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=90), usegmt=True)}, 90.0),
        ({"retry-after": "Monday, 01-Mar-27 12:00:30 GMT"}, 30.0),
        ({"retry-after": format_datetime(NOW - timedelta(hours=1), usegmt=True)}, 0.0),
        ({"retry-after": "Mon, 01 Mar 2027 13:00:00 +0100"}, 0.0),
        ({"retry-after": "99999999999"}, 86_400.0),
        ({"retry-after": "5", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 32 Foo 99999 99:99:99 GMT"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_the_time_to_wait_is_a_number_or_a_date(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after_s(headers, NOW) == seconds


@given(st.text(max_size=40))
def test_no_header_makes_the_time_to_wait_fail(text: str) -> None:
    seconds = retry_after_s({"retry-after": text}, NOW)

    assert seconds is None or 0.0 <= seconds <= 86_400.0


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (
            '{"error": {"message": "No.", "type": "t", "param": "p", "code": null}}',
            ("No.", "t", "p"),
        ),
        ('{"error": "No."}', ("No.", "", "")),
        ('{"message": "No."}', ("No.", "", "")),
        ('{"detail": "Not Found"}', ("Not Found", "", "")),
        (
            '{"detail":[{"loc":["body","stream_options"]}]}',
            ('{"detail":[{"loc":["body","stream_options"]}]}', "", ""),
        ),
        ('{"error": {"code": 503, "message": "Busy"}}', ("Busy", "503", "")),
        ("[1]", ("[1]", "", "")),
        ("upstream timed out", ("upstream timed out", "", "")),
        ("", ("", "", "")),
    ],
)
def test_an_error_is_read_in_each_of_the_usual_shapes(
    body: str, parts: tuple[str, str, str]
) -> None:
    assert error_of(body) == parts


@pytest.mark.parametrize(
    ("status", "is_retryable", "is_cost_unknown"),
    [
        (400, False, False),
        (401, False, False),
        (408, True, False),
        (429, True, False),
        (500, True, True),
        (502, True, True),
        (503, True, False),
        (504, True, True),
        (529, True, False),
        (501, False, True),
        (524, True, True),
        (302, False, False),
        (204, False, True),
        (999, False, True),
    ],
)
def test_a_status_tells_whether_to_ask_again_and_what_it_cost(
    status: int, is_retryable: bool, is_cost_unknown: bool
) -> None:
    refused = Refused("The model", status=status)

    assert (refused.retryable, refused.is_cost_unknown) == (is_retryable, is_cost_unknown)
    assert str(status) in str(refused)


def test_what_a_call_sets_counts_over_what_the_row_sets() -> None:
    row = Parameters(temperature=0.5, max_tokens=10, stop=("a",), extra={"user": "x", "n": 1})
    call = Parameters(temperature=0.0, extra={"n": 2})

    assert merged(row, call) == Parameters(
        temperature=0.0, max_tokens=10, stop=("a",), extra={"user": "x", "n": 2}
    )


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("https://a.example/v1", "https://a.example/v1/chat"),
        ("https://a.example/v1/", "https://a.example/v1/chat"),
        ("https://a.example", "https://a.example/v1/chat"),
        ("https://a.example/v1/chat", "https://a.example/v1/chat"),
        ("https://a.example/x?y=1#z", "https://a.example/x/chat?y=1"),
    ],
)
def test_the_path_is_put_to_the_endpoint_once(endpoint: str, url: str) -> None:
    assert with_path(endpoint, "/chat", bare="/v1") == url


def test_a_schema_is_told_in_the_one_system_message() -> None:
    system = ChatMessage(role="system", text="Be brief.")
    user = ChatMessage(role="user", text="Hello")

    told = with_schema_told([system, user], {"type": "object"})
    alone = with_schema_told([user], {"type": "object"})

    assert [m.role for m in told] == [m.role for m in alone] == ["system", "user"]
    assert told[0].text.startswith("Be brief.\n\n")
    assert '{"type":"object"}' in told[0].text
    assert '{"type":"object"}' in alone[0].text


def test_half_a_surrogate_pair_does_not_stop_a_request() -> None:
    assert encoded({"text": "a\ud800b"}) == b'{"text": "a?b"}'


@pytest.mark.parametrize(
    ("value", "count"),
    [(3, 3), (0, 0), (3.0, 3), (3.5, None), (-1, None), (True, None), ("3", None)],
)
def test_a_count_is_a_whole_number_or_nothing(value: object, count: int | None) -> None:
    assert count_in({"a": {"b": value}}, "a", "b") == count
    assert count_in({"a": value}, "a", "b") is None

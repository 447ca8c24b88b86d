import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.cli.commands.feed_batches import batch_key, retry_after_s
from noema.cli.commands.feed_lines import Cutter, Line, LineRefused, follow
from noema.cli.commands.feed_parse import JsonParser, TextParser
from noema.core.clock import ManualClock


def line(raw: bytes, number: int = 2, start: int = 10) -> Line:
    return Line(number=number, start=start, end=start + len(raw), raw=raw, origin="f")


@given(st.lists(st.binary(max_size=8).map(lambda b: b.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_the_same_however_the_bytes_arrive(lines: list[bytes], data: Any) -> None:
    whole = b"\n".join(lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    cutter = Cutter(origin="f", limit=100)
    found: list[Line] = []

    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += cutter.add(whole[start:end])
    found += cutter.end()

    expected = lines[:-1] if lines and not lines[-1] else lines
    assert [one.raw for one in found] == expected
    assert [one.number for one in found] == list(range(1, len(found) + 1))
    assert all(whole[one.start : one.end].rstrip(b"\n") == one.raw for one in found)
    assert cutter.position == len(whole)


def test_a_line_that_is_too_long_comes_after_everything_before_it() -> None:
    cutter = Cutter(origin="f", limit=4)
    lines = cutter.add(b"a\nb\nlonger\nd\n")

    assert [next(lines).raw, next(lines).raw] == [b"a", b"b"]
    with pytest.raises(LineRefused) as caught:
        next(lines)
    assert caught.value.number == 3


def test_a_long_line_that_is_to_be_skipped_takes_no_room() -> None:
    cutter = Cutter(origin="f", limit=4, first=2)
    found: list[Line] = []

    for _ in range(50):
        found += cutter.add(b"x" * 100)
    found += cutter.add(b"\nab\n")

    assert [(one.number, one.raw) for one in found][1:] == [(2, b"ab")]
    assert (found[1].start, found[1].end) == (5001, 5004)


def text_parser() -> tuple[TextParser, list[int]]:
    bad: list[int] = []
    parser = TextParser(source=None, time_of=lambda text: None, on_bad_bytes=lambda: bad.append(1))
    return parser, bad


def test_bytes_that_are_not_utf8_stay_visible_and_are_counted() -> None:
    parse, bad = text_parser()

    assert parse(line(b"caf\xe9 \xff\x00ok")) == {"text": "caf\\xe9 \\xff\x00ok"}
    assert len(bad) == 1


def test_white_space_alone_is_an_empty_line_and_a_byte_order_mark_is_no_text() -> None:
    parse, _ = text_parser()

    assert parse(line(b" \t\r")) is None
    assert parse(line(b"\xef\xbb\xbfhello\r", start=0)) == {"text": "hello"}


def test_the_limit_counts_the_text_that_would_be_sent() -> None:
    parse, _ = text_parser()

    assert parse(line(b"x" * 65536)) == {"text": "x" * 65536}
    with pytest.raises(LineRefused, match="65540 bytes of text"):
        parse(line(b"x" * 65536 + b"\xff"))


def test_a_time_is_told_apart_in_utc_and_stays_in_the_text() -> None:
    moment = datetime(2025, 12, 10, 6, 55, 46, tzinfo=UTC)
    parse = TextParser(source="auth", time_of=lambda text: moment, on_bad_bytes=lambda: None)

    assert parse(line(b"Dec 10 06:55:46 sshd")) == {
        "text": "Dec 10 06:55:46 sshd",
        "occurred_at": "2025-12-10T06:55:46Z",
        "source": "auth",
    }


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"{", "is not JSON"),
        (b"[1]", 'not an object with a "text"'),
        (b'{"text": 1}', 'not an object with a "text"'),
        (b'{"text": "a", "urgency": NaN}', "NaN is not a number"),
        (b'{"text": "\\ud800"}', "half of a surrogate pair"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_a_bad_json_line_says_why(raw: bytes, why: str) -> None:
    parse = JsonParser(source=None, on_bad_bytes=lambda: None)

    with pytest.raises(LineRefused, match=why) as caught:
        parse(line(raw))

    assert caught.value.number == 2


def test_a_json_line_keeps_its_fields_and_its_bad_bytes() -> None:
    bad: list[int] = []
    parse = JsonParser(source="gate", on_bad_bytes=lambda: bad.append(1))

    item = parse(line(b'{"text": "a\xff\\u0000", "urgency": 0.5, "meta": {"k": [1]}}'))

    assert item == {"text": "a\\xff\x00", "urgency": 0.5, "meta": {"k": [1]}, "source": "gate"}
    assert bad == [1]


def test_the_same_place_and_bytes_have_the_same_key_and_nothing_else_has() -> None:
    key = batch_key("ada", line(b"x"), 1, b"body")

    assert key == batch_key("ada", line(b"x"), 1, b"body")
    others = [
        batch_key("bob", line(b"x"), 1, b"body"),
        batch_key("ada", line(b"x", start=11), 1, b"body"),
        batch_key("ada", line(b"x"), 2, b"body"),
        batch_key("ada", line(b"x"), 1, b"other"),
        batch_key("ada", line(b"x"), 1, b"body", salt="again"),
    ]
    assert len({key, *others}) == 6


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0),
        ("7", 7),
        (" 7 ", 7),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30),
        ("Wed, 31 Dec 2025 23:00:00 GMT", 0),
        ("99999999999", 300),
        ("soon", 0),
        ("-5", 0),
        ("Thu, 01 Jan 2026 00:00:30", 0),
    ],
)
def test_retry_after_is_read_as_seconds_and_as_a_date(value: str | None, seconds: float) -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))

    assert retry_after_s(value, clock) == seconds


class Following:
    """Follows a file, doing the next step whenever the follower waits."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[str] = []
        self.lines: list[tuple[int, str]] = []

    def run(self, steps: Iterator[Any]) -> None:
        def pause(seconds: float) -> None:
            if next(steps, "end") == "end":
                raise KeyboardInterrupt

        source = follow(self.path, limit=1000, pause=pause, say=self.said.append)
        with suppress(KeyboardInterrupt):
            self.lines.extend((o.number, o.raw.decode()) for o in source if o is not None)


def test_following_survives_growth_rotation_emptying_and_absence(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    following = Following(path)

    def steps() -> Iterator[None]:
        yield  # not there yet
        path.write_text("one\ntw")
        yield
        with path.open("a") as file:
            file.write("o\nthree")
        yield
        path.rename(tmp_path / "app.log.1")
        yield  # gone
        with (tmp_path / "app.log.1").open("a") as file:
            file.write("\nlate\nlast of the old")
        path.write_text("new one\n")
        yield
        yield  # the pause before the old file is given up
        path.write_text("")
        yield
        path.write_text("after emptying, longer than it ever was before\n")
        yield
        path.write_text("rewritten in place between two looks, and longer still\n")
        yield

    following.run(steps())

    assert following.lines == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
        (4, "late"),
        (5, "last of the old"),
        (1, "new one"),
        (1, "after emptying, longer than it ever was before"),
        (1, "rewritten in place between two looks, and longer still"),
    ]
    assert [said.removeprefix(f"{path} ") for said in following.said] == [
        "is not there; waiting for it.",
        "is gone; waiting for it to come back.",
        "was replaced; reading the new one from its start.",
        "was emptied or rewritten; reading it again from its start.",
        "was emptied or rewritten; reading it again from its start.",
    ]


def test_following_leaves_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("one\n")
    before = len(os.listdir("/dev/fd"))

    Following(path).run(iter(()))

    assert len(os.listdir("/dev/fd")) == before

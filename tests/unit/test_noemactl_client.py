import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from noema.cli.client import (
    DEFAULT_URL,
    Login,
    api,
    checked_token,
    checked_url,
    find_login,
    login_file,
    server_sent,
    store_login,
    stored_login,
)
from noema.cli.output import CommandError
from noema.config import ClientSettings

TOKEN = "noema_" + "a" * 43


def settings(path: Path, url: str | None = None, token: str | None = None) -> ClientSettings:
    return ClientSettings(url=url, token=token, config_dir=path / "noema")


def test_a_login_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    path = store_login(tmp_path / "noema", Login(url=DEFAULT_URL, token=TOKEN))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["credentials.json"]
    assert stored_login(tmp_path / "noema") == Login(url=DEFAULT_URL, token=TOKEN)


def test_a_login_that_cannot_be_kept_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "noema").write_text("a file where a folder should be")

    with pytest.raises(CommandError, match="Cannot keep the login"):
        store_login(tmp_path / "noema", Login(url=DEFAULT_URL, token=TOKEN))


def test_the_environment_wins_over_what_was_stored(tmp_path: Path) -> None:
    store_login(tmp_path / "noema", Login(url="http://localhost:1", token=TOKEN))

    found = find_login(settings(tmp_path, "http://localhost:2/", "noema_other"))

    assert found == Login(url="http://localhost:2", token="noema_other")


def test_a_stored_token_goes_to_no_other_address(tmp_path: Path) -> None:
    store_login(tmp_path / "noema", Login(url="http://localhost:1", token=TOKEN))

    assert find_login(settings(tmp_path, "http://localhost:2")).token is None
    assert find_login(settings(tmp_path, "HTTP://LOCALHOST:1/")).token == TOKEN
    assert find_login(settings(tmp_path)) == Login(url="http://localhost:1", token=TOKEN)


def test_without_any_login_the_daemon_is_on_this_machine(tmp_path: Path) -> None:
    assert find_login(settings(tmp_path)) == Login(url="http://127.0.0.1:8420", token=None)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"url": 1, "token": 2}', "\x00"])
def test_a_broken_login_says_what_to_do(tmp_path: Path, text: str) -> None:
    login_file(tmp_path).write_text(text)

    with pytest.raises(CommandError, match="log in again"):
        stored_login(tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        f"http://{TOKEN}@127.0.0.1:8420",
        f"http://127.0.0.1:8420/?token={TOKEN}",
        f"http://127.0.0.1:8420/{TOKEN}",
        "http://user:pass@host",
        "http://host/#fragment",
    ],
)
def test_a_token_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(CommandError) as caught:
        checked_url(url)

    assert "never belongs in an address" in caught.value.message
    assert TOKEN not in caught.value.message


@pytest.mark.parametrize(
    "url", ["", "localhost:8420", "ftp://host", "http://", "http://h:x", "http://["]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(CommandError, match="is not an address"):
        checked_url(url)


@pytest.mark.parametrize("token", ["", "  ", "a b", "a\nb", "ä", "a\x7f"])
def test_what_no_header_can_carry_is_no_token(token: str) -> None:
    with pytest.raises(CommandError, match="not a token"):
        checked_token(token)


def test_no_name_can_leave_its_place_in_a_path() -> None:
    assert api("minds", "../events", "mode") == "/v1/minds/..%2Fevents/mode"
    assert api("minds", "..") == "/v1/minds/%2E%2E"
    assert api("minds", "a?b#c") == "/v1/minds/a%3Fb%23c"


def chunks(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_stream_reads_the_same_however_it_is_cut(size: int, end: bytes) -> None:
    payload = json.dumps({"text": "a\u2028b\x85c 日本"}, ensure_ascii=False)
    lines = [": hello", "id: 1", "event: event", f"data: {payload}", "", ":", "data:x", "data: y"]
    data = end.join(line.encode() for line in [*lines, "", "id: 3", "data: cut off"]) + b"\n"

    events = list(server_sent(chunks(data, size)))

    assert [(e.id, e.name, e.data) for e in events] == [
        ("1", "event", payload),
        ("1", "message", "x\ny"),
    ]

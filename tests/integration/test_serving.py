"""`noema` as a process: how it starts, what it says when it cannot, how it stops."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest

from tests.conftest import TestDatabase
from tests.helpers import eventually

_NOEMA = [sys.executable, "-m", "noema"]
_NOEMACTL = [sys.executable, "-c", "from noema.cli.noemactl import main; main()"]


def environment(**settings: str) -> dict[str, str]:
    """The environment of a child: ours without any setting of Noema, and the given ones."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NOEMA_", "DATABASE_URL"))}
    return kept | settings


async def run(command: list[str], **settings: str) -> tuple[int, str, str]:
    """Run to the end; return exit code, output, errors."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment(**settings), cwd="/",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, out.decode(), err.decode()


@asynccontextmanager
async def serving(command: str = "serve", **settings: str) -> AsyncIterator[tuple[str, str, int]]:
    """A daemon that listens; yields its address, where to come in and its process id."""
    process = await asyncio.create_subprocess_exec(
        *_NOEMA, command, env=environment(NOEMA_PORT="0", **settings), cwd="/",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        url = link = ""
        while not link:
            line = (await asyncio.wait_for(process.stdout.readline(), 120)).decode()
            assert line, "the daemon ended before it listened"
            if found := re.search(r"listens on (\S+)", line):
                url = found.group(1)
            elif found := re.search(r"(http\S+link=\S+)|Sign in at (\S+/login)", line):
                link = found.group(1) or found.group(2)
        yield url, link, process.pid
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 60)
    assert process.returncode in (0, -signal.SIGKILL)


async def link_into(url: str, **settings: str) -> str:
    """A one-time link into the daemon at that address."""
    port = url.rpartition(":")[2]
    code, link, err = await run([*_NOEMA, "link"], NOEMA_PORT=port, **settings)
    assert (code, err) == (0, "")
    return link.strip()


async def test_a_first_start_needs_nothing_and_its_link_makes_the_first_administrator(
    reachable_dir: Path,
) -> None:
    settings = {"NOEMA_DATA_DIR": str(reachable_dir / "data")}
    async with serving(**settings) as (url, link, _):
        code, same_use, err = await run([*_NOEMA, "link"], **settings)
        async with httpx.AsyncClient(base_url=url) as browser:
            form = await browser.get(link)
            home = await browser.get("/")

        assert "/setup?link=" in link
        assert (code, err) == (0, "")
        assert "/setup?link=" in same_use
        assert (form.status_code, home.status_code) == (200, 303)


async def test_a_link_lets_one_browser_in_once(reachable_dir: Path) -> None:
    settings = {"NOEMA_DATA_DIR": str(reachable_dir / "data")}
    admin = {"NOEMA_BOOTSTRAP_ADMIN": "root:canary-of-the-first-start"}
    async with serving(**settings, **admin) as (url, _, _):
        link = await link_into(url, **settings)
        async with httpx.AsyncClient() as browser:
            first = await browser.get(link)
            home = await browser.get(url)
        async with httpx.AsyncClient() as thief:
            second = await thief.get(link)

        assert first.status_code == 303
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert home.status_code == 200
        assert second.status_code == 401


async def test_everything_is_there_again_after_kill_9(reachable_dir: Path) -> None:
    settings = {"NOEMA_DATA_DIR": str(reachable_dir / "data")}
    async with serving(**settings) as (url, _, pid):
        code, token, _ = await run([*_NOEMACTL, "token", "create", "--local"], **settings)
        assert code == 0
        client = {"NOEMA_URL": url, "NOEMA_TOKEN": token.strip()}
        assert (await run([*_NOEMACTL, "mind", "create", "ada"], **client))[0] == 0
        os.kill(pid, signal.SIGKILL)

    async with serving(**settings) as (url, _, _):
        client = {"NOEMA_URL": url, "NOEMA_TOKEN": token.strip()}
        code, out, _ = await run([*_NOEMACTL, "mind", "list", "--json"], **client)

    assert code == 0
    assert [m["slug"] for m in json.loads(out)] == ["ada"]


async def test_the_configured_database_is_used_where_one_is_set(database: TestDatabase) -> None:
    async with (
        serving(DATABASE_URL=database.owner_dsn, NOEMA_DATA_DIR="/nonexistent") as (
            url,
            _,
            _,
        ),
        httpx.AsyncClient() as client,
    ):
        ready = await client.get(f"{url}/readyz")

    assert ready.json()["status"] == "ready"


async def test_a_port_in_use_is_one_clear_line(reachable_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, err = await run(
            [*_NOEMA, "serve"], NOEMA_PORT=port, NOEMA_DATA_DIR=str(reachable_dir / "data")
        )

    assert code == 1
    assert err.count("\n") == 1
    assert port in err
    assert "NOEMA_PORT" in err
    assert not (reachable_dir / "data").exists()


async def test_a_data_dir_that_cannot_be_written_is_one_clear_line(reachable_dir: Path) -> None:
    blocked = reachable_dir / "file"
    blocked.write_text("not a directory")

    code, _, err = await run(
        [*_NOEMA, "serve"], NOEMA_PORT="0", NOEMA_DATA_DIR=str(blocked / "data")
    )

    assert code == 1
    assert err.count("\n") == 1
    assert str(blocked) in err


async def test_a_second_daemon_on_one_data_dir_is_refused(reachable_dir: Path) -> None:
    settings = {"NOEMA_DATA_DIR": str(reachable_dir / "data")}
    async with serving(**settings):
        code, _, err = await run([*_NOEMA, "serve"], NOEMA_PORT="0", **settings)

    assert code != 0
    assert err.count("\n") == 1
    assert "another" in err.lower()


async def test_an_unreachable_database_is_one_clear_line_without_the_password() -> None:
    code, _, err = await run(
        [*_NOEMA, "serve"],
        NOEMA_PORT="0",
        DATABASE_URL="postgresql://noema:hunter2@127.0.0.1:9/noema",
    )

    assert code == 5
    assert err.count("\n") == 1
    assert "127.0.0.1:9" in err
    assert "hunter2" not in err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NOEMA_PORT", "eighty"),
        ("NOEMA_HOST", "0.0.0.0"),
        ("NOEMA_ENV", "prod"),
        ("NOEMA_COLOUR", "red"),
        ("DATABASE_URL", "mysql://x"),
    ],
)
async def test_a_wrong_setting_stops_the_start_with_one_line_that_names_it(
    name: str, value: str
) -> None:
    code, _, err = await run([*_NOEMA, "serve"], **{name: value})

    assert code == 1
    assert err.count("\n") == 1
    assert name in err


async def test_doctor_tells_how_to_reach_the_database(reachable_dir: Path) -> None:
    settings = {"NOEMA_DATA_DIR": str(reachable_dir / "data")}
    async with serving(**settings):
        code, out, _ = await run([*_NOEMA, "doctor", "--json"], **settings)

        report = json.loads(out)
        conn = await asyncpg.connect(report["dsn"])
        user = await conn.fetchval("SELECT current_user")
        await conn.close()

    assert code == 0
    assert report["protection"] == "separate roles"
    assert user == "noema_app"


async def test_migrations_go_up_down_and_tell_their_status(empty_dsn: str) -> None:
    settings = {"DATABASE_URL": empty_dsn}

    up = await run([*_NOEMA, "migrate", "up"], **settings)
    status = await run([*_NOEMA, "migrate", "status", "--json"], **settings)
    down = await run([*_NOEMA, "migrate", "down", "--steps", "3", "--yes"], **settings)

    assert up[0] == down[0] == 0
    assert {m["state"] for m in json.loads(status[1])} == {"applied"}
    assert down[1].count("took back") == 3


async def test_noemactl_without_a_daemon_says_where_it_looked() -> None:
    code, _, err = await run(
        [*_NOEMACTL, "mind", "list"], NOEMA_URL="http://127.0.0.1:9", NOEMA_TOKEN="noema_x"
    )

    assert code == 5
    assert "127.0.0.1:9" in err


async def test_the_demo_thinks_about_a_stream_of_its_own(reachable_dir: Path) -> None:
    settings = {"NOEMA_DATA_DIR": str(reachable_dir / "data")}
    async with (
        serving("demo", **settings) as (url, link, _),
        httpx.AsyncClient(follow_redirects=True, base_url=url) as browser,
    ):
        await browser.get(link)

        winner = await eventually(lambda: _first_winner(browser), within_s=60)

    assert winner["text"]


async def _first_winner(browser: httpx.AsyncClient) -> dict[str, str] | None:
    answer = await browser.get("/v1/minds/sentinel/cycles")
    if answer.status_code != 200:
        return None
    winners = (c["winner"] for c in answer.json()["items"])
    return next((w for w in winners if w), None)


async def test_the_first_administrator_may_be_named_by_a_setting_that_nothing_shows(
    reachable_dir: Path,
) -> None:
    settings = {"NOEMA_DATA_DIR": str(reachable_dir / "data")}
    canary = "canary-of-the-first-start"
    async with serving(**settings, NOEMA_BOOTSTRAP_ADMIN=f"root:{canary}") as (url, _, _):
        async with httpx.AsyncClient(base_url=url) as browser:
            await browser.get(await link_into(url, **settings))
            who = (await browser.get("/v1/whoami")).json()
        code, _, err = await run([*_NOEMACTL, "user", "unlock", "root", "--local"], **settings)

    assert who["actor"] == "user:root"
    assert (code, err) == (0, "")
    assert canary.encode() not in logs_under(reachable_dir)


def logs_under(directory: Path) -> bytes:
    found = [path.read_bytes() for path in directory.rglob("*.log")]
    assert found
    return b"".join(found)


async def test_a_weak_first_password_stops_the_start_without_being_shown(
    reachable_dir: Path,
) -> None:
    code, out, err = await run(
        [*_NOEMA, "serve"], NOEMA_PORT="0", NOEMA_DATA_DIR=str(reachable_dir / "data"),
        NOEMA_BOOTSTRAP_ADMIN="root:hunter2",
    )  # fmt: skip

    assert code == 1
    assert "NOEMA_BOOTSTRAP_ADMIN" in err
    assert "hunter2" not in out + err


async def test_a_person_is_created_without_a_daemon_and_never_with_a_password_as_argument(
    empty_dsn: str,
) -> None:
    create = [*_NOEMACTL, "user", "create", "ada", "--role", "administrator", "--local"]
    process = await asyncio.create_subprocess_exec(
        *create, "--password-stdin", env=environment(DATABASE_URL=empty_dsn), cwd="/",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(b"correct horse battery\n"), 120)
    again, _, err = await run([*create, "canary-password"], DATABASE_URL=empty_dsn)

    conn = await asyncpg.connect(empty_dsn)
    found = await conn.fetchrow(
        "SELECT u.name, u.console_role, m.namespace, m.role FROM users u"
        " JOIN memberships m ON m.user_id = u.id"
    )
    await conn.close()

    assert process.returncode == 0
    assert b"ada may log in" in out
    assert found is not None
    assert tuple(found) == ("ada", "administrator", "home", "owner")
    assert again == 2
    assert "never an argument" in err
    assert "canary" not in err

"""`noemactl mem …` and the examples of its page against a real daemon."""

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from noema.cli import noemactl
from noema.cli.client import Ctl
from noema.config import ClientSettings
from noema.core.clock import SystemClock
from tests.conftest import TestDatabase
from tests.integration.test_noemactl_fake import Ran
from tests.running import Daemon, daemon

PAGE = Path(__file__).parents[2] / "docs" / "memory-cli.md"
Run = Callable[..., Awaitable[Ran]]


@pytest.fixture
async def running(database: TestDatabase) -> AsyncIterator[Daemon]:
    async with daemon(database) as running:
        yield running


@pytest.fixture
def mem(running: Daemon, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    async def run(*args: str) -> Ran:
        settings = ClientSettings(
            url=running.url,
            token=running.token,
            config_dir=tmp_path / "config",
            cache_dir=tmp_path / "cache",
        )
        ctl = Ctl(settings=settings, clock=SystemClock(), pause=lambda s: None)
        capfd.readouterr()
        code = await asyncio.to_thread(noemactl.run, ("mem", *args), ctl)
        captured = capfd.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


async def found(mem: Run, query: str, *more: str) -> list[dict[str, Any]]:
    ran = await mem("search", query, "--json", *more)
    assert ran.code == 0, ran
    results: list[dict[str, Any]] = ran.json["results"]
    return results


async def test_what_is_written_is_found_read_and_not_stored_twice(mem: Run) -> None:
    written = await mem("write", "The backup of db7 runs at 03:00 UTC.", "--json")
    again = await mem("write", "The  backup of db7 runs at 03:00 UTC.", "--json")
    hits = await found(mem, "backup db7", "--explain")

    memory = written.json["items"][0]["id"]
    assert (written.json["stored"], again.json["deduplicated"]) == (1, 1)
    assert [hit["id"] for hit in hits] == [memory]
    assert hits[0]["components"]["weights"]
    assert (await mem("read", memory, "--json")).json["text"] == hits[0]["text"]
    explained = await mem("search", "backup db7", "--explain")
    assert "COMPONENT" in explained.out
    assert (await mem("read", "0197f3c2-7d1e-7a00-8000-000000000001")).code == 3


async def test_an_import_stores_once_and_names_what_is_not_taken(
    mem: Run, running: Daemon, tmp_path: Path
) -> None:
    file = tmp_path / "f.jsonl"
    bodies: list[Any] = [f"Machine {n} stands in room {n}." for n in range(60)]
    bodies += [{"text": "Mine.", "namespace": "elsewhere"}, {"text": " "}, 17]
    file.write_text("".join(json.dumps(body) + "\n" for body in bodies))

    first = await mem("import", str(file), "--json")
    second = await mem("import", str(file), "--json")

    assert (first.code, first.json["stored"], first.json["rejected"]) == (1, 60, 3)
    assert [one["place"] for one in first.json["rejects"]] == [f"f.jsonl:{n}" for n in (61, 62, 63)]
    assert (second.json["stored"], second.json["deduplicated"]) == (0, 60)
    stats = await mem("stats", "--json")
    assert stats.json["total"] == 60
    answer = await running.client.get("/v1/audit", params={"verb": "mem.write", "limit": 200})
    outcomes = [row["outcome"] for row in answer.json()["items"]]
    assert outcomes.count("ok") >= 120


async def test_a_folder_of_markdown_is_found_by_its_headings(mem: Run, tmp_path: Path) -> None:
    root = tmp_path / "handbook"
    root.mkdir()
    (root / "visitors.md").write_text(
        "# Visitors\n\nThey sign in at the desk.\n\n## Badges\n\nReturned in the evening.\n"
    )

    ran = await mem("import", str(root), "--json")
    hits = await found(mem, "badges")

    assert (ran.code, ran.json["stored"]) == (0, 2)
    assert hits[0]["source"] == "visitors.md#Badges"
    assert hits[0]["route"] == "document"


async def test_transcripts_of_one_conversation_keep_their_order(mem: Run, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(
        "".join(
            json.dumps({"conversation": "talk", "messages": [{"speaker": "eva", "text": f"{n}!"}]})
            + "\n"
            for n in range(12)
        )
    )

    ran = await mem("import", str(file), "--json")
    listed = await mem("memories", "--limit", "50", "--json")

    turns = sorted(listed.json, key=lambda memory: memory["position"])
    assert ran.json["stored"] == 12
    assert [memory["text"] for memory in turns] == [f"{n}!" for n in range(12)]


async def test_an_agent_without_a_console_role_writes_and_an_auditor_may_not(
    running: Daemon, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.jsonl"
    file.write_text('"One."\n')
    codes = {}
    for role in ("agent", "auditor"):
        body = {"name": role, "memory_role": role, "console_role": "none"}
        made = await running.client.post("/v1/tokens", json=body)
        settings = ClientSettings(
            url=running.url, token=made.json()["token"], config_dir=tmp_path / role
        )
        ctl = Ctl(settings=settings, clock=SystemClock(), pause=lambda s: None)
        codes[role] = await asyncio.to_thread(noemactl.run, ("mem", "import", str(file)), ctl)

    capfd.readouterr()
    assert codes == {"agent": 0, "auditor": 4}


@pytest.mark.skipif(shutil.which("jq") is None, reason="the examples use jq")
async def test_every_example_of_the_page_works(running: Daemon, tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    script = "set -euo pipefail\n" + "\n".join(blocks)
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NOEMA_URL": running.url,
        "NOEMA_TOKEN": running.token,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    process = await asyncio.create_subprocess_exec(
        "bash", "-xc", script, cwd=tmp_path, env=environ,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()

    assert len(blocks) > 8
    assert process.returncode == 0, (out.decode() + err.decode())[-4000:]

"""`noemactl llm` manages providers, roles, prompts, calls and budgets of a real daemon."""

import asyncio
import io
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import click
import pytest

from noema.cli import noemactl
from noema.cli.client import Ctl
from noema.cli.commands.llm_values import chain, cost_shown, parameters, prices
from noema.config import ClientSettings
from noema.core.clock import SystemClock
from noema.core.identity import ConsoleRole, MemoryRole
from noema.llm.defaults import DEFAULTS
from tests.conftest import TestDatabase
from tests.llm_fake import FakeOpenAI
from tests.llm_fake_ollama import FakeOllama
from tests.people import person
from tests.running import Daemon, daemon

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
NOWHERE_URL = "http://127.0.0.1:9"
SECRET = "canary-secret-7c41-do-not-show"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Runs `noemactl llm`, as whoever holds the token."""

    daemon: Daemon
    run: Callable[..., Awaitable[Ran]]

    async def __call__(self, *args: str, **how: str) -> Ran:
        told = {"url": self.daemon.url, "token": self.daemon.token, **how}
        return await self.run("llm", *args, **told)

    async def ok(self, *args: str, **how: str) -> Ran:
        ran = await self(*args, **how)
        assert (ran.code, ran.err) == (0, ""), ran
        return ran

    async def echo(self, name: str = "e") -> None:
        await self.ok("provider", "create", name, "--kind", "echo", "--json")


@pytest.fixture
def run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[Ran]]:
    async def run(
        *args: str,
        url: str | None = None,
        token: str | None = None,
        stdin: str = "",
        secret: str | None = None,
    ) -> Ran:
        settings = ClientSettings(
            url=url, token=token, llm_secret=secret, config_dir=tmp_path / "config"
        )
        ctl = Ctl(settings=settings, clock=SystemClock(), pause=lambda s: None)
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capfd.readouterr()
        code = await asyncio.to_thread(noemactl.run, args, ctl)
        captured = capfd.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


@pytest.fixture
async def shell(
    database: TestDatabase, run: Callable[..., Awaitable[Ran]], tmp_path: Path
) -> AsyncIterator[Shell]:
    async with daemon(database, data_dir=tmp_path) as running:
        yield Shell(daemon=running, run=run)


class TestProviders:
    async def test_a_provider_is_made_shown_changed_and_deleted(self, shell: Shell) -> None:
        made = await shell.ok(
            "provider", "create", "openai", "--kind", "openai", "--model", "m",
            "--param", "temperature=0.2", "--param", "extra.top_k=40", "--param", "stop=END",
            "--price", "input=2.50", "--secret-stdin", "--json", stdin=f"{SECRET}\n",
        )  # fmt: skip
        await shell.ok("provider", "set", "openai", "--model", "n")
        await shell.ok("provider", "disable", "openai")
        shown = (await shell.ok("provider", "show", "openai", "--json")).json
        await shell.ok("provider", "enable", "openai")
        listed = await shell.ok("provider", "list")
        await shell.ok("provider", "delete", "openai")
        gone = await shell("provider", "show", "openai")

        assert made.json["parameters"] == {
            "temperature": 0.2, "stop": ["END"], "extra": {"top_k": 40},
        }  # fmt: skip
        assert made.json["prices"] == {"input": 2_500_000}
        assert (shown["model"], shown["is_enabled"], shown["version"]) == ("n", False, 3)
        assert f"…{SECRET[-4:]}" in listed.out
        assert SECRET not in made.out + listed.out
        assert (gone.code, gone.out) == (3, "")

    @pytest.mark.parametrize("how", [{"stdin": f"{SECRET}\n"}, {"secret": SECRET}])
    async def test_guarantee_18_a_secret_comes_from_outside_the_arguments(
        self, shell: Shell, how: dict[str, str]
    ) -> None:
        await shell.ok("provider", "create", "openai", "--kind", "openai", "--model", "m")

        dash = ("-",) if "stdin" in how else ()
        ran = await shell.ok("provider", "secret", "openai", *dash, **how)
        shown = (await shell.ok("provider", "show", "openai", "--json")).json
        bare = (await shell.ok("provider", "secret", "openai", "--remove", "--json")).json

        assert SECRET not in ran.out + ran.err
        assert shown["secret_hint"] == SECRET[-4:]
        assert bare["has_secret"] is False

    async def test_guarantee_18_a_secret_as_an_argument_is_refused_and_not_echoed(
        self, shell: Shell
    ) -> None:
        await shell.ok("provider", "create", "openai", "--kind", "openai", "--model", "m")

        argued = await shell("provider", "secret", "openai", SECRET)
        nothing = await shell("provider", "secret", "openai", "-")
        untold = await shell("provider", "secret", "openai")

        assert (argued.code, nothing.code, untold.code) == (2, 1, 2)
        assert "never an argument" in argued.err
        assert SECRET not in argued.err + argued.out
        assert "NOEMA_LLM_SECRET" in untold.err

    async def test_a_test_shows_what_was_sent_and_ends_with_1_where_it_failed(
        self, shell: Shell
    ) -> None:
        await shell.echo()
        await shell.ok(
            "provider", "create", "down", "--kind", "openai", "--model", "m",
            "--endpoint", "http://127.0.0.1:9/v1", "--private",
        )  # fmt: skip

        good = await shell.ok("provider", "test", "e", "--text", "Who?", "--json")
        bad = await shell("provider", "test", "down")

        assert "Who?" in good.json["answer"]["text"]
        assert bad.code == 1
        assert "down did not answer" in bad.err
        assert bad.err.count("\n") == 1


class TestRoles:
    async def test_a_role_is_set_shown_and_turned_off(self, shell: Shell) -> None:
        await shell.echo("a")
        await shell.echo("b")

        said = await shell.ok(
            "role", "set", "plan", "a=big", "b", "--param", "b:temperature=1",
            "--deadline-ms", "5000",
        )  # fmt: skip
        shown = (await shell.ok("role", "show", "plan", "--json")).json
        await shell.ok("role", "off", "plan")
        versions = (await shell.ok("role", "show", "plan", "--versions", "--json")).json
        listed = await shell.ok("role", "list")

        assert said.out == "plan asks a=big, then b now\n"
        assert shown["chain"][1]["parameters"] == {"temperature": 1.0}
        assert shown["deadline_ms"] == 5000
        assert [len(v["chain"]) for v in versions] == [0, 2]
        assert "nobody" in listed.out


class TestPrompts:
    async def test_a_version_is_written_compared_used_and_taken_back(
        self, shell: Shell, tmp_path: Path
    ) -> None:
        file = tmp_path / "plan.txt"
        file.write_text("{{ goal }}\nSo?\n", encoding="utf-8")

        saved = await shell.ok("prompt", "save", "plan", "--template", str(file), "--use")
        diff = await shell.ok("prompt", "diff", "plan", "1", "2")
        part = await shell.ok("prompt", "show", "plan", "--part", "template")
        await shell.ok("prompt", "use", "plan", "1")
        shown = (await shell.ok("prompt", "show", "plan", "--json")).json
        versions = (await shell.ok("prompt", "versions", "plan", "--json")).json
        listed = await shell.ok("prompt", "list")

        assert saved.out == "Saved version 2 of plan, in use now\n"
        assert "+So?" in diff.out
        assert part.out == "{{ goal }}\nSo?\n"
        assert shown["system"] == DEFAULTS["plan"].system
        assert [v["version"] for v in versions] == [2, 1]
        assert versions[0]["system"] == DEFAULTS["plan"].system
        assert "plan" in listed.out

    async def test_a_wrong_line_is_named(self, shell: Shell) -> None:
        wrong = await shell(
            "prompt", "save", "plan", "--template", "-", stdin="{{ goal }}\n{{ gaol }}"
        )
        nothing = await shell("prompt", "save", "plan")

        assert (wrong.code, nothing.code) == (1, 2)
        assert "template, line 2: there is no gaol" in wrong.err


class TestCallsAndBudgets:
    async def test_calls_spend_and_budgets_are_listed(self, shell: Shell) -> None:
        await shell.echo()
        tried = (await shell.ok("provider", "test", "e", "--json")).json
        made = (
            await shell.ok(
                "budget", "set", "role", "day", "--key", "dialogue", "--money", "0.5", "--json"
            )
        ).json

        calls = (await shell.ok("call", "list", "--provider", "e", "--json")).json
        shown = (await shell.ok("call", "show", tried["call"], "--json")).json
        spend = (await shell.ok("spend", "--json")).json
        budgets = await shell.ok("budget", "list")
        await shell.ok("budget", "end", made["id"])

        assert [c["id"] for c in calls] == [tried["call"]]
        assert shown["content"]["answer"] == tried["answer"]["text"]
        assert [(s["role"], s["calls"]) for s in spend] == [("dialogue", 1)]
        assert "0.500000" in budgets.out
        assert "free" in (await shell.ok("call", "list")).out
        assert (await shell.ok("call", "list", "--from", "2999-01-01", "--json")).json == []
        assert (await shell("budget", "end", made["id"])).code == 3


class TestExitCodes:
    @pytest.mark.parametrize(
        "args",
        [
            ("provider", "show", "nobody"),
            ("provider", "test", "nobody"),
            ("provider", "delete", "nobody"),
            ("role", "show", "judge"),
            ("role", "set", "plan", "nobody"),
            ("prompt", "show", "nobody"),
            ("prompt", "use", "plan", "99"),
            ("call", "show", str(UUID(int=404))),
        ],
        ids=" ".join,
    )
    async def test_what_is_missing_ends_with_3(self, shell: Shell, args: tuple[str, ...]) -> None:
        ran = await shell(*args)

        assert (ran.code, ran.out) == (3, "")
        assert ran.err.count("\n") == 1

    async def test_who_may_not_gets_4_and_nobody_there_5(self, shell: Shell) -> None:
        one = await person(shell.daemon, "op", ("home", MemoryRole.MEMBER))
        token = await one.token("home", console_role=ConsoleRole.OPERATOR)

        looked = await shell("provider", "list", token=token)
        changed = await shell("provider", "create", "x", "--kind", "echo", token=token)
        refused = await shell("provider", "list", token="noema_wrong")
        unreached = await shell("provider", "list", url=NOWHERE_URL)

        assert (looked.code, changed.code, refused.code, unreached.code) == (0, 4, 4, 5)


class TestValues:
    @pytest.mark.parametrize(
        "pair", ["temperature", "temperature=hot", "seed=1.5", "nope=1", "extra.=1", "top_p=nan"]
    )
    def test_what_is_no_parameter_is_refused(self, pair: str) -> None:
        with pytest.raises(click.UsageError):
            parameters((pair,))

    @pytest.mark.parametrize("pair", ["input=-1", "input=1.1234567", "input=x", "all=1"])
    def test_what_is_no_price_is_refused(self, pair: str) -> None:
        with pytest.raises(click.UsageError):
            prices((pair,))

    def test_parameters_for_nobody_in_the_chain_are_refused(self) -> None:
        with pytest.raises(click.UsageError, match="does not stand in the chain"):
            chain(("a",), ("b:seed=1",))

    def test_a_cost_says_how_well_it_is_known(self) -> None:
        shown = [
            cost_shown({"cost_kind": kind, "cost_micros": micros})
            for kind, micros in (
                ("known", 1), ("estimated", 2), ("unknown", None), ("unknown", 3), ("free", 0),
            )
        ]  # fmt: skip

        assert shown == ["0.000001", "about 0.000002", "unknown", "0.000003 and unknown", "free"]


class TestReading:
    async def test_a_test_and_a_call_are_read_as_text(self, shell: Shell) -> None:
        await shell.echo()

        tried = await shell.ok("provider", "test", "e", "--text", "One line.\nAnother.")
        call = re.search(r"call show (\S+)", tried.out)
        assert call is not None
        shown = await shell.ok("call", "show", call[1])

        for read in (tried.out, shown.out):
            assert "--- user\nOne line.\nAnother.\n" in read
            assert "--- answer\nThis is an echo, no model. You said: One line. Another.\n" in read
        assert "cost: free" in shown.out
        assert re.search(r"WHAT CAME OF IT\n.*answered", shown.out)

    async def test_a_text_cannot_act_on_the_terminal(self, shell: Shell) -> None:
        await shell.echo()

        tried = await shell.ok("provider", "test", "e", "--text", "\x1b[31mred\u202e")

        assert "\\x1b[31mred\\u202e" in tried.out
        assert "\x1b" not in tried.out


class TestMistakes:
    @pytest.mark.parametrize(
        ("args", "code", "told"),
        [
            (("budget", "set", "provider", "day", "--key", "nope", "--money", "1"), 3, "nope"),
            (("budget", "set", "role", "day", "--key", "nope", "--money", "1"), 1, "nope"),
            (("budget", "set", "everything", "day", "--money", "1.0000001"), 1, "six decimal"),
            (("provider", "create", "e", "--kind", "echo"), 1, "There is a provider e already."),
            (("provider", "delete", "e"), 1, "The role plan asks e"),
            (("provider", "create", "Bad Name", "--kind", "echo"), 1, "1 to 63 of a-z"),
            (("role", "set", "plan", "nope"), 3, "No provider nope"),
            (("prompt", "use", "plan", "99"), 3, "version 99"),
        ],
    )
    async def test_a_mistake_is_told_in_one_line_with_its_code(
        self, shell: Shell, args: tuple[str, ...], code: int, told: str
    ) -> None:
        await shell.echo()
        await shell.ok("role", "set", "plan", "e")

        ran = await shell(*args)

        assert (ran.code, ran.out) == (code, "")
        assert told in ran.err
        assert ran.err.count("\n") == 1


@pytest.mark.skipif(shutil.which("jq") is None, reason="the examples use jq")
async def test_every_example_of_the_page_works(shell: Shell, tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    running = shell.daemon
    mind = await running.client.post("/v1/minds", json={"slug": "ada", "name": "Ada"})
    assert mind.status_code == 201
    async with FakeOllama() as ollama, FakeOpenAI() as openai:
        ollama.models.add("qwen3:8b")
        script = "\n".join(blocks)
        # Servers of this test in place of those of the reader, and nobody to be asked for a secret.
        for theirs, ours in (
            ("--kind ollama", f"--kind ollama --endpoint {ollama.url}"),
            ("http://127.0.0.1:8081", openai.url),
            (r"llm provider secret openai  +#.*", "llm provider list"),
        ):
            script, count = re.subn(theirs, ours, script)
            assert count == 1, theirs
        tools = 'pass() { echo "a-key-of-openai"; }\nllama-server() { :; }\nKEY=another-key\n'
        process = await asyncio.create_subprocess_exec(
            "bash", "-xc", f"set -euo pipefail\n{tools}{script}", cwd=tmp_path,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "NOEMA_URL": running.url,
                "NOEMA_TOKEN": running.token,
                "XDG_CONFIG_HOME": str(tmp_path / "config"),
            },
        )  # fmt: skip
        out, err = await process.communicate()

    assert len(blocks) > 8
    assert process.returncode == 0, (out.decode() + err.decode())[-4000:]


async def test_who_sets_where_vectors_come_from_is_told_when_that_takes_effect(
    shell: Shell,
) -> None:
    make = ("--kind", "ollama", "--model", "nomic-embed-text", "--json")
    await shell.ok("provider", "create", "near", *make)
    dims = ("--param", "near:extra.dimensions=256")

    made = await shell.ok("role", "set", "embed", "near", *dims)
    shown = (await shell.ok("role", "show", "embed", "--json")).json

    assert "embed asks near when the daemon starts again" in made.out
    assert shown["chain"][0]["parameters"] == {"extra": {"dimensions": 256}}
    assert shown["in_force"]["source"] == "NOEMA_EMBEDDER"
    assert "when the daemon starts again" in (await shell.ok("role", "off", "embed")).out

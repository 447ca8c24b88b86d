"""A canary goes in by every door, comes back from the provider in every form, and is nowhere.

Everything that can be read is read: answers, pages, what commands say, logs, exports, metrics, the
arguments of processes, files, and all columns of all tables of the database.
"""

import asyncio
import html
import io
import json
import logging
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, quote_plus
from uuid import UUID

import asyncpg
import httpx
import pytest

from noema.cli import noemactl
from noema.cli.client import Ctl
from noema.config import ClientSettings
from noema.core.clock import SystemClock
from noema.core.errors import NoemaError
from noema.core.identity import ConsoleRole, MemoryRole
from noema.llm.model import CallContext, ChatMessage, CognitiveRequest, Role
from noema.web.llm_routes import LLM
from noema.web.pages.llm_routes import LLM as PAGES
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.llm_fake import FakeOpenAI, Reply, broken_after, openai_error, refusal, sse
from tests.llm_fake_bedrock import STREAM, FakeBedrock, aws_error, event, exception
from tests.llm_keys import KEY_ID, TOKEN
from tests.llm_keys import SECRET as AWS_SECRET
from tests.people import Person, person
from tests.running import Daemon, daemon

HTTP: Final = "canary/h+41d=0q&zZ9-by-http-Kq7x2Wm4"
FORM: Final = "canary/f+52e=1r&yY8-by-form-Lr8y3Xn5"
SHELL: Final = "canary/s+63f=2s&xX7-by-shell-Ms9z4Yo6"
NEXT: Final = "canary/n+74a=3t&wW6-the-next-Nt0a5Zp7"
CREDENTIAL: Final = f"{KEY_ID}:{AWS_SECRET}:{TOKEN}"
CANARIES: Final = (HTTP, FORM, SHELL, NEXT, KEY_ID, AWS_SECRET, TOKEN)

WRITTEN: Final[dict[str, Callable[[str], str]]] = {
    "as it is": str,
    "in capitals": str.upper,
    "as the header": lambda key: f"authorization: Bearer {key}",
    "in base64": lambda key: b64encode(key.encode()).decode(),
    "in base64 of the header": lambda key: b64encode(f"Bearer {key}".encode()).decode(),
    "in base64 for URLs": lambda key: b64encode(key.encode(), b"-_").decode(),
    "for a URL": lambda key: quote(key, safe=""),
    "for a form": quote_plus,
    "in JSON": lambda key: json.dumps(key).replace("/", "\\/"),
    "in JSON in JSON": lambda key: json.dumps(json.dumps({"key": key})),
    "in JSON, every character": lambda key: "".join(f"\\u{ord(c):04x}" for c in key),
    "in hex": lambda key: key.encode().hex(),
    "in HTML": html.escape,
    "cut off before its end": lambda key: key[: len(key) // 2 + 4],
    "without its beginning": lambda key: key[len(key) // 3 :],
}
NEVER: Final = frozenset(
    window.lower()
    for canary in CANARIES
    for form in (
        canary,
        quote(canary, safe=""),
        canary.encode().hex(),
        html.escape(canary),
        *(b64encode(b"\0" * n + canary.encode()).decode()[4:-4] for n in range(3)),
    )
    for window in (form[n : n + 16] for n in range(len(form) - 15))
)


@dataclass(slots=True)
class Read:
    """What could be read, by where."""

    texts: list[tuple[str, str]] = field(default_factory=list)

    def add(self, where: str, text: str) -> None:
        self.texts.append((where, text))

    def answer(self, answer: httpx.Response) -> httpx.Response:
        where = f"{answer.request.method} {answer.request.url.path}"
        self.add(where, f"{answer.headers}\n{answer.text}")
        return answer

    def leaks(self) -> list[tuple[str, str]]:
        """Return where sixteen characters in a row of a canary stand, or of a form of it."""
        found = []
        for where, text in self.texts:
            folded = text.lower()
            found += [(where, w) for w in NEVER if w in folded][:1]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A daemon, two services that echo what they are sent, and who configures them."""

    daemon: Daemon
    loose: FakeOpenAI
    bedrock: FakeBedrock
    admin: httpx.AsyncClient
    seat: Person
    pages: httpx.AsyncClient
    shell: Callable[..., Any]
    read: Read

    async def call(self, method: str, path: str, **sent: Any) -> httpx.Response:
        return self.read.answer(await self.admin.request(method, path, **sent))

    async def form(self, path: str, **values: str) -> httpx.Response:
        sent = {"csrf_token": self.seat.csrf, **values}
        return self.read.answer(await self.pages.post(path, data=sent))

    async def asked(self, role: Role, **more: Any) -> None:
        """Have a role asked; what goes wrong is read, too."""
        request = CognitiveRequest(
            role=role,
            messages=(ChatMessage(role="user", text="How warm is it?"),),
            context=CallContext(namespace="home", actor="mind:ada", process="speak"),
            **more,
        )
        try:
            self.read.add("answer", repr(await self.daemon.noema.llm.service.complete(request)))
        except NoemaError as exc:
            self.read.add(
                "error", f"{exc!r} {exc} {exc.args} {exc.__cause__!r} {exc.__context__!r}"
            )


@pytest.fixture
def shell(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    async def run(here: Daemon, read: Read, *args: str, secret: str = "", stdin: str = "") -> None:
        settings = ClientSettings(
            url=here.url, token=here.token, llm_secret=secret or None, config_dir=tmp_path / "cli"
        )
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        ctl = Ctl(settings=settings, clock=SystemClock(), pause=lambda s: None)
        before = capfd.readouterr()
        code = await asyncio.to_thread(noemactl.run, ("llm", *args), ctl)
        told = capfd.readouterr()
        read.add(f"noemactl llm {' '.join(args)}", told.out + told.err)
        read.add("what the daemon wrote", before.out + before.err)
        read.add("settings of the command", repr(settings))
        assert code == 0 or args[0] == "failing" or "test" in args, (args, told)

    return run


def echoes(key: str) -> Iterator[Reply]:
    """Give the ways in which a service that speaks OpenAI's format returns a key."""
    for written in (form(key) for form in WRITTEN.values()):
        yield refusal(401, openai_error(f"Incorrect API key provided: {written}."))
        yield refusal(400, f"I was sent {written} and will not have it.")
        yield Reply(
            headers={"content-type": "text/event-stream"},
            pieces=[sse({"choices": [{"index": 0, "delta": {"content": "so "}}]}),
                    sse(openai_error(f"lost {written}", code=written))],
        )  # fmt: skip
    name = quote(key, safe="")
    yield refusal(403, {"error": {"message": key, "type": key, "code": key, "param": key}})
    yield refusal(500, {"error": {"trace": {"headers": {"Authorization": f"Bearer {key}"}}}})
    yield refusal(429, {"detail": key}, retry_after=key)
    yield refusal(418, json.dumps({key: key}))
    yield Reply(status=302, headers={"location": f"https://evil.test/?key={name}"})
    yield Reply(status=401, headers={"www-authenticate": f'Bearer realm="{key}"', f"x-{name}": key})
    yield Reply(headers={"content-type": f"text/html; key={key}"}, pieces=[key.encode()])
    yield Reply(headers={"content-type": "text/event-stream"}, pieces=[f"data: {key}\n\n".encode()])
    yield Reply(pieces=[key.encode() + b"\xff"])
    yield Reply(headers={"content-encoding": key}, pieces=[key.encode()])
    yield broken_after(f"data: {key}".encode())


def frames(*keys: str) -> Iterator[Reply]:
    """Give the ways in which Bedrock returns what signed a request."""
    for key in keys:
        for form in (
            "as it is",
            "in base64",
            "for a URL",
            "in JSON in JSON",
            "cut off before its end",
        ):
            written = WRITTEN[form](key)
            yield aws_error(403, "AccessDeniedException", f"Not with {written}.")
            yield Reply(headers=STREAM, pieces=[exception("throttlingException", written)])
            yield Reply(headers=STREAM, pieces=[exception(written[:200], "no")])
        yield Reply(status=400, headers={"x-amzn-errortype": key}, pieces=[key.encode()])
        yield Reply(headers=STREAM, pieces=[event("messageStart", {"role": key}), key.encode()])


async def configured(here: House) -> None:
    """Put the secrets in, by every door, rightly and wrongly."""
    common = {"kind": "openai", "endpoint": f"{here.loose.url}/v1", "model": "gpt-fake"}
    for body in (
        {"name": "loose", **common, "allows_private": True, "secret": HTTP},
        {"name": "loose", **common, "allows_private": True, "secret": HTTP},
        {"name": "x", **common, "secret": HTTP},
        {"name": "x y", **common, "secret": HTTP},
        {"name": "x", "kind": "bedrock", "endpoint": "https://evil.test", "secret": CREDENTIAL},
        {
            "name": "x", "kind": "bedrock", "endpoint": here.bedrock.url, "secret": HTTP,
            "allows_private": True, "parameters": {"extra": {"region": "eu-central-1"}},
        },
        {"name": "x", **common, "parameters": {"extra": {"api_key": HTTP}}},
        {"name": "x", "kind": "echo", "secret": HTTP},
        {"name": "x", "kind": "openai", "secret": f"{HTTP}\n{HTTP}"},
        {"name": "x", "kind": "openai", "secret": {"is": HTTP}},
        {"name": "x", "kind": "openai", "endpoint": f"https://me:{quote(HTTP, safe='')}@x.test"},
        {"name": "x", "kind": "openai", "endpoint": f"https://x.test/?key={quote(HTTP, safe='')}"},
        {
            "name": "rock", "kind": "bedrock", "endpoint": here.bedrock.url, "model": "m.m-v1:0",
            "allows_private": True, "secret": CREDENTIAL,
            "parameters": {"extra": {"region": "eu-central-1"}},
        },
    ):  # fmt: skip
        key = {"Idempotency-Key": f"canary-{len(here.read.texts)}"}
        await here.call("POST", "/v1/llm/providers", json=body, headers=key)
    await here.call("POST", "/v1/llm/providers", content=HTTP.encode())
    await here.call("POST", "/v1/llm/providers", content=b'{"secret": "' + HTTP.encode() + b'", ]')
    await here.call("PUT", "/v1/llm/providers/nobody/secret", json={"secret": NEXT})
    await here.call("PATCH", "/v1/llm/providers/loose", json={"secret": NEXT, "endpoint": "ftp:"})
    values = {**common, "name": "typed", "allows_private": "1", "secret": FORM}
    await here.form("/models/new", **{**values, "name": "X y"})
    await here.form("/models/new", **{**values, "endpoint": "ftp://x"})
    made = await here.form("/models/new", **values)
    assert made.status_code == 303
    await here.form("/models/providers/typed", **{**values, "endpoint": "ftp://x"})
    await here.form("/models/providers/typed/secret", secret=f"{FORM} {FORM}\n")
    await here.form("/models/providers/typed/secret", secret=FORM)
    place = ("--kind", "openai", "--endpoint", common["endpoint"], "--private", "--model", "m")
    await here.shell(here.daemon, here.read, "provider", "create", "shell", *place, secret=SHELL)
    await here.shell(here.daemon, here.read, "provider", "secret", "shell", secret=SHELL)
    await here.shell(here.daemon, here.read, "provider", "secret", "shell", "-", stdin=f"{SHELL}\n")
    for role, name in (("dialogue", "loose"), ("plan", "rock"), ("extract", "shell")):
        chain = {"chain": [{"provider": name}]}
        assert (await here.call("PUT", f"/v1/llm/roles/{role}", json=chain)).status_code == 200
    budget = {"scope": "everything", "period": "day", "tokens": 10**9}
    await here.call("POST", "/v1/llm/budgets", json=budget)


async def provoked(here: House) -> None:
    """Have every provider asked by the test button and by roles, and return what it was sent."""
    for reply in echoes(HTTP):
        here.loose.then(reply)
        tried = await here.call("POST", "/v1/llm/providers/loose/test", json={})
        assert tried.status_code == 200
        here.loose.then(reply, reply, reply, reply)
        await here.asked(Role.DIALOGUE, deadline_s=0.3)
        here.loose._script.clear()
    for reply in frames(AWS_SECRET, TOKEN, KEY_ID):
        here.bedrock.then(reply)
        await here.call("POST", "/v1/llm/providers/rock/test", json={})
    here.bedrock.credential = (KEY_ID, "another", TOKEN)
    await here.call("POST", "/v1/llm/providers/rock/test", json={"text": "Say it."})
    here.bedrock.credential = (KEY_ID, AWS_SECRET, TOKEN)
    for form in WRITTEN.values():
        here.loose.text = f"Your key is {form(HTTP)}, I think."
        here.bedrock.text = f"They are {form(AWS_SECRET)} and {form(TOKEN)}, I think."
        await here.call("POST", "/v1/llm/providers/loose/test", json={})
        await here.call("POST", "/v1/llm/providers/rock/test", json={})
        for role in (Role.DIALOGUE, Role.PLAN):
            await here.asked(role)
    here.loose.text = json.dumps({"warm": f"{HTTP} and {HTTP.upper()}"})
    schema = {"type": "object", "properties": {"warm": {"type": "string"}}}
    await here.asked(Role.DIALOGUE, schema=schema)
    here.loose.text = f"The shell's is {SHELL}."
    await here.asked(Role.EXTRACT)
    await here.shell(here.daemon, here.read, "provider", "test", "shell", "--json")
    here.loose.text = f"Only {FORM} is in this."
    tested = await here.form("/models/providers/typed/test", text="Say it.", model="")
    here.read.answer(await here.pages.get(tested.headers["location"].partition("#")[0]))


async def conversed(here: House) -> None:
    """Let a mind answer by a provider that puts the key into its answer."""
    here.loose.text = f"It is {HTTP}, or {WRITTEN['in base64'](HTTP)}."
    await here.daemon.noema.minds.create(slug="ada", actor="user:t")
    here.daemon.noema.runner.look_for_minds()
    await here.daemon.noema.minds.say("ada", "What is it?", speaker="t", actor="user:t")
    mind = await here.daemon.noema.minds.get("ada")

    async def answered() -> bool:
        spoken = await here.daemon.noema.minds.transcript(mind)
        return any(said.speaker == "ada" for said in spoken)

    await eventually(answered, within_s=60)


async def looked(here: House) -> None:
    """Read all that there is to read over HTTP and on the command line."""
    calls = (await here.call("GET", "/v1/llm/calls?limit=200")).json()["items"]
    assert len(calls) > 100
    for path in [e.path for e in (*LLM, *PAGES) if e.method == "GET" and "{id}" not in e.path]:
        names = ("loose", "rock", "typed", "shell") if "providers" in path else ("plan",)
        for name in names:
            found = path.replace("{name}", name).replace("{role}", "plan")
            client = here.admin if path.startswith("/v1") else here.pages
            here.read.answer(await client.get(found))
    # The rest is the same pages with the rows that are read below.
    for call in calls[::4]:
        await here.call("GET", f"/v1/llm/calls/{call['id']}")
        here.read.answer(await here.pages.get(f"/models/calls/{call['id']}"))
    for path in ("/metrics", "/openapi.json", "/v1/audit?limit=500", "/v1/events?limit=500",
                 "/v1/system", "/v1/minds/ada/cycles", "/v1/minds/ada/conversations"):  # fmt: skip
        await here.call("GET", path)
    for path in ("/", "/minds/ada", "/events", "/system", "/audit", "/audit.csv"):
        here.read.answer(await here.pages.get(path))
    for args in (
        ("provider", "list"), ("provider", "list", "--json"), ("provider", "show", "shell"),
        ("call", "list", "--json"), ("call", "show", calls[0]["id"]), ("spend",),
        ("call", "show", calls[0]["id"], "--json"), ("budget", "list", "--json"),
        ("role", "list", "--json"), ("prompt", "list"),
    ):  # fmt: skip
        await here.shell(here.daemon, here.read, *args)


async def kept(database: TestDatabase, read: Read) -> int:
    """Read every row of every table, as text, and what the server says of its sessions."""
    owner = await asyncpg.connect(database.owner_dsn)
    try:
        tables = await owner.fetch(
            "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        for table in (*(t["name"] for t in tables), "pg_stat_activity"):
            # The name comes from the catalogue, quoted there.
            rows = await owner.fetch(f"SELECT t::text AS row FROM {table} t")
            for row in rows:
                read.add(f"table {table}", row["row"])
    finally:
        await owner.close()
    return len(tables)


def outside(read: Read, *folders: Path) -> None:
    """Read the arguments of all processes, and all files of the data directory."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            read.add(f"arguments, {path}", path.read_bytes().decode("latin-1"))
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                read.add(f"file {path.name}", path.read_bytes().decode("latin-1"))


async def test_guarantee_18_a_canary_secret_is_found_nowhere(
    database: TestDatabase,
    tmp_path: Path,
    shell: Callable[..., Any],
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    read = Read()
    async with (
        FakeOpenAI() as loose,
        FakeBedrock() as bedrock,
        daemon(database, data_dir=tmp_path) as running,
        AsyncExitStack() as stack,
    ):
        amy = await person(
            running, "amy", ("home", MemoryRole.OWNER), role=ConsoleRole.ADMINISTRATOR
        )
        here = House(
            daemon=running, loose=loose, bedrock=bedrock, admin=running.client, seat=amy,
            pages=await stack.enter_async_context(amy.browser()), shell=shell, read=read,
        )  # fmt: skip
        await configured(here)
        await provoked(here)
        await conversed(here)
        await looked(here)
        outside(read, tmp_path)
        count = await kept(database, read)
        opened = [
            await running.noema.llm.registry.secret_of(row)
            for row in await running.noema.llm.registry.providers()
        ]
        read.add("rows", repr(await running.noema.llm.registry.providers()))
        sent = [r.headers.get("authorization", "") for r in loose.requests]
    # What the test's own client logs, and who verifies signatures here, is none of the daemon's,
    # which lets no library log anything below a warning.
    others = ("httpx", "httpcore", "botocore")
    ours = [r for r in caplog.records if not r.name.startswith(others)]
    for record in ours:
        read.add("log", record.getMessage() + str(record.__dict__))
    told = capfd.readouterr()
    read.add("what the daemon wrote", told.out + told.err)

    # The secrets were there, and were sent.
    assert sorted(opened) == sorted([HTTP, CREDENTIAL, SHELL, FORM])
    assert {f"Bearer {key}" for key in (HTTP, SHELL, FORM)} <= set(sent)
    assert any(r.headers.get("x-amz-security-token") == TOKEN for r in bedrock.requests)
    # Something was read everywhere.
    assert count > 40
    assert {"table public.llm_calls", "table public.secrets", "table public.audit_log"} <= {
        where for where, _ in read.texts
    }
    assert "[secret]" in "".join(text for where, text in read.texts if "llm_calls" in where)
    assert sorted(set(read.leaks())) == []


async def test_the_search_for_canaries_finds_one(tmp_path: Path) -> None:
    for canary in CANARIES:
        for name in WRITTEN.keys() - {"in JSON, every character"}:
            read = Read()
            read.add("here", f"so it is {WRITTEN[name](canary)}.")
            # Half an id of a key is less than is looked for.
            assert read.leaks() or (canary is KEY_ID and "its" in name), (canary, name)
    read = Read()
    (tmp_path / "kept").write_text(HTTP)
    outside(read, tmp_path)
    read.add("id", str(UUID(int=1)))
    assert [where for where, _ in read.leaks()] == ["file kept"]

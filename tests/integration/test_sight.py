"""Who sees what of a mind: content needs a membership that reads its namespace, everywhere."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
import pytest

from noema.auth.model import Origin, Session
from noema.core.identity import LOCAL, ConsoleRole, MemoryRole
from noema.web.sighted import Hidden, veil_of, veiled
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.people import PASSWORD, Person, namespaces, person, script
from tests.running import Daemon, daemon

CANARY = "zanzibarcanary"
LINES = [f"disk failed on {CANARY} unit {n}" for n in range(3)] + [f"login of {CANARY} refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A mind with a history in acme/eng, and whoever looks at it."""

    daemon: Daemon
    member: Person
    member_client: httpx.AsyncClient
    stack: AsyncExitStack

    async def client(self, who: Person) -> httpx.AsyncClient:
        return await self.stack.enter_async_context(who.browser())

    async def script(self, token: str) -> httpx.AsyncClient:
        return await self.stack.enter_async_context(script(self.daemon, token))

    async def someone(
        self,
        name: str,
        *places: tuple[str, MemoryRole],
        role: ConsoleRole = ConsoleRole.OPERATOR,
    ) -> httpx.AsyncClient:
        return await self.client(await person(self.daemon, name, *places, role=role))

    async def paths(self) -> tuple[list[str], list[str]]:
        """Return addresses whose answer holds the canary, and others that might."""
        thoughts = await self.daemon.noema.events.before(type_="thought.admitted", limit=50)
        thought = next(t for t in thoughts if CANARY in t.content["text"])
        assert thought.cycle_id is not None
        number = (await self.daemon.noema.pages.cycle_numbers([thought.cycle_id]))[thought.cycle_id]
        candidate = thought.data["candidate"]
        loud = [
            "/v1/minds/ada/cycles?limit=500", f"/v1/minds/ada/cycles/{number}",
            f"/v1/minds/ada/cycles/{number}/why", "/v1/events?limit=500", "/v1/events?mind=ada",
            "/v1/events?order=desc&limit=500", f"/v1/events/{thought.id}",
            f"/v1/events/{candidate}", "/v1/minds/ada/conversations", "/v1/minds/ada/workspace",
            "/v1/minds/ada/goals", "/", "/minds/ada", "/minds/ada/cycles",
            f"/minds/ada/cycles/{number}", f"/minds/ada/thoughts/{thought.id}",
            f"/minds/ada/thoughts/{candidate}", "/minds/ada/conversation", "/events",
            "/events?mind=ada", f"/events/{thought.id}", f"/palette?q={thought.id}",
            "/v1/minds", "/v1/minds/ada", "/palette?q=ada", "/minds/ada/tuning",
        ]  # fmt: skip
        quiet = ["/system", "/v1/system", "/replays", "/v1/replays", "/palette?q=1"]
        return loud, quiet


@pytest.fixture
async def here(database: TestDatabase) -> AsyncIterator[Place]:
    async with daemon(database) as running, AsyncExitStack() as stack:
        await namespaces(running, "acme/eng/platform", "acme/sales", "rival")
        member = await person(running, "ada", ("acme/eng", MemoryRole.MEMBER))
        client = await stack.enter_async_context(member.browser())
        place = Place(daemon=running, member=member, member_client=client, stack=stack)
        body = {"slug": "ada", "namespace": "acme/eng", "name": f"Ada of {CANARY}"}
        assert (await client.post("/v1/minds", json=body)).status_code == 201
        items = [{"text": line} for line in LINES]
        sent = await client.post("/v1/minds/ada/stimuli", json={"items": items})
        assert sent.status_code == 202
        await client.post("/v1/minds/ada/goals", json={"text": CANARY, "priority": 0.7})
        await client.post("/v1/minds/ada/messages", json={"text": f"what of {CANARY}?"})
        tuned = {"settings": {"capacity": 6}, "note": f"because of {CANARY}"}
        await client.patch("/v1/minds/ada", json=tuned)

        async def has_answered() -> bool:
            mind = await running.noema.minds.get("ada")
            said = await running.noema.minds.transcript(mind)
            return any(s.in_reply_to for s in said) and await running.is_idle("ada")

        await eventually(has_answered, within_s=60)
        yield place


async def test_a_member_and_who_is_below_see_content_on_every_page_and_route(here: Place) -> None:
    below = await here.someone("kid", ("acme/eng/platform", MemoryRole.AUDITOR))
    loud, quiet = await here.paths()

    for client in (here.member_client, below):
        for path in loud:
            answer = await client.get(path)
            assert answer.status_code == 200, path
            assert CANARY in answer.text, path
        for path in quiet:
            assert (await client.get(path)).status_code == 200, path


async def test_without_a_membership_there_are_only_ids_types_times_and_numbers(
    here: Place,
) -> None:
    loud, quiet = await here.paths()
    blind = {
        "beside": await here.someone("sid", ("acme/sales", MemoryRole.OWNER)),
        "above": await here.someone("abe", ("acme", MemoryRole.OWNER)),
        "root": await here.someone(
            "root", ("home", MemoryRole.OWNER), role=ConsoleRole.ADMINISTRATOR
        ),
        "local": here.daemon.client,
    }

    for name, client in blind.items():
        for path in [*loud, *quiet]:
            answer = await client.get(path)
            assert answer.status_code == 200, (name, path, answer.text[:300])
            assert CANARY not in answer.text, (name, path)
        page = await client.get("/minds/ada")
        assert "hidden: you are not a member of acme/eng" in page.text
        cycles = (await client.get("/v1/minds/ada/cycles")).json()["items"]
        assert cycles[0]["number"] > 0
        assert all(c["winner"] is None or c["winner"]["text"] is None for c in cycles)
        events = (await client.get("/v1/events?mind=ada&type=stimulus.received")).json()["items"]
        assert events[0]["payload"]["hidden"] == "hidden: you are not a member of acme/eng"
        assert {"position", "id", "type", "occurred_at"} <= events[0].keys()
        goals = (await client.get("/v1/minds/ada/goals")).json()["items"]
        assert [(g["text"], g["priority"]) for g in goals] == [(None, 0.7)]
        dry = await client.post(
            "/v1/minds/ada/attention/dry-run",
            json={"settings": {"weights": {"novelty": "9"}, "threshold": 0}, "last": 100},
        )
        assert dry.status_code == 200
        assert CANARY not in dry.text


async def test_guarantee_16_another_tenants_mind_is_the_same_404_as_a_missing_one(
    here: Place,
) -> None:
    stranger = await here.someone("eve", ("rival", MemoryRole.OWNER))
    nobody = await here.someone("noa")
    loud, _ = await here.paths()
    event = next(p for p in loud if p.startswith("/v1/events/"))
    started = await here.member_client.post("/v1/replays", json={"mind": "ada"})

    for client in (stranger, nobody):
        for path in loud:
            if "ada" not in path and not path.startswith(("/v1/events/", "/events/")):
                answer = await client.get(path)
                assert CANARY not in answer.text, path
                assert "minds/ada" not in answer.text, path
                assert '"ada"' not in answer.text, path
                continue
            answer = await client.get(path)
            assert CANARY not in answer.text, path
            if path.startswith(("/palette", "/events?")):
                continue
            assert answer.status_code == 404, path
        missing = await client.get("/v1/minds/ado")
        there = await client.get("/v1/minds/ada")
        assert there.text.replace("ada", "ado") == missing.text
        for method, path in (
            ("PATCH", "/v1/minds/ada"), ("POST", "/v1/minds/ada/step"),
            ("POST", "/v1/minds/ada/messages"), ("POST", "/v1/minds/ada/mode"),
            ("POST", "/v1/replays"),
        ):  # fmt: skip
            body = {"text": "x"} if path.endswith("messages") else {"mode": "paused"}
            body = {} if method == "PATCH" or path.endswith("step") else body
            body = {"mind": "ada"} if path.endswith("replays") else body
            assert (await client.request(method, path, json=body)).status_code == 404, path
        assert (await client.get(f"/v1/replays/{started.json()['id']}")).status_code == 404
        assert (await client.get("/v1/replays")).json()["items"] == []
        assert (await client.get("/v1/events/stream?mind=ada")).status_code == 404
        assert (await client.get("/v1/events/stream?live=mind:ada")).status_code == 404
        unknown = await client.get("/v1/events/00000000-0000-0000-0000-000000000001")
        id_ = event.rpartition("/")[2]
        same = (await client.get(event)).text.replace(id_, "00000000-0000-0000-0000-000000000001")
        assert same == unknown.text


async def test_minds_of_another_tenant_are_not_counted(here: Place) -> None:
    await namespaces(here.daemon, "globex")
    stranger = await here.someone("sam", ("globex", MemoryRole.OWNER))

    counted = [
        (await client.get("/v1/system")).json()["database"]["minds"]
        for client in (here.member_client, stranger)
    ]

    assert counted == [1, 0]


async def test_text_is_searched_in_what_one_may_see_only(here: Place) -> None:
    beside = await here.someone("sid", ("acme/sales", MemoryRole.OWNER))
    query = f"/v1/events?order=desc&text={CANARY}"

    mine = await here.member_client.get(query)
    all_of_it = await beside.get(query)
    of_one = await beside.get(f"{query}&mind=ada")
    page = await beside.get(f"/events?mind=ada&q={CANARY}")
    veil = await beside.get("/v1/events?order=desc&text=hidden")

    assert mine.json()["items"]
    assert all_of_it.json()["items"] == []
    assert veil.json()["items"] == []
    assert of_one.status_code == 403
    assert "you are not a member of acme/eng" in of_one.json()["detail"]
    assert (page.status_code, CANARY in page.text.replace(f'value="{CANARY}"', "")) in (
        (400, False),
        (400, True),
    )
    assert "event-" not in page.text.partition("<tbody")[2].partition("</tbody>")[0]


async def test_a_name_that_is_hidden_does_not_find_its_mind(here: Place) -> None:
    beside = await here.someone("sid", ("acme/sales", MemoryRole.OWNER))

    by_name = await beside.get(f"/palette?q={CANARY}", headers={"X-Noema-Fragment": "1"})
    by_slug = await beside.get("/palette?q=ada", headers={"X-Noema-Fragment": "1"})

    assert "/minds/ada" not in by_name.text
    assert "/minds/ada" in by_slug.text


async def test_speaking_to_a_mind_needs_a_membership_that_writes_in_its_namespace(
    here: Place,
) -> None:
    below = await here.someone("kid", ("acme/eng/platform", MemoryRole.OWNER))
    auditor = await here.someone("aud", ("acme/eng", MemoryRole.AUDITOR))
    root = await here.someone("root", ("home", MemoryRole.OWNER), role=ConsoleRole.ADMINISTRATOR)
    agent = await here.someone("agi", ("acme/eng", MemoryRole.AGENT))
    calls = [
        ("/v1/minds/ada/stimuli", {"text": "x"}), ("/v1/minds/ada/messages", {"text": "x"}),
        ("/v1/minds/ada/goals", {"text": "x"}),
        ("/v1/minds/ada/mode", {"mode": "focused", "focus": "x"}),
        ("/v1/minds", {"slug": "bob", "namespace": "acme/eng"}),
    ]  # fmt: skip

    for path, body in calls:
        for client in (below, auditor, root, here.daemon.client):
            answer = await client.post(path, json=body)
            assert answer.status_code == 403, (path, answer.text)
        answer = await agent.post(path, json=body)
        assert answer.status_code in (200, 201, 202), (path, answer.text)
    renamed = await root.patch("/v1/minds/ada", json={"name": "Other"})
    paused = await root.patch("/v1/minds/ada", json={"status": "paused"})
    rows = await here.daemon.noema.access.audit.search(op="request.refused", actor="user:root")

    assert renamed.status_code == 403
    assert paused.status_code == 200
    assert any(r.target == "route:POST /v1/minds/{slug}/stimuli" for r in rows)
    assert all(r.result == "denied" for r in rows)


async def test_a_mind_lives_where_its_maker_acts_unless_told(here: Place) -> None:
    made = await here.member_client.post("/v1/minds", json={"slug": "bob"})
    page = await here.member_client.get("/")
    elsewhere = await here.member_client.post(
        "/v1/minds", json={"slug": "cyd", "namespace": "acme/sales"}
    )

    assert made.json()["namespace"] == "acme/eng"
    assert 'value="acme/eng"' in page.text
    assert elsewhere.status_code == 403


async def test_what_is_not_known_of_does_not_look_like_a_gap_in_the_log(here: Place) -> None:
    stranger = await here.someone("eve", ("rival", MemoryRole.OWNER))

    page = await stranger.get("/events")
    whole = await here.daemon.client.get("/v1/whoami")

    assert "without an event" not in page.text
    assert whole.json()["console_role"] == "administrator"


async def test_one_sees_from_the_namespace_one_acts_in(here: Place) -> None:
    both = await person(
        here.daemon, "amy", ("acme/sales", MemoryRole.MEMBER), ("acme/eng", MemoryRole.MEMBER)
    )
    client = await here.client(both)

    before = await client.get("/minds/ada")
    refused = await client.post("/v1/minds/ada/messages", json={"text": "x"})
    await here.daemon.noema.access.sessions.switch(await both.session(), "acme/eng")
    after = await client.get("/minds/ada")
    said = await client.post("/v1/minds/ada/messages", json={"text": "x"})

    assert CANARY not in before.text
    assert "hidden: you do not act in acme/eng now; switch to it" in before.text
    assert (refused.status_code, said.status_code) == (403, 202)
    assert CANARY in after.text


async def test_a_token_sees_from_its_one_namespace(here: Place) -> None:
    both = await person(
        here.daemon, "amy", ("acme/sales", MemoryRole.MEMBER), ("acme/eng", MemoryRole.MEMBER)
    )
    inside = await here.script(await both.token("acme/eng"))
    beside = await here.script(await both.token("acme/sales"))
    roleless = await here.script(await both.token("acme/eng", console_role=ConsoleRole.NONE))

    assert CANARY in (await inside.get("/v1/events?limit=500")).text
    assert CANARY not in (await beside.get("/v1/events?limit=500")).text
    assert (await inside.post("/v1/minds/ada/step")).status_code == 403
    assert (await roleless.get("/v1/minds/ada")).status_code == 403
    assert (await roleless.get("/v1/whoami")).json()["console_role"] == "none"


async def test_a_membership_that_is_over_or_suspended_shows_nothing_more(here: Place) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    brief = await person(here.daemon, "bri", ("acme/eng", MemoryRole.MEMBER), until=ends)
    client = await here.client(brief)
    token = await here.script(await brief.token("acme/eng"))
    assert CANARY in (await client.get("/minds/ada")).text
    assert CANARY in (await token.get("/v1/events?limit=500")).text

    await here.daemon.noema.access.users.revoke(LOCAL, "bri", namespace="acme/eng")
    ended = await client.get("/v1/minds/ada")
    without = await token.get("/v1/events")
    await here.daemon.noema.access.tenants.suspend(LOCAL, "acme")
    suspended = await here.member_client.get("/v1/minds/ada")
    write = await here.member_client.post("/v1/minds/ada/messages", json={"text": "x"})
    await here.daemon.noema.access.tenants.resume(LOCAL, "acme")
    resumed = await here.member_client.get("/minds/ada")

    assert (ended.status_code, without.status_code) == (404, 403)
    assert (suspended.status_code, write.status_code) == (404, 404)
    assert CANARY in resumed.text


class Reader:
    """Reads an open stream in the background."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url
        self.text = ""
        self.is_over = False

    async def run(self) -> None:
        async with self._client.stream("GET", self._url, timeout=60) as answer:
            assert answer.status_code == 200
            async for chunk in answer.aiter_text():
                self.text += chunk
        self.is_over = True

    def has(self, text: str) -> Callable[[], bool]:
        return lambda: text in self.text


@pytest.mark.parametrize(
    "url",
    [
        "/v1/events/stream",
        "/v1/events/stream?live=minds&live=mind:ada&live=conversation:ada&live=events&live=replays",
    ],
)  # fmt: skip
async def test_the_stream_shows_each_reader_what_that_one_may_see(here: Place, url: str) -> None:
    beside = await here.someone("sid", ("acme/sales", MemoryRole.OWNER))
    stranger = await here.someone("eve", ("rival", MemoryRole.OWNER))
    names = url if "live" not in url else "/v1/events/stream?live=minds&live=events"
    readers = [
        Reader(here.member_client, url), Reader(beside, url), Reader(stranger, names),
    ]  # fmt: skip
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(r.run()) for r in readers]
        await eventually(lambda: here.daemon.noema.feed.watchers == 3)
        await here.member_client.post("/v1/minds/ada/messages", json={"text": f"{CANARY} new"})
        await eventually(readers[0].has(f"{CANARY} new"))
        await eventually(readers[1].has("hidden: you are not a member of acme/eng"))
        await asyncio.sleep(1)
        for task in tasks:
            task.cancel()

    assert CANARY not in readers[1].text
    assert CANARY not in readers[2].text
    assert "acme" not in readers[2].text
    assert "message.received" not in readers[2].text


def _changes(
    here: Place, session: Session, browser: httpx.AsyncClient, token: UUID
) -> dict[str, Callable[[], Awaitable[object]]]:
    access = here.daemon.noema.access
    users = access.users
    there, role = "acme/eng", MemoryRole.AUDITOR
    origin = Origin(address="192.0.2.1")
    return {
        "membership": lambda: users.revoke(LOCAL, "amy", namespace=there),
        "memory role": lambda: users.grant(LOCAL, "amy", namespace=there, role=role),
        "console role": lambda: users.set_role(LOCAL, "amy", ConsoleRole.OBSERVER),
        "disabled": lambda: users.disable(LOCAL, "amy"),
        "suspended": lambda: access.tenants.suspend(LOCAL, "acme"),
        "password": lambda: access.account.change_password(
            session, old=PASSWORD, new=f"{PASSWORD}-2", origin=origin
        ),
        "token revoked": lambda: access.tokens.revoke(session, token),
        "logout": lambda: browser.post("/logout"),
    }


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        ("membership", {"browser", "script"}), ("memory role", {"browser", "script"}),
        ("disabled", {"browser", "script"}), ("suspended", {"browser", "script"}),
        ("console role", {"browser"}), ("password", {"browser"}), ("logout", {"browser"}),
        ("token revoked", {"script"}), ("membership runs out", {"browser", "script"}),
    ],
)  # fmt: skip
async def test_guarantee_12_what_changes_ones_rights_ends_open_streams_within_a_second(
    here: Place, change: str, ends: set[str]
) -> None:
    amy = await person(here.daemon, "amy", ("acme/eng", MemoryRole.MEMBER))
    client = await here.client(amy)
    token = await here.script(await amy.token("acme/eng"))
    access = here.daemon.noema.access
    session = await amy.session()
    (listed,) = await access.tokens.visible(session)
    soon = datetime.now(UTC) + timedelta(seconds=4)
    if change == "membership runs out":
        await access.users.grant(
            LOCAL, "amy", namespace="acme/eng", role=MemoryRole.MEMBER, valid_to=soon
        )
    readers = {
        "browser": Reader(client, "/v1/events/stream"),
        "script": Reader(token, "/v1/events/stream"),
    }

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        tasks = [group.create_task(r.run()) for r in readers.values()]
        await eventually(lambda: here.daemon.noema.feed.watchers == 2)
        if change == "membership runs out":
            await asyncio.sleep(max(0.0, (soon - datetime.now(UTC)).total_seconds()))
        else:
            await _changes(here, session, client, listed.id)[change]()
        changed = asyncio.get_running_loop().time()
        await eventually(lambda: all(readers[name].is_over for name in ends), within_s=10)
        took_s = asyncio.get_running_loop().time() - changed
        over = {name for name, reader in readers.items() if reader.is_over}
        for task in tasks:
            task.cancel()

    assert took_s < 1
    assert over == ends
    assert all("event: end" in readers[name].text for name in ends)


async def test_what_is_veiled_has_no_content_and_computes_like_what_was_redacted(
    here: Place,
) -> None:
    events = await here.daemon.noema.events.after(0, limit=500)

    for event in events:
        seen = veiled(event, "you are not a member of x")
        assert isinstance(veil_of(seen.content), Hidden)
        assert seen.is_redacted
        text = json.dumps(seen.payload, default=str)
        assert CANARY not in text
        assert (seen.id, seen.seq, seen.type) == (event.id, event.seq, event.type)

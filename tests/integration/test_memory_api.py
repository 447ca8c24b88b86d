"""The memory syscalls over HTTP: the credential says who acts, and every outcome has its row."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from noema.core.identity import ConsoleRole, MemoryRole
from noema.events.audit import AuditRow
from noema.memory.rights import SYSCALLS
from noema.web.routes import ROUTES
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.people import namespaces, person, script
from tests.running import Daemon, daemon


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """A daemon with an agent's token and an owner's, neither with a console role."""

    daemon: Daemon
    agent: httpx.AsyncClient
    owner: httpx.AsyncClient

    async def rows(self, op: str) -> list[AuditRow]:
        return list(reversed(await self.daemon.noema.access.audit.search(op=op)))


@pytest.fixture
async def here(database: TestDatabase) -> AsyncIterator[Here]:
    async with daemon(database) as running, AsyncExitStack() as stack:
        await namespaces(running, "acme/eng/db", "acme/sales")
        owner = await person(running, "olga", ("acme", MemoryRole.OWNER))
        member = await person(running, "ada", ("acme/eng", MemoryRole.MEMBER))
        clients = []
        for one, place, role in (
            (member, "acme/eng", MemoryRole.AGENT),
            (owner, "acme", MemoryRole.OWNER),
        ):
            token = await one.token(place, memory_role=role, console_role=ConsoleRole.NONE)
            clients.append(await stack.enter_async_context(script(running, token)))
        yield Here(daemon=running, agent=clients[0], owner=clients[1])


async def ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_an_agents_token_writes_finds_and_reads(here: Here) -> None:
    written = await ok(
        await here.agent.post("/v1/mem/write", json={"text": "The disk of host nine failed."})
    )
    id_ = written["items"][0]["id"]
    found = await ok(
        await here.agent.post(
            "/v1/mem/search", json={"query": "disk", "explain": True, "tokenBudget": 100}
        )
    )
    read = await ok(await here.agent.post("/v1/mem/read", json={"id": id_, "history": True}))

    assert (written["stored"], written["rejected"], written["superseded"]) == (1, [], 0)
    assert written["items"][0]["outcome"] == "stored"
    assert found.keys() == {"results", "driver", "degraded", "tokens", "trimmed"}
    (hit,) = found["results"]
    assert hit["id"] == read["id"] == id_
    assert {"id", "namespace", "kind", "text", "valid_from", "valid_to", "supersedes", "status",
            "score", "components"} <= hit.keys()  # fmt: skip
    assert hit["components"]["text"] > 0
    assert read["namespace"] == "acme/eng"
    assert read["route"] == "conversation"
    assert [m["id"] for m in read["history"]] == [id_]
    assert read["importance"] == 0.5


async def test_a_transcript_is_kept_in_order(here: Here) -> None:
    messages = [
        {"speaker": "Ann", "text": "Where is the key?", "at": "2026-01-01T10:00:00Z"},
        {"speaker": "Bob", "text": "Under the mat."},
    ]

    written = await ok(
        await here.agent.post("/v1/mem/write", json={"messages": messages, "conversation": "c"})
    )
    turns = [
        await ok(await here.agent.post("/v1/mem/read", json={"id": item["id"]}))
        for item in written["items"]
    ]

    assert [(t["speaker"], t["position"]) for t in turns] == [("Ann", 0), ("Bob", 1)]
    assert turns[0]["conversation"] == turns[1]["conversation"] == written["conversation"]


async def test_a_ticket_tells_how_an_async_write_went(here: Here) -> None:
    accepted = await here.agent.post("/v1/mem/write", json={"text": "Later.", "async": True})
    ticket = await ok(accepted, 202)

    async def done() -> Any:
        shown = await ok(await here.agent.get(f"/v1/mem/tickets/{ticket['ticket']}"))
        return shown if shown["state"] == "done" else None

    shown = await eventually(done)

    assert accepted.headers["location"] == f"/v1/mem/tickets/{ticket['ticket']}"
    assert ticket["state"] == "waiting"
    assert shown["result"]["stored"] == 1


class TestWhoActs:
    @pytest.mark.parametrize(
        "body",
        [
            {"query": "x", "namespace": "acme"},
            {"query": "x", "Namespace": "acme"},
            {"query": "x", "actor": "user:olga"},
            {"query": "x", "ROLE": "owner"},
            {"query": "x", "agent_id": "console"},
            {"query": "x", "agentId": "console"},
            {"query": "x", "who": {"namespace": "acme"}},
            {"query": "x", "who": [{"x": {"role": "owner"}}]},
        ],
    )
    async def test_a_body_that_says_who_acts_is_refused_and_on_record(
        self, here: Here, body: dict[str, Any]
    ) -> None:
        answer = await here.agent.post("/v1/mem/search", json=body)

        assert answer.status_code == 400
        assert "come from the credential" in answer.json()["detail"]
        (row,) = await here.rows("mem.search")
        assert (row.result, row.actor, row.namespace) == (
            "error", "token:ada/none of ada", "acme/eng",
        )  # fmt: skip
        assert row.agent_id == "http"

    async def test_an_escaped_name_is_the_same_name(self, here: Here) -> None:
        answer = await here.agent.post(
            "/v1/mem/search",
            content=b'{"query": "x", "\\u006eamespace": "acme"}',
            headers={"Content-Type": "application/json"},
        )
        asked = await here.agent.get("/v1/mem/pins?namespace=acme")

        for refused in (answer, asked):
            assert refused.status_code == 400
            assert "come from the credential" in refused.json()["detail"]

    async def test_a_memory_may_speak_of_roles(self, here: Here) -> None:
        content = {"subject": "Ann", "attribute": "role", "value": "owner"}

        answer = await here.agent.post(
            "/v1/mem/write",
            json={"text": "Ann's role is owner.", "kind": "fact", "content": content},
        )

        assert (await ok(answer))["stored"] == 1

    async def test_what_one_asks_for_elsewhere_is_as_if_it_were_not_there(self, here: Here) -> None:
        secret = await ok(await here.owner.post("/v1/mem/write", json={"text": "Seen by all."}))
        hidden = "00000000-0000-7000-8000-000000000000"
        seen = await here.agent.post("/v1/mem/read", json={"id": secret["items"][0]["id"]})
        own = await ok(await here.agent.post("/v1/mem/write", json={"text": "Not above."}))

        answers = [
            await here.owner.post("/v1/mem/read", json={"id": id_})
            for id_ in (own["items"][0]["id"], hidden)
        ]

        assert seen.status_code == 200
        assert [a.status_code for a in answers] == [404, 404]
        shapes = {a.text.replace(own["items"][0]["id"], "X").replace(hidden, "X") for a in answers}
        assert len(shapes) == 1
        assert [r.result for r in await here.rows("mem.read")] == ["ok", "denied", "miss"]


class TestTransport:
    @pytest.mark.parametrize(
        ("content", "kind", "status"),
        [
            (b"{", "application/json", 400),
            (b"[]", "application/json", 400),
            (b"", "application/json", 400),
            (b'{"query": 7}', "application/json", 400),
            (b'{"query": "x", "colour": "red"}', "application/json", 400),
            (b'{"query": "x", "kinds": ["fable"]}', "application/json", 400),
            (b'{"query": "x"}', "text/plain", 415),
            (b'{"query": "\xff"}', "application/json", 400),
            (b'{"query": "' + b"x" * 1_100_000 + b'"}', "application/json", 413),
        ],
    )
    async def test_what_is_turned_away_before_the_kernel_is_on_record(
        self, here: Here, content: bytes, kind: str, status: int
    ) -> None:
        answer = await here.agent.post(
            "/v1/mem/search", content=content, headers={"Content-Type": kind}
        )

        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        (row,) = await here.rows("mem.search")
        assert (row.result, row.namespace) == ("error", "acme/eng")

    async def test_a_form_without_its_token_is_on_record_as_denied(self, here: Here) -> None:
        ann = await person(here.daemon, "ann", ("acme/eng", MemoryRole.MEMBER))
        async with ann.browser() as browser:
            browser.headers.pop("X-CSRF-Token")
            refused = await browser.post("/v1/mem/write", json={"text": "x"})
            browser.headers["X-CSRF-Token"] = ann.csrf
            written = await browser.post("/v1/mem/write", json={"text": "By hand."})
            read = await browser.post(
                "/v1/mem/read", json={"id": (await ok(written))["items"][0]["id"]}
            )

        assert refused.status_code == 403
        assert sorted(r.result for r in await here.rows("mem.write")) == ["denied", "ok"]
        assert (await ok(read))["route"] == "manual"
        assert {r.agent_id for r in await here.rows("mem.write")} == {"console"}

    async def test_who_is_not_let_in_is_on_record_but_no_flood_of_them(self, here: Here) -> None:
        async with httpx.AsyncClient(base_url=here.daemon.url) as stranger:
            for _ in range(5):
                answer = await stranger.post("/v1/mem/search", json={"query": "x"})
                assert answer.status_code == 401

        (row,) = await here.rows("mem.search")
        assert (row.actor, row.result, row.namespace) == ("anonymous", "denied", "")

    async def test_an_idempotency_key_that_cannot_be_one_is_on_record(self, here: Here) -> None:
        bad = {"Idempotency-Key": "k" * 201}
        long = await here.agent.post("/v1/mem/write", json={"text": "x"}, headers=bad)
        good = {"Idempotency-Key": "k"}
        first = await here.agent.post("/v1/mem/write", json={"text": "x"}, headers=good)
        again = await here.agent.post("/v1/mem/write", json={"text": "x"}, headers=good)
        other = await here.agent.post("/v1/mem/write", json={"text": "y"}, headers=good)

        assert [a.status_code for a in (long, first, again, other)] == [400, 200, 200, 422]
        assert first.json()["items"][0]["id"] == again.json()["items"][0]["id"]
        assert [r.result for r in await here.rows("mem.write")] == ["error", "ok", "ok", "error"]

    async def test_who_asks_too_often_is_told_when_to_come_again(self, here: Here) -> None:
        await ok(await here.owner.put("/v1/mem/policies/acme/eng", json={"reads_per_minute": 1}))

        async def limited() -> httpx.Response | None:
            answer = await here.agent.post("/v1/mem/stats", json={})
            return answer if answer.status_code == 429 else None

        answer = await eventually(limited)

        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert answer.json()["code"] == "rate_limited"
        assert (await here.rows("mem.stats"))[-1].result == "denied"

    def test_every_memory_route_names_its_syscall_and_needs_no_console_role(self) -> None:
        routes = [e for e in ROUTES if e.path.startswith("/v1/mem/")]

        assert len(routes) > 20
        for endpoint in routes:
            assert endpoint.op in SYSCALLS, endpoint.path
            assert endpoint.role is ConsoleRole.NONE
            assert endpoint.is_keyed == (endpoint.path in ("/v1/mem/write", "/v1/mem/share"))


async def test_policies_are_set_shown_and_acknowledged(here: Here) -> None:
    document = {"directives": [{"id": "calm", "text": "Stay calm."}]}

    held = await ok(await here.owner.put("/v1/mem/policies/acme", json=document))
    shown = await ok(await here.owner.get("/v1/mem/policies/acme"))
    denied = await here.agent.put("/v1/mem/policies/acme/eng", json=document)
    mine = await ok(await here.agent.post("/v1/mem/policy"))
    acked = await ok(await here.agent.post("/v1/mem/policy-ack", json={"digest": held["digest"]}))

    assert (shown["version"], shown["policy"]["directives"]) == (1, document["directives"])
    assert denied.status_code == 403
    assert (mine["namespace"], mine["acknowledged"]) == ("acme/eng", False)
    assert acked["acknowledged"]


async def test_memories_are_pinned_shared_explained_and_listed(here: Here) -> None:
    written = await ok(await here.agent.post("/v1/mem/write", json={"text": "Pinned."}))
    id_ = written["items"][0]["id"]

    pin = await ok(await here.agent.post("/v1/mem/pin", json={"id": id_}))
    pins = await ok(await here.agent.get("/v1/mem/pins"))
    await ok(await here.agent.post("/v1/mem/unpin", json={"memory": id_}))
    key = {"Idempotency-Key": "share-1"}
    share = {"memory": id_, "to_namespace": "acme/sales"}
    grant = await ok(await here.agent.post("/v1/mem/share", json=share, headers=key), 201)
    again = await ok(await here.agent.post("/v1/mem/share", json=share, headers=key), 201)
    grants = await ok(await here.owner.get("/v1/mem/grants"))
    told = await ok(
        await here.owner.post(
            "/v1/mem/explain",
            json={"id": id_, "view_namespace": "acme/sales", "view_actor": "user:eve"},
        )
    )
    ended = await ok(await here.agent.delete(f"/v1/mem/grants/{grant['id']}"))
    listed = await ok(await here.agent.get("/v1/mem/memories?kinds=fact,episode&limit=5"))
    stats = await ok(await here.agent.post("/v1/mem/stats"))

    assert pins["items"] == [pin]
    assert grant == again
    assert [g["id"] for g in grants["items"]] == [grant["id"]]
    assert told["is_visible"]
    assert any(grant["id"] in reason for reason in told["reasons"])
    assert ended["revoked_by"] == "token:ada/none of ada"
    assert [m["id"] for m in listed["items"]] == [id_]
    assert (stats["total"], stats["by_tier"]) == (1, {"L2": 1})


async def test_a_memory_is_withdrawn_and_brought_back(here: Here) -> None:
    written = await ok(await here.agent.post("/v1/mem/write", json={"text": "Wrong."}))
    id_ = written["items"][0]["id"]

    retraction = await ok(
        await here.owner.post("/v1/mem/retract", json={"id": id_, "reason": "It was wrong."})
    )
    gone = await ok(await here.agent.post("/v1/mem/search", json={"query": "wrong"}))
    all_ = await ok(
        await here.agent.post("/v1/mem/search", json={"query": "wrong", "validOnly": False})
    )
    await ok(await here.owner.post("/v1/mem/restore", json={"retraction": retraction["id"]}))
    back = await ok(await here.agent.post("/v1/mem/search", json={"query": "wrong"}))
    conflicts = await ok(await here.owner.get("/v1/mem/conflicts?open=1"))

    assert gone["results"] == []
    assert [h["status"] for h in all_["results"]] == ["retracted"]
    assert [h["id"] for h in back["results"]] == [id_]
    assert conflicts["items"] == []


async def test_metrics_tell_of_syscalls_and_name_nobody(here: Here) -> None:
    await here.agent.post("/v1/mem/stats", json={})

    text = (await here.agent.get("/metrics")).text

    assert 'noema_syscall_seconds_count{op="mem.stats",outcome="ok"} 1.0' in text
    assert "acme" not in text


async def test_a_clean_stop_loses_no_row(database: TestDatabase) -> None:
    async with daemon(database) as running:
        for _ in range(7):
            await ok(await running.client.post("/v1/mem/stats", json={}))
    async with daemon(database) as running:
        rows = await running.noema.access.audit.search(op="mem.stats")

    assert len(rows) == 7


async def test_a_new_mind_has_a_place_to_remember_in_that_people_read(
    here: Here, database: TestDatabase
) -> None:
    noema = here.daemon.noema
    await noema.minds.create(slug="bea", namespace="acme/eng", actor="user:ada")

    grants = await ok(await here.owner.get("/v1/mem/grants"))
    tenants = {t.name: t.namespaces for t in await noema.access.tenants.all()}

    assert {"acme/eng/minds", "acme/eng/minds/bea"} <= set(tenants["acme"])
    assert [(g["subtree"], g["to_namespace"], g["granted_by"]) for g in grants["items"]] == [
        ("acme/eng/minds/bea", "acme/eng", "user:ada")
    ]
    assert json.dumps(grants)

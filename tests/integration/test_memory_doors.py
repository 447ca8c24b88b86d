"""What tries to get past the doors of memory: odd times and names, echoes, other tenants."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import httpx
import pytest

from noema.core.clock import ManualClock
from noema.core.errors import InvalidInput, NotFound
from noema.core.identity import ConsoleRole, MemoryRole
from noema.events.audit import AuditRow
from noema.memory.model import Explain, Search, Share
from noema.web.mem_routes import MEM
from tests.conftest import TestDatabase
from tests.memories import Memories, memories
from tests.people import namespaces, person, script
from tests.running import Daemon, daemon

JSON = {"Content-Type": "application/json"}
CANARY = "canary-5d1f"
OWNER, ADMIN = MemoryRole.OWNER, MemoryRole.ADMIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """A daemon with an agent's token of acme/eng, and an owner's of acme."""

    daemon: Daemon
    agent: httpx.AsyncClient
    owner: httpx.AsyncClient

    async def rows(self, op: str) -> list[AuditRow]:
        return list(reversed(await self.daemon.noema.access.audit.search(op=op)))

    async def wrote(self, text: str = "The disk of host nine failed.") -> str:
        answer = await self.agent.post("/v1/mem/write", json={"text": text})
        return str(answer.json()["items"][0]["id"])


@pytest.fixture
async def here(database: TestDatabase) -> AsyncIterator[Here]:
    async with daemon(database) as running, AsyncExitStack() as stack:
        await namespaces(running, "acme/eng", "acme/sales")
        owner = await person(running, "olga", ("acme", OWNER))
        member = await person(running, "ada", ("acme/eng", MemoryRole.MEMBER))
        clients = []
        for one, place, role in (
            (member, "acme/eng", MemoryRole.AGENT),
            (owner, "acme", OWNER),
        ):
            token = await one.token(place, memory_role=role, console_role=ConsoleRole.NONE)
            clients.append(await stack.enter_async_context(script(running, token)))
        yield Here(daemon=running, agent=clients[0], owner=clients[1])


@pytest.fixture
async def mem(database: TestDatabase, clock: ManualClock) -> AsyncIterator[Memories]:
    async with memories(database, clock) as found:
        yield found


class TestEdges:
    async def test_a_time_that_utc_cannot_hold_is_refused_and_no_fault_of_ours(
        self, here: Here
    ) -> None:
        id_ = await here.wrote()

        for text in ("0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"):
            for path, body in (
                ("search", {"query": "disk", "asOf": text}),
                ("explain", {"id": id_, "as_of": text}),
                ("share", {"memory": id_, "to_actor": "user:bob", "expires_at": text}),
            ):
                answer = await here.agent.post(f"/v1/mem/{path}", json=body)
                assert answer.status_code == 400, answer.text
                assert "out of reach" in answer.json()["detail"]

    async def test_a_namespace_that_cannot_be_one_has_no_policy(self, here: Here) -> None:
        for name in ("%00", "", "eng/", "%ED%A0%80", "ENG", "_", "%25"):
            shown = await here.owner.get(f"/v1/mem/policies/acme/{name}")
            put = await here.owner.put(f"/v1/mem/policies/acme/{name}", json={})
            assert [shown.status_code, put.status_code] == [400, 400], name

        assert {r.result for r in await here.rows("mem.policy-show")} == {"error"}

    async def test_other_eyes_have_a_name(self, here: Here) -> None:
        id_ = await here.wrote()

        for actor in ("x\x00", "", "a\nb", "u" * 201):
            search = {"query": "disk", "viewNamespace": "acme/eng", "viewActor": actor}
            explain = {"id": id_, "view_namespace": "acme/eng", "view_actor": actor}
            for path, body in (("search", search), ("explain", explain)):
                answer = await here.owner.post(f"/v1/mem/{path}", json=body)
                assert answer.status_code == 400, answer.text

    async def test_what_is_no_json_is_told_so(self, here: Here) -> None:
        for body in (
            b'{"text": "x", "importance": NaN}',
            b'{"text": "x", "importance": -Infinity}',
            b'{"text": "x", "content": {"subject": NaN}}',
            b'{"text": "x", "content": {"subject": 1e999}}',
            b'{"text": "x", "content": {"subject": "\\ud800", "value": 1e999}}',
            b'{"text": "x", "content": {"subject": "\\ud800", "value": NaN}}',
            '{"text": "x", "namespace": "acme"}'.encode("utf-16"),
            '{"text": "x"}'.encode("utf-32"),
        ):
            answer = await here.agent.post("/v1/mem/write", content=body, headers=JSON)
            assert answer.status_code == 400, (body, answer.text)

        assert {r.result for r in await here.rows("mem.write")} == {"error"}

    async def test_a_cursor_that_is_none_says_which(self, here: Here) -> None:
        answer = await here.agent.get("/v1/mem/memories", params={"before": "x"})

        assert answer.status_code == 400
        assert answer.json()["field"] == "before"
        assert answer.json()["detail"] == "before is an id, not 'x'."


class TestWhoActs:
    async def test_nothing_that_says_who_acts_is_heeded_or_passed_over(self, here: Here) -> None:
        asked = [e for e in MEM if e.method != "GET" and e.takes is None]
        assert len(asked) >= 6
        for endpoint in asked:
            at = endpoint.path.replace("{id}", str(UUID(int=1)))
            for name in ("namespace", "Actor", "ROLE", "agent-id"):
                for in_body, in_query in (({name: "x"}, None), (None, {name: "x"})):
                    answer = await here.owner.request(
                        endpoint.method, at, json=in_body, params=in_query
                    )
                    assert answer.status_code == 400, (at, name, answer.text)
                    assert "come from the credential" in answer.json()["detail"]

    async def test_no_question_is_asked_as_somebody_else(self, here: Here) -> None:
        for endpoint in (e for e in MEM if e.method == "GET"):
            at = endpoint.path.replace("{id}", str(UUID(int=1)))
            at = at.replace("{namespace:path}", "acme")
            answer = await here.owner.get(at, params={"namespace": "acme"})
            assert answer.status_code == 400, (at, answer.text)

    async def test_the_row_says_by_which_transport_and_that_grants_nothing(
        self, here: Here
    ) -> None:
        for agent, told in (
            ("noemactl", "cli"),
            ("noemactl/0.4.0", "cli"),
            ("noemactl-like", "http"),
            ("console", "http"),
            ("mind", "http"),
            ("", "http"),
        ):
            headers = {"User-Agent": agent}
            text = f"It is {agent or 'nobody'}."
            written = await here.owner.post("/v1/mem/write", json={"text": text}, headers=headers)
            id_ = written.json()["items"][0]["id"]
            read = await here.owner.post("/v1/mem/read", json={"id": id_}, headers=headers)
            refused = await here.agent.put("/v1/mem/policies/acme/eng", json={}, headers=headers)

            assert (await here.rows("mem.write"))[-1].agent_id == told
            assert (await here.rows("mem.policy-set"))[-1].agent_id == told
            assert (read.json()["route"], read.json()["trust"]) == ("document", 40)
            assert refused.status_code == 403


class TestEchoes:
    async def test_nothing_of_a_sensitive_question_is_on_record_however_it_ends(
        self, here: Here
    ) -> None:
        bodies = (
            b'{"query": "x", "sensitive": true, "kinds": ["CANARY"]}',
            b'{"query": "x", "sensitive": true, "CANARY": 1}',
            b'{"query": "x", "sensitive": true, "kinds": "CANARY"}',
            b'{"query": "x", "sensitive": true, "asOf": "CANARY"}',
            b'{"query": "x", "sensitive": true, "k": "CANARY"}',
            b'{"query": "CANARY", "sensitive": true, "k": 0}',
            b'{"query": "CANARY", "sensitive": true, "viewNamespace": "acme", "viewActor": "u"}',
            b'{"query": "CANARY", "sensitive": true, "viewNamespace": "acme"}',
            b'{"query": "CANARY", "sensitive": true}',
            b'{"query": "CANARY", "sensitive": true',
        )
        for body in bodies:
            sent = body.replace(b"CANARY", CANARY.encode())
            await here.agent.post("/v1/mem/search", content=sent, headers=JSON)

        rows = await here.rows("mem.search")
        assert len(rows) == len(bodies)
        assert all(row.detail for row in rows)
        assert CANARY not in f"{rows}"

    async def test_nothing_of_a_sensitive_write_is_on_record_however_it_ends(
        self, here: Here
    ) -> None:
        fields: tuple[dict[str, Any], ...] = (
            {"kind": CANARY},
            {CANARY: 1},
            {"content": {CANARY: 1}},
            {"content": {"subject": "s", "attribute": "a", "value": CANARY}},
            {"event_time": CANARY},
            {"supersedes": str(UUID(int=1))},
            {"messages": [{"speaker": CANARY, "text": CANARY}]},
        )
        for more in fields:
            body = {"text": f"The word is {CANARY}.", "sensitive": True, **more}
            await here.agent.post("/v1/mem/write", json=body)

        rows = await here.rows("mem.write")
        assert len(rows) == len(fields)
        assert CANARY not in f"{rows}"


class TestOtherPlaces:
    async def test_what_one_shared_in_another_tenant_is_not_listed_here(
        self, mem: Memories
    ) -> None:
        id_ = await mem.put("globex/lab")
        await mem.places("globex/sales", "acme/eng")
        there = mem.who("globex/lab", "ada")
        grant = await mem.kernel.mem_share(there, Share(memory=id_, to_namespace="globex/sales"))

        assert [g.id for g in await mem.kernel.shares(there)] == [grant.id]
        assert await mem.kernel.shares(mem.who("acme/eng", "ada")) == ()
        assert await mem.kernel.shares(mem.who("acme/eng", "ada", OWNER), ended=True) == ()

    async def test_a_retraction_from_a_place_one_does_not_see_names_nothing_of_it(
        self, mem: Memories
    ) -> None:
        secret, derived = await mem.put("acme/secret", "Secret."), await mem.put("acme/eng", "So.")
        async with mem.db.transaction() as tx:
            await tx.conn.execute(
                "INSERT INTO derivations (from_id, to_id, kind) VALUES ($1, $2, 'memory.derived')",
                secret, derived,
            )  # fmt: skip
        boss = mem.who("acme/secret", "boss", ADMIN)
        await mem.kernel.mem_retract(boss, secret, "because of the merger")

        seen = await mem.kernel.retraction_of(mem.who("acme/eng"), derived)
        whole = await mem.kernel.retraction_of(boss, secret)

        assert seen is not None
        assert whole is not None
        assert (seen.namespace, seen.actor, seen.reason) == ("", "", "")
        assert (whole.namespace, whole.actor) == ("acme/secret", "user:boss")

    async def test_a_hidden_policy_is_told_as_missing_and_audited_as_denied(
        self, mem: Memories
    ) -> None:
        await mem.places("acme/eng", "acme/sales")
        who = mem.who("acme/eng")
        told = []
        for namespace in ("acme/sales", "acme/nowhere"):
            with pytest.raises(NotFound) as raised:
                await mem.kernel.policy_of(who, namespace)
            told.append(str(raised.value).replace(namespace, "X"))

        assert len(set(told)) == 1
        assert [r.result for r in await mem.audited("mem.policy-show")] == ["denied", "miss"]

    async def test_a_look_alike_is_no_part_of_a_shared_subtree(self, mem: Memories) -> None:
        rows = {
            place: await mem.put(place)
            for place in ("acme/a_b", "acme/a_b/c", "acme/axb", "acme/a_bc", "acme/a-b/c", "acme")
        }
        await mem.places("globex")
        await mem.kernel.mem_share(
            mem.who("acme", "o", OWNER), Share(subtree="acme/a_b", to_namespace="globex")
        )
        eve = mem.who("globex", "eve")

        found = await mem.kernel.mem_search(eve, Search(query="disk", k=50))
        told = await mem.kernel.browse(eve)

        expected = {rows["acme/a_b"], rows["acme/a_b/c"]}
        assert {m.id for m in told.memories} == expected
        assert {h.memory.id for h in found.hits} <= expected


async def test_a_time_with_another_offset_is_the_same_moment(
    mem: Memories, clock: ManualClock
) -> None:
    id_ = await mem.put("acme/eng")
    ends = clock.now().astimezone(timezone(timedelta(hours=5))) + timedelta(minutes=5)

    grant = await mem.kernel.mem_share(
        mem.who("acme/eng"), Share(memory=id_, to_actor="user:bob", expires_at=ends)
    )
    with pytest.raises(InvalidInput):
        await mem.kernel.mem_explain(
            mem.who("acme/eng"),
            Explain(id=id_, as_of=datetime(2026, 1, 1)),  # noqa: DTZ001
        )

    assert grant.valid_to == ends.astimezone(UTC)

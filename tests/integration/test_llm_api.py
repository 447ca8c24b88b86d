"""Models over HTTP: who may look, who may change, and that a secret goes in and never comes out."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from noema.core.clock import EPOCH
from noema.core.errors import InvalidInput, NoemaError
from noema.core.identity import ConsoleRole, MemoryRole
from noema.db.keys import Keys
from noema.db.tx import Database
from noema.llm.defaults import DEFAULTS
from noema.llm.model import CallContext, ChatMessage, CognitiveRequest, Role
from noema.web.llm_reply import place_of
from noema.web.llm_routes import LLM
from tests.conftest import TestDatabase
from tests.llm_fake import FakeOpenAI, refusal
from tests.people import namespaces, person
from tests.running import Daemon, daemon

SECRET = "canary-secret-7c41-do-not-show"
CANARY = "zanzibarcanary"


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A daemon, a model service that speaks OpenAI's format, an administrator, an operator."""

    daemon: Daemon
    fake: FakeOpenAI
    admin: httpx.AsyncClient
    operator: httpx.AsyncClient
    stack: AsyncExitStack

    async def provider(self, name: str = "fake", **more: Any) -> dict[str, Any]:
        body = {
            "name": name,
            "kind": "openai",
            "endpoint": f"{self.fake.url}/v1",
            "model": "gpt-fake",
            "allows_private": True,
            "prices": {"input": 1_000_000, "output": 2_000_000},
            "secret": SECRET,
            **more,
        }
        made: dict[str, Any] = ok(await self.admin.post("/v1/llm/providers", json=body), 201)
        return made

    async def someone(
        self, name: str, namespace: str, role: ConsoleRole = ConsoleRole.OPERATOR
    ) -> httpx.AsyncClient:
        one = await person(self.daemon, name, (namespace, MemoryRole.MEMBER), role=role)
        return await self.stack.enter_async_context(one.browser())

    async def asked(self, text: str, *, namespace: str, role: Role = Role.DIALOGUE) -> UUID:
        """Have the service ask, and return the call."""
        answer = await self.daemon.noema.llm.service.complete(
            CognitiveRequest(
                role=role,
                messages=(ChatMessage(role="user", text=text),),
                context=CallContext(namespace=namespace, actor="mind:ada", process="speak"),
            )
        )
        return answer.call


def ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def items(answer: httpx.Response) -> list[Any]:
    found: list[Any] = ok(answer)["items"]
    return found


@pytest.fixture
async def house(database: TestDatabase, tmp_path: Path) -> AsyncIterator[House]:
    async with (
        FakeOpenAI() as fake,
        daemon(database, data_dir=tmp_path) as running,
        AsyncExitStack() as stack,
    ):
        operator = await person(running, "op", ("home", MemoryRole.MEMBER))
        yield House(
            daemon=running,
            fake=fake,
            admin=running.client,
            operator=await stack.enter_async_context(operator.browser()),
            stack=stack,
        )


class TestProviders:
    async def test_guarantee_18_a_secret_is_in_no_answer(self, house: House) -> None:
        made = await house.provider()
        ok(await house.admin.put("/v1/llm/providers/fake/secret", json={"secret": f"{SECRET}2"}))
        ok(await house.admin.patch("/v1/llm/providers/fake", json={"secret": f"{SECRET}3"}))
        ok(await house.admin.post("/v1/llm/providers/fake/test", json={}))
        ok(await house.admin.put("/v1/llm/roles/plan", json={"chain": [{"provider": "fake"}]}))

        assert (made["has_secret"], made["secret_hint"]) == (True, SECRET[-4:])
        assert "secret_id" not in made
        pages = [e.path for e in LLM if e.method == "GET"]
        for path in (*pages, "/v1/audit", "/v1/events?limit=500"):
            for name in ("fake", "plan"):
                text = (await house.admin.get(path.replace("{name}", name))).text
                assert SECRET not in text, path

    async def test_a_body_that_is_wrong_is_refused_without_its_secret(self, house: House) -> None:
        for body in (
            {"name": "x", "kind": "openai", "secret": SECRET, "endpoint": "ftp://x"},
            {"name": "X y", "kind": "openai", "secret": SECRET},
            {"name": "x", "kind": "nope", "secret": SECRET},
            {"name": "x", "kind": "openai", "secret": [SECRET]},
            {"name": "x", "kind": "openai", "secret": f"{SECRET}\nmore"},
            {"name": "x", "kind": "openai", SECRET: 1},
        ):
            answer = await house.admin.post("/v1/llm/providers", json=body)
            assert answer.status_code == 400, body
            assert SECRET not in answer.text or SECRET in body

    async def test_a_provider_is_made_changed_and_deleted(self, house: House) -> None:
        await house.provider(parameters={"temperature": 0.5, "stop": ["END"]})
        again = await house.admin.post("/v1/llm/providers", json={"name": "fake", "kind": "echo"})
        changed = ok(
            await house.admin.patch(
                "/v1/llm/providers/fake", json={"is_enabled": False, "parameters": {"seed": 7}}
            )
        )
        moved = await house.admin.patch(
            "/v1/llm/providers/fake", json={"endpoint": "https://evil.test"}
        )
        bare = ok(await house.admin.delete("/v1/llm/providers/fake/secret"))
        listed = items(await house.operator.get("/v1/llm/providers"))
        ok(await house.admin.delete("/v1/llm/providers/fake"))
        gone = await house.operator.get("/v1/llm/providers/fake")

        assert again.status_code == 409
        assert (changed["is_enabled"], changed["parameters"]) == (False, {"seed": 7})
        assert (moved.status_code, moved.json()["field"]) == (400, "secret")
        assert bare["has_secret"] is False
        assert [row["name"] for row in listed] == ["fake"]
        assert gone.status_code == 404

    async def test_an_address_that_may_not_be_asked_is_refused_as_such(self, house: House) -> None:
        answer = await house.admin.post(
            "/v1/llm/providers",
            json={"name": "x", "kind": "openai", "endpoint": "https://169.254.169.254/"},
        )

        assert answer.status_code == 400
        assert answer.json()["code"] == "address_refused"

    async def test_an_operator_looks_and_changes_nothing(self, house: House) -> None:
        await house.provider()
        for endpoint in LLM:
            path = endpoint.path.replace("{name}", "fake").replace("{role}", "plan")
            path = path.replace("{id}", str(UUID(int=1)))
            if endpoint.role is not ConsoleRole.ADMINISTRATOR:
                continue
            answer = await house.operator.request(endpoint.method, path, json={})
            assert answer.status_code == 403, (endpoint.method, path)

        assert (await house.operator.get("/v1/llm/providers/fake")).status_code == 200


class TestTest:
    async def test_it_shows_what_was_sent_and_what_came_back_and_is_on_record(
        self, house: House
    ) -> None:
        await house.provider(parameters={"temperature": 0.5})
        house.fake.text = "I am a fake."

        tried = ok(await house.admin.post("/v1/llm/providers/fake/test", json={"text": "Who?"}))

        (sent,) = tried["sent"]
        (came,) = house.fake.requests
        assert came.headers["authorization"] == f"Bearer {SECRET}"
        assert sent["body"] == came.json
        assert sent["body"]["temperature"] == 0.5
        assert sent["status"] == 200
        assert "authorization" in sent["headers"]
        assert (tried["answer"]["text"], tried["error"]) == ("I am a fake.", "")
        assert tried["messages"] == [{"role": "user", "text": "Who?"}]
        call = ok(await house.admin.get(f"/v1/llm/calls/{tried['call']}"))
        assert (call["process"], call["provider"], call["state"]) == (
            "provider test", "fake", "answered",
        )  # fmt: skip
        assert call["content"]["answer"] == "I am a fake."
        assert "llm.provider-test" in (await house.admin.get("/v1/audit")).text

    async def test_a_failure_is_asked_once_shown_and_on_record(self, house: House) -> None:
        await house.provider()
        house.fake.then(refusal(503, {"error": {"message": f"no room, said {SECRET}"}}))

        tried = ok(await house.admin.post("/v1/llm/providers/fake/test", json={}))

        call = ok(await house.admin.get(f"/v1/llm/calls/{tried['call']}"))
        assert len(house.fake.requests) == 1
        assert tried["answer"] is None
        assert "503" in tried["error"]
        assert [s["status"] for s in tried["sent"]] == [503]
        assert (call["state"], len(call["attempts"])) == ("failed", 1)
        assert SECRET not in json.dumps([tried, call])

    async def test_a_disabled_provider_can_be_tested_and_the_echo_too(self, house: House) -> None:
        await house.provider()
        ok(await house.admin.patch("/v1/llm/providers/fake", json={"is_enabled": False}))
        ok(await house.admin.post("/v1/llm/providers", json={"name": "e", "kind": "echo"}), 201)

        fake = ok(await house.admin.post("/v1/llm/providers/fake/test", json={}))
        echo = ok(await house.admin.post("/v1/llm/providers/e/test", json={}))
        nobody = await house.admin.post("/v1/llm/providers/nobody/test", json={})

        assert fake["error"] == ""
        assert (echo["error"], echo["sent"]) == ("", [])
        assert nobody.status_code == 404


class TestRoles:
    async def test_every_role_is_listed_and_set_with_fallbacks(self, house: House) -> None:
        await house.provider()
        await house.provider("second", model="other")
        chain = [{"provider": "fake", "model": "big"}, {"provider": "second"}]

        before = items(await house.operator.get("/v1/llm/roles"))
        made = ok(
            await house.admin.put(
                "/v1/llm/roles/plan", json={"chain": chain, "deadline_ms": 5000, "base": 0}
            )
        )
        stale = await house.admin.put("/v1/llm/roles/plan", json={"chain": [], "base": 0})
        off = ok(await house.admin.put("/v1/llm/roles/plan", json={"chain": []}))
        used = await house.admin.put("/v1/llm/roles/plan", json={"chain": chain})
        deleted = await house.admin.delete("/v1/llm/providers/fake")

        assert [r["role"] for r in before] == [r.value for r in Role]
        assert {r["version"] for r in before} == {0}
        assert [(link["provider"], link["model"]) for link in made["chain"]] == [
            ("fake", "big"), ("second", ""),
        ]  # fmt: skip
        assert stale.status_code == 409
        assert (off["chain"], off["version"]) == ([], 2)
        assert used.status_code == 200
        assert deleted.status_code == 409
        assert len(items(await house.operator.get("/v1/llm/roles/plan/versions"))) == 3
        assert (await house.operator.get("/v1/llm/roles/judge")).status_code == 404
        assert (await house.operator.get("/v1/llm/roles/nope")).status_code == 400


class TestPrompts:
    async def test_a_version_is_saved_previewed_compared_and_rolled_back(
        self, house: House
    ) -> None:
        listed = items(await house.operator.get("/v1/llm/prompts"))
        body = {"template": "{{ goal }}\nSo?", "system": "Plan.", "note": "short", "base": 1}

        shown = ok(await house.operator.post("/v1/llm/prompts/plan/preview", json=body_of(body)))
        saved = ok(await house.admin.post("/v1/llm/prompts/plan/versions", json=body), 201)
        stale = await house.admin.post("/v1/llm/prompts/plan/versions", json=body)
        used = ok(await house.admin.post("/v1/llm/prompts/plan/use", json={"version": 2}))
        now = ok(await house.operator.get("/v1/llm/prompts/plan"))
        ok(await house.admin.post("/v1/llm/prompts/plan/use", json={"version": 1}))
        diff = ok(await house.operator.get("/v1/llm/prompts/plan/diff?from=1&to=2"))
        uses = items(await house.operator.get("/v1/llm/prompts/plan/uses"))

        assert {row["name"] for row in listed} == set(DEFAULTS)
        assert f"data-{shown['mark']}" in shown["messages"][1]["text"]
        assert (saved["version"], used["version"], now["version"]) == (2, 2, 2)
        assert stale.status_code == 409
        assert "+So?" in diff["diff"]
        assert [u["version"] for u in uses] == [1, 2, 1]
        assert len(items(await house.operator.get("/v1/llm/prompts/plan/versions"))) == 2
        assert ok(await house.operator.get("/v1/llm/prompts/plan?version=2"))["note"] == "short"

    async def test_a_wrong_template_is_told_its_line(self, house: House) -> None:
        wrong = {"template": "a\n{{ message|upper }}"}

        for path in ("preview", "versions"):
            answer = await house.admin.post(f"/v1/llm/prompts/dialogue/{path}", json=wrong)
            assert (answer.status_code, answer.json()["field"]) == (400, "template")
            assert "line 2" in answer.json()["detail"]
        unknown = await house.operator.get("/v1/llm/prompts/nope")
        assert unknown.status_code == 404
        assert (await house.operator.get("/v1/llm/prompts/plan/diff?from=1")).status_code == 400


def body_of(body: dict[str, Any]) -> dict[str, Any]:
    return {key: body[key] for key in ("template", "system")}


class TestCalls:
    @pytest.fixture(autouse=True)
    async def _model(self, house: House) -> None:
        await namespaces(house.daemon, "acme/eng", "rival")
        await house.provider()
        for role in ("dialogue", "plan"):
            ok(
                await house.admin.put(
                    f"/v1/llm/roles/{role}", json={"chain": [{"provider": "fake"}]}
                )
            )

    async def test_content_is_for_who_sees_the_namespace_and_the_call_for_its_tenant(
        self, house: House
    ) -> None:
        house.fake.text = f"said {CANARY}"
        call = await house.asked(CANARY, namespace="acme/eng")
        member = await house.someone("member", "acme/eng")
        above = await house.someone("above", "acme")
        rival = await house.someone("rival", "rival")
        path = f"/v1/llm/calls/{call}"

        whole = ok(await member.get(path))
        veiled = ok(await above.get(path))
        admin = ok(await house.admin.get(path))

        assert whole["content"]["messages"][0]["text"] == CANARY
        assert (whole["hidden"], veiled["content"], admin["content"]) == (None, None, None)
        assert "not a member of acme/eng" in veiled["hidden"]
        assert veiled["usage"] == whole["usage"]
        for client in (above, house.admin):
            for seen in (path, "/v1/llm/calls"):
                assert CANARY not in (await client.get(seen)).text
        assert (await rival.get(path)).status_code == 404
        assert items(await rival.get("/v1/llm/calls")) == []
        assert items(await rival.get("/v1/llm/spend")) == []
        assert len(items(await above.get("/v1/llm/spend"))) == 1

    async def test_what_a_service_said_of_an_error_is_content_too(self, house: House) -> None:
        member = await house.someone("member", "acme/eng")
        house.fake.then(refusal(400, {"error": {"message": f"bad word: {CANARY}"}}))
        with pytest.raises(Exception, match="No model answered"):
            await house.asked(CANARY, namespace="acme/eng")
        (row,) = items(await member.get("/v1/llm/calls?state=failed"))

        path = f"/v1/llm/calls/{row['id']}"
        assert CANARY in json.dumps(ok(await member.get(path))["attempts"])
        assert CANARY not in (await house.admin.get(path)).text

    async def test_calls_are_found_by_what_they_have_and_read_page_by_page(
        self, house: House
    ) -> None:
        made = [str(await house.asked(f"q{n}", namespace="home")) for n in range(5)]
        made.append(str(await house.asked("p", namespace="home", role=Role.PLAN)))

        seen, before, pages = [], None, 0
        while True:
            params = {"limit": "2"} | ({"before": before} if before else {})
            page = ok(await house.operator.get("/v1/llm/calls", params=params))
            seen += [row["id"] for row in page["items"]]
            pages += 1
            before = page["next"]
            if before is None:
                break

        async def found(**params: str) -> int:
            return len(items(await house.operator.get("/v1/llm/calls", params=params)))

        middle = next(
            row["started_at"]
            for row in items(await house.operator.get("/v1/llm/calls"))
            if row["id"] == made[2]
        )
        assert seen == made[::-1]
        assert pages == 3
        assert await found(role="plan") == 1
        assert await found(provider="fake") == 6
        assert await found(provider="other") == 0
        assert await found(state="in flight") == 0
        assert await found(**{"from": middle}) == 4
        assert await found(to=middle) == 2
        for wrong in (
            "state=x",
            "before=x",
            "before=1.x",
            "from=x",
            "mind=nobody",
        ):
            answer = await house.operator.get(f"/v1/llm/calls?{wrong}")
            assert answer.status_code in (400, 404), wrong

    async def test_spend_is_by_day_role_and_provider(self, house: House) -> None:
        await house.asked("a", namespace="home")
        await house.asked("b", namespace="home")
        await house.asked("c", namespace="home", role=Role.PLAN)

        rows = items(await house.operator.get("/v1/llm/spend"))

        assert [(r["role"], r["provider"], r["calls"]) for r in rows] == [
            ("dialogue", "fake", 2), ("plan", "fake", 1),
        ]  # fmt: skip
        assert rows[0]["cost_micros"] == 2 * rows[1]["cost_micros"] > 0
        long = await house.operator.get("/v1/llm/spend?from=2000-01-01T00:00:00Z")
        assert long.status_code == 400


class TestBudgets:
    async def test_a_budget_is_set_changed_seen_and_ended(self, house: House) -> None:
        await house.provider()
        ok(await house.admin.put("/v1/llm/roles/plan", json={"chain": [{"provider": "fake"}]}))
        body = {"scope": "role", "period": "day", "key": "plan", "money": "0.5", "tokens": 0}

        made = ok(await house.admin.post("/v1/llm/budgets", json=body), 201)
        with pytest.raises(Exception, match="budget"):
            await house.asked("x", namespace="home", role=Role.PLAN)
        (row,) = items(await house.operator.get("/v1/llm/budgets"))
        ok(await house.admin.delete(f"/v1/llm/budgets/{made['id']}"))

        assert (row["money_micros"], row["tokens"]) == (500_000, 0)
        assert row["windows"][0]["stopped"] == 1
        assert items(await house.operator.get("/v1/llm/budgets")) == []
        assert (await house.admin.delete(f"/v1/llm/budgets/{made['id']}")).status_code == 404

    async def test_a_budget_of_a_mind_is_by_its_slug_and_its_windows_for_its_tenant(
        self, house: House
    ) -> None:
        ok(await house.admin.post("/v1/minds", json={"slug": "ada"}), 201)
        mind = (await house.daemon.noema.minds.get("ada")).id
        body = {"scope": "mind", "period": "day", "key": "ada", "tokens": 9}

        made = ok(await house.admin.post("/v1/llm/budgets", json=body), 201)
        (row,) = items(await house.operator.get("/v1/llm/budgets"))

        assert made["key"] == str(mind)
        assert row["mind"] == "ada"

    @pytest.mark.parametrize(
        "body",
        [
            {"scope": "role", "period": "day"},
            {"scope": "role", "period": "day", "key": "nope", "tokens": 1},
            {"scope": "role", "period": "year", "tokens": 1},
            {"scope": "role", "period": "day", "money": "-1"},
            {"scope": "role", "period": "day", "money": "much"},
            {"scope": "role", "period": "day", "money": "0.0000001"},
            {"scope": "role", "period": "day", "tokens": -1},
            {"scope": "everything", "period": "cycle", "tokens": 1},
        ],
    )
    async def test_what_is_no_budget_is_refused(self, house: House, body: dict[str, Any]) -> None:
        assert (await house.admin.post("/v1/llm/budgets", json=body)).status_code == 400


class TestWatching:
    async def test_metrics_count_by_role_and_name_no_provider(self, house: House) -> None:
        await house.provider("a-vendor")
        await house.provider("unpriced", prices=None)
        for role, name in (("plan", "a-vendor"), ("reflect", "unpriced")):
            chain = {"chain": [{"provider": name}]}
            ok(await house.admin.put(f"/v1/llm/roles/{role}", json=chain))
        house.fake.then(refusal(400, {"error": {"message": "no"}}))
        with pytest.raises(NoemaError):
            await house.asked("a", namespace="home", role=Role.PLAN)
        await house.asked("b", namespace="home", role=Role.PLAN)
        await house.asked("c", namespace="home", role=Role.REFLECT)

        text = (await house.admin.get("/metrics")).text
        counted = dict(
            line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("noema_llm")
        )

        assert counted['noema_llm_call_seconds_count{role="plan",state="answered"}'] == "1.0"
        assert counted['noema_llm_call_seconds_count{role="plan",state="failed"}'] == "1.0"
        assert counted['noema_llm_attempts_total{outcome="failed",role="plan"}'] == "1.0"
        assert float(counted['noema_llm_tokens_total{role="plan",token_class="output"}']) > 0
        assert counted['noema_llm_unknown_costs_total{role="reflect"}'] == "1.0"
        assert counted["noema_llm_providers_resting"] == "0.0"
        assert "a-vendor" not in text
        assert "unpriced" not in text

    async def test_the_system_tells_operators_which_provider_rests(self, house: House) -> None:
        await house.provider()
        await house.provider("off")
        ok(await house.admin.patch("/v1/llm/providers/off", json={"is_enabled": False}))
        ok(await house.admin.put("/v1/llm/roles/plan", json={"chain": [{"provider": "fake"}]}))
        before = ok(await house.operator.get("/v1/system"))["providers"]
        house.fake.then(refusal(429, {"error": {"message": "slow"}}, retry_after="600"))
        with pytest.raises(NoemaError):
            await house.asked("a", namespace="home", role=Role.PLAN)

        after = ok(await house.operator.get("/v1/system"))["providers"]
        page = (await house.operator.get("/system")).text
        observer = await house.someone("eve", "home", ConsoleRole.OBSERVER)

        assert [(p["name"], p["state"]) for p in before] == [("fake", "ready"), ("off", "disabled")]
        assert (after[0]["state"], after[0]["rests_s"] > 500) == ("resting", True)
        assert "resting" in page
        assert "resting" in (await house.operator.get("/models")).text
        assert ok(await observer.get("/v1/system"))["providers"] == []
        assert "Providers of models" not in (await observer.get("/system")).text

    async def test_where_no_role_asks_a_model_the_minds_page_says_so(self, house: House) -> None:
        ok(await house.admin.post("/v1/minds", json={"slug": "ada"}), 201)
        observer = await house.someone("eve", "home", ConsoleRole.OBSERVER)

        assert "No model is set" in (await house.operator.get("/")).text
        assert "No model is set" not in (await observer.get("/")).text
        await house.provider()
        ok(await house.admin.put("/v1/llm/roles/plan", json={"chain": [{"provider": "fake"}]}))
        assert "No model is set" not in (await house.operator.get("/")).text


async def test_another_key_is_put_in_place_as_the_page_of_security_says(
    house: House, db: Database
) -> None:
    await house.provider()
    ok(await house.admin.delete("/v1/llm/providers/fake/secret"))
    async with db.transaction() as tx:
        await tx.conn.execute("DELETE FROM key_fingerprints WHERE name = 'secret'")

    keys = Keys(db=db, key=bytes(range(32)), data_dir=Path("/nowhere"))
    await keys.check()
    sealer = await keys.sealer()
    await keys.check()

    assert sealer.fingerprint


def test_a_place_in_a_list_is_read_back_or_refused() -> None:
    assert place_of("0." + "0" * 32) == (EPOCH, UUID(int=0))
    for wrong in ("1.x", "-1." + "0" * 32, "1" * 30 + "." + "0" * 32, "٣." + "0" * 32):
        with pytest.raises(InvalidInput, match="a list of calls gave"):
            place_of(wrong)

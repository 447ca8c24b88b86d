"""Accounts over HTTP: coming in, one's own account, the access pages, the audit log, the API."""

import asyncio
import csv
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from io import StringIO

import httpx
import pyotp
import pytest

from noema.core.identity import LOCAL, ConsoleRole, MemoryRole
from tests.conftest import TestDatabase
from tests.running import Daemon, daemon

PASSWORD = "canary-9f1c-correct-horse"
OTHER = "canary-77ab-battery-staple"


@dataclass(slots=True, kw_only=True)
class Visitor:
    """A browser without scripts: cookies, and the form token of the page it looks at."""

    daemon: Daemon
    client: httpx.AsyncClient
    csrf: str = ""

    async def get(self, path: str) -> httpx.Response:
        answer = await self.client.get(path)
        self._look(answer)
        return answer

    async def post(self, path: str, **form: str) -> httpx.Response:
        answer = await self.client.post(path, data={"csrf_token": self.csrf, **form})
        self._look(answer)
        return answer

    def _look(self, answer: httpx.Response) -> None:
        if found := re.search(r'name="csrf-token" content="([^"]+)"', answer.text):
            self.csrf = found[1]

    async def log_in(self, name: str = "ada", password: str = PASSWORD) -> httpx.Response:
        await self.get("/login")
        answer = await self.post("/login", name=name, password=password)
        if answer.status_code == 303 and not answer.headers["location"].startswith("/login"):
            await self.get("/account")
        return answer

    async def proven(self, path: str, **form: str) -> httpx.Response:
        """Send the form, with the password that is asked for where it is."""
        return await self.post(path, proof_password=PASSWORD, **form)

    async def enrol(self) -> tuple[str, list[str]]:
        """Turn the second factor on; return its seed and the recovery codes."""
        page = await self.proven("/account/totp")
        seed = re.search(r'id="seed"[^>]*>([A-Z2-7]+)<', page.text)
        assert seed is not None, page.text
        done = await self.post("/account/totp/confirm", code=pyotp.TOTP(seed[1]).now())
        codes = re.search(r'id="codes"[^>]*>([^<]+)<', done.text)
        assert codes is not None, done.text
        return seed[1], codes[1].split()


@asynccontextmanager
async def visitor(running: Daemon) -> AsyncIterator[Visitor]:
    async with httpx.AsyncClient(base_url=running.url, timeout=30) as client:
        yield Visitor(daemon=running, client=client)


@pytest.fixture
async def running(database: TestDatabase) -> AsyncIterator[Daemon]:
    async with daemon(database) as started:
        for name, role in (
            ("ada", ConsoleRole.ADMINISTRATOR),
            ("bob", ConsoleRole.OPERATOR),
            ("eve", ConsoleRole.OBSERVER),
        ):
            await started.noema.access.users.create(
                LOCAL, name=name, role=role, password=PASSWORD, namespace="home",
                memory_role=MemoryRole.OWNER if name == "ada" else MemoryRole.MEMBER,
            )  # fmt: skip
        yield started


@pytest.fixture
async def ada(running: Daemon) -> AsyncIterator[Visitor]:
    async with visitor(running) as one:
        assert (await one.log_in()).status_code == 303
        yield one


@pytest.fixture
async def bob(running: Daemon) -> AsyncIterator[Visitor]:
    async with visitor(running) as one:
        assert (await one.log_in("bob")).status_code == 303
        yield one


@pytest.fixture
async def stranger(running: Daemon) -> AsyncIterator[Visitor]:
    async with visitor(running) as one:
        yield one


async def who(one: Visitor) -> str | None:
    answer = await one.client.get("/v1/whoami")
    return answer.json()["actor"] if answer.status_code == 200 else None


async def audited(running: Daemon, op: str) -> list[str]:
    rows = await running.noema.access.audit.search(op=op)
    return [r.result for r in reversed(rows)]


class TestSigningIn:
    async def test_a_name_and_password_let_in_and_lead_to_the_page_that_was_asked_for(
        self, stranger: Visitor
    ) -> None:
        asked = await stranger.get("/events?type=mind.created")
        await stranger.get(asked.headers["location"])

        let_in = await stranger.post(
            "/login", name="ada", password=PASSWORD, next="/events?type=mind.created"
        )

        assert let_in.headers["location"] == "/events?type=mind.created"
        assert await who(stranger) == "user:ada"
        cookies = " ".join(let_in.headers.get_list("set-cookie")).lower()
        assert cookies.count("httponly") == cookies.count("samesite=lax") >= 2

    async def test_guarantee_11_unknown_and_wrong_are_the_same_page(
        self, stranger: Visitor
    ) -> None:
        wrong = await stranger.log_in("ada", "not this one at all")
        unknown = await stranger.log_in("abd", "not this one at all")

        assert (wrong.status_code, unknown.status_code) == (401, 401)
        assert wrong.text.replace('value="ada"', 'value="abd"') == unknown.text
        assert "Name or password is wrong" in wrong.text

    async def test_guarantee_14_a_form_of_another_browser_is_refused(
        self, stranger: Visitor, running: Daemon
    ) -> None:
        async with visitor(running) as other:
            await other.get("/login")
            await stranger.get("/login")
            stranger.csrf = other.csrf
            forged = await stranger.post("/login", name="ada", password=PASSWORD)
            none = await stranger.client.post("/login", data={"token": running.token})

        assert (forged.status_code, none.status_code) == (403, 403)
        assert await who(stranger) is None

    async def test_guarantee_15_too_many_failures_say_how_long_to_wait(
        self, stranger: Visitor
    ) -> None:
        await stranger.get("/login")
        tries = (stranger.post("/login", name="ada", password="wrong wrong") for _ in range(12))
        answers = await asyncio.gather(*tries)

        assert {a.status_code for a in answers} == {401, 429}
        last = next(a for a in answers if a.status_code == 429)
        assert int(last.headers["retry-after"]) >= 1
        assert re.search(r"try again in \d+ s", last.text)

    async def test_guarantee_12_a_login_begins_a_new_session_and_ends_the_one_before(
        self, ada: Visitor
    ) -> None:
        before = ada.client.cookies["noema_session"]
        link = await ada.daemon.noema.access.new_link(base_url=ada.daemon.url)

        await ada.get(link)

        assert ada.client.cookies["noema_session"] != before
        assert await ada.daemon.noema.access.session(before) is None

    async def test_a_token_is_taken_too(self, stranger: Visitor, running: Daemon) -> None:
        await stranger.get("/login")
        wrong = await stranger.post("/login", token="noema_nothing")
        right = await stranger.post("/login", token=running.token)

        assert wrong.status_code == 401
        assert '<details class="aside" open>' in wrong.text
        assert right.status_code == 303
        assert await who(stranger) == "token:test"

    async def test_the_second_step_takes_a_code_once_and_a_recovery_code_once(
        self, bob: Visitor, running: Daemon
    ) -> None:
        _, codes = await bob.enrol()
        async with visitor(running) as again, visitor(running) as thief:
            first = await again.log_in("bob")
            await again.get(first.headers["location"])
            half_in = await who(again)
            wrong = await again.post("/login/code", code="000000")
            right = await again.post("/login/code", code=codes[0])
            await thief.get((await thief.log_in("bob")).headers["location"])
            spent = await thief.post("/login/code", code=codes[0])

            assert half_in is None
            assert wrong.status_code == 401
            assert right.status_code == 303
            assert await who(again) == "user:bob"
            assert spent.status_code == 401

    async def test_the_second_step_alone_leads_nowhere(self, stranger: Visitor) -> None:
        await stranger.get("/login")

        shown = await stranger.get("/login/code")
        taken = await stranger.post("/login/code", code="123456")

        assert (shown.status_code, taken.status_code) == (303, 303)
        assert taken.headers["location"] == "/login"


class TestSetup:
    async def test_the_first_administrator_is_made_by_the_link_once(
        self, database: TestDatabase
    ) -> None:
        async with daemon(database) as running, visitor(running) as one, visitor(running) as two:
            link = await running.noema.access.setup.first_link(base_url=running.url)
            assert link is not None
            secret = link.partition("link=")[2]
            await one.get(link)
            weak = await one.post("/setup", link=secret, name="ada", password="x", again="x")
            differ = await one.post(
                "/setup", link=secret, name="ada", password=PASSWORD, again=OTHER
            )
            done = await one.post(
                "/setup", link=secret, name="ada", password=PASSWORD, again=PASSWORD
            )
            spent = await two.get(link)

            assert (weak.status_code, differ.status_code) == (400, 400)
            assert 'value="ada"' in weak.text
            assert done.status_code == 303
            assert await who(one) == "user:ada"
            assert spent.status_code == 401
            assert await audited(running, "user.bootstrap") == ["ok"]
            assert await audited(running, "setup.open") == ["denied"]

    async def test_a_person_that_an_administrator_makes_chooses_their_password(
        self, ada: Visitor, stranger: Visitor
    ) -> None:
        made = await ada.post(
            "/access/users", name="cyd", role="observer", namespace="home", memory_role="member"
        )
        link = re.search(r'id="password-link"[^>]*>([^<]+)<', made.text)
        assert link is not None, made.text
        form = await stranger.get(unescape(link[1]))
        secret = link[1].partition("link=")[2]

        chosen = await stranger.post("/setup", link=secret, password=OTHER, again=OTHER)

        assert "cyd" in form.text
        assert chosen.status_code == 303
        assert await who(stranger) == "user:cyd"
        assert link[1] not in (await ada.get("/access/users/cyd")).text


class TestAccount:
    async def test_guarantee_12_a_changed_password_ends_other_sessions_and_not_this_one(
        self, bob: Visitor, running: Daemon
    ) -> None:
        async with visitor(running) as elsewhere:
            await elsewhere.log_in("bob")
            wrong = await bob.post("/account/password", old="x", new=OTHER, again=OTHER)
            weak = await bob.post("/account/password", old=PASSWORD, new="short", again="short")
            done = await bob.post("/account/password", old=PASSWORD, new=OTHER, again=OTHER)

            assert (wrong.status_code, weak.status_code, done.status_code) == (401, 400, 303)
            assert await who(bob) == "user:bob"
            assert await who(elsewhere) is None
            assert "changed" in (await bob.get(done.headers["location"])).text
            assert (await elsewhere.log_in("bob", PASSWORD)).status_code == 401
        assert await audited(running, "user.change_password") == ["denied", "error", "ok"]

    async def test_guarantee_13_turning_the_second_factor_off_takes_the_password(
        self, bob: Visitor
    ) -> None:
        await bob.enrol()
        await bob.get("/account")

        refused = await bob.post("/account/totp/end", password="wrong")
        done = await bob.post("/account/totp/end", password=PASSWORD)

        assert refused.status_code == 401
        assert done.status_code == 303
        assert await who(bob) == "user:bob"
        assert not (await bob.daemon.noema.access.users.get("bob")).has_totp

    async def test_a_wrong_code_confirms_nothing(self, bob: Visitor) -> None:
        await bob.proven("/account/totp")

        answer = await bob.post("/account/totp/confirm", code="000000")

        assert answer.status_code == 401
        assert "Start again" in answer.text
        assert not (await bob.daemon.noema.access.users.get("bob")).has_totp

    async def test_what_is_sensitive_asks_for_the_password_and_then_goes_on(
        self, running: Daemon, stranger: Visitor
    ) -> None:
        await stranger.get(await running.noema.access.new_link(base_url=running.url))
        await stranger.get("/account")
        form = {"name": "ci", "namespace": "home", "memory_role": "agent",
                "console_role": "none", "days": "30"}  # fmt: skip

        asked = await stranger.post("/account/tokens", **form)
        wrong = await stranger.post("/account/tokens", proof_password="wrong", **form)
        done = await stranger.proven("/account/tokens", **form)

        assert "Confirm it is you" in asked.text
        assert 'name="name" value="ci"' in asked.text
        assert wrong.status_code == 401
        assert re.search(r'id="new-token"[^>]*>noema_', done.text)

    async def test_guarantee_17_a_token_is_shown_once_and_revoked_at_once(
        self, bob: Visitor
    ) -> None:
        made = await bob.post(
            "/account/tokens", name="<script>ci</script>", namespace="home",
            memory_role="member", console_role="observer", days="30",
        )  # fmt: skip
        token = re.search(r'id="new-token"[^>]*>(noema_[^<]+)<', made.text)
        assert token is not None, made.text
        listed = await bob.get("/account")
        revoke = re.search(r"/account/tokens/[0-9a-f-]+/revoke", listed.text)
        assert revoke is not None
        bearer = {"Authorization": f"Bearer {token[1]}"}
        async with httpx.AsyncClient(base_url=bob.daemon.url, headers=bearer) as script:
            before = await script.get("/v1/whoami")
            await bob.post(revoke[0])
            after = await script.get("/v1/whoami")

        assert token[1] not in listed.text
        assert "<script>ci" not in listed.text + made.text
        assert before.json()["console_role"] == "observer"
        assert after.status_code == 401

    async def test_guarantee_17_nobody_lends_more_than_they_have(self, bob: Visitor) -> None:
        answer = await bob.post(
            "/account/tokens", name="big", namespace="home", memory_role="owner",
            console_role="administrator", days="30",
        )  # fmt: skip

        assert answer.status_code == 403
        assert "You cannot lend" in unescape(answer.text)

    async def test_somebody_elses_session_and_token_are_not_there(
        self, ada: Visitor, bob: Visitor
    ) -> None:
        (theirs,) = await ada.daemon.noema.access.sessions.visible(
            await session_of(ada), everybody=False
        )

        answer = await bob.post(f"/account/sessions/{theirs.id}/end")

        assert answer.status_code == 404
        assert await who(ada) == "user:ada"

    async def test_a_namespace_is_switched_and_only_to_one_of_ones_own(
        self, ada: Visitor, bob: Visitor
    ) -> None:
        await ada.daemon.noema.access.tenants.create(LOCAL, "acme")
        await ada.post("/access/users/bob/grant", namespace="acme", role="member")
        page = await bob.get("/")

        moved = await bob.post("/namespace", namespace="acme", next="/events")
        refused = await bob.post("/namespace", namespace="nowhere")

        assert 'name="namespace" value="acme"' in page.text
        assert moved.headers["location"] == "/events"
        assert (await bob.client.get("/v1/whoami")).json()["namespace"] == "acme"
        assert refused.status_code == 404


async def session_of(one: Visitor):  # type: ignore[no-untyped-def]
    found = await one.daemon.noema.access.session(one.client.cookies["noema_session"])
    assert found is not None
    return found


class TestStreams:
    @pytest.mark.parametrize("act", ["logout", "session", "disable", "role", "password", "totp"])
    async def test_guarantee_12_what_ends_a_session_ends_its_streams_within_a_second(
        self, ada: Visitor, bob: Visitor, act: str
    ) -> None:
        access = bob.daemon.noema.access
        async with bob.client.stream("GET", "/v1/events/stream?live=minds") as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            match act:
                case "logout":
                    await bob.post("/logout")
                case "session":
                    (row,) = await access.sessions.visible(await session_of(bob))
                    await ada.post(f"/access/sessions/{row.id}/end")
                case "disable":
                    await ada.post("/access/users/bob/disable")
                case "role":
                    await ada.post("/access/users/bob/role", role="observer")
                case "password":
                    await bob.post("/account/password", old=PASSWORD, new=OTHER, again=OTHER)
                case _:
                    await bob.enrol()
            async with asyncio.timeout(1.0):
                said = [line async for line in lines]

        assert 'data: "the session has ended"' in said

    async def test_a_revoked_token_ends_its_stream(self, ada: Visitor) -> None:
        token = (
            await ada.client.post(
                "/v1/tokens", json={"name": "t", "console_role": "observer"},
                headers={"X-CSRF-Token": ada.csrf},
            )
        ).json()["token"]  # fmt: skip
        (row,) = (await ada.client.get("/v1/tokens?mine=1")).json()["items"]
        bearer = {"Authorization": f"Bearer {token}"}
        async with (
            httpx.AsyncClient(base_url=ada.daemon.url, headers=bearer) as script,
            script.stream("GET", "/v1/events/stream") as stream,
        ):
            lines = stream.aiter_lines()
            await anext(lines)
            await ada.client.delete(f"/v1/tokens/{row['id']}", headers={"X-CSRF-Token": ada.csrf})
            async with asyncio.timeout(1.0):
                said = [line async for line in lines]

        assert 'data: "the session has ended"' in said


PAGES = (
    "/account",
    "/access",
    "/access/users/bob",
    "/access/tenants",
    "/access/sessions",
    "/audit",
)


class TestAccessPages:
    async def test_an_administrator_sees_them_all(self, ada: Visitor) -> None:
        for path in PAGES:
            answer = await ada.get(path)

            assert answer.status_code == 200, path
            assert "style=" not in answer.text, path
            for link in re.findall(r'href="(/v1/[^"]+)">\.json', answer.text):
                assert (await ada.client.get(unescape(link))).status_code == 200, link

    async def test_nobody_else_does(self, bob: Visitor, stranger: Visitor) -> None:
        for path in PAGES[1:]:
            assert (await bob.get(path)).status_code == 403, path
            assert (await stranger.get(path)).status_code == 303, path
        nav = (await bob.get("/account")).text
        assert 'href="/access"' not in nav
        assert 'href="/audit"' not in nav

    async def test_a_person_is_managed(self, ada: Visitor, running: Daemon) -> None:
        base = "/access/users/bob"
        for act, form in (
            ("role", {"role": "observer"}), ("disable", {}), ("enable", {}), ("unlock", {}),
            ("reset-totp", {}),
            ("grant", {"namespace": "home", "role": "auditor", "to": "2099-01-01T00:00"}),
            ("revoke", {"namespace": "home"}),
        ):  # fmt: skip
            answer = await ada.post(f"{base}/{act}", **form)
            assert answer.status_code == 303, (act, answer.text)
            assert (await ada.get(answer.headers["location"])).status_code == 200
        for op in ("user.set_role", "user.disable", "user.enable", "user.unlock",
                   "user.reset_totp", "membership.grant", "membership.revoke"):  # fmt: skip
            assert await audited(running, op) == ["ok"], op

    async def test_what_cannot_be_is_said_on_the_page(self, ada: Visitor) -> None:
        for path, form, status, said in (
            ("/access/users/ada/disable", {}, 409, "last administrator"),
            ("/access/users/bob/grant", {"namespace": "home", "role": "member", "to": "x"}, 400,
             "is a time such as"),
            ("/access/users/bob/grant", {"namespace": "mars", "role": "member"}, 404, "mars"),
            ("/access/users", {"name": "Bob", "role": "observer", "memory_role": "member"}, 409,
             "use another name"),
            ("/access/users", {"name": "b b", "role": "observer", "memory_role": "member"}, 400,
             "A user name has"),
            ("/access/tenants", {"tenant": "Acme!"}, 400, "Acme!"),
            ("/access/namespaces", {"namespace": "mars/eng"}, 404, "mars"),
            ("/access/tenants/home/suspend", {}, 409, "shut yourself out"),
        ):  # fmt: skip
            answer = await ada.post(path, **form)

            assert answer.status_code == status, (path, form, answer.text)
            assert said in unescape(answer.text), path
            assert "error-page" not in answer.text, path

    async def test_a_suspended_tenant_lets_nobody_act_in_it(
        self, ada: Visitor, bob: Visitor
    ) -> None:
        await ada.post("/access/tenants", tenant="acme")
        await ada.post("/access/namespaces", namespace="acme/eng")
        await ada.post("/access/users/bob/grant", namespace="acme/eng", role="member")
        await bob.get("/")
        await bob.post("/namespace", namespace="acme/eng")

        await ada.post("/access/tenants/acme/suspend")
        during = (await bob.client.get("/v1/whoami")).json()["namespace"]
        await ada.post("/access/tenants/acme/resume")

        assert during != "acme/eng"
        assert (await bob.client.get("/v1/whoami")).json()["namespace"] == "acme/eng"


class TestAuditPage:
    async def test_it_is_filtered_paged_and_taken_away(
        self, ada: Visitor, stranger: Visitor
    ) -> None:
        await stranger.log_in("=cmd|calc", "wrong wrong wrong")
        await stranger.log_in("eve", "wrong wrong wrong")
        await stranger.log_in("eve")

        denied = await ada.get("/audit?verb=login&outcome=denied")
        paged = await ada.get("/audit?limit=1")
        nothing = await ada.get("/audit?who=user:nobody")
        bad = await ada.get("/audit?from=yesterday")
        table = await ada.client.get("/audit.csv?verb=login&outcome=denied")

        assert denied.text.count('<tr id="audit-') == 2
        older = re.search(r'href="(/audit\?[^"]*before=\d+)"', paged.text)
        assert older is not None
        assert (await ada.get(unescape(older[1]))).text.count('<tr id="audit-') == 1
        assert "No row matches" in nothing.text
        assert bad.status_code == 400
        rows = list(csv.DictReader(StringIO(table.text)))
        assert [r["outcome"] for r in rows] == ["denied", "denied"]
        assert not any(v.startswith(("=", "+", "@")) for r in rows for v in r.values())
        assert await audited(ada.daemon, "audit.export") == ["ok"]

    async def test_an_auditor_sees_what_was_done_in_their_namespace(
        self, ada: Visitor, bob: Visitor
    ) -> None:
        await ada.post("/access/users/bob/grant", namespace="home", role="auditor")

        page = await bob.get("/audit")
        rows = (await bob.client.get("/v1/audit")).json()["items"]
        table = list(csv.DictReader(StringIO((await bob.client.get("/audit.csv")).text)))

        assert page.status_code == 200
        assert {r["namespace"] for r in rows} == {"home"}
        assert {r["namespace"] for r in table} == {"home"}


class TestApi:
    async def test_people_are_managed_by_a_token(self, running: Daemon) -> None:
        http = running.client
        made = await http.post(
            "/v1/users", json={"name": "cyd", "role": "observer", "namespace": "home"}
        )
        link = await http.post("/v1/users/cyd/password-link", json={})
        patched = await http.patch("/v1/users/cyd", json={"role": "operator", "disabled": True})
        granted = await http.post(
            "/v1/users/cyd/memberships", json={"namespace": "home", "role": "agent"}
        )
        revoked = await http.delete("/v1/users/cyd/memberships", params={"namespace": "home"})
        unlocked = await http.post("/v1/users/cyd/unlock", json={})
        reset = await http.post("/v1/users/cyd/reset-totp", json={})
        listed = await http.get("/v1/users")

        assert made.status_code == 201
        assert made.json()["memberships"][0]["role"] == "member"
        assert "/setup?link=" in link.json()["url"]
        assert patched.json()["console_role"] == "operator"
        assert patched.json()["disabled_at"]
        assert granted.status_code == 201
        assert (revoked.status_code, unlocked.status_code, reset.status_code) == (200, 200, 200)
        assert [u["name"] for u in listed.json()["items"]] == ["ada", "bob", "cyd", "eve"]
        assert "hash" not in json.dumps(listed.json())

    async def test_sessions_tokens_and_tenants(self, ada: Visitor, running: Daemon) -> None:
        http = running.client
        sessions = (await http.get("/v1/sessions")).json()["items"]
        tenant = await http.post("/v1/tenants", json={"name": "acme"})
        space = await http.post("/v1/namespaces", json={"path": "acme/eng"})
        held = await http.patch("/v1/tenants/acme", json={"status": "suspended"})
        made = await http.post("/v1/tokens", json={"name": "child", "days": 7})
        ended = await http.delete(f"/v1/sessions/{sessions[0]['id']}")
        gone = await http.delete(f"/v1/sessions/{sessions[0]['id']}")

        assert [s["user"] for s in sessions] == ["ada"]
        assert (tenant.status_code, space.status_code) == (201, 201)
        assert held.json()["status"] == "suspended"
        assert made.json()["token"].startswith("noema_")
        assert (ended.status_code, gone.status_code) == (200, 404)
        assert await who(ada) is None

    async def test_a_session_that_was_not_proven_lately_is_refused_what_is_sensitive(
        self, stranger: Visitor, running: Daemon
    ) -> None:
        await stranger.get(await running.noema.access.new_link(base_url=running.url))
        await stranger.get("/account")

        answer = await stranger.client.post(
            "/v1/tokens", json={"name": "x"}, headers={"X-CSRF-Token": stranger.csrf}
        )

        assert answer.status_code == 403
        assert "password" in answer.json()["detail"]

    async def test_the_audit_log_is_read_by_page(self, running: Daemon) -> None:
        first = (await running.client.get("/v1/audit?limit=2")).json()
        rest = (await running.client.get(f"/v1/audit?limit=2&before={first['next']}")).json()
        bad = await running.client.get("/v1/audit?outcome=maybe")

        assert len(first["items"]) == 2
        assert rest["items"][0]["seq"] < first["items"][-1]["seq"]
        assert bad.status_code == 400

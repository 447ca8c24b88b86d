"""`noemactl` manages people, tokens, sessions, tenants and the audit log of a real daemon."""

import asyncio
import io
import json
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from noema.auth.model import LoggedIn, Session
from noema.auth.tokens import looks_like_token
from noema.cli import noemactl
from noema.cli.client import Ctl
from noema.config import ClientSettings
from noema.core.clock import SystemClock
from noema.core.errors import Unauthorised
from tests.conftest import TestDatabase
from tests.house import HERE, PASSWORD
from tests.running import Daemon, daemon

NOWHERE_URL = "http://127.0.0.1:9"


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
    """Runs commands, as whoever holds the token."""

    daemon: Daemon
    run: Callable[..., Awaitable[Ran]]

    async def __call__(self, *args: str, **how: str) -> Ran:
        return await self.run(*args, **{"url": self.daemon.url, "token": self.daemon.token, **how})

    async def ok(self, *args: str, **how: str) -> Ran:
        ran = await self(*args, **how)
        assert (ran.code, ran.err) == (0, ""), ran
        return ran

    async def person(self, name: str = "bob", *more: str) -> None:
        await self.ok("user", "create", name, "--password-stdin", *more, stdin=f"{PASSWORD}\n")

    async def inside(self, name: str = "bob", password: str = PASSWORD) -> Session:
        access = self.daemon.noema.access
        entered = await access.log_in(name, password, origin=HERE)
        assert isinstance(entered, LoggedIn)
        session = await access.session(entered.secret)
        assert session is not None
        return session

    async def is_in(self, session: Session) -> bool:
        return await self.daemon.noema.access.sessions.again(session) is not None


@pytest.fixture
def run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[Ran]]:
    async def run(
        *args: str, url: str | None = None, token: str | None = None, stdin: str = ""
    ) -> Ran:
        settings = ClientSettings(url=url, token=token, config_dir=tmp_path / "config")
        ctl = Ctl(settings=settings, clock=SystemClock(), pause=lambda s: None)
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capfd.readouterr()
        code = await asyncio.to_thread(noemactl.run, args, ctl)
        captured = capfd.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


@pytest.fixture
async def shell(database: TestDatabase, run: Callable[..., Awaitable[Ran]]) -> AsyncIterator[Shell]:
    async with daemon(database) as running:
        yield Shell(daemon=running, run=run)


class TestUsers:
    async def test_somebody_new_chooses_their_password_by_the_link_that_is_printed(
        self, shell: Shell
    ) -> None:
        ran = await shell.ok("user", "create", "bob", "--role", "observer", "--json")

        made = ran.json
        assert {"id", "name", "console_role", "memberships", "has_password", "link"} <= made.keys()
        assert (made["name"], made["console_role"], made["has_password"]) == (
            "bob", "observer", False,
        )  # fmt: skip
        assert [(m["namespace"], m["role"]) for m in made["memberships"]] == [("home", "member")]
        secret = made["link"].rpartition("link=")[2]
        await shell.daemon.noema.access.setup.choose_password(secret, PASSWORD, origin=HERE)
        assert await shell.is_in(await shell.inside())

    @pytest.mark.parametrize("how", ["-", "--password-stdin"])
    async def test_guarantee_18_a_password_comes_from_standard_input_and_is_not_echoed(
        self, shell: Shell, how: str
    ) -> None:
        ran = await shell.ok("user", "create", "bob", how, stdin=f"{PASSWORD}\n")

        assert PASSWORD not in ran.out + ran.err
        assert await shell.is_in(await shell.inside())

    async def test_guarantee_18_a_password_as_an_argument_is_refused_and_not_echoed(
        self, shell: Shell
    ) -> None:
        ran = await shell("user", "create", "bob", PASSWORD)
        without = await shell("user", "create", "bob", "--password-stdin")
        untold = await shell("user", "create", "bob", "--local")

        assert (ran.code, ran.out) == (2, "")
        assert "never an argument" in ran.err
        assert PASSWORD not in ran.err
        assert (without.code, untold.code) == (1, 2)
        assert "--password-stdin" in untold.err

    async def test_people_are_listed_and_shown_without_anything_secret(self, shell: Shell) -> None:
        await shell.person()

        listed = (await shell.ok("user", "list", "--json")).json
        shown = await shell.ok("user", "show", "bob")

        keys = {
            "id", "name", "console_role", "created_at", "created_by", "last_login_at",
            "password_changed_at", "disabled_at", "has_password", "has_totp",
        }  # fmt: skip
        assert [set(user) for user in listed] == [keys]
        assert "argon2" not in json.dumps(listed) + shown.out
        assert "bob" in (await shell.ok("user", "list")).out

    async def test_disabling_ends_sessions_and_enabling_lets_in_again(self, shell: Shell) -> None:
        await shell.person()
        session = await shell.inside()

        disabled = (await shell.ok("user", "disable", "bob", "--json")).json
        was_in = await shell.is_in(session)
        with pytest.raises(Unauthorised):
            await shell.inside()
        await shell.ok("user", "enable", "bob")
        await shell.ok("user", "unlock", "bob")

        assert disabled["disabled_at"] is not None
        assert not was_in
        assert await shell.is_in(await shell.inside())

    async def test_a_new_role_is_told_and_ends_sessions(self, shell: Shell) -> None:
        await shell.person()
        session = await shell.inside()

        ran = await shell.ok("user", "role", "bob", "observer")

        assert ran.out == "bob is observer now\n"
        assert not await shell.is_in(session)

    async def test_a_membership_is_granted_for_a_time_and_revoked(self, shell: Shell) -> None:
        await shell.person()
        await shell.ok("tenant", "create", "acme")

        granted = await shell.ok(
            "user", "grant", "bob", "acme", "--role", "auditor", "--to", "2999-01-01", "--json"
        )
        await shell.ok("user", "revoke", "bob", "acme")
        again = await shell("user", "revoke", "bob", "acme")

        found = {m["namespace"]: m for m in granted.json["memberships"]}
        assert (found["acme"]["role"], found["acme"]["valid_to"]) == (
            "auditor", "2999-01-01T00:00:00Z",
        )  # fmt: skip
        assert again.code == 3

    async def test_a_lost_second_factor_is_taken_off_and_a_new_link_is_printed_alone(
        self, shell: Shell
    ) -> None:
        await shell.person()

        await shell.ok("user", "reset-totp", "bob")
        link = await shell.ok("user", "password-link", "bob")

        assert link.out.startswith(f"{shell.daemon.url}/setup?link=")
        assert link.out.count("\n") == 1


class TestTokens:
    async def test_a_token_is_printed_and_nothing_else(self, shell: Shell) -> None:
        ran = await shell.ok(
            "token", "create", "backup", "--role", "member", "--console-role", "observer",
            "--expires", "30d",
        )  # fmt: skip

        token = ran.out.strip()
        assert ran.out == f"{token}\n"
        assert looks_like_token(token)
        who = (await shell.ok("whoami", "--json", token=token)).json
        assert (who["namespace"], who["role"], who["console_role"]) == (
            "home", "member", "observer",
        )  # fmt: skip

    async def test_tokens_are_listed_without_themselves_and_revoked_at_once(
        self, shell: Shell
    ) -> None:
        token = (await shell.ok("token", "create", "x", "--console-role", "observer")).out.strip()

        listed = (await shell.ok("token", "list", "--json")).json
        row = next(row for row in listed if row["name"] == "x")
        before = await shell("mind", "list", token=token)
        await shell.ok("token", "revoke", row["id"])
        after = await shell("mind", "list", token=token)

        keys = {
            "id", "name", "user", "hint", "namespace", "memory_role", "console_role",
            "created_at", "expires_at", "last_used_at", "revoked_at",
        }  # fmt: skip
        assert set(row) == keys
        assert token not in json.dumps(listed)
        assert (before.code, after.code) == (0, 4)

    async def test_a_token_in_the_place_of_its_id_goes_nowhere(self, shell: Shell) -> None:
        ran = await shell("token", "revoke", shell.daemon.token, url=NOWHERE_URL)

        assert ran.code == 2
        assert shell.daemon.token not in ran.err

    @pytest.mark.parametrize("expires", ["12h", "0", "0d", "soon"])
    async def test_a_token_lasts_whole_days(self, shell: Shell, expires: str) -> None:
        assert (await shell("token", "create", "x", "--expires", expires)).code == 2

    async def test_guarantee_17_a_script_cannot_make_itself_more_than_it_is(
        self, shell: Shell
    ) -> None:
        made = await shell.ok(
            "token", "create", "x", "--role", "member", "--console-role", "observer"
        )
        token = made.out.strip()

        more = await shell("token", "create", "y", "--console-role", "operator", token=token)
        people = await shell("user", "list", token=token)

        assert (more.code, more.out) == (4, "")
        assert (people.code, people.out) == (4, "")

    async def test_a_token_made_here_lets_login_store_it_for_its_owner_alone(
        self, shell: Shell, tmp_path: Path
    ) -> None:
        token = (await shell.ok("token", "create", "x", "--console-role", "observer")).out

        ran = await shell.run("login", "-", url=shell.daemon.url, stdin=token)
        used = await shell.run("mind", "list")

        kept = tmp_path / "config/credentials.json"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert (ran.code, used.code) == (0, 0)
        assert token.strip() not in ran.out + ran.err


class TestLocal:
    @pytest.fixture(autouse=True)
    def _database(self, database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DATABASE_URL", database.owner_dsn)

    async def test_a_person_a_token_and_an_unlocking_need_no_daemon(self, shell: Shell) -> None:
        made = await shell.ok(
            "user", "create", "root", "--role", "administrator", "--local", "-",
            stdin=f"{PASSWORD}\n", url=NOWHERE_URL,
        )  # fmt: skip
        token = (await shell.ok("token", "create", "--local", url=NOWHERE_URL)).out.strip()
        await shell.ok("user", "unlock", "root", "--local", url=NOWHERE_URL)

        assert made.out == "root may log in now\n"
        assert (await shell.inside("root")).identity.role == "owner"
        assert looks_like_token(token)
        assert (await shell.ok("user", "list", token=token)).out.count("root") == 1

    async def test_a_local_token_takes_no_roles(self, shell: Shell) -> None:
        ran = await shell("token", "create", "x", "--local", "--role", "member")

        assert (ran.code, ran.out) == (2, "")

    async def test_a_weak_password_is_refused_without_being_shown(self, shell: Shell) -> None:
        ran = await shell("user", "create", "root", "--local", "-", stdin="hunter2\n")

        assert (ran.code, ran.out) == (1, "")
        assert "hunter2" not in ran.err


class TestSessions:
    async def test_sessions_are_listed_and_ended(self, shell: Shell) -> None:
        await shell.person()
        session = await shell.inside()

        listed = (await shell.ok("session", "list", "--json")).json
        mine = (await shell.ok("session", "list", "--mine", "--json")).json
        await shell.ok("session", "revoke", listed[0]["id"])

        keys = {
            "id", "user", "namespace", "method", "user_agent", "address", "created_at", "seen_at",
            "expires_at",
        }  # fmt: skip
        assert [set(row) for row in listed] == [keys]
        assert (listed[0]["id"], listed[0]["user"]) == (str(session.id), "bob")
        assert mine == []
        assert not await shell.is_in(session)


class TestAudit:
    async def test_what_was_done_and_refused_is_found_by_everything_it_has(
        self, shell: Shell
    ) -> None:
        await shell.person()
        await shell("user", "disable", "nobody")

        made = (await shell.ok("audit", "--op", "user.create", "--json")).json
        missed = (await shell.ok("audit", "--result", "miss", "--json")).json
        of_bob = (await shell.ok("audit", "--target", "user:bob", "--json")).json
        by_me = (await shell.ok("audit", "--actor", "token:test", "--limit", "1", "--json")).json
        later = (await shell.ok("audit", "--from", "2999-01-01", "--json")).json
        earlier = (await shell.ok("audit", "--to", "2000-01-01T00:00:00Z", "--json")).json

        keys = {
            "seq", "id", "occurred_at", "recorded_at", "who", "through", "verb", "target",
            "namespace", "outcome", "purpose", "detail", "is_redacted",
        }  # fmt: skip
        assert [set(row) for row in made] == [keys]
        assert [(row["verb"], row["target"]) for row in missed] == [("user.disable", "user:nobody")]
        assert "user.create" in {row["verb"] for row in of_bob}
        assert len(by_me) == 1
        assert (later, earlier) == ([], [])
        assert "user.create" in (await shell.ok("audit")).out

    async def test_more_than_a_page_is_read_to_the_end(self, shell: Shell) -> None:
        for _ in range(5):
            await shell("user", "show", "x")
            await shell("user", "disable", "x")

        rows = (await shell.ok("audit", "--op", "user.disable", "--limit", "4", "--json")).json

        assert len({row["seq"] for row in rows}) == 4


class TestTenants:
    async def test_a_tenant_is_made_filled_suspended_and_resumed(self, shell: Shell) -> None:
        await shell.ok("tenant", "create", "acme")
        await shell.ok("namespace", "create", "acme/eng/platform")
        again = await shell("namespace", "create", "acme/eng/platform")
        await shell.ok("tenant", "suspend", "acme")
        suspended = (await shell.ok("tenant", "list", "--json")).json
        await shell.ok("tenant", "resume", "acme")
        own = await shell("tenant", "suspend", "home")

        acme = next(t for t in suspended if t["name"] == "acme")
        assert set(acme) == {"name", "status", "created_at", "namespaces"}
        assert acme["status"] == "suspended"
        assert acme["namespaces"] == ["acme", "acme/eng", "acme/eng/platform"]
        assert (again.code, own.code) == (1, 1)
        assert "acme/eng/platform" in (await shell.ok("tenant", "list")).out


class TestExitCodes:
    @pytest.mark.parametrize(
        "args",
        [
            ("user", "show", "nobody"),
            ("user", "disable", "nobody"),
            ("user", "unlock", "nobody"),
            ("user", "password-link", "nobody"),
            ("user", "grant", "nobody", "home"),
            ("tenant", "suspend", "nobody"),
            ("namespace", "create", "nobody/x"),
            ("token", "revoke", str(UUID(int=404))),
            ("session", "revoke", str(UUID(int=404))),
        ],
        ids=" ".join,
    )
    async def test_what_is_missing_ends_with_3(self, shell: Shell, args: tuple[str, ...]) -> None:
        ran = await shell(*args)

        assert (ran.code, ran.out) == (3, "")
        assert ran.err.count("\n") == 1

    @pytest.mark.parametrize(
        "args",
        [
            ("user", "list"),
            ("token", "create", "x"),
            ("session", "list"),
            ("audit",),
            ("tenant", "list"),
        ],
        ids=" ".join,
    )
    async def test_without_a_good_token_it_ends_with_4_and_without_a_daemon_with_5(
        self, shell: Shell, args: tuple[str, ...]
    ) -> None:
        refused = await shell(*args, token="noema_wrong")
        unreached = await shell(*args, url=NOWHERE_URL)

        assert (refused.code, refused.out) == (4, "")
        assert (unreached.code, unreached.out) == (5, "")
        assert shell.daemon.token not in unreached.err

    async def test_what_is_refused_ends_with_1(self, shell: Shell) -> None:
        await shell.person()

        taken = await shell("user", "create", "bob", "-", stdin=f"{PASSWORD}\n")
        odd = await shell("user", "create", "No Name", "-", stdin=f"{PASSWORD}\n")

        assert (taken.code, odd.code) == (1, 1)
        assert PASSWORD not in taken.err + odd.err

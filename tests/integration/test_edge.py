"""The edge of a running daemon: addresses behind proxies, limits, cookies, secrets nowhere."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from ipaddress import ip_network
from pathlib import Path

import httpx
import pyotp
import pytest

from noema.auth.limits import BURST
from noema.auth.model import Origin
from noema.config import Settings
from noema.core.identity import LOCAL, ConsoleRole, MemoryRole
from noema.web.forwarded import client_address
from noema.web.gate import session_cookie
from tests.conftest import TestDatabase
from tests.people import COOKIE, PASSWORD, Person, person, script
from tests.running import Daemon, daemon

_HERE = Origin(address="192.0.2.1")
PROXIES = [ip_network("10.0.0.0/8"), ip_network("::1"), ip_network("127.0.0.1")]


@pytest.mark.parametrize(
    ("peer", "headers", "client"),
    [
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        ("10.0.0.5", [], "10.0.0.5"),
        ("10.0.0.5", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.5", ["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.5", ["6.6.6.6", "198.51.100.1, 10.0.0.7"], "198.51.100.1"),
        ("10.0.0.5", ["198.51.100.1:4711"], "198.51.100.1"),
        ("::1", ["[2001:db8::7]:4711"], "2001:db8::7"),
        ("10.0.0.5", ["2001:db8::7"], "2001:db8::7"),
        ("::ffff:10.0.0.5", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("10.0.0.5", ["198.51.100.1, nonsense"], "10.0.0.5"),
        ("10.0.0.5", [""], "10.0.0.5"),
        ("10.0.0.5", ["10.0.0.6, 10.0.0.7"], "10.0.0.6"),
        ("unix", ["198.51.100.1"], "unix"),
    ],
)
def test_guarantee_15_a_forwarded_address_counts_only_from_a_trusted_proxy(
    peer: str, headers: list[str], client: str
) -> None:
    assert client_address(peer, headers, PROXIES) == client


@pytest.fixture
async def here(database: TestDatabase) -> AsyncIterator[Daemon]:
    async with daemon(database) as running:
        yield running


def anonymous(running: Daemon, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=running.url, headers=headers, timeout=30)


async def test_guarantee_15_what_a_client_claims_to_be_forwarded_for_is_not_believed(
    here: Daemon,
) -> None:
    amy = await person(here, "amy", ("home", MemoryRole.OWNER), role=ConsoleRole.ADMINISTRATOR)
    claim = {"X-Forwarded-For": "198.51.100.77"}
    async with anonymous(here) as client:
        await client.get("/v1/minds", headers={"Authorization": "Bearer bogus", **claim})
    rows = await here.noema.access.audit.search(op="token.use")

    assert amy.csrf
    assert rows
    assert all("127.0.0.1" in r.detail and "198.51.100.77" not in r.detail for r in rows)


async def test_guarantee_15_behind_a_trusted_proxy_each_client_has_a_limit_of_its_own(
    database: TestDatabase,
) -> None:
    async with (
        daemon(database, trusted_proxies="127.0.0.1") as running,
        anonymous(running, **{"X-Forwarded-For": "6.6.6.6, 198.51.100.1"}) as one,
        anonymous(running, **{"X-Forwarded-For": "198.51.100.2"}) as two,
    ):
        bogus = {"Authorization": "Bearer noema_bogus"}
        first = await one.get("/v1/minds", headers=bogus)
        # The bucket fills again while it is emptied.
        limited = first
        for _ in range(3 * BURST):
            if limited.status_code == 429:
                break
            limited = await one.get("/v1/minds", headers=bogus)
        other = await two.get("/v1/minds", headers=bogus)
        good = await one.get("/v1/minds", headers={"Authorization": f"Bearer {running.token}"})
        rows = await running.noema.access.audit.search(op="token.use", limit=500)

    assert first.status_code == 401
    assert limited.status_code == 429
    assert int(limited.headers["retry-after"]) >= 1
    assert other.status_code == 401
    # A token that is good never waits for what others do at its address.
    assert good.status_code == 200
    assert len(rows) == 2
    assert "198.51.100.1" in rows[-1].detail


async def test_refusals_at_the_door_are_on_record_and_do_not_flood_it(here: Daemon) -> None:
    amy = await person(here, "amy", ("home", MemoryRole.MEMBER), role=ConsoleRole.OBSERVER)
    async with amy.browser() as browser:
        for number in range(20):
            answer = await browser.post("/v1/minds", json={"slug": f"mal-{number}"})
            assert answer.status_code == 403
        foreign = await browser.post("/theme", headers={"Origin": "https://evil.test"})
    rows = await here.noema.access.audit.search(op="request.refused", limit=500)

    assert foreign.status_code == 403
    assert [(r.actor, r.target, r.result) for r in rows] == [
        ("anonymous", "route:POST /theme", "denied"),
        ("user:amy", "route:POST /v1/minds", "denied"),
    ]
    assert "mal-" not in "".join(r.detail for r in rows)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil"])
async def test_guarantee_15_a_foreign_host_gets_400_on_pages_and_streams(
    here: Daemon, host: str
) -> None:
    async with anonymous(here, Host=host) as client:
        for path in ("/healthz", "/login", "/v1/events/stream", "/nowhere"):
            assert (await client.get(path)).status_code == 400


class _Told:
    """As much of the services as a cookie asks for."""

    def __init__(self, url: str | None) -> None:
        self.settings = Settings(data_dir=Path("/nonexistent"), public_url=url)


@pytest.mark.parametrize(
    ("url", "name", "is_secure"),
    [
        (None, "noema_session", False), ("http://127.0.0.1:8420", "noema_session", False),
        ("https://noema.example", "__Host-noema", True),
    ],
)  # fmt: skip
def test_guarantee_12_the_cookie_is_host_bound_and_secure_where_people_come_over_tls(
    url: str | None, name: str, is_secure: bool
) -> None:
    cookie = session_cookie(_Told(url), "abc", max_age_s=60)  # type: ignore[arg-type]

    parts = {p.strip() for p in cookie.split(";")}
    assert f"{name}=abc" in parts
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= parts
    assert ("Secure" in parts) is is_secure
    assert not any(p.startswith("Domain") for p in parts)


async def test_guarantee_12_a_planted_session_is_not_taken_over_at_login(here: Daemon) -> None:
    amy = await person(here, "amy", ("home", MemoryRole.MEMBER))
    planted = "p" * 43
    async with anonymous(here) as browser:
        browser.cookies.set(COOKIE, planted)
        page = await browser.get("/login")
        csrf = re.search(r'name="csrf_token" value="([^"]+)"', page.text)
        assert csrf is not None
        form = {"name": "amy", "password": PASSWORD, "csrf_token": csrf[1]}
        let_in = await browser.post("/login", data=form)
        cookies = [c for c in let_in.headers.get_list("set-cookie") if c.startswith(COOKIE)]
        again = await browser.post("/login", data=form)
    async with httpx.AsyncClient(base_url=here.url, cookies={COOKIE: planted}) as thief:
        stolen = await thief.get("/v1/whoami")

    assert let_in.status_code == 303, let_in.text
    assert len(cookies) == 1
    assert planted not in cookies[0]
    assert amy.secret not in cookies[0]
    assert stolen.status_code == 401
    assert again.status_code in (303, 403)


async def test_guarantee_12_what_changes_somebodys_rights_ends_their_sessions(
    here: Daemon,
) -> None:
    access = here.noema.access
    statuses = {}
    for change in ("logout", "role", "disable", "password", "revoke"):
        amy = await person(here, f"amy-{change}", ("home", MemoryRole.MEMBER))
        async with amy.browser() as browser:
            assert (await browser.get("/v1/whoami")).status_code == 200
            match change:
                case "logout":
                    await browser.post("/logout")
                    browser.cookies.set(COOKIE, amy.secret)
                case "role":
                    await access.users.set_role(LOCAL, amy.name, ConsoleRole.OBSERVER)
                case "disable":
                    await access.users.disable(LOCAL, amy.name)
                case "revoke":
                    session = await amy.session()
                    await access.sessions.revoke(session, session.id)
                case _:
                    await access.account.change_password(
                        await amy.session(), old=PASSWORD, new=f"{PASSWORD}-2", origin=_HERE
                    )
            statuses[change] = (await browser.get("/v1/whoami")).status_code

    assert set(statuses.values()) == {401}, statuses


@pytest.mark.parametrize("change", ["disable", "demote", "log out"])
@pytest.mark.parametrize("by_token", [False, True])
async def test_guarantee_12_who_loses_their_rights_while_sending_changes_nothing_any_more(
    here: Daemon, change: str, by_token: bool
) -> None:
    access = here.noema.access
    boss = await person(here, "boss", ("home", MemoryRole.OWNER), role=ConsoleRole.ADMINISTRATOR)
    await person(here, "root", role=ConsoleRole.ADMINISTRATOR)
    token = await boss.token(console_role=ConsoleRole.ADMINISTRATOR)
    let_in = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"name": "mallory", '
        await asyncio.wait_for(let_in.wait(), 30)
        if change == "disable":
            await access.users.disable(LOCAL, "boss")
        elif change == "demote":
            await access.users.set_role(LOCAL, "boss", ConsoleRole.OBSERVER)
        elif by_token:
            await access.tokens.revoke(await boss.session(), (await access.bearer(token)).token_id)
        else:
            await access.end_session(await boss.session())
        yield b'"role": "administrator"}'

    look = access.bearer if by_token else access.session

    async def looked(secret: str, **more: Origin) -> object:
        found = await look(secret, **more)
        let_in.set()
        return found

    setattr(access, "bearer" if by_token else "session", looked)
    async with script(here, token) if by_token else boss.browser() as client:
        answer = await client.post(
            "/v1/users", content=slowly(), headers={"Content-Type": "application/json"}
        )

    assert answer.status_code in (401, 403)
    assert "mallory" not in [u.name for u in await access.users.all()]


async def test_an_old_session_makes_no_login_link(here: Daemon) -> None:
    boss = await person(here, "boss", ("home", MemoryRole.OWNER), role=ConsoleRole.ADMINISTRATOR)
    link = await here.noema.access.link_for(await boss.session(), base_url="http://x")
    secret = await here.noema.access.session_from_link(link.partition("link=")[2])
    by_link = Person(daemon=here, name="boss", secret=secret)
    async with by_link.browser() as browser, boss.browser() as fresh:
        refused = await browser.post("/v1/login-links")
        made = await fresh.post("/v1/login-links")

    assert refused.status_code == 403
    assert made.status_code == 201


async def test_guarantee_18_secrets_are_in_no_log_event_error_or_page(
    database: TestDatabase,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    async with daemon(database, data_dir=tmp_path) as running:
        texts, secrets_ = await _lived(running)
    # What the test's own client logs of its requests is none of the daemon's.
    ours = [r for r in caplog.records if not r.name.startswith(("httpx", "httpcore"))]
    texts += [r.getMessage() + str(r.__dict__) for r in ours]
    written = capsys.readouterr()
    texts += [written.out, written.err]

    for what, secret in secrets_.items():
        assert not [t for t in texts if secret in t], what


async def _lived(here: Daemon) -> tuple[list[str], dict[str, str]]:
    """Let people and scripts do what they do; return all that can be read, and the secrets."""
    amy = await person(here, "amy", ("home", MemoryRole.OWNER), role=ConsoleRole.ADMINISTRATOR)
    token = await amy.token("home", console_role=ConsoleRole.ADMINISTRATOR)
    started = await here.noema.access.account.start_totp(await amy.session())
    seed = started.secret
    secrets_ = {
        "password": PASSWORD, "wrong password": "canary-wrong-4d1e", "token": token, "seed": seed,
        "cookie": amy.secret, "boot token": here.token,
    }  # fmt: skip
    texts: list[str] = []
    async with AsyncExitStack() as stack:
        browser = await stack.enter_async_context(amy.browser())
        by_token = await stack.enter_async_context(script(here, token))
        stranger = await stack.enter_async_context(anonymous(here))
        await by_token.post("/v1/minds", json={"slug": "ada"})
        door = await stranger.get("/login")
        csrf = re.search(r'name="csrf_token" value="([^"]+)"', door.text)
        assert csrf is not None
        attempts = [
            {"name": "amy", "password": secrets_["wrong password"]},
            {"name": secrets_["wrong password"], "password": PASSWORD},
            {"token": token[:-1] + "x"},
        ]
        for attempt in attempts:
            answer = await stranger.post("/login", data={"csrf_token": csrf[1], **attempt})
            if attempt.get("name") != secrets_["wrong password"]:
                texts.append(answer.text)
        confirmed = await here.noema.access.account.confirm_totp(
            await amy.session(), pyotp.TOTP(seed).now(), origin=_HERE
        )
        browser.cookies.set(COOKIE, confirmed.secret)
        secrets_ |= {"renewed cookie": confirmed.secret, "code": confirmed.recovery_codes[0]}
        for path in (
            "/", "/minds/ada", "/events", "/system", "/replays", "/account", "/access", "/audit",
            "/access/users/amy", f"/v1/minds?x={token}", "/v1/minds/nobody", "/v1/events?after=x",
        ):  # fmt: skip
            texts.extend([(await browser.get(path)).text, (await by_token.get(path)).text])
        texts.append((await by_token.post("/v1/minds", content=token.encode())).text)
        texts.append((await by_token.post("/v1/minds", json={"slug": "x", "token": 1})).text)
    async with here.noema.db.reading() as tx:
        for table in (
            "cognitive_events", "audit_log", "users", "sessions", "api_tokens", "login_failures",
            "idempotency_keys", "known_devices", "login_links", "setup_links", "pending_logins",
            "recovery_codes",
        ):  # fmt: skip
            rows = await tx.conn.fetch(f"SELECT row_to_json(t)::text AS row FROM {table} t")
            texts += [r["row"] for r in rows]
    return texts, secrets_

"""Every route, with every role and kind of credential: who is let in is what the table says."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, Literal
from uuid import UUID

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from noema.auth.sessions import csrf_of
from noema.core.identity import ConsoleRole, MemoryRole
from noema.web.app import create
from noema.web.call import Endpoint
from noema.web.gate import Edge
from noema.web.routes import ROUTES
from tests.conftest import TestDatabase
from tests.people import COOKIE, Person, person, script
from tests.running import Daemon, daemon

Answer = Literal["let in", "role", "credential", "sign in", "form token"]
Kind = Literal["cookie", "token", "none"]

ORDER: Final = ("none", "observer", "operator", "administrator")
PARAMETERS: Final = {
    "slug": "nobody-here",
    "number": "1",
    "name": "nobody",
    "id": str(UUID(int=1)),
    "goal": str(UUID(int=1)),
    "event_id": str(UUID(int=1)),
}
# What a person who watches may change: their own way in, and what changes nothing in any mind.
OBSERVERS_MAY: Final = re.compile(
    r"/login|/setup|/logout|/theme|/namespace|/account(/|\Z)|/replays\Z|/v1/replays\Z"
    r"|.*/dry-run\Z|/v1/(login|account|sessions|tokens)(/|\Z)"
    # Of memory, what one may do is for one's role in the namespace to say.
    r"|/v1/mem/"
)
ADMINISTRATORS_ONLY: Final = re.compile(r"(/v1)?/(access|users|tenants|namespaces)(/|\Z)")
# Whatever is changed of models, and the page where a provider is made; a preview keeps nothing.
MODELS: Final = re.compile(r"/models(/|\Z)|/v1/llm(/|\Z)")
ADMINISTRATORS_CHANGE: Final = re.compile(r"(/models|/v1/llm)(?!/prompts/{name}/preview\Z)(/|\Z)")


def expected(endpoint: Endpoint, role: str, kind: Kind, *, with_form_token: bool = True) -> Answer:
    """What the door answers, from the words of the table and nothing of the gate's code."""
    is_read = endpoint.method == "GET"
    if endpoint.need == "public":
        return "let in"
    if kind == "none" or (kind == "token" and endpoint.need == "session"):
        return "sign in" if endpoint.is_page and is_read else "credential"
    if ORDER.index(role) < ORDER.index(endpoint.role.value):
        return "role"
    if kind == "cookie" and not is_read and not with_form_token:
        return "form token"
    return "let in"


def observed(answer: httpx.Response, text: str) -> Answer:
    """What the door answered; whatever a handler says means that one was let in."""
    if answer.status_code == 303 and answer.headers["location"].startswith("/login"):
        return "let in" if answer.request.url.path in _TO_LOGIN else "sign in"
    if answer.status_code == 403 and "This needs the role" in text:
        return "role"
    if answer.status_code == 403 and "form token is not valid" in text:
        return "form token"
    if answer.status_code == 401 and "Log in first" in text:
        return "credential"
    assert answer.status_code < 500, text
    return "let in"


_TO_LOGIN: Final = ("/logout", "/login/code")


def address(endpoint: Endpoint) -> str:
    return re.sub(r"{(\w+)}", lambda m: PARAMETERS.get(m[1], "x"), endpoint.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A daemon with somebody of every role, as a browser and as a script."""

    daemon: Daemon
    people: dict[str, Person]
    browsers: dict[str, httpx.AsyncClient]
    scripts: dict[str, httpx.AsyncClient]
    stranger: httpx.AsyncClient


@pytest.fixture
async def house(database: TestDatabase) -> AsyncIterator[House]:
    async with daemon(database) as running, AsyncExitStack() as stack:
        people: dict[str, Person] = {}
        scripts = {}
        for role in (ConsoleRole.OBSERVER, ConsoleRole.OPERATOR, ConsoleRole.ADMINISTRATOR):
            one = await person(running, f"p-{role}", ("home", MemoryRole.OWNER), role=role)
            people[role.value] = one
            token = await one.token("home", console_role=role)
            scripts[role.value] = await stack.enter_async_context(script(running, token))
        bare = await people["operator"].token("home", console_role=ConsoleRole.NONE)
        scripts["none"] = await stack.enter_async_context(script(running, bare))
        # A person has a console role; a browser that a token without one opened has not.
        secret = await running.noema.access.session_from_token(bare)
        people["none"] = Person(daemon=running, name="bare", secret=secret)
        browsers = {
            role: await stack.enter_async_context(one.browser()) for role, one in people.items()
        }
        stranger = await stack.enter_async_context(
            httpx.AsyncClient(base_url=running.url, timeout=30)
        )
        yield House(
            daemon=running, people=people, browsers=browsers, scripts=scripts, stranger=stranger
        )


def in_order() -> list[Endpoint]:
    """The table, with what ends the session that asks at its end."""
    return sorted(ROUTES, key=lambda e: e.path == "/logout")


async def asked(client: httpx.AsyncClient, endpoint: Endpoint) -> Answer:
    async with client.stream(endpoint.method, address(endpoint)) as answer:
        is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
        text = "" if is_stream else (await answer.aread()).decode()
        return observed(answer, text)


async def test_guarantee_16_an_undeclared_route_fails(house: House) -> None:
    edge = create(house.daemon.noema)
    assert isinstance(edge, Edge)
    app = edge._app
    assert isinstance(app, Starlette)
    declared = {(e.method, e.path) for e in ROUTES}
    assert len(declared) == len(ROUTES)

    mounted = [r.path for r in app.routes if isinstance(r, Mount)]
    routed = {
        (method, r.path)
        for r in app.routes
        if isinstance(r, Route)
        for method in r.methods or ()
        if method != "HEAD"
    }

    assert mounted == ["/static"]
    assert routed == declared
    assert all(isinstance(r, (Mount, Route)) for r in app.routes)


def test_guarantee_16_operators_look_at_models_and_administrators_change_them() -> None:
    found = [e for e in ROUTES if MODELS.match(e.path)]
    changes = [e for e in found if e.method != "GET" and ADMINISTRATORS_CHANGE.match(e.path)]
    kept = [e for e in found if e.method != "GET" and e not in changes]

    assert len(found) > 40
    assert len(changes) > 20
    assert all(e.role is ConsoleRole.ADMINISTRATOR and e.need == "write" for e in changes)
    assert {(e.path, e.role, e.need) for e in kept} == {
        (f"{root}/prompts/{{name}}/preview", ConsoleRole.OPERATOR, "read")
        for root in ("/models", "/v1/llm")
    }
    assert all(ORDER.index(e.role.value) >= 2 for e in found)
    assert {e.path for e in found if e.method == "GET" and ORDER.index(e.role.value) == 3} == {
        "/models/new"
    }


def test_guarantee_16_what_changes_something_needs_an_operator_and_people_an_administrator() -> (
    None
):
    for endpoint in ROUTES:
        rank = ORDER.index(endpoint.role.value)
        if ADMINISTRATORS_ONLY.match(endpoint.path):
            assert rank == 3, endpoint.path
        elif endpoint.method != "GET" and not OBSERVERS_MAY.match(endpoint.path):
            assert rank >= 2, (endpoint.method, endpoint.path)


@pytest.mark.parametrize("role", ORDER)
@pytest.mark.parametrize("kind", ["cookie", "token"])
async def test_guarantee_16_every_route_lets_in_whom_the_table_says(
    house: House, role: str, kind: Kind
) -> None:
    client = house.browsers[role] if kind == "cookie" else house.scripts[role]
    wrong = []
    for endpoint in in_order():
        if endpoint.need == "public":
            continue
        found = await asked(client, endpoint)
        if found != expected(endpoint, role, kind):
            wrong.append((endpoint.method, endpoint.path, found, expected(endpoint, role, kind)))

    assert wrong == []


async def test_guarantee_16_without_a_credential_only_public_routes_answer(house: House) -> None:
    wrong = []
    for endpoint in in_order():
        if endpoint.need == "public":
            continue
        found = await asked(house.stranger, endpoint)
        if found != expected(endpoint, "none", "none"):
            wrong.append((endpoint.method, endpoint.path, found))
    health = [
        (await house.stranger.get(p)).status_code for p in ("/healthz", "/readyz", "/metrics")
    ]
    public = {e.path for e in ROUTES if e.need == "public"}

    assert wrong == []
    assert health == [200, 200, 200]
    assert public <= {
        "/healthz", "/readyz", "/metrics", "/login", "/login/code", "/setup", "/theme",
    }  # fmt: skip


async def test_guarantee_14_every_change_by_cookie_needs_the_form_token_and_the_own_origin(
    house: House,
) -> None:
    admin = house.people["administrator"]
    bare = {COOKIE: admin.secret}
    foreign: list[dict[str, str]] = [
        {"Origin": "null"}, {"Origin": "https://evil.test"}, {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"}, {"Origin": f"{house.daemon.url}.evil.test"},
        {"Origin": house.daemon.url.replace("http", "ftp")},
    ]  # fmt: skip
    wrong = []
    async with httpx.AsyncClient(base_url=house.daemon.url, cookies=bare, timeout=30) as client:
        for endpoint in ROUTES:
            if endpoint.method == "GET":
                continue
            path = address(endpoint)
            if endpoint.need != "public":
                for token in ("", "x", csrf_of("another")):
                    answer = await client.request(
                        endpoint.method, path, headers={"X-CSRF-Token": token}
                    )
                    if answer.status_code != 403 or "form token" not in answer.text:
                        wrong.append((endpoint.method, path, token, answer.status_code))
            for headers in foreign:
                answer = await client.request(
                    endpoint.method, path, headers={"X-CSRF-Token": admin.csrf, **headers}
                )
                if answer.status_code != 403 or "another site" not in answer.text:
                    wrong.append((endpoint.method, path, str(headers), answer.status_code))
        still = await client.get("/v1/whoami")

    assert wrong == []
    assert still.status_code == 200


async def test_guarantee_14_a_bogus_token_beside_a_cookie_gives_no_exemption(house: House) -> None:
    admin = house.people["administrator"]
    async with httpx.AsyncClient(
        base_url=house.daemon.url, cookies={COOKIE: admin.secret}, timeout=30
    ) as client:
        for header in ("Bearer noema_bogus", "Bearer", "Bearer x", "Basic eDp5", ""):
            answer = await client.post(
                "/v1/minds", json={"slug": "mal"}, headers={"Authorization": header}
            )
            assert answer.status_code in (401, 403), header
        out = await client.post("/logout", headers={"Authorization": "Bearer noema_bogus"})

    assert out.status_code == 403
    with pytest.raises(Exception, match="mal"):
        await house.daemon.noema.minds.get("mal")


async def test_guarantee_14_json_as_text_plain_is_415(house: House) -> None:
    takes_json = [e for e in ROUTES if e.takes is not None and e.need != "public"]
    assert len(takes_json) > 8

    for client in (house.browsers["administrator"], house.scripts["administrator"]):
        for endpoint in takes_json:
            answer = await client.request(
                endpoint.method,
                address(endpoint),
                content=b"{}",
                headers={"Content-Type": "text/plain"},
            )
            # Where the path names nothing, that may be said first.
            assert answer.status_code in (415, 404), (endpoint.path, answer.text)
        made = await client.post(
            "/v1/minds", content=b'{"slug":"mal"}', headers={"Content-Type": "text/plain"}
        )
        assert made.status_code == 415


async def test_guarantee_17_a_token_in_a_url_is_refused_on_every_route(house: House) -> None:
    token = str(house.scripts["administrator"].headers["authorization"]).partition(" ")[2]
    for client in (house.stranger, house.browsers["administrator"]):
        for endpoint in ROUTES:
            path = f"{address(endpoint)}?token={token}"
            async with client.stream(endpoint.method, path) as answer:
                await answer.aread()
                assert answer.status_code == 400, endpoint.path
                assert token not in answer.text, endpoint.path


async def test_head_and_options_are_answered_without_a_body_or_a_stream(house: House) -> None:
    admin = house.browsers["administrator"]

    page = await admin.head("/system")
    stream = await admin.head("/v1/events/stream")
    nobody = await house.stranger.head("/v1/events/stream")
    minds = await house.stranger.options(
        "/v1/minds",
        headers={"Origin": "https://evil.test", "Access-Control-Request-Method": "POST"},
    )
    wrong = await admin.request("PUT", "/v1/minds")
    nowhere = await admin.options("/nowhere")

    assert (page.status_code, page.content) == (200, b"")
    assert (stream.status_code, stream.content) == (200, b"")
    assert nobody.status_code == 401
    assert minds.status_code == 204
    assert minds.headers["allow"] == "GET, HEAD, POST, OPTIONS"
    assert not any(h.startswith("access-control") for h in minds.headers)
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "GET, HEAD, POST, OPTIONS"
    assert nowhere.status_code == 404

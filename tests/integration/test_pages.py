"""The observatory over HTTP: pages, forms, the door in front of them, the live stream."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from html import unescape
from urllib.parse import quote
from uuid import UUID

import httpx
import pytest

from noema.events.model import decode_position, encode_position
from noema.web.gate import CSP
from noema.web.pages import ROUTES
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.running import Daemon, daemon

LINES = [
    "kernel: Out of memory: Killed process 4242 (indexer)",
    "sshd: Failed password for root from 203.0.113.9 port 22",
    "sshd: Failed password for root from 203.0.113.9 port 23",
    "cron: run-parts /etc/cron.hourly",
]
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)></textarea></title> & done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Browser:
    """A browser that was let in by link, and the daemon it looks at."""

    daemon: Daemon
    client: httpx.AsyncClient
    csrf: str

    async def get(self, path: str) -> httpx.Response:
        return await self.client.get(path)

    async def post(self, path: str, **form: str) -> httpx.Response:
        return await self.client.post(path, data={"csrf_token": self.csrf, **form})

    async def thinks(self, slug: str, lines: list[str]) -> None:
        await self.daemon.fed(slug, lines)
        await eventually(lambda: self._has_thought(slug))

    async def _has_thought(self, slug: str) -> bool:
        mind = await self.daemon.noema.minds.get(slug)
        return mind.cycles > 0 and await self.daemon.is_idle(slug)


@asynccontextmanager
async def anonymous(running: Daemon) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=running.url, timeout=30) as client:
        yield client


async def door_token(client: httpx.AsyncClient) -> str:
    """Open the sign-in page and return the token that its form carries."""
    csrf = re.search(r'name="csrf-token" content="([^"]+)"', (await client.get("/login")).text)
    assert csrf is not None
    return csrf[1]


@pytest.fixture
async def browser(database: TestDatabase) -> AsyncIterator[Browser]:
    async with daemon(database) as running, anonymous(running) as client:
        link = await running.noema.access.new_link(base_url=running.url)
        let_in = await client.get(link)
        assert (let_in.status_code, let_in.headers["location"]) == (303, "/")
        page = await client.get("/")
        csrf = re.search(r'name="csrf-token" content="([^"]+)"', page.text)
        assert csrf is not None
        yield Browser(daemon=running, client=client, csrf=csrf[1])


@pytest.fixture
async def busy(browser: Browser) -> Browser:
    """A browser that looks at a mind with a history."""
    made = await browser.post("/minds", slug="ada", name="Ada", namespace="home")
    assert (made.status_code, made.headers["location"]) == (303, "/minds/ada")
    await browser.thinks("ada", LINES)
    await browser.post("/minds/ada/goals", text="failures of root", priority="0.7")
    await browser.post("/minds/ada/say", text="What about root?")

    async def has_answered() -> bool:
        mind = await browser.daemon.noema.minds.get("ada")
        said = await browser.daemon.noema.minds.transcript(mind)
        return any(s.in_reply_to for s in said) and await browser.daemon.is_idle("ada")

    await eventually(has_answered)
    return browser


async def some_ids(browser: Browser) -> tuple[int, str, str]:
    """Return a cycle that admitted something, its thought and the candidate behind it."""
    events = await browser.daemon.noema.events.before(type_="thought.admitted", limit=1)
    assert events[0].cycle_id is not None
    numbers = await browser.daemon.noema.pages.cycle_numbers([events[0].cycle_id])
    return numbers[events[0].cycle_id], str(events[0].id), str(events[0].data["candidate"])


def assert_headers(answer: httpx.Response) -> None:
    assert answer.headers["content-security-policy"] == CSP
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "same-origin"


class TestPages:
    async def test_every_page_shows_a_mind_with_a_history(self, busy: Browser) -> None:
        number, thought, candidate = await some_ids(busy)
        run = await busy.post("/replays", mind="ada")
        assert run.status_code == 303
        paths = [
            "/", "/minds/ada", "/minds/ada/cycles", "/minds/ada/cycles?trigger=stimulus",
            "/minds/ada/cycles?after=0", "/minds/ada/cycles?before=2",
            f"/minds/ada/cycles/{number}", f"/minds/ada/thoughts/{thought}",
            f"/minds/ada/thoughts/{candidate}", "/minds/ada/conversation", "/minds/ada/tuning",
            "/events", "/events?mind=ada&type=thought.admitted&q=memory", f"/events/{thought}",
            "/replays", run.headers["location"], "/system", "/palette", "/palette?q=ada",
            f"/palette?q={thought[-8:]}", "/palette?q=1",
        ]  # fmt: skip

        for path in paths:
            answer = await busy.get(path)

            assert answer.status_code == 200, path
            assert answer.text.startswith("<!doctype html>"), path
            assert "style=" not in answer.text, path
            assert_headers(answer)

    async def test_every_page_has_something_to_say_about_an_empty_mind(
        self, browser: Browser
    ) -> None:
        no_mind = await browser.get("/")
        await browser.daemon.noema.minds.create(slug="ada", actor="test")
        await browser.daemon.noema.minds.set_mode("ada", "paused", actor="test")

        assert "No mind yet" in no_mind.text
        for path, said in (
            ("/", "ada"),
            ("/minds/ada", "It has not thought yet"),
            ("/minds/ada/cycles", "No cycles yet"),
            ("/minds/ada/conversation", "Nobody has said anything yet"),
            ("/minds/ada/tuning", "Change a weight"),
            ("/events?q=zebra", "No event matches"),
            ("/replays", "Nothing has been replayed yet"),
            ("/palette?q=zebra", "Memories about zebra"),
        ):
            answer = await browser.get(path)
            assert answer.status_code == 200, path
            assert said in answer.text, path

    async def test_the_json_that_a_page_links_to_is_there(self, busy: Browser) -> None:
        number, thought, _ = await some_ids(busy)

        for path in (
            "/", "/minds/ada", "/minds/ada/cycles", f"/minds/ada/cycles/{number}",
            f"/minds/ada/thoughts/{thought}", "/minds/ada/conversation", "/minds/ada/tuning",
            "/events", "/events?mind=ada&q=root", f"/events/{thought}", "/replays", "/system",
        ):  # fmt: skip
            page = await busy.get(path)
            links = re.findall(r'href="(/v1/[^"]+)">\.json', page.text)
            assert links, path
            answer = await busy.get(unescape(links[0]))
            assert answer.status_code == 200, (path, links[0])
            assert answer.json()

    @pytest.mark.parametrize(
        "path",
        [
            "/nothing", "/minds/nobody", "/minds/nobody/cycles", "/minds/ada/cycles/999999",
            "/minds/ada/cycles/99999999999999999", "/events/00000000-0000-7000-8000-000000000000",
            "/minds/ada/thoughts/00000000-0000-7000-8000-000000000000",
            "/replays/00000000-0000-7000-8000-000000000000",
        ],
    )  # fmt: skip
    async def test_what_is_not_there_is_a_page_that_says_so(self, busy: Browser, path: str) -> None:
        answer = await busy.get(path)

        assert answer.status_code in (400, 404)
        assert "error-page" in answer.text
        assert "Sign out" in answer.text
        assert_headers(answer)

    async def test_a_thought_of_another_mind_is_not_shown_under_this_one(
        self, busy: Browser
    ) -> None:
        _, thought, _ = await some_ids(busy)
        await busy.post("/minds", slug="bob", name="", namespace="home")

        assert (await busy.get(f"/minds/bob/thoughts/{thought}")).status_code == 404

    async def test_the_flip_panel_answers_for_the_candidate_that_was_asked_about(
        self, busy: Browser
    ) -> None:
        events = await busy.daemon.noema.events.before(type_="candidate.scored", limit=50)
        loser = next(e for e in events if e.data["rank"] == 2)
        assert loser.cycle_id is not None
        number = (await busy.daemon.noema.pages.cycle_numbers([loser.cycle_id]))[loser.cycle_id]

        answer = await busy.client.get(
            f"/minds/ada/cycles/{number}?instead={loser.id}", headers={"X-Noema-Fragment": "#flip"}
        )

        assert answer.status_code == 200
        assert answer.text.startswith('<div class="flip" id="flip">')
        assert f'value="{loser.id}" selected' in answer.text

    async def test_what_was_redacted_is_marked_and_not_shown(self, busy: Browser) -> None:
        number, thought, candidate = await some_ids(busy)
        text = (await busy.daemon.noema.events.get_many([UUID(thought)]))[0].content["text"]
        async with busy.daemon.noema.db.transaction() as tx:
            for event in await busy.daemon.noema.events.before(limit=500):
                await tx.conn.execute(
                    "SELECT noema_redact($1, 'asked for', 'test', 'test')", event.id
                )

        for path in (
            f"/minds/ada/cycles/{number}", f"/minds/ada/thoughts/{thought}",
            f"/minds/ada/thoughts/{candidate}", f"/events/{thought}", "/events",
            "/minds/ada/cycles", "/minds/ada", "/minds/ada/conversation", "/",
        ):  # fmt: skip
            answer = await busy.get(path)
            assert answer.status_code == 200, path
            assert text[:60] not in unescape(answer.text), path


class TestForms:
    async def test_what_was_typed_stays_when_it_cannot_be_used(self, busy: Browser) -> None:
        for path, form, kept, said in (
            ("/minds", {"slug": "Ada!", "name": "My Ada", "namespace": "home"}, "My Ada", "slug"),
            ("/minds/ada/goals", {"text": "typed", "priority": "much"}, "typed", "not a number"),
            ("/minds/ada/say", {"text": "   "}, "   ", "write something"),
            ("/minds/ada/mode", {"mode": "manic"}, "", "No mode"),
            ("/replays", {"mind": "ada", "from": "7000"}, "7000", "has cycles"),
            ("/replays", {"mind": "ada", "from": "x"}, "x", "whole number"),
            ("/minds/ada/tuning", {"weight.novelty": "a lot"}, "a lot", "cannot be read"),
            ("/minds/ada/tuning", {"weight.novelty": "11"}, "11", "from 0 to 10"),
            ("/minds/ada/tuning/dry-run", {"capacity": "x1"}, "x1", "whole number"),
        ):
            answer = await busy.post(path, **form)

            assert answer.status_code == 400, path
            assert kept in answer.text, path
            assert said in unescape(answer.text), path
            assert "error-page" not in answer.text, path

    async def test_an_utterance_too_long_comes_back_whole(self, busy: Browser) -> None:
        text = "long " * 14_000

        answer = await busy.post("/minds/ada/say", text=text, next="/minds/ada/conversation")

        assert answer.status_code == 400
        assert text.strip() in answer.text
        assert "Conversation with Ada" in answer.text

    async def test_a_slug_is_given_once(self, busy: Browser) -> None:
        answer = await busy.post("/minds", slug="ada", name="Another", namespace="home")

        assert answer.status_code == 409
        assert "Another" in answer.text

    async def test_a_mind_is_paused_stepped_and_resumed(self, busy: Browser) -> None:
        await busy.post("/minds/ada/pause")
        paused = await busy.get("/minds/ada")
        before = (await busy.daemon.noema.minds.get("ada")).cycles
        await busy.post("/minds/ada/step")

        async def has_stepped() -> bool:
            return (await busy.daemon.noema.minds.get("ada")).cycles > before

        await eventually(has_stepped)
        resumed = await busy.post("/minds/ada/resume")
        await busy.post("/minds/ada/mode", mode="focused")

        assert "Resume" in paused.text
        assert resumed.status_code == 303
        assert (await busy.daemon.noema.minds.get("ada")).mode == "focused"

    async def test_a_goal_is_closed(self, busy: Browser) -> None:
        page = await busy.get("/minds/ada")
        close = re.search(r"/minds/ada/goals/[0-9a-f-]+/close", page.text)
        assert close is not None

        answer = await busy.post(close[0])

        assert answer.status_code == 303
        assert "failures of root" not in (await busy.get("/minds/ada")).text

    async def test_a_dry_run_tells_what_saving_would_have_changed(self, busy: Browser) -> None:
        form = {"csrf_token": busy.csrf, "threshold": "5", "last": "50"}

        piece = await busy.client.post(
            "/minds/ada/tuning/dry-run", data=form, headers={"X-Noema-Fragment": "#dry-run"}
        )
        page = await busy.post("/minds/ada/tuning/dry-run", threshold="5", last="50")

        assert piece.text.startswith('<div class="dry-run"')
        assert "would have been different" in piece.text
        assert "Save as version 2" in piece.text
        assert page.status_code == 200
        assert 'name="threshold" value="5"' in page.text

    async def test_two_who_save_at_once_do_not_overwrite_each_other(self, busy: Browser) -> None:
        first = await busy.post(
            "/minds/ada/tuning", **{"weight.goal": "1.5", "note": "mine", "base_version": "1"}
        )
        second = await busy.post(
            "/minds/ada/tuning", **{"weight.goal": "1.7", "note": "yours", "base_version": "1"}
        )

        assert first.status_code == 303
        assert second.status_code == 409
        assert "was saved meanwhile" in second.text
        assert 'value="1.7"' in second.text
        assert 'name="base_version" value="2"' in second.text

    @pytest.mark.parametrize(
        "bad",
        [
            "//evil.test",
            "https://evil.test",
            "/\\evil.test",
            "\\\\evil.test",
            "/\tevil",
            "x",
            "/%0a\n",
        ],
    )
    async def test_next_leads_nowhere_but_to_this_site(self, busy: Browser, bad: str) -> None:
        said = await busy.post("/minds/ada/say", text="hello", next=bad)
        theme = await busy.post("/theme", theme="dark", next=bad)

        assert said.headers["location"] == "/minds/ada"
        assert theme.headers["location"] == "/"
        async with anonymous(busy.daemon) as client:
            csrf = await door_token(client)
            token = {"csrf_token": csrf, "token": busy.daemon.token, "next": bad}
            assert (await client.post("/login", data=token)).headers["location"] == "/"

    async def test_next_leads_back_to_the_page_of_the_form(self, busy: Browser) -> None:
        path = "/minds/ada/conversation?last=400"

        answer = await busy.post("/minds/ada/say", text="hello", next=path)

        assert answer.headers["location"] == path

    async def test_the_theme_is_kept_in_a_cookie(self, browser: Browser) -> None:
        answer = await browser.post("/theme", theme="dark", next="/events")

        cookie = answer.headers["set-cookie"]
        assert "noema_theme=dark" in cookie
        assert "SameSite=Lax" in cookie
        assert "Max-Age=31536000" in cookie
        assert '<html lang="en" data-theme="dark">' in (await browser.get("/events")).text


class TestDoor:
    async def test_without_a_session_every_page_leads_to_the_sign_in(
        self, browser: Browser
    ) -> None:
        async with anonymous(browser.daemon) as client:
            for route in ROUTES:
                if route.need == "public":
                    continue
                path = re.sub(r"{\w+}", "x", route.path)
                answer = await client.request(route.method, path)
                if route.method == "GET":
                    assert answer.status_code == 303, path
                    assert answer.headers["location"].split("?")[0] == "/login"
                else:
                    assert answer.status_code == 401, path
                assert_headers(answer)
            deep = await client.get("/minds/ada?x=1")
            root = await client.get("/")
            sign_in = await client.get(deep.headers["location"])
            stream_ = await client.get("/v1/events/stream?live=minds")

        assert root.headers["location"] == "/login"
        assert 'name="next" value="/minds/ada?x=1"' in sign_in.text
        assert stream_.status_code == 401

    async def test_a_link_lets_one_browser_in_once(self, browser: Browser) -> None:
        link = await browser.daemon.noema.access.new_link(base_url=browser.daemon.url)
        async with anonymous(browser.daemon) as one, anonymous(browser.daemon) as two:
            previewed = await two.head(link)
            first = await one.get(link)
            second = await two.get(link)

        assert previewed.status_code == 200
        assert first.status_code == 303
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert second.status_code == 401
        assert "used before" in second.text
        assert "set-cookie" not in second.headers

    async def test_a_token_is_taken_by_the_form_and_a_wrong_one_is_not(
        self, browser: Browser
    ) -> None:
        async with anonymous(browser.daemon) as client:
            form = {"csrf_token": await door_token(client), "next": "/system"}
            wrong = await client.post("/login", data=form | {"token": "noema_wrong"})
            right = await client.post("/login", data=form | {"token": browser.daemon.token})
            page = await client.get("/system")

        assert wrong.status_code == 401
        assert 'name="next" value="/system"' in wrong.text
        assert "noema_wrong" not in wrong.text
        assert (right.status_code, right.headers["location"]) == (303, "/system")
        assert page.status_code == 200

    async def test_a_form_without_its_token_is_refused(self, browser: Browser) -> None:
        missing = await browser.client.post("/minds", data={"slug": "ada"})
        wrong = await browser.client.post("/minds", data={"slug": "ada", "csrf_token": "x"})

        assert (missing.status_code, wrong.status_code) == (403, 403)
        assert "error-page" in missing.text
        assert await browser.daemon.noema.minds.list_() == []

    async def test_a_form_of_another_site_is_refused(self, browser: Browser) -> None:
        form = {"slug": "ada", "csrf_token": browser.csrf}
        for headers in ({"Origin": "https://evil.test"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = await browser.client.post("/minds", data=form, headers=headers)
            login = await browser.client.post(
                "/login", data={"token": browser.daemon.token}, headers=headers
            )

            assert answer.status_code == 403
            assert login.status_code == 403

    async def test_a_bogus_token_beside_a_good_cookie_is_refused(self, browser: Browser) -> None:
        headers = {"Authorization": "Bearer noema_bogus"}

        answer = await browser.client.get("/v1/minds", headers=headers)

        assert answer.status_code == 401
        assert (await browser.client.get("/v1/minds")).status_code == 200

    async def test_signing_out_ends_the_session_and_its_streams_at_once(
        self, browser: Browser
    ) -> None:
        urls = ("/v1/events/stream?live=minds", "/v1/events/stream")
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            reading = [group.create_task(read_to_end(browser.client, url)) for url in urls]
            await eventually(lambda: is_watched(browser.daemon, len(urls)))
            answer = await browser.post("/logout")

        assert answer.headers["location"] == "/login"
        for task in reading:
            assert "session" in task.result()[-1].data
            assert task.result()[-1].event == "end"
        assert (await browser.get("/")).status_code == 303


async def is_watched(running: Daemon, by: int) -> bool:
    return running.noema.feed.watchers == by


class TestInert:
    async def test_text_from_outside_never_becomes_markup(self, busy: Browser) -> None:
        await busy.daemon.noema.minds.rename("ada", EVIL, actor="user:t")
        await busy.thinks("ada", [f"{EVIL} rare {EVIL}"])
        await busy.post("/minds/ada/say", text=f"{EVIL} spoken")
        await busy.post("/minds/ada/goals", text=EVIL, priority="0.5")
        await busy.post("/minds/ada/tuning", **{"weight.goal": "1.3", "note": EVIL})
        await busy.post("/minds/ada/mode", mode="focused")

        async def is_idle() -> bool:
            return await busy.daemon.is_idle("ada")

        await eventually(is_idle)
        number, thought, _ = await some_ids(busy)

        paths = [
            "/", "/minds/ada", "/minds/ada/cycles", f"/minds/ada/cycles/{number}",
            f"/minds/ada/thoughts/{thought}", "/minds/ada/conversation", "/minds/ada/tuning",
            "/events", f"/events/{thought}", f"/events?q={quote(EVIL)}",
            f"/palette?q={quote(EVIL)}", f"/minds/ada/cycles?trigger={quote(EVIL)}",
            f"/login?next=/{quote(EVIL)}", f"/minds/{quote(EVIL, safe='')}",
        ]  # fmt: skip
        answers = [await busy.get(path) for path in paths]
        answers.append(await busy.post("/minds/ada/goals", text=EVIL, priority=EVIL))
        answers.append(await busy.post("/minds/ada/tuning", **{"weight.goal": EVIL}))
        answers.append(await busy.post("/minds", slug=EVIL, name=EVIL, namespace=EVIL))
        for answer in answers:
            assert answer.status_code in (200, 303, 400, 404), answer.url
            assert_inert(answer.text)

    async def test_text_from_outside_is_inert_in_fragments_too(self, busy: Browser) -> None:
        await busy.daemon.noema.minds.rename("ada", EVIL, actor="user:t")
        at = encode_position(await busy.daemon.noema.events.head())
        await busy.thinks("ada", [f"{EVIL} rare {EVIL}"])
        await busy.post("/minds/ada/say", text=f"{EVIL} spoken")

        frames = await read_until(
            busy.client,
            f"/v1/events/stream?{ALL_OF_ADA}&after={at}",
            lambda seen: any("from-mind" in f.html for f in seen),
        )

        for one in frames:
            assert_inert(one.html)

    async def test_control_characters_and_halves_of_pairs_are_shown_not_sent(
        self, busy: Browser
    ) -> None:
        item = {"items": [{"text": "odd \x00 \x1b[31m \ud800 end"}]}
        body = json.dumps(item).encode()
        sent = await busy.daemon.client.post(
            "/v1/minds/ada/stimuli", content=body, headers={"Content-Type": "application/json"}
        )
        assert sent.status_code == 202, sent.text

        page = await busy.get("/events?type=stimulus.received")

        assert "odd ␀ ␛[31m \\ud800 end" in page.text


def assert_inert(html: str) -> None:
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert "\"'><img" not in html
    assert html.count("</textarea>") == html.count("<textarea")
    assert html.count("</title>") == html.count("<title")


# -- the stream ------------------------------------------------------------------------------

ALL_OF_ADA = "live=mind:ada&live=cycles:ada&live=conversation:ada&live=events&live=minds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One event as a browser would dispatch it; `id` is what came with it, if anything."""

    event: str
    data: str
    id: str | None

    @property
    def piece(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.data) if self.event == "fragment" else {}
        return found

    @property
    def html(self) -> str:
        return self.piece.get("html", "")

    @property
    def key(self) -> str:
        """Which row it is."""
        found = re.search(r'id="((?:cycle|event|msg)-[^"]+)"', self.html)
        return found[1] if found else ""


async def dispatched(answer: httpx.Response) -> AsyncIterator[Frame]:
    """Yield the events of a stream, parsed as the standard says: every line break counts."""
    event, data, id_ = "message", [], None
    buffer = ""
    async for text in answer.aiter_text():
        buffer = (buffer + text).replace("\r\n", "\n").replace("\r", "\n")
        *lines, buffer = buffer.split("\n")
        for line in lines:
            if line:
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                assert name in ("", "retry", "id", "event", "data"), line
                event = value if name == "event" else event
                id_ = value if name == "id" else id_
                if name == "data":
                    data.append(value)
            else:
                if data:
                    yield Frame(event=event, data="\n".join(data), id=id_)
                event, data, id_ = "message", [], None


async def read_to_end(client: httpx.AsyncClient, url: str) -> list[Frame]:
    async with client.stream("GET", url) as answer:
        return [f async for f in dispatched(answer)]


async def read_until(
    client: httpx.AsyncClient,
    url: str,
    enough: Callable[[list[Frame]], bool],
    **headers: str,
) -> list[Frame]:
    seen: list[Frame] = []
    async with asyncio.timeout(15), client.stream("GET", url, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for one in dispatched(answer):
            seen.append(one)
            if enough(seen):
                return seen
    raise AssertionError(f"the stream ended after {seen}")


def has_rows(count: int, seen: list[Frame]) -> bool:
    return sum(1 for f in seen if f.key) == count


def caught_up(seen: list[Frame]) -> bool:
    return seen[-1].event == "caught-up"


class TestStream:
    async def test_without_topics_it_is_the_log_as_json(self, busy: Browser) -> None:
        frames = await read_until(
            busy.client, "/v1/events/stream?after=p0", lambda seen: len(seen) == 3
        )

        assert [f.event for f in frames] == ["event"] * 3
        assert json.loads(frames[0].data)["position"] == frames[0].id

    async def test_what_came_since_the_page_was_read_follows_and_then_it_is_caught_up(
        self, busy: Browser
    ) -> None:
        page = await busy.get("/minds/ada")
        at = re.search(r'data-position="(\w+)"', page.text)
        assert at is not None
        await busy.thinks("ada", ["disk: a line that never was before"])

        frames = await read_until(
            busy.client, f"/v1/events/stream?{ALL_OF_ADA}&after={at[1]}", caught_up
        )

        targets = {f.piece["target"] for f in frames[:-1]}
        assert {
            "#cycles-ada",
            "#events-rows",
            "#vitals-ada",
            "#workspace-ada",
            "#mind-ada",
        } <= targets
        cycles = [f.key for f in frames if f.key.startswith("cycle-")]
        assert len(cycles) == len(set(cycles)) > 0

    async def test_an_id_is_the_position_of_an_event_and_only_what_is_of_the_log_has_one(
        self, busy: Browser
    ) -> None:
        await busy.post("/replays", mind="ada")
        url = f"/v1/events/stream?{ALL_OF_ADA}&live=system&live=replays&after=p1"

        frames = await read_until(
            busy.client, url, lambda seen: any(f.piece.get("topic") == "system" for f in seen)
        )

        events = await busy.daemon.noema.events.before(limit=500)
        positions = {encode_position(e.seq): str(e.id) for e in events}
        for one in frames:
            of_log = one.event == "fragment" and one.piece["topic"] not in ("system", "replays")
            assert (one.id is not None) == of_log, one
            if one.id is not None:
                assert one.id in positions
        rows = [f for f in frames if f.key.startswith("event-")]
        alone = await read_until(busy.client, "/v1/events/stream?live=events&after=p1", caught_up)
        assert rows
        for one in alone[:-1]:
            assert one.id is not None
            assert one.key == f"event-{positions[one.id]}"

    @pytest.mark.parametrize("topics", [ALL_OF_ADA, "live=events", "live=cycles:ada&live=events"])
    async def test_a_stream_cut_anywhere_goes_on_without_loss_or_repetition(
        self, busy: Browser, topics: str
    ) -> None:
        url = f"/v1/events/stream?{topics}&after=p1"
        whole = [f for f in await read_until(busy.client, url, caught_up) if f.key]

        for cut in range(1, len(whole), 5):
            first = await read_until(busy.client, url, partial(has_rows, cut))
            got = [f for f in first if f.key]
            last = next(f.id for f in reversed(first) if f.id)
            rest = await read_until(busy.client, url, caught_up, **{"Last-Event-ID": last})
            got.extend(f for f in rest if f.key)

            # An event with several fragments is sent again whole, if it was cut in two.
            keys = [(f.piece["topic"], f.piece["mode"], f.key) for f in got]
            wanted = [(f.piece["topic"], f.piece["mode"], f.key) for f in whole]
            assert list(dict.fromkeys(keys)) == wanted
            if topics == "live=events":
                assert keys == wanted

    async def test_line_breaks_in_content_never_split_an_event(self, busy: Browser) -> None:
        text = "first\r\nid: p1\nevent: end\rdata: fake\u2028\u2029\n\ndata: x"
        at = encode_position(await busy.daemon.noema.events.head())
        await busy.thinks("ada", [text])

        frames = await read_until(
            busy.client, f"/v1/events/stream?{ALL_OF_ADA}&after={at}", caught_up
        )
        plain = await read_until(busy.client, f"/v1/events/stream?after={at}", bool)

        assert {f.event for f in frames} == {"fragment", "caught-up"}
        assert "p1" not in {f.id for f in frames}
        assert json.loads(plain[0].data)["payload"]["text"] == text

    async def test_who_is_far_behind_gets_the_present_state_instead_of_everything(
        self, busy: Browser, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("noema.web.pages.tail.FAR_BEHIND", 5)

        frames = await read_until(
            busy.client, f"/v1/events/stream?{ALL_OF_ADA}&after=p1", caught_up
        )

        modes = {f.piece["target"]: f.piece["mode"] for f in frames[:-1]}
        assert modes["#cycles-ada"] == modes["#events-rows"] == modes["#messages"] == "patch"
        assert modes["#vitals-ada"] == "replace"
        head = await busy.daemon.noema.events.head()
        assert {f.id for f in frames[:-1]} == {encode_position(head)}
        assert len(frames) < 10

    async def test_a_filtered_tail_sends_what_the_filter_holds(self, busy: Browser) -> None:
        topic = quote("events?mind=ada&type=stimulus.received&q=cron")

        frames = await read_until(
            busy.client, f"/v1/events/stream?live={topic}&after=p1", caught_up
        )

        (row,) = frames[:-1]
        assert "cron: run-parts" in row.html
        assert row.piece["topic"] == "events?mind=ada&type=stimulus.received&q=cron"

    async def test_an_answer_takes_the_waiting_mark_off_the_question(self, busy: Browser) -> None:
        at = encode_position(await busy.daemon.noema.events.head())
        await busy.post("/minds/ada/say", text="And cron?")

        frames = await read_until(
            busy.client,
            f"/v1/events/stream?live=conversation:ada&after={at}",
            lambda seen: "from-mind" in seen[-1].html,
        )

        asked, patched = (f for f in frames if "And cron?" in f.html and "from-person" in f.html)
        assert asked.piece["mode"] == "append"
        assert "waits" in asked.html
        assert patched.piece["mode"] == "patch"
        assert "waits" not in patched.html
        positions = [decode_position(f.id) for f in frames if f.id]
        assert positions == sorted(positions)

    async def test_a_burst_is_shown_as_a_few_states_not_one_per_event(self, busy: Browser) -> None:
        at = encode_position(await busy.daemon.noema.events.head())
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(
                read_until(
                    busy.client,
                    f"/v1/events/stream?live=mind:ada&live=events&after={at}",
                    lambda seen: sum(1 for f in seen if "stimulus.received" in f.html) >= 300,
                )
            )
            for n in range(30):
                await busy.daemon.fed("ada", [f"nginx: GET /page{n} 200 {i}" for i in range(10)])

        vitals = [f for f in reading.result() if f.piece.get("target") == "#vitals-ada"]
        assert 1 <= len(vitals) < 60

    @pytest.mark.parametrize("topic", ["nothing", "mind:", "events?colour=red", "events?from=soon"])
    async def test_a_topic_that_there_is_not_is_refused(self, busy: Browser, topic: str) -> None:
        answer = await busy.client.get(f"/v1/events/stream?live={quote(topic)}")

        assert answer.status_code == 400
        assert answer.json()["code"] == "invalid"

    async def test_the_stream_of_a_mind_that_is_not_there_is_404(self, busy: Browser) -> None:
        answer = await busy.client.get("/v1/events/stream?live=mind:nobody")

        assert answer.status_code == 404

"""The pages of governed memory over HTTP: what they show, what their forms do, and to whom."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from html import unescape
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx
import pytest

from noema.core.identity import ConsoleRole, MemoryRole
from noema.memory.model import ConflictCase
from noema.web.gate import CSP
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.people import Person, namespaces, person
from tests.running import Daemon, daemon

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)></textarea></title> & done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Somebody at the pages, and the daemon they look at."""

    daemon: Daemon
    person: Person
    client: httpx.AsyncClient

    async def get(self, path: str) -> httpx.Response:
        return await self.client.get(path)

    async def post(self, path: str, **form: str) -> httpx.Response:
        return await self.client.post(path, data={"csrf_token": self.person.csrf, **form})

    async def wrote(self, text: str, **more: Any) -> str:
        """Write a memory through the API, as the same person; return its id."""
        answer = await self.client.post("/v1/mem/write", json={"text": text, **more})
        assert answer.status_code == 200, answer.text
        id_: str = answer.json()["items"][0]["id"]
        return id_

    async def said(self, *turns: tuple[str, str]) -> list[str]:
        """Write a transcript; return the ids of its turns."""
        messages = [{"speaker": speaker, "text": text} for speaker, text in turns]
        answer = await self.client.post("/v1/mem/write", json={"messages": messages})
        assert answer.status_code == 200, answer.text
        return [item["id"] for item in answer.json()["items"]]

    async def page(self, path: str) -> str:
        """Return what the page says, without its markup."""
        answer = await self.get(path)
        assert answer.status_code == 200, answer.text
        return words(answer.text)


def words(html: str) -> str:
    """Return the text of the page's main part, in single spaces."""
    main = html.partition("<main")[2].partition("</main>")[0]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", f"<main{main}")).split())


@pytest.fixture
async def house(database: TestDatabase) -> AsyncIterator["House"]:
    async with daemon(database) as running, AsyncExitStack() as stack:
        await namespaces(running, "acme", "acme/eng", "acme/sales", "other")
        yield House(daemon=running, stack=stack)


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A daemon to which people come."""

    daemon: Daemon
    stack: AsyncExitStack

    async def seat(
        self,
        name: str,
        namespace: str,
        memory_role: MemoryRole = MemoryRole.OWNER,
        role: ConsoleRole = ConsoleRole.OPERATOR,
    ) -> Seat:
        one = await person(self.daemon, name, (namespace, memory_role), role=role)
        client = await self.stack.enter_async_context(one.browser())
        return Seat(daemon=self.daemon, person=one, client=client)


@pytest.fixture
async def ada(house: House) -> Seat:
    """The owner of acme/eng."""
    return await house.seat("ada", "acme/eng")


class TestMemories:
    async def test_every_page_shows_what_is_there(self, ada: Seat) -> None:
        first = await ada.wrote("The pump runs at 3 bar.", source="handbook")
        second = await ada.wrote("The pump runs at 4 bar.", supersedes=first)
        turns = await ada.said(("Ada", "Is the pump on?"), ("Ben", "It is."))

        for path in (
            "/memories", "/memories?q=pump", "/memories?kind=fact&kind=episode",
            "/memories?q=pump&status=all&k=5&explain=0", "/memories?status=disputed",
            f"/memories/{first}", f"/memories/{second}", f"/memories/{turns[0]}", "/graph",
            f"/graph?centre={second}&kind=fact&limit=20", "/conflicts", "/conflicts?open=1",
            "/shares", "/shares?ended=1", "/memory-policy",
        ):  # fmt: skip
            answer = await ada.get(path)

            assert answer.status_code == 200, f"{path}: {answer.text}"
            assert answer.text.startswith("<!doctype html>"), path
            assert "style=" not in answer.text, path
            assert answer.headers["content-security-policy"] == CSP
            assert '<a href="/memories" data-key="y" aria-current="page">' in answer.text, path

    async def test_an_empty_namespace_is_told_what_to_do(self, ada: Seat) -> None:
        text = await ada.page("/memories")

        assert "Nothing is remembered here yet" in text
        assert "noemactl mem write" in text
        assert "Nothing to draw yet" in await ada.page("/graph")
        assert "No contradiction found" in await ada.page("/conflicts")
        assert "Nothing is shared" in await ada.page("/shares")

    async def test_a_memory_is_written_once_and_is_the_writers_own_word(self, ada: Seat) -> None:
        written = await ada.post(
            "/memories",
            text="The tide turns at six.",
            kind="semantic",
            source="almanac",
            importance="0.9",
            event_time="2026-01-31T09:00",
        )
        again = await ada.post("/memories", text="The  TIDE turns at six.")

        assert written.status_code == 303, written.text
        path, _, query = written.headers["location"].partition("?")
        assert (again.status_code, again.headers["location"]) == (303, f"{path}?did=deduplicated")
        assert query == "did=stored"
        page = await ada.page(written.headers["location"])
        assert "Stored." in page
        for shown in ("semantic", "almanac", "manual trust 50", "Happened 31 Jan 09:00:00"):
            assert shown in page
        assert "nothing new was written" in await ada.page(again.headers["location"])

    @pytest.mark.parametrize(
        ("form", "complaint"),
        [
            ({"text": "\u200b"}, "nothing but control and invisible characters"),
            ({"text": "x", "importance": "2"}, "Importance is from 0 to 1"),
            ({"text": "x", "importance": "much"}, "importance is not a number"),
            ({"text": "x", "event_time": "yesterday"}, "event_time is a time such as"),
            ({"text": "x", "kind": "rumour"}, "A memory is one of fact"),
            ({"text": ""}, "text is empty"),
        ],
    )
    async def test_what_cannot_be_a_memory_comes_back_with_the_reason(
        self, ada: Seat, form: dict[str, str], complaint: str
    ) -> None:
        answer = await ada.post("/memories", **({"source": "kept as typed"} | form))

        assert answer.status_code == 400
        assert complaint in words(answer.text)
        assert 'value="kept as typed"' in answer.text

    async def test_the_newest_come_page_by_page(self, ada: Seat) -> None:
        for i in range(52):
            await ada.wrote(f"Rack {i} holds {i} machines.")

        first = await ada.get("/memories?kind=fact")
        older = re.search(r'data-older rel="prev" href="([^"]+)"', first.text)
        assert older is not None
        second = await ada.page(unescape(older[1]))

        assert words(first.text).count("Rack ") == 50
        assert "Rack 0 holds" in second
        assert "Rack 2 holds" not in second

    async def test_nobody_without_a_membership_gets_in_or_is_led_there(self, house: House) -> None:
        lost = await person(house.daemon, "lost", role=ConsoleRole.OPERATOR)
        async with lost.browser() as client:
            answer = await client.get("/memories")

            assert answer.status_code == 403
            assert "you act in no namespace" in answer.text
            assert 'href="/memories" data-key' not in (await client.get("/")).text


class TestSearch:
    async def test_the_parts_of_a_score_add_up_to_it(self, ada: Seat) -> None:
        await ada.wrote("The pump of the well runs at 3 bar.")
        await ada.wrote("The lamp is green.")

        html = (await ada.get("/memories?q=pump+of+the+well")).text

        scores = re.findall(r'aria-label="Score ([\d.]+): ([^"]+)"', html)
        assert scores
        for score, parts in scores:
            amounts = [float(p.rsplit(" ", 1)[1]) for p in parts.split(", ")]
            assert sum(amounts) == pytest.approx(float(score), abs=0.004)
        assert 'aria-label="Score' not in (await ada.get("/memories?q=pump&explain=0")).text

    async def test_every_filter_stands_in_the_address_and_in_the_form(self, ada: Seat) -> None:
        await ada.wrote("The pump runs.")

        html = (
            await ada.get("/memories?q=pump&kind=fact&status=all&k=7&at=2099-01-01&explain=0")
        ).text

        for shown in (
            'name="q" type="search" value="pump"', 'value="fact" checked', 'value="all" selected',
            'name="k" value="7"', 'name="at" value="2099-01-01"', 'value="0" selected',
            'href="/memories.json?q=pump&amp;kind=fact&amp;status=all&amp;at=2099-01-01',
        ):  # fmt: skip
            assert shown in html

    @pytest.mark.parametrize(
        "query",
        ["q=x&at=yesterday", "q=x&k=0", "q=x&k=1000", "q=x&kind=rumour", "status=gone", "before=x"],
    )
    async def test_a_filter_that_cannot_be_used_is_named(self, ada: Seat, query: str) -> None:
        answer = await ada.get(f"/memories?{query}")

        assert answer.status_code == 400
        assert 'class="notice bad" role="alert"' in answer.text

    async def test_closed_rows_are_found_only_where_they_are_asked_for(self, ada: Seat) -> None:
        old = await ada.wrote("The pump runs at 3 bar.")
        await ada.wrote("The pump runs at 4 bar.", supersedes=old)

        now, all_ = (
            await ada.page("/memories?q=pump"),
            await ada.page("/memories?q=pump&status=all"),
        )

        assert "3 bar" not in now
        assert "3 bar" in all_
        assert "closed" in all_

    async def test_an_answer_of_nothing_offers_the_past(self, ada: Seat) -> None:
        await ada.wrote("The pump runs.")

        answer = await ada.get("/memories?q=zebra&kind=preference")

        assert "Nothing that you see answers this" in words(answer.text)
        assert 'href="/memories?status=all&amp;q=zebra"' in answer.text

    async def test_an_owner_searches_through_other_eyes_and_a_member_does_not(
        self, house: House
    ) -> None:
        owner = await house.seat("olga", "acme")
        eng = await house.seat("eve", "acme/eng", MemoryRole.MEMBER)
        sales = await house.seat("sam", "acme/sales", MemoryRole.MEMBER)
        await eng.wrote("The pump runs at 3 bar.")

        seen = await owner.page("/memories?q=pump&ns=acme/eng&actor=user:eve")
        unseen = await owner.page("/memories?q=pump&ns=acme/sales&actor=user:sam")
        refused = await sales.get("/memories?q=pump&ns=acme/eng&actor=user:eve")

        assert "3 bar" in seen
        assert "You see what user:eve would find from acme/eng" in seen
        assert "3 bar" not in unseen
        assert refused.status_code == 400
        assert "Only auditors, admins and owners" in words(refused.text)
        assert "As seen from" in words((await owner.get("/memories")).text)
        assert "As seen from" not in words((await sales.get("/memories?q=x")).text)


class TestMemory:
    async def test_the_whole_of_a_memory_stands_on_its_page(self, ada: Seat) -> None:
        one = await ada.wrote("Maria Santos leads the pump team.", source="org chart")
        two = await ada.wrote("The pump team meets on Monday.")
        derived = await ada.wrote(
            "Maria Santos is to be asked on Mondays.",
            derived_from=[one, two],
            content={"subject": "Maria Santos", "attribute": "ask on", "value": "Mondays only"},
        )

        page, source = await ada.page(f"/memories/{derived}"), await ada.page(f"/memories/{one}")

        rests_on = page.partition("Rests on ")[2].partition("Rests on it")[0]
        assert "leads the pump team" in rests_on
        assert "meets on Monday" in rests_on
        assert "to be asked on Mondays" in source.partition("Rests on it")[2]
        assert "Mondays only" in page.partition("Content")[2]
        for shown in ("Speaks of Maria Santos", "Classified by", "Importance", "Sees by place"):
            assert shown in page
        assert "It lives in acme/eng" in page

    async def test_a_chain_is_drawn_and_listed_and_leads_both_ways(self, ada: Seat) -> None:
        ids = [await ada.wrote("Jonas has the phone.")]
        for who in ("Maria", "Ada"):
            ids.append(await ada.wrote(f"{who} has the phone.", supersedes=ids[-1]))

        html = (await ada.get(f"/memories/{ids[1]}")).text

        assert html.count('class="bt-area') == 5
        assert "No longer held since" in words(html)
        assert f'<a href="/memories/{ids[2]}">What came after it</a>' in html
        table = html.partition("Versions, newest first")[2].partition("</table>")[0]
        assert re.findall(r"(Ada|Maria|Jonas) has", table) == ["Ada", "Maria", "Jonas"]

    async def test_a_turn_stands_among_its_neighbours(self, ada: Seat) -> None:
        turns = await ada.said(*((("Ada", "Ben")[i % 2], f"Turn number {i}.") for i in range(12)))

        page = await ada.page(f"/memories/{turns[5]}")

        conversation = page.partition("In its conversation")[2].partition("Why do I see")[0]
        assert re.findall(r"Turn number (\d+)", conversation) == [str(i) for i in range(1, 10)]

    async def test_what_one_may_not_see_is_the_same_404_as_what_is_missing(
        self, house: House, ada: Seat
    ) -> None:
        # Guarantee 20
        other = await house.seat("otto", "other")
        hidden, missing = await ada.wrote("The pump runs."), str(uuid4())

        answers = [await other.get(f"/memories/{id_}") for id_ in (hidden, missing)]
        as_json = [await other.get(f"/memories/{id_}.json") for id_ in (hidden, missing)]

        for pair in (answers, as_json):
            assert [a.status_code for a in pair] == [404, 404]
            bodies = {
                a.text.replace(id_, "ID") for a, id_ in zip(pair, (hidden, missing), strict=True)
            }
            assert len(bodies) == 1
        for act in ("pin", "share", "supersede", "retract"):
            form = {"to": "acme", "text": "x", "reason": "x"}
            tried = [
                await other.post(f"/memories/{id_}/{act}", **form) for id_ in (hidden, missing)
            ]
            assert {a.status_code for a in tried} == {404}, act
            assert len({words(a.text).replace(hidden, "").replace(missing, "") for a in tried}) == 1

    async def test_a_memory_is_pinned_and_unpinned(self, ada: Seat) -> None:
        id_ = await ada.wrote("The pump runs.")

        pinned = await ada.post(f"/memories/{id_}/pin")
        page = await ada.page(pinned.headers["location"])
        unpinned = await ada.post(f"/memories/{id_}/unpin")

        assert "pinned Unpin" in page
        assert " Pin Graph" in await ada.page(unpinned.headers["location"])

    async def test_a_memory_is_superseded_from_its_page(self, ada: Seat) -> None:
        id_ = await ada.wrote("The pump runs at 3 bar.", kind="preference")

        done = await ada.post(f"/memories/{id_}/supersede", text="The pump runs at 4 bar.")

        page = await ada.page(done.headers["location"])
        assert "did=superseded" in done.headers["location"]
        assert "Versions in two times 2" in page
        assert "preference" in page
        again = await ada.post(f"/memories/{id_}/supersede", text="At 5 bar.")
        assert again.status_code == 400
        assert 'class="notice bad" role="alert"' in again.text

    async def test_a_source_is_retracted_with_what_rests_on_it_and_comes_back(
        self, ada: Seat
    ) -> None:
        source = await ada.wrote("All invoices are paid in cash.")
        derived = await ada.wrote("The safe is full.", derived_from=[source])

        silent = await ada.post(f"/memories/{source}/retract", reason=" ")
        done = await ada.post(f"/memories/{source}/retract", reason="It was a rumour.")

        assert silent.status_code == 400
        assert "Say why" in words(silent.text)
        page = await ada.get(done.headers["location"])
        assert "Retracted by user:ada" in words(page.text)
        assert "It was a rumour. 1 more went with it." in words(page.text)
        on_derived = (await ada.get(f"/memories/{derived}")).text
        assert f'<a href="/memories/{source}">a source that was withdrawn</a>' in on_derived
        restore = re.search(r'action="(/retractions/[^"]+/restore)"', page.text)
        assert restore is not None
        back = await ada.post(restore[1], next=f"/memories/{source}")
        assert back.headers["location"] == f"/memories/{source}?did=restored"
        assert "Retracted by" not in await ada.page(f"/memories/{derived}")

    async def test_a_memory_is_shared_explained_and_taken_back(self, house: House) -> None:
        # Guarantee 20: a grant is a row of the predicate, and ends at once.
        eng, sales = await house.seat("ada", "acme/eng"), await house.seat("sam", "acme/sales")
        id_ = await eng.wrote("The pump runs at 3 bar.")
        assert (await sales.get(f"/memories/{id_}")).status_code == 404

        shared = await eng.post(
            f"/memories/{id_}/share", to_kind="namespace", to="acme/sales", until="2099-01-01"
        )

        html = (await eng.get(shared.headers["location"])).text
        assert "acme/sales namespace on" in words(html)
        seen = await sales.page(f"/memories/{id_}")
        assert "let acme/sales read this memory" in seen
        assert "shared" in seen
        end = re.search(r'action="(/shares/[^"]+/end)"', html)
        assert end is not None
        assert "acme/sales" in await sales.page("/shares")
        ended = await eng.post(end[1], next=f"/memories/{id_}")
        assert ended.headers["location"] == f"/memories/{id_}?did=ended"
        assert (await sales.get(f"/memories/{id_}")).status_code == 404
        assert "ended" in await eng.page("/shares?ended=1")

    @pytest.mark.parametrize(
        ("form", "complaint"),
        [
            ({"to": ""}, "Say to whom"),
            ({"to": "a b"}, "egment"),
            ({"to": "acme", "until": "soon"}, "until is a time"),
        ],
    )
    async def test_a_share_that_cannot_be_says_why(
        self, ada: Seat, form: dict[str, str], complaint: str
    ) -> None:
        id_ = await ada.wrote("The pump runs.")

        answer = await ada.post(f"/memories/{id_}/share", **form)

        assert answer.status_code == 400
        assert complaint in words(answer.text)

    async def test_why_somebody_else_does_not_see_it(self, house: House) -> None:
        owner, eng = await house.seat("olga", "acme"), await house.seat("ada", "acme/eng")
        id_ = await owner.wrote("The board meets on Friday.")
        below = await eng.wrote("The pump runs.")

        inside = await owner.page(f"/memories/{id_}?ns=acme/eng&actor=user:ada")
        early = await owner.page(f"/memories/{id_}?at=2020-01-01")
        refused = await eng.get(f"/memories/{below}?ns=acme&actor=user:olga")

        assert "Why user:ada sees it visible" in inside
        assert "believed only from" in early
        assert refused.status_code == 400
        assert "Only auditors, admins and owners" in words(refused.text)

    async def test_the_json_of_a_page_is_what_the_api_answers(self, ada: Seat) -> None:
        id_ = await ada.wrote("The pump runs.")

        one = (await ada.get(f"/memories/{id_}.json")).json()
        found = (await ada.get("/memories.json?q=pump")).json()
        listed = (await ada.get("/memories.json")).json()
        drawn = (await ada.get("/graph.json")).json()

        assert (one["id"], one["text"], len(one["history"])) == (id_, "The pump runs.", 1)
        assert found["results"][0]["id"] == id_
        assert found["results"][0]["components"]["weights"]
        assert listed["items"][0]["id"] == id_
        assert id_ in [n["id"] for n in drawn["nodes"]]


class TestGraph:
    async def test_the_list_holds_every_point_and_the_ties_are_named(self, ada: Seat) -> None:
        await ada.wrote("Maria Santos leads the team.")
        await ada.wrote("Jonas Weber follows Maria Santos.")

        html = (await ada.get("/graph")).text

        labels = [words(f"<main>{x}</main>") for x in re.findall(r"<li data-row.*?</li>", html)]
        assert any("Maria Santos entity" in label.replace(" > ", " ") for label in labels)
        edges = re.search(r'data-edges="([^"]*)"', html)
        assert edges is not None
        ties: list[list[Any]] = json.loads(unescape(edges[1]))
        assert {kind for _, _, kind in ties} == {"mentions"}
        assert max(i for a, b, _ in ties for i in (a, b)) < len(labels)

    async def test_an_entity_is_put_in_the_middle_by_its_name(self, ada: Seat) -> None:
        await ada.wrote("Maria Santos leads the team.")
        await ada.wrote("The lamp is green.")

        page = await ada.page("/graph?about=maria+santos")
        nobody = await ada.get("/graph?about=zebra")

        assert "around Maria Santos" in page
        assert "The lamp" not in page
        assert nobody.status_code == 400
        assert "No entity that you see is called 'zebra'" in words(nobody.text)

    @pytest.mark.parametrize(
        "query", ["limit=0", "limit=9999", "kind=rumour", f"centre={UUID(int=7)}"]
    )
    async def test_what_cannot_be_drawn_is_named(self, ada: Seat, query: str) -> None:
        answer = await ada.get(f"/graph?{query}")

        assert answer.status_code == 400
        assert 'role="alert"' in answer.text


async def contradicted(ada: Seat) -> ConflictCase:
    """Leave two facts that contradict each other to people; return the case."""
    await ada.post("/memory-policy", review="review")
    for place in ("Lisbon", "Oslo"):
        content = {
            "subject": "orders", "attribute": "place", "value": place, "single_valued": True,
        }  # fmt: skip
        await ada.wrote(f"Orders run in {place}.", content=content)
    who = (await ada.person.session()).identity

    async def found() -> tuple[ConflictCase, ...]:
        return await ada.daemon.noema.memory.conflicts(who, open_only=True)

    return (await eventually(found))[0]


class TestConflicts:
    async def test_both_sides_stand_side_by_side_and_a_person_decides(self, ada: Seat) -> None:
        case = await contradicted(ada)

        page = await ada.page("/conflicts")
        decided = await ada.post(f"/conflicts/{case.id}/resolve", outcome="incumbent_wins")

        assert "1 waits for a decision" in page
        for side in ("Was here first holds Orders run in Lisbon.", "Came later"):
            assert side in page
        assert decided.headers["location"] == f"/conflicts#case-{case.id}"
        assert "The first holds, the newcomer is closed" in await ada.page("/conflicts")
        assert "Nothing waits" in await ada.page("/conflicts?open=1")
        assert "Contradicted" in await ada.page(f"/memories/{case.newcomer}")

    async def test_a_decision_is_undone(self, ada: Seat) -> None:
        case = await contradicted(ada)
        await ada.post(f"/conflicts/{case.id}/resolve", outcome="newcomer_wins")

        undone = await ada.post(f"/conflicts/{case.id}/revert")

        assert undone.status_code == 303
        assert "No longer held" not in await ada.page(f"/memories/{case.incumbent}")

    async def test_an_answer_that_is_none_is_refused_with_the_page(self, ada: Seat) -> None:
        case = await contradicted(ada)

        answer = await ada.post(f"/conflicts/{case.id}/resolve", outcome="whatever")

        assert answer.status_code == 400
        assert "outcome is one of" in words(answer.text)

    async def test_a_member_sees_no_button_to_decide(self, house: House, ada: Seat) -> None:
        await contradicted(ada)
        member = await house.seat("mia", "acme/eng", MemoryRole.MEMBER)

        html = (await member.get("/conflicts")).text

        assert "Orders run in Lisbon" in html
        assert "/resolve" not in html


class TestPolicy:
    async def test_a_policy_is_set_shown_and_acknowledged(self, house: House, ada: Seat) -> None:
        saved = await ada.post(
            "/memory-policy", reads="1200", writes="", chars="2000", retention="30",
            review="review", **{"id.0": "no-phones", "text.0": "Never repeat phone numbers."},
        )  # fmt: skip
        below = await house.seat("mia", "acme/eng", MemoryRole.MEMBER)

        page = (await below.get("/memory-policy")).text

        assert (saved.status_code, saved.headers["location"]) == (303, "/memory-policy?did=saved")
        for shown in ("Never repeat phone numbers.", "30 days", "review: a person decides"):
            assert shown in words(page)
        assert "not acknowledged by you" in words(page)
        assert "Save as version" not in page
        digest = re.search(r'name="digest" value="([0-9a-f]{64})"', page)
        assert digest is not None
        assert (await below.post("/memory-policy/ack", digest=digest[1])).status_code == 303
        assert "acknowledged by you" in await below.page("/memory-policy")
        assert "not acknowledged" not in await below.page("/memory-policy")

    @pytest.mark.parametrize(
        ("form", "complaint"),
        [
            ({"reads": "many"}, "reads is a whole number"),
            ({"chars": "0"}, "chars is a whole number"),
            ({"chars": "999999999"}, "max_text_chars is a whole number"),
            ({"review": "never"}, "Conflict review is auto, review or off"),
            ({"driver": "unheard-of"}, "No driver 'unheard-of'"),
            ({"id.0": "a"}, "'a' says nothing"),
            ({"text.0": "be kind"}, "Give the directive 'be kind' a short id"),
            ({"id.0": "a", "text.0": "x", "id.1": "a", "text.1": "y"}, "the same id"),
        ],
    )
    async def test_what_cannot_be_a_policy_comes_back_as_typed(
        self, ada: Seat, form: dict[str, str], complaint: str
    ) -> None:
        answer = await ada.post("/memory-policy", **({"writes": "77"} | form))

        assert answer.status_code == 400
        assert complaint in words(answer.text)
        assert 'name="writes" value="77"' in answer.text

    async def test_what_somebody_saved_meanwhile_is_not_set_back_unseen(self, ada: Seat) -> None:
        await ada.post("/memory-policy", version="0", retention="30")

        late = await ada.post("/memory-policy", version="0", retention="5")
        again = await ada.post("/memory-policy", version="1", retention="5")

        assert late.status_code == 400
        assert "Version 1 was saved meanwhile" in words(late.text)
        assert 'name="retention" value="5"' in late.text
        assert 'name="version" value="1"' in late.text
        assert again.status_code == 303
        history = re.search(r'href="(/audit[^"]+)">Who set', (await ada.get("/memory-policy")).text)
        assert history is not None
        assert words((await ada.get(unescape(history[1]))).text).count("mem.policy-set") >= 2

    async def test_an_owner_looks_at_the_part_of_a_namespace_below(self, house: House) -> None:
        owner = await house.seat("olga", "acme")

        page = (await owner.get("/memory-policy?ns=acme/eng")).text
        foreign = await owner.get("/memory-policy?ns=other")

        assert 'name="namespace" value="acme/eng"' in page
        assert foreign.status_code == 404
        saved = await owner.post("/memory-policy", namespace="acme/eng", retention="5")
        assert saved.headers["location"] == "/memory-policy?ns=acme%2Feng&did=saved"

    async def test_a_subtree_is_shared_from_the_list(self, house: House) -> None:
        owner, sales = await house.seat("olga", "acme"), await house.seat("sam", "acme/sales")
        eng = await house.seat("ada", "acme/eng")
        id_ = await eng.wrote("The pump runs.")

        done = await owner.post("/shares", subtree="acme/eng", to="acme/sales")
        wrong = await owner.post("/shares", subtree="other", to="acme/sales")

        assert done.status_code == 303, words(done.text)
        assert "acme/eng and below" in await owner.page("/shares")
        assert (await sales.get(f"/memories/{id_}")).status_code == 200
        assert wrong.status_code in (400, 403, 404)


class TestAudit:
    async def test_rows_are_filtered_by_syscall_and_lead_to_the_memory(self, ada: Seat) -> None:
        id_ = await ada.wrote("The pump runs.")
        await ada.get(f"/memories/{id_}")
        await ada.get("/memories?q=pump")
        await ada.daemon.noema.memories.flush()

        all_ = (await ada.get("/audit?syscall=mem")).text
        reads = (await ada.get("/audit?syscall=mem.read")).text
        exported = await ada.get("/audit.csv?syscall=mem.search")

        assert f'<a class="plain" href="/memories/{id_}">memory:{id_}</a>' in all_
        assert "mem.search" in words(all_)
        rows = reads.partition("<tbody>")[2]
        assert "mem.read" in rows
        assert "mem.search" not in rows
        assert "<option selected>mem.read</option>" in reads
        assert "/v1/audit?" in reads
        assert "syscall" not in re.findall(r'href="(/v1/audit[^"]*)"', reads)[0]
        assert set(re.findall(r",(mem\.[a-z-]+),", exported.text)) == {"mem.search"}

    async def test_the_palette_leads_to_memory(self, ada: Seat) -> None:
        page = (await ada.get("/palette?q=conflicts")).text
        id_ = str(uuid4())

        assert 'href="/conflicts"' in page
        assert 'href="/memories?q=conflicts"' in page
        assert f'href="/memories/{id_}"' in (await ada.get(f"/palette?q={id_}")).text
        assert quote("a & b", safe="") not in page


class TestProbes:
    async def test_probes_in_every_text_are_inert(self, ada: Seat) -> None:
        # Guarantee 18
        id_ = await ada.wrote(
            f"{EVIL} says Maria Santos", source=EVIL, kind="preference",
            content={"holder": EVIL, "about": EVIL, "stance": "likes"},
        )  # fmt: skip
        turn = (await ada.said((EVIL[:150], f"{EVIL} was said"), ("b", "c")))[0]
        source = await ada.wrote(f"{EVIL} source")
        await ada.post(f"/memories/{source}/retract", reason=EVIL)
        await ada.post(
            "/memory-policy", **{"id.0": EVIL[:60], "text.0": EVIL, "review": "review"}
        )  # fmt: skip
        for place in ("one", "two"):
            content = {
                "subject": EVIL, "attribute": EVIL, "value": f"{EVIL}{place}",
                "single_valued": True,
            }  # fmt: skip
            await ada.wrote(f"{EVIL} runs in {place}.", content=content)
        for path in (
            "/memories", f"/memories?q={quote(EVIL)}", f"/memories/{id_}", f"/memories/{turn}",
            f"/memories/{source}", "/graph", f"/graph?about={quote(EVIL)}", "/conflicts",
            "/shares", "/memory-policy", f"/memories?ns={quote(EVIL)}&q=x",
            f"/memories/{id_}?ns={quote(EVIL)}", f"/audit?syscall={quote(EVIL)}",
            f"/palette?q={quote(EVIL)}",
        ):  # fmt: skip
            html = (await ada.get(path)).text

            assert "<script>alert" not in html, path
            assert "<img src=x" not in html, path
            assert "</textarea></title>" not in html, path

"""The HTTP interface as scripts use it, and every kind of bad input it may get."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
import pytest
from openapi_spec_validator import validate

from noema.web.routes import ROUTES
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.running import Daemon, daemon


@pytest.fixture
async def here(database: TestDatabase) -> AsyncIterator[Daemon]:
    async with daemon(database) as running:
        await running.client.post("/v1/minds", json={"slug": "ada"})
        yield running


def problem(answer: httpx.Response, status: int, code: str) -> str:
    """Check that the answer is a problem of that kind; return what it tells the reader."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["title"]
    detail: str = body["detail"]
    return detail


class TestMinds:
    async def test_a_new_mind_is_awake_with_default_settings(self, here: Daemon) -> None:
        answer = await here.client.post("/v1/minds", json={"slug": "bob", "name": "Bob"})

        assert answer.status_code == 201
        mind = answer.json()
        keys = ("slug", "name", "namespace", "status", "mode", "settings_version")
        assert [mind[k] for k in keys] == ["bob", "Bob", "home", "active", "awake", 1]
        assert {"backlog", "cycles", "last_cycle_at"} <= mind.keys()

    async def test_a_slug_is_given_once(self, here: Daemon) -> None:
        answer = await here.client.post("/v1/minds", json={"slug": "ada"})

        assert "another slug" in problem(answer, 409, "conflict")

    async def test_minds_are_listed_in_pages(self, here: Daemon) -> None:
        for slug in ("bob", "cyd"):
            await here.client.post("/v1/minds", json={"slug": slug})

        first = (await here.client.get("/v1/minds?limit=2")).json()
        rest = (await here.client.get(f"/v1/minds?limit=2&after={first['next']}")).json()

        assert [m["slug"] for m in first["items"]] == ["ada", "bob"]
        assert [m["slug"] for m in rest["items"]] == ["cyd"]
        assert rest["next"] is None

    async def test_a_new_name_stands_in_the_log_with_who_gave_it(self, here: Daemon) -> None:
        answer = await here.client.patch("/v1/minds/ada", json={"name": "Ada the second"})

        assert answer.json()["name"] == "Ada the second"
        [event] = (await here.client.get("/v1/events?type=mind.renamed")).json()["items"]
        assert (event["mind"], event["actor"]) == ("ada", "token:test")
        assert event["payload"] == {"name": "Ada the second"}

    async def test_settings_are_tuned_into_a_new_version(self, here: Daemon) -> None:
        body = {"settings": {"weights": {"novelty": "1.25"}, "capacity": 5}, "note": "calmer"}

        answer = await here.client.patch("/v1/minds/ada", json=body)

        mind = answer.json()
        assert mind["settings_version"] == 2
        assert mind["settings"]["weights"]["novelty"] == 1_250_000
        assert mind["settings"]["capacity"] == 5

    async def test_two_people_who_tune_at_once_do_not_overwrite_each_other(
        self, here: Daemon
    ) -> None:
        body = {"settings": {"capacity": 5}, "settings_version": 1}
        assert (await here.client.patch("/v1/minds/ada", json=body)).status_code == 200

        late = await here.client.patch("/v1/minds/ada", json=body)

        assert "saved meanwhile" in problem(late, 409, "conflict")

    async def test_pausing_and_resuming_is_a_change_of_mode(self, here: Daemon) -> None:
        paused = await here.client.patch("/v1/minds/ada", json={"status": "paused"})
        resumed = await here.client.patch("/v1/minds/ada", json={"status": "active"})

        assert (paused.json()["status"], paused.json()["mode"]) == ("paused", "paused")
        assert (resumed.json()["status"], resumed.json()["mode"]) == ("active", "awake")

    async def test_goals_are_given_and_closed(self, here: Daemon) -> None:
        given = await here.client.post(
            "/v1/minds/ada/goals", json={"text": "disk", "priority": 0.8}
        )

        closed = await here.client.post(f"/v1/minds/ada/goals/{given.json()['id']}/close")

        assert given.status_code == 201
        assert given.json()["priority"] == 0.8
        assert closed.json()["status"] == "closed"
        assert (await here.client.get("/v1/minds/ada/goals")).json()["items"] == []

    async def test_a_retry_with_the_same_key_creates_once(self, here: Daemon) -> None:
        headers = {"Idempotency-Key": "retry-1"}
        made = [
            await here.client.post("/v1/minds", json={"slug": "eve"}, headers=headers)
            for _ in range(2)
        ]
        goals = [
            await here.client.post("/v1/minds/eve/goals", json={"text": "disk"}, headers=headers)
            for _ in range(2)
        ]
        other = await here.client.post("/v1/minds", json={"slug": "mal"}, headers=headers)

        assert [m.status_code for m in made] == [201, 201]
        assert goals[0].json()["id"] == goals[1].json()["id"]
        assert len((await here.client.get("/v1/minds/eve/goals")).json()["items"]) == 1
        problem(other, 422, "idempotency_key_reused")


class TestStimuli:
    async def test_a_stimulus_becomes_a_thought_with_a_reason(self, here: Daemon) -> None:
        sent = await here.client.post(
            "/v1/minds/ada/stimuli",
            json={"text": "disk sda1 failed", "occurred_at": "2026-01-31T12:00:00+02:00"},
        )
        assert sent.status_code == 202
        [stimulus] = sent.json()["ids"]

        cycle = await eventually(lambda: _cycle_with(here, stimulus))

        winner = next(c for c in cycle["candidates"] if c["rank"] == 1)
        assert stimulus in winner["stimuli"]
        assert winner["admitted"]
        assert winner["score"] == sum(winner["contributions"].values())
        assert set(winner["features"]) >= {"novelty", "intensity"}
        event = (await here.client.get(f"/v1/events/{stimulus}")).json()
        assert event["occurred_at"] == "2026-01-31T10:00:00Z"
        assert event["payload"]["text"] == "disk sda1 failed"
        assert event["is_intact"]

    async def test_why_tells_what_would_have_flipped_it(self, here: Daemon) -> None:
        ids = await here.fed("ada", ["kernel panic in eth0", "user ann logged in"])
        cycle = await eventually(lambda: _cycle_with(here, ids[0]))

        answer = await here.client.get(f"/v1/minds/ada/cycles/{cycle['number']}/why")

        why = answer.json()
        assert why["winner"]["rank"] == 1
        assert why["margin"] == why["winner"]["score"] - why["against"]["score"]
        assert why["contributions"]
        for flip in why["flips"]:
            assert flip["confirmed"]
            assert ("weight" in flip) != ("feature" in flip)
            assert flip["from"] != flip["to"]
            assert flip["new winner"] != why["winner"]["id"]

    async def test_a_batch_is_kept_whole_and_in_order(self, here: Daemon) -> None:
        lines = [f"service number {n} started" for n in range(250)]

        ids = await here.fed("ada", lines)

        await eventually(lambda: here.is_idle("ada"))
        texts = []
        after = ""
        while True:
            query = f"/v1/events?mind=ada&type=stimulus.received&limit=100&after={after}"
            page = (await here.client.get(query)).json()
            texts += [(e["id"], e["payload"]["text"]) for e in page["items"]]
            if not (after := page["next"]):
                break
        assert texts == list(zip(ids, lines, strict=True))

    async def test_the_same_key_stores_the_batch_once(self, here: Daemon) -> None:
        body = {"items": [{"text": "once"}, {"text": "twice"}]}
        headers = {"Idempotency-Key": "k1"}

        first = await here.client.post("/v1/minds/ada/stimuli", json=body, headers=headers)
        again = await here.client.post("/v1/minds/ada/stimuli", json=body, headers=headers)
        other = await here.client.post(
            "/v1/minds/ada/stimuli", json={"text": "third"}, headers=headers
        )

        assert first.json()["ids"] == again.json()["ids"]
        assert (first.json()["repeated"], again.json()["repeated"]) == (False, True)
        problem(other, 422, "idempotency_key_reused")
        kept = (await here.client.get("/v1/events?mind=ada&type=stimulus.received")).json()
        assert [e["id"] for e in kept["items"]] == first.json()["ids"]

    async def test_text_that_jsonb_refuses_comes_back_as_it_was(self, here: Daemon) -> None:
        raw = b'{"text": "nul \\u0000 half \\ud800 mark \\ue000 end"}'
        headers = {"Content-Type": "application/json"}

        sent = await here.client.post("/v1/minds/ada/stimuli", content=raw, headers=headers)

        [stimulus] = sent.json()["ids"]
        event = json.loads((await here.client.get(f"/v1/events/{stimulus}")).content)
        assert event["payload"]["text"] == "nul \x00 half \ud800 mark \ue000 end"
        assert event["is_intact"]
        await eventually(lambda: here.is_idle("ada"))
        assert (await here.noema.minds.get("ada")).last_error is None

    async def test_meta_keeps_its_shape_and_its_commitment(self, here: Daemon) -> None:
        meta = {"a": [1, {"b": None}], "big": 1e22, "f": 0.1}

        sent = await here.client.post("/v1/minds/ada/stimuli", json={"text": "m", "meta": meta})

        event = (await here.client.get(f"/v1/events/{sent.json()['ids'][0]}")).json()
        assert event["payload"]["meta"] == {"a": [1, {"b": None}], "big": "1e+22", "f": "0.1"}
        assert event["is_intact"]


class TestSpeaking:
    async def test_a_message_is_answered_from_what_the_mind_holds(self, here: Daemon) -> None:
        await here.fed("ada", ["backup of vault failed: no space left on device"])
        await eventually(lambda: here.is_idle("ada"))

        said = await here.client.post("/v1/minds/ada/messages", json={"text": "how is the backup?"})

        reply = await eventually(lambda: _reply(here, said.json()["id"]))
        assert "no space left on device" in reply["text"]
        assert "no language model" in reply["text"]
        assert reply["cycle"] > 0

    async def test_a_message_is_answered_once(self, here: Daemon) -> None:
        said = await here.client.post("/v1/minds/ada/messages", json={"text": "hello there"})
        await eventually(lambda: _reply(here, said.json()["id"]))
        await here.client.post("/v1/minds/ada/step")
        await eventually(lambda: _cycles(here, at_least=2))

        conversations = (await here.client.get("/v1/minds/ada/conversations")).json()["items"]

        assert [m["speaker"] for m in conversations[0]["messages"]] == ["test", "ada"]


class TestBadInput:
    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"text": 7}, "text"),
            ({}, None),
            ({"text": "x", "colour": "red"}, None),
            ({"text": "x", "occurred_at": "yesterday"}, "occurred_at"),
            ({"text": "x", "occurred_at": "2026-01-31T12:00:00"}, "occurred_at"),
            ({"text": "x", "urgency": 2}, "urgency"),
            ({"text": "x", "urgency": "high"}, "urgency"),
            ({"text": "x", "kind": "No Kind"}, "kind"),
            ({"items": []}, "items"),
            ({"items": "x"}, "items"),
            ([], None),
        ],
    )
    async def test_a_wrong_stimulus_is_refused_and_named(
        self, here: Daemon, body: object, field: str | None
    ) -> None:
        answer = await here.client.post("/v1/minds/ada/stimuli", json=body)

        problem(answer, 400, "invalid")
        if field is not None:
            assert answer.json()["field"] == field

    async def test_a_naive_time_is_refused_with_the_remedy(self, here: Daemon) -> None:
        body = {"text": "x", "occurred_at": "2026-01-31T12:00:00"}

        answer = await here.client.post("/v1/minds/ada/stimuli", json=body)

        assert "time zone" in problem(answer, 400, "invalid")

    @pytest.mark.parametrize(
        "bad",
        [{"text": 5}, {"text": "x" * 70_000}, {"text": "x", "occurred_at": "2026-01-31T12:00:00"}],
    )
    async def test_one_bad_item_refuses_the_batch_and_is_named(
        self, here: Daemon, bad: dict[str, object]
    ) -> None:
        items = [{"text": "good"}, {"text": "good too"}, bad]

        answer = await here.client.post("/v1/minds/ada/stimuli", json={"items": items})

        assert answer.status_code in (400, 413)
        assert "items[2]" in answer.json()["detail"]
        kept = (await here.client.get("/v1/events?mind=ada&type=stimulus.received")).json()
        assert kept["items"] == []

    @pytest.mark.parametrize(
        "raw", [b"{", b"", b"nonsense", b'{"text": NaN}', b'{"text": "\xff"}', b"[" * 100_000]
    )
    async def test_what_is_not_json_is_refused(self, here: Daemon, raw: bytes) -> None:
        headers = {"Content-Type": "application/json"}

        answer = await here.client.post("/v1/minds/ada/stimuli", content=raw, headers=headers)

        problem(answer, 400, "invalid")

    async def test_json_sent_as_text_is_refused(self, here: Daemon) -> None:
        headers = {"Content-Type": "text/plain"}

        answer = await here.client.post(
            "/v1/minds/ada/stimuli", content=b'{"text": "x"}', headers=headers
        )

        assert "application/json" in problem(answer, 415, "unsupported_media_type")

    async def test_text_over_64_kib_is_refused_and_less_is_kept(self, here: Daemon) -> None:
        fits = await here.client.post("/v1/minds/ada/stimuli", json={"text": "é" * 32_768})
        over = await here.client.post("/v1/minds/ada/stimuli", json={"text": "é" * 32_769})

        assert fits.status_code == 202
        assert "65,536" in problem(over, 413, "too_large")

    async def test_a_huge_body_is_refused_before_it_is_read(self, here: Daemon) -> None:
        answer = await here.client.post(
            "/v1/minds/ada/messages",
            content=b"x" * 2_000_000,
            headers={"Content-Type": "application/json"},
        )

        problem(answer, 413, "too_large")

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/v1/minds/nobody"),
            ("GET", "/v1/minds/nobody/cycles"),
            ("POST", "/v1/minds/nobody/step"),
            ("GET", "/v1/minds/ada/cycles/999"),
            ("GET", f"/v1/events/{UUID(int=5)}"),
            ("GET", f"/v1/replays/{UUID(int=5)}"),
            ("GET", "/v1/nothing"),
        ],
    )
    async def test_what_does_not_exist_is_404(self, here: Daemon, method: str, path: str) -> None:
        problem(await here.client.request(method, path), 404, "not_found")

    @pytest.mark.parametrize(
        "path",
        [
            "/v1/events/xyz",
            "/v1/events?after=nonsense",
            "/v1/events?limit=0",
            "/v1/events?limit=many",
            "/v1/events?order=sideways",
            "/v1/events?order=desc&from=noon",
            "/v1/minds/ada/cycles/first",
            "/v1/minds/ada/cycles?before=x",
        ],
    )
    async def test_a_wrong_parameter_is_400(self, here: Daemon, path: str) -> None:
        problem(await here.client.get(path), 400, "invalid")

    @pytest.mark.parametrize(
        "body",
        [
            {"slug": "No Spaces"},
            {"slug": ""},
            {"slug": "x", "namespace": "A//b"},
            {"slug": "x", "name": "n" * 201},
            {"slug": "x", "settings": {"weights": {"luck": 1}}},
            {"slug": "x", "settings": {"weights": {"novelty": -1}}},
            {"slug": "x", "settings": {"weights": {"novelty": 10_000_001}}},
            {"slug": "x", "settings": {"weights": {"novelty": "lots"}}},
            {"slug": "x", "settings": {"capacity": 0}},
            {"slug": "x", "settings": {"colour": 1}},
        ],
    )
    async def test_a_mind_that_cannot_be_is_refused(
        self, here: Daemon, body: dict[str, object]
    ) -> None:
        problem(await here.client.post("/v1/minds", json=body), 400, "invalid")

    async def test_an_unknown_mode_is_refused_with_those_there_are(self, here: Daemon) -> None:
        answer = await here.client.post("/v1/minds/ada/mode", json={"mode": "angry"})

        assert "dreaming" in problem(answer, 400, "invalid")


class TestCredentials:
    async def test_no_route_but_the_health_ones_answers_without_a_credential(
        self, here: Daemon
    ) -> None:
        async with httpx.AsyncClient(base_url=here.url) as stranger:
            for endpoint in ROUTES:
                path = endpoint.path.replace("{slug}", "ada").replace("{number}", "1")
                path = path.replace("{id}", str(UUID(int=1))).replace("{goal}", str(UUID(int=1)))
                path = path.replace("{event_id}", str(UUID(int=1)))
                answer = await stranger.request(endpoint.method, path)
                if endpoint.need == "public":
                    # A form of the door may refuse what it was sent; it was not the gate.
                    assert "Log in first" not in answer.text, endpoint.path
                elif endpoint.is_page and endpoint.method == "GET":
                    assert answer.status_code == 303, endpoint.path
                    assert answer.headers["location"].startswith("/login")
                else:
                    assert answer.status_code in (401, 403), endpoint.path
            assert (await stranger.get("/openapi.json")).status_code == 401

    @pytest.mark.parametrize(
        "header", ["Bearer noema_wrong", "Bearer x", "Basic abc", "Bearer \xff\xff", "bogus"]
    )
    async def test_a_wrong_token_is_401(self, here: Daemon, header: str) -> None:
        async with httpx.AsyncClient(base_url=here.url) as stranger:
            headers = [(b"Authorization", header.encode("latin-1"))]
            answer = await stranger.get("/v1/minds", headers=headers)

        problem(answer, 401, "unauthorised")
        assert answer.headers["www-authenticate"].startswith("Bearer")

    async def test_a_token_in_the_url_is_refused(self, here: Daemon) -> None:
        answer = await here.client.get(f"/v1/minds?token={here.token}")

        assert here.token not in problem(answer, 400, "invalid")

    async def test_the_token_is_kept_as_a_hash_only(
        self, here: Daemon, database: TestDatabase
    ) -> None:
        async with here.noema.db.reading() as tx:
            rows = await tx.conn.fetch("SELECT row_to_json(t)::text AS row FROM api_tokens t")

        assert rows
        assert all(here.token not in r["row"] for r in rows)

    async def test_a_foreign_host_gets_400(self, here: Daemon) -> None:
        answer = await here.client.get("/healthz", headers={"Host": "evil.example"})

        problem(answer, 400, "invalid")


class TestSystem:
    async def test_health_readiness_and_metrics_need_no_credential(self, here: Daemon) -> None:
        async with httpx.AsyncClient(base_url=here.url) as stranger:
            alive, ready, metrics = [
                await stranger.get(p) for p in ("/healthz", "/readyz", "/metrics")
            ]

        assert alive.json()["status"] == "alive"
        assert ready.json() == {
            "status": "ready", "database": "ok", "migrations": "ok", "writer": "ok",
        }  # fmt: skip
        assert "noema_writer_queued_units 0.0" in metrics.text
        assert here.token not in metrics.text

    async def test_the_figures_that_anybody_may_read_name_no_mind(self, here: Daemon) -> None:
        await here.client.post("/v1/minds", json={"slug": "canary"})
        await eventually(lambda: "canary" in [m.slug for m in here.noema.runner.statuses])

        async with httpx.AsyncClient(base_url=here.url) as stranger:
            metrics = await stranger.get("/metrics")

        assert "noema_minds_running " in metrics.text
        assert "canary" not in metrics.text

    async def test_the_description_is_valid_openapi_3_1(self, here: Daemon) -> None:
        document = (await here.client.get("/openapi.json")).json()

        validate(document)
        assert document["openapi"].startswith("3.1")
        assert "/v1/minds/{slug}/stimuli" in document["paths"]

    async def test_system_tells_protection_and_migrations(self, here: Daemon) -> None:
        system = (await here.client.get("/v1/system")).json()

        assert system["database"]["protection"] in (
            "separate roles", "lowered role", "accident protection only",
        )  # fmt: skip
        assert {m["state"] for m in system["migrations"]} == {"applied"}
        assert system["writer"]["connected"]

    async def test_recording_time_is_the_servers_and_positions_grow(self, here: Daemon) -> None:
        before = datetime.now(UTC)
        await here.fed("ada", ["a", "b", "c"])

        events = (await here.client.get("/v1/events?mind=ada&limit=500")).json()["items"]

        positions = [int(e["position"][1:], 16) for e in events]
        assert positions == sorted(set(positions))
        assert all(datetime.fromisoformat(e["recorded_at"]) > before for e in events[1:])


async def _cycles(here: Daemon, *, at_least: int) -> bool:
    return (await here.noema.minds.get("ada")).cycles >= at_least


async def _cycle_with(here: Daemon, stimulus: str) -> dict[str, Any] | None:
    rows = (await here.client.get("/v1/minds/ada/cycles")).json()["items"]
    for row in rows:
        cycle = (await here.client.get(f"/v1/minds/ada/cycles/{row['number']}")).json()
        if any(stimulus in c["stimuli"] for c in cycle["candidates"]):
            found: dict[str, Any] = cycle
            return found
    return None


async def _reply(here: Daemon, message: str) -> dict[str, Any] | None:
    conversations = (await here.client.get("/v1/minds/ada/conversations")).json()["items"]
    for conversation in conversations:
        for said in conversation["messages"]:
            if said["in_reply_to"] == message:
                reply: dict[str, Any] = said
                return reply
    return None

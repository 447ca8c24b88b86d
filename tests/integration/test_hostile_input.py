"""Input of somebody who means harm, or has a bug: a clear answer, and everybody else goes on."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest

from noema.cli.serving import MAX_HEAD_BYTES
from noema.cognition.state import GOALS_KEPT
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.running import Daemon, daemon

_JSON = {"Content-Type": "application/json"}
_STIMULI = "/v1/minds/ada/stimuli"


@pytest.fixture
async def here(database: TestDatabase) -> AsyncIterator[Daemon]:
    async with daemon(database) as running:
        await running.client.post("/v1/minds", json={"slug": "ada"})
        yield running


async def nested(here: Daemon, levels: int) -> int:
    meta = '{"a":' * levels + "1" + "}" * levels
    body = f'{{"text": "deep", "meta": {meta}}}'
    answer = await here.client.post(_STIMULI, content=body, headers=_JSON)
    return answer.status_code


@pytest.mark.parametrize(
    "moment",
    [
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59-14:00",
    ],
)
async def test_a_time_that_no_zone_can_hold_is_refused_before_it_poisons_the_log(
    here: Daemon, moment: str
) -> None:
    item = {"text": "x", "occurred_at": moment}

    answer = await here.client.post(_STIMULI, json={"items": [{"text": "fine"}, item]})

    assert answer.status_code == 400
    assert answer.json()["field"] == "items[1].occurred_at"
    events = await here.client.get("/v1/events?mind=ada&type=stimulus.received")
    assert events.json()["items"] == []


@pytest.mark.parametrize("moment", ["0001-01-02T00:00:00Z", "9999-12-30T00:00:00Z"])
async def test_the_first_and_the_last_time_that_is_taken_can_be_thought_about(
    here: Daemon, moment: str
) -> None:
    sent = await here.client.post(_STIMULI, json={"text": "x", "occurred_at": moment})

    assert sent.status_code == 202
    await eventually(lambda: here.is_idle("ada"))
    event = (await here.client.get(f"/v1/events/{sent.json()['ids'][0]}")).json()
    assert (
        datetime.fromisoformat(event["occurred_at"]).astimezone(UTC).isoformat()[:10]
        == (moment[:10])
    )


async def test_a_body_nested_too_deeply_is_refused_and_one_within_the_limit_is_read_back(
    here: Daemon,
) -> None:
    assert await nested(here, 31) == 202
    for levels in (32, 200, 600, 100_000):
        assert await nested(here, levels) == 400

    await eventually(lambda: here.is_idle("ada"))
    assert (await here.client.get("/v1/events?mind=ada")).status_code == 200


async def test_meta_is_no_way_around_the_limit_of_a_text(here: Daemon) -> None:
    body = {"text": "x", "meta": {"much": "y" * 64 * 1024}}

    answer = await here.client.post(_STIMULI, json=body)

    assert (answer.status_code, answer.json()["field"]) == (413, "meta")


async def test_a_stimulus_whose_meta_has_items_is_one_stimulus(here: Daemon) -> None:
    answer = await here.client.post(_STIMULI, json={"text": "x", "meta": {"items": [1, 2]}})

    assert answer.status_code == 202
    assert len(answer.json()["ids"]) == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/minds/%00", None, 404),
        ("GET", "/minds/%00", None, 404),
        ("GET", "/v1/minds?after=%00", None, 200),
        ("GET", "/v1/minds/ada/cycles?trigger=%00", None, 200),
        ("GET", "/minds/ada/cycles?trigger=%00", None, 200),
        ("GET", "/v1/events?type=%00", None, 200),
        ("GET", "/v1/events?mind=%00", None, 404),
        ("GET", "/v1/events?order=desc&text=%00", None, 200),
        ("GET", "/events?type=%00", None, 200),
        ("GET", "/events?mind=%00", None, 400),
        ("GET", "/v1/events?order=desc&from=0001-01-01T00:00:00%2B14:00", None, 200),
        ("GET", "/v1/events?order=desc&to=9999-12-31T23:59:59-14:00", None, 200),
        ("GET", "/events?from=0001-01-01T00:00:00%2B14:00", None, 200),
        ("GET", "/v1/events?limit=" + "0" * 19 + "1" + "0" * 5_000, None, 400),
        ("GET", "/v1/minds/ada/cycles?before=" + "0" * 19 + "1" + "9" * 40, None, 400),
        ("GET", "/minds/ada/cycles?before=" + "9" * 40, None, 400),
        ("POST", "/v1/replays", {"mind": "ada\x00"}, 404),
        ("POST", "/v1/minds", {"slug": "bob", "name": "\x00" * 150}, 400),
        ("PATCH", "/v1/minds/ada", {"name": "\ue000" * 150}, 400),
        ("PATCH", "/v1/minds/ada", {"settings": {"capacity": "9" * 5_000}}, 400),
        ("PATCH", "/v1/minds/ada", {"settings": {"threshold": "1e999999"}}, 400),
        ("PATCH", "/v1/minds/ada", {"settings": {"threshold": "nan"}}, 400),
        ("POST", "/v1/minds/ada/mode", {"mode": "\x00"}, 400),
    ],
)
async def test_input_that_no_parameter_can_hold_is_an_answer_not_a_failure(
    here: Daemon, method: str, path: str, body: Any, status: int
) -> None:
    answer = await here.client.request(method, path, json=body)

    assert answer.status_code == status, answer.text


async def test_half_a_surrogate_pair_in_what_an_error_quotes_is_no_second_error(
    here: Daemon,
) -> None:
    for path, body in (
        ("/v1/minds/ada/mode", r'{"mode": "\ud800"}'),
        ("/v1/minds", r'{"slug": "bob", "settings": {"\ud800": 1}}'),
        (_STIMULI, r'{"text": "x", "kind": "\ud800"}'),
    ):
        answer = await here.client.post(path, content=body, headers=_JSON)

        assert (answer.status_code, answer.json()["code"]) == (400, "invalid")


async def test_a_number_that_takes_a_minute_to_write_down_is_refused_at_once(
    here: Daemon,
) -> None:
    async with asyncio.timeout(5):
        answer = await here.client.patch(
            "/v1/minds/ada", json={"settings": {"threshold": "1e900000"}}
        )

    assert answer.status_code == 400


@pytest.mark.parametrize("header", ["Origin", "Referer"])
async def test_an_origin_that_is_no_address_is_a_foreign_one(here: Daemon, header: str) -> None:
    answer = await here.client.post("/theme", data={"theme": "dark"}, headers={header: "http://["})

    assert answer.status_code == (403 if header == "Origin" else 303)


async def test_an_endless_header_is_refused_long_before_it_holds_anybody_up(here: Daemon) -> None:
    place = urlsplit(here.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * MAX_HEAD_BYTES)
        async with asyncio.timeout(10):
            answer = await reader.read()
    finally:
        writer.close()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert (await here.client.get("/healthz")).status_code == 200


async def test_a_body_longer_than_any_head_is_still_a_body(here: Daemon) -> None:
    items = [{"text": "y" * 60_000}] * 3

    answer = await here.client.post(_STIMULI, json={"items": items})

    assert answer.status_code == 202


async def test_a_batch_of_two_thousand_is_taken_and_one_more_is_not(here: Daemon) -> None:
    taken = await here.client.post(_STIMULI, json={"items": [{"text": "x"}] * 2_000})
    refused = await here.client.post(_STIMULI, json={"items": [{"text": "x"}] * 2_001})

    assert (taken.status_code, refused.status_code) == (202, 413)


async def test_a_stream_asked_for_from_the_future_tells_what_happens_now(here: Daemon) -> None:
    asked = here.client.stream("GET", "/v1/events/stream?after=p7fffffffffffffff&mind=ada")

    async with asyncio.timeout(20), asked as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "retry: 2000"
        [stimulus] = await here.fed("ada", ["news"])
        async for line in lines:
            if stimulus in line:
                break


async def test_a_head_request_of_the_stream_ends(here: Daemon) -> None:
    async with asyncio.timeout(10):
        answer = await here.client.head("/v1/events/stream")

    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_a_mind_has_no_more_open_goals_than_it_can_keep_in_sight(here: Daemon) -> None:
    for n in range(GOALS_KEPT):
        await here.client.post("/v1/minds/ada/goals", json={"text": f"watch {n}"})

    refused = await here.client.post("/v1/minds/ada/goals", json={"text": "one more"})
    [first, *_] = (await here.client.get("/v1/minds/ada/goals")).json()["items"]
    await here.client.post(f"/v1/minds/ada/goals/{first['id']}/close")
    taken = await here.client.post("/v1/minds/ada/goals", json={"text": "one more"})

    assert (refused.status_code, taken.status_code) == (409, 201)


async def test_a_step_and_a_replay_that_are_asked_for_twice_with_one_key_happen_once(
    here: Daemon,
) -> None:
    headers = {"Idempotency-Key": "again"}
    body = {"mind": "ada"}
    await eventually(lambda: _has_thought(here))

    replays = [
        (await here.client.post("/v1/replays", json=body, headers=headers)).json()["id"]
        for _ in range(2)
    ]
    for _ in range(2):
        assert (await here.client.post("/v1/minds/ada/step", headers=headers)).status_code == 202

    steps = (await here.client.get("/v1/events?mind=ada&type=step.requested")).json()["items"]
    assert len(set(replays)) == 1
    assert len(steps) == 1


async def _has_thought(here: Daemon) -> bool:
    return (await here.noema.minds.get("ada")).cycles > 0

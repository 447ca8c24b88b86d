"""`noemactl mem …`: what each command asks for and shows, against a small server."""

import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noema.cli import noemactl
from noema.cli.client import Ctl
from noema.config import ClientSettings
from noema.core.clock import ManualClock
from tests.integration.test_noemactl_fake import START, TOKEN, Answer, Fake, Ran, problem

Run = Callable[..., Ran]
ID = "0197f3c2-7d1e-7a00-8000-000000000001"
OTHER = "0197f3c2-7d1e-7a00-8000-000000000002"
MEMORY = {
    "id": ID,
    "namespace": "home",
    "kind": "fact",
    "text": "The backup runs at 03:00.\x1b[2J",
    "valid_from": "2026-03-01T00:00:00Z",
    "valid_to": None,
    "supersedes": None,
    "status": "active",
    "event_time": None,
}
WRITTEN = {
    "stored": 1,
    "rejected": [],
    "superseded": 0,
    "deduplicated": 0,
    "items": [{"id": ID, "outcome": "stored", "reason": None, "supersedes": None}],
    "conversation": None,
    "degraded": None,
}
GRANT = {
    "id": OTHER,
    "namespace": "home",
    "memory": ID,
    "subtree": None,
    "to_namespace": "acme/sales",
    "to_actor": None,
    "granted_by": "user:eva",
    "valid_from": "2026-03-01T00:00:00Z",
    "valid_to": None,
    "revoked_by": None,
}


@pytest.fixture
def fake() -> Iterator[Fake]:
    fake = Fake()
    thread = threading.Thread(target=fake.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
    thread.join()


@pytest.fixture
def mem(
    fake: Fake, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    clock = ManualClock(START)

    def run(*args: str, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        settings = ClientSettings(url=fake.url, token=TOKEN, config_dir=tmp_path / "config")
        context = Ctl(settings=settings, clock=clock, pause=clock.advance)
        code = noemactl.run(("mem", *args), context)
        captured = capfd.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


# -- read and search


def test_a_memory_is_shown_whole_with_its_history(mem: Run, fake: Fake) -> None:
    older = MEMORY | {"id": OTHER, "text": "The backup runs at 02:00."}
    fake.answer("POST", "/v1/mem/read", MEMORY | {"history": [MEMORY, older]})

    ran = mem("read", ID, "--history")

    assert fake.asked[-1].body == {"id": ID, "history": True}
    assert "text: The backup runs at 03:00.\\x1b[2J" in ran.out
    assert "The backup runs at 02:00." in ran.out.split("history, the newest first:")[1]
    assert mem("read", ID, "--json").json["id"] == ID


def test_a_memory_that_is_hidden_or_missing_ends_with_3(mem: Run) -> None:
    assert mem("read", ID).code == 3


def test_a_search_asks_for_what_was_said_and_nothing_else(mem: Run, fake: Fake) -> None:
    fake.answer("POST", "/v1/mem/search", {"results": [], "driver": "baseline"})

    mem("search", "backup")
    mem(
        "search", "backup", "-k", "3", "--explain", "--kinds", "fact,episode", "--all",
        "--as-of", "2026-02-01", "--token-budget", "500", "--sensitive",
        "--view-namespace", "acme", "--view-actor", "user:eva",
    )  # fmt: skip

    assert [asked.body for asked in fake.asked] == [
        {"query": "backup", "k": 10},
        {
            "query": "backup",
            "k": 3,
            "explain": True,
            "kinds": ["fact", "episode"],
            "asOf": "2026-02-01T00:00:00+00:00",
            "validOnly": False,
            "tokenBudget": 500,
            "sensitive": True,
            "viewNamespace": "acme",
            "viewActor": "user:eva",
        },
    ]


def test_what_was_found_is_a_table_and_json_is_the_answer_whole(mem: Run, fake: Fake) -> None:
    answer = {
        "results": [MEMORY | {"score": 0.81234567, "components": None}],
        "driver": "baseline",
        "degraded": "no vectors",
        "tokens": 9,
        "trimmed": 2,
    }
    fake.answer("POST", "/v1/mem/search", answer)

    ran = mem("search", "backup")

    assert "0.8123  fact  2026-03-01T00:00:00Z" in ran.out
    assert "\x1b" not in ran.out
    assert ran.err == ("Not at its best: no vectors.\n2 more did not fit into the token budget.\n")
    assert mem("search", "backup", "--json").json == answer


def test_an_explained_search_shows_what_each_score_is_made_of(mem: Run, fake: Fake) -> None:
    components = {
        "text": 1.0,
        "vector": 0.25,
        "bm25": 7.5,
        "cosine": None,
        "weights": {"text": 0.6, "vector": 0.4},
    }
    hit = MEMORY | {"score": 0.7, "components": components}
    fake.answer("POST", "/v1/mem/search", {"results": [hit], "driver": "baseline"})

    ran = mem("search", "backup", "--explain")

    assert [" ".join(line.split()) for line in ran.out.splitlines()[2:]] == [
        "COMPONENT VALUE WEIGHT ADDS",
        "text 1.0000 0.6000 0.6000 ████████████████████",
        "vector 0.2500 0.4000 0.1000 ███",
        "before scaling: bm25 7.5000",
    ]


@pytest.mark.parametrize(
    "args",
    [
        ("search",),
        ("search", "x", "-k", "201"),
        ("search", "x", "--kinds", "fact,nonsense"),
        ("search", "x", "--as-of", "soon"),
        ("search", "x", "--view-actor", "user:eva"),
        ("write",),
        ("write", "x", "--transcript", "f.json"),
        ("write", "x", "--importance", "2"),
        ("share", ID),
        ("share", ID, "--subtree", "home", "--to-actor", "user:eva"),
        ("policy", "--set", "-"),
        ("retract", ID),
        ("conflict", "resolve", ID, "perhaps"),
    ],
)
def test_a_usage_error_is_one_line_that_asks_nothing(
    mem: Run, fake: Fake, args: tuple[str, ...]
) -> None:
    ran = mem(*args)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert fake.asked == []


# -- write


def test_a_text_is_written_with_what_was_said_about_it(mem: Run, fake: Fake) -> None:
    fake.answer("POST", "/v1/mem/write", WRITTEN)

    ran = mem(
        "write", "The backup runs at 03:00.", "--kind", "fact", "--source", "runbook",
        "--event-time", "Mar  1 2026 03:00:00", "--importance", "0.5", "--supersedes", OTHER,
        "--derived-from", ID, "--verbatim", "--key", "k1",
    )  # fmt: skip

    assert ran.out == f"stored  {ID}\n"
    assert fake.asked[-1].headers["idempotency-key"] == "k1"
    assert fake.asked[-1].body == {
        "text": "The backup runs at 03:00.",
        "kind": "fact",
        "source": "runbook",
        "event_time": "2026-03-01T03:00:00+00:00",
        "importance": 0.5,
        "supersedes": OTHER,
        "derived_from": [ID],
        "verbatim": True,
    }


def test_a_text_comes_from_standard_input_as_it_is(mem: Run, fake: Fake) -> None:
    fake.answer("POST", "/v1/mem/write", WRITTEN)

    mem("write", "-", stdin="two\nlines é\n")

    assert fake.asked[-1].body == {"text": "two\nlines é"}


def test_one_message_continues_a_conversation(mem: Run, fake: Fake) -> None:
    fake.answer("POST", "/v1/mem/write", WRITTEN | {"conversation": OTHER})

    ran = mem("write", "Moved to 04:00.", "--speaker", "eva", "--conversation", "standup")

    assert fake.asked[-1].body == {
        "messages": [{"speaker": "eva", "text": "Moved to 04:00."}],
        "conversation": "standup",
    }
    assert OTHER in ran.err


def test_a_transcript_keeps_order_and_speakers_and_its_times_get_a_zone(
    mem: Run, fake: Fake, tmp_path: Path
) -> None:
    file = tmp_path / "t.json"
    messages = [
        {"speaker": "eva", "text": "Hi", "at": "2026-03-01 09:00:00"},
        {"role": "assistant", "content": "Hello", "at": "2026-03-01T09:00:01Z"},
        {"speaker": "eva", "text": "Bye", "at": "noonish"},
    ]
    file.write_text(json.dumps(messages))
    fake.answer("POST", "/v1/mem/write", WRITTEN)

    mem("write", "--transcript", str(file), "--zone", "Asia/Tokyo", "--conversation", "c")

    assert fake.asked[-1].body == {
        "messages": [
            {"speaker": "eva", "text": "Hi", "at": "2026-03-01T00:00:00+00:00"},
            {"speaker": "assistant", "text": "Hello", "at": "2026-03-01T09:00:01+00:00"},
            {"speaker": "eva", "text": "Bye", "at": "noonish"},
        ],
        "conversation": "c",
    }


@pytest.mark.parametrize(
    ("stdin", "why"),
    [
        ("{", "Standard input is not JSON"),
        ("17", "A transcript is a JSON array"),
        ("[1]", "Message 1 of the transcript is not an object"),
    ],
)
def test_what_is_no_transcript_is_not_sent(mem: Run, fake: Fake, stdin: str, why: str) -> None:
    ran = mem("write", "--transcript", "-", stdin=stdin)

    assert ran.code == 1
    assert why in ran.err
    assert fake.asked == []


def test_what_is_turned_away_ends_with_1_and_says_why(mem: Run, fake: Fake) -> None:
    items = [
        {"id": ID, "outcome": "deduplicated"},
        {"id": None, "outcome": "rejected", "reason": "It holds nothing."},
        {"id": ID, "outcome": "superseded", "supersedes": OTHER},
    ]
    rejected = [{"index": 1, "reason": "It holds nothing."}]
    fake.answer("POST", "/v1/mem/write", WRITTEN | {"items": items, "rejected": rejected})

    ran = mem("write", "x")

    assert ran.code == 1
    assert ran.err == "Error: It holds nothing.\n"
    assert ran.out.splitlines() == [
        f"1: deduplicated  {ID}",
        "2: rejected  It holds nothing.",
        f"3: superseded  {ID}  in place of {OTHER}",
    ]
    assert mem("write", "x", "--json").json["rejected"] == rejected


def test_an_asynchronous_write_prints_a_ticket_that_can_be_waited_for(mem: Run, fake: Fake) -> None:
    waiting = {"ticket": OTHER, "state": "waiting"}
    done = {"ticket": OTHER, "state": "done", "result": WRITTEN, "error": ""}
    fake.answer("POST", "/v1/mem/write", Answer(body=waiting, status=202))
    fake.answer("GET", f"/v1/mem/tickets/{OTHER}", waiting, waiting, done)

    accepted = mem("write", "x", "--async")
    looked = mem("ticket", OTHER)
    waited = mem("ticket", OTHER, "--wait", "30s")

    assert fake.asked[0].body == {"text": "x", "async": True}
    assert accepted.out == f"Ticket {OTHER}: waiting.\n"
    assert f"noemactl mem ticket {OTHER}" in accepted.err
    assert looked.code == 0
    assert waited.out == f"Ticket {OTHER}: done.\nstored  {ID}\n"


def test_a_ticket_that_fails_or_takes_too_long_ends_with_1(mem: Run, fake: Fake) -> None:
    path = f"/v1/mem/tickets/{OTHER}"
    fake.answer("GET", path, {"ticket": OTHER, "state": "failed", "error": "No room"})
    failed = mem("ticket", OTHER)
    fake.answer("GET", path, {"ticket": OTHER, "state": "running"})
    late = mem("ticket", OTHER, "--wait", "2s")

    assert (failed.code, late.code) == (1, 1)
    assert "The write failed: No room" in failed.err
    assert "Not done within 2 seconds" in late.err


# -- lists, pins, policy


def test_memories_are_listed_page_by_page(mem: Run, fake: Fake) -> None:
    fake.answer(
        "GET",
        "/v1/mem/memories",
        {"items": [MEMORY], "next": ID},
        {"items": [MEMORY | {"id": OTHER}], "next": None},
    )

    ran = mem("memories", "--kinds", "fact,episode", "--status", "active", "--json")

    assert [one["id"] for one in ran.json] == [ID, OTHER]
    first, second = (asked.query for asked in fake.asked)
    assert first == {"kinds": "fact,episode", "status": "active", "limit": "50"}
    assert second["before"] == ID


def test_pins_are_set_listed_and_taken_away(mem: Run, fake: Fake) -> None:
    pin = {"id": OTHER, "namespace": "home", "memory_id": ID, "actor": "user:eva"}
    fake.answer("POST", "/v1/mem/pin", pin)
    fake.answer("POST", "/v1/mem/unpin", {"id": ID, "pinned": False})
    fake.answer("GET", "/v1/mem/pins", {"items": [pin], "next": None})

    assert mem("pin", ID).out == f"Pinned {ID}.\n"
    assert ID in mem("pins").out
    assert mem("unpin", ID).out == f"Unpinned {ID}.\n"
    assert [a.body for a in fake.asked if a.method == "POST"] == [{"id": ID}] * 2


def test_a_policy_is_shown_set_and_acknowledged(mem: Run, fake: Fake, tmp_path: Path) -> None:
    effective = {
        "namespace": "acme/eng",
        "writes_per_minute": 60,
        "directives": [{"id": "d1", "text": "Never quote salaries.\x07"}],
        "digest": "abc",
        "acknowledged": False,
    }
    document = {"writes_per_minute": 60}
    own = {"namespace": "acme/eng", "version": 3, "policy": document | {"driver": None}}
    file = tmp_path / "p.json"
    file.write_text(json.dumps(document))
    fake.answer("POST", "/v1/mem/policy", effective)
    fake.answer("GET", "/v1/mem/policies/acme/eng", own)
    fake.answer("PUT", "/v1/mem/policies/acme/eng", effective)
    fake.answer("POST", "/v1/mem/policy-ack", effective | {"acknowledged": True})

    shown = mem("policy")
    its_own = mem("policy", "--namespace", "acme/eng")
    put = mem("policy", "--namespace", "acme/eng", "--set", str(file), "--json")
    acknowledged = mem("ack", "abc")

    assert "d1: Never quote salaries.\\x07" in shown.out
    assert its_own.out == "namespace: acme/eng\nversion: 3\nwrites_per_minute: 60\n"
    assert put.json == effective
    assert fake.asked[-2].body == document
    assert acknowledged.out == "Acknowledged abc.\n"


def test_an_agent_may_not_set_a_policy(mem: Run, fake: Fake) -> None:
    fake.answer("PUT", "/v1/mem/policies/home", problem(403, "Only admins and owners may."))

    assert mem("policy", "--namespace", "home", "--set", "-", stdin="{}").code == 4


def test_stats_are_shown(mem: Run, fake: Fake) -> None:
    fake.answer("POST", "/v1/mem/stats", {"total": 3, "by_kind": {"fact": 3}})

    assert mem("stats").out == "total: 3\nby_kind:\n  fact: 3\n"
    assert mem("stats", "--json").json["total"] == 3


# -- the rest


def test_memories_are_shared_listed_and_unshared(mem: Run, fake: Fake) -> None:
    fake.answer("POST", "/v1/mem/share", Answer(body=GRANT, status=201))
    fake.answer("GET", "/v1/mem/grants", {"items": [GRANT], "next": None})
    fake.answer("DELETE", f"/v1/mem/grants/{OTHER}", GRANT)

    shared = mem("share", ID, "--to-namespace", "acme/sales", "--expires", "2027-01-01")
    mem("share", "--subtree", "home", "--to-actor", "user:eva")
    listed = mem("shares", "--ended")
    ended = mem("unshare", OTHER)

    assert shared.out == f"Shared memory {ID} with namespace acme/sales: {OTHER}.\n"
    assert [asked.body for asked in fake.posts("/v1/mem/share")] == [
        {"memory": ID, "to_namespace": "acme/sales", "expires_at": "2027-01-01T00:00:00+00:00"},
        {"subtree": "home", "to_actor": "user:eva"},
    ]
    assert fake.asked[2].query["ended"] == "1"
    assert "namespace acme/sales" in listed.out
    assert ended.out == f"Ended share {OTHER}.\n"


def test_it_is_explained_why_one_sees_a_memory(mem: Run, fake: Fake) -> None:
    answer = {
        "id": ID,
        "viewer_namespace": "acme/sales",
        "viewer_actor": "user:eva",
        "is_visible": True,
        "is_found_by_search": False,
        "reasons": ["It is closed."],
        "namespaces": ["acme/sales", "acme"],
        "grants": [GRANT],
    }
    fake.answer("POST", "/v1/mem/explain", answer)

    ran = mem(
        "explain", ID, "--view-namespace", "acme/sales", "--view-actor", "user:eva",
        "--as-of", "2026-02-01",
    )  # fmt: skip

    assert fake.asked[-1].body == {
        "id": ID,
        "view_namespace": "acme/sales",
        "view_actor": "user:eva",
        "as_of": "2026-02-01T00:00:00+00:00",
    }
    assert ran.out.splitlines() == [
        f"user:eva in acme/sales sees {ID}.",
        "No search finds it.",
        "- It is closed.",
        f"- share {OTHER}: memory {ID} with namespace acme/sales",
    ]


def test_what_is_withdrawn_is_restored(mem: Run, fake: Fake) -> None:
    retraction = {"id": OTHER, "root": ID, "memories": [ID, OTHER]}
    fake.answer("POST", "/v1/mem/retract", retraction)
    fake.answer("POST", "/v1/mem/restore", retraction)

    withdrawn = mem("retract", ID, "--reason", "a typo")
    restored = mem("restore", OTHER)

    assert withdrawn.out == f"Withdrew 2 memories: retraction {OTHER}.\n"
    assert restored.out == "Restored 2 memories.\n"
    assert [asked.body for asked in fake.asked] == [
        {"id": ID, "reason": "a typo"},
        {"retraction": OTHER},
    ]


def test_conflicts_are_listed_decided_and_taken_back(mem: Run, fake: Fake) -> None:
    case = {"id": ID, "outcome": "for_review", "newcomer_text": "04:00", "incumbent_text": "03:00"}
    fake.answer("GET", "/v1/mem/conflicts", {"items": [case], "next": None})
    fake.answer("POST", f"/v1/mem/conflicts/{ID}/resolve", case)
    fake.answer("POST", f"/v1/mem/conflicts/{ID}/revert", case)

    listed = mem("conflicts", "--open")
    resolved = mem("conflict", "resolve", ID, "newcomer_wins")
    reverted = mem("conflict", "revert", ID)

    assert "for_review" in listed.out
    assert fake.asked[1].body == {"outcome": "newcomer_wins"}
    assert [one.code for one in (listed, resolved, reverted)] == [0, 0, 0]


def test_memories_and_entities_are_related_and_no_longer(mem: Run, fake: Fake) -> None:
    fake.answer("POST", "/v1/mem/relate", Answer(body={"id": OTHER}, status=201))
    fake.answer("DELETE", f"/v1/mem/relationships/{OTHER}", {"id": OTHER, "status": "ended"})

    related = mem("relate", ID, OTHER, "--kind", "depends-on", "--confidence", "0.5")
    mem("relate", ID, OTHER, "--kind", "owns", "--entities")
    ended = mem("unrelate", OTHER)

    assert [asked.body for asked in fake.posts("/v1/mem/relate")] == [
        {"from_memory": ID, "to_memory": OTHER, "kind": "depends-on", "confidence": 0.5},
        {"from_entity": ID, "to_entity": OTHER, "kind": "owns"},
    ]
    assert related.out == f"Related: {OTHER}.\n"
    assert ended.out == f"Ended {OTHER}.\n"


def test_entities_are_listed_merged_named_and_told_apart(mem: Run, fake: Fake) -> None:
    entity: dict[str, Any] = {"id": ID, "name": "Backup", "kind": "thing", "aliases": ["bkp", "b"]}
    merge = {"id": OTHER, "kept_name": "Backup", "merged_name": "Backups"}
    pair = {"entity": ID, "entity_name": "Backup", "similar": OTHER, "similar_name": "Backups"}
    fake.answer("GET", "/v1/mem/entities", {"items": [entity], "next": None})
    fake.answer("GET", "/v1/mem/entity-merges", {"items": [merge], "next": None})
    fake.answer("GET", "/v1/mem/entity-suggestions", {"items": [pair], "next": None})
    fake.answer("POST", f"/v1/mem/entities/{ID}/merge", Answer(body={"id": OTHER}, status=201))
    fake.answer("POST", f"/v1/mem/entity-merges/{OTHER}/undo", {"id": OTHER, "status": "undone"})
    fake.answer("POST", f"/v1/mem/entities/{ID}/refuse", {"id": ID, "status": "refused"})
    fake.answer("POST", f"/v1/mem/entities/{ID}/aliases", Answer(body={"id": ID}, status=201))

    ran = [
        mem("entities", "back"),
        mem("entity", "suggestions"),
        mem("entity", "merge", ID, OTHER),
        mem("entity", "merges"),
        mem("entity", "unmerge", OTHER),
        mem("entity", "refuse", ID, OTHER),
        mem("entity", "alias", ID, "bkp"),
    ]

    assert [one.code for one in ran] == [0] * 7
    assert "bkp, b" in ran[0].out
    assert "Backups" in ran[1].out
    assert ran[2].out == f"Merged: {OTHER}.\n"
    assert "Backups" in ran[3].out
    assert fake.asked[0].query["text"] == "back"
    assert [asked.body for asked in fake.asked if asked.method == "POST"] == [
        {"merge": OTHER},
        {},
        {"similar": OTHER},
        {"name": "bkp"},
    ]

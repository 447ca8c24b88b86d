"""`noemactl mem import` against a small server that can be slow, full, restarted and gone."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noema.cli import noemactl
from noema.cli.client import Ctl
from noema.cli.commands import mem_progress
from noema.config import ClientSettings
from noema.core.clock import ManualClock
from tests.integration.test_noemactl_fake import (
    LOST,
    START,
    TOKEN,
    Answer,
    Asked,
    Fake,
    Ran,
    problem,
)

WRITE = "/v1/mem/write"
TAKEN_AND_LOST = Answer(status=-1)  # the write is done, and the connection closes
POLICY = {"namespace": "home", "max_text_chars": 32_768, "directives": []}
Run = Callable[..., Ran]


class Memory(Fake):
    """A daemon that deduplicates texts, and does with some what `on` says first."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.on: dict[str, list[Answer]] = {}
        self.before: Callable[[Asked], None] = lambda asked: None
        self._answers: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.answer("POST", "/v1/mem/policy", POLICY)
        self.routes["POST", WRITE] = self._write

    def _write(self, asked: Asked) -> Answer:
        self.before(asked)
        key, body = asked.headers["idempotency-key"], asked.body
        texts = [body["text"]] if "text" in body else [m["text"] for m in body["messages"]]
        with self._lock:
            planned = self.on.get(texts[0])
            answer = planned.pop(0) if planned else None
            if answer is not None and answer is not TAKEN_AND_LOST:
                return answer
            if key not in self._answers:
                self._answers[key] = self._take(body, texts)
            return LOST if answer is TAKEN_AND_LOST else Answer(body=self._answers[key])

    def _take(self, body: dict[str, Any], texts: list[str]) -> dict[str, Any]:
        fresh = [text for text in texts if text not in self.texts and "bad" not in text]
        rejected = [
            {"index": index, "reason": "holds nothing"}
            for index, text in enumerate(texts)
            if "bad" in text
        ]
        self.texts += fresh
        self.bodies.append(body)
        known = len(texts) - len(fresh) - len(rejected)
        return {"stored": len(fresh), "superseded": 0, "deduplicated": known, "rejected": rejected}

    @property
    def keys(self) -> list[str]:
        return [asked.headers["idempotency-key"] for asked in self.posts(WRITE)]


@pytest.fixture
def fake() -> Iterator[Memory]:
    fake = Memory()
    thread = threading.Thread(target=fake.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
    thread.join()


@pytest.fixture
def ctl(
    fake: Memory,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    clock = ManualClock(START)

    def run(
        *args: str, pause: Callable[[float], None] | None = None, stdin: str | bytes = ""
    ) -> Ran:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        settings = ClientSettings(
            url=fake.url, token=TOKEN, config_dir=tmp_path / "config", cache_dir=tmp_path / "cache"
        )
        context = Ctl(settings=settings, clock=clock, pause=pause or clock.advance)
        code = noemactl.run(("mem", "import", *args), context)
        captured = capfd.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


def lines(path: Path, *values: Any) -> str:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return str(path)


@pytest.fixture
def facts(tmp_path: Path) -> str:
    return lines(tmp_path / "facts.jsonl", *(f"fact {n}" for n in range(1, 41)))


def interrupt(seconds: float) -> None:
    raise KeyboardInterrupt


def test_every_line_goes_through_the_write_path_and_the_sum_is_told(
    ctl: Run, fake: Memory, tmp_path: Path
) -> None:
    file = lines(tmp_path / "f.jsonl", "one", {"text": "two", "source": "s"}, "one", "")

    ran = ctl(file, "--kind", "fact", "--in-flight", "1")

    assert ran.out == "4 items: 3 stored, 1 deduplicated, 0 rejected.\n"
    assert (ran.code, ran.err) == (0, "")
    assert fake.bodies[:2] == [
        {"kind": "fact", "source": "f.jsonl", "text": "one"},
        {"kind": "fact", "source": "s", "text": "two"},
    ]
    assert {asked.path for asked in fake.asked} == {"/v1/mem/policy", WRITE}


def test_text_in_any_script_arrives_as_it_is(ctl: Run, fake: Memory, tmp_path: Path) -> None:
    file = lines(tmp_path / "f.jsonl", "日本語 🙂", "half \ud83d of one")

    ctl(file, "--in-flight", "1")

    assert fake.texts == ["日本語 🙂", "half \ud83d of one"]


def test_malformed_lines_are_named_kept_and_end_with_1_after_the_rest_is_stored(
    ctl: Run, fake: Memory, tmp_path: Path
) -> None:
    file = tmp_path / "f.jsonl"
    file.write_bytes(b'"one"\n{"text": \n"caf\xe9"\n\n{"text": "bad"}\n"two"\n')
    rejects = tmp_path / "rejects.jsonl"

    ran = ctl(str(file), "--rejects", str(rejects))

    assert ran.code == 1
    assert sorted(fake.texts) == ["one", "two"]
    assert ran.out == "5 items: 2 stored, 0 deduplicated, 3 rejected; 1 empty one left out.\n"
    assert ran.err.splitlines() == [
        "f.jsonl:2 is not JSON (Expecting value)",
        "f.jsonl:3 is not UTF-8 (byte 0xe9 at 4)",
        "f.jsonl:5: holds nothing",
        "Error: 3 items not taken; the rest is.",
    ]
    kept = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [one["place"] for one in kept] == ["f.jsonl:2", "f.jsonl:3", "f.jsonl:5"]
    assert kept[2]["body"]["text"] == "bad"


def test_of_many_rejects_the_first_are_shown(ctl: Run, tmp_path: Path) -> None:
    ran = ctl(lines(tmp_path / "f.jsonl", *range(25)))

    assert ran.code == 1
    assert ran.err.count("neither an object nor a string") == 10
    assert "and 15 more; --rejects FILE keeps all." in ran.err


def test_json_tells_everything_to_a_program(ctl: Run, tmp_path: Path) -> None:
    ran = ctl(lines(tmp_path / "f.jsonl", "one", "one", 1), "--json", "--in-flight", "1")

    assert ran.code == 1
    assert ran.json == {
        "complete": True,
        "items": 3,
        "stored": 1,
        "superseded": 0,
        "deduplicated": 1,
        "rejected": 1,
        "rejects": [{"place": "f.jsonl:3", "reason": "is neither an object nor a string"}],
        "empty": 0,
        "links": 0,
        "retries": 0,
    }


def test_strict_stops_at_the_first(ctl: Run, fake: Memory, tmp_path: Path) -> None:
    ran = ctl(lines(tmp_path / "f.jsonl", "one", 2, "three"), "--strict")

    assert ran.code == 1
    assert fake.texts == ["one"]
    assert "Error: f.jsonl:2: is neither an object nor a string 1 item done;" in ran.err


def test_a_message_that_is_turned_away_is_named(ctl: Run, fake: Memory, tmp_path: Path) -> None:
    transcript = {"messages": [{"speaker": "a", "text": "hi"}, {"speaker": "b", "text": "bad"}]}

    ran = ctl(lines(tmp_path / "f.jsonl", transcript))

    assert "f.jsonl:1, message 2: holds nothing" in ran.err
    assert fake.texts == ["hi"]


def test_requests_are_in_flight_together(ctl: Run, fake: Memory, facts: str) -> None:
    together = threading.Barrier(8)
    fake.before = lambda asked: void(together.wait(20))

    ran = ctl(facts)

    assert ran.code == 0
    assert len(fake.texts) == 40


def void(value: object) -> None:
    return None


def test_parts_of_one_conversation_are_written_one_after_another(
    ctl: Run, fake: Memory, tmp_path: Path
) -> None:
    turns = [
        {"messages": [{"speaker": "a", "text": f"{c} {n}"}], "conversation": c}
        for n in range(10)
        for c in ("x", "y", "z")
    ]

    ctl(lines(tmp_path / "f.jsonl", *turns))

    for conversation in ("x", "y", "z"):
        said = [text for text in fake.texts if text.startswith(conversation)]
        assert said == [f"{conversation} {n}" for n in range(10)]


def test_a_write_whose_answer_is_lost_is_sent_again_with_its_key(
    ctl: Run, fake: Memory, facts: str
) -> None:
    waited: list[float] = []
    busy = problem(429, "At most 60 writes a minute here.", headers={"Retry-After": "7"})
    fake.on = {"fact 3": [TAKEN_AND_LOST, problem(503, "Starting.")], "fact 30": [busy]}

    ran = ctl(facts, "--in-flight", "1", pause=waited.append)

    assert ran.code == 0
    assert ran.out == "40 items: 40 stored, 0 deduplicated, 0 rejected.\n"
    assert waited == [0.5, 1, 7]
    assert len(set(fake.keys)) == 40
    assert len(fake.keys) == 43
    assert "Going on at the pace that the daemon allows." in ran.err


def test_giving_up_keeps_the_place_and_the_same_command_goes_on_from_there(
    ctl: Run, fake: Memory, facts: str
) -> None:
    fake.on = {"fact 20": [LOST] * 99}

    gave_up = ctl(facts, "--json")
    fake.on = {}
    taken, sent = set(fake.keys), len(fake.keys)
    went_on = ctl(facts, "--json")

    assert gave_up.code == 5
    assert gave_up.json["complete"] is False
    assert "19 items done; the same command goes on from there." in gave_up.err
    assert "Going on behind 19 items" in went_on.err
    assert went_on.code == 0
    assert went_on.json["items"] == went_on.json["stored"] == 40
    assert len(fake.keys) - sent == 21
    assert fake.keys[sent:][0] in taken
    assert sorted(fake.texts) == sorted(f"fact {n}" for n in range(1, 41))


def test_an_interrupt_leaves_a_place_to_go_on_and_a_new_import_starts_over(
    ctl: Run, fake: Memory, facts: str, tmp_path: Path
) -> None:
    fake.on = {"fact 33": [LOST]}

    stopped = ctl(facts, pause=interrupt)
    went_on = ctl(facts)
    once_more = ctl(facts)

    assert stopped.code == 130
    assert stopped.err.splitlines()[-1] == (
        "Interrupted. 32 items done; the same command goes on from there."
    )
    assert went_on.out == "40 items: 40 stored, 0 deduplicated, 0 rejected.\n"
    assert once_more.out == "40 items: 0 stored, 40 deduplicated, 0 rejected.\n"
    assert list((tmp_path / "cache" / "imports").iterdir()) == []


def test_going_on_with_another_source_or_other_options_is_refused_and_restart_begins_anew(
    ctl: Run, fake: Memory, facts: str
) -> None:
    fake.on = {"fact 33": [LOST]}
    ctl(facts, pause=interrupt)

    other_kind = ctl(facts, "--kind", "episode")
    fake.answer("POST", "/v1/mem/policy", POLICY | {"namespace": "acme"})
    other_namespace = ctl(facts)
    fake.answer("POST", "/v1/mem/policy", POLICY)
    with Path(facts).open("a") as file:
        file.write('"fact 41"\n')
    changed = ctl(facts)
    restarted = ctl(facts, "--restart")

    assert [one.code for one in (other_kind, other_namespace, changed)] == [1, 1, 1]
    assert "stopped behind 32 items with another kind (None). --restart" in other_kind.err
    assert "with another namespace (home)" in other_namespace.err
    assert "and it has changed since. --restart begins anew" in changed.err
    assert restarted.out.startswith("41 items: ")
    assert sorted(fake.texts) == sorted(f"fact {n}" for n in range(1, 42))


def test_rejects_are_not_kept_twice_by_an_import_that_goes_on(
    ctl: Run, fake: Memory, tmp_path: Path
) -> None:
    file = lines(tmp_path / "f.jsonl", 1, "two", "three", 4)
    kept = tmp_path / "rejects"
    fake.on = {"three": [LOST]}
    ctl(file, "--rejects", str(kept), "--in-flight", "1", pause=interrupt)
    with kept.open("a") as behind:
        behind.write('{"place": "what was never counted"}\n')

    ctl(file, "--rejects", str(kept))

    places = [json.loads(line)["place"] for line in kept.read_text().splitlines()]
    assert places == ["f.jsonl:1", "f.jsonl:4"]


def test_a_file_that_cannot_be_kept_or_read_is_one_line(
    ctl: Run, facts: str, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("in the way")

    no_place = ctl(facts)
    missing = ctl(str(tmp_path / "missing.jsonl"))

    assert [one.code for one in (no_place, missing)] == [1, 1]
    assert "XDG_CACHE_HOME" in no_place.err
    assert no_place.err.count("\n") == missing.err.count("\n") == 1


def test_a_token_that_may_not_write_stops_with_4(ctl: Run, fake: Memory, facts: str) -> None:
    fake.answer("POST", WRITE, problem(403, "An auditor may not write.", code="denied"))

    ran = ctl(facts)

    assert ran.code == 4
    assert "An auditor may not write. 0 items done" in ran.err


def test_a_folder_is_imported_in_pieces_no_larger_than_the_policy_allows(
    ctl: Run, fake: Memory, tmp_path: Path
) -> None:
    root = tmp_path / "docs"
    (root / "sub").mkdir(parents=True)
    (root / "a.md").write_text("# One\n\n" + "A sentence. " * 40)
    (root / "sub" / "b.txt").write_text("Plain.")
    (root / "c.txt").write_bytes(b"\xff")
    fake.answer("POST", "/v1/mem/policy", POLICY | {"max_text_chars": 120})

    ran = ctl(str(root), "--in-flight", "1")

    assert ran.code == 1
    assert "c.txt is not UTF-8 (byte 0xff at 0)" in ran.err
    assert {body["source"] for body in fake.bodies} == {"a.md#One", "sub/b.txt"}
    assert max(len(text) for text in fake.texts) <= 120
    assert all(text.startswith("# One\n\n") for text in fake.texts[:-1])


def test_a_folder_that_was_interrupted_goes_on_inside_a_file(
    ctl: Run, fake: Memory, tmp_path: Path
) -> None:
    root = tmp_path / "docs"
    root.mkdir()
    (root / "a.md").write_text("".join(f"# H{n}\n\ntext\n\n" for n in range(9)))
    fake.on = {"# H5\n\ntext": [LOST]}

    ctl(str(root), pause=interrupt)
    sent = len(fake.keys)
    ran = ctl(str(root))

    assert ran.out.startswith("9 items: 9 stored")
    sources = [asked.body["source"] for asked in fake.posts(WRITE)[sent:]]
    assert sorted(sources) == [f"a.md#H{n}" for n in range(5, 9)]


def test_standard_input_is_imported_and_has_no_place_to_go_on(
    ctl: Run, fake: Memory, tmp_path: Path
) -> None:
    fake.on = {"two": [LOST]}

    stopped = ctl("-", stdin='"one"\n"two"\n', pause=interrupt)
    again = ctl("-", stdin='"one"\n"two"\n3\n')

    assert "1 item done; sent again, they are deduplicated." in stopped.err
    assert again.out == "3 items: 1 stored, 1 deduplicated, 1 rejected.\n"
    assert "line:3 is neither" in again.err
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    "args", [("-", "--format", "text"), (".", "--format", "jsonl"), (".", "--in-flight", "0")]
)
def test_what_makes_no_sense_is_a_usage_error(ctl: Run, args: tuple[str, ...]) -> None:
    assert ctl(*args).code == 2


def test_lines_tell_how_far_it_is_where_there_is_no_terminal(
    ctl: Run, fake: Memory, facts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.on = {f"fact {n}": [problem(503, "Wait.")] for n in (10, 20, 30)}
    monkeypatch.setattr(mem_progress, "_SAY_EVERY_S", 0.5)

    ran = ctl(facts, "--in-flight", "1")

    said = [line for line in ran.err.splitlines() if " left" in line]
    assert said[0] == "10 items, 20/s, 23 %, about 0:02 left"
    assert len(said) == 3


def test_a_bar_shows_count_and_rate_on_a_terminal(
    ctl: Run, fake: Memory, facts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noema.cli.commands.mem_progress.sys.stderr.isatty", lambda: True)
    fake.on = {"fact 20": [problem(503, "Wait.")]}

    ran = ctl(facts, "--in-flight", "1")

    assert ran.code == 0
    assert "Importing" in ran.err
    assert "Wait. Sending again until it is taken." in ran.err


# -- the process


@pytest.fixture
def start(fake: Memory, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    environ = {
        **os.environ,
        "NOEMA_URL": fake.url,
        "NOEMA_TOKEN": TOKEN,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    def start(*args: str) -> subprocess.Popen[bytes]:
        code = "from noema.cli.noemactl import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, "mem", "import", *args],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_import_that_is_ended_while_a_request_hangs_goes_on_and_stores_everything_once(
    fake: Memory,
    facts: str,
    start: Callable[..., subprocess.Popen[bytes]],
    how: signal.Signals,
) -> None:
    release, seen = threading.Event(), threading.Semaphore(0)

    def before(asked: Asked) -> None:
        if asked.body["text"] == "fact 1":
            seen.release()
            release.wait(20)

    fake.before = before
    process = start(facts)
    came = seen.acquire(timeout=20)
    process.send_signal(how)
    code = process.wait(10)
    release.set()
    again = start(facts)
    out, err = again.communicate(timeout=20)

    assert came
    assert code == (130 if how is signal.SIGINT else -signal.SIGKILL)
    assert again.returncode == 0
    assert b"Going on behind 0 items" in err
    assert out == b"40 items: 40 stored, 0 deduplicated, 0 rejected.\n"
    assert len(set(fake.keys)) == 40
    assert sorted(fake.texts) == sorted(f"fact {n}" for n in range(1, 41))

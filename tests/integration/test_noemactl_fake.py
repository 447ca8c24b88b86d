"""`noemactl` against a small real server that speaks the daemon's wire format."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from noema.cli import noemactl
from noema.cli.client import Ctl
from noema.config import ClientSettings
from noema.core.clock import ManualClock

TOKEN = "noema_" + "a" * 43
START = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as the server saw it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What to send: JSON with its status and headers, or the raw body."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None


def problem(status: int, detail: str, **more: Any) -> Answer:
    headers = {"Content-Type": "application/problem+json", **more.pop("headers", {})}
    body = {"type": "about:blank", "title": "No", "status": status, "detail": detail, **more}
    return Answer(body=body, status=status, headers=headers)


Route = Callable[[Asked], Answer]


class Fake:
    """The server: routes by method and path, each asked in turn; it keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.routes: dict[tuple[str, str], Route] = {}
        self.answer("GET", "/v1/minds/ada", {"slug": "ada"})
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def respond(self) -> None:
                fake.respond(self)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = respond  # noqa: N815

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, method: str, path: str, *bodies: Any) -> None:
        """Answer with each body in turn, the last one for ever; an Answer is sent as it is."""
        left = list(bodies)

        def route(asked: Asked) -> Answer:
            body = left.pop(0) if len(left) > 1 else left[0]
            return body if isinstance(body, Answer) else Answer(body=body)

        self.routes[method, path] = route

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        length = int(handler.headers.get("Content-Length") or 0)
        raw = handler.rfile.read(length)
        asked = Asked(
            method=handler.command,
            path=unquote(parts.path),
            query=dict(parse_qsl(parts.query)),
            headers={name.lower(): value for name, value in handler.headers.items()},
            body=json.loads(raw) if raw else None,
        )
        self.asked.append(asked)
        answer = self._answer_to(asked)
        if answer.status == 0:
            handler.close_connection = True
            return
        payload = json.dumps(answer.body).encode() if answer.raw is None else answer.raw
        handler.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            handler.send_header(name, value)
        if answer.headers.get("Content-Type") != "text/event-stream":
            handler.send_header("Content-Length", str(len(payload)))
        handler.end_headers()
        handler.wfile.write(payload)

    def _answer_to(self, asked: Asked) -> Answer:
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return problem(401, "This token is not known here.", code="unauthorised")
        route = self.routes.get((asked.method, asked.path))
        if route is None:
            return problem(404, "No such thing that you may see.", code="not_found")
        return route(asked)

    def posts(self, path: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == "POST" and asked.path == path]


LOST = Answer(status=0)  # the connection closes without an answer


@pytest.fixture
def fake() -> Iterator[Fake]:
    fake = Fake()
    thread = threading.Thread(target=fake.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
    thread.join()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Run(Protocol):
    """Runs a command against the fake."""

    def __call__(
        self,
        *args: str,
        url: str | None = ...,
        token: str | None = ...,
        pause: Callable[[float], None] | None = ...,
    ) -> Ran: ...


@pytest.fixture
def ctl(
    fake: Fake, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    clock = ManualClock(START)

    def run(
        *args: str,
        url: str | None = fake.url,
        token: str | None = TOKEN,
        pause: Callable[[float], None] | None = None,
    ) -> Ran:
        settings = ClientSettings(url=url, token=token, config_dir=tmp_path / "config")
        context = Ctl(settings=settings, clock=clock, pause=pause or clock.advance)
        code = noemactl.run(args, context)
        captured = capfd.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


# -- who and where


def test_login_checks_the_token_keeps_it_and_the_next_command_uses_it(
    ctl: Run, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = {"actor": "user:eva", "namespace": "home", "role": "owner", "console_role": "operator"}
    fake.answer("GET", "/v1/whoami", who)
    monkeypatch.setattr(sys, "stdin", io.StringIO(TOKEN + "\n"))

    logged_in = ctl("login", "--url", fake.url + "/", "-", url=None, token=None)
    shown = ctl("whoami", "--json", url=None, token=None)

    assert logged_in.code == 0
    assert "user:eva" in logged_in.out
    assert TOKEN not in logged_in.out + logged_in.err
    assert shown.json == who


def test_a_token_that_is_refused_is_not_kept(ctl: Run, fake: Fake, tmp_path: Path) -> None:
    ran = ctl("login", "noema_wrong", token=None)

    assert (ran.code, ran.out) == (4, "")
    assert ran.err.count("\n") == 1
    assert "This token is not known here." in ran.err
    assert "noemactl login" in ran.err
    assert not (tmp_path / "config").exists()


def test_login_refuses_a_token_in_the_address(ctl: Run, fake: Fake) -> None:
    ran = ctl("login", "--url", f"http://{TOKEN}@127.0.0.1:1", "-", token=None)

    assert ran.code == 1
    assert TOKEN not in ran.err
    assert fake.asked == []


def test_nobody_there_ends_with_5_and_says_how_to_start_it(ctl: Run, fake: Fake) -> None:
    fake.server.server_close()

    ran = ctl("whoami", url="http://127.0.0.1:1")

    assert ran.code == 5
    assert ran.err.count("\n") == 1
    assert "noema serve" in ran.err


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (problem(403, "An observer may not do this.", code="denied"), 4, "may not do this"),
        (problem(404, "No mind bob that you may see.", code="not_found"), 3, "No mind bob"),
        (problem(409, "Taken.\nReally\x1b[2J.", code="conflict"), 1, "Taken. Really\\x1b[2J."),
        (problem(422, "Too long.", code="invalid"), 1, "Too long."),
        (Answer(raw=b"<html>Bad gateway</html>", status=502), 1, "not Noema's"),
        (Answer(raw=b"<html>Hello</html>"), 1, "not Noema's"),
        (Answer(status=302, headers={"Location": "http://127.0.0.1:1/"}), 1, "not Noema's"),
        (LOST, 5, "broke off"),
    ],
)
def test_every_refusal_is_one_line_and_an_exit_code(
    ctl: Run, fake: Fake, answer: Answer, code: int, text: str
) -> None:
    fake.answer("GET", "/v1/minds/bob", answer)

    ran = ctl("mind", "show", "bob")

    assert (ran.code, ran.out) == (code, "")
    assert ran.err.count("\n") == 1
    assert text in ran.err


@pytest.mark.parametrize(
    "args",
    [
        ("mind", "dance"),
        ("mind", "show"),
        ("feed", "ada", "-", "--follow"),
        ("feed", "ada", "-", "--zone", "Mars/Olympus"),
        ("feed", "ada", "-", "--batch", "2001"),
        ("mind", "set", "ada"),
        ("mind", "set", "ada", "capacity"),
        ("mind", "mode", "ada", "focused", "--for", "soon"),
        ("replay", "verify", "ada", "--from", "5", "--to", "4"),
        ("token", "create"),
        ("--nonsense",),
    ],
)
def test_a_usage_error_is_one_line_that_names_the_help(ctl: Run, args: tuple[str, ...]) -> None:
    ran = ctl(*args)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert "--help" in ran.err


# -- help


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*path, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", [(), *commands(noemactl.cli)], ids=" ".join)
def test_every_command_has_a_help_with_an_example(ctl: Run, path: tuple[str, ...]) -> None:
    ran = ctl(*path, "--help")

    assert ran.code == 0
    assert "Example:\n" in ran.out
    assert " ".join(("noemactl", *path)) in ran.out.split("Example:")[1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(ctl: Run, shell: str) -> None:
    ran = ctl("completion", shell)

    assert ran.code == 0
    assert "_NOEMACTL_COMPLETE" in ran.out


# -- minds, goals, words


MIND = {
    "slug": "ada",
    "name": "Ada\x1b]0;owned\x07",
    "namespace": "home",
    "status": "active",
    "mode": "awake",
    "backlog": 0,
    "cycles": 3,
    "last_cycle_at": None,
    "settings_version": 2,
}


def test_a_list_reads_every_page_and_shows_escapes_instead_of_sending_them(
    ctl: Run, fake: Fake
) -> None:
    first = {"items": [MIND], "next": "c1"}
    fake.answer("GET", "/v1/minds", first, {"items": [MIND | {"slug": "bob"}], "next": None}, first)

    ran = ctl("mind", "list")

    assert [asked.query.get("after") for asked in fake.asked] == [None, "c1"]
    assert "ada" in ran.out
    assert "bob" in ran.out
    assert "\\x1b]0;owned\\x07" in ran.out
    assert "\x1b" not in ran.out


def test_json_keeps_every_value_as_it_is(ctl: Run, fake: Fake) -> None:
    fake.answer("GET", "/v1/minds", {"items": [MIND], "next": None})

    assert ctl("mind", "list", "--json").json == [MIND]


def test_no_minds_is_an_empty_array_for_a_program_and_a_hint_for_a_person(
    ctl: Run, fake: Fake
) -> None:
    fake.answer("GET", "/v1/minds", {"items": [], "next": None})

    assert ctl("mind", "list", "--json").json == []
    assert "noemactl mind create" in ctl("mind", "list").err


def test_steering_a_mind_sends_what_was_asked(ctl: Run, fake: Fake) -> None:
    fake.answer("POST", "/v1/minds", Answer(body=MIND, status=201))
    fake.answer("PATCH", "/v1/minds/ada", MIND)
    fake.answer("POST", "/v1/minds/ada/mode", MIND)
    fake.answer("POST", "/v1/minds/ada/step", Answer(body={}, status=202))
    fake.answer("POST", "/v1/minds/ada/goals", Answer(body={"id": "g1"}, status=201))
    fake.answer("POST", "/v1/minds/ada/goals/g1/close", {"id": "g1", "status": "closed"})

    ran = [
        ctl("mind", "create", "ada", "--name", "Ada"),
        ctl("mind", "pause", "ada", "--note", "lunch"),
        ctl("mind", "resume", "ada"),
        ctl("mind", "set", "ada", "weights.novelty=1.2", "weights.cost=-3", "capacity=7"),
        ctl("mind", "mode", "ada", "focused", "--for", "15m", "--focus", "disks"),
        ctl("mind", "step", "ada"),
        ctl("goal", "add", "ada", "Notice disks", "--priority", "0.8"),
        ctl("goal", "close", "ada", "g1"),
    ]

    assert [one.code for one in ran] == [0] * 8
    assert [asked.body for asked in fake.asked] == [
        {"slug": "ada", "name": "Ada"},
        {"status": "paused", "note": "lunch"},
        {"status": "active"},
        {"settings": {"weights": {"novelty": "1.2", "cost": -3}, "capacity": 7}},
        {"mode": "focused", "for_s": 900, "focus": "disks"},
        {},
        {"text": "Notice disks", "priority": 0.8},
        {},
    ]


def test_say_waits_for_the_reply_to_its_own_message(ctl: Run, fake: Fake) -> None:
    other = {"id": "m0", "speaker": "mind", "text": "old", "in_reply_to": "m9"}
    reply = {"id": "m2", "speaker": "mind", "text": "two\nlines\x1b[A", "in_reply_to": "m1"}
    fake.answer("POST", "/v1/minds/ada/messages", {"id": "m1", "conversation": "c1"})
    fake.answer(
        "GET",
        "/v1/minds/ada/conversations",
        {"items": [{"id": "c1", "messages": [other]}]},
        {"items": [{"id": "c1", "messages": [other, reply]}]},
    )

    ran = ctl("say", "ada", "What was odd?", "--wait", "5")

    assert (ran.code, ran.out) == (0, "two\nlines\\x1b[A\n")


def test_say_that_gets_no_reply_in_time_says_so(ctl: Run, fake: Fake) -> None:
    fake.answer("POST", "/v1/minds/ada/messages", {"id": "m1", "conversation": "c1"})
    fake.answer("GET", "/v1/minds/ada/conversations", {"items": []})

    ran = ctl("say", "ada", "Hello", "--wait", "5", "--json")

    assert ran.code == 1
    assert ran.json == {"id": "m1", "conversation": "c1", "reply": None}
    assert "No reply within 5 seconds" in ran.err


# -- cycles, why, replay


def test_why_names_the_winner_the_margin_and_the_flips(ctl: Run, fake: Fake) -> None:
    answer = {
        "winner": {"id": "k1", "text": "disk \x1b[31mfailing"},
        "against": {"id": "k2", "text": "login"},
        "margin": 250_000_000_000,
        "contributions": [{"feature": "novelty", "winner": 5, "against": 3}],
        "flips": [{"weight": "novelty", "from": 1, "to": 0, "new_winner": "k2", "confirmed": True}],
    }
    fake.answer("GET", "/v1/minds/ada/cycles/7/why", answer)

    ran = ctl("why", "ada", "7", "--instead", "k2")

    assert fake.asked[-1].query == {"instead": "k2"}
    assert "disk \\x1b[31mfailing (k1)" in ran.out
    assert "0.250000" in ran.out
    assert "weight novelty" in ran.out
    assert ctl("why", "ada", "7", "--json").json == answer


def test_a_cycle_is_shown_with_every_candidate(ctl: Run, fake: Fake) -> None:
    candidate = {"id": "k1", "process": "perception", "text": "disk", "score": 10**12, "rank": 1}
    cycle = {"number": 7, "margin": None, "candidates": [candidate]}
    fake.answer("GET", "/v1/minds/ada/cycles/7", cycle)
    fake.answer("GET", "/v1/minds/ada/cycles", {"items": [cycle], "next": None})

    ran = ctl("cycle", "show", "ada", "7")

    assert "perception" in ran.out
    assert "1.000000" in ran.out
    assert ctl("cycle", "show", "ada", "7", "--json").json == cycle
    assert ctl("cycle", "list", "ada", "--json").json == [cycle]
    assert "WINNER" in ctl("cycle", "list", "ada").out


def test_a_replay_that_agrees_ends_with_0(ctl: Run, fake: Fake) -> None:
    running = {"id": "r1", "mind": "ada", "state": "running", "cycles": 9, "verified": 4}
    done = running | {"state": "done", "verified": 9, "first_difference": None}
    fake.answer("POST", "/v1/replays", Answer(body={"id": "r1", "state": "running"}, status=202))
    fake.answer("GET", "/v1/replays/r1", running, done)

    ran = ctl("replay", "verify", "ada", "--from", "2", "--json")

    assert ran.code == 0
    assert ran.json == done
    assert fake.asked[0].body == {"mind": "ada", "kind": "verify", "from": 2}
    assert "9 of 9 cycles of ada agree" in ctl("replay", "verify", "ada").out


def test_a_replay_that_differs_names_cycle_candidate_and_feature(ctl: Run, fake: Fake) -> None:
    difference = {
        "cycle": 5,
        "candidate": "k1",
        "feature": "novelty",
        "recorded": 3,
        "recomputed": 4,
        "what": "feature",
    }
    done = {"state": "done", "cycles": 9, "verified": 4, "first_difference": difference}
    fake.answer("POST", "/v1/replays", Answer(body={"id": "r1", "state": "running"}, status=202))
    fake.answer("GET", "/v1/replays/r1", done)

    ran = ctl("replay", "verify", "ada")

    assert ran.code == 1
    assert ran.err == (
        "Error: Cycle 5 of ada differs, candidate k1, feature novelty (feature): "
        "recorded 3, now 4.\n"
    )


# -- tail


def sse(*events: tuple[str, dict[str, Any]], end: bytes = b"") -> Answer:
    parts = [f"id: {i}\nevent: event\ndata: {json.dumps(e)}\n\n".encode() for i, e in events]
    body = b": hello\n\n" + b"".join(parts) + end
    return Answer(raw=body, headers={"Content-Type": "text/event-stream"})


def happened(n: int) -> dict[str, Any]:
    return {"position": f"p{n}", "id": f"e{n}", "mind": "ada", "type": "x", "payload": {"n": n}}


def stop_after(pauses: int) -> Callable[[float], None]:
    left = iter(range(pauses))

    def pause(seconds: float) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return pause


def test_tail_goes_on_behind_the_last_event_when_the_connection_is_lost(
    ctl: Run, fake: Fake
) -> None:
    fake.answer("GET", "/v1/events", {"items": [happened(0)], "next": None})
    fake.answer(
        "GET",
        "/v1/events/stream",
        sse(("p1", happened(1)), ("p2", happened(2)), end=b"id: p3\nevent: event\ndata: {"),
        LOST,
        problem(503, "Starting."),
        sse(("p2", happened(2)), ("p3", happened(3)), end=b"event: end\ndata: {}\n\n"),
        sse(),
    )

    ran = ctl("tail", "ada", "--type", "x", "--json", pause=stop_after(4))

    streams = [asked for asked in fake.asked if asked.path == "/v1/events/stream"]
    assert ran.code == 130
    assert [json.loads(line)["position"] for line in ran.out.splitlines()] == ["p1", "p2", "p3"]
    assert [asked.query["after"] for asked in streams] == ["p0", "p2", "p2", "p2", "p3"]
    assert [asked.headers["last-event-id"] for asked in streams][1] == "p2"
    assert ran.err.count("Trying again") == 3
    assert ran.err.count("Connected again") == 2


def test_tail_that_is_lost_before_its_first_event_goes_on(ctl: Run, fake: Fake) -> None:
    fake.answer("GET", "/v1/events/stream", sse(), LOST, sse(("p1", happened(1))))

    ran = ctl("tail", "--after", "p0", "--json", pause=stop_after(2))

    assert ran.code == 130
    assert json.loads(ran.out)["position"] == "p1"


def test_tail_ends_where_the_daemon_refuses_or_was_never_there(ctl: Run, fake: Fake) -> None:
    fake.answer("GET", "/v1/events", {"items": [], "next": None})
    fake.answer("GET", "/v1/events/stream", sse(("p1", happened(1))), problem(403, "Not yours."))

    assert ctl("tail", "--after", "p0").code == 4
    assert ctl("tail", url="http://127.0.0.1:1").code == 5


def test_tail_shows_one_event_a_line_and_no_escape(ctl: Run, fake: Fake) -> None:
    event = happened(1) | {"payload": {"text": "a\r\nb\x1b[2J"}}
    fake.answer("GET", "/v1/events/stream", sse(("p1", event)))

    ran = ctl("tail", "--after", "p0", pause=stop_after(0))

    assert ran.out.splitlines()[0].endswith("x  a\\r\\nb\\x1b[2J")
    assert ran.out.count("\n") == 1


def test_events_are_listed_newest_first_and_shown_whole(ctl: Run, fake: Fake) -> None:
    fake.answer("GET", "/v1/events", {"items": [happened(2), happened(1)], "next": "c"})
    fake.answer("GET", "/v1/events/e1", happened(1))

    assert ctl("event", "list", "--limit", "2", "--json").json == [happened(2), happened(1)]
    assert fake.asked[-1].query == {"order": "desc", "limit": "2"}
    assert ctl("event", "show", "e1", "--json").json == happened(1)


# -- feed


STIMULI = "/v1/minds/ada/stimuli"
TAKEN = Answer(body={"ids": []}, status=202)


def texts(fake: Fake) -> list[str]:
    return [item["text"] for asked in fake.posts(STIMULI) for item in asked.body["items"]]


def keys(fake: Fake) -> list[str]:
    return [asked.headers["idempotency-key"] for asked in fake.posts(STIMULI)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    path.write_bytes(b"one\n\ntwo\xff\nthree\x00\n   \nfour")
    return path


def test_a_file_is_fed_in_order_with_nothing_lost(ctl: Run, fake: Fake, log: Path) -> None:
    fake.answer("POST", STIMULI, TAKEN)

    ran = ctl("feed", "ada", str(log), "--batch", "3")

    assert ran.code == 0
    assert texts(fake) == ["one", "two\\xff", "three\x00", "four"]
    assert fake.posts(STIMULI)[0].body["items"][0] == {"text": "one", "source": "app.log"}
    assert ran.out == (
        "4 lines accepted in 2 batches; 2 empty lines skipped; "
        "1 line with bytes that are not UTF-8, kept as \\xNN.\n"
    )


def test_feeding_a_file_again_has_the_same_keys_unless_told(
    ctl: Run, fake: Fake, log: Path
) -> None:
    fake.answer("POST", STIMULI, TAKEN)

    for more in ([], [], ["--again"]):
        ctl("feed", "ada", str(log), "--batch", "3", *more)

    assert keys(fake)[:2] == keys(fake)[2:4]
    assert len(set(keys(fake))) == 4


def test_a_batch_is_sent_again_with_its_key_until_it_is_taken(
    ctl: Run, fake: Fake, log: Path
) -> None:
    waited: list[float] = []
    busy = problem(429, "Too much at once.", headers={"Retry-After": "7"})
    later = {"Retry-After": "Sun, 01 Mar 2026 00:00:09 GMT"}
    fake.answer("POST", STIMULI, TAKEN, LOST, busy, problem(503, "Wait.", headers=later), TAKEN)

    ran = ctl("feed", "ada", str(log), "--batch", "2", pause=waited.append)

    assert ran.code == 0
    assert waited == [0.5, 7, 9]
    assert len(set(keys(fake))) == 2
    assert len(set(keys(fake)[1:])) == 1
    assert ran.err.splitlines()[-1] == "Taken; going on."


def test_giving_up_says_what_is_accepted_and_going_on_repeats_no_line(
    ctl: Run, fake: Fake, log: Path
) -> None:
    fake.answer("POST", STIMULI, TAKEN, LOST)

    gave_up = ctl("feed", "ada", str(log), "--batch", "2", "--patience", "3")
    lost_key = keys(fake)[-1]
    fake.answer("POST", STIMULI, TAKEN)
    fake.asked.clear()
    went_on = ctl("feed", "ada", str(log), "--batch", "2", "--from-line", "4")

    assert gave_up.code == 5
    assert gave_up.err.endswith("2 lines are accepted; go on with --from-line 4.\n")
    assert went_on.code == 0
    assert texts(fake) == ["three\x00", "four"]
    assert keys(fake) == [lost_key]


def test_a_refused_batch_names_the_line_at_fault(ctl: Run, fake: Fake, log: Path) -> None:
    refused = problem(422, "urgency must be from 0 to 1.", code="invalid", index=1)
    fake.answer("POST", STIMULI, TAKEN, refused)

    ran = ctl("feed", "ada", str(log), "--batch", "2")

    assert ran.code == 1
    assert ran.err == (
        "Error: Line 6: urgency must be from 0 to 1. "
        "2 lines are accepted; go on with --from-line 4.\n"
    )


def test_a_line_that_is_too_long_stops_after_everything_before_it_was_sent(
    ctl: Run, fake: Fake, log: Path
) -> None:
    fake.answer("POST", STIMULI, TAKEN)
    log.write_bytes(b"one\ntwo\n" + b"x" * 70_000 + b"\nfour\n")

    stopped = ctl("feed", "ada", str(log))
    went_on = ctl("feed", "ada", str(log), "--from-line", "4")

    assert stopped.code == 1
    assert stopped.err == (
        "Error: Line 3 is longer than 64 KiB. 2 lines are accepted; go on with --from-line 3. "
        "(--from-line 4 leaves this line out.)\n"
    )
    assert went_on.code == 0
    assert texts(fake) == ["one", "two", "four"]


def test_a_malformed_json_line_is_named(ctl: Run, fake: Fake, log: Path) -> None:
    fake.answer("POST", STIMULI, TAKEN)
    log.write_text('{"text": "a", "urgency": 0.5}\n{"text": \n')

    ran = ctl("feed", "ada", str(log), "--format", "jsonl")

    assert ran.code == 1
    assert "Line 2 is not JSON" in ran.err
    assert "1 line is accepted" in ran.err
    assert fake.posts(STIMULI)[0].body["items"] == [
        {"text": "a", "urgency": 0.5, "source": "app.log"}
    ]


def test_no_request_is_larger_than_the_daemon_takes(ctl: Run, fake: Fake, log: Path) -> None:
    fake.answer("POST", STIMULI, TAKEN)
    log.write_bytes((b"\x01" * 60_000 + b"\n") * 30)

    ran = ctl("feed", "ada", str(log), "--batch", "1000", "--json")

    lengths = [int(asked.headers["content-length"]) for asked in fake.posts(STIMULI)]
    assert ran.json["accepted"] == 30
    assert len(lengths) > 2
    assert max(lengths) < 4 * 1024 * 1024


def test_times_are_read_in_the_year_of_the_file_which_is_said_once(
    ctl: Run, fake: Fake, log: Path
) -> None:
    fake.answer("POST", STIMULI, TAKEN)
    log.write_text("Dec 31 23:59:59 host a\nJan  1 00:00:01 host b\nno time\n")
    changed = datetime(2025, 1, 1, 1, tzinfo=UTC).timestamp()
    os.utime(log, (changed, changed))

    ran = ctl("feed", "ada", str(log))
    told = ctl("feed", "ada", str(log), "--year", "2019", "--zone", "Asia/Tokyo")
    untimed = ctl("feed", "ada", str(log), "--no-times")

    times = [
        [item.get("occurred_at") for item in asked.body["items"]] for asked in fake.posts(STIMULI)
    ]
    assert times == [
        ["2024-12-31T23:59:59Z", "2025-01-01T00:00:01Z", None],
        ["2019-12-31T14:59:59Z", "2019-12-31T15:00:01Z", None],
        [None, None, None],
    ]
    assert ran.err == ("times have no year: using 2024 from the file's date (--year overrides)\n")
    assert told.err == untimed.err == ""


def test_a_year_that_turns_in_skipped_lines_has_turned(ctl: Run, fake: Fake, log: Path) -> None:
    fake.answer("POST", STIMULI, TAKEN)
    log.write_text("Dec 31 23:59:59 host a\nJan  1 00:00:01 host b\n")

    ctl("feed", "ada", str(log), "--year", "2019", "--from-line", "2")

    assert fake.posts(STIMULI)[0].body["items"][0]["occurred_at"] == "2020-01-01T00:00:01Z"


@pytest.mark.parametrize("name", ["missing.log", "."])
def test_a_file_that_cannot_be_read_is_one_line(
    ctl: Run, fake: Fake, tmp_path: Path, name: str
) -> None:
    ran = ctl("feed", "ada", str(tmp_path / name))

    assert ran.code == 1
    assert ran.err.count("\n") == 1


def test_an_unknown_mind_shows_before_the_file_is_touched(ctl: Run, tmp_path: Path) -> None:
    assert ctl("feed", "bob", str(tmp_path / "missing.log")).code == 3


def test_following_sends_what_is_there_and_says_where_it_was_when_interrupted(
    ctl: Run, fake: Fake, log: Path
) -> None:
    fake.answer("POST", STIMULI, TAKEN)
    log.write_text("one\ntwo\nthr")

    def pause(seconds: float) -> None:
        if len(texts(fake)) > 2:
            raise KeyboardInterrupt
        with log.open("a") as file:
            file.write("ee\n")

    ran = ctl("feed", "ada", str(log), "--follow", pause=pause)

    assert ran.code == 130
    assert texts(fake) == ["one", "two", "three"]
    assert "3 lines are accepted; go on with --from-line 4." in ran.err


# -- the process


@pytest.fixture
def start(fake: Fake, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    environ = {
        # Unbuffered, Python itself loses what a closed pipe did not take, and tells nobody.
        **{name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        "NOEMA_URL": fake.url,
        "NOEMA_TOKEN": TOKEN,
        "XDG_CONFIG_HOME": str(tmp_path),
    }

    def start(*args: str) -> subprocess.Popen[bytes]:
        code = "from noema.cli.noemactl import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, *args],
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


def test_a_pipe_is_fed_line_by_line_as_it_is_written(
    fake: Fake, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    seen = threading.Event()

    def take(asked: Asked) -> Answer:
        seen.set()
        return TAKEN

    fake.routes["POST", STIMULI] = take
    process = start("feed", "ada", "-")
    assert process.stdin is not None

    process.stdin.write(b"one\ntw")
    process.stdin.flush()
    came_early = seen.wait(20)
    _, err = process.communicate(b"o\n", timeout=20)

    assert came_early
    assert (process.returncode, err) == (0, b"")
    assert texts(fake) == ["one", "two"]
    assert len(set(keys(fake))) == 2


def test_a_closed_pipe_is_quiet(fake: Fake, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    fake.answer("GET", "/v1/minds", {"items": [MIND] * 5000, "next": None})
    process = start("mind", "list", "--json")
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.read(1)
    process.stdout.close()

    assert process.stderr.read() == b""
    assert process.wait(20) == 141


def test_an_interrupt_ends_with_130_and_no_traceback(
    fake: Fake, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    fake.answer("GET", "/v1/events/stream", sse(("p1", happened(1))))
    process = start("tail", "--after", "p0", "--json")
    assert process.stdout is not None

    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert b"Traceback" not in err

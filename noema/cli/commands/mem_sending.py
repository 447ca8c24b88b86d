"""How an import reaches memory: several writes in flight, each counted once, in the order read.

The key of a write is a digest of the import, its place and its bytes, so one that got lost is sent
again without harm. What is counted, and where an import would go on, is always everything up to
some entry and nothing behind it, in whatever order the answers come.
"""

import json
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from noema.cli.client import Ctl, Daemon, Refusal, Unreachable, api
from noema.cli.commands.feed_batches import retry_after_s
from noema.cli.importing import Entry, Mark
from noema.cli.output import FAILED, CommandError

_PATH: Final = api("mem", "write")
_FIRST_RETRY_S: Final = 0.5
_RETRY_AT_MOST_EVERY_S: Final = 15.0
_PASSING: Final = (429, 502, 503, 504)
# The fault of this one write, or of every write: which it is shows in those that follow.
_DOUBTFUL: Final = (403, 404, 500)
_DOUBTFUL_IN_A_ROW: Final = 20
_ITS_OWN_FAULT: Final = (400, 409, 413, 415, 422)
_FAILURES: Final = 3
_WAITING_PER_FLIGHT: Final = 4
_WAITING_BYTES: Final = 32 * 1024 * 1024
_LAST_ANSWERS_S: Final = 2.0


class Stopped(CommandError):  # noqa: N818
    """The import cannot go on just now; what was counted stays."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What has become of the entries so far; `superseded` ones are among the stored."""

    entries: int = 0
    stored: int = 0
    superseded: int = 0
    deduplicated: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """Something that was not taken: where it stands, why, and what would have been written."""

    place: str
    reason: str
    body: Mapping[str, Any] | None = None


@dataclass(slots=True, kw_only=True)
class _Slot:
    """One entry on its way; `answer` or `reason` or neither yet."""

    entry: Entry
    payload: bytes = b""
    size: int = 0
    key: str = ""
    answer: Mapping[str, Any] | None = None
    reason: str | None = None
    refusal: Refusal | None = None
    failures: int = 0

    @property
    def is_done(self) -> bool:
        return self.answer is not None or self.reason is not None


@dataclass(slots=True, kw_only=True)
class Sending:
    """Sends entries and keeps count.

    `in_flight` is how many requests are open at once, `patience_s` how long nothing may get through
    before it stops. `on_reject` is told of each reject and `on_counted` of each mark, in order.
    """

    ctl: Ctl
    daemon: Daemon
    salt: str
    in_flight: int
    patience_s: float
    is_strict: bool
    tally: Tally
    mark: Mark
    say: Callable[[str], None]
    on_reject: Callable[[Reject], None]
    on_counted: Callable[[Mark], None]
    retries: int = 0
    _slots: deque[_Slot] = field(default_factory=deque)
    _doubtful: list[_Slot] = field(default_factory=list)
    _again: list[_Slot] = field(default_factory=list)
    _lanes: set[str] = field(default_factory=set)
    _held: Entry | None = None
    _ended: bool = False
    _bytes: int = 0
    _flying: int = 0
    _failure: Unreachable | Refusal | None = None
    _failing_since: float | None = None
    _wish_s: float = 0.0
    _retry_s: float = _FIRST_RETRY_S
    _slower: bool = False

    def run(self, entries: Iterator[Entry]) -> None:
        """Send them all; raises CommandError where it has to stop before the end."""
        senders = Senders(self.daemon, self.in_flight)
        try:
            self._pump(entries, senders)
            self._finish()
        except BaseException:
            # What has been answered, or will be in a moment, need not be sent again.
            self._last_answers(senders)
            raise
        finally:
            senders.close()

    def _pump(self, entries: Iterator[Entry], senders: "Senders") -> None:
        while True:
            if not self._again:
                self._fill(entries, senders)
            self._settle_counted()
            if self._flying:
                self._take(*senders.receive())
            elif self._again:
                self._wait()
                for slot in self._again:
                    self._send(slot, senders)
                self._again = []
            elif self._ended:
                return

    def _finish(self) -> None:
        # Where nothing else was tried, it is everything that is refused.
        if self._doubtful and not self.tally.entries:
            raise self._refused(self._doubtful[0])
        self._count(self._doubtful)

    def _fill(self, entries: Iterator[Entry], senders: "Senders") -> None:
        most = self.in_flight * _WAITING_PER_FLIGHT
        while not self._ended and self._flying < self.in_flight and len(self._slots) < most:
            if self._bytes > _WAITING_BYTES:
                return
            entry = self._held or next(entries, None)
            if entry is None:
                self._ended = True
                return
            self._held = entry if entry.lane in self._lanes else None
            if self._held is not None:
                return
            slot = self._slot(entry)
            self._slots.append(slot)
            if slot.is_done:
                self._ended = self.is_strict
            else:
                if entry.lane is not None:
                    self._lanes.add(entry.lane)
                self._bytes += slot.size
                self._send(slot, senders)

    def _slot(self, entry: Entry) -> _Slot:
        if entry.body is None:
            return _Slot(entry=entry, reason=entry.problem or "cannot be written")
        payload = _encoded(entry.body)
        place = f"{self.salt}\n{entry.mark.items}\n".encode()
        key = f"mem-import-{sha256(place + sha256(payload).digest()).hexdigest()}"
        return _Slot(entry=entry, payload=payload, size=len(payload), key=key)

    def _send(self, slot: _Slot, senders: "Senders") -> None:
        self._flying += 1
        senders.send(slot)

    def _take(self, slot: _Slot, outcome: Any) -> None:
        """Note how one request ended."""
        self._flying -= 1
        if isinstance(outcome, (Unreachable, Refusal)):
            self._failed(slot, outcome)
        elif isinstance(outcome, CommandError):
            raise outcome
        elif not isinstance(outcome, dict):
            raise CommandError("The daemon answered a write with no object; is it of this age?")
        else:
            slot.answer = outcome
        if slot.is_done:
            self._failing_since, self._retry_s = None, _FIRST_RETRY_S
            self._lanes.discard(slot.entry.lane or "")
            slot.payload = b""

    def _failed(self, slot: _Slot, exc: Unreachable | Refusal) -> None:
        if isinstance(exc, Unreachable) or exc.status in _PASSING:
            self._postpone(slot, exc)
        elif exc.status in _DOUBTFUL:
            slot.failures += 1
            if exc.status == 500 and slot.failures < _FAILURES:
                self._postpone(slot, exc)
            else:
                slot.reason, slot.refusal = exc.message, exc
        elif exc.status in _ITS_OWN_FAULT:
            slot.reason = exc.message
        else:
            raise Stopped(f"{slot.entry.place}: {exc.message}", exit_code=exc.exit_code) from exc

    def _postpone(self, slot: _Slot, exc: Unreachable | Refusal) -> None:
        self._again.append(slot)
        self._failure = exc
        after = exc.retry_after if isinstance(exc, Refusal) else None
        self._wish_s = max(self._wish_s, retry_after_s(after, self.ctl.clock))
        self.retries += 1

    def _wait(self) -> None:
        """Wait before sending again; raises Stopped where that has lasted too long."""
        exc = self._failure
        if exc is None:
            return
        now = self.ctl.clock.monotonic()
        since = now if self._failing_since is None else self._failing_since
        wish_s, self._wish_s = max(self._retry_s, self._wish_s), 0.0
        if now - since + wish_s > self.patience_s:
            raise Stopped(exc.message, exit_code=exc.exit_code) from exc
        self._tell(exc, is_first=self._failing_since is None)
        self._failing_since = since
        self._retry_s = min(self._retry_s * 2, _RETRY_AT_MOST_EVERY_S)
        self.ctl.pause(wish_s)

    def _tell(self, exc: Unreachable | Refusal, *, is_first: bool) -> None:
        if isinstance(exc, Refusal) and exc.status == 429:
            # Once is enough: a limit on writes is met again and again.
            if not self._slower:
                self.say(f"{exc.message} Going on at the pace that the daemon allows.")
            self._slower = True
        elif is_first:
            self.say(f"{exc.message} Sending again until it is taken.")

    def _settle_counted(self) -> None:
        """Count what has an answer and has nothing without one before it."""
        while self._slots and self._slots[0].is_done:
            slot = self._slots[0]
            if self.is_strict and refusals(slot):
                raise self._refused(slot)
            self._slots.popleft()
            self._bytes -= slot.size
            if slot.refusal is None:
                self._count([*self._doubtful, slot])
                self._doubtful = []
                continue
            self._doubtful.append(slot)
            if len(self._doubtful) >= _DOUBTFUL_IN_A_ROW:
                raise self._refused(slot)

    def _refused(self, slot: _Slot) -> Stopped:
        exit_code = FAILED if slot.refusal is None else slot.refusal.exit_code
        place, reason = next(iter(refusals(slot)), (slot.entry.place, "was not taken"))
        return Stopped(f"{place}: {reason}", exit_code=exit_code)

    def _count(self, slots: list[_Slot]) -> None:
        for slot in slots:
            self._count_one(slot)
            self.mark = slot.entry.mark
            self.on_counted(self.mark)

    def _count_one(self, slot: _Slot) -> None:
        tally, answer = self.tally, slot.answer or {}
        tally.entries += 1
        tally.stored += _number(answer.get("stored"))
        tally.superseded += _number(answer.get("superseded"))
        tally.deduplicated += _number(answer.get("deduplicated"))
        for place, reason in refusals(slot):
            tally.rejected += 1
            self.on_reject(Reject(place=place, reason=reason, body=slot.entry.body))

    def _last_answers(self, senders: "Senders") -> None:
        while self._flying:
            landed = senders.receive_within(_LAST_ANSWERS_S)
            if landed is None:
                break
            self._flying -= 1
            slot, outcome = landed
            if isinstance(outcome, dict):
                slot.answer = outcome
        # Behind a doubtful one nothing is counted: it is to be tried again.
        while not self._doubtful and self._slots and self._slots[0].answer is not None:
            if self.is_strict and refusals(self._slots[0]):
                break
            self._count([self._slots.popleft()])


class Senders:
    """Threads that post writes; a request that hangs does not keep the command from ending."""

    def __init__(self, daemon: Daemon, count: int) -> None:
        self._daemon = daemon
        self._wanted: queue.SimpleQueue[_Slot | None] = queue.SimpleQueue()
        self._landed: queue.SimpleQueue[tuple[_Slot, Any]] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def send(self, slot: _Slot) -> None:
        self._wanted.put(slot)

    def receive(self) -> tuple[_Slot, Any]:
        """Return one slot whose request has ended, with the JSON or the CommandError."""
        return self._landed.get()

    def receive_within(self, timeout_s: float) -> tuple[_Slot, Any] | None:
        """Return one as `receive` does, None where none comes in time."""
        try:
            return self._landed.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Let the threads end, without waiting for one that hangs."""
        for _ in self._threads:
            self._wanted.put(None)

    def _work(self) -> None:
        while (slot := self._wanted.get()) is not None:
            outcome: Any = CommandError("A request ended without an outcome; see above.")
            try:
                outcome = self._daemon.post(_PATH, slot.payload, idempotency_key=slot.key)
            except CommandError as exc:
                outcome = exc
            finally:
                self._landed.put((slot, outcome))


def refusals(slot: _Slot) -> list[tuple[str, str]]:
    """Return place and reason of all in one write that was turned away."""
    place = slot.entry.place
    if slot.reason is not None:
        return [(place, slot.reason)]
    rejected = (slot.answer or {}).get("rejected")
    has_messages = "messages" in (slot.entry.body or {})
    found = []
    for one in rejected if isinstance(rejected, list) else []:
        inside = f", message {_number(one.get('index')) + 1}" if has_messages else ""
        found.append((place + inside, str(one.get("reason") or "was not taken")))
    return found


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        # Not as escapes, with which most scripts take twice the room.
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(body).encode()  # half of a surrogate pair, which only escapes can carry


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0

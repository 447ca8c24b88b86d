"""How fed lines reach a mind: in batches, in order, each once, however often it has to be sent.

The key of a batch is a digest of where it came from and of every byte in it, so the daemon knows
a batch that it has already taken, also when another run of the command sends it again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Final

from noema.cli.client import Ctl, Daemon, Refusal, Unreachable, api
from noema.cli.commands.feed_lines import Line
from noema.cli.output import CommandError
from noema.core.clock import Clock

MAX_ITEMS: Final = 2000
_MAX_BODY_BYTES = 3_500_000  # well under the 8 MiB that the daemon takes
_FIRST_RETRY_S = 0.5
_RETRY_AT_MOST_EVERY_S = 15.0
_LONGEST_WISH_S = 300.0
_PASSING = (429, 502, 503, 504)


class Stopped(CommandError):  # noqa: N818
    """A batch was not taken; the message says how much was, and where to go on."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What has become of the lines so far."""

    accepted: int = 0
    batches: int = 0
    empty: int = 0
    not_utf8: int = 0
    retries: int = 0
    resume_from: int = 1


@dataclass(slots=True, kw_only=True)
class Batches:
    """Collects encoded stimuli and sends them.

    `patience_s` is how long one batch is tried again, None for ever; `salt` makes the keys of this
    run differ from those of any other.
    """

    ctl: Ctl
    daemon: Daemon
    mind: str
    size: int
    patience_s: float | None
    salt: str
    tally: Tally
    say: Callable[[str], None]
    on_sent: Callable[[Line], None]
    _lines: list[Line] = field(default_factory=list)
    _items: list[bytes] = field(default_factory=list)
    _bytes: int = 0

    def add(self, line: Line, item: bytes) -> None:
        """Take one more stimulus, sending what there is first where it would not fit."""
        if self._lines and (
            self._bytes + len(item) + 1 > _MAX_BODY_BYTES or self._lines[0].origin != line.origin
        ):
            self.flush()
        self._lines.append(line)
        self._items.append(item)
        self._bytes += len(item) + 1
        if len(self._items) >= self.size:
            self.flush()

    def flush(self) -> None:
        """Send what there is; on giving up, say how much was accepted and where to go on."""
        if not self._items:
            return
        first, last = self._lines[0], self._lines[-1]
        self.tally.resume_from = first.number
        body = b'{"items":[' + b",".join(self._items) + b"]}"
        key = batch_key(self.mind, first, len(self._items), body, salt=self.salt)
        self._send(body, key)
        self.tally.accepted += len(self._items)
        self.tally.batches += 1
        self.tally.resume_from = last.number + 1
        self._lines, self._items, self._bytes = [], [], 0
        self.on_sent(last)

    def _send(self, body: bytes, key: str) -> None:
        path = api("minds", self.mind, "stimuli")
        began = self.ctl.clock.monotonic()
        retry_s, told = _FIRST_RETRY_S, False
        while True:
            try:
                self.daemon.post(path, body, idempotency_key=key)
            except (Unreachable, Refusal) as exc:
                wish_s = self._wait_s(exc, retry_s)
                waited_s = self.ctl.clock.monotonic() - began
                if self.patience_s is not None and waited_s + wish_s > self.patience_s:
                    raise self._stopped(exc) from exc
                if not told:
                    self.say(f"{exc.message} Sending again until it is taken.")
                    told = True
                self.tally.retries += 1
                self.ctl.pause(wish_s)
                retry_s = min(retry_s * 2, _RETRY_AT_MOST_EVERY_S)
            else:
                if told:
                    self.say("Taken; going on.")
                return

    def _wait_s(self, exc: Unreachable | Refusal, retry_s: float) -> float:
        """Return how long to wait before sending again; raise where that would not help."""
        if isinstance(exc, Unreachable):
            return retry_s
        if exc.status not in _PASSING:
            raise self._stopped(exc) from exc
        return max(retry_s, retry_after_s(exc.retry_after, self.ctl.clock))

    def _stopped(self, exc: Unreachable | Refusal) -> Stopped:
        message = exc.message
        index = exc.index if isinstance(exc, Refusal) else None
        if index is not None and 0 <= index < len(self._lines):
            message = f"Line {self._lines[index].number}: {message}"
        return Stopped(f"{message} {stopped_text(self.tally)}", exit_code=exc.exit_code)


def stopped_text(tally: Tally) -> str:
    """Return how much was accepted and how to go on, for the end of a message."""
    lines = "line is" if tally.accepted == 1 else "lines are"
    return f"{tally.accepted} {lines} accepted; go on with --from-line {tally.resume_from}."


def batch_key(mind: str, first: Line, count: int, body: bytes, *, salt: str = "") -> str:
    """Return the idempotency key of a batch: the same place and bytes, the same key."""
    place = f"{mind}\n{first.origin}\n{first.start}\n{count}\n{salt}\n"
    return f"feed-{sha256(place.encode() + sha256(body).digest()).hexdigest()}"


def retry_after_s(value: str | None, clock: Clock) -> float:
    """Return the seconds that a Retry-After header asks for, given as a number or as a date."""
    if value is None:
        return 0.0
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _LONGEST_WISH_S)
    try:
        until = parsedate_to_datetime(text)
        wish = until - clock.now()
    except (ValueError, TypeError):
        return 0.0
    return min(max(wish / timedelta(seconds=1), 0.0), _LONGEST_WISH_S)

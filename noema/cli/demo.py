"""The demo: a mind called sentinel, and a stream of log lines for it to think about.

Without a file it makes lines up: an SSH server and its kernel on an ordinary day, with floods of
the usual, rare lines now and then, and an attack that swells and ebbs.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, timedelta
from pathlib import Path
from random import Random  # noqa: TID251
from typing import Final

import structlog

from noema.app import Noema
from noema.cli.timestamps import leading_time
from noema.cognition.minds import MAX_BATCH, MAX_TEXT_BYTES, NewStimulus
from noema.core.clock import Clock, from_micros
from noema.core.errors import NoemaError, NotFound, Unavailable

log = structlog.get_logger()

SLUG: Final = "sentinel"
_ACTOR: Final = "daemon:demo"
_BATCH_S: Final = 0.5
_RETRY_S: Final = 1.0
_HEAD_START: Final = timedelta(days=3)
_USERS: Final = ("root", "admin", "deploy", "backup", "git", "oracle", "test")
_RARE: Final = (
    "kernel: Out of memory: Killed process {n} (indexer) total-vm:{n}kB",
    "systemd[1]: certbot.service: Failed with result 'exit-code'.",
    "kernel: EXT4-fs warning (device sda{d}): mounting fs with errors, e2fsck is recommended",
    "sudo: deploy : TTY=pts/{d} ; PWD=/srv/app ; USER=root ; COMMAND=/usr/bin/id",
    "sshd[{n}]: Accepted publickey for deploy from {ip} port {n} ssh2",
    "ntpd[{n}]: kernel reports TIME_ERROR: 0x{n}: Clock Unsynchronized",
    "smartd[{n}]: Device: /dev/sda, {d} Currently unreadable (pending) sectors",
    "kernel: TCP: request_sock_TCP: Possible SYN flooding on port 443. Sending cookies.",
    "named[{n}]: client {ip}: zone transfer 'example.test/AXFR/IN' denied",
    'dockerd[{n}]: level=error msg="failed to start daemon: no space left on device"',
    "sshd[{n}]: fatal: Unable to negotiate with {ip} port {n}: no matching host key type found",
    "useradd[{n}]: new user: name=mallory, UID=1{d}{d}, shell=/bin/bash",
)
_USUAL: Final = (
    "sshd[{n}]: Failed password for invalid user {user} from {ip} port {n} ssh2",
    "sshd[{n}]: pam_unix(sshd:auth): authentication failure; logname= uid=0 rhost={ip}",
    "sshd[{n}]: Connection closed by {ip} port {n} [preauth]",
    "CRON[{n}]: (root) CMD (run-parts /etc/cron.hourly)",
    "systemd[1]: Started Session {n} of user deploy.",
    "nginx[{n}]: {ip} GET /health 200",
)


class Stream:
    """Feeds the demo's mind until cancelled."""

    def __init__(self, *, path: Path | None, lines_per_s: float, seed: int = 7) -> None:
        self._path = path
        self._lines_per_s = lines_per_s
        self._chance = Random(seed)  # noqa: S311

    async def run(self, noema: Noema) -> None:
        """Make the mind where there is none, and send lines at the speed that was asked for."""
        try:
            await noema.minds.get(SLUG)
        except NotFound:
            await noema.minds.create(slug=SLUG, name="Sentinel", actor=_ACTOR)
            noema.runner.look_for_minds()
        async for batch in self._batches(noema):
            if not batch:
                continue
            await self._send(noema, batch)
        log.info("demo_input_ended")

    async def _send(self, noema: Noema, batch: list[NewStimulus]) -> None:
        while True:
            try:
                await noema.minds.receive(SLUG, batch, actor=_ACTOR)
            except Unavailable:
                await noema.clock.sleep(_RETRY_S)
            except NoemaError as exc:
                log.warning("demo_lines_refused", reason=str(exc))
                return
            else:
                return

    async def _batches(self, noema: Noema) -> AsyncIterator[list[NewStimulus]]:
        lines = self._invented(noema.clock) if self._path is None else _of_file(self._path)
        per_batch = min(MAX_BATCH, max(1, round(self._lines_per_s * _BATCH_S)))
        pause_s = per_batch / self._lines_per_s
        batch: list[NewStimulus] = []
        for line in lines:
            batch.append(line)
            if len(batch) >= per_batch:
                yield batch
                batch = []
                await noema.clock.sleep(pause_s)
        yield batch

    def _invented(self, clock: Clock) -> Iterator[NewStimulus]:
        # Time in the demo runs faster than the clock; it starts some days back to have room for it.
        at = clock.now() - _HEAD_START
        calm = 0
        while True:
            # Now and then one address hammers for a while; most of the time lines trickle.
            calm = calm - 1 if calm else self._chance.choice((0, 0, 0, 120))
            attack = 0 < calm <= 60
            template = self._chance.choice(_USUAL[:3] if attack else _USUAL)
            if self._chance.random() < 0.012:
                template = self._chance.choice(_RARE)
            ip = "203.0.113.66" if attack else f"198.51.100.{self._chance.randrange(1, 255)}"
            text = template.format(
                n=self._chance.randrange(1000, 65000),
                d=self._chance.randrange(1, 9),
                ip=ip,
                user=self._chance.choice(_USERS),
            )
            step = timedelta(seconds=self._chance.uniform(0.2, 6.0) / (10 if attack else 1))
            at = min(at + step, clock.now())
            stamp = at.strftime("%b %d %H:%M:%S")
            yield NewStimulus(text=f"{stamp} gate {text}", occurred_at=at, source="demo")


def _of_file(path: Path) -> Iterator[NewStimulus]:
    # A year that no line names is that of the file's date, as `noemactl feed` takes it.
    year = from_micros(path.stat().st_mtime_ns // 1_000).year
    dropped = 0
    with path.open("rb") as file:
        for raw in file:
            text = raw.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")
            if not text.strip():
                continue
            if len(text.encode()) > MAX_TEXT_BYTES:
                dropped += 1
                continue
            found = leading_time(text, year=year, zone=UTC)
            at = None if found is None else found.occurred_at
            yield NewStimulus(text=text, occurred_at=at, source=path.name[:200])
    if dropped:
        log.warning("demo_lines_too_long", lines=dropped, most_bytes=MAX_TEXT_BYTES)

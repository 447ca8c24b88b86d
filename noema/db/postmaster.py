"""The server's processes: started, watched, and gone when their owner is gone.

A second small process holds the reading end of a pipe whose writing end is ours. When we die in
any way, kill -9 included, the pipe closes and the watcher tells the server to shut down. Should
the watcher be killed as well, the next start finds the orphan by its pid file and ends it.
"""

import os
import re
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from noema.core.clock import Clock
from noema.core.errors import DataDirBusy, Unavailable
from noema.db.binaries import ServerUser, identity

PORT: Final = 5432
_POLL_S: Final = 0.02
# Fast shutdown first; quitting or killing costs a recovery at the next start, and no data.
_STOPPING: Final = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 5.0))
_OPTIONS: Final = (
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "jit=off",
    "log_checkpoints=off",
)
_WATCH: Final = 'read _; kill -INT "$1"'
_TELLING: Final = re.compile(r"\b(error|fatal|panic|could not)\b", re.IGNORECASE)
_LOG_LIMIT: Final = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the parts of one server are, and who runs it."""

    programs: Path
    data: Path
    sockets: Path
    log: Path
    user: ServerUser | None


class Postmaster:
    """One server process and its watcher."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self._at = layout
        self._clock = clock
        self._server: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self._server is not None and self._server.poll() is None

    async def start(self, deadline: float) -> None:
        """Start the server after ending whatever an earlier owner left of it."""
        await self._clear_previous(deadline)
        self._stop_watching()
        self._server = self._spawn()
        self._watcher = _watch(self._server.pid)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        with _opened(self._at.log) as log:
            return subprocess.Popen(  # noqa: S603 - our own program and arguments
                [
                    self._at.programs / "postgres",
                    *("-D", self._at.data, "-k", self._at.sockets, "-p", str(PORT)),
                    *(word for option in _OPTIONS for word in ("-c", option)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                **identity(self._at.user),
            )

    async def stop(self) -> None:
        """Shut the server down; harmless when it does not run."""
        server = self._server
        if server is not None:
            for number, patience_s in _STOPPING:
                if server.poll() is None:
                    server.send_signal(number)
                if await exited(server, self._clock, self._clock.monotonic() + patience_s):
                    break
        self._stop_watching()
        self._server = None

    def _stop_watching(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.kill()
            watcher.wait()
            if watcher.stdin is not None:
                watcher.stdin.close()

    async def _clear_previous(self, deadline: float) -> None:
        """End an orphan. We own the directory, so a server on it has no other owner."""
        began = self._clock.monotonic()
        steps = iter(((0.0, signal.SIGINT), (60.0, signal.SIGQUIT), (75.0, signal.SIGKILL)))
        step = next(steps, None)
        while (pid := self._orphan()) is not None:
            waited = self._clock.monotonic() - began
            if step is not None and waited >= step[0]:
                _signal(pid, step[1], self._at.data)
                step = next(steps, None)
            if self._clock.monotonic() > deadline:
                raise Unavailable(
                    f"An earlier PostgreSQL (process {pid}) on {self._at.data} does not stop. "
                    "End it by hand, then start again."
                )
            await self._clock.sleep(_POLL_S)
        # Nobody serves this directory now: a pid file or socket left in it would only mislead,
        # above all when the number has since been given to another program.
        for stale in (
            self._at.data / "postmaster.pid",
            self._at.sockets / f".s.PGSQL.{PORT}.lock",
            self._at.sockets / f".s.PGSQL.{PORT}",
        ):
            stale.unlink(missing_ok=True)

    def _orphan(self) -> int | None:
        try:
            pid = int((self._at.data / "postmaster.pid").read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None
        return pid if serves(pid, self._at.data) else None


def _watch(pid: int) -> "subprocess.Popen[bytes]":
    # Until its parent asks for the server's exit status the number cannot be given to another
    # process, so the watcher can never signal a stranger.
    return subprocess.Popen(  # noqa: S603 - constant script, the number is ours
        ["/bin/sh", "-c", _WATCH, "sh", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def serves(pid: int, data: Path) -> bool:
    """Whether this process is a live PostgreSQL on that directory, no zombie and no stranger."""
    if Path("/proc/self/cmdline").exists():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return os.fsencode(data) in arguments
    listed = subprocess.run(  # noqa: S603 - macOS has no /proc
        ["/bin/ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, check=False
    )
    return os.fsencode(data) + b" " in listed.stdout + b" "


def _signal(pid: int, number: signal.Signals, data: Path) -> None:
    try:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    except PermissionError as exc:
        raise DataDirBusy(
            f"A PostgreSQL of another user (process {pid}) runs on {data}. "
            "Stop it, or name another directory with NOEMA_DATA_DIR."
        ) from exc


async def exited(process: "subprocess.Popen[bytes]", clock: Clock, deadline: float) -> bool:
    """Wait for the process to end; False if it still runs at the deadline."""
    while process.poll() is None:
        if clock.monotonic() > deadline:
            return False
        await clock.sleep(_POLL_S)
    return True


def _spawn_initdb(layout: Layout, target: Path) -> "subprocess.Popen[bytes]":
    with _opened(layout.log) as log:
        return subprocess.Popen(  # noqa: S603 - our own program and arguments
            [
                layout.programs / "initdb",
                *("-D", target, "-U", "postgres", "--auth=trust", "--encoding=UTF8"),
                *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            **identity(layout.user),
        )


async def make_cluster(layout: Layout, target: Path, clock: Clock, deadline: float) -> None:
    """Run initdb into `target`, an empty directory of the server's user.

    Raises Unavailable with what initdb complained about.
    """
    begin = layout.log.stat().st_size if layout.log.exists() else 0
    process = _spawn_initdb(layout, target)
    try:
        done = await exited(process, clock, deadline)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if not done or process.returncode != 0:
        raise Unavailable(
            f"The embedded database could not be made: {last_words(layout.log, begin)} "
            f"See {layout.log}."
        )


def _opened(log: Path) -> BinaryIO:
    # The server quotes rows and statements that it refuses; nobody else on the machine reads them.
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    file = os.fdopen(fd, "ab")
    os.fchmod(file.fileno(), 0o600)
    return file


def last_words(log: Path, begin: int = 0) -> str:
    """Return the last complaint in the log from that offset on, or its last line."""
    try:
        with log.open("rb") as handle:
            handle.seek(max(begin, log.stat().st_size - 20_000))
            text = handle.read().decode(errors="replace")
    except OSError:
        return "nothing was logged."
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    return (telling or lines or ["nothing was logged."])[-1]


def turn_over(log: Path) -> None:
    """Put a long log aside, so that the two together stay bounded."""
    if log.exists() and log.stat().st_size > _LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))

"""Where fed lines come from: a file read once, a pipe, or a file followed as it grows.

A source yields `Line`s in order, and None where nothing more is there just now, so that what has
been read can be sent before waiting. No line is dropped: one that is too long ends the reading
with LineRefused, after everything before it.
"""

import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noema.cli.output import CommandError

MAX_TEXT_BYTES: Final = 64 * 1024
# A JSON line may spell each byte of its text with six, and say more beside the text.
MAX_JSON_LINE_BYTES: Final = 8 * MAX_TEXT_BYTES
_CHUNK = 256 * 1024
_QUIET_S = 0.2
_POLL_S = 0.5
_HEAD_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line without its end; `start` and `end` are bytes in the file that `origin` names."""

    number: int
    start: int
    end: int
    raw: bytes
    origin: str


class LineRefused(Exception):  # noqa: N818
    """A line that cannot become a stimulus; the message says why."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number


class Cutter:
    """Cuts chunks of bytes into lines, wherever the chunks end; only LF ends a line.

    Lines before number `first` are to be skipped, so they may be of any length; their bytes beyond
    the limit are not kept.
    """

    def __init__(self, *, origin: str, limit: int, first: int = 1) -> None:
        self._origin, self._limit, self._first = origin, limit, first
        self._rest = b""
        self._dropped = 0
        self._number = 1
        self._offset = 0

    @property
    def position(self) -> int:
        """How many bytes have been taken in."""
        return self._offset + self._dropped + len(self._rest)

    def add(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that are whole now."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for raw in whole:
            yield self._line(raw, ended=True)
        self._check(self._rest)
        if len(self._rest) > self._limit + 1:
            self._dropped += len(self._rest) - self._limit
            self._rest = self._rest[: self._limit]

    def end(self) -> Iterator[Line]:
        """Yield the last line, where it has no end of line."""
        if self._rest:
            raw, self._rest = self._rest, b""
            yield self._line(raw, ended=False)

    def _line(self, raw: bytes, *, ended: bool) -> Line:
        self._check(raw)
        start, number = self._offset, self._number
        self._offset += len(raw) + self._dropped + ended
        self._number += 1
        self._dropped = 0
        return Line(number=number, start=start, end=self._offset, raw=raw, origin=self._origin)

    def _check(self, raw: bytes) -> None:
        # One byte more, for a CR before the LF.
        if len(raw) > self._limit + 1 and self._number >= self._first:
            raise LineRefused(self._number, f"is longer than {self._limit // 1024} KiB")


def open_file(path: Path) -> int:
    """Open a file to be fed, or say in one line why not."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        raise CommandError(f"Cannot read {path}: {exc.strerror}.") from exc


def identity(fd: int, generation: int = 0) -> str:
    """Return what tells this file from every other, and from itself before it was emptied."""
    stat = os.fstat(fd)
    return f"{stat.st_dev}:{stat.st_ino}:{generation}"


def read_once(fd: int, *, origin: str, limit: int, first: int = 1) -> Iterator[Line | None]:
    """Yield the lines up to the end of the file or pipe; None whenever a pipe falls silent."""
    cutter = Cutter(origin=origin, limit=limit, first=first)
    while chunk := _read(fd):
        yield from cutter.add(chunk)
        if not select.select([fd], [], [], _QUIET_S)[0]:
            yield None
    yield from cutter.end()


def follow(
    path: Path,
    *,
    limit: int,
    first: int = 1,
    pause: Callable[[float], None],
    say: Callable[[str], None],
) -> Iterator[Line | None]:
    """Yield the lines of a file for ever, as it grows, is rotated, emptied, taken away, put back.

    `say` is told of everything but growth; `pause` waits that many seconds.
    """
    while True:
        fd = _wait_for(path, pause=pause, say=say)
        try:
            yield from _until_replaced(path, fd, limit=limit, first=first, pause=pause, say=say)
        finally:
            os.close(fd)
        first = 1


def _wait_for(path: Path, *, pause: Callable[[float], None], say: Callable[[str], None]) -> int:
    told = False
    while True:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if not told:
                say(f"{path} is not there; waiting for it.")
                told = True
            pause(_POLL_S)
        except OSError as exc:
            raise CommandError(f"Cannot read {path}: {exc.strerror}.") from exc


def _until_replaced(
    path: Path,
    fd: int,
    *,
    limit: int,
    first: int = 1,
    pause: Callable[[float], None],
    say: Callable[[str], None],
) -> Iterator[Line | None]:
    generation = 0
    cutter = Cutter(origin=identity(fd), limit=limit, first=first)
    head = b""
    gone = replaced = False
    while True:
        # Before reading: what stands behind our place in a rewritten file is half of something.
        if _was_emptied(fd, cutter.position, head):
            yield from cutter.end()
            say(f"{path} was emptied or rewritten; reading it again from its start.")
            generation += 1
            cutter = Cutter(origin=identity(fd, generation), limit=limit)
            head = b""
            os.lseek(fd, 0, os.SEEK_SET)
        while chunk := _read(fd):
            if len(head) < _HEAD_BYTES:
                head = (head + chunk)[:_HEAD_BYTES]
            yield from cutter.add(chunk)
        if replaced:
            yield from cutter.end()
            say(f"{path} was replaced; reading the new one from its start.")
            yield None
            return
        yield None
        now_there = _same_file(path, fd)
        if now_there is None and not gone:
            say(f"{path} is gone; waiting for it to come back.")
        gone = now_there is None
        # Once more round after a pause: the writer may still have had a line for the old file.
        replaced = now_there is False
        pause(_POLL_S)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _CHUNK)
    except OSError as exc:
        raise CommandError(f"Cannot go on reading: {exc.strerror}.") from exc


def _was_emptied(fd: int, position: int, head: bytes) -> bool:
    # The size alone misses a file that was emptied and has grown past our place since.
    return os.fstat(fd).st_size < position or os.pread(fd, len(head), 0) != head


def _same_file(path: Path, fd: int) -> bool | None:
    """Whether the path still names the open file; None where it names nothing."""
    try:
        there, ours = path.stat(), os.fstat(fd)
    except OSError:
        return None
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

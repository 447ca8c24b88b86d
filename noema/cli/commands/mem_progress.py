"""What an import shows while it runs, and what it keeps of that which is not taken."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from noema.cli.commands.mem_sending import Reject
from noema.cli.importing import Mark
from noema.cli.output import CommandError, note
from noema.core.clock import Clock

_LISTED: Final = 10
_SAY_EVERY_S: Final = 5.0


class Rejects:
    """Keeps what was not taken: the first few to be shown, all of them in the file if there is one.

    A file that an import goes on with is first cut to `known` bytes: what stands behind them was
    never counted and comes again.
    """

    def __init__(self, path: Path | None, known: int) -> None:
        self.first: list[Reject] = []
        self._path, self._file = path, None
        if path is None:
            return
        try:
            self._file = path.open("ab")
            if known <= self._file.tell():
                self._file.truncate(known)
        except OSError as exc:
            raise self._failed(exc) from exc

    @property
    def is_kept(self) -> bool:
        return self._file is not None

    def add(self, reject: Reject) -> None:
        if len(self.first) < _LISTED:
            self.first.append(reject)
        if self._file is not None:
            line = json.dumps(asdict(reject)) + "\n"
            try:
                self._file.write(line.encode())
            except OSError as exc:
                raise self._failed(exc) from exc

    def flush(self) -> int:
        """Hand everything to the system; return how many bytes the file has."""
        if self._file is None:
            return 0
        try:
            self._file.flush()
            return self._file.tell()
        except OSError as exc:
            raise self._failed(exc) from exc

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _failed(self, exc: OSError) -> CommandError:
        return CommandError(f"Cannot write {self._path}: {exc.strerror}.")


@dataclass(slots=True, kw_only=True)
class Progress:
    """Shows how far the import is: a bar on a terminal, else a line now and then."""

    size: int | None
    started: Mark
    clock: Clock
    bar: Any = None
    _began: float = 0.0
    _said: float = 0.0
    _at: Mark = field(default_factory=Mark)

    def __post_init__(self) -> None:
        self._began = self._said = self.clock.monotonic()
        self._at = self.started

    def advance(self, mark: Mark) -> None:
        """Show that everything up to the mark is done."""
        self._at = mark
        if self.bar is not None:
            self.bar.update(mark.offset - self.bar.pos, self.rate_text())
            return
        now = self.clock.monotonic()
        if now - self._said >= _SAY_EVERY_S:
            self._said = now
            note(f"{self.rate_text()}{self._left_text()}")

    def rate_text(self) -> str:
        """Return how many items are done, and how many a second."""
        elapsed_s = self.clock.monotonic() - self._began
        done = self._at.items - self.started.items
        rate = f", {done / elapsed_s:,.0f}/s" if elapsed_s > 0 else ""
        return f"{counted(self._at.items, 'item')}{rate}"

    def _left_text(self) -> str:
        done = self._at.offset - self.started.offset
        if not self.size or done <= 0:
            return ""
        elapsed_s = self.clock.monotonic() - self._began
        left_s = elapsed_s * (self.size - self._at.offset) / done
        minutes, seconds = divmod(max(round(left_s), 0), 60)
        return f", {100 * self._at.offset // self.size} %, about {minutes}:{seconds:02} left"

    def finish(self) -> None:
        """Show that nothing is left."""
        if self.bar is not None:
            self.bar.update(self.bar.length - self.bar.pos, self.rate_text())

    def say(self, message: str) -> None:
        """Tell the person something, below the bar and not into it."""
        if self.bar is not None:
            click.echo(err=True)
        note(message)

    def close(self) -> None:
        """Leave the line of the bar."""
        if self.bar is not None:
            click.echo(err=True)


@contextmanager
def progress_bar(size: int | None, mark: Mark, clock: Clock) -> Iterator[Progress]:
    if not size or not sys.stderr.isatty():
        yield Progress(size=size, started=mark, clock=clock)
        return
    bar: Any = click.progressbar(
        length=size,
        label="Importing",
        file=sys.stderr,
        show_eta=True,
        item_show_func=lambda text: text,
        update_min_steps=max(size // 1000, 1),
    )
    with bar:
        bar.update(mark.offset)
        yield Progress(size=size, started=mark, clock=clock, bar=bar)


def counted(number: int, noun: str) -> str:
    """Return a number with what it counts."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

"""When a fed line happened: the time it begins with, and the year where that leaves it out."""

import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path

from noema.cli.timestamps import Recognised, YearGuesser, first_year, leading_time
from noema.core.clock import Clock

_CHUNK = 1 << 20
# The longest time that is recognised is much shorter.
_EXAMINED_BYTES = 512


class Times:
    """Reads the time at the start of each line, in order.

    `year` is that of the first line without one. Where it is None, it is worked out from the whole
    file and its date, or from today's date for a pipe, and `say` is told once which it is.
    """

    def __init__(
        self,
        *,
        path: Path | None,
        year: int | None,
        zone: tzinfo,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._path, self._zone, self._clock, self._say = path, zone, clock, say
        self._guesser = None if year is None else YearGuesser(year)

    def of(self, text: str) -> datetime | None:
        """Return when the line happened, None where it does not say."""
        # Any year does to see whether one is missing.
        year = self._clock.now().year if self._guesser is None else self._guesser.year
        found = leading_time(text, year=year, zone=self._zone)
        if found is None:
            return None
        if not found.year_was_missing:
            return found.occurred_at
        if self._guesser is None:
            self._guesser = YearGuesser(self._first_year(found))
        return self._guesser.settle(found, self._zone).occurred_at

    def _first_year(self, found: Recognised) -> int:
        changed = None if self._path is None else changed_at(self._path)
        if self._path is None or changed is None:
            year, where = first_year([found], self._clock.now(), self._zone), "today's date"
        else:
            months = list(turning_times(self._path, year=changed.year, zone=self._zone))
            year = first_year(months or [found], changed, self._zone)
            where = "the file's date"
        self._say(f"times have no year: using {year} from {where} (--year overrides)")
        return year


def changed_at(path: Path) -> datetime | None:
    """Return when the file was last written to, None for a pipe or where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return datetime.fromtimestamp(found.st_mtime, UTC) if stat.S_ISREG(found.st_mode) else None


def turning_times(path: Path, *, year: int, zone: tzinfo) -> Iterator[Recognised]:
    """Yield the times without a year at which the month changes, and the last one.

    That is all that the turns of the year depend on, and small however long the file is.
    """
    month, last = None, None
    for head in _heads(path):
        found = leading_time(head.decode("utf-8", "replace"), year=year, zone=zone)
        if found is None or not found.year_was_missing:
            continue
        last = found
        now = found.occurred_at.astimezone(zone).month
        if now != month:
            month, last = now, None
            yield found
    if last is not None:
        yield last


def _heads(path: Path) -> Iterator[bytes]:
    """Yield the start of each line, however long the lines are."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    with os.fdopen(fd, "rb", buffering=_CHUNK) as file:
        fresh = True
        while piece := file.readline(_EXAMINED_BYTES):
            if fresh:
                yield piece
            fresh = piece.endswith(b"\n")

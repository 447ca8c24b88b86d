"""The time a log line begins with, so that habits are counted in the log's own time.

`leading_time` looks only at the beginning of the line and only for shapes it is sure of: a line
without one has no recognised time, which is better than a wrong one. Recognised are ISO 8601 and
its relatives, both syslogs (RFC 3164 and 5424), common and combined access logs, nginx and Apache
error logs, seconds and milliseconds since 1970, and the compact forms of Hadoop, Spark, HealthApp
and of the BlueGene and Thunderbird logs.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

_EXAMINED: Final = 512
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
# Epochs outside 2001 to 2100 are more likely some other number of ten digits.
_FIRST_EPOCH: Final = 978_307_200
_LAST_EPOCH: Final = 4_102_444_800


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """A time at the head of a line.

    `occurred_at` is UTC. `rest` is the offset in the line at which its text begins: behind the time
    and what separates it, or 0 where the time stands among words that matter (an access log).
    `year_was_missing` and `zone_was_missing` say that the year or zone is the one passed in.
    """

    occurred_at: datetime
    rest: int
    year_was_missing: bool
    zone_was_missing: bool
    format: str


def leading_time(line: str, *, year: int | None, zone: tzinfo) -> Recognised | None:
    """Return the time the line begins with, or None; never raises.

    `year` is used for a format without one; with None such a line is not recognised. 29 February
    without a year takes the nearest leap year at or before `year`. `zone` is used where none is
    written; a wall-clock time that the zone skips or has twice is read by its rule for fold 0.
    """
    head = line[:_EXAMINED]
    for name, pattern, read in _FORMATS:
        match = pattern.match(head)
        if match is None:
            continue
        try:
            found = read(match, year, zone)
            if found is None:
                continue
            moment, year_was_missing, zone_was_missing = found
            occurred_at = moment.astimezone(UTC)
        except (ValueError, OverflowError):
            # The shape fits, the number does not (month 13, second 99, year 1 east of UTC).
            continue
        return Recognised(
            occurred_at=occurred_at,
            rest=match.start("rest"),
            year_was_missing=year_was_missing,
            zone_was_missing=zone_was_missing,
            format=name,
        )
    return None


class YearGuesser:
    """The year of the next line of a file whose lines leave it out.

    Begin with the year of the first line: an option, or `first_year` from the file's date. Pass
    `year` to `leading_time` and hand what it finds to `settle`. A month that falls by more than
    half a year begins a new year; one that rises by as much is a late line of the old year.
    """

    def __init__(self, start: int) -> None:
        self.year = start
        self._month: int | None = None

    def settle(self, found: Recognised, zone: tzinfo) -> Recognised:
        """Return the time with its year put right, and learn from it; one with a year is as is."""
        if not found.year_was_missing:
            return found
        local = found.occurred_at.astimezone(zone)
        if self._month is not None and local.month - self._month < -6:
            self.year += 1
        late = self._month is not None and local.month - self._month > 6
        if not late:
            self._month = local.month
        settled = _in_year(local, self.year - late)
        return Recognised(
            occurred_at=settled.astimezone(UTC),
            rest=found.rest,
            year_was_missing=True,
            zone_was_missing=found.zone_was_missing,
            format=found.format,
        )


def first_year(lines: Iterable[Recognised], modified: datetime, zone: tzinfo) -> int:
    """Return the year of the first line, if the last was written no later than the file's date.

    `lines` are recognised times in file order, read with any year. As many turns of the year as the
    months show are counted back from the last line; a last line later in the year than the file's
    date is of the year before.
    """
    year = modified.astimezone(zone).year
    guesser = YearGuesser(year)
    last = None
    for found in lines:
        last = guesser.settle(found, zone)
    if last is None:
        return year
    turns = guesser.year - year
    ending = _in_year(last.occurred_at.astimezone(zone), year)
    # A day of grace: a clock or a zone may differ a little between writer and reader.
    return year - turns - (ending > modified + timedelta(days=1))


def _in_year(local: datetime, year: int) -> datetime:
    # Of 29 February the nearest leap year at or before: eight years cover 1900 and 2100 as well.
    year = min(9998, max(10, year))
    for candidate in range(year, year - 9, -1):
        try:
            return local.replace(year=candidate)
        except ValueError:
            continue
    return local


def _micros(fraction: str | None) -> int:
    return int((fraction or "0")[:6].ljust(6, "0"))


_Read = tuple[datetime, bool, bool]
_Reader = Callable[[re.Match[str], int | None, tzinfo], _Read | None]


def _civil(match: re.Match[str], year: int | None, zone: tzinfo) -> _Read | None:
    part = match.groupdict()
    named = part.get("mon")
    month = _MONTHS[named.lower()] if named else int(part["m"])
    written = part.get("y")
    # A two-digit year is of this century: these formats are younger than it.
    stated = year if written is None else int(written) + (2000 if len(written) == 2 else 0)
    if stated is None:
        return None
    # A leap second has no place in a datetime; the second before it is close enough for habits.
    local = datetime(  # noqa: DTZ001 - the zone follows below, written or passed in
        2000,
        month,
        int(part["d"]),
        int(part["H"]),
        int(part["M"]),
        min(59, int(part["S"])) if part["S"] == "60" else int(part["S"] or 0),
        int(part.get("milli") or 0) * 1000 or _micros(part.get("f")),
    )
    offset = part.get("z")
    local = _in_year(local, stated) if written is None else local.replace(year=stated)
    local = local.replace(tzinfo=_offset(offset) if offset else zone)
    return local, written is None, not offset


def _offset(text: str) -> tzinfo:
    if text in ("Z", "z", "UTC", "GMT"):
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def _epoch(match: re.Match[str], _year: int | None, _zone: tzinfo) -> _Read | None:
    seconds = int(match["s"])
    if not _FIRST_EPOCH <= seconds < _LAST_EPOCH:
        return None
    fraction = (match["ms"] or "") + (match["f"] or "")
    return _EPOCH + timedelta(seconds=seconds, microseconds=_micros(fraction)), False, False


_TIME: Final = r"(?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)"
_FRACTION: Final = r"(?:[.,](?P<f>\d{1,9}))?"
_ZONE: Final = r"(?:[ ]?(?P<z>[Zz]|UTC|GMT|[+-]\d\d:?\d\d)(?!\w))?"
_MON: Final = r"(?P<mon>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DAY: Final = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_ISO: Final = (
    r"(?P<y>\d{4})(?P<sep>[-/])(?P<m>\d\d)(?P=sep)(?P<d>\d\d)[Tt _]"
    rf"(?P<H>\d\d):(?P<M>\d\d)(?::(?P<S>\d\d){_FRACTION})?{_ZONE}"
)
# What may follow: never more of a word or number; a closing bracket, one separator, white space.
_END: Final = r"(?![\w.:]*\w)[\])]?(?::(?=\s)|[,;|])?\s*(?P<rest>)"
_PRI: Final = r"(?:<\d{1,3}>)?"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.ASCII | re.IGNORECASE)


_FORMATS: Final[tuple[tuple[str, re.Pattern[str], _Reader], ...]] = (
    ("rfc5424", _pattern(rf"<\d{{1,3}}>\d{{1,2}} {_ISO}{_END}"), _civil),
    ("iso8601", _pattern(rf"{_PRI}[\[(]?{_ISO}{_END}"), _civil),
    (
        "apache-error",
        _pattern(
            rf"\[?{_DAY},?[ ]{_MON}[ ]{{1,2}}(?P<d>\d{{1,2}})[ ]{_TIME}{_FRACTION}[ ]"
            rf"(?:(?P<z>UTC|GMT|[+-]\d{{4}})[ ])?(?P<y>\d{{4}}){_END}"
        ),
        _civil,
    ),
    (
        "rfc3164",
        _pattern(
            rf"{_PRI}\[?(?:{_DAY},?[ ])?{_MON}[ ]{{1,2}}(?P<d>\d{{1,2}})[ ]"
            rf"(?:(?P<y>\d{{4}})[ ])?{_TIME}{_FRACTION}{_END}"
        ),
        _civil,
    ),
    (
        "access-log",
        _pattern(
            rf"(?P<rest>)(?:\S{{1,255}}[ ]){{1,5}}?"
            rf"\[(?P<d>\d\d)/{_MON}/(?P<y>\d{{4}}):{_TIME}{_ZONE}\]"
        ),
        _civil,
    ),
    (
        "bracketed-access-time",
        _pattern(rf"\[?(?P<d>\d\d)/{_MON}/(?P<y>\d{{4}})[: ]{_TIME}{_FRACTION}{_ZONE}{_END}"),
        _civil,
    ),
    (
        "labelled-epoch",
        _pattern(r"-[ ](?P<s>\d{10})(?P<ms>)(?P<f>)[ ]+(?P<rest>)(?=\d{4}\.\d\d\.\d\d[ ])"),
        _epoch,
    ),
    (
        "labelled-epoch",
        _pattern(r"(?P<rest>)[A-Z][\w-]*[ ](?P<s>\d{10})(?P<ms>)(?P<f>)[ ]\d{4}\.\d\d\.\d\d[ ]"),
        _epoch,
    ),
    (
        "epoch",
        _pattern(rf"{_PRI}[\[(]?(?P<s>\d{{10}})(?P<ms>\d{{3}})?(?:\.(?P<f>\d{{1,9}}))?{_END}"),
        _epoch,
    ),
    (
        "short-year",
        _pattern(rf"\[?(?P<y>\d\d)/(?P<m>\d\d)/(?P<d>\d\d)[ ]{_TIME}{_FRACTION}{_END}"),
        _civil,
    ),
    (
        "hadoop",
        _pattern(
            r"(?P<y>\d\d)(?P<m>\d\d)(?P<d>\d\d)[ ](?P<H>\d\d)(?P<M>\d\d)(?P<S>\d\d)(?=[ ])" + _END
        ),
        _civil,
    ),
    (
        "compact",
        _pattern(
            r"(?P<y>\d{4})(?P<m>\d\d)(?P<d>\d\d)[-T ](?P<H>\d{1,2}):?(?P<M>\d{1,2}):?(?P<S>\d{1,2})"
            rf"(?:[.,](?P<f>\d{{1,6}})|:(?P<milli>\d{{1,3}}))?{_ZONE}{_END}"
        ),
        _civil,
    ),
    ("month-day", _pattern(rf"\[?(?P<m>\d\d)[-.](?P<d>\d\d)[ ]{_TIME}{_FRACTION}{_END}"), _civil),
    ("file-prefixed", _pattern(rf"(?P<rest>)[\w.:/\-]{{1,255}}[ ]{_ISO}(?!\w)"), _civil),
)

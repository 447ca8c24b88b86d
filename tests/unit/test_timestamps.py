"""The time at the head of a line, and nothing that only looks like one."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.cli.timestamps import Recognised, YearGuesser, first_year, leading_time
from noema.cognition.topic import topic_key


@pytest.mark.parametrize(
    ("line", "moment", "rest"),
    [
        ("2024-03-01T10:11:12Z up", "2024-03-01T10:11:12", "up"),
        ("2024-03-01 10:11:12,5 - up", "2024-03-01T10:11:12.500000", "- up"),
        ("2024-03-01T10:11:12.123456789+02:00 up", "2024-03-01T08:11:12.123456", "up"),
        ("2024-03-01 10:11:12 -0500 up", "2024-03-01T15:11:12", "up"),
        ("2024-03-01T10:11Z up", "2024-03-01T10:11:00", "up"),
        ("2016-09-28 04:30:30, Info  CBS", "2016-09-28T04:30:30", "Info  CBS"),
        (
            "<34>1 2003-10-11T22:14:15.003Z host su - - hi",
            "2003-10-11T22:14:15.003000",
            "host su - - hi",
        ),
        ("Jun 14 15:16:01 gate up", "2005-06-14T15:16:01", "gate up"),
        ("Jun  9 06:06:20 gate up", "2005-06-09T06:06:20", "gate up"),
        ("<13>Jun  9 06:06:20 gate up", "2005-06-09T06:06:20", "gate up"),
        ("Jun  9 2011 06:06:20 gate up", "2011-06-09T06:06:20", "gate up"),
        ("[Sun Dec 04 04:47:44 2005] [notice] up", "2005-12-04T04:47:44", "[notice] up"),
        ("[Sun Dec 04 04:47:44.25 2005] up", "2005-12-04T04:47:44.250000", "up"),
        ("2023/01/02 15:04:05 [error] up", "2023-01-02T15:04:05", "[error] up"),
        ("1700000000 up", "2023-11-14T22:13:20", "up"),
        ("1700000000123 up", "2023-11-14T22:13:20.123000", "up"),
        ("[1700000000.25] up", "2023-11-14T22:13:20.250000", "up"),
        ("17/06/09 20:10:40 INFO up", "2017-06-09T20:10:40", "INFO up"),
        ("081109 203615 148 INFO up", "2008-11-09T20:36:15", "148 INFO up"),
        ("20171223-22:15:29:606|Step|up", "2017-12-23T22:15:29.606000", "Step|up"),
        ("20171224-0:7:20:44|Step|up", "2017-12-24T00:07:20.044000", "Step|up"),
        ("- 1117838570 2005.06.03 R02 up", "2005-06-03T22:42:50", "2005.06.03 R02 up"),
        (
            "LABEL 1117838570 2005.06.03 R02 up",
            "2005-06-03T22:42:50",
            "LABEL 1117838570 2005.06.03 R02 up",
        ),
        ("[10.30 16:49:06] app up", "2005-10-30T16:49:06", "app up"),
        ("03-17 16:13:38.811  17 D up", "2005-03-17T16:13:38.811000", "17 D up"),
        ("2016-12-31T23:59:60Z up", "2016-12-31T23:59:59", "up"),
    ],
)
def test_a_leading_time_is_read_and_cut_off(line: str, moment: str, rest: str) -> None:
    found = leading_time(line, year=2005, zone=UTC)

    assert found is not None
    assert found.occurred_at == datetime.fromisoformat(moment).replace(tzinfo=UTC)
    assert line[found.rest :] == rest
    assert topic_key(line) == topic_key(rest)


def test_the_time_of_an_access_log_is_found_behind_the_address_which_stays() -> None:
    line = '10.0.0.7 - ann [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 1'

    found = leading_time(line, year=None, zone=UTC)

    assert found == Recognised(
        occurred_at=datetime(2000, 10, 10, 20, 55, 36, tzinfo=UTC),
        rest=0,
        year_was_missing=False,
        zone_was_missing=False,
        format="access-log",
    )


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no time here",
        "12 34",
        "1234567890123456 ids",
        "9999999999 is no second of this century",
        "2024-02-30 00:00:00 never",
        "2024-13-01 00:00:00 never",
        "2024-01-01 10:00:00Zebra",
        "99/99/99 00:00:00 never",
        "Jun 31 15:16:01 never",
        "May I 15:16:01",
        "the log of 2024-01-01T00:00:00Z begins",
        "\u0662024-01-01 10:00:00 a digit of another script",
        "\x00\ud800",
    ],
)
def test_what_only_looks_like_a_time_is_left_alone(line: str) -> None:
    assert leading_time(line, year=2005, zone=UTC) is None


def test_a_missing_year_or_zone_is_filled_in_and_said() -> None:
    zone = ZoneInfo("Europe/Berlin")

    syslog = leading_time("Jun 14 15:16:01 x", year=2005, zone=zone)
    iso = leading_time("2024-03-01T10:11:12Z x", year=2005, zone=zone)

    assert syslog is not None
    assert iso is not None
    assert syslog.occurred_at == datetime(2005, 6, 14, 13, 16, 1, tzinfo=UTC)
    assert (syslog.year_was_missing, syslog.zone_was_missing) == (True, True)
    assert (iso.year_was_missing, iso.zone_was_missing) == (False, False)
    assert leading_time("Jun 14 15:16:01 x", year=None, zone=zone) is None


@given(
    st.text(max_size=80)
    | st.text(alphabet="0123456789-:/.,TZ +[]<>", max_size=60)
    | st.from_regex(r"\A\[?[0-9]{2,4}[-/][0-9]{2}[-/][0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}"),
    st.none() | st.integers(-5, 20_000),
    st.integers(-1439, 1439),
)
def test_no_input_makes_it_fail(line: str, year: int | None, minutes: int) -> None:
    found = leading_time(line, year=year, zone=timezone(timedelta(minutes=minutes)))

    if found is not None:
        assert found.occurred_at.utcoffset() == timedelta(0)
        assert 0 <= found.rest <= len(line)
        assert YearGuesser(2024).settle(found, UTC) is not None


@given(st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2099, 1, 1)))  # noqa: DTZ001
def test_a_written_iso_time_is_read_back(moment: datetime) -> None:
    found = leading_time(f"{moment.isoformat(timespec='microseconds')}Z x", year=None, zone=UTC)

    assert found is not None
    assert found.occurred_at == moment.replace(tzinfo=UTC)


def settled(lines: list[str], start: int) -> list[str]:
    guesser = YearGuesser(start)
    moments = []
    for line in lines:
        found = leading_time(line, year=guesser.year, zone=UTC)
        assert found is not None
        moments.append(guesser.settle(found, UTC).occurred_at.date().isoformat())
    return moments


def test_a_file_may_run_over_the_turn_of_years() -> None:
    lines = [f"{day} 10:00:00 x" for day in ("Nov 30", "Dec 31", "Jan  1", "Dec 31", "Jan  2")]

    assert settled(lines, 2003) == [
        "2003-11-30",
        "2003-12-31",
        "2004-01-01",
        "2003-12-31",
        "2004-01-02",
    ]


def test_a_leap_day_without_a_year_is_of_a_leap_year() -> None:
    assert settled(["Dec 31 10:00:00 x", "Feb 29 10:00:00 x"], 2003)[1] == "2004-02-29"
    assert settled(["Feb 29 10:00:00 x"], 2003) == ["2000-02-29"]


def test_the_first_year_follows_from_the_date_of_the_file() -> None:
    def read(*days: str) -> list[Recognised]:
        found = [leading_time(f"{day} 10:00:00 x", year=2010, zone=UTC) for day in days]
        return [f for f in found if f is not None]

    modified = datetime(2010, 3, 1, tzinfo=UTC)

    assert first_year(read("Jan 10", "Feb 10"), modified, UTC) == 2010
    assert first_year(read("Nov 10", "Feb 10"), modified, UTC) == 2009
    assert first_year(read("Nov 10", "Dec 10"), modified, UTC) == 2009
    assert first_year([], modified, UTC) == 2010

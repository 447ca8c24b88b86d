"""`feed`: give a mind the lines of a file, a pipe, or a log that grows."""

import json
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, tzinfo
from os import close, fstat
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import example, json_option, mind_argument
from noema.cli.commands.feed_batches import MAX_ITEMS, Batches, Stopped, Tally, stopped_text
from noema.cli.commands.feed_lines import (
    MAX_JSON_LINE_BYTES,
    MAX_TEXT_BYTES,
    Line,
    LineRefused,
    follow,
    identity,
    open_file,
    read_once,
)
from noema.cli.commands.feed_parse import JsonParser, Parser, TextParser
from noema.cli.commands.feed_times import Times
from noema.cli.output import CommandError, note, put_json

_PATIENCE_S: Final = 120.0
_STDIN: Final = 0


def zone_named(ctx: click.Context, param: click.Parameter, value: str) -> tzinfo:
    """Return the time zone of that name."""
    if value.upper() in ("UTC", "Z"):
        return UTC  # also where the machine has no list of zones
    try:
        return ZoneInfo(value)
    except (ValueError, OSError, LookupError):
        raise click.BadParameter(
            f"{value!r} is not a time zone; write UTC or Europe/Berlin."
        ) from None


@click.command(
    epilog=example(
        "noemactl feed ada /var/log/auth.log --follow",
        "journalctl -o short-iso | noemactl feed ada -",
    )
)
@mind_argument
@click.argument("file", metavar="FILE|-", type=click.Path(readable=False, allow_dash=True))
@click.option(
    "--format",
    "form",
    type=click.Choice(["line", "jsonl"]),
    default="line",
    show_default=True,
    help="Each line is a text, or one stimulus as a JSON object.",
)
@click.option(
    "--batch",
    "size",
    type=click.IntRange(1, MAX_ITEMS),
    default=100,
    show_default=True,
    help="Lines in one request.",
)
@click.option("--follow", "following", is_flag=True, help="Go on as the file grows or is rotated.")
@click.option("--from-line", type=click.IntRange(min=1), default=1, help="Skip the lines before.")
@click.option(
    "--year", type=click.IntRange(1970, 9998), help="The year of the first time without one."
)
@click.option(
    "--zone", callback=zone_named, default="UTC", help="The zone of times without one. [UTC]"
)
@click.option("--no-times", is_flag=True, help="Do not read times; all happens now.")
@click.option("--source", help="Where the lines come from; else the name of the file.")
@click.option("--again", is_flag=True, help="Send as new what was sent from this file before.")
@click.option(
    "--patience",
    "patience_s",
    type=click.FloatRange(min=0),
    help="Seconds to try one batch again. [120; for ever with --follow]",
)
@json_option
@pass_ctl
def feed(
    ctl: Ctl,
    mind: str,
    file: str,
    form: str,
    size: int,
    following: bool,
    from_line: int,
    year: int | None,
    zone: tzinfo,
    no_times: bool,
    source: str | None,
    again: bool,
    patience_s: float | None,
    as_json: bool,
) -> None:
    """Give a mind each line of FILE, in order.

    With - the lines come from standard input. Each is one stimulus; empty ones are skipped. A time
    at the start of a line (ISO 8601, syslog, web server logs, epoch) says when it happened. A batch
    that gets lost is sent again and counts once; so does a file that is fed a second time, unless
    --again is given.
    """
    if file == "-" and following:
        raise click.UsageError("Standard input is read to its end anyway; leave out --follow.")
    with ExitStack() as stack:
        daemon = ctl.daemon()
        daemon.get(api("minds", mind))  # the usual mistakes show before the file is touched
        fd = None if following else _open(file, stack)
        tally = Tally(resume_from=from_line)
        say, show = _progress(fd, stack)
        path = None if file == "-" else Path(file)
        times = Times(path=path, year=year, zone=zone, clock=ctl.clock, say=say)
        parse = _parser(form, source or _source(file), None if no_times else times, tally)
        batches = Batches(
            ctl=ctl,
            daemon=daemon,
            mind=mind,
            size=size,
            patience_s=patience_s if patience_s is not None or following else _PATIENCE_S,
            salt=secrets.token_hex(16) if again or file == "-" else "",
            tally=tally,
            say=say,
            on_sent=show,
        )
        limit = MAX_TEXT_BYTES if form == "line" else MAX_JSON_LINE_BYTES
        if fd is None:
            lines = follow(Path(file), limit=limit, first=from_line, pause=ctl.pause, say=say)
        else:
            origin = "-" if file == "-" else identity(fd)
            lines = read_once(fd, origin=origin, limit=limit, first=from_line)
        _run(lines, parse, batches, from_line)
    _report(tally, as_json)


def _run(lines: Iterator[Line | None], parse: Parser, batches: Batches, from_line: int) -> None:
    tally = batches.tally
    first_origin: str | None = None
    try:
        for line in lines:
            if line is None:
                batches.flush()
                continue
            first_origin = first_origin or line.origin
            if line.number < from_line and line.origin == first_origin:
                parse.skip(line)
                continue
            item = parse(line)
            if item is None:
                tally.empty += 1
            else:
                batches.add(line, json.dumps(item, ensure_ascii=False).encode())
        batches.flush()
    except LineRefused as exc:
        batches.flush()
        tally.resume_from = exc.number
        raise CommandError(
            f"Line {exc.number} {exc}. {stopped_text(tally)} "
            f"(--from-line {exc.number + 1} leaves this line out.)"
        ) from None
    except Stopped:
        raise
    except CommandError as exc:
        batches.flush()
        raise CommandError(f"{exc.message} {stopped_text(tally)}") from exc
    except KeyboardInterrupt:
        note(f"Interrupted. {stopped_text(tally)}")
        raise


def _open(file: str, stack: ExitStack) -> int:
    if file == "-":
        return _STDIN
    fd = open_file(Path(file))
    stack.callback(close, fd)
    if stat.S_ISDIR(fstat(fd).st_mode):
        raise CommandError(f"{file} is a directory; name a file in it.")
    return fd


def _source(file: str) -> str | None:
    return None if file == "-" else Path(file).name


def _parser(form: str, source: str | None, times: Times | None, tally: Tally) -> Parser:
    def count() -> None:
        tally.not_utf8 += 1

    if form == "jsonl":
        return JsonParser(source=source, on_bad_bytes=count)
    time_of = times.of if times is not None else lambda text: None
    return TextParser(source=source, time_of=time_of, on_bad_bytes=count)


def _progress(
    fd: int | None, stack: ExitStack
) -> tuple[Callable[[str], None], Callable[[Line], None]]:
    """Return how to tell the person something, and how to show that a line has been sent."""
    if fd is None or not sys.stderr.isatty() or not stat.S_ISREG(fstat(fd).st_mode):
        return note, lambda line: None
    length = max(fstat(fd).st_size, 1)
    bar = stack.enter_context(click.progressbar(length=length, label="Feeding", file=sys.stderr))

    def say(message: str) -> None:
        click.echo(err=True)  # below the bar, not into it
        note(message)

    return say, lambda line: bar.update(line.end - bar.pos)


def _report(tally: Tally, as_json: bool) -> None:
    if as_json:
        put_json(
            {
                "accepted": tally.accepted,
                "batches": tally.batches,
                "empty": tally.empty,
                "not_utf8": tally.not_utf8,
                "retries": tally.retries,
            }
        )
        return
    parts = [f"{_count(tally.accepted, 'line')} accepted in {_count(tally.batches, 'batch')}"]
    if tally.empty:
        parts.append(f"{_count(tally.empty, 'empty line')} skipped")
    if tally.not_utf8:
        parts.append(
            f"{_count(tally.not_utf8, 'line')} with bytes that are not UTF-8, kept as \\xNN"
        )
    click.echo("; ".join(parts) + ".")


def _count(number: int, noun: str) -> str:
    plural = noun if number == 1 else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {plural}"


COMMANDS: tuple[click.Command, ...] = (feed,)

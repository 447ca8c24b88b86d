"""`mem import`: many memories at once, through the same door as every other write."""

import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import example, json_option
from noema.cli.commands.mem_output import given, standard_input
from noema.cli.commands.mem_progress import Rejects, counted, progress_bar
from noema.cli.commands.mem_resume import Place, ResumePoint
from noema.cli.commands.mem_sending import Reject, Sending, Stopped, Tally
from noema.cli.importing import EXTENSIONS, JsonLines, Mark, Source, TextFiles, printable
from noema.cli.output import CommandError, note, put_json, visible
from noema.memory.model import MAX_TEXT_CHARS, Kind

_IN_FLIGHT: Final = 8
_PATIENCE_S: Final = 120.0
_PIECE_CHARS: Final = 2000


@click.command(
    "import",
    epilog=example(
        "noemactl mem import facts.jsonl --rejects rejects.jsonl",
        "noemactl mem import handbook/ --ext md",
        "jq -c '{text: .body, source: .url}' pages.json | noemactl mem import -",
    ),
)
@click.argument("path", metavar="PATH|-", type=click.Path(readable=False, allow_dash=True))
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "jsonl", "text"]),
    default="auto",
    show_default=True,
    help="JSON lines, or text; auto goes by what PATH is called.",
)
@click.option(
    "--ext",
    "extensions",
    multiple=True,
    metavar="EXT",
    help=f"Which files of a folder; several times or with commas. [{','.join(EXTENSIONS)}]",
)
@click.option(
    "--piece",
    "piece_chars",
    type=click.IntRange(100, MAX_TEXT_CHARS),
    default=_PIECE_CHARS,
    show_default=True,
    help="The longest piece of a text, in characters.",
)
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in Kind]),
    help="What those are that do not say it; else facts.",
)
@click.option("--source", help="Where it comes from: of lines that do not say; before a file name.")
@click.option(
    "--resume/--restart", default=True, help="Go on where it was interrupted, or begin anew."
)
@click.option("--strict", is_flag=True, help="Stop at the first that is not taken.")
@click.option(
    "--rejects",
    "rejects_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep here, as JSON lines, all that is not taken and why.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, 32),
    default=_IN_FLIGHT,
    show_default=True,
    help="Requests at once; 1 keeps everything in order.",
)
@click.option(
    "--patience",
    "patience_s",
    type=click.FloatRange(min=0),
    default=_PATIENCE_S,
    show_default=True,
    help="Seconds to go on trying while nothing gets through.",
)
@json_option
@pass_ctl
def import_memories(
    ctl: Ctl,
    path: str,
    form: str,
    extensions: tuple[str, ...],
    piece_chars: int,
    kind: str | None,
    source: str | None,
    resume: bool,
    strict: bool,
    rejects_path: Path | None,
    in_flight: int,
    patience_s: float,
    as_json: bool,
) -> None:
    """Write every item of PATH into memory.

    A file of JSON lines holds on each line {"text": …} or {"messages": […]}, with whatever else a
    write takes, or a bare string. A folder is read with all folders below: each section of a
    Markdown file is one memory, long ones several; text is cut between paragraphs. What is not
    taken is listed with its place, and the rest goes on; the exit code is then 1. What is there
    already is deduplicated, so an import may be repeated. An interrupted one goes on where it was.
    """
    daemon = ctl.daemon()
    # The usual mistakes show before the file is touched.
    policy = daemon.post(api("mem", "policy"), {})
    shape: dict[str, Any] = {"kind": kind, "source": source, "format": form}
    with ExitStack() as stack:
        limit = min(piece_chars, _most_chars(policy))
        opened = _Opening(
            form=form,
            extensions=_split(extensions) or EXTENSIONS,
            limit=limit,
            kind=kind,
            source=source,
        ).open(path)
        stack.callback(opened.close)
        if isinstance(opened, TextFiles):
            shape |= {"ext": sorted(_split(extensions)), "piece size": limit}
        namespace = policy.get("namespace") if isinstance(policy, dict) else None
        point = _resume_point(ctl, daemon.url, opened, {"namespace": namespace, **shape})
        place = point.load() if point is not None and resume else None
        tally = place.tally if place is not None else Tally()
        mark = place.mark if place is not None else Mark()
        progress = stack.enter_context(progress_bar(opened.size, mark, ctl.clock))
        if place is not None:
            progress.say(f"Going on behind {counted(mark.items, 'item')}; --restart begins anew.")
        rejects = Rejects(rejects_path, place.rejects_bytes if place is not None else 0)
        stack.callback(rejects.close)
        salt = place.salt if place is not None else secrets.token_hex(16)

        def keep(mark: Mark, *, now: bool = False) -> None:
            if point is not None:
                written = rejects.flush()
                here = Place(salt=salt, mark=mark, tally=tally, rejects_bytes=written)
                point.save(here, now=now)

        def done(mark: Mark) -> None:
            progress.advance(mark)
            keep(mark)

        sending = Sending(
            ctl=ctl,
            daemon=daemon,
            salt=salt,
            in_flight=in_flight,
            patience_s=patience_s,
            is_strict=strict,
            tally=tally,
            mark=mark,
            say=progress.say,
            on_reject=rejects.add,
            on_counted=done,
        )
        keep(mark, now=True)
        report = _Report(opened, sending, rejects, as_json=as_json)
        try:
            sending.run(opened.entries(mark))
        except CommandError as exc:
            keep(sending.mark, now=True)
            progress.close()
            report.put(is_complete=False)
            message = f"{exc.message} {_stopped_text(sending, point)}"
            raise Stopped(message, exit_code=exc.exit_code) from exc
        except KeyboardInterrupt:
            keep(sending.mark, now=True)
            progress.say(f"Interrupted. {_stopped_text(sending, point)}")
            raise
        if point is not None:
            point.clear()
        progress.finish()
    report.put(is_complete=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opening:
    """How to read what is named on the command line."""

    form: str
    extensions: tuple[str, ...]
    limit: int
    kind: str | None
    source: str | None

    def open(self, path: str) -> Source:
        """Return the source, or say in one line why there is none."""
        if path == "-":
            if self.form == "text":
                raise click.UsageError("Text is read from files; from - come JSON lines.")
            return self._json_lines(standard_input(), "line", None)
        found = Path(path)
        try:
            if self._is_text(found):
                return self._text(found)
            # Not a context manager: the source closes it.
            file = found.open("rb")
        except OSError as exc:
            raise CommandError(f"Cannot read {path}: {exc.strerror}.") from exc
        return self._json_lines(file, printable(found.name), found)

    def _is_text(self, path: Path) -> bool:
        if path.is_dir():
            if self.form == "jsonl":
                raise click.UsageError(f"{path} is a folder; JSON lines are read from one file.")
            return True
        if self.form == "auto":
            return path.suffix.lower().lstrip(".") in self.extensions
        return self.form == "text"

    def _text(self, path: Path) -> TextFiles:
        return TextFiles(
            path,
            extensions=self.extensions,
            limit=self.limit,
            prefix="" if self.source is None else f"{self.source.rstrip('/')}/",
            defaults=given({"kind": self.kind}),
        )

    def _json_lines(self, file: BinaryIO, name: str, path: Path | None) -> JsonLines:
        source = self.source if self.source is not None or path is None else name
        defaults = given({"kind": self.kind, "source": source})
        # A pipe with a name cannot be read a second time either.
        again = path if path is not None and path.is_file() else None
        return JsonLines(file, name=name, path=again, defaults=defaults)


@dataclass(frozen=True, slots=True)
class _Report:
    """What is said at the end."""

    source: Source
    sending: Sending
    rejects: Rejects
    as_json: bool = field(kw_only=True)

    def put(self, *, is_complete: bool) -> None:
        """Print the sum; raises CommandError where a complete import has rejects."""
        tally, passed = self.sending.tally, self.source.passed
        if self.as_json:
            put_json(
                {
                    "complete": is_complete,
                    "items": tally.entries,
                    "stored": tally.stored,
                    "superseded": tally.superseded,
                    "deduplicated": tally.deduplicated,
                    "rejected": tally.rejected,
                    "rejects": [
                        {"place": one.place, "reason": one.reason} for one in self.rejects.first
                    ],
                    "empty": passed.empty,
                    "links": passed.links,
                    "retries": self.sending.retries,
                }
            )
        else:
            click.echo(_sum_text(tally, passed.empty, passed.links))
            self._list_rejects()
        if is_complete and tally.rejected:
            raise CommandError(f"{counted(tally.rejected, 'item')} not taken; the rest is.")

    def _list_rejects(self) -> None:
        first = self.rejects.first
        for one in first:
            note(f"{visible(one.place)} {one.reason}" if one.body is None else _told(one))
        more = self.sending.tally.rejected - len(first)
        if more > 0:
            where = "the file has all" if self.rejects.is_kept else "--rejects FILE keeps all"
            note(f"and {more:,} more; {where}.")


def _told(one: Reject) -> str:
    return f"{visible(one.place)}: {one.reason}"


def _sum_text(tally: Tally, empty: int, links: int) -> str:
    stored = f"{tally.stored:,} stored"
    if tally.superseded:
        stored += f" ({tally.superseded:,} in place of an older one)"
    parts = [stored, f"{tally.deduplicated:,} deduplicated", f"{tally.rejected:,} rejected"]
    text = f"{counted(tally.entries, 'item')}: {', '.join(parts)}"
    left_out = [counted(empty, "empty one")] if empty else []
    left_out += [counted(links, "symbolic link")] if links else []
    return f"{text}; {' and '.join(left_out)} left out." if left_out else f"{text}."


def _stopped_text(sending: Sending, point: ResumePoint | None) -> str:
    done = f"{counted(sending.tally.entries, 'item')} done"
    if point is None:
        return f"{done}; sent again, they are deduplicated."
    return f"{done}; the same command goes on from there."


def _resume_point(
    ctl: Ctl, url: str, source: Source, about: Mapping[str, Any]
) -> ResumePoint | None:
    if source.identity is None:
        return None
    folder = (ctl.settings.cache_dir or ctl.settings.config_dir) / "imports"
    return ResumePoint(folder, url=url, source=source.identity, about=about, clock=ctl.clock)


def _most_chars(policy: Any) -> int:
    most = policy.get("max_text_chars") if isinstance(policy, dict) else None
    return most if isinstance(most, int) and most > 0 else MAX_TEXT_CHARS


def _split(extensions: tuple[str, ...]) -> tuple[str, ...]:
    named = [one.strip().lower().lstrip(".") for given in extensions for one in given.split(",")]
    return tuple(dict.fromkeys(one for one in named if one))


COMMANDS: tuple[click.Command, ...] = (import_memories,)

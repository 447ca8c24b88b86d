"""How memories are shown to a person, and how text and files are taken in for them."""

import io
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from noema.cli.commands.common import moment
from noema.cli.output import Column, CommandError, lines_of, note, plain, put_json, table, visible
from noema.cli.timestamps import leading_time

_BAR_CELLS: Final = 20
_MAX_INPUT_BYTES: Final = 8 * 1024 * 1024
_FOUND: Final = (
    Column(heading="SCORE", key="score", right=True),
    Column(heading="KIND", key="kind"),
    Column(heading="WHEN", key="when"),
    Column(heading="ID", key="id"),
    Column(heading="TEXT", key="text"),
)
_PARTS: Final = (
    Column(heading="COMPONENT", key="name"),
    Column(heading="VALUE", key="value", right=True),
    Column(heading="WEIGHT", key="weight", right=True),
    Column(heading="ADDS", key="adds", right=True),
    Column(heading="", key="bar"),
)
MEMORIES: Final = (
    Column(heading="SINCE", key="since"),
    Column(heading="KIND", key="kind"),
    Column(heading="STATUS", key="status"),
    Column(heading="NAMESPACE", key="namespace"),
    Column(heading="ID", key="id"),
    Column(heading="TEXT", key="text"),
)


def put_found(answer: Mapping[str, Any], *, width: int | None) -> None:
    """Print what a search found, best first, with the parts of each score where they came along."""
    hits = list(answer.get("results") or [])
    if not hits:
        note("Nothing found that you may see.")
    elif any(hit.get("components") for hit in hits):
        click.echo("\n\n".join("\n".join(_explained(hit)) for hit in hits))
    else:
        rows = [{**hit, "when": when_of(hit), "score": _decimal(hit.get("score"))} for hit in hits]
        click.echo("\n".join(table(rows, _FOUND, width=width)))
    if answer.get("degraded"):
        note(f"Not at its best: {answer['degraded']}.")
    if answer.get("trimmed"):
        note(f"{answer['trimmed']} more did not fit into the token budget.")


def _explained(hit: Mapping[str, Any]) -> list[str]:
    head = f"{_decimal(hit.get('score'))}  {plain(hit.get('kind'))}  {when_of(hit)}  "
    lines = [head + plain(hit.get("id")), "  " + plain(hit.get("text"))]
    components = hit.get("components") or {}
    weights = components.get("weights") or {}
    most = max([*(_number(weight) for weight in weights.values()), 1e-9])
    rows = []
    for name, weight in weights.items():
        adds = _number(components.get(name)) * _number(weight)
        rows.append(
            {
                "name": name,
                "value": _decimal(components.get(name)),
                "weight": _decimal(weight),
                "adds": _decimal(adds),
                "bar": bar(adds / most),
            }
        )
    if rows:
        lines += ["  " + line for line in table(rows, _PARTS, width=None)]
    raw = [
        f"{name} {_decimal(components[name])}"
        for name in ("bm25", "cosine")
        if _is_in(components, name)
    ]
    if raw:
        lines.append("  before scaling: " + ", ".join(raw))
    return lines


def _is_in(components: Mapping[str, Any], name: str) -> bool:
    return components.get(name) is not None


def bar(share: float) -> str:
    """Return a bar for a share of 0 to 1, in what the terminal can show."""
    cells = round(min(max(share, 0.0), 1.0) * _BAR_CELLS)
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    return ("█" if encoding == "utf8" else "#") * cells


def when_of(memory: Mapping[str, Any]) -> str:
    """Return when it happened, else since when it holds."""
    return plain(memory.get("event_time") or memory.get("valid_from"))


def memory_rows(memories: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return memories as rows of a table."""
    return [{**memory, "since": memory.get("valid_from")} for memory in memories]


def put_written(answer: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what became of a write; raises CommandError where something was turned away."""
    rejected = list(answer.get("rejected") or [])
    if as_json:
        put_json(answer)
    else:
        items = list(answer.get("items") or [])
        for number, item in enumerate(items, 1):
            click.echo(_item_line(item, number if len(items) > 1 else None))
        if answer.get("conversation"):
            note(f"Conversation {visible(str(answer['conversation']))}.")
        if answer.get("degraded"):
            note(f"Not at its best: {answer['degraded']}.")
    if rejected:
        first = str(rejected[0].get("reason") or "no reason given").rstrip(".")
        many = f"{len(rejected)} were turned away, the first because: " if len(rejected) > 1 else ""
        raise CommandError(f"{many}{first}.")


def _item_line(item: Mapping[str, Any], number: int | None) -> str:
    place = "" if number is None else f"{number}: "
    if item.get("outcome") == "rejected":
        return f"{place}rejected  {plain(item.get('reason'))}"
    line = f"{place}{plain(item.get('outcome'))}  {plain(item.get('id'))}"
    if item.get("supersedes"):
        line += f"  in place of {plain(item['supersedes'])}"
    return line


def put_policy(policy: Mapping[str, Any]) -> None:
    """Print a policy, its directives as they are to be read."""
    if isinstance(policy.get("policy"), dict):
        # What a namespace sets itself comes with its name and version.
        own = {key: value for key, value in policy["policy"].items() if value is not None}
        policy = {**{key: policy.get(key) for key in ("namespace", "version")}, **own}
    shown = {key: value for key, value in policy.items() if key != "directives"}
    click.echo("\n".join(lines_of(shown)))
    directives = policy.get("directives") or []
    if directives:
        click.echo("directives:")
    for directive in directives:
        click.echo(f"  {plain(directive.get('id'))}: {plain(directive.get('text'))}")


def when(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Return a time, in ISO 8601 or as logs write it, as a moment; without a zone it is of UTC."""
    if value is None:
        return None
    found = leading_time(value, year=None, zone=UTC)
    if found is not None and found.rest == len(value):
        return found.occurred_at
    return moment(ctx, param, value)


def with_zone(value: Any, zone: tzinfo) -> Any:
    """Return a time that is text as ISO 8601 with its zone; anything else as it is."""
    if not isinstance(value, str):
        return value
    found = leading_time(value, year=None, zone=zone)
    return found.occurred_at.isoformat() if found and found.rest == len(value) else value


def standard_input() -> BinaryIO:
    """Return the bytes of standard input."""
    buffer: BinaryIO | None = getattr(sys.stdin, "buffer", None)
    return io.BytesIO(sys.stdin.read().encode()) if buffer is None else buffer


def read_input(path: str) -> str:
    """Return the text of a file, or of standard input for -; refuse what is none."""
    try:
        if path == "-":
            raw = standard_input().read(_MAX_INPUT_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                raw = file.read(_MAX_INPUT_BYTES + 1)
    except OSError as exc:
        raise CommandError(f"Cannot read {path}: {exc.strerror}.") from exc
    where = "Standard input" if path == "-" else path
    if len(raw) > _MAX_INPUT_BYTES:
        most = _MAX_INPUT_BYTES // 1024 // 1024
        raise CommandError(f"{where} is larger than {most} MiB; use `noemactl mem import`.")
    try:
        return raw.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as exc:
        raise CommandError(
            f"{where} is not UTF-8 (byte 0x{raw[exc.start]:02x} at {exc.start})."
        ) from None


def read_json(path: str) -> Any:
    """Return the JSON in a file, or in standard input for -."""
    where = "Standard input" if path == "-" else path
    try:
        return json.loads(read_input(path))
    except (ValueError, RecursionError) as exc:
        raise CommandError(f"{where} is not JSON ({getattr(exc, 'msg', exc)}).") from None


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def put_done(answer: Any, message: str, *, as_json: bool) -> None:
    """Print the answer for a program, or for a person what was done."""
    if as_json:
        put_json(answer)
    else:
        click.echo(message)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _decimal(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, (int, float)) else plain(value)

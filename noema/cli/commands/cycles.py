"""`cycle` and `why`: what a mind thought at one turn, and why that won."""

from collections.abc import Mapping
from typing import Any

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import example, json_option, limit_option, mind_argument
from noema.cli.output import Column, lines_of, plain, put_json, put_rows, score_text, table

_COLUMNS = (
    Column(heading="CYCLE", key="number", right=True),
    Column(heading="STARTED", key="started_at"),
    Column(heading="TRIGGER", key="trigger"),
    Column(heading="MS", key="duration_ms", right=True),
    Column(heading="CANDIDATES", key="candidates", right=True),
    Column(heading="ADMITTED", key="admitted", right=True),
    Column(heading="MARGIN", key="margin", right=True, score=True),
    Column(heading="WINNER", key="winner"),
)
_CANDIDATES = (
    Column(heading="RANK", key="rank", right=True),
    Column(heading="SCORE", key="score", right=True, score=True),
    Column(heading="ADMITTED", key="admitted"),
    Column(heading="GATE", key="gate"),
    Column(heading="PROCESS", key="process"),
    Column(heading="ID", key="id"),
    Column(heading="TEXT", key="text"),
)
_FLIPS = (
    Column(heading="CHANGE", key="what"),
    Column(heading="FROM", key="from", right=True),
    Column(heading="TO", key="to", right=True),
    Column(heading="THEN WINS", key="new_winner"),
    Column(heading="CONFIRMED", key="confirmed"),
)


@click.group(epilog=example("noemactl cycle list ada"))
def cycle() -> None:
    """Look at the turns of a mind."""


@cycle.command("list", epilog=example("noemactl cycle list ada --limit 5"))
@mind_argument
@limit_option(20)
@click.option("--before", help="Only cycles before this number.")
@json_option
@pass_ctl
def list_cycles(ctl: Ctl, mind: str, limit: int, before: str | None, as_json: bool) -> None:
    """List cycles, the newest first."""
    path = api("minds", mind, "cycles")
    cycles = ctl.daemon().items(path, {"before": before}, cursor="before", limit=limit)
    rows = cycles if as_json else [_summary(item) for item in cycles]
    put_rows(rows, _COLUMNS, as_json=as_json, empty=f"{mind} has not thought yet.")


@cycle.command(epilog=example("noemactl cycle show ada 12"))
@mind_argument
@click.argument("number", type=click.IntRange(min=1), metavar="N")
@json_option
@pass_ctl
def show(ctl: Ctl, mind: str, number: int, as_json: bool) -> None:
    """Show one cycle whole: every candidate, the winners and the losers."""
    found = ctl.daemon().get(api("minds", mind, "cycles", number))
    if as_json:
        put_json(found)
        return
    candidates = found.pop("candidates", None)
    found["margin"] = score_text(found.get("margin"))
    click.echo("\n".join(lines_of(found)))
    if isinstance(candidates, list) and candidates:
        click.echo("\n" + "\n".join(table(candidates, _CANDIDATES, width=None)))


@click.command(
    epilog=example("noemactl why ada 12", "noemactl why ada 12 --instead 0197f3c2-7d1e-7a00-8000-…")
)
@mind_argument
@click.argument("number", type=click.IntRange(min=1), metavar="CYCLE")
@click.option("--instead", metavar="CANDIDATE", help="Ask about this one instead of the runner-up.")
@json_option
@pass_ctl
def why(ctl: Ctl, mind: str, number: int, instead: str | None, as_json: bool) -> None:
    """Say why a thought won, and what would turn it.

    What would turn it is the least change of one weight, or of one feature, by which another wins.
    """
    path = api("minds", mind, "cycles", number, "why")
    answer = ctl.daemon().get(path, {"instead": instead})
    if as_json:
        put_json(answer)
    else:
        click.echo("\n".join(_why_lines(answer)))


def _why_lines(answer: Mapping[str, Any]) -> list[str]:
    lines = [
        f"winner:  {_name(answer.get('winner'))}",
        f"against: {_name(answer.get('against'))}",
        f"margin:  {score_text(answer.get('margin'))}",
    ]
    contributions = answer.get("contributions")
    if contributions:
        lines += ["", "contributions:", *_contributions(contributions)]
    flips = answer.get("flips") or []
    if flips:
        lines += ["", "would have changed it:"]
        lines += table([_flip(flip) for flip in flips], _FLIPS, width=None)
    else:
        lines += ["", "No change of one weight or one feature within bounds turns it."]
    return lines


def _contributions(contributions: Any) -> list[str]:
    if isinstance(contributions, list) and all(isinstance(row, dict) for row in contributions):
        keys = list(dict.fromkeys(key for row in contributions for key in row))
        columns = [Column(heading=key.upper(), key=key) for key in keys]
        return table(contributions, columns, width=None)
    return lines_of(contributions, indent="  ")


def _flip(flip: Mapping[str, Any]) -> dict[str, Any]:
    kind = "weight" if flip.get("weight") is not None else "feature"
    return {
        **flip,
        "what": f"{kind} {flip.get(kind)}",
        "new_winner": _name(flip.get("new_winner")),
    }


def _summary(item: Mapping[str, Any]) -> dict[str, Any]:
    counts = {
        key: len(item[key]) if isinstance(item.get(key), list) else item.get(key)
        for key in ("candidates", "admitted")
    }
    return {**item, **counts, "winner": _name(item.get("winner"))}


def _name(thought: Any) -> str:
    """Name a candidate that is given whole or by its id alone."""
    if isinstance(thought, dict):
        named = [plain(thought[key]) for key in ("text", "id") if thought.get(key) is not None]
        return f"{named[0]} ({named[1]})" if len(named) == 2 else "".join(named)
    return plain(thought)


COMMANDS: tuple[click.Command, ...] = (cycle, why)

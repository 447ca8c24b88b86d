"""`replay`: think recorded cycles again and compare, byte for byte."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from noema.cli.client import Ctl, Daemon, Unreachable, api, pass_ctl
from noema.cli.commands.common import example, json_option, mind_argument
from noema.cli.output import CommandError, put_json, put_one, visible

_FIRST_LOOK_S = 0.1
_LOOK_AT_MOST_EVERY_S = 1.0


@click.group(epilog=example("noemactl replay verify ada"))
def replay() -> None:
    """Think recorded cycles again, and see whether the same wins."""


@replay.command(epilog=example("noemactl replay verify ada --from 1 --to 500"))
@mind_argument
@click.option("--from", "first", type=click.IntRange(min=1), help="The first cycle.")
@click.option("--to", "last", type=click.IntRange(min=1), help="The last cycle.")
@json_option
@pass_ctl
def verify(ctl: Ctl, mind: str, first: int | None, last: int | None, as_json: bool) -> None:
    """Recompute recorded cycles and name the first difference, if there is one.

    Ends with 0 where every cycle agrees, with 1 where one does not.
    """
    if first is not None and last is not None and first > last:
        raise click.UsageError(f"--from {first} is after --to {last}.")
    daemon = ctl.daemon()
    body = {"mind": mind, "kind": "verify", "from": first, "to": last}
    started = daemon.post(api("replays"), {k: v for k, v in body.items() if v is not None})
    with _progress() as show:
        done = _await_end(ctl, daemon, str(started.get("id")), show)
    if as_json:
        put_json(done)
    if done.get("state") != "done":
        raise CommandError(f"The replay failed: {done.get('error') or 'no reason given'}.")
    difference = done.get("first_difference")
    if difference is not None:
        raise CommandError(difference_text(mind, difference))
    if not as_json:
        click.echo(
            f"{done.get('verified')} of {done.get('cycles')} cycles of {visible(mind)} agree."
        )


@replay.command(epilog=example("noemactl replay show 0197f3c2-7d1e-7a00-8000-000000000001"))
@click.argument("replay_id", metavar="ID")
@json_option
@pass_ctl
def show(ctl: Ctl, replay_id: str, as_json: bool) -> None:
    """Show how far a replay is, and what it found."""
    put_one(ctl.daemon().get(api("replays", replay_id)), as_json=as_json)


def difference_text(mind: str, difference: dict[str, Any]) -> str:
    """Return one line that names the cycle, the candidate and the feature that differ."""
    parts = [f"Cycle {difference.get('cycle')} of {mind} differs"]
    if difference.get("candidate") is not None:
        parts.append(f"candidate {difference['candidate']}")
    if difference.get("feature") is not None:
        parts.append(f"feature {difference['feature']}")
    line = ", ".join(parts)
    if difference.get("what") is not None:
        line += f" ({difference['what']})"
    return f"{line}: recorded {difference.get('recorded')}, now {difference.get('recomputed')}."


def _await_end(
    ctl: Ctl, daemon: Daemon, replay_id: str, show: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    pause_s = _FIRST_LOOK_S
    while True:
        try:
            state: dict[str, Any] = daemon.get(api("replays", replay_id))
        except Unreachable as exc:
            raise Unreachable(
                f"{exc.message} Look again later: `noemactl replay show {replay_id}`."
            ) from exc
        show(state)
        if state.get("state") != "running":
            return state
        ctl.pause(pause_s)
        pause_s = min(pause_s * 1.5, _LOOK_AT_MOST_EVERY_S)


@contextmanager
def _progress() -> Iterator[Callable[[dict[str, Any]], None]]:
    if not sys.stderr.isatty():
        yield lambda state: None
        return
    bar = click.progressbar(length=1, label="Verifying", file=sys.stderr)

    def show(state: dict[str, Any]) -> None:
        bar.length = max(int(state.get("cycles") or 1), 1)
        bar.update(int(state.get("verified") or 0) - bar.pos)

    with bar:
        yield show


COMMANDS: tuple[click.Command, ...] = (replay,)

"""`goal`: what a mind should care about."""

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import example, json_option, mind_argument
from noema.cli.output import Column, put_one, put_rows, visible

_COLUMNS = (
    Column(heading="ID", key="id"),
    Column(heading="STATUS", key="status"),
    Column(heading="PRIORITY", key="priority", right=True),
    Column(heading="GOAL", key="text"),
)


@click.group(epilog=example("noemactl goal list ada"))
def goal() -> None:
    """Say what a mind should care about."""


@goal.command("list", epilog=example("noemactl goal list ada --json"))
@mind_argument
@json_option
@pass_ctl
def list_goals(ctl: Ctl, mind: str, as_json: bool) -> None:
    """List the goals of a mind."""
    goals = ctl.daemon().items(api("minds", mind, "goals"))
    put_rows(goals, _COLUMNS, as_json=as_json, empty=f"{mind} has no goals.")


@goal.command(epilog=example("noemactl goal add ada 'Notice failing disks' --priority 0.8"))
@mind_argument
@click.argument("text")
@click.option("--priority", type=click.FloatRange(0, 1), help="From 0 to 1.")
@json_option
@pass_ctl
def add(ctl: Ctl, mind: str, text: str, priority: float | None, as_json: bool) -> None:
    """Give a mind a goal; what matches it wins attention more easily."""
    body = {"text": text} if priority is None else {"text": text, "priority": priority}
    made = ctl.daemon().post(api("minds", mind, "goals"), body)
    if as_json:
        put_one(made, as_json=True)
    else:
        click.echo(f"Added goal {visible(str(made.get('id')))} to {visible(mind)}.")


@goal.command(epilog=example("noemactl goal close ada 0197f3c2-7d1e-7a00-8000-000000000001"))
@mind_argument
@click.argument("goal_id", metavar="ID")
@json_option
@pass_ctl
def close(ctl: Ctl, mind: str, goal_id: str, as_json: bool) -> None:
    """Close a goal: it is done, or no longer matters."""
    closed = ctl.daemon().post(api("minds", mind, "goals", goal_id, "close"), {})
    if as_json:
        put_one(closed, as_json=True)
    else:
        click.echo(f"Closed goal {visible(goal_id)} of {visible(mind)}.")


COMMANDS: tuple[click.Command, ...] = (goal,)

"""`session`: the browsers that are logged in."""

from typing import Final

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import example, json_option
from noema.cli.output import Column, put_rows, visible

_COLUMNS: Final = (
    Column(heading="ID", key="id"),
    Column(heading="WHO", key="user"),
    Column(heading="NAMESPACE", key="namespace"),
    Column(heading="BY", key="method"),
    Column(heading="SEEN", key="seen_at"),
    Column(heading="EXPIRES", key="expires_at"),
    Column(heading="FROM", key="address"),
    Column(heading="BROWSER", key="user_agent"),
)


@click.group(epilog=example("noemactl session list"))
def session() -> None:
    """Look at the browsers that are logged in, and log them out."""


@session.command("list", epilog=example("noemactl session list --json | jq -r '.[].user'"))
@click.option("--mine", is_flag=True, help="Only yours; an administrator sees everybody's.")
@json_option
@pass_ctl
def list_sessions(ctl: Ctl, mine: bool, as_json: bool) -> None:
    """List your sessions, or as an administrator everybody's, with what tells them apart."""
    sessions = ctl.daemon().items(api("sessions"), {"mine": "1"} if mine else None)
    put_rows(sessions, _COLUMNS, as_json=as_json, empty="No browser is logged in.")


@session.command(epilog=example("noemactl session revoke 0197f3c2-7d1e-7a00-8000-000000000001"))
@click.argument("session_id", metavar="ID")
@pass_ctl
def revoke(ctl: Ctl, session_id: str) -> None:
    """Log a browser out; the pages it has open end within a second."""
    ctl.daemon().delete(api("sessions", session_id))
    click.echo(f"Ended session {visible(session_id)}")


COMMANDS: tuple[click.Command, ...] = (session,)

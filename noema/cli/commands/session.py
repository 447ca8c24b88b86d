"""`login` and `whoami`: who this machine is to the daemon."""

import sys

import click

from noema.cli.client import (
    DEFAULT_URL,
    Ctl,
    Login,
    api,
    checked_token,
    checked_url,
    pass_ctl,
    store_login,
    stored_login,
    travels_in_clear,
)
from noema.cli.commands.common import example, json_option
from noema.cli.output import CommandError, note, put_one, visible


@click.command(epilog=example("noemactl token create --local | noemactl login -"))
@click.option("--url", help="Where the daemon is; else NOEMA_URL, else the last login.")
@click.argument("token", required=False, metavar="[TOKEN|-]")
@pass_ctl
def login(ctl: Ctl, url: str | None, token: str | None) -> None:
    """Check a token with the daemon and keep it.

    Without TOKEN it is asked for and not shown; with - it is the first line of standard input,
    which keeps it out of the shell's history.
    """
    settings = ctl.settings
    address = checked_url(url or settings.url or _last_url(ctl) or DEFAULT_URL)
    candidate = Login(url=address, token=checked_token(_token(token)))
    if travels_in_clear(address):
        note(f"{address} is not https: anyone on the way can read the token.")
    who = ctl.daemon_at(candidate).get(api("whoami"))
    path = store_login(settings.config_dir, candidate)
    click.echo(
        f"Logged in to {address} as {visible(str(who.get('actor')))} "
        f"in {visible(str(who.get('namespace')))}; kept in {path}."
    )
    if settings.token is not None:
        note("NOEMA_TOKEN is set here and wins over the login just kept.")
    if settings.url is not None and checked_url(settings.url) != address:
        note("NOEMA_URL is set here and names another address than the login just kept.")


def _last_url(ctl: Ctl) -> str | None:
    try:
        stored = stored_login(ctl.settings.config_dir)
    except CommandError:
        # What cannot be read is about to be replaced.
        return None
    return None if stored is None else stored.url


def _token(given: str | None) -> str:
    if given == "-" or (given is None and not sys.stdin.isatty()):
        return sys.stdin.readline()
    if given is None:
        return str(click.prompt("Token", hide_input=True, err=True))
    return given


@click.command(epilog=example("noemactl whoami --json"))
@json_option
@pass_ctl
def whoami(ctl: Ctl, as_json: bool) -> None:
    """Show which identity the daemon sees behind this token."""
    put_one(ctl.daemon().get(api("whoami")), as_json=as_json)


COMMANDS: tuple[click.Command, ...] = (login, whoami)

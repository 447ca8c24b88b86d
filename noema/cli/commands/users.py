"""`user`: who has an account, what they may do, and how they come in."""

import asyncio
import importlib
import sys
from datetime import datetime
from typing import Any, Final

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import example, json_option, moment, name_argument
from noema.cli.output import Column, CommandError, put_json, put_one, put_rows, visible
from noema.core.identity import ConsoleRole, MemoryRole

_ROLES: Final = [r.value for r in ConsoleRole if r is not ConsoleRole.NONE]
_MEMORY_ROLES: Final = [r.value for r in MemoryRole if r is not MemoryRole.NONE]
_HOME: Final = "home"
_COLUMNS: Final = (
    Column(heading="NAME", key="name"),
    Column(heading="ROLE", key="console_role"),
    Column(heading="SECOND FACTOR", key="has_totp"),
    Column(heading="LAST LOGIN", key="last_login_at"),
    Column(heading="CREATED", key="created_at"),
    Column(heading="DISABLED", key="disabled_at"),
)
local_option = click.option(
    "--local", is_flag=True, help="Straight in the database of this machine."
)


@click.group(epilog=example("noemactl user create ada --role administrator --local"))
def user() -> None:
    """Manage people: who may come in, and what they may do."""


@user.command(
    epilog=example(
        "noemactl user create bob --role observer",
        "noemactl user create ada --role administrator --local",
        "pass show noema | noemactl user create ada --local -",
    )
)
@name_argument
@click.argument("source", required=False, metavar="[-]")
@local_option
@click.option(
    "--role",
    type=click.Choice(_ROLES),
    default=ConsoleRole.OPERATOR.value,
    show_default=True,
    help="Which pages and commands they may use.",
)
@click.option("--namespace", default=_HOME, show_default=True, help="Their first membership.")
@click.option(
    "--memory-role",
    type=click.Choice(_MEMORY_ROLES),
    help="What they may do there: member unless told, owner for an administrator.",
)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@json_option
@pass_ctl
def create(
    ctl: Ctl,
    name: str,
    source: str | None,
    local: bool,
    role: str,
    namespace: str,
    memory_role: str | None,
    password_stdin: bool,
    as_json: bool,
) -> None:
    """Create a person.

    With --local the password is asked for twice and not shown; with - or --password-stdin it is the
    first line of standard input. It is never an argument. Without either, over HTTP, the answer
    holds a one-time link by which they choose their own.
    """
    if source not in (None, "-"):
        # Not quoted back: it may be the password.
        raise click.UsageError(
            "A password is never an argument, where histories and process lists keep it; use -."
        )
    from_stdin = password_stdin or source == "-"
    if memory_role is None:
        is_admin = role == ConsoleRole.ADMINISTRATOR.value
        memory_role = (MemoryRole.OWNER if is_admin else MemoryRole.MEMBER).value
    if local:
        password = _first_line() if from_stdin else _asked()
        asyncio.run(_local().create_user(name, role, password, namespace, memory_role))
        made: dict[str, Any] = {"name": name, "console_role": role}
    else:
        made = _create_over_http(
            ctl,
            {"name": name, "role": role, "namespace": namespace, "memory_role": memory_role},
            password=_first_line() if from_stdin else None,
        )
    if as_json:
        put_json(made)
    elif "link" in made:
        click.echo(f"Created {visible(name)}, who chooses a password by this link, once:")
        click.echo(visible(str(made["link"])))
    else:
        click.echo(f"{visible(name)} may log in now")


def _create_over_http(ctl: Ctl, body: dict[str, Any], *, password: str | None) -> dict[str, Any]:
    daemon = ctl.daemon()
    if password is not None:
        made: dict[str, Any] = daemon.post(api("users"), {**body, "password": password})
        return made
    made = daemon.post(api("users"), body)
    link = daemon.post(api("users", body["name"], "password-link"), {})
    return {**made, "link": link.get("url")}


def _first_line() -> str:
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandError("There is no password on standard input.")
    return password


def _asked() -> str:
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask on; use --password-stdin.")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


@user.command("list", epilog=example("noemactl user list --json | jq -r '.[].name'"))
@json_option
@pass_ctl
def list_users(ctl: Ctl, as_json: bool) -> None:
    """List everybody with an account, by name."""
    put_rows(
        ctl.daemon().items(api("users")),
        _COLUMNS,
        as_json=as_json,
        empty="Nobody has an account yet; make one with `noemactl user create`.",
    )


@user.command(epilog=example("noemactl user show ada --json | jq .memberships"))
@name_argument
@json_option
@pass_ctl
def show(ctl: Ctl, name: str, as_json: bool) -> None:
    """Show a person, and which role they have in which namespace."""
    put_one(ctl.daemon().get(api("users", name)), as_json=as_json)


@user.command(epilog=example("noemactl user disable bob"))
@name_argument
@json_option
@pass_ctl
def disable(ctl: Ctl, name: str, as_json: bool) -> None:
    """Keep a person out: their sessions, streams and tokens end at once."""
    _patch(ctl, name, {"disabled": True}, f"{visible(name)} is kept out now", as_json=as_json)


@user.command(epilog=example("noemactl user enable bob"))
@name_argument
@json_option
@pass_ctl
def enable(ctl: Ctl, name: str, as_json: bool) -> None:
    """Let a disabled person in again."""
    _patch(ctl, name, {"disabled": False}, f"{visible(name)} may log in again", as_json=as_json)


@user.command(epilog=example("noemactl user role bob observer"))
@name_argument
@click.argument("role", type=click.Choice(_ROLES))
@json_option
@pass_ctl
def role(ctl: Ctl, name: str, role: str, as_json: bool) -> None:
    """Change which pages and commands a person may use; their sessions end."""
    _patch(ctl, name, {"role": role}, f"{visible(name)} is {role} now", as_json=as_json)


@user.command(epilog=example("noemactl user grant bob acme/eng --role member --to 2027-01-01"))
@name_argument
@click.argument("namespace")
@click.option("--role", type=click.Choice(_MEMORY_ROLES), default="member", show_default=True)
@click.option("--from", "since", callback=moment, metavar="TIME", help="From when on; else now.")
@click.option("--to", "until", callback=moment, metavar="TIME", help="Until when; else for good.")
@json_option
@pass_ctl
def grant(
    ctl: Ctl,
    name: str,
    namespace: str,
    role: str,
    since: datetime | None,
    until: datetime | None,
    as_json: bool,
) -> None:
    """Give a person a role in a namespace, in place of what they have there in that time."""
    wanted = {
        "namespace": namespace,
        "role": role,
        "valid_from": None if since is None else since.isoformat(),
        "valid_to": None if until is None else until.isoformat(),
    }
    body = {key: value for key, value in wanted.items() if value is not None}
    answer = ctl.daemon().post(api("users", name, "memberships"), body)
    _told(answer, f"{visible(name)} is {role} in {visible(namespace)}", as_json=as_json)


@user.command(epilog=example("noemactl user revoke bob acme/eng"))
@name_argument
@click.argument("namespace")
@json_option
@pass_ctl
def revoke(ctl: Ctl, name: str, namespace: str, as_json: bool) -> None:
    """End a person's role in a namespace now, and what was to begin there."""
    answer = ctl.daemon().delete(api("users", name, "memberships"), {"namespace": namespace})
    _told(answer, f"{visible(name)} has no role in {visible(namespace)} now", as_json=as_json)


@user.command(epilog=example("noemactl user unlock ada --local"))
@name_argument
@local_option
@pass_ctl
def unlock(ctl: Ctl, name: str, local: bool) -> None:
    """Forgive a person's failed logins, so that they may try again at once."""
    if local:
        asyncio.run(_local().unlock_user(name))
    else:
        ctl.daemon().post(api("users", name, "unlock"), {})
    click.echo(f"{visible(name)} may try again now")


@user.command("reset-totp", epilog=example("noemactl user reset-totp bob"))
@name_argument
@pass_ctl
def reset_totp(ctl: Ctl, name: str) -> None:
    """Turn off the second factor of somebody who lost theirs; their sessions end."""
    ctl.daemon().post(api("users", name, "reset-totp"), {})
    click.echo(f"{visible(name)} logs in with the password alone now")


@user.command("password-link", epilog=example("noemactl user password-link bob"))
@name_argument
@json_option
@pass_ctl
def password_link(ctl: Ctl, name: str, as_json: bool) -> None:
    """Print a link by which a person chooses a new password, once, within a day."""
    answer = ctl.daemon().post(api("users", name, "password-link"), {})
    if as_json:
        put_json(answer)
    else:
        click.echo(visible(str(answer.get("url"))))


def _patch(ctl: Ctl, name: str, body: dict[str, Any], said: str, *, as_json: bool) -> None:
    _told(ctl.daemon().patch(api("users", name), body), said, as_json=as_json)


def _told(answer: Any, said: str, *, as_json: bool) -> None:
    if as_json:
        put_json(answer)
    else:
        click.echo(said)


def _local() -> Any:
    # Only here: it brings in the database, which most commands do not need.
    return importlib.import_module("noema.cli.local")


COMMANDS: tuple[click.Command, ...] = (user,)

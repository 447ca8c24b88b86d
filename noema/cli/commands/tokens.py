"""`token`: the credentials that scripts use."""

import asyncio
import importlib
from typing import Any, Final

import click

from noema.cli.client import Ctl, Daemon, api, pass_ctl
from noema.cli.commands.common import duration_s, example, json_option
from noema.cli.output import Column, CommandError, put_rows, visible
from noema.core.identity import ConsoleRole, MemoryRole

_COLUMNS: Final = (
    Column(heading="ID", key="id"),
    Column(heading="NAME", key="name"),
    Column(heading="OF", key="user"),
    Column(heading="NAMESPACE", key="namespace"),
    Column(heading="ROLE", key="memory_role"),
    Column(heading="CONSOLE", key="console_role"),
    Column(heading="CREATED", key="created_at"),
    Column(heading="EXPIRES", key="expires_at"),
    Column(heading="LAST USED", key="last_used_at"),
    Column(heading="REVOKED", key="revoked_at"),
)
_DAY_S: Final = 86_400
_MEMORY_ROLES: Final = [r.value for r in MemoryRole if r is not MemoryRole.NONE]


def _whole_days(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    seconds = duration_s(ctx, param, value)
    if seconds is None or value is None:
        return None
    days = int(value) if value.isdigit() else seconds // _DAY_S
    if days < 1 or (not value.isdigit() and seconds % _DAY_S):
        raise click.BadParameter(f"{value!r} is no whole number of days; write 30d.")
    return days


@click.group(epilog=example("noemactl token create --local | noemactl login -"))
def token() -> None:
    """Make, list and revoke the tokens that let a script in."""


@token.command(
    epilog=example(
        "export NOEMA_TOKEN=$(noemactl token create --local)",
        "noemactl token create backup --role member --console-role observer --expires 30d",
    )
)
@click.argument("what_for", required=False, metavar="[NAME]")
@click.option("--local", is_flag=True, help="Straight in the database of this machine.")
@click.option("--name", help="What it is for; the same as NAME.")
@click.option("--namespace", help="The one it is for; yours unless told.")
@click.option("--role", type=click.Choice(_MEMORY_ROLES), help="There; yours unless told.")
@click.option(
    "--console-role",
    type=click.Choice([r.value for r in ConsoleRole]),
    help="Which commands it may use; none unless told.",
)
@click.option(
    "--expires",
    "days",
    callback=_whole_days,
    metavar="DAYS",
    help="How long it counts, as 30d; 90 days unless told.",
)
@pass_ctl
def create(
    ctl: Ctl,
    what_for: str | None,
    local: bool,
    name: str | None,
    namespace: str | None,
    role: str | None,
    console_role: str | None,
    days: int | None,
) -> None:
    """Make a token and print it, once and nothing else.

    It is never more than you are, now and at every use. With --local it is an administrator's, for
    the namespace home, until it is revoked.
    """
    limits = {
        "namespace": namespace,
        "memory_role": role,
        "console_role": console_role,
        "days": days,
    }
    name = what_for or name
    if local:
        if any(value is not None for value in limits.values()):
            raise click.UsageError(
                "A token made with --local is an administrator's in home; leave --local off for "
                "one with other roles."
            )
        click.echo(asyncio.run(_local().create_token(name or "noemactl")))
        return
    if name is None:
        raise click.UsageError(
            "Say what the token is for: NAME. For a first one on the daemon's own machine add "
            "--local."
        )
    click.echo(_create_over_http(ctl.daemon(), name, limits))


def _create_over_http(daemon: Daemon, name: str, limits: dict[str, Any]) -> str:
    body = {key: value for key, value in limits.items() if value is not None}
    made = daemon.post(api("tokens"), {"name": name, **body})
    secret = made.get("token") if isinstance(made, dict) else None
    if not isinstance(secret, str):
        raise CommandError("The daemon answered without a token; is it of this age?")
    return visible(secret)


@token.command("list", epilog=example("noemactl token list --json"))
@click.option("--mine", is_flag=True, help="Only yours; an administrator sees everybody's.")
@json_option
@pass_ctl
def list_tokens(ctl: Ctl, mine: bool, as_json: bool) -> None:
    """List your tokens, or as an administrator everybody's; never the secrets."""
    tokens = ctl.daemon().items(api("tokens"), {"mine": "1"} if mine else None)
    put_rows(tokens, _COLUMNS, as_json=as_json, empty="No tokens yet.")


@token.command(epilog=example("noemactl token revoke 0197f3c2-7d1e-7a00-8000-000000000001"))
@click.argument("token_id", metavar="ID")
@pass_ctl
def revoke(ctl: Ctl, token_id: str) -> None:
    """Revoke a token at once, with those that were made with it; `token list` shows the ids."""
    if token_id.startswith("noema_"):
        # Not quoted back, nor sent: an address is where it must not be.
        raise click.UsageError("That is a token; name it by its id, which `token list` shows.")
    ctl.daemon().delete(api("tokens", token_id))
    click.echo(f"Revoked token {visible(token_id)}")


def _local() -> Any:
    # Only here: it brings in the database, which no other command needs.
    return importlib.import_module("noema.cli.local")


COMMANDS: tuple[click.Command, ...] = (token,)

"""`token`: the credentials that scripts use."""

import asyncio
import importlib
from typing import Any

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import example, json_option
from noema.cli.output import Column, put_rows

_COLUMNS = (
    Column(heading="ID", key="id"),
    Column(heading="NAME", key="name"),
    Column(heading="ACTOR", key="actor"),
    Column(heading="NAMESPACE", key="namespace"),
    Column(heading="ROLE", key="role"),
    Column(heading="CREATED", key="created_at"),
    Column(heading="LAST USED", key="last_used_at"),
)


@click.group(epilog=example("noemactl token create --local | noemactl login -"))
def token() -> None:
    """Make and list the tokens that let a script in."""


@token.command(epilog=example("export NOEMA_TOKEN=$(noemactl token create --local)"))
@click.option("--local", is_flag=True, help="Straight in the database of this machine.")
@click.option("--name", default="noemactl", show_default=True, help="What it is for.")
def create(local: bool, name: str) -> None:
    """Make a token and print it, once and nothing else."""
    if not local:
        raise click.UsageError("Tokens are made on the daemon's own machine; add --local.")
    click.echo(asyncio.run(_local().create_token(name)))


@token.command("list", epilog=example("noemactl token list --json"))
@json_option
@pass_ctl
def list_tokens(ctl: Ctl, as_json: bool) -> None:
    """List the tokens that you may see; never the secrets."""
    tokens = ctl.daemon().items(api("tokens"))
    put_rows(tokens, _COLUMNS, as_json=as_json, empty="No tokens yet.")


def _local() -> Any:
    # Only here: it brings in the database, which no other command needs.
    return importlib.import_module("noema.cli.local")


COMMANDS: tuple[click.Command, ...] = (token,)

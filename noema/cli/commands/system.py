"""`system`, `migrate`, `version` and `completion`: the daemon and this program themselves."""

import importlib
import inspect
from asyncio import run
from collections.abc import Coroutine
from importlib.metadata import version as installed_version
from typing import Any, cast

import click
from click.shell_completion import get_completion_class

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import example, json_option
from noema.cli.output import Column, CommandError, put_one, put_rows

_MIGRATIONS = (
    Column(heading="VERSION", key="version", right=True),
    Column(heading="NAME", key="name"),
    Column(heading="STATE", key="state"),
    Column(heading="APPLIED", key="applied_at"),
)


@click.command(epilog=example("noemactl system --json"))
@json_option
@pass_ctl
def system(ctl: Ctl, as_json: bool) -> None:
    """Show what the daemon says about itself and its database."""
    put_one(ctl.daemon().get(api("system")), as_json=as_json)


@click.group(epilog=example("noemactl migrate status --local"))
def migrate() -> None:
    """Look at the schema of the database."""


@migrate.command(epilog=example("noemactl migrate status"))
@click.option("--local", is_flag=True, help="Straight from the database of this machine.")
@json_option
@pass_ctl
def status(ctl: Ctl, local: bool, as_json: bool) -> None:
    """List the migrations, and which of them this database has had."""
    found = _local_migrations() if local else ctl.daemon().get(api("system")).get("migrations")
    if not isinstance(found, list):
        raise CommandError("This daemon does not say; ask the database itself with --local.")
    put_rows(found, _MIGRATIONS, as_json=as_json, empty="No migrations.")


def _local_migrations() -> list[dict[str, Any]]:
    # Only here: it brings in the database, which no other command needs.
    answer = importlib.import_module("noema.cli.local").migrate_status()
    if inspect.isawaitable(answer):
        answer = run(cast(Coroutine[Any, Any, Any], answer))
    return list(answer)


@click.command(epilog=example("noemactl version"))
def version() -> None:
    """Print the version of this program."""
    click.echo(f"noemactl {installed_version('noema')}")


@click.command(epilog=example('eval "$(noemactl completion bash)"'))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes a shell complete the words of noemactl."""
    kind = get_completion_class(shell)
    if kind is None:
        raise CommandError(f"There is no completion for {shell}.")
    root = ctx.find_root().command
    click.echo(kind(root, {}, "noemactl", "_NOEMACTL_COMPLETE").source())


COMMANDS: tuple[click.Command, ...] = (system, migrate, version, completion)

"""`user`: let people in from the daemon's own machine."""

import asyncio
import importlib
import sys
from typing import Any, Final

import click

from noema.cli.commands.common import example
from noema.core.identity import ConsoleRole, MemoryRole

_ROLES: Final = [r.value for r in ConsoleRole if r is not ConsoleRole.NONE]
_MEMORY_ROLES: Final = [r.value for r in MemoryRole if r is not MemoryRole.NONE]
_ONLY_LOCAL: Final = "This is done on the daemon's own machine; add --local."


@click.group(epilog=example("noemactl user create ada --role administrator --local"))
def user() -> None:
    """Let people in, and forgive their failed logins."""


@user.command(
    epilog=example(
        "noemactl user create ada --role administrator --local",
        "pass show noema | noemactl user create ada --password-stdin --local",
    )
)
@click.argument("name")
@click.option("--local", is_flag=True, help="Straight in the database of this machine.")
@click.option(
    "--role",
    type=click.Choice(_ROLES),
    default=ConsoleRole.OPERATOR.value,
    show_default=True,
    help="Which pages and commands they may use.",
)
@click.option(
    "--memory-role",
    type=click.Choice(_MEMORY_ROLES),
    default=MemoryRole.MEMBER.value,
    show_default=True,
    help="What they may do in the namespace home; an administrator is its owner.",
)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
def create(name: str, local: bool, role: str, memory_role: str, password_stdin: bool) -> None:
    """Create a person. The password is asked for, and never an argument."""
    if not local:
        raise click.UsageError(_ONLY_LOCAL)
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if role == ConsoleRole.ADMINISTRATOR:
        memory_role = MemoryRole.OWNER.value
    asyncio.run(_local().create_user(name, role, password, memory_role))
    click.echo(f"{name} may log in now")


@user.command(epilog=example("noemactl user unlock ada --local"))
@click.argument("name")
@click.option("--local", is_flag=True, help="Straight in the database of this machine.")
def unlock(name: str, local: bool) -> None:
    """Forgive a person's failed logins, so that they may try again at once."""
    if not local:
        raise click.UsageError(_ONLY_LOCAL)
    asyncio.run(_local().unlock_user(name))
    click.echo(f"{name} may try again now")


def _local() -> Any:
    # Only here: it brings in the database, which most commands do not need.
    return importlib.import_module("noema.cli.local")


COMMANDS: tuple[click.Command, ...] = (user,)

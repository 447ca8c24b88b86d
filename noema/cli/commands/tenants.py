"""`tenant` and `namespace`: where minds and memory live, and who is kept out of it."""

from typing import Final

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import example, json_option, name_argument
from noema.cli.output import Column, put_rows, visible

_COLUMNS: Final = (
    Column(heading="TENANT", key="name"),
    Column(heading="STATUS", key="status"),
    Column(heading="CREATED", key="created_at"),
    Column(heading="NAMESPACES", key="namespaces"),
)


@click.group(epilog=example("noemactl tenant create acme"))
def tenant() -> None:
    """Manage tenants: the first segment of a namespace, and whether its people may act."""


@tenant.command("list", epilog=example("noemactl tenant list --json"))
@json_option
@pass_ctl
def list_tenants(ctl: Ctl, as_json: bool) -> None:
    """List the tenants with their namespaces."""
    tenants = ctl.daemon().items(api("tenants"))
    if not as_json:
        tenants = [{**t, "namespaces": " ".join(t.get("namespaces") or ())} for t in tenants]
    put_rows(tenants, _COLUMNS, as_json=as_json, empty="No tenants.")


@tenant.command(epilog=example("noemactl tenant create acme"))
@name_argument
@pass_ctl
def create(ctl: Ctl, name: str) -> None:
    """Create a tenant, and the namespace of its name."""
    ctl.daemon().post(api("tenants"), {"name": name})
    click.echo(f"Created tenant {visible(name)}")


@tenant.command(epilog=example("noemactl tenant suspend acme"))
@name_argument
@pass_ctl
def suspend(ctl: Ctl, name: str) -> None:
    """Let nobody act in the tenant any more; open pages and streams end."""
    ctl.daemon().patch(api("tenants", name), {"status": "suspended"})
    click.echo(f"Suspended tenant {visible(name)}")


@tenant.command(epilog=example("noemactl tenant resume acme"))
@name_argument
@pass_ctl
def resume(ctl: Ctl, name: str) -> None:
    """Let the tenant's people act again."""
    ctl.daemon().patch(api("tenants", name), {"status": "active"})
    click.echo(f"Resumed tenant {visible(name)}")


@click.group(epilog=example("noemactl namespace create acme/eng/platform"))
def namespace() -> None:
    """Manage namespaces: paths below a tenant."""


@namespace.command("create", epilog=example("noemactl namespace create acme/eng/platform"))
@click.argument("path")
@pass_ctl
def create_namespace(ctl: Ctl, path: str) -> None:
    """Create a namespace, and those above it that are not there yet."""
    ctl.daemon().post(api("namespaces"), {"path": path})
    click.echo(f"Created namespace {visible(path)}")


COMMANDS: tuple[click.Command, ...] = (tenant, namespace)

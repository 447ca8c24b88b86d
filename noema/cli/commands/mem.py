"""`mem`: governed memory; read, search, write, pin, and the policy that holds."""

import shutil
import sys
from datetime import datetime
from typing import Final

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands import mem_entities, mem_import, mem_manage, mem_write
from noema.cli.commands.common import example, json_option, limit_option
from noema.cli.commands.mem_output import (
    MEMORIES,
    given,
    memory_rows,
    put_done,
    put_found,
    put_policy,
    read_json,
    when,
)
from noema.cli.output import (
    Column,
    CommandError,
    lines_of,
    put_json,
    put_one,
    put_rows,
    table,
    visible,
)
from noema.memory.model import DEFAULT_K, MAX_K, Kind, Status

_KINDS: Final = [kind.value for kind in Kind]
_PINS: Final = (
    Column(heading="MEMORY", key="memory_id"),
    Column(heading="NAMESPACE", key="namespace"),
    Column(heading="BY", key="actor"),
    Column(heading="PINNED", key="pinned_at"),
)


@click.group(
    epilog=example(
        "noemactl mem write 'The backup runs at 03:00 UTC.'",
        "noemactl mem search 'when does the backup run'",
    )
)
def mem() -> None:
    """Read, search and write governed memory.

    You see the memories of your namespace, of those above it, and what is shared with you; you
    write into your namespace only. Who you are is in your token and nowhere else.
    """


def kinds_listed(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    """Return the kinds of memory in a list with commas."""
    kinds = [one.strip() for one in (value or "").split(",") if one.strip()]
    for kind in kinds:
        if kind not in _KINDS:
            raise click.BadParameter(f"{kind!r} is none of {', '.join(_KINDS)}.")
    return list(dict.fromkeys(kinds))


@mem.command(epilog=example("noemactl mem read 0197f3c2-7d1e-7a00-8000-000000000001 --history"))
@click.argument("memory_id", metavar="ID")
@click.option("--history", is_flag=True, help="With what it replaced and what replaced it.")
@json_option
@pass_ctl
def read(ctl: Ctl, memory_id: str, history: bool, as_json: bool) -> None:
    """Show one memory whole.

    One that is not there and one that you may not see are the same: not found.
    """
    body = {"id": memory_id, **({"history": True} if history else {})}
    found = ctl.daemon().post(api("mem", "read"), body)
    if as_json:
        put_json(found)
        return
    chain = found.pop("history", None) or []
    click.echo("\n".join(lines_of(found)))
    if chain:
        rows = memory_rows(chain)
        click.echo("\nhistory, the newest first:\n" + "\n".join(table(rows, MEMORIES, width=None)))


@mem.command(
    epilog=example(
        "noemactl mem search 'when does the backup run' -k 3 --explain",
        "noemactl mem search 'on call' --as-of 2026-03-01 --json | jq -r '.results[].text'",
    )
)
@click.argument("query")
@click.option(
    "-k",
    "k",
    type=click.IntRange(1, MAX_K),
    default=DEFAULT_K,
    show_default=True,
    help="How many at most.",
)
@click.option("--explain", is_flag=True, help="Show what each score is made of.")
@click.option("--kinds", callback=kinds_listed, help="Only these, as fact,episode.")
@click.option("--as-of", callback=when, metavar="TIME", help="What held, and was known, then.")
@click.option("--all", "everything", is_flag=True, help="Also what is replaced or in dispute.")
@click.option("--token-budget", type=click.IntRange(min=1), help="No more tokens than this.")
@click.option("--sensitive", is_flag=True, help="Keep the query out of the audit log.")
@click.option("--view-namespace", metavar="NAMESPACE", help="As somebody there, with --view-actor.")
@click.option("--view-actor", metavar="ACTOR", help="As this one would find it, as user:eva.")
@json_option
@pass_ctl
def search(
    ctl: Ctl,
    query: str,
    k: int,
    explain: bool,
    kinds: list[str],
    as_of: datetime | None,
    everything: bool,
    token_budget: int | None,
    sensitive: bool,
    view_namespace: str | None,
    view_actor: str | None,
    as_json: bool,
) -> None:
    """Find memories that fit QUERY, the best first.

    Auditors and administrators may look through other eyes, within their subtree. --json prints the
    answer whole: results, and driver, degraded, tokens and trimmed beside them.
    """
    if (view_namespace is None) != (view_actor is None):
        raise click.UsageError("Other eyes need both --view-namespace and --view-actor.")
    body = {
        "query": query,
        "k": k,
        "explain": explain or None,
        "kinds": kinds or None,
        "asOf": None if as_of is None else as_of.isoformat(),
        "validOnly": False if everything else None,
        "tokenBudget": token_budget,
        "sensitive": sensitive or None,
        "viewNamespace": view_namespace,
        "viewActor": view_actor,
    }
    answer = ctl.daemon().post(api("mem", "search"), given(body))
    if as_json:
        put_json(answer)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        put_found(answer, width=width)


@mem.command(epilog=example("noemactl mem stats --json | jq .total"))
@json_option
@pass_ctl
def stats(ctl: Ctl, as_json: bool) -> None:
    """Count what you see, and what you did in the last 24 hours."""
    put_one(ctl.daemon().post(api("mem", "stats"), {}), as_json=as_json)


@mem.command(epilog=example("noemactl mem memories --kinds fact --limit 20"))
@click.option("--kinds", callback=kinds_listed, help="Only these, as fact,episode.")
@click.option(
    "--status", type=click.Choice([status.value for status in Status]), help="Only these."
)
@limit_option(50)
@json_option
@pass_ctl
def memories(ctl: Ctl, kinds: list[str], status: str | None, limit: int, as_json: bool) -> None:
    """List the memories that you see, the newest first."""
    query = {"kinds": ",".join(kinds) or None, "status": status}
    found = ctl.daemon().items(api("mem", "memories"), query, cursor="before", limit=limit)
    rows = found if as_json else memory_rows(found)
    put_rows(rows, MEMORIES, as_json=as_json, empty="No such memories that you may see.")


@mem.command(epilog=example("noemactl mem pin 0197f3c2-7d1e-7a00-8000-000000000001"))
@click.argument("memory_id", metavar="ID")
@json_option
@pass_ctl
def pin(ctl: Ctl, memory_id: str, as_json: bool) -> None:
    """Put a memory into every working set of your namespace."""
    answer = ctl.daemon().post(api("mem", "pin"), {"id": memory_id})
    put_done(answer, f"Pinned {visible(memory_id)}.", as_json=as_json)


@mem.command(epilog=example("noemactl mem unpin 0197f3c2-7d1e-7a00-8000-000000000001"))
@click.argument("memory_id", metavar="ID")
@json_option
@pass_ctl
def unpin(ctl: Ctl, memory_id: str, as_json: bool) -> None:
    """Take a memory out of the working sets again."""
    answer = ctl.daemon().post(api("mem", "unpin"), {"id": memory_id})
    put_done(answer, f"Unpinned {visible(memory_id)}.", as_json=as_json)


@mem.command(epilog=example("noemactl mem pins"))
@json_option
@pass_ctl
def pins(ctl: Ctl, as_json: bool) -> None:
    """List what is pinned in your namespace and those above it."""
    found = ctl.daemon().items(api("mem", "pins"))
    put_rows(found, _PINS, as_json=as_json, empty="Nothing is pinned.")


@mem.command(
    epilog=example(
        "noemactl mem policy",
        "noemactl mem policy --namespace acme/eng --set policy.json",
    )
)
@click.option("--namespace", help="What this one sets itself, not what holds for you.")
@click.option("--set", "path", metavar="FILE|-", help="Set the policy of --namespace, from JSON.")
@json_option
@pass_ctl
def policy(ctl: Ctl, namespace: str | None, path: str | None, as_json: bool) -> None:
    """Show the memory policy that holds for you: limits, directives, review of conflicts.

    An administrator sets it for a namespace and all below. The file is a JSON object with any of
    driver, reads_per_minute, writes_per_minute, max_text_chars, retention_days, conflict_review and
    directives, each {"id": …, "text": …}; what is left out is not set there.
    """
    if path is not None and namespace is None:
        raise click.UsageError("Say whose policy to set: --namespace NAMESPACE.")
    document = None if path is None else read_json(path)
    daemon = ctl.daemon()
    if namespace is None:
        found = daemon.post(api("mem", "policy"), {})
    elif document is None:
        found = daemon.get(_policy_path(namespace))
    else:
        if not isinstance(document, dict):
            raise CommandError("A policy is a JSON object.")
        found = daemon.put(_policy_path(namespace), document)
    if as_json:
        put_json(found)
    else:
        put_policy(found)


def _policy_path(namespace: str) -> str:
    return api("mem", "policies", *namespace.split("/"))


@mem.command(epilog=example("noemactl mem ack $(noemactl mem policy --json | jq -r .digest)"))
@click.argument("digest")
@json_option
@pass_ctl
def ack(ctl: Ctl, digest: str, as_json: bool) -> None:
    """Acknowledge the directives of the policy that has this DIGEST."""
    answer = ctl.daemon().post(api("mem", "policy-ack"), {"digest": digest})
    put_done(answer, f"Acknowledged {visible(digest)}.", as_json=as_json)


for _command in (
    *mem_write.COMMANDS,
    *mem_manage.COMMANDS,
    *mem_entities.COMMANDS,
    *mem_import.COMMANDS,
):
    mem.add_command(_command)

COMMANDS: tuple[click.Command, ...] = (mem,)

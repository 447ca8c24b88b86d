"""`mem`, the rest: sharing, why one sees a memory, withdrawing, conflicts, entities."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import example, json_option, limit_option
from noema.cli.commands.mem_output import given, put_done, when
from noema.cli.output import Column, put_json, put_rows, visible

_SHARES: Final = (
    Column(heading="ID", key="id"),
    Column(heading="WHAT", key="what"),
    Column(heading="TO", key="to"),
    Column(heading="BY", key="granted_by"),
    Column(heading="SINCE", key="valid_from"),
    Column(heading="UNTIL", key="valid_to"),
    Column(heading="REVOKED BY", key="revoked_by"),
)
_CONFLICTS: Final = (
    Column(heading="ID", key="id"),
    Column(heading="OUTCOME", key="outcome"),
    Column(heading="BY", key="decided_by"),
    Column(heading="DECIDED", key="decided_at"),
    Column(heading="REVERTED", key="reverted_at"),
    Column(heading="NEWCOMER", key="newcomer_text"),
    Column(heading="INCUMBENT", key="incumbent_text"),
)
_OUTCOMES: Final = ("newcomer_wins", "incumbent_wins", "newcomer_disputed", "coexist")


@click.command(
    epilog=example(
        "noemactl mem share 0197f3c2-7d1e-7a00-8000-000000000001 --to-namespace acme/sales",
        "noemactl mem share --subtree acme/eng --to-actor user:eva --expires 2027-01-01",
    )
)
@click.argument("memory_id", required=False, metavar="[ID]")
@click.option("--subtree", metavar="NAMESPACE", help="Everything there and below, not one memory.")
@click.option("--to-namespace", metavar="NAMESPACE", help="Who acts in exactly this one may read.")
@click.option("--to-actor", metavar="ACTOR", help="This one may read, as user:eva.")
@click.option("--expires", callback=when, metavar="TIME", help="Until when.")
@json_option
@pass_ctl
def share(
    ctl: Ctl,
    memory_id: str | None,
    subtree: str | None,
    to_namespace: str | None,
    to_actor: str | None,
    expires: datetime | None,
    as_json: bool,
) -> None:
    """Let others read one memory of yours, or a subtree. Never lets anybody write."""
    if (memory_id is None) == (subtree is None):
        raise click.UsageError("Share either one memory, by its ID, or a --subtree.")
    if (to_namespace is None) == (to_actor is None):
        raise click.UsageError("Say with whom: --to-namespace or --to-actor.")
    body = {
        "memory": memory_id,
        "subtree": subtree,
        "to_namespace": to_namespace,
        "to_actor": to_actor,
        "expires_at": None if expires is None else expires.isoformat(),
    }
    grant = ctl.daemon().post(api("mem", "share"), given(body))
    put_done(grant, f"Shared {_what(grant)} with {_to(grant)}: {_name(grant)}.", as_json=as_json)


@click.command(epilog=example("noemactl mem unshare 0197f3c2-7d1e-7a00-8000-000000000001"))
@click.argument("grant_id", metavar="SHARE")
@json_option
@pass_ctl
def unshare(ctl: Ctl, grant_id: str, as_json: bool) -> None:
    """End a share at once; `mem shares` shows the ids."""
    grant = ctl.daemon().delete(api("mem", "grants", grant_id))
    put_done(grant, f"Ended share {visible(grant_id)}.", as_json=as_json)


@click.command(epilog=example("noemactl mem shares --ended"))
@click.option("--ended", is_flag=True, help="Also those that have ended.")
@json_option
@pass_ctl
def shares(ctl: Ctl, ended: bool, as_json: bool) -> None:
    """List what is shared by your namespace and with it."""
    found = ctl.daemon().items(api("mem", "grants"), {"ended": "1" if ended else None})
    rows = found if as_json else [{**g, "what": _what(g), "to": _to(g)} for g in found]
    put_rows(rows, _SHARES, as_json=as_json, empty="Nothing is shared.")


@click.command(
    epilog=example(
        "noemactl mem explain 0197f3c2-7d1e-7a00-8000-000000000001",
        "noemactl mem explain 0197f3c2-7d1e-7a00-8000-000000000001 --view-namespace acme/sales",
    )
)
@click.argument("memory_id", metavar="ID")
@click.option("--view-namespace", metavar="NAMESPACE", help="As somebody there would see it.")
@click.option("--view-actor", metavar="ACTOR", help="As this one would see it, as user:eva.")
@click.option("--as-of", callback=when, metavar="TIME", help="As it was then.")
@json_option
@pass_ctl
def explain(
    ctl: Ctl,
    memory_id: str,
    view_namespace: str | None,
    view_actor: str | None,
    as_of: datetime | None,
    as_json: bool,
) -> None:
    """Say why you see a memory, or why you do not.

    Auditors and administrators may look through other eyes, within their subtree.
    """
    body = {
        "id": memory_id,
        "view_namespace": view_namespace,
        "view_actor": view_actor,
        "as_of": None if as_of is None else as_of.isoformat(),
    }
    found = ctl.daemon().post(api("mem", "explain"), given(body))
    if as_json:
        put_json(found)
        return
    sees = "sees" if found.get("is_visible") else "does not see"
    viewer = f"{found.get('viewer_actor')} in {found.get('viewer_namespace')}"
    click.echo(f"{visible(viewer)} {sees} {visible(memory_id)}.")
    if found.get("is_visible"):
        click.echo(
            "A search finds it." if found.get("is_found_by_search") else "No search finds it."
        )
    for reason in found.get("reasons") or []:
        click.echo(f"- {visible(str(reason))}")
    for grant in found.get("grants") or []:
        click.echo(f"- share {_name(grant)}: {_what(grant)} with {_to(grant)}")


@click.command(
    epilog=example("noemactl mem retract 0197f3c2-7d1e-7a00-8000-000000000001 --reason 'a typo'")
)
@click.argument("memory_id", metavar="ID")
@click.option("--reason", required=True, help="Why; it stays on record.")
@json_option
@pass_ctl
def retract(ctl: Ctl, memory_id: str, reason: str, as_json: bool) -> None:
    """Withdraw a memory and everything derived from it; `mem restore` undoes that."""
    found = ctl.daemon().post(api("mem", "retract"), {"id": memory_id, "reason": reason})
    many = _count(len(found.get("memories") or []), "memory", "memories")
    put_done(found, f"Withdrew {many}: retraction {_name(found)}.", as_json=as_json)


@click.command(epilog=example("noemactl mem restore 0197f3c2-7d1e-7a00-8000-000000000001"))
@click.argument("retraction_id", metavar="RETRACTION")
@json_option
@pass_ctl
def restore(ctl: Ctl, retraction_id: str, as_json: bool) -> None:
    """Undo a retraction, for all that it withdrew."""
    found = ctl.daemon().post(api("mem", "restore"), {"retraction": retraction_id})
    many = _count(len(found.get("memories") or []), "memory", "memories")
    put_done(found, f"Restored {many}.", as_json=as_json)


@click.command(epilog=example("noemactl mem conflicts --open"))
@click.option("--open", "open_only", is_flag=True, help="Only those that wait for a person.")
@limit_option(100)
@json_option
@pass_ctl
def conflicts(ctl: Ctl, open_only: bool, limit: int, as_json: bool) -> None:
    """List what contradicted what, and how that was decided; the newest first."""
    query = {"open": "1" if open_only else None}
    found = ctl.daemon().items(api("mem", "conflicts"), query, limit=limit)
    put_rows(found, _CONFLICTS, as_json=as_json, empty="No conflicts.")


@click.group(epilog=example("noemactl mem conflict resolve 0197f3c2-… newcomer_wins"))
def conflict() -> None:
    """Decide a conflict, or take a decision back."""


@conflict.command(
    epilog=example(
        "noemactl mem conflict resolve 0197f3c2-7d1e-7a00-8000-000000000001 newcomer_wins"
    )
)
@click.argument("conflict_id", metavar="ID")
@click.argument("outcome", type=click.Choice(_OUTCOMES))
@json_option
@pass_ctl
def resolve(ctl: Ctl, conflict_id: str, outcome: str, as_json: bool) -> None:
    """Say which of two memories holds, or that both do."""
    path = api("mem", "conflicts", conflict_id, "resolve")
    found = ctl.daemon().post(path, {"outcome": outcome})
    put_done(found, f"Conflict {visible(conflict_id)}: {outcome}.", as_json=as_json)


@conflict.command(
    epilog=example("noemactl mem conflict revert 0197f3c2-7d1e-7a00-8000-000000000001")
)
@click.argument("conflict_id", metavar="ID")
@json_option
@pass_ctl
def revert(ctl: Ctl, conflict_id: str, as_json: bool) -> None:
    """Take a decision back: both memories are what they were before it."""
    found = ctl.daemon().post(api("mem", "conflicts", conflict_id, "revert"), {})
    put_done(found, f"Took back the decision on {visible(conflict_id)}.", as_json=as_json)


@click.command(
    epilog=example(
        "noemactl mem relate 0197f3c2-7d1e-7a00-8000-000000000001 "
        "0197f3c2-7d1e-7a00-8000-000000000002 --kind depends-on"
    )
)
@click.argument("subject", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--kind", required=True, help="How, in one word, as depends-on.")
@click.option("--entities", "of_entities", is_flag=True, help="FROM and TO are entities.")
@click.option("--confidence", type=click.FloatRange(0, 1), help="How sure, from 0 to 1. [1]")
@click.option("--source", help="Where that comes from.")
@json_option
@pass_ctl
def relate(
    ctl: Ctl,
    subject: str,
    target: str,
    kind: str,
    of_entities: bool,
    confidence: float | None,
    source: str | None,
    as_json: bool,
) -> None:
    """Say how one memory, or entity, relates to another."""
    what = "entity" if of_entities else "memory"
    body = {
        f"from_{what}": subject,
        f"to_{what}": target,
        "kind": kind,
        "confidence": confidence,
        "source": source,
    }
    found = ctl.daemon().post(api("mem", "relate"), given(body))
    put_done(found, f"Related: {_name(found)}.", as_json=as_json)


@click.command(epilog=example("noemactl mem unrelate 0197f3c2-7d1e-7a00-8000-000000000001"))
@click.argument("relationship_id", metavar="RELATIONSHIP")
@json_option
@pass_ctl
def unrelate(ctl: Ctl, relationship_id: str, as_json: bool) -> None:
    """End a relationship; it stays on record as past."""
    found = ctl.daemon().delete(api("mem", "relationships", relationship_id))
    put_done(found, f"Ended {visible(relationship_id)}.", as_json=as_json)


def _what(grant: Mapping[str, Any]) -> str:
    if grant.get("memory") is not None:
        return f"memory {visible(str(grant['memory']))}"
    return f"{visible(str(grant.get('subtree')))} and all below"


def _to(grant: Mapping[str, Any]) -> str:
    if grant.get("to_actor") is not None:
        return visible(str(grant["to_actor"]))
    return f"namespace {visible(str(grant.get('to_namespace')))}"


def _name(thing: Mapping[str, Any]) -> str:
    return visible(str(thing.get("id")))


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


COMMANDS: tuple[click.Command, ...] = (
    share,
    unshare,
    shares,
    explain,
    retract,
    restore,
    conflicts,
    conflict,
    relate,
    unrelate,
)

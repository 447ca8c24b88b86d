"""`mem entities` and `mem entity`: whom and what memories speak of."""

from typing import Final

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import example, json_option, limit_option
from noema.cli.commands.mem_output import put_done
from noema.cli.output import Column, put_rows, visible

_ENTITIES: Final = (
    Column(heading="NAME", key="name"),
    Column(heading="KIND", key="kind"),
    Column(heading="MEMORIES", key="memories", right=True),
    Column(heading="NAMESPACE", key="namespace"),
    Column(heading="ID", key="id"),
    Column(heading="ALSO", key="also"),
)
_MERGES: Final = (
    Column(heading="ID", key="id"),
    Column(heading="KEPT", key="kept_name"),
    Column(heading="MERGED", key="merged_name"),
    Column(heading="BY", key="actor"),
    Column(heading="WHEN", key="merged_at"),
)
_SUGGESTIONS: Final = (
    Column(heading="ENTITY", key="entity_name"),
    Column(heading="ID", key="entity"),
    Column(heading="SIMILAR", key="similar_name"),
    Column(heading="ID", key="similar"),
    Column(heading="NAMESPACE", key="namespace"),
)


@click.command(epilog=example("noemactl mem entities backup"))
@click.argument("text", required=False, metavar="[TEXT]")
@limit_option(100)
@json_option
@pass_ctl
def entities(ctl: Ctl, text: str | None, limit: int, as_json: bool) -> None:
    """List whom and what the memories that you see speak of."""
    found = ctl.daemon().items(api("mem", "entities"), {"text": text}, limit=limit)
    rows = found if as_json else [{**e, "also": ", ".join(e.get("aliases") or [])} for e in found]
    put_rows(rows, _ENTITIES, as_json=as_json, empty="No such entities that you may see.")


@click.group(epilog=example("noemactl mem entity merge 0197f3c2-… 0197f3c3-…"))
def entity() -> None:
    """Say which entities are one, and by what names they go."""


@entity.command(
    epilog=example(
        "noemactl mem entity merge 0197f3c2-7d1e-7a00-8000-000000000001 "
        "0197f3c2-7d1e-7a00-8000-000000000002"
    )
)
@click.argument("keep_id", metavar="KEEP")
@click.argument("merged_id", metavar="MERGED")
@json_option
@pass_ctl
def merge(ctl: Ctl, keep_id: str, merged_id: str, as_json: bool) -> None:
    """Let KEEP stand for MERGED as well, with all its names; `entity unmerge` undoes that."""
    found = ctl.daemon().post(api("mem", "entities", keep_id, "merge"), {"merge": merged_id})
    put_done(found, f"Merged: {visible(str(found.get('id')))}.", as_json=as_json)


@entity.command(epilog=example("noemactl mem entity unmerge 0197f3c2-7d1e-7a00-8000-000000000001"))
@click.argument("merge_id", metavar="MERGE")
@json_option
@pass_ctl
def unmerge(ctl: Ctl, merge_id: str, as_json: bool) -> None:
    """Undo a merge; `entity merges` shows the ids."""
    found = ctl.daemon().post(api("mem", "entity-merges", merge_id, "undo"), {})
    put_done(found, f"Undone: {visible(merge_id)}.", as_json=as_json)


@entity.command(epilog=example("noemactl mem entity merges"))
@limit_option(100)
@json_option
@pass_ctl
def merges(ctl: Ctl, limit: int, as_json: bool) -> None:
    """List the merges that hold, the newest first."""
    found = ctl.daemon().items(api("mem", "entity-merges"), limit=limit)
    put_rows(found, _MERGES, as_json=as_json, empty="Nothing is merged.")


@entity.command(epilog=example("noemactl mem entity suggestions"))
@limit_option(100)
@json_option
@pass_ctl
def suggestions(ctl: Ctl, limit: int, as_json: bool) -> None:
    """List entities that may be one, the likeliest first."""
    found = ctl.daemon().items(api("mem", "entity-suggestions"), limit=limit)
    put_rows(found, _SUGGESTIONS, as_json=as_json, empty="No two look alike.")


@entity.command(
    epilog=example(
        "noemactl mem entity refuse 0197f3c2-7d1e-7a00-8000-000000000001 "
        "0197f3c2-7d1e-7a00-8000-000000000002"
    )
)
@click.argument("entity_id", metavar="ID")
@click.argument("similar_id", metavar="SIMILAR")
@json_option
@pass_ctl
def refuse(ctl: Ctl, entity_id: str, similar_id: str, as_json: bool) -> None:
    """Say that two entities with similar names are not one."""
    path = api("mem", "entities", entity_id, "refuse")
    found = ctl.daemon().post(path, {"similar": similar_id})
    put_done(found, "They are two.", as_json=as_json)


@entity.command(
    epilog=example("noemactl mem entity alias 0197f3c2-7d1e-7a00-8000-000000000001 'Big Blue'")
)
@click.argument("entity_id", metavar="ID")
@click.argument("name", metavar="NAME")
@json_option
@pass_ctl
def alias(ctl: Ctl, entity_id: str, name: str, as_json: bool) -> None:
    """Give an entity one more name."""
    found = ctl.daemon().post(api("mem", "entities", entity_id, "aliases"), {"name": name})
    put_done(found, f"It is also {visible(name)}.", as_json=as_json)


COMMANDS: tuple[click.Command, ...] = (entities, entity)

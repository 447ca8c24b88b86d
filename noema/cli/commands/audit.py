"""`audit`: who tried what, and how it ended."""

from datetime import datetime
from typing import Any, Final

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import example, json_option, limit_option, moment
from noema.cli.output import Column, put_rows
from noema.core.act import Outcome

_COLUMNS: Final = (
    Column(heading="WHEN", key="occurred_at"),
    Column(heading="WHO", key="who"),
    Column(heading="THROUGH", key="through"),
    Column(heading="VERB", key="verb"),
    Column(heading="TARGET", key="target"),
    Column(heading="OUTCOME", key="outcome"),
    Column(heading="DETAIL", key="told"),
)


@click.command(
    epilog=example(
        "noemactl audit --op login --result denied --from 2027-01-01",
        "noemactl audit --actor user:ada --json | jq -r '.[].verb'",
    )
)
@click.option("--actor", help="Only what this one did, as user:ada.")
@click.option("--op", help="Only this act, as user.create, or this group of them, as user.")
@click.option("--target", help="Only what was done to this, as user:bob.")
@click.option("--result", type=click.Choice([o.value for o in Outcome]), help="Only these.")
@click.option("--from", "since", callback=moment, metavar="TIME", help="From when on.")
@click.option("--to", "until", callback=moment, metavar="TIME", help="Before when.")
@limit_option(100)
@json_option
@pass_ctl
def audit(
    ctl: Ctl,
    actor: str | None,
    op: str | None,
    target: str | None,
    result: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """List what was tried and how it ended, the newest first; denied and failed attempts too."""
    query = {
        "who": actor,
        "verb": op,
        "target": target,
        "outcome": result,
        "from": None if since is None else since.isoformat(),
        "to": None if until is None else until.isoformat(),
    }
    rows = ctl.daemon().items(api("audit"), query, cursor="before", limit=limit)
    shown = rows if as_json else [{**row, "told": _told(row)} for row in rows]
    put_rows(shown, _COLUMNS, as_json=as_json, empty="Nothing of that kind was recorded.")


def _told(row: dict[str, Any]) -> str:
    if row.get("is_redacted"):
        return "(redacted)"
    return "; ".join(str(row[key]) for key in ("purpose", "detail") if row.get(key))


COMMANDS: tuple[click.Command, ...] = (audit,)

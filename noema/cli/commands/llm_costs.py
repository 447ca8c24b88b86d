"""`llm call`, `llm spend`, `llm budget`: what models were asked, what it cost, what it may cost."""

from datetime import datetime
from typing import Any, Final

import click

from noema.cli.client import Ctl, Daemon, api, pass_ctl
from noema.cli.commands import llm_values as values
from noema.cli.commands.common import example, json_option, limit_option, moment
from noema.cli.commands.llm_values import ROLES, told
from noema.cli.output import Column, put_json, put_rows, visible

_STATES: Final = ("in flight", "answered", "failed", "unknown")
_CALLS: Final = (
    Column(heading="STARTED", key="started_at"),
    Column(heading="ID", key="id"),
    Column(heading="ROLE", key="role"),
    Column(heading="MIND", key="mind"),
    Column(heading="CYCLE", key="cycle", right=True),
    Column(heading="STATE", key="state"),
    Column(heading="MS", key="latency_ms", right=True),
    Column(heading="COST", key="cost"),
    Column(heading="PROVIDER", key="provider"),
    Column(heading="MODEL", key="model"),
    Column(heading="ERROR", key="error"),
)
_SPEND: Final = (
    Column(heading="DAY", key="day"),
    Column(heading="ROLE", key="role"),
    Column(heading="PROVIDER", key="provider"),
    Column(heading="CALLS", key="calls", right=True),
    Column(heading="TOKENS", key="tokens", right=True),
    Column(heading="COST", key="cost", right=True),
    Column(heading="UNKNOWN", key="unknown_calls", right=True),
)
_BUDGETS: Final = (
    Column(heading="ID", key="id"),
    Column(heading="SCOPE", key="scope"),
    Column(heading="KEY", key="key"),
    Column(heading="PERIOD", key="period"),
    Column(heading="WINDOW", key="window"),
    Column(heading="MONEY", key="money", right=True),
    Column(heading="SPENT", key="spent", right=True),
    Column(heading="TOKENS", key="tokens", right=True),
    Column(heading="USED", key="used", right=True),
    Column(heading="UNKNOWN", key="unknown_calls", right=True),
    Column(heading="STOPPED", key="stopped", right=True),
)

# --- calls and what they cost --------------------------------------------------------------------


@click.group(epilog=example("noemactl llm call list --mind ada --limit 20"))
def call() -> None:
    """Look at calls of models on record."""


@call.command("list", epilog=example("noemactl llm call list --state failed --from 2027-01-31"))
@click.option("--mind", help="Of one mind.")
@click.option("--cycle", type=click.IntRange(min=0), help="Of one cycle.")
@click.option("--role", type=click.Choice(ROLES), help="Of one role.")
@click.option("--provider", help="Of one provider.")
@click.option("--state", type=click.Choice(_STATES), help="How they ended.")
@click.option("--from", "since", callback=moment, metavar="TIME", help="From when on.")
@click.option("--to", "until", callback=moment, metavar="TIME", help="Until when.")
@limit_option(50)
@json_option
@pass_ctl
def list_calls(
    ctl: Ctl,
    mind: str | None,
    cycle: int | None,
    role: str | None,
    provider: str | None,
    state: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """List calls, newest first."""
    wanted = {
        "mind": mind,
        "cycle": cycle,
        "role": role,
        "provider": provider,
        "state": state,
        "from": None if since is None else since.isoformat(),
        "to": None if until is None else until.isoformat(),
    }
    rows = ctl.daemon().items(
        api("llm", "calls"),
        {key: value for key, value in wanted.items() if value is not None},
        cursor="before",
        limit=limit,
    )
    if not as_json:
        rows = [{**row, "cost": values.cost_shown(row)} for row in rows]
    put_rows(rows, _CALLS, as_json=as_json, empty="No calls.")


@call.command("show", epilog=example("noemactl llm call show 0197f3c2-7d1e-7a00-8000-000000000001"))
@click.argument("call_id", metavar="ID")
@json_option
@pass_ctl
def show_call(ctl: Ctl, call_id: str, as_json: bool) -> None:
    """Show a call: what was sent, every attempt, what came back, what it cost."""
    found = ctl.daemon().get(api("llm", "calls", call_id))
    if as_json:
        put_json(found)
    else:
        values.put_call(found)


@click.command(epilog=example("noemactl llm spend --from 2027-01-01 --to 2027-02-01"))
@click.option("--from", "since", callback=moment, metavar="TIME", help="30 days ago unless told.")
@click.option("--to", "until", callback=moment, metavar="TIME", help="Now unless told.")
@json_option
@pass_ctl
def spend(ctl: Ctl, since: datetime | None, until: datetime | None, as_json: bool) -> None:
    """Show what was spent by day, role and provider."""
    found = ctl.daemon().get(
        api("llm", "spend"),
        {
            "from": None if since is None else since.isoformat(),
            "to": None if until is None else until.isoformat(),
        },
    )
    rows = found.get("items", [])
    if not as_json:
        rows = [{**row, "cost": values.money_shown(row.get("cost_micros"))} for row in rows]
    put_rows(rows, _SPEND, as_json=as_json, empty="Nothing was spent.")


# --- budgets -------------------------------------------------------------------------------------


@click.group(epilog=example("noemactl llm budget set role day --key dialogue --money 5"))
def budget() -> None:
    """Limit what models may cost, and see what that stopped."""


@budget.command("list", epilog=example("noemactl llm budget list"))
@json_option
@pass_ctl
def list_budgets(ctl: Ctl, as_json: bool) -> None:
    """List the budgets with what is spent of them now."""
    rows = _budgets(ctl.daemon())
    if not as_json:
        rows = [line for row in rows for line in values.budget_lines(row)]
    put_rows(rows, _BUDGETS, as_json=as_json, empty="No budgets: nothing limits what models cost.")


def _budgets(daemon: Daemon) -> list[dict[str, Any]]:
    return daemon.items(api("llm", "budgets"))


@budget.command(
    "set",
    epilog=example(
        "noemactl llm budget set everything day --money 20",
        "noemactl llm budget set mind day --key ada --tokens 200000",
        "noemactl llm budget set cycle cycle --money 0.05",
    ),
)
@click.argument("scope", type=click.Choice(["cycle", "mind", "role", "provider", "everything"]))
@click.argument("period", type=click.Choice(["cycle", "day", "month"]))
@click.option("--key", default="*", show_default=True, help="Which one; * is each of them.")
@click.option("--money", help="A decimal amount, as 2.50.")
@click.option("--tokens", type=click.IntRange(min=0), help="Of all classes together.")
@json_option
@pass_ctl
def set_budget(
    ctl: Ctl,
    scope: str,
    period: str,
    key: str,
    money: str | None,
    tokens: int | None,
    as_json: bool,
) -> None:
    """Set a budget, or change the one for the same scope, key and period."""
    if money is None and tokens is None:
        raise click.UsageError("Set a limit: --money, --tokens or both.")
    wanted = {"scope": scope, "period": period, "key": key, "money": money, "tokens": tokens}
    body = {name: value for name, value in wanted.items() if value is not None}
    made = ctl.daemon().post(api("llm", "budgets"), body)
    told(made, f"Set the budget of {scope} {visible(key)} for a {period}", as_json=as_json)


@budget.command(
    "end", epilog=example("noemactl llm budget end 0197f3c2-7d1e-7a00-8000-00000000000b")
)
@click.argument("budget_id", metavar="ID")
@pass_ctl
def end_budget(ctl: Ctl, budget_id: str) -> None:
    """End a budget; what it saw stays on record."""
    ctl.daemon().delete(api("llm", "budgets", budget_id))
    click.echo(f"Ended budget {visible(budget_id)}")

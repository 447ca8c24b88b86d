"""`mind`: list, make, look at and steer minds."""

import json
import re
from typing import Any

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands.common import duration_s, example, json_option, mind_argument
from noema.cli.output import Column, put_one, put_rows, visible

_COLUMNS = (
    Column(heading="MIND", key="slug"),
    Column(heading="STATUS", key="status"),
    Column(heading="MODE", key="mode"),
    Column(heading="BACKLOG", key="backlog", right=True),
    Column(heading="CYCLES", key="cycles", right=True),
    Column(heading="LAST CYCLE", key="last_cycle_at"),
    Column(heading="NAMESPACE", key="namespace"),
    Column(heading="NAME", key="name"),
)


@click.group(epilog=example("noemactl mind list"))
def mind() -> None:
    """List, make, look at and steer minds."""


@mind.command("list", epilog=example("noemactl mind list --json | jq -r '.[].slug'"))
@json_option
@pass_ctl
def list_minds(ctl: Ctl, as_json: bool) -> None:
    """List the minds that you may see."""
    minds = ctl.daemon().items(api("minds"))
    put_rows(
        minds,
        _COLUMNS,
        as_json=as_json,
        empty="No minds yet; make one with `noemactl mind create SLUG`.",
    )


@mind.command(epilog=example("noemactl mind create ada --name 'Ada, who watches sshd'"))
@click.argument("slug")
@click.option("--name", help="A name for people.")
@click.option("--namespace", help="Where it lives; yours unless told.")
@json_option
@pass_ctl
def create(ctl: Ctl, slug: str, name: str | None, namespace: str | None, as_json: bool) -> None:
    """Make a mind; it starts thinking when something reaches it."""
    body = {"slug": slug, "name": name, "namespace": namespace}
    made = ctl.daemon().post(api("minds"), {k: v for k, v in body.items() if v is not None})
    if as_json:
        put_one(made, as_json=True)
    else:
        shown = visible(str(made.get("slug", slug)))
        click.echo(f"Made mind {shown} in {visible(str(made.get('namespace')))}.")


@mind.command(epilog=example("noemactl mind show ada"))
@mind_argument
@json_option
@pass_ctl
def show(ctl: Ctl, mind: str, as_json: bool) -> None:
    """Show one mind: what it is doing, and its settings."""
    put_one(ctl.daemon().get(api("minds", mind)), as_json=as_json)


@mind.command(epilog=example("noemactl mind pause ada --note 'maintenance until noon'"))
@mind_argument
@click.option("--note", help="Why; it stays in the history.")
@json_option
@pass_ctl
def pause(ctl: Ctl, mind: str, note: str | None, as_json: bool) -> None:
    """Stop a mind from thinking; what reaches it waits."""
    _change(ctl, mind, {"status": "paused"}, note, as_json, "Paused")


@mind.command(epilog=example("noemactl mind resume ada"))
@mind_argument
@click.option("--note", help="Why; it stays in the history.")
@json_option
@pass_ctl
def resume(ctl: Ctl, mind: str, note: str | None, as_json: bool) -> None:
    """Let a paused mind go on with what waits."""
    _change(ctl, mind, {"status": "active"}, note, as_json, "Resumed")


@mind.command(epilog=example("noemactl mind mode ada focused --for 15m --focus 'disk errors'"))
@mind_argument
@click.argument("mode")
@click.option(
    "--for", "for_s", callback=duration_s, metavar="TIME", help="How long, as 90s, 15m or 2h."
)
@click.option("--focus", help="What to attend to.")
@json_option
@pass_ctl
def mode(
    ctl: Ctl, mind: str, mode: str, for_s: int | None, focus: str | None, as_json: bool
) -> None:
    """Put a mind in a mode: awake, focused, idle, dreaming, asleep or paused."""
    body = {"mode": mode, "for_s": for_s, "focus": focus}
    path = api("minds", mind, "mode")
    answer = ctl.daemon().post(path, {k: v for k, v in body.items() if v is not None})
    if as_json:
        put_one(answer, as_json=True)
    else:
        click.echo(f"{visible(mind)} is now {visible(mode)}.")


@mind.command(
    "set",
    epilog=example("noemactl mind set ada weights.novelty=1.2 capacity=7 --note 'less noise'"),
)
@mind_argument
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--name", help="A new name for people.")
@click.option("--note", help="Why; it stays in the history.")
@json_option
@pass_ctl
def set_mind(
    ctl: Ctl,
    mind: str,
    settings: tuple[str, ...],
    name: str | None,
    note: str | None,
    as_json: bool,
) -> None:
    """Change settings of a mind; what is not named stays as it is.

    A dot goes one level down: weights.novelty=1.2. Each change is a new version of the settings.
    """
    body: dict[str, Any] = {}
    if settings:
        body["settings"] = parse_settings(settings)
    if name is not None:
        body["name"] = name
    if not body:
        raise click.UsageError("Nothing to set; name at least one KEY=VALUE, or --name.")
    _change(ctl, mind, body, note, as_json, "Changed")


@mind.command(epilog=example("noemactl mind step ada"))
@mind_argument
@pass_ctl
def step(ctl: Ctl, mind: str) -> None:
    """Ask a mind for one cycle now, whatever its timer says."""
    ctl.daemon().post(api("minds", mind, "step"), {})
    click.echo(f"Asked {visible(mind)} for one cycle.")


_MOST_WEIGHT = 10


def parse_settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Return the nested settings that `a.b=1.5 c=7` spells.

    Decimals stay text, so that no digit is lost on the way, and so do weights up to 10; other whole
    numbers (weights in micro-units among them), true, false and null are what they are in JSON;
    everything else is text.
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        names = key.split(".")
        if not equals or not all(names):
            raise click.UsageError(f"{pair!r} is not KEY=VALUE, as in weights.novelty=1.2.")
        place = settings
        for name in names[:-1]:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise click.UsageError(f"{key!r} is set both as a value and as a group.")
        if names[-1] in place:
            raise click.UsageError(f"{key!r} is set twice.")
        value = _value(text)
        if names[0] == "weights" and isinstance(value, int) and 0 <= value <= _MOST_WEIGHT:
            # A weight is typed as people say it, 2 as well as 2.0; over HTTP a whole number is in
            # micro-units, and so is a large one here.
            value = text
        place[names[-1]] = value
    return settings


def _value(text: str) -> Any:
    if re.fullmatch(r"true|false|null|-?(0|[1-9][0-9]{0,17})", text):
        return json.loads(text)
    return text


def _change(
    ctl: Ctl, mind: str, body: dict[str, Any], note: str | None, as_json: bool, done: str
) -> None:
    if note is not None:
        body["note"] = note
    changed = ctl.daemon().patch(api("minds", mind), body)
    if as_json:
        put_one(changed, as_json=True)
    else:
        version = changed.get("settings_version")
        more = f"; its settings are version {version}" if "settings" in body else ""
        click.echo(f"{done} {visible(mind)}{more}.")


COMMANDS: tuple[click.Command, ...] = (mind,)

"""`event` and `tail`: the log of everything that happened, as a list and as it grows."""

import json
from collections.abc import Mapping
from typing import Any

import click

from noema.cli.client import Ctl, Daemon, Refusal, ServerSent, Unreachable, api, pass_ctl
from noema.cli.commands.common import example, json_option, limit_option
from noema.cli.output import (
    Column,
    CommandError,
    json_text,
    note,
    plain,
    put_json_line,
    put_one,
    put_rows,
    visible,
)

_COLUMNS = (
    Column(heading="POSITION", key="position"),
    Column(heading="RECORDED", key="recorded_at"),
    Column(heading="MIND", key="mind"),
    Column(heading="CYCLE", key="cycle", right=True),
    Column(heading="TYPE", key="type"),
    Column(heading="ID", key="id"),
    Column(heading="WHAT", key="what"),
)
_FIRST_RETRY_S = 0.5
_RETRY_AT_MOST_EVERY_S = 15.0
# What a daemon says while it starts, stops or has too much to do; anything else stays so.
_PASSING = (429, 500, 502, 503, 504)


@click.group(epilog=example("noemactl event list --mind ada"))
def event() -> None:
    """Look at the log of everything that happened."""


@event.command("list", epilog=example("noemactl event list --mind ada --type stimulus.received"))
@click.option("--mind", help="Only this mind's.")
@click.option("--type", "kind", help="Only this type.")
@click.option("--text", help="Only events that say this.")
@click.option("--after", help="Only what follows this position, the oldest first.")
@click.option("--oldest-first", is_flag=True, help="From the start of the log.")
@limit_option(50)
@json_option
@pass_ctl
def list_events(
    ctl: Ctl,
    mind: str | None,
    kind: str | None,
    text: str | None,
    after: str | None,
    oldest_first: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List events, the newest first unless told otherwise."""
    order = "asc" if oldest_first or after is not None else "desc"
    query = {"mind": mind, "type": kind, "text": text, "after": after, "order": order}
    events = ctl.daemon().items(api("events"), query, limit=limit)
    rows = events if as_json else [{**item, "what": summary(item)} for item in events]
    put_rows(rows, _COLUMNS, as_json=as_json, empty="No such events.")


@event.command(epilog=example("noemactl event show 0197f3c2-7d1e-7a00-8000-000000000001"))
@click.argument("event_id", metavar="ID")
@json_option
@pass_ctl
def show(ctl: Ctl, event_id: str, as_json: bool) -> None:
    """Show one event whole."""
    put_one(ctl.daemon().get(api("events", event_id)), as_json=as_json)


@click.command(epilog=example("noemactl tail ada --json | jq -c .payload"))
@click.argument("mind", required=False, metavar="[MIND]")
@click.option("--type", "kind", help="Only this type.")
@click.option("--after", help="Start behind this position, not now.")
@json_option
@pass_ctl
def tail(ctl: Ctl, mind: str | None, kind: str | None, after: str | None, as_json: bool) -> None:
    """Print events as they happen, until Ctrl-C.

    Where the connection is lost it is made again, and goes on behind the last event printed:
    nothing is missed and nothing comes twice. With --json, one event a line.
    """
    daemon = ctl.daemon()
    query = {"mind": mind, "type": kind}
    position = after if after is not None else newest_position(daemon, query)
    Tail(ctl, daemon, query, as_json=as_json).run(position)


def newest_position(daemon: Daemon, query: Mapping[str, Any]) -> str | None:
    """Return where the log ends now, so that a stream lost before its first event can resume."""
    # A filter may match nothing yet; then the end of all that may be seen is as good.
    for wanted in (query, {}):
        page = {**wanted, "order": "desc", "limit": 1}
        newest = daemon.get(api("events"), page).get("items") or []
        if newest:
            return str(newest[0]["position"])
    return None


class Tail:
    """Follows a stream across lost connections; knows the position behind what was printed."""

    def __init__(
        self, ctl: Ctl, daemon: Daemon, query: Mapping[str, Any], *, as_json: bool
    ) -> None:
        self._ctl, self._daemon, self._query = ctl, daemon, query
        self._as_json = as_json
        self._position: str | None = None
        self._retry_s = _FIRST_RETRY_S
        self._opened = False
        self._lost = False

    def run(self, position: str | None) -> None:
        """Print events for ever; raise where the daemon refuses or was never there."""
        self._position = position
        while True:
            reason = self._once()
            if not self._lost:
                note(f"{reason} Trying again; nothing is lost.")
                self._lost = True
            self._ctl.pause(self._retry_s)
            self._retry_s = min(self._retry_s * 2, _RETRY_AT_MOST_EVERY_S)

    def _once(self) -> str:
        """Print events until the stream ends; return why it did, for the person."""
        query = {**self._query, "after": self._position}
        try:
            for sent in self._daemon.stream(api("events", "stream"), query):
                if sent.name == "open":
                    self._open()
                elif sent.name == "end":
                    return "The daemon ended the stream."
                elif sent.name == "event" and sent.id not in (None, self._position):
                    self._take(sent)
        except Unreachable as exc:
            if not self._opened:
                raise
            return exc.message
        except Refusal as exc:
            if exc.status not in _PASSING:
                raise
            return exc.message
        return "The stream ended."

    def _open(self) -> None:
        if self._lost:
            note("Connected again.")
        self._opened, self._lost = True, False

    def _take(self, sent: ServerSent) -> None:
        self._retry_s = _FIRST_RETRY_S
        item = parse_event(sent.data)
        if self._as_json:
            put_json_line(item)
        else:
            click.echo(event_line(item))
        # Only now: an event that could not be printed has not been shown.
        self._position = sent.id


def parse_event(data: str) -> dict[str, Any]:
    """Return the event in the data of a stream."""
    try:
        item = json.loads(data)
    except ValueError:
        item = None
    if not isinstance(item, dict):
        raise CommandError("The daemon sent an event that is not JSON; is it of this age?")
    return item


def event_line(item: Mapping[str, Any]) -> str:
    """Return one event as one line for a person."""
    cycle = "" if item.get("cycle") is None else f" #{item['cycle']}"
    head = f"{item.get('recorded_at')} {item.get('mind') or '-'}{cycle} {item.get('type')}"
    return f"{visible(head)}  {summary(item)}".rstrip()


def summary(item: Mapping[str, Any]) -> str:
    """Return what the event says: its text if it has one, else its payload, safe to print."""
    payload = item.get("payload")
    if isinstance(payload, dict) and isinstance(payload.get("text"), str):
        return visible(payload["text"])
    return "" if not payload else plain(payload) if isinstance(payload, str) else json_text(payload)


COMMANDS: tuple[click.Command, ...] = (event, tail)

"""`mem write` and `mem ticket`: one text or one transcript into memory."""

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any, Final

import click

from noema.cli.client import Ctl, Daemon, api, pass_ctl
from noema.cli.commands.common import duration_s, example, json_option
from noema.cli.commands.feed import zone_named
from noema.cli.commands.mem_output import (
    given,
    put_written,
    read_input,
    read_json,
    when,
    with_zone,
)
from noema.cli.output import CommandError, note, put_json, visible
from noema.memory.model import EpistemicKind, Kind

_ENDED: Final = ("done", "failed")
_FIRST_LOOK_S: Final = 0.1
_LOOK_AT_MOST_EVERY_S: Final = 1.0


@click.command(
    epilog=example(
        "noemactl mem write 'The backup runs at 03:00 UTC.' --source runbook --importance 0.8",
        "noemactl mem write 'Moved to 04:00.' --speaker eva --conversation standup",
        "noemactl mem write --transcript standup.json",
    )
)
@click.argument("text", required=False, metavar="[TEXT|-]")
@click.option("--transcript", metavar="FILE|-", help="Write the messages in a JSON file, in order.")
@click.option("--speaker", help="Write TEXT as one message of a conversation, said by this one.")
@click.option("--conversation", help="Which conversation it belongs to.")
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in Kind]),
    help="What it is; else a fact, or of a transcript episodes.",
)
@click.option(
    "--epistemic-kind",
    type=click.Choice([kind.value for kind in EpistemicKind]),
    help="How it came to be known.",
)
@click.option("--content", "content_path", metavar="FILE|-", help="The typed content, as JSON.")
@click.option("--source", help="Where it comes from.")
@click.option("--event-time", callback=when, metavar="TIME", help="When it happened.")
@click.option("--importance", type=click.FloatRange(0, 1), help="From 0 to 1.")
@click.option("--derived-from", multiple=True, metavar="ID", help="A memory that it rests on.")
@click.option("--supersedes", metavar="ID", help="The memory that it replaces.")
@click.option("--refresh", is_flag=True, help="Replace what came from the same --source.")
@click.option("--verbatim", is_flag=True, help="Keep it word for word; extract nothing.")
@click.option("--sensitive", is_flag=True, help="Keep it out of the audit log.")
@click.option("--key", metavar="KEY", help="Idempotency key: with the same one it counts once.")
@click.option(
    "--zone", callback=zone_named, default="UTC", help="The zone of times without one. [UTC]"
)
@click.option(
    "--async/--wait", "is_async", default=False, help="Print a ticket and do not wait. [wait]"
)
@json_option
@pass_ctl
def write(
    ctl: Ctl,
    /,
    text: str | None,
    transcript: str | None,
    speaker: str | None,
    conversation: str | None,
    content_path: str | None,
    event_time: datetime | None,
    derived_from: tuple[str, ...],
    key: str | None,
    zone: tzinfo,
    is_async: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Write TEXT into memory, or with - what comes from standard input.

    A transcript is a JSON array of messages, {"speaker": …, "text": …, "at"?: …}, or an object that
    has them as "messages". What is there already is not stored twice. What is turned away is shown
    with the reason, and the exit code is then 1.
    """
    if (text is None) == (transcript is None):
        raise click.UsageError("Give either TEXT (- for standard input) or --transcript FILE.")
    if transcript is not None:
        if speaker is not None:
            raise click.UsageError("A transcript names its own speakers; leave out --speaker.")
        body = transcript_body(read_json(transcript), zone)
    else:
        said = read_input("-").removesuffix("\n") if text == "-" else str(text)
        body = {"text": said} if speaker is None else {"messages": [_message(speaker, said, None)]}
    body |= given(
        {
            "conversation": conversation,
            "content": None if content_path is None else read_json(content_path),
            "event_time": None if event_time is None else event_time.isoformat(),
            "derived_from": list(derived_from) or None,
            "async": is_async or None,
            **{name: None if value is False else value for name, value in fields.items()},
        }
    )
    answer = ctl.daemon().post(api("mem", "write"), body, idempotency_key=key)
    if "ticket" in answer:
        _put_ticket(answer, as_json=as_json)
    else:
        put_written(answer, as_json=as_json)


def transcript_body(value: Any, zone: tzinfo) -> dict[str, Any]:
    """Return the body of a write for a transcript; times without a zone are of `zone`.

    Messages in the shape of chat models, `role` and `content`, are taken as well.
    """
    body = {"messages": value} if isinstance(value, list) else value
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        raise CommandError(
            'A transcript is a JSON array of messages, or an object with "messages".'
        )
    messages = []
    for number, message in enumerate(body["messages"], 1):
        if not isinstance(message, dict):
            raise CommandError(f"Message {number} of the transcript is not an object.")
        if isinstance(message.get("role"), str) and isinstance(message.get("content"), str):
            others = {k: v for k, v in message.items() if k not in ("role", "content")}
            said = {"speaker": message["role"], "text": message["content"], **others}
        else:
            said = dict(message)
        if "at" in said:
            said["at"] = with_zone(said["at"], zone)
        messages.append(said)
    return {**body, "messages": messages}


def _message(speaker: str, text: str, at: str | None) -> dict[str, Any]:
    return given({"speaker": speaker, "text": text, "at": at})


@click.command(
    epilog=example("noemactl mem ticket 0197f3c2-7d1e-7a00-8000-000000000001 --wait 30s")
)
@click.argument("ticket_id", metavar="TICKET")
@click.option(
    "--wait", "wait_s", callback=duration_s, metavar="TIME", help="Wait so long for its end."
)
@json_option
@pass_ctl
def ticket(ctl: Ctl, ticket_id: str, wait_s: int | None, as_json: bool) -> None:
    """Show how far a write with --async is.

    Ends with 1 where the write failed, or is not done in the time that --wait gives it.
    """
    daemon = ctl.daemon()
    found = _ticket_at_its_end(ctl, daemon, ticket_id, wait_s or 0)
    _put_ticket(found, as_json=as_json)
    if wait_s is not None and found.get("state") not in _ENDED:
        raise CommandError(f"Not done within {wait_s} seconds; look again later.")


def _ticket_at_its_end(ctl: Ctl, daemon: Daemon, ticket_id: str, wait_s: int) -> dict[str, Any]:
    began = ctl.clock.monotonic()
    pause_s = _FIRST_LOOK_S
    while True:
        found: dict[str, Any] = daemon.get(api("mem", "tickets", ticket_id))
        waited_s = ctl.clock.monotonic() - began
        if found.get("state") in _ENDED or waited_s >= wait_s:
            return found
        ctl.pause(min(pause_s, wait_s - waited_s))
        pause_s = min(pause_s * 1.5, _LOOK_AT_MOST_EVERY_S)


def _put_ticket(found: Mapping[str, Any], *, as_json: bool) -> None:
    state = found.get("state")
    if as_json:
        put_json(found)
    else:
        name = visible(str(found.get("ticket") or found.get("id")))
        click.echo(f"Ticket {name}: {visible(str(state))}.")
        if state not in _ENDED:
            note(f"Look again with `noemactl mem ticket {name}`.")
    if state == "failed":
        raise CommandError(f"The write failed: {found.get('error') or 'no reason given'}.")
    if isinstance(found.get("result"), dict) and not as_json:
        put_written(found["result"], as_json=False)


COMMANDS: tuple[click.Command, ...] = (write, ticket)

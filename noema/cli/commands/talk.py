"""`say`: speak to a mind, and wait for what it answers."""

from typing import Any

import click

from noema.cli.client import Ctl, Daemon, api, items_of, pass_ctl
from noema.cli.commands.common import example, json_option, mind_argument
from noema.cli.output import CommandError, put_json, visible

_FIRST_LOOK_S = 0.2
_LOOK_AT_MOST_EVERY_S = 2.0


@click.command(epilog=example("noemactl say ada 'What was odd in the last hour?' --wait 30"))
@mind_argument
@click.argument("text")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(min=0), help="Print the reply, if it comes in time."
)
@click.option("--conversation", help="Go on in this conversation.")
@json_option
@pass_ctl
def say(
    ctl: Ctl, mind: str, text: str, wait_s: float | None, conversation: str | None, as_json: bool
) -> None:
    """Say TEXT to a mind."""
    daemon = ctl.daemon()
    body = {"text": text} if conversation is None else {"text": text, "conversation": conversation}
    said = daemon.post(api("minds", mind, "messages"), body)
    reply = None if wait_s is None else _await_reply(ctl, daemon, mind, str(said.get("id")), wait_s)
    if as_json:
        put_json({**said, "reply": reply})
    elif reply is not None:
        click.echo(visible(str(reply.get("text", "")), keep="\n\t"))
    elif wait_s is None:
        click.echo(f"Said to {visible(mind)}; message {visible(str(said.get('id')))}.")
    if wait_s is not None and reply is None:
        raise CommandError(
            f"No reply within {wait_s:g} seconds. It may still come: `noemactl tail {mind}`."
        )


def _await_reply(
    ctl: Ctl, daemon: Daemon, mind: str, message_id: str, wait_s: float
) -> dict[str, Any] | None:
    until = ctl.clock.monotonic() + wait_s
    pause_s = _FIRST_LOOK_S
    while True:
        for conversation in items_of(daemon.get(api("minds", mind, "conversations"))):
            for message in conversation.get("messages", []):
                if message.get("in_reply_to") == message_id:
                    return dict(message)
        left_s = until - ctl.clock.monotonic()
        if left_s <= 0:
            return None
        ctl.pause(min(pause_s, left_s))
        pause_s = min(pause_s * 1.5, _LOOK_AT_MOST_EVERY_S)


COMMANDS: tuple[click.Command, ...] = (say,)

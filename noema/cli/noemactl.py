"""`noemactl`: drive a Noema daemon from a shell or a script.

Exit codes, which scripts rely on: 0 done, 1 refused or failed, 2 usage, 3 not found or not
visible, 4 not authorised, 5 daemon unreachable, 130 interrupted.
"""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

from noema import config
from noema.cli import output
from noema.cli.client import Ctl
from noema.cli.commands import (
    audit,
    cycles,
    events,
    feed,
    goals,
    llm,
    mem,
    minds,
    replays,
    session,
    sessions,
    system,
    talk,
    tenants,
    tokens,
    users,
)
from noema.cli.commands.common import example
from noema.core.clock import SystemClock
from noema.core.errors import NoemaError

COMMANDS: Final[tuple[click.Command, ...]] = (
    *session.COMMANDS,
    *minds.COMMANDS,
    *talk.COMMANDS,
    *feed.COMMANDS,
    *events.COMMANDS,
    *cycles.COMMANDS,
    *goals.COMMANDS,
    *mem.COMMANDS,
    *replays.COMMANDS,
    *llm.COMMANDS,
    *tokens.COMMANDS,
    *users.COMMANDS,
    *sessions.COMMANDS,
    *tenants.COMMANDS,
    *audit.COMMANDS,
    *system.COMMANDS,
)
# click before 8.2 prints the help itself where a group is called alone.
_HELP_WANTED: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


class _Interrupted(Exception):  # noqa: N818
    """Ctrl-C, kept apart from what click makes of it."""


class _PipeClosed(Exception):  # noqa: N818
    """Nobody reads what is printed any more."""


class _Root(click.Group):
    """The group that tells an interrupt and a closed pipe from other ends of a command."""

    # typing.override is of Python 3.12.
    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            raise _Interrupted from None
        except BrokenPipeError:
            raise _PipeClosed from None
        return result


@click.group(
    cls=_Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=example(
        "noemactl mind create ada",
        "noemactl feed ada /var/log/auth.log",
        "noemactl why ada 1",
    ),
)
def cli() -> None:
    """Drive a Noema daemon: feed minds, watch them, ask why.

    The daemon is at NOEMA_URL, else where `noemactl login` last went, else on this machine.
    """


for _command in COMMANDS:
    cli.add_command(_command)


def run(argv: Sequence[str], ctl: Ctl) -> int:
    """Run one command and return its exit code; errors are one line on stderr."""
    output.forgive_encodings()
    try:
        # A command returns nothing; what click returns instead is the code of `ctx.exit`.
        code = cli.main(list(argv), prog_name="noemactl", standalone_mode=False, obj=ctl)
        sys.stdout.flush()
    except _HELP_WANTED as exc:
        click.echo(exc.ctx.get_help() if exc.ctx else str(exc), err=True)
        return output.USAGE
    except click.UsageError as exc:
        path = exc.ctx.command_path if exc.ctx is not None else "noemactl"
        output.put_error(f"{exc.format_message()} See `{path} --help`.")
        return output.USAGE
    except click.ClickException as exc:
        output.put_error(exc.format_message())
        return output.FAILED
    except output.CommandError as exc:
        output.put_error(exc.message)
        return exc.exit_code
    except NoemaError as exc:
        output.put_error(str(exc))
        return output.FAILED
    except (_Interrupted, click.Abort):
        return output.INTERRUPTED
    except (_PipeClosed, BrokenPipeError):
        # Python flushes stdout once more at the end, and would complain about the pipe there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return output.PIPE_CLOSED
    return code if isinstance(code, int) else output.DONE


def main() -> NoReturn:
    """Run the command that the process was started with, and exit."""
    try:
        ctl = Ctl(settings=config.load_client(), clock=SystemClock(), pause=time.sleep)
        code = run(sys.argv[1:], ctl)
    except KeyboardInterrupt:
        code = output.INTERRUPTED
    sys.exit(code)

"""`noema`: run the daemon, show it off, look after its database."""

import asyncio
import json
import platform
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from noema import __version__, config
from noema.cli import demo as demonstration
from noema.cli import local, serving
from noema.cli.output import FAILED, UNREACHABLE
from noema.config import Settings
from noema.core.clock import SystemClock
from noema.core.errors import NoemaError, Unavailable
from noema.db import migrate as migrations
from noema.db import protection
from noema.db.tx import connect

T = TypeVar("T")


def say(line: str) -> None:
    """Print a line for the operator at once."""
    click.echo(line)
    sys.stdout.flush()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Run minds that people can watch, explain, replay and govern.

    \b
    Example:
      noema demo          a mind, a stream of input, and a link to open
      noema serve         the daemon; noemactl and the browser talk to it
    """


@cli.command()
def serve() -> None:
    """Run the daemon until Ctrl-C.

    \b
    Example:
      NOEMA_PORT=9000 noema serve
    """
    settings = config.load()
    serving.configure_logging(settings)
    serving.run(lambda: serving.serve(settings, say=say))


@cli.command()
@click.option(
    "--input",
    "input_",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A log file to feed; without one, Noema makes up a plausible server log as it goes.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.1, max=10_000),
    default=10.0,
    show_default=True,
    help="Lines per second.",
)
def demo(input_: Path | None, speed: float) -> None:
    """Start everything: a daemon, a mind, a stream of input; and print the link to open.

    \b
    Example:
      noema demo --input /var/log/auth.log --speed 20
    """
    settings = config.load()
    serving.configure_logging(settings)
    stream = demonstration.Stream(path=input_, lines_per_s=speed)
    serving.run(lambda: serving.serve(settings, say=say, after=stream.run))


@cli.command()
def link() -> None:
    """Print a one-time link that lets one browser in.

    \b
    Example:
      noema link
    """
    say(asyncio.run(local.new_link()))


@cli.group()
def migrate() -> None:
    """Bring the database's schema up to date, or back.

    \b
    Example:
      noema migrate status
    """


def _on_owner(work: Callable[[str], Awaitable[T]]) -> T:
    async def go() -> T:
        async with local.database_of(config.load()) as dsns:
            return await work(dsns.owner)

    return asyncio.run(go())


@migrate.command("up")
def migrate_up() -> None:
    """Apply what is not applied yet.

    \b
    Example:
      noema migrate up
    """
    applied = _on_owner(migrations.up)
    for migration in applied:
        say(f"applied {migration.version:04d} {migration.name}")
    if not applied:
        say("nothing to do: the schema is up to date")


@migrate.command("down")
@click.option("--steps", type=click.IntRange(min=1), default=1, show_default=True)
@click.confirmation_option(prompt="This drops tables and what is in them. Go on?")
def migrate_down(steps: int) -> None:
    """Take the newest migrations back, and their data with them.

    \b
    Example:
      noema migrate down --steps 1
    """
    for migration in _on_owner(lambda dsn: migrations.down(dsn, steps=steps)):
        say(f"took back {migration.version:04d} {migration.name}")


@migrate.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def migrate_status(as_json: bool) -> None:
    """Show every migration and whether it is applied.

    \b
    Example:
      noema migrate status --json
    """
    rows = asyncio.run(local.migrate_status())
    if as_json:
        say(json.dumps(rows, default=str))
        return
    for row in rows:
        say(f"{row['version']:04d} {row['name']:<28} {row['state']}")


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document with stable keys.")
def doctor(as_json: bool) -> None:
    """Say how this installation stands: database, roles and protection, versions, paths.

    \b
    Example:
      noema doctor --json
    """
    report = asyncio.run(_examine(config.load()))
    if as_json:
        say(json.dumps(report, default=str))
        return
    for key, value in report.items():
        if isinstance(value, list):
            for line in value or ["none"]:
                say(f"{key:<14} {line}")
        else:
            say(f"{key:<14} {value}")


async def _examine(settings: Settings) -> dict[str, Any]:
    async with local.database_of(settings) as dsns:
        states = await migrations.status(dsns.owner)
        role = await protection.choose_role(dsns.app)
        async with (
            connect(dsns.app, clock=SystemClock(), max_size=1, role=role) as db,
            db.reading() as tx,
        ):
            found = await protection.inspect(tx)
        return {
            "version": __version__,
            "python": platform.python_version(),
            "data_dir": str(settings.data_dir),
            "url": settings.base_url,
            "embedded": dsns.is_embedded,
            "dsn": dsns.app,
            "owner_dsn": dsns.owner,
            "server_version": found.server_version,
            "pgvector": found.pgvector,
            "session_user": found.session_user,
            "current_user": found.current_user,
            "protection": found.kind,
            "findings": [*dsns.notes, *found.findings],
            "migrations": f"{sum(m.state == 'applied' for m in states)} of {len(states)} applied",
            "free_bytes": shutil.disk_usage(_existing(settings.data_dir)).free,
        }


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


@cli.command()
def version() -> None:
    """Print the version.

    \b
    Example:
      noema version
    """
    say(__version__)


def main() -> None:
    """Run the command; end with 1 and one line on stderr where it fails."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Exit as exc:
        sys.exit(exc.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as exc:
        exc.show()
        sys.exit(exc.exit_code)
    except NoemaError as exc:
        _fail(str(exc), UNREACHABLE if isinstance(exc, Unavailable) else FAILED)
    except ExceptionGroup as group:
        known, unknown = group.split(NoemaError)
        if known is None or unknown is not None:
            raise
        _fail(str(_first(known)), FAILED)
    except KeyboardInterrupt:
        sys.exit(130)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _fail(message: str, code: int) -> None:
    click.echo(f"noema: {message}", err=True)
    sys.exit(code)

"""What the commands share: options, arguments, and the shape of an example."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
mind_argument = click.argument("mind", metavar="MIND")
name_argument = click.argument("name", metavar="NAME")
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def example(*lines: str) -> str:
    """Return the end of a help text: an example, its lines kept as they are."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def limit_option(default: int) -> Callable[[Any], Any]:
    """Return the option that says how many to list."""
    return click.option(
        "--limit",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help="How many at most.",
    )


def duration_s(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return the whole seconds of a length of time, written 90, 90s, 15m, 2h or 1d."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9})([smhd]?)", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a length of time; write 90s, 15m, 2h or 1d.")
    return int(match.group(1)) * _UNITS_S[match.group(2)]


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Return a day or a time of ISO 8601 as a moment; without a zone it is of UTC."""
    if value is None:
        return None
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a time; write 2027-01-31 or 2027-01-31T12:00:00Z."
        ) from None
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)

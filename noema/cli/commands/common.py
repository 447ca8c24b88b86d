"""What the commands share: options, arguments, and the shape of an example."""

from collections.abc import Callable
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
mind_argument = click.argument("mind", metavar="MIND")


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

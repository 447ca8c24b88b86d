"""The embedded PostgreSQL: a server of our own on a Unix socket, with the three roles set up.

    server = EmbeddedPostgres(data_dir, clock)
    cluster = await server.start()     # exclusive: a second owner gets DataDirBusy
    ...
    await server.stop()

In the data directory: `pg18` (the cluster), `run` (the socket), `postgres.log`, `lock`, and
`cluster.json`, by which `running` finds the daemon's server from another process. The server
trusts its socket: whoever may open it, which is its user and root, is let in as any role.
"""

import json
import os
import re
import shutil
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg

from noema.core.clock import Clock
from noema.core.errors import Unavailable
from noema.db import datadir
from noema.db.binaries import ServerUser, can_enter, programs, server_user
from noema.db.datadir import CLUSTER, FALLBACK_ROOT, Lock
from noema.db.postmaster import PORT, Layout, Postmaster, last_words, make_cluster, turn_over

_RECORD: Final = "cluster.json"
_UNFINISHED: Final = f"{CLUSTER}.new-"
_RETRIES: Final = 15
_RETRY_S: Final = 1.0
_POLL_S: Final = 0.02
# The system holds a socket's path in 104 bytes (macOS) or 108; its own name takes 15 of them.
_LONGEST_SOCKET_DIR: Final = 85
# PostgreSQL splits lists of paths at commas, and a DSN gives other characters a meaning.
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/._+-]+\Z")
_TEMPORARY: Final = "noema-run-"

_NOT_READY: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)

_ROLES = """
    DO $$
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'noema_owner') THEN
            CREATE ROLE noema_owner LOGIN;
        END IF;
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'noema_redactor') THEN
            CREATE ROLE noema_redactor NOLOGIN;
        END IF;
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'noema_app') THEN
            CREATE ROLE noema_app LOGIN;
        END IF;
    END $$;
    -- The owner hands noema_redact() over to the redactor, which takes membership in it.
    GRANT noema_redactor TO noema_owner WITH ADMIN OPTION;
"""

_HAS_DATABASE = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'noema')"

_CREATE_DATABASE = "CREATE DATABASE noema OWNER noema_owner"

_VECTOR = """
    SELECT a.default_version, e.extversion
    FROM pg_available_extensions a LEFT JOIN pg_extension e ON e.extname = a.name
    WHERE a.name = 'vector'
"""

_CREATE_VECTOR = "CREATE EXTENSION vector"

_UPDATE_VECTOR = "ALTER EXTENSION vector UPDATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """How to reach a running embedded server, and what the operator should know about it."""

    owner_dsn: str
    app_dsn: str
    superuser_dsn: str
    data_dir: Path
    notes: tuple[str, ...] = ()


async def running(data_dir: Path, *, fallback_root: Path = FALLBACK_ROOT) -> Cluster | None:
    """Return the server that a daemon runs on that data directory now, or None.

    None also where this user may not see it.
    """
    asked = datadir.resolved(data_dir)
    for place in (asked, datadir.fallback_for(asked, fallback_root)):
        cluster = _read_record(place)
        if cluster is not None and _is_ours(cluster) and await _answers(cluster.app_dsn):
            return cluster
    return None


class EmbeddedPostgres:
    """One data directory's server, owned by this process between `start` and `stop`."""

    def __init__(
        self, data_dir: Path, clock: Clock, *, fallback_root: Path = FALLBACK_ROOT
    ) -> None:
        self._asked = data_dir
        self._clock = clock
        self._fallback_root = fallback_root
        self._root: Path | None = None
        self._lock: Lock | None = None
        self._postmaster: Postmaster | None = None
        self._temporary: Path | None = None

    async def start(self, *, timeout_s: float = 300.0) -> Cluster:
        """Own the directory, make the cluster on first use, and return when it takes queries.

        The time-out is generous because the server may have to recover from a crash first. Raises
        DataDirBusy where another daemon owns the directory, ConfigError where it cannot be used,
        Unavailable where the server does not come up; nothing is left running then.
        """
        deadline = self._clock.monotonic() + timeout_s
        try:
            return await self._start(deadline)
        except OSError as exc:
            await self.stop()
            raise datadir.unusable(self._root or self._asked, exc) from exc
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Shut the server down and give the directory up; may be called at any time, and again."""
        if self._lock is not None and self._root is not None:
            with suppress(OSError):
                (self._root / _RECORD).unlink(missing_ok=True)
        try:
            if self._postmaster is not None:
                await self._postmaster.stop()
        finally:
            self._postmaster = None
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
                self._temporary = None
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    async def _start(self, deadline: float) -> Cluster:
        user = server_user()
        place = datadir.choose(self._asked, user, self._fallback_root)
        root = place.path
        datadir.make(root, user)
        self._lock = Lock.take(root)
        self._root = root
        layout = Layout(
            programs=programs(user, root),
            data=root / CLUSTER,
            sockets=self._socket_dir(root, user),
            log=root / "postgres.log",
            user=user,
        )
        turn_over(layout.log)
        if not layout.data.exists():
            await _make_whole(layout, root, self._clock, deadline)
        self._postmaster = Postmaster(layout, self._clock)
        await self._come_up(self._postmaster, layout, deadline)
        await _prepare(layout.sockets)
        cluster = Cluster(
            owner_dsn=_dsn(layout.sockets, "noema_owner"),
            app_dsn=_dsn(layout.sockets, "noema_app"),
            superuser_dsn=_dsn(layout.sockets, "postgres"),
            data_dir=root,
            notes=place.notes,
        )
        _write_record(cluster)
        return cluster

    def _socket_dir(self, root: Path, user: ServerUser | None) -> Path:
        sockets = root / "run"
        if not _fits(sockets):
            sockets = self._temporary = _temporary_dir(user)
        datadir.give(sockets, user)
        return sockets

    async def _come_up(self, postmaster: Postmaster, layout: Layout, deadline: float) -> None:
        """Start the server until it takes queries.

        It may refuse a few times: the backends of a killed predecessor hold its shared memory
        until they notice.
        """
        dsn = _dsn(layout.sockets, "postgres", "postgres")
        attempts = 0
        begin = layout.log.stat().st_size if layout.log.exists() else 0
        await postmaster.start(deadline)
        while not await _answers(dsn):
            if not postmaster.alive:
                attempts += 1
                if attempts > _RETRIES:
                    raise Unavailable(_complaint("does not start", layout, begin))
                await self._clock.sleep(_RETRY_S)
                await postmaster.start(deadline)
            if self._clock.monotonic() > deadline:
                raise Unavailable(_complaint("is not ready in time", layout, begin))
            await self._clock.sleep(_POLL_S)


def _complaint(what: str, layout: Layout, begin: int) -> str:
    words = last_words(layout.log, begin)
    return f"The embedded PostgreSQL {what}: {words} See {layout.log}."


async def _make_whole(layout: Layout, root: Path, clock: Clock, deadline: float) -> None:
    # Made aside and renamed: a crash in between leaves no half-made cluster under the real name.
    aside = _empty_aside(root, layout.user)
    try:
        await make_cluster(layout, aside, clock, deadline)
        os.rename(aside, layout.data)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _empty_aside(root: Path, user: ServerUser | None) -> Path:
    for unfinished in root.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=root))
    datadir.give(aside, user)
    return aside


async def _prepare(sockets: Path) -> None:
    """Make roles, database and extension, whichever is missing."""
    conn = await asyncpg.connect(_dsn(sockets, "postgres", "postgres"), timeout=30)
    try:
        await conn.execute(_ROLES)
        if not await conn.fetchval(_HAS_DATABASE):
            await conn.execute(_CREATE_DATABASE)
    finally:
        await conn.close()
    conn = await asyncpg.connect(_dsn(sockets, "postgres"), timeout=30)
    try:
        vector = await conn.fetchrow(_VECTOR)
        if vector is not None and vector["extversion"] is None:
            await conn.execute(_CREATE_VECTOR)
        elif vector is not None and vector["extversion"] != vector["default_version"]:
            await conn.execute(_UPDATE_VECTOR)
    finally:
        await conn.close()


def _dsn(sockets: Path, user: str, database: str = "noema") -> str:
    return f"postgresql://{user}@/{database}?host={quote(str(sockets))}&port={PORT}"


def _is_ours(cluster: Cluster) -> bool:
    # The record may have outlived its server, and another user may have made a socket directory
    # of the same name since, to be talked to in the server's place.
    sockets = parse_qs(urlsplit(cluster.app_dsn).query)["host"][0]
    try:
        return Path(sockets).stat().st_uid == (cluster.data_dir / CLUSTER).stat().st_uid
    except OSError:
        return False


async def _answers(dsn: str) -> bool:
    try:
        conn = await asyncpg.connect(dsn, timeout=5)
    except _NOT_READY:
        return False
    await conn.close()
    return True


def _fits(sockets: Path) -> bool:
    text = str(sockets)
    return len(os.fsencode(text)) <= _LONGEST_SOCKET_DIR and _PLAIN_PATH.match(text) is not None


def _temporary_dir(user: ServerUser | None) -> Path:
    for base in (Path(tempfile.gettempdir()).resolve(), Path("/tmp").resolve()):  # noqa: S108
        # mkdtemp makes a name nobody can guess, and the directory is ours alone from the start.
        if _fits(base / f"{_TEMPORARY}12345678") and can_enter(base, user):
            return Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=base))
    raise Unavailable(
        "The data directory's path is too long or too unusual for a socket, and no temporary "
        "directory can hold one. Name a shorter one with NOEMA_DATA_DIR."
    )


def _write_record(cluster: Cluster) -> None:
    path = cluster.data_dir / _RECORD
    unfinished = path.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(cluster) | {"data_dir": str(cluster.data_dir)}, file)
    unfinished.replace(path)


def _read_record(place: Path) -> Cluster | None:
    try:
        values = json.loads((place / _RECORD).read_text())
        return Cluster(
            owner_dsn=values["owner_dsn"],
            app_dsn=values["app_dsn"],
            superuser_dsn=values["superuser_dsn"],
            data_dir=Path(values["data_dir"]),
            notes=tuple(values["notes"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None

"""Where the benchmarks run: one server, a fresh migrated database for each, their own daemons."""

import asyncio
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

from noema.auth.access import Access
from noema.core.clock import SystemClock, UuidV7Ids
from noema.db import migrate
from noema.db.embedded import EmbeddedPostgres
from noema.db.keys import Keys
from noema.db.protection import choose_role
from noema.db.tx import Database, connect
from tests.helpers import with_database

_LISTENS: Final = re.compile(r"listens on (http://\S+)")
_START_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One migrated database and how to get in: as administrator, as owner, as the daemon."""

    name: str
    admin_dsn: str
    owner_dsn: str
    app_dsn: str
    role: str | None

    @asynccontextmanager
    async def admin(self) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        conn: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(self.admin_dsn)
        try:
            yield conn
        finally:
            await conn.close()

    @asynccontextmanager
    async def open(self, *, size: int = 10) -> AsyncIterator[Database]:
        async with connect(
            self.app_dsn, clock=SystemClock(), min_size=1, max_size=size, role=self.role
        ) as db:
            yield db


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server under test: the embedded one, or the one that DATABASE_URL names."""

    admin_dsn: str
    owner_dsn: str
    app_dsn: str
    is_embedded: bool

    @asynccontextmanager
    async def database(self) -> AsyncIterator[Place]:
        """Yield a fresh migrated database; it is dropped afterwards."""
        name = f"noema_bench_{secrets.token_hex(6)}"
        owner = " OWNER noema_owner" if self.is_embedded else ""
        await _run(self.admin_dsn, f'CREATE DATABASE "{name}"{owner}')
        try:
            owner_dsn = with_database(self.owner_dsn, name)
            app_dsn = with_database(self.app_dsn, name)
            await migrate.up(owner_dsn)
            yield Place(
                name=name,
                admin_dsn=with_database(self.admin_dsn, name),
                owner_dsn=owner_dsn,
                app_dsn=app_dsn,
                role=await choose_role(app_dsn),
            )
        finally:
            await _run(self.admin_dsn, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _reachable_dir() -> Path:
    # Root lends the server to another user, who must be able to get in.
    directory = Path(tempfile.mkdtemp(prefix="noema-bench-", dir="/tmp")).resolve()
    directory.chmod(0o711)
    return directory


@asynccontextmanager
async def server() -> AsyncIterator[Server]:
    """Yield the configured server, or an embedded one that is thrown away afterwards."""
    url = os.environ.get("DATABASE_URL")
    if url:
        owner = os.environ.get("NOEMA_OWNER_DATABASE_URL") or url
        yield Server(admin_dsn=owner, owner_dsn=owner, app_dsn=url, is_embedded=False)
        return
    directory = _reachable_dir()
    embedded = EmbeddedPostgres(directory / "data", SystemClock())
    try:
        cluster = await embedded.start()
        yield Server(
            admin_dsn=cluster.superuser_dsn,
            owner_dsn=cluster.owner_dsn,
            app_dsn=cluster.app_dsn,
            is_embedded=True,
        )
    finally:
        await embedded.stop()
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A daemon in a process of its own, and a token that lets in."""

    pid: int
    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@asynccontextmanager
async def daemon(place: Place) -> AsyncIterator[Daemon]:
    """Run `noema serve` on the database, on a free loopback port, until the block ends."""
    clock = SystemClock()
    async with place.open(size=2) as db:
        keys = Keys(db=db, key=None, data_dir=Path("/nonexistent"))
        token = await Access(db=db, clock=clock, ids=UuidV7Ids(clock), keys=keys).create_token(
            "bench"
        )
    with tempfile.TemporaryDirectory(prefix="noema-bench-") as directory:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "noema", "serve",
            env=_environment(place, Path(directory)), cwd=directory,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output: list[str] = []
        try:
            url = await _address(process, output)
            async with asyncio.TaskGroup() as group:
                draining = group.create_task(_drain(process))
                yield Daemon(pid=process.pid, url=url, token=token)
                draining.cancel()
        finally:
            if process.returncode is None:
                process.terminate()
            try:
                async with asyncio.timeout(30):
                    await process.wait()
            except TimeoutError:
                process.kill()


def _environment(place: Place, directory: Path) -> Mapping[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("NOEMA_")}
    # Found from any directory, also where the package is not installed but run from its checkout.
    here = str(Path(__file__).resolve().parents[2])
    return kept | {
        "DATABASE_URL": place.app_dsn,
        "NOEMA_OWNER_DATABASE_URL": place.owner_dsn,
        "NOEMA_DATA_DIR": str(directory / "data"),
        "NOEMA_PORT": "0",
        "NOEMA_LOG_LEVEL": "warning",
        "PYTHONPATH": os.pathsep.join(p for p in (here, kept.get("PYTHONPATH", "")) if p),
    }


async def _address(process: asyncio.subprocess.Process, output: list[str]) -> str:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_S):
            while line := (await process.stdout.readline()).decode():
                output.append(line)
                if found := _LISTENS.search(line):
                    return found.group(1)
    except TimeoutError:
        pass
    raise RuntimeError("the daemon did not start:\n" + "".join(output))


async def _drain(process: asyncio.subprocess.Process) -> None:
    # Among what it says is a link that lets people in, so nothing of it is shown. A full pipe would
    # stop it.
    assert process.stdout is not None
    while await process.stdout.readline():
        pass


async def _run(dsn: str, statement: str) -> None:
    conn = await asyncpg.connect(dsn)
    try:
        await conn.execute(statement)
    finally:
        await conn.close()

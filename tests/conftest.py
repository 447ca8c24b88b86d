"""A real PostgreSQL for the tests that need one.

`DATABASE_URL` names a server to use; without it each pytest process starts an embedded one. The
schema is migrated once per process into a template, and every test that asks for `database` gets
its own copy of it, which takes milliseconds.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
import structlog
from hypothesis import HealthCheck, settings

from noema.core.clock import ManualClock, SystemClock
from noema.db import migrate, pgvector
from noema.db.embedded import EmbeddedPostgres
from noema.db.protection import choose_role
from noema.db.tx import Database, connect
from tests.helpers import with_database

# As the daemon logs. The default draws every local variable of a traceback, for seconds on end.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)

# How fast examples are drawn says how busy the machine is, and nothing of what is tested.
settings.register_profile("noema", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("noema")

# Any number for everybody: two processes that migrate at once would race for the same roles.
_MIGRATING = 20_260_101


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server and who may do what on it."""

    admin_dsn: str
    owner_dsn: str
    app_dsn: str
    embedded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TestDatabase:
    """One test's own migrated database; connect to `app_dsn` with `role`."""

    __test__ = False

    name: str
    admin_dsn: str
    owner_dsn: str
    app_dsn: str
    role: str | None


def _reachable_dir() -> Path:
    # Root lends the server to another user, who must be able to get in; pytest's own tmp_path is
    # closed to everybody else.
    path = Path(tempfile.mkdtemp(prefix="noema-test-", dir="/tmp")).resolve()
    path.chmod(0o711)
    return path


@pytest.fixture
def reachable_dir() -> Iterator[Path]:
    """A fresh directory with a short path that the embedded server's user can enter."""
    path = _reachable_dir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
async def server() -> AsyncIterator[Server]:
    """The server of this pytest process."""
    url = os.environ.get("DATABASE_URL")
    if url:
        yield Server(admin_dsn=url, owner_dsn=url, app_dsn=url, embedded=False)
        return
    directory = _reachable_dir()
    embedded = EmbeddedPostgres(directory / "data", SystemClock())
    try:
        cluster = await embedded.start()
        await _forget_the_disk(cluster.superuser_dsn)
        yield Server(
            admin_dsn=cluster.superuser_dsn,
            owner_dsn=cluster.owner_dsn,
            app_dsn=cluster.app_dsn,
            embedded=True,
        )
    finally:
        await embedded.stop()
        shutil.rmtree(directory, ignore_errors=True)


async def _forget_the_disk(dsn: str) -> None:
    # A test ends processes, never the machine: what the kernel has taken is not lost with them.
    conn = await asyncpg.connect(dsn)
    try:
        await conn.execute("ALTER SYSTEM SET fsync = off")
        await conn.execute("SELECT pg_reload_conf()")
    finally:
        await conn.close()


async def _create(server: Server, name: str, *, template: str | None = None) -> None:
    owner = " OWNER noema_owner" if server.embedded else ""
    copied = f' TEMPLATE "{template}"' if template else ""
    conn = await asyncpg.connect(server.admin_dsn)
    try:
        await conn.execute(f'CREATE DATABASE "{name}"{owner}{copied}')
    finally:
        await conn.close()


async def _drop(server: Server, name: str) -> None:
    conn = await asyncpg.connect(server.admin_dsn)
    try:
        await conn.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    finally:
        await conn.close()


@pytest.fixture(scope="session")
async def template(server: Server) -> AsyncIterator[str]:
    """The name of a migrated database that nobody is connected to."""
    name = f"noema_template_{uuid4().hex[:12]}"
    await _create(server, name)
    try:
        if server.embedded:
            conn = await asyncpg.connect(with_database(server.admin_dsn, name))
            try:
                await conn.execute("CREATE EXTENSION IF NOT EXISTS vector")
            finally:
                await conn.close()
        admin = await asyncpg.connect(server.admin_dsn)
        try:
            await admin.execute("SELECT pg_advisory_lock($1)", _MIGRATING)
            await migrate.up(with_database(server.owner_dsn, name))
            await pgvector.prepare(with_database(server.owner_dsn, name))
        finally:
            await admin.close()
        yield name
    finally:
        await _drop(server, name)


@pytest.fixture
async def empty_dsn(server: Server) -> AsyncIterator[str]:
    """The owner's DSN of a new database without a schema."""
    name = f"noema_empty_{uuid4().hex[:12]}"
    await _create(server, name)
    try:
        yield with_database(server.owner_dsn, name)
    finally:
        await _drop(server, name)


@asynccontextmanager
async def fresh_database(server: Server, template: str) -> AsyncIterator[TestDatabase]:
    """Make a migrated database that lasts as long as the block."""
    name = f"noema_test_{uuid4().hex[:12]}"
    await _create(server, name, template=template)
    try:
        app_dsn = with_database(server.app_dsn, name)
        yield TestDatabase(
            name=name,
            admin_dsn=with_database(server.admin_dsn, name),
            owner_dsn=with_database(server.owner_dsn, name),
            app_dsn=app_dsn,
            role=await choose_role(app_dsn),
        )
    finally:
        await _drop(server, name)


@pytest.fixture
async def database(server: Server, template: str) -> AsyncIterator[TestDatabase]:
    """A migrated database of this test alone."""
    async with fresh_database(server, template) as made:
        yield made


@pytest.fixture
async def db(database: TestDatabase) -> AsyncIterator[Database]:
    """The application's way into `database`, with the real time."""
    async with connect(
        database.app_dsn, clock=SystemClock(), min_size=1, max_size=10, role=database.role
    ) as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))

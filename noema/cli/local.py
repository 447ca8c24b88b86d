"""What works against the database directly, so that somebody can be let in without a daemon.

With the embedded server the running daemon's is used, or one is started for the moment.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from noema import config
from noema.app import Dsns, make_access, open_database
from noema.auth.access import Access
from noema.config import Settings
from noema.core.clock import SystemClock, UuidV7Ids
from noema.core.errors import NotFound
from noema.core.identity import LOCAL, ConsoleRole, MemoryRole
from noema.db import embedded, migrate, protection
from noema.db.tx import Database, connect


@asynccontextmanager
async def database_of(settings: Settings) -> AsyncIterator[Dsns]:
    """Yield the way to the database: configured, the running daemon's, or started for this."""
    if settings.database_url is None:
        cluster = await embedded.running(settings.data_dir)
        if cluster is not None:
            yield Dsns(
                owner=cluster.owner_dsn,
                app=cluster.app_dsn,
                is_embedded=True,
                notes=cluster.notes,
            )
            return
    async with open_database(settings, SystemClock()) as dsns:
        yield dsns


@asynccontextmanager
async def _database(dsns: Dsns) -> AsyncIterator[Database]:
    role = await protection.choose_role(dsns.app)
    async with connect(dsns.app, clock=SystemClock(), max_size=2, role=role) as db:
        yield db


@asynccontextmanager
async def _access(settings: Settings) -> AsyncIterator[Access]:
    """Yield who may come in, with the schema brought up to date first."""
    clock = SystemClock()
    async with database_of(settings) as dsns:
        await migrate.up(dsns.owner)
        async with _database(dsns) as db:
            access = make_access(settings, db, clock=clock, ids=UuidV7Ids(clock))
            try:
                yield access
            finally:
                access.close()


async def create_user(
    name: str, role: str, password: str, namespace: str, memory_role: str
) -> None:
    """Create a person straight in the database, with a first membership."""
    async with _access(config.load()) as access:
        await access.users.create(
            LOCAL,
            name=name,
            role=ConsoleRole(role),
            password=password,
            namespace=namespace,
            memory_role=MemoryRole(memory_role),
        )


async def unlock_user(name: str) -> None:
    """Forgive a person's failed logins straight in the database."""
    async with _access(config.load()) as access:
        await access.users.unlock(LOCAL, name)


async def create_token(name: str) -> str:
    """Make an administrator's token, with the schema brought up to date first; return it."""
    async with _access(config.load()) as access:
        return await access.create_token(name)


async def new_link() -> str:
    """Return a one-time link into the daemon that the settings describe.

    Where there is nobody whom it could let in as, it is the one that makes the first administrator.
    """
    settings = config.load()
    async with _access(settings) as access:
        try:
            return await access.new_link(base_url=settings.base_url)
        except NotFound:
            first = await access.setup.first_link(base_url=settings.base_url)
            if first is None:
                raise
            return first


async def migrate_status() -> list[dict[str, Any]]:
    """Return every migration and its state."""
    async with database_of(config.load()) as dsns:
        return [
            {"version": m.version, "name": m.name, "state": m.state, "applied_at": m.applied_at}
            for m in await migrate.status(dsns.owner)
        ]

"""A memory kernel on a benchmark's database, without the limits that people are under."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import asyncpg

from noema.core.clock import SystemClock
from noema.core.identity import MemoryRole
from noema.db.pgvector import Vectors, prepare
from noema.llm.model import Embedder
from noema.memory.model import PolicyDocument
from tests.bench.place import Place
from tests.conftest import TestDatabase
from tests.memories import Memories, memories

_CALLS: Final = 1_000_000


async def prepared(place: Place) -> Vectors:
    """Make the vectors pgvector's where the server has it, as a start of the daemon does."""
    async with place.admin() as admin:
        with suppress(asyncpg.PostgresError):
            await admin.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return await prepare(place.owner_dsn)


@asynccontextmanager
async def governed(
    place: Place, tenant: str, *, embedder: Embedder | None = None, pool: int = 10
) -> AsyncIterator[Memories]:
    """Yield a kernel whose `tenant` may call as often as it likes; hashing embeds by default."""
    database = TestDatabase(
        name=place.name,
        admin_dsn=place.admin_dsn,
        owner_dsn=place.owner_dsn,
        app_dsn=place.app_dsn,
        role=place.role,
    )
    async with memories(database, SystemClock(), embedder=embedder, pool=pool) as mem:
        await mem.places(tenant)
        await mem.kernel.set_policy(
            mem.who(tenant, "owner", MemoryRole.OWNER),
            tenant,
            PolicyDocument(reads_per_minute=_CALLS, writes_per_minute=_CALLS),
        )
        yield mem

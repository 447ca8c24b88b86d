"""A memory kernel over a test's own database, and quick ways to fill it.

async with memories(database, clock) as mem:
    ada = mem.who("acme/eng", "ada")
    id_ = await mem.wrote(ada, "The disk failed.")
    found = await mem.kernel.mem_read(ada, Read(id=id_))
    rows = await mem.audited("mem.read")
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

from noema.auth.access import Access
from noema.core.clock import Clock, Ids, UuidV7Ids
from noema.core.identity import LOCAL, ConsoleRole, Identity, MemoryRole, namespace_ancestors
from noema.db.keys import Keys
from noema.db.pgvector import inspect
from noema.db.tx import Database, connect
from noema.events.audit import AuditRow
from noema.llm.embedders.hash import HashEmbedder
from noema.llm.model import Embedder
from noema.memory.embedding import Destination
from noema.memory.kernel import Kernel
from noema.memory.model import Kind, Write, WriteResult
from noema.memory.retrieve import SESSION_SETTINGS
from noema.memory.service import MemoryService, make_memory
from tests.conftest import TestDatabase

_ROW = """
    INSERT INTO memories (id, namespace, kind, epistemic_kind, status, text, dedupe_key, terms,
        assertion_time, t_valid_from, t_valid_to, supersedes, route, trust, actor, agent_id,
        sensitivity, classifier, activation_epoch)
    VALUES ($1, $2, $3, 'fact', $4, $5, $6, $7, $8, $8, $9, $10, 'manual', 50, 'user:put', 'http',
        'internal', 'test', 0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memories:
    """A kernel and the way behind it. `service` is not running; `flush` does what it would."""

    service: MemoryService
    access: Access
    db: Database
    clock: Clock
    ids: Ids
    embedder: Embedder | None
    _places: set[str] = field(default_factory=lambda: {"home"})

    @property
    def kernel(self) -> Kernel:
        return self.service.kernel

    def who(
        self,
        namespace: str = "home",
        name: str = "ada",
        role: MemoryRole = MemoryRole.MEMBER,
        *,
        actor: str | None = None,
        agent_id: str = "http",
    ) -> Identity:
        return Identity(
            namespace=namespace,
            actor=actor or f"user:{name}",
            role=role,
            console=ConsoleRole.NONE,
            agent_id=agent_id,
        )

    async def places(self, *paths: str) -> None:
        """Make the namespaces, those above them, and their tenants, where there are none."""
        for path in paths:
            tenant = path.partition("/")[0]
            if tenant not in self._places:
                await self.access.tenants.create(LOCAL, tenant)
                self._places.add(tenant)
            for above in namespace_ancestors(path):
                if above not in self._places:
                    await self.access.tenants.create_namespace(LOCAL, above)
                    self._places.update(namespace_ancestors(above))

    async def put(
        self,
        namespace: str,
        text: str = "The disk failed.",
        *,
        kind: Kind = Kind.FACT,
        status: str = "active",
        terms: Sequence[str] = (),
        valid_to: datetime | None = None,
        supersedes: UUID | None = None,
    ) -> UUID:
        """Store a row past the write path, for tests that are not about writing."""
        await self.places(namespace)
        id_ = self.ids.new()
        key = sha256(id_.bytes).digest()
        async with self.db.transaction() as tx:
            await tx.conn.execute(
                _ROW, id_, namespace, kind.value, status, text, key, list(terms), tx.now, valid_to,
                supersedes,
            )  # fmt: skip
        return id_

    async def wrote(self, who: Identity, text: str, **fields: Any) -> UUID:
        """Write one memory through the kernel; return its id."""
        result = await self.kernel.mem_write(who, Write(text=text, **fields))
        assert isinstance(result, WriteResult), result
        assert result.items[0].id is not None, result
        return result.items[0].id

    async def audited(self, op: str) -> list[AuditRow]:
        """Return the audit rows of the syscall, oldest first."""
        return list(reversed(await self.access.audit.search(op=op, limit=500)))

    async def flush(self) -> None:
        await self.service.flush()

    async def fetch(self, sql: str, *values: object) -> list[Any]:
        async with self.db.reading() as tx:
            return list(await tx.conn.fetch(sql, *values))


@asynccontextmanager
async def memories(
    database: TestDatabase,
    clock: Clock,
    *,
    embedder: Embedder | None = None,
    destination: Destination = "local",
    pool: int = 10,
) -> AsyncIterator[Memories]:
    """Yield a kernel over the database; hashing embeds unless another embedder is given."""
    ids = UuidV7Ids(clock)
    embedder = embedder or HashEmbedder()
    async with (
        connect(database.app_dsn, clock=clock, min_size=1, max_size=pool, role=database.role) as db,
        connect(
            database.app_dsn,
            clock=clock,
            min_size=1,
            max_size=pool,
            role=database.role,
            settings=SESSION_SETTINGS,
        ) as searching,
    ):
        keys = Keys(db=db, key=bytes(range(32)), data_dir=Path("/nonexistent"))
        async with db.reading() as tx:
            vectors = await inspect(tx)
        access = Access(db=db, clock=clock, ids=ids, keys=keys)
        try:
            service = await make_memory(
                db=db,
                searching=searching,
                clock=clock,
                ids=ids,
                audit=access.audit,
                is_active=access.tenants.is_active,
                embedder=embedder,
                destination=destination,
                vectors=vectors,
            )
            yield Memories(
                service=service, access=access, db=db, clock=clock, ids=ids, embedder=embedder
            )
        finally:
            access.close()

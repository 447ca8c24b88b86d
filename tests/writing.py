"""The write path over a test's own database, without the kernel around it.

paths = await WriteHouse.open(db)
result = await paths.write("The disk failed.", namespace="acme/eng")
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from noema.core.clock import Clock, SystemClock, UuidV7Ids
from noema.core.identity import ConsoleRole, Identity, MemoryRole, namespace_ancestors
from noema.db.tx import Database
from noema.events.audit import Audit, AuditRow
from noema.llm.embedders.hash import HashEmbedder
from noema.llm.model import Embedder
from noema.memory.frame import Frame
from noema.memory.model import EffectivePolicy, Scope, TurnIn, Write, WriteResult
from noema.memory.write import WritePath

_TENANT = "INSERT INTO tenants (name, created_by) VALUES ($1, 't') ON CONFLICT DO NOTHING"

_NAMESPACE = """
    INSERT INTO namespaces (path, tenant, created_by) VALUES ($1, $2, 't') ON CONFLICT DO NOTHING
"""


def identity(
    namespace: str = "acme/eng",
    *,
    actor: str = "user:ada",
    role: MemoryRole = MemoryRole.MEMBER,
    agent_id: str = "http",
) -> Identity:
    return Identity(
        namespace=namespace, actor=actor, role=role, console=ConsoleRole.NONE, agent_id=agent_id
    )


def frame_of(
    who: Identity,
    now: datetime,
    *,
    op: str = "mem.write",
    conflict_review: Any = "auto",
    max_text_chars: int = 8_000,
    shared: Sequence[UUID] = (),
) -> Frame:
    """A frame as the prologue makes it, for an identity without grants but those named."""
    own = namespace_ancestors(who.namespace)
    return Frame(
        who=who,
        op=op,
        scope=Scope(writable=who.namespace, own=own, namespaces=own, memories=tuple(shared)),
        policy=EffectivePolicy(
            namespace=who.namespace,
            driver="baseline",
            reads_per_minute=10_000,
            writes_per_minute=10_000,
            max_text_chars=max_text_chars,
            retention_days=None,
            conflict_review=conflict_review,
            directives=(),
            digest="",
        ),
        now=now,
    )


async def make_namespaces(db: Database, *paths: str) -> None:
    async with db.transaction() as tx:
        for path in paths:
            for above in namespace_ancestors(path):
                tenant = above.partition("/")[0]
                await tx.conn.execute(_TENANT, tenant)
                await tx.conn.execute(_NAMESPACE, above, tenant)


@dataclass(slots=True, kw_only=True)
class WriteHouse:
    """A write path, and quick ways to use it and to look at what it left."""

    db: Database
    clock: Clock
    audit: Audit
    path: WritePath

    @classmethod
    async def open(
        cls,
        db: Database,
        *,
        clock: Clock | None = None,
        embedder: Embedder | None = None,
        has_embedder: bool = True,
        namespaces: Sequence[str] = ("acme/eng", "acme/eng/db", "other"),
        **options: Any,
    ) -> "WriteHouse":
        clock = clock or SystemClock()
        ids = UuidV7Ids(clock)
        audit = Audit(db=db, ids=ids)
        await make_namespaces(db, *namespaces)
        path = WritePath(
            db=db,
            audit=audit,
            ids=ids,
            clock=clock,
            embedder=(embedder or HashEmbedder()) if has_embedder else None,
            **options,
        )
        return cls(db=db, clock=clock, audit=audit, path=path)

    async def write(
        self,
        text: str | None = None,
        *,
        who: Identity | None = None,
        namespace: str = "acme/eng",
        key: str | None = None,
        frame: Frame | None = None,
        **fields: Any,
    ) -> WriteResult:
        """Write as somebody of the namespace; `fields` are those of the request."""
        frame = frame or frame_of(who or identity(namespace), self.clock.now())
        return await self.path.write(frame, Write(text=text, **fields), key=key)

    async def wrote(self, text: str, **fields: Any) -> UUID:
        """Write one memory; return its id."""
        result = await self.write(text, **fields)
        assert result.items[0].id is not None, result
        return result.items[0].id

    async def say(
        self, *turns: tuple[str, str] | tuple[str, str, datetime | None], **fields: Any
    ) -> WriteResult:
        """Write a transcript of (speaker, text) or (speaker, text, at)."""
        messages = tuple(
            TurnIn(speaker=turn[0], text=turn[1], at=turn[2] if len(turn) == 3 else None)
            for turn in turns
        )
        return await self.write(messages=messages, **fields)

    async def fetch(self, sql: str, *values: object) -> list[Any]:
        async with self.db.reading() as tx:
            return list(await tx.conn.fetch(sql, *values))

    async def row(self, id_: UUID | None) -> Any:
        rows = await self.fetch("SELECT * FROM memories WHERE id = $1", id_)
        return rows[0]

    async def rows(self, where: str = "true", *values: object) -> list[Any]:
        return await self.fetch(
            f"SELECT * FROM memories WHERE {where} ORDER BY assertion_time, position, id", *values
        )

    async def audited(self) -> list[AuditRow]:
        """Return the audit rows, oldest first."""
        return list(reversed(await self.audit.search(limit=500)))

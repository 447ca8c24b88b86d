"""Memories as rows with everything that entities, conflicts and lineage look at, and frames.

async with world(database, clock) as here:
    fact = await here.put("acme/eng", "Ada's employer is Acme.", trust=40)
    frame = here.frame("acme/eng", role=MemoryRole.ADMIN)
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from noema.core.canonical import escape
from noema.core.clock import Clock, UuidV7Ids
from noema.core.identity import ConsoleRole, Identity, MemoryRole, namespace_ancestors
from noema.db.tx import Database, connect
from noema.events.audit import Audit, AuditRow
from noema.memory.analyse import terms
from noema.memory.frame import Frame
from noema.memory.model import Scope
from noema.memory.normalise import dedupe_key
from noema.memory.policy import merged
from noema.memory.work import Work
from tests.conftest import TestDatabase

_TENANT = "INSERT INTO tenants (name, created_by) VALUES ($1, 't') ON CONFLICT DO NOTHING"

_NAMESPACE = """
    INSERT INTO namespaces (path, tenant, created_by)
    SELECT p, split_part(p, '/', 1), 't' FROM unnest($1::text[]) p ON CONFLICT DO NOTHING
"""

_PUT = """
    INSERT INTO memories (id, namespace, kind, epistemic_kind, text, content, dedupe_key, terms,
        event_time, assertion_time, t_valid_from, route, trust, actor, agent_id, sensitivity,
        classifier, activation_epoch, speaker, status)
    VALUES ($1, $2, $3, 'fact', $4, $5, $6, $7, $8, $9, $9, 'document', $10, $11, 'http',
            'internal', 'test', 0, $12, $13)
"""

_DERIVE = """
    INSERT INTO derivations (from_id, to_id, kind)
    SELECT s, $2, 'memory.derived' FROM unnest($1::uuid[]) s
"""

_DUE = "INSERT INTO conflict_checks (memory_id, due_at) VALUES ($1, $2)"

_STATE = "SELECT id, status, t_valid_to, supersedes FROM memories ORDER BY id"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A database with what works on it."""

    db: Database
    clock: Clock
    ids: UuidV7Ids
    audit: Audit
    work: Work

    async def place(self, namespace: str) -> None:
        async with self.db.transaction() as tx:
            await tx.conn.execute(_TENANT, namespace.partition("/")[0])
            await tx.conn.execute(_NAMESPACE, list(namespace_ancestors(namespace)))

    async def put(
        self,
        namespace: str,
        text: str,
        *,
        kind: str = "fact",
        content: Mapping[str, Any] | None = None,
        trust: int = 40,
        event_time: datetime | None = None,
        at: datetime | None = None,
        actor: str = "user:ada",
        speaker: str | None = None,
        due: bool = False,
        derived_from: Sequence[UUID] = (),
        status: str = "active",
    ) -> UUID:
        """Store a row as it would be written by that actor at that time; return its id."""
        await self.place(namespace)
        id_ = self.ids.new()
        async with self.db.transaction() as tx:
            when = at or tx.now
            await tx.conn.execute(
                _PUT, id_, namespace, kind, escape(text), dict(content or {}), dedupe_key(text),
                [escape(t) for t in terms(text)], event_time, when, trust, actor,
                speaker, status,
            )  # fmt: skip
            if due:
                await tx.conn.execute(_DUE, id_, when)
            if derived_from:
                await tx.conn.execute(_DERIVE, list(derived_from), id_)
        return id_

    def frame(
        self,
        namespace: str,
        *,
        role: MemoryRole = MemoryRole.ADMIN,
        actor: str = "user:ada",
        op: str = "mem.test",
        shared: Sequence[UUID] = (),
    ) -> Frame:
        """Return what the prologue would hand to the body of a syscall."""
        own = namespace_ancestors(namespace)
        who = Identity(
            namespace=namespace, actor=actor, role=role, console=ConsoleRole.NONE, agent_id="http"
        )
        scope = Scope(writable=namespace, own=own, namespaces=own, memories=tuple(shared))
        policy = merged(namespace, [])
        return Frame(who=who, op=op, scope=scope, policy=policy, now=self.clock.now())

    async def state(self) -> dict[UUID, tuple[object, ...]]:
        """Return status, end of validity and predecessor of every memory."""
        rows = await self.fetch(_STATE)
        return {r["id"]: (r["status"], r["t_valid_to"], r["supersedes"]) for r in rows}

    async def fetch(self, sql: str, *values: object) -> list[Any]:
        async with self.db.reading() as tx:
            return list(await tx.conn.fetch(sql, *values))

    async def execute(self, sql: str, *values: object) -> None:
        async with self.db.transaction() as tx:
            await tx.conn.execute(sql, *values)

    async def audited(self, op: str) -> list[AuditRow]:
        """Return the audit rows of the act, oldest first."""
        return list(reversed(await self.audit.search(op=op, limit=500)))


@asynccontextmanager
async def world(database: TestDatabase, clock: Clock, *, pool: int = 10) -> AsyncIterator[World]:
    """Yield the test's database with time that moves when it is told to."""
    ids = UuidV7Ids(clock)
    async with connect(
        database.app_dsn, clock=clock, min_size=1, max_size=pool, role=database.role
    ) as db:
        audit = Audit(db=db, ids=ids)
        yield World(db=db, clock=clock, ids=ids, audit=audit, work=Work(db=db, audit=audit))

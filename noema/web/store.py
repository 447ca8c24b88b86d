"""All SQL of the pages: reads that no other package needs."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from noema.core.canonical import unescape_tree
from noema.core.errors import NotFound
from noema.db import migrate
from noema.db.migrate import MigrationStatus
from noema.db.tx import Database

_CYCLES = """
    SELECT cycle_id, occurred_at, data, content FROM cognitive_events
    WHERE mind_id = $1 AND type = 'cycle.completed' AND (data ->> 'number')::bigint < $2
      AND ($3::text IS NULL OR data ->> 'trigger' = $3)
    ORDER BY (data ->> 'number')::bigint DESC LIMIT $4
"""

_CYCLES_UP = """
    SELECT cycle_id, occurred_at, data, content FROM cognitive_events
    WHERE mind_id = $1 AND type = 'cycle.completed' AND (data ->> 'number')::bigint > $2
      AND ($3::text IS NULL OR data ->> 'trigger' = $3)
    ORDER BY (data ->> 'number')::bigint LIMIT $4
"""

_CYCLE_ID = """
    SELECT cycle_id FROM cognitive_events
    WHERE mind_id = $1 AND type = 'cycle.completed' AND (data ->> 'number')::bigint = $2
"""

_CYCLE_NUMBERS = """
    SELECT cycle_id, (data ->> 'number')::bigint AS number FROM cognitive_events
    WHERE cycle_id = ANY($1::uuid[]) AND type = 'cycle.completed'
"""

_PER_MINUTE = """
    SELECT floor(extract(epoch FROM $2::timestamptz - occurred_at) / 60)::int AS minutes_ago,
           count(*) AS cycles
    FROM (
        SELECT occurred_at FROM cognitive_events
        WHERE mind_id = $1 AND type = 'cycle.completed'
        ORDER BY (data ->> 'number')::bigint DESC LIMIT 5000
    ) newest
    WHERE occurred_at > $3 GROUP BY 1
"""

_SLUGS = "SELECT id, slug FROM minds"

_COUNTS = """
    SELECT (SELECT count(*) FROM minds) AS minds,
           (SELECT coalesce(max(seq), 0) FROM cognitive_events) AS head,
           pg_database_size(current_database()) AS database_bytes
"""

_PARTITIONS = """
    SELECT c.relname AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds,
           pg_total_relation_size(c.oid) AS bytes
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'cognitive_events'::regclass ORDER BY c.relname
"""

_LEASES = """
    SELECT m.slug, l.owner, l.epoch, l.until, l.until > clock_timestamp() AS is_held
    FROM mind_leases l JOIN minds m ON m.id = l.mind_id ORDER BY m.slug LIMIT 200
"""



class Pages:
    """Reads for the pages and the API; each is one transaction."""

    def __init__(self, *, db: Database) -> None:
        self._db = db
        self._slugs: dict[UUID, str] = {}

    async def cycles(
        self,
        mind: UUID,
        *,
        before: int | None = None,
        trigger: str | None = None,
        limit: int = 50,
    ) -> list[Mapping[str, Any]]:
        """Return completed cycles below the number, newest first: cycle_id, occurred_at, data, content."""
        async with self._db.reading() as tx:
            rows = await tx.conn.fetch(
                _CYCLES, mind, 2**62 if before is None else before, trigger, limit
            )
        return [{**r, "content": unescape_tree(r["content"])} for r in rows]

    async def cycles_after(
        self, mind: UUID, number: int, *, trigger: str | None = None, limit: int = 50
    ) -> list[Mapping[str, Any]]:
        """Return completed cycles above the number, oldest first."""
        async with self._db.reading() as tx:
            rows = await tx.conn.fetch(_CYCLES_UP, mind, number, trigger, limit)
        return [{**r, "content": unescape_tree(r["content"])} for r in rows]

    async def cycle_id(self, mind: UUID, number: int) -> UUID:
        """Return the id of the mind's cycle of that number, or raise NotFound."""
        async with self._db.reading() as tx:
            found: UUID | None = await tx.conn.fetchval(_CYCLE_ID, mind, number)
        if found is None:
            raise NotFound("cycle", number)
        return found

    async def cycle_numbers(self, cycle_ids: list[UUID]) -> dict[UUID, int]:
        """Return the number of each cycle that is complete."""
        if not cycle_ids:
            return {}
        async with self._db.reading() as tx:
            rows = await tx.conn.fetch(_CYCLE_NUMBERS, cycle_ids)
        return {r["cycle_id"]: r["number"] for r in rows}

    async def cycles_per_minute(self, mind: UUID, now: datetime) -> tuple[int, ...]:
        """Return the cycles of each of the last sixty minutes, oldest first."""
        async with self._db.reading() as tx:
            rows = await tx.conn.fetch(_PER_MINUTE, mind, now, now - timedelta(minutes=60))
        by_minute = {r["minutes_ago"]: r["cycles"] for r in rows}
        return tuple(by_minute.get(ago, 0) for ago in range(59, -1, -1))

    async def slug_of(self, mind: UUID | None) -> str | None:
        """Return the mind's slug; slugs never change, so they are kept."""
        if mind is None:
            return None
        if mind not in self._slugs:
            async with self._db.reading() as tx:
                self._slugs = {r["id"]: r["slug"] for r in await tx.conn.fetch(_SLUGS)}
        return self._slugs.get(mind)

    async def counts(self) -> Mapping[str, Any]:
        """Return minds, head of the log and size of the database in bytes."""
        async with self._db.reading() as tx:
            row = await tx.conn.fetchrow(_COUNTS)
        return {} if row is None else dict(row)

    async def partitions(self) -> list[dict[str, Any]]:
        """Return the partitions of the log: name, bounds, bytes."""
        async with self._db.reading() as tx:
            return [dict(r) for r in await tx.conn.fetch(_PARTITIONS)]

    async def leases(self) -> list[dict[str, Any]]:
        """Return who holds which mind: slug, owner, epoch, until, is_held."""
        async with self._db.reading() as tx:
            return [dict(r) for r in await tx.conn.fetch(_LEASES)]

    async def migrations(self) -> list[MigrationStatus]:
        """Return every migration and whether it is applied."""
        async with self._db.reading() as tx:
            return await migrate.status_of(tx.conn)

    async def is_reachable(self) -> bool:
        """Ask the database whether it is there; raises Unavailable where it is not."""
        async with self._db.reading() as tx:
            return bool(await tx.conn.fetchval("SELECT true"))

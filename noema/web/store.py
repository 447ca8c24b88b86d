"""All SQL of the pages: reads that no other package needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from noema.core.canonical import escape, unescape, unescape_tree
from noema.core.errors import NotFound
from noema.db import migrate
from noema.db.migrate import MigrationStatus
from noema.db.tx import Database

_MINUTES: Final = 60

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
    SELECT m.id, count(*) AS cycles,
           floor(extract(epoch FROM $2::timestamptz - newest.occurred_at) / 60)::int AS minutes_ago
    FROM unnest($1::uuid[]) AS m(id) CROSS JOIN LATERAL (
        SELECT occurred_at FROM cognitive_events
        WHERE mind_id = m.id AND type = 'cycle.completed'
        ORDER BY (data ->> 'number')::bigint DESC LIMIT 5000
    ) newest
    WHERE newest.occurred_at > $3 GROUP BY 1, 3
"""

# What waits is counted to a bound. The latest winner is the thought that came into focus last: the
# workspace says which, the log what it is.
_CARDS = """
    SELECT m.id,
           (SELECT count(*) FROM (
               SELECT FROM cognitive_events w
               WHERE w.mind_id = m.id AND w.seq > m.cursor AND w.type = 'stimulus.received'
               LIMIT 100000
           ) waiting) AS backlog,
           (SELECT count(*) FROM (
               SELECT mind_id, recorded_at FROM cognitive_events f
               WHERE f.type = 'process.failed' ORDER BY f.seq DESC LIMIT 1000
           ) failed WHERE failed.mind_id = m.id AND failed.recorded_at > $2) AS failures,
           latest.cycle AS winner_cycle,
           (SELECT e.content FROM cognitive_events e WHERE e.id = latest.thought) AS winner
    FROM minds m LEFT JOIN workspace_states s ON s.mind_id = m.id LEFT JOIN LATERAL (
        SELECT (slot ->> 'thought')::uuid AS thought, (slot ->> 'cycle')::bigint AS cycle
        FROM jsonb_array_elements(s.workspace) WITH ORDINALITY AS slots(slot, place)
        ORDER BY 2 DESC, place LIMIT 1
    ) latest ON true
    WHERE m.id = ANY($1::uuid[])
"""

# No index leads from a cause to what names it; whatever follows from an event follows soon.
_FOLLOWERS = """
    SELECT id FROM (
        SELECT id, seq, causes FROM cognitive_events
        WHERE mind_id = $1 AND seq > $2 ORDER BY seq LIMIT 5000
    ) later
    WHERE $3 = ANY(causes) ORDER BY seq LIMIT $4
"""

_BY_END_OF_ID = """
    SELECT id FROM (SELECT id, seq FROM cognitive_events ORDER BY seq DESC LIMIT 20000) newest
    WHERE id::text LIKE '%' || $1 ORDER BY seq DESC LIMIT $2
"""

_MIND_NAMES = """
    SELECT slug, name, namespace, cycles FROM minds
    WHERE strpos(lower(slug || ' ' || name || ' ' || namespace), lower($1)) > 0
      OR $2::bigint <= cycles
    ORDER BY last_cycle_at DESC NULLS LAST, slug LIMIT $3
"""

_PLACES = "SELECT id, slug, namespace FROM minds"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a mind lives."""

    slug: str
    namespace: str


def _escaped(text: str | None) -> str | None:
    return None if text is None else escape(text)


class Pages:
    """Reads for the pages and the API; each is one transaction."""

    def __init__(self, *, db: Database) -> None:
        self._db = db
        self._places: dict[UUID, Place] = {}

    async def cycles(
        self,
        mind: UUID,
        *,
        before: int | None = None,
        trigger: str | None = None,
        limit: int = 50,
    ) -> list[Mapping[str, Any]]:
        """Return completed cycles below the number, newest first.

        Each has cycle_id, occurred_at, data and content.
        """
        async with self._db.reading() as tx:
            rows = await tx.conn.fetch(
                _CYCLES, mind, 2**62 if before is None else before, _escaped(trigger), limit
            )
        return [{**r, "content": unescape_tree(r["content"])} for r in rows]

    async def cycles_after(
        self, mind: UUID, number: int, *, trigger: str | None = None, limit: int = 50
    ) -> list[Mapping[str, Any]]:
        """Return completed cycles above the number, oldest first."""
        async with self._db.reading() as tx:
            rows = await tx.conn.fetch(_CYCLES_UP, mind, number, _escaped(trigger), limit)
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

    async def cycles_per_minute(
        self, minds: Sequence[UUID], now: datetime
    ) -> dict[UUID, tuple[int, ...]]:
        """Return the cycles of each of the last sixty minutes, oldest first, for every mind."""
        async with self._db.reading() as tx:
            rows = await tx.conn.fetch(
                _PER_MINUTE, list(minds), now, now - timedelta(minutes=_MINUTES)
            )
        found = {mind: [0] * _MINUTES for mind in minds}
        for row in rows:
            if 0 <= row["minutes_ago"] < _MINUTES:
                found[row["id"]][_MINUTES - 1 - row["minutes_ago"]] = row["cycles"]
        return {mind: tuple(counts) for mind, counts in found.items()}

    async def cards(self, minds: Sequence[UUID], now: datetime) -> dict[UUID, Mapping[str, Any]]:
        """Return what the list of minds shows of each beside its row.

        `backlog` counts to 100,000, `failures` those of processes in the last hour; `winner` is
        the content of the thought that came into focus last, in `winner_cycle`, None without one.
        """
        async with self._db.reading() as tx:
            rows = await tx.conn.fetch(_CARDS, list(minds), now - timedelta(hours=1))
        return {r["id"]: {**r, "winner": unescape_tree(r["winner"])} for r in rows}

    async def followers(self, mind: UUID, seq: int, event: UUID, *, limit: int = 200) -> list[UUID]:
        """Return which of the mind's next 5,000 events name the event as a cause."""
        async with self._db.reading() as tx:
            return [r["id"] for r in await tx.conn.fetch(_FOLLOWERS, mind, seq, event, limit)]

    async def by_end_of_id(self, end: str, *, limit: int = 8) -> list[UUID]:
        """Return those of the newest 20,000 events whose id ends like this."""
        async with self._db.reading() as tx:
            return [r["id"] for r in await tx.conn.fetch(_BY_END_OF_ID, end, limit)]

    async def minds_called(
        self, text: str, *, with_cycle: int | None = None, limit: int = 8
    ) -> list[Mapping[str, Any]]:
        """Return the minds whose name holds the text, or that have a cycle of that number."""
        async with self._db.reading() as tx:
            rows = await tx.conn.fetch(_MIND_NAMES, escape(text), with_cycle, limit)
        return [{**r, "name": unescape(r["name"])} for r in rows]

    async def slug_of(self, mind: UUID | None) -> str | None:
        """Return the mind's slug."""
        place = await self.place_of(mind)
        return None if place is None else place.slug

    async def place_of(self, mind: UUID | None) -> Place | None:
        """Return where the mind lives; that never changes, so it is kept."""
        if mind is None:
            return None
        if mind not in self._places:
            await self.places()
        return self._places.get(mind)

    async def places(self) -> Mapping[UUID, Place]:
        """Return where every mind lives."""
        async with self._db.reading() as tx:
            self._places = {
                r["id"]: Place(slug=r["slug"], namespace=r["namespace"])
                for r in await tx.conn.fetch(_PLACES)
            }
        return self._places

    async def known_slugs(self) -> frozenset[str]:
        """Return the slugs of all minds."""
        return frozenset(p.slug for p in (await self.places()).values())

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

"""SQL of access telemetry: many reads of many memories in one statement."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from noema.core.errors import Unavailable
from noema.db.tx import Conn, connection_lost

# The same integers as `noema.memory.decay.bumped`. Locked in the order of the ids, so that two that
# count at once do not wait for each other in a circle.
_ACCESSED = """
    WITH seen AS (
        SELECT m.id, a.times, a.at, a.missing
        FROM memories m
        JOIN unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::bigint[])
             AS a(id, times, at, missing) ON m.id = a.id
        ORDER BY m.id FOR NO KEY UPDATE OF m
    )
    UPDATE memories m
    SET access_count = least(m.access_count::bigint + s.times, 2147483647)::int,
        last_accessed_at = greatest(m.last_accessed_at, s.at),
        activation = 1000000 - ((1000000 - m.activation) * s.missing >> 32)::int
    FROM seen s WHERE m.id = s.id
"""


async def accessed(
    conn: Conn,
    ids: Sequence[UUID],
    times: Sequence[int],
    last: Sequence[datetime],
    missing: Sequence[int],
) -> None:
    """Count the accesses; `missing` is of each what `noema.memory.decay.missing_after` says."""
    try:
        await conn.execute(_ACCESSED, list(ids), list(times), list(last), list(missing))
    except asyncpg.PostgresError as exc:
        if connection_lost(exc, conn):
            raise
        raise Unavailable(f"Accesses could not be counted: {exc}") from exc

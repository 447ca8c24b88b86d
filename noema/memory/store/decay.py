"""SQL of decay."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from noema.db.tx import Conn

FIRST: Final = UUID(int=0)
"""Before every id there is."""

_BATCH_END = """
    SELECT max(id::text)::uuid FROM (
        SELECT id FROM memories WHERE id > $1 ORDER BY id LIMIT $2
    ) batch
"""

# The same integers as `noema.memory.decay.decayed`. What has come down to nothing stays there.
_DECAY = """
    WITH due AS (
        SELECT id, $3 - activation_epoch AS periods FROM memories
        WHERE id > $1 AND id <= $2 AND activation_epoch < $3 AND activation > 0
        ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE memories m
    SET activation = ((m.activation * ($4::bigint[])[d.periods % 8 + 1]) >> 32)
                     >> least(d.periods / 8, 63),
        activation_epoch = $3
    FROM due d WHERE m.id = d.id
"""


async def batch_end(conn: Conn, after: UUID, *, rows: int) -> UUID | None:
    """Return the last id of the next so many rows, or None where there are no more."""
    found: UUID | None = await conn.fetchval(_BATCH_END, after, rows)
    return found


async def decay(conn: Conn, after: UUID, upto: UUID, *, epoch: int, factors: Sequence[int]) -> int:
    """Bring the rows of the range up to the period; return how many changed."""
    status = await conn.execute(_DECAY, after, upto, epoch, list(factors))
    return int(status.rpartition(" ")[2])

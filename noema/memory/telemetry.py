"""What reads leave behind: how often and when a memory was used, and its activation.

Counted in memory and written in batches, as the audit rows of reads are. An access takes a quarter
of what activation lacks, so that what is used often stays near one and what is used once does not.
"""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Final
from uuid import UUID

import structlog

from noema.core.errors import NoemaError
from noema.db.tx import Database
from noema.memory.decay import missing_after
from noema.memory.store import telemetry as store

log = structlog.get_logger()

FLUSH_EVERY_S: Final = 0.4
_MOST: Final = 50_000
_AT_ONCE: Final = 1_000


class Telemetry:
    """Counts accesses until they are written.

    It is bounded: where more memories than it holds wait to be counted, further ones are not.
    Telemetry may be lost; what was read is on record in the audit log.
    """

    def __init__(self, *, db: Database) -> None:
        self._db = db
        self._seen: dict[UUID, tuple[int, datetime]] = {}
        self._writing = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._seen)

    def accessed(self, ids: Iterable[UUID], at: datetime) -> None:
        """Count one access of each of the memories."""
        for id_ in ids:
            times, last = self._seen.get(id_, (0, at))
            if times == 0 and len(self._seen) >= _MOST:
                continue
            self._seen[id_] = (times + 1, max(last, at))

    async def flush(self) -> int:
        """Write what was counted; return of how many memories. Raises Unavailable, and keeps it."""
        written = 0
        async with self._writing:
            while self._seen:
                batch = dict(list(self._seen.items())[:_AT_ONCE])
                async with self._db.transaction() as tx:
                    await store.accessed(
                        tx.conn,
                        list(batch),
                        [times for times, _ in batch.values()],
                        [last for _, last in batch.values()],
                        [missing_after(times) for times, _ in batch.values()],
                    )
                self._written(batch)
                written += len(batch)
        return written

    def _written(self, batch: dict[UUID, tuple[int, datetime]]) -> None:
        # What was counted again meanwhile stays for the next time.
        for id_, (times, _) in batch.items():
            now, last = self._seen[id_]
            if now == times:
                del self._seen[id_]
            else:
                self._seen[id_] = (now - times, last)

    async def run(self) -> None:
        """Flush for ever; what is left at the end is for `flush`."""
        while True:
            await asyncio.sleep(FLUSH_EVERY_S)
            try:
                await self.flush()
            except (NoemaError, TimeoutError) as exc:
                log.warning("telemetry_flush_failed", waiting=len(self._seen), reason=str(exc))
                await asyncio.sleep(1.0)

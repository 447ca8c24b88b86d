"""The transaction of a syscall that changes something: its audit row commits with the work."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noema.core.act import Outcome
from noema.db.tx import Database, Tx
from noema.events.audit import Audit
from noema.memory.frame import Frame


class Work:
    """Opens the transactions of syscalls."""

    def __init__(self, *, db: Database, audit: Audit) -> None:
        self._db = db
        self._audit = audit

    @asynccontextmanager
    async def doing(self, frame: Frame) -> AsyncIterator[Tx]:
        """Yield a transaction; on leaving, the row that the frame tells of commits with it.

        An error undoes the work, and the prologue records how it ended.
        """
        async with self._db.transaction() as tx:
            yield tx
            await self._audit.record(tx, frame.act(Outcome.OK))
        frame.is_recorded = True

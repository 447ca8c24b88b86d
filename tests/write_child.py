"""One supersedence in a process of its own, for tests that kill it half-way.

    python -m tests.write_child DSN ROLE VICTIM closed|inserted|committed

It ends itself by SIGKILL when the old memory is closed, when the new one is inserted, or when both
are committed and nobody has been told. An empty ROLE means none.
"""

import asyncio
import os
import signal
import sys
from typing import Any
from uuid import UUID

from noema.core.clock import SystemClock
from noema.db.tx import connect
from noema.memory.store import writing
from tests.writing import WriteHouse


def _die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(dsn: str, role: str, victim: UUID, when: str) -> None:
    insert = writing.insert_one

    async def inserted(*args: Any, **options: Any) -> UUID:
        await insert(*args, **options)
        return UUID(int=_die())

    if when == "closed":
        writing.insert_one = _die
    elif when == "inserted":
        writing.insert_one = inserted
    async with connect(dsn, clock=SystemClock(), max_size=2, role=role or None) as db:
        house = await WriteHouse.open(db)
        await house.write("Ada lives in Paris.", supersedes=victim)
        _die()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], UUID(sys.argv[3]), sys.argv[4]))

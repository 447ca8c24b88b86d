"""A daemon in a process of its own, for tests that kill one.

    python -m tests.child DSN OWNER_DSN [CHECKPOINT OCCURRENCE]

It runs the minds of the database without HTTP until its standard input is closed. With a checkpoint
it ends itself by SIGKILL when that numbered await is reached for the given time.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from noema.app import Dsns, build
from noema.config import Settings
from noema.core.clock import SystemClock, UuidV7Ids


async def main(app_dsn: str, owner_dsn: str, number: int, occurrence: int) -> None:
    clock = SystemClock()
    seen = 0

    async def checkpoint(reached: int) -> None:
        nonlocal seen
        seen += reached == number
        if reached == number and seen >= occurrence:
            os.kill(os.getpid(), signal.SIGKILL)

    dsns = Dsns(owner=owner_dsn, app=app_dsn, is_embedded=False)
    settings = Settings(data_dir=Path("/nonexistent"))
    async with build(
        settings, dsns, clock=clock, ids=UuidV7Ids(clock), lease_s=2.0, checkpoint=checkpoint
    ):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[3:]] or [0, 0]
    asyncio.run(main(sys.argv[1], sys.argv[2], numbers[0], numbers[1]))

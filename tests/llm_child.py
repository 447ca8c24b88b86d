"""A model service in a process of its own, for tests that kill one.

    python -m tests.llm_child DSN ROLE POINT

It makes one call and ends itself by SIGKILL: at `asked`, while the provider works, or at
`recorded`, when the answer is on record and was not handed back.
"""

import asyncio
import os
import signal
import sys

from noema.core.clock import SystemClock, UuidV7Ids
from noema.db.tx import single
from noema.llm.model import Completion
from noema.llm.recorder import Recorder, recording
from tests.llm_scripted import House, Scripted, asks, says


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _dies() -> Completion:
    _die()
    raise AssertionError("unreachable")


async def main(dsn: str, role: str, point: str) -> None:
    clock = SystemClock()
    recorder = Recorder(
        connect=lambda: single(dsn, role or None), clock=clock, daemon=UuidV7Ids(clock).new()
    )
    async with recording(recorder):
        provider = Scripted(_dies if point == "asked" else says("the first answer"))
        await House(recorder, [provider], clock=clock).complete(asks())
        _die()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

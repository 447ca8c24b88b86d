"""A model service in a process of its own, for tests that kill one.

    python -m tests.llm_child DSN ROLE POINT

It makes one call and ends itself by SIGKILL at the point: `begun`, the call is on record and nobody
was asked; `asked`, while the provider works; `retried`, in a second try after the first failed;
`answered`, the answer came and is not on record; `repair`, while one that does not fit is repaired;
`recorded`, the answer is on record and was not handed back.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from noema.core.clock import SystemClock, UuidV7Ids
from noema.db.tx import single
from noema.llm import budget
from noema.llm.calls import Ended
from noema.llm.model import Completion
from noema.llm.recorder import Begun, Recorder, recording
from noema.llm.store.calls import NewRow
from tests.llm_scripted import House, Scripted, Step, asks, fails, says

SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
}  # fmt: skip


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _dies() -> Completion:
    _die()
    raise AssertionError("unreachable")


_SCRIPTS: Final[Mapping[str, Sequence[Step]]] = {
    "asked": (_dies,),
    "retried": (fails(), _dies),
    "repair": (says("no JSON"), _dies),
}


class _Mortal(Recorder):
    point = ""

    async def begin(self, new: NewRow, hold: budget.Hold | None) -> Begun:
        begun = await super().begin(new, hold)
        if self.point == "begun":
            _die()
        return begun

    async def finish(
        self, call: UUID, ended: Ended, *, settled: Sequence[budget.Settled] = ()
    ) -> None:
        if self.point == "answered":
            _die()
        await super().finish(call, ended, settled=settled)


async def main(dsn: str, role: str, point: str) -> None:
    clock = SystemClock()
    recorder = _Mortal(
        connect=lambda: single(dsn, role or None), clock=clock, daemon=UuidV7Ids(clock).new()
    )
    recorder.point = point
    async with recording(recorder):
        provider = Scripted(*_SCRIPTS.get(point, (says("the first answer"),)))
        schema = SCHEMA if point == "repair" else None
        await House(recorder, [provider], clock=clock).complete(asks(schema=schema))
        _die()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

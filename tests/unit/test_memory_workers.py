"""What works for memory in the background outlives what goes wrong there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from noema.core.clock import SystemClock
from noema.llm.embedders.hash import HashEmbedder
from noema.memory import service
from noema.memory.decay import Decay
from noema.memory.embedding import Embeddings
from noema.memory.service import MemoryService


class _Frozen:
    """A database that answers nothing within the time of a command."""

    def __init__(self) -> None:
        self.asked = 0
        self.enough = asyncio.Event()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        self.asked += 1
        if self.asked >= 4:
            self.enough.set()
            await asyncio.Event().wait()
        if self.asked:
            raise TimeoutError
        yield

    reading = transaction


class _Quick(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class _Faulty:
    def __init__(self) -> None:
        self.runs = 0
        self.well = asyncio.Event()

    async def run(self) -> None:
        self.runs += 1
        if self.runs < 3:
            raise ZeroDivisionError
        self.well.set()
        await asyncio.Event().wait()


class _Idle:
    async def run(self) -> None:
        await asyncio.Event().wait()


async def _until(event: asyncio.Event, run: Any) -> None:
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(run)
        await event.wait()
        assert not task.done()
        task.cancel()


async def test_a_worker_that_fails_is_started_again_and_takes_nobody_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "AGAIN_AFTER_S", 0.0)
    faulty = _Faulty()
    memory = MemoryService(
        kernel=cast("Any", None),
        buffer=cast("Any", _Idle()),
        telemetry=cast("Any", _Idle()),
        workers=[faulty],
    )

    await _until(faulty.well, memory.run())

    assert faulty.runs == 3


async def test_filling_in_vectors_survives_a_database_that_hangs() -> None:
    frozen = _Frozen()
    embeddings = Embeddings(
        db=cast("Any", frozen), embedder=HashEmbedder(), destination="local", clock=_Quick()
    )

    await _until(frozen.enough, embeddings.run())


async def test_decay_survives_a_database_that_hangs() -> None:
    frozen = _Frozen()

    await _until(frozen.enough, Decay(db=cast("Any", frozen), clock=_Quick()).run())

"""What asking leaves behind: no connection, no task, whatever became of the calls."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from noema.llm.errors import AttemptFailed
from tests.helpers import eventually
from tests.llm_asked import LIMITS, ask
from tests.llm_fake import Break, FakeService, Hang, Reply, hang, web_page
from tests.llm_kinds import KINDS, Kind

# With five kinds a thousand.
CALLS = 200


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
async def fake(kind: Kind) -> AsyncIterator[FakeService]:
    async with kind.fake() as server:
        yield server


async def test_a_thousand_calls_that_fail_leave_nothing_behind(
    kind: Kind, fake: FakeService
) -> None:
    before = asyncio.all_tasks()
    bad = (
        kind.streamed(kind.begun, Break()),
        kind.streamed(kind.begun),
        kind.streamed(kind.begun, kind.failed),
        Reply(pieces=[b"{"]),
        Reply(status=500, pieces=[b"{}"]),
        web_page(),
        kind.streamed(kind.begun, Hang()),
    )
    limits = replace(LIMITS, between_s=0.05, max_connections=8)

    async with kind.provider(fake, limits=limits) as made:
        for start in range(0, CALLS, 8):
            calls = range(start, min(start + 8, CALLS))
            fake.then(
                *(replace(bad[n % len(bad)], pieces=list(bad[n % len(bad)].pieces)) for n in calls)
            )
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_failure(made, kind)) for _ in calls]
            assert all(task.result() for task in tasks)
            assert fake.open <= 8
        assert (await ask(made, model=kind.model)).text

    await eventually(lambda: fake.open == 0)
    assert len(fake.requests) == CALLS + 1
    await eventually(lambda: asyncio.all_tasks() <= before)


async def _failure(made: object, kind: Kind) -> bool:
    try:
        await ask(made, model=kind.model)  # type: ignore[arg-type]
    except AttemptFailed:
        return True
    return False


@pytest.mark.parametrize("when", ["before its headers", "in its text"])
async def test_who_gives_up_closes_the_connection(kind: Kind, fake: FakeService, when: str) -> None:
    fake.then(hang() if when == "before its headers" else kind.streamed(kind.begun, Hang()))

    async with kind.provider(fake) as made:
        asking = asyncio.create_task(ask(made, model=kind.model))
        await eventually(lambda: len(fake.requests) == 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await eventually(lambda: fake.open == 0)

        assert (await ask(made, model=kind.model)).text


async def test_who_finds_no_connection_free_has_cost_nothing(kind: Kind, fake: FakeService) -> None:
    fake.then(hang(), hang())
    limits = replace(LIMITS, connect_s=0.3, max_connections=2)

    async with kind.provider(fake, limits=limits) as made:
        waiting = [asyncio.create_task(ask(made, model=kind.model)) for _ in range(2)]
        await eventually(lambda: len(fake.requests) == 2)
        with pytest.raises(AttemptFailed, match="too many requests to it are under way") as failed:
            await ask(made, model=kind.model)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

    assert (failed.value.retryable, failed.value.is_cost_unknown) == (True, False)
    assert len(fake.requests) == 2

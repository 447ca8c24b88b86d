"""Wake-ups over a real connection, broken and mended."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from noema.core.clock import SystemClock
from noema.db.listen import Listener
from noema.db.tx import single
from tests.conftest import TestDatabase
from tests.helpers import eventually

# Far longer than anything here takes: reaching it is a failure, not a wait.
LONG_S = 20.0


@pytest.fixture
async def listener(database: TestDatabase) -> AsyncIterator[Listener]:
    """A listener that listens."""
    heard = Listener(lambda: single(database.app_dsn), "news", clock=SystemClock())
    first = heard.subscribe()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(heard.run())
        assert await first.wait(LONG_S)
        yield heard
        running.cancel()


async def notify(database: TestDatabase) -> None:
    conn = await asyncpg.connect(database.app_dsn)
    try:
        await conn.execute("NOTIFY news")
    finally:
        await conn.close()


async def cut_off_listeners(database: TestDatabase) -> None:
    conn = await asyncpg.connect(database.admin_dsn)
    try:
        await conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
    finally:
        await conn.close()


async def test_a_notification_wakes_every_subscriber(
    listener: Listener, database: TestDatabase
) -> None:
    watchers = [listener.subscribe() for _ in range(1000)]
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(watcher.wait(LONG_S)) for watcher in watchers]
        await notify(database)

    assert all(wait.result() for wait in waits)


async def test_a_wake_up_between_two_waits_is_not_lost(
    listener: Listener, database: TestDatabase
) -> None:
    watcher = listener.subscribe()
    witness = listener.subscribe()
    await notify(database)
    assert await witness.wait(LONG_S)

    assert await watcher.wait(0)


async def test_a_new_subscriber_is_not_woken_by_the_past(
    listener: Listener, database: TestDatabase
) -> None:
    witness = listener.subscribe()
    await notify(database)
    assert await witness.wait(LONG_S)

    assert not await listener.subscribe().wait(0.01)


async def test_waiting_ends_with_its_time_out_and_can_be_repeated(
    listener: Listener, database: TestDatabase
) -> None:
    watcher = listener.subscribe()

    assert not await watcher.wait(0.01)
    await notify(database)
    assert await watcher.wait(LONG_S)


async def test_many_notifications_at_once_wake_a_subscriber_few_times(
    listener: Listener, database: TestDatabase
) -> None:
    before = listener.wakes
    conn = await asyncpg.connect(database.app_dsn)
    for _ in range(500):
        await conn.execute("NOTIFY news")
    await conn.close()

    await eventually(lambda: listener.wakes > before)

    assert listener.wakes - before < 500


async def test_everybody_is_woken_when_the_connection_is_lost_and_back(
    listener: Listener, database: TestDatabase
) -> None:
    watcher = listener.subscribe()

    await cut_off_listeners(database)

    assert await watcher.wait(LONG_S)
    await eventually(lambda: listener.connected)
    again = listener.subscribe()
    await notify(database)
    assert await again.wait(LONG_S)


async def test_a_listener_without_a_server_keeps_trying(database: TestDatabase) -> None:
    dsns = iter(["postgresql://127.0.0.1:1/none", "not a dsn at all"])
    listener = Listener(lambda: single(next(dsns, database.app_dsn)), "news", clock=SystemClock())
    watcher = listener.subscribe()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(listener.run())

        assert await watcher.wait(LONG_S)
        running.cancel()

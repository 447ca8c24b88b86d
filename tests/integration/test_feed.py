"""Following the log live, and durable consumers, on a real server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from noema.core.clock import SystemClock, UuidV7Ids
from noema.db.listen import Listener
from noema.db.tx import Database, single
from noema.events import feed as feed_module
from noema.events.feed import RING_EVENTS, Consumers, Feed
from noema.events.log import EventLog
from noema.events.model import Event, new_event
from tests.conftest import TestDatabase
from tests.helpers import eventually

_CLOCK = SystemClock()
_IDS = UuidV7Ids(_CLOCK)

Following = AsyncGenerator[Event | None, None]


class CountingLog(EventLog):
    """A log that counts how often it is read."""

    reads = 0

    async def after(self, *args: Any, **kwargs: Any) -> list[Event]:
        self.reads += 1
        return await super().after(*args, **kwargs)

    async def head(self) -> int:
        self.reads += 1
        return await super().head()


@pytest.fixture
def log(db: Database) -> CountingLog:
    return CountingLog(db=db)


@asynccontextmanager
async def fed(
    database: TestDatabase, log: EventLog, channel: str = "noema_events"
) -> AsyncIterator[Feed]:
    """A running feed of the log."""
    listener = Listener(lambda: single(database.app_dsn, database.role), channel, clock=_CLOCK)
    feed = Feed(log=log, listener=listener)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(listener.run()), group.create_task(feed.run())]
        await eventually(lambda: listener.connected)
        try:
            yield feed
        finally:
            feed.close()
            for task in tasks:
                task.cancel()


@pytest.fixture
async def feed(database: TestDatabase, log: CountingLog) -> AsyncIterator[Feed]:
    async with fed(database, log) as feed:
        yield feed


async def write(
    db: Database, *texts: str, mind: UUID | None = None, type_: str = "stimulus.received"
) -> None:
    events = [
        new_event(
            _IDS,
            type=type_,
            occurred_at=_CLOCK.now(),
            actor="user:t",
            mind_id=mind,
            content={"text": text},
        )
        for text in texts
    ]
    async with db.transaction() as tx:
        await EventLog(db=db).append(tx, events)


async def next_texts(following: Following, count: int) -> list[str]:
    texts: list[str] = []
    async with asyncio.timeout(30):
        while len(texts) < count:
            event = await anext(following)
            if event is not None:
                texts.append(event.content["text"])
    return texts


async def is_quiet(following: Following) -> bool:
    """Whether nothing comes for as long as the follower was told to wait."""
    async with asyncio.timeout(30):
        return await anext(following) is None


async def test_a_follower_from_now_on_sees_what_comes_and_nothing_before(
    db: Database, feed: Feed
) -> None:
    await write(db, "before")
    async with aclosing(feed.follow(None, idle_s=0.3)) as following:
        assert await is_quiet(following)

        await write(db, "one", "two")
        await write(db, "three")

        assert await next_texts(following, 3) == ["one", "two", "three"]
        assert await is_quiet(following)


async def test_a_follower_from_a_position_misses_nothing_while_many_write(
    db: Database, feed: Feed
) -> None:
    await write(db, *(f"past {n}" for n in range(700)))
    expected = {f"past {n}" for n in range(700)}
    expected |= {f"{writer}-{n}" for writer in range(8) for n in range(60)}

    async def writes(writer: int) -> None:
        for number in range(60):
            await write(db, f"{writer}-{number}")

    async def follow() -> list[str]:
        async with aclosing(feed.follow(0, idle_s=1)) as following:
            return await next_texts(following, len(expected))

    async with asyncio.TaskGroup() as group:
        followers = [group.create_task(follow()) for _ in range(4)]
        for writer in range(8):
            group.create_task(writes(writer))

    for follower in followers:
        texts = follower.result()
        assert len(texts) == len(set(texts)) == len(expected)
        assert set(texts) == expected
        assert texts[:700] == [f"past {n}" for n in range(700)]


async def test_what_is_written_between_the_page_and_the_ring_does_not_come_twice(
    db: Database, database: TestDatabase, log: CountingLog
) -> None:
    await write(db, "past")
    written = False

    class Racing(CountingLog):
        async def after(self, *args: Any, **kwargs: Any) -> list[Event]:
            nonlocal written
            if not written and args[0] == 0:
                # The feed has not seen this when the follower's own query does.
                written = True
                await write(db, "meanwhile")
            return await super().after(*args, **kwargs)

    async with (
        fed(database, Racing(db=db)) as feed,
        aclosing(feed.follow(0, idle_s=1)) as following,
    ):
        assert await next_texts(following, 2) == ["past", "meanwhile"]
        assert await is_quiet(following)


async def test_a_slow_follower_reads_on_from_the_log_and_loses_nothing(
    db: Database, feed: Feed
) -> None:
    async with aclosing(feed.follow(None, idle_s=0.2)) as following:
        assert await is_quiet(following)
        await write(db, "first")
        assert await next_texts(following, 1) == ["first"]

        # It takes nothing while more comes than is kept at hand.
        many = RING_EVENTS + 300
        for start in range(0, many, 100):
            await write(db, *(f"{n}" for n in range(start, start + 100)))
        head = await EventLog(db=db).head()
        await eventually(lambda: feed.head == head)

        assert await next_texts(following, many) == [f"{n}" for n in range(many)]
        assert await is_quiet(following)


async def test_a_follower_sees_only_the_mind_and_type_it_asked_for(
    db: Database, feed: Feed
) -> None:
    ours, other = _IDS.new(), _IDS.new()
    await write(db, "past", mind=ours)
    await write(db, "past of another", mind=other)
    await write(db, "past of another type", mind=ours, type_="timer.fired")
    async with aclosing(
        feed.follow(0, mind=ours, type_="stimulus.received", idle_s=0.3)
    ) as following:
        assert await next_texts(following, 1) == ["past"]

        await write(db, "new of another", mind=other)
        await write(db, "new of another type", mind=ours, type_="timer.fired")
        await write(db, "new of nobody")
        await write(db, "new", mind=ours)

        assert await next_texts(following, 1) == ["new"]
        assert await is_quiet(following)


async def test_a_follower_with_a_filter_skips_a_long_stretch_that_is_not_for_it(
    db: Database, feed: Feed
) -> None:
    ours, other = _IDS.new(), _IDS.new()
    async with aclosing(feed.follow(0, mind=ours, idle_s=0.2)) as following:
        assert await is_quiet(following)
        for _ in range(RING_EVENTS // 200 + 2):
            await write(db, *("noise" for _ in range(200)), mind=other)
        await write(db, "signal", mind=ours)

        assert await next_texts(following, 1) == ["signal"]


async def test_closing_ends_every_follower(db: Database, feed: Feed) -> None:
    async def follow(idle_s: float | None) -> int:
        count = 0
        async for event in feed.follow(None, idle_s=idle_s):
            count += event is not None
        return count

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        followers = [group.create_task(follow(idle_s)) for idle_s in (None, None, 60.0)]
        await eventually(lambda: feed.watchers == 3)
        feed.close()

    assert [f.result() for f in followers] == [0, 0, 0]
    assert feed.watchers == 0


async def test_the_log_is_not_read_while_nobody_watches(
    db: Database, feed: Feed, log: CountingLog
) -> None:
    await asyncio.sleep(0.2)
    assert log.reads == 0
    async with aclosing(feed.follow(None, idle_s=0.1)) as following:
        assert await is_quiet(following)
        await write(db, "seen")
        assert await next_texts(following, 1) == ["seen"]
    # The reading that was under way when the last one left may still end.
    await asyncio.sleep(feed_module.POLL_S + 0.3)
    settled = log.reads

    for number in range(20):
        await write(db, f"unseen {number}")
        await asyncio.sleep(0.02)

    assert log.reads == settled


async def test_whoever_comes_after_a_time_without_watchers_sees_what_is_new(
    db: Database, feed: Feed
) -> None:
    async with aclosing(feed.follow(None, idle_s=0.1)) as following:
        assert await is_quiet(following)
    await asyncio.sleep(feed_module.POLL_S + 0.3)
    await write(db, "while nobody watched")

    async with (
        aclosing(feed.follow(None, idle_s=0.3)) as newcomer,
        aclosing(feed.follow(0, idle_s=0.3)) as returning,
    ):
        assert await is_quiet(newcomer)
        await write(db, "now")

        assert await next_texts(newcomer, 1) == ["now"]
        assert await next_texts(returning, 2) == ["while nobody watched", "now"]


async def test_a_poll_finds_what_no_notification_announced(
    db: Database, database: TestDatabase, log: CountingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "POLL_S", 0.05)

    async with (
        fed(database, log, channel="nobody_calls_here") as feed,
        aclosing(feed.follow(None, idle_s=0.2)) as following,
    ):
        assert await is_quiet(following)
        await write(db, "silent")

        assert await next_texts(following, 1) == ["silent"]


async def test_a_consumer_is_handed_everything_once_and_goes_on_where_it_was(
    db: Database, log: CountingLog
) -> None:
    consumers = Consumers(db=db, log=log)
    handed: list[str] = []

    async def handle(event: Event) -> None:
        handed.append(event.content["text"])

    await write(db, *(f"{n}" for n in range(1_200)))
    assert await consumers.drain("c", handle) == 1_200
    await write(db, "later")
    # Another process, knowing only what is in the database.
    assert await Consumers(db=db, log=EventLog(db=db)).drain("c", handle) == 1

    assert handed == [*(f"{n}" for n in range(1_200)), "later"]
    assert await consumers.position("c") == await log.head()
    assert await consumers.position("another") == 0


async def test_a_consumer_that_fails_gets_the_page_again(db: Database, log: CountingLog) -> None:
    consumers = Consumers(db=db, log=log)
    handed: list[str] = []
    await write(db, "one", "two", "three")

    async def handle(event: Event) -> None:
        if event.content["text"] == "two" and handed.count("one") == 1:
            raise RuntimeError
        handed.append(event.content["text"])

    with pytest.raises(RuntimeError):
        await consumers.drain("c", handle)
    assert await consumers.drain("c", handle) == 3

    assert handed == ["one", "one", "two", "three"]


async def test_a_consumers_position_never_goes_back_and_takes_gaps(
    db: Database, log: CountingLog
) -> None:
    consumers = Consumers(db=db, log=log)
    slow_is_in = asyncio.Event()
    fast_is_done = asyncio.Event()
    handed: list[str] = []
    await write(db, "one")
    await _give_up(db, log)

    async def slow(event: Event) -> None:
        slow_is_in.set()
        await fast_is_done.wait()

    async def fast(event: Event) -> None:
        handed.append(event.content["text"])

    async with asyncio.TaskGroup() as group:
        slower = group.create_task(consumers.drain("c", slow))
        await slow_is_in.wait()
        await write(db, "two")
        assert await consumers.drain("c", fast) == 2
        fast_is_done.set()
    assert slower.result() == 2

    assert handed == ["one", "two"]
    assert await consumers.position("c") == await log.head()


async def _give_up(db: Database, log: EventLog) -> None:
    """Draw a position and leave a gap in its place."""
    lost = new_event(_IDS, type="stimulus.received", occurred_at=_CLOCK.now(), actor="user:t")
    async with db.transaction() as tx:
        transaction = tx.conn.transaction()
        await transaction.start()
        await log.append(tx, [lost])
        await transaction.rollback()

"""The group-committing writer on a real server: fences, keys, bad units, lost connections."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from noema.cognition.minds import Minds
from noema.core.clock import SystemClock, UuidV7Ids
from noema.core.errors import IdempotencyReuse, InvalidInput, LeaseLost, Unavailable
from noema.db.tx import Conn, Database, Tx, single
from noema.events.log import EventLog
from noema.events.model import Event, NewEvent, new_event
from noema.events.unit import (
    CycleUpdate,
    Derivation,
    Fence,
    Idempotency,
    Message,
    Receipt,
    Unit,
)
from noema.events.writer import Writer, running
from tests.conftest import TestDatabase
from tests.helpers import eventually

_CLOCK = SystemClock()
_IDS = UuidV7Ids(_CLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log with a running writer."""

    db: Database
    events: EventLog
    writer: Writer

    async def texts(self) -> list[str]:
        """The texts of all events, in the order of the log; those without one left out."""
        return [e.content["text"] for e in await every(self.events) if "text" in e.content]


async def every(events: EventLog) -> list[Event]:
    found: list[Event] = []
    while page := await events.after(found[-1].seq if found else 0, limit=1_000):
        found += page
    return found


@asynccontextmanager
async def opened(database: TestDatabase, db: Database) -> AsyncIterator[Log]:
    writer = Writer(connect=lambda: single(database.app_dsn, database.role), clock=_CLOCK)
    async with running(writer):
        yield Log(db=db, events=EventLog(db=db), writer=writer)


@pytest.fixture
async def log(database: TestDatabase, db: Database) -> AsyncIterator[Log]:
    async with opened(database, db) as log:
        yield log


def event(text: str = "", **fields: Any) -> NewEvent:
    return new_event(
        _IDS,
        type=fields.pop("type", "stimulus.received"),
        occurred_at=_CLOCK.now(),
        actor="user:t",
        content={"text": text} if text else None,
        **fields,
    )


def key(name: str, body: bytes = b"body", **response: Any) -> Idempotency:
    return Idempotency(scope="test", key=name, digest=body, response=response)


async def leased(log: Log, slug: str, *, epoch: int = 1, for_s: int = 3600) -> UUID:
    """Return a mind whose lease is held under the epoch."""
    minds = Minds(db=log.db, events=log.events, writer=log.writer, clock=_CLOCK, ids=_IDS)
    mind = await minds.create(slug=slug, actor="user:t")
    async with log.db.transaction() as tx:
        await tx.conn.execute(
            "INSERT INTO mind_leases (mind_id, owner, epoch, until)"
            " VALUES ($1, $2, $3, clock_timestamp() + make_interval(secs => $4))",
            mind.id,
            _IDS.new(),
            epoch,
            for_s,
        )
    return mind.id


def cycle_of(mind: UUID, *, epoch: int, number: int = 1) -> Unit:
    now = _CLOCK.now()
    return Unit(
        events=(event(f"cycle {number}", type="cycle.completed", mind_id=mind),),
        fence=Fence(mind=mind, epoch=epoch),
        cycle=CycleUpdate(
            number=number,
            cursor=7,
            at=now,
            next_due=now + timedelta(minutes=1),
            mode="awake",
            mode_epoch=0,
            mode_until=None,
            pending=3,
            workspace=[{"text": f"thought {number}"}],
            state=b"\x00state",
            state_version=1,
        ),
    )


async def submitted(log: Log, units: Sequence[Unit]) -> list[Receipt | BaseException]:
    """Submit all at once; return each one's answer or error."""

    async def one(unit: Unit) -> Receipt | BaseException:
        try:
            return await log.writer.submit(unit)
        except Exception as exc:
            return exc

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(unit)) for unit in units]
    return [task.result() for task in tasks]


async def test_what_waits_together_is_committed_together_and_each_is_answered(log: Log) -> None:
    units = [Unit(events=(event(f"unit {n}"),)) for n in range(100)]
    before = log.writer.batches_committed

    answers = await submitted(log, units)

    assert answers == [Receipt()] * 100
    assert sorted(await log.texts()) == sorted(f"unit {n}" for n in range(100))
    assert log.writer.batches_committed - before < 30


async def test_every_column_arrives_as_it_was_sent_whether_events_share_it_or_not(
    log: Log,
) -> None:
    first = event("one\x00\ud800\ue000")
    mind, cycle = _IDS.new(), _IDS.new()
    other = new_event(
        _IDS,
        type="thought.admitted",
        occurred_at=_CLOCK.now() - timedelta(days=1),
        actor="mind:x",
        mind_id=mind,
        cycle_id=cycle,
        causes=(first.id, first.id),
        data={"score": 2**53 - 1, "winner": first.id},
        content={"text": "two", "nested": {"list": [1, None, "é"]}},
    )

    await log.writer.submit(Unit(events=(first, other)))
    await log.writer.submit(Unit(events=(event("alone", mind_id=mind, cycle_id=cycle),)))
    async with log.db.transaction() as tx:
        await log.events.append(tx, [event("appended", mind_id=mind), event("without a mind")])

    one, two, alone, appended, without = await every(log.events)
    assert one.content == {"text": "one\x00\ud800\ue000"}
    assert (one.mind_id, one.cycle_id, one.causes, one.data) == (None, None, (), {})
    assert (two.id, two.type, two.actor) == (other.id, other.type, "mind:x")
    assert (two.mind_id, two.cycle_id) == (mind, cycle)
    assert two.occurred_at == other.occurred_at
    assert two.causes == (first.id, first.id)
    assert two.data == {"score": 2**53 - 1, "winner": str(first.id)}
    assert two.content == {"text": "two", "nested": {"list": [1, None, "é"]}}
    assert (alone.mind_id, alone.cycle_id) == (mind, cycle)
    assert (appended.mind_id, without.mind_id) == (mind, None)
    assert all(e.is_intact for e in (one, two, alone, appended, without))


async def test_a_unit_that_names_a_missing_cause_is_refused_alone(log: Log) -> None:
    nobody = _IDS.new()
    units = [Unit(events=(event(f"good {n}"),)) for n in range(20)]
    units.insert(7, Unit(events=(event("fine"), event("bad", causes=(nobody,)))))

    answers = await submitted(log, units)

    refused = answers.pop(7)
    assert isinstance(refused, InvalidInput)
    assert refused.field == "causes"
    assert str(nobody) in str(refused)
    assert answers == [Receipt()] * 20
    assert sorted(await log.texts()) == sorted(f"good {n}" for n in range(20))


async def test_a_unit_that_cannot_be_encoded_is_its_callers_trouble_alone(log: Log) -> None:
    units = [Unit(events=(event("good"),)), Unit(events=(event(data={"bad": object()}),))]

    good, bad = await submitted(log, units)

    assert good == Receipt()
    assert isinstance(bad, TypeError)


async def test_a_cause_may_stand_earlier_in_the_same_unit(log: Log) -> None:
    cause = event("cause")
    effect = event("effect", causes=(cause.id,))

    await log.writer.submit(
        Unit(
            events=(cause, effect),
            derivations=(Derivation(source=cause.id, to=effect.id, kind="noticed"),),
        )
    )

    assert [e.id for e in await log.events.consequences(cause.id)] == [effect.id]


async def test_a_stale_epoch_and_a_lapsed_lease_are_refused_while_others_commit(log: Log) -> None:
    held = await leased(log, "held", epoch=4)
    stale = await leased(log, "stale", epoch=4)
    lapsed = await leased(log, "lapsed", epoch=4, for_s=-1)

    answers = await submitted(
        log,
        [
            cycle_of(stale, epoch=3),
            cycle_of(held, epoch=4),
            cycle_of(lapsed, epoch=4),
            Unit(events=(event("a stimulus"),)),
            cycle_of(_IDS.new(), epoch=1),
        ],
    )

    assert [type(a) for a in answers] == [LeaseLost, Receipt, LeaseLost, Receipt, LeaseLost]
    async with log.db.reading() as tx:
        cycles = {r["slug"]: r["cycles"] for r in await tx.conn.fetch("SELECT * FROM minds")}
        kept = await tx.conn.fetch("SELECT mind_id, workspace, state FROM workspace_states")
    assert cycles == {"held": 1, "stale": 0, "lapsed": 0}
    assert [tuple(r) for r in kept] == [(held, [{"text": "thought 1"}], b"\x00state")]
    assert sorted(await log.texts()) == ["a stimulus", "cycle 1"]


async def test_a_cycle_keeps_the_mode_that_an_operator_chose_meanwhile(log: Log) -> None:
    mind = await leased(log, "ada")
    async with log.db.transaction() as tx:
        await tx.conn.execute("UPDATE minds SET mode = 'paused', mode_epoch = 1, next_due = NULL")

    await log.writer.submit(cycle_of(mind, epoch=1))

    async with log.db.reading() as tx:
        row = await tx.conn.fetchrow("SELECT mode, next_due, cycles, cursor, pending FROM minds")
    assert row is not None
    assert tuple(row) == ("paused", None, 1, 7, 3)


async def test_a_message_is_kept_with_its_event_and_its_text_escaped(log: Log) -> None:
    mind = await leased(log, "ada")
    said = event("hello\x00", type="message.received", mind_id=mind)
    message = Message(
        id=said.id,
        conversation=_IDS.new(),
        mind=mind,
        speaker="t",
        text="hello\x00",
        at=_CLOCK.now(),
    )

    await log.writer.submit(Unit(events=(said,), messages=(message,)))

    minds = Minds(db=log.db, events=log.events, writer=log.writer, clock=_CLOCK, ids=_IDS)
    assert [m.text for m in await minds.transcript(await minds.get("ada"))] == ["hello\x00"]


async def test_the_same_key_gets_the_first_answer_and_stores_nothing_more(log: Log) -> None:
    first = Unit(events=(event("first"),), idempotency=key("k", ids=["1"]))
    again = Unit(events=(event("again"),), idempotency=key("k", ids=["2"]))

    assert await log.writer.submit(first) == Receipt()
    assert await log.writer.submit(again) == Receipt(repeated={"ids": ["1"]})

    assert await log.texts() == ["first"]


async def test_the_same_key_with_another_body_is_refused(log: Log) -> None:
    await log.writer.submit(Unit(events=(event("first"),), idempotency=key("k")))

    with pytest.raises(IdempotencyReuse, match="another body"):
        await log.writer.submit(Unit(events=(event("other"),), idempotency=key("k", b"other")))

    assert await log.texts() == ["first"]


async def test_of_many_at_once_with_one_key_one_is_stored_and_all_get_its_answer(
    log: Log,
) -> None:
    units = [Unit(events=(event(f"try {n}"),), idempotency=key("k", winner=n)) for n in range(40)]

    answers = await submitted(log, units)

    stored = await log.texts()
    assert len(stored) == 1
    winner = int(stored[0].removeprefix("try "))
    assert answers.count(Receipt()) == 1
    assert answers.count(Receipt(repeated={"winner": winner})) == 39


async def test_a_key_refused_by_its_fence_is_not_used_up(log: Log) -> None:
    mind = await leased(log, "ada", epoch=2)
    refused = Unit(
        events=(event("stale"),), fence=Fence(mind=mind, epoch=1), idempotency=key("k", n=1)
    )
    taken = Unit(events=(event("fresh"),), idempotency=key("k", n=2))

    with pytest.raises(LeaseLost):
        await log.writer.submit(refused)

    assert await log.writer.submit(taken) == Receipt()


async def test_a_caller_that_goes_away_leaves_the_others_their_answers(log: Log) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(log.writer.submit(Unit(events=(event(f"unit {n}"),))))
            for n in range(30)
        ]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()

    assert all(task.result() == Receipt() for task in tasks[1::2])
    assert {f"unit {n}" for n in range(1, 30, 2)} <= set(await log.texts())


async def test_stopping_commits_what_waits_and_refuses_what_comes_after(
    database: TestDatabase, db: Database
) -> None:
    async with opened(database, db) as log, asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(log.writer.submit(Unit(events=(event(f"unit {n}"),))))
            for n in range(20)
        ]
        await asyncio.sleep(0)
        log.writer.stop()

    assert [task.result() for task in waiting] == [Receipt()] * 20
    with pytest.raises(Unavailable):
        await log.writer.submit(Unit(events=(event("too late"),)))
    assert len(await log.texts()) == 20


async def test_guarantee_4_connections_killed_in_mid_commit_lose_and_double_nothing(
    database: TestDatabase, log: Log
) -> None:
    answered: list[str] = []
    until = asyncio.get_running_loop().time() + 6
    rng = random.Random(4)

    async def write(name: int) -> None:
        number = 0
        while asyncio.get_running_loop().time() < until:
            text = f"{name}-{number}"
            idempotency = key(text, n=text) if number % 3 == 0 else None
            await log.writer.submit(Unit(events=(event(text), event()), idempotency=idempotency))
            answered.append(text)
            number += 1

    async def kill(admin: Conn) -> int:
        killed = 0
        while asyncio.get_running_loop().time() < until - 0.5:
            # The moment is drawn at random: before, in and after the call and its commit.
            await asyncio.sleep(rng.uniform(0.0, 0.08))
            killed += await admin.fetchval(_KILL, database.name)
        return killed

    admin = await asyncpg.connect(database.admin_dsn)
    try:
        async with asyncio.TaskGroup() as group:
            for name in range(8):
                group.create_task(write(name))
            killing = group.create_task(kill(admin))
    finally:
        await admin.close()

    assert killing.result() > 10
    stored = await log.texts()
    assert len(answered) > 100
    assert sorted(stored) == sorted(answered)
    for name in range(8):
        mine = [t for t in stored if t.startswith(f"{name}-")]
        assert mine == [f"{name}-{n}" for n in range(len(mine))]


# The writer's connections alone: those that have called it, whatever they do now.
_KILL = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = $1 AND pid <> pg_backend_pid() AND query LIKE '%noema_commit%'
"""


async def test_guarantee_4_a_commit_that_was_kept_but_not_answered_is_not_made_again(
    database: TestDatabase, db: Database
) -> None:
    cut: list[str] = []

    class Deaf:
        """A connection that loses the answer to its first commit."""

        def __init__(self, conn: Any) -> None:
            self._conn = conn

        async def fetch(self, query: str, *args: Any) -> Any:
            rows = await self._conn.fetch(query, *args)
            if "noema_commit" in query and not cut:
                cut.append(query)
                raise Unavailable("the answer was lost")
            return rows

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        async with single(database.app_dsn, database.role) as conn:
            yield Deaf(conn)

    writer = Writer(connect=connect, clock=_CLOCK)
    log = Log(db=db, events=EventLog(db=db), writer=writer)
    async with running(writer):
        receipt = await writer.submit(Unit(events=(event("once"),), idempotency=key("k", n=1)))

    assert cut
    assert receipt == Receipt()
    assert await log.texts() == ["once"]


async def test_the_writer_says_whether_it_is_connected_and_comes_back(
    database: TestDatabase, log: Log
) -> None:
    await eventually(lambda: log.writer.connected)
    await log.writer.submit(Unit(events=(event("before"),)))
    admin = await asyncpg.connect(database.admin_dsn)
    try:
        await admin.execute(_KILL.replace("$1", f"'{database.name}'"))
    finally:
        await admin.close()

    async with asyncio.timeout(20):
        await log.writer.submit(Unit(events=(event("after"),)))

    assert await log.texts() == ["before", "after"]


async def test_guarantee_2_a_reader_by_position_misses_nothing_of_32_writers_and_sees_none_twice(
    database: TestDatabase, log: Log
) -> None:
    done = asyncio.Event()
    seen: list[Event] = []

    async def read() -> None:
        while True:
            is_last = done.is_set()
            position = seen[-1].seq if seen else 0
            seen.extend(await log.events.after(position, limit=37))
            if is_last and not await log.events.after(seen[-1].seq, limit=1):
                return
            await asyncio.sleep(0)

    async def write(name: int) -> None:
        # Half of them go their own way, each over its own connection, as other daemons do.
        async with AsyncExitStack() as stack:
            conn = None
            if name % 2:
                conn = await stack.enter_async_context(single(database.app_dsn, database.role))
            for number in range(40):
                events = [event(f"{name}-{number}"), event(f"{name}-{number}b")]
                if conn is None:
                    await log.writer.submit(Unit(events=events))
                    continue
                transaction = conn.transaction()
                await transaction.start()
                await _append(conn, events)
                # One in eight draws positions and gives them up: gaps that a reader must take.
                await (transaction.rollback() if number % 8 == 7 else transaction.commit())

    async with asyncio.TaskGroup() as group:
        reader = group.create_task(read())
        async with asyncio.TaskGroup() as writers:
            for name in range(32):
                writers.create_task(write(name))
        done.set()
        await reader

    texts = [e.content["text"] for e in seen]
    expected = [
        f"{name}-{number}{suffix}"
        for name in range(32)
        for number in range(40)
        for suffix in ("", "b")
        if not (name % 2 and number % 8 == 7)
    ]
    assert sorted(texts) == sorted(expected)
    positions = [e.seq for e in seen]
    assert positions == sorted(set(positions))
    assert positions[-1] > len(positions)


async def _append(conn: Conn, events: Sequence[NewEvent]) -> None:
    await EventLog(db=None).append(Tx(conn, _CLOCK.now()), events)  # type: ignore[arg-type]

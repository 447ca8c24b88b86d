"""Guarantee 3, for calls of models: what is on record is used, and nothing is paid for twice."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from noema.core.clock import ManualClock, SystemClock, UuidV7Ids
from noema.core.errors import Conflict, InvalidInput, NotFound, Unavailable
from noema.core.identity import LOCAL
from noema.db.tx import Database
from noema.events.audit import Audit
from noema.llm.budget import Budgets, Window
from noema.llm.calls import CallRecord, Calls, Ended, new_row, request_hash
from noema.llm.errors import BadAnswer
from noema.llm.model import Completion
from noema.llm.replayer import Replayer
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.llm_scripted import House, QuickClock, Scripted, asks, fails, hangs, recorder_on, says

_ROOT = Path(__file__).parents[2]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def budgets_of(db: Database) -> Budgets:
    ids = UuidV7Ids(SystemClock())
    return Budgets(db=db, audit=Audit(db=db, ids=ids), ids=ids)


async def window_of(db: Database) -> Window:
    (state,) = await budgets_of(db).states()
    return state.windows[0]


async def all_calls(db: Database) -> list[CallRecord]:
    return await Calls(db=db).page(namespaces=None)


async def test_calls_of_another_daemon_that_lives_are_left_alone(
    database: TestDatabase, db: Database
) -> None:
    release = asyncio.Event()

    async def slowly() -> Completion:
        await release.wait()
        return says("mine")

    async with recorder_on(database) as first:
        house = House(first, [Scripted(slowly)], clock=SystemClock())
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(house.complete(asks()))

            async def is_flying() -> bool:
                return bool(await all_calls(db))

            await eventually(is_flying)
            async with recorder_on(database) as second:
                # By its first answer it has looked after the dead.
                await House(second, [Scripted()], clock=SystemClock()).complete(asks(cycle=2))
                states = {call.cycle: call.state for call in await all_calls(db)}
            release.set()

    assert states == {1: "in flight", 2: "answered"}
    assert asking.result().text == "mine"


async def test_the_same_call_in_another_daemon_is_never_made_at_the_same_time(
    database: TestDatabase,
) -> None:
    release = asyncio.Event()

    async def slowly() -> Completion:
        await release.wait()
        return says("once")

    second_provider = Scripted()
    async with recorder_on(database) as first, recorder_on(database) as second:
        house = House(first, [Scripted(slowly)], clock=SystemClock())
        # It looks again until its time is up, which here passes in leaps.
        other = House(second, [second_provider], clock=ManualClock(SystemClock().now()))
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(house.complete(asks()))
            await eventually(lambda: house.recorder.batches_committed)
            with pytest.raises(Conflict):
                await other.complete(asks())
            release.set()
        later = await other.complete(asks())

    assert asking.result().text == later.text == "once"
    assert later.is_replayed
    assert second_provider.asked == []


async def test_two_that_ask_the_same_at_once_pay_once(database: TestDatabase) -> None:
    provider = Scripted(says("once"), says("twice"))
    async with recorder_on(database) as recorder:
        house = House(recorder, [provider], clock=SystemClock())
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(house.complete(asks())) for _ in range(20)]

    answers = [task.result() for task in asking]
    assert {answer.text for answer in answers} == {"once"}
    assert [answer.is_replayed for answer in answers].count(False) == 1
    assert len(provider.asked) == 1


async def test_where_the_first_of_two_fails_the_second_asks(database: TestDatabase) -> None:
    provider = Scripted(fails(retryable=False), says("now"))
    async with recorder_on(database) as recorder:
        house = House(recorder, [provider], clock=SystemClock())
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(_or_error(house)) for _ in range(2)]

    assert [task.result() for task in asking] == ["failed", "now"]


async def _or_error(house: House) -> str:
    try:
        return (await house.complete(asks())).text
    except Unavailable:
        return "failed"


async def test_another_cycle_place_or_wording_is_another_call(database: TestDatabase) -> None:
    provider = Scripted(*(says(str(n)) for n in range(5)))
    async with recorder_on(database) as recorder:
        house = House(recorder, [provider], clock=SystemClock())
        requests = [
            asks(), asks(cycle=2), asks(ordinal=1), asks("Other."), asks(temperature=0.5),
        ]  # fmt: skip
        texts = [(await house.complete(request)).text for request in requests]
        again = [(await house.complete(request)).text for request in requests]

    assert texts == again == ["0", "1", "2", "3", "4"]


async def test_without_a_mind_nothing_is_looked_up(database: TestDatabase) -> None:
    provider = Scripted(says("one"), says("two"))
    async with recorder_on(database) as recorder:
        house = House(recorder, [provider], clock=SystemClock())
        texts = [(await house.complete(asks(mind=None, cycle=None))).text for _ in range(2)]

    assert texts == ["one", "two"]


async def test_an_answer_that_could_not_be_used_is_not_asked_for_again_either(
    database: TestDatabase,
) -> None:
    provider = Scripted(says("no"), says("still no"))
    async with recorder_on(database) as recorder:
        house = House(recorder, [provider], clock=SystemClock())
        for _ in range(2):
            with pytest.raises(BadAnswer, match="not JSON"):
                await house.complete(asks(schema=SCHEMA))

    assert len(provider.asked) == 2


async def test_a_caller_that_goes_away_leaves_a_call_of_unknown_cost(
    database: TestDatabase, db: Database
) -> None:
    await budgets_of(db).set(LOCAL, scope="mind", period="day", tokens=10_000)
    provider = Scripted(hangs)
    async with recorder_on(database) as recorder:
        house = House(recorder, [provider], clock=SystemClock())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await house.complete(asks())

    (call,) = await all_calls(db)
    window = await window_of(db)
    assert (call.state, call.cost_kind, call.cost_micros) == ("unknown", "unknown", None)
    assert [attempt.cost_kind for attempt in call.attempts] == ["unknown"]
    assert window.reserved_tokens == 0
    assert window.spent_tokens > 100
    assert window.unknown_calls == 1


async def test_text_that_postgresql_refuses_is_on_record_as_it_was(
    database: TestDatabase, db: Database
) -> None:
    nasty = "NUL \x00, half \ud800, mark \ue000, end"
    async with recorder_on(database) as recorder:
        house = House(recorder, [Scripted(says(nasty))], clock=SystemClock())
        answer = await house.complete(asks(nasty))
        again = await house.complete(asks(nasty))

    record = await Calls(db=db).get(answer.call, namespaces=["acme"])
    assert answer.text == again.text == record.content["answer"] == nasty
    assert record.content["messages"] == [{"role": "user", "text": nasty}]


async def test_what_does_not_fit_a_column_harms_no_other_call(database: TestDatabase) -> None:
    async with recorder_on(database) as recorder:
        house = House(recorder, [Scripted()], clock=SystemClock())
        async with asyncio.TaskGroup() as group:
            good = [group.create_task(house.complete(asks(ordinal=n))) for n in range(5)]
            bad = group.create_task(_or_error_of(house, 2**40))

    assert {task.result().text for task in good} == {"ok"}
    assert bad.result() == "failed"


async def _or_error_of(house: House, ordinal: int) -> str:
    try:
        return (await house.complete(asks(ordinal=ordinal))).text
    except Unavailable:
        return "failed"


async def test_a_recorder_that_stops_ends_what_waits_and_takes_nothing_more(
    database: TestDatabase,
) -> None:
    async with recorder_on(database) as recorder:
        house = House(recorder, [Scripted()], clock=SystemClock())
        await house.complete(asks())
    with pytest.raises(Unavailable, match="stopping"):
        await house.complete(asks(cycle=2))


async def test_a_replay_is_served_from_the_record_and_a_miss_is_refused(
    database: TestDatabase, db: Database
) -> None:
    provider = Scripted(says('{"n": 1}'))
    async with recorder_on(database) as recorder:
        house = House(recorder, [provider], clock=SystemClock())
        await house.complete(asks(schema=SCHEMA))
        replayer = Replayer(calls=Calls(db=db))

        answer = await replayer.complete(asks(schema=SCHEMA))
        with pytest.raises(NotFound):
            await replayer.complete(asks("Something else.", schema=SCHEMA))

    assert (answer.value, answer.is_replayed, answer.is_approximate) == ({"n": 1}, True, False)
    assert (replayer.hits, replayer.misses) == (1, 1)
    assert len(provider.asked) == 1


async def test_a_miss_that_is_asked_is_labelled_and_never_becomes_the_record(
    database: TestDatabase, db: Database
) -> None:
    provider = Scripted(says("live"))
    async with recorder_on(database) as recorder:
        house = House(recorder, [provider], clock=SystemClock())
        replayer = Replayer(calls=Calls(db=db), on_miss="ask", live=house.service)

        answer = await replayer.complete(asks())

    assert (answer.text, answer.is_approximate) == ("live", True)
    assert await Calls(db=db).answered(asks()) is None


async def test_calls_are_read_by_whoever_sees_their_namespace_and_by_nobody_else(
    database: TestDatabase, db: Database
) -> None:
    async with recorder_on(database) as recorder:
        house = House(recorder, [Scripted()], clock=SystemClock())
        answer = await house.complete(asks())
        await house.complete(asks(cycle=2))
    calls = Calls(db=db)

    seen = await calls.page(namespaces=["acme"], limit=1)
    rest = await calls.page(namespaces=["acme"], before=(seen[0].started_at, seen[0].id))
    (spent,) = await calls.spend(
        since=seen[0].started_at - timedelta(days=2),
        until=seen[0].started_at + timedelta(days=1),
        namespaces=["acme"],
    )

    assert [call.cycle for call in (*seen, *rest)] == [2, 1]
    assert (spent.calls, spent.cost_micros, spent.tokens) == (2, 40, 30)
    assert await calls.page(namespaces=["acm", "acme/eng"]) == []
    with pytest.raises(NotFound):
        await calls.get(answer.call, namespaces=["other"])


def test_a_hash_depends_on_what_is_asked_and_on_nothing_else() -> None:
    base = request_hash(asks())

    assert request_hash(asks(cycle=9, ordinal=9, deadline_s=1.0)) == base
    assert request_hash(asks("Hello!")) != base
    assert request_hash(asks(schema=SCHEMA)) != base
    assert request_hash(asks(temperature=0.1)) != request_hash(asks(temperature=0.2))
    with pytest.raises(InvalidInput):
        request_hash(asks(temperature=float("nan")))


async def test_ending_twice_is_told_and_changes_nothing(
    database: TestDatabase, db: Database
) -> None:
    ids, clock = UuidV7Ids(SystemClock()), QuickClock()
    async with recorder_on(database) as recorder:
        new = new_row(ids.new(), asks(), now=clock.now(), due=clock.now())
        await recorder.begin(new, None)
        await recorder.finish(new.id, Ended(state="answered", answer="first"))
        with pytest.raises(Conflict):
            await recorder.finish(new.id, Ended(state="failed", answer="second"))

    record = await Calls(db=db).get(new.id, namespaces=None)
    assert (record.state, record.content["answer"]) == ("answered", "first")

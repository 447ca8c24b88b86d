"""Guarantee 9: whatever a model does, the call ends in time, on record, and with a way on."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

import pytest

from noema.core.clock import SystemClock, UuidV7Ids
from noema.core.errors import InvalidInput, NotFound, Unavailable
from noema.db.tx import Database
from noema.llm.calls import CallRecord, Calls, Ended
from noema.llm.errors import BadAnswer, NoModel
from noema.llm.model import Chain, Completion, Parameters, Provider, Role, Usage
from noema.llm.providers.openai import OpenAIProvider
from noema.llm.providers.setup import Setup
from noema.llm.providers.wire import Limits
from noema.llm.service import LanguageService
from noema.net.guard import guarded_transport
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.llm_fake import FakeOpenAI, Reply, drip, endless, hang, refusal, web_page
from tests.llm_scripted import (
    House,
    QuickClock,
    Scripted,
    Switch,
    asks,
    entry,
    fails,
    hangs,
    recorder_on,
    says,
)

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
GOOD = '{"n": 1}'
KEY = "sk-canary-0123456789abcdef"


async def only_call(db: Database) -> CallRecord:
    calls = Calls(db=db)
    (row,) = await calls.page(namespaces=None)
    return await calls.get(row.id, namespaces=None)


async def test_every_attempt_is_on_record_the_skipped_ones_with_the_reason(
    database: TestDatabase, db: Database
) -> None:
    # The anchor's fault: retries multiplied, and only one was recorded.
    clock = QuickClock()
    second = Scripted(
        fails("Busy.", status=529), fails("Busy.", status=529), fails("Bad.", status=500)
    )
    async with recorder_on(database) as recorder:
        house = House(recorder, [Scripted(), second, Scripted(says("third"))], clock=clock)
        house.switches[house.entries[0].provider].is_open = True
        answer = await house.complete(asks())

    call = await only_call(db)
    assert call.attempts == answer.attempts
    assert [(a.provider, a.status, a.error) for a in answer.attempts] == [
        ("primary", None, "Not asked: It failed lately, and is not asked again yet."),
        ("second", 529, "Busy."),
        ("second", 529, "Busy."),
        ("second", 500, "Bad."),
        ("third", 200, ""),
    ]
    assert (call.provider, call.model, call.state) == ("third", "m-1", "answered")
    assert all(0.25 <= pause <= 1.0 for pause in clock.slept)


async def test_an_answer_says_what_all_its_attempts_took(
    database: TestDatabase, db: Database
) -> None:
    provider = Scripted(fails(usage=Usage(input=10, output=1)), says("ok"))
    async with recorder_on(database) as recorder:
        answer = await House(recorder, [provider], clock=QuickClock()).complete(asks())

    call = await only_call(db)
    assert answer.usage == call.usage == Usage(input=20, output=6)
    assert (answer.cost_micros, answer.cost_kind) == (12 + 20, "known")
    assert (call.cost_micros, call.cost_kind) == (32, "known")


async def test_one_that_hangs_is_left_in_time_and_the_fallback_answers(
    database: TestDatabase, db: Database
) -> None:
    async with recorder_on(database) as recorder:
        house = House(
            recorder,
            [Scripted(hangs), Scripted(says("fallback"))],
            clock=SystemClock(),
            deadline_s=2.0,
        )
        async with asyncio.timeout(60):
            answer = await house.complete(asks())

    assert answer.text == "fallback"
    assert [(a.provider, a.cost_kind) for a in answer.attempts] == [
        ("primary", "unknown"),
        ("second", "known"),
    ]


async def test_a_deadline_of_the_caller_is_kept_where_it_is_shorter(
    database: TestDatabase, db: Database
) -> None:
    async with recorder_on(database) as recorder:
        house = House(recorder, [Scripted(hangs)], clock=SystemClock(), deadline_s=600.0)
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable, match="primary"):
                await house.complete(asks(deadline_s=0.5))

    call = await only_call(db)
    assert (call.state, call.error, call.cost_kind) == ("failed", "unavailable", "unknown")
    assert "No answer came" in call.content["reason"]


async def test_json_that_does_not_fit_is_repaired_once_and_both_are_on_record(
    database: TestDatabase, db: Database
) -> None:
    provider = Scripted(says('{"n": "one"}'), says(f"```json\n{GOOD}\n```"))
    async with recorder_on(database) as recorder:
        answer = await House(recorder, [provider], clock=SystemClock()).complete(
            asks(schema=SCHEMA)
        )

    repair = provider.asked[1]
    call = await only_call(db)
    assert answer.value == {"n": 1}
    assert [message.role for message in repair] == ["user", "assistant", "user"]
    assert repair[1].text == '{"n": "one"}'
    assert "$.n" in repair[2].text
    assert len(answer.attempts) == len(call.attempts) == 2
    assert call.content["refused"][0]["text"] == '{"n": "one"}'
    assert call.cost_micros == 40


@pytest.mark.parametrize("second", [says("nope"), fails(retryable=False)])
async def test_where_the_repair_fails_too_the_caller_is_told_and_nobody_else_is_asked(
    database: TestDatabase, db: Database, second: Completion | Exception
) -> None:
    provider = Scripted(says("nope"), second)
    async with recorder_on(database) as recorder:
        with pytest.raises(BadAnswer, match="not JSON"):
            await House(recorder, [provider], clock=SystemClock()).complete(asks(schema=SCHEMA))

    call = await only_call(db)
    assert len(provider.asked) == 2
    assert (call.error, call.content["answer"]) == ("bad_answer", "nope")
    assert "not JSON" in call.content["reason"]


async def test_a_repair_goes_on_to_a_fallback_where_its_model_is_gone(
    database: TestDatabase,
) -> None:
    primary, second = Scripted(says("nope"), fails(retryable=False)), Scripted(says(GOOD))
    async with recorder_on(database) as recorder:
        house = House(recorder, [primary, second], clock=SystemClock())
        answer = await house.complete(asks(schema=SCHEMA))

    assert (answer.provider, answer.value) == ("second", {"n": 1})


async def test_a_refusal_is_not_repaired(database: TestDatabase, db: Database) -> None:
    provider = Scripted(says("I would rather not.", finish="refusal"))
    async with recorder_on(database) as recorder:
        house = House(recorder, [provider], clock=SystemClock())
        with pytest.raises(BadAnswer, match="would not"):
            await house.complete(asks(schema=SCHEMA))
        plain = await House(
            recorder, [Scripted(says("No.", finish="refusal"))], clock=SystemClock()
        ).complete(asks())

    assert len(provider.asked) == 1
    assert (plain.text, plain.finish) == ("No.", "refusal")


async def test_what_was_cut_off_is_asked_for_shorter(database: TestDatabase) -> None:
    provider = Scripted(says('{"n": ', finish="length"), says(GOOD))
    async with recorder_on(database) as recorder:
        await House(recorder, [provider], clock=SystemClock()).complete(asks(schema=SCHEMA))

    assert "shorter" in provider.asked[1][-1].text


async def test_what_the_request_sets_counts_before_what_the_chain_sets(
    database: TestDatabase,
) -> None:
    provider = Scripted()
    async with recorder_on(database) as recorder:
        house = House(recorder, [provider], clock=SystemClock(), max_tokens=100)
        await house.complete(asks(temperature=0.2))
        await house.complete(asks(max_tokens=7))

    assert provider.parameters == [
        Parameters(temperature=0.2, max_tokens=100),
        Parameters(max_tokens=7),
    ]


async def test_no_more_calls_are_under_way_than_the_pool_allows(database: TestDatabase) -> None:
    now = most = 0
    may_answer = asyncio.Event()

    async def counted() -> Completion:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await may_answer.wait()
        now -= 1
        return says("ok")

    async with recorder_on(database) as recorder:
        provider = Scripted(*[counted] * 30)
        house = House(recorder, [provider], clock=SystemClock(), most_at_once=4)
        async with asyncio.TaskGroup() as group:
            for n in range(30):
                group.create_task(house.complete(asks(ordinal=n)))
            await eventually(lambda: now == 4)
            may_answer.set()

    assert most == 4
    assert now == 0


async def test_whoever_waits_for_the_pool_waits_no_longer_than_the_deadline(
    database: TestDatabase,
) -> None:
    async with recorder_on(database) as recorder:
        house = House(recorder, [Scripted(hangs)], clock=SystemClock(), most_at_once=1)
        async with asyncio.TaskGroup() as group:
            stuck = group.create_task(house.complete(asks()))
            await asyncio.sleep(0)
            with pytest.raises(Unavailable, match="too many"):
                await house.complete(asks(cycle=2, deadline_s=0.2))
            stuck.cancel()


def service(recorder: Any, chain: Chain, provider_of: Any, **more: Any) -> LanguageService:
    async def chain_of(role: Role) -> Chain:
        return chain

    clock = SystemClock()
    return LanguageService(
        recorder=recorder,
        chain_of=chain_of,
        provider_of=provider_of,
        breaker_of=lambda e: Switch(),
        clock=clock,
        ids=UuidV7Ids(clock),
        chance=Random(1),
        **more,
    )


async def test_a_role_without_a_model_says_so_and_leaves_no_row(
    database: TestDatabase, db: Database
) -> None:
    async def nobody(provider: UUID) -> Provider:
        raise AssertionError("nobody is asked for")

    async with recorder_on(database) as recorder:
        off = service(recorder, Chain(entries=(), deadline_s=5.0), nobody)
        with pytest.raises(NoModel, match="dialogue"):
            await off.complete(asks())

    assert await Calls(db=db).page(namespaces=None) == []


async def test_a_provider_that_is_gone_is_passed_over(database: TestDatabase) -> None:
    async def provider_of(provider: UUID) -> Provider:
        if provider == UUID(int=1):
            raise NotFound("provider", provider)
        return Scripted(says("here"))

    ends: list[tuple[Role, Ended]] = []
    chain = Chain(entries=(entry("gone", 1), entry("here", 2)), deadline_s=5.0)
    async with recorder_on(database) as recorder:
        asked = service(
            recorder, chain, provider_of, on_end=lambda role, ended: ends.append((role, ended))
        )
        answer = await asked.complete(asks())

    assert answer.text == "here"
    assert [(a.provider, a.cost_micros) for a in answer.attempts] == [("gone", 0), ("here", 20)]
    assert [(role, ended.state) for role, ended in ends] == [(Role.DIALOGUE, "answered")]


async def test_whatever_a_provider_raises_of_ours_is_on_record_and_the_next_is_asked(
    database: TestDatabase, db: Database
) -> None:
    broken = Scripted(InvalidInput("It cannot be sent so."))
    async with recorder_on(database) as recorder:
        house = House(recorder, [broken, Scripted(says("here"))], clock=SystemClock())
        answer = await house.complete(asks())

    call = await only_call(db)
    assert answer.text == "here"
    assert [(a.provider, a.error) for a in call.attempts] == [
        ("primary", "It cannot be sent so."),
        ("second", ""),
    ]
    assert len(broken.asked) == 1


async def test_a_schema_that_is_none_is_refused_before_anybody_is_asked(
    database: TestDatabase,
) -> None:
    provider = Scripted()
    async with recorder_on(database) as recorder:
        with pytest.raises(InvalidInput):
            await House(recorder, [provider], clock=SystemClock()).complete(
                asks(schema={"type": "objekt"})
            )

    assert provider.asked == []


async def test_a_fault_in_a_provider_is_on_record_and_holds_nothing(
    database: TestDatabase, db: Database
) -> None:
    async with recorder_on(database) as recorder:
        house = House(recorder, [Scripted(ZeroDivisionError())], clock=SystemClock())
        with pytest.raises(ZeroDivisionError):
            await house.complete(asks())
        answer = await house.complete(asks())

    states = sorted(call.state for call in await Calls(db=db).page(namespaces=None))
    assert states == ["answered", "unknown"]
    assert answer.text == "ok"


@pytest.mark.parametrize(
    "fault",
    [
        hang,
        drip,
        web_page,
        lambda: endless(b"data: {}\n\n" * 10_000),
        lambda: refusal(429, {}, retry_after="1"),
        lambda: refusal(429, {}, retry_after="Fri, 31 Dec 2100 23:59:59 GMT"),
        lambda: refusal(529, {}),
    ],
    ids=["hang", "drip", "html", "100 MB", "429 in seconds", "429 as a date", "529"],
)
async def test_a_real_server_that_misbehaves_costs_a_fallback_and_no_more(
    database: TestDatabase, db: Database, fault: Callable[[], Reply]
) -> None:
    # Guarantees 9 and 18.
    async with FakeOpenAI() as fake, recorder_on(database) as recorder:
        for _ in range(5):
            fake.then(fault())
        real = OpenAIProvider(
            Setup(
                endpoint=fake.url,
                secret=KEY,
                allows_private=True,
                parameters=Parameters(),
                transport=guarded_transport(allows_private=True),
                clock=SystemClock(),
                limits=Limits(first_byte_s=0.3, between_s=0.3),
            )
        )
        house = House(recorder, [real, Scripted(says("alive"))], clock=QuickClock(), deadline_s=8.0)
        answer = await house.complete(asks())
        await real.aclose()

    call = await only_call(db)
    assert answer.text == "alive"
    assert call.attempts[0].error
    assert KEY not in repr(call)
    starts = [attempt.started_ms for attempt in call.attempts]
    assert all(a <= b for a, b in pairwise(starts))

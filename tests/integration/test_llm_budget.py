"""Guarantee 9, for money: reserved before, settled after, never over the limit."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noema.core.clock import ManualClock, SystemClock, UuidV7Ids
from noema.core.errors import Denied, InvalidInput, NotFound, Unavailable
from noema.core.identity import LOCAL, ConsoleRole, Identity, MemoryRole
from noema.db.tx import Database, single
from noema.events.audit import Audit
from noema.llm.budget import (
    Budgets,
    BudgetState,
    Hold,
    Window,
    apply,
    cost_of,
    estimated_tokens,
    opens_at,
    worst_case,
)
from noema.llm.calls import Calls, new_row
from noema.llm.errors import BudgetExceeded
from noema.llm.model import ChatMessage, Completion, Parameters, Prices, Role, Usage
from noema.llm.recorder import Recorder, recording
from noema.llm.store import budgets as store
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.llm_scripted import (
    MIND,
    PRICES,
    House,
    QuickClock,
    Scripted,
    asks,
    entry,
    fails,
    recorder_on,
    says,
)

FREE = Prices(input=0, output=0)
OTHER = UUID("00000000-0000-7000-8000-00000000000b")
# What a call of `House` may take at most: 2 tokens of text, 8 of the message, 100 of the answer.
MOST_TOKENS = 110
MOST_MICROS = 210


def budgets_of(db: Database) -> Budgets:
    ids = UuidV7Ids(SystemClock())
    return Budgets(db=db, audit=Audit(db=db, ids=ids), ids=ids)


async def state_of(db: Database) -> BudgetState:
    (state,) = await budgets_of(db).states()
    return state


async def window_of(db: Database) -> Window:
    return (await state_of(db)).windows[0]


async def outcome(house: House, **request: Any) -> str:
    try:
        return (await house.complete(asks(**request))).text
    except BudgetExceeded as exc:
        return str(exc)


async def test_a_call_settles_to_what_it_took(database: TestDatabase, db: Database) -> None:
    await budgets_of(db).set(LOCAL, scope="everything", period="day", money_micros=1_000)
    async with recorder_on(database) as recorder:
        answer = await House(recorder, [Scripted()], clock=SystemClock()).complete(asks())

    window = await window_of(db)
    assert answer.cost_micros == 20
    assert (window.reserved_micros, window.spent_micros) == (0, 20)
    assert (window.reserved_tokens, window.spent_tokens) == (0, 15)
    assert window.unknown_calls == window.stopped == 0


async def test_while_a_call_is_under_way_its_worst_case_is_reserved(
    database: TestDatabase, db: Database
) -> None:
    await budgets_of(db).set(LOCAL, scope="everything", period="day", money_micros=1_000)
    seen: list[Window] = []

    async def looks() -> Completion:
        seen.append(await window_of(db))
        return says("ok")

    async with recorder_on(database) as recorder:
        await House(recorder, [Scripted(looks)], clock=SystemClock()).complete(asks())

    assert (seen[0].reserved_micros, seen[0].spent_micros) == (MOST_MICROS, 0)
    assert seen[0].reserved_tokens == MOST_TOKENS


async def test_concurrent_calls_do_not_pass_a_budget_before_what_they_spend_is_known(
    database: TestDatabase, db: Database
) -> None:
    # The anchor's fault: a hundred at once all saw that nothing was spent yet.
    await budgets_of(db).set(
        LOCAL, scope="everything", period="day", money_micros=MOST_MICROS * 5 + 1
    )
    most = 0
    held = asyncio.Event()

    async def looks() -> Completion:
        nonlocal most
        window = await window_of(db)
        most = max(most, window.reserved_micros + window.spent_micros)
        await held.wait()
        return says("ok")

    async with recorder_on(database) as recorder:
        provider = Scripted(*[looks] * 100)
        house = House(recorder, [provider], clock=SystemClock(), most_at_once=100)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(outcome(house, ordinal=n)) for n in range(100)]
            await eventually(lambda: sum(task.done() for task in tasks) == 95)
            held.set()

    assert len(provider.asked) == 5
    assert most == MOST_MICROS * 5
    assert sum(task.result() == "ok" for task in tasks) == 5
    assert (await window_of(db)).stopped == 95


async def test_two_daemons_together_do_not_pass_a_budget(
    database: TestDatabase, db: Database
) -> None:
    await budgets_of(db).set(LOCAL, scope="mind", period="day", tokens=MOST_TOKENS * 7)
    await budgets_of(db).set(LOCAL, scope="role", period="month", tokens=MOST_TOKENS * 100)
    unsaid = says("ok", usage=Usage())

    async with recorder_on(database) as one, recorder_on(database) as two:
        providers = [Scripted(*[unsaid] * 50), Scripted(*[unsaid] * 50)]
        houses = [
            House(recorder, [provider], clock=SystemClock())
            for recorder, provider in zip((one, two), providers, strict=True)
        ]
        async with asyncio.TaskGroup() as group:
            for n in range(40):
                group.create_task(outcome(houses[n % 2], ordinal=n))

    assert sum(len(provider.asked) for provider in providers) == 7


def hold_of(call: UUID, attempt: int = 1, *, tokens: int = 40) -> Hold:
    return Hold(
        call=call, attempt=attempt, mind=None, cycle=None, role="plan", provider="p", micros=1,
        tokens=tokens,
    )  # fmt: skip


async def begun(database: TestDatabase, count: int) -> list[UUID]:
    """Return the ids of so many calls that are on record."""
    ids, now = UuidV7Ids(SystemClock()), SystemClock().now()
    calls = [ids.new() for _ in range(count)]
    async with recorder_on(database) as recorder:
        for call in calls:
            request = asks(mind=None, cycle=None)
            await recorder.begin(new_row(call, request, now=now, due=now), None)
    return calls


async def test_who_reserves_waits_for_whoever_has_looked_at_the_same_window_and_not_yet_reserved(
    database: TestDatabase, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await budgets_of(db).set(LOCAL, scope="everything", period="day", tokens=100)
    calls, now = await begun(database, 3), SystemClock().now()
    async with db.transaction() as tx:
        # The window is there already: it is not its making that they wait for.
        await apply(tx.conn, settled=(), holds=[hold_of(calls[0])], now=now)
    has_looked, goes_on = asyncio.Event(), asyncio.Event()
    looks = store.windows

    async def looks_and_waits(conn: Any, keys: Any) -> Any:
        seen = await looks(conn, keys)
        if not has_looked.is_set():
            has_looked.set()
            await goes_on.wait()
        return seen

    async def reserves(call: UUID) -> BudgetExceeded | None:
        async with db.transaction() as tx:
            return (await apply(tx.conn, settled=(), holds=[hold_of(call)], now=now))[0]

    async def is_waiting_or_through() -> bool:
        async with db.reading() as tx:
            waiting = (
                # Who waits for what, another login sees only here.
                "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) "
                "WHERE datname = current_database() AND NOT granted"
            )
            return last.done() or bool(await tx.conn.fetchval(waiting))

    monkeypatch.setattr(store, "windows", looks_and_waits)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(reserves(calls[1]))
        await has_looked.wait()
        last = group.create_task(reserves(calls[2]))
        await eventually(is_waiting_or_through)
        goes_on.set()

    assert first.result() is None
    assert isinstance(last.result(), BudgetExceeded)
    assert (await window_of(db)).reserved_tokens == 80


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    limit=st.integers(0, 3_000),
    calls=st.lists(
        st.tuples(st.sampled_from([MIND, OTHER]), st.sampled_from(["good", "fails", "unknown"])),
        min_size=1,
        max_size=25,
    ),
)
async def test_whatever_comes_of_the_calls_a_window_never_holds_more_than_its_limit(
    database: TestDatabase, db: Database, limit: int, calls: list[tuple[UUID, str]]
) -> None:
    budgets = budgets_of(db)
    made = await budgets.set(LOCAL, scope="mind", period="day", money_micros=limit)
    before = {w.key: w for w in (await state_of(db)).windows}
    outcomes: dict[str, Completion | Exception] = {
        "good": says("ok"),
        "fails": fails(retryable=False),
        "unknown": fails(retryable=False, is_cost_unknown=True),
    }
    over = 0

    async def one(house: House, mind: UUID, n: int) -> None:
        nonlocal over
        with suppress(BudgetExceeded, Unavailable):
            await house.complete(asks(mind=mind, cycle=None, ordinal=n))
        for window in (await state_of(db)).windows:
            held = window.reserved_micros + window.spent_micros
            over += held > max(limit, _held(before.get(window.key)))

    async with recorder_on(database) as recorder:
        provider = Scripted(*(outcomes[kind] for _, kind in calls))
        house = House(recorder, [provider], clock=SystemClock())
        async with asyncio.TaskGroup() as group:
            for n, (mind, _) in enumerate(calls):
                group.create_task(one(house, mind, n))

    assert over == 0
    assert all(window.reserved_micros == 0 for window in (await state_of(db)).windows)
    assert made.money_micros == limit


def _held(window: Window | None) -> int:
    return 0 if window is None else window.reserved_micros + window.spent_micros


async def test_each_attempt_is_checked_and_a_dear_fallback_is_not_slipped_in(
    database: TestDatabase, db: Database
) -> None:
    # The anchor's fault: the budget was looked at once, for the cheap primary.
    await budgets_of(db).set(LOCAL, scope="everything", period="day", money_micros=1_000)
    dear = Prices(input=1_000_000_000, output=1_000_000_000)
    primary, second = Scripted(fails(retryable=False)), Scripted()
    async with recorder_on(database) as recorder:
        house = House(recorder, [primary, second], clock=SystemClock(), prices=[FREE, dear])
        with pytest.raises(Unavailable, match="second: The budget of everything"):
            await house.complete(asks())

    assert len(primary.asked) == 1
    assert second.asked == []
    assert (await window_of(db)).stopped == 1


async def test_a_retry_is_paid_for_like_the_first_try(database: TestDatabase, db: Database) -> None:
    await budgets_of(db).set(LOCAL, scope="provider", key="primary", period="day", tokens=10_000)
    taken = Usage(input=10, output=7)
    provider = Scripted(fails(usage=taken), fails(is_cost_unknown=True), says("ok"))
    async with recorder_on(database) as recorder:
        answer = await House(recorder, [provider], clock=QuickClock()).complete(asks())

    window = await window_of(db)
    assert [a.cost_micros for a in answer.attempts] == [24, None, 20]
    assert [a.cost_kind for a in answer.attempts] == ["known", "unknown", "known"]
    assert answer.cost_kind == "unknown"
    assert window.spent_tokens == 17 + MOST_TOKENS + 15
    assert (window.reserved_tokens, window.unknown_calls) == (0, 1)


async def test_an_answer_without_a_count_stays_at_what_was_reserved(
    database: TestDatabase, db: Database
) -> None:
    await budgets_of(db).set(LOCAL, scope="everything", period="day", money_micros=1_000)
    async with recorder_on(database) as recorder:
        provider = Scripted(says("ok", usage=Usage()))
        answer = await House(recorder, [provider], clock=SystemClock()).complete(asks())

    window = await window_of(db)
    assert (answer.cost_micros, answer.cost_kind) == (None, "unknown")
    assert (window.spent_micros, window.unknown_calls) == (MOST_MICROS, 1)


async def test_a_count_that_nobody_believes_is_unknown(
    database: TestDatabase, db: Database
) -> None:
    await budgets_of(db).set(LOCAL, scope="everything", period="day", tokens=1_000)
    async with recorder_on(database) as recorder:
        provider = Scripted(says("ok", usage=Usage(input=10**30, output=-5)))
        answer = await House(recorder, [provider], clock=SystemClock()).complete(asks())

    assert answer.cost_kind == "unknown"
    assert (await window_of(db)).spent_tokens == MOST_TOKENS


@pytest.mark.parametrize(
    "usage",
    [Usage(input=0, output=0), Usage(input=10, output=0), Usage(input=0, output=5)],
    ids=["nothing at all", "nothing to write", "nothing to read"],
)
async def test_an_answer_that_is_said_to_have_taken_nothing_was_not_counted(
    database: TestDatabase, db: Database, usage: Usage
) -> None:
    await budgets_of(db).set(LOCAL, scope="everything", period="day", money_micros=1_000)
    async with recorder_on(database) as recorder:
        provider = Scripted(says("ok", usage=usage))
        answer = await House(recorder, [provider], clock=SystemClock()).complete(asks())

    window = await window_of(db)
    assert (answer.cost_micros, answer.cost_kind) == (None, "unknown")
    assert (window.spent_micros, window.spent_tokens) == (MOST_MICROS, MOST_TOKENS)
    assert window.unknown_calls == 1


async def test_a_prompt_read_from_the_cache_alone_is_counted(database: TestDatabase) -> None:
    async with recorder_on(database) as recorder:
        provider = Scripted(says("ok", usage=Usage(input=0, cache_read=10, output=5)))
        answer = await House(recorder, [provider], clock=SystemClock()).complete(asks())

    assert (answer.cost_micros, answer.cost_kind) == (20, "estimated")


async def test_what_took_more_than_was_reserved_is_spent_in_full_and_stops_the_next(
    database: TestDatabase, db: Database
) -> None:
    await budgets_of(db).set(LOCAL, scope="everything", period="day", tokens=MOST_TOKENS * 3)
    async with recorder_on(database) as recorder:
        provider = Scripted(says("ok", usage=Usage(input=10**6, output=10**6)))
        house = House(recorder, [provider], clock=SystemClock())
        first, second = await outcome(house), await outcome(house, ordinal=1)

    window = await window_of(db)
    assert (first, window.spent_tokens, window.reserved_tokens) == ("ok", 2 * 10**6, 0)
    assert "has 0 tokens left" in second


async def test_under_a_budget_of_money_a_provider_without_prices_is_refused(
    database: TestDatabase, db: Database
) -> None:
    await budgets_of(db).set(LOCAL, scope="everything", period="month", money_micros=10**9)
    async with recorder_on(database) as recorder:
        unpriced = House(recorder, [Scripted()], clock=SystemClock(), prices=[Prices()])
        refused = await outcome(unpriced)
        free = await outcome(House(recorder, [Scripted()], clock=SystemClock(), prices=[FREE]))

    assert "the prices of primary are not set. Nothing was asked. Set them, at 0" in refused
    assert free == "ok"


async def test_under_a_budget_of_tokens_a_provider_without_prices_counts(
    database: TestDatabase, db: Database
) -> None:
    await budgets_of(db).set(LOCAL, scope="everything", period="day", tokens=MOST_TOKENS)
    async with recorder_on(database) as recorder:
        house = House(recorder, [Scripted()], clock=SystemClock(), prices=[Prices()])
        first, second = await outcome(house), await outcome(house, ordinal=1)

    window = await window_of(db)
    assert first == "ok"
    assert "95 tokens left" in second
    assert "It opens again on " in second
    assert (window.spent_tokens, window.unknown_calls) == (15, 1)


async def test_who_is_stopped_reads_which_budget_it_was_and_what_helps(
    database: TestDatabase, db: Database
) -> None:
    await budgets_of(db).set(LOCAL, scope="mind", key=str(MIND), period="day", tokens=1)
    clock = ManualClock(datetime(2026, 12, 31, 23, 59, tzinfo=UTC))
    async with recorder_on(database, clock=clock) as recorder:
        provider = Scripted()
        told = await outcome(House(recorder, [provider], clock=SystemClock()))
        other = await outcome(House(recorder, [provider], clock=SystemClock()), mind=OTHER)

    assert told == (
        f"The budget of mind {MIND} for 2026-12-31 of 1 token is less than this call alone may "
        "take, 110 tokens. Nothing was asked. Set a smaller max_tokens, or raise the budget."
    )
    assert other == "ok"
    assert len(provider.asked) == 1


async def test_a_new_day_and_a_new_cycle_begin_anew(database: TestDatabase, db: Database) -> None:
    await budgets_of(db).set(LOCAL, scope="role", key="dialogue", period="day", tokens=130)
    await budgets_of(db).set(LOCAL, scope="cycle", period="cycle", tokens=120)
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    async with recorder_on(database, clock=clock) as recorder:
        house = House(recorder, [Scripted()], clock=SystemClock())
        first = await outcome(house, cycle=1)
        same_cycle = await outcome(house, cycle=1, ordinal=1)
        next_cycle = await outcome(house, cycle=2)
        same_day = await outcome(house, cycle=3)
        other_role = await outcome(house, cycle=3, role=Role.PLAN)
        clock.advance(86_400)
        next_day = await outcome(house, cycle=4)

    assert (first, next_cycle, other_role, next_day) == ("ok", "ok", "ok", "ok")
    assert f"cycle {MIND} for cycle 1" in same_cycle
    assert "with the next cycle" in same_cycle
    assert "role dialogue for 2026-03-01" in same_day


@pytest.mark.parametrize(
    ("period", "begins", "starts"),
    [
        ("day", datetime(2026, 3, 1, 23, 59, tzinfo=UTC), "2026-03-01"),
        ("month", datetime(2026, 3, 31, 23, 59, tzinfo=UTC), "2026-03"),
    ],
)
async def test_a_call_over_midnight_settles_in_the_window_that_it_was_reserved_in(
    database: TestDatabase, db: Database, period: Any, begins: datetime, starts: str
) -> None:
    await budgets_of(db).set(LOCAL, scope="everything", period=period, tokens=200)
    clock = ManualClock(begins)

    async def over_midnight() -> Completion:
        clock.advance(120)
        return says("ok")

    async with recorder_on(database, clock=clock) as recorder:
        house = House(recorder, [Scripted(over_midnight)], clock=SystemClock())
        assert await outcome(house) == "ok"
        assert await outcome(house, ordinal=1) == "ok"

    async with db.reading() as tx:
        rows = await tx.conn.fetch(
            "SELECT starts, reserved_tokens, spent_tokens FROM budget_windows ORDER BY starts"
        )
    assert rows[0]["starts"] == starts
    assert [tuple(row)[1:] for row in rows] == [(0, 15), (0, 15)]


@pytest.mark.parametrize("change", ["lowered", "ended", "ended and set again"])
async def test_a_budget_that_is_changed_while_a_call_is_under_way_is_settled_all_the_same(
    database: TestDatabase, db: Database, change: str
) -> None:
    budgets = budgets_of(db)
    made = await budgets.set(LOCAL, scope="everything", period="day", tokens=1_000)

    async def changes() -> Completion:
        if change != "lowered":
            await budgets.end(LOCAL, made.id)
        if change != "ended":
            await budgets.set(LOCAL, scope="everything", period="day", tokens=20)
        return says("ok")

    async with recorder_on(database) as recorder:
        house = House(recorder, [Scripted(changes)], clock=SystemClock())
        first, second = await outcome(house), await outcome(house, ordinal=1)

    async with db.reading() as tx:
        rows = await tx.conn.fetch("SELECT reserved_tokens, spent_tokens FROM budget_windows")
    assert (first, second == "ok") == ("ok", change == "ended")
    assert [tuple(row) for row in rows] == [(0, 15)]


async def test_a_fallback_settles_the_provider_before_it_in_its_own_budget(
    database: TestDatabase, db: Database
) -> None:
    for name in ("primary", "second"):
        await budgets_of(db).set(LOCAL, scope="provider", key=name, period="day", tokens=1_000)
    seen: dict[str, tuple[int, int]] = {}

    async def looks() -> Completion:
        for state in await budgets_of(db).states():
            (window,) = state.windows
            seen[window.key] = window.reserved_tokens, window.spent_tokens
        return says("ok")

    async with recorder_on(database) as recorder:
        chain = [Scripted(fails(retryable=False, is_cost_unknown=True)), Scripted(looks)]
        answer = await House(recorder, chain, clock=SystemClock()).complete(asks())

    after = {s.budget.key: s.windows[0] for s in await budgets_of(db).states()}
    assert answer.provider == "second"
    assert seen == {"primary": (0, MOST_TOKENS), "second": (MOST_TOKENS, 0)}
    assert after["second"].spent_tokens == 15
    assert [window.reserved_tokens for window in after.values()] == [0, 0]


class _Steps(Recorder):
    """A recorder whose second step never comes back, written or not."""

    is_written = False

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.is_stepping = asyncio.Event()

    async def step(self, *args: Any, **named: Any) -> BudgetExceeded | None:
        if self.is_written:
            await super().step(*args, **named)
        self.is_stepping.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


@pytest.mark.parametrize("is_written", [False, True])
async def test_whoever_goes_away_between_two_tries_has_spent_the_first_and_no_more(
    database: TestDatabase, db: Database, is_written: bool
) -> None:
    await budgets_of(db).set(LOCAL, scope="everything", period="day", money_micros=1_000)
    clock = QuickClock()
    recorder = _Steps(
        connect=lambda: single(database.app_dsn, database.role), clock=clock, daemon=OTHER
    )
    recorder.is_written = is_written
    provider = Scripted(fails(usage=Usage(input=10, output=1)))
    async with recording(recorder):
        house = House(recorder, [provider], clock=clock)
        asking = asyncio.ensure_future(house.complete(asks()))
        await recorder.is_stepping.wait()
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking

    window = await window_of(db)
    (call,) = await Calls(db=db).page(namespaces=None)
    assert (window.spent_micros, window.reserved_micros, window.unknown_calls) == (12, 0, 0)
    assert (call.state, call.cost_micros, call.cost_kind) == ("unknown", 12, "known")


async def test_a_record_that_does_not_come_back_keeps_nobody_beyond_the_deadline(
    database: TestDatabase, db: Database
) -> None:
    clock = QuickClock()
    recorder = _Steps(
        connect=lambda: single(database.app_dsn, database.role), clock=clock, daemon=OTHER
    )
    async with recording(recorder):
        house = House(recorder, [Scripted(fails())], clock=clock, deadline_s=1.0)
        with pytest.raises(Unavailable, match="could not be recorded in time"):
            async with asyncio.timeout(30):
                await house.complete(asks())


async def test_changing_a_limit_or_setting_it_again_keeps_what_was_spent(
    database: TestDatabase, db: Database
) -> None:
    budgets = budgets_of(db)
    made = await budgets.set(LOCAL, scope="everything", period="day", tokens=1_000)
    async with recorder_on(database) as recorder:
        await House(recorder, [Scripted()], clock=SystemClock()).complete(asks())
    changed = await budgets.set(LOCAL, scope="everything", period="day", money_micros=5)
    await budgets.end(LOCAL, made.id)
    none = await budgets.states()
    again = await budgets.set(LOCAL, scope="everything", period="day", tokens=50)

    assert made.id == changed.id == again.id
    assert none == ()
    assert (await window_of(db)).spent_tokens == 15
    assert (await state_of(db)).budget.money_micros is None


async def test_only_administrators_set_budgets_and_every_try_is_in_the_audit_log(
    db: Database,
) -> None:
    operator = Identity(
        namespace="acme",
        actor="user:olga",
        role=MemoryRole.OWNER,
        console=ConsoleRole.OPERATOR,
        agent_id="console",
    )
    budgets = budgets_of(db)
    with pytest.raises(Denied):
        await budgets.set(operator, scope="everything", period="day", tokens=1)
    made = await budgets.set(LOCAL, scope="everything", period="day", tokens=1)
    with pytest.raises(Denied):
        await budgets.end(operator, made.id)
    await budgets.end(LOCAL, made.id)
    with pytest.raises(NotFound):
        await budgets.end(LOCAL, made.id)

    rows = await Audit(db=db, ids=UuidV7Ids(SystemClock())).search(op="llm")
    assert [(row.op, row.actor, row.result) for row in reversed(rows)] == [
        ("llm.budget-set", "user:olga", "denied"),
        ("llm.budget-set", "local", "ok"),
        ("llm.budget-end", "user:olga", "denied"),
        ("llm.budget-end", "local", "ok"),
        ("llm.budget-end", "local", "miss"),
    ]


@pytest.mark.parametrize(
    "budget",
    [
        {"scope": "planet", "period": "day", "tokens": 1},
        {"scope": "role", "period": "year", "tokens": 1},
        {"scope": "role", "period": "day", "key": "juggle", "tokens": 1},
        {"scope": "mind", "period": "day", "key": "ada", "tokens": 1},
        {"scope": "cycle", "period": "day", "tokens": 1},
        {"scope": "everything", "period": "cycle", "tokens": 1},
        {"scope": "everything", "period": "day", "key": "x", "tokens": 1},
        {"scope": "provider", "period": "day", "key": "", "tokens": 1},
        {"scope": "role", "period": "day"},
        {"scope": "role", "period": "day", "tokens": -1},
        {"scope": "role", "period": "day", "money_micros": 10**30},
    ],
)
async def test_a_budget_that_means_nothing_is_refused(db: Database, budget: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        await budgets_of(db).set(LOCAL, **budget)


def test_classes_of_tokens_are_charged_once_each_and_rounded_up() -> None:
    prices = Prices(input=3, output=15, reasoning=15, cache_read=1, cache_write=4)
    usage = Usage(input=100, output=10, reasoning=1_000, cache_read=10_000, cache_write=100)

    assert cost_of(usage, prices) == (1, "known")
    assert cost_of(usage, Prices(input=1_000_000, output=2_000_000)) == (
        100 + 2 * 10 + 2 * 1_000 + 10_000 + 2 * 100,
        "estimated",
    )
    assert cost_of(Usage(input=1, output=0), Prices(input=1, output=0)) == (1, "known")
    assert cost_of(usage, FREE) == (0, "free")
    assert cost_of(usage, Prices(input=1)) == (None, "unknown")
    assert cost_of(Usage(input=1), PRICES) == (None, "unknown")


@given(
    st.builds(
        Usage,
        input=st.integers(0, 10**9),
        output=st.integers(0, 10**9),
        reasoning=st.none() | st.integers(0, 10**9),
    ),
    st.integers(0, 10**9),
    st.integers(1, 10**9),
)
def test_a_cost_is_never_less_than_the_exact_one(usage: Usage, given: int, taken: int) -> None:
    cost, _ = cost_of(usage, Prices(input=taken, output=given))

    exact = (usage.input or 0) * taken + ((usage.output or 0) + (usage.reasoning or 0)) * given
    assert cost is not None
    assert 0 <= cost * 1_000_000 - exact < 1_000_000


def test_the_worst_case_counts_every_script_and_the_schema_and_assumes_a_long_answer() -> None:
    latin, cjk = ChatMessage(role="user", text="a" * 300), ChatMessage(role="user", text="漢" * 300)

    assert estimated_tokens([latin]) == 108
    assert estimated_tokens([cjk]) == 308
    assert estimated_tokens([latin], {"type": "object"}) == 108 + 6
    assert worst_case(entry("p", 1), [latin], None, Parameters()) == (108 + 2 * 8_192, 108 + 8_192)
    assert worst_case(entry("p", 1, Prices(input=1)), [latin], None, Parameters()) == (None, 8_300)


def test_windows_open_at_midnight_and_on_the_first_utc() -> None:
    late = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)

    assert opens_at("day", late) == opens_at("month", late) == datetime(2027, 1, 1, tzinfo=UTC)
    assert opens_at("month", datetime(2028, 2, 29, tzinfo=UTC)) == datetime(2028, 3, 1, tzinfo=UTC)
    assert opens_at("cycle", late) is None

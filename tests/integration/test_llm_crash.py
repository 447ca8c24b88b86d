"""Guarantee 3, for calls of models: whatever dies, nothing is paid for twice or stays reserved.

Daemons are killed as processes, connections are cut, and the server is restarted in mid-call.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from noema.core.clock import SystemClock, UuidV7Ids
from noema.core.errors import Conflict
from noema.core.identity import LOCAL
from noema.db import migrate
from noema.db.embedded import EmbeddedPostgres
from noema.db.tx import Conn, Database, connect, single
from noema.events.audit import Audit
from noema.llm import recorder as recording_module
from noema.llm.budget import Budgets, Window
from noema.llm.calls import CallRecord, Calls, Ended, new_row
from noema.llm.model import Completion
from noema.llm.recorder import Recorder, recording
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.llm_child import SCHEMA
from tests.llm_scripted import House, Scripted, asks, fails, recorder_on, says

_ROOT = Path(__file__).parents[2]


def budgets_of(db: Database) -> Budgets:
    ids = UuidV7Ids(SystemClock())
    return Budgets(db=db, audit=Audit(db=db, ids=ids), ids=ids)


async def limit(db: Database) -> None:
    """Set a budget that has room for everything here, to see what is reserved."""
    await budgets_of(db).set(LOCAL, scope="everything", period="day", money_micros=100_000)


async def window_of(db: Database) -> Window:
    (state,) = await budgets_of(db).states()
    return state.windows[0]


async def all_calls(db: Database) -> list[CallRecord]:
    return await Calls(db=db).page(namespaces=None)


async def states_of(db: Database) -> list[str]:
    return sorted(call.state for call in await all_calls(db))


async def killed(database: TestDatabase, point: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.llm_child", database.app_dsn, database.role or "", point,
        cwd=_ROOT,
    )  # fmt: skip
    assert await process.wait() == -9


class Line:
    """A daemon's way to the database, which a test cuts and mends."""

    def __init__(self, database: TestDatabase) -> None:
        self._database = database
        self._whole = asyncio.Event()
        self._whole.set()
        self._conn: Conn | None = None
        self.connections = 0

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Conn]:
        await self._whole.wait()
        async with single(self._database.app_dsn, self._database.role) as conn:
            self._conn = conn
            self.connections += 1
            yield conn

    async def cut(self, db: Database) -> None:
        """Cut it, and wait until the server has noticed."""
        assert self._conn is not None
        pid = self._conn.get_server_pid()
        self.close()
        self._conn.terminate()

        async def is_gone() -> bool:
            async with db.statements() as tx:
                there = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)"
                return not await tx.conn.fetchval(there, pid)

        await eventually(is_gone)

    def close(self) -> None:
        """Let nobody connect any more."""
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()


@asynccontextmanager
async def recorder_by(line: Line, *, daemon: UUID | None = None) -> AsyncIterator[Recorder]:
    clock = SystemClock()
    made = Recorder(connect=line.connect, clock=clock, daemon=daemon or UuidV7Ids(clock).new())
    async with recording(made):
        yield made


class TestKilled:
    @pytest.mark.parametrize(
        ("point", "spent", "attempts"),
        [
            ("begun", 0, []),
            ("asked", 0, []),
            ("retried", 0, ["It broke."]),
            ("answered", 0, []),
            ("repair", 20, [""]),
        ],
    )
    async def test_a_call_in_flight_is_unknown_what_it_had_reserved_is_spent_and_it_is_asked_again(
        self,
        database: TestDatabase,
        db: Database,
        point: str,
        spent: int,
        attempts: list[str],
    ) -> None:
        # Guarantees 3 and 9.
        await limit(db)
        await killed(database, point)
        (left,) = await all_calls(db)
        before = await window_of(db)
        assert left.state == "in flight"
        assert before.reserved_micros > 0
        assert before.spent_micros == spent

        async with recorder_on(database) as recorder:

            async def is_unknown() -> bool:
                return await states_of(db) == ["unknown"]

            await eventually(is_unknown)
            after = await window_of(db)
            lost = await Calls(db=db).get(left.id, namespaces=None)
            provider = Scripted(says('{"n": 2}'))
            schema = SCHEMA if point == "repair" else None
            answer = await House(recorder, [provider], clock=SystemClock()).complete(
                asks(schema=schema)
            )

        assert after.spent_micros == before.spent_micros + before.reserved_micros
        assert (after.reserved_micros, after.reserved_tokens) == (0, 0)
        assert after.unknown_calls == 1
        assert (lost.cost_kind, lost.cost_micros) == ("unknown", spent or None)
        assert [attempt.error for attempt in lost.attempts] == attempts
        assert [r["text"] for r in lost.content.get("refused", ())] == (
            ["no JSON"] if point == "repair" else []
        )
        assert (answer.text, answer.is_replayed, len(provider.asked)) == ('{"n": 2}', False, 1)
        assert await states_of(db) == ["answered", "unknown"]

    async def test_an_answer_on_record_is_used_and_not_asked_for_again(
        self, database: TestDatabase, db: Database
    ) -> None:
        await limit(db)
        await killed(database, "recorded")

        async with recorder_on(database) as recorder:
            provider = Scripted()
            answer = await House(recorder, [provider], clock=SystemClock()).complete(asks())

        window = await window_of(db)
        assert (answer.text, answer.is_replayed, provider.asked) == ("the first answer", True, [])
        assert await states_of(db) == ["answered"]
        assert (window.spent_micros, window.reserved_micros) == (20, 0)


class TestTakenOver:
    """A daemon lives, but has lost its connection, and another takes its mind."""

    @pytest.mark.parametrize("ends", ["answers", "fails"])
    async def test_its_call_is_the_others_and_nobody_is_asked_for_it_any_more(
        self, database: TestDatabase, db: Database, ends: str
    ) -> None:
        await limit(db)
        is_asked, release = asyncio.Event(), asyncio.Event()

        async def slowly() -> Completion:
            is_asked.set()
            await release.wait()
            if ends == "fails":
                raise fails()
            return says("mine")

        line, mine = Line(database), Scripted(slowly, says("never"))
        async with recorder_by(line) as first:
            house = House(first, [mine], clock=SystemClock())
            asking = asyncio.ensure_future(house.complete(asks()))
            await is_asked.wait()
            reserved = (await window_of(db)).reserved_micros
            await line.cut(db)
            async with recorder_on(database) as second:
                theirs = await House(
                    second, [Scripted(says("theirs"))], clock=SystemClock()
                ).complete(asks())
            line.mend()
            release.set()
            with pytest.raises(Conflict, match="taken for lost"):
                await asking
            again = await house.complete(asks())

        window = await window_of(db)
        assert (theirs.text, again.text, again.is_replayed) == ("theirs", "theirs", True)
        assert len(mine.asked) == 1
        assert (window.spent_micros, window.reserved_micros) == (reserved + 20, 0)
        assert await states_of(db) == ["answered", "unknown"]

    async def test_one_that_never_heard_that_its_call_was_recorded_asks_nobody(
        self, database: TestDatabase, db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await limit(db)
        line, mine = Line(database), Scripted()
        is_deaf = asyncio.Event()

        def unheard(item: Any) -> None:
            line.close()
            is_deaf.set()
            raise ConnectionResetError

        async with recorder_by(line) as first:
            with monkeypatch.context() as patched:
                patched.setattr(recording_module, "_resolve", unheard)
                asking = asyncio.ensure_future(
                    House(first, [mine], clock=SystemClock()).complete(asks())
                )
                await is_deaf.wait()
                await line.cut(db)
            async with recorder_on(database):

                async def is_lost() -> bool:
                    return await states_of(db) == ["unknown"]

                await eventually(is_lost)
            line.mend()
            with pytest.raises(Conflict, match="taken for lost"):
                await asking

        assert mine.asked == []
        assert (await window_of(db)).reserved_micros == 0


class TestConnections:
    async def test_what_was_committed_and_not_heard_of_is_not_written_or_reserved_twice(
        self, database: TestDatabase, db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await limit(db)
        real, heard = recording_module._resolve, 0

        def every_other(item: Any) -> None:
            nonlocal heard
            heard += 1
            if heard % 2:
                raise ConnectionResetError
            real(item)

        monkeypatch.setattr(recording_module, "_resolve", every_other)
        provider = Scripted(fails(), says("kept"))
        line = Line(database)
        async with recorder_by(line) as recorder:
            answer = await House(recorder, [provider], clock=SystemClock()).complete(asks())

        window = await window_of(db)
        assert (answer.text, len(provider.asked), line.connections) == ("kept", 2, 4)
        assert (window.spent_micros, window.reserved_micros) == (20, 0)
        assert (window.reserved_tokens, window.unknown_calls) == (0, 0)

    async def test_one_that_is_cut_between_asking_and_recording_loses_nothing(
        self, database: TestDatabase, db: Database
    ) -> None:
        await limit(db)

        async def cut() -> Completion:
            admin = await asyncpg.connect(database.admin_dsn)
            try:
                await admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            finally:
                await admin.close()
            return says("kept")

        async with recorder_on(database) as recorder:
            house = House(recorder, [Scripted(cut)], clock=SystemClock())
            answer = await house.complete(asks())

        (call,) = await all_calls(db)
        window = await window_of(db)
        assert (answer.text, call.state) == ("kept", "answered")
        assert (window.spent_micros, window.reserved_micros) == (20, 0)

    async def test_one_whose_end_the_server_has_not_noticed_keeps_nobody_from_recording(
        self, database: TestDatabase
    ) -> None:
        daemon = UuidV7Ids(SystemClock()).new()
        async with recorder_on(database, daemon=daemon) as old:
            await House(old, [Scripted()], clock=SystemClock()).complete(asks())
            async with recorder_on(database, daemon=daemon) as new:
                answer = await House(new, [Scripted()], clock=SystemClock()).complete(asks(cycle=2))

        assert answer.text == "ok"

    async def test_one_that_is_frozen_is_given_up_for_another(
        self, database: TestDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recording_module, "_FROZEN_S", 0.2)
        line = Line(database)
        admin = await asyncpg.connect(database.admin_dsn)
        try:
            async with recorder_by(line) as recorder:
                house = House(recorder, [Scripted()], clock=SystemClock())
                await house.complete(asks())
                async with admin.transaction():
                    # What waits for a lock waits as on a server that does nothing any more.
                    await admin.execute("LOCK TABLE llm_calls")
                    asking = asyncio.ensure_future(house.complete(asks(cycle=2)))
                    await eventually(lambda: line.connections >= 2)
                answer = await asking
        finally:
            await admin.close()

        assert answer.text == "ok"

    async def test_a_server_that_is_restarted_in_mid_call_costs_nothing(
        self, reachable_dir: Path
    ) -> None:
        clock = SystemClock()
        server = EmbeddedPostgres(reachable_dir / "data", clock)
        cluster = await server.start()
        try:
            await migrate.up(cluster.owner_dsn)

            async def restarts() -> Completion:
                await server.stop()
                await server.start()
                return says("kept")

            recorder = Recorder(
                connect=lambda: single(cluster.app_dsn), clock=clock, daemon=UUID(int=7)
            )
            async with connect(cluster.app_dsn, clock=clock) as db, recording(recorder):
                await limit(db)
                house = House(recorder, [Scripted(restarts)], clock=clock)
                answer = await house.complete(asks())
                again = await house.complete(asks())
                window = await window_of(db)
        finally:
            await server.stop()

        assert (answer.text, again.text, again.is_replayed) == ("kept", "kept", True)
        assert (window.spent_micros, window.reserved_micros) == (20, 0)


class TestLost:
    async def test_an_answer_to_a_call_that_was_taken_for_lost_is_not_used(
        self, database: TestDatabase
    ) -> None:
        async def lost() -> Completion:
            admin = await asyncpg.connect(database.admin_dsn)
            try:
                await admin.execute("UPDATE llm_calls SET state = 'unknown'")
            finally:
                await admin.close()
            return says("late")

        async with recorder_on(database) as recorder:
            house = House(recorder, [Scripted(lost)], clock=SystemClock())
            with pytest.raises(Conflict, match="taken for lost"):
                await house.complete(asks())

    async def test_a_call_long_past_due_is_though_its_daemon_seems_to_live(
        self, database: TestDatabase, db: Database
    ) -> None:
        clock, ids = SystemClock(), UuidV7Ids(SystemClock())
        long_ago = clock.now() - timedelta(hours=1)
        async with recorder_on(database) as frozen:
            await frozen.begin(new_row(ids.new(), asks(), now=long_ago, due=long_ago), None)
            recent = new_row(ids.new(), asks(cycle=2), now=long_ago, due=clock.now())
            await frozen.begin(recent, None)
            async with recorder_on(database) as living:
                await House(living, [Scripted()], clock=clock).complete(asks(cycle=3))

        states = {call.cycle: call.state for call in await all_calls(db)}
        assert states == {1: "unknown", 2: "in flight", 3: "answered"}

    async def test_so_is_ones_own_whose_end_the_server_would_not_take(
        self, database: TestDatabase, db: Database
    ) -> None:
        clock, ids = SystemClock(), UuidV7Ids(SystemClock())
        long_ago = clock.now() - timedelta(hours=1)
        stuck = new_row(ids.new(), asks(), now=long_ago, due=long_ago)
        recent = new_row(ids.new(), asks(cycle=2), now=long_ago, due=clock.now())
        line = Line(database)
        async with recorder_by(line) as recorder:
            await recorder.begin(stuck, None)
            await recorder.begin(recent, None)
            # It looks when it has a connection, and then every few seconds.
            await line.cut(db)
            line.mend()
            answer = await House(recorder, [Scripted()], clock=clock).complete(asks())
            await recorder.finish(recent.id, Ended(state="answered", answer="in time"))

        states = {call.cycle: call.state for call in await all_calls(db)}
        assert (answer.text, answer.is_replayed) == ("ok", False)
        assert states[2] == "answered"

"""Guarantee 21: writers that get in each other's way, writers that die, writes that are retried.

Also of writes that are accepted now and done soon: tickets.
"""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from noema.core.clock import SystemClock, UuidV7Ids
from noema.core.errors import Conflict, Denied, IdempotencyReuse, NoemaError, NotFound, Unavailable
from noema.core.identity import Identity, MemoryRole
from noema.db.tx import Database, connect
from noema.memory.model import Kind, Ticket, Write, WriteResult
from noema.memory.store import writing as store
from noema.memory.store.writing import Again
from noema.memory.tickets import MOST_ATTEMPTS, Tickets
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.writing import WriteHouse, frame_of, identity

WRITERS = 8
_ROOT = Path(__file__).parents[2]


async def all_at_once(
    *calls: Callable[[], Awaitable[WriteResult]],
) -> list[WriteResult | NoemaError]:
    """Make all calls at once; return the answer or the error of each."""

    async def one(call: Callable[[], Awaitable[WriteResult]]) -> WriteResult | NoemaError:
        try:
            return await call()
        except NoemaError as exc:
            return exc

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(call)) for call in calls]
    return [task.result() for task in tasks]


async def chain(house: WriteHouse, newest: UUID) -> list[Any]:
    """Walk from a memory to what it superseded, and on."""
    walked = [await house.row(newest)]
    while walked[-1]["supersedes"] is not None:
        walked.append(await house.row(walked[-1]["supersedes"]))
    return walked


def check_chain(walked: list[Any]) -> None:
    assert walked[0]["t_valid_to"] is None
    for newer, older in pairwise(walked):
        assert older["t_valid_to"] == newer["t_valid_from"]


# --- guarantee 21 ---


async def test_guarantee_21_of_eight_writers_that_supersede_one_fact_one_wins(
    db: Database,
) -> None:
    house = await WriteHouse.open(db)
    victim = await house.wrote("Ada lives in Rome.")

    answers = await all_at_once(
        *(
            lambda n=n: house.write(f"Ada lives in city {n}.", supersedes=victim)
            for n in range(WRITERS)
        )
    )

    won = [a for a in answers if isinstance(a, WriteResult)]
    assert len(won) == 1
    assert sum(isinstance(a, Conflict) for a in answers) == WRITERS - 1
    rows = await house.rows()
    assert len(rows) == 2
    walked = await chain(house, won[0].items[0].id or UUID(int=0))
    assert [row["id"] for row in walked[1:]] == [victim]
    check_chain(walked)


async def test_guarantee_21_writers_that_read_again_and_retry_make_one_whole_chain(
    db: Database,
) -> None:
    house = await WriteHouse.open(db)
    await house.wrote("Ada lives in Rome.")

    async def write(number: int) -> WriteResult:
        while True:
            (current,) = await house.rows("t_valid_to IS NULL")
            try:
                return await house.write(f"Ada lives in city {number}.", supersedes=current["id"])
            except Conflict:
                continue

    answers = await all_at_once(*(lambda n=n: write(n) for n in range(WRITERS)))

    assert all(isinstance(a, WriteResult) for a in answers)
    (newest,) = await house.rows("t_valid_to IS NULL")
    walked = await chain(house, newest["id"])
    assert len(walked) == WRITERS + 1
    check_chain(walked)
    shelves = await house.fetch("SELECT shelf, count(*) FROM memory_embeddings GROUP BY 1")
    assert {r["shelf"]: r["count"] for r in shelves} == {"closed": WRITERS, "fresh": 1}


async def test_guarantee_21_parallel_identical_writes_store_one_row(db: Database) -> None:
    house = await WriteHouse.open(db)

    answers = await all_at_once(
        *(lambda: house.write("Ada lives in Rome with Linus.") for _ in range(WRITERS * 2))
    )

    (row,) = await house.rows()
    results = [a for a in answers if isinstance(a, WriteResult)]
    assert len(results) == WRITERS * 2
    assert sum(r.stored for r in results) == 1
    assert sum(r.deduplicated for r in results) == WRITERS * 2 - 1
    assert {r.items[0].id for r in results} == {row["id"]}
    assert row["repeat_count"] == WRITERS * 2 - 1
    details = sorted(a.detail for a in await house.audited())
    assert details == ["stored=0 deduplicated=1"] * (WRITERS * 2 - 1) + ["stored=1"]
    assert len(await house.fetch("SELECT FROM memory_embeddings")) == 1


async def test_guarantee_21_one_key_at_once_is_one_write_and_one_answer(db: Database) -> None:
    house = await WriteHouse.open(db)

    answers = await all_at_once(
        *(lambda: house.write("Ada lives in Rome.", key="k") for _ in range(WRITERS))
    )

    (row,) = await house.rows()
    assert row["repeat_count"] == 0
    assert all(a == answers[0] and isinstance(a, WriteResult) for a in answers)


async def test_guarantee_21_one_key_with_two_bodies_at_once_is_one_write(db: Database) -> None:
    house = await WriteHouse.open(db)

    answers = await all_at_once(
        *(lambda n=n: house.write(f"Text {n}.", key="k") for n in range(WRITERS))
    )

    assert len(await house.rows()) == 1
    assert sum(isinstance(a, IdempotencyReuse) for a in answers) == WRITERS - 1


async def test_parallel_transcripts_of_the_same_words_are_one(db: Database) -> None:
    house = await WriteHouse.open(db)
    turns = [(f"Speaker {n % 3}", f"Turn {n} about Rome and Oslo.") for n in range(20)]

    answers = await all_at_once(*(lambda: house.say(*turns) for _ in range(WRITERS)))

    assert all(isinstance(a, WriteResult) for a in answers), answers
    assert sum(a.stored for a in answers if isinstance(a, WriteResult)) == len(turns)
    rows = await house.rows()
    assert sorted(row["position"] for row in rows) == list(range(len(turns)))
    assert len({row["session_id"] for row in rows}) == 1


async def test_single_messages_at_once_each_have_a_place_of_their_own(db: Database) -> None:
    house = await WriteHouse.open(db)

    answers = await all_at_once(
        *(
            lambda n=n: house.say(("Ada", f"Line {n}."), conversation="c")
            for n in range(WRITERS * 2)
        )
    )

    assert all(isinstance(a, WriteResult) for a in answers), answers
    rows = await house.rows()
    assert sorted(row["position"] for row in rows) == list(range(WRITERS * 2))
    assert len({row["session_id"] for row in rows}) == 1


async def test_refreshes_at_once_leave_one_current_copy_and_one_whole_chain(
    db: Database,
) -> None:
    house = await WriteHouse.open(db)

    async def refresh(number: int) -> WriteResult:
        return await house.write(
            f"Version {number}", kind=Kind.POINTER, source="https://a", refresh=True
        )

    answers = await all_at_once(*(lambda n=n: refresh(n) for n in range(WRITERS)))

    assert all(isinstance(a, WriteResult) for a in answers), answers
    (current,) = await house.rows("t_valid_to IS NULL")
    walked = await chain(house, current["id"])
    assert len(walked) == WRITERS
    check_chain(walked)


async def test_writers_that_meet_new_names_in_any_order_do_not_block_each_other(
    db: Database,
) -> None:
    house = await WriteHouse.open(db)
    victims = [await house.wrote(f"fact {n} to be replaced") for n in range(WRITERS)]
    names = ["Ada Byron", "Grace Hopper", "Linus Pauling", "Edsger Dijkstra"]

    answers = await all_at_once(
        *(
            lambda n=n: house.write(
                f"In case {n} {' met '.join(names[n % 4 :] + names[: n % 4])}.",
                supersedes=victims[n],
            )
            for n in range(WRITERS)
        )
    )

    assert all(isinstance(a, WriteResult) for a in answers), answers
    known = await house.fetch("SELECT name FROM entities")
    assert sorted(r["name"] for r in known) == sorted(names)


# --- what others change meanwhile ---


async def test_a_write_that_meets_a_moved_row_begins_anew_and_gives_up_in_the_end(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await WriteHouse.open(db)
    insert = store.insert_one
    failures = 3

    async def moved(*args: Any, **options: Any) -> UUID | None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            with store.refusals():
                raise asyncpg.SerializationError("tuple to be locked was already moved")
        return await insert(*args, **options)

    monkeypatch.setattr(store, "insert_one", moved)
    assert (await house.write("The disk failed.")).stored == 1

    failures = 1_000
    with pytest.raises(Unavailable, match="nothing was kept"):
        await house.write("The disk failed again.")
    assert len(await house.rows()) == 1


async def test_a_vector_that_somebody_moves_right_now_does_not_stop_a_supersedence(
    db: Database,
) -> None:
    house = await WriteHouse.open(db)
    victim = await house.wrote("Ada lives in Rome.")

    async with db.transaction() as tx:
        await tx.conn.execute(
            "UPDATE memory_embeddings SET shelf = 'settled' WHERE memory_id = $1", victim
        )
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(house.write("Ada lives in Paris.", supersedes=victim))
            await eventually(lambda: _waits_for_a_lock(house))
            await tx.conn.execute("COMMIT")
            await tx.conn.execute("BEGIN")
            result = await writing

    assert result.superseded == 1
    shelves = await house.fetch("SELECT memory_id, shelf FROM memory_embeddings")
    assert dict(shelves)[victim] == "closed"


async def _waits_for_a_lock(house: WriteHouse) -> bool:
    # Another login's wait events are hidden from the daemon's role, its locks are not.
    rows = await house.fetch(
        "SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE NOT granted AND datname = current_database()"
    )
    return len(rows) > 0


async def test_a_source_that_is_retracted_meanwhile_lets_nothing_be_derived(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await WriteHouse.open(db)
    source = await house.wrote("The disk failed.")
    hold = store.hold_sources

    async def late(conn: Any, ids: Any) -> Any:
        async with db.transaction() as tx:
            await tx.conn.execute("UPDATE memories SET status = 'retracted' WHERE id = $1", source)
        return await hold(conn, ids)

    monkeypatch.setattr(store, "hold_sources", late)

    with pytest.raises(Conflict, match="retracted"):
        await house.write("Disks fail.", derived_from=(source,))
    assert len(await house.rows()) == 1


async def test_a_name_that_is_known_no_more_is_looked_up_again(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await WriteHouse.open(db)
    await house.write("Ada lives in Rome.")
    insert = store.insert_one
    tries = 0

    async def erased(*args: Any, **options: Any) -> UUID | None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise Again
        return await insert(*args, **options)

    monkeypatch.setattr(store, "insert_one", erased)

    result = await house.write("Ada works in Rome.")

    assert (result.stored, tries) == (1, 2)


# --- kill -9 ---


@pytest.mark.parametrize(
    ("when", "is_done"), [("closed", False), ("inserted", False), ("committed", True)]
)
async def test_guarantee_21_kill_9_in_the_middle_of_a_supersedence_leaves_the_chain_whole(
    database: TestDatabase, when: str, is_done: bool
) -> None:
    async with connect(database.app_dsn, clock=SystemClock(), max_size=4, role=database.role) as db:
        house = await WriteHouse.open(db)
        victim = await house.wrote("Ada lives in Rome.")

        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.write_child", database.app_dsn, database.role or "",
            str(victim), when,
            cwd=_ROOT,
        )  # fmt: skip
        assert await child.wait() == -signal.SIGKILL
        await eventually(lambda: _is_alone(house))

        details = [row.detail for row in await house.audited()]
        if not is_done:
            row = await house.row(victim)
            assert (row["t_valid_to"], len(await house.rows())) == (None, 1)
            assert details == ["stored=1"]
            (shelf,) = await house.fetch("SELECT shelf FROM memory_embeddings")
            assert shelf["shelf"] == "fresh"
            await house.write("Ada lives in Paris.", supersedes=victim)
        (current,) = await house.rows("t_valid_to IS NULL")
        walked = await chain(house, current["id"])
        assert [row["text"] for row in walked] == ["Ada lives in Paris.", "Ada lives in Rome."]
        check_chain(walked)


async def _is_alone(house: WriteHouse) -> bool:
    rows = await house.fetch(
        "SELECT FROM pg_stat_activity"
        " WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
        " AND pid <> pg_backend_pid()"
    )
    return not rows


# --- tickets ---


class Desk:
    """Tickets over a write path; `error` is raised in its stead, `calls` counts."""

    def __init__(self, house: WriteHouse) -> None:
        self.house = house
        self.error: Exception | None = None
        self.calls: list[tuple[Identity, str]] = []
        ids = UuidV7Ids(house.clock)
        self.tickets = Tickets(
            db=house.db, audit=house.audit, ids=ids, clock=house.clock, perform=self.perform
        )

    async def perform(self, who: Identity, request: Write, key: str) -> WriteResult:
        self.calls.append((who, key))
        if self.error is not None:
            raise self.error
        return await self.house.path.write(frame_of(who, self.house.clock.now()), request, key=key)

    async def accept(
        self, text: str, *, who: Identity | None = None, key: str | None = None
    ) -> Ticket:
        request = Write(text=text, is_async=True)
        frame = frame_of(who or identity(), self.house.clock.now())
        return await self.tickets.accept(frame, request, key=key)

    async def get(self, ticket: Ticket, *, who: Identity | None = None) -> Ticket:
        return await self.tickets.get(
            frame_of(who or identity(), self.house.clock.now(), op="mem.ticket"), ticket.id
        )

    async def due_again(self) -> None:
        async with self.house.db.transaction() as tx:
            await tx.conn.execute("UPDATE write_tickets SET due_at = now() - interval '1 second'")


@pytest.fixture
async def desk(db: Database) -> Desk:
    return Desk(await WriteHouse.open(db))


async def test_a_ticket_is_accepted_done_and_its_request_is_not_kept(desk: Desk) -> None:
    who = identity(role=MemoryRole.AGENT, actor="token:ada/script")
    accepted = await desk.accept("The disk failed.\x00", who=who)

    waiting = await desk.get(accepted, who=who)
    taken = await desk.tickets.once()
    done = await desk.get(accepted, who=who)

    assert (accepted.state, waiting.state, taken, done.state) == ("waiting", "waiting", 1, "done")
    assert done.result is not None
    assert done.result.stored == 1
    assert done.finished_at is not None
    assert desk.calls == [(who, f"ticket:{accepted.id}")]
    (row,) = await desk.house.fetch("SELECT request FROM write_tickets")
    assert row["request"] is None
    details = [a.detail for a in await desk.house.audited()]
    assert details == [f"ticket={accepted.id}", "stored=1"]
    assert await desk.tickets.once() == 0


async def test_one_key_gives_one_ticket(desk: Desk) -> None:
    first = await desk.accept("The disk failed.", key="k")
    again = await desk.accept("The disk failed.", key="k")

    assert first.id == again.id
    with pytest.raises(IdempotencyReuse):
        await desk.accept("Another text.", key="k")
    assert len(await desk.house.fetch("SELECT FROM write_tickets")) == 1


async def test_a_ticket_of_somebody_else_is_no_ticket(desk: Desk) -> None:
    ticket = await desk.accept("The disk failed.")

    for stranger in (identity("other"), identity(actor="user:bob"), identity("acme/eng/db")):
        with pytest.raises(NotFound):
            await desk.get(ticket, who=stranger)
    admin = identity(actor="user:root", role=MemoryRole.ADMIN)
    assert (await desk.get(ticket, who=admin)).id == ticket.id


async def test_what_is_unavailable_is_tried_again_after_growing_pauses(desk: Desk) -> None:
    ticket = await desk.accept("The disk failed.")
    desk.error = Unavailable("The embedder is away.")
    pauses = []

    for _ in range(4):
        assert await desk.tickets.once() == 1
        assert await desk.tickets.once() == 0
        (row,) = await desk.house.fetch("SELECT due_at - now() AS pause, state FROM write_tickets")
        pauses.append(row["pause"])
        await desk.due_again()

    assert (await desk.get(ticket)).state == "waiting"
    assert pauses == sorted(pauses)
    assert pauses[-1] > timedelta(seconds=5)
    assert "away" in (await desk.get(ticket)).error
    desk.error = None
    await desk.tickets.once()
    assert (await desk.get(ticket)).state == "done"
    assert (await desk.get(ticket)).error == ""


async def test_a_ticket_is_not_tried_for_ever(desk: Desk) -> None:
    ticket = await desk.accept("The disk failed.")
    desk.error = Unavailable("The embedder is away.")
    async with desk.house.db.transaction() as tx:
        await tx.conn.execute("UPDATE write_tickets SET attempts = $1", MOST_ATTEMPTS - 1)

    await desk.tickets.once()

    failed = await desk.get(ticket)
    assert failed.state == "failed"
    assert failed.error.startswith(f"given up after {MOST_ATTEMPTS} attempts")


async def test_a_ticket_that_kills_whoever_tries_it_is_given_up(desk: Desk) -> None:
    ticket = await desk.accept("The disk failed.")
    async with desk.house.db.transaction() as tx:
        await tx.conn.execute(
            "UPDATE write_tickets SET state = 'running', attempts = $1, due_at = now()",
            MOST_ATTEMPTS,
        )

    assert await desk.tickets.once() == 1

    assert (await desk.get(ticket)).state == "failed"
    assert desk.calls == []
    (row,) = await desk.house.fetch("SELECT request FROM write_tickets")
    assert row["request"] is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Denied("The tenant of acme is suspended."), "denied: The tenant"),
        (Conflict("Not current."), "conflict: Not current."),
        (ZeroDivisionError("secret"), "internal: ZeroDivisionError"),
    ],
)
async def test_what_will_not_get_better_fails_with_the_reason(
    desk: Desk, error: Exception, said: str
) -> None:
    ticket = await desk.accept("The disk failed.")
    desk.error = error

    await desk.tickets.once()

    failed = await desk.get(ticket)
    assert failed.state == "failed"
    assert failed.error.startswith(said)
    assert "secret" not in failed.error
    assert await desk.tickets.once() == 0


async def test_a_ticket_whose_worker_died_after_the_write_is_done_once(desk: Desk) -> None:
    ticket = await desk.accept("The disk failed.")
    async with desk.house.db.transaction() as tx:
        # As whoever took it and died left it: written, and not marked.
        await tx.conn.execute("UPDATE write_tickets SET state = 'running', attempts = 1")
    await desk.perform(identity(), Write(text="The disk failed."), f"ticket:{ticket.id}")
    await desk.due_again()

    await desk.tickets.once()

    done = await desk.get(ticket)
    assert done.state == "done"
    assert done.result is not None
    assert (done.result.stored, done.result.deduplicated) == (1, 0)
    (row,) = await desk.house.rows()
    assert row["repeat_count"] == 0


async def test_a_running_ticket_is_nobody_elses_until_its_lease_ends(desk: Desk) -> None:
    await desk.accept("The disk failed.")
    async with desk.house.db.transaction() as tx:
        await tx.conn.execute(
            "UPDATE write_tickets SET state = 'running', due_at = now() + interval '1 minute'"
        )

    assert await desk.tickets.once() == 0


async def test_two_workers_share_the_tickets_and_do_each_once(desk: Desk) -> None:
    other = Desk(desk.house)
    tickets = [await desk.accept(f"Fact number {n}.") for n in range(20)]

    async def work(one: Desk) -> None:
        while await one.tickets.once():
            pass

    async with asyncio.TaskGroup() as group:
        group.create_task(work(desk))
        group.create_task(work(other))

    assert len(desk.calls) + len(other.calls) == len(tickets)
    assert len(await desk.house.rows()) == len(tickets)


async def test_the_background_task_does_what_comes(desk: Desk) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(desk.tickets.run())
        ticket = await desk.accept("The disk failed.")
        await eventually(lambda: _is_done(desk, ticket))
        running.cancel()


async def _is_done(desk: Desk, ticket: Ticket) -> bool:
    return (await desk.get(ticket)).state == "done"

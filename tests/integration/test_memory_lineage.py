"""Retracting a source with everything that rests on it, and undoing that exactly."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from random import Random
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noema.core.clock import ManualClock
from noema.core.errors import Conflict, Denied, InvalidInput, NotFound, TooLarge
from noema.core.identity import MemoryRole
from noema.memory import lineage as module
from noema.memory.lineage import Lineage, doubts
from noema.memory.store.writing import hold_sources
from tests.conftest import Server, TestDatabase, fresh_database
from tests.governed import World, world

PLACE = "acme/eng"


@pytest.fixture
async def here(database: TestDatabase, clock: ManualClock) -> AsyncIterator[World]:
    async with world(database, clock) as made:
        yield made


def lineage_of(here: World) -> Lineage:
    return Lineage(ids=here.ids, work=here.work, audit=here.audit)


async def chain(here: World) -> tuple[UUID, UUID, UUID]:
    """A source, what rests on it, and what rests on that in a namespace below."""
    source = await here.put(PLACE, "The log says so.")
    middle = await here.put(PLACE, "So it is so.", derived_from=[source], actor="user:bob")
    end = await here.put(f"{PLACE}/db", "Then this too.", derived_from=[middle], actor="mind:x")
    return source, middle, end


async def test_a_source_takes_everything_with_it_wherever_it_lives_and_brings_it_back(
    here: World,
) -> None:
    source, middle, end = await chain(here)
    other = await here.put(PLACE, "Something else.")
    before = await here.state()
    frame = here.frame(PLACE, op="mem.retract")

    made = await lineage_of(here).retract(frame, source, "the log was forged")

    state = await here.state()
    assert {i for i, (status, *_) in state.items() if status == "retracted"} == {
        source, middle, end,
    }  # fmt: skip
    assert state[other] == before[other]
    assert set(made.memories) == {source, middle, end}
    assert frame.is_recorded
    rows = await here.audited("mem.retract")
    assert {(r.namespace, r.result) for r in rows} == {(PLACE, "ok"), (f"{PLACE}/db", "ok")}

    undone = await lineage_of(here).restore(here.frame(PLACE), made.id)

    assert await here.state() == before
    assert set(undone.memories) == {source, middle, end}
    assert undone.restored_by == "user:ada"
    assert undone.reason == "the log was forged"


async def test_what_two_retractions_hold_down_stays_down_until_both_are_undone(
    here: World,
) -> None:
    source, middle, end = await chain(here)
    before = await here.state()
    lineage, frame = lineage_of(here), here.frame(PLACE)
    whole = await lineage.retract(frame, source, "forged")
    part = await lineage.retract(frame, middle, "wrong as well")

    undone = await lineage.restore(frame, whole.id)

    assert undone.memories == (source,)
    assert {s.id for s in undone.stayed} == {middle, end}
    assert all(str(part.id) in s.reason for s in undone.stayed)
    await lineage.restore(frame, part.id)
    assert await here.state() == before


async def test_a_row_whose_text_is_current_anew_stays_withdrawn_and_the_rest_comes_back(
    here: World,
) -> None:
    source, middle, end = await chain(here)
    lineage, frame = lineage_of(here), here.frame(PLACE)
    made = await lineage.retract(frame, source, "forged")
    again = await here.put(PLACE, "so  IT is so.")

    undone = await lineage.restore(frame, made.id)

    assert set(undone.memories) == {source, end}
    assert [(s.id, str(again) in s.reason) for s in undone.stayed] == [(middle, True)]
    with pytest.raises(Conflict):
        await lineage.restore(frame, made.id)
    await here.execute("UPDATE memories SET t_valid_to = $2 WHERE id = $1", again, here.clock.now())
    assert (await lineage.restore(frame, made.id)).memories == (middle,)


async def test_a_disputed_row_comes_back_disputed_and_a_closed_one_closed(here: World) -> None:
    source = await here.put(PLACE, "The log says so.", status="disputed")
    past = await here.put(PLACE, "So it was.", derived_from=[source])
    await here.execute("UPDATE memories SET t_valid_to = $2 WHERE id = $1", past, here.clock.now())
    before = await here.state()
    lineage, frame = lineage_of(here), here.frame(PLACE)

    made = await lineage.retract(frame, source, "forged")
    assert {status for status, *_ in (await here.state()).values()} == {"retracted"}
    await lineage.restore(frame, made.id)

    assert await here.state() == before


async def test_derivations_in_a_circle_end_and_too_many_are_refused_whole(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _, end = await chain(here)
    await here.execute(
        "INSERT INTO derivations (from_id, to_id, kind) VALUES ($1, $2, 'memory.derived')",
        end, source,
    )  # fmt: skip
    before = await here.state()
    lineage, frame = lineage_of(here), here.frame(PLACE)
    monkeypatch.setattr(module, "MOST_DERIVED", 2)

    with pytest.raises(TooLarge):
        await lineage.retract(frame, source, "forged")

    assert await here.state() == before
    monkeypatch.setattr(module, "MOST_DERIVED", 3)
    assert len((await lineage.retract(frame, source, "forged")).memories) == 3


async def test_authors_retract_their_own_managers_what_is_below_and_nobody_else_anything(
    here: World,
) -> None:
    source, middle, end = await chain(here)
    lineage = lineage_of(here)
    member = MemoryRole.MEMBER

    with pytest.raises(Denied):
        await lineage.retract(here.frame(PLACE, role=member), middle, "not mine")
    with pytest.raises(Denied):
        await lineage.retract(here.frame(f"{PLACE}/db"), source, "not mine to manage")
    # Guarantee 20: hidden and missing are told alike.
    for hidden in (end, UUID(int=7)):
        with pytest.raises(NotFound) as refused:
            await lineage.retract(here.frame(PLACE, role=member), hidden, "cannot see it")
        assert str(refused.value) == f"No memory {hidden} that you may see."
    for elsewhere in ("acme/sales", "acme/engineering"):
        with pytest.raises(NotFound):
            await lineage.retract(here.frame(elsewhere), source, "from elsewhere")
    with pytest.raises(InvalidInput):
        await lineage.retract(here.frame(PLACE), source, "  ")

    own = here.frame(PLACE, role=member, actor="user:bob")
    mine = await lineage.retract(own, middle, "I erred")
    assert (mine.memories, mine.elsewhere) == ((middle,), 1)
    with pytest.raises(Denied):
        await lineage.restore(here.frame(PLACE, role=member), mine.id)
    with pytest.raises(NotFound):
        await lineage.restore(here.frame("acme/sales"), mine.id)
    assert (await lineage.restore(own, mine.id)).memories == (middle,)
    assert len((await lineage.retract(here.frame("acme"), end, "from above")).memories) == 1


async def test_it_is_retracted_once_however_many_ask_at_once(here: World) -> None:
    source, *_ = await chain(here)
    lineage = lineage_of(here)

    async def attempt() -> int:
        try:
            await lineage.retract(here.frame(PLACE), source, "forged")
        except Conflict:
            return 0
        return 1

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt()) for _ in range(8)]

    assert sum(t.result() for t in tasks) == 1
    assert len(await here.fetch("SELECT id FROM memory_retractions")) == 1


async def test_withdrawing_and_restoring_a_fact_does_not_get_it_round_the_check(
    here: World,
) -> None:
    fact = await here.put(PLACE, "Ada works for Acme.", due=True)
    episode = await here.put(PLACE, "Ada came in.", kind="episode", derived_from=[fact])
    lineage, own = lineage_of(here), here.frame(PLACE)
    made = await lineage.retract(own, fact, "a slip")
    # What is not current is not looked at, and its check counts as done.
    await here.execute("DELETE FROM conflict_checks")

    restored = await lineage.restore(own, made.id)

    assert restored.memories == (fact, episode)
    waiting = await here.fetch("SELECT memory_id FROM conflict_checks")
    assert [r["memory_id"] for r in waiting] == [fact]


async def test_what_is_being_derived_while_its_source_is_retracted_falls_with_it(
    here: World,
) -> None:
    source = await here.put(PLACE, "The log says so.")

    async with asyncio.TaskGroup() as group, here.db.transaction() as tx:
        assert set(await hold_sources(tx.conn, [source])) == {source}
        retracting = group.create_task(
            lineage_of(here).retract(here.frame(PLACE), source, "forged")
        )
        # Another connection writes what rests on it; the source is held meanwhile.
        derived = await here.put(PLACE, "So it is.", derived_from=[source])
        assert not retracting.done()

    assert (await here.state())[derived][0] == "retracted"
    async with here.db.transaction() as tx:
        assert not await hold_sources(tx.conn, [source])


async def test_a_disputed_source_is_told_of_and_named_only_to_who_sees_it(here: World) -> None:
    source, middle, end = await chain(here)
    await here.execute("UPDATE memories SET status = 'disputed' WHERE id = $1", source)
    await here.execute(
        "UPDATE memories SET t_valid_to = $2 WHERE id = $1", middle, here.clock.now()
    )

    async with here.db.reading() as tx:
        near = await doubts(tx, here.frame(f"{PLACE}/db").scope, end)
        far = await doubts(tx, here.frame("other", shared=[end]).scope, end)
        none = await doubts(tx, here.frame(PLACE).scope, source)

    assert near == (
        f"It rests on memory {source}, which is disputed.",
        f"It rests on memory {middle}, which is no longer current.",
    )
    assert str(source) not in " ".join(far)
    assert len(far) == 2
    assert none == ()


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=2, max_size=8),
    st.lists(st.integers(0, 7), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
async def test_undoing_every_retraction_in_any_order_restores_everything(
    server: Server, template: str, links: list[list[int]], roots: list[int], order: Random
) -> None:
    async with fresh_database(server, template) as database:  # noqa: SIM117
        async with world(database, ManualClock(datetime(2026, 1, 1, tzinfo=UTC))) as here:
            ids: list[UUID] = []
            for number, sources in enumerate(links):
                rests_on = sorted({ids[s] for s in sources if s < len(ids)})
                ids.append(
                    await here.put(
                        PLACE,
                        f"memory {number}",
                        derived_from=rests_on,
                        status="disputed" if number % 3 == 2 else "active",
                    )
                )
            before = await here.state()
            lineage, frame = lineage_of(here), here.frame(PLACE)
            made = [
                (await lineage.retract(frame, ids[r], "x")).id
                for r in dict.fromkeys(roots)
                if r < len(ids)
            ]
            order.shuffle(made)
            for retraction in made:
                await lineage.restore(frame, retraction)

            assert await here.state() == before

"""The conflict check: what it decides, that it decides once, and that all of it can be undone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noema.core.clock import ManualClock
from noema.core.errors import Conflict, Denied, InvalidInput, NotFound, Unavailable
from noema.core.identity import MemoryRole
from noema.db import pgvector
from noema.db.tx import Tx
from noema.memory import conflicts as module
from noema.memory.conflicts import ConflictCheck, Conflicts, Review
from noema.memory.judge import ConflictJudge, PlainJudge, Verdict
from noema.memory.model import ConflictCase, Memory
from noema.memory.store import conflicts as store
from noema.memory.store.rows import memory_of
from tests.conftest import Server, TestDatabase, fresh_database
from tests.governed import World, world

PLACE = "acme/eng"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def here(database: TestDatabase, clock: ManualClock) -> AsyncIterator[World]:
    async with world(database, clock, pool=12) as made:
        yield made


def check_of(
    here: World, *, judge: ConflictJudge | None = None, review: Review = "auto"
) -> ConflictCheck:
    async def review_of(_: str) -> Review:
        return review

    return ConflictCheck(
        db=here.db, clock=here.clock, ids=here.ids, audit=here.audit,
        judge=judge or PlainJudge(), review_of=review_of,
    )  # fmt: skip


def conflicts_of(here: World) -> Conflicts:
    return Conflicts(db=here.db, ids=here.ids, work=here.work)


async def checked(check: ConflictCheck) -> None:
    while await check.once():
        pass


async def employer(here: World, value: str, *, namespace: str = PLACE, **more: Any) -> UUID:
    content = {"subject": "Ada", "attribute": "employer", "value": value, "single_valued": True}
    text = f"Ada works for {value}, we are told."
    return await here.put(namespace, text, content=content, due=True, **more)


async def cases(here: World, **options: Any) -> tuple[ConflictCase, ...]:
    return await conflicts_of(here).shown(here.frame(PLACE), **options)


async def test_a_later_fact_of_equal_trust_supersedes_and_leaves_a_row_of_each(here: World) -> None:
    old = await employer(here, "Acme")
    here.clock.advance(60)  # type: ignore[attr-defined]
    new = await employer(here, "Globex")

    await checked(check_of(here))

    state = await here.state()
    assert state[new] == ("active", None, old)
    assert state[old][0] == "active"
    assert state[old][1] == here.clock.now()
    (case,) = await cases(here)
    assert (case.newcomer, case.incumbent, case.outcome) == (new, old, "newcomer_wins")
    assert "Globex" in case.newcomer_text
    assert case.decided_by == "daemon"
    (row,) = await here.audited("mem.conflict")
    assert (row.actor, row.namespace, row.target, row.result) == (
        "daemon", PLACE, f"memory:{new}", "ok",
    )  # fmt: skip
    assert f"conflict={case.id}" in row.detail
    assert await here.fetch("SELECT memory_id AS id FROM conflict_checks") == []


async def test_the_old_employer_never_outranks_the_new_one_however_late_it_is_told(
    here: World,
) -> None:
    new = await employer(here, "Globex", event_time=NOW - timedelta(days=10))
    here.clock.advance(60)  # type: ignore[attr-defined]
    late = await employer(here, "Acme", event_time=NOW - timedelta(days=900))

    await checked(check_of(here))

    state = await here.state()
    assert state[new] == ("active", None, late)
    assert state[late][1] == here.clock.now()
    assert (await cases(here))[0].outcome == "incumbent_wins"


@pytest.mark.parametrize("first_checked", ["newcomer", "incumbent"])
async def test_a_newcomer_of_lower_trust_is_disputed_whichever_is_checked_first(
    here: World, first_checked: str
) -> None:
    old = await employer(here, "Acme", trust=50)
    here.clock.advance(60)  # type: ignore[attr-defined]
    new = await employer(here, "Globex", trust=10)
    first = new if first_checked == "newcomer" else old
    early = NOW - timedelta(days=1)
    await here.execute("UPDATE conflict_checks SET due_at = $2 WHERE memory_id = $1", first, early)

    await checked(check_of(here))

    state = await here.state()
    assert state[old] == ("active", None, None)
    assert state[new] == ("disputed", None, None)
    assert [c.outcome for c in await cases(here)] == ["newcomer_disputed"]


async def test_a_newcomer_of_higher_trust_wins(here: World) -> None:
    old = await employer(here, "Acme", trust=10)
    new = await employer(here, "Globex", trust=50, event_time=NOW - timedelta(days=900))

    await checked(check_of(here))

    assert (await here.state())[new] == ("active", None, old)


async def test_policy_review_changes_nothing_and_asks_people(here: World) -> None:
    await employer(here, "Acme")
    await employer(here, "Globex")
    before = await here.state()

    await checked(check_of(here, review="review"))

    assert await here.state() == before
    assert [c.outcome for c in await cases(here, open_only=True)] == ["for_review"]


async def test_policy_off_checks_nothing_and_marks_it_done(here: World) -> None:
    await employer(here, "Acme")
    await employer(here, "Globex")

    await checked(check_of(here, review="off"))

    assert await cases(here) == ()
    assert await here.fetch("SELECT memory_id AS id FROM conflict_checks") == []


async def test_a_suspicion_is_for_people_whatever_the_trust(here: World) -> None:
    await here.put(PLACE, "The capital of Borduria is Szohod.", trust=10, due=True)
    await here.put(PLACE, "The capital of Borduria is Klow.", trust=50, due=True)
    await here.put(PLACE, "The port is not open to ships.", trust=50, due=True)
    await here.put(PLACE, "The port is open to ships.", trust=50, due=True)
    before = await here.state()

    await checked(check_of(here))

    assert await here.state() == before
    assert [c.outcome for c in await cases(here, open_only=True)] == ["for_review", "for_review"]


async def test_nothing_of_another_namespace_is_ever_touched(here: World) -> None:
    # Guarantee 19: dedupe, supersedence and conflict stay in one's own namespace.
    await employer(here, "Acme", namespace="acme")
    await employer(here, "Initech", namespace="acme/eng/platform")
    await employer(here, "Hooli", namespace="acme/engineering")
    await employer(here, "Globex")
    before = await here.state()

    await checked(check_of(here))

    assert await here.state() == before
    assert await here.fetch("SELECT id FROM memory_conflicts") == []


async def test_a_winner_that_follows_another_keeps_its_chain_and_is_linked_beside_it(
    here: World,
) -> None:
    first = await employer(here, "Acme")
    second = await employer(here, "Globex")
    await checked(check_of(here))
    # Somebody reverts to have both, and a third one beats them all.
    (case,) = await cases(here)
    await conflicts_of(here).revert(here.frame(PLACE), case.id)
    here.clock.advance(60)  # type: ignore[attr-defined]
    third = await employer(here, "Hooli")

    await checked(check_of(here))

    state = await here.state()
    assert state[third][1] is None
    assert [i for i in (first, second, third) if state[i][1] is None] == [third]
    followed = state[third][2]
    linked = await here.fetch(
        "SELECT from_memory, to_memory FROM memory_relationships WHERE kind = 'supersedes'"
    )
    assert {followed, *(r["to_memory"] for r in linked)} == {first, second}
    assert {r["from_memory"] for r in linked} == {third}


async def test_eight_checkers_side_by_side_decide_each_pair_once(here: World) -> None:
    # Guarantee 21
    for value in ("Acme", "Globex", "Hooli", "Initech", "Umbrella", "Cyberdyne"):
        await employer(here, value)
        here.clock.advance(1)  # type: ignore[attr-defined]
    last = await employer(here, "Tyrell")
    checks = [check_of(here) for _ in range(8)]

    async with asyncio.TaskGroup() as group:
        for check in checks:
            group.create_task(checked(check))

    state = await here.state()
    assert [i for i, (_, valid_to, _) in state.items() if valid_to is None] == [last]
    followers = [supersedes for _, _, supersedes in state.values() if supersedes is not None]
    assert len(followers) == len(set(followers))
    decided = [(c.newcomer, c.incumbent) for c in await cases(here)]
    assert len(decided) == len(set(decided)) == len(state) - 1
    assert len(await here.audited("mem.conflict")) == len(decided)


class Stubborn:
    """A judge that fails at one text, or for a while."""

    name = "stubborn"
    reads_meaning = False

    def __init__(self, error: Callable[[Memory], Exception | None]) -> None:
        self._error = error
        self._plain = PlainJudge()

    async def judge(self, newcomer: Memory, incumbent: Memory) -> Verdict:
        error = self._error(newcomer) or self._error(incumbent)
        if error is not None:
            raise error
        return self._plain.compare(newcomer, incumbent)


async def test_one_that_cannot_be_judged_does_not_keep_the_others_waiting(here: World) -> None:
    poison = {"subject": "Bob", "attribute": "employer", "value": "x", "single_valued": True}
    bad = await here.put(PLACE, "poison", content=poison, due=True)
    await here.put(PLACE, "more poison", content={**poison, "value": "y"})
    await employer(here, "Acme")
    await employer(here, "Globex")
    check = check_of(
        here, judge=Stubborn(lambda m: ValueError("no") if "poison" in m.text else None)
    )

    await checked(check)

    assert [c.outcome for c in await cases(here)] == ["newcomer_wins"]
    waiting = await here.fetch("SELECT memory_id AS id FROM conflict_checks")
    assert [r["id"] for r in waiting] == [bad]

    for _ in range(module.MOST_ATTEMPTS):
        here.clock.advance(86_400)  # type: ignore[attr-defined]
        await check.once()

    assert await here.fetch("SELECT memory_id AS id FROM conflict_checks") == []
    errors = [r for r in await here.audited("mem.conflict") if r.result == "error"]
    assert [r.target for r in errors] == [f"memory:{bad}"]


async def test_killed_between_judging_and_deciding_it_is_done_again_and_once(here: World) -> None:
    await employer(here, "Acme")
    await employer(here, "Globex")

    def die(_: Memory) -> Exception:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await check_of(here, judge=Stubborn(die)).once()
    before = await here.state()
    assert await check_of(here).once() == 0, "the claim still holds"
    here.clock.advance(3_600)  # type: ignore[attr-defined]

    await checked(check_of(here))

    assert await here.state() != before
    assert len(await cases(here)) == 1


async def test_killed_inside_the_decision_nothing_is_left(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await employer(here, "Acme")
    await employer(here, "Globex")
    before = await here.state()

    async def die(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(here.audit, "record", die)
        with pytest.raises(asyncio.CancelledError):
            await check_of(here).once()

    assert await here.state() == before
    assert await here.fetch("SELECT id FROM memory_conflicts") == []
    here.clock.advance(3_600)  # type: ignore[attr-defined]
    await checked(check_of(here))
    assert len(await cases(here)) == 1


async def test_a_judge_that_is_away_is_waited_for(here: World) -> None:
    await employer(here, "Acme")
    await employer(here, "Globex")
    is_away = True
    check = check_of(here, judge=Stubborn(lambda _: Unavailable("away") if is_away else None))

    await check.once()
    assert await cases(here) == ()
    is_away = False
    here.clock.advance(60)  # type: ignore[attr-defined]
    await checked(check)

    assert len(await cases(here)) == 1


async def test_what_was_reverted_is_exactly_as_before_and_is_left_alone(here: World) -> None:
    await employer(here, "Acme")
    await employer(here, "Globex")
    before = await here.state()
    await checked(check_of(here))
    (case,) = await cases(here)

    reverted = await conflicts_of(here).revert(here.frame(PLACE), case.id)

    assert reverted.reverted_by == "user:ada"
    assert await here.state() == before
    # Undone, both are looked at again, and not for what was decided about the two.
    assert len(await here.fetch("SELECT FROM conflict_checks")) == 2
    await checked(check_of(here))
    assert await here.state() == before
    with pytest.raises(Conflict):
        await conflicts_of(here).revert(here.frame(PLACE), case.id)


async def test_what_comes_back_is_compared_with_what_came_meanwhile(here: World) -> None:
    await employer(here, "Acme")
    await employer(here, "Globex")
    await checked(check_of(here))
    (case,) = await cases(here)
    loser = case.incumbent
    await employer(here, "Initech", trust=50)
    await checked(check_of(here))

    await conflicts_of(here).revert(here.frame(PLACE), case.id)
    await checked(check_of(here))

    newest = (await cases(here))[0]
    assert newest.id != case.id
    assert newest.incumbent == loser


async def test_a_check_that_became_due_anew_is_not_forgotten_with_the_old_one(
    here: World,
) -> None:
    fact = await employer(here, "Acme")
    again = {"subject": "Ada", "attribute": "employer", "value": "Acme"}
    await here.put(PLACE, "Ada is with Acme.", content=again)

    class Slow(PlainJudge):
        async def judge(self, newcomer: Memory, incumbent: Memory) -> Verdict:
            async with here.db.transaction() as tx:
                await store.due(tx.conn, [fact], tx.now)
            return await super().judge(newcomer, incumbent)

    await check_of(here, judge=Slow()).once()

    (waiting,) = await here.fetch("SELECT memory_id, attempts FROM conflict_checks")
    assert tuple(waiting) == (fact, 0)


async def test_marking_a_check_as_done_waits_for_nobody_who_holds_the_memory(here: World) -> None:
    fact = await employer(here, "Acme")

    async with here.db.transaction() as tx:
        await tx.conn.execute("SELECT FROM memories WHERE id = $1 FOR UPDATE", fact)
        async with asyncio.timeout(5):
            assert await check_of(here).once() == 1

    assert await here.fetch("SELECT FROM conflict_checks") == []


async def test_a_check_reads_a_bounded_number_of_what_speaks_of_the_same(here: World) -> None:
    await here.place(PLACE)
    many = [await here.put(PLACE, f"Log line {n} of the night shift.") for n in range(130)]
    entity = here.ids.new()
    await here.execute(
        "INSERT INTO entities (id, namespace, name, confidence, actor, created_at) "
        "VALUES ($1, $2, 'Acme', 1, 'user:ada', now())", entity, PLACE,
    )  # fmt: skip
    await here.execute(
        "INSERT INTO memory_entities SELECT id, $1, 'Acme', 'name', 1 FROM memories", entity
    )
    async with here.db.reading() as tx:
        row = await tx.conn.fetchrow("SELECT * FROM memories WHERE id = $1", many[0])
        assert row is not None
        memory = memory_of(dict(row))
        found = await store.by_entities(tx.conn, memory, 500)

    assert [m.id for m in found] == sorted(many[1:], reverse=True)[:100]


@pytest.mark.parametrize(
    "outcome", ["newcomer_wins", "incumbent_wins", "newcomer_disputed", "coexist"]
)
async def test_people_decide_and_decide_otherwise(here: World, outcome: str) -> None:
    old, new = await employer(here, "Acme"), await employer(here, "Globex")
    before = await here.state()
    await checked(check_of(here, review="review"))
    (case,) = await cases(here)
    people = conflicts_of(here)

    for choice in ("newcomer_disputed", "newcomer_wins", outcome):
        decided = await people.resolve(here.frame(PLACE), case.id, choice)
        assert (decided.outcome, decided.decided_by) == (choice, "user:ada")

    state = await here.state()
    expected = {
        "newcomer_wins": (state[old][1] is not None, state[new] == ("active", None, old)),
        "incumbent_wins": (state[new][1] is not None, state[old] == ("active", None, new)),
        "newcomer_disputed": (state[new] == ("disputed", None, None), state[old][1] is None),
        "coexist": (state == before, True),
    }
    assert expected[outcome] == (True, True)
    await people.revert(here.frame(PLACE), case.id)
    assert await here.state() == before


async def test_an_undo_that_later_changes_forbid_is_refused_and_changes_nothing(
    here: World,
) -> None:
    old = await employer(here, "Acme")
    await employer(here, "Globex")
    await checked(check_of(here))
    (case,) = await cases(here)
    await employer(here, "Acme")
    before = await here.state()

    with pytest.raises(Conflict, match=str(old)):
        await conflicts_of(here).revert(here.frame(PLACE), case.id)

    assert await here.state() == before


async def test_a_disputed_one_that_was_retracted_is_not_undone_into_life(here: World) -> None:
    await employer(here, "Acme", trust=50)
    new = await employer(here, "Globex", trust=10)
    await checked(check_of(here))
    (case,) = await cases(here)
    await here.execute("UPDATE memories SET status = 'retracted' WHERE id = $1", new)

    with pytest.raises(Conflict, match="retracted"):
        await conflicts_of(here).revert(here.frame(PLACE), case.id)


async def test_only_who_manages_the_namespace_decides_and_others_do_not_learn_of_it(
    here: World,
) -> None:
    await employer(here, "Acme")
    await employer(here, "Globex")
    await checked(check_of(here))
    (case,) = await cases(here)
    people = conflicts_of(here)

    # Guarantee 20: denied and missing are the same for who does not see it.
    for namespace in ("acme/sales", "acme/engineering", "other"):
        frame = here.frame(namespace, role=MemoryRole.OWNER)
        with pytest.raises(NotFound):
            await people.resolve(frame, case.id, "coexist")
        assert await people.shown(frame) == ()
    with pytest.raises(Denied):
        await people.revert(here.frame("acme/eng/platform"), case.id)
    with pytest.raises(Denied):
        await people.revert(here.frame(PLACE, role=MemoryRole.MEMBER), case.id)
    with pytest.raises(InvalidInput):
        await people.resolve(here.frame(PLACE), case.id, "for_review")
    # An owner above decides, and is not shown what it says.
    (above,) = await people.shown(here.frame("acme", role=MemoryRole.OWNER))
    assert (above.id, above.newcomer_text, above.incumbent_text, above.reason) == (
        case.id, "", "", "",
    )  # fmt: skip
    await people.revert(here.frame("acme", role=MemoryRole.OWNER), case.id)


@pytest.mark.parametrize("column", ["array", "halfvec"])
async def test_neighbours_are_found_by_vector_for_a_judge_that_reads_meaning(
    here: World, database: TestDatabase, column: str
) -> None:
    if column == "halfvec" and (await pgvector.prepare(database.owner_dsn)).kind != "pgvector":
        pytest.skip("this server has no pgvector")

    class Reader(Stubborn):
        reads_meaning = True

    shown: list[str] = []
    near = await here.put(PLACE, "Feline sat upon rug.")
    far = await here.put(PLACE, "Stock prices rose.")
    new = await here.put(PLACE, "A cat was on a mat.", due=True)
    async with here.db.transaction() as tx:
        await _embed(tx, {near: [1.0, 0.1], far: [0.0, 1.0], new: [1.0, 0.0]})
    check = check_of(here, judge=Reader(lambda m: shown.append(m.text)))

    await check.once()

    assert shown[::2][0] in {"Feline sat upon rug.", "A cat was on a mat."}
    assert {"Feline sat upon rug.", "Stock prices rose."} <= set(shown)
    assert shown.index("Feline sat upon rug.") < shown.index("Stock prices rose.")


async def _embed(tx: Tx, vectors: dict[UUID, list[float]]) -> None:
    await tx.conn.execute(
        "INSERT INTO embedding_models (model, dims, is_active, updated_at)"
        " VALUES ('m', 2, true, now())"
    )
    for id_, vector in vectors.items():
        await tx.conn.execute(
            "INSERT INTO memory_embeddings (memory_id, model, dims, namespace, kind, shelf,"
            " embedding) VALUES ($1, 'm', 2, $2, 'fact', 'fresh', $3::real[])",
            id_, PLACE, vector,
        )  # fmt: skip


# --- property -----------------------------------------------------------------------------------

_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["tell", "check", "revert", "resolve"]),
        st.integers(0, 5),
        st.sampled_from(["newcomer_wins", "incumbent_wins", "newcomer_disputed", "coexist"]),
        st.sampled_from([10, 40, 50]),
    ),
    min_size=3,
    max_size=10,
)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(_STEPS, st.randoms(use_true_random=False))
async def test_undoing_all_that_was_decided_in_any_order_leaves_every_memory_as_it_was_told(
    server: Server, template: str, steps: list[tuple[str, int, str, int]], order: Random
) -> None:
    async with fresh_database(server, template) as database:  # noqa: SIM117
        async with world(database, ManualClock(NOW)) as here:
            people = conflicts_of(here)
            for number, (step, which, outcome, trust) in enumerate(steps):
                here.clock.advance(60)  # type: ignore[attr-defined]
                if step == "tell":
                    await employer(here, f"Company{number}", trust=trust)
                elif step == "check":
                    await checked(check_of(here))
                else:
                    found = await cases(here)
                    if found:
                        await _tried(people, here, found[which % len(found)].id, step, outcome)
            await checked(check_of(here))
            decided = list(await cases(here))
            order.shuffle(decided)
            for case in decided:
                if case.reverted_at is None and case.outcome != "for_review":
                    await people.revert(here.frame(PLACE), case.id)

            state = await here.state()

    assert set(state.values()) <= {("active", None, None)}


async def _tried(people: Conflicts, here: World, id_: UUID, step: str, outcome: str) -> None:
    act: Callable[[], Awaitable[object]] = (
        (lambda: people.revert(here.frame(PLACE), id_))
        if step == "revert"
        else (lambda: people.resolve(here.frame(PLACE), id_, outcome))
    )
    try:
        await act()
    except Conflict:
        # Reverted before, or one of the two is no longer current.
        return

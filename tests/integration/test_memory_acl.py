"""Guarantees 19 and 20: who sees what, in SQL, the same for every kind of object."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noema.core.clock import ManualClock
from noema.core.errors import Denied, NotFound
from noema.core.identity import LOCAL, MemoryRole
from noema.db.tx import Database
from noema.memory.model import Explain, Read, Scope, Share, Status
from noema.memory.scope import by_place, fence, in_subtree, is_above
from noema.memory.store import reading, stats
from tests.conftest import TestDatabase
from tests.memories import Memories, memories

path = st.text(alphabet="ab_%\\/A", max_size=8)

WORKED = {
    "acme/eng/platform": True,
    "acme/eng": True,
    "acme": True,
    "acme/eng/platform/db": False,
    "acme/sales": False,
    "acme/engineering": False,
    "acmecorp": False,
}


@pytest.fixture
async def mem(database: TestDatabase, clock: ManualClock) -> AsyncIterator[Memories]:
    async with memories(database, clock) as opened:
        yield opened


async def filled(mem: Memories) -> dict[str, UUID]:
    """A memory in each namespace of the worked example."""
    return {place: await mem.put(place, f"In {place}.") for place in WORKED}


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(path, path), min_size=40, max_size=40))
async def test_guarantee_19_python_and_sql_agree_about_any_two_namespaces(
    db: Database, pairs: list[tuple[str, str]]
) -> None:
    rows, callers = [p[0] for p in pairs], [p[1] for p in pairs]
    seen = [by_place(caller) for caller in callers]
    async with db.reading() as tx:
        answered = await tx.conn.fetch(
            """
            SELECT p.row = ANY(string_to_array(p.seen, '|')) AS is_seen,
                   noema_in_subtree(p.row, p.caller) AS is_below
            FROM unnest($1::text[], $2::text[], $3::text[]) AS p(row, caller, seen)
            """,
            rows,
            callers,
            ["|".join(s) for s in seen],
        )

    for (row, caller), found in zip(pairs, answered, strict=True):
        assert (found["is_seen"] or (row == caller == "")) == is_above(row, caller), (row, caller)
        assert found["is_below"] == in_subtree(row, caller), (row, caller)


@pytest.mark.parametrize(
    ("inner", "root"),
    [
        ("acme/engX/db", "acme/eng_"),
        ("acme/engineering", "acme/eng"),
        ("acme/eng%/db", "acme/eng%"),
        ("acme/anything/db", "acme/%"),
        ("acme\\x", "acme\\"),
        ("acme\\/x", "acme\\"),
        ("acme/eng", "acme/eng"),
        ("acme/Eng", "acme/eng"),
        ("acme//x", "acme/"),
    ],
)
async def test_guarantee_19_what_means_something_to_a_pattern_means_itself(
    db: Database, inner: str, root: str
) -> None:
    async with db.reading() as tx:
        answered = await tx.conn.fetchval("SELECT noema_in_subtree($1, $2)", inner, root)

    assert answered == in_subtree(inner, root)


async def test_guarantee_19_the_worked_example_of_the_architecture(mem: Memories) -> None:
    ids = await filled(mem)
    platform = mem.who("acme/eng/platform")

    seen: dict[str, bool] = {}
    for place, id_ in ids.items():
        try:
            seen[place] = (await mem.kernel.mem_read(platform, Read(id=id_))).memory.id == id_
        except NotFound:
            seen[place] = False

    assert seen == WORKED


async def test_guarantee_19_one_predicate_for_pages_chains_counts_and_reasons(
    mem: Memories,
) -> None:
    ids = await filled(mem)
    platform = mem.who("acme/eng/platform")
    expected = {ids[place] for place, is_seen in WORKED.items() if is_seen}

    page = await mem.kernel.browse(platform)
    figures = await mem.kernel.mem_stats(platform)
    reasons = {
        place: (
            await mem.kernel.mem_explain(
                mem.who("acme/eng/platform", "aud", MemoryRole.AUDITOR), Explain(id=id_)
            )
        ).is_visible
        for place, id_ in ids.items()
        if place in expected or place.startswith("acme/eng/platform")
    }

    assert {m.id for m in page.memories} == expected
    assert figures.total == len(expected)
    assert reasons == {p: WORKED[p] for p in reasons}


async def test_guarantee_19_audit_figures_are_fenced_like_memories(mem: Memories) -> None:
    await mem.places("acme/eng/platform/db", "acme/sales")
    for place in ("acme", "acme/eng/platform", "acme/eng/platform/db", "acme/sales"):
        await mem.kernel.browse(mem.who(place))
    await mem.flush()

    figures = await mem.kernel.mem_stats(mem.who("acme/eng/platform"))

    assert figures.audit_rows == {"mem.browse": 2}


@pytest.mark.parametrize("missing", [None, Scope(writable="", own=(), namespaces=())])
async def test_guarantee_20_a_missing_scope_is_an_error(db: Database, missing: Any) -> None:
    async with db.reading() as tx:
        for asked in (
            reading.get(tx.conn, missing, [UUID(int=1)]),
            reading.browse(tx.conn, missing, before=None, kinds=(), status=None, limit=1),
            reading.chain(tx.conn, missing, UUID(int=1)),
            stats.counts(tx.conn, missing),
            stats.embedded(tx.conn, missing, "m"),
            stats.audited(tx.conn, missing, tx.now),
        ):
            with pytest.raises(Exception, match="without a scope"):
                await asked
    with pytest.raises(Exception, match="without a scope"):
        fence(missing)


async def test_guarantee_20_denied_and_missing_are_the_same_but_in_the_log(mem: Memories) -> None:
    hidden = await mem.put("acme/sales")
    eng = mem.who("acme/eng")
    await mem.places("acme/eng")

    errors = []
    for id_ in (hidden, UUID(int=7)):
        with pytest.raises(NotFound) as raised:
            await mem.kernel.mem_read(eng, Read(id=id_))
        errors.append(raised.value)

    assert type(errors[0]) is type(errors[1]) is NotFound
    assert errors[0].code == errors[1].code
    assert str(errors[0]).replace(str(hidden), "X") == str(errors[1]).replace(str(UUID(int=7)), "X")
    rows = await mem.audited("mem.read")
    assert [(r.target, r.result) for r in rows] == [
        (f"memory:{hidden}", "denied"),
        (f"memory:{UUID(int=7)}", "miss"),
    ]


async def test_without_a_membership_nothing_is_seen_or_done(mem: Memories) -> None:
    nobody = mem.who("", role=MemoryRole.NONE)

    for asked in (
        mem.kernel.browse(nobody),
        mem.kernel.mem_stats(nobody),
        mem.kernel.mem_read(LOCAL, Read(id=UUID(int=1))),
    ):
        with pytest.raises(Denied, match="no namespace"):
            await asked

    assert [r.result for r in await mem.audited("mem")] == ["denied"] * 3


async def test_pages_are_filtered_before_they_are_cut(mem: Memories) -> None:
    await mem.put("acme", "Disputed.", status="disputed")
    for n in range(5):
        await mem.put("acme", f"Number {n}.")
        await mem.put("acme/sales", f"Hidden {n}.")
    acme = mem.who("acme")

    first = await mem.kernel.browse(acme, status=Status.ACTIVE, limit=3)
    rest = await mem.kernel.browse(acme, status=Status.ACTIVE, limit=3, before=first.before)
    disputed = await mem.kernel.browse(acme, status=Status.DISPUTED)

    assert [m.text for m in (*first.memories, *rest.memories)] == [
        f"Number {n}." for n in reversed(range(5))
    ]
    assert rest.before is None
    assert [m.text for m in disputed.memories] == ["Disputed."]


async def test_a_chain_goes_both_ways_and_stops_where_sight_does(mem: Memories) -> None:
    first = await mem.put("acme", "Oslo.", valid_to=mem.clock.now())
    second = await mem.put("acme", "Bergen.", supersedes=first, valid_to=mem.clock.now())
    third = await mem.put("acme", "Tromsø.", supersedes=second)
    other = await mem.put("beta/x", "Elsewhere.", supersedes=third)
    acme = mem.who("acme")

    found = await mem.kernel.mem_read(acme, Read(id=second, history=True))
    await mem.kernel.mem_share(
        mem.who("acme", role=MemoryRole.OWNER), Share(memory=second, to_namespace="beta")
    )
    shared = await mem.kernel.mem_read(mem.who("beta"), Read(id=second, history=True))

    assert [m.id for m in found.history] == [third, second, first]
    assert (found.memory.supersedes, found.memory.superseded_by) == (first, third)
    assert [m.id for m in shared.history] == [second]
    assert shared.memory.superseded_by is None
    assert other not in {m.id for m in found.history}

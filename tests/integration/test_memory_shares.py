"""Shares: given, read by, listed, ended, and never more than they say."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from noema.core.clock import ManualClock
from noema.core.errors import Denied, IdempotencyReuse, InvalidInput, NoemaError, NotFound
from noema.core.identity import Identity, MemoryRole
from noema.memory.model import Explain, Read, Share
from tests.conftest import TestDatabase
from tests.memories import Memories, memories

OWNER, ADMIN, AUDITOR = MemoryRole.OWNER, MemoryRole.ADMIN, MemoryRole.AUDITOR


@pytest.fixture
async def mem(database: TestDatabase, clock: ManualClock) -> AsyncIterator[Memories]:
    async with memories(database, clock) as opened:
        await opened.places("acme/eng/db", "acme/sales", "acme/sales/north", "beta/lab")
        yield opened


async def sees(mem: Memories, who: Identity, id_: UUID) -> bool:
    try:
        await mem.kernel.mem_read(who, Read(id=id_))
    except NotFound:
        return False
    return True


async def test_a_shared_memory_is_read_where_it_was_shared_with_and_nowhere_else(
    mem: Memories,
) -> None:
    id_ = await mem.put("acme/eng")
    other = await mem.put("acme/eng")

    grant = await mem.kernel.mem_share(
        mem.who("acme/eng"), Share(memory=id_, to_namespace="acme/sales")
    )

    sales = mem.who("acme/sales", "eve")
    found = (await mem.kernel.mem_read(sales, Read(id=id_))).memory
    assert found.is_shared
    assert not await sees(mem, sales, other)
    # It holds in exactly that namespace: not below it, not above.
    assert not await sees(mem, mem.who("acme/sales/north", "eve"), id_)
    assert not await sees(mem, mem.who("acme", "eve"), id_)
    assert [m.id for m in (await mem.kernel.browse(sales)).memories] == [id_]
    assert (await mem.kernel.mem_stats(sales)).total == 1
    assert (grant.namespace, grant.granted_by) == ("acme/eng", "user:ada")


async def test_a_share_with_an_actor_goes_along_with_them_inside_the_tenant(mem: Memories) -> None:
    id_ = await mem.put("acme/eng")

    await mem.kernel.mem_share(mem.who("acme/eng"), Share(memory=id_, to_actor="user:eve"))

    assert await sees(mem, mem.who("acme/sales", "eve"), id_)
    assert await sees(mem, mem.who("acme", "eve"), id_)
    assert not await sees(mem, mem.who("acme/sales", "bob"), id_)
    assert not await sees(mem, mem.who("beta", "eve"), id_)


async def test_only_an_owner_shares_beyond_the_tenant(mem: Memories) -> None:
    id_ = await mem.put("acme/eng")
    request = Share(memory=id_, to_namespace="beta/lab")

    for role in (MemoryRole.AGENT, MemoryRole.MEMBER, ADMIN):
        with pytest.raises(Denied, match="Only an owner"):
            await mem.kernel.mem_share(mem.who("acme/eng", role=role), request)
    await mem.kernel.mem_share(mem.who("acme/eng", role=OWNER), request)
    await mem.kernel.mem_share(
        mem.who("acme/eng", role=OWNER), Share(memory=id_, to_actor="user:eve")
    )

    assert await sees(mem, mem.who("beta/lab", "bob"), id_)
    assert await sees(mem, mem.who("beta", "eve"), id_)


async def test_a_shared_subtree_is_all_that_is_in_it_and_what_comes_later(mem: Memories) -> None:
    root = await mem.put("acme/eng")
    below = await mem.put("acme/eng/db")
    alike = await mem.put("acme/engineering")
    sales = mem.who("acme/sales", "eve")

    await mem.kernel.mem_share(
        mem.who("acme", role=ADMIN), Share(subtree="acme/eng", to_namespace="acme/sales")
    )
    seen = [await sees(mem, sales, i) for i in (root, below, alike)]
    later = await mem.put("acme/eng/new")
    mem.clock.advance(1)  # type: ignore[attr-defined]

    assert seen == [True, True, False]
    assert await sees(mem, sales, later)


async def test_a_subtree_is_for_those_who_manage_it(mem: Memories) -> None:
    for who in (
        mem.who("acme/eng"),
        mem.who("acme/eng", role=MemoryRole.AGENT),
        mem.who("acme/sales", role=OWNER),
        mem.who("acme/eng/db", role=OWNER),
    ):
        with pytest.raises(Denied):
            await mem.kernel.mem_share(who, Share(subtree="acme/eng", to_actor="user:eve"))
    with pytest.raises(Denied):
        await mem.kernel.mem_share(
            mem.who("acme/eng", role=AUDITOR), Share(subtree="acme/eng", to_actor="user:eve")
        )
    assert {r.result for r in await mem.audited("mem.share")} == {"denied"}


async def test_what_one_merely_reads_is_not_ones_own_to_share(mem: Memories) -> None:
    above = await mem.put("acme")
    hidden = await mem.put("acme/sales")
    eng = mem.who("acme/eng")

    with pytest.raises(Denied, match="it is acme that may share it"):
        await mem.kernel.mem_share(eng, Share(memory=above, to_namespace="acme/sales"))
    with pytest.raises(NotFound):
        await mem.kernel.mem_share(eng, Share(memory=hidden, to_namespace="acme/eng"))
    with pytest.raises(NotFound):
        await mem.kernel.mem_share(eng, Share(memory=UUID(int=1), to_namespace="acme/eng"))

    assert [r.result for r in await mem.audited("mem.share")] == ["denied", "denied", "miss"]


async def test_a_share_ends_when_it_says_so(mem: Memories, clock: ManualClock) -> None:
    id_ = await mem.put("acme/eng")
    sales = mem.who("acme/sales", "eve")
    until = clock.now() + timedelta(hours=1)
    await mem.kernel.mem_share(
        mem.who("acme/eng"), Share(memory=id_, to_namespace="acme/sales", expires_at=until)
    )
    before = await sees(mem, sales, id_)

    clock.advance(3_600)

    assert before
    assert not await sees(mem, sales, id_)
    assert await mem.kernel.shares(sales) == ()
    assert len(await mem.kernel.shares(sales, ended=True)) == 1


async def test_a_revoked_share_opens_nothing_more_whatever_time_is_asked_for(
    mem: Memories, clock: ManualClock
) -> None:
    id_ = await mem.put("acme/eng")
    eng, sales = mem.who("acme/eng"), mem.who("acme/sales", "eve")
    auditor = mem.who("acme", "aud", AUDITOR)
    grant = await mem.kernel.mem_share(eng, Share(memory=id_, to_namespace="acme/sales"))
    clock.advance(10)
    during = clock.now()
    clock.advance(10)

    ended = await mem.kernel.unshare(eng, grant.id)
    again = await mem.kernel.unshare(eng, grant.id)

    assert ended.valid_to == clock.now()
    assert again == ended
    assert not await sees(mem, sales, id_)
    scopes = mem.kernel._parts.scopes
    assert (await scopes.of(sales, during)).memories == ()
    # Who audits may still ask what could be seen at that moment.
    then = await scopes.through(auditor, "acme/sales", "user:eve", during)
    now = await scopes.through(auditor, "acme/sales", "user:eve")
    assert (then.memories, now.memories) == ((id_,), ())
    asked = Explain(id=id_, view_namespace="acme/sales", view_actor="user:eve", as_of=during)
    told = await mem.kernel.mem_explain(auditor, asked)
    assert told.is_visible
    assert [g.id for g in told.grants] == [grant.id]


async def test_a_share_is_ended_by_who_gave_it_and_by_who_manages_what_it_shares(
    mem: Memories,
) -> None:
    id_ = await mem.put("acme/eng")
    eng = mem.who("acme/eng")
    grants = [
        await mem.kernel.mem_share(eng, Share(memory=id_, to_namespace="acme/sales"))
        for _ in range(3)
    ]

    with pytest.raises(Denied):
        await mem.kernel.unshare(mem.who("acme/sales", "eve", OWNER), grants[0].id)
    with pytest.raises(NotFound):
        await mem.kernel.unshare(mem.who("beta", "eve", OWNER), grants[0].id)
    with pytest.raises(NotFound):
        await mem.kernel.unshare(mem.who("acme/eng", "bob"), grants[0].id)
    with pytest.raises(NotFound):
        await mem.kernel.unshare(eng, UUID(int=1))
    await mem.kernel.unshare(eng, grants[0].id)
    await mem.kernel.unshare(mem.who("acme/eng", "boss", ADMIN), grants[1].id)
    await mem.kernel.unshare(mem.who("acme", "chief", OWNER), grants[2].id)

    ended = await mem.kernel.shares(eng, ended=True)
    assert {g.revoked_by for g in ended} == {"user:ada", "user:boss", "user:chief"}
    assert [r.result for r in await mem.audited("mem.unshare")] == [
        "denied", "denied", "denied", "miss", "ok", "ok", "ok",
    ]  # fmt: skip


async def test_shares_are_listed_to_who_gave_them_who_has_them_and_who_watches(
    mem: Memories,
) -> None:
    id_ = await mem.put("acme/eng")
    grant = await mem.kernel.mem_share(
        mem.who("acme/eng"), Share(memory=id_, to_namespace="acme/sales")
    )

    listed = {
        str(who.namespace) + " " + who.actor: [g.id for g in await mem.kernel.shares(who)]
        for who in (
            mem.who("acme/eng"),
            mem.who("acme/eng", "bob"),
            mem.who("acme/sales", "eve"),
            mem.who("acme", "aud", AUDITOR),
            mem.who("acme/sales/north", "aud", AUDITOR),
        )
    }

    assert listed == {
        "acme/eng user:ada": [grant.id],
        "acme/eng user:bob": [],
        "acme/sales user:eve": [grant.id],
        "acme user:aud": [grant.id],
        "acme/sales/north user:aud": [],
    }


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "memory"),
        ({"memory": UUID(int=1), "subtree": "acme", "to_actor": "user:eve"}, "memory"),
        ({"memory": UUID(int=1)}, "to_namespace"),
        ({"memory": UUID(int=1), "to_actor": "user:e", "to_namespace": "acme"}, "to_namespace"),
        ({"memory": UUID(int=1), "to_namespace": "acme/%"}, "namespace"),
        ({"subtree": "acme/_", "to_namespace": "acme"}, "namespace"),
        ({"memory": UUID(int=1), "to_actor": "eve"}, "to_actor"),
        ({"memory": UUID(int=1), "to_actor": "user:\x00"}, "to_actor"),
        (
            {
                "memory": UUID(int=1),
                "to_actor": "user:e",
                "expires_at": datetime(2030, 1, 1),  # noqa: DTZ001
            },
            "expires_at",
        ),
    ],
)
async def test_a_share_that_makes_no_sense_says_what_is_wrong(
    mem: Memories, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as raised:
        await mem.kernel.mem_share(mem.who("acme/eng", role=OWNER), Share(**fields))

    assert raised.value.field == field


async def test_a_share_does_not_begin_ended_nor_go_nowhere(mem: Memories) -> None:
    id_ = await mem.put("acme/eng")
    eng = mem.who("acme/eng")

    with pytest.raises(InvalidInput, match="in the past"):
        await mem.kernel.mem_share(
            eng, Share(memory=id_, to_namespace="acme/sales", expires_at=mem.clock.now())
        )
    with pytest.raises(NotFound, match="namespace acme/nowhere"):
        await mem.kernel.mem_share(eng, Share(memory=id_, to_namespace="acme/nowhere"))


async def test_with_an_idempotency_key_a_share_is_given_once(mem: Memories) -> None:
    id_ = await mem.put("acme/eng")
    eng = mem.who("acme/eng")
    request = Share(memory=id_, to_namespace="acme/sales")

    first = await mem.kernel.mem_share(eng, request, key="k")
    again = await mem.kernel.mem_share(eng, request, key="k")
    with pytest.raises(IdempotencyReuse):
        await mem.kernel.mem_share(eng, Share(memory=id_, to_actor="user:eve"), key="k")

    assert first.id == again.id
    assert len(await mem.kernel.shares(eng)) == 1


class TestExplain:
    async def test_reasons_name_the_rule_that_opened_or_closed_the_door(
        self, mem: Memories
    ) -> None:
        id_ = await mem.put("acme/eng")
        grant = await mem.kernel.mem_share(
            mem.who("acme/eng"), Share(memory=id_, to_namespace="acme/sales")
        )
        owner = mem.who("acme", "chief", OWNER)

        async def asked(namespace: str, actor: str = "user:x") -> tuple[bool, str]:
            request = Explain(id=id_, view_namespace=namespace, view_actor=actor)
            told = await mem.kernel.mem_explain(owner, request)
            return told.is_visible, " ".join(told.reasons)

        own, shared = await asked("acme/eng/db"), await asked("acme/sales")
        above, beside = await asked("acme"), await asked("acme/sales/north")

        assert own[0]
        assert "above acme/eng/db" in own[1]
        assert shared[0]
        assert f"Grant {grant.id}: user:ada let acme/sales read this memory" in shared[1]
        assert not above[0]
        assert "below acme: one does not see what is below" in above[1]
        assert not beside[0]
        assert "neither acme/sales/north nor above it" in beside[1]

    async def test_of_what_one_does_not_see_one_learns_nothing(self, mem: Memories) -> None:
        hidden = await mem.put("acme/sales")

        for who in (
            mem.who("acme/eng"),
            mem.who("acme"),
            mem.who("acme/eng", role=AUDITOR),
            mem.who("beta", role=OWNER),
        ):
            with pytest.raises(NotFound):
                await mem.kernel.mem_explain(who, Explain(id=hidden))
        told = await mem.kernel.mem_explain(mem.who("acme", role=AUDITOR), Explain(id=hidden))

        assert not told.is_visible
        assert not told.is_found_by_search

    async def test_other_eyes_are_for_who_watches_and_in_their_subtree(self, mem: Memories) -> None:
        id_ = await mem.put("acme")
        request = Explain(id=id_, view_namespace="acme/sales", view_actor="user:eve")

        for who in (
            mem.who("acme"),
            mem.who("acme", role=MemoryRole.AGENT),
            mem.who("acme/eng", role=AUDITOR),
            mem.who("acme/sales/north", role=OWNER),
        ):
            with pytest.raises(Denied, match="other eyes"):
                await mem.kernel.mem_explain(who, request)
        told = await mem.kernel.mem_explain(mem.who("acme", role=AUDITOR), request)

        assert told.is_visible
        assert told.viewer_actor == "user:eve"

    async def test_what_came_from_outside_the_subtree_stays_between_those_two(
        self, mem: Memories
    ) -> None:
        secret = await mem.put("beta/lab")
        await mem.kernel.mem_share(
            mem.who("beta/lab", role=OWNER), Share(memory=secret, to_actor="user:eve")
        )
        auditor = mem.who("acme", "aud", AUDITOR)

        scope = await mem.kernel._parts.scopes.through(auditor, "acme/sales", "user:eve")

        assert await sees(mem, mem.who("acme/sales", "eve"), secret)
        assert scope.memories == ()

    async def test_a_closed_or_disputed_memory_says_why_no_search_finds_it(
        self, mem: Memories
    ) -> None:
        closed = await mem.put("acme", valid_to=mem.clock.now())
        disputed = await mem.put("acme", status="disputed")
        acme = mem.who("acme")

        told = [await mem.kernel.mem_explain(acme, Explain(id=i)) for i in (closed, disputed)]

        assert [(t.is_visible, t.is_found_by_search) for t in told] == [(True, False)] * 2
        assert "superseded" in told[0].reasons[-1]
        assert "quarantine" in told[1].reasons[-1]


async def test_every_outcome_of_a_share_is_on_record_with_what_it_was(mem: Memories) -> None:
    id_ = await mem.put("acme/eng")
    eng = mem.who("acme/eng")

    grant = await mem.kernel.mem_share(eng, Share(memory=id_, to_namespace="acme/sales"))
    with pytest.raises(NoemaError):
        await mem.kernel.mem_share(eng, Share(memory=id_))

    ok, error = await mem.audited("mem.share")
    assert (ok.result, ok.target) == ("ok", f"memory:{id_}")
    assert ok.detail == f"grant={grant.id} to=acme/sales"
    assert (error.result, error.actor, error.namespace) == ("error", "user:ada", "acme/eng")

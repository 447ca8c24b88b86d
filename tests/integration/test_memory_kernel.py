"""The prologue of every syscall, and the row that every outcome leaves."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from noema.core.clock import ManualClock
from noema.core.errors import (
    Denied,
    InvalidInput,
    NoemaError,
    NotFound,
    RateLimited,
    Unavailable,
)
from noema.core.identity import LOCAL, MemoryRole
from noema.db.tx import Database
from noema.events import store
from noema.events.audit import AuditBuffer
from noema.memory import rights
from noema.memory.model import (
    Directive,
    PolicyDocument,
    Read,
    Search,
    Ticket,
    Write,
    WriteResult,
)
from noema.memory.policy import CALLS_PER_MINUTE, merged
from noema.memory.prologue import TenantGate
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.memories import Memories, memories

OWNER, ADMIN, AUDITOR = MemoryRole.OWNER, MemoryRole.ADMIN, MemoryRole.AUDITOR
AGENT, MEMBER = MemoryRole.AGENT, MemoryRole.MEMBER


@pytest.fixture
async def mem(database: TestDatabase, clock: ManualClock) -> AsyncIterator[Memories]:
    async with memories(database, clock) as opened:
        await opened.places("acme/eng/db", "acme/sales")
        yield opened


class TestRoles:
    @pytest.mark.parametrize("op", sorted(rights.SYSCALLS))
    def test_auditors_never_write_and_owners_do_everything(self, op: str) -> None:
        line = rights.SYSCALLS[op]

        assert OWNER in line.roles
        assert ADMIN in line.roles
        assert not (line.writes and AUDITOR in line.roles)
        assert MemoryRole.NONE not in line.roles
        assert (AGENT in line.roles) == (MEMBER in line.roles)

    async def test_who_may_not_is_denied_and_on_record(self, mem: Memories) -> None:
        auditor = mem.who("acme", role=AUDITOR)

        with pytest.raises(Denied, match=r"mem\.write is for the roles agent, member, admin"):
            await mem.kernel.mem_write(auditor, Write(text="x"))
        with pytest.raises(Denied):
            await mem.kernel.mem_pin(auditor, UUID(int=1))
        with pytest.raises(Denied):
            await mem.kernel.set_policy(mem.who("acme"), "acme", PolicyDocument())
        with pytest.raises(Denied):
            await mem.kernel.mem_search(mem.who("", role=MemoryRole.NONE), Search(query="x"))

        rows = await mem.audited("mem")
        assert [(r.op, r.result) for r in rows] == [
            ("mem.write", "denied"),
            ("mem.pin", "denied"),
            ("mem.policy-set", "denied"),
            ("mem.search", "denied"),
        ]
        assert rows[0].agent_id == "http"


class TestTenants:
    async def test_nobody_acts_in_a_suspended_tenant(
        self, mem: Memories, clock: ManualClock
    ) -> None:
        eng = mem.who("acme/eng")
        await mem.kernel.mem_stats(eng)

        await mem.access.tenants.suspend(LOCAL, "acme")
        clock.advance(1)
        with pytest.raises(Denied, match="suspended"):
            await mem.kernel.mem_stats(eng)
        with pytest.raises(Denied, match="suspended"):
            await mem.kernel.mem_write(eng, Write(text="x"))
        await mem.access.tenants.resume(LOCAL, "acme")
        clock.advance(1)

        assert (await mem.kernel.mem_stats(eng)).total == 0
        assert [r.result for r in await mem.audited("mem.stats")] == ["ok", "denied", "ok"]

    async def test_a_namespace_that_is_not_there_is_denied(self, mem: Memories) -> None:
        with pytest.raises(Denied):
            await mem.kernel.mem_stats(mem.who("acme/nowhere"))

    @pytest.mark.parametrize("failure", [Unavailable("gone"), RuntimeError("odd"), TimeoutError()])
    async def test_what_cannot_be_decided_is_an_error_and_never_a_permit(
        self, mem: Memories, clock: ManualClock, failure: Exception
    ) -> None:
        async def fail(namespace: str) -> bool:
            raise failure

        kernel = mem.kernel
        kernel._parts.prologue._tenants = TenantGate(fail, clock)

        for _ in range(2):
            with pytest.raises(type(failure)):
                await kernel.mem_stats(mem.who("acme"))

        assert [r.result for r in await mem.audited("mem.stats")] == ["error", "error"]

    async def test_an_answer_of_before_is_not_used_when_there_is_none_now(
        self, clock: ManualClock
    ) -> None:
        answers: list[Any] = [True, Unavailable("gone")]

        async def is_active(namespace: str) -> bool:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return bool(answer)

        gate = TenantGate(is_active, clock)
        await gate.require("acme")
        await gate.require("acme")
        clock.advance(1)

        with pytest.raises(Unavailable):
            await gate.require("acme")


class TestLimits:
    async def test_reads_and_writes_have_buckets_of_their_own_for_every_key(
        self, mem: Memories, clock: ManualClock
    ) -> None:
        await mem.kernel.set_policy(
            mem.who("acme", "chief", OWNER),
            "acme",
            PolicyDocument(reads_per_minute=3, writes_per_minute=60),
        )
        eng, other = mem.who("acme/eng"), mem.who("acme/eng", "bob")

        for _ in range(3):
            await mem.kernel.browse(eng)
        with pytest.raises(RateLimited) as raised:
            await mem.kernel.browse(eng)
        await mem.kernel.browse(other)
        await mem.kernel.mem_policy_ack(eng, (await mem.kernel.mem_policy(other)).digest)
        clock.advance(raised.value.retry_after_s)
        await mem.kernel.browse(eng)

        assert raised.value.retry_after_s == 20
        rows = await mem.audited("mem.browse")
        assert [r.result for r in rows] == ["ok"] * 3 + ["denied"] + ["ok"] * 2
        assert rows[3].detail.startswith("rate_limited: At most 3 reads a minute")


class TestPolicy:
    def test_limits_only_get_lower_and_reviews_stricter_on_the_way_down(self) -> None:
        above = PolicyDocument(
            reads_per_minute=10, conflict_review="review", retention_days=30,
            directives=(Directive(id="a", text="Be kind."),),
        )  # fmt: skip
        below = PolicyDocument(
            reads_per_minute=50, writes_per_minute=5, conflict_review="off", retention_days=90,
            directives=(Directive(id="b", text="Be brief."),),
        )  # fmt: skip

        found = merged("acme/eng", [above, below])

        assert (found.reads_per_minute, found.writes_per_minute) == (10, 5)
        assert found.conflict_review == "review"
        assert found.retention_days == 90
        assert [d.id for d in found.directives] == ["a", "b"]
        assert found.digest != merged("acme/eng", [above]).digest
        assert merged("x", []).reads_per_minute == CALLS_PER_MINUTE

    async def test_every_version_stays_and_what_holds_is_merged_along_the_path(
        self, mem: Memories
    ) -> None:
        chief = mem.who("acme", "chief", OWNER)
        await mem.kernel.set_policy(chief, "acme", PolicyDocument(reads_per_minute=100))
        await mem.kernel.set_policy(chief, "acme", PolicyDocument(reads_per_minute=200))

        held = await mem.kernel.set_policy(
            chief, "acme/eng", PolicyDocument(reads_per_minute=300, driver="baseline")
        )

        version, document = await mem.kernel.policy_of(chief, "acme")
        assert (version, document.reads_per_minute) == (2, 200)
        assert (held.namespace, held.reads_per_minute) == ("acme/eng", 200)
        assert await mem.kernel.policy_of(chief, "acme/sales") == (0, PolicyDocument())
        rows = await mem.fetch("SELECT version, actor FROM memory_policies ORDER BY set_at")
        assert [tuple(r) for r in rows] == [(1, "user:chief"), (2, "user:chief"), (1, "user:chief")]

    async def test_one_sets_and_sees_policies_inside_ones_reach(self, mem: Memories) -> None:
        eng = mem.who("acme/eng", role=ADMIN)
        document = PolicyDocument(reads_per_minute=1_000)

        await mem.kernel.set_policy(eng, "acme/eng/db", document)
        for place in ("acme", "acme/sales", "acme/engineering"):
            with pytest.raises(Denied):
                await mem.kernel.set_policy(eng, place, document)
        with pytest.raises(NotFound):
            await mem.kernel.set_policy(eng, "acme/eng/nowhere", document)
        with pytest.raises(NotFound):
            await mem.kernel.policy_of(eng, "acme/sales")

        assert (await mem.kernel.policy_of(mem.who("acme/eng/db"), "acme/eng"))[0] == 0
        assert (await mem.kernel.policy_of(eng, "acme/eng/db"))[0] == 1

    @pytest.mark.parametrize(
        ("document", "field"),
        [
            (PolicyDocument(driver="magic"), "driver"),
            (PolicyDocument(reads_per_minute=0), "reads_per_minute"),
            (PolicyDocument(max_text_chars=10**9), "max_text_chars"),
            (PolicyDocument(retention_days=-1), "retention_days"),
            (PolicyDocument(directives=(Directive(id="", text="x"),)), "directives"),
            (PolicyDocument(directives=(Directive(id="a", text="x"),) * 2), "directives"),
        ],
    )
    async def test_a_policy_that_makes_no_sense_says_what_is_wrong(
        self, mem: Memories, document: PolicyDocument, field: str
    ) -> None:
        with pytest.raises(InvalidInput) as raised:
            await mem.kernel.set_policy(mem.who("acme", role=OWNER), "acme", document)

        assert raised.value.field == field

    async def test_directives_are_acknowledged_by_their_digest(self, mem: Memories) -> None:
        chief, eng = mem.who("acme", "chief", OWNER), mem.who("acme/eng", role=AGENT)
        odd = "No \x00 and \ud800 here."
        await mem.kernel.set_policy(
            chief, "acme", PolicyDocument(directives=(Directive(id="a", text=odd),))
        )

        before = await mem.kernel.mem_policy(eng)
        with pytest.raises(InvalidInput, match="others by now"):
            await mem.kernel.mem_policy_ack(eng, "0" * 64)
        after = await mem.kernel.mem_policy_ack(eng, before.digest)

        assert before.directives[0].text == odd
        assert (before.acknowledged, after.acknowledged) == (False, True)
        assert (await mem.kernel.mem_policy(eng)).acknowledged
        assert not (await mem.kernel.mem_policy(mem.who("acme/eng", "bob"))).acknowledged

    async def test_another_process_heeds_a_new_policy_within_a_second(
        self, mem: Memories, database: TestDatabase, clock: ManualClock
    ) -> None:
        async with memories(database, clock) as other:
            eng = mem.who("acme/eng")
            await other.kernel.mem_policy(eng)
            await mem.kernel.set_policy(
                mem.who("acme", role=OWNER), "acme", PolicyDocument(max_text_chars=99)
            )
            clock.advance(1)

            assert (await other.kernel.mem_policy(eng)).max_text_chars == 99


class TestPins:
    async def test_what_one_reads_one_pins_for_ones_own_namespace(self, mem: Memories) -> None:
        above, own = await mem.put("acme"), await mem.put("acme/eng")
        eng = mem.who("acme/eng")

        first = await mem.kernel.mem_pin(eng, above)
        again = await mem.kernel.mem_pin(eng, above)
        await mem.kernel.mem_pin(mem.who("acme"), above)

        assert first == again
        assert {p.namespace for p in await mem.kernel.pins(eng)} == {"acme", "acme/eng"}
        await mem.kernel.mem_unpin(eng, above)
        assert {p.namespace for p in await mem.kernel.pins(eng)} == {"acme"}
        with pytest.raises(NotFound):
            await mem.kernel.mem_unpin(eng, above)
        with pytest.raises(NotFound):
            await mem.kernel.mem_unpin(eng, own)

    async def test_what_one_does_not_read_one_does_not_pin(self, mem: Memories) -> None:
        hidden = await mem.put("acme/sales")

        for id_ in (hidden, UUID(int=1)):
            with pytest.raises(NotFound):
                await mem.kernel.mem_pin(mem.who("acme/eng"), id_)

        assert [r.result for r in await mem.audited("mem.pin")] == ["denied", "miss"]


class TestRows:
    async def test_a_search_is_on_record_with_its_question_and_what_it_came_to(
        self, mem: Memories
    ) -> None:
        eng = mem.who("acme/eng")
        await mem.wrote(eng, "The disk of host nine failed on Monday.")

        await mem.kernel.mem_search(eng, Search(query="disk " + "x" * 300))
        await mem.kernel.mem_search(eng, Search(query="disk secret", sensitive=True))
        with pytest.raises(InvalidInput):
            await mem.kernel.mem_search(eng, Search(query="disk", k=0))

        plain, sensitive, wrong = await mem.audited("mem.search")
        assert plain.purpose == ("disk " + "x" * 300)[:200]
        assert plain.detail.startswith("returned=1 tokens=10 driver=")
        assert sensitive.purpose == ""
        assert "secret" not in sensitive.detail
        assert (wrong.result, wrong.purpose) == ("error", "disk")

    async def test_a_write_commits_with_its_row(self, mem: Memories) -> None:
        eng = mem.who("acme/eng")

        id_ = await mem.wrote(eng, "The sky is blue.")

        rows = await mem.fetch("SELECT op, result, content FROM audit_log WHERE op = 'mem.write'")
        assert [(r["op"], r["result"]) for r in rows] == [("mem.write", "ok")]
        assert "stored=1" in rows[0]["content"]["detail"]
        assert (await mem.kernel.mem_read(eng, Read(id=id_))).memory.text == "The sky is blue."

    async def test_a_write_that_fails_leaves_a_row_and_nothing_else(self, mem: Memories) -> None:
        hidden = await mem.put("acme/sales")
        eng = mem.who("acme/eng")

        with pytest.raises(NotFound):
            await mem.kernel.mem_write(eng, Write(text="New.", supersedes=hidden))

        assert [r.result for r in await mem.audited("mem.write")] in (["denied"], ["miss"])
        assert (await mem.kernel.mem_stats(eng)).total == 0

    async def test_an_async_write_gives_a_ticket_that_is_found_by_who_asked(
        self, mem: Memories
    ) -> None:
        eng = mem.who("acme/eng")

        ticket = await mem.kernel.mem_write(eng, Write(text="Later.", is_async=True))

        assert isinstance(ticket, Ticket)
        assert (await mem.kernel.ticket(eng, ticket.id)).state == "waiting"
        with pytest.raises(NotFound):
            await mem.kernel.ticket(mem.who("acme/sales", "eve"), ticket.id)

    async def test_with_an_idempotency_key_a_write_is_done_once(self, mem: Memories) -> None:
        eng = mem.who("acme/eng")

        first = await mem.kernel.mem_write(eng, Write(text="Once."), key="k")
        again = await mem.kernel.mem_write(eng, Write(text="Once."), key="k")

        assert isinstance(first, WriteResult)
        assert isinstance(again, WriteResult)
        assert first.items[0].id == again.items[0].id
        assert (await mem.kernel.mem_stats(eng)).total == 1

    async def test_what_the_caller_left_in_the_middle_is_on_record(self, mem: Memories) -> None:
        started = asyncio.Event()

        async def hang(frame: Any) -> None:
            started.set()
            await asyncio.Event().wait()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                mem.kernel._parts.prologue.run(mem.who("acme"), "mem.stats", hang)
            )
            await started.wait()
            task.cancel()

        (row,) = await mem.audited("mem.stats")
        assert (row.result, row.detail) == ("error", "cancelled: the caller went away")

    async def test_what_nobody_foresaw_is_on_record_by_its_kind_only(self, mem: Memories) -> None:
        async def break_(frame: Any) -> None:
            raise RuntimeError("with a canary inside")

        with pytest.raises(RuntimeError):
            await mem.kernel._parts.prologue.run(mem.who("acme"), "mem.stats", break_)

        (row,) = await mem.audited("mem.stats")
        assert (row.result, row.detail) == ("error", "RuntimeError")

    async def test_every_call_is_counted_and_timed_by_its_outcome(self, mem: Memories) -> None:
        await mem.kernel.mem_stats(mem.who("acme"))
        with pytest.raises(NotFound):
            await mem.kernel.mem_read(mem.who("acme"), Read(id=UUID(int=1)))

        text = mem.kernel.timings.text().decode()

        assert 'noema_syscall_seconds_count{op="mem.stats",outcome="ok"} 1.0' in text
        assert 'noema_syscall_seconds_count{op="mem.read",outcome="miss"} 1.0' in text


class TestBuffer:
    async def test_rows_of_reads_are_written_within_half_a_second_while_it_runs(
        self, mem: Memories
    ) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(mem.service.run())
            for _ in range(20):
                await mem.kernel.mem_stats(mem.who("acme"))

            async def written() -> bool:
                rows = await mem.fetch("SELECT count(*) FROM audit_log WHERE op = 'mem.stats'")
                return bool(rows[0][0] == 20)

            await eventually(written)
            task.cancel()

    async def test_none_is_lost_on_a_clean_stop(self, mem: Memories) -> None:
        id_ = await mem.put("acme")
        for _ in range(3):
            await mem.kernel.mem_read(mem.who("acme"), Read(id=id_))

        await mem.service.stop()

        rows = await mem.fetch("SELECT count(*) FROM audit_log WHERE op = 'mem.read'")
        (memory,) = await mem.fetch("SELECT * FROM memories WHERE id = $1", id_)
        assert rows[0][0] == 3
        assert memory["access_count"] == 3
        assert memory["last_accessed_at"] == mem.clock.now()

    async def test_an_access_lifts_what_has_faded(self, mem: Memories, db: Database) -> None:
        id_ = await mem.put("acme")
        async with db.transaction() as tx:
            await tx.conn.execute("UPDATE memories SET activation = 200000")

        await mem.kernel.mem_read(mem.who("acme"), Read(id=id_))
        await mem.flush()

        (memory,) = await mem.fetch("SELECT activation FROM memories")
        assert memory["activation"] == 400_000

    async def test_looking_through_other_eyes_is_no_access(self, mem: Memories) -> None:
        eng = mem.who("acme/eng")
        id_ = await mem.wrote(eng, "The disk failed.")
        auditor = mem.who("acme", role=AUDITOR)

        found = await mem.kernel.mem_search(
            auditor, Search(query="disk"), view=("acme/eng", "user:ada")
        )
        await mem.flush()

        assert [h.memory.id for h in found.hits] == [id_]
        (memory,) = await mem.fetch("SELECT access_count FROM memories")
        assert memory["access_count"] == 0
        (row,) = await mem.audited("mem.search")
        assert row.detail.endswith("view=acme/eng user:ada")

    async def test_a_full_buffer_lets_reads_wait_for_a_flush(
        self, mem: Memories, clock: ManualClock
    ) -> None:
        small = AuditBuffer(audit=mem.access.audit, db=mem.db, clock=clock, most=3)
        mem.kernel._parts.prologue._buffer = small
        acme = mem.who("acme")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(small.run())
            for _ in range(20):
                await mem.kernel.mem_stats(acme)
                assert len(small) <= 3
            task.cancel()

        assert len(await mem.audited("mem.stats")) == 20

    async def test_where_the_log_cannot_be_written_reads_fail_after_a_while(
        self, mem: Memories, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        acme = mem.who("acme")
        is_broken = True
        plain = store.audit_many

        async def audit_many(conn: Any, rows: Any) -> None:
            if is_broken:
                raise Unavailable("no disk")
            await plain(conn, rows)

        monkeypatch.setattr(store, "audit_many", audit_many)
        await mem.kernel.mem_stats(acme)
        with pytest.raises(Unavailable, match="no disk"):
            await mem.flush()
        await mem.kernel.mem_stats(acme)
        clock.advance(11)
        with pytest.raises(Unavailable, match="nothing is read unaudited"):
            await mem.kernel.mem_stats(acme)
        is_broken = False

        await mem.flush()
        await mem.kernel.mem_stats(acme)

        rows = await mem.audited("mem.stats")
        assert [r.result for r in rows] == ["ok", "ok", "error", "ok"]

    async def test_a_batch_whose_answer_was_lost_is_written_once(self, mem: Memories) -> None:
        await mem.kernel.mem_stats(mem.who("acme"))
        buffer = mem.kernel._parts.prologue._buffer
        rows = list(buffer._rows)

        await buffer.flush()
        buffer._rows.extend(rows)
        await buffer.flush()

        assert len(await mem.audited("mem.stats")) == 1


async def test_the_log_of_reads_is_as_append_only_as_the_rest(mem: Memories, db: Database) -> None:
    await mem.kernel.mem_stats(mem.who("acme"))
    await mem.flush()

    with pytest.raises(asyncpg.PostgresError):
        async with db.transaction() as tx:
            await tx.conn.execute("DELETE FROM audit_log")


async def test_every_error_of_a_syscall_is_one_of_ours(mem: Memories) -> None:
    codes = set()
    for query in ("\x00", "\ud800", "%_\\", "' OR 1=1 --", "x" * 10_001):
        try:
            await mem.kernel.mem_search(mem.who("acme"), Search(query=query))
        except NoemaError as exc:
            codes.add(exc.code)

    assert codes <= {"invalid"}

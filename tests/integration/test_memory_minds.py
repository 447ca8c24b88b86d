"""Minds and memory: what they keep, what reminds them, and what a dead kernel or a crash does."""

import asyncio
import signal
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from noema.cli.demo import Stream
from noema.cognition.minds import NewStimulus
from noema.cognition.model import Mind
from noema.cognition.remembering import identity_of
from noema.core.clock import SystemClock
from noema.core.errors import Denied, RateLimited, Unavailable
from noema.memory.model import Search, SearchResult, Ticket, Write, WriteResult
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.integration.test_crash import child, is_settled, prepare, watcher
from tests.running import Daemon, daemon

OOM = "kernel: Out of memory: Killed process {} (indexer)"


class _Fast(SystemClock):
    """The real clock, some seconds ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead_s)


async def rows(noema: Any, sql: str, *args: Any) -> list[dict[str, Any]]:
    async with noema.db.reading() as tx:
        return [dict(r) for r in await tx.conn.fetch(sql, *args)]


async def kept(noema: Any, where: str = "home/minds/ada") -> list[dict[str, Any]]:
    """The memories of the namespace, in the order they were written."""
    return await rows(noema, "SELECT * FROM memories WHERE namespace = $1 ORDER BY id", where)


async def events(noema: Any, type_: str) -> list[dict[str, Any]]:
    sql = "SELECT id, data, content FROM cognitive_events WHERE type = $1 ORDER BY seq"
    return await rows(noema, sql, type_)


async def open_intents(noema: Any) -> int:
    sql = "SELECT id FROM intents WHERE state IN ('pending', 'started')"
    return len(await rows(noema, sql))


async def told(here: Daemon, *lines: str, slug: str = "ada") -> None:
    """Feed the lines, and wait until they are thought about and what is kept of them is written."""
    await here.fed(slug, list(lines))
    await eventually(lambda: here.has_thought(slug))

    async def is_written() -> bool:
        return not await open_intents(here.noema)

    await eventually(is_written)


async def verified(here: Daemon, slug: str = "ada") -> None:
    """Every cycle of the mind replays to the same bytes."""
    mind = await here.noema.minds.get(slug)
    replay = await here.noema.replays.start_verify(mind, actor="user:t")

    async def is_done() -> Any:
        run = await here.noema.replays.get(replay)
        return run if run.state != "running" else None

    run = await eventually(is_done, within_s=60)
    assert run.first_difference is None
    assert run.verified == run.cycles == mind.cycles


class TestRemembering:
    async def test_what_is_new_becomes_an_episode_in_the_minds_own_namespace(
        self, database: TestDatabase
    ) -> None:
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            here.noema.runner.look_for_minds()

            await told(here, OOM.format(4123))

            (memory,) = await kept(here.noema)
            (written,) = await events(here.noema, "memory.written")
            (stimulus,) = await events(here.noema, "stimulus.received")
            (thought,) = await events(here.noema, "thought.admitted")
            links = await rows(
                here.noema, "SELECT from_id, kind FROM derivations WHERE to_id = $1", memory["id"]
            )
        assert memory["text"] == OOM.format(4123)
        assert (memory["kind"], memory["epistemic_kind"]) == ("episode", "observation")
        assert (memory["actor"], memory["agent_id"]) == ("mind:ada", "mind")
        assert (memory["route"], memory["trust"]) == ("conversation", 10)
        assert memory["source"] == f"thought:{thought['id']}"
        assert written["data"]["memory"] == str(memory["id"])
        assert written["data"]["outcome"] == "stored"
        assert {r["from_id"] for r in links} == {thought["id"], stimulus["id"]}

    async def test_a_stimulus_that_states_a_fact_becomes_a_fact(
        self, database: TestDatabase
    ) -> None:
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            here.noema.runner.look_for_minds()
            fact = NewStimulus(text="The backup window is at two.", kind="fact")

            await here.noema.minds.receive("ada", [fact], actor="user:t")

            (memory,) = await eventually(lambda: kept(here.noema))
        assert (memory["kind"], memory["epistemic_kind"]) == ("fact", "claim")

    async def test_what_is_said_and_answered_is_one_conversation(
        self, database: TestDatabase
    ) -> None:
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            here.noema.runner.look_for_minds()

            await here.noema.minds.say("ada", "what failed?", speaker="t", actor="user:t")

            async def both() -> Any:
                found = await kept(here.noema)
                return found if len(found) == 2 else None

            turns = await eventually(both)
            turns.sort(key=lambda t: t["position"])
        assert [t["speaker"] for t in turns] == ["t", "ada"]
        assert [t["position"] for t in turns] == [0, 1]
        assert turns[0]["text"] == "what failed?"
        assert turns[0]["conversation_id"] == turns[1]["conversation_id"] is not None

    async def test_a_flood_of_news_does_not_flood_memory(self, database: TestDatabase) -> None:
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            here.noema.runner.look_for_minds()
            words = [a + b + c for a in "abcde" for b in "fghij" for c in "klmnopqr"]

            await told(here, *[f"alarm {word} raised" for word in words])
            await here.noema.minds.say("ada", "what is it?", speaker="t", actor="user:t")

            async def spoken() -> bool:
                return any(m["speaker"] == "t" for m in await kept(here.noema))

            await eventually(spoken)
            lines = [m for m in await kept(here.noema) if m["speaker"] is None]
        assert 20 <= len(lines) < 30


class TestRecall:
    async def test_a_mind_is_reminded_of_what_it_kept_and_replays_to_the_same_bytes(
        self, database: TestDatabase
    ) -> None:
        clock = _Fast()
        async with daemon(database, clock=clock) as here:
            await here.noema.minds.create(slug="ada", actor="user:t", settings={"capacity": 2})
            here.noema.runner.look_for_minds()
            await told(here, OOM.format(4123))
            for line in ("smartd: device has unreadable sectors", "useradd: new user mallory"):
                clock.ahead_s += 5
                await told(here, line)

            clock.ahead_s += 5
            await told(here, OOM.format(977))

            first = (await kept(here.noema))[0]
            recalls = [
                e
                for e in await events(here.noema, "candidate.scored")
                if e["data"]["process"] == "recall"
            ]
            links = await rows(
                here.noema, "SELECT to_id, kind FROM derivations WHERE from_id = $1", first["id"]
            )
            thoughts = {t["id"] for t in await events(here.noema, "thought.admitted")}
            sql = "SELECT actor, agent_id, result FROM audit_log WHERE op = 'mem.search'"
            asked = await eventually(lambda: rows(here.noema, sql))
            await verified(here)
        recall = next(r for r in recalls if r["data"]["memory"] == str(first["id"]))
        assert recall["data"]["admitted"]
        assert OOM.format(4123) in recall["content"]["text"]
        assert {r["kind"] for r in links} >= {"answered", "recalled"}
        assert {r["to_id"] for r in links if r["kind"] == "recalled"} <= thoughts
        assert {tuple(r.values()) for r in asked} == {("mind:ada", "mind", "ok")}

    async def test_a_mind_recalls_what_others_told_its_namespace(
        self, database: TestDatabase
    ) -> None:
        async with daemon(database) as here:
            mind = await here.noema.minds.create(slug="ada", actor="user:t")
            here.noema.runner.look_for_minds()
            answer = await here.client.post(
                "/v1/mem/write", json={"text": "The indexer belongs to the search team."}
            )
            assert answer.status_code == 200, answer.text

            await here.noema.minds.say(
                "ada", "Whose is the indexer, the search team?", speaker="t", actor="user:t"
            )

            async def recalled() -> Any:
                found = await events(here.noema, "candidate.scored")
                return [e for e in found if e["data"]["process"] == "recall"]

            recalls = await eventually(recalled)
        assert mind.namespace == "home"
        assert "search team" in recalls[0]["content"]["text"]

    async def test_the_demos_mind_remembers_and_recalls(self, database: TestDatabase) -> None:
        clock = _Fast()
        async with daemon(database, clock=clock) as here:
            stream = Stream(path=None, lines_per_s=300)
            async with asyncio.TaskGroup() as group:
                feeding = group.create_task(stream.run(here.noema))

                async def recalled() -> bool:
                    clock.ahead_s += 1
                    return any(
                        e["data"]["process"] == "recall"
                        for e in await events(here.noema, "thought.admitted")
                    )

                await eventually(recalled, within_s=60, every_s=0.2)
                feeding.cancel()
            assert await kept(here.noema, "home/minds/sentinel")
            await eventually(lambda: here.has_thought("sentinel"))
            await verified(here, "sentinel")


class Broken:
    """The real kernel, but for a while."""

    def __init__(self, kernel: Any, error: Exception | None) -> None:
        self._kernel = kernel
        self._error = error
        self.calls = 0

    async def _fail(self) -> None:
        self.calls += 1
        if self._error is None:
            await asyncio.Event().wait()
        else:
            raise self._error

    async def mem_search(self, who: Any, request: Search, /) -> SearchResult:
        await self._fail()
        raise AssertionError

    async def mem_write(
        self, who: Any, request: Write, /, *, key: str | None = None
    ) -> WriteResult | Ticket:
        await self._fail()
        raise AssertionError


def memory_of(here: Daemon) -> Any:
    remembering = here.noema.runner.remembering
    assert remembering is not None
    return remembering._memory


class TestABrokenMemory:
    @pytest.mark.parametrize(
        "error",
        [Unavailable("The database is away."), RateLimited("Too much."), None],
        ids=["unavailable", "rate limited", "hanging"],
    )
    async def test_a_mind_lives_on_says_so_and_remembers_it_later(
        self, database: TestDatabase, error: Exception | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("noema.cognition.remembering._RETRY_S", (0.1,))
        monkeypatch.setattr("noema.cognition.remembering.WRITE_DEADLINE_S", 0.2)
        if isinstance(error, RateLimited):
            error.retry_after_s = 0
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            here.noema.runner.look_for_minds()
            memory = memory_of(here)
            whole = memory._kernel
            broken = memory._kernel = Broken(whole, error)
            await here.fed("ada", [OOM.format(4123)])
            await eventually(lambda: here.has_thought("ada"))
            await here.noema.minds.say("ada", "what happened?", speaker="t", actor="user:t")

            async def is_answered() -> bool:
                mind = await here.noema.minds.get("ada")
                return len(await here.noema.minds.transcript(mind)) == 2

            await eventually(is_answered)
            await eventually(lambda: broken.calls > 4)
            (failed, *_) = await events(here.noema, "process.failed")
            waits = await events(here.noema, "memory.waits")
            memory._kernel = whole

            async def is_kept() -> bool:
                return len(await kept(here.noema)) == 3 and not await open_intents(here.noema)

            await eventually(is_kept)
            await verified(here)
        assert failed["data"]["process"] == "recall"
        assert failed["data"]["why"].startswith(("unanswered: memory says", "late: memory"))
        assert len(waits) == 1

    async def test_what_memory_refuses_is_refused_and_not_tried_again(
        self, database: TestDatabase
    ) -> None:
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            here.noema.runner.look_for_minds()
            memory_of(here)._kernel = Broken(None, Denied("Agents may not write here."))

            await told(here, OOM.format(4123))

            (refused,) = await events(here.noema, "action.refused")
        assert refused["data"]["reason"] == "denied"
        assert refused["content"]["said"] == "Agents may not write here."

    async def test_what_fails_by_a_bug_is_tried_thrice_more_and_then_refused(
        self, database: TestDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("noema.cognition.remembering._RETRY_S", (0.05,))
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            here.noema.runner.look_for_minds()
            broken = memory_of(here)._kernel = Broken(None, ZeroDivisionError())

            await told(here, OOM.format(4123))

            (refused,) = await events(here.noema, "action.refused")
            waits = await events(here.noema, "memory.waits")
        assert refused["data"]["reason"] == "failed: ZeroDivisionError"
        assert [w["data"]["reason"] for w in waits] == ["failed"]
        assert broken.calls == 1 + 4

    async def test_what_was_redacted_while_it_waited_is_not_remembered(
        self, database: TestDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("noema.cognition.remembering._RETRY_S", (0.1,))
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            here.noema.runner.look_for_minds()
            memory = memory_of(here)
            whole = memory._kernel
            memory._kernel = Broken(whole, Unavailable("The database is away."))
            (line,) = await here.fed("ada", [OOM.format(4123)])
            await eventually(lambda: events(here.noema, "memory.waits"))
            async with here.noema.db.transaction() as tx:
                sql = "SELECT noema_redact($1, 'asked', 'test', 'officer')"
                await tx.conn.fetchval(sql, UUID(line))

            memory._kernel = whole

            (refused,) = await eventually(lambda: events(here.noema, "action.refused"))
            assert await kept(here.noema) == []
        assert refused["data"]["reason"] == "the text was redacted"

    async def test_what_verification_turns_away_is_refused_with_its_reason(
        self, database: TestDatabase
    ) -> None:
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            here.noema.runner.look_for_minds()

            await told(here, "\x01\x02\x03\x04")

            (refused,) = await events(here.noema, "action.refused")
            assert await kept(here.noema) == []
        assert refused["data"]["reason"] == "rejected"
        assert refused["content"]["said"]


@pytest.mark.parametrize("checkpoint", [3, 5, 6, 7])
async def test_guarantee_3_kill_9_around_a_write_to_memory_keeps_each_memory_once(
    database: TestDatabase, checkpoint: int
) -> None:
    await prepare(database)

    async with child(database, checkpoint, 1) as killed:
        assert await killed.wait() == -signal.SIGKILL

    async with watcher(database) as noema:
        await eventually(lambda: is_settled(noema))

        async def is_written() -> bool:
            return not await open_intents(noema)

        await eventually(is_written)
        memories = await kept(noema)
        intents = await rows(noema, "SELECT id, state FROM intents WHERE act = 'remember'")
        written = await events(noema, "memory.written")
        started = await events(noema, "action.started")
        unknown = await events(noema, "action.outcome_unknown")
        mind: Mind = await noema.minds.get("ada")
    assert unknown == []
    assert len(intents) > 20
    assert {i["state"] for i in intents} == {"done"}
    assert sorted(w["data"]["intent"] for w in written) == sorted(str(i["id"]) for i in intents)
    assert _unique(started) >= _unique(written)
    assert len(memories) == len({m["source"] for m in memories})
    assert {UUID(w["data"]["memory"]) for w in written} == {m["id"] for m in memories}
    assert len(memories) == len(intents)
    identity = identity_of(mind)
    assert identity is not None
    assert {m["namespace"] for m in memories} == {identity.namespace}


def _unique(found: Sequence[dict[str, Any]]) -> set[str]:
    return {e["data"]["intent"] for e in found}

"""What a mind notices, keeps waiting, gets used to and says; on real logs where they are there."""

import csv
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from noema.cli.timestamps import leading_time
from noema.cognition.minds import NewStimulus
from noema.core.clock import ManualClock, SystemClock
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.running import Daemon, daemon

_LOGS = Path(__file__).parents[2].parent / "shared/data/loghub"

_ADMITTED = """
    SELECT c.causes, c.data ->> 'process' AS process FROM cognitive_events t
    JOIN cognitive_events c ON c.id = (t.data ->> 'candidate')::uuid
    WHERE t.mind_id = $1 AND t.type = 'thought.admitted'
"""


async def admitted(here: Daemon, slug: str) -> list[tuple[str, set[str]]]:
    """The process and the stimuli of every admitted thought, reflection left out."""
    mind = await here.noema.minds.get(slug)
    async with here.noema.db.reading() as tx:
        rows = await tx.conn.fetch(_ADMITTED, mind.id)
    return [
        (r["process"], {str(c) for c in r["causes"]}) for r in rows if r["process"] != "reflection"
    ]


async def feed(here: Daemon, slug: str, stimuli: list[NewStimulus], batch: int) -> list[str]:
    ids: list[str] = []
    for start in range(0, len(stimuli), batch):
        accepted = await here.noema.minds.receive(
            slug, stimuli[start : start + batch], actor="user:t"
        )
        ids += accepted.ids
    await eventually(lambda: here.is_idle(slug), within_s=120)
    return ids


@pytest.mark.skipif(not _LOGS.is_dir(), reason="the real logs are not beside this checkout")
@pytest.mark.parametrize("batch", [1, 100, 2000])
@pytest.mark.parametrize("name", ["OpenSSH", "Linux", "Zookeeper"])
async def test_a_real_log_is_watched_without_missing_what_is_rare(
    database: TestDatabase, name: str, batch: int
) -> None:
    lines = (_LOGS / f"{name}_2k.log").read_text(errors="backslashreplace").splitlines()
    with (_LOGS / f"{name}_2k.structured.csv").open(newline="") as file:
        templates = [row["EventId"] for row in csv.DictReader(file)]
    stimuli = []
    for line in lines:
        found = leading_time(line, year=2015, zone=UTC)
        stimuli.append(NewStimulus(text=line, occurred_at=found.occurred_at if found else None))

    async with daemon(database) as here:
        await here.noema.minds.create(slug="watch", actor="user:t")
        here.noema.runner.look_for_minds()
        ids = await feed(here, "watch", stimuli, batch)
        thoughts = await admitted(here, "watch")

    often = Counter(templates)
    covered = set().union(*(stimuli for _, stimuli in thoughts))
    rare = [i for i, template in zip(ids, templates, strict=False) if often[template] <= 2]
    noticed = sum(i in covered for i in rare) / len(rare)
    share = len(thoughts) / len(lines)
    assert noticed >= 0.95
    assert share <= 0.15


class TestHabituation:
    async def test_a_flood_of_like_lines_is_one_topic_and_soon_no_news(
        self, database: TestDatabase
    ) -> None:
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            flood = [
                NewStimulus(
                    text=f"Failed password for root from 203.0.113.{n % 250} port {4000 + n}"
                )
                for n in range(300)
            ]

            await feed(here, "ada", flood, 10)

            thoughts = await admitted(here, "ada")
            assert 1 <= len(thoughts) <= 4

    async def test_more_news_than_a_cycle_can_admit_waits_and_is_admitted_later(
        self, database: TestDatabase
    ) -> None:
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"]
            lines = [f"{a} module met {b} fault" for a in words for b in words]

            ids = await feed(here, "ada", [NewStimulus(text=t) for t in lines], 64)

            covered = set().union(*(s for _, s in await admitted(here, "ada")))
            assert covered == set(ids)

    async def test_a_goal_raises_what_matches_it(self, database: TestDatabase) -> None:
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            usual = [NewStimulus(text=f"backup of volume {n} finished") for n in range(40)]
            await feed(here, "ada", usual, 10)
            await here.noema.minds.add_goal(
                "ada", "backup finished", priority=1_000_000, actor="user:t"
            )

            await feed(here, "ada", [NewStimulus(text="backup of volume 99 finished")], 1)

            assert (await admitted(here, "ada"))[-1][0] == "goal"


class TestOperators:
    async def test_guarantee_7_a_message_is_answered_while_ten_thousand_stimuli_wait(
        self, database: TestDatabase
    ) -> None:
        async with daemon(database) as here:
            for slug in ("busy", "calm"):
                await here.noema.minds.create(slug=slug, actor="user:t")
            here.noema.runner.look_for_minds()
            for start in range(0, 10_000, 1_000):
                batch = [
                    NewStimulus(text=f"worker {n % 97} {'abcdefgh'[n % 8] * (n % 13 + 3)} stalled")
                    for n in range(start, start + 1_000)
                ]
                await here.noema.minds.receive("busy", batch, actor="user:t")

            await here.noema.minds.say("busy", "are you there?", speaker="t", actor="user:t")
            await here.noema.minds.say("calm", "and you?", speaker="t", actor="user:t")
            for slug in ("busy", "calm"):
                mind = await here.noema.minds.get(slug)
                await eventually(lambda m=mind: _answered(here, m))  # type: ignore[misc]
            answered_with = await here.noema.minds.backlog(await here.noema.minds.get("busy"))

            await eventually(lambda: here.is_idle("busy"), within_s=120)
            replay = await here.noema.replays.start_verify(
                await here.noema.minds.get("busy"), actor="user:t"
            )
            run = await eventually(lambda: _finished(here, replay), within_s=120)
        assert answered_with > 0
        assert run.first_difference is None

    async def test_a_paused_mind_thinks_only_when_stepped(self, database: TestDatabase) -> None:
        async with daemon(database) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            await here.noema.minds.set_mode("ada", "paused", actor="user:t")
            await here.fed("ada", ["the roof is on fire"])
            stale = await here.noema.minds.get("ada")
            assert await here.noema.minds.backlog(stale) == 1

            await here.noema.minds.step("ada", actor="user:t")

            await eventually(lambda: here.is_idle("ada"))
            mind = await here.noema.minds.get("ada")
            assert (mind.mode, mind.cycles) == ("paused", stale.cycles + 1)
            assert len(await admitted(here, "ada")) == 1

    async def test_focus_ends_by_itself_and_the_mind_says_so(self, database: TestDatabase) -> None:
        clock = _Fast()
        async with daemon(database, clock=clock) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            await here.noema.minds.set_mode(
                "ada", "focused", for_s=60, focus="disks", actor="user:t"
            )
            await eventually(lambda: _mode(here, "focused"))

            clock.ahead_s += 61

            await eventually(lambda: _mode(here, "awake"))
            changed = (await here.client.get("/v1/events?mind=ada&type=mode.changed")).json()
            assert changed["items"][-1]["payload"]["on"] == "expired"

    async def test_guarantee_7_a_clock_set_back_an_hour_does_not_stop_a_mind(
        self, database: TestDatabase
    ) -> None:
        clock = _Fast()
        async with daemon(database, clock=clock) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            await eventually(lambda: _cycles(here, 1))

            clock.ahead_s -= 3_600

            await eventually(lambda: _cycles(here, 2))

    async def test_guarantee_7_timers_missed_in_an_hour_are_one_event_that_counts_them(
        self, database: TestDatabase
    ) -> None:
        clock = _Fast()
        async with daemon(database, clock=clock) as here:
            await here.noema.minds.create(slug="ada", actor="user:t")
            await eventually(lambda: _cycles(here, 1))
            before = (await here.noema.minds.get("ada")).cycles

            clock.ahead_s += 3_600

            await eventually(lambda: _cycles(here, before + 1))
            fired = (await here.client.get("/v1/events?mind=ada&type=timer.fired")).json()["items"]
            assert len(fired) <= before + 2
            assert max(e["payload"]["missed"] for e in fired) >= 58


class _Fast(SystemClock):
    """The real clock, moved by hand."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now(self) -> datetime:
        moved = ManualClock(super().now())
        moved.jump(self.ahead_s)
        return moved.now()


async def _answered(here: Daemon, mind: object) -> bool:
    return len(await here.noema.minds.transcript(mind)) >= 2  # type: ignore[arg-type]


async def _finished(here: Daemon, replay: object):  # type: ignore[no-untyped-def]
    run = await here.noema.replays.get(replay)  # type: ignore[arg-type]
    return run if run.state != "running" else None


async def _mode(here: Daemon, mode: str) -> bool:
    return (await here.noema.minds.get("ada")).mode == mode


async def _cycles(here: Daemon, at_least: int) -> bool:
    return (await here.noema.minds.get("ada")).cycles >= at_least

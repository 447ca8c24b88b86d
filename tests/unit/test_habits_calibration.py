"""The default weights on real logs: the rare lines are noticed, the flood is not.

A small model of the cycle stands here, so that topic, habits and weights can be judged without the
rest of the mind: group by topic, one candidate per topic, ignition, the best seven, the rest stays
pending with the counts of when it first came. Skipped where the logs are not there.
"""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC
from functools import cache
from pathlib import Path

import pytest

from noema.cli.timestamps import leading_time
from noema.cognition.habits import (
    DAY_US,
    RARE,
    SECOND_US,
    THRESHOLD,
    WEIGHTS,
    TopicStats,
    admit,
    burst,
    habituation,
    novelty,
    observe,
    recent,
    surprise,
)
from noema.cognition.severity import intensity
from noema.cognition.topic import topic_key
from noema.core.clock import to_micros

LOGS = Path(__file__).parents[2].parent / "shared" / "data" / "loghub"
TAKEN, WINNERS = 100, 7
START = 1_700_000_000 * SECOND_US


@dataclass(frozen=True, slots=True)
class Line:
    topic: str
    at_us: int
    loud: int


@dataclass(slots=True)
class Group:
    before: TopicStats | None
    total: int
    since_us: int
    at_us: int
    loud: int = 0
    lines: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Mind:
    topics: dict[str, TopicStats] = field(default_factory=dict)
    total: TopicStats | None = None
    pending: dict[str, Group] = field(default_factory=dict)
    admitted: list[tuple[str, list[int]]] = field(default_factory=list)

    def cycle(self, new: Sequence[tuple[int, Line]]) -> None:
        groups = self.pending
        for number, line in new:
            stats = self.topics.get(line.topic)
            group = groups.setdefault(
                line.topic,
                Group(stats, recent(self.total, line.at_us), line.at_us, line.at_us),
            )
            group.lines.append(number)
            group.loud = max(group.loud, line.loud)
            group.at_us = max(group.at_us, line.at_us)
            self.topics[line.topic] = observe(stats, line.at_us)
            self.total = observe(self.total, line.at_us)
        scores = {topic: self.score(topic, group) for topic, group in groups.items()}
        ignited = [topic for topic, score in scores.items() if score >= THRESHOLD]
        ignited.sort(key=lambda topic: -scores[topic])
        for topic in ignited[:WINNERS]:
            self.admitted.append((topic, groups[topic].lines))
            self.topics[topic] = admit(self.topics[topic], groups[topic].at_us)
        self.pending = {topic: groups[topic] for topic in ignited[WINNERS:]}

    def score(self, topic: str, group: Group) -> int:
        base = (
            WEIGHTS["novelty"] * novelty(group.before, group.since_us)
            + WEIGHTS["intensity"] * group.loud
            - WEIGHTS["habituation"] * habituation(self.topics[topic], group.at_us)
        )
        rarity = surprise(group.before, group.total, group.since_us)
        rate = burst(self.topics[topic], group.at_us)[1]
        rare_bonus = WEIGHTS["surprise"] * rarity if rarity >= RARE else 0
        return max(base, base + rare_bonus, base + WEIGHTS["urgency"] * rate)


def think(lines: Sequence[Line], batch: int) -> Mind:
    mind = Mind()
    numbered = list(enumerate(lines))
    for begin in range(0, len(lines), batch):
        fed = numbered[begin : begin + batch]
        for taken in range(0, len(fed), TAKEN):
            mind.cycle(fed[taken : taken + TAKEN])
        while mind.pending:
            mind.cycle(())
    return mind


@cache
def read(log: str) -> tuple[tuple[Line, ...], frozenset[int]]:
    with (LOGS / f"{log}_2k.structured.csv").open(newline="", encoding="utf-8") as file:
        events = [row["EventId"] for row in csv.DictReader(file)]
    raw = (LOGS / f"{log}_2k.log").read_text(encoding="utf-8").split("\n")[: len(events)]
    lines = []
    for text in raw:
        found = leading_time(text, year=2005, zone=UTC)
        assert found is not None
        lines.append(Line(topic_key(text), to_micros(found.occurred_at), intensity(text)))
    counts = Counter(events)
    return tuple(lines), frozenset(i for i, event in enumerate(events) if counts[event] <= 2)


@pytest.mark.skipif(not LOGS.is_dir(), reason="the real logs are not here")
@pytest.mark.parametrize("clock", ["log", "one moment", "seconds apart"])
@pytest.mark.parametrize("batch", [1, 100, 2000])
@pytest.mark.parametrize("log", ["OpenSSH", "Linux", "Zookeeper"])
def test_the_rare_is_noticed_and_the_flood_is_not(log: str, batch: int, clock: str) -> None:
    lines, rare = read(log)
    if clock != "log":
        step = 3 * SECOND_US if clock == "seconds apart" else 0
        lines = tuple(Line(line.topic, START + i * step, line.loud) for i, line in enumerate(lines))

    mind = think(lines, batch)

    noticed = {number for _, numbers in mind.admitted for number in numbers}
    assert len(rare & noticed) >= 0.97 * len(rare)
    assert len(mind.admitted) <= 0.12 * len(lines)


def regular(topic: str, times: int, every_us: int, at_us: int = START) -> list[Line]:
    return [Line(topic, at_us + i * every_us, 100_000) for i in range(times)]


@pytest.mark.parametrize("batch", [1, 100])
def test_a_topic_that_was_quiet_for_days_is_noticed_when_it_comes_back(batch: int) -> None:
    flood = regular("alert", 400, SECOND_US)
    other = regular("routine", 500, DAY_US // 100, START + 1000 * SECOND_US)
    back = regular("alert", 50, SECOND_US, START + 5 * DAY_US)

    mind = think([*flood, *other, *back], batch)

    noticed = [min(numbers) for topic, numbers in mind.admitted if topic == "alert"]
    assert 900 in noticed
    assert sum(number >= 900 for number in noticed) <= 3


@pytest.mark.parametrize("batch", [1, 100])
def test_a_topic_at_twenty_times_its_rate_is_noticed(batch: int) -> None:
    usual = regular("alert", 100, 3600 * SECOND_US)
    faster = regular("alert", 60, 180 * SECOND_US, usual[-1].at_us)

    mind = think([*usual, *faster], batch)

    late = [numbers for _, numbers in mind.admitted if max(numbers) >= 100]
    assert 1 <= len(late) <= 3


def test_what_comes_every_day_is_thought_about_ever_less() -> None:
    mind = think(regular("report", 100, DAY_US), 1)

    first = sum(numbers[0] < 50 for _, numbers in mind.admitted)
    assert first < 15
    assert len(mind.admitted) < 25

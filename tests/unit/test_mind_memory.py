"""What a mind's memory lets into the mind's log, and what it makes of the kernel's answers."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from noema.cognition.model import MICRO
from noema.cognition.remembering import MindMemory
from noema.core.errors import Unavailable
from noema.core.identity import ConsoleRole, Identity, MemoryRole
from noema.memory.model import (
    Components,
    EpistemicKind,
    Hit,
    Kind,
    Label,
    Memory,
    Route,
    Search,
    SearchResult,
    Sensitivity,
    Status,
    Ticket,
    Write,
    WriteResult,
)
from tests.unit.minds import START, START_US

ADA = Identity(
    namespace="acme/minds/ada",
    actor="mind:ada",
    role=MemoryRole.AGENT,
    console=ConsoleRole.NONE,
    agent_id="mind",
)


def hit(number: int = 1, *, cosine: float | None = 0.5, label: Any = None, **changes: Any) -> Hit:
    memory = Memory(
        id=UUID(int=number),
        namespace="acme",
        kind=Kind.FACT,
        epistemic_kind=EpistemicKind.CLAIM,
        status=Status.ACTIVE,
        text="the backup window is at two",
        content={},
        event_time=None,
        assertion_time=START,
        valid_from=START,
        valid_to=None,
        supersedes=None,
        source="",
        route=Route.MANUAL,
        trust=50,
        actor="user:eve",
        agent_id="console",
        extraction="verbatim",
        label=label or Label(sensitivity=Sensitivity.INTERNAL),
        importance=MICRO // 2,
        salience=MICRO // 2,
        credibility=MICRO // 2,
        activation=MICRO,
        access_count=0,
        last_accessed_at=None,
        repeat_count=0,
    )
    components = Components(
        text=1, vector=1, recency=1, activation=1, importance=1, graph=0, bm25=1, cosine=cosine,
        weights={},
    )  # fmt: skip
    return Hit(memory=msgspec.structs.replace(memory, **changes), score=1, components=components)


class Answers:
    """A kernel that finds the given, and writes by giving a ticket."""

    def __init__(self, *hits: Hit, degraded: str | None = None) -> None:
        self._hits = hits
        self._degraded = degraded
        self.asked: list[tuple[Identity, Search]] = []

    async def mem_search(self, who: Identity, request: Search, /) -> SearchResult:
        self.asked.append((who, request))
        return SearchResult(hits=self._hits, driver="test", degraded=self._degraded, tokens=0)

    async def mem_write(
        self, who: Identity, request: Write, /, *, key: str | None = None
    ) -> WriteResult | Ticket:
        return Ticket(id=UUID(int=1), state="waiting", created_at=START)


SECRET = Label(sensitivity=Sensitivity.CONFIDENTIAL, secrets=("api_key",))
RESTRICTED = Label(sensitivity=Sensitivity.RESTRICTED)
CONFIDENTIAL = Label(sensitivity=Sensitivity.CONFIDENTIAL)


async def test_memory_is_asked_as_the_mind_and_answers_in_whole_numbers() -> None:
    kernel = Answers(hit(cosine=0.1234567, event_time=START - timedelta(seconds=1)))

    found = await MindMemory(kernel).recall(ADA, "backup", 5)

    (who, request) = kernel.asked[0]
    assert (who, request.query, request.k) == (ADA, "backup", 5)
    (memory,) = found.memories
    assert (memory.cosine, memory.trust, memory.credibility) == (123_457, 50, MICRO // 2)
    assert memory.at_us == START_US - MICRO


@pytest.mark.parametrize(("cosine", "kept"), [(None, None), (-0.3, 0), (1.0000001, MICRO)])
async def test_a_cosine_stays_within_its_bounds(cosine: float | None, kept: int | None) -> None:
    found = await MindMemory(Answers(hit(cosine=cosine))).recall(ADA, "backup", 5)

    assert found.memories[0].cosine == kept


async def test_what_the_mind_said_itself_is_no_news_to_it() -> None:
    own = hit(1, actor="mind:ada", speaker="ada", namespace=ADA.namespace)
    heard = hit(2, actor="mind:ada", speaker="eve", namespace=ADA.namespace)

    found = await MindMemory(Answers(own, heard)).recall(ADA, "backup", 5)

    assert [m.id for m in found.memories] == [UUID(int=2)]
    assert found.withheld == 0


@pytest.mark.parametrize(
    ("label", "where", "is_shared", "is_shown"),
    [
        (RESTRICTED, ADA.namespace, False, True),
        (SECRET, ADA.namespace, False, True),
        (CONFIDENTIAL, "acme", False, True),
        (SECRET, "acme", False, False),
        (RESTRICTED, "acme", False, False),
        (Label(sensitivity=Sensitivity.INTERNAL), "acme/hr", True, True),
        (CONFIDENTIAL, "acme/hr", True, False),
        (SECRET, "acme/hr", True, False),
    ],
)
async def test_what_those_who_watch_may_not_read_does_not_come_into_the_log(
    label: Label, where: str, is_shared: bool, is_shown: bool
) -> None:
    kernel = Answers(hit(label=label, namespace=where, is_shared=is_shared))

    found = await MindMemory(kernel).recall(ADA, "backup", 5)

    assert len(found.memories) == is_shown
    assert found.withheld == (not is_shown)


async def test_a_ticket_is_no_memory_yet() -> None:
    with pytest.raises(Unavailable):
        await MindMemory(Answers()).keep(ADA, Write(text="x"), key="k")

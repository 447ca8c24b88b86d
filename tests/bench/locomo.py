"""LoCoMo: how much of the evidence for a question is among the first ten memories.

Maharana et al. (2024), "Evaluating very long-term conversational memory of LLM agents": long
conversations over many sessions, with questions and the turns that answer them. Every session is
written as a transcript, so one memory per turn, and each question is a search. What is measured is
the mean share of a question's evidence turns among the first ten; no model judges.

The conversations are five of the ten, not part of the project; without them this says that it was
skipped.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec

from noema.config import EmbedderSettings, load
from noema.core.clock import SystemClock
from noema.core.identity import Identity, MemoryRole
from noema.llm.embedders.hash import HashEmbedder
from noema.llm.embedders.make import aclose, make_embedder
from noema.llm.model import Embedder
from noema.memory.model import Search, TurnIn, Write, WriteResult
from tests.bench.governed import governed, prepared
from tests.bench.measure import Figure
from tests.bench.place import Server
from tests.memories import Memories

DATA: Final = Path(__file__).resolve().parents[3] / "shared" / "data" / "locomo" / "locomo5.json"
K: Final = 10
TARGET: Final = 0.70
TARGET_WITH_MODEL: Final = 0.73
TENANT: Final = "locomo"
_SESSION: Final = re.compile(r"session_(\d+)")
_TURN: Final = re.compile(r"D\d+:\d+")
_WHEN: Final = "%I:%M %p on %d %B, %Y"
# As the data set numbers them.
_CATEGORIES: Final = {
    1: "several_turns",
    2: "time",
    3: "inference",
    4: "one_turn",
    5: "adversarial",
}

Shares = dict[int, list[float]]


def _embedder() -> Embedder:
    """Return the embedder that NOEMA_EMBEDDER names; hashing where it names none."""
    settings: EmbedderSettings = load(os.environ).embedder
    return make_embedder(settings, SystemClock()) or HashEmbedder()


async def locomo(server: Server, *, quick: bool) -> list[Figure]:
    """Measure each conversation in a namespace of its own, and all of them in one."""
    if not DATA.exists():
        return [_figure("locomo_skipped", 0.0, None, f"there is no {DATA}")]
    conversations = msgspec.json.decode(DATA.read_bytes())[: 2 if quick else None]
    embedder = _embedder()
    is_real = not isinstance(embedder, HashEmbedder)
    target = TARGET_WITH_MODEL if is_real else TARGET
    figures: list[Figure] = []
    try:
        for variant in ("apart", "together"):
            async with server.database() as place:
                await prepared(place)
                async with governed(place, TENANT, embedder=embedder) as mem:
                    shares = await _run(mem, conversations, together=variant == "together")
            goal = target if variant == "apart" else None
            figures += _figures(f"locomo_{variant}", shares, goal, embedder.model)
    finally:
        await aclose(embedder)
    return figures


async def _run(mem: Memories, conversations: list[Any], *, together: bool) -> Shares:
    shares: Shares = defaultdict(list)
    whos = []
    turns: list[dict[str, UUID]] = []
    for number, conversation in enumerate(conversations):
        namespace = f"{TENANT}/all" if together else f"{TENANT}/c{number}"
        await mem.places(namespace)
        who = mem.who(namespace, "reader", MemoryRole.MEMBER)
        whos.append(who)
        turns.append(await _write(mem, who, conversation))
    for who, ids, conversation in zip(whos, turns, conversations, strict=True):
        for question in conversation["qa"]:
            said = {turn for e in question["evidence"] for turn in _TURN.findall(e)} & ids.keys()
            if not said:
                continue
            found = await mem.kernel.mem_search(who, Search(query=question["question"], k=K))
            hits = {hit.memory.id for hit in found.hits}
            shares[question["category"]].append(sum(ids[t] in hits for t in said) / len(said))
    return shares


async def _write(mem: Memories, who: Identity, conversation: Any) -> dict[str, UUID]:
    """Write every session as a transcript; return the memory of each turn."""
    ids: dict[str, UUID] = {}
    for at, session in _sessions(conversation["conversation"]):
        messages = tuple(TurnIn(speaker=t["speaker"], text=t["text"], at=at) for t in session)
        done = await mem.kernel.mem_write(
            who, Write(messages=messages, conversation=conversation["sample_id"])
        )
        assert isinstance(done, WriteResult)
        for turn, item in zip(session, done.items, strict=True):
            if item.id is not None:
                ids[turn["dia_id"]] = item.id
    return ids


def _sessions(conversation: Mapping[str, Any]) -> Iterator[tuple[datetime, list[Any]]]:
    numbers = sorted(int(m.group(1)) for key in conversation if (m := _SESSION.fullmatch(key)))
    for number in numbers:
        said = conversation[f"session_{number}_date_time"]
        at = datetime.strptime(f"{said} +0000", f"{_WHEN} %z")
        yield at, conversation[f"session_{number}"]


def _figures(name: str, shares: Shares, target: float | None, embedder: str) -> list[Figure]:
    every = [share for of_category in shares.values() for share in of_category]
    figures = [_figure(name, _mean(every), target, f"{len(every)} questions, embedder {embedder}")]
    for category, of_category in sorted(shares.items()):
        label = _CATEGORIES.get(category, str(category))
        note = f"{len(of_category)} questions"
        figures.append(_figure(f"{name}_{label}", _mean(of_category), None, note))
    return figures


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _figure(name: str, share: float, target: float | None, note: str) -> Figure:
    """Return a share of what could be found: the limit is 1."""
    return Figure(
        name=name,
        ours=share,
        limit=1.0,
        unit="share",
        higher_is_better=True,
        target=target,
        note=note,
    )

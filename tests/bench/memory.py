"""What a daemon holds after a flood has been thought through."""

import asyncio
import random
from collections.abc import Iterator
from typing import Final

import psutil

from tests.bench.client import client, idle, make_mind, send, set_mode
from tests.bench.measure import Figure
from tests.bench.place import Server, daemon

FIRST: Final = 1_000
ALL: Final = 10_000
_MB: Final = 1024 * 1024
_TEXT: Final = (
    "accepted checkpoint closed connection device disk failed invalid kernel lag memory mount "
    "opened password queue replica request retry root segment session timeout upstream user"
)


def _lines() -> Iterator[str]:
    # As logs are: most lines of few kinds, every tenth of a kind of its own.
    rng = random.Random(11)
    words = _TEXT.split()
    kinds = [" ".join(rng.choices(words, k=8)) for _ in range(40)]
    while True:
        if rng.random() < 0.1:
            yield " ".join(rng.choices(words, k=9))
        else:
            yield f"{rng.choice(kinds)} from 10.0.{rng.randrange(256)}.{rng.randrange(256)}"


async def memory_10k(server: Server, *, quick: bool) -> list[Figure]:
    """Compare resident memory after the first thousand and after ten thousand queued at once."""
    lines = _lines()
    async with (
        server.database() as place,
        daemon(place) as running,
        client(running) as http,
    ):
        process = psutil.Process(running.pid)
        await make_mind(http, "bench")
        await send(http, "bench", [next(lines) for _ in range(FIRST)])
        await idle(http, "bench")
        await asyncio.sleep(1)
        first = process.memory_info().rss / _MB
        await make_mind(http, "flooded")
        await set_mode(http, "flooded", "paused")
        for _ in range(ALL // 1_000):
            await send(http, "flooded", [next(lines) for _ in range(1_000)])
        await set_mode(http, "flooded", "awake")
        await idle(http, "flooded")
        await asyncio.sleep(1)
        last = process.memory_info().rss / _MB
    return [
        Figure(
            name="memory_after_10000_stimuli",
            ours=last,
            limit=max(first * 1.1, first + 20),
            unit="MB",
            higher_is_better=False,
            target=1.0,
            note=f"{first:.0f} MB after the first thousand",
        )
    ]

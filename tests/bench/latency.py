"""From an accepted stimulus to the broadcast, committed and seen, with nothing else going on."""

import random
from statistics import median
from time import perf_counter

from noema.core.clock import SystemClock, UuidV7Ids
from noema.events.model import new_event
from tests.bench import bare
from tests.bench.client import Stream, client, make_mind, send
from tests.bench.measure import Figure, percentile
from tests.bench.place import Server, daemon

_LETTERS = "bcdfghklmnprstvz"


async def stimulus_latency(server: Server, *, quick: bool) -> list[Figure]:
    """Measure over HTTP in and over a stream out; beside it the commit of one bare row."""
    rng = random.Random(3)
    ids = UuidV7Ids(SystemClock())
    taken: list[float] = []
    commits: list[float] = []
    async with server.database() as place:
        await bare.prepare(place)
        async with daemon(place) as running, client(running) as http, place.open(size=1) as db:
            await make_mind(http, "bench")
            stream = await Stream.open(running, "mind=bench")
            for number in range(60 if quick else 250):
                # A word nobody has seen: it is news, so it wins and is broadcast.
                word = "".join(rng.choices(_LETTERS, k=12))
                await send(http, "bench", [f"{word} was seen"])
                accepted = perf_counter()
                await stream.until(b"thought.admitted", word.encode())
                await stream.until(b"workspace.broadcast")
                if number >= 10:
                    taken.append((perf_counter() - accepted) * 1000)
                row = new_event(
                    ids, type="stimulus.received", occurred_at=SystemClock().now(), actor="bench"
                )
                started = perf_counter()
                async with db.transaction() as tx:
                    await tx.conn.execute(bare.INSERT_EVENTS, *bare.columns([row]).arrays)
                if number >= 10:
                    commits.append((perf_counter() - started) * 1000)
            await stream.close()
    return [
        Figure(
            name="stimulus_to_broadcast_median",
            ours=median(taken),
            limit=median(commits),
            unit="ms",
            higher_is_better=False,
            note="limit: the commit of one bare row",
        ),
        Figure(
            name="stimulus_to_broadcast_p99",
            ours=percentile(taken, 0.99),
            limit=percentile(commits, 0.99),
            unit="ms",
            higher_is_better=False,
            note="limit: the commit of one bare row",
        ),
    ]

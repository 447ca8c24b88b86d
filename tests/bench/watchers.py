"""A thousand who watch: what an idle one costs, and how soon all see one event."""

import asyncio
import resource
from time import perf_counter
from typing import Final

import httpx
import psutil

from tests.bench.client import Stream, client, make_mind, send
from tests.bench.measure import Figure, percentile
from tests.bench.place import Daemon, Server, daemon

WATCHERS: Final = 1_000
MOST_KB: Final = 60.0
MOST_MS: Final = 1_000.0
_FILES: Final = 4_096
_AT_ONCE: Final = 50


async def watchers(server: Server, *, quick: bool) -> list[Figure]:
    """Measure a daemon in a process of its own by its resident memory, over loopback."""
    _raise_file_limit()
    async with (
        server.database() as place,
        daemon(place) as running,
        client(running) as http,
    ):
        await make_mind(http, "bench")
        # What the first watchers make the daemon load once is not what the next ones cost.
        await _close(await _open(running, 20))
        await _seen(http, await _open(running, 1), "warm")
        await asyncio.sleep(1)
        process = psutil.Process(running.pid)
        before = process.memory_info().rss
        streams = await _open(running, WATCHERS)
        await asyncio.sleep(2)
        each_kb = (process.memory_info().rss - before) / WATCHERS / 1024
        taken: list[float] = []
        for number in range(3 if quick else 8):
            taken += await _seen(http, streams, f"news{'abcdefgh'[number]}")
        after_kb = (process.memory_info().rss - before) / WATCHERS / 1024
        await _close(streams)
    return [
        Figure(
            name="watcher_memory",
            ours=each_kb,
            limit=MOST_KB,
            unit="KB each",
            higher_is_better=False,
            target=1.0,
            note=f"{WATCHERS:,} idle; {after_kb:.0f} KB each once they had seen events",
        ),
        Figure(
            name="event_to_all_watchers_p99",
            ours=percentile(taken, 0.99),
            limit=MOST_MS,
            unit="ms",
            higher_is_better=False,
            target=1.0,
            note=f"from sending it; half of them by {percentile(taken, 0.5):.0f} ms",
        ),
    ]


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if wanted < WATCHERS + 200:
        raise RuntimeError(f"only {hard} open files are allowed here; raise `ulimit -Hn`")
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _open(running: Daemon, count: int) -> list[Stream]:
    streams: list[Stream] = []
    while len(streams) < count:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(Stream.open(running, "mind=bench&type=stimulus.received"))
                for _ in range(min(_AT_ONCE, count - len(streams)))
            ]
        streams += [task.result() for task in tasks]
    return streams


async def _seen(http: httpx.AsyncClient, streams: list[Stream], word: str) -> list[float]:
    taken: list[float] = []
    sent = 0.0

    async def watch(stream: Stream) -> None:
        await stream.until(word.encode())
        taken.append((perf_counter() - sent) * 1000)

    async with asyncio.TaskGroup() as group:
        for stream in streams:
            group.create_task(watch(stream))
        await asyncio.sleep(0.2)
        sent = perf_counter()
        await send(http, "bench", [f"{word} was seen"])
    return taken


async def _close(streams: list[Stream]) -> None:
    for stream in streams:
        await stream.close()

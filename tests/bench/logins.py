"""Fifty people who sign in at once: the memory it takes, and whether the daemon still answers."""

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final

import httpx
import psutil

from noema.auth.access import Access
from noema.core.clock import SystemClock, UuidV7Ids
from noema.core.identity import LOCAL, ConsoleRole
from noema.db.keys import Keys
from tests.bench.measure import Figure, percentile
from tests.bench.place import Daemon, Place, Server, daemon

AT_ONCE: Final = 50
MOST_MB: Final = 160.0
MOST_MS: Final = 100.0
_PASSWORD: Final = "correct horse battery staple"
_PROBE_EVERY_S: Final = 0.02
_FORM: Final = re.compile(r'name="csrf_token" value="([^"]+)"')


async def logins(server: Server, *, quick: bool) -> list[Figure]:
    """Measure a daemon in a process of its own; half of the passwords are wrong.

    Two hashes are under way at any time, 64 MiB each, so that memory must not grow by more than
    those two and a little, however many wait.
    """
    async with server.database() as place:
        names = await _people(place)
        async with daemon(place) as running:
            await _burst(running, names[:4])
            process = psutil.Process(running.pid)
            before = process.memory_info().rss
            seen = Seen(process=process, before=before)
            # One burst: a second would mostly wait for the limit per address, and probes of a
            # daemon that waits would flatter the figures.
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(seen.watch(running))
                started = perf_counter()
                await _burst(running, names)
                taken_s = perf_counter() - started
                watching.cancel()
    grown, lags = seen.grown_mb, seen.lags_ms
    return [
        Figure(
            name="logins_memory",
            ours=max(grown),
            limit=MOST_MB,
            unit="MB more",
            higher_is_better=False,
            target=1.0,
            note=f"{AT_ONCE} at once, done in {taken_s:.1f} s; two hashes are 128 MB",
        ),
        Figure(
            name="healthz_p99_during_logins",
            ours=percentile(lags, 0.99),
            limit=MOST_MS,
            unit="ms",
            higher_is_better=False,
            target=1.0,
            note=f"of {len(lags)}; half of them by {percentile(lags, 0.5):.0f} ms",
        ),
    ]


@dataclass(kw_only=True)
class Seen:
    """What was seen of the daemon while people signed in."""

    process: psutil.Process
    before: int
    grown_mb: list[float] = field(default_factory=list)
    lags_ms: list[float] = field(default_factory=list)

    async def watch(self, running: Daemon) -> None:
        """Ask whether it is alive, again and again, until cancelled."""
        async with httpx.AsyncClient(base_url=running.url, timeout=30) as http:
            while True:
                started = perf_counter()
                answer = await http.get("/healthz")
                self.lags_ms.append((perf_counter() - started) * 1000)
                assert answer.status_code == 200
                self.grown_mb.append((self.process.memory_info().rss - self.before) / 1e6)
                await asyncio.sleep(_PROBE_EVERY_S)


async def _people(place: Place) -> list[str]:
    """Make fifty people with one hash: that each has a password matters, not which."""
    clock = SystemClock()
    async with place.open(size=2) as db:
        keys = Keys(db=db, key=None, data_dir=Path("/nonexistent"))
        access = Access(db=db, clock=clock, ids=UuidV7Ids(clock), keys=keys)
        await access.users.create(
            LOCAL, name="p0", role=ConsoleRole.OBSERVER, password=_PASSWORD, namespace="home"
        )
        names = [f"p{n}" for n in range(AT_ONCE)]
        for name in names[1:]:
            await access.users.create(LOCAL, name=name, role=ConsoleRole.OBSERVER)
        access.close()
    async with place.admin() as conn:
        await conn.execute(
            "UPDATE users SET password_hash = (SELECT password_hash FROM users WHERE name = 'p0')"
        )
    return names


async def _burst(running: Daemon, names: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            group.create_task(_sign_in(running, name, is_right=number % 2 == 0))


async def _sign_in(running: Daemon, name: str, *, is_right: bool) -> None:
    """Sign in as a browser does, coming again where it is told to wait."""
    async with httpx.AsyncClient(base_url=running.url, timeout=120) as browser:
        page = await browser.get("/login")
        form = _FORM.search(page.text)
        assert form is not None
        data = {
            "csrf_token": form[1],
            "name": name,
            "password": _PASSWORD if is_right else "not this one at all",
        }
        while True:
            answer = await browser.post("/login", data=data)
            if answer.status_code != 429:
                break
            await asyncio.sleep(float(answer.headers["retry-after"]))
        assert answer.status_code == (303 if is_right else 401), answer.text

"""A whole daemon inside a test: real database, real HTTP on a free loopback port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

import httpx
import uvicorn

from noema.app import Dsns, Noema, build
from noema.cli.serving import BoundedHttp, Server, bind
from noema.cognition.runner import LEASE_S
from noema.config import Settings
from noema.core.clock import Clock, SystemClock, UuidV7Ids
from noema.web.app import create
from tests.conftest import TestDatabase


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A running daemon and a client that is let in."""

    noema: Noema
    url: str
    token: str
    client: httpx.AsyncClient

    async def fed(self, slug: str, lines: list[str]) -> list[str]:
        """Send the lines as one batch; return the ids of their events."""
        items = [{"text": line} for line in lines]
        answer = await self.client.post(f"/v1/minds/{slug}/stimuli", json={"items": items})
        assert answer.status_code == 202, answer.text
        ids: list[str] = answer.json()["ids"]
        return ids

    async def has_thought(self, slug: str) -> bool:
        """Whether the mind has taken everything in and nothing is pending."""
        mind = await self.noema.minds.get(slug)
        return mind.pending == 0 and await self.noema.minds.backlog(mind) == 0

    async def is_idle(self, slug: str) -> bool:
        """Whether the mind has thought, and done what it meant to."""
        if not await self.has_thought(slug):
            return False
        # What is to be remembered is written beside the cycles.
        async with self.noema.db.reading() as tx:
            undone: int = await tx.conn.fetchval(
                "SELECT count(*) FROM intents"
                " JOIN minds ON minds.id = mind_id"
                " WHERE slug = $1 AND state IN ('pending', 'started')",
                slug,
            )
        return undone == 0


def dsns_of(database: TestDatabase) -> Dsns:
    """Return the way to a test's database as the composition root takes it."""
    return Dsns(owner=database.owner_dsn, app=database.app_dsn, is_embedded=False)


@asynccontextmanager
async def daemon(
    database: TestDatabase,
    *,
    clock: Clock | None = None,
    lease_s: float = LEASE_S,
    data_dir: Path = Path("/nonexistent"),
    trusted_proxies: str = "",
) -> AsyncIterator[Daemon]:
    """Run a daemon for as long as the block lasts."""
    clock = clock or SystemClock()
    settings = Settings(
        data_dir=data_dir,
        host="127.0.0.1",
        port=0,
        trusted_proxies=tuple(ip_network(p) for p in trusted_proxies.split()),
    )
    sock = bind(settings)
    settings = settings.with_port(sock.getsockname()[1])
    async with build(
        settings, dsns_of(database), clock=clock, ids=UuidV7Ids(clock), lease_s=lease_s
    ) as noema:
        token = await noema.access.create_token("test")
        config = uvicorn.Config(
            create(noema), http=BoundedHttp, loop="none", lifespan="off", ws="none",
            log_config=None, access_log=False, proxy_headers=False, timeout_graceful_shutdown=5,
        )  # fmt: skip
        server = Server(config)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[sock]))
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(
                base_url=settings.base_url, headers=headers, timeout=30
            ) as client:
                try:
                    yield Daemon(noema=noema, url=settings.base_url, token=token, client=client)
                finally:
                    noema.feed.close()
                    server.should_exit = True

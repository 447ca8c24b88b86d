"""People and tokens at the door of a running daemon, as many as a test needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import httpx

from noema.auth.model import LoggedIn, Origin, Session
from noema.auth.sessions import csrf_of
from noema.core.identity import LOCAL, ConsoleRole, MemoryRole
from tests.running import Daemon

PASSWORD = "canary-9f1c-correct-horse"
COOKIE = "noema_session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody with an account who has signed in."""

    daemon: Daemon
    name: str
    secret: str

    @property
    def csrf(self) -> str:
        return csrf_of(self.secret)

    async def session(self) -> Session:
        found = await self.daemon.noema.access.session(self.secret)
        assert found is not None
        return found

    def browser(self) -> httpx.AsyncClient:
        """Return a client with the session's cookie and its form token."""
        return httpx.AsyncClient(
            base_url=self.daemon.url,
            cookies={COOKIE: self.secret},
            headers={"X-CSRF-Token": self.csrf},
            timeout=30,
        )

    async def token(
        self,
        namespace: str = "home",
        *,
        memory_role: MemoryRole = MemoryRole.MEMBER,
        console_role: ConsoleRole = ConsoleRole.OBSERVER,
    ) -> str:
        return await self.daemon.noema.access.tokens.create(
            await self.session(),
            name=f"{console_role} of {self.name}",
            namespace=namespace,
            memory_role=memory_role,
            console_role=console_role,
        )


def script(daemon: Daemon, token: str) -> httpx.AsyncClient:
    """Return a client that sends the token."""
    return httpx.AsyncClient(
        base_url=daemon.url, headers={"Authorization": f"Bearer {token}"}, timeout=30
    )


async def namespaces(daemon: Daemon, *paths: str) -> None:
    """Create namespaces, and their tenants where there are none."""
    access = daemon.noema.access
    known = {t.name for t in await access.tenants.all()}
    for path in paths:
        tenant = path.partition("/")[0]
        if tenant not in known:
            await access.tenants.create(LOCAL, tenant)
            known.add(tenant)
        if path != tenant:
            await access.tenants.create_namespace(LOCAL, path)


async def person(
    daemon: Daemon,
    name: str,
    *places: tuple[str, MemoryRole],
    role: ConsoleRole = ConsoleRole.OPERATOR,
    until: datetime | None = None,
) -> Person:
    """Make somebody with these memberships, acting in the first, and let them in."""
    access = daemon.noema.access
    await access.users.create(LOCAL, name=name, role=role, password=PASSWORD)
    for namespace, memory_role in places:
        await access.users.grant(LOCAL, name, namespace=namespace, role=memory_role, valid_to=until)
    return await signed_in(daemon, name, at=[p for p, _ in places])


async def signed_in(daemon: Daemon, name: str, *, at: Sequence[str] = ()) -> Person:
    """Let somebody in once more, acting in the first of these namespaces."""
    access = daemon.noema.access
    answer = await access.log_in(name, PASSWORD, origin=Origin(address="192.0.2.1"))
    assert isinstance(answer, LoggedIn)
    found = Person(daemon=daemon, name=name, secret=answer.secret)
    session = await found.session()
    if at and session.identity.namespace != at[0]:
        await access.sessions.switch(session, at[0])
    return found

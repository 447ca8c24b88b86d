"""Who may come in, on a test's own database, with time that moves when it is told to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pyotp

from noema.auth.access import Access
from noema.auth.model import LoggedIn, Origin, SecondFactorDue, Session
from noema.auth.passwords import Parameters, Passwords
from noema.core.clock import ManualClock, UuidV7Ids
from noema.core.identity import LOCAL, ConsoleRole, MemoryRole
from noema.db.keys import Keys
from noema.db.tx import Database, connect
from noema.events.audit import AuditRow
from tests.conftest import TestDatabase

CHEAP = Parameters(memory_kib=64, passes=1, lanes=1)
PASSWORD = "canary-9f1c-correct-horse"
OTHER = "canary-77ab-battery-staple"
HERE = Origin(address="192.0.2.1", user_agent="a browser")


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """An Access with the way behind it."""

    access: Access
    db: Database
    clock: ManualClock
    key: bytes

    async def person(
        self,
        name: str = "ada",
        *,
        role: ConsoleRole = ConsoleRole.OPERATOR,
        namespace: str | None = "home",
        memory_role: MemoryRole = MemoryRole.OWNER,
    ) -> None:
        await self.access.users.create(
            LOCAL, name=name, role=role, password=PASSWORD, namespace=namespace,
            memory_role=memory_role,
        )  # fmt: skip

    async def entered(self, name: str = "ada", password: str = PASSWORD) -> LoggedIn:
        found = await self.access.log_in(name, password, origin=HERE)
        assert isinstance(found, LoggedIn)
        return found

    async def inside(self, name: str = "ada", password: str = PASSWORD) -> Session:
        return await self.session((await self.entered(name, password)).secret)

    async def session(self, secret: str) -> Session:
        found = await self.access.session(secret)
        assert found is not None
        return found

    async def is_in(self, session: Session) -> bool:
        return await self.access.sessions.again(session) is not None

    async def with_totp(self, name: str = "ada") -> tuple[str, tuple[str, ...]]:
        """Turn the person's second factor on; return the seed and the recovery codes."""
        session = await self.inside(name)
        started = await self.access.account.start_totp(session)
        confirmed = await self.access.account.confirm_totp(
            session, self.code(started.secret), origin=HERE
        )
        self.clock.advance(60)
        return started.secret, confirmed.recovery_codes

    def code(self, seed: str) -> str:
        return pyotp.TOTP(seed).at(self.clock.now())

    async def ticket(self, name: str = "ada", origin: Origin = HERE) -> str:
        due = await self.access.log_in(name, PASSWORD, origin=origin)
        assert isinstance(due, SecondFactorDue)
        return due.ticket

    async def audited(self, op: str) -> list[AuditRow]:
        return await self.access.audit.search(op=op)

    async def results(self, op: str) -> list[str]:
        """What became of every attempt at it, oldest first."""
        return [row.result for row in reversed(await self.audited(op))]


@asynccontextmanager
async def house(
    database: TestDatabase, clock: ManualClock, *, passwords: Passwords | None = None
) -> AsyncIterator[House]:
    """Yield an Access with hashes that cost next to nothing, unless others are given."""
    key = bytes(range(32))
    async with connect(
        database.app_dsn, clock=clock, min_size=1, max_size=8, role=database.role
    ) as db:
        access = Access(
            db=db,
            clock=clock,
            ids=UuidV7Ids(clock),
            keys=Keys(db=db, key=key, data_dir=Path("/nonexistent")),
            passwords=passwords or Passwords(parameters=CHEAP),
        )
        try:
            yield House(access=access, db=db, clock=clock, key=key)
        finally:
            access.close()

"""A registry, a library and who may change them, on a test's database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from noema.core.clock import ManualClock, SystemClock, UuidV7Ids
from noema.core.identity import ConsoleRole, Identity, MemoryRole
from noema.db.keys import Keys
from noema.db.tx import Database
from noema.events.audit import Audit
from noema.llm.library import Library
from noema.llm.model import ChatMessage, Completion, Parameters, Usage
from noema.llm.registry import Registry

KEY: Final = bytes(range(32))
NO_FILE: Final = Path("/nonexistent")


def somebody(console: ConsoleRole, name: str = "ada") -> Identity:
    return Identity(
        namespace="home",
        actor=f"user:{name}",
        role=MemoryRole.OWNER,
        console=console,
        agent_id="http",
    )


ADMIN: Final = somebody(ConsoleRole.ADMINISTRATOR)


class Fake:
    """A provider that notes how it was made and whether it was closed."""

    def __init__(self, *made_with: Any) -> None:
        self.made_with = made_with
        self.closed = 0

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        model: str,
        parameters: Parameters,
        schema: Mapping[str, Any] | None,
        deadline_s: float,
    ) -> Completion:
        assert not self.closed
        return Completion(text="ok", finish="stop", model=model, usage=Usage(input=1, output=1))

    async def aclose(self) -> None:
        self.closed += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What one daemon has of it; two on one database are two daemons."""

    db: Database
    audit: Audit
    clock: ManualClock
    registry: Registry
    library: Library
    made: list[Fake]

    async def audited(self, op: str) -> list[tuple[str, str, str]]:
        rows = await self.audit.search(op=op)
        return [(row.target, row.result, row.detail) for row in rows]

    async def secrets(self) -> dict[UUID, bytes]:
        async with self.db.reading() as tx:
            rows = await tx.conn.fetch("SELECT id, sealed FROM secrets")
        return {row["id"]: bytes(row["sealed"]) for row in rows}


def desk(db: Database, clock: ManualClock, *, key: bytes = KEY) -> Desk:
    """Return a daemon's part; its cache follows `clock`."""
    ids = UuidV7Ids(SystemClock())
    audit = Audit(db=db, ids=ids)
    made: list[Fake] = []

    def make(
        kind: str,
        endpoint: str,
        secret: str,
        allows_private: bool,
        parameters: Parameters,
        transport: object = None,
    ) -> Fake:
        made.append(Fake(kind, endpoint, secret, allows_private, parameters))
        return made[-1]

    return Desk(
        db=db,
        audit=audit,
        clock=clock,
        registry=Registry(
            db=db,
            audit=audit,
            keys=Keys(db=db, key=key, data_dir=NO_FILE),
            clock=clock,
            ids=ids,
            make=make,
        ),
        library=Library(db=db, audit=audit, clock=clock),
        made=made,
    )

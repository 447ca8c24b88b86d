"""Pins: what belongs into every working set of a namespace, whatever is asked."""

from typing import Final
from uuid import UUID

from noema.core.clock import Ids
from noema.core.errors import Conflict, NotFound
from noema.db.tx import Database
from noema.memory.frame import Frame
from noema.memory.model import Pin
from noema.memory.reading import visible
from noema.memory.store import policy as store
from noema.memory.work import Work

_MOST: Final = 500


class Pins:
    """Pins and unpins for the caller's own namespace."""

    def __init__(self, *, db: Database, ids: Ids, work: Work) -> None:
        self._db = db
        self._ids = ids
        self._work = work

    async def pin(self, frame: Frame, memory: UUID) -> Pin:
        """Pin a memory that the caller may read; pinned already, return the pin there is."""
        frame.target = f"memory:{memory}"
        who = frame.who
        async with self._work.doing(frame) as tx:
            await visible(tx, frame.scope, memory)
            if len(await store.pins(tx.conn, frame.scope, limit=_MOST)) >= _MOST:
                raise Conflict(f"At most {_MOST} memories are pinned; unpin one first.")
            pin = await store.pin(
                tx.conn, self._ids.new(), who.namespace, memory, who.actor, tx.now
            )
            frame.detail = f"pin={pin.id}"
            return pin

    async def unpin(self, frame: Frame, memory: UUID) -> None:
        """End the pin of the memory in the caller's own namespace, or raise NotFound."""
        frame.target = f"memory:{memory}"
        who = frame.who
        async with self._work.doing(frame) as tx:
            pin = await store.unpin(tx.conn, who.namespace, memory, tx.now, who.actor)
            if pin is None:
                raise NotFound("pin of memory", memory)
            frame.detail = f"pin={pin}"

    async def shown(self, frame: Frame) -> tuple[Pin, ...]:
        """Return the pins of the caller's namespace and those above it, oldest first."""
        async with self._db.reading() as tx:
            found = await store.pins(tx.conn, frame.scope, limit=_MOST)
        frame.detail = f"returned={len(found)}"
        return tuple(found)

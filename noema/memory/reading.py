"""Reading by id and page by page. What one may not see is told like what is not there."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from noema.core.errors import InvalidInput, NotFound
from noema.db.tx import Database, Tx
from noema.memory.frame import Frame
from noema.memory.model import Kind, Memory, Page, Read, ReadResult, Retraction, Scope, Status
from noema.memory.store import reading as store

_MOST: Final = 500


class Concealed(NotFound):
    """It is there, but not for this caller: told as missing, and audited as denied."""


async def visible(tx: Tx, scope: Scope, id_: UUID) -> Memory:
    """Return the memory, or raise NotFound; the same, in as many steps, where it is hidden."""
    found = await store.get(tx.conn, scope, [id_])
    if id_ in found:
        return found[id_]
    is_hidden = await store.exists(tx.conn, id_)
    raise (Concealed if is_hidden else NotFound)("memory", id_)


class Reader:
    """Reads memories as the rows they are; ranking is retrieval's."""

    def __init__(self, *, db: Database) -> None:
        self._db = db

    async def read(self, frame: Frame, request: Read) -> ReadResult:
        """Return one memory, and its chain where that was asked for."""
        frame.target = f"memory:{request.id}"
        async with self._db.reading() as tx:
            memory = await visible(tx, frame.scope, request.id)
            chain = (
                tuple(await store.chain(tx.conn, frame.scope, request.id))
                if request.history
                else ()
            )
        frame.detail = f"returned={1 if not request.history else len(chain)}"
        return ReadResult(memory=memory, history=chain)

    async def browse(
        self,
        frame: Frame,
        *,
        kinds: tuple[Kind, ...],
        status: Status | None,
        before: UUID | None,
        limit: int,
    ) -> Page:
        """Return a page of what the caller sees, newest first, whatever became of it."""
        if not 1 <= limit <= _MOST:
            raise InvalidInput(f"limit is a whole number from 1 to {_MOST}.", field="limit")
        async with self._db.reading() as tx:
            found = await store.browse(
                tx.conn,
                frame.scope,
                before=before,
                kinds=[k.value for k in kinds],
                status=None if status is None else status.value,
                limit=limit + 1,
            )
        shown = found[:limit]
        frame.detail = f"returned={len(shown)}"
        return Page(memories=shown, before=shown[-1].id if len(found) > limit else None)

    async def several(self, frame: Frame, ids: Sequence[UUID]) -> tuple[Memory, ...]:
        """Return those of the memories that the caller sees, in the order given, each once."""
        if len(ids) > _MOST:
            raise InvalidInput(f"Ask for at most {_MOST} memories at once.", field="ids")
        async with self._db.reading() as tx:
            found = await store.get(tx.conn, frame.scope, ids)
        frame.detail = f"asked={len(ids)} returned={len(found)}"
        return tuple(found[i] for i in dict.fromkeys(ids) if i in found)

    async def around(self, frame: Frame, id_: UUID, *, reach: int) -> tuple[Memory, ...]:
        """Return the turns before and after one of a conversation, that one among them."""
        frame.target = f"memory:{id_}"
        if not 1 <= reach <= _MOST:
            raise InvalidInput(f"reach is a whole number from 1 to {_MOST}.", field="reach")
        async with self._db.reading() as tx:
            memory = await visible(tx, frame.scope, id_)
            if memory.session is None or memory.position is None:
                return (memory,)
            found = await store.around(
                tx.conn,
                frame.scope,
                memory.session,
                first=memory.position - reach,
                last=memory.position + reach,
            )
        frame.detail = f"returned={len(found)}"
        return tuple(found)

    async def retraction_of(self, frame: Frame, id_: UUID) -> Retraction | None:
        """Return what holds a memory down now, None where nothing does."""
        frame.target = f"memory:{id_}"
        async with self._db.reading() as tx:
            await visible(tx, frame.scope, id_)
            return await store.retraction_of(tx.conn, frame.scope, id_)

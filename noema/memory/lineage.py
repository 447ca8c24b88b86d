"""Trust through lineage: what rests on what, and what falls with its source.

A derived memory is no more trusted, and no less protected, than the weakest of its sources; the
write path settles that, from the sources as they are then and holds them meanwhile. Trust never
changes afterwards: it is the rank of a route. What can change is whether a source still stands. A
source that is disputed or closed leaves what rests on it standing, and `doubts` says so to whoever
asks; a source that is retracted takes everything with it, in whatever namespace, and brings it back
when that is undone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from noema.core.act import Act, Outcome
from noema.core.canonical import escape, unescape
from noema.core.clock import Ids
from noema.core.errors import Conflict, Denied, InvalidInput, NotFound, TooLarge
from noema.db.tx import Tx
from noema.events.audit import Audit
from noema.memory.frame import Frame
from noema.memory.model import Retraction, Scope, Stayed
from noema.memory.reading import Concealed
from noema.memory.rights import may_manage
from noema.memory.store import conflicts
from noema.memory.store import lineage as store
from noema.memory.work import Work

MOST_DERIVED: Final = 10_000
"""How many memories one retraction may reach."""

MAX_REASON_CHARS: Final = 1_000
_ATTEMPTS: Final = 5


async def doubts(tx: Tx, scope: Scope, id_: UUID) -> tuple[str, ...]:
    """Return a sentence for each source, however far back, that does not stand as it did.

    Sources that the scope does not see are told of, and not named.
    """
    rows = await store.unsound(tx.conn, id_, limit=MOST_DERIVED)
    return tuple(dict.fromkeys(_doubt(row, scope) for row in rows))


def _doubt(row: Mapping[str, Any], scope: Scope) -> str:
    what = row["status"] if row["status"] != "active" else "no longer current"
    if scope.sees(row["namespace"], row["id"]):
        return f"It rests on memory {row['id']}, which is {what}."
    return f"It rests on a memory that you may not see, and that is {what}."


async def reached(tx: Tx, root: UUID) -> dict[UUID, Mapping[str, Any]]:
    """Return the memory and everything that rests on it, held until the transaction ends.

    Raises TooLarge where that is more than `MOST_DERIVED`.
    """
    # Whoever wrote something that rests on these rows had to hold them; once we do, nobody writes
    # more, and what was written meanwhile is found by looking again.
    locked: dict[UUID, Mapping[str, Any]] = {}
    while True:
        ids = await store.down(tx.conn, root, limit=MOST_DERIVED + 1)
        if len(ids) > MOST_DERIVED:
            raise TooLarge(
                f"More than {MOST_DERIVED:,} memories rest on {root}. Retract those nearer to its "
                "end first."
            )
        new = [id_ for id_ in ids if id_ not in locked]
        rows = await store.lock(tx.conn, new) if new else []
        if not rows:
            return locked
        locked |= {row["id"]: row for row in rows}


class Lineage:
    """Retracts sources with what rests on them, and restores them."""

    def __init__(self, *, ids: Ids, work: Work, audit: Audit) -> None:
        self._ids = ids
        self._work = work
        self._audit = audit

    async def retract(self, frame: Frame, id_: UUID, reason: str) -> Retraction:
        """Withdraw a memory and everything that rests on it, in one transaction.

        For its author in its own namespace, and for who manages that. Raises NotFound where the
        caller neither sees nor manages it, Denied where only reading is allowed, Conflict where it
        is withdrawn already, TooLarge where more than `MOST_DERIVED` memories rest on it.
        """
        frame.target = f"memory:{id_}"
        if not 1 <= len(reason.strip()) <= MAX_REASON_CHARS:
            raise InvalidInput(
                f"Say why in 1 to {MAX_REASON_CHARS:,} characters; it stays on record.",
                field="reason",
            )
        for attempt in range(_ATTEMPTS):
            try:
                async with self._work.doing(frame) as tx:
                    return await self._retract(tx, frame, id_, reason)
            except store.RETRIABLE as exc:
                if attempt == _ATTEMPTS - 1:
                    raise Conflict("Others change these memories just now; try again.") from exc
        raise AssertionError("unreachable")

    async def _retract(self, tx: Tx, frame: Frame, id_: UUID, reason: str) -> Retraction:
        rows = await reached(tx, id_)
        root = _as_author(frame, id_, rows.get(id_))
        if await store.open_of_root(tx.conn, id_) is not None:
            raise Conflict(f"Memory {id_} is retracted already.")
        made = Retraction(
            id=self._ids.new(),
            namespace=root["namespace"],
            root=id_,
            memories=tuple(i for i, row in sorted(rows.items()) if _is_shown(frame, i, row)),
            reason=reason,
            actor=frame.who.actor,
            retracted_at=tx.now,
            elsewhere=sum(not _is_shown(frame, i, row) for i, row in rows.items()),
        )
        await store.retract(
            tx.conn, made.id, list(rows), namespace=made.namespace, root=id_,
            reason=escape(reason), actor=made.actor, at=tx.now,
        )  # fmt: skip
        frame.detail = f"retraction={made.id} retracted={len(rows)}"
        await self._tell(tx, frame, made.id, [row["namespace"] for row in rows.values()])
        return made

    async def restore(self, frame: Frame, id_: UUID) -> Retraction:
        """Undo a retraction: every memory gets the status back that it had.

        One that another retraction holds down too stays down, and so does one whose text has been
        written anew since; both are listed in `stayed`. It may be called again to bring back those.
        Raises NotFound, Denied as `retract` does, and Conflict where nothing is left to restore.
        """
        frame.target = f"retraction:{id_}"
        for attempt in range(_ATTEMPTS):
            try:
                async with self._work.doing(frame) as tx:
                    return await self._restore(tx, frame, id_)
            except (*store.RETRIABLE, store.Taken) as exc:
                if attempt == _ATTEMPTS - 1:
                    raise Conflict("Others change these memories just now; try again.") from exc
        raise AssertionError("unreachable")

    async def _restore(self, tx: Tx, frame: Frame, id_: UUID) -> Retraction:
        row = await store.retraction(tx.conn, id_)
        if row is None or not _may_undo(frame, row):
            if row is not None and row["namespace"] in frame.scope.namespaces:
                raise Denied("Only who retracted it, an admin or an owner may restore it.")
            raise (NotFound if row is None else Concealed)("retraction", id_)
        await store.lock(tx.conn, await store.members(tx.conn, id_))
        held = await store.held(tx.conn, id_)
        back = [r for r in held if _comes_back(r)]
        if row["restored_at"] is not None and not back:
            raise Conflict(f"Retraction {id_} is restored already; nothing is left to bring back.")
        await store.restore(tx.conn, id_, [r["id"] for r in back], actor=frame.who.actor, at=tx.now)
        # Whoever withdraws what was not checked yet, and restores it, has not got round the check.
        await conflicts.due(tx.conn, [r["id"] for r in back], tx.now)
        shown = [r for r in back if _is_shown(frame, r["id"], r)]
        stayed = tuple(_stayed(r) for r in held if _is_stuck(r) and _is_shown(frame, r["id"], r))
        frame.detail = f"restored={len(back)} stayed={sum(map(_is_stuck, held))}"
        await self._tell(tx, frame, id_, [r["namespace"] for r in back])
        return Retraction(
            id=id_,
            namespace=row["namespace"],
            root=row["root"],
            memories=tuple(r["id"] for r in shown),
            reason=unescape(row["reason"]),
            actor=row["actor"],
            retracted_at=row["retracted_at"],
            restored_at=tx.now,
            restored_by=frame.who.actor,
            elsewhere=len(back) - len(shown),
            stayed=stayed,
        )

    async def _tell(self, tx: Tx, frame: Frame, id_: UUID, touched: Sequence[str]) -> None:
        """Leave a row in the log of every other namespace whose memories were touched."""
        for namespace in sorted(set(touched) - {frame.who.namespace}):
            await self._audit.record(
                tx,
                Act(
                    actor=frame.who.actor,
                    agent_id=frame.who.agent_id,
                    namespace=namespace,
                    verb=frame.op,
                    target=f"retraction:{id_}",
                    outcome=Outcome.OK,
                    detail=f"memories={sum(n == namespace for n in touched)}",
                ),
            )


def _as_author(frame: Frame, id_: UUID, root: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if root is None:
        raise NotFound("memory", id_)
    namespace, who = root["namespace"], frame.who
    is_author = namespace == who.namespace and root["actor"] == who.actor
    if is_author or may_manage(who, namespace):
        return root
    if frame.scope.sees(namespace, id_):
        raise Denied("Only its author, an admin or an owner may retract a memory.")
    raise Concealed("memory", id_)


def _may_undo(frame: Frame, row: Mapping[str, Any]) -> bool:
    who = frame.who
    is_own = row["namespace"] == who.namespace and row["actor"] == who.actor
    return is_own or may_manage(who, row["namespace"])


def _is_shown(frame: Frame, id_: UUID, row: Mapping[str, Any]) -> bool:
    namespace = row["namespace"]
    return frame.scope.sees(namespace, id_) or may_manage(frame.who, namespace)


def _is_taken(row: Mapping[str, Any]) -> bool:
    return row["is_open"] and row["taken_by"] is not None


def _comes_back(row: Mapping[str, Any]) -> bool:
    return row["status"] == "retracted" and row["held_by"] is None and not _is_taken(row)


def _is_stuck(row: Mapping[str, Any]) -> bool:
    return row["status"] == "retracted" and not _comes_back(row)


def _stayed(row: Mapping[str, Any]) -> Stayed:
    if row["held_by"] is not None:
        return Stayed(id=row["id"], reason=f"retraction {row['held_by']} holds it down as well")
    return Stayed(id=row["id"], reason=f"the same text is current again as {row['taken_by']}")

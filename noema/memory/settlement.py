"""What a decided conflict does to two memories, and exactly how that is undone.

    newcomer_wins      the incumbent is closed, and the newcomer follows it
    incumbent_wins     the newcomer is closed, and the incumbent follows it: the newcomer told late
                       of what had been before
    newcomer_disputed  the newcomer is quarantined: it stays, and no search finds it as current
    for_review         nothing; people are to decide
    coexist            nothing; both are true

The winner's `supersedes` points at the loser where that keeps every chain a line: the winner
follows nothing yet and nothing else follows the loser. Otherwise the chains stay as they are, and
the same is recorded beside them as a relationship of kind `supersedes`.

Every effect keeps what it changed and to what. Undoing puts back what it changed and nothing else,
so that decisions about other pairs can be undone in any order; where somebody changed the same
thing since, it is refused.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from noema.core.clock import Ids, from_micros, to_micros
from noema.core.errors import Conflict
from noema.db.tx import Tx
from noema.memory.model import Memory, Status
from noema.memory.store import conflicts as store

Decision: TypeAlias = Literal[
    "newcomer_wins", "incumbent_wins", "newcomer_disputed", "for_review", "coexist"
]

LINK_SOURCE: Final = "conflict check"


def is_current(memory: Memory) -> bool:
    """Whether the memory is believed now."""
    return memory.valid_to is None and memory.status is Status.ACTIVE


def ordered(one: Memory, other: Memory) -> tuple[Memory, Memory]:
    """Return newcomer and incumbent: told later and told earlier, whichever is being checked."""
    pair = sorted((one, other), key=lambda m: (m.assertion_time, m.id))
    return pair[1], pair[0]


def decide(newcomer: Memory, incumbent: Memory) -> Decision:
    """Return how the trust lattice settles a contradiction.

    The higher rank wins, and a newcomer of lower rank is disputed. Between equals what happened
    later wins, however late the other was told: an old employer never outranks the new one.
    """
    if newcomer.trust != incumbent.trust:
        return "newcomer_wins" if newcomer.trust > incumbent.trust else "newcomer_disputed"
    return "newcomer_wins" if _at(newcomer) >= _at(incumbent) else "incumbent_wins"


def _at(memory: Memory) -> datetime:
    return memory.event_time or memory.assertion_time


async def settle(
    tx: Tx, ids: Ids, decision: Decision, newcomer: Memory, incumbent: Memory, *, actor: str
) -> dict[str, Any]:
    """Apply the decision to two rows that are locked and current; return what undoes it."""
    if decision == "newcomer_disputed":
        await store.dispute(tx.conn, newcomer.id)
        return {"rows": [_change(newcomer.id, status=("active", "disputed"))], "link": None}
    if decision in {"newcomer_wins", "incumbent_wins"}:
        pair = newcomer, incumbent
        winner, loser = pair if decision == "newcomer_wins" else pair[::-1]
        return await _supersede(tx, ids, winner, loser, actor=actor)
    return {}


async def _supersede(
    tx: Tx, ids: Ids, winner: Memory, loser: Memory, *, actor: str
) -> dict[str, Any]:
    ended = await store.close(tx.conn, loser.id, tx.now)
    if ended is None:
        raise Conflict(f"Memory {loser.id} is no longer current; there is nothing to decide.")
    rows = [_change(loser.id, valid_to=(None, to_micros(ended)))]
    link: UUID | None = None
    if await store.supersede(tx.conn, winner.id, loser.id):
        rows.append(_change(winner.id, supersedes=(None, str(loser.id))))
    else:
        link = ids.new()
        if not await store.link(
            tx.conn, link, winner.namespace, winner.id, loser.id,
            source=LINK_SOURCE, actor=actor, at=tx.now,
        ):  # fmt: skip
            link = None
    return {"rows": rows, "link": None if link is None else str(link)}


def _change(id_: UUID, **columns: tuple[object, object]) -> dict[str, Any]:
    return {"id": str(id_), "columns": {k: list(pair) for k, pair in columns.items()}}


async def undo(tx: Tx, kept: Mapping[str, Any]) -> None:
    """Put back what `settle` changed, from what it returned; the rows are held until the end.

    Raises Conflict that says what stands in the way where one of them was changed otherwise since,
    or where its text has become current again as another memory.
    """
    changes = {UUID(c["id"]): c["columns"] for c in kept.get("rows", ())}
    rows = await store.lock(tx.conn, list(changes))
    for id_, columns in changes.items():
        memory = rows[id_]
        state = _state(memory)
        for name, (was, now) in columns.items():
            if state[name] != now:
                raise Conflict(
                    f"Memory {id_} was changed since this was decided ({_told(memory)}); "
                    "undo that first."
                )
            state[name] = was
        if state["valid_to"] is None and state["status"] != "retracted":
            await _require_place(tx, id_)
        micros, supersedes = state["valid_to"], state["supersedes"]
        try:
            await store.undo(
                tx.conn,
                id_,
                status=state["status"],
                valid_to=None if micros is None else from_micros(micros),
                supersedes=None if supersedes is None else UUID(supersedes),
            )
        except store.Taken as exc:
            raise Conflict(_taken(id_, "another memory")) from exc
    # While they were down, others came that were never compared with them.
    await store.due(tx.conn, list(changes), tx.now)
    if kept.get("link") is not None:
        await store.unlink(tx.conn, UUID(kept["link"]), tx.now)


async def _require_place(tx: Tx, id_: UUID) -> None:
    other = await store.taken(tx.conn, id_)
    if other is not None:
        raise Conflict(_taken(id_, f"memory {other}"))


def _taken(id_: UUID, other: str) -> str:
    return f"The text of memory {id_} is current again as {other}; retract that one first."


def _state(memory: Memory) -> dict[str, Any]:
    return {
        "status": memory.status.value,
        "valid_to": None if memory.valid_to is None else to_micros(memory.valid_to),
        "supersedes": None if memory.supersedes is None else str(memory.supersedes),
    }


def _told(memory: Memory) -> str:
    if memory.status is not Status.ACTIVE:
        return f"it is {memory.status}"
    return "it is current" if memory.valid_to is None else "it is closed"

"""The executive: takes the intents of admitted thoughts in order and does what may be done.

It can speak. What is to be remembered goes to memory by another way, see `remembering`. Every other
act is refused with an event: there is no gate that could allow it.
"""

from typing import Final
from uuid import UUID

import msgspec
import structlog

from noema.cognition import store
from noema.cognition.keeping import ACT, keep_params
from noema.core.clock import Clock, Ids
from noema.db.tx import Database
from noema.events.model import NewEvent, new_event
from noema.events.unit import ActState, Derivation, Fence, Message, NewIntent, Unit
from noema.events.writer import Writer

log = structlog.get_logger()

_AT_ONCE: Final = 100
_BEHIND: Final = 1_000
_IMPORTANCE: Final = 500_000


class _Open(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    cycle_id: UUID
    cycle: int
    ordinal: int
    thought_id: UUID
    act: str
    content: dict[str, str]
    state: str


class Executive:
    """Carries out the open intents of one mind at a time, under the mind's lease."""

    def __init__(
        self, *, db: Database, writer: Writer, clock: Clock, ids: Ids, does_remember: bool = False
    ) -> None:
        self._does_remember = does_remember
        self._db = db
        self._writer = writer
        self._clock = clock
        self._ids = ids

    async def act(self, *, mind: UUID, slug: str, epoch: int, may_act: bool) -> int:
        """Carry out every open intent of the mind, oldest first; return how many there were.

        Speaking touches nothing but the database, so its start, its effect and its result are one
        commit: after a crash it has happened or it has not. Raises LeaseLost when another daemon
        took the mind over.
        """
        async with self._db.reading() as tx:
            rows = await store.open_intents(tx.conn, mind, to_remember=False, limit=_AT_ONCE)
        for row in rows:
            intent = _Open(**row)
            if intent.state == "started":
                unit = self._unknown(intent, mind, slug, epoch)
            elif not may_act:
                unit = self._refuse(intent, mind, slug, epoch, "the mode forbids acting")
            elif intent.act == "speak":
                unit = self._speak(intent, mind, slug, epoch)
            else:
                unit = self._refuse(intent, mind, slug, epoch, "no capability allows this act")
            await self._writer.submit(unit)
        return len(rows)

    def _event(
        self, type_: str, intent: _Open, mind: UUID, slug: str, **fields: object
    ) -> NewEvent:
        return new_event(
            self._ids,
            type=type_,
            occurred_at=self._clock.now(),
            actor=f"mind:{slug}",
            mind_id=mind,
            cycle_id=intent.cycle_id,
            **fields,  # type: ignore[arg-type]
        )

    def _speak(self, intent: _Open, mind: UUID, slug: str, epoch: int) -> Unit:
        params = intent.content
        in_reply_to = UUID(params["in_reply_to"]) if params.get("in_reply_to") else None
        conversation = UUID(params["conversation"])
        data = {"intent": intent.id, "act": intent.act}
        causes = (intent.thought_id,) if in_reply_to is None else (intent.thought_id, in_reply_to)
        started = self._event("action.started", intent, mind, slug, causes=causes[:1], data=data)
        sent = self._event(
            "message.sent",
            intent,
            mind,
            slug,
            causes=causes,
            data={"conversation": conversation, "in_reply_to": in_reply_to},
            content={"text": params["text"], "to": params.get("to", "")},
        )
        done = self._event("action.completed", intent, mind, slug, causes=(sent.id,), data=data)
        message = Message(
            id=sent.id,
            conversation=conversation,
            mind=mind,
            speaker=slug,
            text=params["text"],
            at=self._clock.now(),
            in_reply_to=in_reply_to,
            cycle=intent.cycle,
        )
        return Unit(
            events=(started, sent, done),
            fence=Fence(mind=mind, epoch=epoch),
            messages=(message,),
            intents=self._to_remember(intent, sent),
            acts=(ActState(intent=intent.id, state="done"),),
            derivations=(Derivation(source=intent.thought_id, to=sent.id, kind="said"),),
        )

    def _to_remember(self, intent: _Open, sent: NewEvent) -> tuple[NewIntent, ...]:
        """What was said is remembered if it was said, so it is wanted by the same commit."""
        if not self._does_remember:
            return ()
        return (
            NewIntent(
                id=self._ids.new(),
                cycle_id=intent.cycle_id,
                cycle=intent.cycle,
                # Behind what was said to the mind in this cycle.
                ordinal=_BEHIND + intent.ordinal,
                thought_id=intent.thought_id,
                act=ACT,
                content=keep_params(sent.id, "episode", _IMPORTANCE),
            ),
        )

    def _refuse(self, intent: _Open, mind: UUID, slug: str, epoch: int, reason: str) -> Unit:
        data = {"intent": intent.id, "act": intent.act, "reason": reason}
        refused = self._event(
            "action.refused", intent, mind, slug, causes=(intent.thought_id,), data=data
        )
        return Unit(
            events=(refused,),
            fence=Fence(mind=mind, epoch=epoch),
            acts=(ActState(intent=intent.id, state="refused"),),
            derivations=(Derivation(source=intent.thought_id, to=refused.id, kind="refused"),),
        )

    def _unknown(self, intent: _Open, mind: UUID, slug: str, epoch: int) -> Unit:
        data = {"intent": intent.id, "act": intent.act}
        event = self._event(
            "action.outcome_unknown", intent, mind, slug, causes=(intent.thought_id,), data=data
        )
        log.warning("action_outcome_unknown", mind=slug, intent=str(intent.id))
        return Unit(
            events=(event,),
            fence=Fence(mind=mind, epoch=epoch),
            acts=(ActState(intent=intent.id, state="unknown"),),
            derivations=(Derivation(source=intent.thought_id, to=event.id, kind="unknown"),),
        )

"""Conflicts: a committed fact is checked against its neighbours, out of band, and can be undone.

    due ──claim──▶ neighbours ──▶ judge (no transaction) ──▶ settle, record, audit (one transaction)

A contradiction is settled by the trust lattice, or left to people where the namespace's policy says
`review`; a suspicion is always left to people. Only rows of the memory's own namespace are looked
at, and so a parent's row is never touched. A pair is decided once: what people made of it stands.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias
from uuid import UUID

import structlog

from noema.core.act import Act, Outcome
from noema.core.clock import Clock, Ids
from noema.core.errors import Conflict, InvalidInput, NotFound, Unavailable
from noema.db.tx import Database, Tx
from noema.events.audit import Audit
from noema.memory.analyse import query_terms
from noema.memory.frame import Frame
from noema.memory.judge import ConflictJudge, Finding, Looks, Verdict, asserted, claim_of
from noema.memory.model import ConflictCase, Kind, Memory
from noema.memory.normalise import normal_text
from noema.memory.reading import Concealed
from noema.memory.rights import may_manage, require_management
from noema.memory.settlement import Decision, decide, is_current, ordered, settle, undo
from noema.memory.store import conflicts as store
from noema.memory.work import Work

log = structlog.get_logger()

Review: TypeAlias = Literal["auto", "review", "off"]
ReviewOf: TypeAlias = Callable[[str], Awaitable[Review]]
"""What the policy of a namespace says of conflicts."""

DAEMON: Final = "daemon"
BATCH: Final = 20
MOST_NEIGHBOURS: Final = 32
MOST_ATTEMPTS: Final = 8
_CLAIM_S: Final = 120.0
_RETRY_S: Final = 30.0
_IDLE_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
_DECIDE_ATTEMPTS: Final = 5
_LANE_ROWS: Final = 12
_MOST_TERMS: Final = 24
_MOST_SHOWN: Final = 500


class ConflictCheck:
    """Checks what is due, a few memories at a time; several of these may run side by side.

    Killed at any moment, it leaves a claim that runs out, and the check is done again: a decision
    is committed with the mark that the check is done. A memory that cannot be checked is tried
    `MOST_ATTEMPTS` times, ever more rarely, while the others go on, and then let go with a row in
    the audit log.
    """

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        ids: Ids,
        audit: Audit,
        judge: ConflictJudge,
        review_of: ReviewOf,
    ) -> None:
        self._db = db
        self._clock = clock
        self._ids = ids
        self._audit = audit
        self._judge = judge
        self._review_of = review_of

    async def run(self) -> None:
        """Check for ever; where the database is away, wait for it, a minute at most at a time."""
        wait_s = _IDLE_S
        while True:
            try:
                checked = await self.once()
                wait_s = _IDLE_S
            except (Unavailable, TimeoutError) as exc:
                log.warning("conflict_check_waits", reason=str(exc))
                checked, wait_s = 0, min(2 * wait_s, _LONGEST_WAIT_S)
            if checked == 0:
                await self._clock.sleep(wait_s)

    async def once(self) -> int:
        """Check the next few that are due; return how many were claimed, 0 where none is due."""
        async with self._db.transaction() as tx:
            until = tx.now + timedelta(seconds=_CLAIM_S)
            claimed = await store.claim(tx.conn, now=tx.now, until=until, limit=BATCH)
        clean: list[UUID] = []
        for memory, attempts in claimed:
            try:
                if not await self._check(memory, until):
                    clean.append(memory.id)
            except (Unavailable, TimeoutError) as exc:
                # The database or a model is away: nothing is wrong with the memory.
                log.warning("conflict_check_postponed", memory=str(memory.id), reason=str(exc))
                await self._postpone(memory, until, _RETRY_S)
            except Exception as exc:
                # One memory that cannot be judged must not keep the others waiting.
                log.exception("conflict_check_failed", memory=str(memory.id), attempts=attempts)
                if attempts >= MOST_ATTEMPTS:
                    await self._let_go(memory, until, type(exc).__name__)
                else:
                    await self._postpone(memory, until, _RETRY_S * 2**attempts)
        if clean:
            async with self._db.transaction() as tx:
                await store.done(tx.conn, clean, until)
        return len(claimed)

    async def _check(self, memory: Memory, until: datetime) -> bool:
        """Check one memory; return whether it is done with, False where it has yet to be marked."""
        if not is_current(memory):
            return False
        review = await self._review_of(memory.namespace)
        if review == "off":
            return False
        if isinstance(self._judge, Looks):
            await self._judge.look()
        found: list[tuple[UUID, Verdict]] = []
        for neighbour in await self._neighbours(memory):
            verdict = await self._judge.judge(*ordered(memory, neighbour))
            if verdict.kind is not Finding.COMPATIBLE:
                found.append((neighbour.id, verdict))
        if not found:
            return False
        await self._settle(memory, until, found, review)
        return True

    async def _neighbours(self, memory: Memory) -> list[Memory]:
        """Return who may contradict it, likeliest first: by subject, by words, by entities, and,
        for a judge that reads meaning, by vector."""
        found: dict[UUID, Memory] = {}
        async with self._db.reading() as tx:
            subjects = _subjects(memory)
            if subjects:
                near = await store.by_subject(tx.conn, memory, subjects, MOST_NEIGHBOURS)
                found |= {m.id: m for m in near}
            for words in _probes(memory):
                near = await store.by_text(tx.conn, memory, words, _LANE_ROWS)
                found |= {m.id: m for m in near if m.id not in found}
            if self._judge.reads_meaning:
                near = await store.by_vector(tx.conn, memory, _LANE_ROWS)
                found |= {m.id: m for m in near if m.id not in found}
            near = await store.by_entities(tx.conn, memory, _LANE_ROWS)
            found |= {m.id: m for m in near if m.id not in found}
        return list(found.values())[:MOST_NEIGHBOURS]

    async def _settle(
        self,
        memory: Memory,
        until: datetime,
        found: Sequence[tuple[UUID, Verdict]],
        review: Review,
    ) -> None:
        for attempt in range(_DECIDE_ATTEMPTS):
            try:
                async with self._db.transaction() as tx:
                    rows = await store.lock(tx.conn, [memory.id, *(id_ for id_, _ in found)])
                    await self._decide(tx, memory.id, rows, found, review)
                    await store.done(tx.conn, [memory.id], until)
            except store.RETRIABLE as exc:
                if attempt == _DECIDE_ATTEMPTS - 1:
                    message = "Others change these memories just now; the check is done later."
                    raise Unavailable(message) from exc
            else:
                return

    async def _decide(
        self,
        tx: Tx,
        id_: UUID,
        rows: dict[UUID, Memory],
        found: Sequence[tuple[UUID, Verdict]],
        review: Review,
    ) -> None:
        # Strongest opponents first; what they leave of the memory decides about the rest.
        verdicts = dict(found)
        others = sorted(
            (rows[i] for i in verdicts if i in rows),
            key=lambda m: (
                verdicts[m.id].kind is Finding.CONTRADICTION, m.trust, m.assertion_time, m.id,
            ),
            reverse=True,
        )  # fmt: skip
        for other in others:
            memory = rows.get(id_)
            if memory is None or not is_current(memory):
                return
            if not is_current(other) or await store.is_known_pair(tx.conn, id_, other.id):
                continue
            newcomer, incumbent = ordered(memory, other)
            verdict = verdicts[other.id]
            is_certain = verdict.kind is Finding.CONTRADICTION and review == "auto"
            decision: Decision = decide(newcomer, incumbent) if is_certain else "for_review"
            kept = await settle(tx, self._ids, decision, newcomer, incumbent, actor=DAEMON)
            case = ConflictCase(
                id=self._ids.new(), namespace=memory.namespace, newcomer=newcomer.id,
                incumbent=incumbent.id, newcomer_text=newcomer.text,
                incumbent_text=incumbent.text, judge=verdict.judge, reason=verdict.reason,
                outcome=decision, decided_by=DAEMON, decided_at=tx.now,
            )  # fmt: skip
            await store.insert(tx.conn, case, before=kept)
            await self._tell(
                tx, newcomer, Outcome.OK,
                f"conflict={case.id} outcome={decision} incumbent={incumbent.id} "
                f"finding={verdict.kind} judge={verdict.judge}",
            )  # fmt: skip
            rows |= await store.lock(tx.conn, [id_])

    async def _tell(self, tx: Tx, memory: Memory, outcome: Outcome, detail: str) -> None:
        act = Act(
            actor=DAEMON, agent_id=DAEMON, namespace=memory.namespace, verb="mem.conflict",
            target=f"memory:{memory.id}", outcome=outcome, detail=detail,
        )  # fmt: skip
        await self._audit.record(tx, act)

    async def _postpone(self, memory: Memory, until: datetime, wait_s: float) -> None:
        try:
            async with self._db.transaction() as tx:
                again = tx.now + timedelta(seconds=wait_s)
                await store.postpone(tx.conn, memory.id, until, again)
        except Unavailable:
            # Then the claim runs out by itself.
            return

    async def _let_go(self, memory: Memory, until: datetime, reason: str) -> None:
        async with self._db.transaction() as tx:
            await store.done(tx.conn, [memory.id], until)
            await self._tell(tx, memory, Outcome.ERROR, f"not checked: {reason}")


def _subjects(memory: Memory) -> list[str]:
    """Return how the subject of structured content may be spelt, as the index has it."""
    given = memory.content.get("subject" if memory.kind is Kind.FACT else "holder")
    if not isinstance(given, str):
        return []
    return list(dict.fromkeys((given.lower(), normal_text(given))))


def _probes(memory: Memory) -> list[Sequence[str]]:
    """Return lists of terms that a contradicting text would have all of."""
    claim = claim_of(memory.text)
    of_claim = query_terms(f"{claim.subject} {claim.attribute}") if claim is not None else []
    words, _ = asserted(memory.text)
    probes = [of_claim, list(dict.fromkeys(words))]
    return [p for p in probes if 0 < len(p) <= _MOST_TERMS]


_ANSWERS: Final[dict[str, Decision]] = {
    "newcomer_wins": "newcomer_wins",
    "incumbent_wins": "incumbent_wins",
    "newcomer_disputed": "newcomer_disputed",
    "coexist": "coexist",
}


class Conflicts:
    """Lists conflicts, and lets people decide them and undo what was decided."""

    def __init__(self, *, db: Database, ids: Ids, work: Work) -> None:
        self._db = db
        self._ids = ids
        self._work = work

    async def shown(
        self, frame: Frame, *, open_only: bool = False, limit: int = 100
    ) -> tuple[ConflictCase, ...]:
        """Return the cases of what the caller sees and manages, newest first.

        `open_only` leaves those that wait for people.
        """
        if not 1 <= limit <= _MOST_SHOWN:
            raise InvalidInput(f"limit is a whole number from 1 to {_MOST_SHOWN}.", field="limit")
        async with self._db.reading() as tx:
            found = await self._load(tx, frame, None, open_only=open_only, limit=limit)
        frame.detail = f"returned={len(found)}"
        return tuple(found)

    async def resolve(self, frame: Frame, id_: UUID, outcome: str) -> ConflictCase:
        """Decide a case as a person: newcomer_wins, incumbent_wins, newcomer_disputed or coexist.

        What was decided before is undone first. Raises NotFound, Denied where the caller does not
        manage its namespace, Conflict where one of the two is no longer current or what was decided
        cannot be undone.
        """
        frame.target = f"conflict:{id_}"
        if outcome not in _ANSWERS:
            raise InvalidInput(f"outcome is one of {', '.join(_ANSWERS)}.", field="outcome")
        return await self._with_retry(lambda: self._resolve(frame, id_, _ANSWERS[outcome]))

    async def _resolve(self, frame: Frame, id_: UUID, decision: Decision) -> ConflictCase:
        async with self._work.doing(frame) as tx:
            case = await self._managed(tx, frame, id_)
            pair = [case["newcomer"], case["incumbent"]]
            await store.lock(tx.conn, pair)
            await undo(tx, case["before"])
            rows = await store.lock(tx.conn, pair)
            newcomer, incumbent = (rows[i] for i in pair)
            if decision != "coexist" and not (is_current(newcomer) and is_current(incumbent)):
                raise Conflict("Both have to be current for one to win; one of them is not.")
            actor = frame.who.actor
            kept = await settle(tx, self._ids, decision, newcomer, incumbent, actor=actor)
            await store.decided(tx.conn, id_, decision, kept, by=actor, at=tx.now)
            frame.detail = f"outcome={decision} was={case['outcome']}"
            return (await self._load(tx, frame, id_))[0]

    async def revert(self, frame: Frame, id_: UUID) -> ConflictCase:
        """Undo what was decided, exactly; both are as they were, and the check leaves them alone.

        Raises NotFound and Denied as `resolve` does, Conflict where nothing was decided or where
        later changes make it impossible.
        """
        frame.target = f"conflict:{id_}"
        return await self._with_retry(lambda: self._revert(frame, id_))

    async def _revert(self, frame: Frame, id_: UUID) -> ConflictCase:
        async with self._work.doing(frame) as tx:
            case = await self._managed(tx, frame, id_)
            if case["reverted_at"] is not None:
                raise Conflict(f"Conflict {id_} was reverted already.")
            if case["outcome"] == "for_review":
                raise Conflict(f"Nothing has been decided about conflict {id_} yet; resolve it.")
            await store.lock(tx.conn, [case["newcomer"], case["incumbent"]])
            await undo(tx, case["before"])
            await store.reverted(tx.conn, id_, by=frame.who.actor, at=tx.now)
            frame.detail = f"reverted={case['outcome']}"
            return (await self._load(tx, frame, id_))[0]

    async def _managed(self, tx: Tx, frame: Frame, id_: UUID) -> store.Row:
        case = await store.case(tx.conn, id_)
        if case is None:
            raise NotFound("conflict", id_)
        namespace = case["namespace"]
        if not may_manage(frame.who, namespace) and namespace not in frame.scope.namespaces:
            raise Concealed("conflict", id_)
        require_management(frame.who, namespace)
        return case

    async def _load(
        self,
        tx: Tx,
        frame: Frame,
        id_: UUID | None,
        *,
        open_only: bool = False,
        limit: int = 1,
    ) -> list[ConflictCase]:
        who = frame.who
        managed = who.namespace if may_manage(who, who.namespace) else None
        return await store.shown(
            tx.conn, frame.scope, managed=managed, id_=id_, open_only=open_only, limit=limit
        )

    @staticmethod
    async def _with_retry(
        attempt: Callable[[], Awaitable[ConflictCase]],
    ) -> ConflictCase:
        for number in range(_DECIDE_ATTEMPTS):
            try:
                return await attempt()
            except store.RETRIABLE as exc:
                if number == _DECIDE_ATTEMPTS - 1:
                    raise Conflict("Others change these memories just now; try again.") from exc
        raise AssertionError("unreachable")

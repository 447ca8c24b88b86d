"""Replays as jobs: started by a request, run in the background, looked at while they run."""

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec
import structlog

from noema.cognition.minds import idempotency_of
from noema.cognition.model import Mind
from noema.cognition.process import Process
from noema.cognition.runner import load_modes
from noema.core.clock import Clock, Ids
from noema.core.errors import InvalidInput, NoemaError, NotFound, RateLimited, Unavailable
from noema.db.tx import Database
from noema.events.log import EventLog
from noema.replay import store
from noema.replay.model import Replay
from noema.replay.verify import verify

log = structlog.get_logger()

AT_ONCE: Final = 2
MAX_WAITING: Final = 100
_RETRY_S: Final = 5.0


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    mind: Mind
    first: int
    last: int


class Replays:
    """Runs at most two verifications at a time; `run` is their owner."""

    def __init__(
        self,
        *,
        db: Database,
        events: EventLog,
        processes: Sequence[Process],
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._db = db
        self._events = events
        self._processes = processes
        self._clock = clock
        self._ids = ids
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue(MAX_WAITING)

    async def run(self) -> None:
        """Work off what is started, until cancelled.

        What a process that is gone left running is marked as failed first.
        """
        await self._mark_abandoned()
        async with asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(self._work(), name=f"replay {number}")

    async def start_verify(
        self,
        mind: Mind,
        *,
        first: int | None = None,
        last: int | None = None,
        actor: str,
        key: str | None = None,
    ) -> UUID:
        """Start a verification of the cycles (all unless given) and return its id at once.

        With an idempotency key a repeated call returns the replay that the first one started.

        Raises InvalidInput where the mind has no such cycles, RateLimited where a hundred wait.
        """
        low, high = first or 1, mind.cycles if last is None else last
        if low < 1 or (first is not None and first > mind.cycles):
            raise InvalidInput(f"{mind.slug} has cycles 1 to {mind.cycles:,}.", field="from")
        if high > mind.cycles or (last is not None and high < low):
            raise InvalidInput(
                f"{mind.slug} has cycles 1 to {mind.cycles:,}; the last is not before the first.",
                field="to",
            )
        if self._jobs.full():
            raise RateLimited(f"{MAX_WAITING} replays wait already; start it when some are done.")
        job = _Job(id=self._ids.new(), mind=mind, first=low, last=high)
        async with self._db.transaction() as tx:
            if key is not None:
                answer = {"replay": str(job.id)}
                wanted = idempotency_of(f"replays {mind.id} {actor}", key, [first, last], answer)
                answered = await self._events.claim(tx, wanted)
                if answered is not None:
                    return UUID(answered["replay"])
            await store.insert(
                tx.conn,
                job.id,
                mind.id,
                first=low,
                last=high,
                cycles=max(0, high - low + 1),
                actor=actor,
                at=tx.now,
            )
        await self._jobs.put(job)
        return job.id

    async def get(self, id_: UUID) -> Replay:
        """Return how far the replay is, or what it found; raise NotFound where there is none."""
        async with self._db.reading() as tx:
            found = await store.replays(tx.conn, id_=id_, limit=1)
        if not found:
            raise NotFound("replay", id_)
        return found[0]

    async def list_(self, *, mind: str | None = None, limit: int = 50) -> list[Replay]:
        """Return the replays, of one mind where its slug is given, newest first."""
        async with self._db.reading() as tx:
            return await store.replays(tx.conn, mind=mind, limit=limit)

    async def _mark_abandoned(self) -> None:
        while True:
            try:
                async with self._db.transaction() as tx:
                    await store.fail_all_running(
                        tx.conn, "The daemon stopped before it was done; start it again.", tx.now
                    )
            except Unavailable as exc:
                log.warning("replays_wait", reason=str(exc))
                await self._clock.sleep(_RETRY_S)
            else:
                return

    async def _work(self) -> None:
        while True:
            job = await self._jobs.get()
            try:
                await self._verify(job)
            except NoemaError as exc:
                await self._fail(job, str(exc))
            except Exception:
                # A bug in one replay must not end the daemon; the log tells where it is.
                log.exception("replay_failed", replay=str(job.id), mind=job.mind.slug)
                await self._fail(job, "An internal error; the daemon's log tells where.")

    async def _verify(self, job: _Job) -> None:
        async def progress(verified: int) -> None:
            async with self._db.transaction() as tx:
                await store.progress(tx.conn, job.id, verified)

        report = await verify(
            self._db,
            self._events,
            job.mind,
            await load_modes(self._db),
            self._processes,
            first=job.first,
            last=job.last,
            progress=progress,
        )
        async with self._db.transaction() as tx:
            await store.finish(tx.conn, job.id, report, tx.now)

    async def _fail(self, job: _Job, error: str) -> None:
        try:
            async with self._db.transaction() as tx:
                await store.fail(tx.conn, job.id, error, tx.now)
        except Unavailable:
            log.warning("replay_failure_not_noted", replay=str(job.id))

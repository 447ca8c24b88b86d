"""The kernel put together, with what works for it in the background.

kernel ──▶ rows of reads, accesses ──▶ flushed twice a second, and last of all on a clean stop
workers: tickets · conflicts · decay · embedding of what has no vector · upkeep of the index
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import structlog

from noema.core.clock import Clock, Ids
from noema.core.errors import NoemaError
from noema.core.identity import Identity
from noema.db.pgvector import Vectors
from noema.db.tx import Database
from noema.events.audit import Audit, AuditBuffer
from noema.events.log import EventLog
from noema.llm.asker import Asker
from noema.llm.model import Embedder
from noema.memory.classify import Classifier, Rules
from noema.memory.conflicts import ConflictCheck, Conflicts, Review
from noema.memory.decay import Decay
from noema.memory.drivers import DRIVERS
from noema.memory.embedding import Destination, Embeddings
from noema.memory.entities import Entities
from noema.memory.explain import Explainer
from noema.memory.graph import Graphs
from noema.memory.judge import ConflictJudge, PlainJudge
from noema.memory.kernel import Accepts, Kernel, Parts, Searches, Writes
from noema.memory.limits import Limits
from noema.memory.lineage import Lineage
from noema.memory.management import Tools
from noema.memory.model import Ticket, Write, WriteResult
from noema.memory.model_extract import ModelExtractors
from noema.memory.model_judge import ModelJudge
from noema.memory.pins import Pins
from noema.memory.policy import Policies
from noema.memory.prologue import IsActive, Prologue, TenantGate
from noema.memory.reading import Reader
from noema.memory.relationships import Relationships
from noema.memory.retrieve import Retriever
from noema.memory.scope import Scopes
from noema.memory.shares import Shares
from noema.memory.stats import Figures
from noema.memory.telemetry import Telemetry
from noema.memory.tickets import Tickets
from noema.memory.timings import Timings
from noema.memory.work import Work
from noema.memory.write import WritePath

log = structlog.get_logger()

AGAIN_AFTER_S: Final = 5.0
"""How long a worker that failed rests, in seconds."""


class Worker(Protocol):
    """What runs beside the kernel until it is cancelled."""

    async def run(self) -> None: ...


class MemoryService:
    """A kernel, and what has to run for it."""

    def __init__(
        self,
        *,
        kernel: Kernel,
        buffer: AuditBuffer,
        telemetry: Telemetry,
        workers: Sequence[Worker] = (),
    ) -> None:
        self.kernel = kernel
        self._buffer = buffer
        self._telemetry = telemetry
        self._workers: tuple[Worker, ...] = (buffer, telemetry, *workers)

    async def run(self) -> None:
        """Run every worker until cancelled."""
        async with asyncio.TaskGroup() as group:
            for worker in self._workers:
                group.create_task(_kept_running(worker), name=type(worker).__name__)

    async def flush(self) -> None:
        """Write what reads have left behind; raises Unavailable where the database is away."""
        await self._buffer.flush()
        await self._telemetry.flush()

    async def stop(self) -> None:
        """Flush for the last time; what cannot be written is lost, and the log says so."""
        try:
            await self.flush()
        except (NoemaError, TimeoutError) as exc:
            log.warning("audit_rows_lost", rows=len(self._buffer), reason=str(exc))


async def _kept_running(worker: Worker) -> None:
    """Run the worker, and again where it ends by an error that nobody foresaw.

    A fault in what works in the background must not take down what people and minds rest on.
    """
    while True:
        try:
            await worker.run()
        except Exception:
            log.exception("memory_worker_failed", worker=type(worker).__name__)
        else:
            return
        await asyncio.sleep(AGAIN_AFTER_S)


def make_kernel(
    *,
    db: Database,
    clock: Clock,
    ids: Ids,
    audit: Audit,
    buffer: AuditBuffer,
    telemetry: Telemetry,
    is_active: IsActive,
    retriever: Searches,
    writes: Writes,
    tickets: Accepts,
    policies: Policies,
    tools: Tools,
    embedder: Embedder | None,
) -> Kernel:
    """Return a kernel over the database; what it calls is given."""
    work = Work(db=db, audit=audit)
    scopes = Scopes(db=db, clock=clock)
    timings = Timings()
    prologue = Prologue(
        clock=clock,
        audit=audit,
        buffer=buffer,
        policies=policies,
        tenants=TenantGate(is_active, clock),
        limits=Limits(clock),
        scopes=scopes,
        timings=timings,
    )
    return Kernel(
        Parts(
            prologue=prologue,
            scopes=scopes,
            reader=Reader(db=db),
            retriever=retriever,
            writes=writes,
            tickets=tickets,
            policies=policies,
            pins=Pins(db=db, ids=ids, work=work),
            shares=Shares(db=db, events=EventLog(db=db), ids=ids, work=work, scopes=scopes),
            explainer=Explainer(db=db),
            figures=Figures(db=db, embedder=embedder),
            telemetry=telemetry,
            timings=timings,
            tools=tools,
            embedder=embedder,
        )
    )


async def make_memory(
    *,
    db: Database,
    searching: Database,
    clock: Clock,
    ids: Ids,
    audit: Audit,
    is_active: IsActive,
    embedder: Embedder | None,
    destination: Destination = "local",
    vectors: Vectors,
    classifiers: Sequence[Classifier] = (Rules(),),
    asker: Asker | None = None,
    workers: Sequence[Worker] = (),
) -> MemoryService:
    """Return the whole of memory, with further `workers` to run beside its own.

    The sessions of `searching` have `noema.memory.retrieve.SESSION_SETTINGS`. `destination` is
    where the embedder is: what may not be sent to a provider is never shown to one. `asker` asks
    models, where some are set; without it memory gets on without any.
    """
    buffer = AuditBuffer(audit=audit, db=db, clock=clock)
    telemetry = Telemetry(db=db)
    work = Work(db=db, audit=audit)
    policies = Policies(db=db, clock=clock, work=work, drivers=DRIVERS)

    async def perform(who: Identity, request: Write, key: str) -> WriteResult:
        done = await kernel.mem_write(who, request, key=key)
        if isinstance(done, Ticket):
            raise TypeError("a ticket cannot be done by another ticket")
        return done

    async def review_of(namespace: str) -> Review:
        return (await policies.effective(namespace)).conflict_review

    embeddings = Embeddings(db=db, embedder=embedder, destination=destination, clock=clock)
    await embeddings.start()
    asked = None if embedder is None else embeddings
    is_outside = destination == "provider"
    tickets = Tickets(db=db, audit=audit, ids=ids, clock=clock, perform=perform)
    kernel = make_kernel(
        db=db,
        clock=clock,
        ids=ids,
        audit=audit,
        buffer=buffer,
        telemetry=telemetry,
        is_active=is_active,
        retriever=Retriever(db=searching, vectors=vectors, clock=clock, embeds_outside=is_outside),
        writes=WritePath(
            db=db,
            audit=audit,
            ids=ids,
            clock=clock,
            embedder=asked,
            embeds_outside=is_outside,
            classifiers=classifiers,
            extractor_of=None if asker is None else ModelExtractors(asker, clock=clock),
        ),
        tickets=tickets,
        policies=policies,
        tools=Tools(
            lineage=Lineage(ids=ids, work=work, audit=audit),
            conflicts=Conflicts(db=db, ids=ids, work=work),
            entities=Entities(db=db, ids=ids, work=work),
            relationships=Relationships(ids=ids, work=work),
            graphs=Graphs(db=db),
        ),
        embedder=asked,
    )
    judge: ConflictJudge = PlainJudge() if asker is None else ModelJudge(asker, clock=clock)
    checks = ConflictCheck(
        db=db, clock=clock, ids=ids, audit=audit, judge=judge, review_of=review_of
    )
    decay = Decay(db=db, clock=clock)
    return MemoryService(
        kernel=kernel,
        buffer=buffer,
        telemetry=telemetry,
        workers=(tickets, checks, decay, embeddings, *workers),
    )

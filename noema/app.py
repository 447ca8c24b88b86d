"""The composition root: the one place that knows which class stands behind which Protocol.

    open_database ─▶ migrate ─▶ Database, Writer, Listener ─▶ EventLog, Feed ─▶ Minds, Runner
                                          └─▶ Audit ─▶ MemoryService ─▶ Kernel

The order of the exit stack is the order of stopping, backwards: streams end, minds finish the cycle
they are in and give their leases back, the writer commits what waits, what reads left behind is
written, the database stops last.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog

from noema import __version__
from noema.auth.access import Access
from noema.auth.revocations import CHANNEL as ACCESS_CHANNEL
from noema.cognition.completing import MindModel
from noema.cognition.cycle import Thinker
from noema.cognition.executive import Executive
from noema.cognition.minds import Minds
from noema.cognition.processes import ALL
from noema.cognition.remembering import MindMemory, Remembering
from noema.cognition.runner import LEASE_S, Checkpoint, Runner, no_checkpoint
from noema.config import Settings
from noema.core.clock import Clock, Ids
from noema.core.errors import NoemaError
from noema.db import migrate, pgvector, protection
from noema.db.embedded import EmbeddedPostgres
from noema.db.keys import Keys
from noema.db.listen import Listener
from noema.db.protection import Protection
from noema.db.tx import Database, connect, single
from noema.events.feed import Consumers, Feed
from noema.events.log import EventLog
from noema.events.model import new_event
from noema.events.unit import Unit
from noema.events.writer import Writer
from noema.llm.asker import Asker
from noema.llm.desk import Llm
from noema.llm.embedders.make import aclose
from noema.llm.wiring import make_llm
from noema.memory import presidio
from noema.memory.ann import AnnKeeper
from noema.memory.classify import Classifier, Rules, may_leave_by
from noema.memory.kernel import Kernel
from noema.memory.retrieve import SESSION_SETTINGS
from noema.memory.service import MemoryService, make_memory
from noema.replay.service import Replays
from noema.web.store import Pages

log = structlog.get_logger()

CHANNEL: Final = "noema_events"
_POOL: Final = 10
_THINKING_POOL: Final = 4
_SEARCHING_POOL: Final = 8
_HOUSEKEEPING_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dsns:
    """How to reach the database: as its owner for migrations, as the application for the rest."""

    owner: str = field(repr=False)
    app: str = field(repr=False)
    is_embedded: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Noema:
    """Everything that is alive while the daemon runs."""

    settings: Settings
    dsns: Dsns
    protection: Protection
    clock: Clock
    ids: Ids
    db: Database
    events: EventLog
    writer: Writer
    feed: Feed
    consumers: Consumers
    minds: Minds
    runner: Runner
    replays: Replays
    access: Access
    pages: Pages
    llm: Llm
    memories: MemoryService
    health: "Health"

    @property
    def is_embedded(self) -> bool:
        """Whether the database is the one Noema brings."""
        return self.dsns.is_embedded

    @property
    def memory(self) -> Kernel:
        """The one door to knowledge."""
        return self.memories.kernel


class Health:
    """What the process itself measures. Lag is how late the event loop ran, in seconds."""

    def __init__(self) -> None:
        self.loop_lag_s = 0.0
        self.worst_loop_lag_s = 0.0

    async def run(self) -> None:
        """Measure twice a second, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            asked = loop.time()
            await asyncio.sleep(0.5)
            self.loop_lag_s = max(0.0, loop.time() - asked - 0.5)
            self.worst_loop_lag_s = max(self.worst_loop_lag_s * 0.99, self.loop_lag_s)


@asynccontextmanager
async def open_database(settings: Settings, clock: Clock) -> AsyncIterator[Dsns]:
    """Yield the way to the configured server, or to the embedded one, which stops afterwards."""
    if settings.database_url is not None:
        yield Dsns(
            owner=settings.owner_database_url or settings.database_url,
            app=settings.database_url,
            is_embedded=False,
        )
        return
    server = EmbeddedPostgres(settings.data_dir, clock)
    try:
        cluster = await server.start()
        yield Dsns(
            owner=cluster.owner_dsn,
            app=cluster.app_dsn,
            is_embedded=True,
            notes=cluster.notes,
        )
    finally:
        await server.stop()


@asynccontextmanager
async def build(
    settings: Settings,
    dsns: Dsns,
    *,
    clock: Clock,
    ids: Ids,
    lease_s: float = LEASE_S,
    checkpoint: Checkpoint = no_checkpoint,
) -> AsyncIterator[Noema]:
    """Bring the schema up to date and yield the running whole; stop it in good order afterwards."""
    await migrate.up(dsns.owner)
    vectors = await pgvector.prepare(dsns.owner)
    role = await protection.choose_role(dsns.app)
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(
            connect(dsns.app, clock=clock, min_size=2, max_size=_POOL, role=role)
        )
        # Minds read over connections of their own, so that slow pages cannot hold them up.
        thinking = await stack.enter_async_context(
            connect(dsns.app, clock=clock, min_size=1, max_size=_THINKING_POOL, role=role)
        )
        # Searches have sessions of their own, in which every statement is planned anew.
        searching = await stack.enter_async_context(
            connect(
                dsns.app,
                clock=clock,
                min_size=1,
                max_size=_SEARCHING_POOL,
                role=role,
                settings=SESSION_SETTINGS,
            )
        )
        async with db.reading() as tx:
            protected = await protection.inspect(tx)
        await keys_of(settings, db).check()
        events = EventLog(db=db)
        observed = EventLog(db=thinking)
        writer = Writer(connect=lambda: single(dsns.app, role), clock=clock)
        access = make_access(settings, db, clock=clock, ids=ids)
        stack.callback(access.close)
        llm = make_llm(
            db=db,
            connect=lambda: single(dsns.app, role),
            audit=access.audit,
            keys=keys_of(settings, db),
            clock=clock,
            ids=ids,
        )
        await llm.start()
        stack.push_async_callback(llm.aclose)
        asker = Asker(model=llm.service, prompts=llm.library, chosen=llm.registry.chosen)
        embedder = await llm.embedding.made(settings.embedder)
        stack.push_async_callback(aclose, embedder)
        classifiers = _classifiers(stack)
        memories = await make_memory(
            db=db,
            searching=searching,
            clock=clock,
            ids=ids,
            audit=access.audit,
            is_active=access.tenants.is_active,
            embedder=embedder,
            destination=llm.embedding.in_force.destination,
            vectors=vectors,
            classifiers=classifiers,
            asker=asker,
            workers=(AnnKeeper(dsns.owner, vectors=vectors, clock=clock),),
        )
        memory = MindMemory(memories.kernel)
        runner = Runner(
            db=thinking,
            events=observed,
            writer=writer,
            thinker=Thinker(
                processes=ALL,
                events=observed,
                clock=clock,
                ids=ids,
                memory=memory,
                models=MindModel(asker, may_leave=may_leave_by(classifiers)),
            ),
            executive=Executive(
                db=thinking, writer=writer, clock=clock, ids=ids, does_remember=True
            ),
            clock=clock,
            owner=ids.new(),
            lease_s=lease_s,
            checkpoint=checkpoint,
            remembering=Remembering(
                db=thinking,
                events=observed,
                writer=writer,
                memory=memory,
                clock=clock,
                ids=ids,
                checkpoint=checkpoint,
            ),
        )
        listener = Listener(
            lambda: single(dsns.app, role), CHANNEL, clock=clock, on_payload=runner.wake
        )
        feed = Feed(log=events, listener=listener)
        replays = Replays(db=db, events=events, processes=ALL, clock=clock, ids=ids)
        health = Health()
        revoked = Listener(
            lambda: single(dsns.app, role),
            ACCESS_CHANNEL,
            clock=clock,
            on_payload=access.revocations.told,
        )
        minds = Minds(db=db, events=events, writer=writer, clock=clock, ids=ids)
        noema = Noema(
            settings=settings,
            dsns=dsns,
            protection=protected,
            clock=clock,
            ids=ids,
            db=db,
            events=events,
            writer=writer,
            feed=feed,
            consumers=Consumers(db=db, log=events),
            minds=minds,
            runner=runner,
            replays=replays,
            access=access,
            pages=Pages(db=db),
            llm=llm,
            memories=memories,
            health=health,
        )
        async with _tasks(noema, listener, revoked):
            await _announce(noema)
            yield noema


def keys_of(settings: Settings, db: Database) -> Keys:
    """Return the key of this installation, loaded when it is first needed."""
    return Keys(db=db, key=settings.secret_key, data_dir=settings.data_dir)


def _classifiers(stack: AsyncExitStack) -> list[Classifier]:
    """Return what labels memories: the rules, and Presidio where its extra is installed."""
    classifiers: list[Classifier] = [Rules()]
    if presidio.is_installed():
        asked = presidio.Presidio()
        stack.push_async_callback(asked.aclose)
        classifiers.append(asked)
    return classifiers


def make_access(settings: Settings, db: Database, *, clock: Clock, ids: Ids) -> Access:
    """Return who may come in, as these settings have it; close it afterwards."""
    return Access(db=db, clock=clock, ids=ids, keys=keys_of(settings, db))


@asynccontextmanager
async def _tasks(noema: Noema, listener: Listener, revoked: Listener) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as writing:
        writing.create_task(noema.writer.run(), name="writer")
        writing.create_task(noema.llm.run(), name="calls")
        try:
            async with asyncio.TaskGroup() as working:
                endless = [
                    working.create_task(listener.run(), name="listener"),
                    working.create_task(revoked.run(), name="revocations"),
                    working.create_task(noema.health.run(), name="health"),
                    working.create_task(noema.replays.run(), name="replays"),
                    working.create_task(noema.feed.run(), name="feed"),
                    working.create_task(_housekeeping(noema), name="housekeeping"),
                    working.create_task(noema.memories.run(), name="memory"),
                ]
                working.create_task(noema.runner.run(), name="runner")
                try:
                    yield
                finally:
                    noema.feed.close()
                    noema.runner.stop()
                    for task in endless:
                        task.cancel()
        finally:
            noema.writer.stop()
            noema.llm.stop()
            await noema.memories.stop()


async def _announce(noema: Noema) -> None:
    event = new_event(
        noema.ids,
        type="daemon.started",
        occurred_at=noema.clock.now(),
        actor="daemon",
        data={"version": __version__, "protection": noema.protection.kind},
    )
    await noema.writer.submit(Unit(events=(event,)))


async def _housekeeping(noema: Noema) -> None:
    while True:
        try:
            await noema.events.prune_keys(noema.clock.now())
            await noema.access.prune(noema.clock.now())
        except NoemaError as exc:
            log.warning("housekeeping_failed", reason=str(exc))
        await asyncio.sleep(_HOUSEKEEPING_S)

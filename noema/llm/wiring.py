"""How the parts of the model service are put together.

llm = make_llm(db=…, connect=…, audit=…, keys=…, clock=…, ids=…)
await llm.start()
async with TaskGroup: llm.run()      stopped by llm.stop(), after whoever still asks
await llm.aclose()
"""

from secrets import SystemRandom

from noema.core.clock import Clock, Ids
from noema.db.keys import Keys
from noema.db.tx import Database
from noema.events.audit import Audit
from noema.llm.breakers import Breakers
from noema.llm.budget import Budgets
from noema.llm.calls import Calls
from noema.llm.desk import Llm
from noema.llm.embedders.choice import Choice
from noema.llm.library import Library
from noema.llm.meter import Meter
from noema.llm.providers.make import make_provider
from noema.llm.recorder import Connect, Recorder
from noema.llm.registry import Registry
from noema.llm.retry import Chance
from noema.llm.service import LanguageService
from noema.llm.trial import Trial


def make_llm(
    *,
    db: Database,
    connect: Connect,
    audit: Audit,
    keys: Keys,
    clock: Clock,
    ids: Ids,
    chance: Chance | None = None,
) -> Llm:
    """Return the model service; `connect` opens the recorder's own connection.

    `chance` spreads retries.
    """
    registry = Registry(db=db, audit=audit, keys=keys, clock=clock, ids=ids)
    recorder = Recorder(connect=connect, clock=clock, daemon=ids.new())
    breakers = Breakers(clock)
    meter = Meter(resting=lambda: breakers.resting)
    service = LanguageService(
        recorder=recorder,
        chain_of=registry.chain_of,
        provider_of=registry.provider_of,
        breaker_of=breakers.of,
        clock=clock,
        ids=ids,
        chance=chance or SystemRandom(),
        on_end=meter.ended,
    )
    return Llm(
        registry=registry,
        library=Library(db=db, audit=audit, clock=clock),
        budgets=Budgets(db=db, audit=audit, ids=ids),
        calls=Calls(db=db),
        trial=Trial(
            registry=registry,
            recorder=recorder,
            audit=audit,
            clock=clock,
            ids=ids,
            make=make_provider,
        ),
        service=service,
        recorder=recorder,
        meter=meter,
        breakers=breakers,
        embedding=Choice(registry=registry, clock=clock),
    )

"""Events appended in batches of fifty, against the bare INSERT of the same columns."""

from time import perf_counter
from typing import Final

from noema.core.clock import SystemClock, UuidV7Ids
from noema.events.log import EventLog
from noema.events.model import NewEvent, new_event
from tests.bench import bare
from tests.bench.measure import Figure, compared, side_by_side
from tests.bench.place import Server

BATCH: Final = 50


def _batch(ids: UuidV7Ids) -> list[NewEvent]:
    now = SystemClock().now()
    mind = ids.new()
    return [
        new_event(
            ids,
            type="stimulus.received",
            occurred_at=now,
            actor="bench",
            mind_id=mind,
            data={"kind": "line", "urgency": 0},
            content={
                "text": f"Failed password for invalid user admin{number} from 10.0.0.{number}"
            },
        )
        for number in range(BATCH)
    ]


async def append_batch_50(server: Server, *, quick: bool) -> list[Figure]:
    """Measure `EventLog.append`, one transaction for each batch."""
    seconds = 0.7 if quick else 1.5
    ids = UuidV7Ids(SystemClock())
    async with server.database() as place:
        await bare.prepare(place)
        async with place.open(size=2) as db:
            log = EventLog(db=db)

            async def ours() -> float:
                rows, spent = 0, 0.0
                while spent < seconds:
                    batch = _batch(ids)
                    started = perf_counter()
                    async with db.transaction() as tx:
                        await log.append(tx, batch)
                    spent += perf_counter() - started
                    rows += BATCH
                return rows / spent

            async def limit() -> float:
                rows, spent = 0, 0.0
                while spent < seconds:
                    batch = _batch(ids)
                    started = perf_counter()
                    async with db.transaction() as tx:
                        arrays = bare.columns(batch).arrays
                        await tx.conn.execute(bare.INSERT_EVENTS, *arrays)
                    spent += perf_counter() - started
                    rows += BATCH
                return rows / spent

            mine, theirs = await side_by_side(ours, limit, rounds=5 if quick else 11)
    return [compared("append_batch_50", mine, theirs, unit="events/s", target=0.8)]

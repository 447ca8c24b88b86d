"""Decay of activation: how present a memory is, halved every two days, raised by every access.

Activation is in micro-units. A period lasts six hours, eight of them are the half-life, so after n
periods

    activation × 2^(-n/8)      computed as (activation × FACTORS[n mod 8]) >> 32 >> (n div 8)

in integers alone: the same on every machine, in Python and in SQL. A row remembers the period it
was last brought up to, so a run that was missed is made up for, a run that happens twice changes
nothing, and one that was killed goes on where it was. Each run rounds down and thus loses less than
a micro-unit. Nothing is deleted; what has decayed is merely less present in a search.
"""

from datetime import datetime
from math import isqrt
from typing import Final

import structlog

from noema.core.clock import Clock, to_micros
from noema.core.errors import InvalidInput, Unavailable
from noema.db.tx import Database
from noema.memory.model import MICRO
from noema.memory.store import decay as store

log = structlog.get_logger(__name__)

PERIOD_S: Final = 21_600
PERIODS_PER_HALF_LIFE: Final = 8
BATCH_ROWS: Final = 1_000
_SCALE_BITS: Final = 32
# After so many accesses less than a micro-unit is missing.
_MOST_COUNTED: Final = 64
_LONGEST_WAIT_S: Final = 60.0

# 2^(32 - k/8) is the eighth root of 2^(256 - k); a root of a root of a root, each rounded down, is
# the eighth root rounded down.
FACTORS: Final = tuple(
    isqrt(isqrt(isqrt(1 << (8 * _SCALE_BITS - k)))) for k in range(PERIODS_PER_HALF_LIFE)
)


def epoch_of(moment: datetime) -> int:
    """Return the period a moment lies in: whole six hours since 1970-01-01 UTC."""
    if moment.tzinfo is None:
        raise InvalidInput("The time has no time zone; add one, such as Z.")
    return to_micros(moment) // (PERIOD_S * 1_000_000)


def decayed(activation: int, periods: int) -> int:
    """Return what is left of an activation (micro-units) after whole periods; none where ≤ 0."""
    if periods <= 0:
        return activation
    halvings, rest = divmod(periods, PERIODS_PER_HALF_LIFE)
    return (activation * FACTORS[rest] >> _SCALE_BITS) >> min(halvings, 63)


def missing_after(times: int) -> int:
    """Return, × 2^32, the share of what activation lacks that is left after so many accesses.

    An access takes a quarter of it: (3/4)^n, rounded down.
    """
    return (3**times << _SCALE_BITS) >> (2 * times) if times <= _MOST_COUNTED else 0


def bumped(activation: int, times: int = 1) -> int:
    """Return the activation (micro-units) after so many accesses.

    Rows are to be brought up to the present period first; where that is left to the next run, the
    bump decays with the rest, which is less than it was worth and never more.
    """
    return MICRO - ((MICRO - activation) * missing_after(times) >> _SCALE_BITS)


class Decay:
    """Brings every activation up to the present period, in batches by id.

    A batch is one statement of at most `BATCH_ROWS` rows that touches no indexed column, so that
    PostgreSQL updates in place (HOT). Rows that somebody else holds are left to the next run.
    """

    def __init__(self, *, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def run(self) -> None:
        """Decay now and after every turn of a period, for ever; wait where the database is away."""
        done: int | None = None
        while True:
            now = self._clock.now()
            if epoch_of(now) != done:
                try:
                    await self.once(now)
                    done = epoch_of(now)
                except (Unavailable, TimeoutError) as exc:
                    log.warning("decay_waits", reason=str(exc))
            # In short sleeps, for a clock that jumps and a machine that sleeps.
            await self._clock.sleep(_LONGEST_WAIT_S)

    async def once(self, now: datetime | None = None) -> int:
        """Bring every row up to the period of `now`; return how many changed."""
        epoch = epoch_of(now or self._clock.now())
        changed, after = 0, store.FIRST
        while True:
            async with self._db.transaction() as tx:
                upto = await store.batch_end(tx.conn, after, rows=BATCH_ROWS)
                if upto is None:
                    return changed
                changed += await store.decay(tx.conn, after, upto, epoch=epoch, factors=FACTORS)
            after = upto

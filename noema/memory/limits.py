"""How often one key may call: a token bucket for its reads and one for its writes."""

from collections import OrderedDict
from math import ceil
from typing import Final

from noema.core.clock import Clock
from noema.core.errors import RateLimited
from noema.core.identity import Identity

_MINUTE_S: Final = 60.0
_MOST: Final = 20_000


class Limits:
    """Buckets in memory, of this process; those not used for longest make room.

    A bucket holds a minute's calls, so that a policy of 60 a minute lets 60 at once and then one a
    second. A token is an actor of its own, and therefore has buckets of its own.
    """

    def __init__(self, clock: Clock, *, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[tuple[str, str, bool], tuple[float, float]] = OrderedDict()

    def take(self, who: Identity, *, writes: bool, per_minute: int) -> None:
        """Take one call, or raise RateLimited that says when the next one is due."""
        key = (who.namespace, who.actor, writes)
        now = self._clock.monotonic()
        left, at = self._buckets.pop(key, (float(per_minute), now))
        left = min(float(per_minute), left + (now - at) * per_minute / _MINUTE_S)
        is_allowed = left >= 1
        self._buckets[key] = (left - 1 if is_allowed else left, now)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        if not is_allowed:
            wait_s = max(1, ceil((1 - left) * _MINUTE_S / per_minute))
            raise RateLimited(
                f"At most {per_minute:,} {'writes' if writes else 'reads'} a minute here; "
                f"try again in {wait_s} s.",
                retry_after_s=wait_s,
            )

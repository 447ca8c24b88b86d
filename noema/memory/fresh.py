"""What was looked up less than a second ago, and is looked up again after that."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from noema.core.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

FRESH_S: Final = 1.0
_MOST: Final = 20_000


class Fresh(Generic[K, V]):
    """Answers by key, each for a second; what is forgotten in this process is asked for at once.

    Rules are changed by other processes too. They are heard of within `FRESH_S` seconds, and an
    answer that cannot be had is an error: nothing older is ever used instead.
    """

    def __init__(self, clock: Clock, *, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        self._found: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._changes = 0

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """Return the answer, from `load` where there is no fresh one."""
        asked_at = self._clock.monotonic()
        known = self._found.get(key)
        if known is not None and asked_at - known[0] < FRESH_S:
            return known[1]
        changes = self._changes
        value = await load()
        # What was asked for before a change may be the answer of before it.
        if changes == self._changes:
            self._found[key] = (asked_at, value)
            self._found.move_to_end(key)
            while len(self._found) > self._most:
                self._found.popitem(last=False)
        return value

    def forget(self) -> None:
        """Forget everything, because something was changed here."""
        self._changes += 1
        self._found.clear()

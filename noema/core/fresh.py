"""What was looked up a moment ago, and is looked up again after that."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from noema.core.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

FRESH_S: Final = 1.0
_MOST: Final = 20_000


class Fresh(Generic[K, V]):
    """Answers by key, each for `for_s` seconds; what is forgotten here is asked for at once.

    What is kept is changed by other processes too, which is heard of within that time. An answer
    that cannot be had is an error: nothing older is ever used instead. Of those who want the same
    at once one asks, and the others wait.
    """

    def __init__(self, clock: Clock, *, for_s: float = FRESH_S, most: int = _MOST) -> None:
        self._clock = clock
        self._for_s = for_s
        self._most = most
        # Each is there for as long as somebody holds it or waits for it.
        self._asking: WeakValueDictionary[K, asyncio.Lock] = WeakValueDictionary()
        self._found: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._changes = 0

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """Return the answer, from `load` where there is no fresh one."""
        known = self._known(key)
        if known is not None:
            return known[1]
        async with self._asking.setdefault(key, asyncio.Lock()):
            known = self._known(key)
            if known is not None:
                return known[1]
            changes, asked_at = self._changes, self._clock.monotonic()
            value = await load()
            # What was asked for before a change may be the answer of before it.
            if changes == self._changes:
                self._found[key] = (asked_at, value)
                self._found.move_to_end(key)
                while len(self._found) > self._most:
                    self._found.popitem(last=False)
            return value

    def _known(self, key: K) -> tuple[float, V] | None:
        known = self._found.get(key)
        if known is None or self._clock.monotonic() - known[0] >= self._for_s:
            return None
        return known

    def forget(self) -> None:
        """Forget everything, because something was changed here."""
        self._changes += 1
        self._found.clear()

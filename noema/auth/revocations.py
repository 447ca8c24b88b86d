"""Word of ended sessions and tokens, so that what they hold open ends within a second.

A notification carries the id of the user or token concerned and decides nothing: whoever hears it
looks again. `*` tells everybody to look, after a connection was lost and when a tenant changes.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from noema.auth.store import doors

CHANNEL: Final = doors.CHANNEL
EVERYBODY: Final = "*"


class Watch:
    """One waiter's ear: set by every notification that concerns it."""

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard = asyncio.Event()

    def tell(self) -> None:
        """Wake the waiter."""
        self._heard.set()

    async def heard(self, timeout_s: float) -> bool:
        """Return True at the next notification (at once if it came before), False on time-out."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._heard.wait()
        except TimeoutError:
            return False
        self._heard.clear()
        return True


class Revocations:
    """Passes notifications on to who waits for them in this process."""

    def __init__(self) -> None:
        self._watches: dict[str, set[Watch]] = {}

    def told(self, key: str) -> None:
        """Wake those who watch this id, or everybody; a Listener calls it with each payload."""
        if key == EVERYBODY:
            for watch in {w for watches in self._watches.values() for w in watches}:
                watch.tell()
            return
        for watch in tuple(self._watches.get(key, ())):
            watch.tell()

    @contextmanager
    def watching(self, *keys: object) -> Iterator[Watch]:
        """Yield an ear for these ids. Look after it is there, then wait, then look again."""
        watch = Watch()
        names = [str(key) for key in keys if key is not None]
        for name in names:
            self._watches.setdefault(name, set()).add(watch)
        try:
            yield watch
        finally:
            for name in names:
                watches = self._watches[name]
                watches.discard(watch)
                if not watches:
                    del self._watches[name]

    def __len__(self) -> int:
        return len(self._watches)

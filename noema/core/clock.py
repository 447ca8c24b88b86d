"""Time, identity and chance as arguments, so that a test or a replay can choose them."""

import asyncio
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CHANCE_BITS = 74
_SALT_BYTES = 16
_SALTS_AT_ONCE = 64


def to_micros(moment: datetime) -> int:
    """Return the moment as whole microseconds since 1970-01-01 UTC; exact, no float involved."""
    return (moment - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the UTC moment that many microseconds after 1970-01-01."""
    return EPOCH + timedelta(microseconds=micros)


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> datetime:
        """Return the wall-clock time, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never jumps; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that moves when it is told to, or when somebody sleeps on it."""

    def __init__(self, start: datetime) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as an administrator or a bad NTP server does."""
        self._now += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


class Ids(Protocol):
    """The only source of new ids and of salts."""

    def new(self) -> UUID: ...

    def salt(self) -> bytes:
        """Return 16 bytes nobody can guess."""
        ...


class UuidV7Ids:
    """Time-ordered ids (RFC 9562, version 7); strictly increasing within one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._millis = 0
        self._chance = 0
        self._salts: list[bytes] = []

    def new(self) -> UUID:
        millis = to_micros(self._clock.now()) // 1000
        if millis > self._millis:
            self._millis, self._chance = millis, secrets.randbits(_CHANCE_BITS)
        else:
            # The same millisecond, or a clock that went back: count on, so that order within the
            # process still tells what came first.
            self._chance += 1
            if self._chance >> _CHANCE_BITS:
                self._millis, self._chance = self._millis + 1, 0
        high, low = divmod(self._chance, 1 << 62)
        return UUID(int=self._millis << 80 | 7 << 76 | high << 64 | 0b10 << 62 | low)

    def salt(self) -> bytes:
        if not self._salts:
            # A cycle takes fifty; asking the kernel for each would be most of their cost.
            drawn = secrets.token_bytes(_SALT_BYTES * _SALTS_AT_ONCE)
            self._salts = [
                drawn[start : start + _SALT_BYTES] for start in range(0, len(drawn), _SALT_BYTES)
            ]
        return self._salts.pop()


class SequentialIds:
    """Ids 1, 2, 3 and salts to match: a test can name them before they exist."""

    def __init__(self, start: int = 1) -> None:
        self._numbers: Iterator[int] = iter(range(start, 1 << 64))

    def new(self) -> UUID:
        return UUID(int=next(self._numbers))

    def salt(self) -> bytes:
        return next(self._numbers).to_bytes(16, "big")

"""What several tests need: bounded waiting, and DSNs for a database by name."""

import asyncio
import inspect
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar, overload
from urllib.parse import urlsplit, urlunsplit

T = TypeVar("T")


@overload
async def eventually(
    probe: Callable[[], Awaitable[T | None]], *, within_s: float = ..., every_s: float = ...
) -> T: ...


@overload
async def eventually(
    probe: Callable[[], T | None], *, within_s: float = ..., every_s: float = ...
) -> T: ...


async def eventually(
    probe: Callable[[], Any], *, within_s: float = 20.0, every_s: float = 0.01
) -> Any:
    """Return the probe's first true answer; fail with its last one when time is up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        answer = probe()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        assert loop.time() < deadline, f"still {value!r} after {within_s} s"
        await asyncio.sleep(every_s)


@contextmanager
def not_for_ever(seconds: float = 60.0) -> Iterator[None]:
    """Fail what has not ended by then, even in the midst of a regular expression.

    No measure of speed: for work that takes a moment where it is linear, and hours where it is not.
    """

    def give_up(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"it has not ended after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def with_database(dsn: str, name: str) -> str:
    """Return the DSN with another database in it."""
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))

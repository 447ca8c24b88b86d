"""What several tests need: bounded waiting, and DSNs for a database by name."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
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


def with_database(dsn: str, name: str) -> str:
    """Return the DSN with another database in it."""
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))

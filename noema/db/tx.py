"""The way to the database: a pool, transactions with one fixed time, dedicated connections."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

import asyncpg
import msgspec

from noema.core.clock import Clock
from noema.core.errors import DatabaseTooOld, Unavailable

Conn: TypeAlias = (
    "asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
)

OLDEST_SERVER: Final = 15
ACQUIRE_TIMEOUT_S: Final = 10.0
_CONNECT_TIMEOUT_S: Final = 10.0
# A frozen server answers nothing and closes nothing; without a limit a page would wait for ever.
_COMMAND_TIMEOUT_S: Final = 60.0
_JSONB_VERSION: Final = b"\x01"

# What asyncpg raises when there is no server, no room, no such database or no such right.
_REFUSED: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    ValueError,
)
# The server ends the session with these; the socket may still look open when they arrive. Where it
# ended between two statements, the next one finds the protocol in mid-message: an internal error.
_ENDED: Final = (
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    ConnectionError,
)
# Any of these may come of saying goodbye to a connection that is broken already.
_BROKEN: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


@dataclass(frozen=True, slots=True)
class Tx:
    """An open transaction, and the one moment at which everything inside it happens."""

    conn: Conn
    now: datetime


class Database:
    """The pool; `connect` makes it."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", *, clock: Clock, place: str) -> None:
        self._pool = pool
        self._clock = clock
        self._place = place

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """Yield an open READ COMMITTED transaction; commit on leaving, roll back on an error.

        Raises Unavailable when no connection is free within 10 seconds, or the connection is lost.
        If it is lost on leaving, nobody knows whether the commit was kept: read again to find out.
        """
        async with self._acquired() as conn, conn.transaction():
            yield Tx(conn, self._clock.now())

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Tx]:
        """Yield a READ ONLY transaction in which every query sees the same state.

        Raises Unavailable as `transaction` does.
        """
        async with (
            self._acquired() as conn,
            conn.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield Tx(conn, self._clock.now())

    @asynccontextmanager
    async def statements(self) -> AsyncIterator[Tx]:
        """Yield a connection without a transaction: each statement sees what is committed by then.

        For reads that can bear that and are too many for the two extra round trips. Raises
        Unavailable as `transaction` does.
        """
        async with self._acquired() as conn:
            yield Tx(conn, self._clock.now())

    @asynccontextmanager
    async def _acquired(
        self,
    ) -> AsyncIterator["asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"]:
        with _refusal_is_unavailable(self._place):
            conn = await self._from_pool()
        try:
            with _loss_is_unavailable(conn, self._place):
                yield conn
        finally:
            await self._release(conn)

    async def _from_pool(self) -> "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]":
        try:
            return await self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S)
        except TimeoutError:
            raise Unavailable(
                f"No connection to PostgreSQL at {self._place} came free within "
                f"{ACQUIRE_TIMEOUT_S:.0f} s. Try again later."
            ) from None

    async def _release(self, conn: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]") -> None:
        try:
            await self._pool.release(conn, timeout=ACQUIRE_TIMEOUT_S)
        except _BROKEN:
            # The pool has already thrown the connection away; what the caller did is decided.
            return


@asynccontextmanager
async def connect(
    dsn: str,
    *,
    clock: Clock,
    min_size: int = 1,
    max_size: int = 10,
    role: str | None = None,
    settings: Mapping[str, str] | None = None,
    is_reset: bool = False,
) -> AsyncIterator[Database]:
    """Yield a Database on a pool that is closed afterwards.

    With `role`, every connection acts as that role from its first statement on; `settings` are the
    session's from the start. A connection goes back to the pool as it is, which saves a round trip:
    open transactions are rolled back, settings are local to them, and whoever listens or locks for
    longer has a connection of their own. With `is_reset` the server resets the session as well.
    Raises Unavailable when the server cannot be reached or refuses, DatabaseTooOld when it is older
    than 15.
    """
    place = place_of(dsn)
    with _refusal_is_unavailable(place):
        pool = await asyncpg.create_pool(
            dsn,
            min_size=min_size,
            max_size=max_size,
            init=_prepare,
            timeout=_CONNECT_TIMEOUT_S,
            command_timeout=_COMMAND_TIMEOUT_S,
            reset=None if is_reset else _leave,
            server_settings={**(settings or {}), **_session(role)},
        )
    try:
        yield Database(pool, clock=clock, place=place)
    finally:
        await _close_pool(pool)


@asynccontextmanager
async def single(
    dsn: str, role: str | None = None
) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Yield one dedicated connection, set up as the pooled ones are.

    Raises Unavailable when it cannot be made and when it is lost; it does not reconnect.
    """
    place = place_of(dsn)
    with _refusal_is_unavailable(place):
        conn: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
            dsn, timeout=_CONNECT_TIMEOUT_S, server_settings=_session(role)
        )
    try:
        with _refusal_is_unavailable(place):
            await _prepare(conn)
        with _loss_is_unavailable(conn, place):
            yield conn
    finally:
        await _close(conn)


def place_of(dsn: str) -> str:
    """Return host, port and database of a DSN for people to read, without its password."""
    try:
        parts = urlsplit(dsn)
        query = parse_qs(parts.query)
        host = parts.hostname or query.get("host", ["the local socket"])[-1]
        port = parts.port or query.get("port", ["5432"])[-1]
    except ValueError:
        return "an address that cannot be read"
    return f"{host}:{port}, database {parts.path.lstrip('/') or 'default'}"


def connection_lost(exc: BaseException, conn: Conn) -> bool:
    """Whether the error means that the connection is gone, rather than that a statement failed."""
    if isinstance(exc, _ENDED):
        return True
    return isinstance(exc, (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)) and _is_closed(
        conn
    )


def _is_closed(conn: Conn) -> bool:
    try:
        return conn.is_closed()
    except asyncpg.InterfaceError:
        # A pooled connection that broke has already been taken from us.
        return True


@contextmanager
def _loss_is_unavailable(conn: Conn, place: str) -> Iterator[None]:
    try:
        yield
    except Exception as exc:
        if not connection_lost(exc, conn):
            raise
        raise Unavailable(
            f"The connection to PostgreSQL at {place} was lost. Try again when it is back."
        ) from exc


@contextmanager
def _refusal_is_unavailable(place: str) -> Iterator[None]:
    try:
        yield
    except _REFUSED as exc:
        raise Unavailable(
            f"Cannot use PostgreSQL at {place}: {_reason(exc)}. Check DATABASE_URL and the server."
        ) from exc


def _reason(exc: Exception) -> str:
    if isinstance(exc, TimeoutError):
        return "no answer in time"
    if isinstance(exc, ValueError):
        # asyncpg quotes the parts of a DSN that it cannot read, and they may hold the password.
        return "its address cannot be read"
    return str(exc).strip().rstrip(".") or type(exc).__name__


def _session(role: str | None) -> dict[str, str]:
    settings = {"application_name": "noema", "timezone": "UTC"}
    if role is not None:
        settings["role"] = role
    return settings


async def _prepare(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    version = conn.get_server_version()
    if version.major < OLDEST_SERVER:
        raise DatabaseTooOld(
            f"The server runs PostgreSQL {version.major}; Noema needs {OLDEST_SERVER} or newer."
        )
    await conn.set_type_codec(
        "jsonb", schema="pg_catalog", format="binary", encoder=_to_jsonb, decoder=_from_jsonb
    )
    await conn.set_type_codec(
        "json",
        schema="pg_catalog",
        format="binary",
        encoder=msgspec.json.encode,
        decoder=msgspec.json.decode,
    )


async def _leave(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Reset nothing."""


def _to_jsonb(value: Any) -> bytes:
    return _JSONB_VERSION + msgspec.json.encode(value)


def _from_jsonb(data: bytes) -> Any:
    return msgspec.json.decode(data[1:])


async def _close_pool(pool: "asyncpg.Pool[asyncpg.Record]") -> None:
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            await pool.close()
    except _BROKEN:
        pool.terminate()


async def _close(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    try:
        await conn.close(timeout=_CONNECT_TIMEOUT_S)
    except _BROKEN:
        conn.terminate()

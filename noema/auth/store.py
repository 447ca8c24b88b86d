"""All SQL of access: tokens, one-time links, sessions. Only hashes are kept."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from noema.db.tx import Conn

_ADD = """
    INSERT INTO api_tokens (id, name, hash, hint, namespace, memory_role, console_role, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""

_BY_HASH = """
    SELECT id, name, namespace, memory_role, console_role, last_used_at FROM api_tokens
    WHERE hash = $1 AND revoked_at IS NULL
"""

_USED = "UPDATE api_tokens SET last_used_at = $2 WHERE id = $1"

_TOKENS = """
    SELECT id, name, hint, namespace, memory_role, console_role, created_at, last_used_at,
           revoked_at
    FROM api_tokens ORDER BY created_at LIMIT 500
"""

_COUNT_TOKENS = "SELECT count(*) FROM api_tokens WHERE revoked_at IS NULL"

_FIRST = """
    SELECT id FROM api_tokens WHERE revoked_at IS NULL AND console_role = 'administrator'
    ORDER BY created_at LIMIT 1
"""

_INSERT_LINK = "INSERT INTO login_links (hash, token_id, expires_at) VALUES ($1, $2, $3)"

_USE_LINK = """
    UPDATE login_links l SET used_at = $2 FROM api_tokens t
    WHERE l.hash = $1 AND l.used_at IS NULL AND l.expires_at > $2
      AND t.id = l.token_id AND t.revoked_at IS NULL
    RETURNING l.token_id
"""

_INSERT_SESSION = """
    INSERT INTO sessions (hash, token_id, csrf, created_at, seen_at, expires_at)
    VALUES ($1, $2, $3, $4, $4, $5)
"""

_SESSION = """
    SELECT s.hash, s.csrf, s.seen_at, t.id, t.name, t.namespace, t.memory_role, t.console_role
    FROM sessions s JOIN api_tokens t ON t.id = s.token_id
    WHERE s.hash = $1 AND s.expires_at > $2 AND s.seen_at > $3 AND t.revoked_at IS NULL
"""

_SEEN = "UPDATE sessions SET seen_at = $2 WHERE hash = $1"
_END_SESSION = "DELETE FROM sessions WHERE hash = $1"
_PRUNE_SESSIONS = "DELETE FROM sessions WHERE expires_at < $1 OR seen_at < $2"
_PRUNE_LINKS = "DELETE FROM login_links WHERE expires_at < $1"


async def insert_token(
    conn: Conn,
    *,
    id_: UUID,
    name: str,
    digest: bytes,
    hint: str,
    namespace: str,
    memory_role: str,
    console_role: str,
    at: datetime,
) -> None:
    await conn.execute(_ADD, id_, name, digest, hint, namespace, memory_role, console_role, at)


async def token(conn: Conn, digest: bytes) -> Mapping[str, Any] | None:
    row = await conn.fetchrow(_BY_HASH, digest)
    return None if row is None else dict(row)


async def token_used(conn: Conn, token_id: UUID, at: datetime) -> None:
    await conn.execute(_USED, token_id, at)


async def tokens(conn: Conn) -> list[dict[str, Any]]:
    return [dict(r) for r in await conn.fetch(_TOKENS)]


async def count_tokens(conn: Conn) -> int:
    return int(await conn.fetchval(_COUNT_TOKENS))


async def first_token(conn: Conn) -> UUID | None:
    found: UUID | None = await conn.fetchval(_FIRST)
    return found


async def insert_link(conn: Conn, digest: bytes, token_id: UUID, expires_at: datetime) -> None:
    await conn.execute(_INSERT_LINK, digest, token_id, expires_at)


async def use_link(conn: Conn, digest: bytes, at: datetime) -> UUID | None:
    token_id: UUID | None = await conn.fetchval(_USE_LINK, digest, at)
    return token_id


async def insert_session(
    conn: Conn, digest: bytes, token_id: UUID, *, csrf: str, at: datetime, expires_at: datetime
) -> None:
    await conn.execute(_INSERT_SESSION, digest, token_id, csrf, at, expires_at)


async def session(
    conn: Conn, digest: bytes, *, now: datetime, seen_after: datetime
) -> Mapping[str, Any] | None:
    row = await conn.fetchrow(_SESSION, digest, now, seen_after)
    return None if row is None else dict(row)


async def session_seen(conn: Conn, digest: bytes, at: datetime) -> None:
    await conn.execute(_SEEN, digest, at)


async def end_session(conn: Conn, digest: bytes) -> None:
    await conn.execute(_END_SESSION, digest)


async def prune(conn: Conn, *, now: datetime, seen_before: datetime) -> None:
    await conn.execute(_PRUNE_SESSIONS, now, seen_before)
    await conn.execute(_PRUNE_LINKS, now)

"""SQL of sessions, tokens, links, devices and failures."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg

from noema.core.errors import NotFound
from noema.db.tx import Conn

Row = Mapping[str, Any]

CHANNEL: Final = "noema_access"

# --- who somebody is, now -----------------------------------------------------------------------

# What a session or a token stands for: the person behind it with the memberships that are valid at
# this moment in tenants that are active, and the token. Everything is looked up at use.
_SESSION = """
    SELECT s.hash, s.id AS session_id, s.user_id AS session_user, s.token_id, s.namespace AS active,
           s.created_at, s.seen_at, s.expires_at, s.re_authenticated_at,
           u.id AS user_id, u.name AS user_name, u.console_role AS user_console,
           k.name AS token_name, k.namespace AS token_namespace, k.memory_role AS token_memory,
           k.console_role AS token_console, k.expires_at AS token_expires_at, k.last_used_at,
           (SELECT t.status = 'active' FROM namespaces n JOIN tenants t ON t.name = n.tenant
            WHERE n.path = k.namespace) AS is_tenant_active,
           (SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'namespace', m.namespace, 'role', m.role, 'valid_from', m.valid_from,
                       'valid_to', m.valid_to, 'granted_by', m.granted_by)
                       ORDER BY m.namespace), '[]')
            FROM memberships m JOIN namespaces n ON n.path = m.namespace
            JOIN tenants t ON t.name = n.tenant AND t.status = 'active'
            WHERE m.user_id = u.id AND m.valid_from <= $2
              AND (m.valid_to IS NULL OR m.valid_to > $2)) AS memberships
    FROM sessions s
    LEFT JOIN api_tokens k ON k.id = s.token_id
    LEFT JOIN users u ON u.id = coalesce(s.user_id, k.user_id)
    WHERE s.hash = $1 AND s.expires_at > $2 AND s.seen_at > $3
      AND (s.user_id IS NULL OR u.credentials_epoch = s.epoch)
      AND (s.token_id IS NULL
           OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2)))
      AND (u.id IS NULL OR u.disabled_at IS NULL)
"""

_BEARER = """
    SELECT k.hash, k.id AS token_id, k.user_id, k.name AS token_name,
           k.namespace AS token_namespace, k.memory_role AS token_memory,
           k.console_role AS token_console, k.expires_at AS token_expires_at, k.last_used_at,
           k.revoked_at IS NOT NULL AS is_revoked,
           k.expires_at IS NOT NULL AND k.expires_at <= $2 AS is_expired,
           u.disabled_at IS NOT NULL AS is_disabled,
           u.name AS user_name, u.console_role AS user_console,
           (SELECT t.status = 'active' FROM namespaces n JOIN tenants t ON t.name = n.tenant
            WHERE n.path = k.namespace) AS is_tenant_active,
           (SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'namespace', m.namespace, 'role', m.role, 'valid_from', m.valid_from,
                       'valid_to', m.valid_to, 'granted_by', m.granted_by)), '[]')
            FROM memberships m JOIN namespaces n ON n.path = m.namespace
            JOIN tenants t ON t.name = n.tenant AND t.status = 'active'
            WHERE m.user_id = k.user_id AND m.namespace = k.namespace AND m.valid_from <= $2
              AND (m.valid_to IS NULL OR m.valid_to > $2)) AS memberships
    FROM api_tokens k LEFT JOIN users u ON u.id = k.user_id
    WHERE k.hash = $1
"""

_NOTIFY = "SELECT pg_notify('noema_access', $1)"


async def session(conn: Conn, digest: bytes, *, now: datetime, seen_after: datetime) -> Row | None:
    row = await conn.fetchrow(_SESSION, digest, now, seen_after)
    return None if row is None else dict(row)


async def token(conn: Conn, digest: bytes, *, now: datetime) -> Row | None:
    row = await conn.fetchrow(_BEARER, digest, now)
    return None if row is None else dict(row)


async def notify(conn: Conn, *keys: UUID | str) -> None:
    for key in keys:
        await conn.execute(_NOTIFY, str(key))


# --- sessions -----------------------------------------------------------------------------------

_INSERT_SESSION = """
    INSERT INTO sessions (hash, id, user_id, token_id, epoch, namespace, method, user_agent,
                          address, created_at, seen_at, expires_at, re_authenticated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11, $12)
"""
_SEEN = "UPDATE sessions SET seen_at = $2 WHERE hash = $1 AND seen_at < $2"
_END_SESSION = "DELETE FROM sessions WHERE hash = $1 RETURNING coalesce(user_id, token_id)"
_END_SESSION_BY_ID = """
    DELETE FROM sessions s USING sessions d LEFT JOIN api_tokens k ON k.id = d.token_id
    WHERE s.id = $1 AND d.hash = s.hash
      AND ($2::uuid IS NULL OR coalesce(d.user_id, k.user_id) = $2)
    RETURNING coalesce(s.user_id, s.token_id)
"""
_END_SESSIONS_OF = "DELETE FROM sessions WHERE user_id = $1"
_RE_AUTHENTICATED = "UPDATE sessions SET re_authenticated_at = $2 WHERE hash = $1"
_SESSION_NAMESPACE = "UPDATE sessions SET namespace = $2 WHERE hash = $1"
_SESSIONS = """
    SELECT s.id, coalesce(u.name, 'token ' || k.name) AS user, s.namespace, s.method, s.user_agent,
           s.address, s.created_at, s.seen_at, s.expires_at
    FROM sessions s
    LEFT JOIN api_tokens k ON k.id = s.token_id
    LEFT JOIN users u ON u.id = coalesce(s.user_id, k.user_id)
    WHERE ($1::uuid IS NULL OR u.id = $1) AND s.expires_at > $2 AND s.seen_at > $3
      AND (s.user_id IS NULL OR (u.credentials_epoch = s.epoch AND u.disabled_at IS NULL))
      AND (s.token_id IS NULL OR k.revoked_at IS NULL)
    ORDER BY s.seen_at DESC LIMIT 500
"""


async def insert_session(conn: Conn, *values: object) -> None:
    await conn.execute(_INSERT_SESSION, *values)


async def session_seen(conn: Conn, digest: bytes, at: datetime) -> None:
    await conn.execute(_SEEN, digest, at)


async def end_session(conn: Conn, digest: bytes) -> UUID | None:
    found: UUID | None = await conn.fetchval(_END_SESSION, digest)
    return found


async def end_session_by_id(conn: Conn, id_: UUID, *, of_user: UUID | None) -> UUID | None:
    found: UUID | None = await conn.fetchval(_END_SESSION_BY_ID, id_, of_user)
    return found


async def end_sessions_of(conn: Conn, user_id: UUID) -> None:
    await conn.execute(_END_SESSIONS_OF, user_id)


async def re_authenticated(conn: Conn, digest: bytes, at: datetime) -> None:
    await conn.execute(_RE_AUTHENTICATED, digest, at)


async def set_session_namespace(conn: Conn, digest: bytes, namespace: str) -> None:
    await conn.execute(_SESSION_NAMESPACE, digest, namespace)


async def sessions(
    conn: Conn, user_id: UUID | None, *, now: datetime, seen_after: datetime
) -> list[Row]:
    return [dict(r) for r in await conn.fetch(_SESSIONS, user_id, now, seen_after)]


# --- tokens -------------------------------------------------------------------------------------

_ADD_BEARER = """
    INSERT INTO api_tokens (id, name, hash, hint, namespace, memory_role, console_role, created_at,
                            user_id, parent_id, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
"""
_USED = "UPDATE api_tokens SET last_used_at = $2 WHERE id = $1"
# What still counts comes first, and what was made last: no number of old ones pushes it out.
_BEARERS = """
    SELECT k.id, k.name, u.name AS user, k.hint, k.namespace, k.memory_role, k.console_role,
           k.created_at, k.expires_at, k.last_used_at, k.revoked_at
    FROM api_tokens k LEFT JOIN users u ON u.id = k.user_id
    WHERE $1::uuid IS NULL OR k.user_id = $1
    ORDER BY (k.revoked_at IS NOT NULL), k.created_at DESC, k.id DESC LIMIT 500
"""
_COUNT_BEARERS = "SELECT count(*) FROM api_tokens WHERE revoked_at IS NULL"
_FIRST_BEARER = """
    SELECT id FROM api_tokens
    WHERE revoked_at IS NULL AND console_role = 'administrator' AND user_id IS NULL
      AND (expires_at IS NULL OR expires_at > $1)
    ORDER BY created_at LIMIT 1
"""
_HOLD_BEARER = "SELECT expires_at FROM api_tokens WHERE id = $1 AND revoked_at IS NULL FOR SHARE"
# A token ends with the one it was made with.
_REVOKE_BEARER = """
    WITH RECURSIVE doomed AS (
        SELECT id FROM api_tokens
        WHERE id = $1 AND revoked_at IS NULL AND ($2::uuid IS NULL OR user_id = $2)
        UNION SELECT k.id FROM api_tokens k JOIN doomed d ON k.parent_id = d.id
    ), revoked AS (
        UPDATE api_tokens k SET revoked_at = $3 FROM doomed d
        WHERE k.id = d.id AND k.revoked_at IS NULL RETURNING k.id
    ), ended AS (
        DELETE FROM sessions s USING doomed d WHERE s.token_id = d.id
    )
    SELECT id FROM revoked
"""


async def insert_token(conn: Conn, *values: object) -> None:
    try:
        await conn.execute(_ADD_BEARER, *values)
    except asyncpg.ForeignKeyViolationError:
        raise NotFound("namespace", values[4]) from None


async def token_used(conn: Conn, token_id: UUID, at: datetime) -> None:
    await conn.execute(_USED, token_id, at)


async def tokens(conn: Conn, user_id: UUID | None) -> list[Row]:
    found = [dict(r) for r in await conn.fetch(_BEARERS, user_id)]
    return sorted(found, key=lambda row: (row["created_at"], row["id"]))


async def count_tokens(conn: Conn) -> int:
    return int(await conn.fetchval(_COUNT_BEARERS))


async def first_token(conn: Conn, now: datetime) -> UUID | None:
    found: UUID | None = await conn.fetchval(_FIRST_BEARER, now)
    return found


async def hold_token(conn: Conn, token_id: UUID) -> Row | None:
    row = await conn.fetchrow(_HOLD_BEARER, token_id)
    return None if row is None else dict(row)


async def revoke_token(
    conn: Conn, token_id: UUID, *, of_user: UUID | None, at: datetime
) -> list[UUID]:
    return [r["id"] for r in await conn.fetch(_REVOKE_BEARER, token_id, of_user, at)]


_REVOKE_BEARERS_OF = """
    UPDATE api_tokens SET revoked_at = $2 WHERE user_id = $1 AND revoked_at IS NULL
"""


async def revoke_tokens_of(conn: Conn, user_id: UUID, at: datetime) -> None:
    await conn.execute(_REVOKE_BEARERS_OF, user_id, at)


# --- links, pending logins, devices -------------------------------------------------------------

_INSERT_LINK = """
    INSERT INTO login_links (hash, user_id, token_id, epoch, expires_at) VALUES ($1, $2, $3, $4, $5)
"""
_USE_LINK = """
    UPDATE login_links l SET used_at = $2
    FROM login_links same
    LEFT JOIN api_tokens k ON k.id = same.token_id
    LEFT JOIN users u ON u.id = coalesce(same.user_id, k.user_id)
    WHERE l.hash = $1 AND same.hash = l.hash AND l.used_at IS NULL AND l.expires_at > $2
      AND (l.token_id IS NULL
           OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2)))
      AND (l.user_id IS NULL OR u.credentials_epoch = l.epoch)
      AND (u.id IS NULL OR u.disabled_at IS NULL)
    RETURNING l.user_id, l.token_id, l.epoch, u.name AS user_name, k.name AS token_name
"""
_INSERT_PENDING = """
    INSERT INTO pending_logins (hash, user_id, epoch, expires_at) VALUES ($1, $2, $3, $4)
"""
_PENDING = """
    SELECT p.user_id, p.epoch, u.name, u.totp_secret
    FROM pending_logins p JOIN users u ON u.id = p.user_id
    WHERE p.hash = $1 AND p.expires_at > $2 AND u.credentials_epoch = p.epoch
      AND u.disabled_at IS NULL
"""
_END_PENDING = "DELETE FROM pending_logins WHERE hash = $1 RETURNING user_id"
_SAW_DEVICE = """
    INSERT INTO known_devices AS d (hash, user_id, seen_at) VALUES ($1, $2, $3)
    ON CONFLICT (hash) DO UPDATE SET seen_at = excluded.seen_at WHERE d.user_id = excluded.user_id
"""
_IS_KNOWN_DEVICE = """
    SELECT EXISTS (SELECT FROM known_devices WHERE hash = $1 AND user_id = $2 AND seen_at > $3)
"""
_FORGET_DEVICES = "DELETE FROM known_devices WHERE user_id = $1"
_INSERT_SETUP = """
    INSERT INTO setup_links (hash, purpose, user_id, epoch, created_by, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6)
"""
_SETUP = """
    SELECT s.purpose, s.user_id, u.name FROM setup_links s LEFT JOIN users u ON u.id = s.user_id
    WHERE s.hash = $1 AND s.used_at IS NULL AND s.expires_at > $2
      AND (u.id IS NULL OR (u.disabled_at IS NULL AND u.credentials_epoch = s.epoch))
"""
_USE_SETUP = """
    UPDATE setup_links SET used_at = $2
    WHERE hash = $1 AND used_at IS NULL AND expires_at > $2 RETURNING user_id, epoch
"""


async def insert_link(conn: Conn, *values: object) -> None:
    await conn.execute(_INSERT_LINK, *values)


async def use_link(conn: Conn, digest: bytes, at: datetime) -> Row | None:
    row = await conn.fetchrow(_USE_LINK, digest, at)
    return None if row is None else dict(row)


async def insert_pending(
    conn: Conn, digest: bytes, user_id: UUID, epoch: int, until: datetime
) -> None:
    await conn.execute(_INSERT_PENDING, digest, user_id, epoch, until)


async def pending(conn: Conn, digest: bytes, now: datetime) -> Row | None:
    row = await conn.fetchrow(_PENDING, digest, now)
    return None if row is None else dict(row)


async def end_pending(conn: Conn, digest: bytes) -> bool:
    return await conn.fetchval(_END_PENDING, digest) is not None


async def saw_device(conn: Conn, digest: bytes, user_id: UUID, at: datetime) -> None:
    await conn.execute(_SAW_DEVICE, digest, user_id, at)


async def is_known_device(
    conn: Conn, digest: bytes, user_id: UUID | None, seen_after: datetime
) -> bool:
    return bool(await conn.fetchval(_IS_KNOWN_DEVICE, digest, user_id, seen_after))


async def forget_devices(conn: Conn, user_id: UUID) -> None:
    await conn.execute(_FORGET_DEVICES, user_id)


async def insert_setup(conn: Conn, *values: object) -> None:
    await conn.execute(_INSERT_SETUP, *values)


async def setup(conn: Conn, digest: bytes, now: datetime) -> Row | None:
    row = await conn.fetchrow(_SETUP, digest, now)
    return None if row is None else dict(row)


async def use_setup(conn: Conn, digest: bytes, at: datetime) -> Row | None:
    row = await conn.fetchrow(_USE_SETUP, digest, at)
    return None if row is None else dict(row)


# --- failures -----------------------------------------------------------------------------------

# A delay that ends later than the longest there is was set by a clock that has been put back since.
_CHARGE = """
    INSERT INTO login_failures AS f (account, lane, count, last_at, next_allowed_at)
    VALUES ($1, $2, 1, $3, $3::timestamptz + make_interval(secs => ($5::float8[])[1]))
    ON CONFLICT (account, lane) DO UPDATE SET
        count = CASE WHEN f.last_at < $4 THEN 1 ELSE f.count + 1 END,
        last_at = $3,
        next_allowed_at = $3::timestamptz + make_interval(secs => ($5::float8[])[
            CASE WHEN f.last_at < $4 THEN 1 ELSE least(f.count + 1, cardinality($5::float8[])) END])
    WHERE f.next_allowed_at <= $3 OR f.next_allowed_at > $3::timestamptz + $6::interval
    RETURNING count
"""
_NEXT_ALLOWED = "SELECT next_allowed_at FROM login_failures WHERE account = $1 AND lane = $2"
_FORGIVE = "DELETE FROM login_failures WHERE account = $1 AND ($2::text IS NULL OR lane = $2)"
_PRUNE_FAILURES = "DELETE FROM login_failures WHERE last_at < $1"


async def charge(
    conn: Conn,
    account: str,
    lane: str,
    *,
    now: datetime,
    forgotten_before: datetime,
    delays_s: Sequence[int],
) -> int:
    longest = timedelta(seconds=max(delays_s))
    delays = [float(d) for d in delays_s]
    if await conn.fetchval(_CHARGE, account, lane, now, forgotten_before, delays, longest):
        return 0
    due: datetime | None = await conn.fetchval(_NEXT_ALLOWED, account, lane)
    return 1 if due is None else max(1, -int((now - due).total_seconds() // 1))


async def forgive(conn: Conn, account: str, lane: str | None) -> None:
    await conn.execute(_FORGIVE, account, lane)


async def prune_failures(conn: Conn, before: datetime) -> None:
    await conn.execute(_PRUNE_FAILURES, before)


# --- housekeeping -------------------------------------------------------------------------------

_PRUNE_SESSIONS = "DELETE FROM sessions WHERE expires_at < $1 OR seen_at < $2"
_PRUNE_LINKS = "DELETE FROM login_links WHERE expires_at < $1"
_PRUNE_SETUP = "DELETE FROM setup_links WHERE expires_at < $1"
_PRUNE_PENDING = "DELETE FROM pending_logins WHERE expires_at < $1"
_PRUNE_DEVICES = "DELETE FROM known_devices WHERE seen_at < $1"


async def prune(
    conn: Conn, *, now: datetime, seen_before: datetime, device_before: datetime
) -> None:
    await conn.execute(_PRUNE_SESSIONS, now, seen_before)
    await conn.execute(_PRUNE_LINKS, now)
    await conn.execute(_PRUNE_SETUP, now)
    await conn.execute(_PRUNE_PENDING, now)
    await conn.execute(_PRUNE_DEVICES, device_before)

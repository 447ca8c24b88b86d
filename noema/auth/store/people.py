"""SQL of people, their second factor, memberships, namespaces and tenants."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from noema.auth.store.doors import Row
from noema.core.errors import Conflict, NotFound
from noema.db.tx import Conn

# --- people -------------------------------------------------------------------------------------

_CREDENTIALS = """
    SELECT id, name, password_hash, credentials_epoch AS epoch, console_role, disabled_at,
           totp_secret, totp_confirmed_at
    FROM users WHERE name = $1
"""
_CREDENTIALS_BY_ID = """
    SELECT id, name, password_hash, credentials_epoch AS epoch, console_role, disabled_at,
           totp_secret, totp_confirmed_at
    FROM users WHERE id = $1
"""
_USERS = """
    SELECT id, name, console_role, created_at, created_by, last_login_at, password_changed_at,
           disabled_at, password_hash IS NOT NULL AS has_password,
           totp_confirmed_at IS NOT NULL AS has_totp
    FROM users WHERE $1::text IS NULL OR name = $1
    ORDER BY name LIMIT 1000
"""
_USER_NAME = "SELECT name FROM users WHERE id = $1"
_INSERT_USER = """
    INSERT INTO users (id, name, password_hash, console_role, active_namespace, created_by,
                       created_at, password_changed_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
# Held while the first administrator is made, so that two cannot both be the first.
_LOCK_USERS = "LOCK TABLE users IN SHARE ROW EXCLUSIVE MODE"
_HAS_USER = "SELECT EXISTS (SELECT FROM users)"
_FIRST_ADMINISTRATOR = """
    SELECT id, credentials_epoch AS epoch FROM users
    WHERE console_role = 'administrator' AND disabled_at IS NULL ORDER BY created_at, id LIMIT 1
"""
# Locked in one order, so that two administrators cannot take the role from each other at once.
_ADMINISTRATORS = """
    SELECT id FROM users WHERE console_role = 'administrator' AND disabled_at IS NULL
    ORDER BY id FOR UPDATE
"""
_LOCK_USER = "SELECT id FROM users WHERE name = $1 FOR UPDATE"
_SET_ROLE = """
    UPDATE users SET console_role = $2, credentials_epoch = credentials_epoch + 1
    WHERE id = $1 AND console_role <> $2 RETURNING id
"""
_DISABLE = """
    UPDATE users SET disabled_at = $2, credentials_epoch = credentials_epoch + 1
    WHERE id = $1 AND disabled_at IS NULL RETURNING id
"""
_ENABLE = (
    "UPDATE users SET disabled_at = NULL WHERE id = $1 AND disabled_at IS NOT NULL RETURNING id"
)
_SET_HASH = """
    UPDATE users SET password_hash = $2, password_changed_at = $3,
                     credentials_epoch = credentials_epoch + 1
    WHERE id = $1 AND credentials_epoch = $4 RETURNING credentials_epoch
"""
_REHASH = "UPDATE users SET password_hash = $3 WHERE id = $1 AND password_hash = $2"
_LOGGED_IN = (
    "UPDATE users SET last_login_at = $2 WHERE id = $1 AND credentials_epoch = $3 RETURNING id"
)
_ACTIVE_NAMESPACE = """
    SELECT m.namespace FROM users u
    JOIN memberships m ON m.user_id = u.id AND m.valid_from <= $2
        AND (m.valid_to IS NULL OR m.valid_to > $2)
    JOIN namespaces n ON n.path = m.namespace
    JOIN tenants t ON t.name = n.tenant AND t.status = 'active'
    WHERE u.id = $1
    ORDER BY m.namespace = u.active_namespace DESC NULLS LAST, m.namespace = 'home' DESC,
             m.namespace
    LIMIT 1
"""
_SET_ACTIVE_NAMESPACE = "UPDATE users SET active_namespace = $2 WHERE id = $1"


async def credentials(conn: Conn, name: str) -> Row | None:
    row = await conn.fetchrow(_CREDENTIALS, name)
    return None if row is None else dict(row)


async def credentials_by_id(conn: Conn, user_id: UUID) -> Row | None:
    row = await conn.fetchrow(_CREDENTIALS_BY_ID, user_id)
    return None if row is None else dict(row)


async def users(conn: Conn, name: str | None = None) -> list[Row]:
    return [dict(r) for r in await conn.fetch(_USERS, name)]


async def user_name(conn: Conn, user_id: UUID) -> str | None:
    found: str | None = await conn.fetchval(_USER_NAME, user_id)
    return found


async def insert_user(conn: Conn, *values: object) -> None:
    try:
        await conn.execute(_INSERT_USER, *values)
    except asyncpg.UniqueViolationError:
        raise Conflict(f"There is a user {values[1]} already; use another name.") from None


async def lock_users(conn: Conn) -> None:
    await conn.execute(_LOCK_USERS)


async def has_user(conn: Conn) -> bool:
    return bool(await conn.fetchval(_HAS_USER))


async def first_administrator(conn: Conn) -> Row | None:
    row = await conn.fetchrow(_FIRST_ADMINISTRATOR)
    return None if row is None else dict(row)


async def lock_administrators(conn: Conn) -> list[UUID]:
    return [r["id"] for r in await conn.fetch(_ADMINISTRATORS)]


async def lock_user(conn: Conn, name: str) -> UUID | None:
    found: UUID | None = await conn.fetchval(_LOCK_USER, name)
    return found


async def set_role(conn: Conn, user_id: UUID, role: str) -> bool:
    return await conn.fetchval(_SET_ROLE, user_id, role) is not None


async def disable(conn: Conn, user_id: UUID, at: datetime) -> bool:
    return await conn.fetchval(_DISABLE, user_id, at) is not None


async def enable(conn: Conn, user_id: UUID) -> bool:
    return await conn.fetchval(_ENABLE, user_id) is not None


async def set_password(
    conn: Conn, user_id: UUID, hash_: str, at: datetime, *, epoch: int
) -> int | None:
    found: int | None = await conn.fetchval(_SET_HASH, user_id, hash_, at, epoch)
    return found


async def rehash(conn: Conn, user_id: UUID, old: str, new: str) -> None:
    await conn.execute(_REHASH, user_id, old, new)


async def logged_in(conn: Conn, user_id: UUID, at: datetime, *, epoch: int) -> bool:
    return await conn.fetchval(_LOGGED_IN, user_id, at, epoch) is not None


async def active_namespace(conn: Conn, user_id: UUID, now: datetime) -> str | None:
    found: str | None = await conn.fetchval(_ACTIVE_NAMESPACE, user_id, now)
    return found


async def set_active_namespace(conn: Conn, user_id: UUID, namespace: str) -> None:
    await conn.execute(_SET_ACTIVE_NAMESPACE, user_id, namespace)


# --- the second factor --------------------------------------------------------------------------

_START_TOTP = """
    UPDATE users SET totp_secret = $2, totp_last_step = NULL
    WHERE id = $1 AND totp_confirmed_at IS NULL RETURNING id
"""
_CONFIRM_TOTP = """
    UPDATE users SET totp_confirmed_at = $2, totp_last_step = $3,
                     credentials_epoch = credentials_epoch + 1
    WHERE id = $1 AND totp_secret = $4 AND totp_confirmed_at IS NULL RETURNING credentials_epoch
"""
# The guard that makes a code good for once, also for two requests at once: the row is locked by
# the first, and the second sees what it wrote.
_USE_STEP = """
    UPDATE users SET totp_last_step = $2
    WHERE id = $1 AND totp_confirmed_at IS NOT NULL AND coalesce(totp_last_step, -1) < $2
    RETURNING id
"""
_END_TOTP = """
    UPDATE users SET totp_secret = NULL, totp_confirmed_at = NULL, totp_last_step = NULL,
                     credentials_epoch = credentials_epoch + 1
    WHERE id = $1 AND totp_secret IS NOT NULL RETURNING credentials_epoch
"""
_DROP_RECOVERY = "DELETE FROM recovery_codes WHERE user_id = $1"
_ADD_RECOVERY = """
    INSERT INTO recovery_codes (user_id, hash) SELECT $1, unnest($2::bytea[])
"""
_USE_RECOVERY = """
    UPDATE recovery_codes SET used_at = $3
    WHERE user_id = $1 AND hash = $2 AND used_at IS NULL RETURNING hash
"""
_COUNT_RECOVERY = "SELECT count(*) FROM recovery_codes WHERE user_id = $1 AND used_at IS NULL"


async def start_totp(conn: Conn, user_id: UUID, sealed: bytes) -> bool:
    return await conn.fetchval(_START_TOTP, user_id, sealed) is not None


async def confirm_totp(
    conn: Conn, user_id: UUID, at: datetime, *, step: int, sealed: bytes
) -> int | None:
    found: int | None = await conn.fetchval(_CONFIRM_TOTP, user_id, at, step, sealed)
    return found


async def use_step(conn: Conn, user_id: UUID, step: int) -> bool:
    return await conn.fetchval(_USE_STEP, user_id, step) is not None


async def end_totp(conn: Conn, user_id: UUID) -> int | None:
    found: int | None = await conn.fetchval(_END_TOTP, user_id)
    await conn.execute(_DROP_RECOVERY, user_id)
    return found


async def set_recovery(conn: Conn, user_id: UUID, digests: Sequence[bytes]) -> None:
    await conn.execute(_DROP_RECOVERY, user_id)
    await conn.execute(_ADD_RECOVERY, user_id, list(digests))


async def use_recovery(conn: Conn, user_id: UUID, digest: bytes, at: datetime) -> bool:
    return await conn.fetchval(_USE_RECOVERY, user_id, digest, at) is not None


async def count_recovery(conn: Conn, user_id: UUID) -> int:
    return int(await conn.fetchval(_COUNT_RECOVERY, user_id))


# --- memberships, namespaces, tenants -----------------------------------------------------------

# What a new membership overlaps ends where it begins; what was to begin within it never does.
_CUT_MEMBERSHIPS = """
    UPDATE memberships SET valid_to = greatest(valid_from, $3)
    WHERE user_id = $1 AND namespace = $2
      AND (valid_to IS NULL OR valid_to > greatest(valid_from, $3))
      AND ($4::timestamptz IS NULL OR valid_from < $4)
    RETURNING id
"""
_INSERT_MEMBERSHIP = """
    INSERT INTO memberships (id, user_id, namespace, role, valid_from, valid_to, granted_by,
                             granted_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
_MEMBERSHIPS = """
    SELECT u.name, m.namespace, m.role, m.valid_from, m.valid_to, m.granted_by
    FROM memberships m JOIN users u ON u.id = m.user_id
    WHERE ($1::text IS NULL OR u.name = $1)
      AND ($2::timestamptz IS NULL
           OR (m.valid_from <= $2 AND (m.valid_to IS NULL OR m.valid_to > $2)))
      AND (m.valid_to IS NULL OR m.valid_to > m.valid_from)
    ORDER BY u.name, m.namespace, m.valid_from LIMIT 5000
"""
_INSERT_TENANT = "INSERT INTO tenants (name, created_by, created_at) VALUES ($1, $2, $3)"
_INSERT_NAMESPACES = """
    INSERT INTO namespaces (path, tenant, created_by, created_at)
    SELECT unnest($1::text[]), $2, $3, $4 ON CONFLICT DO NOTHING
"""
_HAS_NAMESPACE = "SELECT EXISTS (SELECT FROM namespaces WHERE path = $1)"
_SET_TENANT = "UPDATE tenants SET status = $2 WHERE name = $1 RETURNING name"
_TENANTS = """
    SELECT t.name, t.status, t.created_at,
           ARRAY(SELECT path FROM namespaces WHERE tenant = t.name ORDER BY path LIMIT 1000)
               AS namespaces
    FROM tenants t ORDER BY t.name LIMIT 1000
"""
_IS_ACTIVE = """
    SELECT t.status = 'active' FROM namespaces n JOIN tenants t ON t.name = n.tenant
    WHERE n.path = $1
"""


async def cut_memberships(
    conn: Conn, user_id: UUID, namespace: str, *, since: datetime, until: datetime | None
) -> int:
    return len(await conn.fetch(_CUT_MEMBERSHIPS, user_id, namespace, since, until))


async def insert_membership(conn: Conn, *values: object) -> None:
    try:
        await conn.execute(_INSERT_MEMBERSHIP, *values)
    except asyncpg.ForeignKeyViolationError:
        raise NotFound("namespace", values[2]) from None


async def memberships(conn: Conn, name: str | None, *, at: datetime | None) -> list[Row]:
    return [dict(r) for r in await conn.fetch(_MEMBERSHIPS, name, at)]


async def insert_tenant(conn: Conn, name: str, by: str, at: datetime) -> None:
    try:
        await conn.execute(_INSERT_TENANT, name, by, at)
    except asyncpg.UniqueViolationError:
        raise Conflict(f"There is a tenant {name} already.") from None


async def insert_namespaces(
    conn: Conn, paths: Sequence[str], tenant: str, by: str, at: datetime
) -> None:
    try:
        await conn.execute(_INSERT_NAMESPACES, list(paths), tenant, by, at)
    except asyncpg.ForeignKeyViolationError:
        raise NotFound("tenant", tenant) from None


async def has_namespace(conn: Conn, path: str) -> bool:
    return bool(await conn.fetchval(_HAS_NAMESPACE, path))


async def set_tenant(conn: Conn, name: str, status: str) -> bool:
    return await conn.fetchval(_SET_TENANT, name, status) is not None


async def tenants(conn: Conn) -> list[Row]:
    return [dict(r) for r in await conn.fetch(_TENANTS)]


async def is_namespace_active(conn: Conn, path: str) -> bool:
    return bool(await conn.fetchval(_IS_ACTIVE, path))

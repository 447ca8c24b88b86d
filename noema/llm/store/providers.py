"""SQL of providers, their secrets, and roles."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from noema.core.errors import Conflict
from noema.db.tx import Conn

Row = Mapping[str, Any]

# One change at a time, so that nothing is deleted which somebody puts to use in the same moment.
_ALONE: Final = "SELECT pg_advisory_xact_lock(hashtextextended('noema.llm.configured', 0))"

_PROVIDERS: Final = """
    SELECT p.id, p.name, p.kind, p.endpoint, p.model, p.parameters, p.prices, p.secret_id,
           coalesce(s.hint, '') AS secret_hint, s.set_by AS secret_set_by,
           s.set_at AS secret_set_at, p.allows_private, p.is_enabled, p.version, p.created_by,
           p.created_at, p.updated_by, p.updated_at
    FROM llm_providers p LEFT JOIN secrets s ON s.id = p.secret_id
    WHERE $1::text IS NULL OR p.name = $1
    ORDER BY p.name
"""

_INSERT_PROVIDER: Final = """
    INSERT INTO llm_providers (id, name, kind, endpoint, model, parameters, prices, allows_private,
                               created_by, created_at, updated_by, updated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $9, $10)
"""

_CHANGE_PROVIDER: Final = """
    UPDATE llm_providers
    SET endpoint = $2, model = $3, parameters = $4, prices = $5, allows_private = $6,
        is_enabled = $7, version = version + 1, updated_by = $8, updated_at = $9
    WHERE name = $1
"""

_DELETE_PROVIDER: Final = "DELETE FROM llm_providers WHERE id = $1 RETURNING secret_id"

_ADD_SEALED: Final = """
    INSERT INTO secrets (id, sealed, hint, set_by, set_at) VALUES ($1, $2, $3, $4, $5)
"""

_USE_SEALED: Final = """
    UPDATE llm_providers
    SET secret_id = $2, version = version + $5, updated_by = $3, updated_at = $4
    WHERE id = $1
"""

_DROP_SEALED: Final = "DELETE FROM secrets WHERE id = $1"

_SEALED: Final = "SELECT sealed FROM secrets WHERE id = $1"

_ROLES: Final = """
    SELECT DISTINCT ON (role) role, version, chain, deadline_ms, actor, set_at
    FROM llm_roles ORDER BY role, version DESC
"""

_ROLE_VERSIONS: Final = """
    SELECT role, version, chain, deadline_ms, actor, set_at
    FROM llm_roles WHERE role = $1 ORDER BY version DESC LIMIT $2
"""

_INSERT_ROLE: Final = """
    INSERT INTO llm_roles (role, version, chain, deadline_ms, actor, set_at)
    VALUES ($1, $2, $3, $4, $5, $6)
"""

_BUDGETED: Final = """
    SELECT count(*) FROM budgets WHERE scope = 'provider' AND key = $1 AND ended_at IS NULL
"""


async def alone(conn: Conn) -> None:
    """Wait until nobody else changes providers or roles; hold the others off until the commit."""
    await conn.execute(_ALONE)


async def providers(conn: Conn, name: str | None = None) -> list[Row]:
    """Return all providers, or the one of that name, by name."""
    return [dict(row) for row in await conn.fetch(_PROVIDERS, name)]


async def insert_provider(conn: Conn, values: Sequence[Any], *, name: str) -> None:
    """Add a provider; raises Conflict where there is one of the name."""
    try:
        await conn.execute(_INSERT_PROVIDER, *values)
    except asyncpg.UniqueViolationError:
        raise Conflict(f"There is a provider {name} already.") from None


async def change_provider(conn: Conn, values: Sequence[Any]) -> None:
    """Give a provider these values and the next version."""
    await conn.execute(_CHANGE_PROVIDER, *values)


async def delete_provider(conn: Conn, id_: UUID) -> None:
    """Remove a provider and its secret."""
    secret_id = await conn.fetchval(_DELETE_PROVIDER, id_)
    if secret_id is not None:
        await conn.execute(_DROP_SEALED, secret_id)


async def put_secret(
    conn: Conn,
    provider: UUID,
    *,
    old: UUID | None,
    new: tuple[UUID, bytes, str] | None,
    by: str,
    at: datetime,
    is_part: bool,
) -> None:
    """Give a provider another secret (id, sealed, hint), or none; the old one is destroyed.

    `is_part` says that it belongs to a change which has raised the version already.
    """
    if new is not None:
        await conn.execute(_ADD_SEALED, *new, by, at)
    id_, rise = None if new is None else new[0], 0 if is_part else 1
    await conn.execute(_USE_SEALED, provider, id_, by, at, rise)
    if old is not None:
        await conn.execute(_DROP_SEALED, old)


async def sealed(conn: Conn, secret_id: UUID) -> bytes | None:
    """Return the secret as it is kept, None where it is gone."""
    kept = await conn.fetchval(_SEALED, secret_id)
    return None if kept is None else bytes(kept)


async def roles(conn: Conn) -> list[Row]:
    """Return every role's newest version, by role."""
    return [dict(row) for row in await conn.fetch(_ROLES)]


async def role_versions(conn: Conn, role: str, limit: int) -> list[Row]:
    """Return a role's versions, newest first."""
    return [dict(row) for row in await conn.fetch(_ROLE_VERSIONS, role, limit)]


async def insert_role(conn: Conn, values: Sequence[Any]) -> None:
    """Add a version of a role."""
    await conn.execute(_INSERT_ROLE, *values)


async def is_budgeted(conn: Conn, name: str) -> bool:
    """Whether a budget that has not ended is for the provider of that name."""
    return bool(await conn.fetchval(_BUDGETED, name))

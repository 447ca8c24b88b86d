"""SQL of prompts and of which version is in use."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from noema.db.tx import Conn

Row = Mapping[str, Any]

_ALONE: Final = "SELECT pg_advisory_xact_lock(hashtextextended('noema.llm.prompts', 0))"

# The newest use decides; the versions beside it say whether there is something newer.
_IN_USE: Final = """
    SELECT p.name, p.version, p.system, p.template, p.note, p.actor, p.created_at,
           u.actor AS used_by, u.since,
           (SELECT max(n.version) FROM prompts n WHERE n.name = p.name) AS newest
    FROM (SELECT DISTINCT ON (name) name, version, actor, since
          FROM prompt_uses ORDER BY name, since DESC) u
    JOIN prompts p ON p.name = u.name AND p.version = u.version
    ORDER BY p.name
"""

_VERSIONS: Final = """
    SELECT name, version, system, template, note, actor, created_at
    FROM prompts WHERE name = $1 AND ($2::int IS NULL OR version = $2)
    ORDER BY version DESC
"""

_USES: Final = """
    SELECT name, version, actor, since FROM prompt_uses WHERE name = $1 ORDER BY since DESC LIMIT $2
"""

_INSERT: Final = """
    INSERT INTO prompts (name, version, system, template, note, actor, created_at)
    SELECT $1, coalesce(max(version), 0) + 1, $2, $3, $4, $5, $6 FROM prompts WHERE name = $1
    RETURNING version
"""

# Two uses within one tick of the clock stay in order.
_USE: Final = """
    INSERT INTO prompt_uses (name, version, actor, since)
    SELECT $1, $2, $3, greatest($4::timestamptz, max(since) + interval '1 microsecond')
    FROM prompt_uses WHERE name = $1
"""


async def alone(conn: Conn) -> None:
    """Wait until nobody else changes prompts; hold the others off until the commit."""
    await conn.execute(_ALONE)


async def in_use(conn: Conn) -> list[Row]:
    """Return the version of every prompt that is in use, by name."""
    return [dict(row) for row in await conn.fetch(_IN_USE)]


async def versions(conn: Conn, name: str, version: int | None = None) -> list[Row]:
    """Return a prompt's versions, newest first, or the one that is named."""
    return [dict(row) for row in await conn.fetch(_VERSIONS, name, version)]


async def uses(conn: Conn, name: str, limit: int) -> list[Row]:
    """Return which version was put to use when, newest first."""
    return [dict(row) for row in await conn.fetch(_USES, name, limit)]


async def insert(conn: Conn, values: Sequence[Any]) -> int:
    """Add the next version of a prompt and return its number."""
    return int(await conn.fetchval(_INSERT, *values))


async def use(conn: Conn, name: str, version: int, *, by: str, at: datetime) -> None:
    """Put a version to use."""
    await conn.execute(_USE, name, version, by, at)

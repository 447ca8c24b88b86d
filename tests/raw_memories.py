"""Memories written straight into the tables, for tests that are not about writing them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from uuid import UUID, uuid4

import asyncpg

_NAMESPACE = """
    INSERT INTO namespaces (path, tenant, created_by) VALUES ($1, $2, 't') ON CONFLICT DO NOTHING
"""

_TENANT = "INSERT INTO tenants (name, created_by) VALUES ($1, 't') ON CONFLICT DO NOTHING"

_MEMORY = """
    INSERT INTO memories (id, namespace, kind, epistemic_kind, text, dedupe_key, assertion_time,
        t_valid_from, t_valid_to, route, trust, actor, agent_id, sensitivity, classifier,
        activation_epoch)
    VALUES ($1, $2, 'fact', 'claim', $3, $4, $5, $5, CASE WHEN $6 THEN $5::timestamptz END,
        'manual', 50, 'ada', 'http', 'internal', 'rules', 0)
"""

_EMBEDDING = """
    INSERT INTO memory_embeddings (memory_id, model, dims, namespace, kind, shelf, embedding)
    SELECT id, $2, $3, namespace, kind, 'fresh', $4::real[] FROM memories WHERE id = $1
"""

_WHEN = datetime(2026, 1, 1, tzinfo=UTC)


async def remember(
    conn: "asyncpg.Connection[asyncpg.Record]",
    vector: Sequence[float] | None = None,
    *,
    text: str = "The disk failed.",
    model: str = "m",
    namespace: str = "acme",
    closed: bool = False,
) -> UUID:
    """Store a memory, with its vector if there is one; return its id."""
    memory = uuid4()
    tenant = namespace.partition("/")[0]
    await conn.execute(_TENANT, tenant)
    await conn.execute(_NAMESPACE, namespace, tenant)
    key = sha256(memory.bytes).digest()
    await conn.execute(_MEMORY, memory, namespace, text, key, _WHEN, closed)
    if vector is not None:
        await conn.execute(_EMBEDDING, memory, model, len(vector), list(vector))
    return memory

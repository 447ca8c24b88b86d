"""What really protects history on this server: looked up at every start, never assumed."""

from dataclasses import dataclass
from typing import Final, Literal

from noema.db.tx import Tx, single

Kind = Literal["separate roles", "lowered role", "accident protection only"]

APP_ROLE: Final = "noema_app"
# The contract's names: a table that lost every guard can no longer be found by its guards.
_PROMISED: Final = (
    "cognitive_events",
    "belief_versions",
    "personality_versions",
    "audit_log",
    "approval_decisions",
    "redactions",
    "tombstones",
    "deletion_certificates",
    "log_seals",
)

# Membership in the owner of a table, of its schema, or of the function is as good as owning: SET
# ROLE is one statement away. Up to PostgreSQL 15 CREATEROLE can give itself any membership.
_WHO = """
    WITH owners AS (
        SELECT c.relowner AS owner FROM pg_class c
        JOIN pg_trigger t ON t.tgrelid = c.oid JOIN pg_proc p ON p.oid = t.tgfoid
        WHERE p.proname = 'noema_guard'
        UNION SELECT n.nspowner FROM pg_namespace n
        JOIN pg_class c ON c.relnamespace = n.oid
        JOIN pg_trigger t ON t.tgrelid = c.oid JOIN pg_proc p ON p.oid = t.tgfoid
        WHERE p.proname = 'noema_guard'
        UNION SELECT proowner FROM pg_proc WHERE proname IN ('noema_redact', 'noema_guard')
        UNION SELECT oid FROM pg_roles WHERE rolname = 'noema_redactor'
    )
    SELECT r.rolname::text AS name,
           r.rolsuper
           OR (r.rolcreaterole AND current_setting('server_version_num')::int < 160000)
           OR EXISTS (SELECT FROM owners WHERE pg_has_role(r.oid, owner, 'MEMBER')) AS powerful,
           r.rolname = current_user AS is_current,
           r.rolname = session_user AS is_session
    FROM pg_roles r WHERE r.rolname IN (current_user, session_user)
"""

_SERVER = """
    SELECT current_setting('server_version') AS version,
           current_setting('session_replication_role') AS replication_role,
           (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS vector
"""

# Every table under guard, with everything that inherits from it.
_TABLES = """
    WITH RECURSIVE history AS (
        SELECT t.tgrelid AS oid FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
        WHERE p.proname = 'noema_guard'
        UNION SELECT i.inhrelid FROM pg_inherits i JOIN history h ON i.inhparent = h.oid
    ), guards AS (
        SELECT t.tgrelid, t.tgname, t.tgenabled FROM pg_trigger t
        JOIN pg_proc p ON p.oid = t.tgfoid
        WHERE p.proname = 'noema_guard'
    )
    SELECT h.oid::regclass::text AS name,
           (SELECT tgenabled::text FROM guards
            WHERE tgrelid = h.oid AND tgname = 'guard_row') AS row_guard,
           (SELECT tgenabled::text FROM guards
            WHERE tgrelid = h.oid AND tgname = 'guard_truncate') AS truncate_guard,
           ARRAY(SELECT rulename::text FROM pg_rewrite
                 WHERE ev_class = h.oid AND rulename <> '_RETURN' ORDER BY rulename) AS rules,
           EXISTS (SELECT FROM pg_attribute
                   WHERE attrelid = h.oid AND attname = 'seq' AND NOT attisdropped
                   AND has_column_privilege(h.oid, attnum, 'INSERT')) AS seq_insertable,
           has_table_privilege(h.oid, 'UPDATE') OR has_table_privilege(h.oid, 'DELETE')
           OR has_table_privilege(h.oid, 'TRUNCATE') AS changeable
    FROM history h
    ORDER BY 1
"""

_UNGUARDED = """
    SELECT c.oid::regclass::text FROM pg_class c
    WHERE c.relname = ANY ($1::text[]) AND c.relkind IN ('r', 'p')
      AND c.relnamespace = current_schema()::regnamespace
      AND NOT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
                      WHERE t.tgrelid = c.oid AND p.proname = 'noema_guard')
    ORDER BY 1
"""

# From PostgreSQL 16 a membership may come without the right to SET ROLE.
_MAY_BECOME_APP = """
    SELECT pg_has_role(session_user, oid,
                       CASE WHEN current_setting('server_version_num')::int >= 160000
                            THEN 'SET' ELSE 'MEMBER' END)
           AND current_user <> rolname
    FROM pg_roles WHERE rolname = $1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What stands between this connection and a changed history.

    * "separate roles": neither the login nor the role it acts as could lift the guards.
    * "lowered role": the login could, but it acts as a role that could not.
    * "accident protection only": the role that acts could; the guards stop mistakes, not intent.

    `findings` are sentences for the operator, empty where all is as it should be.
    """

    kind: Kind
    session_user: str
    current_user: str
    server_version: str
    pgvector: str | None
    findings: tuple[str, ...]


async def inspect(tx: Tx) -> Protection:
    """Return how history is protected against the role that this transaction acts as."""
    who = await tx.conn.fetch(_WHO)
    current = next(row for row in who if row["is_current"])
    session = next(row for row in who if row["is_session"])
    kind = _kind(current=current["powerful"], session=session["powerful"])
    server = await tx.conn.fetchrow(_SERVER)
    assert server is not None  # noqa: S101 - a SELECT without FROM has one row
    tables = await tx.conn.fetch(_TABLES)
    findings: list[str] = []
    if server["replication_role"] != "origin":
        findings.append(
            f"session_replication_role is {server['replication_role']}: ordinary triggers are off."
        )
    if not tables:
        findings.append("No history table is under guard: run noema migrate up.")
    unguarded = await tx.conn.fetch(_UNGUARDED, _PROMISED)
    findings += [f"{row[0]} is history and has no guard trigger." for row in unguarded]
    for table in tables:
        findings += _guard_findings(dict(table))
        if kind != "accident protection only":
            findings += _grant_findings(dict(table), current["name"])
    return Protection(
        kind=kind,
        session_user=session["name"],
        current_user=current["name"],
        server_version=server["version"],
        pgvector=server["vector"],
        findings=tuple(findings),
    )


async def choose_role(dsn: str) -> str | None:
    """Return "noema_app" where this login should and may act as it, None where it cannot or is it.

    Raises Unavailable where the server cannot be reached.
    """
    async with single(dsn) as conn:
        return APP_ROLE if await conn.fetchval(_MAY_BECOME_APP, APP_ROLE) else None


def _kind(*, current: bool, session: bool) -> Kind:
    if current:
        return "accident protection only"
    return "lowered role" if session else "separate roles"


def _guard_findings(table: dict[str, object]) -> list[str]:
    findings = []
    for trigger, state in (
        ("guard_row", table["row_guard"]),
        ("guard_truncate", table["truncate_guard"]),
    ):
        if state is None:
            findings.append(f"{table['name']} lacks the trigger {trigger}.")
        elif state != "A":
            findings.append(f"{table['name']}: trigger {trigger} is not ENABLE ALWAYS.")
    rules = table["rules"]
    if isinstance(rules, list) and rules:
        findings.append(
            f"{table['name']} has the rule {', '.join(rules)}, which can swallow what is written."
        )
    return findings


def _grant_findings(table: dict[str, object], role: str) -> list[str]:
    findings = []
    if table["seq_insertable"]:
        findings.append(f"{role} may insert into {table['name']}.seq, and so forge positions.")
    if table["changeable"]:
        findings.append(
            f"{role} was granted UPDATE, DELETE or TRUNCATE on {table['name']}; only the guards "
            "refuse it."
        )
    return findings

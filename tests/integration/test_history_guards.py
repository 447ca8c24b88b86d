"""Guarantee 1: history is never changed, whatever statement is tried, and redacted in one way only.

The tables come from the catalog: every one that carries a guard, and every partition of one. A new
history table is tried like the others from its first day; `history` below has to give it a row.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest

from noema.cognition.minds import Minds, NewStimulus
from noema.core.act import Outcome, act_of
from noema.core.clock import SystemClock, UuidV7Ids
from noema.core.errors import InvalidInput
from noema.core.identity import LOCAL
from noema.db import protection
from noema.db.tx import Database, single
from noema.events.audit import Audit
from noema.events.log import EventLog
from noema.events.model import Event, new_event
from noema.events.unit import Derivation, Unit
from noema.events.writer import Writer, running
from tests.conftest import TestDatabase

_CLOCK = SystemClock()
_IDS = UuidV7Ids(_CLOCK)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Statement = Callable[["Table"], str]

_TABLES = """
    SELECT c.oid::regclass::text AS name, c.relkind = 'p' AS is_partitioned,
           c.relispartition AS is_partition,
           ARRAY(SELECT attname::text FROM pg_attribute
                 WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attidentity = ''
                 ORDER BY attnum) AS columns,
           (SELECT attname::text FROM pg_attribute
            WHERE attrelid = c.oid AND attnum > 0 AND attidentity <> '') AS identity,
           (SELECT conname::text FROM pg_constraint WHERE conrelid = c.oid AND contype = 'p') AS key
    FROM pg_class c
    WHERE EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
                  WHERE t.tgrelid = c.oid AND p.proname = 'noema_guard')
    ORDER BY 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A history table, or a partition of one, as the catalog describes it."""

    name: str
    is_partitioned: bool
    is_partition: bool
    columns: list[str]
    identity: str | None
    key: str

    @property
    def insertable(self) -> str:
        """What the daemon may name in an INSERT."""
        return ", ".join(f'"{c}"' for c in self.columns if c != "recorded_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A database with at least one row in every history table."""

    database: TestDatabase
    db: Database
    events: EventLog
    app: Connection
    admin: Connection
    tables: list[Table]
    stimulus: UUID

    async def fingerprint(self) -> dict[str, str]:
        """A digest of all rows of each table."""
        return {
            table.name: await self.admin.fetchval(
                f"SELECT md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM {table.name} t"
            )
            for table in self.tables
        }

    async def append(self, text: str, *, causes: tuple[UUID, ...] = ()) -> UUID:
        event = new_event(
            _IDS,
            type="stimulus.received",
            occurred_at=_CLOCK.now(),
            actor="user:t",
            causes=causes,
            content={"text": text},
        )
        async with self.db.transaction() as tx:
            await self.events.append(tx, [event])
        return event.id

    async def every(self) -> list[Event]:
        return await self.events.after(0, limit=1_000)


async def _tables(conn: Connection) -> list[Table]:
    return [Table(**row) for row in await conn.fetch(_TABLES)]


@pytest.fixture
async def history(database: TestDatabase, db: Database) -> AsyncIterator[History]:
    events = EventLog(db=db)
    writer = Writer(connect=lambda: single(database.app_dsn, database.role), clock=_CLOCK)
    async with running(writer):
        minds = Minds(db=db, events=events, writer=writer, clock=_CLOCK, ids=_IDS)
        mind = await minds.create(slug="ada", actor="user:t")
        accepted = await minds.receive(
            "ada", [NewStimulus(text="a secret"), NewStimulus(text="to redact")], actor="user:t"
        )
        stimulus, redacted = map(UUID, accepted.ids)
        thought = new_event(
            _IDS,
            type="thought.admitted",
            occurred_at=_CLOCK.now(),
            actor="mind:ada",
            mind_id=mind.id,
            causes=(stimulus,),
            content={"text": "a thought"},
        )
        link = Derivation(source=stimulus, to=thought.id, kind="noticed")
        await writer.submit(Unit(events=(thought,), derivations=(link,)))
        seen = act_of(LOCAL, "event.show", f"event:{stimulus}", Outcome.OK, detail="shown")
        await Audit(db=db, ids=_IDS).record_alone(seen)
    admin = await asyncpg.connect(database.admin_dsn)
    try:
        async with single(database.app_dsn, database.role) as app:
            await app.execute(_REDACT, redacted)
            tables = await _tables(admin)
            for table in tables:
                is_filled = await admin.fetchval(f"SELECT EXISTS (SELECT FROM {table.name})")
                assert is_filled, f"give {table.name} a row in this fixture"
            yield History(
                database=database,
                db=db,
                events=events,
                app=app,
                admin=admin,
                tables=tables,
                stimulus=stimulus,
            )
    finally:
        await admin.close()


_REDACT = "SELECT noema_redact($1, 'asked for', 'privacy', 'user:t')"


def _insert(table: Table) -> str:
    return (
        f"INSERT INTO {table.name} ({table.insertable}) "
        f"SELECT {table.insertable} FROM {table.name} LIMIT 1"
    )


def _first(table: Table) -> str:
    return f'"{table.columns[0]}"'


CHANGES: dict[str, Statement] = {
    "UPDATE": lambda t: f"UPDATE {t.name} SET {_first(t)} = {_first(t)}",
    "UPDATE ONLY": lambda t: f"UPDATE ONLY {t.name} SET {_first(t)} = {_first(t)}",
    "DELETE": lambda t: f"DELETE FROM {t.name}",
    "DELETE USING": lambda t: f"DELETE FROM {t.name} a USING {t.name} b",
    "TRUNCATE": lambda t: f"TRUNCATE {t.name}",
    "TRUNCATE CASCADE": lambda t: f"TRUNCATE {t.name} RESTART IDENTITY CASCADE",
    "MERGE that updates": lambda t: (
        f"MERGE INTO {t.name} h USING (SELECT 1) s ON true "
        f"WHEN MATCHED THEN UPDATE SET {_first(t)} = h.{_first(t)}"
    ),
    "MERGE that deletes": lambda t: (
        f"MERGE INTO {t.name} h USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE"
    ),
    "ON CONFLICT DO UPDATE": lambda t: (
        f"{_insert(t)} ON CONFLICT ON CONSTRAINT {t.key} "
        f"DO UPDATE SET {_first(t)} = excluded.{_first(t)}"
    ),
    "a CTE that deletes": lambda t: f"WITH d AS (DELETE FROM {t.name} RETURNING 1) SELECT FROM d",
    "SELECT FOR UPDATE": lambda t: f"SELECT FROM {t.name} FOR UPDATE",
}

DEFINITIONS: dict[str, Statement] = {
    "INHERITS": lambda t: f"CREATE TEMP TABLE heir () INHERITS ({t.name})",
    "PARTITION OF": lambda t: f"CREATE TEMP TABLE heir PARTITION OF {t.name} DEFAULT",
    "DISABLE TRIGGER ALL": lambda t: f"ALTER TABLE {t.name} DISABLE TRIGGER ALL",
    "DISABLE TRIGGER USER": lambda t: f"ALTER TABLE {t.name} DISABLE TRIGGER USER",
    "DISABLE TRIGGER guard_row": lambda t: f"ALTER TABLE {t.name} DISABLE TRIGGER guard_row",
    "DROP TRIGGER": lambda t: f"DROP TRIGGER guard_row ON {t.name}",
    "CREATE TRIGGER": lambda t: (
        f"CREATE TRIGGER swallow BEFORE INSERT ON {t.name} FOR EACH ROW "
        "EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    ),
    "CREATE RULE": lambda t: f"CREATE RULE swallow AS ON INSERT TO {t.name} DO INSTEAD NOTHING",
    "ALTER COLUMN": lambda t: f"ALTER TABLE {t.name} ALTER {_first(t)} DROP NOT NULL",
    "ADD COLUMN": lambda t: f"ALTER TABLE {t.name} ADD COLUMN more int",
    "ROW LEVEL SECURITY": lambda t: f"ALTER TABLE {t.name} ENABLE ROW LEVEL SECURITY",
    "DROP TABLE": lambda t: f"DROP TABLE {t.name} CASCADE",
    "OWNER": lambda t: f"ALTER TABLE {t.name} OWNER TO CURRENT_USER",
}


async def _refused(conn: Connection, statement: str) -> str:
    """Return the SQLSTATE of the refusal; fail where the statement is let through."""
    transaction = conn.transaction()
    await transaction.start()
    try:
        await conn.execute(statement)
    except asyncpg.PostgresError as exc:
        return str(exc.sqlstate)
    finally:
        await transaction.rollback()
    pytest.fail(f"let through: {statement}")


# A missing right, or a statement that this kind of table does not take from anybody.
_STATES = {"42501", "42809", "0A000", "42P16", "0LP01"}


async def test_the_catalog_knows_every_history_table_of_the_schema(history: History) -> None:
    names = {table.name for table in history.tables}

    assert {
        "cognitive_events",
        "cognitive_events_p0001",
        "redactions",
        "derivations",
        "modes",
        "mind_settings_versions",
    } <= names


@pytest.mark.parametrize("change", CHANGES)
async def test_guarantee_1_the_daemon_cannot_change_what_is_written(
    history: History, change: str
) -> None:
    before = await history.fingerprint()

    states = {t.name: await _refused(history.app, CHANGES[change](t)) for t in history.tables}

    assert set(states.values()) == {"42501"}, states
    assert await history.fingerprint() == before


@pytest.mark.parametrize("definition", DEFINITIONS)
async def test_guarantee_1_the_daemon_cannot_redefine_a_history_table(
    history: History, definition: str
) -> None:
    before = await history.fingerprint()

    states = {
        t.name: await _refused(history.app, DEFINITIONS[definition](t)) for t in history.tables
    }

    assert set(states.values()) <= _STATES, states
    assert await history.fingerprint() == before


async def test_guarantee_1_the_daemon_cannot_grant_itself_more(history: History) -> None:
    for table in history.tables:
        try:
            # Whoever holds some right gets a warning only; what counts is that nothing is granted.
            await history.app.execute(f"GRANT UPDATE, DELETE, TRUNCATE ON {table.name} TO PUBLIC")
        except asyncpg.InsufficientPrivilegeError:
            continue

    rights = ("UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
    granted = [
        (t.name, right)
        for t in history.tables
        for right in ("UPDATE", "REFERENCES")
        if await history.app.fetchval("SELECT has_any_column_privilege($1, $2)", t.name, right)
    ] + [
        (t.name, right)
        for t in history.tables
        for right in rights
        if await history.app.fetchval("SELECT has_table_privilege($1, $2)", t.name, right)
    ]
    assert granted == []


async def test_guarantee_1_positions_and_recording_times_cannot_be_forged(
    history: History,
) -> None:
    forged = []
    for table in history.tables:
        for column in (table.identity, "recorded_at" if "recorded_at" in table.columns else None):
            if column is None:
                continue
            for overriding in ("OVERRIDING SYSTEM VALUE ", "OVERRIDING USER VALUE ", ""):
                others = table.insertable
                state = await _refused(
                    history.app,
                    f'INSERT INTO {table.name} ("{column}", {others}) {overriding}'
                    f'SELECT "{column}", {others} FROM {table.name} LIMIT 1',
                )
                # Not said to override, it is the identity column itself that refuses.
                assert state in {"42501", "428C9"}, (table.name, column, overriding, state)
                forged.append((table.name, column))

    assert ("cognitive_events", "seq") in forged
    assert ("redactions", "recorded_at") in forged


async def test_guarantee_1_nothing_is_written_past_the_lock_straight_into_a_partition(
    history: History,
) -> None:
    partitions = [t for t in history.tables if t.is_partition]

    states = {t.name: await _refused(history.app, _insert(t)) for t in partitions}

    assert partitions
    assert set(states.values()) == {"42501"}, states


async def test_guarantee_1_the_daemon_can_turn_no_guard_off(history: History) -> None:
    for statement in (
        "SET session_replication_role = replica",
        "SET LOCAL session_replication_role = replica",
        "SELECT set_config('session_replication_role', 'replica', true)",
        "CREATE OR REPLACE FUNCTION noema_guard() RETURNS trigger LANGUAGE sql AS ''",
        "ALTER FUNCTION noema_guard() RENAME TO unguarded",
        "DROP FUNCTION noema_guard() CASCADE",
        "DROP FUNCTION noema_append_lock() CASCADE",
        "DROP FUNCTION noema_check_causes() CASCADE",
        "ALTER FUNCTION noema_redact(uuid, text, text, text) SECURITY INVOKER",
        "SELECT noema_roll_partition()",
        "CREATE EVENT TRIGGER swallow ON ddl_command_end EXECUTE FUNCTION noema_guard()",
        "DROP SCHEMA public CASCADE",
    ):
        assert await _refused(history.app, statement) in {"42501", "42P17"}, statement


@pytest.mark.parametrize("replicating", [False, True])
async def test_guarantee_1_the_guards_stop_those_with_every_right_too(
    history: History, replicating: bool
) -> None:
    before = await history.fingerprint()
    if replicating:
        await history.admin.execute("SET session_replication_role = replica")

    # A lock is not a change, and who owns a table may take one.
    states = {
        (name, t.name): await _refused(history.admin, change(t))
        for name, change in CHANGES.items()
        if name != "SELECT FOR UPDATE"
        for t in history.tables
        if not (name == "ON CONFLICT DO UPDATE" and t.identity)
        and not (name == "UPDATE ONLY" and t.is_partitioned)
    }

    assert set(states.values()) == {"NE001"}, states
    assert await history.fingerprint() == before


async def test_guarantee_1_a_conflict_on_a_forged_position_is_refused_to_the_owner_too(
    history: History,
) -> None:
    for table in history.tables:
        if table.identity is None:
            continue
        everything = f'"{table.identity}", {table.insertable}'
        statement = (
            f"INSERT INTO {table.name} ({everything}) OVERRIDING SYSTEM VALUE "
            f"SELECT {everything} FROM {table.name} LIMIT 1 "
            f"ON CONFLICT ON CONSTRAINT {table.key} "
            f"DO UPDATE SET {_first(table)} = excluded.{_first(table)}"
        )
        assert await _refused(history.admin, statement) == "NE001", table.name


async def test_an_event_is_redacted_by_the_one_function_and_leaves_a_ledger_row(
    history: History,
) -> None:
    (before,) = await history.events.get_many([history.stimulus])

    assert await history.app.fetchval(_REDACT, history.stimulus) is True

    (after,) = await history.events.get_many([history.stimulus])
    assert after.content == {"redacted": True}
    assert after.salt is None
    assert after.is_redacted
    assert after.commitment == before.commitment
    kept = ("seq", "id", "type", "occurred_at", "recorded_at", "actor", "causes", "data")
    assert [getattr(after, k) for k in kept] == [getattr(before, k) for k in kept]
    ledger = await history.app.fetchrow(
        "SELECT event_seq, commitment, reason, policy, requester FROM redactions"
        " WHERE event_id = $1",
        history.stimulus,
    )
    assert ledger is not None
    assert tuple(ledger) == (before.seq, before.commitment, "asked for", "privacy", "user:t")
    assert b"a secret" not in await _everything(history)


async def _everything(history: History) -> bytes:
    rows = await history.admin.fetch("SELECT t::text FROM cognitive_events t")
    return "\n".join(r[0] for r in rows).encode()


async def test_a_redaction_happens_once_and_never_without_a_reason(history: History) -> None:
    assert await history.app.fetchval(_REDACT, history.stimulus) is True
    ledger = await history.app.fetchval("SELECT count(*) FROM redactions")

    assert await history.app.fetchval(_REDACT, history.stimulus) is False
    assert await history.app.fetchval(_REDACT, _IDS.new()) is False
    thought = next(e for e in await history.every() if e.type == "thought.admitted")
    for reason in ("''", "NULL"):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            await history.app.execute(
                f"SELECT noema_redact($1, {reason}, 'privacy', 'user:t')", thought.id
            )

    assert await history.app.fetchval("SELECT count(*) FROM redactions") == ledger
    assert (await history.events.get(thought.id)).content == {"text": "a thought"}


async def test_nothing_is_written_into_the_ledger_but_by_a_redaction(history: History) -> None:
    ledger = next(t for t in history.tables if t.name == "redactions")

    assert await _refused(history.app, _insert(ledger)) == "42501"


async def test_a_shadow_of_the_names_it_uses_does_not_deceive_the_redaction(
    history: History,
) -> None:
    before = await history.app.fetchval("SELECT count(*) FROM redactions")
    for name in ("cognitive_events", "redactions"):
        await history.app.execute(
            f"CREATE TEMP TABLE {name} AS SELECT * FROM public.{name} WITH NO DATA"
        )
        await history.app.execute(f"INSERT INTO pg_temp.{name} SELECT * FROM public.{name}")
    await history.app.execute("SET search_path = pg_temp, public")

    assert await history.app.fetchval(
        "SELECT public.noema_redact($1, 'r', 'p', 'q')", history.stimulus
    )

    (event,) = await history.events.get_many([history.stimulus])
    assert event.is_redacted
    assert await history.admin.fetchval("SELECT count(*) FROM public.redactions") == before + 1
    shadowed = await history.app.fetchval(
        "SELECT content ->> 'text' FROM pg_temp.cognitive_events WHERE id = $1", history.stimulus
    )
    assert shadowed == "a secret"


async def test_a_shadow_of_the_log_takes_no_events_from_the_server_side_commit(
    history: History,
) -> None:
    await history.app.execute(
        "CREATE TEMP TABLE cognitive_events (LIKE public.cognitive_events INCLUDING ALL)"
    )
    await history.app.execute("SET search_path = pg_temp, public")
    events = {"occurred": _CLOCK.now(), "actor": "user:t"}
    row = {"id": _IDS.new(), "type": "stimulus.received", "data": {}, "content": {"text": "real"}}
    proof = {"salt": "AAAA", "commitment": "AAAA"}

    await history.app.fetch(
        "SELECT * FROM public.noema_commit($1, $2, $3, '')",
        [{}],
        [],
        [events | {"events": [row | proof]}],
    )

    assert (await history.every())[-1].content == {"text": "real"}
    assert await history.app.fetchval("SELECT count(*) FROM pg_temp.cognitive_events") == 0


async def test_the_redactors_role_is_out_of_reach_and_may_set_the_marker_only(
    history: History,
) -> None:
    marker = "content = '{\"redacted\": true}', salt = NULL"
    by_daemon = await _refused(history.app, f"UPDATE cognitive_events SET {marker}")
    by_owner = await _refused(history.admin, f"UPDATE cognitive_events SET {marker}")
    async with history.db.reading() as tx:
        kind = (await protection.inspect(tx)).kind
    if kind == "separate roles":
        assert await _refused(history.app, "SET ROLE noema_redactor") == "42501"
    else:
        # One login for all: only the role it lowered itself to stands in between, and we say so.
        assert kind == "lowered role"
    assert (by_daemon, by_owner) == ("42501", "NE001")

    await history.admin.execute("SET ROLE noema_redactor")
    try:
        for change, state in (
            ("content = '{}', salt = NULL", "NE001"),
            ('content = \'{"redacted": true, "more": 1}\', salt = NULL', "NE001"),
            ("content = '{\"redacted\": true}'", "NE001"),
            (f"{marker}, data = '{{}}'", "42501"),
            ("seq = seq + 1", "428C9"),
            ("commitment = salt", "42501"),
        ):
            statement = f"UPDATE cognitive_events SET {change} WHERE id = '{history.stimulus}'"
            assert await _refused(history.admin, statement) == state, change
        for statement in ("DELETE FROM cognitive_events", "TRUNCATE cognitive_events"):
            assert await _refused(history.admin, statement) == "42501"
        assert await _refused(history.admin, "UPDATE redactions SET reason = 'other'") == "42501"
    finally:
        await history.admin.execute("RESET ROLE")


async def test_a_new_partition_is_guarded_and_the_log_goes_on(history: History) -> None:
    owner = await asyncpg.connect(history.database.owner_dsn)
    try:
        before = await history.every()
        assert await owner.fetchval("SELECT noema_roll_partition()") == "cognitive_events_p0002"
        # An empty partition is not closed.
        assert await owner.fetchval("SELECT noema_roll_partition()") == "cognitive_events_p0002"
        second = await history.append("in the second", causes=(history.stimulus,))
        assert await owner.fetchval("SELECT noema_roll_partition()") == "cognitive_events_p0003"
        third = await history.append("in the third", causes=(history.stimulus, second))
    finally:
        await owner.close()

    after = await history.every()
    assert [e.seq for e in after] == sorted(e.seq for e in after)
    assert [e.id for e in after] == [*(e.id for e in before), second, third]
    assert await _partition_of(history, history.stimulus) == "cognitive_events_p0001"
    assert await _partition_of(history, second) == "cognitive_events_p0002"
    assert await _partition_of(history, third) == "cognitive_events_p0003"
    with pytest.raises(InvalidInput, match="cause"):
        await history.append("of nothing", causes=(_IDS.new(),))

    tables = [t for t in await _tables(history.admin) if t.name.startswith("cognitive_events")]
    assert [t.name for t in tables] == [
        "cognitive_events",
        *(f"cognitive_events_p000{n}" for n in (1, 2, 3)),
    ]
    for table in tables:
        for name in ("UPDATE", "DELETE", "TRUNCATE", "MERGE that deletes"):
            assert await _refused(history.app, CHANGES[name](table)) == "42501", (name, table.name)
            assert await _refused(history.admin, CHANGES[name](table)) == "NE001", (
                name,
                table.name,
            )
        if table.is_partition:
            assert await _refused(history.app, _insert(table)) == "42501", table.name
    async with history.db.reading() as tx:
        assert (await protection.inspect(tx)).findings == ()
    # What lies in a closed partition can still be redacted.
    assert await history.app.fetchval(_REDACT, history.stimulus) is True
    assert (await history.events.get(history.stimulus)).is_redacted


async def _partition_of(history: History, event: UUID) -> Any:
    return await history.admin.fetchval(
        "SELECT tableoid::regclass::text FROM cognitive_events WHERE id = $1", event
    )

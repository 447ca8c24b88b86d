"""The limit: what the same rows cost when nothing is guarded, fenced, ordered or announced.

A plain asyncpg loop, one transaction per cycle, no lock, into tables with the same columns and the
same indexes, and with no trigger, no foreign key and no notification.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from noema.core.clock import Ids
from noema.db.tx import Conn
from noema.events.model import NewEvent
from noema.events.unit import Unit
from tests.bench.place import Place

_TABLES: Final = """
    CREATE TABLE bare_events (LIKE cognitive_events INCLUDING ALL);
    CREATE UNIQUE INDEX bare_events_id ON bare_events (id);
    CREATE TABLE bare_minds (LIKE minds INCLUDING ALL) WITH (fillfactor = 50);
    CREATE TABLE bare_workspaces (LIKE workspace_states INCLUDING ALL) WITH (fillfactor = 50);
    CREATE TABLE bare_derivations (LIKE derivations INCLUDING ALL);
    DO $$ BEGIN
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'noema_app') THEN
            GRANT SELECT, INSERT, UPDATE
            ON bare_events, bare_minds, bare_workspaces, bare_derivations TO noema_app;
        END IF;
    END $$;
"""

INSERT_EVENTS: Final = """
    INSERT INTO bare_events
        (id, mind_id, cycle_id, type, occurred_at, actor, causes, data, content, salt, commitment)
    SELECT id, mind, cycle, type, occurred, actor, causes::uuid[], data, content, salt, proof
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[], $6::text[],
                $7::text[], $8::jsonb[], $9::jsonb[], $10::bytea[], $11::bytea[])
        AS e(id, mind, cycle, type, occurred, actor, causes, data, content, salt, proof)
"""

_UPDATE_MIND: Final = """
    UPDATE bare_minds SET cursor = $2, cycles = $3, pending = $4, last_cycle_at = $5, next_due = $6,
                          mode = $7, mode_until = $8, last_error = NULL
    WHERE id = $1
"""

_KEEP_WORKSPACE: Final = """
    INSERT INTO bare_workspaces AS w (mind_id, cycle, workspace, state, state_cycle, state_version)
    VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (mind_id) DO UPDATE SET
        cycle = excluded.cycle, workspace = excluded.workspace,
        state = coalesce(excluded.state, w.state),
        state_cycle = coalesce(excluded.state_cycle, w.state_cycle),
        state_version = coalesce(excluded.state_version, w.state_version)
"""

_INSERT_DERIVATIONS: Final = """
    INSERT INTO bare_derivations (from_id, to_id, kind)
    SELECT f, t, k FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS d(f, t, k)
"""


async def prepare(place: Place) -> None:
    """Make the tables of the limit."""
    async with place.admin() as conn:
        await conn.execute(_TABLES)


async def add_mind(conn: Conn, mind: object, slug: str) -> None:
    """Give the bare loop the mind's row to update."""
    await conn.execute(
        "INSERT INTO bare_minds (id, slug, name, namespace) VALUES ($1, $2, $2, 'home')", mind, slug
    )


class Columns(msgspec.Struct, frozen=True):
    """Events as the arrays of one INSERT; ids are set anew every time."""

    arrays: tuple[list[Any], ...]

    def fresh(self, ids: Ids) -> tuple[list[Any], ...]:
        new = [ids.new() for _ in self.arrays[0]]
        return (new, *self.arrays[1:])


def columns(events: Sequence[NewEvent]) -> Columns:
    """Return the events' columns."""
    return Columns(
        (
            [e.id for e in events],
            [e.mind_id for e in events],
            [e.cycle_id for e in events],
            [e.type for e in events],
            [e.occurred_at for e in events],
            [e.actor for e in events],
            ["{" + ",".join(map(str, e.causes)) + "}" for e in events],
            [e.data for e in events],
            [msgspec.Raw(e.content) for e in events],
            [e.salt for e in events],
            [e.commitment for e in events],
        )
    )


class Cycle:
    """The rows of one recorded cycle, to be written over and over under new ids."""

    def __init__(self, unit: Unit) -> None:
        assert unit.cycle is not None
        self.mind = unit.events[0].mind_id
        self._columns = columns(unit.events)
        self._update = unit.cycle
        self._derivations = unit.derivations

    async def write(self, conn: Any, ids: Ids, number: int) -> None:
        """Write the cycle in one transaction."""
        update = self._update
        arrays = self._columns.fresh(ids)
        # As in the real thing: a thought's links name its new id.
        links = [ids.new() for _ in self._derivations]
        async with conn.transaction():
            await conn.execute(
                _UPDATE_MIND, self.mind, update.cursor, number, update.pending, update.at,
                update.next_due, update.mode, update.mode_until,
            )  # fmt: skip
            await conn.execute(
                _KEEP_WORKSPACE, self.mind, number, update.workspace, update.state,
                number if update.state else None, update.state_version,
            )  # fmt: skip
            if links:
                await conn.execute(
                    _INSERT_DERIVATIONS,
                    [d.source for d in self._derivations],
                    links,
                    [d.kind for d in self._derivations],
                )
            await conn.execute(INSERT_EVENTS, *arrays)

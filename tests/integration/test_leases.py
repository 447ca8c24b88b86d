"""Leases are locked in one order by all who lock several."""

import asyncio

from noema.cognition import store
from noema.core.clock import SystemClock, UuidV7Ids
from noema.db.tx import Database, Tx
from tests.helpers import eventually

_INSERT = "INSERT INTO minds (id, slug, name, namespace) VALUES ($1, $2, $2, 'home')"
_SHARE = "SELECT FROM mind_leases WHERE mind_id = $1 FOR SHARE"
_SHARE_NOW = "SELECT FROM mind_leases WHERE mind_id = $1 FOR SHARE NOWAIT"
_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


async def _somebody_waits(db: Database) -> bool:
    async with db.reading() as tx:
        return bool(await tx.conn.fetchval(_WAITING))


async def test_a_renewal_and_a_group_commit_never_wait_for_each_other_in_a_circle(
    db: Database,
) -> None:
    ids = UuidV7Ids(SystemClock())
    owner, low, high = ids.new(), ids.new(), ids.new()
    async with db.transaction() as tx:
        for mind, slug in ((low, "low"), (high, "high")):
            await tx.conn.execute(_INSERT, mind, slug)
            await store.take_lease(tx.conn, mind, owner=owner, for_s=60)

    async def renew() -> set[object]:
        async with db.transaction() as tx:
            return set(await store.renew_leases(tx.conn, {high: 1, low: 1}, owner=owner, for_s=60))

    async def commit(tx: Tx) -> None:
        await tx.conn.execute(_SHARE, low)
        await eventually(lambda: _somebody_waits(db))
        await tx.conn.execute(_SHARE_NOW, high)

    async with asyncio.TaskGroup() as group, db.transaction() as tx:
        await tx.conn.execute(_SHARE, low)
        renewal = group.create_task(renew())
        await commit(tx)

    assert renewal.result() == {low, high}

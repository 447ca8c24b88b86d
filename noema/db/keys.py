"""The key that values in this database are sealed with, and the check that it is the right one.

The key is NOEMA_SECRET_KEY, or made in the data directory when something is sealed for the first
time. Its fingerprint is kept in the database: with another key the daemon refuses to start, rather
than write what nobody can read.
"""

import asyncio
from pathlib import Path
from typing import Final

from noema.core.errors import ConfigError
from noema.core.sealing import Sealer
from noema.core.secret import key_from_file
from noema.db.tx import Database

NAME: Final = "secret"
FILE: Final = "secret.key"

_REMEMBER = """
    INSERT INTO key_fingerprints (name, fingerprint) VALUES ($1, $2) ON CONFLICT DO NOTHING
"""
_REMEMBERED = "SELECT fingerprint FROM key_fingerprints WHERE name = $1"


class Keys:
    """The one key of this installation, loaded when it is first needed."""

    def __init__(self, *, db: Database, key: bytes | None, data_dir: Path) -> None:
        """`key` is the configured one; without it the data directory keeps one."""
        self._db = db
        self._key = key
        self._file = data_dir / FILE
        self._sealer: Sealer | None = None

    async def check(self) -> None:
        """Raise ConfigError where something was sealed with another key than ours."""
        async with self._db.reading() as tx:
            known = await tx.conn.fetchval(_REMEMBERED, NAME)
        if known is not None:
            await self.sealer()

    async def sealer(self) -> Sealer:
        """Return the sealer; raise ConfigError where the key is not the database's, or unusable."""
        if self._sealer is not None:
            return self._sealer
        key = self._key if self._key is not None else await self._kept()
        sealer = Sealer(key)
        async with self._db.transaction() as tx:
            await tx.conn.execute(_REMEMBER, NAME, sealer.fingerprint)
            known = await tx.conn.fetchval(_REMEMBERED, NAME)
        if bytes(known) != sealer.fingerprint:
            where = "NOEMA_SECRET_KEY" if self._key else str(self._file)
            raise ConfigError(
                f"The key in {where} is not the one this database was sealed with. Bring that key "
                "here, or set NOEMA_SECRET_KEY to it."
            )
        self._sealer = sealer
        return sealer

    async def _kept(self) -> bytes:
        return await asyncio.to_thread(key_from_file, self._file)

"""Limits on attempts: a token bucket for every address, a growing delay for every account.

An attempt is charged before it is looked at, in a transaction of its own: neither many at once nor
a caller that hangs up in the middle gets one for nothing. Success forgives.

Nobody can lock a person out for good. The delay ends after fifteen minutes at most; a browser the
person has come in with before counts apart from strangers; and `noemactl user unlock --local`
forgives everything.
"""

import hmac
import secrets
from collections import OrderedDict
from datetime import timedelta
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from math import ceil
from typing import Final
from uuid import UUID

from noema.auth.store import doors
from noema.core.clock import Clock
from noema.db.tx import Database, Tx

BURST: Final = 60
REFILL_S: Final = 2.0
MOST_ADDRESSES: Final = 10_000
LONGEST_S: Final = 900
DELAYS_S: Final = (0, 0, 0, 0, *(min(2**n, LONGEST_S) for n in range(11)))
"""Seconds to wait after so many failures in a row: four are free, then 1, 2, 4 … 900."""

_FORGOTTEN_AFTER: Final = timedelta(days=1)
_MARKS: Final = 1 << 20
_IPV6_SITE_BITS: Final = 64

OPEN_LANE: Final = "strangers"


class Addresses:
    """A token bucket per address, in memory; the ones not seen for longest make room."""

    def __init__(
        self,
        *,
        clock: Clock,
        burst: int = BURST,
        refill_s: float = REFILL_S,
        most: int = MOST_ADDRESSES,
    ) -> None:
        self._clock = clock
        self._burst = burst
        self._refill_s = refill_s
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float, bool]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, address: str) -> int:
        """Take one attempt; return 0, or after how many seconds the next one is due."""
        key = site_of(address)
        now = self._clock.monotonic()
        left, at, told = self._buckets.pop(key, (float(self._burst), now, False))
        left = min(float(self._burst), left + (now - at) / self._refill_s)
        is_allowed = left >= 1
        self._buckets[key] = (left - 1 if is_allowed else left, now, told and not is_allowed)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0 if is_allowed else max(1, ceil((1 - left) * self._refill_s))

    def is_first_refusal(self, address: str) -> bool:
        """Whether the address was just refused for the first time since it was last allowed.

        A flood is then one row of the audit log, not a flood of them.
        """
        key = site_of(address)
        left, at, told = self._buckets.get(key, (0.0, 0.0, False))
        if key in self._buckets:
            self._buckets[key] = (left, at, True)
        return not told


def site_of(address: str) -> str:
    """Return what counts as one address: an IPv6 site has 2^64 of them to itself."""
    try:
        found = ip_address(address)
    except ValueError:
        return address[:100]
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        kept = int(found) >> _IPV6_SITE_BITS << _IPV6_SITE_BITS
        return f"{IPv6Address(kept)}/{_IPV6_SITE_BITS}"
    return str(found)


class Accounts:
    """The delay of each account, kept in the database."""

    def __init__(self, *, db: Database) -> None:
        self._db = db
        # Names that nobody has are counted like others, or the answers would tell them apart. They
        # may be passwords typed into the wrong field: a mark under a key that is never stored
        # cannot be guessed back, and there are only so many marks.
        self._key = secrets.token_bytes(32)

    def mark(self, name: str) -> str:
        """Return what stands for a name that nobody has."""
        mac = hmac.digest(self._key, name.encode("utf-8", "surrogatepass"), sha256)
        return f"nobody:{int.from_bytes(mac[:4]) % _MARKS:05x}"

    async def charge(self, account: UUID | str, lane: str = OPEN_LANE) -> int:
        """Count an attempt; return 0, or after how many seconds the next one is allowed."""
        async with self._db.transaction() as tx:
            return await doors.charge(
                tx.conn,
                str(account),
                lane,
                now=tx.now,
                forgotten_before=tx.now - _FORGOTTEN_AFTER,
                delays_s=DELAYS_S,
            )

    async def forgive(self, tx: Tx, account: UUID, lane: str | None = None) -> None:
        """Forget the failures of one lane, or of all."""
        await doors.forgive(tx.conn, str(account), lane)

    async def prune(self, tx: Tx) -> None:
        """Forget failures older than a day."""
        await doors.prune_failures(tx.conn, tx.now - _FORGOTTEN_AFTER)

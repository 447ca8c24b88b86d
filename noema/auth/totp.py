"""Codes that change every thirty seconds (RFC 6238), and recovery codes for want of one.

A code is six ASCII digits, good once, for its own step and one either side. Every attempt is
counted before it is looked at. The seed is stored encrypted, the recovery codes as hashes.
"""

import hmac
import re
import secrets
from dataclasses import dataclass, field
from io import BytesIO
from typing import Final
from uuid import UUID

import pyotp
import segno

from noema.auth.store import people
from noema.core.secret import digest
from noema.db.keys import Keys
from noema.db.tx import Tx

STEP_S: Final = 30
DRIFT: Final = 1
RECOVERY_CODES: Final = 10
_PURPOSE: Final = "totp"
_CODE: Final = re.compile("[0-9]{6}")
# Crockford's alphabet: no I, L, O, U, which are read as something else.
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_MISREAD: Final = str.maketrans("ILO", "110", "- ")
# 24 of 32 characters are 120 bits, and so many need no slow hash.
_GROUPS: Final = 6
_GROUP_CHARS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """What a person's app needs, shown once: the seed, the same as a URL, and that as a picture.

    `svg` has classes and no style attributes; it may stand in a page under a strict policy.
    """

    secret: str = field(repr=False)
    url: str = field(repr=False)
    svg: str = field(repr=False)


def new_seed() -> str:
    """Return a new seed of 160 bits in base32."""
    return pyotp.random_base32(32)


def enrolment(seed: str, *, user: str, issuer: str) -> Enrolment:
    """Return the enrolment for a seed."""
    url = pyotp.TOTP(seed).provisioning_uri(name=user, issuer_name=issuer)
    drawn = BytesIO()
    segno.make(url, error="m", micro=False).save(
        drawn,
        kind="svg",
        xmldecl=False,
        svgns=False,
        omitsize=True,
        svgclass="qr",
        lineclass="qr-dark",
        border=4,
        light="#fff",
        dark="#000",
    )
    return Enrolment(secret=seed, url=url, svg=drawn.getvalue().decode())


def step_of(seed: str, code: str, *, unix_s: int) -> int | None:
    """Return the step that the code belongs to, within one of now; None where it is no such code.

    Only six ASCII digits are a code; a digit of another script is not.
    """
    if not _CODE.fullmatch(code):
        return None
    totp = pyotp.TOTP(seed)
    now = unix_s // STEP_S
    found: int | None = None
    # All of them are compared, so that the time taken says nothing.
    for step in range(now - DRIFT, now + DRIFT + 1):
        if step >= 0 and hmac.compare_digest(totp.generate_otp(step), code):
            found = step
    return found


def spaceless(code: str) -> str:
    """Return the code without the ASCII spaces that apps show in the middle of it."""
    return code.strip(" ").replace(" ", "")


def new_recovery_codes() -> tuple[str, ...]:
    """Return ten codes to be written down, each good once."""
    return tuple(
        "-".join(
            "".join(secrets.choice(_ALPHABET) for _ in range(_GROUP_CHARS)) for _ in range(_GROUPS)
        )
        for _ in range(RECOVERY_CODES)
    )


def recovery_digest(code: str) -> bytes:
    """Return what is kept of a recovery code; case, dashes and misread letters do not matter."""
    return digest(code[:100].upper().translate(_MISREAD))


class SecondFactor:
    """The person's seed and recovery codes in the database; the caller limits the attempts."""

    def __init__(self, *, keys: Keys) -> None:
        self._keys = keys

    async def seal(self, user_id: UUID, seed: str) -> bytes:
        """Return the seed encrypted for this person."""
        sealer = await self._keys.sealer()
        return sealer.seal(seed.encode("ascii"), purpose=_PURPOSE, owner=str(user_id))

    async def open(self, user_id: UUID, sealed: bytes) -> str:
        """Return the seed; raise Unavailable where it cannot be opened."""
        sealer = await self._keys.sealer()
        return sealer.open(sealed, purpose=_PURPOSE, owner=str(user_id)).decode("ascii")

    async def use_code(self, tx: Tx, user_id: UUID, *, seed: str, code: str) -> bool:
        """Use a code up; return False where it is wrong, or was or is being used by another."""
        step = step_of(seed, spaceless(code), unix_s=int(tx.now.timestamp()))
        return step is not None and await people.use_step(tx.conn, user_id, step)

    async def use_recovery_code(self, tx: Tx, user_id: UUID, code: str) -> bool:
        """Use a recovery code up; return False where it is wrong or was used before."""
        return await people.use_recovery(tx.conn, user_id, recovery_digest(code), tx.now)

    async def renew_recovery_codes(self, tx: Tx, user_id: UUID) -> tuple[str, ...]:
        """Replace the person's recovery codes and return the new ones, for the only time."""
        codes = new_recovery_codes()
        await people.set_recovery(tx.conn, user_id, [recovery_digest(code) for code in codes])
        return codes

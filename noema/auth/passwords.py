"""Password hashes: Argon2id, two at a time whatever comes, and the same work for nobody's account.

64 MiB, t=3, p=2, 16-byte salt. A hash made with other parameters still verifies, and is made anew
at the next login.
"""

import asyncio
import secrets
import unicodedata
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import ARGON2_VERSION, Type

from noema.core.errors import InvalidInput, RateLimited, TooLarge

T = TypeVar("T")

SHORTEST: Final = 12
MAX_BYTES: Final = 1_024
AT_ONCE: Final = 2
_MOST_WAITING: Final = 200
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_FEWEST_DIFFERENT: Final = 5
_BESIDES_THE_NAME: Final = 8
_RUNS: Final = ("abcdefghijklmnopqrstuvwxyz", "01234567890123456789", "qwertyuiopasdfghjklzxcvbnm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a hash costs."""

    memory_kib: int = 65_536
    passes: int = 3
    lanes: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a password was right, and whether its hash should be made anew."""

    matches: bool
    is_outdated: bool = False


class Passwords:
    """Hashes and verifies in two threads; a cancelled caller does not make room for a third."""

    def __init__(self, *, parameters: Parameters | None = None) -> None:
        parameters = parameters or Parameters()
        self._hasher = PasswordHasher(
            time_cost=parameters.passes,
            memory_cost=parameters.memory_kib,
            parallelism=parameters.lanes,
            hash_len=_HASH_BYTES,
            salt_len=_SALT_BYTES,
            type=Type.ID,
        )
        # A real hash of nothing: verifying against it costs what any other does and never succeeds.
        self._nobodys = (
            f"$argon2id$v={ARGON2_VERSION}$m={parameters.memory_kib},t={parameters.passes},"
            f"p={parameters.lanes}${_chance(_SALT_BYTES)}${_chance(_HASH_BYTES)}"
        )
        # The threads are the semaphore: one that is held by a task would be let go when the task
        # is cancelled, while its thread goes on.
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="argon2")
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Return the hash to keep; raise TooLarge over 1,024 bytes."""
        raw = _bytes(password)
        return await self._in_thread(lambda: self._hasher.hash(raw))

    async def verify(self, stored: str | None, password: str) -> Verdict:
        """Return whether the password is the stored one, after the same work where none is stored.

        Raises TooLarge over 1,024 bytes before any work, RateLimited where 200 wait already.
        """
        raw = _bytes(password)
        return await self._in_thread(lambda: self._verified(stored, raw))

    def _verified(self, stored: str | None, raw: bytes) -> Verdict:
        try:
            self._hasher.verify(self._nobodys if stored is None else stored, raw)
        except (VerificationError, InvalidHashError):
            return Verdict(matches=False)
        if stored is None:
            return Verdict(matches=False)
        return Verdict(matches=True, is_outdated=self._hasher.check_needs_rehash(stored))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._waiting >= _MOST_WAITING:
            raise RateLimited("Too many people are logging in at once; try again in a moment.")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Let the threads go; what waits is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def check_policy(password: str, *, user_name: str) -> None:
    """Raise InvalidInput where the password is too short, too long, or too easy to guess.

    There is no rule about kinds of characters: length is what helps.
    """
    text = _normal(password)
    _bytes(password)
    if len(text) < SHORTEST:
        raise InvalidInput(f"Use at least {SHORTEST} characters.", field="password")
    folded = text.casefold()
    rest = folded.replace(user_name.casefold(), "")
    if rest != folded and len(rest) < _BESIDES_THE_NAME:
        raise InvalidInput("Use something other than your name.", field="password")
    if len(set(folded)) < _FEWEST_DIFFERENT or _is_run(folded):
        raise InvalidInput("That is too easy to guess; mix other characters in.", field="password")


def _is_run(text: str) -> bool:
    return any(text in run * 4 or text in run[::-1] * 4 for run in _RUNS) or any(
        text == text[:n] * (len(text) // n) for n in range(1, len(text) // 2) if len(text) % n == 0
    )


def is_too_long(password: str) -> bool:
    """Whether the password is over 1,024 bytes, which are refused before anything is done."""
    # A character has one byte at least, so a very long text need not be encoded to be refused.
    return len(password) > MAX_BYTES or len(_normal(password).encode("utf-8", "surrogatepass")) > (
        MAX_BYTES
    )


def _bytes(password: str) -> bytes:
    if is_too_long(password):
        raise TooLarge(f"A password has at most {MAX_BYTES:,} bytes.", field="password")
    return _normal(password).encode("utf-8", "surrogatepass")


def _normal(password: str) -> str:
    # Keyboards spell the same letter in two ways; nothing else about a password is changed.
    return unicodedata.normalize("NFC", password)


def _chance(size: int) -> str:
    return b64encode(secrets.token_bytes(size)).decode().rstrip("=")

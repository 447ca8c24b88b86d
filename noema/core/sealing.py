"""Values encrypted so that a row alone is no use.

A sealed value is bound to its purpose and its owner: moved to another row or column, or with one
bit changed, it does not open. Values are AES-256-GCM under a key derived from the master key.
"""

import secrets
from contextlib import suppress
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from noema.core.errors import ConfigError, Unavailable
from noema.core.secret import KEY_BYTES

_NONCE_BYTES: Final = 12
_VERSION: Final = b"\x01"


class Sealer:
    """Seals and opens small values under one master key."""

    def __init__(self, key: bytes) -> None:
        """Raises ConfigError where the key is not 32 bytes."""
        if len(key) != KEY_BYTES:
            raise ConfigError(f"A secret key is {KEY_BYTES} bytes, not {len(key)}.")
        self._aead = AESGCM(_derive(key, b"noema seal"))
        self.fingerprint = _derive(key, b"noema fingerprint")[:16]
        """Tells keys apart and gives nothing of them away."""

    def seal(self, value: bytes, *, purpose: str, owner: str) -> bytes:
        """Return the value encrypted for this purpose and owner."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + nonce + self._aead.encrypt(nonce, value, _bound(purpose, owner))

    def open(self, sealed: bytes, *, purpose: str, owner: str) -> bytes:
        """Return the value, or raise Unavailable: never garbage, and never somebody else's."""
        nonce, body = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        if sealed[:1] == _VERSION:
            with suppress(InvalidTag, ValueError):
                return self._aead.decrypt(nonce, body, _bound(purpose, owner))
        raise Unavailable(
            "A stored secret cannot be opened: it was changed, or NOEMA_SECRET_KEY is not the key "
            "it was stored with. Restore the key, or set the secret anew."
        )


def _derive(key: bytes, use: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=use).derive(key)


def _bound(purpose: str, owner: str) -> bytes:
    return f"{len(purpose)}:{purpose}:{owner}".encode()

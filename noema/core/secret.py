"""Secrets: random ones, what is kept of them, and the key that others are sealed with."""

import os
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from noema.core.errors import ConfigError

KEY_BYTES: Final = 32


def new_secret() -> str:
    """Return 256 random bits as 43 URL-safe characters."""
    return secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    """Return what is kept of a random secret; 256 random bits need no slow hash."""
    return sha256(secret.encode("utf-8", errors="surrogatepass")).digest()


def key_from_text(text: str, *, name: str) -> bytes:
    """Return the 32 bytes that base64 text stands for; an error names the setting, no value."""
    plain = text.strip().replace("-", "+").replace("_", "/").rstrip("=")
    try:
        key = b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (Base64Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"{name} is not {KEY_BYTES} bytes in base64. Make one with: "
            'python3 -c "import base64, os; print(base64.b64encode(os.urandom(32)).decode())"'
        )
    return key


def key_from_file(path: Path) -> bytes:
    """Return the key in the file, made on first use and readable by its owner alone.

    Raises ConfigError where the file cannot be made or read, or does not hold a key.
    """
    try:
        with suppress(FileExistsError):
            _make_key(path)
        path.chmod(0o600)
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise ConfigError(
            f"Cannot keep a secret key in {path}: {reason}. Make the directory writable, or set "
            "NOEMA_SECRET_KEY."
        ) from exc
    return key_from_text(text, name=str(path))


def _make_key(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return
    # Written whole beside its place and then put there: a crash leaves no half a key, and of two
    # that make one at once the first wins.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    finally:
        draft.unlink()

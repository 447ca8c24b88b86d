"""Guarantee 26, for secrets in rows: moved, changed, or under another key, they do not open."""

import base64
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from noema.core.errors import ConfigError, Unavailable
from noema.core.sealing import Sealer
from noema.core.secret import digest, key_from_file, key_from_text, new_secret

KEY = bytes(range(32))


def test_a_sealed_value_opens_for_its_purpose_and_owner() -> None:
    sealer = Sealer(KEY)

    sealed = sealer.seal(b"seed", purpose="totp", owner="1")

    assert sealer.open(sealed, purpose="totp", owner="1") == b"seed"
    assert b"seed" not in sealed
    assert sealer.seal(b"seed", purpose="totp", owner="1") != sealed


@pytest.mark.parametrize(("purpose", "owner"), [("totp", "2"), ("llm", "1"), ("totp:", "1")])
def test_guarantee_26_a_sealed_value_moved_elsewhere_does_not_open(
    purpose: str, owner: str
) -> None:
    sealed = Sealer(KEY).seal(b"seed", purpose="totp", owner="1")

    with pytest.raises(Unavailable, match="cannot be opened"):
        Sealer(KEY).open(sealed, purpose=purpose, owner=owner)


def test_guarantee_26_no_flipped_bit_and_no_other_key_opens_it() -> None:
    sealed = Sealer(KEY).seal(b"seed", purpose="totp", owner="1")

    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(Unavailable):
            Sealer(KEY).open(bytes(changed), purpose="totp", owner="1")
    for broken in (b"", sealed[:5], sealed[:-1]):
        with pytest.raises(Unavailable):
            Sealer(KEY).open(broken, purpose="totp", owner="1")
    with pytest.raises(Unavailable):
        Sealer(bytes(32)).open(sealed, purpose="totp", owner="1")


def test_keys_have_fingerprints_that_differ() -> None:
    assert Sealer(KEY).fingerprint == Sealer(KEY).fingerprint
    assert Sealer(KEY).fingerprint != Sealer(bytes(32)).fingerprint


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret.key"

    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(lambda _: key_from_file(path), range(32)))

    assert len(keys) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["secret.key"]


def test_guarantee_18_a_wrong_key_is_named_and_not_shown() -> None:
    for text in ("hunter2", "", base64.b64encode(bytes(31)).decode(), "!" * 44):
        with pytest.raises(ConfigError, match="NOEMA_SECRET_KEY is not 32 bytes") as refused:
            key_from_text(text, name="NOEMA_SECRET_KEY")
        assert not text or text not in str(refused.value)


def test_a_key_may_be_written_in_either_base64() -> None:
    key = bytes(range(224, 256))

    assert key_from_text(base64.b64encode(key).decode(), name="K") == key
    assert key_from_text(base64.urlsafe_b64encode(key).decode().rstrip("="), name="K") == key


def test_a_secret_has_256_bits_and_its_digest_does_not_show_it() -> None:
    secret = new_secret()

    assert len(base64.urlsafe_b64decode(secret + "=")) == 32
    assert len(digest(secret)) == 32
    assert secret.encode() not in digest(secret)

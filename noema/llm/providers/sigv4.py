"""Signature Version 4 of Amazon Web Services, as far as a JSON request by POST needs it.

After "Create a signed AWS API request" in AWS's Identity and Access Management User Guide. The path
is encoded once for the wire and a second time for the signature, as every service but S3 wants it:
the slash of an ARN is `%2F` on the wire and `%252F` in the canonical path.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from noema.core.errors import ConfigError, InvalidInput

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_END: Final = "aws4_request"
_JSON: Final = "application/json"
_UNRESERVED: Final = "-._~"
# What a part of a credential is made of: an id of letters and digits, the others base64.
_ID: Final = re.compile(r"[A-Za-z0-9_]{4,128}\Z")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/=_-]{4,65536}\Z")


@dataclass(frozen=True, slots=True)
class Credential:
    """A key of AWS; with a session token where it is a temporary one. Never shown."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)

    @property
    def parts(self) -> tuple[str, ...]:
        """All that must not come back in a message."""
        every = (self.secret_access_key, self.session_token, self.access_key_id)
        return tuple(part for part in every if part)


def credential_from(text: str) -> Credential:
    """Return the credential in `ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]`.

    Raises ConfigError, which holds nothing of it, where it is not of that form.
    """
    key_id, _, rest = text.strip().partition(":")
    secret, colon, token = rest.partition(":")
    is_whole = _ID.match(key_id) and _BASE64.match(secret) and (not colon or _BASE64.match(token))
    if not is_whole:
        raise ConfigError(
            "The key for Amazon Bedrock is not of the form "
            "ACCESS_KEY_ID:SECRET_ACCESS_KEY or ACCESS_KEY_ID:SECRET_ACCESS_KEY:SESSION_TOKEN."
        )
    return Credential(key_id, secret, token)


def segment(name: str) -> str:
    """Return a name as one segment of a path, as it goes over the wire."""
    return quote(name, safe=_UNRESERVED)


def canonical_path(path: str) -> str:
    """Return the path of the wire as it is signed."""
    return quote(path, safe=f"/{_UNRESERVED}")


def signed_headers(
    *,
    credential: Credential,
    region: str,
    service: str,
    host: str,
    path: str,
    body: bytes,
    now: datetime,
) -> dict[str, str]:
    """Return the headers that sign a POST of the JSON body at the moment; send them as they are.

    `host` is the host header, with the port where it is not the scheme's own; `path` is as it goes
    over the wire, without a query.
    """
    if now.tzinfo is None:
        raise InvalidInput("A request is signed at a moment of a known time zone.", field="now")
    moment = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    signed = {"content-type": _JSON, "host": host, "x-amz-date": moment}
    if credential.session_token:
        signed["x-amz-security-token"] = credential.session_token
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        (
            "POST",
            canonical_path(path),
            "",
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            sha256(body).hexdigest(),
        )
    )
    scope = f"{moment[:8]}/{region}/{service}/{_END}"
    to_sign = "\n".join((_ALGORITHM, moment, scope, sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{credential.secret_access_key}".encode()
    for part in (moment[:8], region, service, _END):
        key = _hmac(key, part)
    authorization = (
        f"{_ALGORITHM} Credential={credential.access_key_id}/{scope}, "
        f"SignedHeaders={names}, Signature={_hmac(key, to_sign).hex()}"
    )
    return {**signed, "authorization": authorization}


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), sha256).digest()


def without_host(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers without `host`, which the client writes itself, from the address."""
    return {name: value for name, value in headers.items() if name != "host"}

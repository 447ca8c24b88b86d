"""The first way in: a bootstrap token, one-time links that turn it into a session, sessions.

Tokens, links and session ids are 256 random bits; the database keeps their SHA-256 only. A token is
`noema_` + 43 characters (base64url) + 6 characters of checksum, so that a mistyped one is refused
without a look at the database, and a leaked one is recognised by scanners.
"""

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec

from noema.auth import store
from noema.core.clock import Clock, Ids
from noema.core.errors import InvalidInput, NotFound, Unauthorised
from noema.core.identity import ConsoleRole, Identity, MemoryRole
from noema.db.tx import Database, Tx

PREFIX: Final = "noema_"
LINK_LASTS: Final = timedelta(minutes=30)
SESSION_LASTS: Final = timedelta(days=7)
SESSION_IDLE: Final = timedelta(hours=24)
_NOTE_USE_EVERY: Final = timedelta(minutes=1)
_SECRET_CHARS: Final = 43
_CHECK_CHARS: Final = 6


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that came in: who it acts for, and the token its forms must carry."""

    identity: Identity
    csrf: str
    digest: bytes


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is listed; the token itself was shown once and is not kept."""

    id: UUID
    name: str
    hint: str
    namespace: str
    memory_role: str
    console_role: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class Access:
    """Who comes in, by token, link or session."""

    def __init__(self, *, db: Database, clock: Clock, ids: Ids) -> None:
        self._db = db
        self._clock = clock
        self._ids = ids

    async def has_token(self) -> bool:
        """Whether any token has been made yet."""
        async with self._db.reading() as tx:
            return await store.count_tokens(tx.conn) > 0

    async def create_token(self, name: str) -> str:
        """Make an administrator's token for the namespace `home`; it is never shown again."""
        if not name.strip() or len(name) > 100:
            raise InvalidInput("A token's name has 1 to 100 characters.", field="name")
        token = new_token()
        async with self._db.transaction() as tx:
            await store.insert_token(
                tx.conn,
                id_=self._ids.new(),
                name=name.strip(),
                digest=digest(token),
                hint=token[: len(PREFIX) + 4],
                namespace="home",
                memory_role=MemoryRole.OWNER.value,
                console_role=ConsoleRole.ADMINISTRATOR.value,
                at=tx.now,
            )
        return token

    async def tokens(self) -> list[TokenRow]:
        """Return all tokens, oldest first."""
        async with self._db.reading() as tx:
            return [TokenRow(**row) for row in await store.tokens(tx.conn)]

    async def by_token(self, token: str) -> Identity:
        """Return who the token speaks for; raise Unauthorised where it is no token of ours."""
        if not looks_like_token(token):
            raise Unauthorised("That is not a token of Noema: it is mistyped or cut off.")
        async with self._db.reading() as tx:
            row = await store.token(tx.conn, digest(token))
        if row is None:
            raise Unauthorised("This token is not known here, or it was revoked.")
        now = self._clock.now()
        if row["last_used_at"] is None or now - row["last_used_at"] > _NOTE_USE_EVERY:
            async with self._db.transaction() as tx:
                await store.token_used(tx.conn, row["id"], now)
        return _identity(row["name"], row, agent_id="http")

    async def new_link(self, *, base_url: str) -> str:
        """Return a link that lets one browser in once, within half an hour."""
        async with self._db.transaction() as tx:
            token_id = await store.first_token(tx.conn)
            if token_id is None:
                raise NotFound("token", "to make a link for")
            secret = secrets.token_urlsafe(32)
            await store.insert_link(tx.conn, digest(secret), token_id, tx.now + LINK_LASTS)
        return f"{base_url}/login?link={secret}"

    async def session_from_link(self, secret: str) -> str:
        """Use the link up and return a new session's id; raise Unauthorised where it is spent."""
        async with self._db.transaction() as tx:
            token_id = await store.use_link(tx.conn, digest(secret), tx.now)
            if token_id is None:
                raise Unauthorised(
                    "This link was used before or is too old. Run `noema link` for another."
                )
            return await self._new_session(tx, token_id)

    async def session_from_token(self, token: str) -> str:
        """Return a new session's id for a token that was pasted into the login page."""
        await self.by_token(token)
        async with self._db.transaction() as tx:
            row = await store.token(tx.conn, digest(token))
            if row is None:
                raise Unauthorised("This token is not known here, or it was revoked.")
            return await self._new_session(tx, row["id"])

    async def _new_session(self, tx: Tx, token_id: UUID) -> str:
        secret = secrets.token_urlsafe(32)
        await store.insert_session(
            tx.conn,
            digest(secret),
            token_id,
            csrf=secrets.token_urlsafe(32),
            at=tx.now,
            expires_at=tx.now + SESSION_LASTS,
        )
        return secret

    async def session(self, secret: str) -> Session | None:
        """Return the session, or None where it has ended or never was."""
        now = self._clock.now()
        async with self._db.reading() as tx:
            row = await store.session(
                tx.conn, digest(secret), now=now, seen_after=now - SESSION_IDLE
            )
        if row is None:
            return None
        if now - row["seen_at"] > _NOTE_USE_EVERY:
            async with self._db.transaction() as tx:
                await store.session_seen(tx.conn, row["hash"], now)
        identity = _identity(row["name"], row, agent_id="console")
        return Session(identity=identity, csrf=row["csrf"], digest=bytes(row["hash"]))

    async def end_session(self, session: Session) -> None:
        """End the session at once."""
        async with self._db.transaction() as tx:
            await store.end_session(tx.conn, session.digest)

    async def prune(self, now: datetime) -> None:
        """Forget ended sessions and links."""
        async with self._db.transaction() as tx:
            await store.prune(tx.conn, now=now, seen_before=now - SESSION_IDLE)


def _identity(name: str, row: Mapping[str, object], *, agent_id: str) -> Identity:
    return Identity(
        namespace=str(row["namespace"]),
        actor=f"token:{name}",
        role=MemoryRole(str(row["memory_role"])),
        console=ConsoleRole(str(row["console_role"])),
        agent_id=agent_id,
    )


def new_token() -> str:
    """Return a new token: prefix, 256 random bits, checksum."""
    secret = secrets.token_urlsafe(32)
    return f"{PREFIX}{secret}{_checksum(secret)}"


def looks_like_token(text: str) -> bool:
    """Whether the text has the form and the checksum of a token."""
    secret, check = text[len(PREFIX) : -_CHECK_CHARS], text[-_CHECK_CHARS:]
    if not text.startswith(PREFIX) or len(secret) != _SECRET_CHARS:
        return False
    return secrets.compare_digest(check.encode(), _checksum(secret).encode())


def _checksum(secret: str) -> str:
    summed = sha256(f"noema token {secret}".encode()).digest()
    return urlsafe_b64encode(summed).decode("ascii")[:_CHECK_CHARS]


def digest(secret: str) -> bytes:
    """Return what is kept of a secret; 256 random bits need no slow hash."""
    return sha256(secret.encode("utf-8", errors="replace")).digest()

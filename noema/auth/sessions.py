"""Browser sessions: opaque, listed, ended at once, dead with the credentials they were opened with.

A session lasts seven days, and one day without use. Its secret is 256 random bits that are given to
the browser and not kept; the token its forms must carry is derived from the secret.
"""

from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final
from uuid import UUID

from noema.auth.model import (
    Authenticated,
    Credential,
    Method,
    Origin,
    Session,
    SessionRow,
)
from noema.auth.revocations import Revocations
from noema.auth.roles import console_allows
from noema.auth.standing import memberships_of, of_person, of_token
from noema.auth.store import doors, people
from noema.core.clock import Clock, Ids
from noema.core.errors import Denied, NotFound
from noema.core.identity import ConsoleRole
from noema.core.secret import digest, new_secret
from noema.db.tx import Database, Tx
from noema.events.audit import Audit

LASTS: Final = timedelta(days=7)
IDLE: Final = timedelta(hours=24)
FRESH: Final = timedelta(minutes=10)
_NOTE_USE_EVERY: Final = timedelta(minutes=1)
_HINT_CHARS: Final = 200
_PROVEN_BY_PASSWORD: Final = (Method.PASSWORD, Method.TOTP, Method.RECOVERY)


class Sessions:
    """Opens, resolves, lists and ends sessions."""

    def __init__(
        self, *, db: Database, clock: Clock, ids: Ids, audit: Audit, revocations: Revocations
    ) -> None:
        self._db = db
        self._clock = clock
        self._ids = ids
        self._audit = audit
        self._revocations = revocations

    async def open(self, tx: Tx, who: Authenticated, origin: Origin) -> str:
        """Return the secret of a new session, in this transaction."""
        secret = new_secret()
        user_id = None if who.token_id else who.user_id
        namespace = (
            None if user_id is None else await people.active_namespace(tx.conn, user_id, tx.now)
        )
        by_password = who.method in _PROVEN_BY_PASSWORD
        await doors.insert_session(
            tx.conn,
            digest(secret),
            self._ids.new(),
            user_id,
            who.token_id,
            who.epoch,
            namespace,
            who.method.value,
            _hint(origin.user_agent),
            _hint(origin.address),
            tx.now,
            tx.now + LASTS,
            tx.now if by_password else None,
        )
        return secret

    async def renew(self, tx: Tx, session: Session, epoch: int, origin: Origin) -> str:
        """Return the secret of a session that replaces this one after its person's epoch grew."""
        user_id = session.user_id
        await doors.end_session(tx.conn, session.digest)
        name = session.identity.actor.removeprefix("user:")
        who = Authenticated(
            user_id=user_id, token_id=None, name=name, epoch=epoch, method=Method.PASSWORD
        )
        return await self.open(tx, who, origin)

    async def resolve(self, secret: str) -> Session | None:
        """Return the session and note its use, or None where it has ended or never was."""
        now = self._clock.now()
        found = await self._read(digest(secret), csrf=csrf_of(secret), now=now)
        if found is None:
            return None
        session, seen_at = found
        if now - seen_at > _NOTE_USE_EVERY:
            async with self._db.transaction() as tx:
                await doors.session_seen(tx.conn, session.digest, now)
        return session

    async def again(self, session: Session) -> Session | None:
        """Return the session as it stands now, without noting a use; None where it has ended."""
        found = await self._read(session.digest, csrf=session.csrf, now=self._clock.now())
        return None if found is None else found[0]

    async def _read(
        self, hash_: bytes, *, csrf: str, now: datetime
    ) -> tuple[Session, datetime] | None:
        async with self._db.reading() as tx:
            row = await doors.session(tx.conn, hash_, now=now, seen_after=now - IDLE)
        if row is None:
            return None
        by_token = row["token_id"] is not None
        identity = (of_token if by_token else of_person)(row, agent_id="console")
        if identity is None:
            return None
        session = Session(
            identity=identity,
            csrf=csrf,
            digest=hash_,
            id=row["session_id"],
            user_id=row["user_id"],
            token_id=row["token_id"],
            memberships=memberships_of(row),
            created_at=row["created_at"],
            expires_at=row["expires_at"],
            re_authenticated_at=row["re_authenticated_at"],
        )
        return session, row["seen_at"]

    def require_fresh(self, session: Session) -> None:
        """Raise Denied unless the password was given in this session within ten minutes.

        For changes that a browser left open must not be enough for.
        """
        at = session.re_authenticated_at
        if at is None or self._clock.now() - at > FRESH:
            raise Denied("Give your password again first; then repeat this.")

    async def visible(self, by: Credential, *, everybody: bool = False) -> list[SessionRow]:
        """Return the person's live sessions, latest use first; an administrator may see all.

        Raises Denied where somebody else asks for everybody's.
        """
        if everybody and not console_allows(by.identity.console, ConsoleRole.ADMINISTRATOR):
            raise Denied("Only an administrator sees everybody's sessions.")
        if not everybody and by.user_id is None:
            return []
        now = self._clock.now()
        async with self._db.reading() as tx:
            rows = await doors.sessions(
                tx.conn, None if everybody else by.user_id, now=now, seen_after=now - IDLE
            )
        return [SessionRow(**row) for row in rows]

    async def revoke(self, by: Credential, session_id: UUID) -> None:
        """End one of one's own sessions, or as an administrator anybody's; raise NotFound."""
        is_admin = console_allows(by.identity.console, ConsoleRole.ADMINISTRATOR)
        async with self._audit.doing(
            by.identity, "session.revoke", f"session:{session_id}"
        ) as deed:
            if not is_admin and by.user_id is None:
                raise NotFound("session", session_id)
            key = await doors.end_session_by_id(
                deed.tx.conn, session_id, of_user=None if is_admin else by.user_id
            )
            if key is None:
                raise NotFound("session", session_id)
            await doors.notify(deed.tx.conn, key)
        self._revocations.told(str(key))

    async def end(self, session: Session) -> None:
        """End this session at once."""
        async with self._audit.doing(
            session.identity, "session.close", f"session:{session.id}"
        ) as deed:
            key = await doors.end_session(deed.tx.conn, session.digest)
            if key is not None:
                await doors.notify(deed.tx.conn, key)
        if key is not None:
            self._revocations.told(str(key))

    async def switch(self, session: Session, namespace: str) -> Session:
        """Act in another namespace of one's own from now on; raise NotFound where it is not one."""
        async with self._audit.doing(
            session.identity, "session.switch", f"namespace:{namespace}"
        ) as deed:
            if session.user_id is None or session.token_id is not None:
                raise Denied("A token has one namespace; make another token for another one.")
            if all(m.namespace != namespace for m in session.memberships):
                raise NotFound("namespace", namespace)
            await doors.set_session_namespace(deed.tx.conn, session.digest, namespace)
            await people.set_active_namespace(deed.tx.conn, session.user_id, namespace)
            # Open pages of this session show the other namespace; their streams start anew.
            await doors.notify(deed.tx.conn, session.user_id)
        self._revocations.told(str(session.user_id))
        switched = await self.again(session)
        if switched is None:
            raise NotFound("namespace", namespace)
        return switched


def csrf_of(secret: str) -> str:
    """Return the token that the forms of the session with this secret carry."""
    made = sha256(b"noema csrf " + secret.encode("utf-8", "surrogatepass")).digest()
    return urlsafe_b64encode(made).decode("ascii").rstrip("=")


def _hint(text: str) -> str:
    """Return what is kept of a header for people to recognise: printable, short."""
    return "".join(c if c.isprintable() else "?" for c in text[:_HINT_CHARS])

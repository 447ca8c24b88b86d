"""Personal API tokens: shown once, for one namespace, never more than their creator is now.

A token is `noema_` + 43 characters (256 random bits, base64url) + 6 characters of checksum, so that
a mistyped one is refused without a look at the database, and a leaked one is found by scanners.
"""

import secrets
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from noema.auth.model import (
    NO_ORIGIN,
    Bearer,
    Credential,
    Origin,
    Reason,
    Refused,
    Session,
    TokenRow,
)
from noema.auth.revocations import Revocations
from noema.auth.roles import console_allows, may_lend
from noema.auth.standing import memberships_of, of_token
from noema.auth.store import doors
from noema.core.act import Act, Outcome
from noema.core.clock import Clock, Ids
from noema.core.errors import Denied, InvalidInput, NotFound
from noema.core.identity import NOWHERE, ConsoleRole, MemoryRole, check_namespace
from noema.core.secret import digest, new_secret
from noema.db.tx import Database, Tx
from noema.events.audit import Audit

PREFIX: Final = "noema_"
LASTS: Final = timedelta(days=90)
LONGEST: Final = timedelta(days=366)
_NAME_CHARS: Final = 100
_SECRET_CHARS: Final = 43
_CHECK_CHARS: Final = 6
_NOTE_USE_EVERY: Final = timedelta(minutes=1)
_TELL_EVERY: Final = timedelta(minutes=1)
_MOST_TOLD: Final = 1_000

_UNKNOWN: Final = Refused(
    reason=Reason.WRONG, message="This token is not known here, it has expired, or it was revoked."
)


class Tokens:
    """Makes, resolves, lists and revokes tokens."""

    def __init__(
        self, *, db: Database, clock: Clock, ids: Ids, audit: Audit, revocations: Revocations
    ) -> None:
        self._db = db
        self._clock = clock
        self._ids = ids
        self._audit = audit
        self._revocations = revocations
        self._told: OrderedDict[str, datetime] = OrderedDict()

    async def create(
        self,
        by: Credential,
        *,
        name: str,
        namespace: str,
        memory_role: MemoryRole,
        console_role: ConsoleRole = ConsoleRole.NONE,
        lasts: timedelta = LASTS,
    ) -> str:
        """Make a token and return it, for the only time.

        Raises Denied where it would be more than its maker is now. One that is made with a token
        ends with it.
        """
        async with self._audit.doing(by.identity, "token.create", "token:new") as deed:
            name = _checked_name(name)
            check_namespace(namespace)
            if not timedelta() < lasts <= LONGEST:
                raise InvalidInput(f"A token lasts up to {LONGEST.days} days.", field="lasts")
            _check_lending(by, namespace, memory_role, console_role)
            until = deed.tx.now + lasts
            if by.token_id is not None:
                # Held until the commit: a token revoked meanwhile must not leave a child behind.
                # Read anew, because a session that a token opened has an end of its own.
                held = await doors.hold_token(deed.tx.conn, by.token_id)
                if held is None:
                    raise Denied("The token you act with was revoked.")
                until = min(until, held["expires_at"] or until)
            id_ = self._ids.new()
            deed.target = f"token:{id_}"
            deed.detail = f"{name}: {memory_role} in {namespace}, console {console_role}"
            return await self._insert(
                deed.tx,
                id_=id_,
                name=name,
                namespace=namespace,
                memory_role=memory_role,
                console_role=console_role,
                user_id=by.user_id,
                parent_id=by.token_id,
                until=until,
            )

    async def create_local(self, tx: Tx, name: str) -> str:
        """Make an administrator's token for `home`, for whoever may open the database."""
        return await self._insert(
            tx,
            id_=self._ids.new(),
            name=_checked_name(name),
            namespace="home",
            memory_role=MemoryRole.OWNER,
            console_role=ConsoleRole.ADMINISTRATOR,
            user_id=None,
            parent_id=None,
            until=None,
        )

    async def _insert(
        self,
        tx: Tx,
        *,
        id_: UUID,
        name: str,
        namespace: str,
        memory_role: MemoryRole,
        console_role: ConsoleRole,
        user_id: UUID | None,
        parent_id: UUID | None,
        until: datetime | None,
    ) -> str:
        token = new_token()
        await doors.insert_token(
            tx.conn,
            id_,
            name,
            digest(token),
            token[: len(PREFIX) + 4],
            namespace,
            memory_role.value,
            console_role.value,
            tx.now,
            user_id,
            parent_id,
            until,
        )
        return token

    async def resolve(self, token: str, origin: Origin = NO_ORIGIN) -> Bearer | Refused:
        """Return who the token speaks for now, or why for nobody; a refusal is audited.

        The same refusal from the same place is audited once a minute.
        """
        if not looks_like_token(token):
            refused = Refused(
                reason=Reason.WRONG,
                message="That is not a token of Noema: it is mistyped or cut off.",
            )
            await self._tell(None, origin, refused, why="malformed")
            return refused
        hash_ = digest(token)
        now = self._clock.now()
        async with self._db.reading() as tx:
            row = await doors.token(tx.conn, hash_, now=now)
        why = _why_not(row)
        if row is None or why is not None:
            refused = _UNKNOWN
            await self._tell(row, origin, refused, why=why or "")
            return refused
        identity = of_token(row, agent_id=origin.agent_id)
        if identity is None:
            suspended = not row["is_tenant_active"]
            refused = Refused(
                reason=Reason.SUSPENDED,
                message="Its tenant is suspended; ask an administrator."
                if suspended
                else "This token's maker has no role in its namespace any more; make another.",
            )
            await self._tell(row, origin, refused, why="suspended" if suspended else "no role left")
            return refused
        if row["last_used_at"] is None or now - row["last_used_at"] > _NOTE_USE_EVERY:
            async with self._db.transaction() as tx:
                await doors.token_used(tx.conn, row["token_id"], now)
        return Bearer(
            identity=identity,
            digest=hash_,
            token_id=row["token_id"],
            user_id=row["user_id"],
            expires_at=row["token_expires_at"],
            memberships=memberships_of(row),
        )

    async def again(self, bearer: Bearer) -> Bearer | None:
        """Return the token as it stands now, without noting a use; None where it counts no more."""
        async with self._db.reading() as tx:
            row = await doors.token(tx.conn, bearer.digest, now=self._clock.now())
        if row is None or _why_not(row) is not None:
            return None
        identity = of_token(row, agent_id=bearer.identity.agent_id)
        if identity is None:
            return None
        return Bearer(
            identity=identity,
            digest=bearer.digest,
            token_id=bearer.token_id,
            user_id=bearer.user_id,
            expires_at=bearer.expires_at,
            memberships=memberships_of(row),
        )

    async def _tell(
        self, row: Mapping[str, Any] | None, origin: Origin, refused: Refused, *, why: str
    ) -> None:
        target = "token:unknown" if row is None else f"token:{row['token_id']}"
        now = self._clock.now()
        key = f"{target} {origin.address} {why}"
        last = self._told.get(key)
        if last is not None and now - last <= _TELL_EVERY:
            return
        self._told[key] = now
        self._told.move_to_end(key)
        while len(self._told) > _MOST_TOLD:
            self._told.popitem(last=False)
        await self._audit.record_alone(
            Act(
                actor="anonymous",
                agent_id=origin.agent_id,
                namespace=NOWHERE if row is None else row["token_namespace"],
                verb="token.use",
                target=target,
                outcome=Outcome.DENIED,
                detail=f"{refused.reason}: {why}, from {origin.address or 'unknown'}",
            )
        )

    async def visible(self, by: Credential, *, everybody: bool = False) -> list[TokenRow]:
        """Return one's own tokens, oldest first; an administrator may see everybody's."""
        is_admin = console_allows(by.identity.console, ConsoleRole.ADMINISTRATOR)
        if everybody and not is_admin:
            raise Denied("Only an administrator sees everybody's tokens.")
        if by.user_id is None and not everybody:
            return []
        return await self.rows(None if everybody else by.user_id)

    async def rows(self, user_id: UUID | None) -> list[TokenRow]:
        """Return the person's tokens, or everybody's, oldest first."""
        async with self._db.reading() as tx:
            return [TokenRow(**row) for row in await doors.tokens(tx.conn, user_id)]

    async def revoke(self, by: Credential, token_id: UUID) -> None:
        """Revoke one of one's own tokens, or as an administrator anybody's, and all made with it.

        Raises NotFound where there is none that still counts.
        """
        is_admin = console_allows(by.identity.console, ConsoleRole.ADMINISTRATOR)
        async with self._audit.doing(by.identity, "token.revoke", f"token:{token_id}") as deed:
            if by.user_id is None and not is_admin:
                raise NotFound("token", token_id)
            revoked = await doors.revoke_token(
                deed.tx.conn, token_id, of_user=None if is_admin else by.user_id, at=deed.tx.now
            )
            if not revoked:
                raise NotFound("token", token_id)
            await doors.notify(deed.tx.conn, *revoked)
        for id_ in revoked:
            self._revocations.told(str(id_))


def _why_not(row: Mapping[str, Any] | None) -> str | None:
    if row is None:
        return "unknown"
    if row["is_revoked"]:
        return "revoked"
    if row["is_expired"]:
        return "expired"
    return "its maker is disabled" if row["is_disabled"] else None


def _check_lending(
    by: Credential, namespace: str, memory_role: MemoryRole, console_role: ConsoleRole
) -> None:
    if isinstance(by, Session) and by.token_id is None:
        held = next((m.role for m in by.memberships if m.namespace == namespace), MemoryRole.NONE)
    else:
        held = by.identity.role if by.identity.namespace == namespace else MemoryRole.NONE
    if memory_role is MemoryRole.NONE or not may_lend(held, memory_role):
        raise Denied(f"You cannot lend the role {memory_role} in {namespace}: yours is {held}.")
    if not console_allows(by.identity.console, console_role):
        raise Denied(f"You cannot lend the role {console_role}: yours is {by.identity.console}.")


def _checked_name(name: str) -> str:
    kept = name.strip()
    if not kept or len(kept) > _NAME_CHARS or not kept.isprintable():
        raise InvalidInput(
            f"A token's name has 1 to {_NAME_CHARS} printable characters.", field="name"
        )
    return kept


def new_token() -> str:
    """Return a new token: prefix, 256 random bits, checksum."""
    secret = new_secret()
    return f"{PREFIX}{secret}{_checksum(secret)}"


def looks_like_token(text: str) -> bool:
    """Whether the text has the form and the checksum of a token."""
    if not text.isascii() or len(text) != len(PREFIX) + _SECRET_CHARS + _CHECK_CHARS:
        return False
    secret, check = text[len(PREFIX) : -_CHECK_CHARS], text[-_CHECK_CHARS:]
    return text.startswith(PREFIX) and secrets.compare_digest(check, _checksum(secret))


def _checksum(secret: str) -> str:
    summed = sha256(f"noema token {secret}".encode()).digest()
    return urlsafe_b64encode(summed).decode("ascii")[:_CHECK_CHARS]

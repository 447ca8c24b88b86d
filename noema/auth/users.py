"""People with accounts, and their memberships. Everything here is for administrators, and audited.

Whatever changes what somebody may do ends their sessions: a role, disabling, a password, a second
factor. A membership is looked up at every use, so that its change counts at once without that.
"""

from datetime import datetime
from typing import Final
from uuid import UUID

from noema.auth.authenticator import folded, is_user_name
from noema.auth.limits import Accounts
from noema.auth.model import Membership, User
from noema.auth.passwords import Passwords, check_policy
from noema.auth.revocations import Revocations
from noema.auth.roles import require_console
from noema.auth.store import doors, people
from noema.core.clock import Ids
from noema.core.errors import Conflict, Denied, InvalidInput, NotFound
from noema.core.identity import ConsoleRole, Identity, MemoryRole, check_namespace
from noema.db.tx import Database, Tx
from noema.events.audit import Audit

_ADMIN: Final = ConsoleRole.ADMINISTRATOR


class Users:
    """Creates people, changes what they may do, lets them in and keeps them out."""

    def __init__(
        self,
        *,
        db: Database,
        ids: Ids,
        audit: Audit,
        passwords: Passwords,
        accounts: Accounts,
        revocations: Revocations,
    ) -> None:
        self._db = db
        self._ids = ids
        self._audit = audit
        self._passwords = passwords
        self._accounts = accounts
        self._revocations = revocations

    async def create(
        self,
        by: Identity,
        *,
        name: str,
        role: ConsoleRole,
        password: str | None = None,
        namespace: str | None = None,
        memory_role: MemoryRole = MemoryRole.MEMBER,
    ) -> User:
        """Create a person, with a first membership where a namespace is given.

        Without a password they choose one by a link (`Setup.password_link`). Raises Conflict where
        the name is taken.
        """
        name = folded(name)
        # Hashing takes its time, and no transaction waits for it; what is refused is not hashed.
        hash_ = await self._hash(by, name, password)
        async with self._audit.doing(by, "user.create", f"user:{name}") as deed:
            require_console(by, _ADMIN)
            check_user_name(name)
            if password is not None:
                check_policy(password, user_name=name)
            if role is ConsoleRole.NONE:
                raise InvalidInput("A person has a console role.", field="role")
            user_id = await self.insert(
                deed.tx, by=by.actor, name=name, role=role, password_hash=hash_
            )
            deed.detail = f"console role {role}"
            if namespace is not None:
                check_namespace(namespace)
                await self._insert_membership(
                    deed.tx, by, user_id, namespace, memory_role, deed.tx.now, None
                )
                deed.detail += f", {memory_role} in {namespace}"
        return await self.get(name)

    async def _hash(self, by: Identity, name: str, password: str | None) -> str | None:
        if password is None or not is_user_name(name):
            return None
        try:
            require_console(by, _ADMIN)
            check_policy(password, user_name=name)
        except (InvalidInput, Denied):
            return None
        return await self._passwords.hash(password)

    async def insert(
        self, tx: Tx, *, by: str, name: str, role: ConsoleRole, password_hash: str | None
    ) -> UUID:
        """Add the row of a person and return its id; the caller has checked everything."""
        user_id = self._ids.new()
        await people.insert_user(
            tx.conn,
            user_id,
            name,
            password_hash,
            role.value,
            None,
            by,
            tx.now,
            None if password_hash is None else tx.now,
        )
        return user_id

    async def all(self) -> list[User]:
        """Return everybody, by name."""
        async with self._db.reading() as tx:
            return [_user(row) for row in await people.users(tx.conn)]

    async def get(self, name: str) -> User:
        """Return the person, or raise NotFound."""
        name = folded(name)
        async with self._db.reading() as tx:
            rows = await people.users(tx.conn, name) if is_user_name(name) else []
        if not rows:
            raise NotFound("user", name)
        return _user(rows[0])

    async def has_any(self) -> bool:
        """Whether anybody has an account yet."""
        async with self._db.reading() as tx:
            return await people.has_user(tx.conn)

    async def has_administrator(self) -> bool:
        """Whether anybody is an administrator and not kept out."""
        async with self._db.reading() as tx:
            return await people.first_administrator(tx.conn) is not None

    async def set_role(self, by: Identity, name: str, role: ConsoleRole) -> None:
        """Change a person's console role and end their sessions.

        Raises Conflict where nobody would be administrator any more.
        """
        name = folded(name)
        async with self._audit.doing(by, "user.set_role", f"user:{name}") as deed:
            require_console(by, _ADMIN)
            if role is ConsoleRole.NONE:
                raise InvalidInput(
                    "A person has a console role; disable who has none.", field="role"
                )
            if role is not _ADMIN:
                await self._keep_an_administrator(deed.tx, name)
            user_id = await _locked(deed.tx, name)
            deed.detail = f"to {role}"
            if await people.set_role(deed.tx.conn, user_id, role.value):
                await _end_sessions(deed.tx, user_id)
        self._revocations.told(str(user_id))

    async def disable(self, by: Identity, name: str) -> None:
        """Keep a person out from now on, and end their sessions and tokens for good.

        Raises Conflict where nobody would be administrator any more.
        """
        name = folded(name)
        async with self._audit.doing(by, "user.disable", f"user:{name}") as deed:
            require_console(by, _ADMIN)
            await self._keep_an_administrator(deed.tx, name)
            user_id = await _locked(deed.tx, name)
            if await people.disable(deed.tx.conn, user_id, deed.tx.now):
                # Refused anyway while disabled; revoked, so that enabling brings none of them back.
                await doors.revoke_tokens_of(deed.tx.conn, user_id, deed.tx.now)
                await _end_sessions(deed.tx, user_id)
        self._revocations.told(str(user_id))

    async def enable(self, by: Identity, name: str) -> None:
        """Let a disabled person in again."""
        name = folded(name)
        async with self._audit.doing(by, "user.enable", f"user:{name}") as deed:
            require_console(by, _ADMIN)
            await people.enable(deed.tx.conn, await _locked(deed.tx, name))

    async def reset_totp(self, by: Identity, name: str) -> None:
        """Turn off the second factor of somebody who lost theirs, and end their sessions."""
        name = folded(name)
        async with self._audit.doing(by, "user.reset_totp", f"user:{name}") as deed:
            require_console(by, _ADMIN)
            user_id = await _locked(deed.tx, name)
            if await people.end_totp(deed.tx.conn, user_id) is not None:
                await _end_sessions(deed.tx, user_id)
        self._revocations.told(str(user_id))

    async def unlock(self, by: Identity, name: str) -> None:
        """Forgive a person's failed logins, so that they may try again at once."""
        name = folded(name)
        async with self._audit.doing(by, "user.unlock", f"user:{name}") as deed:
            require_console(by, _ADMIN)
            await self._accounts.forgive(deed.tx, await _locked(deed.tx, name))

    async def grant(
        self,
        by: Identity,
        name: str,
        *,
        namespace: str,
        role: MemoryRole,
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
    ) -> None:
        """Give a person a memory role in a namespace, from now on or from a later moment.

        It takes the place of what they have or were to have there in that time. Raises NotFound
        where there is no such namespace, InvalidInput where it would end before it begins.
        """
        name = folded(name)
        async with self._audit.doing(by, "membership.grant", f"user:{name}") as deed:
            require_console(by, _ADMIN)
            check_namespace(namespace)
            if role is MemoryRole.NONE:
                raise InvalidInput("Revoke the membership to give no role.", field="role")
            for moment in (valid_from, valid_to):
                if moment is not None and moment.tzinfo is None:
                    raise InvalidInput("A time needs its zone.", field="valid_from")
            # Who could see what until now stays as it was: nothing begins in the past.
            since = max(valid_from or deed.tx.now, deed.tx.now)
            if valid_to is not None and valid_to <= since:
                raise InvalidInput("It would end before it begins.", field="valid_to")
            user_id = await _locked(deed.tx, name)
            await people.cut_memberships(
                deed.tx.conn, user_id, namespace, since=since, until=valid_to
            )
            await self._insert_membership(deed.tx, by, user_id, namespace, role, since, valid_to)
            deed.detail = f"{role} in {namespace} from {since.isoformat()}" + (
                f" to {valid_to.isoformat()}" if valid_to else ""
            )
            await doors.notify(deed.tx.conn, user_id)
        self._revocations.told(str(user_id))

    async def _insert_membership(
        self,
        tx: Tx,
        by: Identity,
        user_id: UUID,
        namespace: str,
        role: MemoryRole,
        since: datetime,
        until: datetime | None,
    ) -> None:
        await people.insert_membership(
            tx.conn, self._ids.new(), user_id, namespace, role.value, since, until, by.actor, tx.now
        )

    async def revoke(self, by: Identity, name: str, *, namespace: str) -> None:
        """End a person's membership in a namespace now, and what was to begin; raise NotFound."""
        name = folded(name)
        async with self._audit.doing(by, "membership.revoke", f"user:{name}") as deed:
            require_console(by, _ADMIN)
            deed.detail = f"in {namespace}"
            user_id = await _locked(deed.tx, name)
            if not await people.cut_memberships(
                deed.tx.conn, user_id, namespace, since=deed.tx.now, until=None
            ):
                raise NotFound("membership", namespace)
            await doors.notify(deed.tx.conn, user_id)
        self._revocations.told(str(user_id))

    async def memberships(
        self, name: str | None = None, *, at: datetime | None = None
    ) -> list[tuple[str, Membership]]:
        """Return who has which role where: one person's or everybody's, all or as of a moment."""
        async with self._db.reading() as tx:
            rows = await people.memberships(tx.conn, None if name is None else folded(name), at=at)
        return [
            (
                row["name"],
                Membership(
                    namespace=row["namespace"],
                    role=MemoryRole(row["role"]),
                    valid_from=row["valid_from"],
                    valid_to=row["valid_to"],
                    granted_by=row["granted_by"],
                ),
            )
            for row in rows
        ]

    async def _keep_an_administrator(self, tx: Tx, name: str) -> None:
        administrators = await people.lock_administrators(tx.conn)
        user_id = await people.lock_user(tx.conn, name) if is_user_name(name) else None
        if administrators == [user_id]:
            raise Conflict(
                f"{name} is the last administrator; make somebody else one first, or nobody could "
                "let anybody in."
            )


async def _locked(tx: Tx, name: str) -> UUID:
    user_id = await people.lock_user(tx.conn, name) if is_user_name(name) else None
    if user_id is None:
        raise NotFound("user", name)
    return user_id


async def _end_sessions(tx: Tx, user_id: UUID) -> None:
    await doors.end_sessions_of(tx.conn, user_id)
    await doors.notify(tx.conn, user_id)


def check_user_name(name: str) -> None:
    """Raise InvalidInput unless an account may have the (folded) name."""
    if not is_user_name(name):
        raise InvalidInput(
            "A user name has 1 to 63 of a-z, 0-9, dot, dash, underscore and @, and starts with a "
            "letter or digit.",
            field="name",
        )


def _user(row: doors.Row) -> User:
    return User(**{**row, "console_role": ConsoleRole(row["console_role"])})

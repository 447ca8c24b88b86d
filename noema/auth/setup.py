"""How the first administrator comes to be, and links by which a person chooses a password.

There is never a default password. The first administrator is named by NOEMA_BOOTSTRAP_ADMIN, made
with `noemactl user create --local`, or makes themself by a one-time link that is printed at the
first start and good for nothing once anybody has an account.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from noema.auth.authenticator import folded, is_user_name, slow_down
from noema.auth.limits import Addresses
from noema.auth.model import Origin
from noema.auth.passwords import Passwords, check_policy
from noema.auth.revocations import Revocations
from noema.auth.roles import require_console
from noema.auth.store import doors, people
from noema.auth.users import Users, check_user_name
from noema.core.act import Outcome, act_of
from noema.core.clock import Ids
from noema.core.errors import Conflict, NotFound, RateLimited, Unauthorised
from noema.core.identity import LOCAL, NOWHERE, ConsoleRole, Identity, MemoryRole
from noema.core.secret import digest, new_secret
from noema.db.tx import Database, Tx
from noema.events.audit import Audit

LINK_LASTS: Final = timedelta(hours=24)
HOME: Final = "home"
_FIRST: Final = "first administrator"
_PASSWORD: Final = "password"  # noqa: S105 - what a link is for
_SPENT: Final = "This link was used before or is too old; ask for another."

SETUP: Final = Identity(
    namespace=NOWHERE,
    actor="set-up",
    role=MemoryRole.NONE,
    console=ConsoleRole.NONE,
    agent_id="console",
)
"""Whoever holds a set-up link: nobody yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupLink:
    """What a link is for: the first administrator, or (`user` named) choosing a password."""

    user: str | None

    @property
    def is_first(self) -> bool:
        """Whether it makes the first administrator."""
        return self.user is None


class Setup:
    """Makes and uses set-up links, and the first administrator."""

    def __init__(
        self,
        *,
        db: Database,
        ids: Ids,
        audit: Audit,
        users: Users,
        passwords: Passwords,
        addresses: Addresses,
        revocations: Revocations,
    ) -> None:
        self._db = db
        self._ids = ids
        self._audit = audit
        self._users = users
        self._passwords = passwords
        self._addresses = addresses
        self._revocations = revocations

    async def bootstrap(self, name: str, password: str) -> bool:
        """Make the first administrator; return False where somebody has an account already.

        Raises InvalidInput where name or password will not do.
        """
        name = folded(name)
        check_user_name(name)
        check_policy(password, user_name=name)
        if await self._users.has_any():
            return False
        hash_ = await self._passwords.hash(password)
        try:
            async with self._audit.doing(LOCAL, "user.bootstrap", f"user:{name}") as deed:
                await self._make_first(deed.tx, name, hash_, by=LOCAL.actor)
        except Conflict:
            return False
        return True

    async def first_link(self, *, base_url: str) -> str | None:
        """Return a new link that makes the first administrator; None where there is anybody."""
        secret = new_secret()
        async with self._db.transaction() as tx:
            if await people.has_user(tx.conn):
                return None
            await doors.insert_setup(
                tx.conn, digest(secret), _FIRST, None, 0, LOCAL.actor, tx.now + LINK_LASTS
            )
        return f"{base_url}/setup?link={secret}"

    async def password_link(self, by: Identity, name: str, *, base_url: str) -> str:
        """Return a link by which the person chooses a password; for a new one, or a forgotten one.

        It changes nothing until it is used. It dies with any other change of their credentials.
        """
        name = folded(name)
        secret = new_secret()
        async with self._audit.doing(by, "user.password_link", f"user:{name}") as deed:
            require_console(by, ConsoleRole.ADMINISTRATOR)
            user = await people.credentials(deed.tx.conn, name) if is_user_name(name) else None
            if user is None or user["disabled_at"] is not None:
                raise NotFound("user", name)
            await doors.insert_setup(
                deed.tx.conn,
                digest(secret),
                _PASSWORD,
                user["id"],
                user["epoch"],
                by.actor,
                deed.tx.now + LINK_LASTS,
            )
        return f"{base_url}/setup?link={secret}"

    async def look(self, secret: str) -> SetupLink:
        """Return what the link is for, without using it; raise Unauthorised where it is spent."""
        async with self._db.reading() as tx:
            row = await doors.setup(tx.conn, digest(secret), tx.now)
            spent = row is None or (row["purpose"] == _FIRST and await people.has_user(tx.conn))
        if row is None or spent:
            raise Unauthorised(_SPENT)
        return SetupLink(user=row["name"])

    async def create_first(self, secret: str, *, name: str, password: str, origin: Origin) -> UUID:
        """Use the link up: make the first administrator, owner of `home`; return their id.

        Raises Unauthorised where the link is spent, Conflict where somebody was faster, and
        InvalidInput where name or password will not do, which does not use the link up.
        """
        name = folded(name)
        link = await self._looked(secret, f"user:{name}", origin)
        if not link.is_first:
            raise Unauthorised(_SPENT)
        check_user_name(name)
        check_policy(password, user_name=name)
        hash_ = await self._passwords.hash(password)
        async with self._audit.doing(SETUP, "user.bootstrap", f"user:{name}") as deed:
            if await doors.use_setup(deed.tx.conn, digest(secret), deed.tx.now) is None:
                raise Unauthorised(_SPENT)
            return await self._make_first(deed.tx, name, hash_, by=SETUP.actor)

    async def choose_password(self, secret: str, password: str, *, origin: Origin) -> UUID:
        """Use the link up: set the person's password, end their sessions; return their id.

        Raises Unauthorised where the link is spent, InvalidInput where the password will not do.
        """
        link = await self._looked(secret, "user:unknown", origin)
        if link.user is None:
            raise Unauthorised(_SPENT)
        check_policy(password, user_name=link.user)
        hash_ = await self._passwords.hash(password)
        async with self._audit.doing(SETUP, "user.choose_password", f"user:{link.user}") as deed:
            used = await doors.use_setup(deed.tx.conn, digest(secret), deed.tx.now)
            if used is None:
                raise Unauthorised(_SPENT)
            user_id: UUID = used["user_id"]
            epoch = await people.set_password(
                deed.tx.conn, user_id, hash_, deed.tx.now, epoch=used["epoch"]
            )
            if epoch is None:
                raise Unauthorised(_SPENT)
            await doors.forgive(deed.tx.conn, str(user_id), None)
            await doors.forget_devices(deed.tx.conn, user_id)
            await doors.end_sessions_of(deed.tx.conn, user_id)
            await doors.notify(deed.tx.conn, user_id)
        self._revocations.told(str(user_id))
        return user_id

    async def _looked(self, secret: str, target: str, origin: Origin) -> SetupLink:
        if refused := await slow_down(self._addresses, self._audit, origin, "setup.open"):
            raise RateLimited(refused.message, retry_after_s=refused.retry_after_s)
        try:
            return await self.look(secret)
        except Unauthorised:
            spent = act_of(SETUP, "setup.open", target, Outcome.DENIED, detail="no such link")
            await self._audit.record_alone(spent)
            raise

    async def _make_first(self, tx: Tx, name: str, hash_: str, *, by: str) -> UUID:
        await people.lock_users(tx.conn)
        if await people.has_user(tx.conn):
            raise Conflict("Somebody has an account already; ask an administrator to let you in.")
        user_id = await self._users.insert(
            tx, by=by, name=name, role=ConsoleRole.ADMINISTRATOR, password_hash=hash_
        )
        await people.insert_membership(
            tx.conn,
            self._ids.new(),
            user_id,
            HOME,
            MemoryRole.OWNER.value,
            tx.now,
            None,
            by,
            tx.now,
        )
        return user_id

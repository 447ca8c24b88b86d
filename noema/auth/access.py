"""Who may come in: the one object that the edge asks.

* `log_in`, `finish_log_in`, `session_from_link`, `session_from_token` open a session.
* `session` and `bearer` say what a cookie or a token stands for, looked up anew at every use.
* `wait_revoked` returns when that is no longer so, within a second of its change.
* `users`, `account`, `setup`, `tenants`, `sessions`, `tokens` manage; each act is audited.
"""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from noema.auth.account import Account
from noema.auth.authenticator import (
    DEVICE_LASTS,
    Authenticator,
    CodeAuthenticator,
    CodeCredentials,
    PasswordAuthenticator,
    PasswordCredentials,
    TokenAuthenticator,
    TokenCredentials,
    slow_down,
)
from noema.auth.limits import Accounts, Addresses
from noema.auth.model import (
    NO_ORIGIN,
    Authenticated,
    Bearer,
    Credential,
    LoggedIn,
    Method,
    Origin,
    Reason,
    Refused,
    SecondFactorDue,
    Session,
)
from noema.auth.passwords import Passwords
from noema.auth.revocations import Revocations
from noema.auth.sessions import IDLE, LASTS, Sessions
from noema.auth.setup import Setup
from noema.auth.store import doors, people
from noema.auth.tenants import Tenants
from noema.auth.tokens import PREFIX, Tokens
from noema.auth.totp import SecondFactor
from noema.auth.users import Users
from noema.core.act import Act, Outcome
from noema.core.clock import Clock, Ids
from noema.core.errors import Denied, NotFound, RateLimited, TooLarge, Unauthorised, Unavailable
from noema.core.identity import LOCAL, NOWHERE, Identity
from noema.core.secret import digest, new_secret
from noema.db.keys import Keys
from noema.db.tx import Database, Tx
from noema.events.audit import Audit

__all__ = ["PREFIX", "SESSION_LASTS", "Access", "Session"]

SESSION_LASTS: Final = LASTS
DEVICE_COOKIE_LASTS: Final = DEVICE_LASTS
LINK_LASTS: Final = timedelta(minutes=30)
# Expiry is heard of from nobody, so that whoever waits looks at least so often.
_LOOK_EVERY_S: Final = 30.0
_RETRY_S: Final = 1.0


class Access:
    """Who comes in, by password, token, link or session."""

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        ids: Ids,
        keys: Keys,
        audit: Audit | None = None,
        passwords: Passwords | None = None,
        addresses: Addresses | None = None,
    ) -> None:
        self._db = db
        self._clock = clock
        self.audit = audit or Audit(db=db, ids=ids)
        self.revocations = Revocations()
        self._passwords = passwords or Passwords()
        self._addresses = addresses or Addresses(clock=clock)
        accounts = Accounts(db=db)
        second_factor = SecondFactor(keys=keys)
        self.sessions = Sessions(
            db=db, clock=clock, ids=ids, audit=self.audit, revocations=self.revocations
        )
        self.tokens = Tokens(
            db=db, clock=clock, ids=ids, audit=self.audit, revocations=self.revocations
        )
        self.tenants = Tenants(db=db, audit=self.audit, revocations=self.revocations)
        self.users = Users(
            db=db,
            ids=ids,
            audit=self.audit,
            passwords=self._passwords,
            accounts=accounts,
            revocations=self.revocations,
        )
        self.setup = Setup(
            db=db,
            ids=ids,
            audit=self.audit,
            users=self.users,
            passwords=self._passwords,
            addresses=self._addresses,
            revocations=self.revocations,
        )
        self.account = Account(
            db=db,
            audit=self.audit,
            passwords=self._passwords,
            accounts=accounts,
            second_factor=second_factor,
            sessions=self.sessions,
            revocations=self.revocations,
        )
        self._by_password: Authenticator[PasswordCredentials] = PasswordAuthenticator(
            db=db,
            audit=self.audit,
            passwords=self._passwords,
            addresses=self._addresses,
            accounts=accounts,
        )
        self._by_code: Authenticator[CodeCredentials] = CodeAuthenticator(
            db=db,
            audit=self.audit,
            addresses=self._addresses,
            accounts=accounts,
            second_factor=second_factor,
        )
        self._by_token: Authenticator[TokenCredentials] = TokenAuthenticator(
            tokens=self.tokens, audit=self.audit, addresses=self._addresses
        )

    # --- coming in ---

    async def log_in(
        self, name: str, password: str, *, origin: Origin, replacing: str | None = None
    ) -> LoggedIn | SecondFactorDue:
        """Return a new session, or that a code is due first.

        `replacing` is the secret of the session the browser has now; it ends. Raises Unauthorised
        (the same for an unknown name and a wrong password), RateLimited, and TooLarge over 1,024
        bytes.
        """
        answer = await self._by_password.authenticate(
            PasswordCredentials(name=name, password=password), origin
        )
        return await self._admit(answer, origin, replacing)

    async def finish_log_in(
        self, ticket: str, code: str, *, origin: Origin, replacing: str | None = None
    ) -> LoggedIn:
        """Return a new session for the ticket of `log_in` and a code or a recovery code.

        Raises Unauthorised and RateLimited.
        """
        answer = await self._by_code.authenticate(CodeCredentials(ticket=ticket, code=code), origin)
        return _complete(await self._admit(answer, origin, replacing))

    async def session_from_token(
        self, token: str, *, origin: Origin = NO_ORIGIN, replacing: str | None = None
    ) -> str:
        """Return a new session's secret for a token that was pasted into the login page.

        Raises Unauthorised, Denied where the token has no role left, and RateLimited.
        """
        answer = await self._by_token.authenticate(TokenCredentials(token=token), origin)
        return _complete(await self._admit(answer, origin, replacing)).secret

    async def session_from_link(
        self, secret: str, *, origin: Origin = NO_ORIGIN, replacing: str | None = None
    ) -> str:
        """Use the link up and return a new session's secret.

        Raises Unauthorised where it is spent, RateLimited after too many attempts.
        """
        if refused := await slow_down(self._addresses, self.audit, origin, "login"):
            raise _error(refused)
        async with self._db.transaction() as tx:
            used = await doors.use_link(tx.conn, digest(secret), tx.now)
            if used is not None:
                name = used["user_name"] if used["user_id"] else used["token_name"]
                who = Authenticated(
                    user_id=used["user_id"],
                    token_id=used["token_id"],
                    name=name,
                    epoch=used["epoch"],
                    method=Method.LINK,
                )
                return await self._open(tx, who, origin, replacing)
        await self.audit.record_alone(_login(None, Outcome.DENIED, origin, "no such link"))
        raise Unauthorised("This link was used before or is too old. Run `noema link` for another.")

    async def _admit(
        self,
        answer: Authenticated | SecondFactorDue | Refused,
        origin: Origin,
        replacing: str | None,
    ) -> LoggedIn | SecondFactorDue:
        if isinstance(answer, Refused):
            raise _error(answer)
        if isinstance(answer, SecondFactorDue):
            return answer
        async with self._db.transaction() as tx:
            secret = await self._open(tx, answer, origin, replacing)
            if answer.user_id is None or answer.token_id is not None:
                return LoggedIn(secret=secret)
            device = origin.device or new_secret()
            await doors.saw_device(tx.conn, digest(device), answer.user_id, tx.now)
            return LoggedIn(secret=secret, device=device)

    async def _open(self, tx: Tx, who: Authenticated, origin: Origin, replacing: str | None) -> str:
        if who.user_id is not None and who.token_id is None:
            is_current = await people.logged_in(tx.conn, who.user_id, tx.now, epoch=who.epoch)
            if not is_current:
                raise Unauthorised("Your account changed in this moment; log in again.")
        if replacing:
            ended = await doors.end_session(tx.conn, digest(replacing))
            if ended is not None:
                await doors.notify(tx.conn, ended)
        secret = await self.sessions.open(tx, who, origin)
        await self.audit.record(tx, _login(who, Outcome.OK, origin, who.method.value))
        return secret

    # --- being in ---

    async def session(self, secret: str) -> Session | None:
        """Return the session and note its use, or None where it has ended or never was."""
        return await self.sessions.resolve(secret)

    async def end_session(self, session: Session) -> None:
        """End the session at once, with its open streams."""
        await self.sessions.end(session)

    async def bearer(self, token: str, *, origin: Origin | None = None) -> Bearer:
        """Return what the token stands for now.

        Raises Unauthorised where it is no token that counts, Denied where it has no role left.
        """
        found = await self.tokens.resolve(token, origin or Origin(address="", agent_id="http"))
        if isinstance(found, Refused):
            raise _error(found)
        return found

    async def by_token(self, token: str) -> Identity:
        """Return who the token speaks for; raises as `bearer` does."""
        return (await self.bearer(token)).identity

    async def wait_revoked(self, entry: Credential) -> None:
        """Return once the session or token has ended, or no longer stands for the same.

        A stream that it opened must end then. It notes no use: a page that is merely open does not
        keep its session alive.
        """
        with self.revocations.watching(entry.user_id, entry.token_id) as watch:
            while True:
                try:
                    if not await self._still_stands(entry):
                        return
                except Unavailable:
                    # Nothing can be read meanwhile, so nothing is shown that should not be.
                    await watch.heard(_RETRY_S)
                    continue
                await watch.heard(self._seconds_to_look(entry))

    async def is_in(self, entry: Credential) -> bool:
        """Whether the session or token still stands for somebody, be it with other roles."""
        return await self.again(entry) is not None

    async def again(self, entry: Credential) -> Credential | None:
        """Return what the session or token stands for now, None where it has ended."""
        if isinstance(entry, Session):
            return await self.sessions.again(entry)
        return await self.tokens.again(entry)

    async def _still_stands(self, entry: Credential) -> bool:
        now = await self.again(entry)
        return (
            now is not None
            and now.identity == entry.identity
            and now.memberships == entry.memberships
        )

    def _seconds_to_look(self, entry: Credential) -> float:
        ends = [m.valid_to for m in entry.memberships if m.valid_to is not None]
        if entry.expires_at is not None:
            ends.append(entry.expires_at)
        if not ends:
            return _LOOK_EVERY_S
        left_s = (min(ends) - self._clock.now()).total_seconds()
        return min(_LOOK_EVERY_S, max(0.05, left_s))

    # --- for the daemon's own machine ---

    async def has_token(self) -> bool:
        """Whether there is any token that was not revoked."""
        async with self._db.reading() as tx:
            return await doors.count_tokens(tx.conn) > 0

    async def create_token(self, name: str) -> str:
        """Make an administrator's token for the namespace `home`; it is never shown again."""
        async with self.audit.doing(LOCAL, "token.create", "token:local") as deed:
            deed.detail = name
            return await self.tokens.create_local(deed.tx, name)

    async def new_link(self, *, base_url: str) -> str:
        """Return a link that lets one browser in once, within half an hour, as an administrator.

        It is the first administrator's, or where nobody has an account the first local token's.
        Raises NotFound where there is neither.
        """
        async with self.audit.doing(LOCAL, "login_link.create", "link:new") as deed:
            user = await people.first_administrator(deed.tx.conn)
            if user is not None:
                return await self._link(
                    deed.tx, base_url, user_id=user["id"], token_id=None, epoch=user["epoch"]
                )
            token_id = await doors.first_token(deed.tx.conn, deed.tx.now)
            if token_id is None:
                raise NotFound("administrator", "to make a link for")
            return await self._link(deed.tx, base_url, user_id=None, token_id=token_id, epoch=0)

    async def link_for(self, by: Credential, *, base_url: str) -> str:
        """Return a link that lets one browser in once, as whoever asks for it."""
        async with self.audit.doing(by.identity, "login_link.create", "link:new") as deed:
            if by.token_id is not None:
                return await self._link(
                    deed.tx, base_url, user_id=None, token_id=by.token_id, epoch=0
                )
            if by.user_id is None:
                raise NotFound("account", by.identity.actor)
            user = await people.credentials_by_id(deed.tx.conn, by.user_id)
            if user is None:
                raise NotFound("account", by.identity.actor)
            return await self._link(
                deed.tx, base_url, user_id=by.user_id, token_id=None, epoch=user["epoch"]
            )

    async def _link(
        self, tx: Tx, base_url: str, *, user_id: UUID | None, token_id: UUID | None, epoch: int
    ) -> str:
        secret = new_secret()
        await doors.insert_link(
            tx.conn, digest(secret), user_id, token_id, epoch, tx.now + LINK_LASTS
        )
        return f"{base_url}/login?link={secret}"

    async def prune(self, now: datetime) -> None:
        """Forget what has ended: sessions, links, failures of more than a day, devices."""
        async with self._db.transaction() as tx:
            await doors.prune(
                tx.conn, now=now, seen_before=now - IDLE, device_before=now - DEVICE_LASTS
            )
            await doors.prune_failures(tx.conn, now - timedelta(days=1))

    def close(self) -> None:
        """Let the threads that hash passwords go."""
        self._passwords.close()


def _complete(answer: LoggedIn | SecondFactorDue) -> LoggedIn:
    if isinstance(answer, SecondFactorDue):
        raise Unauthorised("A second factor is due; log in with your password.")
    return answer


def _error(refused: Refused) -> Unauthorised | RateLimited | TooLarge | Denied:
    match refused.reason:
        case Reason.TOO_MANY:
            return RateLimited(refused.message, retry_after_s=refused.retry_after_s)
        case Reason.TOO_LONG:
            return TooLarge(refused.message, field="password")
        case Reason.SUSPENDED:
            return Denied(refused.message)
        case _:
            return Unauthorised(refused.message)


def _login(who: Authenticated | None, outcome: Outcome, origin: Origin, how: str) -> Act:
    actor = "anonymous" if who is None else who.actor
    return Act(
        actor=actor,
        agent_id=origin.agent_id,
        namespace=NOWHERE,
        verb="login",
        target=actor,
        outcome=outcome,
        detail=f"{how}, from {origin.address or 'unknown'}",
    )

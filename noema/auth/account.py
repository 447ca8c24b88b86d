"""What a person changes about their own account, with their password and in limited attempts.

A changed password or second factor ends all their sessions. The one that made the change goes on
under a new secret, which these methods return for the browser's cookie.
"""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from noema.auth.authenticator import too_many
from noema.auth.limits import Accounts
from noema.auth.model import Origin, Session
from noema.auth.passwords import Passwords, check_policy
from noema.auth.revocations import Revocations
from noema.auth.sessions import Sessions
from noema.auth.store import doors, people
from noema.auth.totp import Enrolment, SecondFactor, enrolment, new_seed, spaceless, step_of
from noema.core.act import Outcome, act_of
from noema.core.errors import Conflict, Denied, InvalidInput, RateLimited, Unauthorised
from noema.db.tx import Database, Tx
from noema.events.audit import Audit, Deed

ISSUER: Final = "Noema"
_ENDED: Final = "Your account changed in this moment; log in again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """The second factor is on: recovery codes to be written down, and the session's new secret."""

    recovery_codes: tuple[str, ...] = field(repr=False)
    secret: str = field(repr=False)


class Account:
    """A person's own password and second factor."""

    def __init__(
        self,
        *,
        db: Database,
        audit: Audit,
        passwords: Passwords,
        accounts: Accounts,
        second_factor: SecondFactor,
        sessions: Sessions,
        revocations: Revocations,
    ) -> None:
        self._db = db
        self._audit = audit
        self._passwords = passwords
        self._accounts = accounts
        self._second_factor = second_factor
        self._sessions = sessions
        self._revocations = revocations

    async def re_authenticate(self, session: Session, password: str, *, code: str = "") -> None:
        """Note that the person gave their password again, and a code where one is due.

        Raises Unauthorised where either is wrong, RateLimited after too many attempts. For ten
        minutes `Sessions.require_fresh` lets this session through.
        """
        verb = "session.re_authenticate"
        user = await self._with_password(session, password, verb)
        seed = await self._seed(user) if user["totp_confirmed_at"] is not None else None
        async with self._doing(session, verb) as deed:
            if seed is not None and not await self._second_factor.use_code(
                deed.tx, user["id"], seed=seed, code=code
            ):
                raise Unauthorised("That code is wrong or was used before; wait for the next one.")
            await doors.re_authenticated(deed.tx.conn, session.digest, deed.tx.now)
            await self._accounts.forgive(deed.tx, user["id"], _lane(session))

    async def change_password(self, session: Session, *, old: str, new: str, origin: Origin) -> str:
        """Change the password, end all other sessions, and return this one's new secret.

        Raises Unauthorised where the old one is wrong, InvalidInput where the new one will not do.
        """
        verb = "user.change_password"
        user = await self._with_password(session, old, verb)
        try:
            _check_new(new, old=old, user_name=user["name"])
        except InvalidInput as exc:
            await self._fail(session, verb, Outcome.ERROR, str(exc))
            raise
        hash_ = await self._passwords.hash(new)
        async with self._doing(session, verb) as deed:
            epoch = await people.set_password(
                deed.tx.conn, user["id"], hash_, deed.tx.now, epoch=user["epoch"]
            )
            await doors.forget_devices(deed.tx.conn, user["id"])
            secret = await self._go_on(deed.tx, session, epoch, origin)
        self._revocations.told(str(user["id"]))
        return secret

    async def start_totp(self, session: Session) -> Enrolment:
        """Return a new seed to put into an app; it counts once a code from it is confirmed.

        Raises Denied unless the password was given within ten minutes, Conflict where the second
        factor is on already.
        """
        user_id = _person(session)
        seed = new_seed()
        sealed = await self._second_factor.seal(user_id, seed)
        async with self._doing(session, "totp.start") as deed:
            self._sessions.require_fresh(session)
            if not await people.start_totp(deed.tx.conn, user_id, sealed):
                raise Conflict("The second factor is on already; turn it off to set it up anew.")
        return enrolment(seed, user=session.identity.actor.removeprefix("user:"), issuer=ISSUER)

    async def confirm_totp(self, session: Session, code: str, *, origin: Origin) -> Confirmed:
        """Turn the second factor on with a code from the app; all other sessions end.

        Raises Unauthorised where the code is wrong, RateLimited after too many attempts, Conflict
        where no enrolment was started.
        """
        verb = "totp.confirm"
        user_id = _person(session)
        await self._charge(session, verb)
        async with self._db.reading() as tx:
            user = await people.credentials_by_id(tx.conn, user_id)
        if user is None or user["totp_secret"] is None or user["totp_confirmed_at"] is not None:
            await self._fail(session, verb, Outcome.ERROR, "nothing to confirm")
            raise Conflict("There is no enrolment to confirm; start one first.")
        seed = await self._seed(user)
        async with self._doing(session, verb) as deed:
            now_s = int(deed.tx.now.timestamp())
            step = step_of(seed, spaceless(code), unix_s=now_s)
            if step is None:
                raise Unauthorised("That code is not the app's; check the clock of your device.")
            epoch = await people.confirm_totp(
                deed.tx.conn, user_id, deed.tx.now, step=step, sealed=user["totp_secret"]
            )
            codes = await self._second_factor.renew_recovery_codes(deed.tx, user_id)
            await self._accounts.forgive(deed.tx, user_id, _lane(session))
            secret = await self._go_on(deed.tx, session, epoch, origin)
        self._revocations.told(str(user_id))
        return Confirmed(recovery_codes=codes, secret=secret)

    async def end_totp(self, session: Session, password: str, *, origin: Origin) -> str:
        """Turn the second factor off with the password; return the session's new secret.

        Raises Unauthorised where the password is wrong, Conflict where it is off already.
        """
        user = await self._with_password(session, password, "totp.end")
        async with self._doing(session, "totp.end") as deed:
            epoch = await people.end_totp(deed.tx.conn, user["id"])
            if epoch is None:
                raise Conflict("The second factor is off already.")
            secret = await self._go_on(deed.tx, session, epoch, origin)
        self._revocations.told(str(user["id"]))
        return secret

    async def renew_recovery_codes(self, session: Session) -> tuple[str, ...]:
        """Replace the recovery codes and return the new ones, for the only time.

        Raises Denied unless the password was given within ten minutes, Conflict without a second
        factor.
        """
        user_id = _person(session)
        async with self._doing(session, "totp.renew_recovery_codes") as deed:
            self._sessions.require_fresh(session)
            user = await people.credentials_by_id(deed.tx.conn, user_id)
            if user is None or user["totp_confirmed_at"] is None:
                raise Conflict("Turn the second factor on first.")
            return await self._second_factor.renew_recovery_codes(deed.tx, user_id)

    async def count_recovery_codes(self, session: Session) -> int:
        """Return how many recovery codes are left."""
        async with self._db.reading() as tx:
            return await people.count_recovery(tx.conn, _person(session))

    def _doing(self, session: Session, verb: str) -> AbstractAsyncContextManager[Deed]:
        return self._audit.doing(session.identity, verb, session.identity.actor)

    async def _with_password(self, session: Session, password: str, verb: str) -> doors.Row:
        """Return the person's row where the password is theirs; every attempt is counted first."""
        user_id = _person(session)
        await self._charge(session, verb)
        async with self._db.reading() as tx:
            user = await people.credentials_by_id(tx.conn, user_id)
        stored = None if user is None else user["password_hash"]
        verdict = await self._passwords.verify(stored, password)
        if user is None or not verdict.matches or user["disabled_at"] is not None:
            await self._fail(session, verb, Outcome.DENIED, "wrong password")
            raise Unauthorised("That is not your password.")
        if user["totp_confirmed_at"] is None or verb != "session.re_authenticate":
            async with self._db.transaction() as tx:
                await self._accounts.forgive(tx, user_id, _lane(session))
        return user

    async def _charge(self, session: Session, verb: str) -> None:
        if wait_s := await self._accounts.charge(_person(session), _lane(session)):
            await self._fail(session, verb, Outcome.DENIED, "too many failures")
            raise RateLimited(too_many(wait_s).message, retry_after_s=wait_s)

    async def _fail(self, session: Session, verb: str, outcome: Outcome, why: str) -> None:
        await self._audit.record_alone(
            act_of(session.identity, verb, session.identity.actor, outcome, detail=why)
        )

    async def _seed(self, user: doors.Row) -> str:
        return await self._second_factor.open(user["id"], user["totp_secret"])

    async def _go_on(self, tx: Tx, session: Session, epoch: int | None, origin: Origin) -> str:
        """End the person's sessions and open one in the place of this."""
        if epoch is None:
            raise Conflict(_ENDED)
        user_id = _person(session)
        await doors.end_sessions_of(tx.conn, user_id)
        secret = await self._sessions.renew(tx, session, epoch, origin)
        await doors.notify(tx.conn, user_id)
        return secret


def _check_new(new: str, *, old: str, user_name: str) -> None:
    check_policy(new, user_name=user_name)
    if new == old:
        raise InvalidInput("Choose a password other than the present one.", field="new")


def _person(session: Session) -> UUID:
    if session.user_id is None or session.token_id is not None:
        raise Denied("A token has no password and no second factor; log in as yourself.")
    return session.user_id


def _lane(session: Session) -> str:
    # A session that was left open or taken away has its own attempts, and locks nobody else out.
    return f"session {session.id}"

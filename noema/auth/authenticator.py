"""How somebody proves who they are. Each way is an Authenticator: credentials in, an answer out.

A password and a token are the two here. One that takes the code of an OpenID Connect provider has
the same shape: it finds the user whose subject the provider vouches for, and answers Authenticated.
"""

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol, TypeVar
from uuid import UUID

from noema.auth.limits import OPEN_LANE, Accounts, Addresses
from noema.auth.model import (
    Authenticated,
    Method,
    Origin,
    Reason,
    Refused,
    SecondFactorDue,
)
from noema.auth.passwords import MAX_BYTES, Passwords, is_too_long
from noema.auth.store import doors, people
from noema.auth.tokens import Tokens
from noema.auth.totp import SecondFactor, spaceless
from noema.core.act import Act, Outcome
from noema.core.errors import RateLimited
from noema.core.identity import NOWHERE
from noema.core.secret import digest, new_secret
from noema.db.tx import Database, Tx
from noema.events.audit import Audit

C_contra = TypeVar("C_contra", contravariant=True)

PENDING_LASTS: Final = timedelta(minutes=5)
DEVICE_LASTS: Final = timedelta(days=180)
_NAME: Final = re.compile("[a-z0-9][a-z0-9._@-]{0,62}")

_WRONG: Final = Refused(
    reason=Reason.WRONG, message="Name or password is wrong. Check both and try again."
)
_WRONG_CODE: Final = Refused(
    reason=Reason.WRONG,
    message="That code is wrong or was used before. Wait for the next one, or use a recovery code.",
)
_TOO_LONG: Final = Refused(
    reason=Reason.TOO_LONG, message=f"A password has at most {MAX_BYTES:,} bytes."
)
_ENDED: Final = Refused(
    reason=Reason.ENDED, message="This login took too long; start again with your password."
)


class Authenticator(Protocol[C_contra]):
    """One way to prove who one is."""

    async def authenticate(
        self, credentials: C_contra, origin: Origin
    ) -> Authenticated | SecondFactorDue | Refused:
        """Return who it is, or that a second factor is due, or why not; every attempt is audited
        but the successful one, whose row commits with what comes of it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordCredentials:
    """What a login form sends."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCredentials:
    """A personal token."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeCredentials:
    """What finishes a login: the ticket of its first half, and a code or a recovery code."""

    ticket: str = field(repr=False)
    code: str = field(repr=False)


class PasswordAuthenticator:
    """Names and passwords, with both limits in front and the same work for every name."""

    def __init__(
        self,
        *,
        db: Database,
        audit: Audit,
        passwords: Passwords,
        addresses: Addresses,
        accounts: Accounts,
    ) -> None:
        self._db = db
        self._audit = audit
        self._passwords = passwords
        self._addresses = addresses
        self._accounts = accounts

    async def authenticate(
        self, credentials: PasswordCredentials, origin: Origin
    ) -> Authenticated | SecondFactorDue | Refused:
        """Return who it is; the refusals are the same for an unknown name and a wrong password."""
        if refused := await slow_down(self._addresses, self._audit, origin, "login"):
            return refused
        name = folded(credentials.name)
        mark = self._accounts.mark(name)
        if is_too_long(credentials.password):
            await self._deny("anonymous", mark, origin, "too long a password")
            return _TOO_LONG
        async with self._db.reading() as tx:
            # A name that no account can have is looked up as well, as one that none has.
            user = await people.credentials(tx.conn, name if is_user_name(name) else "")
            lane = await lane_of(tx, origin, None if user is None else user["id"])
        account: UUID | str = mark if user is None else user["id"]
        actor = "anonymous" if user is None else f"user:{name}"
        if wait_s := await self._accounts.charge(account, lane):
            await self._deny(actor, mark, origin, f"too many failures, {wait_s} s to wait")
            return too_many(wait_s)
        stored = None if user is None else user["password_hash"]
        try:
            verdict = await self._passwords.verify(stored, credentials.password)
        except RateLimited as exc:
            await self._deny(actor, mark, origin, "too many logins at once")
            return too_many(exc.retry_after_s)
        if user is None or not verdict.matches or user["disabled_at"] is not None:
            why = "disabled" if verdict.matches else "wrong name or password"
            await self._deny(actor, mark, origin, why)
            return _WRONG
        if verdict.is_outdated:
            renewed = await self._passwords.hash(credentials.password)
            async with self._db.transaction() as tx:
                await people.rehash(tx.conn, user["id"], user["password_hash"], renewed)
        async with self._db.transaction() as tx:
            await self._accounts.forgive(tx, user["id"], lane)
            if user["totp_confirmed_at"] is not None:
                return await self._ask_for_code(tx, user["id"], name, user["epoch"], origin)
        return Authenticated(
            user_id=user["id"],
            token_id=None,
            name=name,
            epoch=user["epoch"],
            method=Method.PASSWORD,
        )

    async def _ask_for_code(
        self, tx: Tx, user_id: UUID, name: str, epoch: int, origin: Origin
    ) -> SecondFactorDue:
        ticket = new_secret()
        await doors.insert_pending(tx.conn, digest(ticket), user_id, epoch, tx.now + PENDING_LASTS)
        await self._audit.record(
            tx, _attempt("login.password", f"user:{name}", f"user:{name}", Outcome.OK, origin, "")
        )
        return SecondFactorDue(ticket=ticket)

    async def _deny(self, actor: str, mark: str, origin: Origin, why: str) -> None:
        # A name nobody has may be a password in the wrong field: its mark tells rows of one name
        # from those of another, and no more.
        target = mark if actor == "anonymous" else actor
        await self._audit.record_alone(
            _attempt("login", actor, target, Outcome.DENIED, origin, why)
        )


class CodeAuthenticator:
    """The second half of a login."""

    def __init__(
        self,
        *,
        db: Database,
        audit: Audit,
        addresses: Addresses,
        accounts: Accounts,
        second_factor: SecondFactor,
    ) -> None:
        self._db = db
        self._audit = audit
        self._addresses = addresses
        self._accounts = accounts
        self._second_factor = second_factor

    async def authenticate(
        self, credentials: CodeCredentials, origin: Origin
    ) -> Authenticated | Refused:
        """Return who it is; the ticket and the code are used up together."""
        if refused := await slow_down(self._addresses, self._audit, origin, "login.code"):
            return refused
        hash_ = digest(credentials.ticket)
        async with self._db.reading() as tx:
            pending = await doors.pending(tx.conn, hash_, tx.now)
            lane = await lane_of(tx, origin, None if pending is None else pending["user_id"])
        if pending is None or pending["totp_secret"] is None:
            await self._deny(None, origin, "no such ticket, or too old")
            return _ENDED
        user_id, name = pending["user_id"], pending["name"]
        seed = await self._second_factor.open(user_id, pending["totp_secret"])
        if wait_s := await self._accounts.charge(user_id, f"code, {lane}"):
            await self._deny(name, origin, f"too many failures, {wait_s} s to wait")
            return too_many(wait_s)
        async with self._db.transaction() as tx:
            method = await self._used(tx, user_id, seed, credentials.code)
            if method is not None and await doors.end_pending(tx.conn, hash_):
                await self._accounts.forgive(tx, user_id, f"code, {lane}")
                return Authenticated(
                    user_id=user_id,
                    token_id=None,
                    name=name,
                    epoch=pending["epoch"],
                    method=method,
                )
        await self._deny(name, origin, "wrong or used code")
        return _WRONG_CODE

    async def _used(self, tx: Tx, user_id: UUID, seed: str, code: str) -> Method | None:
        if await self._second_factor.use_code(tx, user_id, seed=seed, code=code):
            return Method.TOTP
        if len(spaceless(code)) > len("123456") and await self._second_factor.use_recovery_code(
            tx, user_id, code
        ):
            return Method.RECOVERY
        return None

    async def _deny(self, name: str | None, origin: Origin, why: str) -> None:
        actor = "anonymous" if name is None else f"user:{name}"
        await self._audit.record_alone(
            _attempt("login.code", actor, actor, Outcome.DENIED, origin, why)
        )


class TokenAuthenticator:
    """Tokens that are pasted into the login page."""

    def __init__(self, *, tokens: Tokens, audit: Audit, addresses: Addresses) -> None:
        self._tokens = tokens
        self._audit = audit
        self._addresses = addresses

    async def authenticate(
        self, credentials: TokenCredentials, origin: Origin
    ) -> Authenticated | Refused:
        """Return what the token speaks for."""
        if refused := await slow_down(self._addresses, self._audit, origin, "login"):
            return refused
        found = await self._tokens.resolve(credentials.token, origin)
        if isinstance(found, Refused):
            return found
        return Authenticated(
            user_id=found.user_id,
            token_id=found.token_id,
            name=found.identity.actor.removeprefix("token:"),
            epoch=0,
            method=Method.TOKEN,
        )


def folded(name: str) -> str:
    """Return the name as accounts have it; the case in which it is typed does not matter."""
    return name.strip().casefold()


def is_user_name(name: str) -> bool:
    """Whether an account may have this (folded) name."""
    return _NAME.fullmatch(name) is not None


async def lane_of(tx: Tx, origin: Origin, user_id: UUID | None) -> str:
    """Return whose failures these would be: this known browser's own, or all strangers' together.

    Looked up for a name that nobody has as well, so that both take the same time.
    """
    hash_ = digest(origin.device or "")
    known = await doors.is_known_device(tx.conn, hash_, user_id, tx.now - DEVICE_LASTS)
    return f"device {hash_.hex()[:16]}" if known else OPEN_LANE


async def slow_down(
    addresses: Addresses, audit: Audit, origin: Origin, verb: str
) -> Refused | None:
    """Return a refusal where the address has used up its attempts; the first one is audited."""
    wait_s = addresses.take(origin.address)
    if not wait_s:
        return None
    if addresses.is_first_refusal(origin.address):
        target = f"address:{origin.address[:100]}"
        await audit.record_alone(
            _attempt(verb, "anonymous", target, Outcome.DENIED, origin, "too many attempts")
        )
    return too_many(wait_s)


def too_many(wait_s: int) -> Refused:
    """Return the refusal that says how long to wait."""
    return Refused(
        reason=Reason.TOO_MANY,
        message=f"Too many attempts; try again in {wait_s} s.",
        retry_after_s=wait_s,
    )


def _attempt(verb: str, actor: str, target: str, outcome: Outcome, origin: Origin, why: str) -> Act:
    place = f"from {origin.address or 'unknown'}"
    return Act(
        actor=actor,
        agent_id=origin.agent_id,
        namespace=NOWHERE,
        verb=verb,
        target=target,
        outcome=outcome,
        detail=f"{why}, {place}" if why else place,
    )

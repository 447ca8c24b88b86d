"""Who comes in, and by what: frozen values. No secret stands in the repr of any of them."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from noema.core.identity import ConsoleRole, Identity, MemoryRole


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an attempt came from. `address` is the client's, as the edge resolved it.

    `device` is the secret that `Access.log_in` gave this browser when the person last came in.
    """

    address: str
    user_agent: str = ""
    agent_id: str = "console"
    device: str | None = field(default=None, repr=False)


NO_ORIGIN: Final = Origin(address="")


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """A person's role in a namespace, from `valid_from` on and before `valid_to`."""

    namespace: str
    role: MemoryRole
    valid_from: datetime
    valid_to: datetime | None = None
    granted_by: str = ""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A person with an account, without anything secret."""

    id: UUID
    name: str
    console_role: ConsoleRole
    created_at: datetime
    created_by: str
    last_login_at: datetime | None
    password_changed_at: datetime | None
    disabled_at: datetime | None
    has_password: bool
    has_totp: bool


class Method(StrEnum):
    """How somebody proved who they are."""

    PASSWORD = "password"  # noqa: S105
    TOTP = "password and code"
    RECOVERY = "password and recovery code"
    TOKEN = "token"  # noqa: S105
    LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """Somebody proved who they are: a person, or what holds a token.

    `epoch` is the state of the person's credentials that was checked; a session of an earlier one
    is dead, so a change of password in the same moment is not missed.
    """

    user_id: UUID | None
    token_id: UUID | None
    name: str
    epoch: int
    method: Method

    @property
    def actor(self) -> str:
        """How the audit log calls them."""
        return f"user:{self.name}" if self.user_id and not self.token_id else f"token:{self.name}"


class Reason(StrEnum):
    """Why somebody was not let in."""

    WRONG = "wrong"
    TOO_MANY = "too many"
    TOO_LONG = "too long"
    ENDED = "ended"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Not let in; the message is for the person and the same whether or not the account exists."""

    reason: Reason
    message: str
    retry_after_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondFactorDue:
    """The password was right; `ticket` and a code finish the login within five minutes."""

    ticket: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedIn:
    """A new session: `secret` is the cookie's value, `device` the value of the device cookie."""

    secret: str = field(repr=False)
    device: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A browser that came in: who it acts for, and the token its forms must carry."""

    identity: Identity
    csrf: str = field(repr=False)
    digest: bytes = field(repr=False)
    id: UUID
    user_id: UUID | None
    token_id: UUID | None
    memberships: tuple[Membership, ...]
    created_at: datetime
    expires_at: datetime
    re_authenticated_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """A token that came in: who it speaks for. `user_id` is its creator, None for a local one.

    `memberships` are the creator's in its namespace that stand behind it now.
    """

    identity: Identity
    digest: bytes = field(repr=False)
    token_id: UUID
    user_id: UUID | None
    expires_at: datetime | None
    memberships: tuple[Membership, ...] = ()


Credential = Session | Bearer


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is listed."""

    id: UUID
    user: str
    namespace: str | None
    method: str
    user_agent: str
    address: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is listed; the token itself was shown once and is not kept."""

    id: UUID
    name: str
    user: str | None
    hint: str
    namespace: str
    memory_role: str
    console_role: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """The first segment of namespaces, with the namespaces there are."""

    name: str
    status: str
    created_at: datetime
    namespaces: tuple[str, ...]

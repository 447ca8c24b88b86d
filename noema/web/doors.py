"""What the pages about who may come in show: one frozen context per template, as in `views`."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from urllib.parse import urlencode

from noema.web.views import Level

# --- coming in -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginPage:
    """`login.html`."""

    next: str = "/"
    name: str = ""
    error: str | None = None
    token_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePage:
    """`login_code.html`: the second step."""

    next: str = "/"
    error: str | None = None


def code_path(next_: str) -> str:
    """Return the address of the second step, which leads on to that page."""
    return "/login/code" if next_ == "/" else f"/login/code?{urlencode({'next': next_})}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupPage:
    """`setup.html`: `user` is who chooses a password, None for the first administrator."""

    link: str = field(repr=False)
    user: str | None
    name: str = ""
    error: str | None = None
    wrong: Literal["name", "password", "again"] = "password"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofPage:
    """`proof.html`: a password is due before something sensitive is done.

    `action` is where the form goes on to, with the `fields` that were sent there first.
    """

    action: str
    back: str
    fields: tuple[tuple[str, str], ...] = field(repr=False)
    user: str
    needs_code: bool
    error: str | None = None


# --- lists that several pages have -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """One live browser session; `browser` is a short reading of the user agent."""

    id: str
    user: str
    namespace: str | None
    method: str
    browser: str
    user_agent: str
    address: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime
    is_this: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLine:
    """One API token; `state` is active, expired or revoked."""

    id: str
    name: str
    user: str | None
    hint: str
    namespace: str
    memory_role: str
    console_role: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    state: Literal["active", "expired", "revoked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipLine:
    """One membership; `state` is now, past or to come."""

    namespace: str
    role: str
    valid_from: datetime
    valid_to: datetime | None
    granted_by: str
    state: Literal["now", "past", "to come"]


# --- account -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenForm:
    """The form that makes a token, with what may be chosen in it."""

    name: str = ""
    namespace: str = ""
    memory_role: str = ""
    console_role: str = "none"
    days: str = "90"
    namespaces: tuple[str, ...] = ()
    memory_roles: tuple[str, ...] = ()
    console_roles: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountPage:
    """`account.html`. `is_person` is false where a token or its link opened the session.

    `secret` is a token that was just made, shown this once.
    """

    name: str
    console_role: str
    is_person: bool
    has_totp: bool
    recovery_left: int
    password_changed_at: datetime | None
    memberships: tuple[MembershipLine, ...]
    sessions: tuple[SessionLine, ...]
    tokens: tuple[TokenLine, ...]
    token_form: TokenForm
    said: str | None = None
    secret: str | None = field(default=None, repr=False)
    secret_name: str = ""
    password_error: str | None = None
    wrong: str = ""
    totp_error: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolPage:
    """`totp.html`: the picture and the seed for the person's app, shown once.

    Both are empty where a code was wrong: they are not kept, and the app has them already.
    """

    svg: str = field(default="", repr=False)
    seed: str = field(default="", repr=False)
    url: str = field(default="", repr=False)
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPage:
    """`recovery.html`: codes to be written down, shown once."""

    codes: tuple[str, ...] = field(repr=False)
    is_new_factor: bool


# --- access ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLine:
    """One person in the list."""

    name: str
    console_role: str
    memberships: tuple[MembershipLine, ...]
    has_password: bool
    has_totp: bool
    last_login_at: datetime | None
    created_at: datetime
    created_by: str
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserForm:
    """The form that makes a person."""

    name: str = ""
    role: str = "operator"
    namespace: str = ""
    memory_role: str = "member"
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPage:
    """`access.html`: the people."""

    users: tuple[UserLine, ...]
    namespaces: tuple[str, ...]
    console_roles: tuple[str, ...]
    memory_roles: tuple[str, ...]
    form: UserForm


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPage:
    """`user.html`: one person. `link` is a password link that was just made, shown this once."""

    user: UserLine
    is_self: bool
    memberships: tuple[MembershipLine, ...]
    sessions: tuple[SessionLine, ...]
    tokens: tuple[TokenLine, ...]
    namespaces: tuple[str, ...]
    console_roles: tuple[str, ...]
    memory_roles: tuple[str, ...]
    link: str | None = field(default=None, repr=False)
    said: str | None = None
    error: str | None = None
    grant_error: str | None = None
    grant: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLine:
    """One tenant with its namespaces."""

    name: str
    is_active: bool
    created_at: datetime
    namespaces: tuple[str, ...]
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantsPage:
    """`tenants.html`."""

    tenants: tuple[TenantLine, ...]
    tenant: str = ""
    namespace: str = ""
    tenant_error: str | None = None
    namespace_error: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesPage:
    """`entries.html`: everybody's sessions and tokens."""

    sessions: tuple[SessionLine, ...]
    tokens: tuple[TokenLine, ...]
    error: str | None = None


# --- audit -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One outcome."""

    seq: int
    id: str
    at: datetime
    actor: str
    agent_id: str
    verb: str
    target: str
    namespace: str
    outcome: str
    level: Level
    detail: str
    purpose: str
    redacted: bool
    target_href: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """What stands in the form; times are in UTC."""

    who: str = ""
    verb: str = ""
    syscall: str = ""
    target: str = ""
    outcome: str = ""
    from_: str = ""
    to: str = ""
    error: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether anything is left out."""
        return any(
            (self.who, self.verb, self.syscall, self.target, self.outcome, self.from_, self.to)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """`audit.html`. `scope` names the namespaces whose rows are seen, None for all."""

    rows: tuple[AuditLine, ...]
    filter: AuditFilter
    verbs: tuple[str, ...]
    syscalls: tuple[str, ...]
    scope: tuple[str, ...] | None
    older: str | None
    newest: str | None
    json_href: str
    csv_href: str

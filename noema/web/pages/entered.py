"""Sessions, tokens and memberships as the pages of accounts list them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

from noema.auth.model import Membership, SessionRow, TokenRow
from noema.web import doors

_BROWSERS: Final = (
    ("Firefox/", "Firefox"),
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def browser_of(user_agent: str) -> str:
    """Return what a person calls the browser of that header; a hint, not a fact."""
    name = next((label for mark, label in _BROWSERS if mark in user_agent), "")
    system = next((label for mark, label in _SYSTEMS if mark in user_agent), "")
    if name and system:
        return f"{name} on {system}"
    return name or system or user_agent[:40] or "unknown"


def session_lines(
    rows: Iterable[SessionRow], *, this: UUID | None
) -> tuple[doors.SessionLine, ...]:
    """Return live sessions; `this` is the one that looks."""
    return tuple(
        doors.SessionLine(
            id=str(r.id),
            user=r.user,
            namespace=r.namespace,
            method=r.method,
            browser=browser_of(r.user_agent),
            user_agent=r.user_agent,
            address=r.address,
            created_at=r.created_at,
            seen_at=r.seen_at,
            expires_at=r.expires_at,
            is_this=r.id == this,
        )
        for r in rows
    )


def token_lines(rows: Iterable[TokenRow], *, now: datetime) -> tuple[doors.TokenLine, ...]:
    """Return tokens, those that count first and the newest first among them."""
    lines = sorted((_token_line(r, now) for r in rows), key=lambda t: t.created_at, reverse=True)
    return tuple(sorted(lines, key=lambda line: line.state != "active"))


def _token_line(row: TokenRow, now: datetime) -> doors.TokenLine:
    state: Literal["active", "expired", "revoked"] = "active"
    if row.revoked_at is not None:
        state = "revoked"
    elif row.expires_at is not None and row.expires_at <= now:
        state = "expired"
    return doors.TokenLine(
        id=str(row.id),
        name=row.name,
        user=row.user,
        hint=row.hint,
        namespace=row.namespace,
        memory_role=row.memory_role,
        console_role=row.console_role,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        state=state,
    )


def membership_lines(
    rows: Iterable[Membership], *, now: datetime
) -> tuple[doors.MembershipLine, ...]:
    """Return memberships, those that hold now first."""
    lines = [_membership_line(m, now) for m in rows]
    order = ("now", "to come", "past")
    return tuple(sorted(lines, key=lambda line: (order.index(line.state), line.namespace)))


def _membership_line(row: Membership, now: datetime) -> doors.MembershipLine:
    state: Literal["now", "past", "to come"] = "now"
    if row.valid_to is not None and row.valid_to <= now:
        state = "past"
    elif row.valid_from > now:
        state = "to come"
    return doors.MembershipLine(
        namespace=row.namespace,
        role=row.role.value,
        valid_from=row.valid_from,
        valid_to=row.valid_to,
        granted_by=row.granted_by,
        state=state,
    )

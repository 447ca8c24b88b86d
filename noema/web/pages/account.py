"""One's own account: password, second factor, sessions and tokens."""

from typing import Final

from starlette.responses import Response

from noema.auth.model import Session
from noema.auth.roles import console_allows, may_lend
from noema.core.errors import (
    Conflict,
    Denied,
    InvalidInput,
    NoemaError,
    NotFound,
    RateLimited,
    Unauthorised,
)
from noema.core.identity import ConsoleRole, MemoryRole
from noema.web import doors, forms
from noema.web.api.tokens import lasting
from noema.web.call import Call
from noema.web.origin import origin_of
from noema.web.pages import door, proof
from noema.web.pages.entered import membership_lines, session_lines, token_lines
from noema.web.pages.login import status_of
from noema.web.pages.shell import page, see_other

_SAID: Final = {
    "password": "The password is changed. All your other sessions have ended.",
    "totp-off": "The second factor is off. All your other sessions have ended.",
    "session": "The session has ended, with every page it had open.",
    "token": "The token is revoked; whoever uses it is refused from now on.",
}
_ROLES: Final = (
    MemoryRole.OWNER,
    MemoryRole.ADMIN,
    MemoryRole.AUDITOR,
    MemoryRole.MEMBER,
    MemoryRole.AGENT,
)


async def show(call: Call) -> Response:
    return await _page(call)


async def change_password(call: Call) -> Response:
    """Change the password and go on under a new secret; all other sessions end."""
    try:
        new = door.twice(call, "new")
        secret = await call.services.access.account.change_password(
            _session(call), old=call.form.get("old", ""), new=new, origin=origin_of(call)
        )
    except Unauthorised as exc:
        return await _page(call, exc, password_error=str(exc), wrong="old")
    except RateLimited as exc:
        return await _page(call, exc, password_error=str(exc))
    except InvalidInput as exc:
        field = "again" if exc.field == "again" else "new"
        return await _page(call, exc, password_error=str(exc), wrong=field)
    return _went_on(call, secret, "password")


async def start_totp(call: Call) -> Response:
    """Show a new seed for the person's app."""
    if (asked := await proof.ask(call)) is not None:
        return asked
    try:
        made = await call.services.access.account.start_totp(_session(call))
    except Conflict as exc:
        return await _page(call, exc, totp_error=str(exc))
    context = doors.EnrolPage(svg=made.svg, seed=made.secret, url=made.url)
    return page(call, "totp.html", context, title="Second factor", active="account")


async def confirm_totp(call: Call) -> Response:
    """Turn the second factor on, and show the recovery codes."""
    access = call.services.access
    try:
        confirmed = await access.account.confirm_totp(
            _session(call), call.form.get("code", ""), origin=origin_of(call)
        )
    except (Unauthorised, RateLimited) as exc:
        status, headers = status_of(exc)
        context = doors.EnrolPage(error=str(exc))
        answer = page(call, "totp.html", context, title="Second factor", status=status)
        answer.headers.update(headers)
        return answer
    except Conflict as exc:
        return await _page(call, exc, totp_error=str(exc))
    # The forms of the page that follows belong to the session that goes on.
    call.session = await access.session(confirmed.secret)
    codes = doors.RecoveryPage(codes=confirmed.recovery_codes, is_new_factor=True)
    answer = page(call, "recovery.html", codes, title="Recovery codes", active="account")
    door.renew(call, answer, confirmed.secret)
    return answer


async def end_totp(call: Call) -> Response:
    """Turn the second factor off with the password."""
    try:
        secret = await call.services.access.account.end_totp(
            _session(call), call.form.get("password", ""), origin=origin_of(call)
        )
    except (Unauthorised, RateLimited, Conflict) as exc:
        return await _page(call, exc, totp_error=str(exc))
    return _went_on(call, secret, "totp-off")


async def renew_recovery_codes(call: Call) -> Response:
    """Show new recovery codes; the old ones count no more."""
    if (asked := await proof.ask(call)) is not None:
        return asked
    try:
        codes = await call.services.access.account.renew_recovery_codes(_session(call))
    except Conflict as exc:
        return await _page(call, exc, totp_error=str(exc))
    context = doors.RecoveryPage(codes=codes, is_new_factor=False)
    return page(call, "recovery.html", context, title="Recovery codes", active="account")


async def end_session(call: Call) -> Response:
    """End one of one's own sessions; ending this one is signing out."""
    session, id_ = _session(call), forms.uuid_of(call.path("id"), "session")
    try:
        await call.services.access.sessions.revoke(session, id_)
    except NotFound as exc:
        return await _page(call, exc, error="That session has ended already.")
    return door.put_out(call) if id_ == session.id else see_other("/account?said=session")


async def create_token(call: Call) -> Response:
    """Make a token and show it, for the only time."""
    if (asked := await proof.ask(call)) is not None:
        return asked
    name = call.form.get("name", "").strip()
    try:
        token = await call.services.access.tokens.create(
            _session(call),
            name=name,
            namespace=call.form.get("namespace", ""),
            memory_role=forms.choice(call.form, "memory_role", MemoryRole),
            console_role=forms.choice(call.form, "console_role", ConsoleRole),
            lasts=lasting(forms.whole(call.form, "days", low=1, high=100_000) or 0),
        )
    except (InvalidInput, Denied, NotFound) as exc:
        return await _page(call, exc, token_error=str(exc))
    return await _page(call, secret=token, secret_name=name)


async def revoke_token(call: Call) -> Response:
    id_ = forms.uuid_of(call.path("id"), "token")
    try:
        await call.services.access.tokens.revoke(_session(call), id_)
    except NotFound as exc:
        return await _page(call, exc, error="That token is revoked already.")
    return see_other("/account?said=token")


def _session(call: Call) -> Session:
    if call.session is None:
        raise Denied("An account is managed in a browser; sign in there.")
    return call.session


def _went_on(call: Call, secret: str, said: str) -> Response:
    answer = see_other(f"/account?said={said}")
    door.renew(call, answer, secret)
    return answer


async def _page(
    call: Call,
    exc: NoemaError | None = None,
    *,
    error: str | None = None,
    password_error: str | None = None,
    wrong: str = "",
    totp_error: str | None = None,
    token_error: str | None = None,
    secret: str | None = None,
    secret_name: str = "",
) -> Response:
    access, session, now = call.services.access, _session(call), call.services.clock.now()
    is_person = session.user_id is not None and session.token_id is None
    name = session.identity.actor.partition(":")[2]
    user = await access.users.get(name) if is_person else None
    has_totp = user is not None and user.has_totp
    memberships = session.memberships if is_person else ()
    context = doors.AccountPage(
        name=name,
        console_role=session.identity.console.value,
        is_person=is_person,
        has_totp=has_totp,
        recovery_left=await access.account.count_recovery_codes(session) if has_totp else 0,
        password_changed_at=None if user is None else user.password_changed_at,
        memberships=membership_lines(memberships, now=now),
        sessions=session_lines(await access.sessions.visible(session), this=session.id),
        tokens=token_lines(await access.tokens.visible(session), now=now),
        token_form=_token_form(call, session, token_error, is_done=secret is not None),
        said=_SAID.get(call.query.get("said", "")),
        secret=secret,
        secret_name=secret_name,
        password_error=password_error,
        wrong=wrong,
        totp_error=totp_error,
        error=error,
    )
    status, headers = status_of(exc)
    answer = page(call, "account.html", context, title="Account", active="account", status=status)
    answer.headers.update(headers)
    return answer


def _token_form(
    call: Call, session: Session, error: str | None, *, is_done: bool
) -> doors.TokenForm:
    form = {} if is_done else call.form
    mine = session.identity.console
    held = [m.role for m in session.memberships]
    return doors.TokenForm(
        name=form.get("name", "") if error else "",
        namespace=form.get("namespace", "") or session.identity.namespace,
        memory_role=form.get("memory_role", "") or MemoryRole.AGENT.value,
        console_role=form.get("console_role", "") or ConsoleRole.NONE.value,
        days=form.get("days", "") or "90",
        namespaces=tuple(sorted({m.namespace for m in session.memberships})),
        memory_roles=tuple(r.value for r in _ROLES if any(may_lend(h, r) for h in held)),
        console_roles=tuple(r.value for r in ConsoleRole if console_allows(mine, r)),
        error=error,
    )

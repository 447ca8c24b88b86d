"""Who may come in, for administrators: people, memberships, tenants, sessions and tokens."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from starlette.responses import Response

from noema.auth.model import Membership, SessionRow, TokenRow, User
from noema.core.errors import Conflict, InvalidInput, NoemaError, NotFound
from noema.core.identity import ConsoleRole, Identity, MemoryRole
from noema.web import doors, forms
from noema.web.call import Call
from noema.web.pages import proof
from noema.web.pages.entered import membership_lines, session_lines, token_lines
from noema.web.pages.events import moment
from noema.web.pages.login import status_of
from noema.web.pages.shell import local_path, page, see_other

_CONSOLE: Final = tuple(r.value for r in reversed(ConsoleRole) if r is not ConsoleRole.NONE)
_MEMORY: Final = tuple(r.value for r in reversed(MemoryRole) if r is not MemoryRole.NONE)
_SAID: Final = {
    "role": "The role is changed, and every session of before has ended.",
    "disable": "Kept out: sessions, streams and tokens have ended.",
    "enable": "May come in again.",
    "reset-totp": "The second factor is off; the password alone lets in.",
    "unlock": "Failed logins are forgiven; they may try again at once.",
    "grant": "The membership is given.",
    "revoke": "The membership has ended.",
}

_Deed = Callable[[Identity, str], Awaitable[None]]


# --- people ------------------------------------------------------------------------------------


async def show(call: Call) -> Response:
    return await _people(call)


async def create_user(call: Call) -> Response:
    """Create a person and show the link by which they choose a password."""
    if (asked := await proof.ask(call)) is not None:
        return asked
    form = call.form
    try:
        user = await call.services.access.users.create(
            call.who,
            name=form.get("name", ""),
            role=forms.choice(form, "role", ConsoleRole),
            namespace=form.get("namespace", "").strip() or None,
            memory_role=forms.choice(form, "memory_role", MemoryRole),
        )
    except (InvalidInput, Conflict, NotFound) as exc:
        return await _people(call, exc)
    return await _user(call, user.name, link=await _password_link(call, user.name))


async def show_user(call: Call) -> Response:
    return await _user(call, call.path("name"))


async def set_role(call: Call) -> Response:
    users = call.services.access.users

    async def set_it(by: Identity, name: str) -> None:
        await users.set_role(by, name, forms.choice(call.form, "role", ConsoleRole))

    return await _do(call, set_it, "role")


async def disable(call: Call) -> Response:
    return await _do(call, call.services.access.users.disable, "disable")


async def enable(call: Call) -> Response:
    return await _do(call, call.services.access.users.enable, "enable")


async def reset_totp(call: Call) -> Response:
    return await _do(call, call.services.access.users.reset_totp, "reset-totp")


async def unlock(call: Call) -> Response:
    return await _do(call, call.services.access.users.unlock, "unlock")


async def password_link(call: Call) -> Response:
    """Show a new link by which the person chooses a password, for the only time."""
    if (asked := await proof.ask(call)) is not None:
        return asked
    name = call.path("name")
    return await _user(call, name, link=await _password_link(call, name))


async def grant(call: Call) -> Response:
    """Give the person a role in a namespace, in a time where one is named."""
    form, users = call.form, call.services.access.users

    async def give(by: Identity, name: str) -> None:
        await users.grant(
            by,
            name,
            namespace=form.get("namespace", "").strip(),
            role=forms.choice(form, "role", MemoryRole),
            valid_from=moment(form, "from"),
            valid_to=moment(form, "to"),
        )

    return await _do(call, give, "grant")


async def revoke_membership(call: Call) -> Response:
    users, namespace = call.services.access.users, call.form.get("namespace", "")

    async def end(by: Identity, name: str) -> None:
        await users.revoke(by, name, namespace=namespace)

    return await _do(call, end, "revoke")


async def _do(call: Call, deed: _Deed, said: str) -> Response:
    if (asked := await proof.ask(call)) is not None:
        return asked
    name = call.path("name")
    user = await call.services.access.users.get(name)
    try:
        await deed(call.who, user.name)
    except (InvalidInput, Conflict, NotFound) as exc:
        return await _user(call, user.name, exc, at_grant=said == "grant")
    return see_other(f"/access/users/{user.name}?said={said}")


async def _password_link(call: Call, name: str) -> str:
    base_url = call.services.settings.base_url
    return await call.services.access.setup.password_link(call.who, name, base_url=base_url)


async def _people(call: Call, exc: NoemaError | None = None) -> Response:
    users, now = call.services.access.users, call.services.clock.now()
    held: dict[str, list[Membership]] = {}
    for name, membership in await users.memberships(at=now):
        held.setdefault(name, []).append(membership)
    form = call.form if exc is not None else {}
    context = doors.AccessPage(
        users=tuple(_user_line(u, held.get(u.name, []), now) for u in await users.all()),
        namespaces=await _namespaces(call),
        console_roles=_CONSOLE,
        memory_roles=_MEMORY,
        form=doors.UserForm(
            name=form.get("name", "")[:100],
            role=form.get("role", "operator"),
            namespace=form.get("namespace", call.who.namespace),
            memory_role=form.get("memory_role", "member"),
            error=None if exc is None else str(exc),
        ),
    )
    status, _ = status_of(exc)
    return page(call, "access.html", context, title="Access", active="access", status=status)


async def _user(
    call: Call,
    name: str,
    exc: NoemaError | None = None,
    *,
    link: str | None = None,
    at_grant: bool = False,
) -> Response:
    access, now = call.services.access, call.services.clock.now()
    user = await access.users.get(name)
    memberships = [m for _, m in await access.users.memberships(user.name)]
    this = call.session.id if call.session is not None else None
    text = None if exc is None else str(exc)
    context = doors.UserPage(
        user=_user_line(user, memberships, now),
        is_self=call.who.actor == f"user:{user.name}",
        memberships=membership_lines(memberships, now=now),
        sessions=session_lines(await _sessions(call, user.name), this=this),
        tokens=token_lines(await _tokens(call, user.name), now=now),
        namespaces=await _namespaces(call),
        console_roles=_CONSOLE,
        memory_roles=_MEMORY,
        link=link,
        said=_SAID.get(call.query.get("said", "")),
        error=None if at_grant else text,
        grant_error=text if at_grant else None,
        grant=dict(call.form) if at_grant else {},
    )
    status, _ = status_of(exc)
    return page(call, "user.html", context, title=user.name, active="access", status=status)


def _user_line(user: User, memberships: list[Membership], now: datetime) -> doors.UserLine:
    held = membership_lines(memberships, now=now)
    return doors.UserLine(
        name=user.name,
        console_role=user.console_role.value,
        memberships=tuple(m for m in held if m.state == "now"),
        has_password=user.has_password,
        has_totp=user.has_totp,
        last_login_at=user.last_login_at,
        created_at=user.created_at,
        created_by=user.created_by,
        disabled_at=user.disabled_at,
    )


async def _namespaces(call: Call) -> tuple[str, ...]:
    return tuple(n for t in await call.services.access.tenants.all() for n in t.namespaces)


# --- tenants and namespaces --------------------------------------------------------------------


async def show_tenants(call: Call) -> Response:
    return await _tenants(call)


async def create_tenant(call: Call) -> Response:
    try:
        await call.services.access.tenants.create(call.who, call.form.get("tenant", "").strip())
    except (InvalidInput, Conflict) as exc:
        return await _tenants(call, exc, at="tenant")
    return see_other("/access/tenants")


async def create_namespace(call: Call) -> Response:
    path = call.form.get("namespace", "").strip()
    try:
        await call.services.access.tenants.create_namespace(call.who, path)
    except (InvalidInput, Conflict, NotFound) as exc:
        return await _tenants(call, exc, at="namespace")
    return see_other("/access/tenants")


async def suspend(call: Call) -> Response:
    return await _set_tenant(call, call.services.access.tenants.suspend)


async def resume(call: Call) -> Response:
    return await _set_tenant(call, call.services.access.tenants.resume)


async def _set_tenant(call: Call, deed: _Deed) -> Response:
    if (asked := await proof.ask(call)) is not None:
        return asked
    try:
        await deed(call.who, call.path("name"))
    except Conflict as exc:
        return await _tenants(call, exc)
    return see_other("/access/tenants")


async def _tenants(call: Call, exc: NoemaError | None = None, *, at: str = "") -> Response:
    own = call.who.namespace.partition("/")[0]
    text = None if exc is None else str(exc)
    context = doors.TenantsPage(
        tenants=tuple(
            doors.TenantLine(
                name=t.name,
                is_active=t.status == "active",
                created_at=t.created_at,
                namespaces=t.namespaces,
                is_own=t.name == own,
            )
            for t in await call.services.access.tenants.all()
        ),
        tenant=call.form.get("tenant", "") if exc is not None else "",
        namespace=call.form.get("namespace", "") if exc is not None else "",
        tenant_error=text if at == "tenant" else None,
        namespace_error=text if at == "namespace" else None,
        error=text if not at else None,
    )
    status, _ = status_of(exc)
    return page(call, "tenants.html", context, title="Namespaces", active="access", status=status)


# --- sessions and tokens -----------------------------------------------------------------------


async def show_entries(call: Call) -> Response:
    return await _entries(call)


async def end_session(call: Call) -> Response:
    """End anybody's session, with the pages it has open."""
    id_ = forms.uuid_of(call.path("id"), "session")
    try:
        await call.services.access.sessions.revoke(call.credential, id_)
    except NotFound as exc:
        return await _entries(call, exc)
    return see_other(local_path(call.form.get("next", ""), "/access/sessions"))


async def revoke_token(call: Call) -> Response:
    """Revoke anybody's token, and all that were made with it."""
    id_ = forms.uuid_of(call.path("id"), "token")
    try:
        await call.services.access.tokens.revoke(call.credential, id_)
    except NotFound as exc:
        return await _entries(call, exc)
    return see_other(local_path(call.form.get("next", ""), "/access/sessions"))


async def _sessions(call: Call, name: str | None = None) -> list[SessionRow]:
    rows = await call.services.access.sessions.visible(call.credential, everybody=True)
    return [r for r in rows if name in (None, r.user)]


async def _tokens(call: Call, name: str | None = None) -> list[TokenRow]:
    rows = await call.services.access.tokens.visible(call.credential, everybody=True)
    return [r for r in rows if name in (None, r.user)]


async def _entries(call: Call, exc: NoemaError | None = None) -> Response:
    now = call.services.clock.now()
    this = call.session.id if call.session is not None else None
    context = doors.EntriesPage(
        sessions=session_lines(await _sessions(call), this=this),
        tokens=token_lines(await _tokens(call), now=now),
        error=None if exc is None else "That has ended already.",
    )
    status, _ = status_of(exc)
    return page(
        call, "entries.html", context, title="Sessions and tokens", active="access", status=status
    )

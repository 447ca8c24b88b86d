"""People over HTTP: who has an account, what they may do, how they come in."""

from datetime import datetime
from typing import Any

import msgspec

from noema.auth.model import Membership, User
from noema.core.errors import InvalidInput
from noema.core.identity import ConsoleRole, MemoryRole
from noema.web.call import Call
from noema.web.origin import require_fresh
from noema.web.reply import Json, page


class UserBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/users. Without a password the person chooses one by a link."""

    name: str
    role: ConsoleRole = ConsoleRole.OPERATOR
    namespace: str | None = None
    memory_role: MemoryRole = MemoryRole.MEMBER
    password: str | None = None


class UserPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PATCH /v1/users/{name}: only what is named changes."""

    role: ConsoleRole | None = None
    disabled: bool | None = None


class MembershipBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/users/{name}/memberships; from now on and for good unless said otherwise."""

    namespace: str
    role: MemoryRole
    valid_from: datetime | None = None
    valid_to: datetime | None = None


def shown(user: User, memberships: list[Membership] | None = None) -> dict[str, Any]:
    """Return a person as the API shows them."""
    found: dict[str, Any] = msgspec.to_builtins(user)
    if memberships is not None:
        found["memberships"] = memberships
    return found


async def _one(call: Call, name: str) -> dict[str, Any]:
    users = call.services.access.users
    user = await users.get(name)
    return shown(user, [m for _, m in await users.memberships(user.name)])


async def list_users(call: Call) -> Json:
    return Json(page([shown(u) for u in await call.services.access.users.all()], None))


async def create(call: Call) -> Json:
    require_fresh(call)
    body = call.json(UserBody)
    user = await call.services.access.users.create(
        call.who,
        name=body.name,
        role=body.role,
        password=body.password,
        namespace=body.namespace,
        memory_role=body.memory_role,
    )
    at = {"Location": f"/v1/users/{user.name}"}
    return Json(await _one(call, user.name), 201, headers=at)


async def get(call: Call) -> Json:
    return Json(await _one(call, call.path("name")))


async def patch(call: Call) -> Json:
    require_fresh(call)
    body, name = call.json(UserPatch), call.path("name")
    users = call.services.access.users
    if body.role is None and body.disabled is None:
        raise InvalidInput("Name what is to change: role or disabled.")
    if body.role is not None:
        await users.set_role(call.who, name, body.role)
    if body.disabled is not None:
        await (users.disable if body.disabled else users.enable)(call.who, name)
    return Json(await _one(call, name))


async def unlock(call: Call) -> Json:
    name = call.path("name")
    await call.services.access.users.unlock(call.who, name)
    return Json(await _one(call, name))


async def reset_totp(call: Call) -> Json:
    require_fresh(call)
    name = call.path("name")
    await call.services.access.users.reset_totp(call.who, name)
    return Json(await _one(call, name))


async def password_link(call: Call) -> Json:
    """Return a link by which the person chooses a password, once."""
    require_fresh(call)
    base_url = call.services.settings.base_url
    setup = call.services.access.setup
    return Json(
        {"url": await setup.password_link(call.who, call.path("name"), base_url=base_url)}, 201
    )


async def memberships(call: Call) -> Json:
    user = await call.services.access.users.get(call.path("name"))
    found = await call.services.access.users.memberships(user.name)
    return Json(page([m for _, m in found], None))


async def grant(call: Call) -> Json:
    require_fresh(call)
    body, name = call.json(MembershipBody), call.path("name")
    await call.services.access.users.grant(
        call.who,
        name,
        namespace=body.namespace,
        role=body.role,
        valid_from=body.valid_from,
        valid_to=body.valid_to,
    )
    return Json(await _one(call, name), 201)


async def revoke(call: Call) -> Json:
    namespace, name = call.query.get("namespace", ""), call.path("name")
    if not namespace:
        raise InvalidInput("Name the namespace: ?namespace=acme/eng.", field="namespace")
    await call.services.access.users.revoke(call.who, name, namespace=namespace)
    return Json(await _one(call, name))

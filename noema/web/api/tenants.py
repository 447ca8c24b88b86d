"""Tenants and namespaces over HTTP."""

from typing import Any, Literal

import msgspec

from noema.core.errors import NotFound
from noema.web.call import Call
from noema.web.origin import require_fresh
from noema.web.reply import Json, page


class TenantBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/tenants: the first segment of namespaces to come."""

    name: str


class TenantPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PATCH /v1/tenants/{name}."""

    status: Literal["active", "suspended"]


class NamespaceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/namespaces: a path inside a tenant; what is above it is made too."""

    path: str


async def _one(call: Call, name: str) -> Any:
    for tenant in await call.services.access.tenants.all():
        if tenant.name == name:
            return tenant
    raise NotFound("tenant", name)


async def list_(call: Call) -> Json:
    return Json(page(await call.services.access.tenants.all(), None))


async def create(call: Call) -> Json:
    body = call.json(TenantBody)
    await call.services.access.tenants.create(call.who, body.name)
    return Json(await _one(call, body.name), 201)


async def patch(call: Call) -> Json:
    require_fresh(call)
    body, name = call.json(TenantPatch), call.path("name")
    tenants = call.services.access.tenants
    await (tenants.suspend if body.status == "suspended" else tenants.resume)(call.who, name)
    return Json(await _one(call, name))


async def create_namespace(call: Call) -> Json:
    body = call.json(NamespaceBody)
    await call.services.access.tenants.create_namespace(call.who, body.path)
    return Json({"path": body.path}, 201)

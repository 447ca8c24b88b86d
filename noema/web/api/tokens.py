"""API tokens over HTTP: made and shown once, listed without what they are, revoked."""

from datetime import timedelta
from typing import Any

import msgspec

from noema.auth.tokens import LASTS
from noema.core.errors import InvalidInput
from noema.core.identity import ConsoleRole, MemoryRole
from noema.web import forms
from noema.web.api.sessions import sees_everybody
from noema.web.call import Call
from noema.web.origin import require_fresh
from noema.web.reply import Json, page


class TokenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/tokens. Namespace and memory role are the caller's own unless said otherwise."""

    name: str
    namespace: str | None = None
    memory_role: MemoryRole | None = None
    console_role: ConsoleRole = ConsoleRole.NONE
    days: int = LASTS.days


async def list_(call: Call) -> Json:
    tokens = call.services.access.tokens
    rows = await tokens.visible(call.credential, everybody=sees_everybody(call))
    return Json(page(rows, None))


def lasting(days: int) -> timedelta:
    """Return how long a token is to last; raises InvalidInput for what is no time."""
    if not 1 <= days <= 100_000:
        raise InvalidInput("A token lasts a whole number of days, from 1.", field="days")
    return timedelta(days=days)


async def create(call: Call) -> Json:
    require_fresh(call)
    body = call.json(TokenBody)
    who = call.who
    made: dict[str, Any] = {
        "name": body.name,
        "namespace": body.namespace or who.namespace,
        "memory_role": body.memory_role or who.role,
        "console_role": body.console_role,
    }
    token = await call.services.access.tokens.create(
        call.credential, lasts=lasting(body.days), **made
    )
    return Json({"token": token} | made, 201)


async def revoke(call: Call) -> Json:
    id_ = forms.uuid_of(call.path("id"), "token")
    await call.services.access.tokens.revoke(call.credential, id_)
    return Json({"id": id_, "status": "revoked"})

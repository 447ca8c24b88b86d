"""Browser sessions over HTTP: one's own, and for an administrator everybody's."""

from noema.auth.roles import console_allows
from noema.core.identity import ConsoleRole
from noema.web import forms
from noema.web.call import Call
from noema.web.reply import Json, page


def sees_everybody(call: Call) -> bool:
    """Whether everybody's are listed: to an administrator who did not ask for their own."""
    is_admin = console_allows(call.who.console, ConsoleRole.ADMINISTRATOR)
    return is_admin and not call.query.get("mine")


async def list_(call: Call) -> Json:
    sessions = call.services.access.sessions
    return Json(page(await sessions.visible(call.credential, everybody=sees_everybody(call)), None))


async def revoke(call: Call) -> Json:
    id_ = forms.uuid_of(call.path("id"), "session")
    await call.services.access.sessions.revoke(call.credential, id_)
    return Json({"id": id_, "status": "revoked"})

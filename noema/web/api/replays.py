"""Replays over HTTP: start a verification, look at its progress and outcome."""

from noema.core.errors import InvalidInput
from noema.web import forms, reply
from noema.web.call import Call
from noema.web.reply import Json


async def start(call: Call) -> Json:
    body = call.json(forms.ReplayBody)
    if body.kind != "verify":
        raise InvalidInput("kind is verify.", field="kind")
    mind = await call.services.minds.get(body.mind)
    replay = await call.services.replays.start_verify(
        mind, first=body.first, last=body.last, actor=call.who.actor, key=call.key
    )
    return Json({"id": replay, "state": "running"}, 202)


async def get(call: Call) -> Json:
    run = await call.services.replays.get(forms.uuid_of(call.path("id"), "replay"))
    return Json(run)


async def list_(call: Call) -> Json:
    runs = await call.services.replays.list_(limit=forms.limit_of(call.query))
    return Json(reply.page(runs, None))

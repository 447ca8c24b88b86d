"""Cycles over HTTP: the list, one whole, and why its winner won."""

from noema.core.errors import InvalidInput
from noema.web import forms, reply
from noema.web.call import Call
from noema.web.recorded import one_cycle
from noema.web.reply import Json
from noema.web.why import why_of


async def list_cycles(call: Call) -> Json:
    mind = await call.services.minds.get(call.path("slug"))
    limit = forms.limit_of(call.query)
    before = forms.whole(call.query, "before", low=1)
    trigger = call.query.get("trigger") or None
    rows = await call.services.pages.cycles(
        mind.id, before=before, trigger=trigger, limit=limit + 1
    )
    items = [reply.cycle_row(r) for r in rows[:limit]]
    return Json(reply.page(items, str(items[-1]["number"]) if len(rows) > limit else None))


def number_of(call: Call) -> int:
    """Return the cycle number of the path."""
    text = call.path("number")
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise InvalidInput("A cycle has a whole number.", field="number")
    return int(text)


async def get_cycle(call: Call) -> Json:
    mind = await call.services.minds.get(call.path("slug"))
    return Json(reply.cycle(await one_cycle(call.services, mind, number_of(call))))


async def why(call: Call) -> Json:
    mind = await call.services.minds.get(call.path("slug"))
    recorded = await one_cycle(call.services, mind, number_of(call))
    instead = call.query.get("instead") or None
    return Json(await why_of(call.services, mind, recorded, instead))

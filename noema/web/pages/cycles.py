"""The cycles of one mind, newest first."""

from typing import Final, get_args
from urllib.parse import urlencode

from starlette.responses import Response

from noema.cognition.model import Trigger
from noema.web import forms, views
from noema.web.call import Call
from noema.web.pages.shell import mind_path, page, position
from noema.web.pages.shown import cycle_rows, head_of

TRIGGERS: Final[tuple[str, ...]] = get_args(Trigger)
_SHOWN = 100


async def show(call: Call) -> Response:
    services, at = call.services, await position(call)
    mind = await services.minds.get(call.path("slug"))
    trigger = call.query.get("trigger", "")
    before = forms.whole(call.query, "before", low=1)
    after = forms.whole(call.query, "after", low=0)
    wanted, pages = trigger or None, services.pages
    if after is not None:
        found = await pages.cycles_after(mind.id, after, trigger=wanted, limit=_SHOWN + 1)
        has_newer = len(found) > _SHOWN
        found = found[:_SHOWN][::-1]
        first = found[-1]["data"]["number"] if found else after + 1
        has_older = bool(await pages.cycles(mind.id, before=first, trigger=wanted, limit=1))
    else:
        found = await pages.cycles(mind.id, before=before, trigger=wanted, limit=_SHOWN + 1)
        has_older = len(found) > _SHOWN
        found = found[:_SHOWN]
        last = found[0]["data"]["number"] if found else (before or 1) - 1
        has_newer = before is not None and bool(
            await pages.cycles_after(mind.id, last, trigger=wanted, limit=1)
        )
    rows = await cycle_rows(services, mind.slug, found)
    base = mind_path(mind.slug, "/cycles")

    def at_page(**place: int) -> str:
        return f"{base}?{urlencode(({'trigger': trigger} if trigger else {}) | place)}"

    query = urlencode(
        {k: v for k, v in (("trigger", trigger), ("before", before), ("limit", _SHOWN)) if v}
    )
    context = views.CyclesPage(
        mind=head_of(mind),
        rows=rows,
        triggers=TRIGGERS,
        trigger=trigger,
        newer=at_page(after=rows[0].number) if rows and has_newer else None,
        older=at_page(before=rows[-1].number) if rows and has_older else None,
        json_href=f"/v1{base}?{query}",
    )
    return page(
        call,
        "cycles.html",
        context,
        title=f"Cycles of {mind.name}",
        active="minds",
        mind=mind.slug,
        at=at,
    )

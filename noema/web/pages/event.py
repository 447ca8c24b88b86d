"""One event of the log, whole: its payload, its causes, what names it, its commitment."""

import json

from starlette.responses import Response

from noema.events.model import Event
from noema.web import forms, panels, reply, views
from noema.web.call import Call
from noema.web.pages.shell import page, position
from noema.web.pages.shown import event_rows, link

_LINKS = 60


async def show(call: Call) -> Response:
    services, at = call.services, await position(call)
    events = services.events
    event = await events.get(forms.uuid_of(call.path("id"), "event"))
    (row,) = await event_rows(services, [event])
    causes = await events.get_many([*event.causes][:_LINKS])
    earlier = await events.before(event.seq, limit=1)
    later = await events.after(event.seq, limit=1)
    context = panels.EventPage(
        row=row,
        recorded_at=event.recorded_at,
        payload=_pretty(event),
        causes=tuple(link(e, "cause") for e in causes),
        effects=await _effects(call, event),
        commitment=event.commitment.hex(),
        verified=None if event.is_redacted else event.is_intact,
        previous=str(earlier[0].id) if earlier else None,
        next=str(later[0].id) if later else None,
        json_href=f"/v1/events/{event.id}",
    )
    return page(
        call,
        "event.html",
        context,
        title=f"{event.type} {row.position}",
        active="events",
        mind=row.mind,
        at=at,
    )


async def _effects(call: Call, event: Event) -> tuple[views.LinkRow, ...]:
    services = call.services
    found = {e.id: e for e in await services.events.consequences(event.id, limit=_LINKS)}
    derived = set(found)
    if event.mind_id is not None:
        ids = await services.pages.followers(event.mind_id, event.seq, event.id, limit=_LINKS)
        found |= {e.id: e for e in await services.events.get_many(ids)}
    ordered = sorted(found.values(), key=lambda e: e.seq)
    return tuple(link(e, "derived from it" if e.id in derived else "names it") for e in ordered)


def _pretty(event: Event) -> str:
    plain = json.loads(reply.encode(event.payload))
    return json.dumps(plain, indent=2, ensure_ascii=False)

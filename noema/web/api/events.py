"""The log over HTTP: pages of it, one event, and the stream."""

from collections.abc import AsyncIterator
from functools import partial
from uuid import UUID

from starlette.responses import Response

from noema.core.errors import InvalidInput
from noema.events.model import Event, decode_position, encode_position
from noema.web import forms, reply
from noema.web.call import Call
from noema.web.live import (
    ACCESS_CHANGED,
    DAEMON_STOPS,
    HEARTBEAT,
    HEARTBEAT_S,
    SESSION_ENDED,
    EventStream,
    frame,
)
from noema.web.reply import Json
from noema.web.sighted import veil_of


async def _mind_id(call: Call) -> UUID | None:
    slug = call.query.get("mind")
    return (await call.services.minds.get(slug)).id if slug else None


async def list_events(call: Call) -> Json:
    limit = forms.limit_of(call.query)
    order = call.query.get("order", "asc")
    if order not in ("asc", "desc"):
        raise InvalidInput("order is asc or desc.", field="order")
    position = call.query.get("after")
    seq = decode_position(position) if position else None
    mind, type_ = await _mind_id(call), forms.text_of(call.query, "type")
    text = call.query.get("text") or None
    since, until = forms.moment(call.query, "from"), forms.moment(call.query, "to")
    events = call.services.events
    if order == "desc" or text or since or until:
        if order == "asc":
            raise InvalidInput("text, from and to need order=desc.", field="order")
        rows = await events.before(
            seq, mind=mind, type_=type_, text=text, since=since, until=until, limit=limit + 1
        )
    else:
        rows = await events.after(seq or 0, mind=mind, type_=type_, limit=limit + 1)
    items = [await _shown(call, e) for e in rows[:limit]]
    more = encode_position(rows[limit - 1].seq) if len(rows) > limit else None
    return Json(reply.page(items, more))


async def _shown(call: Call, event: Event) -> dict[str, object]:
    return reply.event(event, await call.services.pages.slug_of(event.mind_id))


async def get_event(call: Call) -> Json:
    event = await call.services.events.get(forms.uuid_of(call.path("id"), "event"))
    shown = await _shown(call, event)
    if veil_of(event.content) is not None:
        # Whether content is what was committed to is not told to whoever may not see it.
        is_redacted = event.content.get("redacted") is True
        return Json(shown | {"is_redacted": is_redacted, "is_intact": None})
    return Json(shown | {"is_redacted": event.is_redacted, "is_intact": event.is_intact})


def resume_from(call: Call) -> int | None:
    """Return where a stream is to go on: the browser's own header first, then `after`."""
    header = call.request.headers.get("last-event-id")
    if header:
        return decode_position(header)
    asked = [decode_position(p) for p in call.request.query_params.getlist("after") if p]
    return max(asked, default=None)


async def stream(call: Call) -> Response:
    asked = resume_from(call)
    # A position of another log, or of one that was set back, would wait for ever to be reached.
    after = None if asked is None else min(asked, await call.services.events.head())
    mind, type_ = await _mind_id(call), forms.text_of(call.query, "type")
    return EventStream(_frames(call, after, mind, type_), ending=partial(ending, call))


async def _frames(
    call: Call, after: int | None, mind: UUID | None, type_: str | None
) -> AsyncIterator[bytes]:
    feed = call.services.feed
    async for event in feed.follow(after, mind=mind, type_=type_, idle_s=HEARTBEAT_S):
        if event is None:
            yield HEARTBEAT
        else:
            data = reply.encode(await _shown(call, event))
            yield frame(event="event", data=data, position=encode_position(event.seq))
    yield DAEMON_STOPS


async def ending(call: Call) -> bytes:
    """Return the last frame of a stream, once what let it in has ended or changed.

    Who has ended is told so; who merely may see something else now comes again, and is let in anew.
    """
    access, entry = call.services.access, call.credential
    await access.wait_revoked(entry)
    return ACCESS_CHANGED if await access.is_in(entry) else SESSION_ENDED

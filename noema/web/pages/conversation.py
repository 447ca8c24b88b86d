"""What people and a mind said to each other."""

from starlette.responses import Response

from noema.web import forms, views
from noema.web.call import Call
from noema.web.pages.shell import mind_path, page, position
from noema.web.pages.shown import head_of, message_rows

_SHOWN = 200
_MOST = 5_000


async def show(call: Call) -> Response:
    return await again(call, views.SayForm())


async def again(call: Call, say: views.SayForm) -> Response:
    """Return the page with what stands in the say box."""
    services, at = call.services, await position(call)
    mind = await services.minds.get(call.path("slug"))
    last = forms.whole(call.query, "last", low=1, high=_MOST) or _SHOWN
    spoken = await services.minds.transcript(mind, limit=last + 1)
    rows = await message_rows(services, mind, spoken)
    older = None
    if len(rows) > last and last < _MOST:
        older = mind_path(mind.slug, f"/conversation?last={min(_MOST, last * 2)}")
    context = views.ConversationPage(
        mind=head_of(mind), messages=rows[-last:], older=older, say=say
    )
    return page(
        call,
        "conversation.html",
        context,
        title=f"Conversation with {mind.name}",
        active="minds",
        mind=mind.slug,
        at=at,
        status=400 if say.error else 200,
    )

"""Shares: what one namespace lets another, or one actor, read."""

from dataclasses import replace

from starlette.responses import Response

from noema.core.errors import InvalidInput
from noema.web import forms
from noema.web import memory_views as views
from noema.web.call import Call
from noema.web.pages.memory import share_form, share_of, wrong_share
from noema.web.pages.remembered import address, grant_line, may_write
from noema.web.pages.shell import local_path, page, see_other


async def show(call: Call) -> Response:
    return await _page(call)


async def create(call: Call) -> Response:
    """Share a subtree; a single memory is shared on its own page."""
    form = share_form(call.form)
    try:
        await call.services.memory.mem_share(call.who, share_of(form))
    except InvalidInput as exc:
        return await _page(call, form=wrong_share(form, exc))
    return see_other("/shares")


async def end(call: Call) -> Response:
    """End a share; that it was there stays on record."""
    id_ = forms.uuid_of(call.path("id"), "share")
    await call.services.memory.unshare(call.who, id_)
    back = local_path(call.form.get("next", ""), "/shares").split("?")[0]
    return see_other(address(back, {"did": "ended"} if back != "/shares" else {}))


async def _page(call: Call, *, form: views.ShareForm | None = None) -> Response:
    with_ended = call.query.get("ended", "") == "1"
    now = call.services.clock.now()
    grants = await call.services.memory.shares(call.who, ended=with_ended)
    lines = sorted(
        (grant_line(g, call.who, now) for g in grants),
        key=lambda g: (g.state != "on", -g.valid_from.timestamp()),
    )
    context = views.SharesPage(
        grants=tuple(lines),
        with_ended=with_ended,
        form=form or replace(views.ShareForm(), subtree=call.who.namespace),
        may_share=may_write(call.who),
        json_href="/v1/mem/grants",
    )
    is_wrong = form is not None and form.error is not None
    return page(
        call,
        "shares.html",
        context,
        title="Shares",
        active="memories",
        status=400 if is_wrong else 200,
    )

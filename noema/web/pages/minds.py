"""The list of minds, and the form that makes one."""

from starlette.responses import Response

from noema.auth.roles import console_allows
from noema.core.errors import Conflict, InvalidInput
from noema.core.identity import ConsoleRole
from noema.web import views
from noema.web.call import Call
from noema.web.pages.board import mind_rows
from noema.web.pages.shell import mind_path, page, position, see_other


async def show(call: Call) -> Response:
    return await _page(call, views.MindForm(namespace=call.who.namespace or "home"))


async def create(call: Call) -> Response:
    form = views.MindForm(
        slug=call.form.get("slug", "").strip(),
        name=call.form.get("name", "").strip(),
        namespace=call.form.get("namespace", "").strip(),
    )
    try:
        mind = await call.services.minds.create(
            slug=form.slug, name=form.name or None, namespace=form.namespace, actor=call.who.actor
        )
    except (InvalidInput, Conflict) as exc:
        field = exc.field if isinstance(exc, InvalidInput) else "slug"
        status = 400 if isinstance(exc, InvalidInput) else 409
        wrong = views.MindForm(
            slug=form.slug, name=form.name, namespace=form.namespace, error=str(exc), field=field
        )
        return await _page(call, wrong, status=status)
    call.services.runner.look_for_minds()
    return see_other(mind_path(mind.slug))


async def _page(call: Call, form: views.MindForm, *, status: int = 200) -> Response:
    at = await position(call)
    minds = await call.services.minds.list_()
    context = views.MindsPage(
        minds=await mind_rows(call.services, minds),
        form=form,
        lacks_model=bool(minds) and await _lacks_model(call),
    )
    return page(call, "minds.html", context, title="Minds", active="minds", at=at, status=status)


async def _lacks_model(call: Call) -> bool:
    if not console_allows(call.who.console, ConsoleRole.OPERATOR):
        return False
    return not any(role.chain for role in await call.services.llm.registry.roles())

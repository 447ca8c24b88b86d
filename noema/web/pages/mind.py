"""One mind: what it is doing now, and everything an operator may do to it."""

from starlette.responses import Response

from noema.cognition.minds import GoalRow
from noema.cognition.model import Mind
from noema.core.errors import InvalidInput
from noema.web import forms, views
from noema.web.api.minds import speaker
from noema.web.call import Call
from noema.web.pages import board, conversation
from noema.web.pages.shell import local_path, mind_path, page, position, see_other, site
from noema.web.pages.shown import cycle_rows, head_of, message_rows

_CYCLES = 40
_MESSAGES = 60


async def show(call: Call) -> Response:
    return await _page(call)


async def _page(
    call: Call,
    *,
    say: views.SayForm | None = None,
    goal: views.GoalForm | None = None,
    error: str | None = None,
) -> Response:
    services, at = call.services, await position(call)
    mind = await services.minds.get(call.path("slug"))
    completed = await services.pages.cycles(mind.id, limit=_CYCLES)
    spoken = await services.minds.transcript(mind, limit=_MESSAGES)
    context = views.MindPage(
        mind=head_of(mind),
        vitals=await board.vitals(services, site(call).readings.of(call.sight.view), mind),
        workspace=await board.workspace(services, mind),
        cycles=await cycle_rows(services, mind.slug, completed),
        messages=await message_rows(services, mind, spoken),
        goals=tuple(_goal(g) for g in await services.minds.goals(mind)),
        modes=tuple(await services.minds.modes()),
        say=say or views.SayForm(),
        goal=goal or views.GoalForm(),
        error=error,
    )
    wrong = any(form is not None for form in (say, goal, error))
    return page(
        call,
        "mind.html",
        context,
        title=mind.name,
        active="minds",
        mind=mind.slug,
        at=at,
        status=400 if wrong else 200,
    )


def _goal(row: GoalRow) -> views.GoalRow:
    return views.GoalRow(
        id=str(row.id),
        text=row.text,
        priority=row.priority,
        status="active" if row.closed_at is None else "closed",
        created_at=row.created_at,
    )


async def _back(call: Call) -> Response:
    return see_other(local_path(call.form.get("next", ""), mind_path(call.path("slug"))))


async def pause(call: Call) -> Response:
    await call.services.minds.set_mode(call.path("slug"), "paused", actor=call.who.actor)
    return await _back(call)


async def resume(call: Call) -> Response:
    mind = await call.services.minds.get(call.path("slug"))
    if mind.mode == "paused":
        await call.services.minds.set_mode(mind.slug, "awake", actor=call.who.actor)
    return await _back(call)


async def step(call: Call) -> Response:
    await call.services.minds.step(call.path("slug"), actor=call.who.actor)
    return await _back(call)


async def set_mode(call: Call) -> Response:
    try:
        await call.services.minds.set_mode(
            call.path("slug"), call.form.get("mode", ""), actor=call.who.actor
        )
    except InvalidInput as exc:
        return await _page(call, error=str(exc))
    return await _back(call)


async def say(call: Call) -> Response:
    text = call.form.get("text", "")
    mind: Mind = await call.services.minds.get(call.path("slug"))
    back = local_path(call.form.get("next", ""), mind_path(mind.slug))
    try:
        await call.services.minds.say(
            mind.slug, text, speaker=speaker(call), actor=call.who.actor, key=call.key
        )
    except InvalidInput as exc:
        wrong = views.SayForm(text=text, error=str(exc))
        if back.split("?")[0] == mind_path(mind.slug, "/conversation"):
            return await conversation.again(call, wrong)
        return await _page(call, say=wrong)
    return see_other(back)


async def add_goal(call: Call) -> Response:
    text, priority = call.form.get("text", ""), call.form.get("priority", "0.5")
    try:
        await call.services.minds.add_goal(
            call.path("slug"),
            text,
            priority=forms.micro(priority, "priority"),
            actor=call.who.actor,
        )
    except InvalidInput as exc:
        wrong = views.GoalForm(
            text=text, priority=priority, error=str(exc), field=exc.field or "text"
        )
        return await _page(call, goal=wrong)
    return await _back(call)


async def close_goal(call: Call) -> Response:
    goal = forms.uuid_of(call.path("goal"), "goal")
    await call.services.minds.close_goal(call.path("slug"), goal, actor=call.who.actor)
    return await _back(call)

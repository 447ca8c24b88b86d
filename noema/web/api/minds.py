"""Minds over HTTP: create, look, tune, set a mode, send stimuli, speak, give goals."""

import asyncio
from typing import Any

import msgspec

from noema.cognition.dryrun import dry_run
from noema.cognition.minds import Accepted, NewStimulus, merge_settings, newest_modes
from noema.cognition.model import Mind
from noema.core.errors import InvalidInput
from noema.events.model import encode_position
from noema.web import forms, reply
from noema.web.call import Call
from noema.web.recorded import last_cycles, load_modes
from noema.web.reply import Json
from noema.web.sighted import shown_text


async def show_mind(call: Call, mind: Mind) -> dict[str, object]:
    """Return the mind with its backlog and the settings in force."""
    minds = call.services.minds
    shown = reply.mind(mind, backlog=await minds.backlog(mind))
    return shown | {"settings": reply.settings(await minds.settings(mind))}


async def list_minds(call: Call) -> Json:
    limit = forms.limit_of(call.query, default=100)
    minds = call.services.minds
    rows = await minds.list_(after=call.query.get("after") or None, limit=limit + 1)
    items = [reply.mind(m, backlog=await minds.backlog(m)) for m in rows[:limit]]
    return Json(reply.page(items, rows[limit - 1].slug if len(rows) > limit else None))


async def create_mind(call: Call) -> Json:
    body = call.json(forms.MindBody)
    mind = await call.services.minds.create(
        slug=body.slug,
        name=body.name,
        namespace=body.namespace or call.who.namespace or "home",
        settings=forms.settings_changes(body.settings),
        actor=call.who.actor,
        key=call.key,
    )
    call.services.runner.look_for_minds()
    shown = await show_mind(call, mind)
    return Json(shown, 201, headers={"Location": f"/v1/minds/{mind.slug}"})


async def get_mind(call: Call) -> Json:
    return Json(await show_mind(call, await call.services.minds.get(call.path("slug"))))


async def patch_mind(call: Call) -> Json:
    body = call.json(forms.MindPatch)
    minds, slug, actor = call.services.minds, call.path("slug"), call.who.actor
    if body.status not in (None, "active", "paused"):
        raise InvalidInput("status is active or paused.", field="status")
    mind = await minds.get(slug)
    if body.settings is not None:
        changes = forms.settings_changes(body.settings)
        mind = await minds.tune(
            slug, changes, note=body.note, actor=actor, expected_version=body.settings_version
        )
    if body.name is not None:
        mind = await minds.rename(slug, body.name, actor=actor)
    if body.status is not None and (body.status == "paused") != (mind.mode == "paused"):
        mode = "paused" if body.status == "paused" else "awake"
        mind = await minds.set_mode(slug, mode, actor=actor)
    return Json(await show_mind(call, mind))


async def set_mode(call: Call) -> Json:
    body = call.json(forms.ModeBody)
    mind = await call.services.minds.set_mode(
        call.path("slug"), body.mode, for_s=body.for_s, focus=body.focus, actor=call.who.actor
    )
    return Json(await show_mind(call, mind))


async def step(call: Call) -> Json:
    await call.services.minds.step(call.path("slug"), actor=call.who.actor, key=call.key)
    return Json({}, 202)


async def send_stimuli(call: Call) -> Json:
    # Which of the two shapes came is told by its one distinguishing key, so that an error names a
    # field of the shape that was meant.
    if _is_batch(call.body):
        items = call.json(forms.StimuliBody).items
    else:
        items = [call.json(forms.StimulusBody)]
    many = len(items) > 1
    stimuli = [
        NewStimulus(
            text=item.text,
            occurred_at=item.occurred_at,
            kind=item.kind,
            urgency=forms.micro(item.urgency, f"items[{n}].urgency" if many else "urgency"),
            pin=item.pin,
            source=item.source,
            meta=item.meta,
        )
        for n, item in enumerate(items)
    ]
    accepted = await call.services.minds.receive(
        call.path("slug"), stimuli, actor=call.who.actor, key=call.key
    )
    return _accepted(accepted)


def _is_batch(body: bytes) -> bool:
    try:
        return "items" in msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b'"items"' in body[:200]


def _accepted(accepted: Accepted) -> Json:
    headers = {"Idempotent-Replay": "true"} if accepted.is_repeat else None
    return Json({"ids": accepted.ids, "repeated": accepted.is_repeat}, 202, headers=headers)


async def send_message(call: Call) -> Json:
    body = call.json(forms.MessageBody)
    accepted = await call.services.minds.say(
        call.path("slug"),
        body.text,
        speaker=speaker(call),
        actor=call.who.actor,
        conversation=body.conversation,
        key=call.key,
    )
    answer = {"id": accepted.ids[0], "conversation": accepted.conversation}
    return Json(answer | {"repeated": accepted.is_repeat}, 202)


def speaker(call: Call) -> str:
    """Return how the one who speaks is called in a conversation."""
    return call.who.actor.partition(":")[2]


async def conversations(call: Call) -> Json:
    mind = await call.services.minds.get(call.path("slug"))
    limit = forms.limit_of(call.query, default=20)
    rows = await call.services.minds.conversations(mind, limit=limit)
    return Json(reply.page([reply.conversation(r) for r in rows], None))


async def workspace(call: Call) -> Json:
    mind = await call.services.minds.get(call.path("slug"))
    cycle, slots = await call.services.minds.workspace(mind)
    shown = [{**s, "text": shown_text(s["text"])} if "text" in s else s for s in slots]
    return Json({"cycle": cycle, "slots": shown, "position": encode_position(mind.cursor)})


async def goals(call: Call) -> Json:
    mind = await call.services.minds.get(call.path("slug"))
    closed = call.query.get("closed", "") in ("1", "true", "yes")
    rows = await call.services.minds.goals(mind, closed=closed)
    return Json(reply.page([reply.goal(r) for r in rows], None))


async def add_goal(call: Call) -> Json:
    body = call.json(forms.GoalBody)
    priority = forms.micro(body.priority, "priority")
    goal = await call.services.minds.add_goal(
        call.path("slug"), body.text, priority=priority, actor=call.who.actor, key=call.key
    )
    return Json(reply.goal(goal), 201)


async def close_goal(call: Call) -> Json:
    goal = forms.uuid_of(call.path("goal"), "goal")
    await call.services.minds.close_goal(call.path("slug"), goal, actor=call.who.actor)
    return Json({"id": goal, "status": "closed"})


async def dry_run_attention(call: Call) -> Json:
    body = call.json(forms.DryRunBody)
    if not 1 <= body.last <= 1000:
        raise InvalidInput("last is from 1 to 1,000 cycles.", field="last")
    mind = await call.services.minds.get(call.path("slug"))
    current = await call.services.minds.settings(mind)
    proposed = merge_settings(current, forms.settings_changes(body.settings))
    cycles = await last_cycles(call.services, mind, body.last)
    # A thousand heavy cycles take seconds; other people and the minds go on meanwhile.
    found = await asyncio.to_thread(dry_run, cycles, proposed, await load_modes(call.services))
    answer: dict[str, Any] = msgspec.to_builtins(found)
    if not call.sight.sees(mind.namespace):
        for difference in answer["differences"]:
            for chosen in (*difference["was"], *difference["would"]):
                chosen["text"] = None
    return Json(answer)


async def modes(call: Call) -> Json:
    found = newest_modes(await load_modes(call.services))
    return Json(reply.page(list(found.values()), None))

"""What people put in order over HTTP: retractions, conflicts, entities, relationships, graph."""

from noema.memory.relationships import Relate
from noema.web import forms, mem_forms
from noema.web.api.mem import kernel
from noema.web.call import Call
from noema.web.reply import Json, page


async def retract(call: Call) -> Json:
    body = mem_forms.asked(call, mem_forms.RetractBody)
    return Json(await kernel(call).mem_retract(call.who, body.id, body.reason))


async def restore(call: Call) -> Json:
    body = mem_forms.asked(call, mem_forms.RestoreBody)
    return Json(await kernel(call).mem_restore(call.who, body.retraction))


async def conflicts(call: Call) -> Json:
    mem_forms.nothing(call)
    open_only, limit = mem_forms.is_set(call, "open"), forms.limit_of(call.query, default=100)
    found = await kernel(call).conflicts(call.who, open_only=open_only, limit=limit)
    return Json(page(found, None))


async def resolve(call: Call) -> Json:
    id_ = forms.uuid_of(call.path("id"), "conflict")
    outcome = mem_forms.asked(call, mem_forms.OutcomeBody).outcome
    return Json(await kernel(call).resolve_conflict(call.who, id_, outcome))


async def revert(call: Call) -> Json:
    id_ = forms.uuid_of(call.path("id"), "conflict")
    mem_forms.nothing(call)
    return Json(await kernel(call).revert_conflict(call.who, id_))


async def entities(call: Call) -> Json:
    mem_forms.nothing(call)
    text, limit = call.query.get("text", ""), forms.limit_of(call.query, default=100)
    return Json(page(await kernel(call).entities(call.who, text=text, limit=limit), None))


async def merge(call: Call) -> Json:
    keep = forms.uuid_of(call.path("id"), "entity")
    merged = mem_forms.asked(call, mem_forms.MergeBody).merge
    return Json({"id": await kernel(call).merge_entities(call.who, keep, merged)}, 201)


async def merges(call: Call) -> Json:
    mem_forms.nothing(call)
    limit = forms.limit_of(call.query, default=100)
    return Json(page(await kernel(call).entity_merges(call.who, limit=limit), None))


async def unmerge(call: Call) -> Json:
    mem_forms.nothing(call)
    id_ = forms.uuid_of(call.path("id"), "merge")
    await kernel(call).unmerge_entities(call.who, id_)
    return Json({"id": id_, "status": "undone"})


async def suggestions(call: Call) -> Json:
    mem_forms.nothing(call)
    limit = forms.limit_of(call.query, default=100)
    return Json(page(await kernel(call).entity_suggestions(call.who, limit=limit), None))


async def refuse(call: Call) -> Json:
    entity = forms.uuid_of(call.path("id"), "entity")
    similar = mem_forms.asked(call, mem_forms.RefuseBody).similar
    await kernel(call).refuse_suggestion(call.who, entity, similar)
    return Json({"id": entity, "similar": similar, "status": "refused"})


async def alias(call: Call) -> Json:
    entity = forms.uuid_of(call.path("id"), "entity")
    name = mem_forms.asked(call, mem_forms.AliasBody).name
    await kernel(call).name_entity(call.who, entity, name)
    return Json({"id": entity, "name": name}, 201)


async def relate(call: Call) -> Json:
    body = mem_forms.asked(call, Relate)
    return Json({"id": await kernel(call).relate(call.who, body)}, 201)


async def unrelate(call: Call) -> Json:
    mem_forms.nothing(call)
    id_ = forms.uuid_of(call.path("id"), "relationship")
    await kernel(call).unrelate(call.who, id_)
    return Json({"id": id_, "status": "ended"})


async def graph(call: Call) -> Json:
    mem_forms.nothing(call)
    centre, kinds = mem_forms.id_of(call, "centre"), mem_forms.kinds_of(call)
    limit = forms.limit_of(call.query, default=200)
    return Json(await kernel(call).graph(call.who, centre=centre, limit=limit, kinds=kinds))

"""The syscalls of the memory kernel over HTTP.

A handler reads what was asked, and only then turns to the kernel: what fails before that is on
record as refused by the transport, what fails after it the kernel records itself.
"""

from typing import Any

import msgspec

from noema.memory.kernel import Kernel
from noema.memory.model import Explain, PolicyDocument, Read, Share, Ticket, Write
from noema.web import forms, mem_forms, memory_reply
from noema.web.call import Call
from noema.web.reply import Json, page


def kernel(call: Call) -> Kernel:
    """Return the kernel, to be called at once."""
    call.is_dispatched = True
    return call.services.memory


async def read(call: Call) -> Json:
    body = mem_forms.asked(call, Read)
    return Json(memory_reply.read(await kernel(call).mem_read(call.who, body)))


async def search(call: Call) -> Json:
    body = mem_forms.asked(call, mem_forms.SearchBody)
    view = body.view
    found = await kernel(call).mem_search(call.who, body.request, view=view)
    return Json(memory_reply.search(found))


async def write(call: Call) -> Json:
    body = mem_forms.asked(call, Write)
    done = await kernel(call).mem_write(call.who, body, key=call.key)
    if isinstance(done, Ticket):
        at = {"Location": f"/v1/mem/tickets/{done.id}"}
        return Json(ticket_shown(done), 202, headers=at)
    return Json(done)


def ticket_shown(ticket: Ticket) -> dict[str, Any]:
    """Return how far a write has come, as the API shows it."""
    shown: dict[str, Any] = msgspec.structs.asdict(ticket)
    return {"ticket": shown.pop("id")} | shown


async def ticket(call: Call) -> Json:
    mem_forms.nothing(call)
    id_ = forms.uuid_of(call.path("id"), "ticket")
    return Json(ticket_shown(await kernel(call).ticket(call.who, id_)))


async def stats(call: Call) -> Json:
    mem_forms.nothing(call)
    return Json(await kernel(call).mem_stats(call.who))


async def pin(call: Call) -> Json:
    memory = mem_forms.asked(call, mem_forms.MemoryBody).named
    return Json(await kernel(call).mem_pin(call.who, memory))


async def unpin(call: Call) -> Json:
    memory = mem_forms.asked(call, mem_forms.MemoryBody).named
    await kernel(call).mem_unpin(call.who, memory)
    return Json({"id": memory, "pinned": False})


async def pins(call: Call) -> Json:
    mem_forms.nothing(call)
    return Json(page(await kernel(call).pins(call.who), None))


async def policy(call: Call) -> Json:
    mem_forms.nothing(call)
    return Json(await kernel(call).mem_policy(call.who))


async def policy_ack(call: Call) -> Json:
    digest = mem_forms.asked(call, mem_forms.AckBody).digest
    return Json(await kernel(call).mem_policy_ack(call.who, digest))


async def policy_of(call: Call) -> Json:
    mem_forms.nothing(call)
    namespace = call.path("namespace")
    version, document = await kernel(call).policy_of(call.who, namespace)
    return Json({"namespace": namespace, "version": version, "policy": document})


async def set_policy(call: Call) -> Json:
    document = mem_forms.asked(call, PolicyDocument)
    return Json(await kernel(call).set_policy(call.who, call.path("namespace"), document))


async def share(call: Call) -> Json:
    body = mem_forms.asked(call, Share)
    grant = await kernel(call).mem_share(call.who, body, key=call.key)
    return Json(grant, 201, headers={"Location": f"/v1/mem/grants/{grant.id}"})


async def unshare(call: Call) -> Json:
    mem_forms.nothing(call)
    id_ = forms.uuid_of(call.path("id"), "grant")
    return Json(await kernel(call).unshare(call.who, id_))


async def grants(call: Call) -> Json:
    mem_forms.nothing(call)
    ended = mem_forms.is_set(call, "ended")
    return Json(page(await kernel(call).shares(call.who, ended=ended), None))


async def explain(call: Call) -> Json:
    body = mem_forms.asked(call, Explain)
    return Json(await kernel(call).mem_explain(call.who, body))


async def memories(call: Call) -> Json:
    mem_forms.nothing(call)
    kinds, status = mem_forms.kinds_of(call), mem_forms.status_of(call)
    before, limit = mem_forms.id_of(call, "before"), forms.limit_of(call.query)
    found = await kernel(call).browse(
        call.who, kinds=kinds, status=status, before=before, limit=limit
    )
    return Json(memory_reply.browsed(found))

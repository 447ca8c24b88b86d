"""One memory: what it says, since when and until when, where it came from, and who sees it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from starlette.responses import Response

from noema.core.errors import Conflict, Denied, InvalidInput, NotFound
from noema.memory.model import (
    Explain,
    Explanation,
    Graph,
    Memory,
    Read,
    Retraction,
    Share,
    Write,
    WriteResult,
)
from noema.web import forms, panels
from noema.web import memory_reply as reply
from noema.web import memory_views as views
from noema.web.api.audit import may_audit
from noema.web.call import Call
from noema.web.pages.events import moment
from noema.web.pages.remembered import (
    address,
    conflict_link,
    grant_line,
    line,
    may_manage,
    may_view_as,
    may_write,
    memory_path,
    state_of,
    versions_of,
)
from noema.web.pages.shell import local_path, page, see_other
from noema.web.pages.shown import clipped
from noema.web.reply import Json

_NEAR: Final = 60
_CASES: Final = 200
_DID: Final = {
    "stored": "Stored.",
    "superseded": "Stored; the one it replaces is closed and linked below.",
    "deduplicated": "It was known already, word for word: nothing new was written.",
    "pinned": "Pinned: it belongs into every working set of this namespace.",
    "unpinned": "No longer pinned.",
    "shared": "Shared.",
    "ended": "The share has ended.",
    "retracted": "Retracted, with everything derived from it. This can be undone below.",
    "restored": "Restored, with everything that was retracted along with it.",
}
_TURNS: Final = 4
_LATER: Final = "Its vector follows later; text search finds it at once."


async def show(call: Call) -> Response:
    return await _page(call)


def _memory_id(call: Call) -> UUID:
    return forms.uuid_of(call.path("id"), "memory")


# -- acts -------------------------------------------------------------------------------------


async def pin(call: Call) -> Response:
    id_ = _memory_id(call)
    await call.services.memory.mem_pin(call.who, id_)
    return see_other(memory_path(id_, "?did=pinned"))


async def unpin(call: Call) -> Response:
    id_ = _memory_id(call)
    await call.services.memory.mem_unpin(call.who, id_)
    return see_other(memory_path(id_, "?did=unpinned"))


async def share(call: Call) -> Response:
    id_ = _memory_id(call)
    form = share_form(call.form)
    try:
        await call.services.memory.mem_share(call.who, share_of(form, memory=id_))
    except InvalidInput as exc:
        return await _page(call, _Typed(share=wrong_share(form, exc)))
    return see_other(memory_path(id_, "?did=shared"))


def share_form(form: Mapping[str, str]) -> views.ShareForm:
    """Return what was typed."""
    return views.ShareForm(
        to_kind=form.get("to_kind", "namespace"),
        to=form.get("to", "").strip(),
        until=form.get("until", "").strip(),
        subtree=form.get("subtree", "").strip(),
    )


def share_of(form: views.ShareForm, *, memory: UUID | None = None) -> Share:
    """Return the share that the form asks for; raises InvalidInput."""
    if not form.to:
        raise InvalidInput("Say to whom: a namespace, or an actor such as user:ada.", field="to")
    is_actor = form.to_kind == "actor"
    return Share(
        memory=memory,
        subtree=None if memory is not None else form.subtree,
        to_namespace=None if is_actor else form.to,
        to_actor=form.to if is_actor else None,
        expires_at=moment({"until": form.until}, "until"),
    )


def wrong_share(form: views.ShareForm, exc: InvalidInput) -> views.ShareForm:
    """Return the form with what is wrong with it."""
    return replace(form, error=str(exc), field=exc.field)


async def supersede(call: Call) -> Response:
    """Write a new text in the memory's place; the page of the new one is where it leads."""
    id_ = _memory_id(call)
    text = call.form.get("text", "")
    old = (await call.services.memory.mem_read(call.who, Read(id=id_))).memory
    asked = Write(
        text=text,
        kind=old.kind,
        epistemic_kind=old.epistemic_kind,
        source=call.form.get("source", "").strip(),
        event_time=moment(call.form, "event_time"),
        supersedes=id_,
        verbatim=True,
    )
    try:
        result = await call.services.memory.mem_write(call.who, asked, key=call.key)
    except (InvalidInput, Conflict) as exc:
        return await _page(call, _Typed(supersede_text=text, supersede_error=str(exc)))
    item = result.items[0] if isinstance(result, WriteResult) and result.items else None
    if item is None or item.id is None:
        reason = item.reason if item is not None else None
        error = f"It was not stored: {reason or 'nothing in it is a memory'}."
        return await _page(call, _Typed(supersede_text=text, supersede_error=error))
    return see_other(memory_path(item.id, f"?did={item.outcome}"))


async def retract(call: Call) -> Response:
    id_ = _memory_id(call)
    reason = call.form.get("reason", "").strip()
    try:
        await call.services.memory.mem_retract(call.who, id_, reason)
    except (InvalidInput, Conflict) as exc:
        return await _page(call, _Typed(retract_reason=reason, retract_error=str(exc)))
    return see_other(memory_path(id_, "?did=retracted"))


async def restore(call: Call) -> Response:
    """Undo a retraction."""
    id_ = forms.uuid_of(call.path("id"), "retraction")
    done = await call.services.memory.mem_restore(call.who, id_)
    back = local_path(call.form.get("next", ""), memory_path(done.root))
    return see_other(address(back.split("?")[0], {"did": "restored"}))


# -- the page ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Typed:
    """What came back from a form of the page that could not be used."""

    share: views.ShareForm | None = None
    supersede_text: str | None = None
    supersede_error: str | None = None
    retract_reason: str = ""
    retract_error: str | None = None

    @property
    def is_wrong(self) -> bool:
        return any((self.share, self.supersede_error, self.retract_error))


_NOTHING: Final = _Typed()


async def _page(call: Call, typed: _Typed = _NOTHING) -> Response:
    kernel, who, id_ = call.services.memory, call.who, _memory_id(call)
    found = await kernel.mem_read(who, Read(id=id_, history=True))
    memory = found.memory
    why_form, why = await _why(call, id_)
    links = _links(await _near(call, memory), id_)
    is_retracted = state_of(memory) == "retracted"
    retraction = await kernel.retraction_of(who, id_) if is_retracted else None
    grants = [g for g in await kernel.shares(who, ended=True) if g.memory == id_]
    cases = await kernel.conflicts(who, limit=_CASES)
    pinned = next((p for p in await kernel.pins(who) if p.memory_id == id_), None)
    now = call.services.clock.now()
    context = views.MemoryPage(
        line=line(memory),
        text=memory.text,
        epistemic_kind=memory.epistemic_kind.value,
        content=_content(memory.content),
        event_time=memory.event_time,
        actor=memory.actor,
        agent_id=memory.agent_id,
        extraction=memory.extraction,
        versions=versions_of(memory, found.history),
        derived_from=links["from"],
        derived_to=links["to"],
        related=links["related"],
        entities=links["entities"],
        turns=await _turns(call, memory),
        conversation=None if memory.conversation is None else str(memory.conversation),
        gauges=_gauges(memory),
        accesses=memory.access_count,
        last_accessed_at=memory.last_accessed_at,
        repeats=memory.repeat_count,
        pinned_at=None if pinned is None else pinned.pinned_at,
        pinned_by="" if pinned is None else pinned.actor,
        grants=tuple(grant_line(g, who, now) for g in grants),
        conflicts=tuple(
            conflict_link(c, memory) for c in cases if id_ in (c.newcomer, c.incumbent)
        ),
        retraction=_retraction(retraction, id_),
        why=None if why is None else _why_of(why, call, why_form, now),
        why_form=why_form,
        share=typed.share or views.ShareForm(),
        may=_may(call, memory),
        now=now,
        supersede_text=memory.text if typed.supersede_text is None else typed.supersede_text,
        supersede_error=typed.supersede_error,
        retract_reason=typed.retract_reason,
        retract_error=typed.retract_error,
        said=_said(call),
        audit_href=address("/audit", {"target": f"memory:{id_}"}) if may_audit(who) else None,
        json_href=memory_path(id_, ".json"),
    )
    return page(
        call,
        "memory.html",
        context,
        title=clipped(memory.text, 60),
        active="memories",
        status=400 if typed.is_wrong or why_form.error else 200,
    )


def _said(call: Call) -> str | None:
    """Return what an act did that led here; the address names it, and says nothing else."""
    said = _DID.get(call.query.get("did", ""))
    if said is not None and call.query.get("vector") == "later":
        return f"{said} {_LATER}"
    return said


def _may(call: Call, memory: Memory) -> views.MayDo:
    who = call.who
    writes, manages = may_write(who), may_manage(who, memory.namespace)
    is_own = memory.namespace == who.namespace
    is_author = writes and is_own and memory.actor == who.actor
    state = state_of(memory)
    return views.MayDo(
        pin=writes,
        share=writes and (is_own or manages),
        supersede=writes and is_own and state in ("current", "disputed"),
        retract=(manages or is_author) and state != "retracted",
        restore=(manages or is_author) and state == "retracted",
        view_as=may_view_as(who),
    )


def _content(content: Mapping[str, Any]) -> tuple[panels.Fact, ...]:
    return tuple(panels.Fact(name=name, value=_plain(v)) for name, v in content.items())


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _gauges(memory: Memory) -> tuple[views.Gauge, ...]:
    return (
        views.Gauge(
            name="Importance", value=memory.importance, about="how much it matters, as was said"
        ),
        views.Gauge(
            name="Activation",
            value=memory.activation,
            about="how fresh it is; decays, and reading lifts it",
        ),
        views.Gauge(name="Salience", value=memory.salience, about="how much it stood out"),
        views.Gauge(
            name="Credibility", value=memory.credibility, about="how far it is to be believed"
        ),
    )


async def _near(call: Call, memory: Memory) -> Graph:
    """Return the graph around the memory; what is withdrawn is in no graph."""
    if state_of(memory) == "retracted":
        return Graph(nodes=(), edges=(), is_capped=False)
    return await call.services.memory.graph(call.who, centre=memory.id, limit=_NEAR)


def _links(near: Graph, id_: UUID) -> Mapping[str, tuple[views.Link, ...]]:
    """Return what the memory rests on, what rests on it, what it is related to and speaks of."""
    nodes = {n.id: n for n in near.nodes}
    found: dict[str, list[views.Link]] = {"from": [], "to": [], "related": [], "entities": []}
    for edge in near.edges:
        is_source = edge.source == id_
        other = nodes.get(edge.target if is_source else edge.source)
        if id_ not in (edge.source, edge.target) or other is None or edge.kind == "supersedes":
            continue
        label, how = clipped(other.label), re.sub("[_-]+", " ", edge.kind)
        if other.kind == "entity":
            place, href, how = "entities", f"/graph?centre={other.id}", other.detail
        elif edge.kind == "derived":
            place, href, how = "to" if is_source else "from", memory_path(other.id), other.detail
        else:
            place, href = "related", memory_path(other.id)
            how = how if is_source else f"{how} this"
        found[place].append(views.Link(href=href, text=label, how=how))
    return {place: tuple(links) for place, links in found.items()}


async def _turns(call: Call, memory: Memory) -> tuple[views.Turn, ...]:
    """Return what was said around it, itself among it; nothing where it was not said."""
    if memory.session is None:
        return ()
    found = await call.services.memory.around(call.who, memory.id, reach=_TURNS)
    return tuple(
        views.Turn(
            id=str(m.id),
            speaker=m.speaker or "",
            text=clipped(m.text),
            at=m.event_time or m.assertion_time,
            position=m.position or 0,
            is_this=m.id == memory.id,
        )
        for m in found
    )


def _retraction(found: Retraction | None, id_: UUID) -> views.RetractionLine | None:
    """Return what holds the memory down, where that is to be seen."""
    if found is None:
        return None
    return views.RetractionLine(
        id=str(found.id),
        root_href=None if found.root == id_ else memory_path(found.root),
        reason=found.reason,
        actor=found.actor,
        at=found.retracted_at,
        others=len(found.memories) + found.elsewhere - 1,
    )


# -- why somebody sees it ---------------------------------------------------------------------


async def _why(call: Call, id_: UUID) -> tuple[views.WhyForm, Explanation | None]:
    """Return the form with what is wrong in it, and the explanation where there is one."""
    form = views.WhyForm(
        namespace=call.query.get("ns", "").strip(),
        actor=call.query.get("actor", "").strip(),
        at=call.query.get("at", "").strip(),
    )
    try:
        asked = Explain(
            id=id_,
            view_namespace=form.namespace or None,
            view_actor=form.actor or None,
            as_of=moment({"at": form.at}, "at"),
        )
        return form, await call.services.memory.mem_explain(call.who, asked)
    except (InvalidInput, Denied, NotFound) as exc:
        return replace(form, error=str(exc)), None


def _why_of(found: Explanation, call: Call, form: views.WhyForm, now: datetime) -> views.Why:
    return views.Why(
        viewer=found.viewer_actor,
        namespace=found.viewer_namespace,
        is_self=not form.namespace,
        is_visible=found.is_visible,
        is_found=found.is_found_by_search,
        reasons=found.reasons,
        namespaces=found.namespaces,
        grants=tuple(grant_line(g, call.who, now) for g in found.grants),
        at=moment({"at": form.at}, "at"),
    )


async def as_json(call: Call) -> Response:
    """Answer with the memory and its chain."""
    return Json(
        reply.read(
            await call.services.memory.mem_read(call.who, Read(id=_memory_id(call), history=True))
        )
    )

"""The command palette: minds, cycles, events and pages by what somebody types."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import Response

from noema.auth.roles import MemoryRight, console_allows, memory_allows
from noema.core.errors import InvalidInput, NotFound
from noema.core.identity import ConsoleRole
from noema.events.model import Event, decode_position
from noema.llm.inputs import INPUTS
from noema.llm.model import Role
from noema.web import views
from noema.web.api.llm import known_namespaces
from noema.web.call import Call
from noema.web.pages.llm_providers import provider_path
from noema.web.pages.shell import fragment, mind_path, nav_of, page, wants_fragment
from noema.web.pages.shown import is_redacted, summary
from noema.web.services import Services

_END_OF_ID: Final = re.compile(r"[0-9a-f-]{6,36}\Z")
_LONGEST: Final = 200
_OF_MEMORY: Final = (
    ("Graph of memories", "/graph"),
    ("Conflicts", "/conflicts"),
    ("Shares", "/shares"),
    ("Memory policy", "/memory-policy"),
)
_OF_MODELS: Final = (
    ("Roles of models", "/models/roles"),
    ("Prompts", "/models/prompts"),
    ("Calls of models", "/models/calls"),
    ("Spend on models", "/models/spend"),
    ("Budgets of models", "/models/budgets"),
)


async def show(call: Call) -> Response:
    query = call.query.get("q", "").strip()[:_LONGEST]
    found = views.PaletteList(query=query, items=await _items(call, query))
    if wants_fragment(call):
        return fragment(call, "fragments/palette.html", found)
    return page(call, "palette.html", found, title="Jump to")


async def _items(call: Call, query: str) -> tuple[views.PaletteItem, ...]:
    services, number = call.services, _number(query)
    minds = await services.pages.minds_called(query.lstrip("#"), with_cycle=number)
    items = [
        views.PaletteItem(href=n.href, label=n.label, kind="page", keys=f"g {n.key}")
        for n in nav_of(call.who)
        if query.lower() in n.label.lower()
    ]
    if query and query.lower() in "account":
        items.append(views.PaletteItem(href="/account", label="Account", kind="page"))
    if number is not None:
        items.extend(_cycle(m, number) for m in minds if number <= m["cycles"])
    for mind in minds:
        if number is None or query.lstrip("#") in mind["slug"]:
            items.extend(_mind(mind, with_pages=len(minds) == 1))
    found = await _events(services, query)
    items.extend(_event(e) for e in found)
    if memory_allows(call.who.role, MemoryRight.READ):
        items.extend(_memories(query, is_event=bool(found)))
    if query and console_allows(call.who.console, ConsoleRole.OPERATOR):
        items.extend(await _models(call, query))
    return tuple(items)


def _memories(query: str, *, is_event: bool) -> list[views.PaletteItem]:
    """Return the pages of memory that are called so, and where to look for what is in them."""
    items = [
        views.PaletteItem(href=href, label=label, kind="page", detail="memory")
        for label, href in _OF_MEMORY
        if query and query.lower() in label.lower()
    ]
    if not query:
        return items
    try:
        id_ = UUID(query)
    except ValueError:
        text = query.lstrip("#")
        href = f"/memories?{urlencode({'q': text})}"
        return [*items, views.PaletteItem(href=href, label=f"Memories about {text}", kind="memory")]
    if not is_event:
        items.append(
            views.PaletteItem(href=f"/memories/{id_}", label="The memory of this id", kind="memory")
        )
    return items


async def _models(call: Call, query: str) -> list[views.PaletteItem]:
    """Return the pages of models that are called so, and the call of this id."""
    llm, text = call.services.llm, query.lower()
    pages = [
        *_OF_MODELS,
        *((f"Role {role}", f"/models/roles/{role}") for role in Role),
        *((f"Prompt {name}", f"/models/prompts/{name}") for name in INPUTS),
        *((f"Provider {p.name}", provider_path(p.name)) for p in await llm.registry.providers()),
    ]
    items = [
        views.PaletteItem(href=href, label=label, kind="page", detail="models")
        for label, href in pages
        if text in label.lower()
    ]
    try:
        found = await llm.calls.get(UUID(query), namespaces=await known_namespaces(call))
    except (ValueError, NotFound):
        return items
    label = f"Call for {found.role}"
    return [*items, views.PaletteItem(href=f"/models/calls/{found.id}", label=label, kind="call")]


def _number(query: str) -> int | None:
    text = query.lstrip("#").replace(",", "")
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 15 else None


def _cycle(mind: Mapping[str, Any], number: int) -> views.PaletteItem:
    return views.PaletteItem(
        href=mind_path(mind["slug"], f"/cycles/{number}"),
        label=f"Cycle {number} of {mind['name']}",
        kind="cycle",
    )


def _mind(mind: Mapping[str, Any], *, with_pages: bool) -> list[views.PaletteItem]:
    slug, name = mind["slug"], mind["name"]
    detail = f"{mind['namespace']}/{slug}"
    items = [views.PaletteItem(href=mind_path(slug), label=name, kind="mind", detail=detail)]
    if with_pages:
        for label, rest in (
            ("Cycles", "/cycles"),
            ("Conversation", "/conversation"),
            ("Tuning", "/tuning"),
        ):
            items.append(
                views.PaletteItem(
                    href=mind_path(slug, rest), label=f"{label} of {name}", kind="mind"
                )
            )
        items.append(
            views.PaletteItem(href=f"/events?mind={slug}", label=f"Events of {name}", kind="mind")
        )
    return items


async def _events(services: Services, query: str) -> list[Event]:
    text = query.lower()
    try:
        return await services.events.get_many([UUID(text)])
    except ValueError:
        pass
    try:
        seq = decode_position(text)
    except InvalidInput:
        if not _END_OF_ID.match(text):
            return []
        ids = await services.pages.by_end_of_id(text)
        return (await services.events.get_many(ids))[::-1]
    found = await services.events.after(seq - 1, limit=1)
    return [e for e in found if e.seq == seq]


def _event(event: Event) -> views.PaletteItem:
    said = "redacted" if is_redacted(event) else summary(event)
    return views.PaletteItem(
        href=f"/events/{event.id}",
        label=event.type,
        kind="event",
        detail=f"{str(event.id)[-8:]} {said or ''}",
    )

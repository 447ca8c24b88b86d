"""The graph: memories and entities as points, and what ties them together."""

import json
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec
from starlette.responses import Response

from noema.core.errors import InvalidInput, NotFound
from noema.memory.model import Graph, Kind, Node
from noema.web import forms
from noema.web import memory_views as views
from noema.web.call import Call
from noema.web.pages.remembered import address, memory_path
from noema.web.pages.shell import page
from noema.web.pages.shown import clipped
from noema.web.reply import Json
from noema.web.views import Option

_SHOWN: Final = 120
_MOST: Final = 300
_SUGGESTED: Final = 12
_LABEL: Final = 120
_EMPTY: Final = Graph(nodes=(), edges=(), is_capped=False)
_KINDS: Final = frozenset(Kind)


async def show(call: Call) -> Response:
    about = call.query.get("about", "").strip()
    namespace = call.query.get("ns", "").strip()
    kinds = tuple(dict.fromkeys(k for k in call.request.query_params.getlist("kind") if k))
    limit = _SHOWN
    graph, centre, error = _EMPTY, None, None
    suggestions: tuple[views.Link, ...] = ()
    try:
        limit = forms.whole(call.query, "limit", low=1, high=_MOST) or _SHOWN
        centre, suggestions = await _centre(call, about)
        graph = await call.services.memory.graph(
            call.who, centre=centre, limit=limit, kinds=tuple(_kind(k) for k in kinds)
        )
    except (InvalidInput, NotFound) as exc:
        error = str(exc)
    shown = [n for n in graph.nodes if not namespace or n.namespace == namespace]
    shown.sort(key=lambda n: (n.id != centre, -n.weight, n.label, str(n.id)))
    nodes = tuple(_node(n, centre) for n in shown)
    edges = _edges(graph, shown)
    asked = [
        ("about", about),
        ("centre", call.query.get("centre", "") if not about else ""),
        *(("kind", k) for k in kinds),
        ("limit", "" if limit == _SHOWN else str(limit)),
    ]
    context = views.GraphPage(
        nodes=nodes,
        edges=json.dumps(edges, separators=(",", ":")),
        edge_count=len(edges),
        groups=tuple(g for g in (*Kind, "thing") if any(n.group == g for n in nodes)),
        is_capped=graph.is_capped,
        kinds=tuple(Option(value=k, label=k, selected=k in kinds) for k in Kind),
        namespaces=tuple(sorted({n.namespace for n in graph.nodes})),
        namespace=namespace,
        about=about or ("" if centre is None else call.query.get("centre", "")),
        limit=limit,
        centre=next((n for n in nodes if n.is_centre), None),
        suggestions=suggestions,
        error=error,
        json_href=address("/graph.json", [*asked, ("ns", namespace)]),
    )
    return page(
        call,
        "graph.html",
        context,
        title="Graph",
        active="memories",
        status=200 if error is None else 400,
    )


async def _centre(call: Call, about: str) -> tuple[UUID | None, tuple[views.Link, ...]]:
    """Return the id in the middle: one that was named, or the entity that goes by the name."""
    text = about or call.query.get("centre", "").strip()
    if not text:
        return None, ()
    try:
        return UUID(text), ()
    except ValueError:
        pass
    found = await call.services.memory.entities(call.who, text=text, limit=_SUGGESTED)
    if not found:
        raise InvalidInput(
            f"No entity that you see is called {text[:60]!r}; search the memories instead.",
            field="about",
        )
    exact = [e for e in found if text.casefold() in (n.casefold() for n in (e.name, *e.aliases))]
    first, *others = [*exact, *(e for e in found if e not in exact)]
    return first.merged_into or first.id, tuple(
        views.Link(href=f"/graph?centre={e.id}", text=clipped(e.name, _LABEL), how=e.kind)
        for e in others
    )


def _kind(text: str) -> Kind:
    if text not in _KINDS:
        raise InvalidInput(
            f"A memory is one of {', '.join(Kind)}, not {text[:40]!r}.", field="kind"
        )
    return Kind(text)


def _node(node: Node, centre: UUID | None) -> views.NodeLine:
    is_entity = node.kind == "entity"
    href = f"/graph?centre={node.id}" if is_entity else memory_path(node.id)
    kind = node.detail.partition(",")[0]
    group = "thing" if is_entity or kind not in _KINDS else kind
    return views.NodeLine(
        id=str(node.id),
        kind=node.kind,
        group=group,
        label=clipped(node.label, _LABEL) or "(no text)",
        detail=node.detail,
        namespace=node.namespace,
        weight=node.weight,
        href=href,
        is_centre=node.id == centre,
    )


def _edges(graph: Graph, shown: list[Node]) -> list[tuple[int, int, str]]:
    place: Mapping[UUID, int] = {n.id: i for i, n in enumerate(shown)}
    return [
        (place[e.source], place[e.target], e.kind)
        for e in graph.edges
        if e.source in place and e.target in place
    ]


async def as_json(call: Call) -> Response:
    """Answer with the graph that the page of this address draws, whatever its namespace."""
    centre, _ = await _centre(call, call.query.get("about", "").strip())
    limit = forms.whole(call.query, "limit", low=1, high=_MOST) or _SHOWN
    kinds = call.request.query_params.getlist("kind")
    found = await call.services.memory.graph(
        call.who, centre=centre, limit=limit, kinds=tuple(_kind(k) for k in kinds if k)
    )
    return Json(msgspec.to_builtins(found))

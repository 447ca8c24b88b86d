"""Memories: searched with the parts of every score, browsed newest first, and written."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from starlette.responses import Response

from noema.core.errors import Denied, InvalidInput, NotFound
from noema.memory.model import (
    DEFAULT_K,
    MAX_K,
    Item,
    Kind,
    Page,
    SearchResult,
    Stats,
    Status,
    Write,
    WriteResult,
)
from noema.memory.model import Search as Wanted
from noema.memory.routes import route_of, trust_of
from noema.web import forms, panels
from noema.web import memory_reply as reply
from noema.web import memory_views as views
from noema.web.call import Call
from noema.web.pages.events import moment
from noema.web.pages.remembered import address, line, may_view_as, may_write, memory_path
from noema.web.pages.shell import page, see_other
from noema.web.render import NOTHING, number
from noema.web.reply import Json
from noema.web.views import Option

_SHOWN: Final = 50
# What a search looks at; what a list shows.
_LANES: Final = (("", "current"), ("all", "all, past ones too"))
_STATUSES: Final = (("", "all"), ("disputed", "disputed"), ("retracted", "retracted"))
_MILLION: Final = 1_000_000


async def show(call: Call) -> Response:
    return await _page(call)


async def write(call: Call) -> Response:
    """Write one memory; where it was turned away, the form comes back with the reason."""
    form = views.MemoryForm(
        text=call.form.get("text", ""),
        kind=call.form.get("kind", ""),
        source=call.form.get("source", "").strip(),
        importance=call.form.get("importance", "").strip(),
        event_time=call.form.get("event_time", "").strip(),
    )
    try:
        result = await call.services.memory.mem_write(call.who, _write_of(form), key=call.key)
    except InvalidInput as exc:
        return await _page(call, form=_wrong(form, str(exc), exc.field))
    if not isinstance(result, WriteResult):
        return see_other("/memories")
    item = result.items[0] if result.items else None
    if item is None or item.id is None:
        return await _page(call, form=_wrong(form, _rejected(item, result), "text"))
    noted = "&vector=later" if result.degraded else ""
    return see_other(memory_path(item.id, f"?did={item.outcome}{noted}"))


def _write_of(form: views.MemoryForm) -> Write:
    importance = None
    if form.importance:
        micros = forms.micro(form.importance, "importance")
        if not 0 <= micros <= _MILLION:
            raise InvalidInput("Importance is from 0 to 1.", field="importance")
        importance = micros / _MILLION
    return Write(
        text=form.text,
        kind=_kind(form.kind, "kind") if form.kind else None,
        source=form.source,
        importance=importance,
        event_time=moment({"event_time": form.event_time}, "event_time"),
        verbatim=True,
    )


def _kind(text: str, field: str) -> Kind:
    try:
        return Kind(text)
    except ValueError:
        raise InvalidInput(
            f"A memory is one of {', '.join(Kind)}, not {text[:40]!r}.", field=field
        ) from None


def _wrong(form: views.MemoryForm, error: str, field: str | None) -> views.MemoryForm:
    return replace(form, error=error, field=field)


def _rejected(item: Item | None, result: WriteResult) -> str:
    reasons = [r.reason for r in result.rejected]
    reason = (item.reason if item is not None else None) or "; ".join(reasons)
    return f"It was not stored: {reason or 'nothing in it is a memory'}."


# -- what is asked for ------------------------------------------------------------------------


def filter_of(call: Call) -> views.MemoryFilter:
    """Return what the address asks for, as it stands there."""
    query = call.request.query_params
    return views.MemoryFilter(
        q=query.get("q", "").strip(),
        kinds=tuple(dict.fromkeys(k for k in query.getlist("kind") if k)),
        status=query.get("status", ""),
        at=query.get("at", "").strip(),
        k=query.get("k", "").strip(),
        namespace=query.get("ns", "").strip(),
        actor=query.get("actor", "").strip(),
        explain=query.get("explain", "") != "0",
    )


def search_of(filter_: views.MemoryFilter) -> tuple[Wanted, tuple[str, str] | None]:
    """Return the search, and whose eyes it is asked with; raises InvalidInput."""
    asked = Wanted(
        query=filter_.q,
        k=forms.whole({"k": filter_.k}, "k", low=1, high=MAX_K) or DEFAULT_K,
        valid_only=filter_.status == "",
        as_of=moment({"at": filter_.at}, "at"),
        kinds=tuple(_kind(k, "kind") for k in filter_.kinds),
        explain=filter_.explain,
    )
    if filter_.actor and not filter_.namespace:
        raise InvalidInput("To look as somebody, say in which namespace they act.", field="ns")
    view = (filter_.namespace, filter_.actor) if filter_.namespace else None
    return asked, view


def _pairs(filter_: views.MemoryFilter) -> list[tuple[str, str]]:
    return [
        ("q", filter_.q),
        *(("kind", k) for k in filter_.kinds),
        ("status", filter_.status),
        ("at", filter_.at),
        ("k", filter_.k),
        ("ns", filter_.namespace),
        ("actor", filter_.actor),
        ("explain", "" if filter_.explain else "0"),
    ]


# -- the page ---------------------------------------------------------------------------------


async def _page(call: Call, *, form: views.MemoryForm | None = None) -> Response:
    who = call.who
    filter_ = filter_of(call)
    lines: Sequence[views.MemoryLine] = ()
    found = stats = older = None
    error = None
    before = call.query.get("before", "")
    try:
        if filter_.q:
            lines, found = await _search(call, filter_)
        else:
            lines, older = await _browse(call, filter_, before)
            stats = await call.services.memory.mem_stats(who)
    except (InvalidInput, NotFound) as exc:
        error = str(exc)
    except Denied as exc:
        # Whoever may read nothing at all gets the answer as a page; other eyes are a filter.
        if not filter_.namespace:
            raise
        error = str(exc)
    is_fresh = not filter_.is_set and not before and error is None and not lines
    pairs = _pairs(filter_)
    written_as = route_of(who, Write(text=""))
    context = views.MemoriesPage(
        lines=tuple(lines),
        filter=replace(filter_, error=error),
        kinds=tuple(Option(value=k, label=k, selected=k in filter_.kinds) for k in Kind),
        statuses=tuple(
            Option(value=value, label=label, selected=value == filter_.status)
            for value, label in (_LANES if filter_.q else _STATUSES)
        ),
        found=found,
        tiles=None if stats is None or is_fresh else _tiles(stats),
        by_kind={} if stats is None else stats.by_kind,
        form=form or views.MemoryForm(),
        may_write=may_write(who),
        written_as=written_as,
        written_trust=trust_of(written_as),
        may_view_as=may_view_as(who),
        is_fresh=is_fresh,
        older=older,
        newest=address("/memories", pairs) if before else None,
        json_href=address("/memories.json", [*pairs, ("before", before)]),
    )
    wrong = error is not None or (form is not None and form.error is not None)
    status = 400 if wrong else 200
    return page(call, "memories.html", context, title="Memories", active="memories", status=status)


async def _search(
    call: Call, filter_: views.MemoryFilter
) -> tuple[list[views.MemoryLine], views.Found]:
    result, asked, view = await search(call, filter_)
    lines = [line(h.memory, score=h.score, components=h.components) for h in result.hits]
    return lines, views.Found(
        driver=result.driver,
        degraded=result.degraded,
        tokens=result.tokens,
        trimmed=result.trimmed,
        view_namespace=None if view is None else view[0],
        view_actor=None if view is None else view[1],
        at=asked.as_of,
    )


async def search(
    call: Call, filter_: views.MemoryFilter
) -> tuple[SearchResult, Wanted, tuple[str, str] | None]:
    """Return what the filter's search finds, with what was asked and whose eyes it was."""
    asked, view = search_of(filter_)
    return await call.services.memory.mem_search(call.who, asked, view=view), asked, view


async def _found(call: Call, filter_: views.MemoryFilter, before: str) -> Page:
    return await call.services.memory.browse(
        call.who,
        kinds=tuple(_kind(k, "kind") for k in filter_.kinds),
        status=None if filter_.status in ("", "all") else _status(filter_.status),
        before=forms.uuid_of(before, "memory") if before else None,
        limit=_SHOWN,
    )


async def _browse(
    call: Call, filter_: views.MemoryFilter, before: str
) -> tuple[list[views.MemoryLine], str | None]:
    found = await _found(call, filter_, before)
    older = None
    if found.before is not None:
        older = address("/memories", [*_pairs(filter_), ("before", str(found.before))])
    return [line(m) for m in found.memories], older


def _status(text: str) -> Status:
    try:
        return Status(text)
    except ValueError:
        raise InvalidInput(
            f"A memory is {', '.join(Status)}, not {text[:40]!r}.", field="status"
        ) from None


def _tiles(stats: Stats) -> panels.Tiles:
    withheld = stats.total - stats.by_status.get(Status.ACTIVE.value, 0)
    disputed = stats.by_status.get(Status.DISPUTED.value, 0)
    reads = sum(stats.audit_rows.values())
    share = f"{100 * stats.embedded // stats.total}" if stats.total else NOTHING
    hits = stats.fault_hit_rate
    return panels.Tiles(
        tiles=(
            panels.Tile(
                label="Memories",
                value=number(stats.total),
                note="that you see" if not withheld else f"{number(withheld)} not believed now",
            ),
            panels.Tile(
                label="Disputed",
                value=number(disputed),
                note="quarantined by a conflict",
                level="warn" if disputed else "quiet",
            ),
            panels.Tile(
                label="With a vector",
                value=share,
                unit="%" if stats.total else "",
                note=stats.embedding_model or "no embedder: text search alone",
            ),
            panels.Tile(
                label="Fault hits",
                value=NOTHING if hits is None else f"{round(100 * hits)}",
                unit="" if hits is None else "%",
                note="no fault in 24 hours" if hits is None else "in 24 hours",
            ),
            panels.Tile(
                label="Calls",
                value=number(reads),
                note="on record in 24 hours",
            ),
        )
    )


async def as_json(call: Call) -> Response:
    """Answer with what the page of this address lists."""
    filter_ = filter_of(call)
    if filter_.q:
        result, _, _ = await search(call, filter_)
        return Json(reply.search(result))
    found = await _found(call, filter_, call.query.get("before", ""))
    return Json(reply.browsed(found))

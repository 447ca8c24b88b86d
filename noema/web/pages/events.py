"""The log as a list, filtered by what stands in the address."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from starlette.responses import Response

from noema.auth.sight import OutOfReach
from noema.core.canonical import canonical, escape, escape_tree
from noema.core.errors import InvalidInput, NotFound
from noema.events.model import CATALOGUE, Event, decode_position, encode_position
from noema.web import forms, panels
from noema.web.call import Call
from noema.web.pages.shell import page, position
from noema.web.pages.shown import event_rows
from noema.web.services import Services
from noema.web.sighted import veil_of

_SHOWN: Final = 200
_MOST: Final = 10_000
_KEYS: Final = ("mind", "type", "q", "from", "to")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A filter of the log that can be used; None filters nothing."""

    mind: UUID | None = None
    type: str | None = None
    q: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out, so that a missing position is a gap in the log itself."""
        return self == EVERYTHING

    def holds(self, event: Event) -> bool:
        """Whether the event passes the filter, as the query on the log decides."""
        if self.mind not in (None, event.mind_id) or self.type not in (None, event.type):
            return False
        if self.since is not None and event.recorded_at < self.since:
            return False
        if self.until is not None and event.recorded_at >= self.until:
            return False
        if self.q is None:
            return True
        if veil_of(event.content) is not None:
            return False
        content = canonical(escape_tree(event.content)).decode("utf-8")
        return escape(self.q).casefold() in content.casefold()


EVERYTHING: Final = Wanted()


async def wanted(services: Services, query: dict[str, str]) -> Wanted:
    """Return the filter that the query names; raises InvalidInput, or NotFound for the mind."""
    slug = query.get("mind")
    return Wanted(
        mind=(await services.minds.get(slug)).id if slug else None,
        type=forms.text_of(query, "type"),
        q=query.get("q") or None,
        since=moment(query, "from"),
        until=moment(query, "to"),
    )


def moment(query: Mapping[str, str], name: str) -> datetime | None:
    """Return a time of the filter; one without a zone is in UTC, as the form says."""
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return forms.moment({name: text}, name)
    return forms.within_reach(found if found.tzinfo is not None else found.replace(tzinfo=UTC))


def topic_of(query: dict[str, str]) -> str:
    """Return the name of the live tail of this filter."""
    kept = {k: query[k] for k in _KEYS if query.get(k)}
    return f"events?{urlencode(kept)}" if kept else "events"


def query_of(topic: str) -> dict[str, str]:
    """Return the filter that the name of a live tail spells."""
    _, _, query = topic.partition("?")
    found = dict(parse_qsl(query))
    unknown = sorted(set(found) - set(_KEYS))
    if unknown:
        raise InvalidInput(f"Events have no filter {unknown[0][:40]!r}.", field="live")
    return found


async def show(call: Call) -> Response:
    services, at = call.services, await position(call)
    query = {k: call.query.get(k, "").strip() for k in _KEYS}
    limit = forms.whole(call.query, "limit", low=1, high=_MOST) or _SHOWN
    before = call.query.get("before") or None
    found: list[Event] = []
    error = None
    filter_ = EVERYTHING
    try:
        filter_ = await wanted(services, query)
        found = await services.events.before(
            decode_position(before) if before else None,
            mind=filter_.mind,
            type_=filter_.type,
            text=filter_.q,
            since=filter_.since,
            until=filter_.until,
            limit=limit + 1,
        )
    except (InvalidInput, NotFound, OutOfReach) as exc:
        error = str(exc)
    shown = found[:limit]
    older = found[limit].seq if len(found) > limit else 0
    is_whole = filter_.is_everything and call.sight.knows_all
    rows = await event_rows(services, shown, before=older if is_whole and shown else None)
    kept = {k: v for k, v in query.items() if v}
    if limit != _SHOWN:
        kept["limit"] = str(limit)
    live = before is None and not query["to"] and error is None

    def address(**more: str) -> str:
        return f"/events?{urlencode(kept | more)}" if kept or more else "/events"

    context = panels.EventsPage(
        rows=rows,
        filter=panels.EventFilter(
            mind=query["mind"],
            type=query["type"],
            q=query["q"],
            from_=query["from"],
            to=query["to"],
            topic=topic_of(query),
            error=error,
        ),
        minds=tuple(m.slug for m in await services.minds.list_()),
        types=tuple(sorted(CATALOGUE)),
        live=live,
        older=address(before=encode_position(shown[-1].seq)) if older else None,
        newest=address() if before else None,
        json_href=_json_href(query, before, limit),
    )
    return page(
        call,
        "events.html",
        context,
        title="Events",
        active="events",
        mind=query["mind"] if error is None and query["mind"] else None,
        at=at,
        status=200 if error is None else 400,
    )


def _json_href(query: dict[str, str], before: str | None, limit: int) -> str:
    names = {"q": "text"}
    asked = {names.get(k, k): v for k, v in query.items() if v}
    if before:
        asked["after"] = before
    asked |= {"order": "desc", "limit": str(min(limit, 500))}
    return f"/v1/events?{urlencode(asked)}"

"""The live stream: the plain log for programs, server-rendered fragments for pages.

    feed ──event──▶ rows of it, each with the event's position as id
                └─▶ its mind is marked ─▶ at the end of a burst, its state, read once for all
    clock ────────▶ tiles, replays, calls, heartbeat, is the session still good   (these have no id)

A fragment's id is the position up to which the reader has everything once that fragment is in, so
that a connection cut anywhere is resumed without a loss. Where one event makes several fragments,
those before the last still carry the position before it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final
from uuid import UUID

import msgspec
from starlette.responses import Response

from noema.auth.roles import require_console
from noema.cognition.model import Mind
from noema.core.errors import InvalidInput
from noema.core.identity import ConsoleRole
from noema.events.model import Event, encode_position
from noema.web import panels, views
from noema.web.api import events as api
from noema.web.call import Call
from noema.web.live import (
    DAEMON_STOPS,
    HEARTBEAT,
    HEARTBEAT_S,
    REFRESH_S,
    EventStream,
    frame,
)
from noema.web.llm_views import CallLine, CallRowFragment
from noema.web.pages import board, shown
from noema.web.pages.events import EVERYTHING, Wanted, query_of, wanted
from noema.web.pages.llm_calls import newest_lines
from noema.web.pages.replays import replay_row
from noema.web.pages.shell import Site, site
from noema.web.pages.system import tiles
from noema.web.reply import encode

FAR_BEHIND: Final = 1_000
TICK_S: Final = 2.0
_MOST_TOPICS: Final = 64
_ROWS: Final = 200
_MESSAGES: Final = 100
_REPLAYS: Final = 20
_CALLS: Final = 50
_FRAGMENTS_KEPT: Final = 2_000
_CHANGES_A_MIND: Final = frozenset(
    {
        "mind.created",
        "mind.renamed",
        "stimulus.received",
        "message.received",
        "mode.set",
        "settings.set",
        "cycle.completed",
        "process.failed",
    }
)


async def stream(call: Call) -> Response:
    """Answer with the events as JSON, or, where `live` names topics, with fragments of pages."""
    if call.request.method == "HEAD":
        return Response(media_type=EventStream.media_type)
    names = list(dict.fromkeys(call.request.query_params.getlist("live")))
    return await (_fragments(call, names) if names else api.stream(call))


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One thing that a page follows: what it is called there, and what of the log it is."""

    name: str
    kind: str
    mind: Mind | None = None
    filter: Wanted = EVERYTHING


async def _topic(call: Call, name: str) -> Topic:
    """Return the topic of that name; raises InvalidInput, or NotFound for its mind."""
    kind, _, slug = name.partition(":")
    if kind in ("mind", "cycles", "conversation") and slug:
        return Topic(name=name, kind=kind, mind=await call.services.minds.get(slug))
    if name == "calls":
        require_console(call.who, ConsoleRole.OPERATOR)
    if name in ("minds", "replays", "calls", "system"):
        return Topic(name=name, kind=name)
    if name == "events" or name.startswith("events?"):
        filter_ = await wanted(call.services, query_of(name))
        return Topic(name=name, kind="events", filter=filter_)
    raise InvalidInput(
        f"No live topic {name[:40]!r}; there are minds, mind:SLUG, cycles:SLUG,"
        " conversation:SLUG, replays, calls, system and events with or without a filter.",
        field="live",
    )


async def _fragments(call: Call, names: Sequence[str]) -> EventStream:
    if len(names) > _MOST_TOPICS:
        raise InvalidInput(f"At most {_MOST_TOPICS} topics in one stream.", field="live")
    topics = [await _topic(call, name) for name in names]
    head = await call.services.events.head()
    asked = api.resume_from(call)
    after = head if asked is None else min(asked, head)
    watch = _Watch(call, topics, after=after, head=head)
    return EventStream(watch.frames(), ending=partial(api.ending, call))


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fragment and where it goes: replace what is there, patch it only if it is, or add to it."""

    topic: str
    mode: str
    target: str
    html: str


class _Watch:
    """One reader's stream. `seen` is the position up to which the reader has everything."""

    def __init__(self, call: Call, topics: Sequence[Topic], *, after: int, head: int) -> None:
        self._call = call
        self._services = call.services
        self._site: Site = site(call)
        # What is rendered or read for one is shared with those who see the same, and only them.
        self._view = call.sight.view
        self._readings = self._site.readings.of(self._view)
        self._topics = topics
        self._head = head
        self._seen = after
        self._is_catching_up = True
        self._lists_minds = any(t.kind == "minds" for t in topics)
        self._owes_list = self._lists_minds
        self._followed = {t.mind.id: t for t in topics if t.kind == "mind" and t.mind is not None}
        self._marked: dict[UUID, float] = {}
        self._replays: dict[str, panels.ReplayRow] = {}
        self._calls: dict[str, CallLine] = {}
        self._tiles: panels.Tiles | None = None
        self._ticks = any(t.kind in ("replays", "calls", "system") for t in topics)
        self._tick_due = 0.0
        self._settled_at = 0.0
        self._began = _now()
        self._beat_due = self._began + HEARTBEAT_S

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield what the reader is to be sent, until the daemon stops."""
        async for chunk in self._begin():
            yield chunk
        idle_s = TICK_S if self._ticks else HEARTBEAT_S
        async for event in self._services.feed.follow(self._seen, idle_s=idle_s):
            if event is not None:
                for chunk in await self._rows_of(event):
                    yield chunk
            if event is None or event.seq >= self._services.feed.head or self._is_due():
                async for chunk in self._settle():
                    yield chunk
        yield DAEMON_STOPS

    async def _begin(self) -> AsyncIterator[bytes]:
        if self._head - self._seen > FAR_BEHIND:
            self._seen = self._head
            async for piece in self._anew():
                yield self._frame(piece, self._seen)
        # What a lost connection cut off may have been a state; a state is cheap to send again.
        for mind in self._followed:
            self._mark(mind)
        if self._seen >= self._head:
            async for chunk in self._settle():
                yield chunk

    def _is_due(self) -> bool:
        # In a flood that never ends there is no end of a burst to wait for.
        return _now() >= self._settled_at + REFRESH_S

    async def _rows_of(self, event: Event) -> list[bytes]:
        before, self._seen = self._seen, event.seq
        pieces = await self._pieces(event, before)
        return [
            self._frame(piece, event.seq if i == len(pieces) else before)
            for i, piece in enumerate(pieces, start=1)
        ]

    async def _settle(self) -> AsyncIterator[bytes]:
        """Yield the state of what was marked, what the clock is due to tell, and a sign of life."""
        for piece in await self._states():
            yield self._frame(piece, self._seen)
        self._settled_at = _now()
        if self._is_catching_up and self._seen >= self._head:
            self._is_catching_up = False
            yield frame(event="caught-up", data=b"{}")
        if self._ticks and _now() >= self._tick_due:
            self._tick_due = _now() + TICK_S
            told = (await self._replay_rows(), await self._call_rows(), await self._system())
            for piece in chain.from_iterable(told):
                yield self._frame(piece, None)
        if _now() >= self._beat_due:
            self._beat_due = _now() + HEARTBEAT_S
            yield HEARTBEAT

    def _frame(self, piece: Piece, position: int | None) -> bytes:
        at = encode_position(position) if position else None
        return frame(event="fragment", data=encode(piece), position=at)

    def _html(self, kind: str, seq: int, template: str, make: Callable[[], Any]) -> str:
        """Return a row of the event, rendered once for all who watch."""
        known = self._site.fragments
        key = (self._view, kind, seq)
        html = known.get(key)
        if html is None:
            html = self._site.renderer.fragment(f"fragments/{template}.html", make())
            while len(known) >= _FRAGMENTS_KEPT:
                del known[next(iter(known))]
            known[key] = html
        return html

    # -- rows of an event ----------------------------------------------------------------------

    async def _pieces(self, event: Event, before: int) -> list[Piece]:
        if event.mind_id is not None and event.type in _CHANGES_A_MIND:
            self._mark(event.mind_id)
        pieces: list[Piece] = []
        for topic in self._topics:
            if topic.kind == "events" and topic.filter.holds(event):
                is_whole = topic.filter.is_everything and self._call.sight.knows_all
                gap = event.seq - before - 1 if is_whole else 0
                html = await self._event(event, gap)
                pieces.append(Piece(topic.name, "prepend", "#events-rows", html))
            elif topic.mind is None or topic.mind.id != event.mind_id:
                continue
            elif topic.kind == "cycles" and event.type == "cycle.completed":
                html = await self._cycle(topic.mind, event)
                target = f"#cycles-{topic.mind.slug}"
                pieces.append(Piece(topic.name, "prepend", target, html))
            elif topic.kind == "conversation" and event.type.startswith("message."):
                pieces.extend(await self._messages(topic, topic.mind, event))
        return pieces

    async def _number(self, event: Event) -> dict[UUID, int]:
        if event.cycle_id is None:
            return {}

        async def read() -> dict[UUID, int]:
            return await shown.cycle_numbers(self._services, [event])

        # The number of a cycle never changes, so an answer of any age will do.
        return await self._readings.get(("cycle", event.cycle_id), read, since=0.0)

    async def _event(self, event: Event, gap: int) -> str:
        numbers = await self._number(event)
        slug = await self._services.pages.slug_of(event.mind_id)

        def row() -> views.EventRowFragment:
            return views.EventRowFragment(row=shown.event_row(event, slug, numbers, gap_before=gap))

        return self._html(f"event {gap}", event.seq, "event_row", row)

    async def _cycle(self, mind: Mind, event: Event) -> str:
        completed = {"cycle_id": event.cycle_id, "data": event.data, "content": event.content}

        async def read() -> views.CycleRow:
            (row,) = await shown.cycle_rows(self._services, mind.slug, [completed])
            return row

        row = await self._readings.get(("cycle row", event.seq), read, since=0.0)
        return self._html("cycle", event.seq, "cycle_row", lambda: views.CycleRowFragment(row=row))

    async def _messages(self, topic: Topic, mind: Mind, event: Event) -> list[Piece]:
        cycle = (await self._number(event)).get(event.cycle_id) if event.cycle_id else None
        spoken = shown.spoken_of(event, cycle)
        pieces = []
        if spoken.in_reply_to is not None:
            for question in await self._services.events.get_many([spoken.in_reply_to]):
                asked = shown.spoken_of(question, None)
                html = self._message(shown.message_row(mind, asked, question, waits=False))
                pieces.append(Piece(topic.name, "patch", f"#msg-{asked.id}", html))
        html = self._message(shown.message_row(mind, spoken, event, waits=True))
        return [*pieces, Piece(topic.name, "append", "#messages", html)]

    def _message(self, row: views.MessageRow) -> str:
        context = views.MessageFragment(message=row)
        return self._site.renderer.fragment("fragments/message.html", context)

    # -- the state of minds --------------------------------------------------------------------

    def _mark(self, mind: UUID) -> None:
        if self._lists_minds or mind in self._followed:
            self._marked[mind] = _now()

    async def _states(self) -> list[Piece]:
        marked, self._marked = self._marked, {}
        readings = self._readings
        pieces: list[Piece] = []
        if self._owes_list:
            self._owes_list = False
            pieces.extend(await readings.get("rows", self._all_rows, since=self._began))
        for mind, since in marked.items():
            if self._lists_minds:
                row = await readings.get(("row", mind), partial(self._row, mind), since=since)
                pieces.append(row)
            followed = self._followed.get(mind)
            if followed is not None:
                read = partial(self._vitals, followed.name, mind)
                pieces.extend(await readings.get(("vitals", mind), read, since=since))
        return pieces

    async def _all_rows(self) -> tuple[Piece, ...]:
        minds = await self._services.minds.list_()
        return tuple(map(self._row_piece, await board.mind_rows(self._services, minds)))

    async def _row(self, mind_id: UUID) -> Piece:
        mind = await self._services.minds.by_id(mind_id)
        return self._row_piece(await board.mind_row(self._services, self._readings, mind))

    def _row_piece(self, row: views.MindRow) -> Piece:
        context = views.MindRowFragment(row=row)
        html = self._site.renderer.fragment("fragments/mind_row.html", context)
        return Piece("minds", "replace", f"#mind-{row.slug}", html)

    async def _vitals(self, topic: str, mind_id: UUID) -> tuple[Piece, ...]:
        mind = await self._services.minds.by_id(mind_id)
        render = self._site.renderer.fragment
        vitals = await board.vitals(self._services, self._readings, mind)
        slots = await board.workspace(self._services, mind)
        return tuple(
            Piece(topic, "replace", f"#{name}-{mind.slug}", html)
            for name, html in (
                ("vitals", render("fragments/vitals.html", vitals)),
                ("workspace", render("fragments/workspace.html", slots)),
            )
        )

    # -- all of it anew ------------------------------------------------------------------------

    async def _anew(self) -> AsyncIterator[Piece]:
        """Yield the newest of every tail as it is now, in place of what is too much to catch up."""
        services, render = self._services, self._site.renderer.fragment
        for topic in self._topics:
            slug = topic.mind.slug if topic.mind is not None else ""
            rows: tuple[Any, ...]
            if topic.kind == "events":
                f = topic.filter
                found = await services.events.before(
                    mind=f.mind, type_=f.type, text=f.q, since=f.since, until=f.until, limit=_ROWS
                )
                rows, body, target = await shown.event_rows(services, found), "event", "events-rows"
            elif topic.kind == "cycles" and topic.mind is not None:
                completed = await services.pages.cycles(topic.mind.id, limit=_ROWS)
                rows = await shown.cycle_rows(services, slug, completed)
                body, target = "cycle", f"cycles-{slug}"
            elif topic.kind == "conversation" and topic.mind is not None:
                spoken = await services.minds.transcript(topic.mind, limit=_MESSAGES)
                rows = await shown.message_rows(services, topic.mind, spoken)
                body, target = "message", "messages"
            else:
                continue
            tail = views.Tail(topic=topic.name, slug=slug, rows=rows)
            html = render(f"fragments/{body}_body.html", tail)
            yield Piece(topic.name, "patch", f"#{target}", html)

    # -- what only the clock tells -------------------------------------------------------------

    async def _replay_rows(self) -> list[Piece]:
        if not any(t.kind == "replays" for t in self._topics):
            return []

        async def read() -> tuple[panels.ReplayRow, ...]:
            runs = await self._services.replays.list_(limit=_REPLAYS)
            return tuple(replay_row(r) for r in reversed(runs))

        rows = await self._readings.get("replays", read, since=_now() - TICK_S / 2)
        changed = [r for r in rows if self._replays.get(r.id) != r]
        self._replays = {r.id: r for r in rows}
        render = self._site.renderer.fragment
        pieces = []
        for row in changed:
            context = panels.ReplayRowFragment(row=row)
            for mode, name in (("replace", "row"), ("patch", "head")):
                html = render(f"fragments/replay_{name}.html", context)
                target = f"#replay-{row.id}" if name == "row" else f"#replay-head-{row.id}"
                pieces.append(Piece("replays", mode, target, html))
        return pieces

    async def _call_rows(self) -> list[Piece]:
        if not any(t.kind == "calls" for t in self._topics):
            return []

        async def read() -> tuple[CallLine, ...]:
            return await newest_lines(self._call, limit=_CALLS)

        rows = await self._readings.get("calls", read, since=_now() - TICK_S / 2)
        changed = [r for r in rows if self._calls.get(r.id) != r]
        self._calls = {r.id: r for r in rows}
        render = self._site.renderer.fragment
        return [
            Piece(
                "calls",
                "replace",
                f"#call-{row.id}",
                render("fragments/call_row.html", CallRowFragment(row=row)),
            )
            for row in changed
        ]

    async def _system(self) -> list[Piece]:
        if not any(t.kind == "system" for t in self._topics):
            return []

        async def read() -> panels.Tiles:
            return await tiles(self._services)

        found = await self._readings.get("system", read, since=_now() - TICK_S / 2)
        if found == self._tiles:
            return []
        self._tiles = found
        html = self._site.renderer.fragment("fragments/tiles.html", found)
        return [Piece("system", "replace", "#tiles", html)]


def _now() -> float:
    return asyncio.get_running_loop().time()

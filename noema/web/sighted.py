"""What handlers are given in place of the plain services: the same, as one identity sees it.

A handler cannot forget to ask: what it reads has been veiled, what it may not know of is not there.
A veiled event has no content and looks redacted to whoever computes with it, so that scores, flips
and dry-runs come out as they are; `veil_of` tells the two apart for whoever shows it.
"""

import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from noema.auth.sight import Sight
from noema.cognition.minds import (
    Accepted,
    Conversation,
    GoalRow,
    Minds,
    NewStimulus,
    SettingsVersion,
    Spoken,
)
from noema.cognition.model import Mind
from noema.core.errors import NotFound
from noema.core.identity import check_namespace
from noema.events.log import EventLog, LogLine
from noema.events.model import Event
from noema.llm.desk import Llm
from noema.replay.model import Replay
from noema.web.services import Services
from noema.web.store import Pages, Place

_KEY: Final = "hidden"
_TOKEN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,79}\Z")
_MOST_MINDS: Final = 1_000_000


class Hidden(str):
    """What stands in place of a text that the reader may not see."""

    __slots__ = ()


def notice(why: str) -> Hidden:
    """Return the text that pages show in place of the hidden one."""
    return Hidden(f"hidden: {why}")


def veil_of(content: Mapping[str, Any]) -> Hidden | None:
    """Return why the content of an event is hidden, None where it is not."""
    found = content.get(_KEY)
    return found if isinstance(found, Hidden) else None


def shown_text(text: str) -> str | None:
    """Return the text for programs: None where it is hidden."""
    return None if isinstance(text, Hidden) else text


def veiled(event: Event, why: str) -> Event:
    """Return the event without its content, and of its data only ids, types, times and numbers."""
    content: dict[str, Any] = {_KEY: notice(why)}
    if event.is_redacted:
        content["redacted"] = True
    return msgspec.structs.replace(event, content=content, data=_bare(event.data), salt=None)


def _bare(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _bare(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_bare(v) for v in value]
    if isinstance(value, str):
        return value if _TOKEN.match(value) else _KEY
    return value


class Sighted:
    """The services as one identity may use them."""

    def __init__(self, plain: Services, sight: Sight) -> None:
        self._plain = plain
        self.sight = sight
        self.settings = plain.settings
        self.is_embedded = plain.is_embedded
        self.protection = plain.protection
        self.clock = plain.clock
        self.ids = plain.ids
        self.db = plain.db
        self.writer = plain.writer
        self.runner = plain.runner
        self.access = plain.access
        self.health = plain.health
        # The kernel asks who it is at every syscall; there is nothing to veil.
        self.memory = plain.memory
        self.pages: Pages = SightedPages(plain, sight)
        self.events: EventLog = SightedLog(plain, sight)
        self.minds: Minds = SightedMinds(plain, sight)
        self.replays = SightedReplays(plain, sight)
        self.feed = SightedFeed(plain, sight)

    @property
    def llm(self) -> Llm:
        """Models; of calls the handlers show what the identity may see."""
        return self._plain.llm


class _Veil:
    """Hides events, one or many; what is not known of is None, or left out."""

    def __init__(self, plain: Services, sight: Sight) -> None:
        self._pages = plain.pages
        self._sight = sight

    async def one(self, event: Event) -> Event | None:
        if event.mind_id is None:
            return event
        place = await self._pages.place_of(event.mind_id)
        if place is None or not self._sight.knows(place.namespace):
            return None
        if self._sight.sees(place.namespace):
            return event
        return veiled(event, self._sight.why_hidden(place.namespace))

    async def many(self, events: Iterable[Event]) -> list[Event]:
        seen = [await self.one(e) for e in events]
        return [e for e in seen if e is not None]


class SightedLog(EventLog):
    """The log, veiled. What is searched for in texts is looked for in visible ones only."""

    def __init__(self, plain: Services, sight: Sight) -> None:
        super().__init__(db=plain.db)
        self._pages = plain.pages
        self._sight = sight
        self._veil = _Veil(plain, sight)

    async def _known(self) -> list[UUID] | None:
        if self._sight.tenants is None:
            return None
        places = await self._pages.places()
        return [i for i, p in places.items() if self._sight.knows(p.namespace)]

    async def _readable(self, mind: UUID | None) -> list[UUID]:
        places = await self._pages.places()
        if mind is not None and mind in places:
            self._sight.require_sight(places[mind].namespace)
        return [i for i, p in places.items() if self._sight.sees(p.namespace)]

    async def after(
        self,
        seq: int,
        *,
        mind: UUID | None = None,
        type_: str | None = None,
        minds: Sequence[UUID] | None = None,
        limit: int = 100,
    ) -> list[Event]:
        known = await self._known() if minds is None else minds
        found = await super().after(seq, mind=mind, type_=type_, minds=known, limit=limit)
        return await self._veil.many(found)

    async def before(
        self,
        seq: int | None = None,
        *,
        mind: UUID | None = None,
        type_: str | None = None,
        text: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        minds: Sequence[UUID] | None = None,
        limit: int = 100,
    ) -> list[Event]:
        if minds is None:
            minds = await (self._known() if text is None else self._readable(mind))
        found = await super().before(
            seq,
            mind=mind,
            type_=type_,
            text=text,
            since=since,
            until=until,
            minds=minds,
            limit=limit,
        )
        return await self._veil.many(found)

    async def get_many(self, ids: Sequence[UUID]) -> list[Event]:
        return await self._veil.many(await super().get_many(ids))

    async def of_cycles(self, cycle_ids: Sequence[UUID]) -> list[Event]:
        return await self._veil.many(await super().of_cycles(cycle_ids))

    async def sources(self, event_id: UUID, *, limit: int = 200) -> list[tuple[str, Event]]:
        found = [
            (kind, await self._veil.one(e))
            for kind, e in await super().sources(event_id, limit=limit)
        ]
        return [(kind, e) for kind, e in found if e is not None]

    async def consequences(self, event_id: UUID, *, limit: int = 200) -> list[Event]:
        return await self._veil.many(await super().consequences(event_id, limit=limit))

    async def waiting(
        self, mind: UUID, *, control: int, stimuli: int, most_control: int, most_stimuli: int
    ) -> tuple[list[Event], list[Event]]:
        found = await super().waiting(
            mind,
            control=control,
            stimuli=stimuli,
            most_control=most_control,
            most_stimuli=most_stimuli,
        )
        return await self._veil.many(found[0]), await self._veil.many(found[1])

    async def stimuli_between(
        self, mind: UUID, after: int, through: int, *, limit: int
    ) -> list[Event]:
        found = await super().stimuli_between(mind, after, through, limit=limit)
        return await self._veil.many(found)

    async def control_between(
        self, mind: UUID, after: int, through: int, *, limit: int
    ) -> list[Event]:
        found = await super().control_between(mind, after, through, limit=limit)
        return await self._veil.many(found)

    async def search(
        self, mind: UUID, words: Sequence[str], *, through: int, limit: int
    ) -> list[LogLine]:
        if mind not in await self._readable(mind):
            return []
        return await super().search(mind, words, through=through, limit=limit)


class SightedMinds(Minds):
    """Minds that are known of; what they think, hear and are told is veiled."""

    def __init__(self, plain: Services, sight: Sight) -> None:
        super().__init__(
            db=plain.db,
            events=plain.events,
            writer=plain.writer,
            clock=plain.clock,
            ids=plain.ids,
        )
        self._sight = sight

    def _as_seen(self, mind: Mind) -> Mind:
        if self._sight.sees(mind.namespace):
            return mind
        error = None if mind.last_error is None else self._notice(mind)
        return msgspec.structs.replace(mind, name=mind.slug, last_error=error)

    def _notice(self, mind: Mind) -> Hidden:
        return notice(self._sight.why_hidden(mind.namespace))

    async def get(self, slug: str) -> Mind:
        mind = await super().get(slug)
        if not self._sight.knows(mind.namespace):
            raise NotFound("mind", slug)
        return self._as_seen(mind)

    async def by_id(self, mind: UUID) -> Mind:
        found = await super().by_id(mind)
        if not self._sight.knows(found.namespace):
            raise NotFound("mind", mind)
        return self._as_seen(found)

    async def list_(self, *, after: str | None = None, limit: int = 500) -> list[Mind]:
        found: list[Mind] = []
        while len(found) < limit:
            page = await super().list_(after=after, limit=limit)
            found += [self._as_seen(m) for m in page if self._sight.knows(m.namespace)]
            if len(page) < limit:
                break
            after = page[-1].slug
        return found[:limit]

    async def settings_history(self, mind: Mind, *, limit: int = 50) -> list[SettingsVersion]:
        found = await super().settings_history(mind, limit=limit)
        if self._sight.sees(mind.namespace):
            return found
        return [
            msgspec.structs.replace(v, note=self._notice(mind) if v.note else "") for v in found
        ]

    async def conversations(self, mind: Mind, *, limit: int = 20) -> list[Conversation]:
        found = await super().conversations(mind, limit=limit)
        return [
            msgspec.structs.replace(c, messages=tuple(self._spoken(mind, c.messages)))
            for c in found
        ]

    async def transcript(self, mind: Mind, *, limit: int = 200) -> list[Spoken]:
        return self._spoken(mind, await super().transcript(mind, limit=limit))

    def _spoken(self, mind: Mind, said: Sequence[Spoken]) -> list[Spoken]:
        if self._sight.sees(mind.namespace):
            return list(said)
        return [msgspec.structs.replace(s, text=self._notice(mind)) for s in said]

    async def workspace(self, mind: Mind) -> tuple[int, list[dict[str, Any]]]:
        cycle, slots = await super().workspace(mind)
        if self._sight.sees(mind.namespace):
            return cycle, slots
        hidden = {"text": self._notice(mind), "topic": ""}
        return cycle, [{**_bare(s), **{k: v for k, v in hidden.items() if k in s}} for s in slots]

    async def goals(self, mind: Mind, *, closed: bool = False) -> list[GoalRow]:
        found = await super().goals(mind, closed=closed)
        if self._sight.sees(mind.namespace):
            return found
        return [msgspec.structs.replace(g, text=self._notice(mind)) for g in found]

    # -- what needs a membership that writes, beside the console role --------------------------

    async def create(
        self,
        *,
        slug: str,
        name: str | None = None,
        namespace: str = "home",
        settings: Mapping[str, Any] | None = None,
        actor: str,
        key: str | None = None,
    ) -> Mind:
        check_namespace(namespace)
        self._sight.require_write(namespace)
        return await super().create(
            slug=slug, name=name, namespace=namespace, settings=settings, actor=actor, key=key
        )

    async def rename(self, slug: str, name: str, *, actor: str) -> Mind:
        self._sight.require_write((await self.get(slug)).namespace)
        return await super().rename(slug, name, actor=actor)

    async def set_mode(
        self, slug: str, name: str, *, for_s: int | None = None, focus: str = "", actor: str
    ) -> Mind:
        if focus:
            self._sight.require_write((await self.get(slug)).namespace)
        return await super().set_mode(slug, name, for_s=for_s, focus=focus, actor=actor)

    async def receive(
        self, slug: str, stimuli: Sequence[NewStimulus], *, actor: str, key: str | None = None
    ) -> Accepted:
        self._sight.require_write((await self.get(slug)).namespace)
        return await super().receive(slug, stimuli, actor=actor, key=key)

    async def say(
        self,
        slug: str,
        text: str,
        *,
        speaker: str,
        actor: str,
        conversation: UUID | None = None,
        key: str | None = None,
    ) -> Accepted:
        self._sight.require_write((await self.get(slug)).namespace)
        return await super().say(
            slug, text, speaker=speaker, actor=actor, conversation=conversation, key=key
        )

    async def add_goal(
        self, slug: str, text: str, *, priority: int, actor: str, key: str | None = None
    ) -> GoalRow:
        self._sight.require_write((await self.get(slug)).namespace)
        return await super().add_goal(slug, text, priority=priority, actor=actor, key=key)

    async def close_goal(self, slug: str, goal: UUID, *, actor: str) -> None:
        self._sight.require_write((await self.get(slug)).namespace)
        await super().close_goal(slug, goal, actor=actor)


class SightedPages(Pages):
    """The reads of the pages, veiled."""

    def __init__(self, plain: Services, sight: Sight) -> None:
        super().__init__(db=plain.db)
        self._base = plain.pages
        self._sight = sight

    async def place_of(self, mind: UUID | None) -> Place | None:
        return await self._base.place_of(mind)

    async def places(self) -> Mapping[UUID, Place]:
        return await self._base.places()

    async def cycles(
        self,
        mind: UUID,
        *,
        before: int | None = None,
        trigger: str | None = None,
        limit: int = 50,
    ) -> list[Mapping[str, Any]]:
        found = await super().cycles(mind, before=before, trigger=trigger, limit=limit)
        return await self._completed(mind, found)

    async def cycles_after(
        self, mind: UUID, number: int, *, trigger: str | None = None, limit: int = 50
    ) -> list[Mapping[str, Any]]:
        found = await super().cycles_after(mind, number, trigger=trigger, limit=limit)
        return await self._completed(mind, found)

    async def _completed(
        self, mind: UUID, rows: list[Mapping[str, Any]]
    ) -> list[Mapping[str, Any]]:
        place = await self._base.place_of(mind)
        if place is None or not self._sight.knows(place.namespace):
            return []
        if self._sight.sees(place.namespace):
            return rows
        hidden = {_KEY: notice(self._sight.why_hidden(place.namespace))}
        return [{**row, "data": _bare(row["data"]), "content": hidden} for row in rows]

    async def cards(self, minds: Sequence[UUID], now: datetime) -> dict[UUID, Mapping[str, Any]]:
        found = await super().cards(minds, now)
        for mind, card in found.items():
            place = await self._base.place_of(mind)
            if card["winner"] and (place is None or not self._sight.sees(place.namespace)):
                why = "" if place is None else self._sight.why_hidden(place.namespace)
                found[mind] = {**card, "winner": {"text": notice(why)}}
        return found

    async def minds_called(
        self, text: str, *, with_cycle: int | None = None, limit: int = 8
    ) -> list[Mapping[str, Any]]:
        found = await super().minds_called(text, with_cycle=with_cycle, limit=_MOST_MINDS)
        shown = []
        for mind in found:
            if not self._sight.knows(mind["namespace"]):
                continue
            if self._sight.sees(mind["namespace"]):
                shown.append(mind)
            elif with_cycle is not None or text.lower() in f"{mind['slug']} {mind['namespace']}":
                # A name is content: who may not see it does not find by it either.
                shown.append({**mind, "name": mind["slug"]})
        return shown[:limit]

    async def slug_of(self, mind: UUID | None) -> str | None:
        place = await self._base.place_of(mind)
        return None if place is None or not self._sight.knows(place.namespace) else place.slug

    async def counts(self) -> Mapping[str, Any]:
        return {**await super().counts(), "minds": len(await self.known_slugs())}

    async def leases(self) -> list[dict[str, Any]]:
        known = await self.known_slugs()
        return [lease for lease in await super().leases() if lease["slug"] in known]

    async def known_slugs(self) -> frozenset[str]:
        places = await self._base.places()
        return frozenset(p.slug for p in places.values() if self._sight.knows(p.namespace))


class SightedReplays:
    """Replays of minds that are known of; their notes and quotations are veiled."""

    def __init__(self, plain: Services, sight: Sight) -> None:
        self._plain = plain
        self._sight = sight

    async def start_verify(
        self,
        mind: Mind,
        *,
        first: int | None = None,
        last: int | None = None,
        actor: str,
        key: str | None = None,
    ) -> UUID:
        """Start a verification; see Replays. The mind came from `SightedMinds`, as it is seen."""
        return await self._plain.replays.start_verify(
            mind, first=first, last=last, actor=actor, key=key
        )

    async def get(self, id_: UUID) -> Replay:
        """Return the replay; NotFound also where its mind is not known of."""
        found = self._seen(await self._plain.replays.get(id_), await self._namespaces())
        if found is None:
            raise NotFound("replay", id_)
        return found

    async def list_(self, *, mind: str | None = None, limit: int = 50) -> list[Replay]:
        """Return the newest replays of minds that are known of."""
        namespaces = await self._namespaces()
        most = limit if self._sight.tenants is None else _MOST_MINDS
        rows = await self._plain.replays.list_(mind=mind, limit=most)
        seen = (self._seen(r, namespaces) for r in rows)
        return [r for r in seen if r is not None][:limit]

    async def _namespaces(self) -> dict[str, str]:
        return {p.slug: p.namespace for p in (await self._plain.pages.places()).values()}

    def _seen(self, replay: Replay, namespaces: Mapping[str, str]) -> Replay | None:
        namespace = namespaces.get(replay.mind)
        if namespace is None or not self._sight.knows(namespace):
            return None
        if self._sight.sees(namespace):
            return replay
        why = notice(self._sight.why_hidden(namespace))
        found = replay.first_difference
        if found is not None:
            found = msgspec.structs.replace(
                found,
                recorded=_bare(found.recorded),
                recomputed=_bare(found.recomputed),
                what=why,
            )
        return msgspec.structs.replace(
            replay,
            first_difference=found,
            notes=(why,) if replay.notes else (),
            error=why if replay.error else None,
        )


class SightedFeed:
    """The live end of the log, veiled."""

    def __init__(self, plain: Services, sight: Sight) -> None:
        self._feed = plain.feed
        self._veil = _Veil(plain, sight)

    @property
    def head(self) -> int:
        """The newest position this process has seen."""
        return self._feed.head

    @property
    def watchers(self) -> int:
        """How many follow."""
        return self._feed.watchers

    @property
    def is_lagging(self) -> bool:
        """Whether the log cannot be read now."""
        return self._feed.is_lagging

    async def follow(
        self,
        after: int | None,
        *,
        mind: UUID | None = None,
        type_: str | None = None,
        idle_s: float | None = None,
    ) -> AsyncGenerator[Event | None, None]:
        """Yield what `Feed.follow` does, veiled.

        In place of an event that is not known of comes None where it ended a burst, else nothing.
        """
        events = self._feed.follow(after, mind=mind, type_=type_, idle_s=idle_s)
        try:
            async for event in events:
                seen = None if event is None else await self._veil.one(event)
                if seen is not None or event is None or event.seq >= self._feed.head:
                    yield seen
        finally:
            await events.aclose()

"""The present state of minds as the list, the vitals and the workspace show it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from noema.cognition import habits
from noema.cognition.model import MICRO, Mind, MindSettings
from noema.cognition.state import FADED
from noema.core.clock import from_micros, to_micros
from noema.events.model import encode_position
from noema.web import views
from noema.web.live import Readings
from noema.web.pages.shown import clipped, is_redacted, status_of
from noema.web.services import Services
from noema.web.sighted import Hidden

_PER_MINUTE_LASTS_S: Final = 20.0


async def mind_rows(services: Services, minds: Sequence[Mind]) -> tuple[views.MindRow, ...]:
    """Return the minds as rows of the list, in the order given; one query for all of them."""
    if not minds:
        return ()
    ids = [m.id for m in minds]
    now = services.clock.now()
    cards = await services.pages.cards(ids, now)
    per_minute = await services.pages.cycles_per_minute(ids, now)
    return tuple(_mind_row(m, cards[m.id], per_minute[m.id]) for m in minds)


async def mind_row(services: Services, readings: Readings, mind: Mind) -> views.MindRow:
    """Return one mind as a row; its sparkline may be some seconds old but for the last minute."""
    cards = await services.pages.cards([mind.id], services.clock.now())
    return _mind_row(mind, cards[mind.id], await per_minute(services, readings, mind))


def _mind_row(
    mind: Mind, card: Mapping[str, Any], cycles_per_minute: tuple[int, ...]
) -> views.MindRow:
    winner = (card["winner"] or {}).get("text")
    return views.MindRow(
        slug=mind.slug,
        name=mind.name,
        namespace=mind.namespace,
        mode=mind.mode,
        status=status_of(mind),
        cycles=mind.cycles,
        last_cycle_at=mind.last_cycle_at,
        cycles_per_minute=cycles_per_minute,
        backlog=card["backlog"],
        pending=mind.pending,
        latest_winner=None if winner is None else _line(winner),
        latest_cycle=card["winner_cycle"] or mind.cycles or None,
        errors=card["failures"] + (mind.last_error is not None),
        error=mind.last_error,
    )


async def per_minute(services: Services, readings: Readings, mind: Mind) -> tuple[int, ...]:
    """Return the cycles of the last sixty minutes, read anew every few seconds.

    What was thought since that reading counts into the last minute.
    """

    async def read() -> tuple[int, tuple[int, ...]]:
        fresh = await services.minds.by_id(mind.id)
        found = await services.pages.cycles_per_minute([mind.id], services.clock.now())
        return fresh.cycles, found[mind.id]

    since = asyncio.get_running_loop().time() - _PER_MINUTE_LASTS_S
    cycles, counts = await readings.get(("per minute", mind.id), read, since=since)
    return (*counts[:-1], counts[-1] + max(0, mind.cycles - cycles))


async def vitals(services: Services, readings: Readings, mind: Mind) -> views.MindVitals:
    """Return what changes of the mind with every cycle."""
    backlog = await services.minds.backlog(mind)
    return views.MindVitals(
        slug=mind.slug,
        mode=mind.mode,
        status=status_of(mind),
        cycles=mind.cycles,
        last_cycle_at=mind.last_cycle_at,
        cycles_per_minute=await per_minute(services, readings, mind),
        next_due=mind.next_due,
        backlog=backlog,
        pending=mind.pending,
        cursor=encode_position(mind.cursor),
        behind=backlog,
        settings_version=mind.settings_version,
        error=mind.last_error,
    )


async def workspace(services: Services, mind: Mind) -> views.Workspace:
    """Return the thoughts in focus, strongest first, faded to what they are worth now."""
    settings = await services.minds.settings(mind)
    _, slots = await services.minds.workspace(mind)
    thoughts = await services.events.get_many([UUID(str(s["thought"])) for s in slots])
    redacted = {str(e.id) for e in thoughts if is_redacted(e)}
    now_us = to_micros(services.clock.now())
    in_focus = [s for s in (_slot(s, settings, now_us, redacted) for s in slots) if s.strength]
    in_focus.sort(key=lambda s: -s.strength)
    places = max(settings.capacity, len(in_focus))
    vacant = [views.Slot(index=0) for _ in range(places - len(in_focus))]
    return views.Workspace(
        slug=mind.slug,
        slots=tuple(replace(s, index=i) for i, s in enumerate((*in_focus, *vacant), start=1)),
    )


def _line(text: str) -> str:
    return text if isinstance(text, Hidden) else clipped(text)


def _slot(
    raw: Mapping[str, Any], settings: MindSettings, now_us: int, redacted: set[str]
) -> views.Slot:
    half_life_us = settings.slot_half_life_s * MICRO
    strength = habits.decay(MICRO, now_us - raw["admitted_us"], half_life_us)
    return views.Slot(
        index=0,
        event_id=str(raw["thought"]),
        text=None if str(raw["thought"]) in redacted else _line(raw["text"]),
        process=raw["process"],
        topic=raw["topic"],
        strength=strength if strength >= FADED else 0,
        entered_at=from_micros(raw["admitted_us"]),
        cycle=raw["cycle"],
    )

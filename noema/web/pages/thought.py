"""One thought: what it came from, why it won or lost, and what came of it."""

from collections.abc import Sequence
from uuid import UUID

from starlette.responses import Response

from noema.cognition.model import Candidate
from noema.cognition.record import COMPLETE, RecordedCycle, read
from noema.core.errors import NotFound
from noema.events.model import Event
from noema.web import forms, views
from noema.web.call import Call
from noema.web.pages.cycle import candidates, features_of
from noema.web.pages.shell import page, position
from noema.web.pages.shown import head_of, is_redacted, link, text_of
from noema.web.services import Services

_CAUSES = 60
_KINDS = {"noticed": "noticed", "said": "said", "refused": "refused", "unknown": "outcome unknown"}


async def show(call: Call) -> Response:
    services, at = call.services, await position(call)
    mind = await services.minds.get(call.path("slug"))
    event = await services.events.get(forms.uuid_of(call.path("event_id"), "thought"))
    is_thought = event.type in ("thought.admitted", "candidate.scored")
    if event.mind_id != mind.id or not is_thought or event.cycle_id is None:
        raise NotFound("thought", event.id)
    events = await services.events.of_cycles([event.cycle_id])
    cycle = read(events)
    thought, index = _found(event, events, cycle)
    scored, candidate = cycle.outcome.scored[index], cycle.candidates[index]
    settings = await services.minds.settings_of(mind, cycle.settings_version)
    row = candidates(cycle, features_of(cycle, settings), settings)[index]
    context = views.ThoughtPage(
        mind=head_of(mind),
        event_id=str(event.id),
        text=text_of(candidate, scored.candidate.text, 2_000),
        process=row.process,
        topic=row.topic,
        cycle=cycle.number,
        at=event.occurred_at,
        rank=row.rank,
        score=row.score,
        margin=row.margin,
        admitted=row.admitted,
        outcome=_outcome(row, cycle),
        contributions=row.contributions,
        causes=await _causes(services, thought, candidate, cycle),
        consequences=await _consequences(services, thought, events),
        rests_on=tuple(str(memory) for memory in _rests_on(scored.candidate)),
        asked=_asked(events, row.process),
        folded=scored.candidate.folded if candidate.causes else 0,
        redacted=is_redacted(candidate),
        json_href=f"/v1/events/{event.id}",
    )
    return page(
        call,
        "thought.html",
        context,
        title=f"Thought of {mind.name}",
        active="minds",
        mind=mind.slug,
        at=at,
    )


def _rests_on(candidate: Candidate) -> tuple[UUID, ...]:
    brought_back = () if candidate.memory is None else (candidate.memory,)
    return tuple(dict.fromkeys((*brought_back, *candidate.sources)))


def _asked(events: Sequence[Event], process: str) -> tuple[views.AskedModel, ...]:
    """Return what the process asked models in this cycle."""
    return tuple(
        views.AskedModel(
            prompt=str(e.data.get("prompt", "")),
            call=None if e.data.get("call") is None else str(e.data["call"]),
            failed=str(e.data.get("failed", "")),
            waited_us=int(e.data.get("waited_us", 0)),
            asked_in=e.data.get("asked_in"),
        )
        for e in events
        if e.type == "port.answered" and (e.data["process"], e.data["port"]) == (process, COMPLETE)
    )


def _found(event: Event, events: Sequence[Event], cycle: RecordedCycle) -> tuple[Event | None, int]:
    """Return the thought, if the candidate became one, and which candidate of the cycle it is."""
    candidate_id = event.id
    thought: Event | None = None
    if event.type == "thought.admitted":
        thought, candidate_id = event, UUID(event.data["candidate"])
    else:
        admitted = (e for e in events if e.type == "thought.admitted")
        thought = next((e for e in admitted if event.id in e.causes), None)
    for index, candidate in enumerate(cycle.candidates):
        if candidate.id == candidate_id:
            return thought, index
    raise NotFound("thought", event.id)


def _outcome(row: views.Candidate, cycle: RecordedCycle) -> str:
    if row.admitted:
        return "admitted"
    if row.gate is not None:
        return f"held by the gate {row.gate}"
    return "below the threshold" if row.score < cycle.outcome.threshold else "beyond K"


async def _causes(
    services: Services, thought: Event | None, candidate: Event, cycle: RecordedCycle
) -> tuple[views.LinkRow, ...]:
    """Return the candidate that became it, what that was about, and what else it looked at."""
    links = []
    depth = 1
    if thought is not None:
        links.append(link(candidate, f"proposed by {candidate.data['process']}"))
        depth = 2
    kinds: dict[UUID, str] = {}
    if thought is not None:
        for kind, source in await services.events.sources(thought.id, limit=_CAUSES):
            kinds[source.id] = _KINDS.get(kind, kind)
    stimuli = await services.events.get_many([*candidate.causes][:_CAUSES])
    folded = candidate.data["folded"] if len(candidate.causes) == 1 else 0
    links.extend(link(e, kinds.pop(e.id, "noticed"), depth=depth, folded=folded) for e in stimuli)
    if kinds:
        others = await services.events.get_many(list(kinds))
        links.extend(link(e, kinds[e.id], depth=depth) for e in others)
    known = {x.event_id for x in links}
    for answer in cycle.answers:
        if answer.process == candidate.data["process"]:
            found = [f.id for f in answer.found if str(f.id) not in known]
            looked_up = await services.events.get_many(found[:_CAUSES])
            links.extend(link(e, "found in the log", depth=depth) for e in looked_up)
    return tuple(links)


async def _consequences(
    services: Services, thought: Event | None, events: Sequence[Event]
) -> tuple[views.LinkRow, ...]:
    """Return what names the thought as a cause, what names that, and so on within its cycle."""
    if thought is None:
        return ()
    derived = await services.events.consequences(thought.id)
    later: list[Event] = []
    if thought.mind_id is not None:
        ids = await services.pages.followers(thought.mind_id, thought.seq, thought.id)
        later = await services.events.get_many(ids)
    pool = {e.id: e for e in (*events, *derived, *later)}
    depth_of = {thought.id: 0}
    depth_of |= {e.id: 1 for e in derived}
    for event in sorted(pool.values(), key=lambda e: e.seq):
        depths = [depth_of[c] for c in event.causes if c in depth_of]
        if depths and event.id not in depth_of:
            depth_of[event.id] = 1 + min(depths)
    found = [(pool[i], d) for i, d in depth_of.items() if d]
    found.sort(key=lambda f: (f[1], f[0].seq))
    return tuple(link(e, _relation(e), depth=d) for e, d in found)


def _relation(event: Event) -> str:
    return {
        "workspace.broadcast": "made known to all processes",
        "message.sent": "said",
        "action.started": "acted on",
        "action.completed": "done",
        "action.refused": "refused",
        "action.outcome_unknown": "outcome unknown",
        "memory.written": "remembered",
        "memory.waits": "waits for memory",
        "candidate.scored": "thought of again",
        "thought.admitted": "led to",
    }.get(event.type, "followed")

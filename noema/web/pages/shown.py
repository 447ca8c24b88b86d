"""Events, cycles and messages as the rows that pages and the live stream show."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from noema.cognition.minds import Spoken
from noema.cognition.model import Mind
from noema.core.clock import from_micros
from noema.events.model import Event, encode_position
from noema.web import views
from noema.web.render import number, score
from noema.web.services import Services
from noema.web.sighted import Hidden, veil_of

_LONGEST: Final = 300


def clipped(text: str, longest: int = _LONGEST) -> str:
    """Return the text as one line of bounded length."""
    line = " ".join(text[: longest * 4].split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def summary(event: Event) -> str | None:
    """Return in one line what the event says, or why that is hidden; None where it is redacted."""
    veil = veil_of(event.content)
    if veil is not None or event.is_redacted:
        return None if is_redacted(event) else veil
    try:
        return clipped(_said(event))
    except (LookupError, TypeError, ValueError, AttributeError):
        # An event that something else than this program wrote is shown, not trusted.
        return "its data is not what this type holds"


def is_redacted(event: Event) -> bool:
    """Whether the content was removed from history; what is only hidden from the reader was not."""
    veil = veil_of(event.content)
    return event.is_redacted if veil is None else event.content.get("redacted") is True


def text_of(event: Event, text: str, longest: int = _LONGEST) -> str | None:
    """Return the text that came of the event as a line, why it is hidden, or None if redacted."""
    if event.is_redacted:
        return None if is_redacted(event) else veil_of(event.content)
    return clipped(text, longest)


def _said(event: Event) -> str:
    text = event.content.get("text")
    if event.type == "candidate.scored":
        won = "admitted" if event.data["admitted"] else event.data["gate"] or "not admitted"
        how = f"{event.data['process']} #{event.data['rank']} {score(event.data['score'])} {won}"
        return f"{how}: {text}"
    if isinstance(text, str):
        if event.type == "message.sent":
            return f"to {event.content.get('to') or 'everybody'}: {text}"
        speaker = event.content.get("speaker")
        return f"{speaker}: {text}" if speaker else text
    maker = _LINES.get(event.type)
    return maker(event.data, event.content) if maker else ""


def _completed(data: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    admitted = f"{number(data['admitted'])} of {number(data['candidates'])} admitted"
    winner = content.get("winner")
    return f"#{data['number']} {admitted}" + (f": {winner}" if winner else "")


def _mode_set(data: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    focus = content.get("focus")
    return f"{data['mode']}, focus: {focus}" if focus else str(data["mode"])


def _settings_set(data: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    note = content.get("note")
    return f"version {data['version']}" + (f": {note}" if note else "")


def _answered(data: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    request = content.get("request", {})
    if data["port"] == "recall":
        found = len(data.get("memories", ()))
        return f"{data['process']} asked memory: {request.get('query', '')}; {found} found"
    if data["port"] == "complete":
        answer = content.get("answer", {})
        came = f"no answer: {answer['failed']}" if answer.get("failed") else "answered"
        return f"{data['process']} asked a model to {request.get('prompt', '')}; {came}"
    words = ", ".join(request.get("words", ()))
    found = len(content.get("answer", ()))
    return f"{data['process']} looked in the log for {words}; {found} found"


def _expired(data: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    waited = f"{number(data['folded'])} waited {number(data['waited'])} cycles"
    return f"{waited}: {content.get('topic', '')}"


_Line = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
_LINES: Final[Mapping[str, _Line]] = {
    "mind.created": lambda _, c: f"{c.get('name')} in {c.get('namespace')}",
    "mind.renamed": lambda _, c: str(c.get("name")),
    "step.requested": lambda _, __: "one cycle",
    "mode.set": _mode_set,
    "mode.changed": lambda d, _: f"{d['from']} to {d['to']}, because: {d['on']}",
    "settings.set": _settings_set,
    "goal.closed": lambda _, __: "closed",
    "timer.fired": lambda d, _: f"{d['missed']} missed before it" if d["missed"] else "on time",
    "workspace.broadcast": lambda d, _: f"{len(d['slots'])} thoughts in focus",
    "cycle.completed": _completed,
    "port.answered": _answered,
    "stimulus.expired": _expired,
    "process.failed": lambda d, _: f"{d['process']} {d['why']}",
    "action.started": lambda d, _: str(d["act"]),
    "action.completed": lambda d, _: str(d["act"]),
    "action.refused": lambda d, _: f"{d['act']}: {d['reason']}",
    "action.outcome_unknown": lambda d, _: str(d["act"]),
    "memory.written": lambda d, _: f"{d['kind']} {d['outcome']}",
    "memory.waits": lambda d, _: f"{d['act']}: {d['reason']}",
    "daemon.started": lambda d, _: f"version {d['version']}, {d.get('protection', '')}",
}


async def cycle_numbers(services: Services, events: Sequence[Event]) -> dict[UUID, int]:
    """Return the number of every cycle that one of the events belongs to."""
    wanted = {e.cycle_id for e in events if e.cycle_id is not None}
    return await services.pages.cycle_numbers(list(wanted))


async def event_rows(
    services: Services, events: Sequence[Event], *, before: int | None = None
) -> tuple[views.EventRow, ...]:
    """Return the events as rows, in the order given.

    With `before`, the position that precedes the last of them, gaps between neighbours are counted;
    that makes sense only where they come newest first and nothing was filtered out.
    """
    if not events:
        return ()
    numbers = await cycle_numbers(services, events)
    older = [e.seq for e in events[1:]] + [before or 0]
    rows = []
    for event, previous in zip(events, older, strict=True):
        slug = await services.pages.slug_of(event.mind_id)
        gap = event.seq - previous - 1 if before is not None else 0
        rows.append(event_row(event, slug, numbers, gap_before=gap))
    return tuple(rows)


def event_row(
    event: Event, slug: str | None, numbers: Mapping[UUID, int], *, gap_before: int = 0
) -> views.EventRow:
    """Return one event as a row."""
    return views.EventRow(
        position=encode_position(event.seq),
        id=str(event.id),
        type=event.type,
        occurred_at=event.occurred_at,
        mind=slug,
        actor=event.actor,
        summary=summary(event),
        cycle=numbers.get(event.cycle_id) if event.cycle_id is not None else None,
        redacted=is_redacted(event),
        gap_before=max(0, gap_before),
    )


def link(event: Event, relation: str, *, depth: int = 1, folded: int = 0) -> views.LinkRow:
    """Return the event as a step of provenance or consequence."""
    return views.LinkRow(
        event_id=str(event.id),
        type=event.type,
        relation=relation,
        text=summary(event),
        at=event.occurred_at,
        depth=depth,
        folded=folded,
        redacted=is_redacted(event),
    )


async def cycle_rows(
    services: Services, slug: str, completed: Sequence[Mapping[str, Any]]
) -> tuple[views.CycleRow, ...]:
    """Return completed cycles (cycle_id, data, content of each) as rows, in the order given."""
    winners = [UUID(c["data"]["winner"]) for c in completed if c["data"]["winner"] is not None]
    thoughts = {str(e.id): e for e in await services.events.get_many(winners)} if winners else {}
    return tuple(
        cycle_row(slug, c["cycle_id"], c["data"], c["content"], thoughts.get(c["data"]["winner"]))
        for c in completed
    )


def cycle_row(
    slug: str,
    cycle_id: UUID | None,
    data: Mapping[str, Any],
    content: Mapping[str, Any],
    thought: Event | None,
) -> views.CycleRow:
    """Return one completed cycle as a row; `thought` is its winner, if it has one."""
    redacted = content.get("redacted") is True or (thought is not None and is_redacted(thought))
    winner = None if redacted else content.get("winner")
    veil = veil_of(content)
    if veil is not None and data["winner"] is not None and not redacted:
        winner = veil
    return views.CycleRow(
        slug=slug,
        number=data["number"],
        id=str(cycle_id),
        trigger=data["trigger"],
        started_at=from_micros(data["as_of_us"]),
        duration_us=data["duration_us"],
        candidates=data["candidates"],
        admitted=data["admitted"],
        winner=winner if winner is None or isinstance(winner, Hidden) else clipped(winner),
        process=None if thought is None else thought.data["process"],
        margin=data["margin"],
        redacted=redacted and data["winner"] is not None,
    )


async def message_rows(
    services: Services, mind: Mind, spoken: Sequence[Spoken]
) -> tuple[views.MessageRow, ...]:
    """Return what was said as rows; a redacted text is None."""
    events = {e.id: e for e in await services.events.get_many([s.id for s in spoken])}
    answered = {s.in_reply_to for s in spoken}
    return tuple(message_row(mind, s, events.get(s.id), waits=s.id not in answered) for s in spoken)


def message_row(
    mind: Mind, spoken: Spoken, event: Event | None, *, waits: bool
) -> views.MessageRow:
    """Return one line of a conversation; `event` is the one of the same id."""
    from_mind = event is not None and event.type == "message.sent"
    thought = event.causes[0] if event is not None and from_mind and event.causes else None
    return views.MessageRow(
        id=str(spoken.id),
        slug=mind.slug,
        speaker=mind.name if from_mind else spoken.speaker,
        from_mind=from_mind,
        text=None if event is not None and is_redacted(event) else spoken.text,
        at=spoken.at,
        cycle=spoken.cycle,
        thought_id=None if thought is None else str(thought),
        waiting=waits and not from_mind,
    )


def spoken_of(event: Event, cycle: int | None) -> Spoken:
    """Return what the event says was said, as its projection will hold it."""
    reply = event.data.get("in_reply_to")
    return Spoken(
        id=event.id,
        conversation_id=UUID(event.data["conversation"]),
        speaker=str(event.content.get("speaker", "")),
        text=veil_of(event.content) or str(event.content.get("text", "")),
        at=event.occurred_at,
        in_reply_to=None if reply is None else UUID(reply),
        cycle=cycle,
    )


def plain_micro(value: int) -> str:
    """Return millionths as people write them: 1200000 gives 1.2."""
    return plain_decimal(value, 6)


def plain_decimal(value: int, places: int) -> str:
    """Return value / 10^places exactly, without zeros at its end."""
    whole, rest = divmod(abs(value), 10**places)
    digits = f"{rest:0{places}d}".rstrip("0")
    return f"{'-' if value < 0 else ''}{whole}{'.' if digits else ''}{digits}"


def head_of(mind: Mind) -> views.MindHead:
    """Return what the head of every page of the mind shows."""
    return views.MindHead(
        slug=mind.slug,
        name=mind.name,
        namespace=mind.namespace,
        mode=mind.mode,
        status=status_of(mind),
    )


def status_of(mind: Mind) -> str:
    """Return `paused` for a mind in that mode, else its status."""
    return "paused" if mind.mode == "paused" else mind.status

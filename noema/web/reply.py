"""Answers in JSON, and the public shapes of minds, cycles and events."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from noema.cognition.minds import Conversation, GoalRow
from noema.cognition.model import MICRO, Mind, MindSettings, Scored
from noema.cognition.record import RecordedCycle
from noema.core.clock import from_micros
from noema.events.model import Event, encode_position
from noema.web.sighted import Hidden, shown_text, veil_of


class Json(Response):
    """A JSON answer; times are RFC 3339 in UTC, ids their usual text."""

    media_type = "application/json"

    def __init__(
        self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(
            encode(content),
            status_code=status_code,
            headers={"Cache-Control": "no-store", **(headers or {})},
        )


def encode(value: Any) -> bytes:
    """Return JSON in UTF-8; half a surrogate pair, which UTF-8 cannot hold, is spelt \\udXXX."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, enc_hook=_plain), ensure_ascii=True).encode()


def _plain(value: object) -> object:
    if isinstance(value, Hidden):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be shown as JSON")


def page(items: Sequence[Any], next_: str | None) -> dict[str, Any]:
    """Return one page of a list; `next` is the cursor of the following one, or null."""
    return {"items": items, "next": next_}


def mind(row: Mind, *, backlog: int) -> dict[str, Any]:
    """Return a mind as the interfaces promise it."""
    return {
        "slug": row.slug,
        "name": row.name,
        "namespace": row.namespace,
        "status": "paused" if row.mode == "paused" else row.status,
        "mode": row.mode,
        "mode_until": row.mode_until,
        "backlog": backlog,
        "pending": row.pending,
        "cycles": row.cycles,
        "last_cycle_at": row.last_cycle_at,
        "next_due": row.next_due,
        "settings_version": row.settings_version,
        "position": encode_position(row.cursor),
        "last_error": None if row.last_error is None else shown_text(row.last_error),
    }


def settings(value: MindSettings) -> dict[str, Any]:
    """Return settings as they are kept: weights in micro-units."""
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found


def cycle_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return one completed cycle of a list."""
    data = row["data"]
    winner = None
    if data["winner"] is not None:
        winner = {"thought": data["winner"], "text": row["content"].get("winner")}
    return {
        "number": data["number"],
        "id": row["cycle_id"],
        "trigger": data["trigger"],
        "mode": data["mode"],
        "started_at": from_micros(data["as_of_us"]),
        "duration_ms": data["duration_us"] / 1000,
        "candidates": data["candidates"],
        "admitted": data["admitted"],
        "pending": data["pending"],
        "winner": winner,
        "margin": data["margin"],
    }


def cycle(recorded: RecordedCycle) -> dict[str, Any]:
    """Return one cycle whole."""
    completed = recorded.completed
    row = {"data": completed.data, "content": completed.content, "cycle_id": recorded.id}
    return cycle_row(row) | {
        "settings_version": recorded.settings_version,
        "scorer_version": recorded.scorer_version,
        "weights": recorded.outcome.weights,
        "threshold": recorded.outcome.threshold,
        "k": recorded.outcome.k,
        "candidate_set": recorded.candidate_set,
        "timings_us": completed.data["timings_us"],
        "candidates": [
            candidate(s, e)
            for s, e in zip(recorded.outcome.scored, recorded.candidates, strict=True)
        ],
    }


def candidate(scored: Scored, event: Event) -> dict[str, Any]:
    """Return one candidate with everything that decided over it; what is hidden is null."""
    proposed = scored.candidate
    is_hidden = veil_of(event.content) is not None
    return {
        "id": event.id,
        "process": proposed.process,
        "topic": None if is_hidden else proposed.topic,
        "text": None if is_hidden else proposed.text,
        "stimuli": proposed.stimuli,
        "folded": proposed.folded,
        "features": scored.features,
        "raw": scored.raw,
        "contributions": scored.contributions,
        "score": scored.score,
        "rank": scored.rank,
        "gate": scored.gate,
        "admitted": scored.admitted,
    }


def event(row: Event, slug: str | None) -> dict[str, Any]:
    """Return an event as the interfaces promise it; `mind` is a slug."""
    return {
        "position": encode_position(row.seq),
        "id": row.id,
        "mind": slug,
        "cycle": row.cycle_id,
        "type": row.type,
        "actor": row.actor,
        "occurred_at": row.occurred_at,
        "recorded_at": row.recorded_at,
        "causes": row.causes,
        "payload": row.payload,
    }


def goal(row: GoalRow) -> dict[str, Any]:
    """Return a goal; its priority from 0 to 1."""
    return {
        "id": row.id,
        "text": shown_text(row.text),
        "priority": row.priority / MICRO,
        "status": "open" if row.closed_at is None else "closed",
        "actor": row.actor,
        "created_at": row.created_at,
        "closed_at": row.closed_at,
    }


def conversation(row: Conversation) -> dict[str, Any]:
    """Return a conversation, its messages oldest first."""
    return {
        "id": row.id,
        "started_at": row.started_at,
        "with": row.actor,
        "messages": [
            {
                "id": m.id,
                "speaker": m.speaker,
                "text": shown_text(m.text),
                "at": m.at,
                "cycle": m.cycle,
                "in_reply_to": m.in_reply_to,
            }
            for m in row.messages
        ],
    }

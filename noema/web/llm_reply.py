"""What programs are told about models: never a secret, and no content of where they do not look."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from noema.auth.sight import Sight
from noema.core.clock import from_micros, to_micros
from noema.core.errors import InvalidInput
from noema.llm.budget import BudgetState
from noema.llm.calls import CallRecord
from noema.llm.configured import ProviderRow, RoleRow, as_json
from noema.llm.embedders.choice import TAKES_EFFECT, InForce
from noema.llm.library import Prompt, PromptInUse
from noema.llm.model import Attempt, ChatMessage, Role
from noema.llm.roles import asked_by
from noema.web.sighted import notice

_UNTOLD: Final = ("stop", "extra")
_PLACE: Final = re.compile(r"([0-9]{1,17})\.([0-9a-f]{32})\Z")


def provider(row: ProviderRow) -> dict[str, Any]:
    """Return a provider: of its secret, that there is one, its end, and who set it when."""
    return {
        "id": row.id,
        "name": row.name,
        "kind": row.kind,
        "endpoint": row.endpoint,
        "model": row.model,
        "parameters": row.parameters,
        "prices": as_json(row.prices),
        "has_secret": row.has_secret,
        "secret_hint": row.secret_hint,
        "secret_set_by": row.secret_set_by,
        "secret_set_at": row.secret_set_at,
        "allows_private": row.allows_private,
        "is_enabled": row.is_enabled,
        "version": row.version,
        "created_by": row.created_by,
        "created_at": row.created_at,
        "updated_by": row.updated_by,
        "updated_at": row.updated_at,
    }


def role(row: RoleRow, embedder: InForce) -> dict[str, Any]:
    """Return how a role is answered; `asked_by` is empty where nothing asks it yet.

    Of the role `embed`, `in_force` is what makes vectors since the daemon started.
    """
    return {
        "role": row.role,
        "asked_by": asked_by(row.role),
        "version": row.version,
        "chain": [
            {"provider": link.provider, "model": link.model, "parameters": link.parameters}
            for link in row.chain
        ],
        "deadline_ms": row.deadline_ms,
        "actor": row.actor,
        "set_at": row.set_at,
        **_vectors(row.role, embedder),
    }


def unset_role(name: Role, embedder: InForce) -> dict[str, Any]:
    """Return a role that nobody configured: no model answers it."""
    return {
        "role": name,
        "asked_by": asked_by(name),
        "version": 0,
        "chain": [],
        "deadline_ms": None,
        "actor": None,
        "set_at": None,
        **_vectors(name, embedder),
    }


def _vectors(name: Role, embedder: InForce) -> dict[str, Any]:
    if name is not Role.EMBED:
        return {}
    return {"in_force": embedder, "takes_effect": TAKES_EFFECT}


def prompt(row: Prompt) -> dict[str, Any]:
    """Return one version of a prompt."""
    return msgspec.structs.asdict(row)


def prompt_in_use(row: PromptInUse) -> dict[str, Any]:
    """Return the version of a prompt that is in use."""
    return prompt(row.prompt) | {
        "used_by": row.used_by,
        "since": row.since,
        "newest": row.newest,
    }


def messages(sent: Iterable[ChatMessage]) -> list[dict[str, str]]:
    """Return messages as they were sent."""
    return [{"role": m.role, "text": m.text} for m in sent]


def attempt(row: Attempt, *, is_seen: bool) -> dict[str, Any]:
    """Return one attempt; what a provider said of an error may quote what it was asked."""
    return {
        "provider": row.provider,
        "model": row.model,
        "started_ms": row.started_ms,
        "latency_ms": row.latency_ms,
        "status": row.status,
        "error": row.error if is_seen else None,
        "usage": row.usage,
        "cost_micros": row.cost_micros,
        "cost_kind": row.cost_kind,
    }


def call(row: CallRecord, sight: Sight, *, mind: str | None, whole: bool) -> dict[str, Any]:
    """Return a call on record; `whole` with its content, where the reader sees the namespace."""
    is_seen = sight.sees(row.namespace)
    shown: dict[str, Any] = {
        "id": row.id,
        "namespace": row.namespace,
        "mind": mind,
        "cycle": row.cycle,
        "process": row.process,
        "ordinal": row.ordinal,
        "role": row.role,
        "prompt": row.prompt_name,
        "prompt_version": row.prompt_version,
        "state": row.state,
        "provider": row.provider,
        "model": row.model,
        "parameters": parameters(row, is_seen=is_seen),
        "finish": row.finish,
        "usage": row.usage,
        "cost_micros": row.cost_micros,
        "cost_kind": row.cost_kind,
        "latency_ms": row.latency_ms,
        "error": row.error,
        "attempts": [attempt(a, is_seen=is_seen) for a in row.attempts],
        "started_at": row.started_at,
        "finished_at": row.finished_at,
    }
    if whole:
        shown["content"] = row.content if is_seen else None
        shown["hidden"] = None if is_seen else str(notice(sight.why_hidden(row.namespace)))
    return shown


def parameters(row: CallRecord, *, is_seen: bool) -> dict[str, Any]:
    """Return what was sent beside the messages; without sight the numbers alone."""
    return {k: v for k, v in row.parameters.items() if is_seen or k not in _UNTOLD}


def budget(state: BudgetState, minds: dict[UUID, str]) -> dict[str, Any]:
    """Return a budget with its windows; `minds` gives slugs for ids."""
    row = state.budget
    return {
        "id": row.id,
        "scope": row.scope,
        "key": row.key,
        "mind": _slug(row.key, minds) if row.scope in ("mind", "cycle") else None,
        "period": row.period,
        "money_micros": row.money_micros,
        "tokens": row.tokens,
        "actor": row.actor,
        "set_at": row.set_at,
        "windows": [
            msgspec.structs.asdict(window)
            | {"mind": _slug(window.key, minds) if row.scope in ("mind", "cycle") else None}
            for window in state.windows
        ],
    }


def _slug(key: str, minds: dict[UUID, str]) -> str | None:
    try:
        return minds.get(UUID(key))
    except ValueError:
        return None


# --- a place in the list of calls ------------------------------------------------------------


def place_after(row: CallRecord) -> str:
    """Return where the list goes on after this call."""
    return f"{to_micros(row.started_at)}.{row.id.hex}"


def place_of(text: str) -> tuple[datetime, UUID]:
    """Return the place that `place_after` wrote; raises InvalidInput."""
    found = _PLACE.match(text)
    if found is None:
        raise InvalidInput("before is a place that a list of calls gave.", field="before")
    return from_micros(int(found[1])), UUID(found[2])

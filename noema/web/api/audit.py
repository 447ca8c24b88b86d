"""The audit log over HTTP: filtered by what stands in the address, newest first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from noema.auth.roles import MemoryRight, console_allows, memory_allows
from noema.core.act import Outcome
from noema.core.errors import Denied, InvalidInput
from noema.core.identity import ConsoleRole, Identity, readable_namespaces
from noema.events.audit import AuditRow
from noema.web import forms
from noema.web.call import Call
from noema.web.reply import Json, page

Moment = Callable[[Mapping[str, str], str], datetime | None]

QUERY: Final = ("who", "verb", "target", "outcome", "from", "to", "before", "limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A filter of the audit log; None filters nothing. `until` is exclusive."""

    actor: str | None = None
    op: str | None = None
    target: str | None = None
    result: Outcome | None = None
    since: datetime | None = None
    until: datetime | None = None


def may_audit(who: Identity) -> bool:
    """Whether they see the audit log: all of it, or what is in namespaces that they audit."""
    return console_allows(who.console, ConsoleRole.ADMINISTRATOR) or memory_allows(
        who.role, MemoryRight.AUDIT
    )


def scope_of(who: Identity) -> list[str] | None:
    """Return the namespaces whose rows they see, None for all; raises Denied."""
    if console_allows(who.console, ConsoleRole.ADMINISTRATOR):
        return None
    if not may_audit(who):
        raise Denied(
            "The audit log is for administrators and auditors; you are neither in this namespace."
        )
    return sorted(readable_namespaces(who))


def wanted(query: Mapping[str, str], *, moment: Moment = forms.moment) -> Wanted:
    """Return the filter that the query spells, its times as `moment` reads them.

    Raises InvalidInput.
    """
    outcome = query.get("outcome", "")
    if outcome and outcome not in [o.value for o in Outcome]:
        raise InvalidInput("outcome is ok, denied, miss or error.", field="outcome")
    return Wanted(
        actor=query.get("who") or None,
        op=query.get("verb") or None,
        target=query.get("target") or None,
        result=Outcome(outcome) if outcome else None,
        since=moment(query, "from"),
        until=moment(query, "to"),
    )


async def rows(call: Call, filter_: Wanted, *, before: int | None, limit: int) -> list[AuditRow]:
    """Return the rows of the filter that the caller may see, newest first."""
    return await call.services.access.audit.search(
        before=before,
        actor=filter_.actor,
        op=filter_.op,
        target=filter_.target,
        namespaces=scope_of(call.who),
        result=filter_.result,
        since=filter_.since,
        until=filter_.until,
        limit=limit,
    )


def shown(row: AuditRow) -> dict[str, Any]:
    """Return a row as the API shows it."""
    return {
        "seq": row.seq,
        "id": row.id,
        "occurred_at": row.occurred_at,
        "recorded_at": row.recorded_at,
        "who": row.actor,
        "through": row.agent_id,
        "verb": row.op,
        "target": row.target,
        "namespace": row.namespace,
        "outcome": row.result,
        "purpose": row.purpose,
        "detail": row.detail,
        "is_redacted": row.is_redacted,
    }


async def list_(call: Call) -> Json:
    limit = forms.limit_of(call.query, default=100)
    before = forms.whole(call.query, "before", low=1)
    found = await rows(call, wanted(call.query), before=before, limit=limit + 1)
    items = [msgspec.to_builtins(shown(r)) for r in found[:limit]]
    return Json(page(items, str(found[limit - 1].seq) if len(found) > limit else None))

"""Calls on record: found by what stands in the address, and one with all that was sent and came."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from starlette.responses import Response

from noema.core.errors import InvalidInput, NotFound
from noema.llm.calls import CallRecord
from noema.llm.model import Role
from noema.web import forms, llm_reply
from noema.web import llm_views as views
from noema.web.api.llm import known_namespaces
from noema.web.call import Call
from noema.web.pages import llm
from noema.web.pages.events import moment
from noema.web.pages.llm import cost, pretty, tokens
from noema.web.pages.remembered import address
from noema.web.pages.shell import page
from noema.web.panels import Fact
from noema.web.render import duration, number
from noema.web.sighted import notice

KEYS: Final = ("mind", "cycle", "role", "provider", "state", "from", "to")
STATES: Final = ("answered", "failed", "unknown", "in flight")
_SHOWN: Final = 100
_FIRST: Final = UUID(int=0)


async def show(call: Call) -> Response:
    values = {k: call.query.get(k, "").strip() for k in KEYS}
    before = call.query.get("before", "")
    is_set = any(values.values())
    rows: list[CallRecord] = []
    error = None
    try:
        rows = await _found(call, values, before)
    except (InvalidInput, NotFound) as exc:
        error = str(exc)
    shown, more = rows[:_SHOWN], len(rows) > _SHOWN
    older = None
    if more:
        older = address("/models/calls", values | {"before": llm_reply.place_after(shown[-1])})
    context = views.CallsPage(
        lines=tuple([await line_of(call, row) for row in shown]),
        values=values,
        error=error,
        minds=tuple([m.slug for m in await call.services.minds.list_(limit=1_000)]),
        roles=tuple(Role),
        providers=tuple(p.name for p in await call.services.llm.registry.providers()),
        states=STATES,
        is_live=not (is_set or before or error),
        is_fresh=not (rows or is_set or before or error),
        is_set=is_set,
        older=older,
        newest=address("/models/calls", values) if before else None,
        json_href=address("/v1/llm/calls", _exact(values) | {"before": before}),
    )
    status = 200 if error is None else 400
    return page(call, "llm_calls.html", context, title="Calls", active="models", status=status)


async def newest_lines(call: Call, *, limit: int) -> tuple[views.CallLine, ...]:
    """Return the newest calls as lines, the oldest of them first."""
    rows = await call.services.llm.calls.page(namespaces=await known_namespaces(call), limit=limit)
    return tuple([await line_of(call, row) for row in reversed(rows)])


async def _found(call: Call, values: Mapping[str, str], before: str) -> list[CallRecord]:
    state: Any = values["state"] or None
    if state not in (None, *STATES):
        raise InvalidInput(f"state is one of {', '.join(STATES)}.", field="state")
    since, until = moment(values, "from"), moment(values, "to")
    place = llm_reply.place_of(before) if before else None
    if until is not None and (place is None or until < place[0]):
        place = (until, _FIRST)
    mind = values["mind"]
    rows = await call.services.llm.calls.page(
        namespaces=await known_namespaces(call),
        mind=(await call.services.minds.get(mind)).id if mind else None,
        cycle=forms.whole(values, "cycle", low=0),
        role=forms.text_of(values, "role"),
        provider=forms.text_of(values, "provider"),
        state=state,
        before=place,
        limit=_SHOWN + 1,
    )
    # They come newest first, so that what is too old stands at the end.
    return [row for row in rows if since is None or row.started_at >= since]


def _exact(values: Mapping[str, str]) -> dict[str, str]:
    """Return the filter with the zone that the form leaves out."""
    exact = dict(values)
    for name in ("from", "to"):
        try:
            at = moment(values, name)
        except InvalidInput:
            continue
        exact[name] = "" if at is None else at.isoformat()
    return exact


async def line_of(call: Call, row: CallRecord) -> views.CallLine:
    """Return the call as a line: nothing of its content."""
    usage = row.usage
    return views.CallLine(
        id=str(row.id),
        at=row.started_at,
        role=row.role,
        process=row.process,
        prompt=row.prompt_name,
        prompt_version=row.prompt_version,
        mind=await call.services.pages.slug_of(row.mind_id),
        cycle=row.cycle,
        provider=row.provider,
        model=row.model,
        state=row.state,
        error=row.error,
        attempts=len(row.attempts),
        tokens_in=_sum(usage.input, usage.cache_read, usage.cache_write),
        tokens_out=_sum(usage.output, usage.reasoning),
        cost=cost(row.cost_micros, row.cost_kind),
        latency_us=None if row.latency_ms is None else row.latency_ms * 1000,
    )


def _sum(first: int | None, *others: int | None) -> int | None:
    return None if first is None else first + sum(n or 0 for n in others)


# --- one call ----------------------------------------------------------------------------------


async def show_one(call: Call) -> Response:
    row = await call.services.llm.calls.get(
        forms.uuid_of(call.path("id"), "call"), namespaces=await known_namespaces(call)
    )
    is_seen = call.sight.sees(row.namespace)
    content: Mapping[str, Any] = row.content if is_seen else {}
    hidden = None if is_seen else notice(call.sight.why_hidden(row.namespace))
    line = await line_of(call, row)
    parameters = llm_reply.parameters(row, is_seen=is_seen)
    answer = content.get("answer")
    context = views.CallPage(
        line=line,
        namespace=row.namespace,
        facts=_facts(row, content),
        hidden=hidden,
        is_redacted=is_seen and "messages" not in content,
        messages=llm.messages(content.get("messages", ()), is_rendered=row.prompt_name is not None),
        answer=None if answer is None else llm.piece(str(answer)),
        reason=str(content.get("reason", "")),
        refused=tuple(
            views.RefusedAnswer(
                piece=llm.piece(str(r.get("text", ""))), reason=str(r.get("reason", ""))
            )
            for r in content.get("refused", ())
        ),
        schema=pretty(content["schema"]) if content.get("schema") else "",
        parameters=pretty(parameters) if parameters else "",
        attempts=tuple(
            views.AttemptLine(
                number=i,
                provider=a.provider,
                model=a.model,
                after_us=a.started_ms * 1000,
                latency_us=a.latency_ms * 1000,
                status=a.status,
                error=a.error if is_seen else (hidden or ""),
                tokens=a.usage.total,
                cost=cost(a.cost_micros, a.cost_kind),
            )
            for i, a in enumerate(row.attempts, start=1)
        ),
        tokens=tokens(row.usage),
        total=row.usage.total,
        json_href=f"/v1/llm/calls/{row.id}",
    )
    title = f"Call for {row.role}"
    return page(call, "llm_call.html", context, title=title, active="models", mind=line.mind)


def _facts(row: CallRecord, content: Mapping[str, Any]) -> tuple[Fact, ...]:
    facts = [
        Fact(name="Namespace", value=row.namespace),
        Fact(name="Process", value=row.process or "none"),
    ]
    if content.get("actor"):
        facts.append(Fact(name="Asked by", value=str(content["actor"])))
    if row.ordinal:
        facts.append(Fact(name="Ordinal", value=f"question {number(row.ordinal)} of its cycle"))
    if row.finish:
        facts.append(Fact(name="Finished", value=row.finish))
    if row.latency_ms is not None:
        facts.append(Fact(name="Took", value=duration(row.latency_ms * 1000)))
    return tuple(facts)

"""Contradictions that the conflict check found: both sides, what was decided, and undoing it."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from starlette.responses import Response

from noema.core.errors import Conflict, InvalidInput
from noema.memory.model import ConflictCase, Memory
from noema.web import forms
from noema.web import memory_views as views
from noema.web.call import Call
from noema.web.pages.remembered import OUTCOMES, is_open, line, may_manage
from noema.web.pages.shell import page, see_other
from noema.web.pages.shown import clipped
from noema.web.views import Option

_SHOWN: Final = 50
_TEXT: Final = 600
_DECISIONS: Final = (
    ("newcomer_wins", "The later holds"),
    ("incumbent_wins", "The first holds"),
    ("coexist", "Both hold"),
    ("newcomer_disputed", "Leave the later disputed"),
)


async def show(call: Call) -> Response:
    return await _page(call)


async def resolve(call: Call) -> Response:
    """Decide a case that waits, or decide it otherwise."""
    id_ = forms.uuid_of(call.path("id"), "conflict")
    outcome = call.form.get("outcome", "")
    try:
        await call.services.memory.resolve_conflict(call.who, id_, outcome)
    except (InvalidInput, Conflict) as exc:
        return await _page(call, error=str(exc))
    return see_other(f"/conflicts#case-{id_}")


async def revert(call: Call) -> Response:
    """Undo what was decided: both sides are as they were before."""
    id_ = forms.uuid_of(call.path("id"), "conflict")
    try:
        await call.services.memory.revert_conflict(call.who, id_)
    except Conflict as exc:
        return await _page(call, error=str(exc))
    return see_other(f"/conflicts#case-{id_}")


async def _page(call: Call, *, error: str | None = None) -> Response:
    only_open = call.query.get("open", "") == "1"
    cases = await call.services.memory.conflicts(call.who, open_only=only_open, limit=_SHOWN)
    cases = tuple(sorted(cases, key=lambda c: not is_open(c)))
    seen = await _seen(call, cases)
    context = views.ConflictsPage(
        cases=tuple(_row(call, c, seen) for c in cases),
        waiting=sum(is_open(c) for c in cases),
        only_open=only_open,
        error=error,
        json_href="/v1/mem/conflicts",
    )
    return page(
        call,
        "conflicts.html",
        context,
        title="Conflicts",
        active="memories",
        status=200 if error is None else 400,
    )


async def _seen(call: Call, cases: tuple[ConflictCase, ...]) -> Mapping[UUID, Memory]:
    """Return both sides of every case as they are now; what is not seen any more is left out."""
    ids = tuple(dict.fromkeys(i for c in cases for i in (c.newcomer, c.incumbent)))
    return {m.id: m for m in await call.services.memory.several(call.who, ids)} if ids else {}


def _row(call: Call, case: ConflictCase, seen: Mapping[UUID, Memory]) -> views.ConflictRow:
    def side(id_: UUID, text: str) -> views.Side:
        memory = seen.get(id_)
        return views.Side(
            id=str(id_),
            text=clipped(text, _TEXT),
            line=None if memory is None else line(memory),
        )

    return views.ConflictRow(
        id=str(case.id),
        namespace=case.namespace,
        newcomer=side(case.newcomer, case.newcomer_text),
        incumbent=side(case.incumbent, case.incumbent_text),
        judge=case.judge,
        reason=case.reason,
        outcome=case.outcome,
        outcome_text=OUTCOMES[case.outcome],
        decided_by=case.decided_by,
        decided_at=case.decided_at,
        reverted_at=case.reverted_at,
        reverted_by=case.reverted_by,
        is_open=is_open(case),
        may_resolve=may_manage(call.who, case.namespace),
        decisions=tuple(
            Option(value=value, label=label) for value, label in _DECISIONS if value != case.outcome
        ),
    )

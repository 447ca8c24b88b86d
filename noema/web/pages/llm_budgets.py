"""Budgets: what models may cost, how much of it is gone, and what they stopped."""

from collections.abc import Mapping
from typing import Any, Final, get_args
from uuid import UUID

from starlette.responses import Response

from noema.auth.roles import console_allows
from noema.core.errors import Conflict, InvalidInput, NoemaError, NotFound
from noema.core.identity import ConsoleRole
from noema.llm.budget import EACH, Budget, BudgetState, Scope, Window, opens_at
from noema.llm.model import Role
from noema.web import forms, llm_forms
from noema.web import llm_views as views
from noema.web.api.llm import budget_key
from noema.web.call import Call
from noema.web.pages import llm
from noema.web.pages.llm import decimal, may_change, money
from noema.web.pages.login import status_of
from noema.web.pages.remembered import address
from noema.web.pages.shell import page, see_other
from noema.web.render import number
from noema.web.views import Option

_SCOPES: Final[Mapping[str, str]] = {
    "everything": "everything together",
    "provider": "a provider",
    "role": "a role",
    "mind": "a mind",
    "cycle": "a cycle of a mind",
}
_PERIODS: Final[Mapping[str, str]] = {
    "day": "a day (UTC)",
    "month": "a month (UTC)",
    "cycle": "one cycle",
}
_SAID: Final[Mapping[str, str]] = {
    "set": "Set. It counts from now on; what was spent in its windows stays.",
    "ended": "Ended: it stops nothing any more.",
}
_BOXES: Final = ("scope", "key", "period", "money", "tokens")
_MOST_TOKENS: Final = 10**15


async def show(call: Call) -> Response:
    return await _page(call)


async def save(call: Call) -> Response:
    """Set a limit, or change the one that is there."""
    form = call.form
    scope: Any = form.get("scope", "")
    period: Any = form.get("period", "")
    try:
        key = await budget_key(call, scope, form.get("key", "").strip() or EACH)
        limits = llm_forms.BudgetBody(
            scope=scope, period=period, money=form.get("money", "").strip() or None
        )
        await call.services.llm.budgets.set(
            call.who,
            scope=scope,
            period=period,
            key=key,
            money_micros=limits.money_micros(),
            tokens=forms.whole(
                {"tokens": form.get("tokens", "").strip()}, "tokens", low=0, high=_MOST_TOKENS
            ),
        )
    except (InvalidInput, Conflict, NotFound) as exc:
        return await _page(call, exc, form=llm.typed(form, exc))
    return see_other("/models/budgets?did=set")


async def end(call: Call) -> Response:
    """Take a limit away."""
    await call.services.llm.budgets.end(call.who, forms.uuid_of(call.path("id"), "budget"))
    return see_other("/models/budgets?did=ended")


async def _page(
    call: Call, exc: NoemaError | None = None, *, form: views.Form | None = None
) -> Response:
    minds = {m.id: m.slug for m in await call.services.minds.list_(limit=10_000)}
    sees_all = console_allows(call.who.console, ConsoleRole.ADMINISTRATOR)
    states = await call.services.llm.budgets.states(minds=None if sees_all else list(minds))
    asked = {k: call.query.get(k, "").strip()[:200] for k in _BOXES}
    chosen = form or views.Form(values=asked)
    scope = chosen.values.get("scope") or "everything"
    period = chosen.values.get("period") or "day"
    names = (
        *Role,
        *(p.name for p in await call.services.llm.registry.providers()),
        *minds.values(),
    )
    context = views.BudgetsPage(
        lines=tuple(_line(call, state, minds) for state in states),
        form=chosen,
        is_open=form is not None or any(asked.values()),
        scopes=tuple(
            Option(value=s, label=_SCOPES[s], selected=s == scope)
            for s in reversed(get_args(Scope))
        ),
        periods=tuple(Option(value=p, label=_PERIODS[p], selected=p == period) for p in _PERIODS),
        keys=tuple(dict.fromkeys(str(n) for n in names)),
        may_change=may_change(call.who),
        said=_SAID.get(call.query.get("did", "")),
    )
    status, _ = status_of(exc)
    return page(call, "llm_budgets.html", context, title="Budgets", active="models", status=status)


def _line(call: Call, state: BudgetState, minds: Mapping[UUID, str]) -> views.BudgetLine:
    budget = state.budget
    limits = []
    if budget.money_micros is not None:
        limits.append(f"{money(budget.money_micros)} in money")
    if budget.tokens is not None:
        limits.append(f"{number(budget.tokens)} tokens")
    return views.BudgetLine(
        id=str(budget.id),
        title=_title(budget, minds),
        period=_PERIODS[budget.period],
        limits=" and ".join(limits),
        actor=budget.actor,
        set_at=budget.set_at,
        opens_at=opens_at(budget.period, call.services.clock.now()),
        windows=tuple(_window(budget, w, minds) for w in state.windows),
        stopped=sum(w.stopped for w in state.windows),
        change_href=address(
            "/models/budgets",
            {
                "scope": budget.scope,
                "key": "" if budget.key == EACH else _named(budget, budget.key, minds),
                "period": budget.period,
                "money": "" if budget.money_micros is None else decimal(budget.money_micros),
                "tokens": "" if budget.tokens is None else str(budget.tokens),
            },
        )
        + "#set",
    )


def _title(budget: Budget, minds: Mapping[UUID, str]) -> str:
    if budget.scope == "everything":
        return "Everything"
    if budget.key == EACH:
        return {"cycle": "Each cycle of each mind"}.get(budget.scope, f"Each {budget.scope}")
    name = _named(budget, budget.key, minds)
    return f"Each cycle of {name}" if budget.scope == "cycle" else f"{budget.scope.title()} {name}"


def _named(budget: Budget, key: str, minds: Mapping[UUID, str]) -> str:
    if budget.scope not in ("mind", "cycle"):
        return key
    try:
        return minds.get(UUID(key), key)
    except ValueError:
        return key


def _window(budget: Budget, window: Window, minds: Mapping[UUID, str]) -> views.WindowLine:
    name = "all" if window.key == EACH else _named(budget, window.key, minds)
    is_cycle = budget.period == "cycle"
    starts = window.starts.rpartition(":")[2] if is_cycle else window.starts
    asked = {"state": "failed"}
    if budget.scope == "role":
        asked["role"] = window.key
    elif budget.scope in ("mind", "cycle"):
        asked["mind"] = name
    if is_cycle:
        asked["cycle"] = starts
    else:
        asked["from"] = f"{starts}-01" if budget.period == "month" else starts
    return views.WindowLine(
        name=name,
        starts=f"cycle {starts}" if is_cycle else starts,
        money=None
        if budget.money_micros is None
        else views.Gauge(
            spent=money(window.spent_micros),
            held=money(window.reserved_micros) if window.reserved_micros else None,
            limit=money(budget.money_micros),
            taken=window.spent_micros + window.reserved_micros,
            whole=budget.money_micros,
        ),
        tokens=None
        if budget.tokens is None
        else views.Gauge(
            spent=number(window.spent_tokens),
            held=number(window.reserved_tokens) if window.reserved_tokens else None,
            limit=number(budget.tokens),
            taken=window.spent_tokens + window.reserved_tokens,
            whole=budget.tokens,
        ),
        unknown=window.unknown_calls,
        stopped=window.stopped,
        calls_href=address("/models/calls", asked),
    )

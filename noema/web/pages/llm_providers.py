"""Providers of models: listed, made, changed, given a secret that is never shown, and tested."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import msgspec
from starlette.responses import Response

from noema.core.errors import Conflict, InvalidInput, NoemaError
from noema.llm.configured import NewProvider, ProviderChange, ProviderRow
from noema.llm.model import MICRO, Parameters, Prices
from noema.llm.providers.make import KINDS
from noema.llm.trial import QUESTION, Tried
from noema.web import forms
from noema.web import llm_views as views
from noema.web.call import Call
from noema.web.pages import llm
from noema.web.pages.llm import cost, decimal, may_change, money, pretty, tokens
from noema.web.pages.login import status_of
from noema.web.pages.remembered import address
from noema.web.pages.shell import page, see_other, site
from noema.web.panels import Fact
from noema.web.render import duration, number
from noema.web.views import Option

_KINDS: Final[Mapping[str, str]] = {
    "openai": "OpenAI and what speaks like it",
    "azure": "Azure OpenAI",
    "anthropic": "Anthropic Messages",
    "ollama": "Ollama on this machine or near it",
    "bedrock": "Amazon Bedrock",
    "echo": "Echo: says back what it is asked, for trying things out",
}
_SAID: Final[Mapping[str, str]] = {
    "made": "Made. Test it, then say in a role that it is asked.",
    "changed": "Changed. Calls from now on are made so.",
    "secret": "The secret is set. It is sealed, and shown to nobody.",
    "bare": "The secret is taken away and destroyed.",
    "enabled": "Enabled: roles ask it again.",
    "disabled": "Disabled: roles go on to the next in their chain.",
    "deleted": "Deleted, and its secret destroyed.",
}
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}\Z")


def provider_path(name: str, rest: str = "") -> str:
    """Return the address of a provider's page, or of an act on it."""
    return f"/models/providers/{name}{rest}"


# --- list and creation -------------------------------------------------------------------------


async def show(call: Call) -> Response:
    rows = await call.services.llm.registry.providers()
    asked = await asked_by(call)
    context = views.ProvidersPage(
        lines=tuple(
            views.ProviderLine(
                row=row,
                rest=_rest(call, row),
                prices=_main_prices(row),
                roles=asked.get(row.name, ()),
            )
            for row in rows
        ),
        may_change=may_change(call.who),
        said=_SAID.get(call.query.get("did", "")),
    )
    return page(call, "llm_providers.html", context, title="Models", active="models")


async def asked_by(call: Call) -> dict[str, tuple[str, ...]]:
    """Return which roles ask each provider."""
    found: dict[str, tuple[str, ...]] = {}
    for role in await call.services.llm.registry.roles():
        for name in dict.fromkeys(link.provider for link in role.chain):
            found[name] = (*found.get(name, ()), role.role.value)
    return found


def _rest(call: Call, row: ProviderRow) -> str:
    breaker = call.services.llm.breakers.get(row.id)
    if breaker is None or not row.is_enabled or not breaker.is_open:
        return ""
    left_s = breaker.rests_s
    return f"asked again in {max(1, round(left_s))} s" if left_s else "it is being tried now"


def _main_prices(row: ProviderRow) -> str:
    prices = row.prices
    if prices.input is None and prices.output is None:
        return ""
    if not prices.input and not prices.output and None not in (prices.input, prices.output):
        return "free"
    return f"{money(prices.input)} in, {money(prices.output)} out"


async def new(call: Call) -> Response:
    kind = call.query.get("kind", "")
    return _new(call, views.Form(values={"kind": kind if kind in KINDS else "openai"}))


def _new(call: Call, form: views.Form, exc: NoemaError | None = None) -> Response:
    context = views.NewProviderPage(
        form=form,
        kinds=tuple(
            Option(value=k, label=_KINDS.get(k, k), selected=k == form.values.get("kind"))
            for k in KINDS
        ),
    )
    status, _ = status_of(exc)
    return page(
        call, "llm_new.html", context, title="Add a provider", active="models", status=status
    )


async def create(call: Call) -> Response:
    """Make a provider, with its secret where one was typed."""
    if (asked := await llm.proven(call)) is not None:
        return asked
    form = call.form
    try:
        llm.require_secret_again(call)
        made = await call.services.llm.registry.create(
            call.who,
            NewProvider(
                name=form.get("name", "").strip(),
                kind=form.get("kind", ""),
                endpoint=form.get("endpoint", ""),
                model=form.get("model", ""),
                parameters=parameters_of(form),
                prices=_prices(form) if _has_prices(form) else None,
                # Ollama's place is this machine, whatever the box says.
                allows_private=_is_private(form) or None,
            ),
            secret=form.get("secret") or None,
        )
    except (InvalidInput, Conflict) as exc:
        return _new(call, llm.typed(form, exc), exc)
    return see_other(provider_path(made.name, "?did=made"))


# --- one provider ------------------------------------------------------------------------------


async def show_one(call: Call) -> Response:
    return await _page(call)


async def change(call: Call) -> Response:
    """Change all that the form holds; the secret only where one was typed."""
    if (asked := await llm.proven(call)) is not None:
        return asked
    form, name = call.form, call.path("name")
    try:
        llm.require_secret_again(call)
        _require_newest(form, await call.services.llm.registry.provider(name))
        await call.services.llm.registry.change(
            call.who,
            name,
            ProviderChange(
                endpoint=form.get("endpoint", ""),
                model=form.get("model", ""),
                parameters=parameters_of(form),
                prices=_prices(form),
                allows_private=_is_private(form),
            ),
            secret=form.get("secret") or None,
        )
    except (InvalidInput, Conflict) as exc:
        return await _page(call, exc, form=llm.typed(form, exc))
    return see_other(provider_path(name, "?did=changed"))


def _require_newest(form: Mapping[str, str], row: ProviderRow) -> None:
    seen = forms.whole(form, "version", low=1)
    if seen is not None and seen != row.version:
        raise Conflict(
            f"{row.updated_by} changed {row.name} meanwhile: version {row.version}. Save again to "
            "replace that with what stands here."
        )


async def set_secret(call: Call) -> Response:
    """Set the secret, or take it away; what was there is destroyed."""
    if (asked := await llm.proven(call)) is not None:
        return asked
    name, is_removal = call.path("name"), call.form.get("remove") == "1"
    try:
        llm.require_secret_again(call)
        secret = None if is_removal else call.form.get("secret", "")
        await call.services.llm.registry.set_secret(call.who, name, secret)
    except InvalidInput as exc:
        return await _page(call, exc, secret=llm.typed({}, exc))
    return see_other(provider_path(name, f"?did={'bare' if is_removal else 'secret'}"))


async def enable(call: Call) -> Response:
    return await _switch(call, is_enabled=True)


async def disable(call: Call) -> Response:
    return await _switch(call, is_enabled=False)


async def _switch(call: Call, *, is_enabled: bool) -> Response:
    if (asked := await llm.proven(call)) is not None:
        return asked
    name = call.path("name")
    await call.services.llm.registry.change(call.who, name, ProviderChange(is_enabled=is_enabled))
    return see_other(provider_path(name, f"?did={'enabled' if is_enabled else 'disabled'}"))


async def delete(call: Call) -> Response:
    """Remove a provider that no role and no budget names."""
    if (asked := await llm.proven(call)) is not None:
        return asked
    try:
        await call.services.llm.registry.delete(call.who, call.path("name"))
    except Conflict as exc:
        return await _page(call, exc, error=str(exc))
    return see_other("/models?did=deleted")


async def test(call: Call) -> Response:
    """Ask it once; what was sent and what came back is shown after the redirect."""
    name, form = call.path("name"), call.form
    try:
        tried = await call.services.llm.trial.try_out(
            call.who, name, text=llm.lines_of(form, "text"), model=form.get("model", "")
        )
    except InvalidInput as exc:
        return await _page(call, exc, ask=llm.typed(form, exc))
    key = str(tried.call or call.services.ids.new())
    site(call).tests.keep(call.who.actor, key, tried)
    return see_other(address(provider_path(name), {"test": key}) + "#test")


async def _page(
    call: Call,
    exc: NoemaError | None = None,
    *,
    form: views.Form | None = None,
    ask: views.Form | None = None,
    secret: views.Form | None = None,
    error: str | None = None,
) -> Response:
    row = await call.services.llm.registry.provider(call.path("name"))
    if form is not None:
        form = replace(form, values={**form.values, "version": str(row.version)})
    context = views.ProviderPage(
        row=row,
        rest=_rest(call, row),
        facts=_facts(row),
        roles=(await asked_by(call)).get(row.name, ()),
        form=form or views.Form(values=_values(row)),
        ask=ask or views.Form(values={"text": QUESTION, "model": ""}),
        secret=secret or views.Form(),
        test=_test_of(call, row.name),
        may_change=may_change(call.who),
        said=_SAID.get(call.query.get("did", "")),
        error=error,
        json_href=f"/v1/llm/providers/{row.name}",
    )
    status, _ = status_of(exc)
    return page(call, "llm_provider.html", context, title=row.name, active="models", status=status)


def _facts(row: ProviderRow) -> tuple[Fact, ...]:
    """Return what those see who may not change it."""
    set_ = {k: v for k, v in msgspec.to_builtins(row.parameters).items() if v is not None}
    prices = ", ".join(
        f"{name.replace('_', ' ')} {money(price)}"
        for name in row.prices.__struct_fields__
        if (price := getattr(row.prices, name)) is not None
    )
    return (
        Fact(name="Kind", value=_KINDS.get(row.kind, row.kind)),
        Fact(name="Endpoint", value=row.endpoint or "nowhere: it is inside Noema"),
        Fact(name="Model", value=row.model or "none of its own"),
        Fact(name="Sent besides", value=pretty(set_) if set_ else "nothing that was not set"),
        Fact(name="Prices", value=prices or "not known, which is never free"),
        Fact(
            name="Addresses",
            value="private ones are meant" if row.allows_private else "public ones only",
        ),
    )


# --- a test ------------------------------------------------------------------------------------


def _test_of(call: Call, name: str) -> views.Test | None:
    key = call.query.get("test", "")
    if not key:
        return None
    tried = site(call).tests.of(call.who.actor, key, name)
    if tried is not None:
        return _shown(tried)
    try:
        href = f"/models/calls/{UUID(key)}"
    except ValueError:
        return None
    return views.Test(call_href=href, is_gone=True)


def _shown(tried: Tried) -> views.Test:
    answer = tried.answer
    return views.Test(
        call_href=None if tried.call is None else f"/models/calls/{tried.call}",
        model=tried.model,
        messages=llm.messages(
            ({"role": m.role, "text": m.text} for m in tried.messages), is_rendered=False
        ),
        sent=tuple(
            views.Request(
                method=s.method,
                url=s.url,
                headers=s.headers,
                body=pretty(s.body)[: llm.SHOWN_CHARS],
                status=s.status,
            )
            for s in tried.sent
        ),
        answer=None if answer is None else llm.piece(answer.text),
        facts=()
        if answer is None
        else (
            Fact(name="Model", value=answer.model),
            Fact(name="Finished", value=answer.finish),
            Fact(name="Took", value=duration(answer.latency_ms * 1000)),
            Fact(name="Cost", value=_cost_text(answer.cost_micros, answer.cost_kind)),
            *(
                Fact(name=t.name, value=f"{number(t.count)} tokens")
                for t in tokens(answer.usage)
                if t.count is not None
            ),
        ),
        error=tried.error,
    )


def _cost_text(micros: int | None, kind: str) -> str:
    found = cost(micros, kind)
    return f"about {found.text}" if found.kind == "estimated" else found.text


# --- the form ----------------------------------------------------------------------------------


def parameters_of(form: Mapping[str, str], prefix: str = "parameters") -> Parameters:
    """Return the parameters that were typed; what was left empty is not sent."""

    def text(name: str) -> str:
        return form.get(f"{prefix}.{name}", "").strip()

    def real(name: str) -> float | None:
        return forms.micro(text(name), f"{prefix}.{name}") / MICRO if text(name) else None

    def whole(name: str) -> int | None:
        if not text(name):
            return None
        if not _WHOLE.match(text(name)):
            raise InvalidInput(f"{name} is a whole number.", field=f"{prefix}.{name}")
        return int(text(name))

    return Parameters(
        temperature=real("temperature"),
        top_p=real("top_p"),
        max_tokens=whole("max_tokens"),
        num_ctx=whole("num_ctx"),
        seed=whole("seed"),
        stop=json_of(text("stop"), tuple[str, ...], f"{prefix}.stop", 'a list such as ["END"]')
        or (),
        extra=json_of(
            text("extra"), dict[str, Any], f"{prefix}.extra", 'an object such as {"k": 1}'
        )
        or {},
    )


def json_of(text: str, type_: Any, field: str, what: str) -> Any:
    """Return JSON that was typed as that type, None where nothing was."""
    if not text:
        return None
    try:
        return forms.decode(text.encode("utf-8", "replace"), type_)
    except InvalidInput as exc:
        raise InvalidInput(f"{field} is JSON, {what}: {exc}", field=field) from None


def _prices(form: Mapping[str, str]) -> Prices:
    return Prices(
        **{
            name: forms.micro(text, f"prices.{name}")
            for name in Prices.__struct_fields__
            if (text := form.get(f"prices.{name}", "").strip())
        }
    )


def _has_prices(form: Mapping[str, str]) -> bool:
    return any(form.get(f"prices.{name}", "").strip() for name in Prices.__struct_fields__)


def _is_private(form: Mapping[str, str]) -> bool:
    return form.get("allows_private") == "1"


def _values(row: ProviderRow) -> dict[str, str]:
    values = {
        "version": str(row.version),
        "endpoint": row.endpoint,
        "model": row.model,
        "allows_private": "1" if row.allows_private else "",
    }
    for name in Parameters.__struct_fields__:
        value = getattr(row.parameters, name)
        if name in ("stop", "extra"):
            text = msgspec.json.encode(value).decode() if value else ""
        else:
            text = "" if value is None else str(value)
        values[f"parameters.{name}"] = text
    for name in Prices.__struct_fields__:
        price = getattr(row.prices, name)
        values[f"prices.{name}"] = "" if price is None else decimal(price)
    return values

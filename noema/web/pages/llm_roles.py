"""Roles: which providers each asks, in which order and within what time, in versions."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from noema.core.errors import Conflict, InvalidInput, NoemaError, NotFound
from noema.llm.checks import DEFAULT_DEADLINE_MS, MOST_IN_CHAIN
from noema.llm.configured import Link, ProviderRow, RoleRow
from noema.llm.embedders.choice import TAKES_EFFECT, InForce
from noema.llm.model import Role
from noema.llm.roles import asked_by
from noema.web import forms, llm_forms
from noema.web import llm_views as views
from noema.web.call import Call
from noema.web.llm_forms import role_of
from noema.web.pages import llm
from noema.web.pages.llm import decimal, may_change
from noema.web.pages.llm_providers import json_of
from noema.web.pages.login import status_of
from noema.web.pages.shell import page, see_other

ABOUT: Final[Mapping[Role, str]] = {
    Role.PERCEIVE: "say what a stimulus means",
    Role.RECALL: "ask memory in better words",
    Role.REFLECT: "see a pattern in recent thoughts",
    Role.PLAN: "take a goal apart into steps",
    Role.DIALOGUE: "answer people from memories, with citations",
    Role.EXTRACT: "take a text apart into statements to remember",
    Role.VERIFY: "check whether sources say what a statement says",
    Role.JUDGE: "decide whether two memories contradict each other",
    Role.SUMMARISE: "say many texts in a few words",
    Role.EMBED: "make the vectors that searches compare",
}
_SAID: Final[Mapping[str, str]] = {
    "set": "Set as a new version. Calls from now on are made so.",
    "off": "Turned off: what it does goes on without a model.",
}
_VECTORS_SAID: Final[Mapping[str, str]] = {
    "set": f"Set as a new version. It takes effect {TAKES_EFFECT}.",
    "off": f"Turned off. Vectors come by NOEMA_EMBEDDER {TAKES_EFFECT}.",
}
_SPARE: Final = 2
_MS: Final = 1000
_LONGEST_S: Final = 10**6


async def show(call: Call) -> Response:
    registry = call.services.llm.registry
    known = {row.role: row for row in await registry.roles()}
    providers = await registry.providers()
    context = views.RolesPage(
        lines=tuple(_line(role, known.get(role), providers) for role in Role),
        has_providers=bool(providers),
        may_change=may_change(call.who),
    )
    return page(call, "llm_roles.html", context, title="Roles of models", active="models")


async def show_one(call: Call) -> Response:
    return await _page(call)


async def save(call: Call) -> Response:
    """Set the chain as the form holds it; a form without a provider turns the role off."""
    role, form = role_of(call.path("role")), call.form
    try:
        chain = _chain(form)
        await call.services.llm.registry.set_role(
            call.who,
            role,
            chain,
            deadline_ms=_deadline_ms(form),
            base=forms.whole(form, "base", low=0),
        )
    except (InvalidInput, Conflict, NotFound) as exc:
        return await _page(call, exc, form=llm.typed(form, exc))
    return see_other(f"/models/roles/{role.value}?did={'set' if chain else 'off'}")


async def put_back(call: Call) -> Response:
    """Set a role as it was in an earlier version, as a new version."""
    role = role_of(call.path("role"))
    version = forms.whole(call.form, "version", low=1)
    versions = await call.services.llm.registry.role_versions(role)
    found = next((row for row in versions if row.version == version), None)
    if found is None:
        raise NotFound("version of the role", version or "")
    try:
        await call.services.llm.registry.set_role(
            call.who,
            role,
            found.chain,
            deadline_ms=found.deadline_ms,
            base=forms.whole(call.form, "base", low=0),
        )
    except (InvalidInput, Conflict, NotFound) as exc:
        return await _page(call, exc, error=str(exc))
    return see_other(f"/models/roles/{role.value}?did={'set' if found.chain else 'off'}")


def _chain(form: Mapping[str, str]) -> tuple[Link, ...]:
    links = []
    for i in range(MOST_IN_CHAIN):
        provider = form.get(f"provider.{i}", "").strip()
        model = form.get(f"model.{i}", "").strip()
        text = form.get(f"parameters.{i}", "").strip()
        if not provider:
            if model or text:
                raise InvalidInput("Say which provider this is asked of.", field=f"provider.{i}")
            continue
        body = json_of(
            text, llm_forms.ParametersBody, f"parameters.{i}", 'such as {"temperature": 0.2}'
        )
        link = Link(provider=provider, model=model)
        links.append(
            link if body is None else msgspec.structs.replace(link, parameters=body.plain())
        )
    return tuple(links)


def _deadline_ms(form: Mapping[str, str]) -> int:
    text = form.get("deadline", "").strip()
    if not text:
        return DEFAULT_DEADLINE_MS
    micros = forms.micro(text, "deadline")
    if not 0 < micros <= _LONGEST_S * 10**6:
        raise InvalidInput("The deadline is from 0.1 to 3,600 seconds.", field="deadline")
    return micros // _MS


async def _page(
    call: Call,
    exc: NoemaError | None = None,
    *,
    form: views.Form | None = None,
    error: str | None = None,
) -> Response:
    role, registry = role_of(call.path("role")), call.services.llm.registry
    try:
        versions: tuple[RoleRow, ...] = await registry.role_versions(role)
    except NotFound:
        versions = ()
    providers = await registry.providers()
    now = versions[0] if versions else None
    if form is None:
        form = views.Form(values=_values(now), error=error)
    else:
        # Whoever saves again does so on top of what is shown now.
        form = views.Form(
            values={**form.values, "base": str(now.version if now else 0)},
            error=form.error,
            field=form.field,
        )
    filled = [i for i in range(MOST_IN_CHAIN) if form.values.get(f"provider.{i}")]
    context = views.RolePage(
        line=_line(role, now, providers),
        versions=tuple(_line(role, row, providers) for row in versions),
        providers=tuple(row.name for row in providers),
        places=min(MOST_IN_CHAIN, (filled[-1] + 1 if filled else 0) + _SPARE),
        form=form,
        may_change=may_change(call.who),
        said=(_VECTORS_SAID if role is Role.EMBED else _SAID).get(call.query.get("did", "")),
        note=_note(role, call.services.llm.embedding.in_force),
        json_href=f"/v1/llm/roles/{role.value}" if versions else None,
    )
    status, _ = status_of(exc)
    return page(call, "llm_role.html", context, title=role.value, active="models", status=status)


def _line(role: Role, row: RoleRow | None, providers: Iterable[ProviderRow]) -> views.RoleLine:
    if row is None:
        return views.RoleLine(
            role=role.value,
            about=ABOUT[role],
            asked_by=asked_by(role),
            version=0,
            chain=(),
            deadline="",
        )
    known = {p.name: p for p in providers}
    return views.RoleLine(
        role=role.value,
        about=ABOUT[role],
        asked_by=asked_by(role),
        version=row.version,
        chain=tuple(_link(link, known.get(link.provider)) for link in row.chain),
        deadline=_seconds(row.deadline_ms),
        actor=row.actor,
        set_at=row.set_at,
    )


def _note(role: Role, embedder: InForce) -> str:
    if role is not Role.EMBED:
        return ""
    return (
        f"In force since the daemon started: {embedder.told}. "
        f"A change takes effect {TAKES_EFFECT}. "
        "All places name the same model; where the role is off, NOEMA_EMBEDDER says. "
        "Its calls are not on record, and no budget counts them."
    )


def _link(link: Link, provider: ProviderRow | None) -> views.ChainLink:
    note = ""
    if provider is None:
        note = "deleted"
    elif not provider.is_enabled:
        note = "disabled"
    model = link.model or ("" if provider is None else provider.model)
    return views.ChainLink(
        provider=link.provider, model=model, parameters=_parameters(link), note=note
    )


def _parameters(link: Link) -> str:
    built: dict[str, Any] = msgspec.to_builtins(link.parameters)
    return msgspec.json.encode(built).decode() if built else ""


def _seconds(ms: int) -> str:
    return decimal(ms * _MS).rstrip("0").rstrip(".")


def _values(row: RoleRow | None) -> dict[str, str]:
    values = {
        "base": str(row.version if row else 0),
        "deadline": _seconds(row.deadline_ms if row else DEFAULT_DEADLINE_MS),
    }
    for i, link in enumerate(row.chain if row else ()):
        values[f"provider.{i}"] = link.provider
        values[f"model.{i}"] = link.model
        values[f"parameters.{i}"] = _parameters(link)
    return values

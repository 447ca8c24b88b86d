"""Models over HTTP: providers, roles, prompts, calls on record, what they cost, and budgets.

Operators look, administrators change. A secret goes in and never comes out.
"""

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from noema.auth.roles import console_allows
from noema.cognition.model import Mind
from noema.core.errors import InvalidInput
from noema.core.identity import ConsoleRole
from noema.llm.budget import EACH
from noema.llm.calls import CallRecord
from noema.llm.model import Role
from noema.web import forms, llm_forms, llm_reply
from noema.web.call import Call
from noema.web.llm_forms import role_of
from noema.web.origin import require_fresh
from noema.web.reply import Json, page

CALLS_QUERY: Final = (
    "mind", "cycle", "role", "provider", "state", "from", "to", "before", "limit",
)  # fmt: skip
SPEND_QUERY: Final = ("from", "to")
_STATES: Final = ("in flight", "answered", "failed", "unknown")
_LONGEST: Final = timedelta(days=366)
_USUAL: Final = timedelta(days=30)
_MOST_VERSION: Final = 2**31 - 1
_LAST: Final = UUID(int=2**128 - 1)

# --- providers -----------------------------------------------------------------------------------


async def providers(call: Call) -> Json:
    rows = await call.services.llm.registry.providers()
    return Json(page([llm_reply.provider(row) for row in rows], None))


async def provider(call: Call) -> Json:
    row = await call.services.llm.registry.provider(call.path("name"))
    return Json(llm_reply.provider(row))


async def create_provider(call: Call) -> Json:
    require_fresh(call)
    body = call.json(llm_forms.ProviderBody)
    made = await call.services.llm.registry.create(call.who, body.plain(), secret=body.secret)
    return Json(
        llm_reply.provider(made), 201, headers={"Location": f"/v1/llm/providers/{made.name}"}
    )


async def patch_provider(call: Call) -> Json:
    require_fresh(call)
    body = call.json(llm_forms.ProviderPatch)
    changed = await call.services.llm.registry.change(
        call.who, call.path("name"), body.plain(), secret=body.secret
    )
    return Json(llm_reply.provider(changed))


async def delete_provider(call: Call) -> Json:
    require_fresh(call)
    name = call.path("name")
    await call.services.llm.registry.delete(call.who, name)
    return Json({"name": name, "status": "deleted"})


async def set_secret(call: Call) -> Json:
    require_fresh(call)
    body = call.json(llm_forms.SecretBody)
    changed = await call.services.llm.registry.set_secret(call.who, call.path("name"), body.secret)
    return Json(llm_reply.provider(changed))


async def delete_secret(call: Call) -> Json:
    require_fresh(call)
    changed = await call.services.llm.registry.set_secret(call.who, call.path("name"), None)
    return Json(llm_reply.provider(changed))


async def test_provider(call: Call) -> Json:
    body = call.json(llm_forms.TestBody)
    tried = await call.services.llm.trial.try_out(
        call.who, call.path("name"), text=body.text, model=body.model
    )
    return Json(tried)


# --- roles ---------------------------------------------------------------------------------------


async def roles(call: Call) -> Json:
    known = {row.role: row for row in await call.services.llm.registry.roles()}
    embedder = call.services.llm.embedding.in_force
    return Json(
        page(
            [
                llm_reply.role(known[role], embedder)
                if role in known
                else llm_reply.unset_role(role, embedder)
                for role in Role
            ],
            None,
        )
    )


async def role(call: Call) -> Json:
    row = await call.services.llm.registry.role(role_of(call.path("role")))
    return Json(llm_reply.role(row, call.services.llm.embedding.in_force))


async def role_versions(call: Call) -> Json:
    rows = await call.services.llm.registry.role_versions(role_of(call.path("role")))
    embedder = call.services.llm.embedding.in_force
    return Json(page([llm_reply.role(row, embedder) for row in rows], None))


async def set_role(call: Call) -> Json:
    body, name = call.json(llm_forms.RoleBody), role_of(call.path("role"))
    made = await call.services.llm.registry.set_role(
        call.who,
        name,
        [link.plain() for link in body.chain],
        deadline_ms=body.deadline_ms,
        base=body.base,
    )
    return Json(llm_reply.role(made, call.services.llm.embedding.in_force))


# --- prompts -------------------------------------------------------------------------------------


async def prompts(call: Call) -> Json:
    rows = await call.services.llm.library.in_use()
    return Json(page([llm_reply.prompt_in_use(row) for row in rows], None))


async def prompt(call: Call) -> Json:
    version = forms.whole(call.query, "version", low=1, high=_MOST_VERSION)
    return Json(llm_reply.prompt(await call.services.llm.library.get(call.path("name"), version)))


async def prompt_versions(call: Call) -> Json:
    rows = await call.services.llm.library.versions(call.path("name"))
    return Json(page([llm_reply.prompt(row) for row in rows], None))


async def prompt_uses(call: Call) -> Json:
    return Json(page(list(await call.services.llm.library.uses(call.path("name"))), None))


async def save_prompt(call: Call) -> Json:
    body = call.json(llm_forms.PromptBody)
    saved = await call.services.llm.library.save(
        call.who,
        call.path("name"),
        system=body.system,
        template=body.template,
        note=body.note,
        base=body.base,
        use=body.use,
    )
    return Json(llm_reply.prompt(saved), 201)


async def preview_prompt(call: Call) -> Json:
    body = call.json(llm_forms.PreviewBody)
    shown = call.services.llm.library.preview(call.path("name"), body.system, body.template)
    return Json({"messages": llm_reply.messages(shown.messages), "mark": shown.mark})


async def use_prompt(call: Call) -> Json:
    body = call.json(llm_forms.UseBody)
    used = await call.services.llm.library.use(call.who, call.path("name"), body.version)
    return Json(llm_reply.prompt(used))


async def diff_prompt(call: Call) -> Json:
    old = forms.whole(call.query, "from", low=1, high=_MOST_VERSION)
    new = forms.whole(call.query, "to", low=1, high=_MOST_VERSION)
    if old is None or new is None:
        raise InvalidInput("Name two versions: from and to.", field="from")
    name = call.path("name")
    return Json(
        {
            "name": name,
            "from": old,
            "to": new,
            "diff": await call.services.llm.library.diff(name, old, new),
        }
    )


# --- calls ---------------------------------------------------------------------------------------


async def known_namespaces(call: Call) -> list[str] | None:
    """Return the namespaces whose calls the caller knows of, None for all there are."""
    if call.sight.tenants is None:
        return None
    tenants = await call.services.access.tenants.all()
    return [path for t in tenants if t.name in call.sight.tenants for path in t.namespaces]


async def calls(call: Call) -> Json:
    query, limit = call.query, forms.limit_of(call.query)
    state: Any = query.get("state") or None
    if state not in (None, *_STATES):
        raise InvalidInput(f"state is one of {', '.join(_STATES)}.", field="state")
    since, until = forms.moment(query, "from"), forms.moment(query, "to")
    before = llm_reply.place_of(query["before"]) if query.get("before") else None
    if until is not None and (before is None or until < before[0]):
        before = (until, UUID(int=0))
    mind = query.get("mind") or None
    rows = await call.services.llm.calls.page(
        namespaces=await known_namespaces(call),
        mind=None if mind is None else (await call.services.minds.get(mind)).id,
        cycle=forms.whole(query, "cycle", low=0),
        role=forms.text_of(query, "role"),
        provider=forms.text_of(query, "provider"),
        state=state,
        before=before,
        limit=limit + 1,
    )
    # They come newest first, so that what is too old stands at the end.
    found = [row for row in rows if since is None or row.started_at >= since]
    items = [await _shown(call, row, whole=False) for row in found[:limit]]
    more = llm_reply.place_after(found[limit - 1]) if len(found) > limit else None
    return Json(page(items, more))


async def get_call(call: Call) -> Json:
    row = await call.services.llm.calls.get(
        forms.uuid_of(call.path("id"), "call"), namespaces=await known_namespaces(call)
    )
    return Json(await _shown(call, row, whole=True))


async def _shown(call: Call, row: CallRecord, *, whole: bool) -> dict[str, Any]:
    slug = await call.services.pages.slug_of(row.mind_id)
    return llm_reply.call(row, call.sight, mind=slug, whole=whole)


async def spend(call: Call) -> Json:
    until = forms.moment(call.query, "to") or call.services.clock.now()
    since = forms.moment(call.query, "from") or until - _USUAL
    if not timedelta() <= until - since <= _LONGEST:
        raise InvalidInput(f"from to to is up to {_LONGEST.days} days.", field="from")
    rows = await call.services.llm.calls.spend(
        since=since, until=until, namespaces=await known_namespaces(call)
    )
    return Json(page(rows, None) | {"from": since, "to": until})


# --- budgets -------------------------------------------------------------------------------------


async def budgets(call: Call) -> Json:
    known = {mind.id: mind.slug for mind in await _minds(call)}
    sees_all = console_allows(call.who.console, ConsoleRole.ADMINISTRATOR)
    states = await call.services.llm.budgets.states(minds=None if sees_all else list(known))
    return Json(page([llm_reply.budget(state, known) for state in states], None))


async def _minds(call: Call) -> list[Mind]:
    return await call.services.minds.list_(limit=10_000)


async def set_budget(call: Call) -> Json:
    body = call.json(llm_forms.BudgetBody)
    key = await budget_key(call, body.scope, body.key)
    made = await call.services.llm.budgets.set(
        call.who,
        scope=body.scope,
        period=body.period,
        key=key,
        money_micros=body.money_micros(),
        tokens=body.tokens,
    )
    return Json(made, 201)


async def budget_key(call: Call, scope: str, key: str) -> str:
    """Return the key as a budget holds it; NotFound for a mind or a provider that is not there."""
    if key == EACH:
        return key
    if scope in ("mind", "cycle") and not _is_id(key):
        return str((await call.services.minds.get(key)).id)
    if scope == "provider":
        return (await call.services.llm.registry.provider(key)).name
    return key


def _is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


async def end_budget(call: Call) -> Json:
    id_ = forms.uuid_of(call.path("id"), "budget")
    await call.services.llm.budgets.end(call.who, id_)
    return Json({"id": id_, "status": "ended"})

"""Memory policy: what holds where one acts, an acknowledgement, and what a namespace sets."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from starlette.responses import Response

from noema.core.errors import Denied, InvalidInput
from noema.memory.model import Directive, EffectivePolicy, PolicyDocument
from noema.web import forms, panels
from noema.web import memory_views as views
from noema.web.api.audit import may_audit
from noema.web.call import Call
from noema.web.pages.remembered import address, may_manage, may_write
from noema.web.pages.shell import page, see_other
from noema.web.render import number
from noema.web.views import Option

_FREE_ROWS: Final = 2
_MOST_DIRECTIVES: Final = 40
_REVIEWS: Final = (
    ("", "says nothing"),
    ("auto", "auto: decided by trust, then recency"),
    ("review", "review: a person decides"),
    ("off", "off: no check"),
)
_NUMBERS: Final = (
    ("reads", "reads_per_minute"),
    ("writes", "writes_per_minute"),
    ("chars", "max_text_chars"),
    ("retention", "retention_days"),
)


async def show(call: Call) -> Response:
    return await _page(call)


async def acknowledge(call: Call) -> Response:
    """Say that the directives were read, as they stood on the page."""
    await call.services.memory.mem_policy_ack(call.who, call.form.get("digest", ""))
    return see_other("/memory-policy?did=acknowledged")


async def save(call: Call) -> Response:
    """Set the namespace's own document whole, as a new version."""
    namespace = call.form.get("namespace", "").strip() or call.who.namespace
    try:
        document = _document(call.form)
        now, _ = await call.services.memory.policy_of(call.who, namespace)
        seen = forms.whole(call.form, "version", low=0)
        if seen is not None and seen != now:
            return await _page(call, form=_overtaken(call.form, namespace, now))
        await call.services.memory.set_policy(call.who, namespace, document)
    except InvalidInput as exc:
        form = _typed(call.form, namespace, str(exc), exc.field)
        return await _page(call, form=form)
    asked = {"ns": namespace if namespace != call.who.namespace else "", "did": "saved"}
    return see_other(address("/memory-policy", asked))


def _document(form: Mapping[str, str]) -> PolicyDocument:
    review = form.get("review", "")
    if review not in [value for value, _ in _REVIEWS]:
        raise InvalidInput("Conflict review is auto, review or off.", field="review")
    numbers: dict[str, Any] = {
        field: forms.whole({name: form.get(name, "").strip()}, name, low=1, high=10**9)
        for name, field in _NUMBERS
    }
    return PolicyDocument(
        driver=form.get("driver", "").strip() or None,
        conflict_review=review or None,  # type: ignore[arg-type]
        directives=tuple(Directive(id=d.id, text=d.text) for d in _directives(form)),
        **numbers,
    )


def _directives(form: Mapping[str, str]) -> tuple[views.DirectiveLine, ...]:
    found = []
    for i in range(_MOST_DIRECTIVES):
        name, text = (form.get(f"{part}.{i}", "").strip() for part in ("id", "text"))
        if name and not text:
            raise InvalidInput(f"The directive {name[:40]!r} says nothing.", field=f"text.{i}")
        if text and not name:
            raise InvalidInput(
                f"Give the directive {text[:40]!r} a short id, such as no-phone-numbers.",
                field=f"id.{i}",
            )
        if text:
            found.append(views.DirectiveLine(id=name, text=text))
    if len({d.id for d in found}) < len(found):
        raise InvalidInput("Two directives have the same id.", field="id.0")
    return tuple(found)


def _typed(
    form: Mapping[str, str], namespace: str, error: str, field: str | None
) -> views.PolicyForm:
    rows = [
        views.DirectiveLine(id=form.get(f"id.{i}", ""), text=form.get(f"text.{i}", ""))
        for i in range(_MOST_DIRECTIVES)
    ]
    version = form.get("version", "")
    return views.PolicyForm(
        namespace=namespace,
        version=int(version) if version.isascii() and version.isdigit() else 0,
        driver=form.get("driver", ""),
        review=form.get("review", ""),
        reads=form.get("reads", ""),
        writes=form.get("writes", ""),
        chars=form.get("chars", ""),
        retention=form.get("retention", ""),
        directives=tuple(d for d in rows if d.id or d.text),
        error=error,
        field=field,
    )


def _overtaken(form: Mapping[str, str], namespace: str, now: int) -> views.PolicyForm:
    """Return the form after somebody else saved: what was typed, on top of their version."""
    error = (
        f"Version {now} was saved meanwhile. Compare it with yours, and save again to replace it."
    )
    return replace(_typed(form, namespace, error, None), version=now)


def _form_of(namespace: str, version: int, document: PolicyDocument) -> views.PolicyForm:
    texts: dict[str, Any] = {
        name: "" if getattr(document, field) is None else str(getattr(document, field))
        for name, field in _NUMBERS
    }
    return views.PolicyForm(
        namespace=namespace,
        version=version,
        driver=document.driver or "",
        review=document.conflict_review or "",
        directives=tuple(views.DirectiveLine(id=d.id, text=d.text) for d in document.directives),
        **texts,
    )


async def _page(call: Call, *, form: views.PolicyForm | None = None) -> Response:
    kernel, who = call.services.memory, call.who
    holds = await kernel.mem_policy(who)
    namespace = call.query.get("ns", "").strip() or who.namespace
    error = None
    if form is None:
        try:
            form = _form_of(namespace, *await kernel.policy_of(who, namespace))
        except (Denied, InvalidInput) as exc:
            error = str(exc)
    said = {
        "acknowledged": "Acknowledged. It is asked for again when the directives change.",
        "saved": "Saved as a new version. It holds from now on.",
    }.get(call.query.get("did", ""))
    context = views.PolicyPage(
        namespace=holds.namespace,
        limits=_limits(holds),
        directives=tuple(views.DirectiveLine(id=d.id, text=d.text) for d in holds.directives),
        digest=holds.digest,
        acknowledged=holds.acknowledged,
        may_acknowledge=may_write(who),
        form=form,
        may_save=form is not None and may_manage(who, form.namespace),
        free_rows=_FREE_ROWS,
        reviews=tuple(
            Option(value=v, label=label, selected=form is not None and v == form.review)
            for v, label in _REVIEWS
        ),
        said=said,
        error=error,
        history_href=_history(call, namespace),
        json_href=f"/v1/mem/policies/{form.namespace if form is not None else who.namespace}",
    )
    is_wrong = error is not None or (form is not None and form.error is not None)
    return page(
        call,
        "memory_policy.html",
        context,
        title="Memory policy",
        active="memories",
        status=400 if is_wrong else 200,
    )


def _history(call: Call, namespace: str) -> str | None:
    """Return where it stands who set which version when, for those who may look."""
    if not may_audit(call.who):
        return None
    return address("/audit", {"syscall": "mem.policy-set", "target": f"namespace:{namespace}"})


def _limits(holds: EffectivePolicy) -> tuple[panels.Fact, ...]:
    days = holds.retention_days
    return (
        panels.Fact(name="Retriever", value=holds.driver),
        panels.Fact(name="Reads", value=f"{number(holds.reads_per_minute)} a minute and key"),
        panels.Fact(name="Writes", value=f"{number(holds.writes_per_minute)} a minute and key"),
        panels.Fact(name="Longest text", value=f"{number(holds.max_text_chars)} characters"),
        panels.Fact(name="Kept", value="for good" if days is None else f"{number(days)} days"),
        panels.Fact(name="Conflicts", value=dict(_REVIEWS)[holds.conflict_review]),
    )

"""Prompts: versions, an editor that shows what a template makes of a sample, diff, rollback."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from noema.core.errors import Conflict, InvalidInput, NoemaError, NotFound, TooLarge
from noema.llm.inputs import INPUTS, Data, fields_of, item_of
from noema.web import forms
from noema.web import llm_views as views
from noema.web.call import Call
from noema.web.pages import llm
from noema.web.pages.llm import may_change
from noema.web.pages.llm_roles import ABOUT
from noema.web.pages.login import status_of
from noema.web.pages.shell import page, see_other

_SAID: Final[Mapping[str, str]] = {
    "saved": "Saved as a new version. It is not in use yet.",
    "used": "In use from now on.",
    "saved-used": "Saved as a new version, and in use from now on.",
}
_ABOUT: Final = {role.value: about for role, about in ABOUT.items()}
_MOST_VERSION: Final = 2**31 - 1


async def show(call: Call) -> Response:
    context = views.PromptsPage(
        lines=tuple(
            views.PromptLine(
                name=used.prompt.name, about=_ABOUT.get(used.prompt.name, ""), used=used
            )
            for used in await call.services.llm.library.in_use()
        )
    )
    return page(call, "llm_prompts.html", context, title="Prompts", active="models")


async def show_one(call: Call) -> Response:
    return await _page(call)


async def preview(call: Call) -> Response:
    """Show what the form's texts make of a sample; nothing is kept."""
    return await _page(call, form=_typed(call), with_preview=True)


async def save(call: Call) -> Response:
    """Keep a new version, in use at once where that button was pressed."""
    form, name = call.form, call.path("name")
    is_used = form.get("then") == "use"
    try:
        saved = await call.services.llm.library.save(
            call.who,
            name,
            system=llm.lines_of(form, "system"),
            template=llm.lines_of(form, "template"),
            note=form.get("note", "").strip(),
            base=forms.whole(form, "base", low=0),
            use=is_used,
        )
    except (InvalidInput, Conflict) as exc:
        return await _page(call, exc, form=_typed(call, exc))
    did = "saved-used" if is_used else "saved"
    return see_other(f"/models/prompts/{name}?version={saved.version}&did={did}")


async def use(call: Call) -> Response:
    """Put a version to use, an earlier one too."""
    name, version = call.path("name"), forms.whole(call.form, "version", low=1, high=_MOST_VERSION)
    if version is None:
        raise InvalidInput("Say which version.", field="version")
    try:
        await call.services.llm.library.use(call.who, name, version)
    except InvalidInput as exc:
        return await _page(call, exc, form=views.Form(error=str(exc)))
    return see_other(f"/models/prompts/{name}?did=used")


def _typed(call: Call, exc: NoemaError | None = None) -> views.Form:
    form = llm.typed(call.form, exc)
    texts = {part: llm.lines_of(call.form, part) for part in ("system", "template")}
    return views.Form(values={**form.values, **texts}, error=form.error, field=form.field)


async def _page(
    call: Call,
    exc: NoemaError | None = None,
    *,
    form: views.Form | None = None,
    with_preview: bool = False,
) -> Response:
    name, library = call.path("name"), call.services.llm.library
    if name not in INPUTS:
        raise NotFound("prompt", name)
    versions = await library.versions(name)
    uses = await library.uses(name)
    in_use = uses[0].version if uses else versions[0].version
    asked = forms.whole(call.query, "version", low=1, high=_MOST_VERSION)
    shown = next((v for v in versions if v.version == (asked or in_use)), None)
    if shown is None:
        raise NotFound("prompt", f"{name}, version {asked},")
    filled = {"system": shown.system, "template": shown.template, "note": ""}
    if form is None:
        form = views.Form(values=filled)
    else:
        form = views.Form(values={**filled, **form.values}, error=form.error, field=form.field)
    sample: tuple[views.Message, ...] = ()
    # What is wrong is said by the save that failed, or by the preview; else it is shown rendered.
    if exc is None:
        sample, form, exc = _sample(call, name, form, is_asked=with_preview)
    context = views.PromptPage(
        name=name,
        about=_ABOUT.get(name, ""),
        in_use=in_use,
        newest=versions[0].version,
        shown=shown,
        form=form,
        base=versions[0].version,
        preview=sample,
        given=tuple(_given(INPUTS[name])),
        versions=versions,
        uses=uses,
        diff=await _diff(call, name),
        may_change=may_change(call.who),
        said=_SAID.get(call.query.get("did", "")),
        json_href=f"/v1/llm/prompts/{name}?version={shown.version}",
    )
    status, _ = status_of(exc)
    return page(call, "llm_prompt.html", context, title=name, active="models", status=status)


def _sample(
    call: Call, name: str, form: views.Form, *, is_asked: bool
) -> tuple[tuple[views.Message, ...], views.Form, NoemaError | None]:
    values = form.values
    try:
        made = call.services.llm.library.preview(name, values["system"], values["template"])
    except (InvalidInput, TooLarge) as exc:
        # A version of an older Noema may not be a template any more; then only that is told.
        told = views.Form(values=values, error=str(exc), field=llm.field_of(exc))
        return (), told, exc if is_asked else None
    sent = ({"role": m.role, "text": m.text} for m in made.messages)
    return llm.messages(sent, is_rendered=True), form, None


async def _diff(call: Call, name: str) -> views.Diff | None:
    old = forms.whole(call.query, "from", low=1, high=_MOST_VERSION)
    new = forms.whole(call.query, "to", low=1, high=_MOST_VERSION)
    if old is None or new is None:
        return None
    text = await call.services.llm.library.diff(name, old, new)
    heads = {
        line
        for part in ("system", "template")
        for line in (f"--- {name} {old} {part}", f"+++ {name} {new} {part}")
    }
    return views.Diff(old=old, new=new, lines=tuple(_diff_lines(text, heads)))


def _diff_lines(text: str, heads: Collection[str]) -> Iterator[views.DiffLine]:
    for line in text.split("\n")[:-1]:
        if line in heads:
            yield views.DiffLine(kind="file", text=line)
        else:
            kind = {"+": "add", "-": "del", "@": "place"}.get(line[:1], "same")
            yield views.DiffLine(kind=kind, text=line)


def _given(type_: type[msgspec.Struct], depth: int = 0) -> Iterator[views.Given]:
    """Yield what a template of this input can name, records and lists with what is in them."""
    for name, inner in fields_of(type_).items():
        item = item_of(inner)
        of: Any = inner if item is None else item
        kind = {Data: "data block", str: "label", int: "number", bool: "truth"}.get(of, "record")
        yield views.Given(name=name, kind=kind if item is None else f"list of {kind}s", depth=depth)
        if kind == "record":
            yield from _given(of, depth + 1)

"""Weights and limits of a mind: what a change would have done, and saving it."""

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import zip_longest
from typing import Any, Final

from starlette.responses import Response

from noema.cognition import dryrun, minds
from noema.cognition.attention import MAX_WEIGHT
from noema.cognition.minds import merge_settings
from noema.cognition.model import FEATURES, NEGATIVE, Mind, MindSettings
from noema.core.errors import Conflict, InvalidInput
from noema.web import forms, panels
from noema.web.call import Call
from noema.web.pages.shell import fragment, mind_path, page, position, see_other, wants_fragment
from noema.web.pages.shown import clipped, head_of, plain_decimal, plain_micro
from noema.web.recorded import last_cycles, load_modes
from noema.web.render import NOTHING, number
from noema.web.sighted import Hidden, notice

_LAST: Final = 100
_MOST_CYCLES: Final = 1_000
_LISTED: Final = 200
_ABOUT: Final = {
    "intensity": "how much the line itself shouts: words of failure, high severity",
    "novelty": "how little the mind knows of the topic",
    "urgency": "how soon it wants attention, as its sender said",
    "relevance": "how much of the focus it speaks of",
    "goal": "how well it matches a goal, times the goal's priority",
    "surprise": "how rare the topic is among all that was seen",
    "confidence": "how sure the process is of it",
    "credibility": "how far its source is trusted",
    "social": "somebody spoke to the mind and waits",
    "valence": "how good or bad it is",
    "recency": "how lately it came; what waits fades",
    "pin": "an operator pinned it",
    "cost": "what thinking it would cost",
    "fatigue": "the process was admitted lately",
    "habituation": "the topic was admitted lately",
}
_LIMITS: Final = (
    ("capacity", "Places", "thoughts in the workspace; no mode admits more at once", True),
    ("quota", "Quota", "candidates that one process may propose in a cycle", True),
    ("slot_half_life_s", "Half-life, s", "a thought in focus loses half its strength in it", False),
    ("batch", "Batch", "stimuli taken in one cycle at most", False),
    ("pending_limit", "Pending", "topics that may wait to compete again", False),
    ("pending_cycles", "Patience", "cycles that a topic waits before it expires", False),
    ("reflect_every", "Reflect every", "admissions between two looks back", False),
)


class _Wrong(Exception):  # noqa: N818
    """What in the form cannot be used, by field."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = errors


async def show(call: Call) -> Response:
    mind = await call.services.minds.get(call.path("slug"))
    return await _page(call, mind, {})


async def dry_run(call: Call) -> Response:
    mind = await call.services.minds.get(call.path("slug"))
    current = await call.services.minds.settings(mind)
    try:
        proposed = _proposed(call.form, current)
        last = forms.whole(call.form, "last", low=1, high=_MOST_CYCLES) or _LAST
    except _Wrong as exc:
        return await _page(call, mind, exc.errors, error=str(exc))
    except InvalidInput as exc:
        return await _page(call, mind, {}, error=str(exc))
    result = await _run(call, mind, current, proposed, last)
    if wants_fragment(call):
        return fragment(call, "fragments/dry_run.html", result)
    return await _page(call, mind, {}, result=result)


async def save(call: Call) -> Response:
    mind = await call.services.minds.get(call.path("slug"))
    current = await call.services.minds.settings(mind)
    try:
        proposed = _proposed(call.form, current)
        base = forms.whole(call.form, "base_version", low=1)
        if proposed == current:
            return await _page(
                call, mind, {}, error=f"Nothing differs from version {mind.settings_version}."
            )
        await call.services.minds.tune(
            mind.slug,
            _changes(current, proposed),
            note=call.form.get("note", "").strip(),
            actor=call.who.actor,
            expected_version=base,
        )
    except _Wrong as exc:
        return await _page(call, mind, exc.errors, error=str(exc))
    except InvalidInput as exc:
        return await _page(call, mind, {}, error=str(exc))
    except Conflict as exc:
        return await _again(call, error=str(exc))
    return see_other(mind_path(mind.slug, "/tuning"))


async def _again(call: Call, *, error: str) -> Response:
    """Return the page after somebody else saved: their version, with what was changed here in it.

    What stood in the form and was not changed here becomes what they saved, so that saving again
    does not set it back.
    """
    mind = await call.services.minds.get(call.path("slug"))
    current = await call.services.minds.settings(mind)
    base = await call.services.minds.settings_of(mind, int(call.form["base_version"]))
    changes = _changes(base, _proposed(call.form, base))
    mine = {*changes, *(f"weight.{name}" for name in changes.get("weights", {}))}
    typed = {name: text for name, text in call.form.items() if name in mine or name == "last"}
    result = await _run(
        call, mind, current, merge_settings(current, changes), _last_typed(call.form)
    )
    return await _page(call, mind, {}, result=result, error=error, status=409, typed=typed)


# -- from the form ---------------------------------------------------------------------------


def _proposed(form: Mapping[str, str], current: MindSettings) -> MindSettings:
    """Return the settings with what stands in the form; what does not stand there stays."""
    errors: dict[str, str] = {}
    weights = {}
    for name in FEATURES:
        text = form.get(f"weight.{name}")
        if text is not None:
            weights[name] = _decimal(text, 6, f"weight.{name}", errors)
            if not 0 <= weights[name] <= MAX_WEIGHT:
                errors[f"weight.{name}"] = f"The weight of {name} is from 0 to 10."
    changes: dict[str, Any] = {"weights": weights}
    if "threshold" in form:
        changes["threshold"] = _decimal(form["threshold"], 12, "threshold", errors)
    for name, label, _, _ in _LIMITS:
        if name in form:
            text = form[name].strip()
            if text.isascii() and text.isdigit():
                changes[name] = int(text[:12])
            else:
                errors[name] = f"{label} is a whole number, not {text[:20]!r}."
    if errors:
        raise _Wrong(errors)
    try:
        return merge_settings(current, changes)
    except InvalidInput as exc:
        raise _Wrong({exc.field or "": str(exc)}) from None


def _decimal(text: str, places: int, field: str, errors: dict[str, str]) -> int:
    name = field.removeprefix("weight.")
    try:
        value = Decimal(text.strip()).scaleb(places)
    except InvalidOperation:
        value = Decimal("NaN")
    if value.is_finite() and abs(value) < 10**16:
        return int(value.to_integral_value())
    errors[field] = f"The number for {name} cannot be read: {text[:20]!r}."
    return 0


def _changes(current: MindSettings, proposed: MindSettings) -> dict[str, Any]:
    """Return what differs, so that what somebody else changed meanwhile is not set back."""
    weights = {
        name: weight
        for name, weight in proposed.weights.items()
        if weight != current.weights.get(name, 0)
    }
    changes: dict[str, Any] = {"weights": weights} if weights else {}
    for name in ("threshold", *(name for name, *_ in _LIMITS)):
        if getattr(proposed, name) != getattr(current, name):
            changes[name] = getattr(proposed, name)
    return changes


# -- the dry-run -----------------------------------------------------------------------------


async def _run(
    call: Call, mind: Mind, current: MindSettings, proposed: MindSettings, last: int
) -> panels.DryRun:
    cycles = await last_cycles(call.services, mind, last)
    modes = await load_modes(call.services)
    # A thousand cycles take a while to decide again; the other minds go on meanwhile.
    found = await asyncio.to_thread(dryrun.dry_run, cycles, proposed, modes)
    sight = call.sight
    veil = None
    if not sight.sees(mind.namespace):
        veil = notice(sight.why_hidden(mind.namespace))
    differences = [row for d in found.differences for row in _rows(d, veil)]
    return panels.DryRun(
        slug=mind.slug,
        cycles=found.cycles,
        admissions=found.admissions,
        changed=len(differences),
        differences=tuple(differences[::-1][:_LISTED]),
        next_version=mind.settings_version + 1,
        same_as_saved=proposed == current,
        skipped=found.skipped,
        note=call.form.get("note", ""),
    )


def _rows(difference: dryrun.Difference, veil: Hidden | None) -> list[panels.Difference]:
    gone = [c for c in difference.was if c.id in difference.gone]
    new = [c for c in difference.would if c.id in difference.new]
    return [
        panels.Difference(
            cycle=difference.number,
            was=None if was is None else veil or clipped(was.text),
            would_be=None if would is None else veil or clipped(would.text),
            was_score=None if was is None else was.score,
            would_be_score=None if would is None else would.score,
        )
        for was, would in zip_longest(gone, new)
    ]


# -- the page --------------------------------------------------------------------------------


async def _page(
    call: Call,
    mind: Mind,
    errors: Mapping[str, str],
    *,
    result: panels.DryRun | None = None,
    error: str | None = None,
    status: int = 400,
    typed: Mapping[str, str] | None = None,
) -> Response:
    """Return the page with what was typed, or with what is in force where nothing was."""
    at = await position(call)
    history = await call.services.minds.settings_history(mind)
    current = history[0].settings
    typed = call.form if typed is None else typed
    context = panels.TuningPage(
        mind=head_of(mind),
        version=mind.settings_version,
        weights=tuple(_weight(name, current, typed, errors) for name in FEATURES),
        limits=tuple(
            panels.LimitField(
                name=name,
                label=label,
                about=about,
                text=typed.get(name, str(getattr(current, name))),
                saved=getattr(current, name),
                dry=dry,
                error=errors.get(name),
            )
            for name, label, about, dry in _LIMITS
        ),
        threshold=typed.get("threshold", plain_decimal(current.threshold, 12)),
        threshold_saved=current.threshold,
        threshold_error=errors.get("threshold"),
        last=_last_typed(typed),
        dry_run=result,
        history=_history(history),
        error=error,
    )
    return page(
        call,
        "tuning.html",
        context,
        title=f"Tuning of {mind.name}",
        active="minds",
        mind=mind.slug,
        at=at,
        status=status if error else 200,
    )


def _last_typed(typed: Mapping[str, str]) -> int:
    try:
        return forms.whole(typed, "last", low=1, high=_MOST_CYCLES) or _LAST
    except InvalidInput:
        return _LAST


def _weight(
    name: str, current: MindSettings, typed: Mapping[str, str], errors: Mapping[str, str]
) -> panels.WeightField:
    saved = current.weights.get(name, 0)
    return panels.WeightField(
        feature=name,
        label=name.capitalize(),
        about=_ABOUT[name],
        text=typed.get(f"weight.{name}", plain_micro(saved)),
        saved=saved,
        negative=name in NEGATIVE,
        error=errors.get(f"weight.{name}"),
    )


def _history(versions: Sequence[minds.SettingsVersion]) -> tuple[panels.SettingsVersion, ...]:
    shown = []
    for i, version in enumerate(versions):
        before = versions[i + 1].settings if i + 1 < len(versions) else None
        shown.append(
            panels.SettingsVersion(
                number=version.version,
                at=version.recorded_at,
                actor=version.actor,
                note=version.note or None,
                changes=() if before is None else _diff(before, version.settings),
                current=i == 0,
            )
        )
    return tuple(shown)


def _diff(before: MindSettings, after: MindSettings) -> tuple[panels.Change, ...]:
    changes = []
    for name in FEATURES:
        old, new = before.weights.get(name), after.weights.get(name)
        if old != new:
            shown = [NOTHING if w is None else plain_micro(w) for w in (old, new)]
            changes.append(panels.Change(name=name, before=shown[0], after=shown[1]))
    if before.threshold != after.threshold:
        changes.append(
            panels.Change(
                name="threshold",
                before=plain_decimal(before.threshold, 12),
                after=plain_decimal(after.threshold, 12),
            )
        )
    for name, label, _, _ in _LIMITS:
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            changes.append(panels.Change(name=label, before=number(was), after=number(now)))
    return tuple(changes)

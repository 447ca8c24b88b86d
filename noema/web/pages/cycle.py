"""One cycle: who competed, who won by what, and the smallest change that would have turned it."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from starlette.responses import Response

from noema.cognition.flips import Flip
from noema.cognition.model import FEATURES, NEGATIVE, Mind, MindSettings, Mode, Scored
from noema.cognition.record import RecordedCycle, as_of, read
from noema.core.errors import NotFound
from noema.events.model import Event
from noema.web import views
from noema.web.api.cycles import number_of
from noema.web.call import Call
from noema.web.pages.shell import fragment, mind_path, page, position, wants_fragment
from noema.web.pages.shown import (
    clipped,
    cycle_row,
    event_row,
    head_of,
    is_redacted,
    text_of,
)
from noema.web.recorded import load_modes
from noema.web.render import number, score
from noema.web.why import explain

_CHOICES = 60


async def show(call: Call) -> Response:
    services, at = call.services, await position(call)
    mind = await services.minds.get(call.path("slug"))
    wanted = number_of(call)
    if not 1 <= wanted <= 2**53:
        raise NotFound("cycle", wanted)
    cycle_id = await services.pages.cycle_id(mind.id, wanted)
    events = await services.events.of_cycles([cycle_id])
    cycle = read(events)
    flip = await _flip(call, mind, cycle)
    if flip is not None and wants_fragment(call):
        return fragment(call, "fragments/flip.html", flip)
    settings = await services.minds.settings_of(mind, cycle.settings_version)
    modes = await load_modes(services)
    mode = modes[cycle.mode, cycle.mode_version]
    context = _context(mind, cycle, events, settings, mode, flip)
    return page(
        call,
        "cycle.html",
        context,
        title=f"Cycle {wanted} of {mind.name}",
        active="minds",
        mind=mind.slug,
        at=at,
    )


def _context(
    mind: Mind,
    cycle: RecordedCycle,
    events: Sequence[Event],
    settings: MindSettings,
    mode: Mode,
    flip: views.FlipPanel | None,
) -> views.CyclePage:
    columns = features_of(cycle, settings)
    rows = candidates(cycle, columns, settings)
    winner = rows[0] if rows and rows[0].admitted else None
    open_ = [c for c in rows if c.gate is None]
    thought = next((e for e in events if e.id in cycle.thoughts), None)
    completed = cycle.completed
    return views.CyclePage(
        mind=head_of(mind),
        row=cycle_row(mind.slug, cycle.id, completed.data, completed.content, thought),
        mode=cycle.mode,
        # The headline names who came second, admitted or not, as the flip panel does.
        winner=None if winner is None else replace(winner, margin=cycle.outcome.margin),
        runner_up=open_[1] if winner is not None and len(open_) > 1 else None,
        candidates=rows,
        features=columns,
        threshold=cycle.outcome.threshold,
        capacity=cycle.outcome.k,
        gates=_gates(cycle, settings, mode),
        flip=flip,
        spans=_spans(cycle, events),
        events=tuple(event_row(e, mind.slug, {cycle.id: cycle.number}) for e in events),
        settings_version=cycle.settings_version,
        scorer_version=str(cycle.scorer_version),
        code_version=_versions(cycle),
        as_of=as_of(cycle),
        candidate_set_hash=cycle.candidate_set,
        stimuli=completed.data["observed"],
        previous=cycle.number - 1 if cycle.number > 1 else None,
        next=cycle.number + 1 if cycle.number < mind.cycles else None,
        json_href=f"/v1{mind_path(mind.slug, f'/cycles/{cycle.number}')}",
    )


def _versions(cycle: RecordedCycle) -> str:
    processes = " · ".join(f"{name} {cycle.versions[name]}" for name in cycle.processes)
    return f"state {cycle.state_version} · {processes}"


# -- candidates ------------------------------------------------------------------------------


def features_of(cycle: RecordedCycle, settings: MindSettings) -> tuple[views.FeatureColumn, ...]:
    """Return the features that any candidate of the cycle has; what speaks against is negative."""
    present = {name for s in cycle.outcome.scored for name in s.features}
    return tuple(
        views.FeatureColumn(
            name=name,
            weight=_sign(name) * settings.weights.get(name, 0),
            effective=_sign(name) * cycle.outcome.weights.get(name, 0),
        )
        for name in (*FEATURES, *sorted(present.difference(FEATURES)))
        if name in present
    )


def _sign(feature: str) -> int:
    return -1 if feature in NEGATIVE else 1


def candidates(
    cycle: RecordedCycle, columns: Sequence[views.FeatureColumn], settings: MindSettings
) -> tuple[views.Candidate, ...]:
    """Return the candidates of the cycle in rank order, with a contribution per column."""
    scored = cycle.outcome.scored
    open_ = [s for s in scored if s.gate is None]
    best_loser = next((s.score for s in open_ if not s.admitted), None)
    last_admitted = next((s.score for s in reversed(open_) if s.admitted), None)
    rows = []
    for one, event in zip(scored, cycle.candidates, strict=True):
        beside = best_loser if one.admitted else last_admitted
        comparable = one.gate is None and beside is not None
        rows.append(
            views.Candidate(
                id=str(event.id),
                rank=one.rank,
                process=one.candidate.process,
                topic="" if event.is_redacted else one.candidate.topic,
                text=text_of(event, one.candidate.text),
                score=one.score,
                margin=one.score - beside if comparable and beside is not None else None,
                admitted=one.admitted,
                gate=one.gate,
                gate_reason=_why_held(one, settings),
                contributions=contributions(one, columns),
                stimuli=max(1, one.candidate.folded),
                redacted=is_redacted(event),
            )
        )
    return tuple(rows)


def contributions(
    scored: Scored, columns: Sequence[views.FeatureColumn]
) -> tuple[views.Contribution, ...]:
    """Return what each feature added to the score or took from it."""
    return tuple(
        views.Contribution(
            feature=column.name,
            raw=str(scored.raw.get(column.name, "–")),
            value=scored.features.get(column.name, 0),
            weight=column.effective,
            amount=scored.contributions.get(column.name, 0),
        )
        for column in columns
    )


def _why_held(scored: Scored, settings: MindSettings) -> str:
    match scored.gate:
        case None:
            return ""
        case "mode":
            return f"The mode does not listen to {scored.candidate.process}."
        case "quota":
            return f"A process may propose {number(settings.quota)} candidates in one cycle."
        case "duplicate":
            return "A better candidate of this cycle says the same."
        case other:
            return other


def _gates(cycle: RecordedCycle, settings: MindSettings, mode: Mode) -> tuple[views.GateCount, ...]:
    scored = cycle.outcome.scored
    left = len(scored)
    heard = "all processes" if mode.processes is None else ", ".join(mode.processes)
    below = sum(s.gate is None and s.score < cycle.outcome.threshold for s in scored)
    beyond = sum(
        s.gate is None and s.score >= cycle.outcome.threshold and not s.admitted for s in scored
    )
    counts = []
    for name, held, note in (
        ("mode", sum(s.gate == "mode" for s in scored), f"{mode.name} hears {heard}"),
        (
            "quota",
            sum(s.gate == "quota" for s in scored),
            f"at most {number(settings.quota)} of one process",
        ),
        ("duplicate", sum(s.gate == "duplicate" for s in scored), "one of those that say the same"),
        ("threshold", below, f"{score(cycle.outcome.threshold)} or more ignites"),
        ("K", beyond, f"the best {number(cycle.outcome.k)}; the others compete again"),
    ):
        left -= held
        counts.append(views.GateCount(name=name, passed=left, held=held, note=note))
    return tuple(counts)


# -- time ------------------------------------------------------------------------------------


def _spans(cycle: RecordedCycle, events: Sequence[Event]) -> tuple[views.Span, ...]:
    data = cycle.completed.data
    timings = data["timings_us"]
    failed = {e.data["process"]: e.data["why"] for e in events if e.type == "process.failed"}
    proposed: dict[str, int] = {}
    for one in cycle.outcome.scored:
        name = one.candidate.process
        proposed[name] = proposed.get(name, 0) + 1
    spans = []
    for name in cycle.processes:
        why = failed.get(name, "")
        status: views.SpanStatus = "ok" if proposed.get(name) else "empty"
        if why:
            status = "late" if why.startswith("late") else "failed"
        spans.append(
            views.Span(
                name=name,
                start_us=0,
                duration_us=timings.get(name, 0),
                status=status,
                candidates=proposed.get(name, 0),
                note=why,
            )
        )
    slowest = max(timings.values(), default=0)
    rest = max(0, data["duration_us"] - slowest)
    spans.append(views.Span(name="observe, attend", start_us=slowest, duration_us=rest))
    return tuple(spans)


# -- flips -----------------------------------------------------------------------------------


async def _flip(call: Call, mind: Mind, cycle: RecordedCycle) -> views.FlipPanel | None:
    instead = call.query.get("instead") or None
    scored = cycle.outcome.scored
    if instead is None and (len(scored) < 2 or not scored[0].admitted):
        return None
    why = await explain(call.services, mind, cycle, instead)
    if why.winner is None:
        return None
    chosen = why.against
    if chosen is None and instead is not None:
        chosen = next(i for i, e in enumerate(cycle.candidates) if str(e.id) == instead)
    return views.FlipPanel(
        slug=mind.slug,
        number=cycle.number,
        winner=_text(cycle, why.winner),
        against=None if chosen is None else _text(cycle, chosen),
        against_id="" if chosen is None else str(cycle.candidates[chosen].id),
        margin=why.margin,
        choices=_choices(cycle, chosen),
        flips=tuple(_one_flip(cycle, flip, why.against) for flip in why.flips),
        reason=why.reason,
    )


def _text(cycle: RecordedCycle, index: int) -> str | None:
    return text_of(cycle.candidates[index], cycle.outcome.scored[index].candidate.text)


def _choices(cycle: RecordedCycle, chosen: int | None) -> tuple[views.Option, ...]:
    shown = list(range(1, min(len(cycle.candidates), _CHOICES)))
    if chosen is not None and chosen >= _CHOICES:
        shown.append(chosen)
    return tuple(
        views.Option(
            value=str(cycle.candidates[i].id),
            label=_label(cycle, i),
            selected=i == chosen,
        )
        for i in shown
    )


def _label(cycle: RecordedCycle, index: int) -> str:
    scored = cycle.outcome.scored[index]
    text = _text(cycle, index)
    said = "redacted" if text is None else clipped(text, 90)
    return f"#{scored.rank}  {scored.candidate.process}: {said}"


def _one_flip(cycle: RecordedCycle, flip: Flip, against: int | None) -> views.Flip:
    of = ""
    if flip.candidate is not None:
        of = {0: "the winner", against: "this one"}.get(flip.candidate, f"#{flip.candidate + 1}")
    winner: UUID = cycle.candidates[flip.new_winner].id
    return views.Flip(
        kind=flip.kind,
        name=flip.name,
        of=of,
        before=flip.before,
        after=flip.after,
        low=flip.low,
        high=flip.high,
        new_winner=_text(cycle, flip.new_winner),
        new_winner_id=str(winner),
        confirmed=flip.confirmed,
    )

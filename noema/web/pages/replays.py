"""Replays: verifying recorded cycles, and where one first differed."""

from starlette.responses import Response

from noema import __version__
from noema.cognition.attention import SCORER_VERSION
from noema.core.errors import InvalidInput, NotFound, RateLimited
from noema.replay.model import Difference, Replay
from noema.web import forms, panels
from noema.web.call import Call
from noema.web.pages.shell import page, see_other
from noema.web.pages.shown import clipped

_SHOWN = 100


async def show(call: Call) -> Response:
    return await _page(call)


async def start(call: Call) -> Response:
    try:
        mind = await call.services.minds.get(call.form.get("mind", ""))
        replay = await call.services.replays.start_verify(
            mind,
            first=forms.whole(call.form, "from", low=1),
            last=forms.whole(call.form, "to", low=1),
            actor=call.who.actor,
        )
    except (InvalidInput, NotFound, RateLimited) as exc:
        return await _page(call, error=str(exc))
    return see_other(f"/replays/{replay}")


async def _page(call: Call, *, error: str | None = None) -> Response:
    runs = await call.services.replays.list_(limit=_SHOWN)
    minds = await call.services.minds.list_()
    context = panels.ReplaysPage(
        runs=tuple(replay_row(r) for r in runs),
        minds=tuple(m.slug for m in minds),
        mind=call.form.get("mind", call.query.get("mind", "")),
        from_=call.form.get("from", ""),
        to=call.form.get("to", ""),
        error=error,
    )
    status = 200 if error is None else 400
    return page(call, "replays.html", context, title="Replays", active="replays", status=status)


async def show_one(call: Call) -> Response:
    run = await call.services.replays.get(forms.uuid_of(call.path("id"), "replay"))
    seconds = None
    if run.finished_at is not None:
        seconds = (run.finished_at - run.created_at).total_seconds()
    context = panels.ReplayPage(
        run=replay_row(run),
        actor=run.actor,
        notes=run.notes,
        scorer_version=str(SCORER_VERSION),
        code_version=__version__,
        cycles_per_second=round(run.verified / seconds) if seconds else None,
        json_href=f"/v1/replays/{run.id}",
    )
    return page(
        call,
        "replay.html",
        context,
        title=f"Replay of {run.mind}",
        active="replays",
        mind=run.mind,
    )


def replay_row(run: Replay) -> panels.ReplayRow:
    """Return a verification as a row."""
    return panels.ReplayRow(
        id=str(run.id),
        mind=run.mind,
        state=run.state,
        from_cycle=run.first,
        to_cycle=run.last,
        cycles=run.cycles,
        verified=run.verified,
        label=_label(run),
        started_at=run.created_at,
        finished_at=run.finished_at,
        first_difference=None if run.first_difference is None else _first(run.first_difference),
        error=run.error,
    )


def _label(run: Replay) -> str:
    if not run.notes:
        return "exact" if run.state == "done" else ""
    return "redacted" if any("redacted" in n for n in run.notes) else "approximate"


def _first(found: Difference) -> panels.FirstDifference:
    return panels.FirstDifference(
        cycle=found.cycle,
        candidate=found.candidate,
        feature=found.feature,
        recorded=clipped(str(found.recorded), 120),
        recomputed=clipped(str(found.recomputed), 120),
        what=found.what,
    )

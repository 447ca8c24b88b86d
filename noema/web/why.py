"""Why a cycle's winner won, for the API: flips with candidates named by id."""

from typing import Any

import msgspec

from noema.cognition.flips import Why, flips
from noema.cognition.model import Mind
from noema.cognition.record import RecordedCycle
from noema.core.errors import NotFound
from noema.web.recorded import load_modes
from noema.web.services import Services
from noema.web.sighted import veil_of


async def explain(
    services: Services, mind: Mind, recorded: RecordedCycle, instead: str | None
) -> Why:
    """Return the flips of a recorded cycle; `instead` is the id of a candidate of it.

    Raises NotFound where the cycle has no such candidate.
    """
    index = None
    if instead is not None:
        ids = [str(e.id) for e in recorded.candidates]
        if instead not in ids:
            raise NotFound("candidate", instead)
        index = ids.index(instead)
    modes = await load_modes(services)
    return flips(
        recorded.outcome,
        await services.minds.settings_of(mind, recorded.settings_version),
        modes[recorded.mode, recorded.mode_version],
        order=recorded.processes,
        instead=index,
    )


async def why_of(
    services: Services, mind: Mind, recorded: RecordedCycle, instead: str | None
) -> dict[str, Any]:
    """Return the answer of GET …/why."""
    why = await explain(services, mind, recorded, instead)

    def candidate(index: int | None) -> dict[str, Any] | None:
        if index is None:
            return None
        scored = recorded.outcome.scored[index]
        is_hidden = veil_of(recorded.candidates[index].content) is not None
        return {
            "id": recorded.candidates[index].id,
            "process": scored.candidate.process,
            "text": None if is_hidden else scored.candidate.text,
            "score": scored.score,
            "rank": scored.rank,
            "gate": scored.gate,
        }

    found = [
        {
            flip.kind: flip.name,
            "of": None if flip.candidate is None else recorded.candidates[flip.candidate].id,
            "from": flip.before,
            "to": flip.after,
            "new_winner": recorded.candidates[flip.new_winner].id,
            "new winner": recorded.candidates[flip.new_winner].id,
            "confirmed": flip.confirmed,
        }
        for flip in why.flips
    ]
    return {
        "cycle": recorded.number,
        "winner": candidate(why.winner),
        "against": candidate(why.against),
        "margin": why.margin,
        "threshold": recorded.outcome.threshold,
        "contributions": [msgspec.to_builtins(c) for c in why.contributions],
        "flips": found,
        "reason": why.reason,
    }

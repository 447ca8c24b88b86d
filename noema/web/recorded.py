"""Recorded cycles, read for the API and the pages."""

from noema.cognition import runner
from noema.cognition.model import Mind
from noema.cognition.record import RecordedCycle, read
from noema.cognition.runner import recorded_cycles
from noema.cognition.state import Modes
from noema.web.services import Services


async def load_modes(services: Services) -> Modes:
    """Return every version of every mode."""
    return await runner.load_modes(services.db)


async def one_cycle(services: Services, mind: Mind, number: int) -> RecordedCycle:
    """Return the mind's cycle of that number, or raise NotFound."""
    cycle_id = await services.pages.cycle_id(mind.id, number)
    return read(await services.events.of_cycles([cycle_id]))


async def last_cycles(services: Services, mind: Mind, most: int) -> list[RecordedCycle]:
    """Return the mind's newest cycles, oldest first."""
    first = max(1, mind.cycles - most + 1)
    found: list[RecordedCycle] = []
    while first <= mind.cycles:
        page = await recorded_cycles(
            services.db, services.events, mind.id, first=first, last=mind.cycles
        )
        if not page:
            break
        found.extend(page)
        first = page[-1].number + 1
    return found

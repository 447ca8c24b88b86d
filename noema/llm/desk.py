"""Everything of models that the rest of the daemon calls."""

from dataclasses import dataclass

from noema.llm.breakers import Breakers
from noema.llm.budget import Budgets
from noema.llm.calls import Calls
from noema.llm.embedders.choice import Choice
from noema.llm.library import Library
from noema.llm.meter import Meter
from noema.llm.recorder import Recorder
from noema.llm.registry import Registry
from noema.llm.service import LanguageService
from noema.llm.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Llm:
    """The model service with what is configured, kept and counted of it."""

    registry: Registry
    library: Library
    budgets: Budgets
    calls: Calls
    trial: Trial
    service: LanguageService
    recorder: Recorder
    meter: Meter
    breakers: Breakers
    embedding: Choice

    async def start(self) -> None:
        """Install the shipped prompts that are not there yet."""
        await self.library.install_defaults()

    async def run(self) -> None:
        """Write calls on record, until `stop` and what waits is written."""
        await self.recorder.run()

    def stop(self) -> None:
        """Take no more calls."""
        self.recorder.stop()

    async def aclose(self) -> None:
        """Close the connections to providers."""
        await self.registry.aclose()

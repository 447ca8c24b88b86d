"""Which provider is left alone for a while, because it does not answer."""

from uuid import UUID

from noema.core.clock import Clock
from noema.llm.model import Entry
from noema.llm.retry import Breaker
from noema.net.circuit import Circuit


class Breakers:
    """One circuit for each provider, whichever role asks it.

    A provider that was changed is another one: whoever mends its address or its secret does not
    wait for the rest that the old one was given.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._circuits: dict[UUID, tuple[int, Circuit]] = {}

    def of(self, entry: Entry) -> Breaker:
        """Return the circuit of the entry's provider."""
        version, circuit = self._circuits.get(entry.provider, (-1, None))
        # A call that began before the change does not bring the old one back.
        if circuit is None or entry.version > version:
            circuit = Circuit(entry.name, self._clock)
            self._circuits[entry.provider] = entry.version, circuit
        return circuit

    def get(self, provider: UUID) -> Circuit | None:
        """Return the circuit of a provider, None where no role has asked it since the start."""
        found = self._circuits.get(provider)
        return None if found is None else found[1]

    @property
    def resting(self) -> int:
        """How many providers are not asked now."""
        return sum(circuit.is_open for _, circuit in self._circuits.values())

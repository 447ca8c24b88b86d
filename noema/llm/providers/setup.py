"""What a provider is made of."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from noema.core.clock import Clock
from noema.llm.errors import AttemptFailed
from noema.llm.model import Parameters, Usage
from noema.llm.providers.wire import Limits, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A provider's row with its secret opened, and how it is reached.

    Which addresses may be reached the `transport` knows; `allows_private` is for what a kind
    itself makes of an address. Without a transport any address may be reached.
    """

    endpoint: str
    secret: str = field(repr=False)
    allows_private: bool
    parameters: Parameters
    transport: httpx.AsyncBaseTransport | None
    clock: Clock
    limits: Limits

    def wire(self, endpoint: str, *, secrets: Sequence[str]) -> Wire:
        """Return the connections to the endpoint, as the kind spells it."""
        return Wire(
            endpoint=endpoint,
            secrets=secrets,
            transport=self.transport,
            clock=self.clock,
            limits=self.limits,
        )


class Counting(Protocol):
    """Reads an answer, and knows at any moment what it has been told of tokens."""

    @property
    def usage(self) -> Usage: ...


@contextmanager
def counted(reading: Counting) -> Iterator[None]:
    """Let a failure inside say what was used, where it does not say so itself."""
    try:
        yield
    except AttemptFailed as exc:
        if exc.usage == Usage():
            exc.usage = reading.usage
        raise

"""What models are asked, in the Prometheus text format.

Anybody may read these figures, so that neither a provider nor an amount of money is in them.
"""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from noema.llm.budget import CostKind
from noema.llm.calls import Ended
from noema.llm.errors import BudgetExceeded
from noema.llm.model import Role

_BOUNDS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_CLASSES: Final = ("input", "output", "reasoning", "cache_read", "cache_write")
_UNKNOWN: Final[CostKind] = "unknown"


class Meter:
    """Figures by role, since the start of the daemon; tests of a provider are not among them."""

    def __init__(self, *, resting: Callable[[], int]) -> None:
        """`resting` tells of how many providers nobody is asked at the moment."""
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "noema_llm_call_seconds",
            "How long calls of models took, with all their attempts.",
            ("role", "state"),
            registry=self._registry,
            buckets=_BOUNDS_S,
        )
        self._attempts = self._counter("attempts", "Attempts of calls.", "role", "outcome")
        self._tokens = self._counter("tokens", "Tokens; no token is in two.", "role", "token_class")
        self._stopped = self._counter("budget_stops", "Calls that ended at a budget.", "role")
        self._unknown = self._counter("unknown_costs", "Calls of a cost nobody knows.", "role")
        gauge = Gauge(
            "noema_llm_providers_resting",
            "Providers that are not asked for a while, after failures in a row.",
            registry=self._registry,
        )
        gauge.set_function(resting)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"noema_llm_{name}", text, labels, registry=self._registry)

    def ended(self, role: Role, ended: Ended) -> None:
        """Count one call that ended."""
        self._seconds.labels(role.value, ended.state).observe(max(0, ended.latency_ms) / 1000)
        for attempt in ended.attempts:
            outcome = "failed" if attempt.error else "answered"
            self._attempts.labels(role.value, outcome).inc()
        for name in _CLASSES:
            count: int | None = getattr(ended.usage, name)
            if count:
                self._tokens.labels(role.value, name).inc(count)
        if ended.error == BudgetExceeded.code:
            self._stopped.labels(role.value).inc()
        if ended.cost_kind == _UNKNOWN:
            self._unknown.labels(role.value).inc()

    def text(self) -> bytes:
        """Return the figures for `/metrics`."""
        return generate_latest(self._registry)

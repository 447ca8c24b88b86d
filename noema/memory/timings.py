"""How long syscalls take and how they end, in the Prometheus text format."""

from typing import Final

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from noema.core.act import Outcome

_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Timings:
    """A histogram of seconds by syscall and outcome; its count is the number of calls."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "noema_syscall_seconds",
            "How long syscalls of the memory kernel took.",
            ("op", "outcome"),
            registry=self._registry,
            buckets=_BOUNDS_S,
        )

    def observe(self, op: str, outcome: Outcome, seconds: float) -> None:
        """Count one call."""
        self._seconds.labels(op, outcome.value).observe(max(0.0, seconds))

    def text(self) -> bytes:
        """Return the figures for `/metrics`."""
        return generate_latest(self._registry)

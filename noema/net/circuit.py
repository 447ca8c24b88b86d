"""Stop asking a service that does not answer, for a while, so that nobody waits for it in vain."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from noema.core.clock import Clock
from noema.core.errors import Unavailable

FAILURES: Final = 3
FIRST_S: Final = 5.0
LONGEST_S: Final = 60.0


class Circuit:
    """Counts failures in a row. After `FAILURES` it opens, and every call fails at once.

    When the time is up one call is let through: where it succeeds the circuit closes, else it stays
    open twice as long as before, up to a minute. A service may ask for a longer rest (`rest_s`).
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._pause_s = FIRST_S
        self._open_until: float | None = None
        self._is_trying = False
        self._reason = ""

    @property
    def is_open(self) -> bool:
        """Whether a call would fail at once."""
        if self._open_until is None:
            return False
        return self._is_trying or self._clock.monotonic() < self._open_until

    @contextmanager
    def call(self) -> Iterator[None]:
        """Let one call through, or raise Unavailable at once with what was last wrong."""
        if self.is_open:
            raise Unavailable(f"{self._reason} Not asked again yet.")
        is_trial = self._open_until is not None
        self._is_trying = is_trial
        try:
            yield
        finally:
            if is_trial:
                self._is_trying = False

    def succeeded(self) -> None:
        """Note a good answer: all is forgotten."""
        self._failures = 0
        self._pause_s = FIRST_S
        self._open_until = None

    def failed(self, reason: str, *, rest_s: float = 0.0) -> None:
        """Note a failure; `rest_s` is how long the service asked to be left alone."""
        self._failures += 1
        self._reason = reason
        was_open = self._open_until is not None
        if self._failures < FAILURES and rest_s <= 0.0 and not was_open:
            return
        pause_s = max(rest_s, self._pause_s)
        self._open_until = self._clock.monotonic() + pause_s
        self._pause_s = min(self._pause_s * 2, LONGEST_S)

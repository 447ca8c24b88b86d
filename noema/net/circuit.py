"""Stop asking a service that does not answer, for a while, so that nobody waits for it in vain."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from noema.core.clock import Clock
from noema.core.errors import Unavailable

FAILURES: Final = 3
FIRST_S: Final = 5.0
LONGEST_S: Final = 60.0
LONGEST_REST_S: Final = 3_600.0
"""A service that asks for a longer rest is asked again after this one."""


class Circuit:
    """Counts failures in a row. After `FAILURES` it opens, and every call fails at once.

    When the time is up one call is let through: where it succeeds the circuit closes, else it stays
    open twice as long as before, up to a minute. However many calls were under way when it opened,
    and fail after that, it opened once. A service may ask for a longer rest (`rest_s`).
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._pause_s = FIRST_S
        self._open_until: float | None = None
        self._is_trying = False
        self._has_trial_failed = False
        self._reason = ""

    @property
    def is_open(self) -> bool:
        """Whether a call would fail at once."""
        if self._open_until is None:
            return False
        return self._is_trying or self._clock.monotonic() < self._open_until

    @property
    def failures(self) -> int:
        """How many failures in a row were counted until it opened."""
        return self._failures

    @property
    def rests_s(self) -> float:
        """For how many seconds nobody is let through, 0.0 where somebody is."""
        if self._open_until is None:
            return 0.0
        return max(0.0, self._open_until - self._clock.monotonic())

    @contextmanager
    def call(self) -> Iterator[None]:
        """Let one call through, or raise Unavailable at once with what was last wrong."""
        if self.is_open:
            raise Unavailable(f"{self._reason} Not asked again yet.")
        is_trial = self._open_until is not None
        if is_trial:
            self._is_trying, self._has_trial_failed = True, False
        try:
            yield
        finally:
            # Also where it was cancelled: then the next call is the one that tries.
            if is_trial:
                self._is_trying = False

    def succeeded(self) -> None:
        """Note a good answer: all is forgotten."""
        self._failures = 0
        self._pause_s = FIRST_S
        self._open_until = None

    def failed(self, reason: str, *, rest_s: float = 0.0) -> None:
        """Note a failure; `rest_s` is how long the service asked to be left alone."""
        self._reason = reason
        now = self._clock.monotonic()
        # Whatever is no number of seconds above nothing is no wish.
        rest_s = min(rest_s, LONGEST_REST_S) if rest_s > 0.0 else 0.0
        if self._open_until is None:
            self._failures += 1
            if self._failures >= FAILURES or rest_s > 0.0:
                self._open_until = now + max(rest_s, self._pause_s)
        elif self._is_trying:
            if not self._has_trial_failed:
                self._has_trial_failed = True
                self._pause_s = min(self._pause_s * 2, LONGEST_S)
            self._open_until = now + max(rest_s, self._pause_s)
        elif rest_s > 0.0:
            # A call from before it opened: no news but for the wish.
            self._open_until = max(self._open_until, now + rest_s)

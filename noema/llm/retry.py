"""The one owner of retries: who is asked next, after how long, and when to give up.

    primary ──failed, worth trying again──▶ wait ──▶ primary again (at most TRIES)
       └─failed for good, or no time──▶ first fallback ──▶ …

Providers never retry, so that every attempt passes through here and is on record.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from noema.core.clock import Clock
from noema.core.errors import Unavailable
from noema.llm.errors import AttemptFailed, BudgetExceeded, NoModel
from noema.llm.model import Completion, Entry

TRIES: Final = 3
FIRST_BACKOFF_S: Final = 0.5
LONGEST_BACKOFF_S: Final = 8.0
# A fallback is no use where no time is left for it.
SHARE_BEFORE_A_FALLBACK: Final = 0.5
# With less than this left another attempt would only cost money.
LEAST_S: Final = 0.05
# Who gave a service less time than this to answer has not found out that it is down.
PATIENT_S: Final = 10.0
RESTS: Final = "It failed lately, and is not asked again yet."


class Chance(Protocol):
    """Where chance comes from; a `random.Random` is one."""

    def random(self) -> float:
        """Return a number from 0 up to 1."""
        ...


class Breaker(Protocol):
    """Stops asking a provider that does not answer, for a while; see `noema.net.circuit`."""

    @property
    def is_open(self) -> bool: ...

    def call(self) -> AbstractContextManager[None]: ...

    def succeeded(self) -> None: ...

    def failed(self, reason: str, *, rest_s: float = 0.0) -> None: ...


TryOnce = Callable[[Entry, float], Awaitable[Completion]]
"""Make one attempt at the entry within that many seconds. Raises AttemptFailed, BudgetExceeded."""

Skipped = Callable[[Entry, str], None]
"""Note that the entry was not asked, and why."""


def pause_s(failure: AttemptFailed, tries: int, *, left_s: float, chance: Chance) -> float | None:
    """Return how long to wait before the same provider is asked again, None to leave it.

    `tries` is how often it was asked. The pause doubles each time and is drawn between half of it
    and all of it, so that many who failed together do not come back together; a longer one that the
    provider asks for is kept. It is None where no time for an answer would be left after it.
    """
    if not failure.retryable or tries >= TRIES:
        return None
    longest = min(FIRST_BACKOFF_S * 2 ** (tries - 1), LONGEST_BACKOFF_S)
    wait_s = longest * (0.5 + chance.random() / 2)
    if failure.retry_after_s is not None:
        wait_s = max(wait_s, failure.retry_after_s)
    return wait_s if wait_s + LEAST_S < left_s else None


class Retrier:
    """Walks a chain until somebody answers or nobody is left."""

    def __init__(
        self, *, clock: Clock, chance: Chance, breaker_of: Callable[[Entry], Breaker]
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._breaker_of = breaker_of

    async def answer(
        self,
        entries: Sequence[Entry],
        *,
        ends_at: float,
        try_once: TryOnce,
        skipped: Skipped,
    ) -> tuple[int, Completion]:
        """Return the index of the entry that answered, and its answer.

        `ends_at` is on the monotonic clock. Raises BudgetExceeded where a budget stopped every
        entry that could have been asked, NoModel where there is none, else Unavailable.
        """
        if not entries:
            raise NoModel("No model is set for this role.")
        reasons: list[str] = []
        stopped: BudgetExceeded | None = None
        was_asked = False
        for index, entry in enumerate(entries):
            others = [self._breaker_of(other) for other in entries[index + 1 :]]
            left_s = ends_at - self._clock.monotonic()
            if any(not breaker.is_open for breaker in others):
                left_s *= SHARE_BEFORE_A_FALLBACK
            try:
                return index, await self._entry(entry, left_s, try_once, skipped)
            except BudgetExceeded as exc:
                stopped = stopped or exc
                reasons.append(f"{entry.name}: {exc}")
            except AttemptFailed as exc:
                was_asked = True
                reasons.append(f"{entry.name}: {exc}")
            except Unavailable as exc:
                reasons.append(f"{entry.name}: {exc}")
        if stopped is not None and not was_asked:
            raise stopped
        raise Unavailable(f"No model answered. {' '.join(reasons)}")

    async def _entry(
        self, entry: Entry, left_s: float, try_once: TryOnce, skipped: Skipped
    ) -> Completion:
        """Ask one entry until it answers, or it is not worth it any more."""
        ends_at = self._clock.monotonic() + left_s
        breaker = self._breaker_of(entry)
        last: AttemptFailed | None = None
        tries = 0
        while True:
            left_s = ends_at - self._clock.monotonic()
            reason = "No time was left." if left_s < LEAST_S else RESTS if breaker.is_open else ""
            if reason:
                skipped(entry, reason)
                raise last or Unavailable(reason)
            tries += 1
            try:
                return await self._once(entry, breaker, left_s, try_once)
            except BudgetExceeded:
                if last is None:
                    raise
                raise last from None
            except AttemptFailed as exc:
                last = exc
            left_s = ends_at - self._clock.monotonic()
            wait_s = pause_s(last, tries, left_s=left_s, chance=self._chance)
            if wait_s is None:
                raise last
            await self._clock.sleep(wait_s)

    async def _once(
        self, entry: Entry, breaker: Breaker, left_s: float, try_once: TryOnce
    ) -> Completion:
        ends_at = self._clock.monotonic() + left_s
        with breaker.call():
            try:
                completion = await try_once(entry, left_s)
            except AttemptFailed as exc:
                self._count(breaker, exc, given_s=left_s, ends_at=ends_at)
                raise
            breaker.succeeded()
            return completion

    def _count(
        self, breaker: Breaker, failure: AttemptFailed, *, given_s: float, ends_at: float
    ) -> None:
        """Tell the breaker of a failure that says something about the provider."""
        now = self._clock.monotonic()
        asked_rest_s = failure.retry_after_s or 0.0
        if asked_rest_s > 0.0:
            # A rest short enough to be waited for here is no reason to turn others away.
            if now + asked_rest_s + LEAST_S >= ends_at:
                breaker.failed(str(failure), rest_s=asked_rest_s)
            return
        was_cut_short = now + LEAST_S >= ends_at and given_s < PATIENT_S
        if failure.retryable and not was_cut_short:
            breaker.failed(str(failure))

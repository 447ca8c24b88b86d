"""What the attempts of one call take: reserved before each, settled after it, summed at the end.

    want ──▶ (reserved) ──opened──▶ (asked) ──settle──▶ (settled) ──written──▶
      └─────────────close: nothing was spent    └──close: nobody knows what

Nothing here waits for anything: what is to be written is handed out, and forgotten once it is.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from noema.core.clock import Clock
from noema.llm.budget import CostKind, Hold, Settled, cost_of, is_free, worst_case
from noema.llm.errors import AttemptFailed
from noema.llm.model import Attempt, ChatMessage, CognitiveRequest, Completion, Entry, Usage
from noema.llm.providers.asking import merged

# No model counts as far; a provider that says so is not believed.
_MOST_TOKENS: Final = 10**9


class Account:
    """The attempts of one call, and what of them is reserved and not yet settled."""

    def __init__(self, call: UUID, request: CognitiveRequest, clock: Clock) -> None:
        self._call = call
        self._request = request
        self._clock = clock
        self._began = clock.monotonic()
        self._number = 0
        self._held: tuple[Entry, Hold] | None = None
        self._is_reserved = False
        self._open: tuple[Entry, float] | None = None
        self._settled: list[Settled] = []
        self.attempts: list[Attempt] = []

    @property
    def settled(self) -> tuple[Settled, ...]:
        """What is settled, and not known to be written so."""
        return tuple(self._settled)

    def want(self, entry: Entry, messages: Sequence[ChatMessage]) -> Hold | None:
        """Return what to reserve for an attempt at the entry; None where just that is reserved."""
        if self._held is not None:
            held_for, held = self._held
            if self._is_reserved and held_for == entry:
                return None
            # Whether it was written, nobody may know.
            self._settled.append(self._nothing(held))
        self._is_reserved = False
        self._number += 1
        hold = self._hold(entry, messages, self._number)
        self._held = entry, hold
        return hold

    def _hold(self, entry: Entry, messages: Sequence[ChatMessage], attempt: int) -> Hold:
        parameters = merged(entry.parameters, self._request.parameters)
        micros, tokens = worst_case(entry, messages, self._request.schema, parameters)
        context = self._request.context
        return Hold(
            call=self._call,
            attempt=attempt,
            mind=context.mind,
            cycle=context.cycle,
            role=self._request.role.value,
            provider=entry.name,
            micros=micros,
            tokens=tokens,
        )

    def _nothing(self, hold: Hold) -> Settled:
        # Also where it was never reserved: what is not there is settled to nothing.
        return Settled(call=self._call, attempt=hold.attempt, micros=0, tokens=0, is_unknown=False)

    def reserved(self) -> None:
        """Note that what was wanted is reserved, or that it is known what stops it."""
        self._is_reserved = True

    def written(self, settled: Sequence[Settled]) -> None:
        """Forget what is written: the first of what is settled."""
        del self._settled[: len(settled)]

    def stopped(self) -> None:
        """Note that a budget had no room for what was wanted."""
        self._held = None

    def opened(self, entry: Entry) -> None:
        """Note that the entry is asked from now on."""
        self._held = None
        self._open = entry, self._clock.monotonic()

    def settle(
        self, *, completion: Completion | None = None, failure: AttemptFailed | None = None
    ) -> None:
        """Note what the attempt that is open took: one of the two came of it."""
        if self._open is None:
            return
        entry, began = self._open
        self._open = None
        usage = Usage() if failure is None else _counted(failure.usage)
        if completion is not None:
            usage = _counted(completion.usage, is_answer=bool(completion.text))
        cost: int | None
        tokens: int | None
        kind: CostKind
        if failure is not None and not failure.is_cost_unknown and usage.total is None:
            cost, kind, tokens = 0, "free" if is_free(entry.prices) else "known", 0
        else:
            is_unknown = failure is not None and failure.is_cost_unknown
            cost, kind = cost_of(Usage() if is_unknown else usage, entry.prices)
            tokens = None if is_unknown else usage.total
        self._settled.append(
            Settled(
                call=self._call,
                attempt=self._number,
                micros=cost,
                tokens=tokens,
                is_unknown=cost is None or tokens is None,
            )
        )
        status = None if failure is None else failure.status
        self.attempts.append(
            Attempt(
                provider=entry.name,
                model=entry.model if completion is None else completion.model,
                started_ms=self._ms(began),
                latency_ms=_ms_between(began, self._clock.monotonic()),
                status=status if completion is None else completion.status,
                error="" if failure is None else str(failure),
                usage=usage,
                cost_micros=cost,
                cost_kind=kind,
            )
        )

    def skipped(self, entry: Entry, reason: str) -> None:
        """Note that the entry was not asked, and why."""
        self.attempts.append(
            Attempt(
                provider=entry.name,
                model=entry.model,
                started_ms=self.elapsed_ms,
                latency_ms=0,
                error=f"Not asked: {reason}",
                cost_micros=0,
                cost_kind="free" if is_free(entry.prices) else "known",
            )
        )

    def close(self, reason: str) -> None:
        """Settle what is left: whoever was asked may have worked for it, nobody else has."""
        if self._open is not None:
            self.settle(failure=AttemptFailed(reason, retryable=False, is_cost_unknown=True))
        if self._held is not None:
            self._settled.append(self._nothing(self._held[1]))
            self._held = None

    @property
    def usage(self) -> Usage:
        """The tokens of all attempts; None where no attempt said anything of the class."""

        def of(name: str) -> int | None:
            counts = [n for one in self.attempts if (n := getattr(one.usage, name)) is not None]
            return sum(counts) if counts else None

        return Usage(**{name: of(name) for name in Usage.__struct_fields__})

    @property
    def cost(self) -> tuple[int | None, CostKind]:
        """What the attempts cost as far as it is known, None where nothing is, and how far."""
        known = [a.cost_micros for a in self.attempts if a.cost_micros is not None]
        kinds = {a.cost_kind for a in self.attempts}
        kind: CostKind = "known"
        if "unknown" in kinds:
            kind = "unknown"
        elif "estimated" in kinds:
            kind = "estimated"
        elif kinds == {"free"}:
            kind = "free"
        if kind == "unknown" and not any(known):
            return None, kind
        return sum(known), kind

    @property
    def elapsed_ms(self) -> int:
        return self._ms(self._clock.monotonic())

    def _ms(self, at: float) -> int:
        return _ms_between(self._began, at)


def _counted(usage: Usage, *, is_answer: bool = False) -> Usage:
    """Return the counts that can be true.

    An answer that took nothing to ask or nothing to write was not counted: some services send
    noughts where they do not count, and what nobody knows is never nothing.
    """
    counts = {
        name: n if n is not None and 0 <= n <= _MOST_TOKENS else None
        for name in Usage.__struct_fields__
        if (n := getattr(usage, name)) is not None
    }
    believed = Usage(**counts)
    if is_answer and not any((believed.input, believed.cache_read, believed.cache_write)):
        believed = msgspec.structs.replace(believed, input=None)
    if is_answer and not any((believed.output, believed.reasoning)):
        believed = msgspec.structs.replace(believed, output=None)
    return believed


def _ms_between(began: float, ended: float) -> int:
    return max(0, round((ended - began) * 1000))

"""What cognitive code asks: a role, answered by the first of its models that can, on record.

    role ──▶ chain ──▶ begin (record, reserve) ──▶ attempt ──▶ settle, record ──▶ answer
                         │                          └─failed─▶ settle, reserve ──▶ next attempt
                         └─answered before──▶ that answer, and nobody is asked

No answer is used before it is on record. A caller that goes away leaves its attempt on record as
one of unknown cost.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from noema.core.clock import Clock, Ids
from noema.core.errors import Conflict, NoemaError, Unavailable
from noema.llm import answers
from noema.llm.budget import CostKind, Hold, Settled, cost_of, is_free, worst_case
from noema.llm.errors import AttemptFailed, BadAnswer, BudgetExceeded, NoModel
from noema.llm.model import (
    Attempt,
    Chain,
    ChatMessage,
    CognitiveRequest,
    CognitiveResponse,
    Completion,
    Entry,
    Provider,
    Role,
    Usage,
)
from noema.llm.providers.asking import merged
from noema.llm.recorder import CallRecord, Ended, Recorder, new_row
from noema.llm.retry import Breaker, Chance, Retrier

ChainOf = Callable[[Role], Awaitable[Chain]]
ProviderOf = Callable[[UUID], Awaitable[Provider]]
OnEnd = Callable[[Role, Ended], None]
_Key: TypeAlias = tuple[UUID, int, str, int, bytes]

MOST_AT_ONCE: Final = 32
# A provider keeps its own deadline; this is for one that does not.
_GRACE_S: Final = 0.25
# Longer than a restart of the database takes; an answer that is not on record is not used.
_RECORD_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.25
_LONGEST_REPAIRED: Final = 20_000
# No model counts as far; a provider that says so is not believed.
_MOST_TOKENS: Final = 10**9
_NOT_IN_TIME: Final = "No model answered in time: too many calls are under way. Try again later."
_UNANSWERABLE: Final = ("refusal", "filtered")


class LanguageService:
    """The `LanguageModel` of the daemon."""

    def __init__(
        self,
        *,
        recorder: Recorder,
        chain_of: ChainOf,
        provider_of: ProviderOf,
        breaker_of: Callable[[Entry], Breaker],
        clock: Clock,
        ids: Ids,
        chance: Chance,
        most_at_once: int = MOST_AT_ONCE,
        on_end: OnEnd | None = None,
    ) -> None:
        """`breaker_of` returns the same breaker for the same provider; `on_end` is for metrics."""
        self._recorder = recorder
        self._chain_of = chain_of
        self._provider_of = provider_of
        self._breaker_of = breaker_of
        self._retrier = Retrier(clock=clock, chance=chance, breaker_of=breaker_of)
        self._clock = clock
        self._ids = ids
        self._room = asyncio.Semaphore(most_at_once)
        self._under_way: dict[_Key, asyncio.Event] = {}
        self._on_end = on_end

    async def complete(self, request: CognitiveRequest) -> CognitiveResponse:
        """Answer, recorded before it is returned; see `LanguageModel`.

        Further raises InvalidInput where the schema is none, and Conflict where another daemon is
        making the same call and does not finish in time.
        """
        shape = None if request.schema is None else answers.shape_of(request.schema)
        chain = await self._chain_of(request.role)
        if not chain.entries:
            raise NoModel(
                f"No model is set for the role {request.role.value}. An administrator sets one "
                "under Models."
            )
        deadline_s = chain.deadline_s
        if request.deadline_s is not None:
            deadline_s = min(deadline_s, request.deadline_s)
        ends_at = self._clock.monotonic() + deadline_s
        now = self._clock.now()
        new = new_row(
            self._ids.new(), request, now=now, due=now + timedelta(seconds=deadline_s + _RECORD_S)
        )
        async with self._alone(new.key, deadline_s), self._slot(deadline_s):
            call = _Call(
                id=new.id,
                request=request,
                chain=chain,
                shape=shape,
                ends_at=ends_at,
                clock=self._clock,
                recorder=self._recorder,
                retrier=self._retrier,
                provider_of=self._provider_of,
                on_end=self._on_end,
            )
            first = next((e for e in chain.entries if not self._breaker_of(e).is_open), None)
            before = await call.begin(new, first)
            if before is not None:
                return answer_of(before, shape)
            return await call.run()

    @asynccontextmanager
    async def _alone(self, key: _Key | None, within_s: float) -> AsyncIterator[None]:
        """Let one at a time through with the same key; the next finds the answer on record."""
        if key is None:
            yield
            return
        try:
            async with asyncio.timeout(within_s):
                while (other := self._under_way.get(key)) is not None:
                    await other.wait()
        except TimeoutError:
            raise Unavailable("The same call is under way and did not end in time.") from None
        mine = self._under_way[key] = asyncio.Event()
        try:
            yield
        finally:
            del self._under_way[key]
            mine.set()

    @asynccontextmanager
    async def _slot(self, within_s: float) -> AsyncIterator[None]:
        if self._room.locked():
            try:
                async with asyncio.timeout(within_s):
                    await self._room.acquire()
            except TimeoutError:
                raise Unavailable(_NOT_IN_TIME) from None
        else:
            await self._room.acquire()
        try:
            yield
        finally:
            self._room.release()


class _Call:
    """One call on its way."""

    def __init__(
        self,
        *,
        id: UUID,  # noqa: A002
        request: CognitiveRequest,
        chain: Chain,
        shape: answers.Shape | None,
        ends_at: float,
        clock: Clock,
        recorder: Recorder,
        retrier: Retrier,
        provider_of: ProviderOf,
        on_end: OnEnd | None,
    ) -> None:
        self._id = id
        self._request = request
        self._chain = chain
        self._shape = shape
        self._ends_at = ends_at
        self._clock = clock
        self._recorder = recorder
        self._retrier = retrier
        self._provider_of = provider_of
        self._on_end = on_end
        self._began = clock.monotonic()
        self._messages: Sequence[ChatMessage] = request.messages
        self._attempts: list[Attempt] = []
        self._refused: list[dict[str, str]] = []
        self._number = 0
        # What is reserved and not settled, and what is settled and not yet written so.
        self._held: Hold | None = None
        self._held_stop: BudgetExceeded | None = None
        self._settled: list[Settled] = []
        self._open: tuple[Entry, float] | None = None
        self._is_over = False

    async def begin(self, new: Any, first: Entry | None) -> CallRecord | None:
        """Record the call and reserve for the entry asked first; or return the answer on record."""
        self._held = None if first is None else self._hold(first, 1)
        while True:
            left_s = self._ends_at - self._clock.monotonic()
            try:
                async with asyncio.timeout(left_s):
                    begun = await self._recorder.begin(new, self._held)
            except TimeoutError:
                self._leave("The call could not be recorded in time.")
                raise Unavailable("The call of a model could not be recorded in time.") from None
            except asyncio.CancelledError:
                self._leave("The caller went away before anybody was asked.")
                raise
            if not begun.is_elsewhere:
                break
            if left_s <= _LOOK_AGAIN_S:
                raise Conflict("Another daemon is making the same call. Its answer did not come.")
            await self._clock.sleep(_LOOK_AGAIN_S)
        self._held_stop = begun.stopped
        return begun.recorded

    def _leave(self, reason: str) -> None:
        # Nobody was asked, so nothing was spent; whether the row is there nobody knows.
        self._is_over = True
        ended = Ended(
            state="failed", reason=reason, error="unavailable", cost_micros=0, cost_kind="known"
        )
        self._recorder.abandon(self._id, ended, settled=[self._nothing(1)])

    async def run(self) -> CognitiveResponse:
        """Ask until somebody answers; record it; return it."""
        try:
            return await self._answered()
        except BadAnswer:
            raise
        except NoemaError as exc:
            if not self._is_over:
                await self._end(self._ended("failed", reason=str(exc), error=exc.code))
            raise
        finally:
            if not self._is_over:
                # Cancelled, or a fault of ours: whoever was asked may have worked for it.
                self._close_open("The caller went away before the answer came.")
                self._is_over = True
                ended = self._ended("unknown", reason="Nobody waited for the answer.", error="left")
                self._recorder.abandon(self._id, ended, settled=self._settled)
                self._tell(ended)

    async def _answered(self) -> CognitiveResponse:
        index, completion = await self._ask(self._chain.entries)
        entry = self._chain.entries[index]
        if self._shape is None:
            return await self._use(entry, completion, None)
        try:
            value = answers.read(completion.text, self._shape)
        except BadAnswer as exc:
            bad = exc
        else:
            return await self._use(entry, completion, value)
        if completion.finish in _UNANSWERABLE:
            raise await self._give_up(entry, completion, "The model would not answer this.")
        self._refused.append({"text": completion.text, "reason": str(bad)})
        self._messages = _with_repair(self._request.messages, completion, bad)
        rest = self._chain.entries[index:]
        try:
            index, repaired = await self._ask(rest)
        except (Unavailable, BudgetExceeded) as exc:
            self._refused.pop()
            raise await self._give_up(
                entry, completion, f"{bad} It was not repaired: {exc}"
            ) from exc
        entry = rest[index]
        try:
            value = answers.read(repaired.text, self._shape)
        except BadAnswer as exc:
            raise await self._give_up(entry, repaired, f"{exc} A repair was asked for.") from None
        return await self._use(entry, repaired, value)

    async def _ask(self, entries: Sequence[Entry]) -> tuple[int, Completion]:
        return await self._retrier.answer(
            entries, ends_at=self._ends_at, try_once=self._try_once, skipped=self._skipped
        )

    async def _try_once(self, entry: Entry, left_s: float) -> Completion:
        """Make one attempt: reserved before, settled after, on record whatever comes of it."""
        self._number += 1
        await self._reserve(entry)
        began = self._clock.monotonic()
        self._open = entry, began
        try:
            provider = await self._provider_of(entry.provider)
        except NoemaError as exc:
            failure = AttemptFailed(str(exc), retryable=False, is_cost_unknown=False)
            self._settle(entry, began, failure.usage, failure=failure)
            raise failure from None
        try:
            async with asyncio.timeout(left_s + _GRACE_S):
                completion = await provider.complete(
                    self._messages,
                    model=entry.model,
                    parameters=merged(entry.parameters, self._request.parameters),
                    schema=self._request.schema,
                    deadline_s=left_s,
                )
        except TimeoutError:
            failure = AttemptFailed(
                f"No answer came within {left_s:.3g} s.", retryable=True, is_cost_unknown=True
            )
        except AttemptFailed as exc:
            failure = exc
        except Unavailable as exc:
            failure = AttemptFailed(str(exc), retryable=False, is_cost_unknown=True)
        else:
            self._settle(entry, began, completion.usage, completion=completion)
            return completion
        self._settle(entry, began, failure.usage, failure=failure)
        raise failure

    async def _reserve(self, entry: Entry) -> None:
        hold = self._hold(entry, self._number)
        if self._number == 1 and hold == self._held:
            stopped = self._held_stop
        else:
            if self._number == 1 and self._held is not None:
                self._settled.append(self._nothing(1))
                self._number = 2
                hold = self._hold(entry, 2)
            settled, self._settled = self._settled, []
            stopped = await self._recorder.step(
                self._id, attempts=self._attempts, settled=settled, hold=hold
            )
        self._held = None
        if stopped is not None:
            self._skipped(entry, str(stopped))
            raise stopped

    def _hold(self, entry: Entry, attempt: int) -> Hold:
        parameters = merged(entry.parameters, self._request.parameters)
        micros, tokens = worst_case(entry, self._messages, self._request.schema, parameters)
        context = self._request.context
        return Hold(
            call=self._id,
            attempt=attempt,
            mind=context.mind,
            cycle=context.cycle,
            role=self._request.role.value,
            provider=entry.name,
            micros=micros,
            tokens=tokens,
        )

    def _nothing(self, attempt: int) -> Settled:
        return Settled(call=self._id, attempt=attempt, micros=0, tokens=0, is_unknown=False)

    def _settle(
        self,
        entry: Entry,
        began: float,
        usage: Usage,
        *,
        completion: Completion | None = None,
        failure: AttemptFailed | None = None,
    ) -> None:
        """Note what the attempt took; written with the next step."""
        self._open = None
        usage = _believed(usage)
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
                call=self._id,
                attempt=self._number,
                micros=cost,
                tokens=tokens,
                is_unknown=cost is None or tokens is None,
            )
        )
        status = failure.status if completion is None and failure is not None else None
        self._attempts.append(
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

    def _close_open(self, reason: str) -> None:
        if self._open is not None:
            entry, began = self._open
            failure = AttemptFailed(reason, retryable=False, is_cost_unknown=True)
            self._settle(entry, began, Usage(), failure=failure)
        elif self._held is not None:
            self._settled.append(self._nothing(1))

    def _skipped(self, entry: Entry, reason: str) -> None:
        self._attempts.append(
            Attempt(
                provider=entry.name,
                model=entry.model,
                started_ms=self._ms(self._clock.monotonic()),
                latency_ms=0,
                error=f"Not asked: {reason}",
                cost_micros=0,
                cost_kind="free" if is_free(entry.prices) else "known",
            )
        )

    async def _use(self, entry: Entry, completion: Completion, value: Any) -> CognitiveResponse:
        ended = self._ended("answered", entry=entry, completion=completion)
        await self._end(ended)
        return CognitiveResponse(
            call=self._id,
            text=completion.text,
            value=value,
            finish=completion.finish,
            provider=entry.name,
            model=completion.model,
            usage=ended.usage,
            cost_micros=ended.cost_micros,
            cost_kind=ended.cost_kind,
            latency_ms=ended.latency_ms,
            attempts=tuple(self._attempts),
        )

    async def _give_up(self, entry: Entry, completion: Completion, reason: str) -> BadAnswer:
        """Record an answer that cannot be used: it too is not asked for again."""
        await self._end(
            self._ended(
                "answered",
                entry=entry,
                completion=completion,
                reason=reason,
                error=BadAnswer.code,
            )
        )
        return BadAnswer(reason)

    async def _end(self, ended: Ended) -> None:
        if self._held is not None:
            self._settled.append(self._nothing(1))
            self._held = None
        self._is_over = True
        settled, self._settled = self._settled, []
        try:
            async with asyncio.timeout(_RECORD_S):
                await self._recorder.finish(self._id, ended, settled=settled)
        except TimeoutError:
            raise Unavailable(
                "The answer of a model could not be recorded, so it is not used."
            ) from None
        self._tell(ended)

    def _tell(self, ended: Ended) -> None:
        if self._on_end is not None:
            self._on_end(self._request.role, ended)

    def _ended(
        self,
        state: Any,
        *,
        entry: Entry | None = None,
        completion: Completion | None = None,
        reason: str = "",
        error: str = "",
    ) -> Ended:
        cost, kind = _summed_cost(self._attempts)
        return Ended(
            state=state,
            attempts=tuple(self._attempts),
            answer=None if completion is None else completion.text,
            refused=tuple(self._refused),
            reason=reason,
            error=error,
            provider=None if entry is None else entry.name,
            model=None if completion is None else completion.model,
            finish=None if completion is None else completion.finish,
            usage=_summed_usage(self._attempts),
            cost_micros=cost,
            cost_kind=kind,
            latency_ms=self._ms(self._clock.monotonic()),
        )

    def _ms(self, at: float) -> int:
        return _ms_between(self._began, at)


def answer_of(
    record: CallRecord, shape: answers.Shape | None, *, is_approximate: bool = False
) -> CognitiveResponse:
    """Return a recorded answer; raises BadAnswer where it could not be used when it came either.

    Raises Unavailable where its text was redacted.
    """
    text = record.content.get("answer")
    if not isinstance(text, str):
        raise Unavailable("The recorded answer was redacted; nobody is asked again in its place.")
    if record.error:
        raise BadAnswer(str(record.content.get("reason") or "The recorded answer is not usable."))
    return CognitiveResponse(
        call=record.id,
        text=text,
        value=None if shape is None else answers.read(text, shape),
        finish=msgspec.convert(record.finish, Any),
        provider=record.provider or "",
        model=record.model or "",
        usage=record.usage,
        cost_micros=record.cost_micros,
        cost_kind=record.cost_kind or "unknown",
        latency_ms=record.latency_ms or 0,
        attempts=record.attempts,
        is_replayed=True,
        is_approximate=is_approximate,
    )


def _with_repair(
    messages: Sequence[ChatMessage], completion: Completion, bad: BadAnswer
) -> tuple[ChatMessage, ...]:
    text = completion.text[:_LONGEST_REPAIRED]
    said = (ChatMessage(role="assistant", text=text),) if text.strip() else ()
    cut = " It was cut off: be shorter." if completion.finish == "length" else ""
    wanted = (
        f"This cannot be used. {bad}{cut} Answer again: one JSON object that fits the schema, and "
        "nothing before or after it."
    )
    return (*messages, *said, ChatMessage(role="user", text=wanted))


def _believed(usage: Usage) -> Usage:
    counts = msgspec.to_builtins(usage)
    return Usage(
        **{k: n if n is not None and 0 <= n <= _MOST_TOKENS else None for k, n in counts.items()}
    )


def _summed_usage(attempts: Sequence[Attempt]) -> Usage:
    """Return the tokens of all attempts; None where no attempt said anything of the class."""

    def of(name: str) -> int | None:
        counts = [n for attempt in attempts if (n := getattr(attempt.usage, name)) is not None]
        return sum(counts) if counts else None

    return Usage(**{field: of(field) for field in Usage.__struct_fields__})


def _summed_cost(attempts: Sequence[Attempt]) -> tuple[int | None, CostKind]:
    """Return what the attempts cost as far as it is known, None where nothing is, and how far."""
    known = [a.cost_micros for a in attempts if a.cost_micros is not None]
    kinds = {a.cost_kind for a in attempts}
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


def _ms_between(began: float, ended: float) -> int:
    return max(0, round((ended - began) * 1000))

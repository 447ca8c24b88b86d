"""One call of a model on its way: begun on record, asked, repaired once, ended on record."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from noema.core.clock import Clock
from noema.core.errors import Conflict, NoemaError, Unavailable
from noema.llm import answers
from noema.llm.account import Account
from noema.llm.calls import CallRecord, Ended
from noema.llm.errors import AttemptFailed, BadAnswer, BudgetExceeded
from noema.llm.model import (
    Chain,
    ChatMessage,
    CognitiveRequest,
    CognitiveResponse,
    Completion,
    Entry,
    Provider,
    Role,
)
from noema.llm.providers.asking import merged
from noema.llm.recorder import Recorder
from noema.llm.retry import Retrier
from noema.llm.store.calls import NewRow

ProviderOf: TypeAlias = Callable[[UUID], Awaitable[Provider]]
OnEnd: TypeAlias = Callable[[Role, Ended], None]

RECORD_S: Final = 30.0
"""Longer than a restart of the database takes; an answer that is not on record is not used."""

# A provider keeps its own deadline; this is for one that does not.
_GRACE_S: Final = 0.25
_LOOK_AGAIN_S: Final = 0.25
_LONGEST_REPAIRED: Final = 20_000
_NOT_RECORDED: Final = "The call of a model could not be recorded in time."
_UNANSWERABLE: Final = ("refusal", "filtered")


class ModelCall:
    """One call; `begin`, and where nothing is on record, `run`."""

    def __init__(
        self,
        new: NewRow,
        request: CognitiveRequest,
        *,
        chain: Chain,
        shape: answers.Shape | None,
        ends_at: float,
        clock: Clock,
        recorder: Recorder,
        retrier: Retrier,
        provider_of: ProviderOf,
        on_end: OnEnd | None,
    ) -> None:
        """`ends_at` is on the monotonic clock."""
        self._new = new
        self._id = new.id
        self._request = request
        self._chain = chain
        self._shape = shape
        self._ends_at = ends_at
        self._clock = clock
        self._recorder = recorder
        self._retrier = retrier
        self._provider_of = provider_of
        self._on_end = on_end
        self._account = Account(new.id, request, clock)
        self._messages: Sequence[ChatMessage] = request.messages
        self._refused: list[dict[str, str]] = []
        self._stopped: BudgetExceeded | None = None
        self._is_over = False

    async def begin(self, first: Entry | None) -> CallRecord | None:
        """Record the call and reserve for the entry asked first; or return the answer on record."""
        hold = None if first is None else self._account.want(first, self._messages)
        while True:
            left_s = self._left_s()
            try:
                async with asyncio.timeout(left_s):
                    begun = await self._recorder.begin(self._new, hold)
            except TimeoutError:
                self._leave(_NOT_RECORDED)
                raise Unavailable(_NOT_RECORDED) from None
            except asyncio.CancelledError:
                self._leave("The caller went away before anybody was asked.")
                raise
            if not begun.is_elsewhere:
                break
            if left_s <= _LOOK_AGAIN_S:
                raise Conflict("Another daemon is making the same call. Its answer did not come.")
            await self._clock.sleep(_LOOK_AGAIN_S)
        self._stopped = begun.stopped
        self._account.reserved()
        return begun.recorded

    def _leave(self, reason: str) -> None:
        # Nobody was asked, so nothing was spent; whether the row is there nobody knows.
        self._account.close(reason)
        ended = Ended(
            state="failed", reason=reason, error="unavailable", cost_micros=0, cost_kind="known"
        )
        self._recorder.abandon(self._id, ended, settled=self._account.settled)

    async def run(self) -> CognitiveResponse:
        """Ask until somebody answers; record it; return it."""
        try:
            return await self._answered()
        except NoemaError as exc:
            if not self._is_over:
                await self._fail(exc)
            raise
        finally:
            if not self._is_over:
                # Cancelled, or a fault of ours.
                self._is_over = True
                self._account.close("The caller went away before the answer came.")
                ended = self._ended("unknown", reason="Nobody waited for the answer.", error="left")
                self._recorder.abandon(self._id, ended, settled=self._account.settled)
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
            entries,
            ends_at=self._ends_at,
            try_once=self._try_once,
            skipped=self._account.skipped,
        )

    async def _try_once(self, entry: Entry, left_s: float) -> Completion:
        """Make one attempt: reserved before, settled after, on record whatever comes of it."""
        until = self._clock.monotonic() + left_s
        await self._reserve(entry, left_s)
        self._account.opened(entry)
        try:
            completion = await self._attempt(entry, max(until - self._clock.monotonic(), 0.0))
        except AttemptFailed as exc:
            self._account.settle(failure=exc)
            raise
        self._account.settle(completion=completion)
        return completion

    async def _reserve(self, entry: Entry, within_s: float) -> None:
        """Reserve for the attempt, and write what came of those before; see `Recorder.step`."""
        hold = self._account.want(entry, self._messages)
        if hold is None:
            stopped = self._stopped
        else:
            # Kept until it is written: whoever goes away meanwhile leaves it to be written.
            settled = self._account.settled
            try:
                async with asyncio.timeout(within_s):
                    stopped = await self._recorder.step(
                        self._id,
                        attempts=self._account.attempts,
                        refused=self._refused,
                        settled=settled,
                        hold=hold,
                    )
            except TimeoutError:
                raise Unavailable(_NOT_RECORDED) from None
            self._account.written(settled)
        if stopped is not None:
            self._account.stopped()
            self._account.skipped(entry, str(stopped))
            raise stopped

    async def _attempt(self, entry: Entry, left_s: float) -> Completion:
        is_asked = False
        try:
            async with asyncio.timeout(left_s + _GRACE_S):
                provider = await self._provider_of(entry.provider)
                is_asked = True
                return await provider.complete(
                    self._messages,
                    model=entry.model,
                    parameters=merged(entry.parameters, self._request.parameters),
                    schema=self._request.schema,
                    deadline_s=left_s,
                )
        except TimeoutError:
            raise AttemptFailed(
                f"No answer came within {left_s:.3g} s.",
                retryable=is_asked,
                is_cost_unknown=is_asked,
            ) from None
        except AttemptFailed:
            raise
        except NoemaError as exc:
            raise AttemptFailed(str(exc), retryable=False, is_cost_unknown=is_asked) from None

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
            attempts=tuple(self._account.attempts),
        )

    async def _give_up(self, entry: Entry, completion: Completion, reason: str) -> BadAnswer:
        """Record an answer that cannot be used: it too is not asked for again."""
        ended = self._ended(
            "answered", entry=entry, completion=completion, reason=reason, error=BadAnswer.code
        )
        await self._end(ended)
        return BadAnswer(reason)

    async def _end(self, ended: Ended) -> None:
        try:
            await self._finish(ended, within_s=RECORD_S)
        except TimeoutError:
            raise Unavailable(
                "The answer of a model could not be recorded, so it is not used."
            ) from None

    async def _fail(self, exc: NoemaError) -> None:
        """Record that there is no answer; for that nobody waits longer than for an answer."""
        self._account.close(str(exc))
        ended = self._ended("failed", reason=str(exc), error=exc.code)
        try:
            await self._finish(ended, within_s=max(self._left_s(), _GRACE_S))
        except (NoemaError, TimeoutError):
            # It is written as soon as it can be, or was taken for lost.
            return

    async def _finish(self, ended: Ended, *, within_s: float) -> None:
        self._is_over = True
        self._account.close("Nobody was asked.")
        settled = self._account.settled
        async with asyncio.timeout(within_s):
            await self._recorder.finish(self._id, ended, settled=settled)
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
        cost, kind = self._account.cost
        return Ended(
            state=state,
            attempts=tuple(self._account.attempts),
            answer=None if completion is None else completion.text,
            refused=tuple(self._refused),
            reason=reason,
            error=error,
            provider=None if entry is None else entry.name,
            model=None if completion is None else completion.model,
            finish=None if completion is None else completion.finish,
            usage=self._account.usage,
            cost_micros=cost,
            cost_kind=kind,
            latency_ms=self._account.elapsed_ms,
        )

    def _left_s(self) -> float:
        return self._ends_at - self._clock.monotonic()


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

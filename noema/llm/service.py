"""What cognitive code asks: a role, answered by the first of its models that can, on record.

    role ──▶ chain ──▶ begin (record, reserve) ──▶ attempt ──▶ settle, record ──▶ answer
                         │                          └─failed─▶ settle, reserve ──▶ next attempt
                         └─answered before──▶ that answer, and nobody is asked

No answer is used before it is on record. A caller that goes away leaves its attempt on record as
one of unknown cost.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, TypeAlias

from noema.core.clock import Clock, Ids
from noema.core.errors import Unavailable
from noema.llm import answers
from noema.llm.call import RECORD_S, ModelCall, OnEnd, ProviderOf, answer_of
from noema.llm.calls import new_row
from noema.llm.errors import NoModel
from noema.llm.model import Chain, CognitiveRequest, CognitiveResponse, Entry, Role
from noema.llm.recorder import Recorder
from noema.llm.retry import Breaker, Chance, Retrier
from noema.llm.store.calls import CallKey

ChainOf: TypeAlias = Callable[[Role], Awaitable[Chain]]

MOST_AT_ONCE: Final = 32


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
        self._under_way: dict[CallKey, asyncio.Event] = {}
        self._on_end = on_end

    async def complete(self, request: CognitiveRequest) -> CognitiveResponse:
        """Answer, recorded before it is returned; see `LanguageModel`.

        Further raises InvalidInput where the schema is none, and Conflict where another daemon is
        making the same call and does not finish in time.
        """
        shape = None if request.schema is None else answers.shape_of(request.schema)
        began = self._clock.monotonic()
        chain = await self._chain_of(request.role)
        if not chain.entries:
            raise NoModel(
                f"No model is set for the role {request.role.value}. An administrator sets one "
                "under Models."
            )
        deadline_s = chain.deadline_s
        if request.deadline_s is not None:
            deadline_s = min(deadline_s, request.deadline_s)
        # One deadline for all of it, whatever is waited for.
        ends_at = began + deadline_s
        now = self._clock.now()
        new = new_row(
            self._ids.new(), request, now=now, due=now + timedelta(seconds=deadline_s + RECORD_S)
        )
        async with self._alone(new.key, ends_at), self._slot(ends_at):
            call = ModelCall(
                new,
                request,
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
            before = await call.begin(first)
            if before is not None:
                return answer_of(before, shape)
            return await call.run()

    @asynccontextmanager
    async def _alone(self, key: CallKey | None, ends_at: float) -> AsyncIterator[None]:
        """Let one at a time through with the same key; the next finds the answer on record."""
        if key is None:
            yield
            return
        while (other := self._under_way.get(key)) is not None:
            try:
                async with asyncio.timeout(ends_at - self._clock.monotonic()):
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
    async def _slot(self, ends_at: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(ends_at - self._clock.monotonic()):
                await self._room.acquire()
        except TimeoutError:
            raise Unavailable(
                "No model answered in time: too many calls are under way. Try again later."
            ) from None
        try:
            yield
        finally:
            self._room.release()

"""Providers that do as they are told, and a model service around them for tests."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any
from uuid import UUID

from noema.core.clock import Clock, SystemClock, UuidV7Ids
from noema.core.errors import Unavailable
from noema.db.tx import single
from noema.llm.errors import AttemptFailed
from noema.llm.model import (
    CallContext,
    Chain,
    ChatMessage,
    CognitiveRequest,
    Completion,
    Entry,
    Finish,
    Parameters,
    Prices,
    Provider,
    Role,
    Usage,
)
from noema.llm.recorder import Recorder, recording
from noema.llm.service import LanguageService
from tests.conftest import TestDatabase

MIND = UUID("00000000-0000-7000-8000-00000000000a")
PRICES = Prices(input=1_000_000, output=2_000_000)
"""One micro-unit for a token of input, two for one of output."""

USUAL = Usage(input=10, output=5)

Step = Completion | Exception | Callable[[], Awaitable[Completion]]


def says(text: str, *, finish: Finish = "stop", usage: Usage = USUAL) -> Completion:
    return Completion(text=text, finish=finish, model="m-1", usage=usage)


def fails(
    message: str = "It broke.",
    *,
    retryable: bool = True,
    retry_after_s: float | None = None,
    status: int | None = 503,
    usage: Usage | None = None,
    is_cost_unknown: bool = False,
) -> AttemptFailed:
    return AttemptFailed(
        message,
        retryable=retryable,
        retry_after_s=retry_after_s,
        status=status,
        usage=usage,
        is_cost_unknown=is_cost_unknown,
    )


async def hangs() -> Completion:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


class Scripted:
    """A provider that follows its script, and then says "ok"."""

    def __init__(self, *script: Step) -> None:
        self.script: deque[Step] = deque(script)
        self.asked: list[tuple[ChatMessage, ...]] = []
        self.parameters: list[Parameters] = []
        self.deadlines: list[float] = []

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        model: str,
        parameters: Parameters,
        schema: Mapping[str, Any] | None,
        deadline_s: float,
    ) -> Completion:
        self.asked.append(tuple(messages))
        self.parameters.append(parameters)
        self.deadlines.append(deadline_s)
        step: Step = self.script.popleft() if self.script else says("ok")
        if isinstance(step, Exception):
            raise step
        return step if isinstance(step, Completion) else await step()


class Switch:
    """A breaker that a test opens by hand; it keeps what it is told."""

    def __init__(self) -> None:
        self.is_open = False
        self.failures: list[tuple[str, float]] = []
        self.successes = 0

    @contextmanager
    def call(self) -> Iterator[None]:
        if self.is_open:
            raise Unavailable("open")
        yield

    def succeeded(self) -> None:
        self.successes += 1

    def failed(self, reason: str, *, rest_s: float = 0.0) -> None:
        self.failures.append((reason, rest_s))


def entry(name: str, number: int, prices: Prices = PRICES, **parameters: Any) -> Entry:
    return Entry(
        provider=UUID(int=number),
        name=name,
        model=f"{name}-model",
        parameters=Parameters(**parameters),
        prices=prices,
    )


def asks(
    text: str = "Hello?",
    *,
    mind: UUID | None = MIND,
    cycle: int | None = 1,
    ordinal: int = 0,
    role: Role = Role.DIALOGUE,
    schema: Mapping[str, Any] | None = None,
    deadline_s: float | None = None,
    **parameters: Any,
) -> CognitiveRequest:
    return CognitiveRequest(
        role=role,
        messages=(ChatMessage(role="user", text=text),),
        context=CallContext(
            namespace="acme",
            actor="mind:test",
            mind=mind,
            cycle=cycle,
            process="speak",
            ordinal=ordinal,
        ),
        schema=schema,
        parameters=Parameters(**parameters),
        deadline_s=deadline_s,
    )


class House:
    """A service, its recorder, and the providers of its one chain: primary, second, third …"""

    def __init__(
        self,
        recorder: Recorder,
        providers: Sequence[Provider],
        *,
        clock: Clock,
        prices: Sequence[Prices] = (),
        deadline_s: float = 20.0,
        most_at_once: int = 32,
        max_tokens: int | None = 100,
    ) -> None:
        names = ("primary", "second", "third")
        priced = [*prices, *[PRICES] * (len(providers) - len(prices))]
        self.entries = tuple(
            entry(names[n], n + 1, priced[n], max_tokens=max_tokens) for n in range(len(providers))
        )
        self.switches = {e.provider: Switch() for e in self.entries}
        self.recorder = recorder
        self.deadline_s = deadline_s
        by_id = {e.provider: p for e, p in zip(self.entries, providers, strict=True)}

        async def chain_of(role: Role) -> Chain:
            return Chain(entries=self.entries, deadline_s=self.deadline_s)

        async def provider_of(provider: UUID) -> Provider:
            return by_id[provider]

        self.service = LanguageService(
            recorder=recorder,
            chain_of=chain_of,
            provider_of=provider_of,
            breaker_of=lambda e: self.switches[e.provider],
            clock=clock,
            ids=UuidV7Ids(SystemClock()),
            chance=Random(7),
            most_at_once=most_at_once,
        )
        self.complete = self.service.complete


class QuickClock(SystemClock):
    """The real time, but pauses between attempts are noted and not waited for."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def recorder_on(
    database: TestDatabase, *, daemon: UUID | None = None, clock: Clock | None = None
) -> AsyncIterator[Recorder]:
    """Yield a recorder that runs as a daemon of its own."""
    made = Recorder(
        connect=lambda: single(database.app_dsn, database.role),
        clock=clock or SystemClock(),
        daemon=daemon or UuidV7Ids(SystemClock()).new(),
    )
    async with recording(made):
        yield made

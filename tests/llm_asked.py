"""What the tests of several wires ask, and what they hold an error against."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import pytest

from noema.core.clock import ManualClock
from noema.llm.errors import AttemptFailed
from noema.llm.model import ChatMessage, Completion, Parameters, Provider
from noema.llm.providers.make import OpenProvider, make_provider
from noema.llm.providers.wire import Limits
from tests.llm_fake import MIB

NOW: Final = datetime(2027, 3, 1, 12, 0, 0, tzinfo=UTC)
SAID: Final = (
    ChatMessage(role="system", text="Be brief."),
    ChatMessage(role="user", text="How warm is it?"),
)
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"warm": {"type": "integer"}},
    "required": ["warm"],
    "additionalProperties": False,
}
# Enough for a loaded machine where all is well; a test of patience sets its own.
LIMITS: Final = Limits(
    connect_s=10, first_byte_s=20, between_s=20, after_s=10, max_bytes=MIB, max_text=100_000
)
SHORT: Final = replace(LIMITS, connect_s=1.5, first_byte_s=0.1)
# For who has begun: how long the beginning takes says nothing.
PAUSED: Final = replace(LIMITS, between_s=0.2)


def limits_for(name: str) -> Limits:
    """Return the patience for a bad answer by its name."""
    if "hangs before" in name:
        return SHORT
    return PAUSED if "hangs" in name else LIMITS


@asynccontextmanager
async def opened(
    kind: str,
    endpoint: str,
    secret: str,
    *,
    limits: Limits = LIMITS,
    transport: httpx.AsyncBaseTransport | None = None,
    allows_private: bool = True,
    **parameters: Any,
) -> AsyncIterator[OpenProvider]:
    """Lend a provider, behind the guard of addresses as in the daemon."""
    made = make_provider(
        kind,
        endpoint,
        secret,
        allows_private,
        Parameters(**parameters),
        transport,
        clock=ManualClock(NOW),
        limits=limits,
    )
    try:
        yield made
    finally:
        await made.aclose()


async def ask(
    made: Provider,
    *,
    model: str,
    messages: Sequence[ChatMessage] = SAID,
    schema: Mapping[str, Any] | None = None,
    deadline_s: float = 30.0,
    **parameters: Any,
) -> Completion:
    """Make one attempt."""
    return await made.complete(
        messages,
        model=model,
        parameters=Parameters(**parameters),
        schema=schema,
        deadline_s=deadline_s,
    )


async def failing(made: Provider, secrets: Sequence[str], **asked: Any) -> AttemptFailed:
    """Make an attempt that fails; return the failure, which tells nothing of the secrets."""
    with pytest.raises(AttemptFailed) as failed:
        await ask(made, **asked)
    assert_silent(failed.value, secrets)
    return failed.value


def assert_silent(exc: BaseException | None, secrets: Sequence[str]) -> None:
    """Neither the error nor what it came from holds eight characters in a row of a secret."""
    while exc is not None:
        told = f"{exc!r} {exc} {exc.args} {getattr(exc, 'detail', '')}"
        for secret in secrets:
            assert not any(secret[n : n + 8] in told for n in range(len(secret) - 7)), told
        exc = exc.__cause__ or exc.__context__

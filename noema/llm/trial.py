"""The test of a provider: one real question, on record like any other, and all that was sent.

What is shown is what went over the wire, apart from the values of headers, where credentials stand.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from uuid import UUID

import httpx
import msgspec

from noema.core.clock import Clock, Ids
from noema.core.errors import InvalidInput, NoemaError
from noema.core.identity import Identity
from noema.events.audit import Audit
from noema.llm import checks
from noema.llm.acts import require_administrator
from noema.llm.configured import Link, ProviderRow
from noema.llm.errors import AttemptFailed
from noema.llm.model import (
    CallContext,
    Chain,
    ChatMessage,
    CognitiveRequest,
    CognitiveResponse,
    Completion,
    Parameters,
    Provider,
    Role,
)
from noema.llm.providers.make import MakeProvider
from noema.llm.providers.scrub import Scrubber, parts_of
from noema.llm.recorder import Recorder
from noema.llm.registry import Registry, entry_of
from noema.llm.service import LanguageService
from noema.net.guard import guarded_transport

PROCESS: Final = "provider test"
QUESTION: Final = "Say in one short sentence which model you are."
_TEXT_CHARS: Final = 4_000
_DEADLINE_S: Final = 30.0
_MOST_SHOWN: Final = 10
_BODY_BYTES: Final = 200_000


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it went out; of headers the names alone. `status` is None where none came."""

    method: str
    url: str
    headers: tuple[str, ...]
    body: Any
    status: int | None


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a test. `error` is empty where the provider answered; then `answer` is there."""

    call: UUID | None
    provider: str
    model: str
    messages: tuple[ChatMessage, ...]
    sent: tuple[Sent, ...]
    answer: CognitiveResponse | None
    error: str


class Trial:
    """Asks one provider once, whatever the roles say; for administrators, and audited."""

    def __init__(
        self,
        *,
        registry: Registry,
        recorder: Recorder,
        audit: Audit,
        clock: Clock,
        ids: Ids,
        make: MakeProvider,
    ) -> None:
        self._registry = registry
        self._recorder = recorder
        self._audit = audit
        self._clock = clock
        self._ids = ids
        self._make = make

    async def try_out(self, by: Identity, name: str, *, text: str = "", model: str = "") -> Tried:
        """Ask the provider; raises Denied, NotFound and InvalidInput, and never for its answer.

        It may be disabled. Budgets count it for the role dialogue and the provider.
        """
        async with self._audit.doing(by, "llm.provider-test", f"provider:{name}") as deed:
            require_administrator(by)
            row = await self._registry.named(deed.tx, name)
            if len(text) > _TEXT_CHARS:
                raise InvalidInput(f"Ask at most {_TEXT_CHARS:,} characters.", field="text")
            asked = checks.checked_model(model) or row.model
            if not asked and row.kind != "echo":
                raise InvalidInput(f"{name} has no model of its own; name one.", field="model")
            deed.detail = asked or row.kind
        # The act is on record and its transaction closed before anybody is asked.
        return await self._asked(by, row, text.strip() or QUESTION, asked)

    async def _asked(self, by: Identity, row: ProviderRow, text: str, model: str) -> Tried:
        messages = (ChatMessage(role="user", text=text),)
        spy: _Spy | None = None
        answer: CognitiveResponse | None = None
        error = ""
        ids = _Noted(self._ids)
        try:
            secret = await self._registry.secret_of(row)
            spy = _Spy(
                guarded_transport(allows_private=row.allows_private),
                Scrubber(parts_of(row.kind, secret)),
            )
            provider = self._make(
                row.kind, row.endpoint, secret, row.allows_private, row.parameters, spy
            )
            try:
                answer = await self._service(row, model, provider, ids).complete(
                    CognitiveRequest(
                        role=Role.DIALOGUE,
                        messages=messages,
                        context=CallContext(
                            namespace=by.namespace, actor=by.actor, process=PROCESS
                        ),
                    )
                )
            finally:
                await provider.aclose()
        except NoemaError as exc:
            error = str(exc)
        return Tried(
            call=ids.first,
            provider=row.name,
            model=model,
            messages=messages,
            sent=() if spy is None else spy.sent,
            answer=answer,
            error=error,
        )

    def _service(
        self, row: ProviderRow, model: str, provider: Provider, ids: Ids
    ) -> LanguageService:
        chain = Chain(
            entries=(entry_of(row, Link(provider=row.name, model=model)),), deadline_s=_DEADLINE_S
        )

        async def chain_of(role: Role) -> Chain:
            return chain

        async def provider_of(id_: UUID) -> Provider:
            return _Once(provider)

        return LanguageService(
            recorder=self._recorder,
            chain_of=chain_of,
            provider_of=provider_of,
            breaker_of=lambda entry: _Closed(),
            clock=self._clock,
            ids=ids,
            chance=_NoChance(),
        )


class _Noted:
    """Ids, of which the first is that of the call."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self.first: UUID | None = None

    def new(self) -> UUID:
        made = self._ids.new()
        self.first = self.first or made
        return made

    def salt(self) -> bytes:
        return self._ids.salt()


class _NoChance:
    """Where nothing is left to chance, because there is no second attempt."""

    def random(self) -> float:
        return 0.0


class _Closed:
    """A breaker that never opens: whoever tests wants to know now."""

    is_open = False

    @contextmanager
    def _let_through(self) -> Iterator[None]:
        yield

    def call(self) -> AbstractContextManager[None]:
        return self._let_through()

    def succeeded(self) -> None:
        """Keep nothing of it."""

    def failed(self, reason: str, *, rest_s: float = 0.0) -> None:
        """Keep nothing of it."""


class _Once:
    """A provider whose failures are final, so that a test asks once."""

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        model: str,
        parameters: Parameters,
        schema: Mapping[str, Any] | None,
        deadline_s: float,
    ) -> Completion:
        try:
            return await self._inner.complete(
                messages, model=model, parameters=parameters, schema=schema, deadline_s=deadline_s
            )
        except AttemptFailed as exc:
            raise AttemptFailed(
                str(exc),
                retryable=False,
                status=exc.status,
                usage=exc.usage,
                is_cost_unknown=exc.is_cost_unknown,
            ) from exc


class _Spy(httpx.AsyncBaseTransport):
    """Passes requests on and keeps what they were."""

    def __init__(self, inner: httpx.AsyncBaseTransport, scrubber: Scrubber) -> None:
        self._inner = inner
        self._scrub: Callable[[str], str] = scrubber.remove
        self._sent: list[Sent] = []

    @property
    def sent(self) -> tuple[Sent, ...]:
        return tuple(self._sent)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        kept = Sent(
            method=request.method,
            url=self._scrub(str(request.url)),
            headers=tuple(sorted(request.headers)),
            body=self._shown(body),
            status=None,
        )
        if len(self._sent) < _MOST_SHOWN:
            self._sent.append(kept)
        response = await self._inner.handle_async_request(request)
        if self._sent[-1] is kept:
            self._sent[-1] = msgspec.structs.replace(kept, status=response.status_code)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _shown(self, body: bytes) -> Any:
        text = self._scrub(body[:_BODY_BYTES].decode("utf-8", "replace"))
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text

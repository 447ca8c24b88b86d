"""Calls as they stand on record: the rows that are written of them, and who reads them.

`content` holds all text: messages, schema, answers, reasons. The hash of a request can be guessed
back from its text: a redaction replaces both, and nothing that history keeps is made from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from noema.core.canonical import canonical_escaped, escape, escape_tree, unescape_tree
from noema.core.errors import InvalidInput, NotFound
from noema.db.tx import Database
from noema.llm import budget
from noema.llm.answers import plain
from noema.llm.model import Attempt, CognitiveRequest, Usage
from noema.llm.store import calls as store

State = Literal["in flight", "answered", "failed", "unknown"]

NOTHING_KNOWN: Final = Usage()


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call as it stands on record.

    `content` has `messages`, `schema`, `actor`, and once it has ended `answer`, `reason` (why it
    is not usable, or what failed) and `refused`, answers that a repair was asked for. It is empty
    in lists and after a redaction. `error` is a code, empty where all went well.
    """

    id: UUID
    namespace: str
    mind_id: UUID | None
    cycle: int | None
    process: str
    ordinal: int
    request_hash: bytes
    role: str
    prompt_name: str | None
    prompt_version: int | None
    state: State
    daemon: UUID
    content: Mapping[str, Any]
    provider: str | None
    model: str | None
    parameters: Mapping[str, Any]
    finish: str | None
    attempts: tuple[Attempt, ...]
    input_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    cost_micros: int | None
    cost_kind: budget.CostKind | None
    latency_ms: int | None
    error: str
    started_at: datetime
    finished_at: datetime | None

    @property
    def usage(self) -> Usage:
        return Usage(
            input=self.input_tokens,
            output=self.output_tokens,
            reasoning=self.reasoning_tokens,
            cache_read=self.cache_read_tokens,
            cache_write=self.cache_write_tokens,
        )


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    """What one role took from one provider on one UTC day; unknown costs are counted, not added."""

    day: Any
    role: str
    provider: str
    calls: int
    unknown_calls: int
    cost_micros: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a call ended, as the service knows it."""

    state: State
    attempts: Sequence[Attempt] = ()
    answer: str | None = None
    refused: Sequence[Mapping[str, str]] = ()
    reason: str = ""
    error: str = ""
    provider: str | None = None
    model: str | None = None
    finish: str | None = None
    usage: Usage = NOTHING_KNOWN
    cost_micros: int | None = None
    cost_kind: budget.CostKind = "unknown"
    latency_ms: int = 0


def request_hash(request: CognitiveRequest) -> bytes:
    """Return SHA-256 over role, messages, parameters, schema and prompt, 32 bytes.

    Floats count by their bits: their text form differs between writers. Raises InvalidInput where
    one is no number.
    """
    asked = {
        "role": request.role.value,
        "messages": [[m.role, m.text] for m in request.messages],
        "parameters": _floats_spelt(msgspec.to_builtins(request.parameters)),
        "schema": _floats_spelt(request.schema),
        "prompt": request.prompt,
    }
    return sha256(canonical_escaped(asked)).digest()


def _floats_spelt(value: Any) -> Any:
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise InvalidInput("A parameter is no number.", field="parameters")
        return {"float": value.hex()}
    if isinstance(value, Mapping):
        return {k: _floats_spelt(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_floats_spelt(v) for v in value]
    return value


def new_row(id: UUID, request: CognitiveRequest, *, now: datetime, due: datetime) -> store.NewRow:  # noqa: A002
    """Return the row of a call that is about to be made."""
    context = request.context
    content: dict[str, Any] = {
        "actor": context.actor,
        "messages": [{"role": m.role, "text": m.text} for m in request.messages],
    }
    if request.schema is not None:
        content["schema"] = plain(request.schema)
    name, version = request.prompt or (None, None)
    return store.NewRow(
        id=id,
        namespace=context.namespace,
        mind=context.mind,
        cycle=context.cycle,
        process=escape(context.process),
        ordinal=context.ordinal,
        request_hash=request_hash(request),
        role=request.role.value,
        prompt_name=name,
        prompt_version=version,
        content=escape_tree(content),
        parameters=escape_tree(msgspec.to_builtins(request.parameters)),
        started_at=now,
        due_at=due,
    )


def finished_row(id: UUID, ended: Ended, now: datetime) -> store.FinishedRow:  # noqa: A002
    tried, errors = without_text(ended.attempts)
    content: dict[str, Any] = {"errors": errors}
    if ended.answer is not None:
        content["answer"] = ended.answer
    if ended.refused:
        content["refused"] = list(ended.refused)
    if ended.reason:
        content["reason"] = ended.reason
    usage = ended.usage
    return store.FinishedRow(
        id=id,
        state=ended.state,
        content=escape_tree(content),
        provider=ended.provider,
        model=None if ended.model is None else str(escape_tree(ended.model)),
        finish=ended.finish,
        tried=tried,
        input=usage.input,
        output=usage.output,
        reasoning=usage.reasoning,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        cost_micros=ended.cost_micros,
        cost_kind=ended.cost_kind,
        latency_ms=ended.latency_ms,
        error=ended.error,
        finished_at=now,
    )


def without_text(attempts: Sequence[Attempt]) -> tuple[Any, list[str]]:
    # What a provider says of an error may quote what was asked: it is content.
    rows = [
        escape_tree(msgspec.to_builtins(msgspec.structs.replace(attempt, error="")))
        for attempt in attempts
    ]
    # An array of lists would be one of two dimensions, which PostgreSQL unnests into one.
    return {"attempts": rows}, [attempt.error for attempt in attempts]


def record_of(row: Mapping[str, Any]) -> CallRecord:
    """Return the row as it was before it was stored."""
    content = unescape_tree(row["content"])
    errors = content.pop("errors", [])
    attempts = msgspec.convert(unescape_tree(row["attempts"]), list[Attempt])
    if len(errors) == len(attempts):
        attempts = [
            msgspec.structs.replace(attempt, error=error)
            for attempt, error in zip(attempts, errors, strict=True)
        ]
    rest = {k: v for k, v in row.items() if k not in ("content", "attempts", "parameters")}
    return CallRecord(
        content=content,
        attempts=tuple(attempts),
        parameters=unescape_tree(row["parameters"]),
        **rest,
    )


class Calls:
    """Reading calls. `namespaces` are those that the reader may see; None is all of them."""

    def __init__(self, *, db: Database) -> None:
        self._db = db

    async def get(self, call: UUID, *, namespaces: Sequence[str] | None) -> CallRecord:
        """Return the call with its content; raises NotFound."""
        async with self._db.reading() as tx:
            row = await store.get(tx.conn, call, namespaces)
        if row is None:
            raise NotFound("call", call)
        return record_of(row)

    async def page(
        self,
        *,
        namespaces: Sequence[str] | None,
        mind: UUID | None = None,
        cycle: int | None = None,
        role: str | None = None,
        provider: str | None = None,
        state: State | None = None,
        before: tuple[datetime, UUID] | None = None,
        limit: int = 50,
    ) -> list[CallRecord]:
        """Return calls without content, newest first; `before` is started_at and id of the last."""
        at, last = before or (None, None)
        names = None if namespaces is None else list(namespaces)
        async with self._db.reading() as tx:
            rows = await store.page(
                tx.conn, (names, mind, cycle, role, provider, state, at, last, limit)
            )
        return [record_of(row) for row in rows]

    async def spend(
        self, *, since: datetime, until: datetime, namespaces: Sequence[str] | None
    ) -> list[Spend]:
        """Return what was spent by UTC day, role and provider, in this order."""
        async with self._db.reading() as tx:
            rows = await store.spend(tx.conn, since, until, namespaces)
        return [Spend(**row) for row in rows]

    async def answered(self, request: CognitiveRequest) -> CallRecord | None:
        """Return the recorded answer to this request, None where there is none."""
        context = request.context
        if context.mind is None or context.cycle is None:
            return None
        key = (
            context.mind, context.cycle, escape(context.process), context.ordinal,
            request_hash(request),
        )  # fmt: skip
        async with self._db.reading() as tx:
            row = await store.by_key(tx.conn, key)
        return None if row is None or row["state"] != "answered" else record_of(row)

"""A judge that asks a model about what form leaves open, and else says what form says.

Asked is only what `PlainJudge` calls neither a contradiction nor for a stated reason compatible. A
model that is away, late, over its budget or unsure changes nothing: the plain verdict stands.
"""

from typing import Any, Final

import structlog

from noema.core.clock import Clock
from noema.core.errors import NoemaError
from noema.llm.asker import Asker
from noema.llm.inputs import Data, Judge, Remembered
from noema.memory.judge import Finding, PlainJudge, Verdict, is_open
from noema.memory.model import Memory
from noema.memory.model_ask import ask_json

log = structlog.get_logger()

CERTAIN: Final = 0.8
"""From which confidence on a model's word counts; below, what it sees is a suspicion at most."""

MOST_IN_A_ROW: Final = 8
"""About how many neighbours of one memory a model is asked at most."""

REST_S: Final = 60.0
"""How long no model is asked after one failed."""

_DEADLINE_S: Final = 10.0
_REASON_CHARS: Final = 300
_ACTOR: Final = "daemon"


class ModelJudge:
    """`PlainJudge`, and a model for what that leaves open."""

    name: Final = "model-1"

    def __init__(self, asker: Asker, *, clock: Clock) -> None:
        self._asker = asker
        self._clock = clock
        self._plain = PlainJudge()
        self._is_set = False
        self._rests_until = 0.0
        self._pair: frozenset[Any] = frozenset()
        self._in_a_row = 0

    @property
    def reads_meaning(self) -> bool:
        return self._is_set

    async def look(self) -> None:
        """Find out whether a model is set; asked before neighbours are looked for."""
        try:
            self._is_set = await self._asker.reach("judge") is not None
        except NoemaError:
            self._is_set = False

    async def judge(self, newcomer: Memory, incumbent: Memory) -> Verdict:
        """Return the verdict; never fails because of a model."""
        plain = self._plain.compare(newcomer, incumbent)
        if not is_open(plain) or self._clock.monotonic() < self._rests_until:
            return plain
        if not self._may_ask(newcomer, incumbent):
            return plain
        try:
            reach = await self._asker.reach("judge")
            closed = any("provider" not in m.label.destinations for m in (newcomer, incumbent))
            if reach is None or (closed and reach == "provider"):
                return plain
            value, model = await ask_json(
                self._asker,
                "judge",
                Judge(earlier=_shown("m1", incumbent), later=_shown("m2", newcomer)),
                reach="local" if closed else reach,
                namespace=newcomer.namespace,
                actor=_ACTOR,
                deadline_s=_DEADLINE_S,
            )
        except (NoemaError, TimeoutError) as exc:
            code = exc.code if isinstance(exc, NoemaError) else "late"
            log.warning("judge_without_model", reason=code)
            self._rests_until = self._clock.monotonic() + REST_S
            return plain
        return _verdict(plain, value, model)

    def _may_ask(self, newcomer: Memory, incumbent: Memory) -> bool:
        """Count questions in a row that are about the same memory."""
        pair = frozenset((newcomer.id, incumbent.id))
        common = self._pair & pair
        self._in_a_row = self._in_a_row + 1 if common else 1
        self._pair = common or pair
        return self._in_a_row <= MOST_IN_A_ROW


def _shown(ref: str, memory: Memory) -> Remembered:
    text = f"{memory.speaker} said: {memory.text}" if memory.speaker else memory.text
    at = memory.event_time or memory.assertion_time
    return Remembered(
        ref=ref,
        text=Data(text=text, kind="memory", ref=ref),
        at=f"{at:%Y-%m-%d %H:%M} UTC",
        kind=memory.kind.value,
    )


def _verdict(plain: Verdict, value: Any, model: str) -> Verdict:
    is_certain = value["confidence"] >= CERTAIN
    if value["outcome"] in ("conflict", "supersede"):
        kind = Finding.CONTRADICTION if is_certain else Finding.SUSPECTED
    elif is_certain:
        kind = Finding.COMPATIBLE
    else:
        return plain
    said = " ".join(value["reason"].split())[:_REASON_CHARS]
    return Verdict(kind=kind, reason=f"{model} says: {said}", judge=ModelJudge.name)

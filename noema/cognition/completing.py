"""How a mind asks a model: by role, as itself, in bounded time, and only with what may leave.

    model_for ──▶ labels of all texts ──▶ LanguageModel (recorded, within budgets) ──▶ Answer

Whatever goes wrong is an Answer that says so, because each process has a way on without a model.

A thought may lose against others although a model was asked for it. What was answered is kept for
a few cycles, by its matter, so that the next try costs nothing; so is a failure, which is not to be
waited for again at once.
"""

import asyncio
from collections import OrderedDict
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
import structlog

from noema.cognition.model import MICRO
from noema.cognition.process import Answer, Given
from noema.core.errors import NoemaError
from noema.llm.asker import Asker, MayLeave, Reach, without_closed
from noema.llm.model import CallContext, CognitiveResponse

log = structlog.get_logger()

COMPLETE_DEADLINE_S: Final = 120.0
"""How long a mind waits for a model at most, whatever deadline the role has.

What the role has is what counts below that; a free place is waited for within it.
"""

MOST_AT_ONCE: Final = 8
"""How many questions all minds of a process ask at once."""

KEPT_CYCLES: Final = 16
"""For how many cycles an answer is kept for a thought that was not admitted."""

RESTS_CYCLES: Final = 3
"""For how many cycles a matter is not asked about again after there was no answer."""

MOST_KEPT: Final = 256
LONGEST: Final = 8_000
"""How many characters of a text are taken."""

LONGEST_JSON: Final = 32_000
_LOOK_S: Final = 1.0
_SPARED: Final = 0.04
_NO_ANSWER: Final = ("refusal", "filtered")
_SHARES: Final = ("confidence",)

_Matter: TypeAlias = tuple[UUID | None, str, str]


class MindModel:
    """Models as minds use them, whichever mind it is.

    `may_leave` says of texts whether they may be shown to a provider outside of this machine.
    """

    def __init__(
        self,
        asker: Asker,
        *,
        may_leave: MayLeave,
        deadline_s: float = COMPLETE_DEADLINE_S,
        most_at_once: int = MOST_AT_ONCE,
    ) -> None:
        self._asker = asker
        self._may_leave = may_leave
        self._deadline_s = deadline_s
        self._room = asyncio.Semaphore(most_at_once)
        self._kept: OrderedDict[_Matter, Answer] = OrderedDict()

    async def reach(self, prompt: str) -> Reach | None:
        """Return where a model for the prompt is, None where none is set or nobody can tell."""
        try:
            async with asyncio.timeout(_LOOK_S):
                return await self._asker.reach(prompt)
        except (NoemaError, TimeoutError) as exc:
            log.warning("models_unknown", prompt=prompt, reason=type(exc).__name__)
            return None

    async def complete(
        self,
        context: CallContext,
        prompt: str,
        given: msgspec.Struct,
        *,
        reach: Reach,
        matter: str,
        marks: Given,
    ) -> Answer:
        """Ask; `context` makes the answer one that is never asked for twice.

        Where the model has moved out of this machine since `reach` was told, nothing is asked.
        What was answered to the matter a few cycles ago is answered again, with its marks.
        """
        cycle = context.cycle or 0
        key = context.mind, prompt, matter
        kept = self._kept.pop(key, None)
        if kept is not None:
            since = cycle - (kept.asked_in or 0)
            if 0 < since <= (RESTS_CYCLES if kept.failed else KEPT_CYCLES):
                self._kept[key] = kept
                return msgspec.structs.replace(kept, reach=reach)
        answer = await self._ask(context, prompt, given, reach)
        self._kept[key] = msgspec.structs.replace(answer, asked_in=cycle, given=marks)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return answer

    async def _ask(
        self, context: CallContext, prompt: str, given: msgspec.Struct, reach: Reach
    ) -> Answer:
        try:
            async with asyncio.timeout(self._deadline_s) as limit, self._room:
                now = await self._asker.reach(prompt)
                if now is None or (now == "provider" and reach == "local"):
                    return _failed(reach, "the model was changed meanwhile")
                asked: msgspec.Struct | None = _named(given, context.actor)
                if reach == "provider":
                    asked = await without_closed(given, self._may_leave)
                    asked = None if asked is None else _named(asked, context.actor)
                if asked is None:
                    return _failed(reach, "the matter may not be shown to a provider")
                # It ends itself, on record with its reason, before it is ended from here.
                ends_at = limit.when() or 0.0
                left_s = ends_at - asyncio.get_running_loop().time() - self._deadline_s * _SPARED
                response = await self._asker.ask(
                    prompt, asked, context, deadline_s=max(left_s, 0.0)
                )
        except TimeoutError:
            return _failed(reach, f"late: no model answered within {self._deadline_s:g} s")
        except NoemaError as exc:
            log.warning("model_gave_no_answer", prompt=prompt, code=exc.code)
            return _failed(reach, exc.code)
        return _answer(reach, response)


def _named(given: msgspec.Struct, actor: str) -> msgspec.Struct:
    if "mind" not in given.__struct_fields__:
        return given
    return msgspec.structs.replace(given, mind=actor.removeprefix("mind:"))


def _failed(reach: Reach, why: str) -> Answer:
    return Answer(reach=reach, failed=why)


def _answer(reach: Reach, response: CognitiveResponse) -> Answer:
    if response.finish in _NO_ANSWER:
        return _failed(reach, "the model would not answer this")
    model = response.model[:200]
    if response.value is None:
        text = response.text.strip()
        if not text:
            return _failed(reach, "the answer is empty")
        return Answer(reach=reach, text=text[:LONGEST], model=model, call=response.call)
    if len(response.text) > LONGEST_JSON:
        return _failed(reach, "the answer is too long")
    return Answer(reach=reach, value=_whole(response.value), model=model, call=response.call)


def _whole(value: Any, name: str = "") -> Any:
    """Return the JSON value without fractions, which have no one spelling: shares in millionths."""
    if isinstance(value, dict):
        return {key: _whole(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return round(value * MICRO) if name in _SHARES else round(value)
    return value

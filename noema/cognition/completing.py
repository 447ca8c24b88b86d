"""How a mind asks a model: by role, as itself, in bounded time, and only with what may leave.

    model_for ──▶ labels of all texts ──▶ LanguageModel (recorded, within budgets) ──▶ Answer

Whatever goes wrong is an Answer that says so, because each process has a way on without a model.
"""

import asyncio
from typing import Any, Final

import msgspec
import structlog

from noema.cognition.model import MICRO
from noema.cognition.process import Answer
from noema.core.errors import NoemaError
from noema.llm.asker import Asker, MayLeave, Reach, without_closed
from noema.llm.model import CallContext, CognitiveResponse

log = structlog.get_logger()

COMPLETE_DEADLINE_S: Final = 30.0
"""How long one question to a model may take in all, waiting for a free place included."""

MOST_AT_ONCE: Final = 8
"""How many questions all minds of a process ask at once."""

LONGEST: Final = 8_000
"""How many characters of a text are taken."""

LONGEST_JSON: Final = 32_000
_LOOK_S: Final = 1.0
_NO_ANSWER: Final = ("refusal", "filtered")
_SHARES: Final = ("confidence",)


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

    async def reach(self, prompt: str) -> Reach | None:
        """Return where a model for the prompt is, None where none is set or nobody can tell."""
        try:
            async with asyncio.timeout(_LOOK_S):
                return await self._asker.reach(prompt)
        except (NoemaError, TimeoutError) as exc:
            log.warning("models_unknown", prompt=prompt, reason=type(exc).__name__)
            return None

    async def complete(
        self, context: CallContext, prompt: str, given: msgspec.Struct, *, reach: Reach
    ) -> Answer:
        """Ask; `context` makes the answer one that is never asked for twice.

        Where the model has moved out of this machine since `reach` was told, nothing is asked.
        """
        try:
            async with asyncio.timeout(self._deadline_s), self._room:
                now = await self._asker.reach(prompt)
                if now is None or (now == "provider" and reach == "local"):
                    return _failed(reach, "the model was changed meanwhile")
                asked: msgspec.Struct | None = _named(given, context.actor)
                if reach == "provider":
                    asked = await without_closed(given, self._may_leave)
                    asked = None if asked is None else _named(asked, context.actor)
                if asked is None:
                    return _failed(reach, "the matter may not be shown to a provider")
                response = await self._asker.ask(
                    prompt, asked, context, deadline_s=self._deadline_s
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
        return Answer(reach=reach, text=text[:LONGEST], model=model)
    if len(response.text) > LONGEST_JSON:
        return _failed(reach, "the answer is too long")
    return Answer(reach=reach, value=_whole(response.value), model=model)


def _whole(value: Any, name: str = "") -> Any:
    """Return the JSON value without fractions, which have no one spelling: shares in millionths."""
    if isinstance(value, dict):
        return {key: _whole(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return round(value * MICRO) if name in _SHARES else round(value)
    return value

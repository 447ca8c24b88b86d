"""What the models of a service have refused, so that they are asked without it at once.

What a model refuses is left out and the request made again: that is no second attempt, since no
model worked for the first. Anthropic's newer models take no `temperature` and no `top_p`, those
before them not both, and the older ones no schema.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from noema.llm.model import ChatMessage, Parameters
from noema.llm.providers.asking import with_schema_told
from noema.llm.providers.constrained import constrained
from noema.llm.providers.refused import Refused

T = TypeVar("T")

_BAD_REQUEST: Final = 400
_OF_SCHEMA: Final = re.compile(
    r"output_?\s?(?:config|format)|text_?format|structured|json_schema|\bschema\b|grammar",
    re.IGNORECASE,
)
_THIS_SCHEMA: Final = re.compile(r"\bschema\b|too (?:complex|large|many)", re.IGNORECASE)
_SAMPLING: Final[Mapping[str, re.Pattern[str]]] = {
    # Of two that do not go together the second is left out.
    "top_p": re.compile(r"\btop_?p\b", re.IGNORECASE),
    "temperature": re.compile(r"\btemperature\b", re.IGNORECASE),
}
_UNKNOWN: Final = re.compile(
    r"deprecated|removed|no longer|cannot both|may only be set|extra inputs|"
    r"un(?:supported|known|expected)|"
    r"(?:not|n't)\s+(?:\w+\s+){0,2}(?:support|permit|allow|accept|available)",
    re.IGNORECASE,
)

Ask = Callable[
    [Sequence[ChatMessage], str, Parameters, Mapping[str, Any] | None, float], Awaitable[T]
]
"""Asks once: messages, model, parameters, a schema for the request, and the seconds left.

Where a schema is wanted and not for the request, the messages tell it in words.
"""


class Learned:
    """What is known of each model of one provider; it lives as long as the provider."""

    def __init__(self) -> None:
        self._takes_no_schema: set[str] = set()
        self._takes_no: dict[str, set[str]] = {}

    async def asked(
        self,
        ask: Ask[T],
        messages: Sequence[ChatMessage],
        *,
        model: str,
        parameters: Parameters,
        schema: Mapping[str, Any] | None,
        deadline_s: float,
    ) -> T:
        """Ask, and again without what the model refuses; raises what `ask` raises."""
        time = asyncio.get_running_loop().time
        until = time() + deadline_s
        wanted = self._wanted(model, schema)
        while True:
            fitted = self._fitted(model, parameters)
            told = messages
            if schema is not None and wanted is None:
                told = with_schema_told(messages, schema)
            try:
                return await ask(told, model, fitted, wanted, until - time())
            except Refused as exc:
                if self._is_of_sampling(exc, model, fitted):
                    continue
                if wanted is None or not self._is_of_schema(exc, model):
                    raise
                wanted = None

    def _wanted(self, model: str, schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if schema is None or model in self._takes_no_schema:
            return None
        return constrained(schema)

    def _fitted(self, model: str, parameters: Parameters) -> Parameters:
        refused = self._takes_no.get(model)
        if not refused:
            return parameters
        return msgspec.structs.replace(parameters, **dict.fromkeys(refused))

    def _is_of_sampling(self, refused: Refused, model: str, sent: Parameters) -> bool:
        if refused.status != _BAD_REQUEST or not _UNKNOWN.search(refused.detail):
            return False
        for name, pattern in _SAMPLING.items():
            if getattr(sent, name) is not None and pattern.search(refused.detail):
                self._takes_no.setdefault(model, set()).add(name)
                return True
        return False

    def _is_of_schema(self, refused: Refused, model: str) -> bool:
        if refused.status != _BAD_REQUEST or not _OF_SCHEMA.search(refused.detail):
            return False
        # That one schema is refused says nothing about the next.
        if not _THIS_SCHEMA.search(refused.detail):
            self._takes_no_schema.add(model)
        return True

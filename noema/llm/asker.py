"""One way to ask a role by its prompt: what is configured, where it is, what to send, what came.

Memory and minds ask through this. It sees to it that a text leaves this machine only where its
label lets it; the caller says what a text's label is.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from noema.llm.configured import ProviderRow
from noema.llm.defaults import SCHEMAS
from noema.llm.here import stays_here
from noema.llm.inputs import Data
from noema.llm.library import Ready
from noema.llm.model import CallContext, CognitiveRequest, CognitiveResponse, LanguageModel, Role

Reach: TypeAlias = Literal["local", "provider"]
"""Where a question goes: `local` stays on this machine, whichever of the chain is asked."""

Chosen: TypeAlias = Sequence[tuple[ProviderRow, str]]
"""Whom a role asks now, each with the model."""

MayLeave: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[bool]]]
"""Says of each text whether it may be shown to a provider."""


class Renders(Protocol):
    """What keeps the prompts."""

    async def render(self, name: str, given: msgspec.Struct, /) -> Ready: ...


class Asker:
    """Asks the role that has the name of a prompt."""

    def __init__(
        self,
        *,
        model: LanguageModel,
        prompts: Renders,
        chosen: Callable[[Role], Awaitable[Chosen]],
    ) -> None:
        self._model = model
        self._prompts = prompts
        self._chosen = chosen

    async def reach(self, prompt: str) -> Reach | None:
        """Return where the question would go, None where no model is set; Unavailable."""
        return reach_of(await self._chosen(Role(prompt)))

    async def ask(
        self, prompt: str, given: msgspec.Struct, context: CallContext, *, deadline_s: float
    ) -> CognitiveResponse:
        """Ask, and raise what `LanguageModel.complete` and `Library.render` raise."""
        ready = await self._prompts.render(prompt, given)
        return await self._model.complete(
            CognitiveRequest(
                role=Role(prompt),
                messages=ready.messages,
                context=context,
                prompt=ready.prompt,
                schema=SCHEMAS.get(prompt),
                deadline_s=deadline_s,
            )
        )


def reach_of(chosen: Chosen) -> Reach | None:
    """Return where a question to these goes; a single one elsewhere makes it `provider`."""
    if not chosen:
        return None
    return "local" if all(_is_here(row, model) for row, model in chosen) else "provider"


def _is_here(row: ProviderRow, model: str) -> bool:
    return row.kind == "echo" or stays_here(row.endpoint, model)


async def without_closed(given: msgspec.Struct, may_leave: MayLeave) -> msgspec.Struct | None:
    """Return the input without the texts that may not leave.

    An item of a list goes as a whole. None where the matter itself, which stands in no list, may
    not leave: then there is nothing to ask.
    """
    texts = list(dict.fromkeys(_texts(given)))
    open_ = {text for text, leaves in zip(texts, await may_leave(texts), strict=True) if leaves}
    kept: msgspec.Struct | None = _kept(given, open_)
    return kept


def _texts(value: Any) -> list[str]:
    if isinstance(value, Data):
        return [value.text] if value.text else []
    if isinstance(value, tuple):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, msgspec.Struct):
        return [t for name in value.__struct_fields__ for t in _texts(getattr(value, name))]
    return []


def _kept(value: Any, open_: set[str]) -> Any:
    """Return the value without closed texts, None where it is not left."""
    if isinstance(value, Data):
        return value if not value.text or value.text in open_ else None
    if isinstance(value, tuple):
        items = (_kept(item, open_) for item in value)
        return tuple(item for item in items if item is not None)
    if isinstance(value, msgspec.Struct):
        fields = {name: _kept(getattr(value, name), open_) for name in value.__struct_fields__}
        if any(field is None for field in fields.values()):
            return None
        return msgspec.structs.replace(value, **fields)
    return value

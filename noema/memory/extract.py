"""What a text is taken apart into. Without a model, and wherever one fails: the text itself.

An extractor is asked about texts only. The turns of a transcript are kept as they were said, or
their neighbours and their order would mean nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec
import structlog

from noema.core.errors import NoemaError
from noema.core.identity import Identity
from noema.memory.model import EpistemicKind, Kind, Write
from noema.memory.verify import check_content, check_text

log = structlog.get_logger()

VERBATIM: Final = "verbatim"
WITHIN_S: Final = 60.0
"""How long an extractor may take for one text, in seconds."""
_MOST_CANDIDATES: Final = 64
_REASON_CHARS: Final = 200


class Extracted(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate that was found in a text. None means: as the request says."""

    text: str
    kind: Kind | None = None
    epistemic_kind: EpistemicKind | None = None
    content: Mapping[str, Any] | None = None


class Extractor(Protocol):
    """Finds the facts in a text. Whatever one raises, the text is kept verbatim then."""

    @property
    def name(self) -> str: ...

    async def extract(self, text: str, *, most: int) -> Sequence[Extracted]:
        """Return the candidates in their order, each with at most so many characters."""
        ...


ExtractorOf: TypeAlias = Callable[
    [Identity, Write], Awaitable[tuple[Extractor, Literal["local", "provider"]] | None]
]
"""Who takes the text of a request apart, and where that is; None for nobody."""


async def extract(
    extractor: Extractor | None, text: str, *, kind: Kind, most: int
) -> tuple[list[Extracted], str]:
    """Return the candidates, and what `extraction` says of them: who found them, or why nobody did.

    Guarantee 22: an answer that cannot be used, or none at all, loses nothing.
    """
    whole = [Extracted(text=text)]
    if extractor is None:
        return whole, VERBATIM
    try:
        async with asyncio.timeout(WITHIN_S):
            found = list(await extractor.extract(text, most=most))
    except Exception as exc:  # noqa: BLE001 - whatever the model does, the text is kept
        log.warning("extraction_failed", extractor=extractor.name, error=type(exc).__name__)
        # Only our own messages are known to hold nothing of the text.
        reason = str(exc) if isinstance(exc, NoemaError) else type(exc).__name__
        return whole, _verbatim(f"{extractor.name} failed: {reason}")
    fault = _fault(found, kind, most)
    if fault is not None:
        return whole, _verbatim(f"{extractor.name} answered badly: {fault}")
    return found, extractor.name


def _fault(found: Sequence[Extracted], kind: Kind, most: int) -> str | None:
    if not found:
        return "it found nothing"
    if len(found) > _MOST_CANDIDATES:
        return f"it found more than {_MOST_CANDIDATES} facts in one text"
    for one in found:
        fault = check_text(one.text, most=most)
        if fault is None and one.content is not None:
            _, fault = check_content(one.kind or kind, one.content)
        if fault is not None:
            return fault
    return None


def _verbatim(reason: str) -> str:
    return f"{VERBATIM}: {reason}"[:_REASON_CHARS]

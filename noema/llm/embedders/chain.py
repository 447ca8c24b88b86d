"""An embedder that has several ways to the same vectors."""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from noema.core.errors import Unavailable
from noema.llm.embedders.remote import WEIGHT, RemoteEmbedder
from noema.llm.model import Purpose

log = structlog.get_logger(__name__)

# A search waits five seconds at most: one that hangs leaves the next its time, and is still
# counted as slow.
_SEARCH_S: Final = 2.2


class EmbedderChain:
    """Asks the first way, and the next where that raises Unavailable; all are of one model.

    `missing` says why others are no way at all, for the message where none is left.
    """

    weight: Final = WEIGHT

    def __init__(
        self,
        *,
        model: str,
        ways: Sequence[RemoteEmbedder],
        missing: Sequence[str] = (),
        search_s: float = _SEARCH_S,
    ) -> None:
        self.model: Final = model
        self._ways = tuple(ways)
        self._missing = tuple(missing)
        self._search_s = search_s

    @property
    def dims(self) -> int:
        return next((way.dims for way in self._ways if way.dims), 0)

    async def embed(self, texts: Sequence[str], *, purpose: Purpose) -> list[Sequence[float]]:
        """Return one vector of length 1 per text, in order; raises Unavailable where none can."""
        reasons = list(self._missing)
        for left, way in zip(range(len(self._ways) - 1, -1, -1), self._ways, strict=True):
            share_s = self._search_s if purpose == "query" and left else None
            try:
                async with asyncio.timeout(share_s):
                    return await way.embed(texts, purpose=purpose)
            except TimeoutError:
                reasons.append(f"{way.name} is too slow for a search.")
            except Unavailable as exc:
                reasons.append(str(exc))
            if left:
                log.info("embedding.fallback", reason=reasons[-1])
        raise Unavailable(" ".join(reasons))

    async def aclose(self) -> None:
        """Close the connections; may be called again."""
        for way in self._ways:
            await way.aclose()

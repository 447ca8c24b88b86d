"""An embedder that asks a service over HTTP."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from noema.config import EmbedderSettings
from noema.core.errors import Unavailable
from noema.llm.embedders.vectors import batches, checked
from noema.llm.embedders.wire import Wire
from noema.llm.model import Purpose
from noema.net.http import HttpRefused, Remote

WEIGHT: Final = 0.5

CHARS_AT_ONCE: Final = 64_000
_SHORTEST_CUT: Final = 500


class RemoteEmbedder:
    """Vectors from a service. `dims` is 0 until it is known: set, or learned from an answer."""

    weight: Final = WEIGHT

    def __init__(self, *, settings: EmbedderSettings, remote: Remote, wire: Wire) -> None:
        self._settings = settings
        self._remote = remote
        self._wire = wire
        self._dims = settings.dims or 0
        self.model: Final = _name(settings)

    @property
    def dims(self) -> int:
        return self._dims

    @property
    def name(self) -> str:
        """The service and its host, as messages begin."""
        return self._remote.name

    async def embed(self, texts: Sequence[str], *, purpose: Purpose) -> list[Sequence[float]]:
        """Return one vector of length 1 per text, in order; raises Unavailable where it cannot.

        Texts are cut at what the model is given, mostly 8,000 characters; where the service finds
        one too long even so, it is halved for it a few times.
        """
        is_query = purpose == "query"
        model = self._settings.query_model if is_query else self._settings.model
        prefix = self._settings.query_prefix if is_query else self._settings.document_prefix
        most = self._wire.max_chars(model)
        prepared = [_prepared(prefix, text, most) for text in texts]
        vectors: list[Sequence[float]] = []
        at_once = self._wire.at_once(model)
        for batch in batches(prepared, at_once=at_once, chars=CHARS_AT_ONCE):
            vectors.extend(await self._batch(model, batch, purpose))
        return vectors

    async def aclose(self) -> None:
        """Close the connections; may be called again."""
        await self._remote.aclose()

    async def _batch(
        self, model: str, texts: Sequence[str], purpose: Purpose
    ) -> list[Sequence[float]]:
        try:
            return await self._asked(model, texts, purpose)
        except HttpRefused as exc:
            if not exc.is_this_request:
                raise
            if len(texts) == 1:
                return [await self._cut(model, texts[0], purpose, exc)]
        # One text of them was too much: each for itself finds out which.
        return [vector for text in texts for vector in await self._batch(model, [text], purpose)]

    async def _cut(
        self, model: str, text: str, purpose: Purpose, refused: HttpRefused
    ) -> Sequence[float]:
        while len(text) >= 2 * _SHORTEST_CUT:
            text = text[: len(text) // 2]
            try:
                return (await self._asked(model, [text], purpose))[0]
            except HttpRefused as exc:
                if not exc.is_this_request:
                    raise
                refused = exc
        raise refused

    async def _asked(
        self, model: str, texts: Sequence[str], purpose: Purpose
    ) -> list[Sequence[float]]:
        raw = await self._wire.ask(self._remote, model, texts, self._settings.dims, purpose)
        vectors = checked(raw, count=len(texts), dims=self._dims or None, name=self._remote.name)
        if not vectors:
            raise Unavailable(f"{self._remote.name} answered no vectors.")
        self._dims = len(vectors[0])
        return vectors


def _prepared(prefix: str, text: str, most: int) -> str:
    # Some services refuse the empty text; a space says as little. Half a surrogate pair has no
    # place in UTF-8.
    whole = (prefix + text[:most])[:most] or " "
    return whole.encode("utf-8", errors="replace").decode("utf-8")


def _name(settings: EmbedderSettings) -> str:
    """Return what names the space: service, model, and all that changes what a vector means."""
    names = dict.fromkeys((settings.query_model, settings.model))
    name = f"{settings.kind}:{','.join(names)}"
    if settings.dims is not None:
        name += f"@{settings.dims}"
    prefixes = f"{settings.query_prefix}\x00{settings.document_prefix}"
    if prefixes != "\x00":
        name += f"+{sha256(prefixes.encode()).hexdigest()[:8]}"
    return name

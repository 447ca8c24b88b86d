"""What cognitive code knows of models: roles and shapes, never vendors."""

from collections.abc import Sequence
from typing import Literal, Protocol

Purpose = Literal["query", "document"]


class Embedder(Protocol):
    """Turns texts into vectors of one length.

    `model` names vectors that may be compared: another name means another space. `weight` is how
    much its cosine counts beside text search, 0 to 1: hashing knows spelling, a model meaning.
    """

    @property
    def model(self) -> str: ...

    @property
    def dims(self) -> int: ...

    @property
    def weight(self) -> float: ...

    async def embed(self, texts: Sequence[str], *, purpose: Purpose) -> list[Sequence[float]]:
        """Return one vector of length 1 per text, in order; raises Unavailable where it cannot."""
        ...

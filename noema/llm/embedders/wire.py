"""The wire formats of embedding services: what is asked, and what comes back.

OpenAI and all that imitate it, Azure OpenAI in both of its address forms, and Ollama with the older
of its two calls where it does not know the newer. Bedrock's are in `bedrock`.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

from noema.core.errors import Unavailable
from noema.llm.embedders.vectors import from_base64
from noema.llm.model import Purpose
from noema.net.http import HttpRefused, Remote

AT_ONCE: Final = 64
# Services refuse what is longer than their model reads, some 8,192 tokens; in the densest scripts
# a character is a token. What a text says is said by then.
MAX_CHARS: Final = 8_000


class Wire(Protocol):
    """How one kind of service is asked for the vectors of a few texts."""

    def at_once(self, model: str) -> int:
        """Return how many texts the model is given in one go."""
        ...

    def max_chars(self, model: str) -> int:
        """Return how much of a text the model is given."""
        ...

    async def ask(
        self,
        remote: Remote,
        model: str,
        texts: Sequence[str],
        dims: int | None,
        purpose: Purpose,
    ) -> Sequence[Sequence[float]]:
        """Return the vectors as they came; raises Unavailable."""
        ...


class _Usual:
    """What most services take."""

    def at_once(self, model: str) -> int:
        del model
        return AT_ONCE

    def max_chars(self, model: str) -> int:
        del model
        return MAX_CHARS


class _Row(msgspec.Struct):
    embedding: list[float] | str
    index: int | None = None


class _OpenAiAnswer(msgspec.Struct):
    data: list[_Row]


class OpenAiWire(_Usual):
    """`POST …/embeddings` with the model in the body, or in the path (Azure's deployments).

    Numbers are asked for as base64, as the official client does; who sends lists is understood.
    """

    def __init__(self, *, path: str = "/embeddings", query: str = "") -> None:
        self._path = path
        self._query = query

    async def ask(
        self,
        remote: Remote,
        model: str,
        texts: Sequence[str],
        dims: int | None,
        purpose: Purpose,
    ) -> Sequence[Sequence[float]]:
        del purpose
        body: dict[str, Any] = {"input": list(texts), "encoding_format": "base64", "model": model}
        if dims is not None:
            body["dimensions"] = dims
        path = self._path.replace("{model}", quote(model, safe="")) + self._query
        answer = await remote.post(path, body, _OpenAiAnswer)
        return [
            from_base64(row.embedding, name=remote.name)
            if isinstance(row.embedding, str)
            else row.embedding
            for row in _in_order(answer.data, remote.name)
        ]


def openai_wire(url: str) -> OpenAiWire:
    """Return the wire for an address that ends in a version (`…/v1`), or for the bare host."""
    last = url.rstrip("/").rpartition("/")[2]
    has_version = len(last) > 1 and last[0] == "v" and last[1].isdigit()
    return OpenAiWire(path="/embeddings" if has_version else "/v1/embeddings")


def azure_wire(url: str, api_version: str) -> OpenAiWire:
    """Return the wire for Azure: deployments by path, or `/openai/v1` where the address says so."""
    plain = url.rstrip("/")
    if plain.endswith("/openai/v1"):
        return OpenAiWire()
    start = "" if plain.endswith("/openai") else "/openai"
    return OpenAiWire(
        path=f"{start}/deployments/{{model}}/embeddings",
        query=f"?api-version={quote(api_version, safe='')}",
    )


class _OllamaAnswer(msgspec.Struct):
    embeddings: list[list[float]]


class _OllamaOldAnswer(msgspec.Struct):
    embedding: list[float]


_NOT_FOUND: Final = 404


class OllamaWire(_Usual):
    """`POST /api/embed`, and text by text `POST /api/embeddings` where that is not known."""

    def __init__(self) -> None:
        self._is_old = False

    async def ask(
        self,
        remote: Remote,
        model: str,
        texts: Sequence[str],
        dims: int | None,
        purpose: Purpose,
    ) -> Sequence[Sequence[float]]:
        del purpose
        if self._is_old:
            return await self._one_by_one(remote, model, texts)
        body: dict[str, Any] = {"model": model, "input": list(texts), "truncate": True}
        if dims is not None:
            body["dimensions"] = dims
        try:
            return (await remote.post("/api/embed", body, _OllamaAnswer)).embeddings
        except HttpRefused as exc:
            if exc.status != _NOT_FOUND:
                raise
            # The call is unknown, or the model: the older call tells which.
            vectors = await self._one_by_one(remote, model, texts)
            self._is_old = True
            return vectors

    async def _one_by_one(
        self, remote: Remote, model: str, texts: Sequence[str]
    ) -> Sequence[Sequence[float]]:
        vectors = []
        for text in texts:
            body = {"model": model, "prompt": text}
            vectors.append((await remote.post("/api/embeddings", body, _OllamaOldAnswer)).embedding)
        return vectors


def _in_order(rows: Sequence[_Row], name: str) -> Sequence[_Row]:
    """Return the rows by `index`, which some servers leave out and some do not keep to."""
    if all(row.index is None for row in rows):
        return rows
    placed: dict[int | None, _Row] = {row.index: row for row in rows}
    try:
        return [placed[place] for place in range(len(rows))]
    except KeyError:
        raise Unavailable(f"{name} numbered its vectors in a way that makes no sense.") from None

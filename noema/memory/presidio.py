"""Microsoft Presidio as one more classifier, in a process of its own with a limit of time.

It needs the extra `noema[presidio]` and a language model of its own, takes hundreds of megabytes
and milliseconds a text, and is not ours: so it runs outside of the daemon, is asked line by line,
and where it fails, is late or talks nonsense, the texts are labelled restricted and it is started
anew for the next. So they are while it loads its model, which takes it longer than one may wait.

                                        ─▶  {"ready": true}
    {"texts": [...], "language": "en"}  ─▶  {"kinds": [["EMAIL_ADDRESS", …], …]}
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

import msgspec

from noema.core.errors import Unavailable
from noema.memory.classify import DESTINATIONS
from noema.memory.model import Label, Sensitivity
from noema.memory.personal import RESTRICTED

WORKER: Final = (sys.executable, "-m", "noema.memory.presidio_worker")
WITHIN_S: Final = 4.0
"""How long one answer may take, in seconds; less than half of what classification may take."""
START_WITHIN_S: Final = 180.0
"""How long it may load its model, in seconds."""
_LINE_BYTES: Final = 16 * 1024 * 1024

# Presidio's entities as the kinds that the rules know; what is not listed keeps its own name.
_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "CREDIT_CARD": "credit_card",
        "EMAIL_ADDRESS": "email",
        "IBAN_CODE": "iban",
        "IP_ADDRESS": "ip",
        "PHONE_NUMBER": "phone",
        "US_SSN": "national_id",
        "UK_NHS": "national_id",
        "ES_NIF": "national_id",
        "IT_FISCAL_CODE": "national_id",
        "PL_PESEL": "national_id",
        "US_PASSPORT": "passport",
        "MEDICAL_LICENSE": "medical_license",
    }
)
# Names of places, people and dates are in nearly every text, and protect nothing by themselves.
_TOO_COMMON: Final = frozenset({"DATE_TIME", "LOCATION", "NRP", "PERSON", "ORGANIZATION", "URL"})


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker is asked: one line of JSON."""

    texts: Sequence[str]
    language: str


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What it says first, once its model is there."""

    ready: bool


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What it answers: for each text the entities it found."""

    kinds: list[list[str]]


def is_installed() -> bool:
    """Whether the extra is there; it is used then."""
    return find_spec("presidio_analyzer") is not None


class Presidio:
    """A `Classifier` that asks the worker; `aclose` ends it."""

    name: Final = "presidio"

    def __init__(
        self,
        *,
        command: Sequence[str] = WORKER,
        language: str = "en",
        within_s: float = WITHIN_S,
    ) -> None:
        self._command = command
        self._language = language
        self._within_s = within_s
        self._process: asyncio.subprocess.Process | None = None
        self._started_at = 0.0
        self._is_ready = False
        self._asking = asyncio.Lock()

    async def labels(self, texts: Sequence[str]) -> Sequence[Label]:
        """Return one label per text; raises Unavailable, TimeoutError and ValidationError."""
        async with self._asking:
            process = await self._running()
            try:
                async with asyncio.timeout(self._within_s):
                    answer = await self._ask(process, texts)
            except BaseException:
                # An answer that comes after all must not be taken for that of the next question.
                await self._kill()
                raise
        if len(answer.kinds) != len(texts):
            raise Unavailable("Presidio answered for another number of texts.")
        return [_label(found) for found in answer.kinds]

    async def _running(self) -> asyncio.subprocess.Process:
        """Return the worker once its model is loaded; raise Unavailable while it is not."""
        now = asyncio.get_running_loop().time
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_LINE_BYTES,
            )
            self._started_at, self._is_ready = now(), False
        if not self._is_ready:
            try:
                async with asyncio.timeout(self._within_s):
                    msgspec.json.decode(await self._line(process), type=Ready)
            except TimeoutError:
                if now() - self._started_at > START_WITHIN_S:
                    await self._kill()
                raise Unavailable("Presidio is still loading its model.") from None
            except (Unavailable, msgspec.MsgspecError, ValueError):
                await self._kill()
                raise
            self._is_ready = True
        return process

    async def _ask(self, process: asyncio.subprocess.Process, texts: Sequence[str]) -> Answer:
        if process.stdin is None:
            raise Unavailable("Presidio cannot be spoken to.")
        plain = [text.encode("utf-8", "replace").decode() for text in texts]
        question = Question(texts=plain, language=self._language)
        process.stdin.write(msgspec.json.encode(question) + b"\n")
        await process.stdin.drain()
        return msgspec.json.decode(await self._line(process), type=Answer)

    async def _line(self, process: asyncio.subprocess.Process) -> bytes:
        line = b"" if process.stdout is None else await process.stdout.readline()
        if not line:
            raise Unavailable("Presidio has ended; is noema[presidio] installed, with its model?")
        return line

    async def aclose(self) -> None:
        """End the worker."""
        async with self._asking:
            await self._kill()

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _label(found: Sequence[str]) -> Label:
    kinds = sorted({_KINDS.get(name, name.lower()) for name in found if name not in _TOO_COMMON})
    level = Sensitivity.CONFIDENTIAL if kinds else Sensitivity.INTERNAL
    if RESTRICTED.intersection(kinds):
        level = Sensitivity.RESTRICTED
    return Label(
        sensitivity=level,
        pii=tuple(kinds),
        destinations=DESTINATIONS[level],
        classifier=Presidio.name,
    )

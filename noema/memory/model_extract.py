"""A text taken apart by a model, and each statement held against the text before it is kept.

    text ──extract──▶ statements ──by their words, and by a model where one is set──▶ borne out
                          │                                       └─ one that is not: the text too
                          └─ something of the text is in no statement ─────▶ the text, whole, too

What goes wrong raises, and then the text is kept verbatim with the reason; see `extract`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from noema.core.clock import Clock
from noema.core.errors import Unavailable
from noema.core.identity import Identity
from noema.llm.asker import Asker, Reach
from noema.llm.inputs import Data, Extract, Turn
from noema.memory.extract import Extracted, Extractor
from noema.memory.model import Kind, Write
from noema.memory.model_ask import ask_json
from noema.memory.model_verify import Verifier
from noema.memory.model_words import foreign, untold

LEAST_CHARS: Final = 240
"""A shorter text says one thing or two, and is one memory as it is."""

MOST_FACTS: Final = 40
_DEADLINE_S: Final = 30.0
_FACT_CHARS: Final = 2_000
_OFFERED: Final = (
    Kind.FACT,
    Kind.PREFERENCE,
    Kind.EPISODE,
    Kind.SEMANTIC,
    Kind.PROCEDURAL,
    Kind.AUTOBIOGRAPHICAL,
)


class ModelExtractor:
    """Takes apart one text of one writer. `name` says afterwards who did it, and how far."""

    def __init__(
        self,
        asker: Asker,
        verifier: Verifier,
        *,
        who: Identity,
        kind: Kind | None,
        now: str,
        reach: Reach,
    ) -> None:
        """`kind` is what the writer says that it all is, None to let the model say.

        `reach` is how far the text may go; a model that is further away by then is not asked.
        """
        self._asker = asker
        self._verifier = verifier
        self._reach = reach
        self._who = who
        self._kind = kind
        self._now = now
        self._name = "model"

    @property
    def name(self) -> str:
        return self._name

    async def extract(self, text: str, *, most: int) -> Sequence[Extracted]:
        """Return the statements; raises where the model fails or says nothing that can be used."""
        kinds = _OFFERED if self._kind is None else (self._kind,)
        value, model = await ask_json(
            self._asker,
            "extract",
            Extract(
                now=self._now,
                turns=(Turn(speaker="person", text=Data(text=text, kind="text")),),
                kinds=tuple(kind.value for kind in kinds),
                most=MOST_FACTS,
            ),
            reach=self._reach,
            namespace=self._who.namespace,
            actor=self._who.actor,
            deadline_s=_DEADLINE_S,
        )
        facts = value["facts"]
        if len(facts) > MOST_FACTS:
            raise Unavailable(f"The model found more than {MOST_FACTS} statements in one text.")
        found = _unlike([_extracted(f, kinds, min(most, _FACT_CHARS)) for f in facts])
        if not found:
            raise Unavailable("The model found nothing in the text.")
        said = [f.text for f in found]
        judged = await self._verifier.unsupported(said, text, who=self._who, reach=self._reach)
        self._name = f"model {model}, {'not verified' if judged is None else 'verified'}"
        rejected = foreign(said, text) | (judged or frozenset())
        kept = [f for n, f in enumerate(found) if n not in rejected]
        # A statement that the text does not bear out is an invention. But it may be the model's
        # reading of something that is said, and nothing that is said is lost: the text stays, too.
        if rejected:
            self._name += f", {len(rejected)} not borne out: kept whole, too"
        elif untold(text, said):
            self._name += ", part of it in no statement: kept whole, too"
        else:
            return kept
        return [*kept, Extracted(text=text)]


def _extracted(fact: Any, kinds: Sequence[Kind], most: int) -> Extracted:
    text = " ".join(fact["text"].split())
    if len(text) > most:
        raise Unavailable(f"A statement of the model has more than {most:,} characters.")
    said = fact["kind"].strip().lower()
    # What is none of the kinds is what a text is unless somebody says.
    kind = next((k for k in kinds if k.value == said), None)
    return Extracted(text=text, kind=kind)


def _unlike(found: Sequence[Extracted]) -> list[Extracted]:
    """Return the statements without empty ones, and each once."""
    first: dict[str, Extracted] = {}
    for one in found:
        if one.text:
            first.setdefault(one.text.casefold(), one)
    return list(first.values())


class ModelExtractors:
    """Says who takes a text apart: a model where one is set, nobody otherwise, at no cost."""

    def __init__(self, asker: Asker, *, clock: Clock) -> None:
        self._asker = asker
        self._clock = clock
        self._verifier = Verifier(asker)

    async def __call__(self, who: Identity, request: Write) -> tuple[Extractor, Reach] | None:
        """Return the extractor for the request and where it asks, None for nobody."""
        if request.text is None or len(request.text) < LEAST_CHARS:
            return None
        if request.verbatim or request.refresh or request.supersedes or request.content is not None:
            return None
        try:
            async with asyncio.timeout(1.0):
                reach = await self._asker.reach("extract")
        except (Unavailable, TimeoutError):
            return None
        if reach is None:
            return None
        now = f"{self._clock.now():%Y-%m-%d %H:%M} UTC"
        made = ModelExtractor(
            self._asker, self._verifier, who=who, kind=request.kind, now=now, reach=reach
        )
        return made, reach

"""Whether a text says what was read out of it, asked of a model, statement by statement."""

import asyncio
from collections.abc import Sequence
from typing import Final

from noema.core.identity import Identity
from noema.llm.asker import Asker
from noema.llm.inputs import Data, Remembered, Verify
from noema.memory.model_ask import ask_json

MOST_AT_ONCE: Final = 4
_DEADLINE_S: Final = 20.0


class Verifier:
    """Holds statements against the text they were read out of."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def unsupported(
        self, statements: Sequence[str], text: str, *, who: Identity
    ) -> frozenset[int] | None:
        """Return the places of those that the text does not bear out.

        None where no model is set for it. Raises what a model raises: what was to be verified and
        was not, is not known to be so.
        """
        reach = await self._asker.reach("verify")
        allowed = await self._asker.reach("extract")
        if reach is None or (reach == "provider" and allowed == "local"):
            # The text was found fit for the extracting model, which is nearer than this one.
            return None
        room = asyncio.Semaphore(MOST_AT_ONCE)
        source = Remembered(ref="m1", text=Data(text=text, kind="source", ref="m1"))
        found: set[int] = set()

        async def check(place: int, statement: str) -> None:
            async with room:
                value, _ = await ask_json(
                    self._asker,
                    "verify",
                    Verify(statement=Data(text=statement, kind="statement"), sources=(source,)),
                    namespace=who.namespace,
                    actor=who.actor,
                    deadline_s=_DEADLINE_S,
                )
            if value["verdict"] != "supported":
                found.add(place)

        async with asyncio.timeout(_DEADLINE_S):
            try:
                async with asyncio.TaskGroup() as group:
                    for place, statement in enumerate(statements):
                        group.create_task(check(place, statement))
            except ExceptionGroup as exc:
                # One that cannot be verified is enough; its reason is what is told.
                raise exc.exceptions[0] from None
        return frozenset(found)

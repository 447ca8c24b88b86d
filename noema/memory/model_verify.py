"""Whether a text says what was read out of it, asked of a model, many statements at a time."""

import asyncio
from collections.abc import Sequence
from typing import Final

from noema.core.identity import Identity
from noema.llm.asker import Asker, Reach
from noema.llm.inputs import Data, Remembered, Verify
from noema.memory.model_ask import ask_json

MOST_IN_ONE: Final = 20
"""How many statements one question is about."""

_DEADLINE_S: Final = 20.0
_SUPPORTED: Final = "supported"


class Verifier:
    """Holds statements against the text they were read out of."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def unsupported(
        self, statements: Sequence[str], text: str, *, who: Identity, reach: Reach
    ) -> frozenset[int] | None:
        """Return the places of those that the text does not bear out.

        None where no model is set for it, or none as near as the text has to stay. One without a
        verdict, or with two that differ, is not borne out. Raises what a model raises: what was to
        be verified and was not, is not known to be so.
        """
        now = await self._asker.reach("verify")
        if now is None or (now == "provider" and reach == "local"):
            return None
        parts = [
            range(start, min(start + MOST_IN_ONE, len(statements)))
            for start in range(0, len(statements), MOST_IN_ONE)
        ]
        source = Remembered(ref="m1", text=Data(text=text, kind="source", ref="m1"))
        supported: set[int] = set()

        async def check(part: range) -> None:
            places = {f"s{place + 1}": place for place in part}
            asked = tuple(_statement(ref, statements[n]) for ref, n in places.items())
            value, _ = await ask_json(
                self._asker,
                "verify",
                Verify(statements=asked, sources=(source,)),
                reach=reach,
                namespace=who.namespace,
                actor=who.actor,
                deadline_s=_DEADLINE_S,
            )
            said: dict[str, set[str]] = {}
            for one in value["verdicts"]:
                said.setdefault(one["statement"].strip("[] "), set()).add(one["verdict"])
            supported.update(n for ref, n in places.items() if said.get(ref) == {_SUPPORTED})

        async with asyncio.timeout(_DEADLINE_S):
            try:
                async with asyncio.TaskGroup() as group:
                    for part in parts:
                        group.create_task(check(part))
            except ExceptionGroup as exc:
                # One that cannot be verified is enough; its reason is what is told.
                raise exc.exceptions[0] from None
        return frozenset(range(len(statements))) - supported


def _statement(ref: str, text: str) -> Remembered:
    return Remembered(ref=ref, text=Data(text=text, kind="statement", ref=ref))

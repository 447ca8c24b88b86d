"""Answers from the record in place of a model, for replays.

A miss means that the replay asks something that was not asked then. It is refused, or answered by
a live model and labelled as approximate: whoever replays says which.
"""

from typing import Literal

import msgspec

from noema.core.errors import InvalidInput, NotFound
from noema.llm import answers
from noema.llm.call import answer_of
from noema.llm.calls import Calls
from noema.llm.model import CognitiveRequest, CognitiveResponse, LanguageModel

OnMiss = Literal["refuse", "ask"]


class Replayer:
    """A `LanguageModel` that gives what was answered then to the same mind, cycle and place."""

    def __init__(
        self, *, calls: Calls, on_miss: OnMiss = "refuse", live: LanguageModel | None = None
    ) -> None:
        """`live` answers what is not on record, where `on_miss` is `ask`.

        What it answers goes on record as a call of its own: the context's mind and cycle are those
        of the original, so it is asked without them.
        """
        if on_miss == "ask" and live is None:
            raise InvalidInput("To ask what is not on record needs a live model.", field="live")
        self._calls = calls
        self._live = live if on_miss == "ask" else None
        self.hits = 0
        self.misses = 0

    async def complete(self, request: CognitiveRequest) -> CognitiveResponse:
        """Return the recorded answer; raises as it did then where it could not be used.

        A miss raises NotFound, or is answered live with `is_approximate`.
        """
        shape = None if request.schema is None else answers.shape_of(request.schema)
        record = await self._calls.answered(request)
        if record is not None:
            self.hits += 1
            return answer_of(record, shape)
        self.misses += 1
        if self._live is None:
            context = request.context
            place = f"{context.process or request.role.value} {context.ordinal}"
            raise NotFound("recorded answer", f"for {place} of cycle {context.cycle}")
        # Kept out of the original's key: a replay must never become what the mind is said to have
        # heard.
        apart = msgspec.structs.replace(request.context, mind=None, cycle=None)
        response = await self._live.complete(msgspec.structs.replace(request, context=apart))
        return msgspec.structs.replace(response, is_approximate=True)

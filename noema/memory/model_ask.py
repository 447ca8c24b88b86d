"""How the memory kernel asks a model: in bounded time, in a namespace that may see the call."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from noema.core.errors import Unavailable
from noema.llm.asker import Asker, Reach
from noema.llm.model import CallContext

_NO_ANSWER: Final = ("refusal", "filtered")


async def ask_json(
    asker: Asker,
    prompt: str,
    given: msgspec.Struct,
    *,
    reach: Reach,
    namespace: str,
    actor: str,
    deadline_s: float,
) -> tuple[Mapping[str, Any], str]:
    """Return the object that the model answered, as the prompt's schema has it, and its name.

    `reach` is how far the text was found fit to go. Raises what `Asker.ask` raises, and Unavailable
    where the model would not answer, or is further away by now.
    """
    now = await asker.reach(prompt)
    if now is None or (now == "provider" and reach == "local"):
        raise Unavailable("The model was changed meanwhile.")
    context = CallContext(namespace=namespace, actor=actor, process=prompt)
    response = await asker.ask(prompt, given, context, deadline_s=deadline_s)
    if response.finish in _NO_ANSWER or not isinstance(response.value, Mapping):
        raise Unavailable("The model would not answer this.")
    return response.value, response.model[:100]

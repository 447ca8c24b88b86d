"""A mind that asked a model is run again from what is on record, and nobody is asked again."""

import pytest

from noema.core.errors import NotFound
from noema.llm.calls import CallRecord
from noema.llm.configured import ProviderChange
from noema.llm.defaults import SCHEMAS
from noema.llm.model import CallContext, ChatMessage, CognitiveRequest, Parameters, Role
from noema.llm.replayer import Replayer
from tests.conftest import TestDatabase
from tests.integration.test_llm_minds import reply_to, thinking, wrote
from tests.integration.test_memory_minds import verified
from tests.llm_house import ADMIN


def again(call: CallRecord, text: str = "") -> CognitiveRequest:
    """Return the question that a call was, as its record tells it; with another text at its end."""
    messages = [ChatMessage(role=m["role"], text=m["text"]) for m in call.content["messages"]]
    if text:
        messages.append(ChatMessage(role="user", text=text))
    assert call.prompt_name is not None
    assert call.prompt_version is not None
    return CognitiveRequest(
        role=Role(call.role),
        messages=tuple(messages),
        context=CallContext(
            namespace=call.namespace,
            actor=call.content["actor"],
            mind=call.mind_id,
            cycle=call.cycle,
            process=call.process,
            ordinal=call.ordinal,
        ),
        prompt=(call.prompt_name, call.prompt_version),
        schema=SCHEMAS.get(call.prompt_name),
        parameters=Parameters(),
    )


async def test_a_mind_that_used_a_model_verifies_without_any_call_and_without_any_model(
    database: TestDatabase,
) -> None:
    async with thinking(database, "dialogue") as (here, fake):
        await wrote(here, "The indexer belongs to the search team.")
        fake.says["dialogue"] = "The search team's [m1]."
        answer = await reply_to(here, "Whose is the indexer?")
        llm = here.noema.llm
        calls, asked = await llm.calls.page(namespaces=None), list(fake.asked)

        # Another answer, were somebody asked; then nobody who could be.
        fake.says["dialogue"] = "Somebody else's."
        await verified(here)
        await llm.registry.change(ADMIN, "fake", ProviderChange(is_enabled=False))
        await verified(here)

        assert answer.startswith("The search team's [m1].")
        assert len(asked) == 1
        assert fake.asked == asked
        assert await llm.calls.page(namespaces=None) == calls


async def test_what_is_on_record_of_a_minds_call_answers_it_again_and_nothing_else(
    database: TestDatabase,
) -> None:
    async with thinking(database, "dialogue") as (here, fake):
        fake.says["dialogue"] = "It is the search team's."
        await reply_to(here, "Whose is the indexer?")
        llm = here.noema.llm
        (row,) = await llm.calls.page(namespaces=None)
        call = await llm.calls.get(row.id, namespaces=None)
        asked = len(fake.asked)

        strict = Replayer(calls=llm.calls)
        same = await strict.complete(again(call))
        with pytest.raises(NotFound):
            await strict.complete(again(call, "And since when?"))
        fake.says["dialogue"] = "Since May."
        lenient = Replayer(calls=llm.calls, on_miss="ask", live=llm.service)
        other = await lenient.complete(again(call, "And since when?"))

        assert (same.text, same.call) == ("It is the search team's.", call.id)
        assert (same.is_replayed, same.is_approximate) == (True, False)
        assert (other.text, other.is_approximate) == ("Since May.", True)
        assert len(fake.asked) == asked + 1
        # What was asked now is no part of what the mind is said to have heard.
        assert len(await llm.calls.page(namespaces=None, mind=call.mind_id)) == 1

"""What minds and memory make of a model: what is sent, what is cited, when it is worth asking."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.cognition.completing import MindModel
from noema.cognition.model import MICRO, Candidate, Goal, Slot
from noema.cognition.process import Recollection, Unanswered, believed
from noema.cognition.processes.asking import Given, is_worth_asking
from noema.cognition.processes.dialogue import cite
from noema.cognition.processes.planning import goal_of, topic_of
from noema.core.errors import Unavailable
from noema.llm.asker import Asker, reach_of, without_closed
from noema.llm.configured import ProviderRow
from noema.llm.inputs import Data, Dialogue, Remembered
from noema.llm.library import Ready
from noema.llm.model import (
    CallContext,
    ChatMessage,
    CognitiveRequest,
    CognitiveResponse,
    Parameters,
    Prices,
    Role,
    Usage,
)
from tests.unit.minds import START_US, brain_of, mode_of, remembered

NOW = datetime(2027, 3, 1, tzinfo=UTC)
GIVEN = Given(
    memories={"m1": remembered(1, "Ada lives in Rome."), "m2": remembered(2, "Tea.")},
    thoughts={"t1": UUID(int=9)},
)
CONTEXT = CallContext(namespace="home", actor="mind:ada", mind=UUID(int=5), cycle=1)


def row(kind: str, endpoint: str) -> ProviderRow:
    return ProviderRow(
        id=UUID(int=1), name="p", kind=kind, endpoint=endpoint, model="m",
        parameters=Parameters(), prices=Prices(), secret_id=None, secret_hint="",
        secret_set_by=None, secret_set_at=None, allows_private=True, is_enabled=True, version=1,
        created_by="t", created_at=NOW, updated_by="t", updated_at=NOW,
    )  # fmt: skip


class TestReach:
    @pytest.mark.parametrize(
        ("kind", "endpoint", "model", "reach"),
        [
            ("echo", "", "", "local"),
            ("ollama", "http://127.0.0.1:11434", "llama", "local"),
            ("ollama", "http://[::1]:11434", "llama", "local"),
            ("openai", "http://localhost:8000/v1", "qwen", "local"),
            ("ollama", "http://127.0.0.1:11434", "gpt-oss:120b-cloud", "provider"),
            ("ollama", "http://10.0.0.7:11434", "llama", "provider"),
            ("openai", "https://localhost.example.org/v1", "gpt", "provider"),
            ("openai", "https://api.openai.com/v1", "gpt", "provider"),
        ],
    )
    def test_only_this_machine_is_local(
        self, kind: str, endpoint: str, model: str, reach: str
    ) -> None:
        assert reach_of([(row(kind, endpoint), model)]) == reach

    def test_a_fallback_elsewhere_makes_it_a_provider_and_nobody_is_nowhere(self) -> None:
        here, there = row("echo", ""), row("openai", "https://api.openai.com/v1")

        assert reach_of([(here, ""), (there, "gpt")]) == "provider"
        assert reach_of([]) is None


class TestWhatLeaves:
    async def test_an_item_goes_as_a_whole_and_the_matter_stops_all(self) -> None:
        async def may_leave(texts: Sequence[str]) -> list[bool]:
            return ["secret" not in text for text in texts]

        def asks(message: str) -> Dialogue:
            texts = ("open", "a secret")
            memories = tuple(
                Remembered(ref=f"m{n}", text=Data(text=t)) for n, t in enumerate(texts)
            )
            return Dialogue(mind="ada", now="now", message=Data(text=message), memories=memories)

        kept = await without_closed(asks("hello"), may_leave)

        assert isinstance(kept, Dialogue)
        assert [m.text.text for m in kept.memories] == ["open"]
        assert kept.message.text == "hello"
        assert await without_closed(asks("my secret"), may_leave) is None


class TestCitations:
    def test_what_was_given_is_listed_with_its_id_once(self) -> None:
        text, cited = cite("Rome [m1]. Yes [m1], [t1].", GIVEN)

        assert cited == ("m1", "t1")
        said, _, sources = text.partition("\n\n")
        assert said == "Rome [m1]. Yes [m1], [t1]."
        assert sources.count(str(UUID(int=1))) == 1
        assert f"[t1] thought {UUID(int=9)}" in sources

    def test_what_was_not_given_is_taken_out_and_said(self) -> None:
        text, cited = cite("Rome [m1, m7]. Paris [t44].", GIVEN)

        assert cited == ("m1",)
        assert text.startswith("Rome [m1]. Paris.\n")
        assert text.endswith("was left out.")

    def test_without_a_citation_the_answer_stands_alone(self) -> None:
        assert cite(" I do not know. ", GIVEN) == ("I do not know.", ())

    @given(st.text(st.sampled_from("[]mt123, ;ab\n"), max_size=80))
    def test_no_mark_of_anything_else_survives(self, text: str) -> None:
        said, cited = cite(text, Given())

        assert cited == ()
        assert re.search(r"\[[mt]\d{1,4}\]", said) is None


class TestWorth:
    def test_a_goal_is_planned_for_once_until_something_new_is_thought(self) -> None:
        goal = Goal(id=UUID(int=3), text="Keep alpha up", priority=MICRO)

        def slot(process: str, topic: str, at_s: int) -> Slot:
            return Slot(
                thought=UUID(int=at_s), process=process, topic=topic, text="x", cycle=1,
                admitted_us=START_US + at_s * MICRO, strength=MICRO,
            )  # fmt: skip

        seen = slot("perception", "alpha failed", 1)
        planned = slot("planning", f"{topic_of(goal)}/1", 2)
        newer = slot("perception", "beta failed", 3)

        def chosen(*slots: Slot, trigger: str = "timer") -> Goal | None:
            return goal_of(brain_of(goals=(goal,), slots=slots, trigger=trigger))

        assert chosen() is None
        assert chosen(seen) == goal
        assert chosen(seen, planned) is None
        assert chosen(seen, planned, newer) == goal
        assert chosen(trigger="goal") == goal
        assert chosen(seen, trigger="stimulus") is None

    def test_a_thought_that_the_mode_forbids_is_not_worth_a_model(self) -> None:
        made = Candidate(
            process="dialogue", key="a", topic="a", text="", features={"social": MICRO}
        )

        assert is_worth_asking(made, brain_of())
        assert not is_worth_asking(made, brain_of(mode=mode_of(processes=("reflection",))))


class TestBelieved:
    @pytest.mark.parametrize("why", ["late: x", "unanswered: memory says y", "no vectors"])
    def test_nothing_found_is_only_believed_where_everything_was_looked_through(
        self, why: str
    ) -> None:
        with pytest.raises(Unanswered):
            believed(Recollection(degraded=why))
        believed(Recollection(degraded=why, memories=(remembered(1, "x"),)))
        believed(Recollection())


class Says:
    """A model that answers one thing, or fails."""

    def __init__(self, answer: CognitiveResponse | Exception) -> None:
        self.answer = answer
        self.asked: list[CognitiveRequest] = []

    async def complete(self, request: CognitiveRequest) -> CognitiveResponse:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Plain:
    async def render(self, name: str, given: msgspec.Struct, /) -> Ready:
        message = ChatMessage(role="user", text=repr(given))
        return Ready(messages=(message,), prompt=(name, 1), mark="")


def model_of(says: Says, *, has: bool = True) -> MindModel:
    async def chosen(role: Role) -> list[tuple[ProviderRow, str]]:
        return [(row("echo", ""), "")] if has else []

    async def may_leave(texts: Sequence[str]) -> list[bool]:
        return [True] * len(texts)

    return MindModel(Asker(model=says, prompts=Plain(), chosen=chosen), may_leave=may_leave)


def response(text: str = "", **more: Any) -> CognitiveResponse:
    fields: dict[str, Any] = {"finish": "stop", **more}
    return CognitiveResponse(
        call=UUID(int=1), text=text, provider="p", model="m", usage=Usage(), cost_micros=0,
        cost_kind="free", latency_ms=1, **fields,
    )  # fmt: skip


ASKED = Dialogue(mind="", now="now", message=Data(text="hello"))


class TestAnswers:
    async def test_the_mind_is_named_and_shares_become_whole_numbers(self) -> None:
        value = {"insights": [{"confidence": 0.75, "text": "x"}, {"confidence": 1, "text": "y"}]}
        says = Says(response("{}", value=value))

        answer = await model_of(says).complete(CONTEXT, "dialogue", ASKED, reach="local")

        assert [i["confidence"] for i in answer.value["insights"]] == [750_000, MICRO]
        assert "mind='ada'" in says.asked[0].messages[0].text
        assert says.asked[0].context == CONTEXT

    @pytest.mark.parametrize(
        ("given_", "failed"),
        [
            (Unavailable("It is away."), "unavailable"),
            (response("I will not.", finish="refusal"), "the model would not answer this"),
            (response("  "), "the answer is empty"),
            (response("x" * 40_000, value={"a": 1}), "the answer is too long"),
        ],
        ids=["away", "refusal", "empty", "too long"],
    )
    async def test_what_is_no_answer_says_why(
        self, given_: CognitiveResponse | Exception, failed: str
    ) -> None:
        answer = await model_of(Says(given_)).complete(CONTEXT, "dialogue", ASKED, reach="local")

        assert (answer.failed, answer.text, answer.value) == (failed, "", None)

    async def test_a_long_text_is_cut(self) -> None:
        says = Says(response("x" * 40_000))

        answer = await model_of(says).complete(CONTEXT, "dialogue", ASKED, reach="local")

        assert len(answer.text) == 8_000

    async def test_a_model_that_was_turned_off_meanwhile_is_not_asked(self) -> None:
        says = Says(response("hello"))

        model = model_of(says, has=False)

        assert await model.reach("dialogue") is None
        answer = await model.complete(CONTEXT, "dialogue", ASKED, reach="local")
        assert (answer.failed, says.asked) == ("the model was changed meanwhile", [])

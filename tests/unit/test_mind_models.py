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

from noema.cognition.completing import KEPT_CYCLES, RESTS_CYCLES, MindModel
from noema.cognition.defaults import DEFAULTS
from noema.cognition.keeping import HEARD
from noema.cognition.model import MICRO, Candidate, Goal, Question, Slot
from noema.cognition.process import Answer, Given, Recollection, Unanswered, believed
from noema.cognition.processes.asking import is_worth_asking, slots_for
from noema.cognition.processes.dialogue import Dialogue as Answering
from noema.cognition.processes.dialogue import cite
from noema.cognition.processes.planning import goal_of, topic_of
from noema.cognition.processes.reflection import Reflection
from noema.core.errors import Unavailable
from noema.llm.asker import Asker, Reach, reach_of, without_closed
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
from noema.memory.model_words import foreign, untold
from tests.unit.minds import START_US, NoPorts, brain_of, mode_of, remembered

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

    @pytest.mark.parametrize("said", ["[m7]", " [m1] [t1]", "[m9, t9]\n"])
    def test_marks_alone_are_no_answer(self, said: str) -> None:
        assert cite(said, GIVEN) == ("", ())

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


WAY: Any = {"reach": "local", "matter": "a message", "marks": GIVEN}
ASKED = Dialogue(mind="", now="now", message=Data(text="hello"))


class TestAnswers:
    async def test_the_mind_is_named_and_shares_become_whole_numbers(self) -> None:
        value = {"insights": [{"confidence": 0.75, "text": "x"}, {"confidence": 1, "text": "y"}]}
        says = Says(response("{}", value=value))

        answer = await model_of(says).complete(CONTEXT, "dialogue", ASKED, **WAY)

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
        answer = await model_of(Says(given_)).complete(CONTEXT, "dialogue", ASKED, **WAY)

        assert (answer.failed, answer.text, answer.value) == (failed, "", None)

    async def test_a_long_text_is_cut(self) -> None:
        says = Says(response("x" * 40_000))

        answer = await model_of(says).complete(CONTEXT, "dialogue", ASKED, **WAY)

        assert len(answer.text) == 8_000

    async def test_a_model_that_was_turned_off_meanwhile_is_not_asked(self) -> None:
        says = Says(response("hello"))

        model = model_of(says, has=False)

        assert await model.reach("dialogue") is None
        answer = await model.complete(CONTEXT, "dialogue", ASKED, **WAY)
        assert (answer.failed, says.asked) == ("the model was changed meanwhile", [])


class TestKept:
    """A thought that lost against others costs nothing the next time."""

    async def asked(self, says: Says, *cycles: int) -> list[Answer]:
        model = model_of(says)
        return [
            await model.complete(
                msgspec.structs.replace(CONTEXT, cycle=cycle), "dialogue", ASKED, **WAY
            )
            for cycle in cycles
        ]

    async def test_the_answer_of_an_earlier_cycle_comes_with_the_marks_of_then(self) -> None:
        says = Says(response("Rome [m1]."))

        first, second = await self.asked(says, 3, 3 + KEPT_CYCLES)

        assert len(says.asked) == 1
        assert (first.asked_in, first.given) == (None, None)
        assert (second.text, second.asked_in, second.given) == (first.text, 3, GIVEN)

    async def test_after_a_while_it_is_another_question(self) -> None:
        says = Says(response("Rome [m1]."))

        await self.asked(says, 3, 4 + KEPT_CYCLES)

        assert len(says.asked) == 2

    async def test_a_cycle_that_is_thought_again_asks_the_record_and_nothing_else(self) -> None:
        says = Says(response("Rome [m1]."))

        await self.asked(says, 3, 3)

        assert len(says.asked) == 2
        assert says.asked[0].context == says.asked[1].context

    async def test_who_gave_no_answer_is_left_alone_for_a_few_cycles(self) -> None:
        says = Says(Unavailable("It is away."))

        answers = await self.asked(says, 3, 4, 3 + RESTS_CYCLES, 4 + RESTS_CYCLES)

        assert len(says.asked) == 2
        assert {a.failed for a in answers} == {"unavailable"}

    async def test_of_another_matter_nothing_is_known(self) -> None:
        says = Says(response("Rome [m1]."))
        model = model_of(says)

        for matter in ("a message", "another"):
            await model.complete(CONTEXT, "dialogue", ASKED, **{**WAY, "matter": matter})

        assert len(says.asked) == 2


class Answered(NoPorts):
    """Ports through which a model answers one thing."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.matters: list[str] = []

    async def model_for(self, prompt: str) -> Reach | None:
        return self.answer.reach

    async def complete(
        self, prompt: str, given: msgspec.Struct, *, matter: str, marks: Given
    ) -> Answer:
        self.matters.append(matter)
        return self.answer


QUESTION = Question(
    id=UUID(int=20), conversation=UUID(int=21), speaker="eve", text="Where?", at_us=START_US
)


class TestProcesses:
    async def test_an_answer_of_an_earlier_cycle_cites_what_was_given_then(self) -> None:
        ports = Answered(Answer(reach="local", text="Rome [m1].", asked_in=1, given=GIVEN))

        (made,) = await Answering().propose(brain_of(questions=(QUESTION,)), ports)

        assert made.sources[0] == UUID(int=1)
        assert f"[m1] memory {UUID(int=1)}" in made.text
        assert made.is_local
        assert ports.matters == [str(QUESTION.id)]

    async def test_an_insight_that_cites_a_thought_was_heard(self) -> None:
        insights = [
            {"text": "Both.", "sources": ["m1", "m2"], "confidence": MICRO},
            {"text": "One.", "sources": ["m1", "t1"], "confidence": MICRO},
        ]
        answer = Answer(reach="provider", value={"insights": insights}, asked_in=1, given=GIVEN)
        brain = brain_of(
            admitted_since_reflection=DEFAULTS.reflect_every,
            recent=("perception: alpha", "perception: beta"),
        )

        both, one = await Reflection().propose(brain, Answered(answer))

        assert (both.raw[HEARD], one.raw[HEARD]) == (0, 1)
        assert not both.is_local

    async def test_a_provider_is_not_shown_what_a_model_here_made(self) -> None:
        slot = Slot(
            thought=UUID(int=9), process="reflection", topic="a", text="made here", cycle=1,
            admitted_us=START_US, strength=MICRO, is_local=True,
        )  # fmt: skip

        assert slots_for(brain_of(slots=(slot,)), "provider") == ()
        assert slots_for(brain_of(slots=(slot,)), "local") == (slot,)


class TestWhatAnAnswerRestsOn:
    def test_what_may_not_leave_counts_whether_it_is_cited_or_not(self) -> None:
        one, two = remembered(1, "open", may_leave=True), remembered(2, "closed")
        shown = Given(memories={"m1": one, "m2": two})

        assert shown.memories_of(["m1"]) == (one.id, two.id)
        assert shown.memories_of([]) == (two.id,)


class TestWords:
    @pytest.mark.parametrize(
        ("text", "statements", "left"),
        [
            ("Ada lives in Rome.", ["Ada lives in Rome."], []),
            ("Ada lives in Rome, and hates flying.", ["Ada lives in Rome."], ["and hates flying."]),
            ("It costs 1,200 euros.", ["It costs 1,300 euros."], ["It costs 1,200 euros."]),
            ("\u6771\u4eac\u306b\u4f4f\u3080\u3002\u72ac\u304c\u3044\u308b\u3002",
             ["\u6771\u4eac\u306b\u4f4f\u3080"], ["\u72ac\u304c\u3044\u308b"]),
            ("Ada lives in Rome.", [], ["Ada lives in Rome."]),
        ],
        ids=["all", "a clause", "a number", "no spaces", "nothing"],
    )  # fmt: skip
    def test_what_no_statement_tells_is_found(
        self, text: str, statements: list[str], left: list[str]
    ) -> None:
        assert untold(text, statements) == left

    def test_what_the_text_has_no_words_of_is_foreign(self) -> None:
        text = "She moved to Rome in May; Ada likes it there."

        assert foreign(["Ada moved to Rome.", "Grace owes the bank money."], text) == {1}

    @given(st.text(max_size=400))
    def test_a_text_tells_itself(self, text: str) -> None:
        assert untold(text, [text]) == []
        assert foreign([text], text) == frozenset()

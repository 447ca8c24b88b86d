"""Recall: what reminds a mind of what it kept, how well that fits, and how it gets used to it."""

from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noema.cognition.cycle import decode_state, encode_state, refold
from noema.cognition.model import MICRO, RecallHabit, Scored, Slot
from noema.cognition.process import Recalled
from noema.cognition.processes.recall import Recall, cue_of, topic_of
from noema.cognition.state import RECALL_PAUSE_US, RECALL_RETRY_US, RECALLED_KEPT, MindState
from tests.unit.minds import (
    MODES,
    START_US,
    Asked,
    Lived,
    Log,
    brain_of,
    live,
    mode_of,
    newborn,
    remembered,
)

OOM = "kernel: Out of memory: Killed process 4123 (indexer)"
EARLIER = remembered(1, "kernel: Out of memory: Killed process 977 (indexer)")


def recalls(cycle: Lived) -> list[Scored]:
    scored = cycle.recorded.outcome.scored
    return [s for s in scored if s.candidate.process == "recall"]


async def reminded(
    log: Log, state: MindState, text: str = OOM, *, at_s: float = 0, memories: Any = (EARLIER,)
) -> Lived:
    return await live(log, state, (), [log.line(text, at_s=at_s)], at_s=at_s, memories=memories)


class TestWhatReminds:
    async def test_a_new_line_reminds_of_what_it_says_without_its_numbers(self) -> None:
        log = Log()

        cycle = await reminded(log, newborn())

        (answer,) = cycle.recorded.answers
        assert answer.query == "kernel: Out of memory: Killed process (indexer)"

    async def test_of_what_came_the_most_urgent_reminds(self) -> None:
        log = Log()
        lines = [log.line("backup volume finished"), log.line("disk array degraded", urgency=MICRO)]

        cycle = await live(log, newborn(), (), lines)

        assert [a.query for a in cycle.recorded.answers] == ["disk array degraded"]

    async def test_what_somebody_says_goes_before_any_line(self) -> None:
        log = Log()
        message = log.message("when did the indexer die?")

        cycle = await live(log, newborn(), [message], [log.line("panic", urgency=MICRO)])

        assert cycle.recorded.answers[0].query == "when did the indexer die?"

    async def test_a_focus_is_asked_about_once(self) -> None:
        log = Log()
        data = {"mode": "focused", "version": 1, "epoch": 1, "until_us": None}
        focus = log.event("mode.set", data, {"focus": "disk errors"})

        first = await live(log, newborn(), [focus], trigger="timer", memories=(EARLIER,))
        second = await live(log, first.state, at_s=60, trigger="timer", memories=(EARLIER,))

        assert [a.query for a in first.recorded.answers] == ["disk errors"]
        assert second.recorded.answers == ()

    async def test_a_flood_of_like_lines_reminds_no_more(self) -> None:
        log, state = Log(), newborn()
        asked = []
        for n in range(12):
            cycle = await reminded(log, state, f"login of root failed {n}", at_s=10 * n)
            state = cycle.state
            asked.append(len(cycle.recorded.answers))

        assert asked[0] == 1
        assert sum(asked) <= 2

    async def test_in_a_quiet_moment_the_latest_thought_reminds_once(self) -> None:
        log = Log()
        flood = [log.line(OOM), log.line("smartd: device unreadable sectors", urgency=MICRO)]
        state = (await live(log, newborn(), (), flood)).state
        log_line = log.line("useradd: new user mallory", at_s=1)
        # Too soon after the first question for another one.
        state = (await live(log, state, (), [log_line], at_s=1)).state

        first = await live(log, state, at_s=60, trigger="timer")
        second = await live(log, first.state, at_s=120, trigger="timer")

        assert "mallory" in first.recorded.answers[0].query
        assert second.recorded.answers == ()

    async def test_a_mode_that_does_not_allow_recall_asks_nothing(self) -> None:
        brain = brain_of(mode=mode_of(processes=("reflection",)), focus="disk errors")

        assert cue_of(brain) is None
        assert cue_of(msgspec.structs.replace(brain, mode=mode_of())) is not None

    async def test_what_holds_no_word_reminds_of_nothing(self) -> None:
        log = Log()

        cycle = await live(log, newborn(), [log.message("?!")])

        assert cycle.recorded.answers == ()


class TestHowOften:
    async def test_memory_is_not_asked_again_at_once(self) -> None:
        log = Log()
        state = (await reminded(log, newborn())).state

        soon = await reminded(log, state, "disk array degraded", at_s=1)
        later = await reminded(log, soon.state, "fan speed zero", at_s=3)

        assert soon.recorded.answers == ()
        assert len(later.recorded.answers) == 1

    async def test_a_memory_that_does_not_answer_is_left_alone_for_half_a_minute(self) -> None:
        log = Log()
        first = await reminded(log, newborn(), memories=None)

        soon = await reminded(log, first.state, "disk array degraded", at_s=20)
        later = await reminded(log, soon.state, "fan speed zero", at_s=31)

        assert first.recorded.failed == {"recall"}
        assert recalls(first) == []
        assert first.state.recall.due_us == START_US + RECALL_RETRY_US
        assert (soon.recorded.answers, len(later.recorded.answers)) == ((), 1)

    async def test_a_clock_set_back_does_not_silence_recall(self) -> None:
        habit = RecallHabit(due_us=START_US + 3_600 * MICRO)

        assert cue_of(brain_of(focus="disk errors", recall=habit)) is not None
        soon = RecallHabit(due_us=START_US + RECALL_PAUSE_US)
        assert cue_of(brain_of(focus="disk errors", recall=soon)) is None


class TestWhatCompetes:
    async def test_a_memory_that_fits_competes_and_wins(self) -> None:
        cycle = await reminded(Log(), newborn())

        (recall,) = recalls(cycle)
        assert recall.candidate.memory == EARLIER.id
        assert recall.candidate.text == f"I remember from 2025-12-25 00:00 UTC: {EARLIER.text}"
        assert recall.features["relevance"] == recall.features["confidence"] == MICRO
        assert recall.features["credibility"] == 100_000
        assert recall.features["recency"] == MICRO // 2
        assert recall.admitted
        assert cycle.recorded.candidates[recall.rank - 1].data["memory"] == str(EARLIER.id)

    async def test_at_most_three_memories_compete_the_best_first(self) -> None:
        words = ["memory", "killed", "process", "kernel", "indexer"]
        memories = [remembered(n, " ".join(words[:n])) for n in range(1, 6)]

        cycle = await reminded(Log(), newborn(), memories=memories)

        proposed = sorted(recalls(cycle), key=lambda s: s.ordinal)
        assert [s.candidate.memory for s in proposed] == [m.id for m in memories[:1:-1]]

    async def test_the_best_of_a_dull_lot_does_not_ignite(self) -> None:
        dull = remembered(2, "the indexer likes tea", cosine=300_000)

        cycle = await reminded(Log(), newborn(), memories=[dull])

        assert [s.admitted for s in recalls(cycle)] == [False]

    @pytest.mark.parametrize(("cosine", "is_admitted"), [(0, False), (950_000, True)])
    async def test_a_likeness_of_vectors_makes_up_for_missing_words(
        self, cosine: int, is_admitted: bool
    ) -> None:
        memory = remembered(2, "memory ran out, process gone", cosine=cosine)

        cycle = await reminded(Log(), newborn(), memories=[memory])

        assert [s.admitted for s in recalls(cycle)] == [is_admitted]

    async def test_what_is_in_mind_is_not_brought_back(self) -> None:
        thought = UUID(int=40)
        slot = Slot(
            thought=thought, process="perception", topic="t", text="t", cycle=1,
            admitted_us=START_US, strength=MICRO,
        )  # fmt: skip
        again = msgspec.structs.replace(slot, thought=UUID(int=41), topic=topic_of(UUID(int=2)))
        brain = brain_of(focus="indexer", slots=(slot, again))
        memories = [
            remembered(1, "indexer", source=f"thought:{thought}"),
            remembered(2, "indexer"),
            remembered(3, "indexer"),
        ]

        proposed = await Recall().propose(brain, Asked("recall", memories))

        assert [c.memory for c in proposed] == [UUID(int=3)]

    async def test_a_memory_brought_back_is_left_alone_and_then_weighs_less(self) -> None:
        log = Log()
        first = await reminded(log, newborn())

        soon = await reminded(log, first.state, "Out of memory: killed (indexer)", at_s=1_800)
        later = await reminded(log, soon.state, "indexer killed: out of memory", at_s=5_400)

        assert recalls(soon) == []
        (recall,) = recalls(later)
        assert 0 < recall.features["habituation"] < MICRO // 4
        assert recall.score < recalls(first)[0].score

    async def test_a_focus_makes_recall_stronger(self) -> None:
        log = Log()
        data = {"mode": "focused", "version": 1, "epoch": 1, "until_us": None}
        focus = log.event("mode.set", data, {"focus": "indexer memory"})

        plain = await reminded(log, newborn(), "indexer memory", memories=[EARLIER])
        focused = await live(log, newborn(), [focus], memories=[EARLIER])

        assert recalls(focused)[0].score > recalls(plain)[0].score


class TestState:
    async def test_what_is_kept_of_recalls_is_bounded(self) -> None:
        log = Log()
        levels = {str(UUID(int=1_000 + n)): (MICRO, n) for n in range(RECALLED_KEPT)}
        state = newborn()
        state = msgspec.structs.replace(state, recall=RecallHabit(levels=levels))

        cycle = await reminded(log, state)

        kept = cycle.state.recall.levels
        assert len(kept) == RECALLED_KEPT
        assert str(EARLIER.id) in kept
        assert str(UUID(int=1_000)) not in kept

    async def test_a_state_from_before_there_was_recall_can_still_be_read(self) -> None:
        old = msgspec.to_builtins(newborn())
        del old["recall"], old["keeping"]

        assert decode_state(msgspec.msgpack.encode(old)) == newborn()

    @given(
        st.lists(
            st.tuples(
                st.sampled_from([OOM, "disk array degraded", "fan speed zero", "login failed"]),
                st.integers(0, 4_000),
                st.sampled_from(["none", "some", "fails"]),
            ),
            max_size=8,
        )
    )
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    async def test_a_mind_that_recalls_is_refolded_byte_for_byte(
        self, script: list[tuple[str, int, str]]
    ) -> None:
        """Guarantee 3."""
        found: dict[str, list[Recalled] | None] = {
            "none": [],
            "some": [EARLIER, remembered(2, "disk array degraded", cosine=900_000)],
            "fails": None,
        }
        log, at_s = Log(), 0.0
        lived = refolded = newborn()
        for text, pause_s, how in script:
            at_s += pause_s
            line = [log.line(text, at_s=at_s)]
            cycle = await live(log, lived, (), line, at_s=at_s, memories=found[how])
            lived = cycle.state

            refolded = refold(refolded, cycle.recorded, (), line, MODES)

            assert encode_state(refolded) == encode_state(lived)


async def test_a_memory_is_linked_forward_to_what_it_caused() -> None:
    cycle = await reminded(Log(), newborn(), memories=[EARLIER, remembered(9, "no such word")])

    (answered,) = [e for e in cycle.written.events if e.type == "port.answered"]
    (recall,) = recalls(cycle)
    admitted = [s.rank for s in cycle.recorded.outcome.admitted]
    thought = cycle.recorded.thoughts[admitted.index(recall.rank)]
    links = {(d.source, d.to): d.kind for d in cycle.written.derivations}
    assert answered.data["memories"] == [EARLIER.id, UUID(int=9)]
    assert links[EARLIER.id, answered.id] == links[UUID(int=9), answered.id] == "answered"
    assert links[EARLIER.id, thought] == "recalled"
    assert [k for (_, to), k in links.items() if to == thought] == ["recalled", "reminded"]

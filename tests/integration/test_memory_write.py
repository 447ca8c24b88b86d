"""The write path: what becomes of a text or a transcript, stage by stage, and how that is told."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

import pytest

from noema.core.clock import ManualClock
from noema.core.errors import (
    Conflict,
    IdempotencyReuse,
    InvalidInput,
    NotFound,
    TooLarge,
    Unavailable,
)
from noema.core.identity import MemoryRole
from noema.db.tx import Database, connect
from noema.llm.embedders.hash import HashEmbedder
from noema.llm.model import Purpose
from noema.memory.extract import Extracted
from noema.memory.model import Kind, Label, TurnIn, Write, WriteResult
from tests.conftest import TestDatabase
from tests.writing import WriteHouse, frame_of, identity

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
SECRET = "gh" + "p_" + "a1" * 18


@pytest.fixture
async def timed(database: TestDatabase) -> AsyncIterator[WriteHouse]:
    """A write path whose time is moved by hand; it begins at NOON."""
    clock = ManualClock(NOON)
    async with connect(database.app_dsn, clock=clock, max_size=4, role=database.role) as db:
        yield await WriteHouse.open(db, clock=clock)


def forward(house: WriteHouse, seconds: float) -> None:
    assert isinstance(house.clock, ManualClock)
    house.clock.jump(seconds)


def outcomes(result: WriteResult) -> list[str]:
    return [item.outcome for item in result.items]


# --- one text ---


async def test_a_text_is_stored_with_everything_that_belongs_to_it(db: Database) -> None:
    house = await WriteHouse.open(db)

    result = await house.write(
        "Ada moved to Berlin.", event_time=NOON, source="diary", importance=0.25
    )

    id_ = result.items[0].id
    row = await house.row(id_)
    assert (result.stored, outcomes(result), result.degraded) == (1, ["stored"], None)
    assert (row["text"], row["kind"], row["epistemic_kind"]) == (
        "Ada moved to Berlin.",
        "fact",
        "fact",
    )
    assert (row["namespace"], row["actor"], row["agent_id"]) == ("acme/eng", "user:ada", "http")
    assert (row["event_time"], row["source"], row["importance"]) == (NOON, "diary", 250_000)
    assert (row["route"], row["trust"], row["extraction"]) == ("document", 40, "verbatim")
    assert (row["sensitivity"], row["classifier"]) == ("internal", "rules-1")
    assert row["terms"] == ["ada", "move", "berlin"]
    assert row["t_valid_from"] == row["assertion_time"]
    (due,) = await house.fetch("SELECT due_at FROM conflict_checks WHERE memory_id = $1", row["id"])
    assert due["due_at"] == row["assertion_time"]
    vectors = await house.fetch("SELECT model, dims, shelf FROM memory_embeddings")
    assert [tuple(v) for v in vectors] == [(HashEmbedder.model, HashEmbedder.dims, "fresh")]
    names = await house.fetch(
        "SELECT e.name FROM memory_entities m JOIN entities e ON e.id = m.entity_id"
        " WHERE memory_id = $1 ORDER BY 1",
        id_,
    )
    assert [n["name"] for n in names] == ["Ada", "Berlin"]


async def test_the_audit_row_commits_with_the_memory_and_names_it(db: Database) -> None:
    house = await WriteHouse.open(db)
    frame = frame_of(identity(), house.clock.now())

    result = await house.write("The disk failed.", frame=frame)

    (row,) = await house.audited()
    assert frame.is_recorded
    assert (row.op, row.result, row.detail) == ("mem.write", "ok", "stored=1")
    assert row.target == f"memory:{result.items[0].id}"
    assert (row.actor, row.namespace, row.agent_id) == ("user:ada", "acme/eng", "http")


async def test_the_same_text_again_is_counted_and_stored_once(db: Database) -> None:
    house = await WriteHouse.open(db)
    first = await house.wrote("The disk failed.")

    again = await house.write("  the DISK failed. [entities: disk]")

    row = await house.row(first)
    assert (again.stored, again.deduplicated, outcomes(again)) == (0, 1, ["deduplicated"])
    assert again.items[0].id == first
    assert (row["repeat_count"], row["access_count"]) == (1, 1)
    assert row["last_accessed_at"] is not None
    audited = (await house.audited())[-1]
    assert audited.detail == "stored=0 deduplicated=1"
    assert audited.target == f"memory:{first}"
    assert len(await house.fetch("SELECT FROM memory_embeddings")) == 1


async def test_an_annotation_is_kept_out_of_the_text(db: Database) -> None:
    house = await WriteHouse.open(db)

    id_ = await house.wrote("Ada lives in Rome. [entities: Ada, Rome]")

    assert (await house.row(id_))["text"] == "Ada lives in Rome."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("[entities: Ada]", "annotation"),
        ("\x00", "control"),
        ("x" * 8_001, "Split it"),
    ],
)
async def test_what_cannot_be_a_memory_is_rejected_with_the_reason(
    db: Database, text: str, reason: str
) -> None:
    house = await WriteHouse.open(db)
    frame = frame_of(identity(), house.clock.now())

    result = await house.write(text, frame=frame)

    assert (result.stored, outcomes(result)) == (0, ["rejected"])
    assert (result.rejected[0].index, result.items[0].id) == (0, None)
    assert reason in result.rejected[0].reason
    assert result.items[0].reason == result.rejected[0].reason
    assert frame.detail == "stored=0 rejected=1"
    assert await house.rows() == []


async def test_content_is_kept_and_content_of_another_kind_is_rejected(db: Database) -> None:
    house = await WriteHouse.open(db)
    steps = {"goal": "Replace a disk", "steps": ["Drain it.", "Pull it."]}

    good = await house.write("How to replace a disk.", kind=Kind.PROCEDURAL, content=steps)
    bad = await house.write("How to replace a disk, badly.", kind=Kind.FACT, content=steps)

    assert (await house.row(good.items[0].id))["content"] == steps
    assert outcomes(bad) == ["rejected"]
    assert "fact" in bad.rejected[0].reason


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "a\ue000b"])
async def test_text_that_jsonb_refuses_comes_back_as_it_was(db: Database, text: str) -> None:
    house = await WriteHouse.open(db)

    id_ = await house.wrote(text, source=text, content={"topic": text}, kind=Kind.SEMANTIC)
    again = await house.write(text)

    row = await house.row(id_)
    assert "\x00" not in row["text"]
    assert again.deduplicated == 1
    assert (await house.say((text, text), conversation=text)).stored == 1


async def test_only_facts_and_preferences_wait_for_the_conflict_check(db: Database) -> None:
    house = await WriteHouse.open(db)
    for kind in (Kind.FACT, Kind.PREFERENCE, Kind.EPISODE, Kind.SEMANTIC):
        await house.wrote(f"A {kind}.", kind=kind)
    unchecked = frame_of(identity(), house.clock.now(), conflict_review="off")
    await house.write("A fact nobody checks.", frame=unchecked)

    waiting = await house.rows("id IN (SELECT memory_id FROM conflict_checks)")

    assert [row["text"] for row in waiting] == ["A fact.", "A preference."]


@pytest.mark.parametrize(
    ("who", "fields", "route", "trust"),
    [
        (identity(agent_id="console"), {}, "manual", 50),
        (identity(agent_id="console", role=MemoryRole.OWNER), {}, "manual", 50),
        (identity(agent_id="console", actor="token:ada/demo"), {}, "document", 40),
        (identity(agent_id="cli", role=MemoryRole.ADMIN), {}, "document", 40),
        (identity(), {"refresh": True, "source": "u"}, "live-fetch", 40),
        (identity(role=MemoryRole.AGENT), {}, "conversation", 10),
        (identity(role=MemoryRole.AGENT, agent_id="console"), {}, "conversation", 10),
        (
            identity(role=MemoryRole.AGENT),
            {"refresh": True, "source": "u"},
            "conversation",
            10,
        ),
        (identity(agent_id="mcp"), {}, "conversation", 10),
        (identity(role=MemoryRole.AGENT, agent_id="mind"), {}, "conversation", 10),
    ],
)
async def test_the_route_comes_from_the_credential_and_the_transport(
    db: Database, who: Any, fields: dict[str, Any], route: str, trust: int
) -> None:
    house = await WriteHouse.open(db)

    row = await house.row(await house.wrote("The disk failed.", who=who, **fields))

    assert (row["route"], row["trust"], row["credibility"]) == (route, trust, trust * 20_000)


async def test_what_was_merely_said_is_a_claim(db: Database) -> None:
    house = await WriteHouse.open(db)

    row = await house.row(
        await house.wrote("The disk failed.", who=identity(role=MemoryRole.AGENT))
    )

    assert row["epistemic_kind"] == "claim"


# --- what makes no sense as a whole ---


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"text": "a", "messages": (TurnIn(speaker="Ada", text="a"),)},
        {"messages": ()},
        {"text": "a", "importance": 1.5},
        {"text": "a", "importance": float("nan")},
        {"text": "a", "refresh": True},
        {"text": "a", "refresh": True, "source": "s", "supersedes": UUID(int=1)},
        {"text": "a", "source": "s" * 2_001},
        {"text": "a", "conversation": " "},
        {"messages": (TurnIn(speaker="Ada", text="a"),), "content": {}},
        {"messages": (TurnIn(speaker="Ada", text="a"),), "supersedes": UUID(int=1)},
        {"text": "a", "derived_from": tuple(UUID(int=n) for n in range(101))},
        # Guarantee 24
        {"text": "a", "event_time": datetime(2025, 1, 1)},  # noqa: DTZ001
    ],
)
async def test_a_request_that_makes_no_sense_is_refused_as_a_whole(
    db: Database, fields: dict[str, Any]
) -> None:
    house = await WriteHouse.open(db)

    with pytest.raises(InvalidInput):
        await house.path.write(frame_of(identity(), house.clock.now()), Write(**fields))

    assert await house.rows() == []


async def test_a_transcript_has_a_limit(db: Database) -> None:
    house = await WriteHouse.open(db)

    with pytest.raises(TooLarge, match="in parts"):
        await house.say(*(("Ada", f"turn {n}") for n in range(2_001)))


async def test_a_namespace_that_is_not_there_takes_no_memory(db: Database) -> None:
    house = await WriteHouse.open(db)

    with pytest.raises(NotFound):
        await house.write("The disk failed.", namespace="acme/nowhere")


# --- transcripts ---


async def test_a_transcript_keeps_conversation_order_speaker_and_time(db: Database) -> None:
    house = await WriteHouse.open(db)

    result = await house.say(
        ("Ada", "The disk failed.", NOON),
        ("Bob", "Yes.", NOON + timedelta(minutes=1)),
        ("Bob", "Yes.", NOON + timedelta(minutes=1)),
        conversation="standup",
    )

    rows = await house.rows()
    assert (result.stored, outcomes(result)) == (3, ["stored"] * 3)
    assert [item.id for item in result.items] == [row["id"] for row in rows]
    assert [row["position"] for row in rows] == [0, 1, 2]
    assert [row["speaker"] for row in rows] == ["Ada", "Bob", "Bob"]
    assert [row["event_time"] for row in rows] == [
        NOON,
        NOON + timedelta(minutes=1),
        NOON + timedelta(minutes=1),
    ]
    assert len({row["session_id"] for row in rows}) == 1
    assert {row["conversation_id"] for row in rows} == {result.conversation}
    assert {(row["kind"], row["route"]) for row in rows} == {("episode", "conversation")}
    assert rows[0]["terms"][0] == "ada"
    assert (await house.audited())[-1].target == f"conversation:{result.conversation}"
    said = await house.fetch("SELECT DISTINCT how FROM memory_entities")
    assert "said" in {row["how"] for row in said}


@pytest.mark.parametrize("conversation", ["standup", None])
async def test_a_transcript_sent_again_stores_nothing_twice(
    db: Database, conversation: str | None
) -> None:
    house = await WriteHouse.open(db)
    turns = [("Ada", "The disk failed."), ("Bob", "Yes."), ("Bob", "Yes.")]
    first = await house.say(*turns, conversation=conversation)

    again = await house.say(*turns, conversation=conversation)

    assert (again.stored, again.deduplicated) == (0, 3)
    assert again.conversation == first.conversation
    assert [i.id for i in again.items] == [i.id for i in first.items]
    assert len(await house.rows()) == 3


async def test_what_has_come_to_a_transcript_is_stored_and_the_rest_is_not(db: Database) -> None:
    house = await WriteHouse.open(db)
    await house.say(("Ada", "Hi."), ("Bob", "Hello."), conversation="c")

    grown = await house.say(("Ada", "Hi."), ("Bob", "Hello."), ("Ada", "Bye."), conversation="c")

    assert outcomes(grown) == ["deduplicated", "deduplicated", "stored"]


async def test_a_bad_message_is_rejected_and_the_others_are_stored(db: Database) -> None:
    house = await WriteHouse.open(db)

    result = await house.say(
        ("Ada", "Hi."),
        ("Bob", " "),
        ("", "Who said that?"),
        ("Cy", "When?", datetime(2025, 1, 1)),  # noqa: DTZ001
        ("Ada", "Bye."),
    )

    assert outcomes(result) == ["stored", "rejected", "rejected", "rejected", "stored"]
    assert [r.index for r in result.rejected] == [1, 2, 3]
    assert "time zone" in result.rejected[2].reason
    assert [row["position"] for row in await house.rows()] == [0, 4]
    assert (await house.audited())[-1].detail == "stored=2 rejected=3"


async def test_several_messages_open_a_session_and_single_ones_go_on_with_it(
    timed: WriteHouse,
) -> None:
    house = timed
    await house.say(("Ada", "Hi."), ("Bob", "Hello."), conversation="c")
    forward(house, 60)
    await house.say(("Ada", "One more thing."), conversation="c")
    forward(house, 29 * 60)
    await house.say(("Bob", "Yes?"), conversation="c")
    forward(house, 31 * 60)
    await house.say(("Ada", "Never mind."), conversation="c")
    await house.say(("Ada", "A"), ("Bob", "B"), conversation="c")
    await house.say(("Ada", "Elsewhere."), conversation="d")

    rows = await house.fetch(
        "SELECT session_id, position, text FROM memories ORDER BY assertion_time, id"
    )

    sessions = [row["session_id"] for row in rows]
    assert [row["position"] for row in rows] == [0, 1, 2, 3, 0, 0, 1, 0]
    assert len(set(sessions[:4])) == 1
    assert len(set(sessions)) == 4


async def test_a_single_message_sent_again_takes_no_place(db: Database) -> None:
    house = await WriteHouse.open(db)
    first = await house.say(("Ada", "Hi.", NOON), conversation="c")

    again = await house.say(("Ada", "Hi.", NOON), conversation="c")
    after = await house.say(("Bob", "Hello.", NOON), conversation="c")

    assert outcomes(again) == ["deduplicated"]
    assert again.items[0].id == first.items[0].id
    assert (await house.row(after.items[0].id))["position"] == 1


async def test_two_namespaces_have_their_own_conversation_of_one_name(db: Database) -> None:
    house = await WriteHouse.open(db)

    one = await house.say(("Ada", "Hi."), conversation="c")
    other = await house.say(("Ada", "Hi."), conversation="c", namespace="other")

    assert one.conversation != other.conversation
    assert other.stored == 1


# --- labels ---


async def test_a_text_is_labelled_before_it_is_stored(db: Database) -> None:
    house = await WriteHouse.open(db)

    row = await house.row(await house.wrote(f"Ada's mail is ada@example.com, token {SECRET}"))

    assert row["sensitivity"] == "restricted"
    assert (row["pii"], row["secrets"]) == (["email"], ["github_token"])
    assert row["destinations"] == ["local"]


async def test_what_is_marked_sensitive_is_at_least_confidential(db: Database) -> None:
    house = await WriteHouse.open(db)

    row = await house.row(await house.wrote("The disk failed.", sensitive=True))

    assert row["sensitivity"] == "confidential"


class _Failing:
    name: ClassVar[str] = "failing"

    async def labels(self, texts: Sequence[str]) -> Sequence[Label]:
        raise ZeroDivisionError


async def test_guarantee_22_a_classifier_error_stores_the_text_restricted(db: Database) -> None:
    house = await WriteHouse.open(db, classifiers=(_Failing(),))

    row = await house.row(await house.wrote("The disk failed."))

    assert (row["sensitivity"], row["classifier"]) == ("restricted", "error:ZeroDivisionError")
    assert row["destinations"] == ["local"]


# --- extraction ---


class _Model:
    name: ClassVar[str] = "model"

    def __init__(self, *answer: Extracted, error: Exception | None = None) -> None:
        self._answer = answer
        self._error = error
        self.asked = 0

    async def extract(self, text: str, *, most: int) -> Sequence[Extracted]:
        self.asked += 1
        if self._error is not None:
            raise self._error
        return self._answer


async def test_a_model_takes_a_text_apart_and_a_repeat_among_its_facts_is_one(
    db: Database,
) -> None:
    model = _Model(
        Extracted(text="Ada lives in Rome."),
        Extracted(text="Ada likes tea.", kind=Kind.PREFERENCE),
        Extracted(text="ada lives in rome."),
    )
    house = await WriteHouse.open(db, extractor=model)

    result = await house.write("Ada lives in Rome and likes tea.")

    rows = await house.rows()
    assert outcomes(result) == ["stored", "stored", "deduplicated"]
    assert result.items[0].id == result.items[2].id
    assert {(row["text"], row["kind"]) for row in rows} == {
        ("Ada lives in Rome.", "fact"),
        ("Ada likes tea.", "preference"),
    }
    assert {row["extraction"] for row in rows} == {"model"}


@pytest.mark.parametrize(
    "model",
    [
        _Model(error=Unavailable("The model is busy.")),
        _Model(error=ValueError("half a JSON")),
        _Model(),
        _Model(Extracted(text="")),
        _Model(Extracted(text="x", content={"nonsense": 1})),
        _Model(*(Extracted(text=str(n)) for n in range(65))),
    ],
    ids=["unavailable", "error", "nothing", "empty", "bad content", "too many"],
)
async def test_guarantee_22_no_fact_is_dropped_because_a_model_answered_badly(
    db: Database, model: _Model
) -> None:
    house = await WriteHouse.open(db, extractor=model)

    row = await house.row(await house.wrote("Ada lives in Rome."))

    assert row["text"] == "Ada lives in Rome."
    assert row["extraction"].startswith("verbatim: model ")
    assert row["sensitivity"] == "internal"


async def test_guarantee_22_a_model_that_answers_what_no_column_takes_costs_no_text(
    db: Database,
) -> None:
    odd = Extracted(text="The disk failed.", content={"subject\x00": "\ud800"})
    for model in (_Model(odd), _Model(error=Unavailable("It said \x00\ud800."))):
        house = await WriteHouse.open(db, extractor=model)

        row = await house.row(await house.wrote(f"The disk failed: {model.asked} {id(model)}."))

        assert row["extraction"].startswith("verbatim: ")


async def test_what_may_not_leave_is_shown_to_no_model(db: Database) -> None:
    model = _Model(Extracted(text="A key."))
    house = await WriteHouse.open(db, extractor=model)
    secret = await house.wrote("My card is 4111 1111 1111 1111.", verbatim=True)

    row = await house.row(await house.wrote("Again, my card is 4111 1111 1111 1111."))
    derived = await house.row(await house.wrote("It opens the vault.", derived_from=(secret,)))

    assert model.asked == 0
    assert [r["sensitivity"] for r in (row, derived)] == ["restricted", "restricted"]
    assert row["extraction"] == "verbatim"


async def test_what_is_to_be_kept_verbatim_asks_no_model(db: Database) -> None:
    model = _Model(Extracted(text="something else"))
    house = await WriteHouse.open(db, extractor=model)

    await house.write("Ada lives in Rome.", verbatim=True)
    await house.say(("Ada", "Hi."))

    assert model.asked == 0


# --- vectors ---


class _Embedder(HashEmbedder):
    def __init__(self, *, error: Exception | None = None, cut: int | None = None) -> None:
        self._error = error
        self._cut = cut
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str], *, purpose: Purpose) -> list[Sequence[float]]:
        self.asked += texts
        if self._error is not None:
            raise self._error
        return [v[: self._cut] for v in await super().embed(texts, purpose=purpose)]


@pytest.mark.parametrize(
    "embedder",
    [_Embedder(error=Unavailable("down")), _Embedder(error=RuntimeError("bug")), _Embedder(cut=3)],
    ids=["down", "bug", "other length"],
)
async def test_an_embedder_that_fails_costs_the_vector_and_not_the_memory(
    db: Database, embedder: _Embedder
) -> None:
    house = await WriteHouse.open(db, embedder=embedder)

    result = await house.write("The disk failed.")

    assert result.stored == 1
    assert "without vectors" in str(result.degraded)
    assert "degraded=" in (await house.audited())[-1].detail
    assert await house.fetch("SELECT FROM memory_embeddings") == []


async def test_without_an_embedder_the_answer_says_so(db: Database) -> None:
    house = await WriteHouse.open(db, has_embedder=False)

    result = await house.say(("Ada", "Hi."), ("Bob", "Hello."))

    assert result.stored == 2
    assert "no embedder" in str(result.degraded)


async def test_what_may_not_leave_is_not_sent_to_an_embedder_outside(db: Database) -> None:
    embedder = _Embedder()
    house = await WriteHouse.open(db, embedder=embedder, embeds_outside=True)

    result = await house.say(("Ada", f"The token is {SECRET}"), ("Bob", "Thanks."))

    assert embedder.asked == ["Thanks."]
    assert result.stored == 2
    assert "may not leave" in str(result.degraded)


async def test_each_turn_has_its_own_vector(db: Database) -> None:
    house = await WriteHouse.open(db)
    turns = [("Ada", f"Turn number {n} about disks.") for n in range(5)]
    result = await house.say(*turns)

    vectors = await HashEmbedder().embed([text for _, text in turns], purpose="document")

    for item, vector in zip(result.items, vectors, strict=True):
        (row,) = await house.fetch(
            "SELECT embedding::real[] AS vector FROM memory_embeddings WHERE memory_id = $1",
            item.id,
        )
        assert row["vector"] == pytest.approx(vector, abs=1e-3)


# --- supersedence and refresh ---


async def test_superseding_closes_one_and_begins_the_next_at_the_same_moment(
    db: Database,
) -> None:
    house = await WriteHouse.open(db)
    first = await house.wrote("Ada lives in Rome.")

    result = await house.write("Ada lives in Paris.", supersedes=first)

    old, new = await house.row(first), await house.row(result.items[0].id)
    assert (result.stored, result.superseded, outcomes(result)) == (1, 1, ["superseded"])
    assert result.items[0].supersedes == first
    assert new["supersedes"] == first
    assert old["t_valid_to"] == new["t_valid_from"]
    assert old["text"] == "Ada lives in Rome."
    assert (await house.audited())[-1].detail == "stored=1 superseded=1"
    shelves = await house.fetch("SELECT memory_id, shelf FROM memory_embeddings")
    assert {row["memory_id"]: row["shelf"] for row in shelves} == {
        first: "closed",
        new["id"]: "fresh",
    }


async def test_a_clock_that_went_back_makes_no_hole_and_no_negative_interval(
    timed: WriteHouse,
) -> None:
    house = timed
    first = await house.wrote("Ada lives in Rome.")
    forward(house, -3_600)

    second = await house.wrote("Ada lives in Paris.", supersedes=first)

    old, new = await house.row(first), await house.row(second)
    assert old["t_valid_from"] == old["t_valid_to"] == new["t_valid_from"] == NOON


async def test_what_happened_long_ago_is_believed_from_now_on(timed: WriteHouse) -> None:
    house = timed

    past = await house.row(await house.wrote("Rome fell.", event_time=NOON - timedelta(days=9)))
    plan = await house.row(await house.wrote("We meet.", event_time=NOON + timedelta(days=9)))

    assert past["t_valid_from"] == plan["t_valid_from"] == NOON
    assert past["event_time"] < past["t_valid_from"] < plan["event_time"]


async def test_only_what_is_current_can_be_superseded(db: Database) -> None:
    house = await WriteHouse.open(db)
    first = await house.wrote("Ada lives in Rome.")
    await house.write("Ada lives in Paris.", supersedes=first)

    with pytest.raises(Conflict, match="not current"):
        await house.write("Ada lives in Oslo.", supersedes=first)

    assert len(await house.rows()) == 2


async def test_a_child_namespace_closes_and_swallows_no_row_of_its_parent(db: Database) -> None:
    house = await WriteHouse.open(db)
    parents = await house.wrote("Ada lives in Rome.")

    with pytest.raises(NotFound):
        await house.write("Ada lives in Oslo.", supersedes=parents, namespace="acme/eng/db")
    own = await house.write("Ada lives in Rome.", namespace="acme/eng/db")

    assert outcomes(own) == ["stored"]
    row = await house.row(parents)
    assert (row["t_valid_to"], row["repeat_count"]) == (None, 0)


async def test_a_stranger_learns_nothing_of_what_he_would_supersede(db: Database) -> None:
    house = await WriteHouse.open(db)
    hidden = await house.wrote("Ada lives in Rome.")

    with pytest.raises(NotFound) as of_hidden:
        await house.write("x", supersedes=hidden, namespace="other")
    with pytest.raises(NotFound) as of_missing:
        await house.write("x", supersedes=UUID(int=7), namespace="other")

    assert str(of_hidden.value).replace(str(hidden), "") == str(of_missing.value).replace(
        str(UUID(int=7)), ""
    )


async def test_superseding_with_what_is_current_elsewhere_changes_nothing(db: Database) -> None:
    house = await WriteHouse.open(db)
    first = await house.wrote("Ada lives in Rome.")
    second = await house.wrote("Ada lives in Paris.")

    with pytest.raises(Conflict, match=str(second)):
        await house.write("ada lives in paris.", supersedes=first)

    assert all(row["t_valid_to"] is None for row in await house.rows())


async def test_a_memory_can_be_superseded_by_the_same_words_with_other_content(
    db: Database,
) -> None:
    house = await WriteHouse.open(db)
    first = await house.wrote("Ada lives in Rome.")

    result = await house.write("Ada lives in Rome.", supersedes=first, importance=1.0)

    assert outcomes(result) == ["superseded"]
    assert (await house.row(result.items[0].id))["importance"] == 1_000_000


async def test_a_refresh_replaces_the_copy_of_its_source_and_only_that(db: Database) -> None:
    house = await WriteHouse.open(db)
    pointer: dict[str, Any] = {"kind": Kind.POINTER, "refresh": True}
    first = await house.wrote("Version 1", source="https://a", **pointer)
    other = await house.wrote("Version 1", source="https://b", **pointer)

    same = await house.write("version  1", source="https://a", **pointer)
    changed = await house.write("Version 2", source="https://a", **pointer)

    assert (outcomes(same), same.items[0].id) == (["deduplicated"], first)
    assert (outcomes(changed), changed.items[0].supersedes) == (["superseded"], first)
    assert (await house.row(first))["repeat_count"] == 1
    assert (await house.row(other))["t_valid_to"] is None
    back = await house.write("Version 1", source="https://a", **pointer)
    assert back.items[0].supersedes == changed.items[0].id


async def test_a_refresh_that_could_mean_several_rows_asks_which(db: Database) -> None:
    house = await WriteHouse.open(db)
    await house.wrote("One fact.", source="https://a")
    await house.wrote("Another fact.", source="https://a")

    with pytest.raises(Conflict, match="supersedes"):
        await house.write("A third.", source="https://a", refresh=True)


# --- lineage ---


async def test_a_derived_memory_is_no_more_trusted_and_no_less_protected_than_its_sources(
    db: Database,
) -> None:
    house = await WriteHouse.open(db)
    said = await house.wrote(f"token {SECRET}", who=identity(role=MemoryRole.AGENT))
    plain = await house.wrote("The disk failed.", who=identity(agent_id="console"))

    row = await house.row(
        await house.wrote(
            "Somebody wrote a token down when the disk failed.",
            who=identity(agent_id="console"),
            derived_from=(said, plain),
        )
    )

    assert (row["route"], row["trust"]) == ("manual", 10)
    assert (row["sensitivity"], row["destinations"]) == ("restricted", ["local"])
    links = await house.fetch("SELECT from_id, kind FROM derivations WHERE to_id = $1", row["id"])
    assert {(link["from_id"], link["kind"]) for link in links} == {
        (said, "memory.derived"),
        (plain, "memory.derived"),
    }


async def test_a_mind_that_distils_memories_consolidates(db: Database) -> None:
    house = await WriteHouse.open(db)
    source = await house.wrote("The disk failed.", who=identity(agent_id="console"))
    mind = identity(role=MemoryRole.AGENT, agent_id="mind", actor="mind:ada")

    row = await house.row(
        await house.wrote("Disks fail.", who=mind, kind=Kind.SEMANTIC, derived_from=(source,))
    )

    assert (row["route"], row["trust"]) == ("consolidation", 30)


async def test_nothing_is_derived_from_what_one_may_not_read_or_what_was_retracted(
    db: Database,
) -> None:
    house = await WriteHouse.open(db)
    hidden = await house.wrote("Others' secret.", namespace="other")
    withdrawn = await house.wrote("The disk failed.")
    async with db.transaction() as tx:
        await tx.conn.execute("UPDATE memories SET status = 'retracted' WHERE id = $1", withdrawn)

    with pytest.raises(NotFound):
        await house.write("x", derived_from=(hidden,))
    with pytest.raises(Conflict, match="retracted"):
        await house.write("y", derived_from=(withdrawn,))

    shared = frame_of(identity(), house.clock.now(), shared=[hidden])
    assert (await house.write("z", derived_from=(hidden,), frame=shared)).stored == 1


# --- idempotency ---


async def test_guarantee_21_a_retried_write_answers_the_same_and_stores_one_row(
    db: Database,
) -> None:
    house = await WriteHouse.open(db)

    first = await house.write("The disk failed.", key="k")
    again = await house.write("The disk failed.", key="k")

    (row,) = await house.rows()
    assert first == again
    assert (first.stored, row["repeat_count"]) == (1, 0)


async def test_a_key_is_bound_to_the_body_and_to_who_sent_it(db: Database) -> None:
    house = await WriteHouse.open(db)
    await house.write("The disk failed.", key="k")

    with pytest.raises(IdempotencyReuse):
        await house.write("The disk failed again.", key="k")
    others = await house.write("Something else.", key="k", who=identity(actor="user:bob"))

    assert others.stored == 1
    assert len(await house.rows()) == 2


async def test_a_retry_of_what_was_rejected_is_rejected_with_the_same_words(
    db: Database,
) -> None:
    house = await WriteHouse.open(db)

    first = await house.write(" ", key="k")
    again = await house.write(" ", key="k")

    assert first == again
    assert first.rejected


async def test_a_failed_write_leaves_its_key_free(db: Database) -> None:
    house = await WriteHouse.open(db)

    with pytest.raises(NotFound):
        await house.write("x", key="k", supersedes=UUID(int=7))

    assert await house.fetch("SELECT FROM idempotency_keys") == []


@pytest.mark.parametrize("key", ["", "k" * 201])
async def test_a_key_has_a_length(db: Database, key: str) -> None:
    house = await WriteHouse.open(db)

    with pytest.raises(InvalidInput):
        await house.write("x", key=key)


async def test_a_failed_write_leaves_nothing_at_all(db: Database) -> None:
    house = await WriteHouse.open(db)
    first = await house.wrote("Ada lives in Rome.")
    await house.write("Ada lives in Paris.", supersedes=first)
    before = await house.fetch("SELECT (SELECT count(*) FROM entities), count(*) FROM audit_log")

    with pytest.raises(Conflict):
        await house.write("Linus lives in Helsinki.", supersedes=first)

    assert (
        await house.fetch("SELECT (SELECT count(*) FROM entities), count(*) FROM audit_log")
        == before
    )


async def test_a_fact_relates_its_entities_whether_their_names_are_new_or_known(
    db: Database,
) -> None:
    house = await WriteHouse.open(db)
    for attribute in ("lives in", "works in"):
        content = {"subject": "Ada", "attribute": attribute, "value": "Rome"}
        await house.wrote(f"Today Ada {attribute} Rome.", content=content)

    kinds = await house.fetch("SELECT kind FROM entity_relationships ORDER BY 1")

    assert [row["kind"] for row in kinds] == ["lives_in", "works_in"]

"""What writing again, superseding and deriving may and may not do to trust and to labels."""

import asyncio
from typing import Any

import pytest

from noema.core.errors import Conflict, Denied
from noema.core.identity import MemoryRole
from noema.db.tx import Database
from noema.memory.model import Label, Sensitivity
from tests.writing import WriteHouse, identity

TEXT = "Ada lives in Rome."
AGENT = identity(role=MemoryRole.AGENT, actor="token:bot")
PERSON = identity(agent_id="console")
SCRIPT = identity()


@pytest.fixture
async def house(db: Database) -> WriteHouse:
    return await WriteHouse.open(db)


async def _current(house: WriteHouse, text: str = TEXT) -> Any:
    (row,) = await house.rows("text = $1 AND t_valid_to IS NULL", text)
    return row


async def test_a_repeat_that_is_marked_sensitive_tightens_the_label(house: WriteHouse) -> None:
    first = await house.wrote(TEXT)

    again = await house.write(TEXT, sensitive=True)

    assert again.deduplicated == 1
    row = await house.row(first)
    assert (row["sensitivity"], "peer" in row["destinations"]) == ("confidential", False)
    assert (row["repeat_count"], row["status"]) == (1, "active")
    assert [a.detail for a in await house.audited()][-1] == "stored=0 deduplicated=1 tightened=1"


async def test_a_repeat_never_loosens_a_label(house: WriteHouse) -> None:
    first = await house.wrote(TEXT, sensitive=True)

    assert (await house.write(TEXT)).deduplicated == 1
    assert (await house.row(first))["sensitivity"] == "confidential"


async def test_what_rests_on_a_memory_is_tightened_with_it_wherever_it_lives(
    house: WriteHouse,
) -> None:
    source = await house.wrote(TEXT)
    below = await house.wrote("So she speaks Italian.", derived_from=(source,))
    child = identity("acme/eng/db", actor="user:bob")
    last = await house.wrote("So do they.", who=child, derived_from=(below,))

    await house.write(TEXT, sensitive=True)

    assert [(await house.row(i))["sensitivity"] for i in (source, below, last)] == [
        "confidential", "confidential", "confidential",
    ]  # fmt: skip
    told = [(a.namespace, a.op) for a in await house.audited()]
    assert ("acme/eng/db", "mem.label") in told


async def test_turns_and_extracted_facts_are_tightened_as_texts_are(house: WriteHouse) -> None:
    turns = (("Ada", "The code is on the door."), ("Bob", "I see."))
    await house.say(*turns, conversation="c")

    again = await house.say(*turns, conversation="c", sensitive=True)

    assert again.deduplicated == 2
    assert {r["sensitivity"] for r in await house.rows()} == {"confidential"}


async def test_a_repeat_of_what_rests_on_something_protected_is_protected(
    house: WriteHouse,
) -> None:
    first = await house.wrote(TEXT)
    secret = await house.wrote("The vault is behind the map.", sensitive=True)

    assert (await house.write(TEXT, derived_from=(secret,))).deduplicated == 1
    assert (await house.row(first))["sensitivity"] == "confidential"


class _Broken:
    name = "broken"

    async def labels(self, texts: Any) -> list[Label]:
        raise ZeroDivisionError


async def test_a_classifier_that_fails_now_does_not_undo_what_it_found_before(
    db: Database, house: WriteHouse
) -> None:
    first = await house.wrote(TEXT)
    broken = await WriteHouse.open(db, classifiers=(_Broken(),))

    assert (await broken.write(TEXT)).deduplicated == 1
    assert (await house.row(first))["sensitivity"] == "internal"
    await broken.write(TEXT, sensitive=True)
    assert (await house.row(first))["sensitivity"] == "confidential"


@pytest.mark.parametrize("status", ["active", "disputed"])
async def test_a_better_source_that_says_the_same_supersedes_with_its_own_rank(
    house: WriteHouse, status: str
) -> None:
    first = await house.wrote(TEXT, who=AGENT, sensitive=True)
    async with house.db.transaction() as tx:
        await tx.conn.execute("UPDATE memories SET status = $1", status)

    said = await house.write(TEXT, who=PERSON)

    assert (said.stored, said.superseded, said.deduplicated) == (1, 1, 0)
    row = await _current(house)
    assert (row["supersedes"], row["actor"], row["trust"]) == (first, PERSON.actor, 50)
    assert (row["status"], row["epistemic_kind"]) == ("active", "fact")
    # What somebody once marked as sensitive stays so, whoever says it.
    assert row["sensitivity"] == "confidential"
    old = await house.row(first)
    assert old["t_valid_to"] == row["t_valid_from"]


async def test_a_worse_source_that_says_the_same_changes_nothing(house: WriteHouse) -> None:
    first = await house.wrote(TEXT, who=PERSON)

    assert (await house.write(TEXT, who=AGENT)).deduplicated == 1
    row = await _current(house)
    assert (row["id"], row["trust"], row["actor"]) == (first, 50, PERSON.actor)


async def test_a_quarantined_memory_is_not_let_out_by_being_repeated(house: WriteHouse) -> None:
    await house.wrote(TEXT, who=AGENT)
    async with house.db.transaction() as tx:
        await tx.conn.execute("UPDATE memories SET status = 'disputed'")

    assert (await house.write(TEXT, who=AGENT)).deduplicated == 1
    assert (await _current(house))["status"] == "disputed"


async def test_derived_from_something_weak_a_repeat_counts_as_weak(house: WriteHouse) -> None:
    weak = await house.wrote("A stranger says she moved.", who=AGENT)
    first = await house.wrote(TEXT, who=AGENT)

    assert (await house.write(TEXT, who=PERSON, derived_from=(weak,))).deduplicated == 1
    assert (await _current(house))["id"] == first


async def test_better_sources_at_once_leave_one_current_row_and_one_chain(
    house: WriteHouse,
) -> None:
    await house.wrote(TEXT, who=AGENT)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            who = identity(agent_id="console" if number % 2 else "http", actor=f"user:u{number}")
            group.create_task(house.write(TEXT, who=who))

    assert (await _current(house))["trust"] == 50
    rows = await house.rows()
    older = [r["supersedes"] for r in rows if r["supersedes"] is not None]
    assert len(older) == len(set(older)) == len(rows) - 1


async def test_who_is_trusted_less_supersedes_nothing(house: WriteHouse) -> None:
    first = await house.wrote(TEXT, who=PERSON)

    with pytest.raises(Denied, match="trusted more"):
        await house.write("Ada lives in Oslo.", who=AGENT, supersedes=first)
    weak = await house.wrote("A stranger says she moved.", who=AGENT)
    with pytest.raises(Denied, match="trusted more"):
        await house.write("Ada lives in Oslo.", who=PERSON, supersedes=first, derived_from=(weak,))
    assert (await house.row(first))["t_valid_to"] is None
    assert (await house.write("Ada lives in Oslo.", who=PERSON, supersedes=first)).superseded == 1


async def test_who_is_trusted_less_refreshes_no_copy(house: WriteHouse) -> None:
    source = "https://example.org/a"
    first = await house.wrote("Version one.", who=SCRIPT, source=source, refresh=True)

    with pytest.raises(Denied, match="trusted more"):
        await house.write("Version two.", who=AGENT, source=source, refresh=True)
    same = await house.write("Version one.", who=AGENT, source=source, refresh=True)
    assert (same.deduplicated, same.items[0].id) == (1, first)


async def test_a_refresh_by_a_better_source_and_a_sensitive_one_are_not_lost(
    house: WriteHouse,
) -> None:
    source = "https://example.org/a"
    first = await house.wrote("Version one.", who=AGENT, source=source, refresh=True)

    better = await house.write("Version one.", who=SCRIPT, source=source, refresh=True)
    await house.write("Version one.", who=SCRIPT, source=source, refresh=True, sensitive=True)

    row = await _current(house, "Version one.")
    assert (better.superseded, row["supersedes"], row["trust"]) == (1, first, 40)
    assert row["sensitivity"] == "confidential"


async def test_superseding_with_what_is_current_elsewhere_is_still_refused(
    house: WriteHouse,
) -> None:
    await house.wrote(TEXT, who=AGENT)
    other = await house.wrote("Ada lives in Oslo.", who=PERSON)

    with pytest.raises(Conflict):
        await house.write(TEXT, who=PERSON, supersedes=other)
    assert (await house.row(other))["t_valid_to"] is None


async def test_a_source_that_is_tightened_meanwhile_protects_what_is_derived(
    house: WriteHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await house.wrote(TEXT)
    embed = house.path._embed

    async def late(drafts: Any) -> Any:
        await other.write(TEXT, sensitive=True)
        return await embed(drafts)

    other = await WriteHouse.open(house.db)
    monkeypatch.setattr(house.path, "_embed", late)

    derived = await house.wrote("So she speaks Italian.", derived_from=(source,))

    assert (await house.row(derived))["sensitivity"] == Sensitivity.CONFIDENTIAL

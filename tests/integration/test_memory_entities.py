"""Entities: a name finds its entity, once, whoever writes; merges are undone exactly."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from noema.core.clock import ManualClock
from noema.core.errors import Conflict, Denied, InvalidInput, NotFound
from noema.core.identity import MemoryRole, namespace_ancestors
from noema.memory.entities import Entities, Linked, attach, link_many, mentions
from noema.memory.model import Kind
from noema.memory.relationships import Relate, Relationships, of_fact
from noema.memory.store import entities as store
from noema.memory.store import graph
from tests.conftest import TestDatabase
from tests.governed import World, world

PLACE = "acme/eng"


@pytest.fixture
async def here(database: TestDatabase, clock: ManualClock) -> AsyncIterator[World]:
    async with world(database, clock) as made:
        await made.place(PLACE)
        await made.place("acme/engineering")
        yield made


def entities_of(here: World) -> Entities:
    return Entities(db=here.db, ids=here.ids, work=here.work)


async def linked(here: World, *texts: str, namespace: str = PLACE) -> list[list[Linked]]:
    async with here.db.transaction() as tx:
        return await link_many(
            tx, namespace=namespace, readable=namespace_ancestors(namespace),
            texts=[mentions(t) for t in texts], actor="user:ada", now=tx.now, ids=here.ids,
        )  # fmt: skip


async def told(here: World, text: str, *, namespace: str = PLACE) -> tuple[UUID, list[Linked]]:
    """Store a memory with its links, as the write path does."""
    (found,) = await linked(here, text, namespace=namespace)
    memory = await here.put(namespace, text)
    async with here.db.transaction() as tx:
        await attach(tx, [(memory, found)])
    return memory, found


async def one(here: World, name: str, *, namespace: str = PLACE) -> UUID:
    (found,) = await linked(here, f"we met {name} there", namespace=namespace)
    return found[0].entity_id


async def test_a_name_is_new_once_and_known_ever_after(here: World) -> None:
    first, second = await linked(here, "we met Ada there", "and Ada met Bob again")
    (third,) = await linked(here, "we saw ADA there", namespace=PLACE)

    assert [(x.name, x.how) for x in first] == [("Ada", "new")]
    assert [x.name for x in second] == ["Ada", "Bob"]
    assert second[0].entity_id == third[0].entity_id == first[0].entity_id
    assert third[0].how == "name"
    assert await linked(here, "nothing here") == [[]]
    assert await linked(here) == []


async def test_the_nearest_namespace_that_knows_the_name_is_taken_and_no_other(
    here: World,
) -> None:
    # Guarantee 19: acme/engineering is no ancestor of anything below acme/eng.
    above = await one(here, "Ada", namespace="acme")
    beside = await one(here, "Bob", namespace="acme/engineering")
    await here.place("acme/eng/db")

    assert await one(here, "Ada") == above
    assert await one(here, "Bob") != beside
    own = await one(here, "Carol", namespace="acme/eng")
    assert await one(here, "Carol", namespace="acme/eng/db") == own
    assert await one(here, "Carol", namespace="acme") != own


async def test_eight_writers_who_meet_the_same_names_make_each_once(here: World) -> None:
    # Guarantee 21
    texts = ["we met Ada and Bob there", "then Bob met Carol and Ada", "now Carol met Bob"]

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(linked(here, *(texts[n % 3 :] + texts[: n % 3]))) for n in range(8)
        ]

    ids = {(x.name, x.entity_id) for t in tasks for text in t.result() for x in text}
    assert len(ids) == 3
    assert len(await here.fetch("SELECT id FROM entities")) == 3


async def test_hostile_names_are_kept_and_found(here: World) -> None:
    for name in ("O'Brien%_", "Back\\slash", "Zoë", "Ünïcode", "«Ñandú»"):
        (found,) = await linked(here, f"we met {name} there")
        (again,) = await linked(here, f"and saw {name} there")
        assert [x.entity_id for x in found] == [x.entity_id for x in again]
    shown = await entities_of(here).shown(here.frame(PLACE), text="%")
    assert shown == ()


async def test_names_nearly_alike_are_suggested_and_never_merged_by_themselves(
    here: World,
) -> None:
    old, new = await one(here, "John Smith"), await one(here, "Jon Smith")
    await one(here, "Server1x")
    await one(here, "Server2x")
    entities = entities_of(here)

    (found,) = await entities.suggestions(here.frame(PLACE))

    assert old != new
    assert (found.entity, found.similar) == (new, old)
    assert (found.entity_name, found.similar_name) == ("Jon Smith", "John Smith")
    assert found.similarity >= 850_000
    assert await entities.suggestions(here.frame("acme")) == ()
    with pytest.raises(Denied):
        await entities.refuse(here.frame(PLACE, role=MemoryRole.MEMBER), new, old)
    await entities.refuse(here.frame(PLACE), new, old)
    assert await entities.suggestions(here.frame(PLACE)) == ()
    with pytest.raises(NotFound):
        await entities.refuse(here.frame(PLACE), new, old)


async def test_a_merged_name_leads_to_the_kept_one_and_unmerging_is_exact(here: World) -> None:
    memory, (smith,) = await told(here, "we met John Smith there")
    other, (jon,) = await told(here, "we met Jon Smith there")
    tables = "SELECT * FROM memory_entities ORDER BY memory_id"
    links = await here.fetch(tables)
    entities, frame = entities_of(here), here.frame(PLACE)

    merge = await entities.merge(frame, smith.entity_id, jon.entity_id)

    assert await one(here, "Jon Smith") == smith.entity_id
    assert await entities.suggestions(frame) == ()
    (shown,) = await entities.shown(frame)
    assert (shown.id, shown.memories) == (smith.entity_id, 2)
    assert shown.aliases == ("john smith", "jon smith")
    assert [e.id for e in await entities.shown(frame, text="JON")] == [smith.entity_id]
    assert [m.id for m in await entities.merges(frame)] == [merge]

    await entities.unmerge(frame, merge)

    assert await one(here, "Jon Smith") == jon.entity_id
    assert await here.fetch(tables) == links
    assert len(await entities.suggestions(frame)) == 1
    assert {e.id: e.memories for e in await entities.shown(frame)} == {
        smith.entity_id: 1, jon.entity_id: 1,
    }  # fmt: skip
    assert {memory, other} == {r["memory_id"] for r in links}
    with pytest.raises(Conflict):
        await entities.unmerge(frame, merge)


async def test_merges_are_undone_in_any_order_and_never_run_in_a_circle(here: World) -> None:
    a, b, c = [await one(here, n) for n in ("Ada", "Bob", "Carol")]
    entities, frame = entities_of(here), here.frame(PLACE)
    first = await entities.merge(frame, b, a)
    second = await entities.merge(frame, c, b)

    with pytest.raises(Conflict):
        await entities.merge(frame, a, c)
    assert await one(here, "Ada") == c
    await entities.unmerge(frame, first)
    assert (await one(here, "Ada"), await one(here, "Bob")) == (a, c)
    await entities.unmerge(frame, second)
    assert await one(here, "Bob") == b


async def test_merges_at_once_never_make_a_circle(here: World) -> None:
    ids = [await one(here, n) for n in ("Ada", "Bob", "Carol", "Dora")]
    entities = entities_of(here)

    async def attempt(keep: UUID, merge: UUID) -> None:
        try:
            await entities.merge(here.frame(PLACE), keep, merge)
        except Conflict:
            return

    async with asyncio.TaskGroup() as group:
        for n in range(8):
            group.create_task(attempt(ids[n % 4], ids[(n + 1) % 4]))

    (shown,) = await entities.shown(here.frame(PLACE))
    assert shown.aliases == ("ada", "bob", "carol", "dora")


async def test_the_kept_one_is_seen_by_whoever_sees_the_merged_one(here: World) -> None:
    above, own = await one(here, "Ada", namespace="acme"), await one(here, "Adah")
    beside = await one(here, "Adai", namespace="acme/engineering")
    entities = entities_of(here)

    with pytest.raises(Denied):
        await entities.merge(here.frame(PLACE), own, above)
    with pytest.raises(InvalidInput):
        await entities.merge(here.frame("acme"), own, above)
    with pytest.raises(NotFound):
        await entities.merge(here.frame(PLACE), own, beside)
    with pytest.raises(Denied):
        await entities.merge(here.frame(PLACE, role=MemoryRole.MEMBER), above, own)
    merge = await entities.merge(here.frame(PLACE), above, own)
    assert await one(here, "Adah") == above
    with pytest.raises(NotFound):
        await entities.unmerge(here.frame("acme/engineering"), merge)


async def test_an_alias_is_one_more_name_and_nobody_elses(here: World) -> None:
    ada, bob = await one(here, "Ada"), await one(here, "Bob")
    entities, frame = entities_of(here), here.frame(PLACE)

    await entities.alias(frame, ada, "Countess of Lovelace")
    await entities.alias(frame, ada, "countess of lovelace")

    (found,) = await linked(here, "we met Countess of Lovelace there")
    assert [(x.entity_id, x.how) for x in found] == [(ada, "alias")]
    with pytest.raises(Conflict):
        await entities.alias(frame, bob, "Ada")
    with pytest.raises(NotFound):
        await entities.alias(here.frame("acme/engineering"), ada, "X Y")


async def test_entities_are_listed_as_memories_are_seen(here: World) -> None:
    # Guarantee 19: one predicate for every kind of object, counts too.
    _, (above,) = await told(here, "we met Ada there", namespace="acme")
    await told(here, "we met Ada again")
    await told(here, "we met Ada at last", namespace="acme/engineering")
    await told(here, "we met Bob there")

    counts = {
        place: {e.name: e.memories for e in await entities_of(here).shown(here.frame(place))}
        for place in ("acme", PLACE, "acme/engineering", "other")
    }
    assert counts == {
        "acme": {"Ada": 1},
        PLACE: {"Ada": 2, "Bob": 1},
        "acme/engineering": {"Ada": 2},
        "other": {},
    }
    assert above.name == "Ada"


async def test_a_relationship_is_the_callers_own_and_the_same_when_said_again(
    here: World,
) -> None:
    above, own = await here.put("acme", "cause"), await here.put(PLACE, "effect")
    hidden = await here.put("acme/engineering", "hidden")
    relationships = Relationships(ids=here.ids, work=here.work)
    frame = here.frame(PLACE, role=MemoryRole.AGENT)
    causes = Relate(kind="causes", from_memory=above, to_memory=own, confidence=0.5, source="me")

    made = await relationships.relate(frame, causes)

    assert await relationships.relate(frame, causes) == made
    (row,) = await here.fetch("SELECT * FROM memory_relationships")
    assert (row["namespace"], row["confidence"], row["source"]) == (PLACE, 500_000, "me")
    for bad in (hidden, UUID(int=3)):
        with pytest.raises(NotFound):
            await relationships.relate(frame, Relate(kind="causes", from_memory=own, to_memory=bad))
    for kind in ("mentions", "Causes", "", "a b", "supersedes"):
        with pytest.raises(InvalidInput):
            await relationships.relate(frame, Relate(kind=kind, from_memory=own, to_memory=above))
    with pytest.raises(InvalidInput):
        await relationships.relate(frame, Relate(kind="causes", from_memory=own, to_entity=above))
    with pytest.raises(Denied):
        await relationships.unrelate(here.frame("acme/eng/db"), made)
    with pytest.raises(NotFound):
        await relationships.unrelate(here.frame("acme/engineering"), made)
    await relationships.unrelate(frame, made)
    with pytest.raises(Conflict):
        await relationships.unrelate(frame, made)
    assert await relationships.relate(frame, causes) != made
    assert {r.result for r in await here.audited("mem.test")} == {"ok"}


async def test_a_structured_fact_relates_its_two_entities_where_both_are_certain(
    here: World,
) -> None:
    memory, found = await told(here, "we know Ada works for Acme Corp now")

    async def relate(value: str, attribute: str = "Works for") -> UUID | None:
        async with here.db.transaction() as tx:
            return await of_fact(
                tx, here.ids, namespace=PLACE, actor="user:ada", memory=memory, kind=Kind.FACT,
                content={"subject": "ada", "attribute": attribute, "value": value}, linked=found,
            )  # fmt: skip

    made = await relate("Acme Corp")
    assert made is not None
    assert await relate("acme corp.") == made
    assert await relate("Globex") is None
    assert await relate("Ada") is None
    (row,) = await here.fetch("SELECT kind, source_memory FROM entity_relationships")
    assert (row["kind"], row["source_memory"]) == ("works_for", memory)


async def test_a_relationship_holds_as_long_as_one_memory_tells_it(here: World) -> None:
    texts = ("we know Ada works for Acme Corp now", "again Ada works for Acme Corp now")
    made = []
    for text in texts:
        memory, found = await told(here, text)
        async with here.db.transaction() as tx:
            made.append(await of_fact(
                tx, here.ids, namespace=PLACE, actor="user:ada", memory=memory, kind=Kind.FACT,
                content={"subject": "Ada", "attribute": "works for", "value": "Acme Corp"},
                linked=found,
            ))  # fmt: skip
        if len(made) == 1:
            await here.execute("UPDATE memories SET status = 'retracted' WHERE id = $1", memory)
    ends = [r["id"] for r in await here.fetch("SELECT id FROM entities ORDER BY id")]

    async with here.db.reading() as tx:
        edges = await graph.edges(tx.conn, here.frame(PLACE).scope, ends, limit=10)

    assert made[0] != made[1]
    assert [e["kind"] for e in edges] == ["works_for"]


async def test_a_new_name_is_compared_with_those_nearest_in_length(here: World) -> None:
    await here.place(PLACE)
    await here.execute(
        "INSERT INTO entities SELECT gen_random_uuid(), $1, 'server ' || repeat('x', i % 90) || i, "
        "'thing', NULL, 1, 'user:ada', now() FROM generate_series(1, 900) i", PLACE,
    )  # fmt: skip
    await here.execute(
        "INSERT INTO entity_aliases SELECT namespace, name, id, 'user:ada', now() FROM entities"
    )
    new = here.ids.new()
    async with here.db.reading() as tx:
        found = await store.neighbours(tx.conn, [PLACE, "acme"], [(new, "server xxxxxxxxxx")])

    lengths = [abs(len(r["normal"]) - 17) for r in found]
    assert len(found) == 30
    assert max(lengths) <= 3

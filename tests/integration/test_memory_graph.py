"""The graph: a capped part of what the caller sees, with no edge that leads out of sight."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noema.core.clock import ManualClock
from noema.core.errors import InvalidInput, NotFound
from noema.core.identity import namespace_ancestors
from noema.memory.entities import Entities, attach, link, mentions
from noema.memory.graph import Graphs
from noema.memory.model import Graph, Kind
from noema.memory.relationships import Relate, Relationships, of_fact
from tests.conftest import Server, TestDatabase, fresh_database
from tests.governed import World, world

PLACE = "acme/eng"
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def here(database: TestDatabase, clock: ManualClock) -> AsyncIterator[World]:
    async with world(database, clock) as made:
        for place in (PLACE, "acme/engineering", "other"):
            await made.place(place)
        yield made


async def told(here: World, text: str, *, namespace: str = PLACE, kind: str = "fact") -> UUID:
    memory = await here.put(namespace, text, kind=kind)
    async with here.db.transaction() as tx:
        found = await link(
            tx, namespace=namespace, readable=namespace_ancestors(namespace),
            mentions=mentions(text), actor="user:ada", now=tx.now, ids=here.ids,
        )  # fmt: skip
        await attach(tx, [(memory, found)])
    return memory


async def graph(
    here: World,
    namespace: str = PLACE,
    *,
    centre: UUID | None = None,
    limit: int = 200,
    kinds: tuple[Kind, ...] = (),
    shared: tuple[UUID, ...] = (),
) -> Graph:
    frame = here.frame(namespace, shared=shared)
    found = await Graphs(db=here.db).around(frame, centre=centre, limit=limit, kinds=kinds)
    ids = {node.id for node in found.nodes}
    assert len(ids) == len(found.nodes) <= limit
    assert all(edge.source in ids and edge.target in ids for edge in found.edges)
    return found


def labels(found: Graph) -> set[str]:
    return {node.label for node in found.nodes}


def kinds_of(found: Graph) -> list[str]:
    return sorted(edge.kind for edge in found.edges)


async def entity(here: World, name: str) -> UUID:
    (row,) = await here.fetch("SELECT id FROM entities WHERE name = $1", name)
    found: UUID = row["id"]
    return found


async def test_every_sort_of_edge_is_drawn_around_a_memory(here: World) -> None:
    centre = await told(here, "we know Ada works there")
    newer = await here.put(PLACE, "newer")
    await here.execute("UPDATE memories SET supersedes = $1 WHERE id = $2", centre, newer)
    derived = await here.put(PLACE, "derived", derived_from=[centre])
    cause = await here.put("acme", "cause")
    relationships = Relationships(ids=here.ids, work=here.work)
    await relationships.relate(
        here.frame(PLACE), Relate(kind="causes", from_memory=cause, to_memory=centre)
    )

    found = await graph(here, centre=centre)

    assert {node.id for node in found.nodes} == {
        centre, newer, derived, cause, await entity(here, "Ada"),
    }  # fmt: skip
    assert kinds_of(found) == ["causes", "derived", "mentions", "supersedes"]
    assert found.nodes[0].id == centre
    assert found.nodes[0].weight == 4
    assert not found.is_capped


async def test_an_edge_is_drawn_only_where_both_ends_are_seen(here: World) -> None:
    # Guarantee 19: one predicate for every kind of object.
    above = await told(here, "they met Ada above", namespace="acme")
    beside = await told(here, "they met Ada beside", namespace="acme/engineering")
    own = await told(here, "we met Ada here")
    await here.execute(
        "INSERT INTO derivations (from_id, to_id, kind) VALUES ($1, $2, 'memory.derived')",
        beside, own,
    )  # fmt: skip

    assert {above, own} < {n.id for n in (await graph(here)).nodes}
    assert beside not in {n.id for n in (await graph(here)).nodes}
    assert labels(await graph(here, "acme")) == {"they met Ada above", "Ada"}
    assert labels(await graph(here, "other")) == set()
    # A single shared row is seen, and what it mentions is not.
    assert labels(await graph(here, "other", shared=(own,))) == {"we met Ada here"}
    for hidden in (beside, UUID(int=5)):
        with pytest.raises(NotFound):
            await graph(here, centre=hidden)
    with pytest.raises(NotFound):
        await graph(here, "other", centre=await entity(here, "Ada"))


async def test_a_relationship_somebody_else_made_out_of_sight_is_not_drawn(here: World) -> None:
    one, two = await here.put("acme", "one"), await here.put("acme", "two")
    relationships = Relationships(ids=here.ids, work=here.work)
    request = Relate(kind="causes", from_memory=one, to_memory=two)
    await relationships.relate(here.frame("acme/engineering"), request)

    assert kinds_of(await graph(here, centre=one)) == []
    assert kinds_of(await graph(here, "acme/engineering", centre=one)) == ["causes"]
    await relationships.relate(here.frame(PLACE), request)
    assert kinds_of(await graph(here, centre=one)) == ["causes"]


async def test_what_all_fits_is_drawn_whole_and_not_called_capped(here: World) -> None:
    memories = {await told(here, f"the valve number {n} is open") for n in range(15)}

    found = await graph(here, limit=20)

    assert {node.id for node in found.nodes} == memories
    assert not found.is_capped


async def test_it_is_capped_and_what_is_hidden_takes_nobodys_place(here: World) -> None:
    # Guarantee 20: filters apply before the cap.
    seen = [await told(here, f"in {n} we met Ada here") for n in range(3)]
    await told(here, "they met Ada above", namespace="acme")
    for n in range(60):
        await told(here, f"in {n} they met Ada beside", namespace="acme/engineering")

    ada = (await here.fetch(
        "SELECT id FROM entities WHERE namespace = $1 AND name = 'Ada'", PLACE
    ))[0]["id"]  # fmt: skip
    await here.execute("UPDATE memory_entities SET entity_id = $1 WHERE entity_id <> $1", ada)

    found = await graph(here, centre=ada)
    assert set(seen) < {n.id for n in found.nodes}
    assert len(found.nodes) == 5
    small = await graph(here, centre=ada, limit=3)
    assert len(small.nodes) == 3
    assert small.is_capped
    for limit in (0, 501):
        with pytest.raises(InvalidInput):
            await graph(here, limit=limit)


async def test_merged_entities_stand_at_the_one_that_was_kept(here: World) -> None:
    await told(here, "we met John Smith here")
    await told(here, "then we met Jon Smith again")
    john, jon = await entity(here, "John Smith"), await entity(here, "Jon Smith")
    entities = Entities(db=here.db, ids=here.ids, work=here.work)
    before = await graph(here, centre=john)

    merge = await entities.merge(here.frame(PLACE), john, jon)

    for centre in (john, jon):
        merged = await graph(here, centre=centre)
        assert merged.nodes[0].id == john
        assert merged.nodes[0].weight == 2
        assert len(merged.nodes) == 3
    await entities.unmerge(here.frame(PLACE), merge)
    assert await graph(here, centre=john) == before


async def test_what_was_retracted_is_not_drawn_nor_what_it_told_of_entities(here: World) -> None:
    text = "we know Ada works for Acme Corp now"
    memory = await told(here, text)
    async with here.db.transaction() as tx:
        found = await link(
            tx, namespace=PLACE, readable=namespace_ancestors(PLACE), mentions=mentions(text),
            actor="user:ada", now=tx.now, ids=here.ids,
        )  # fmt: skip
        await of_fact(
            tx, here.ids, namespace=PLACE, actor="user:ada", memory=memory, kind=Kind.FACT,
            content={"subject": "Ada", "attribute": "employer", "value": "Acme Corp"},
            linked=found,
        )  # fmt: skip
    ada = await entity(here, "Ada")
    assert "employer" in kinds_of(await graph(here, centre=ada))

    await here.execute("UPDATE memories SET status = 'retracted' WHERE id = $1", memory)

    assert kinds_of(await graph(here, centre=ada)) == []
    with pytest.raises(NotFound):
        await graph(here, centre=memory)


async def test_kinds_leave_only_memories_of_these_kinds(here: World) -> None:
    await told(here, "we met Ada here")
    await told(here, "then we met Ada again", kind="episode")

    found = await graph(here, kinds=(Kind.EPISODE,))

    assert labels(found) == {"then we met Ada again", "Ada"}


async def test_hostile_text_is_given_back_as_it_was(here: World) -> None:
    memory = await here.put(PLACE, "<script>\x00\ud800</script>\n" + "x" * 500)

    (node,) = (await graph(here, centre=memory)).nodes

    assert node.label.startswith("<script>\x00\ud800</script> x")
    assert len(node.label) == 80


_PLACES = ("acme", "acme/eng", "acme/eng/db", "acme/engineering", "acme/e_g", "other")


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from(_PLACES), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=10),
    st.sampled_from(_PLACES),
    st.integers(1, 20),
)
async def test_whatever_is_joined_no_node_is_out_of_sight_and_no_edge_hangs_loose(
    server: Server,
    template: str,
    places: list[str],
    joins: list[tuple[int, int]],
    viewer: str,
    limit: int,
) -> None:
    # Guarantee 19
    async with fresh_database(server, template) as database:  # noqa: SIM117
        async with world(database, ManualClock(START)) as here:
            for place in _PLACES:
                await here.place(place)
            ids = [
                await told(here, f"in {n} we met Ada here", namespace=place)
                for n, place in enumerate(places)
            ]
            for one, other in joins:
                await here.execute(
                    "INSERT INTO derivations (from_id, to_id, kind)"
                    " VALUES ($1, $2, 'memory.derived') ON CONFLICT DO NOTHING",
                    ids[one % len(ids)], ids[other % len(ids)],
                )  # fmt: skip
            found = await graph(here, viewer, limit=limit)

    visible = set(namespace_ancestors(viewer))
    assert {node.namespace for node in found.nodes} <= visible
    seen = [i for i, place in zip(ids, places, strict=True) if place in visible]
    memories = [node.id for node in found.nodes if node.kind == "memory"]
    assert set(memories) <= set(seen)
    # Half of the places are for what is newest; the entities of those come next.
    assert len(memories) >= min(len(seen), max(1, limit // 2))

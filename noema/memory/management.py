"""The syscalls by which people put memory in order, and look at how it hangs together."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from noema.core.identity import Identity
from noema.memory.conflicts import Conflicts
from noema.memory.entities import Entities, Merge, Suggestion
from noema.memory.frame import Frame
from noema.memory.graph import Graphs
from noema.memory.lineage import Lineage
from noema.memory.model import ConflictCase, Entity, Graph, Kind, Retraction
from noema.memory.prologue import Prologue
from noema.memory.relationships import Relate, Relationships


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What these syscalls call."""

    lineage: Lineage
    conflicts: Conflicts
    entities: Entities
    relationships: Relationships
    graphs: Graphs


class Management:
    """Retractions, conflicts, entities and relationships; a part of the kernel."""

    def __init__(self, prologue: Prologue, tools: Tools) -> None:
        self._run = prologue.run
        self._tools = tools

    async def mem_retract(self, who: Identity, id_: UUID, reason: str) -> Retraction:
        """Withdraw a memory and all that rests on it; for its author and who manages it."""

        async def body(frame: Frame) -> Retraction:
            return await self._tools.lineage.retract(frame, id_, reason)

        return await self._run(who, "mem.retract", body, purpose=reason, target=f"memory:{id_}")

    async def mem_restore(self, who: Identity, retraction: UUID) -> Retraction:
        """Undo a retraction; for who made the source and who manages it."""

        async def body(frame: Frame) -> Retraction:
            return await self._tools.lineage.restore(frame, retraction)

        return await self._run(who, "mem.restore", body, target=f"retraction:{retraction}")

    async def conflicts(
        self, who: Identity, *, open_only: bool = False, limit: int = 100
    ) -> tuple[ConflictCase, ...]:
        """Return what the conflict check found, newest first."""

        async def body(frame: Frame) -> tuple[ConflictCase, ...]:
            return await self._tools.conflicts.shown(frame, open_only=open_only, limit=limit)

        return await self._run(who, "mem.conflicts", body)

    async def resolve_conflict(self, who: Identity, id_: UUID, outcome: str) -> ConflictCase:
        """Decide a conflict as a person."""

        async def body(frame: Frame) -> ConflictCase:
            return await self._tools.conflicts.resolve(frame, id_, outcome)

        return await self._run(who, "mem.conflict-resolve", body, target=f"conflict:{id_}")

    async def revert_conflict(self, who: Identity, id_: UUID) -> ConflictCase:
        """Undo what was decided about a conflict."""

        async def body(frame: Frame) -> ConflictCase:
            return await self._tools.conflicts.revert(frame, id_)

        return await self._run(who, "mem.conflict-revert", body, target=f"conflict:{id_}")

    async def entities(
        self, who: Identity, *, text: str = "", limit: int = 100
    ) -> tuple[Entity, ...]:
        """Return what memories speak of, newest first: all, or what has the text in a name."""

        async def body(frame: Frame) -> tuple[Entity, ...]:
            return await self._tools.entities.shown(frame, text=text, limit=limit)

        return await self._run(who, "mem.entities", body, purpose=text)

    async def merge_entities(self, who: Identity, keep: UUID, merge: UUID) -> UUID:
        """Let one entity stand at another; return the merge, by which that is undone."""

        async def body(frame: Frame) -> UUID:
            return await self._tools.entities.merge(frame, keep, merge)

        return await self._run(who, "mem.entity-merge", body, target=f"entity:{keep}")

    async def unmerge_entities(self, who: Identity, merge_id: UUID) -> None:
        """Undo a merge."""

        async def body(frame: Frame) -> None:
            await self._tools.entities.unmerge(frame, merge_id)

        await self._run(who, "mem.entity-unmerge", body, target=f"merge:{merge_id}")

    async def entity_merges(self, who: Identity, *, limit: int = 100) -> tuple[Merge, ...]:
        """Return the merges that hold, newest first."""

        async def body(frame: Frame) -> tuple[Merge, ...]:
            return await self._tools.entities.merges(frame, limit=limit)

        return await self._run(who, "mem.entity-merges", body)

    async def entity_suggestions(
        self, who: Identity, *, limit: int = 100
    ) -> tuple[Suggestion, ...]:
        """Return which entities may be one, likeliest first."""

        async def body(frame: Frame) -> tuple[Suggestion, ...]:
            return await self._tools.entities.suggestions(frame, limit=limit)

        return await self._run(who, "mem.entity-suggestions", body)

    async def refuse_suggestion(self, who: Identity, entity: UUID, similar: UUID) -> None:
        """Say that two entities are not one; it is not suggested again."""

        async def body(frame: Frame) -> None:
            await self._tools.entities.refuse(frame, entity, similar)

        await self._run(who, "mem.entity-refuse", body, target=f"entity:{entity}")

    async def name_entity(self, who: Identity, entity: UUID, name: str) -> None:
        """Give an entity one more name in the caller's namespace."""

        async def body(frame: Frame) -> None:
            await self._tools.entities.alias(frame, entity, name)

        await self._run(who, "mem.entity-alias", body, target=f"entity:{entity}")

    async def relate(self, who: Identity, request: Relate) -> UUID:
        """Relate two memories, or two entities; return the id of the relationship."""

        async def body(frame: Frame) -> UUID:
            return await self._tools.relationships.relate(frame, request)

        return await self._run(who, "mem.relate", body)

    async def unrelate(self, who: Identity, id_: UUID) -> None:
        """End a relationship of the caller's namespace."""

        async def body(frame: Frame) -> None:
            await self._tools.relationships.unrelate(frame, id_)

        await self._run(who, "mem.unrelate", body, target=f"relationship:{id_}")

    async def graph(
        self,
        who: Identity,
        *,
        centre: UUID | None = None,
        limit: int = 200,
        kinds: Sequence[Kind] = (),
    ) -> Graph:
        """Return what surrounds a memory or an entity, or what is newest."""

        async def body(frame: Frame) -> Graph:
            return await self._tools.graphs.around(frame, centre=centre, limit=limit, kinds=kinds)

        return await self._run(who, "mem.graph", body)

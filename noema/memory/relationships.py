"""Relationships: what the caller says of two memories, or of two entities, that it sees.

One is written to the caller's own namespace, whichever the two live in, with who said it, how sure,
from where and when. Said again while it holds it is the same; ended, it stays on record as past.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec

from noema.core.canonical import escape
from noema.core.clock import Ids
from noema.core.errors import Conflict, Denied, InvalidInput, NotFound
from noema.db.tx import Tx
from noema.memory.entities import Linked
from noema.memory.frame import Frame
from noema.memory.mentions import normal_name
from noema.memory.model import MICRO, Kind
from noema.memory.reading import Concealed, visible
from noema.memory.rights import may_manage
from noema.memory.store import graph as store
from noema.memory.work import Work

_KIND: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
# Drawn from what is on record elsewhere; nobody says these.
_RESERVED: Final = frozenset({"mentions", "supersedes", "derived"})
_EXTRACTED: Final = 900_000


class Relate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two memories or two entities, and how the first relates to the second.

    `kind` is a word of a-z, digits, dash and underscore (`causes`, `part_of`); `confidence` is 0 to
    1; `source` says where the caller has it from.
    """

    kind: str
    from_memory: UUID | None = None
    to_memory: UUID | None = None
    from_entity: UUID | None = None
    to_entity: UUID | None = None
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    source: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


class Relationships:
    """Makes and ends relationships."""

    def __init__(self, *, ids: Ids, work: Work) -> None:
        self._ids = ids
        self._work = work

    async def relate(self, frame: Frame, request: Relate) -> UUID:
        """Return the id of the relationship, new or the same that holds already.

        Raises InvalidInput for a kind or a pair that is none, NotFound for an end that the caller
        does not see.
        """
        memories = _pair(request.from_memory, request.to_memory)
        entities = _pair(request.from_entity, request.to_entity)
        if (memories is None) == (entities is None):
            raise InvalidInput(
                "Name two memories (from_memory, to_memory) or two entities (from_entity, "
                "to_entity)."
            )
        if not _KIND.match(request.kind) or request.kind in _RESERVED:
            raise InvalidInput(
                "kind is a word of a-z, 0-9, dash and underscore, at most 63 characters, and none "
                f"of {', '.join(sorted(_RESERVED))}.",
                field="kind",
            )
        if not 0 <= request.confidence <= 1:
            raise InvalidInput("confidence is a number from 0 to 1.", field="confidence")
        async with self._work.doing(frame) as tx:
            if memories is not None:
                made = await self._of_memories(tx, frame, memories, request)
            else:
                assert entities is not None  # noqa: S101 - one of the two, as checked above
                made = await self._of_entities(tx, frame, entities, request)
            frame.target = f"relationship:{made}"
            frame.detail = f"kind={request.kind}"
            return made

    async def _of_memories(
        self, tx: Tx, frame: Frame, ends: tuple[UUID, UUID], request: Relate
    ) -> UUID:
        for end in ends:
            await visible(tx, frame.scope, end)
        made = await store.relate_memories(
            tx.conn, self._ids.new(), frame.who.namespace, ends, request.kind,
            confidence=round(request.confidence * MICRO), source=escape(request.source),
            actor=frame.who.actor, at=tx.now,
        )  # fmt: skip
        return _made(made)

    async def _of_entities(
        self, tx: Tx, frame: Frame, ends: tuple[UUID, UUID], request: Relate
    ) -> UUID:
        seen = await store.seen_entities(tx.conn, frame.scope, ends)
        for end in ends:
            if end not in seen:
                raise NotFound("entity", end)
        made = await store.relate_entities(
            tx.conn, self._ids.new(), frame.who.namespace, ends, request.kind,
            confidence=round(request.confidence * MICRO), source=escape(request.source),
            memory=None, actor=frame.who.actor, at=tx.now,
        )  # fmt: skip
        return _made(made)

    async def unrelate(self, frame: Frame, id_: UUID) -> None:
        """End a relationship of the caller's own namespace, or of one it manages."""
        frame.target = f"relationship:{id_}"
        async with self._work.doing(frame) as tx:
            found = await store.place_of_relation(tx.conn, id_)
            if found is None:
                raise NotFound("relationship", id_)
            namespace, is_open = found
            if namespace != frame.who.namespace and not may_manage(frame.who, namespace):
                if namespace in frame.scope.namespaces:
                    raise Denied(f"It was made in {namespace}; it is ended there.")
                raise Concealed("relationship", id_)
            if not is_open:
                raise Conflict(f"Relationship {id_} has ended already.")
            await store.unrelate(tx.conn, id_, tx.now)


def _pair(one: UUID | None, other: UUID | None) -> tuple[UUID, UUID] | None:
    if one is None and other is None:
        return None
    if one is None or other is None or one == other:
        raise InvalidInput("A relationship has two different ends of the same sort.")
    return one, other


def _made(id_: UUID | None) -> UUID:
    if id_ is None:
        # It was ended between our two looks at it.
        raise Conflict("The same relationship is just being ended; try again.")
    return id_


async def of_fact(
    tx: Tx,
    ids: Ids,
    *,
    namespace: str,
    actor: str,
    memory: UUID,
    kind: Kind,
    content: Mapping[str, Any],
    linked: Sequence[Linked],
) -> UUID | None:
    """Relate the two entities of a stored fact, where it is certain what they are.

    That is where both its subject and its value are names that this memory mentions. The attribute
    is the kind. The relationship holds in the graph as long as the memory does. Returns None where
    nothing was certain.
    """
    if kind is not Kind.FACT or not linked:
        return None
    subject, value, attribute = (content.get(k) for k in ("subject", "value", "attribute"))
    if not (isinstance(subject, str) and isinstance(value, str) and isinstance(attribute, str)):
        return None
    word = re.sub(r"[^a-z0-9]+", "_", normal_name(attribute)).strip("_")
    by_name = {normal_name(n): one.entity_id for one in linked for n in (one.mention, one.name)}
    ends = by_name.get(normal_name(subject)), by_name.get(normal_name(value))
    if ends[0] is None or ends[1] is None or ends[0] == ends[1]:
        return None
    if not _KIND.match(word) or word in _RESERVED:
        return None
    return await store.relate_entities(
        tx.conn, ids.new(), namespace, (ends[0], ends[1]), word, confidence=_EXTRACTED, source="",
        memory=memory, actor=actor, at=tx.now,
    )  # fmt: skip

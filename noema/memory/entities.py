"""Entities: what memories speak of, by which names, and which two are one.

A name is resolved exactly: normalised, among the names and aliases of the caller's own namespace,
then of its ancestors, nearest first. A name nobody knows becomes a new entity of the caller's own
namespace. One that is nearly another's is suggested to people; nothing merges by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from rapidfuzz import fuzz

from noema.core.canonical import escape, unescape
from noema.core.clock import Ids
from noema.core.errors import Conflict, Denied, InvalidInput, NotFound
from noema.core.identity import namespace_ancestors
from noema.db.tx import Database, Tx
from noema.memory.frame import Frame
from noema.memory.mentions import SPEAKER_CONFIDENCE, Mention, mentions, normal_name
from noema.memory.model import Entity
from noema.memory.reading import Concealed
from noema.memory.rights import may_manage
from noema.memory.store import entities as store
from noema.memory.store import graph
from noema.memory.work import Work

__all__ = [
    "Entities", "Linked", "Mention", "Merge", "Suggestion", "attach", "link", "link_many",
    "mentions", "similarity",
]  # fmt: skip

SUGGEST_FROM: Final = 850_000
"""Names at least this similar (micro-units) are suggested as one."""

_SUGGESTIONS_PER_NAME: Final = 3
_PART_OF_NAME: Final = 870_000
_MOST_SHOWN: Final = 500
_MOST_HITS: Final = 5_000
_ATTEMPTS: Final = 5
# Of these, one letter more is another thing.
_EXACT_KINDS: Final = frozenset({"email", "host", "address", "handle", "code"})

How: TypeAlias = Literal["name", "alias", "new", "said"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """A mention and the entity it stands for.

    `name` is the entity's own. `how` says by what it was found: its name, an alias, that it is new,
    or that it is who `said` the text. `confidence` is in micro-units.
    """

    entity_id: UUID
    name: str
    mention: str
    how: How
    confidence: int


async def link(
    tx: Tx,
    *,
    namespace: str,
    readable: Sequence[str],
    mentions: Sequence[Mention],
    actor: str,
    now: datetime,
    ids: Ids,
) -> list[Linked]:
    """Return the entity of each mention of one text; see `link_many`."""
    linked = await link_many(
        tx, namespace=namespace, readable=readable, texts=[mentions], actor=actor, now=now, ids=ids
    )
    return linked[0]


async def link_many(
    tx: Tx,
    *,
    namespace: str,
    readable: Sequence[str],
    texts: Sequence[Sequence[Mention]],
    actor: str,
    now: datetime,
    ids: Ids,
) -> list[list[Linked]]:
    """Return, for each text, the entities of its mentions, each entity once and in their order.

    Looks in `namespace` and those of its ancestors that are `readable`, and creates what is missing
    in `namespace`. No query where nothing is mentioned, one where all is known, four at most.

    Call it once per transaction, before rows of `memories` are inserted: the names it claims are
    held until the commit, in one order for everybody, so that no two writers wait for each other.
    """
    wanted: dict[str, Mention] = {}
    for mention in (m for text in texts for m in text):
        wanted.setdefault(escape(mention.normal), mention)
    if not wanted:
        return [[] for _ in texts]
    nearest = [n for n in reversed(namespace_ancestors(namespace)) if n in readable]
    found = await _known(tx, nearest, wanted)
    missing = {normal: m for normal, m in wanted.items() if normal not in found}
    if missing:
        new = {normal: ids.new() for normal in sorted(missing)}
        rows = [
            (id_, normal, escape(missing[normal].text), missing[normal].kind,
             missing[normal].confidence)
            for normal, id_ in new.items()
        ]  # fmt: skip
        created = await store.create(tx.conn, namespace, rows, actor=actor, at=now)
        fresh = {normal: id_ for normal, id_ in new.items() if id_ in created}
        for normal, id_ in fresh.items():
            found[normal] = _Found(id=id_, name=missing[normal].text, how="new")
        lost = [normal for normal in missing if normal not in fresh]
        if lost:
            # Somebody else met these names first, and has committed since.
            found |= await _known(tx, nearest, lost)
        await _suggest(tx, namespace, nearest, {n: (i, missing[n]) for n, i in fresh.items()}, now)
    return [_linked(text, found) for text in texts]


async def attach(tx: Tx, links: Sequence[tuple[UUID, Sequence[Linked]]]) -> None:
    """Record which memory mentions which entities; one statement for all of them."""
    rows = [
        (memory, one.entity_id, escape(one.mention), one.how, one.confidence)
        for memory, linked in links
        for one in linked
    ]
    if rows:
        await store.attach(tx.conn, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    id: UUID
    name: str
    how: How


async def _known(
    tx: Tx, namespaces: Sequence[str], normals: Sequence[str] | Mapping[str, object]
) -> dict[str, _Found]:
    rows = await store.known(tx.conn, namespaces, list(normals))
    found = {}
    for row in rows:
        name = unescape(row["name"])
        how: How = "name" if escape(normal_name(name)) == row["normal"] else "alias"
        found[row["normal"]] = _Found(id=row["id"], name=name, how=how)
    return found


def _linked(text: Sequence[Mention], found: Mapping[str, _Found]) -> list[Linked]:
    linked: dict[UUID, Linked] = {}
    for mention in text:
        one = found[escape(mention.normal)]
        # Whoever speaks is listed first, and stays that where the text names them as well.
        is_speaker = mention.kind == "person" and mention.confidence == SPEAKER_CONFIDENCE
        linked.setdefault(
            one.id,
            Linked(
                entity_id=one.id,
                name=one.name,
                mention=mention.text,
                how="said" if is_speaker else one.how,
                confidence=mention.confidence,
            ),
        )
    return list(linked.values())


async def _suggest(
    tx: Tx,
    namespace: str,
    nearest: Sequence[str],
    fresh: Mapping[str, tuple[UUID, Mention]],
    now: datetime,
) -> None:
    new = [(id_, normal) for normal, (id_, m) in fresh.items() if m.kind not in _EXACT_KINDS]
    if not new:
        return
    normal_of = dict(new)
    best: dict[tuple[UUID, UUID], int] = {}
    for row in await store.neighbours(tx.conn, nearest, new):
        likeness = similarity(normal_of[row["new_id"]], row["normal"])
        pair = (row["new_id"], row["entity_id"])
        # Two new ones that resemble each other are one suggestion, not two.
        if likeness >= SUGGEST_FROM and (pair[1], pair[0]) not in best:
            best[pair] = max(likeness, best.get(pair, 0))
    rows: list[tuple[UUID, UUID, int]] = []
    per_name: dict[UUID, int] = {}
    for (id_, similar), likeness in sorted(best.items(), key=lambda item: (-item[1], item[0])):
        if per_name.get(id_, 0) < _SUGGESTIONS_PER_NAME:
            per_name[id_] = per_name.get(id_, 0) + 1
            rows.append((id_, similar, likeness))
    if rows:
        await store.suggest(tx.conn, namespace, rows, at=now)


def similarity(one: str, other: str) -> int:
    """Return how alike two normalised names are, 0 to 1,000,000.

    The normalised edit similarity of their sorted words (RapidFuzz's `token_sort_ratio`); 870,000
    where one is made of some of the other's words, as `ada` and `ada lovelace`. Names that differ
    in a digit are different things: 0.
    """
    digits = [[c for c in name if c.isdigit()] for name in (one, other)]
    if digits[0] != digits[1]:
        return 0
    likeness = round(fuzz.token_sort_ratio(one, other) * 10_000)
    words, others = set(one.split()), set(other.split())
    is_part = words < others or others < words
    if is_part and max(len(w) for w in (words & others)) >= 3:
        return max(likeness, _PART_OF_NAME)
    return likeness


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """Two entities whose names are nearly the same; `similarity` is in micro-units."""

    entity: UUID
    entity_name: str
    similar: UUID
    similar_name: str
    namespace: str
    similarity: int
    suggested_at: datetime


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """A merge that holds: `merged` stands at `kept` until it is undone."""

    id: UUID
    namespace: str
    kept: UUID
    kept_name: str
    merged: UUID
    merged_name: str
    actor: str
    merged_at: datetime


class _Moved(Exception):  # noqa: N818
    """An entity was merged by somebody else between two looks at it."""


class Entities:
    """Lists entities, and lets people say which two are one.

    A merge points one entity at the other and rewrites nothing: every reader follows the pointer.
    So undoing it is exact, in whatever order merges are undone.
    """

    def __init__(self, *, db: Database, ids: Ids, work: Work) -> None:
        self._db = db
        self._ids = ids
        self._work = work

    async def shown(self, frame: Frame, *, text: str = "", limit: int = 100) -> tuple[Entity, ...]:
        """Return entities the caller sees, newest first: all, or those with the text in a name.

        Merged ones are counted and named with the one that was kept.
        """
        _check_limit(limit)
        sought = normal_name(text)
        async with self._db.reading() as tx:
            if sought:
                hits = await store.named(tx.conn, frame.scope, escape(sought), limit=_MOST_HITS)
                kept = await graph.kept(tx.conn, frame.scope, hits)
                ids = sorted(set(kept.values()), reverse=True)[:limit]
            elif text.strip():
                ids = []
            else:
                ids = await store.newest(tx.conn, frame.scope, limit=limit)
            rows = await self._rows(tx, frame, ids)
        frame.detail = f"returned={len(rows)}"
        return tuple(_entity_of(row) for row in rows)

    async def _rows(self, tx: Tx, frame: Frame, ids: Sequence[UUID]) -> list[store.Row]:
        if not ids:
            return []
        return await store.get(tx.conn, frame.scope, await graph.merged(tx.conn, frame.scope, ids))

    async def suggestions(self, frame: Frame, *, limit: int = 100) -> tuple[Suggestion, ...]:
        """Return the open suggestions whose both ends the caller sees, likeliest first."""
        _check_limit(limit)
        async with self._db.reading() as tx:
            rows = await store.suggestions(tx.conn, frame.scope, limit=limit)
            ends = [row[end] for row in rows for end in ("entity_id", "similar_id")]
            kept = await graph.kept(tx.conn, frame.scope, ends)
        found = [
            Suggestion(
                entity=row["entity_id"],
                entity_name=unescape(row["entity_name"]),
                similar=row["similar_id"],
                similar_name=unescape(row["similar_name"]),
                namespace=row["namespace"],
                similarity=row["similarity"],
                suggested_at=row["suggested_at"],
            )
            for row in rows
            # They have become one by another way.
            if kept[row["entity_id"]] != kept[row["similar_id"]]
        ]
        frame.detail = f"returned={len(found)}"
        return tuple(found)

    async def merges(self, frame: Frame, *, limit: int = 100) -> tuple[Merge, ...]:
        """Return the merges that hold and whose both ends the caller sees, newest first."""
        _check_limit(limit)
        async with self._db.reading() as tx:
            rows = await store.merges(tx.conn, frame.scope, limit=limit)
        frame.detail = f"returned={len(rows)}"
        names = ("kept_name", "merged_name")
        return tuple(Merge(**{**row, **{n: unescape(row[n]) for n in names}}) for row in rows)

    async def merge(self, frame: Frame, keep: UUID, merge: UUID) -> UUID:
        """Let one entity stand at another from now on; return the merge, by which it is undone.

        Of entities merged before, those they stand at are taken. The kept one has to live where
        everybody who sees the merged one sees it too: in the same namespace or above. Raises
        NotFound, Denied where the caller does not manage the merged one, and Conflict where both
        are one already.
        """
        frame.target = f"entity:{keep}"
        for _ in range(_ATTEMPTS):
            try:
                return await self._merge(frame, keep, merge)
            except _Moved:
                # Begun anew with no lock held, so that two merges never wait for each other.
                continue
        raise Conflict("Others merge these entities just now; try again.")

    async def _merge(self, frame: Frame, keep: UUID, merge: UUID) -> UUID:
        async with self._work.doing(frame) as tx:
            kept, merged = await self._roots(tx, frame, keep, merge)
            if kept["namespace"] not in namespace_ancestors(merged["namespace"]):
                raise InvalidInput(
                    f"The one to keep lives in {kept['namespace']}, which not everybody sees who "
                    f"sees {merged['namespace']}. Keep the other one."
                )
            id_ = self._ids.new()
            actor = frame.who.actor
            await store.merge(
                tx.conn, id_, merged["namespace"], kept["id"], merged["id"], actor=actor, at=tx.now
            )
            for pair in {(keep, merge), (kept["id"], merged["id"])}:
                await store.answer(tx.conn, *pair, "merged", actor=actor, at=tx.now)
            frame.detail = f"merge={id_} merged={merged['id']}"
            return id_

    async def _roots(
        self, tx: Tx, frame: Frame, keep: UUID, merge: UUID
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return what the two stand at, held; raise _Moved where one of these was merged now."""
        roots = await store.roots(tx.conn, [keep, merge])
        rows = await store.lock(tx.conn, list(roots.values()))
        for id_ in (keep, merge):
            row = rows.get(roots[id_]) if id_ in roots else None
            if row is None or not _is_in_reach(frame, row["namespace"]):
                raise (NotFound if row is None else Concealed)("entity", id_)
        kept, merged = rows[roots[keep]], rows[roots[merge]]
        if kept["merged_into"] is not None or merged["merged_into"] is not None:
            raise _Moved
        if kept["id"] == merged["id"]:
            raise Conflict(f"The two are one entity already: {kept['id']}.")
        _require_managed(frame, merged["namespace"])
        return kept, merged

    async def unmerge(self, frame: Frame, id_: UUID) -> None:
        """Undo a merge: the merged entity stands for itself again, and what stood at it follows.

        Raises NotFound, Denied where the caller does not manage it, Conflict where it is undone.
        """
        frame.target = f"merge:{id_}"
        async with self._work.doing(frame) as tx:
            row = await store.merge_row(tx.conn, id_)
            if row is None or not _is_in_reach(frame, row["namespace"]):
                raise (NotFound if row is None else Concealed)("merge", id_)
            _require_managed(frame, row["namespace"])
            if row["undone_at"] is not None:
                raise Conflict(f"Merge {id_} was undone already.")
            await store.lock(tx.conn, [row["merged"]])
            await store.unmerge(tx.conn, id_, row["merged"], actor=frame.who.actor, at=tx.now)
            await store.reopen(tx.conn, row["kept"], row["merged"])
            frame.detail = f"entity={row['merged']}"

    async def refuse(self, frame: Frame, entity: UUID, similar: UUID) -> None:
        """Answer a suggestion: the two are not one. It is not made again.

        `merge` answers it the other way. Raises NotFound, Denied where neither is managed.
        """
        frame.target = f"entity:{entity}"
        async with self._work.doing(frame) as tx:
            rows = await store.lock(tx.conn, [entity, similar])
            for id_ in (entity, similar):
                row = rows.get(id_)
                if row is None or not _is_in_reach(frame, row["namespace"]):
                    raise (NotFound if row is None else Concealed)("entity", id_)
            if not any(may_manage(frame.who, row["namespace"]) for row in rows.values()):
                raise Denied("Answering a suggestion is for an admin or owner of its namespace.")
            if not await store.answer(
                tx.conn, entity, similar, "refused", actor=frame.who.actor, at=tx.now
            ):
                raise NotFound("open suggestion about entity", entity)
            frame.detail = f"refused={similar}"

    async def alias(self, frame: Frame, entity: UUID, name: str) -> None:
        """Give an entity one more name in the caller's own namespace.

        Raises NotFound where the caller does not see it, Conflict where the name is another's.
        """
        frame.target = f"entity:{entity}"
        normal = escape(normal_name(name))
        if not normal:
            raise InvalidInput("A name has letters or digits.", field="name")
        async with self._work.doing(frame) as tx:
            kept = await graph.kept(tx.conn, frame.scope, [entity])
            if entity not in kept:
                raise NotFound("entity", entity)
            who = frame.who
            owner = await store.alias(
                tx.conn, who.namespace, normal, kept[entity], actor=who.actor, at=tx.now
            )
            if owner is not None and owner != kept[entity]:
                stands_at = await store.roots(tx.conn, [owner])
                if stands_at.get(owner) != kept[entity]:
                    raise Conflict(f"That name is entity {owner}'s here; merge the two instead.")


def _entity_of(row: Mapping[str, Any]) -> Entity:
    return Entity(
        id=row["id"],
        namespace=row["namespace"],
        name=unescape(row["name"]),
        kind=row["kind"],
        aliases=tuple(unescape(a) for a in row["aliases"] or ()),
        merged_into=row["merged_into"],
        memories=row["memories"],
        created_at=row["created_at"],
    )


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= _MOST_SHOWN:
        raise InvalidInput(f"limit is a whole number from 1 to {_MOST_SHOWN}.", field="limit")


def _is_in_reach(frame: Frame, namespace: str) -> bool:
    return namespace in frame.scope.namespaces or may_manage(frame.who, namespace)


def _require_managed(frame: Frame, namespace: str) -> None:
    if not may_manage(frame.who, namespace):
        raise Denied(f"This needs the role admin or owner in {namespace} or above it.")

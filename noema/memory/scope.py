"""The one rule of who sees what.

    one's own namespace and those above it         by place
    a memory, or a subtree, that somebody shared   by a grant, while it is valid

A scope is that rule written out: the namespaces and the single memories one may read, enumerated.
Nothing else fences a query, in SQL `namespace = ANY($1) OR id = ANY($2)` for memories and
`namespace = ANY($1)` for what has no grants of its own: entities, relationships, audit rows.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from noema.core.clock import Clock
from noema.core.errors import InvalidInput, NoemaError
from noema.core.fresh import Fresh
from noema.core.identity import Identity, namespace_ancestors
from noema.db.tx import Database
from noema.memory.model import Scope
from noema.memory.store import shares as store

_ACTOR_CHARS: Final = 200
_NO_SCOPE: Final = "A query over memory came without a scope; it was refused."


def by_place(namespace: str) -> tuple[str, ...]:
    """Return what one sees without any grant: the namespace and its ancestors, outermost first."""
    return namespace_ancestors(namespace)


def is_above(row: str, caller: str) -> bool:
    """Whether what lives in `row` is seen from `caller` by place.

    The same rule as `by_place`, as a predicate: the very namespace, or a prefix that ends where a
    segment does.
    """
    return row == caller or caller.startswith(row + "/")


def in_subtree(path: str, root: str) -> bool:
    """Whether a path is the root or below it; what `noema_in_subtree` decides in SQL."""
    return path == root or path.startswith(root + "/")


def tenant_of(namespace: str) -> str:
    """Return the tenant of a namespace: its first segment."""
    return namespace.partition("/")[0]


def fence(scope: Scope | None) -> tuple[list[str], list[UUID]]:
    """Return the arguments of the predicate. A scope that is missing or empty is an error."""
    if scope is None or not scope.namespaces:
        raise NoemaError(_NO_SCOPE)
    return list(scope.namespaces), list(scope.memories)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What grants let somebody read: subtrees written out, and single rows with their place."""

    namespaces: frozenset[str]
    memories: tuple[tuple[UUID, str], ...]


class Scopes:
    """Works out scopes, and keeps each for less than a second."""

    def __init__(self, *, db: Database, clock: Clock) -> None:
        self._db = db
        self._fresh: Fresh[tuple[str, str], Scope] = Fresh(clock)

    async def of(self, who: Identity, at: datetime | None = None) -> Scope:
        """Return what the identity may read now.

        With `at` only what it might have read at that moment too: a grant that came later counts
        for nothing, and one that has ended since opens nothing any more.
        """
        if at is None:
            return await self._fresh.get(
                (who.namespace, who.actor), lambda: self._load(who.namespace, who.actor)
            )
        return await self._load(who.namespace, who.actor, at)

    async def _load(self, namespace: str, actor: str, at: datetime | None = None) -> Scope:
        return _scope(namespace, await self._held(namespace, actor, since=at))

    async def through(
        self, who: Identity, namespace: str, actor: str, at: datetime | None = None
    ) -> Scope:
        """Return what somebody else sees, or saw at that moment, as far as `who` may be shown it.

        What came to them from outside the subtree of `who`, and is not seen by `who` either, stays
        between those two.
        """
        held = await self._held(namespace, actor, at=at)
        own = await self.of(who)
        theirs = _scope(namespace, held)

        def is_shown(place: str) -> bool:
            return place in own.namespaces or in_subtree(place, who.namespace)

        return Scope(
            writable=namespace,
            own=tuple(n for n in theirs.own if is_shown(n)),
            namespaces=tuple(n for n in theirs.namespaces if is_shown(n)),
            memories=tuple(i for i, n in held.memories if is_shown(n) or i in own.memories),
        )

    async def _held(
        self,
        namespace: str,
        actor: str,
        *,
        at: datetime | None = None,
        since: datetime | None = None,
    ) -> Held:
        """Return what grants give: those valid at `at` (now where None) and at `since` too."""
        async with self._db.statements() as tx:
            rows = await store.held(tx.conn, namespace, actor, at=at or tx.now, also_at=since)
        return Held(
            namespaces=frozenset(r["path"] for r in rows if r["path"] is not None),
            memories=tuple(
                (r["memory_id"], r["namespace"]) for r in rows if r["memory_id"] is not None
            ),
        )

    def changed(self) -> None:
        """Forget every scope: a grant was given or ended here."""
        self._fresh.forget()


def _scope(namespace: str, held: Held) -> Scope:
    own = by_place(namespace)
    below = sorted(held.namespaces.difference(own))
    single = sorted({i for i, place in held.memories if place not in held.namespaces})
    return Scope(writable=namespace, own=own, namespaces=(*own, *below), memories=tuple(single))


def aware(moment: datetime | None, field: str) -> datetime | None:
    """Return the time in UTC, or raise InvalidInput where it has no zone or UTC cannot hold it."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise InvalidInput(f"{field} has no time zone; add one, such as Z.", field=field)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(f"{field} is out of reach: use a year of 1 to 9999.", field=field) from (
            None
        )


def check_actor(actor: str, field: str) -> str:
    """Return the actor unchanged, or raise InvalidInput where nobody can be called that."""
    if not 1 <= len(actor) <= _ACTOR_CHARS or not actor.isprintable():
        raise InvalidInput(
            f"{field} is an actor such as user:name, mind:slug or token:name.", field=field
        )
    return actor

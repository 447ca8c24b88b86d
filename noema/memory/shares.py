"""Shares: what one namespace lets another, or one actor, read. They never let anybody write."""

import re
from datetime import datetime
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec

from noema.core.canonical import canonical_escaped
from noema.core.clock import Ids
from noema.core.errors import Denied, InvalidInput, NotFound
from noema.core.identity import Identity, MemoryRole, check_namespace
from noema.db.tx import Database, Tx
from noema.events.log import EventLog
from noema.events.unit import Idempotency
from noema.memory.frame import Frame
from noema.memory.model import Grant, Share
from noema.memory.reading import Concealed
from noema.memory.rights import may_look_through, may_manage, require_management
from noema.memory.scope import Scopes, aware, tenant_of
from noema.memory.store import reading
from noema.memory.store import shares as store
from noema.memory.work import Work

_ACTOR: Final = re.compile(r"(user|mind|token):[a-z0-9][A-Za-z0-9._@/ -]{0,150}\Z")
_KEY_CHARS: Final = 200


class Shares:
    """Gives, ends and lists grants."""

    def __init__(
        self, *, db: Database, events: EventLog, ids: Ids, work: Work, scopes: Scopes
    ) -> None:
        self._db = db
        self._events = events
        self._ids = ids
        self._work = work
        self._scopes = scopes

    async def share(self, frame: Frame, request: Share, *, key: str | None = None) -> Grant:
        """Give a grant; with an idempotency key a repeated call returns the one it gave before.

        A memory of one's own namespace is anybody's to share who may write there; a subtree, and
        what lives below, is an admin's or owner's. Only an owner shares beyond the tenant.
        """
        who = frame.who
        frame.target = _target(request)
        expires_at = _checked(request, frame.now)
        async with self._work.doing(frame) as tx:
            place = await self._place(tx, frame, request)
            await _check_receiver(tx, who, request, place)
            id_ = self._ids.new()
            if key is not None and (before := await self._claimed(tx, who, request, key, id_)):
                frame.detail = f"grant={before.id} repeated"
                return before
            grant = await store.insert(
                tx.conn,
                id_,
                place,
                request.memory,
                request.subtree,
                request.to_namespace,
                request.to_actor,
                who.role is MemoryRole.OWNER,
                who.actor,
                tx.now,
                expires_at,
            )
            receiver = request.to_namespace or request.to_actor
            frame.detail = f"grant={grant.id} to={receiver}"
        self._scopes.changed()
        return grant

    async def _claimed(
        self, tx: Tx, who: Identity, request: Share, key: str, id_: UUID
    ) -> Grant | None:
        if not 1 <= len(key) <= _KEY_CHARS:
            raise InvalidInput(
                f"An idempotency key has 1 to {_KEY_CHARS} characters.", field="Idempotency-Key"
            )
        wanted = Idempotency(
            scope=f"mem.share {who.namespace} {who.actor}",
            key=key,
            digest=sha256(canonical_escaped(msgspec.to_builtins(request))).digest(),
            response={"grant": str(id_)},
        )
        answered = await self._events.claim(tx, wanted)
        return None if answered is None else await store.get(tx.conn, UUID(answered["grant"]))

    async def _place(self, tx: Tx, frame: Frame, request: Share) -> str:
        """Return the namespace that shares, or raise where it is not the caller's to share."""
        who = frame.who
        if request.subtree is not None:
            require_management(who, request.subtree)
            if not await store.has_namespace(tx.conn, request.subtree):
                raise NotFound("namespace", request.subtree)
            return request.subtree
        memory = request.memory
        if memory is None:
            raise InvalidInput("Name a memory or a subtree to share.", field="memory")
        found = await reading.place_of(tx.conn, memory)
        if found is None:
            raise NotFound("memory", memory)
        place = found[0]
        if place == who.namespace or may_manage(who, place):
            return place
        if frame.scope.sees(place, memory):
            raise Denied(f"You may read this memory, but it is {place} that may share it.")
        raise Concealed("memory", memory)

    async def unshare(self, frame: Frame, id_: UUID) -> Grant:
        """End a grant now; ended already, return it as it is.

        For who gave it, and for admins and owners of the namespace that shares.
        """
        who = frame.who
        frame.target = f"grant:{id_}"
        async with self._work.doing(frame) as tx:
            grant = await store.locked(tx.conn, id_)
            if grant is None:
                raise NotFound("grant", id_)
            is_giver = grant.granted_by == who.actor and grant.namespace == who.namespace
            if not is_giver and not may_manage(who, grant.namespace):
                if _concerns(grant, who):
                    raise Denied("Only who gave a grant, or manages what it shares, may end it.")
                raise Concealed("grant", id_)
            if grant.valid_to is None or grant.valid_to > tx.now:
                grant = await store.end(tx.conn, id_, tx.now, who.actor)
            frame.detail = f"to={grant.to_namespace or grant.to_actor}"
        self._scopes.changed()
        return grant

    async def shown(self, frame: Frame, *, ended: bool) -> tuple[Grant, ...]:
        """Return grants by and to the caller, newest first; of the whole subtree to who watches."""
        who = frame.who
        async with self._db.reading() as tx:
            found = await store.listed(
                tx.conn,
                who.actor,
                who.namespace,
                whole_subtree=may_look_through(who, who.namespace),
                ended=ended,
                now=tx.now,
            )
        frame.detail = f"returned={len(found)}"
        return tuple(found)


def _target(request: Share) -> str:
    if request.memory is not None:
        return f"memory:{request.memory}"
    return f"namespace:{request.subtree or ''}"


def _checked(request: Share, now: datetime) -> datetime | None:
    if (request.memory is None) == (request.subtree is None):
        raise InvalidInput("Share one memory or one subtree: name exactly one.", field="memory")
    if (request.to_namespace is None) == (request.to_actor is None):
        raise InvalidInput(
            "Share with one namespace or one actor: name exactly one.", field="to_namespace"
        )
    if request.subtree is not None:
        check_namespace(request.subtree)
    if request.to_namespace is not None:
        check_namespace(request.to_namespace)
    if request.to_actor is not None and not _ACTOR.match(request.to_actor):
        raise InvalidInput(
            "An actor is written user:name, mind:slug or token:name.", field="to_actor"
        )
    expires_at = aware(request.expires_at, "expires_at")
    if expires_at is not None and expires_at <= now:
        raise InvalidInput("expires_at is in the past.", field="expires_at")
    return expires_at


async def _check_receiver(tx: Tx, who: Identity, request: Share, place: str) -> None:
    receiver = request.to_namespace
    if receiver is None:
        return
    if tenant_of(receiver) != tenant_of(place) and who.role is not MemoryRole.OWNER:
        raise Denied("Only an owner shares with another tenant.")
    if not await store.has_namespace(tx.conn, receiver):
        raise NotFound("namespace", receiver)


def _concerns(grant: Grant, who: Identity) -> bool:
    return grant.to_namespace == who.namespace or grant.to_actor == who.actor

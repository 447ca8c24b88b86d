"""The write path: five stages, and one transaction at the end of them.

    extract ─▶ verify ─▶ entities ─▶ classify ─▶ embed ─┐   nothing is open until here
                                                        ▼
    [ key ▸ conversation ▸ names ▸ sources ▸ close ▸ insert or repeat ▸ lineage ▸ audit row ]

The common case, one text with names that are known, is a single statement. Whatever else a write
needs runs in a transaction that takes its locks in the order above, so that no two writers wait for
each other, and begins anew where somebody else was first.

A memory is believed from the moment we are told (`t_valid_from` is `assertion_time`); when the
thing happened is `event_time` and may be long ago or still to come. So what one could have known at
some time never changes afterwards, however late one is told of older things.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
import structlog

from noema.core.act import Outcome, act_of
from noema.core.canonical import canonical_escaped, escape, escape_tree, unescape_tree
from noema.core.clock import Clock, Ids
from noema.core.errors import Conflict, Denied, InvalidInput, NoemaError, NotFound, Unavailable
from noema.db.tx import Database, Tx
from noema.events.audit import Audit
from noema.events.log import EventLog
from noema.events.unit import Idempotency
from noema.llm.model import Embedder
from noema.memory import entities, lineage, relationships
from noema.memory.classify import Classifier, Rules, covers, inherited, strictest
from noema.memory.draft import Draft
from noema.memory.entities import Linked
from noema.memory.extract import Extractor, ExtractorOf
from noema.memory.frame import Frame
from noema.memory.mentions import Mention
from noema.memory.model import Item, Label, Sensitivity, Write, WriteResult
from noema.memory.normalise import normal_text
from noema.memory.prepare import Prepared, check, prepare
from noema.memory.routes import route_of, trust_of
from noema.memory.store import writing as store
from noema.memory.store.writing import Again, Line, Writer

log = structlog.get_logger()

SESSION_ENDS: Final = timedelta(minutes=30)
MAX_KEY_CHARS: Final = 200
_TRIES: Final = 8
_PAUSE_S: Final = 0.01
_KNOWN_FOR_S: Final = 30.0
_MOST_KNOWN: Final = 50_000
_COPY_IS_TWO: Final = (
    "More than one current memory has this kind and source; name the one to replace as supersedes."
)

Outcomes: TypeAlias = Literal["stored", "rejected", "superseded", "deduplicated"]


@dataclass(slots=True, kw_only=True)
class _Work:
    """One write on its way into the database."""

    frame: Frame
    request: Write
    prepared: Prepared
    writer: Writer
    idempotency: Idempotency | None
    degraded: str | None
    linked: dict[str, Linked] = field(default_factory=dict)
    tightened: int = 0


class WritePath:
    """Writes memories; the only way in, for agents, minds, people and imports alike.

    `embeds_outside` says that the embedder is a service outside of this daemon: what may not be
    sent to a provider is stored without a vector then. `extractor_of` says for each request who
    takes its text apart, and where that is; `extractor` is one for all, taken to be outside.
    """

    def __init__(
        self,
        *,
        db: Database,
        audit: Audit,
        ids: Ids,
        clock: Clock,
        embedder: Embedder | None = None,
        embeds_outside: bool = False,
        extractor: Extractor | None = None,
        extractor_of: ExtractorOf | None = None,
        classifiers: Sequence[Classifier] = (Rules(),),
    ) -> None:
        self._db = db
        self._audit = audit
        self._ids = ids
        self._clock = clock
        self._log = EventLog(db=db)
        self._embedder = embedder
        self._embeds_outside = embeds_outside
        self._extractor = extractor
        self._extractor_of = extractor_of
        self._classifiers = classifiers
        self._known = _Known(clock)

    async def write(self, frame: Frame, request: Write, *, key: str | None = None) -> WriteResult:
        """Write the text, or the messages, of the request; return what became of each.

        With an idempotency key a repeated call changes nothing and returns what the first one did.
        Raises InvalidInput for a request that makes no sense as a whole (what merely cannot become
        a memory is rejected in the result), NotFound for a source or a victim that the caller may
        not see, Conflict where the victim is not current any more, IdempotencyReuse, Unavailable.
        """
        check(request)
        idempotency = None if key is None else claim_of(frame, request, key)
        if idempotency is not None:
            answered = await self._log.answered(idempotency)
            if answered is not None:
                return await self._repeated(frame, answered)
        sources = await self._sources(frame, request)
        route = route_of(frame.who, request)
        extractor, is_outside = self._extractor, True
        if self._extractor_of is not None:
            found = await self._extractor_of(frame.who, request)
            extractor = None if found is None else found[0]
            is_outside = found is None or found[1] == "provider"
        prepared = await prepare(
            frame,
            request,
            route=route,
            ids=self._ids,
            extractor=extractor,
            extracts_outside=is_outside,
            classifiers=self._classifiers,
            inherits=[label for _, label in sources],
        )
        degraded = await self._embed(prepared.drafts)
        embedder = self._embedder
        work = _Work(
            frame=frame,
            request=request,
            prepared=prepared,
            writer=Writer(
                namespace=frame.scope.writable,
                actor=frame.who.actor,
                agent_id=frame.who.agent_id,
                source=request.source,
                route=route,
                trust=trust_of(route, *(trust for trust, _ in sources)),
                now=frame.now,
                model=None if embedder is None else embedder.model,
                dims=0 if embedder is None else embedder.dims,
                is_checked=frame.policy.conflict_review != "off",
            ),
            idempotency=idempotency,
            degraded=degraded,
        )
        return await self._commit(work)

    # --- before the transaction ---

    async def _repeated(self, frame: Frame, answered: Any) -> WriteResult:
        result = msgspec.convert(unescape_tree(answered), WriteResult)
        frame.detail = f"{_detail(result)} repeated=1"
        return result

    async def _sources(self, frame: Frame, request: Write) -> list[tuple[int, Label]]:
        """Return trust and label of every memory that this one rests on."""
        if not request.derived_from:
            return []
        wanted = list(dict.fromkeys(request.derived_from))
        scope = frame.scope
        async with self._db.reading() as tx:
            rows = await store.sources(tx.conn, wanted, scope.namespaces, scope.memories)
        found = {row["id"]: row for row in rows}
        for id_ in wanted:
            if id_ not in found:
                raise NotFound("memory", id_)
            if found[id_]["status"] == "retracted":
                raise Conflict(f"Memory {id_} was retracted; nothing can be derived from it.")
        return [
            (
                row["trust"],
                Label(
                    sensitivity=Sensitivity(row["sensitivity"]),
                    destinations=tuple(row["destinations"]),
                ),
            )
            for row in rows
        ]

    async def _embed(self, drafts: Sequence[Draft]) -> str | None:
        """Give the drafts their vectors; return what is missing, None where nothing is."""
        if not drafts:
            return None
        embedder = self._embedder
        if embedder is None:
            return "no embedder is set, stored without vectors"
        sent = [d for d in drafts if not self._embeds_outside or "provider" in d.label.destinations]
        try:
            texts = [draft.text for draft in sent]
            vectors = await embedder.embed(texts, purpose="document") if texts else []
        except Exception as exc:  # noqa: BLE001 - whatever fails, the memory is kept
            reason = str(exc) if isinstance(exc, NoemaError) else type(exc).__name__
            log.warning("embedding_failed", model=embedder.model, reason=reason)
            return "the embedder failed, stored without vectors"
        if len(vectors) != len(sent) or not all(_is_vector(v, embedder.dims) for v in vectors):
            log.warning("embedding_failed", model=embedder.model, reason="vectors do not fit")
            return "the embedder answered badly, stored without vectors"
        for draft, vector in zip(sent, vectors, strict=True):
            draft.vector = vector
        if len(sent) < len(drafts):
            return "what may not leave is stored without vectors"
        return None

    # --- the transaction ---

    async def _commit(self, work: _Work) -> WriteResult:
        drafts = work.prepared.drafts
        if not drafts:
            return await self._nothing(work)
        if self._is_simple(work):
            linked = self._known.all_of(work.writer.namespace, drafts[0].mentions)
            if linked is not None:
                try:
                    return await self._at_once(work, linked)
                except Again:
                    # What was known of the names is not so any more.
                    self._known.forget()
        for attempt in range(_TRIES):
            if attempt:
                await self._clock.sleep(_PAUSE_S * attempt)
            try:
                return await self._together(work)
            except Again:
                log.info("write_again", attempt=attempt + 1)
        raise Unavailable(
            "Others kept changing what this write rests on; nothing was kept. Try again."
        )

    def _is_simple(self, work: _Work) -> bool:
        request = work.request
        # Content may say how two entities are related, which is one statement more.
        return (
            len(work.prepared.drafts) == 1
            and not work.prepared.drafts[0].content
            and work.idempotency is None
            and not request.refresh
            and not request.supersedes
            and not request.derived_from
            and request.messages is None
        )

    async def _at_once(self, work: _Work, linked: Sequence[Linked]) -> WriteResult:
        """Write one memory by one statement."""
        draft = work.prepared.drafts[0]
        stored = _result(work, {0: draft.id})
        async with self._db.statements() as tx:
            work.writer.now = tx.now
            line = self._line(work, stored)
            kept = await store.insert_one(tx.conn, draft, work.writer, _links(linked), line)
        if kept is None:
            raise Again
        result = stored if kept == draft.id else _result(work, {0: kept})
        self._recorded(work, result)
        return result

    async def _together(self, work: _Work) -> WriteResult:
        """Write everything in one transaction."""
        async with self._db.transaction() as tx:
            work.writer.now = tx.now
            if work.idempotency is not None:
                answered = await self._log.claim(tx, work.idempotency)
                if answered is not None:
                    # It came twice at once, and the other was first.
                    return await self._repeated(work.frame, answered)
            result = await self._in(tx, work)
            if work.idempotency is not None:
                await self._log.answer(tx, work.idempotency, _kept(result))
        self._known.add(work.writer.namespace, work.linked)
        self._recorded(work, result)
        return result

    async def _in(self, tx: Tx, work: _Work) -> WriteResult:
        request, drafts = work.request, work.prepared.drafts
        if work.prepared.is_single_turn and work.prepared.conversation is not None:
            await self._place(tx, work, work.prepared.conversation)
        # What an attempt that was given up had found.
        work.tightened = 0
        for draft in drafts:
            draft.supersedes, draft.since = None, None
        victim = request.supersedes
        if request.refresh:
            await store.take(tx.conn, _copy_name(work))
            victim, same = await self._stale(tx, work)
            if same is not None:
                return await self._repeat(tx, work, *same)
        links = await self._link(tx, work)
        if request.derived_from:
            await self._hold(tx, work)
        if victim is not None:
            drafts[0].supersedes = victim
            drafts[0].since = await self._close(tx, work, victim)
        if len(drafts) == 1:
            return await self._insert_one(tx, work, links[0])
        outcomes = await self._insert_many(tx, work, links)
        result = _result(work, outcomes)
        await self._record(tx, work, result)
        return result

    async def _repeat(self, tx: Tx, work: _Work, same: UUID, key: bytes) -> WriteResult:
        if not await store.repeat(tx.conn, same, work.writer.now):
            raise Again
        for id_, _, _, label in await store.standing(tx.conn, work.writer.namespace, [key]):
            if id_ == same:
                await self._tighten(tx, work, id_, label, work.prepared.drafts[0])
        result = _result(work, {0: same})
        await self._record(tx, work, result)
        return result

    async def _insert_one(self, tx: Tx, work: _Work, linked: Sequence[Linked]) -> WriteResult:
        draft, links = work.prepared.drafts[0], _links(linked)
        line = self._line(work, _result(work, {0: draft.id}))
        kept = await store.insert_one(tx.conn, draft, work.writer, links, line)
        if kept is None and draft.supersedes is None:
            await self._make_way(tx, work, [draft])
            line = self._line(work, _result(work, {0: draft.id}))
            kept = await store.insert_one(tx.conn, draft, work.writer, links, line)
            if kept is None:
                raise Again
        if work.request.supersedes is not None and kept != draft.id:
            same = "Another memory" if kept is None else f"Memory {kept}"
            raise Conflict(
                f"{same} says the same already and is current; memory {draft.supersedes} was not "
                "changed. Supersede it with something else, or leave it."
            )
        if kept is None:
            raise Again
        if kept != draft.id:
            return _result(work, {0: kept})
        if work.request.derived_from:
            await store.derive(tx.conn, work.request.derived_from, [draft.id])
        await self._relate(tx, work, draft, linked)
        return _result(work, {0: draft.id})

    async def _insert_many(
        self, tx: Tx, work: _Work, links: Sequence[Sequence[Linked]]
    ) -> dict[int, UUID | None]:
        drafts = work.prepared.drafts
        # One statement cannot meet the same key twice; the later ones are repeats of the first.
        first: dict[bytes, int] = {}
        for number, draft in enumerate(drafts):
            first.setdefault(draft.key, number)
        by_key: dict[bytes, UUID] = {}
        wanting = [drafts[n] for n in first.values()]
        for is_last in (False, True):
            kept = await store.insert_many(tx.conn, wanting, work.writer)
            by_key |= {wanting[place].key: id_ for place, id_ in kept.items()}
            wanting = [d for place, d in enumerate(wanting) if place not in kept]
            if not wanting:
                break
            if is_last:
                raise Again
            await self._make_way(tx, work, wanting)
        new = [n for n in first.values() if by_key[drafts[n].key] == drafts[n].id]
        await entities.attach(tx, [(drafts[n].id, links[n]) for n in new])
        if work.request.derived_from and new:
            ids = [drafts[n].id for n in new]
            await store.derive(tx.conn, work.request.derived_from, ids)
        for n in new:
            await self._relate(tx, work, drafts[n], links[n])
        return {number: by_key[draft.key] for number, draft in enumerate(drafts)}

    async def _make_way(self, tx: Tx, work: _Work, drafts: Sequence[Draft]) -> None:
        """Settle with what says the same already, and is less trusted or less protected.

        What is trusted less is closed, and superseded by who is trusted more and says it too: the
        new row has its own author, stands on its own, and keeps what the old one was protected by.
        Otherwise the row stays, protected as the stricter of the two.
        """
        by_key = {draft.key: draft for draft in drafts}
        standing = await store.standing(tx.conn, work.writer.namespace, list(by_key))
        for id_, key, trust, label in standing:
            draft = by_key[key]
            if trust < work.writer.trust:
                draft.label = strictest(draft.label, label)
                draft.since = await store.outdo(tx.conn, id_, work.writer.now)
                draft.supersedes = id_
            else:
                await self._tighten(tx, work, id_, label, draft)

    async def _tighten(self, tx: Tx, work: _Work, id_: UUID, label: Label, draft: Draft) -> None:
        """Protect a row that stands, and all that rests on it, no less than the draft is."""
        new = strictest(label, draft.binds)
        if covers(label, draft.binds):
            return
        await store.label(tx.conn, id_, new)
        rows = await lineage.reached(tx, id_)
        below = [below for below in rows if below != id_]
        touched = [work.writer.namespace, *await store.tighten(tx.conn, below, new)]
        work.tightened += len(touched)
        who = work.frame.who
        for namespace in sorted({*touched} - {who.namespace}):
            act = act_of(
                who, "mem.label", f"memory:{id_}", Outcome.OK,
                detail=f"sensitivity={new.sensitivity} tightened={touched.count(namespace)}",
            )  # fmt: skip
            await self._audit.record(tx, replace(act, namespace=namespace))

    async def _place(self, tx: Tx, work: _Work, conversation: UUID) -> None:
        """Give a single turn its place: behind the last one, or in a session of its own."""
        draft = work.prepared.drafts[0]
        draft.session, draft.position = work.prepared.session, 0
        await store.take(tx.conn, f"conversation {conversation}")
        last = await store.last_turn(tx.conn, conversation)
        if last is None:
            return
        moment = draft.event_time or work.writer.now
        if abs(moment - last["at"]) < SESSION_ENDS:
            draft.session, draft.position = last["session_id"], last["position"] + 1

    async def _link(self, tx: Tx, work: _Work) -> list[list[Linked]]:
        texts = [draft.mentions for draft in work.prepared.drafts]
        links = await entities.link_many(
            tx,
            namespace=work.writer.namespace,
            readable=work.frame.scope.own,
            texts=texts,
            actor=work.writer.actor,
            now=work.writer.now,
            ids=self._ids,
        )
        work.linked = {
            mention.normal: one
            for text, linked in zip(texts, links, strict=True)
            for mention in text
            for one in linked
            if one.mention == mention.text
        }
        return links

    async def _relate(self, tx: Tx, work: _Work, draft: Draft, linked: Sequence[Linked]) -> None:
        await relationships.of_fact(
            tx, self._ids, namespace=work.writer.namespace, actor=work.writer.actor,
            memory=draft.id, kind=draft.kind, content=draft.content, linked=linked,
        )  # fmt: skip

    async def _hold(self, tx: Tx, work: _Work) -> None:
        held = await store.hold_sources(tx.conn, work.request.derived_from)
        for id_ in work.request.derived_from:
            if id_ not in held:
                raise Conflict(f"Memory {id_} was retracted; nothing can be derived from it.")
        # Their trust never changes; how they are protected may have, since we looked.
        for draft in work.prepared.drafts:
            draft.label = inherited(draft.label, *held.values())
            draft.binds = inherited(draft.binds, *held.values())

    async def _stale(self, tx: Tx, work: _Work) -> tuple[UUID | None, tuple[UUID, bytes] | None]:
        """Return the copy that is to be closed, and the one that says the same; None each."""
        draft = work.prepared.drafts[0]
        copies = await store.copies(tx.conn, work.writer.namespace, draft.kind, work.request.source)
        if len(copies) > 1:
            raise Conflict(_COPY_IS_TWO)
        if not copies:
            return None, None
        id_, key, text, trust = copies[0]
        is_same = normal_text(text) == normal_text(draft.text) and trust >= work.writer.trust
        return (None, (id_, key)) if is_same else (id_, None)

    async def _close(self, tx: Tx, work: _Work, victim: UUID) -> datetime:
        namespace = work.writer.namespace
        trust = work.writer.trust
        closed = await store.close(tx.conn, victim, namespace, work.writer.now, trust=trust)
        if closed is not None:
            return closed
        found = await store.place(tx.conn, victim, namespace)
        if found is not None and found["is_current"] and found["trust"] > trust:
            raise Denied(
                f"Memory {victim} is trusted more ({found['trust']}) than what you write here "
                f"({trust}), and is not yours to supersede. Write it without that; where the two "
                "contradict each other, people are told."
            )
        if work.request.refresh:
            # It was superseded under our hands; there may be another to take its place.
            raise Again
        if found is None:
            raise NotFound("memory of your own namespace", victim)
        raise Conflict(
            f"Memory {victim} is not current any more; read it with its history, and supersede the "
            "one that is."
        )

    # --- what is said of it ---

    def _line(self, work: _Work, stored: WriteResult) -> Line:
        frame = work.frame
        self._say(work, _result(work, {0: None}))
        again = self._audit.row_of(frame.act(Outcome.OK), work.writer.now)
        self._say(work, stored)
        row = self._audit.row_of(frame.act(Outcome.OK), work.writer.now)
        return Line(
            id=row[0],
            op=frame.op,
            target=frame.target if work.prepared.conversation else None,
            stored=row[8:11],
            repeated=again[8:11],
        )

    async def _record(self, tx: Tx, work: _Work, result: WriteResult) -> None:
        self._say(work, result)
        await self._audit.record(tx, work.frame.act(Outcome.OK))

    async def _nothing(self, work: _Work) -> WriteResult:
        """Answer a request of which nothing could be stored; with a key, keep the answer."""
        result = _result(work, {})
        self._say(work, result)
        if work.idempotency is None:
            return result
        async with self._db.transaction() as tx:
            answered = await self._log.claim(tx, work.idempotency)
            if answered is not None:
                return await self._repeated(work.frame, answered)
            await self._log.answer(tx, work.idempotency, _kept(result))
            await self._record(tx, work, result)
        self._recorded(work, result)
        return result

    def _recorded(self, work: _Work, result: WriteResult) -> None:
        self._say(work, result)
        work.frame.is_recorded = True

    def _say(self, work: _Work, result: WriteResult) -> None:
        frame = work.frame
        if work.prepared.conversation is not None:
            frame.target = f"conversation:{work.prepared.conversation}"
        elif len(result.items) == 1 and result.items[0].id is not None:
            frame.target = f"memory:{result.items[0].id}"
        frame.detail = _detail(result)
        if work.tightened:
            frame.detail += f" tightened={work.tightened}"


class _Known:
    """Names that were resolved a moment ago, by namespace; bounded, and good for half a minute.

    A name that leads elsewhere since then (a merge, in another process perhaps) still leads to an
    entity that was merged into the right one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: OrderedDict[tuple[str, str], tuple[float, Linked]] = OrderedDict()

    def all_of(self, namespace: str, names: Sequence[Mention]) -> list[Linked] | None:
        """Return the entities of all the names, each once; None where one is not known."""
        now = self._clock.monotonic()
        links: dict[UUID, Linked] = {}
        for name in names:
            until, one = self._found.get((namespace, name.normal), (now, None))
            if one is None or until <= now:
                return None
            links.setdefault(
                one.entity_id, replace(one, mention=name.text, confidence=name.confidence)
            )
        return list(links.values())

    def add(self, namespace: str, linked: Mapping[str, Linked]) -> None:
        """Remember what a transaction that has committed resolved."""
        until = self._clock.monotonic() + _KNOWN_FOR_S
        for normal, one in linked.items():
            if one.how != "said":
                kept = replace(one, how="name") if one.how == "new" else one
                self._found[namespace, normal] = until, kept
                self._found.move_to_end((namespace, normal))
        while len(self._found) > _MOST_KNOWN:
            self._found.popitem(last=False)

    def forget(self) -> None:
        self._found.clear()


def claim_of(frame: Frame, request: Write, key: str) -> Idempotency:
    """Return the claim of a key for this request; InvalidInput where the key cannot be one."""
    if not 1 <= len(key) <= MAX_KEY_CHARS:
        raise InvalidInput(
            f"An idempotency key has 1 to {MAX_KEY_CHARS} characters.", field="Idempotency-Key"
        )
    return Idempotency(
        scope=f"mem.write {frame.scope.writable} {frame.who.actor}",
        key=key,
        digest=sha256(canonical_escaped(msgspec.to_builtins(request))).digest(),
        response={},
    )


def _kept(result: WriteResult) -> dict[str, Any]:
    kept: dict[str, Any] = escape_tree(msgspec.to_builtins(result))
    return kept


def _copy_name(work: _Work) -> str:
    kind = work.prepared.drafts[0].kind
    return f"copy {work.writer.namespace} {kind} {escape(work.request.source)}"


def _is_vector(vector: Sequence[float], dims: int) -> bool:
    return len(vector) == dims and math.isfinite(math.fsum(vector))


def _links(linked: Sequence[Linked]) -> list[tuple[UUID, str, str, int]]:
    return [(one.entity_id, one.mention, one.how, one.confidence) for one in linked]


def _result(work: _Work, outcomes: Mapping[int, UUID | None]) -> WriteResult:
    """Return the answer. `outcomes` has, by place of the draft, the id that stands."""
    prepared = work.prepared
    items: list[tuple[int, Item]] = []
    repeated = superseded = 0
    for number, id_ in outcomes.items():
        draft = prepared.drafts[number]
        is_new = id_ == draft.id
        outcome: Outcomes = "deduplicated"
        if is_new:
            outcome = "stored" if draft.supersedes is None else "superseded"
        repeated += not is_new
        superseded += outcome == "superseded"
        item = Item(id=id_, outcome=outcome, supersedes=draft.supersedes if is_new else None)
        items.append((draft.index, item))
    items += [
        (one.index, Item(id=None, outcome="rejected", reason=one.reason))
        for one in prepared.rejections
    ]
    items.sort(key=lambda item: item[0])
    stored = len(outcomes) - repeated
    return WriteResult(
        stored=stored,
        rejected=tuple(prepared.rejections),
        superseded=superseded,
        deduplicated=repeated,
        items=tuple(item for _, item in items),
        conversation=prepared.conversation,
        degraded=work.degraded,
    )


def _detail(result: WriteResult) -> str:
    parts = [f"stored={result.stored}"]
    for name, count in (
        ("rejected", len(result.rejected)),
        ("superseded", result.superseded),
        ("deduplicated", result.deduplicated),
    ):
        if count:
            parts.append(f"{name}={count}")
    if result.degraded is not None:
        parts.append(f"degraded={result.degraded}")
    return " ".join(parts)

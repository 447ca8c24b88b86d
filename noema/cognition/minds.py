"""What people and scripts do to minds: create, tune, set a mode, send stimuli, speak, give goals.

Every change is a row and an event in one transaction; the mind itself learns of it by observing the
event, so a replay sees the change at the very cycle that saw it first.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import msgspec

from noema.cognition import store
from noema.cognition.attention import MAX_WEIGHT
from noema.cognition.defaults import DEFAULTS
from noema.cognition.model import FEATURES, MICRO, Mind, MindSettings, Mode
from noema.cognition.state import GOALS_KEPT
from noema.core.canonical import canonical, escape, escape_tree
from noema.core.clock import Clock, Ids, to_micros
from noema.core.errors import Conflict, InvalidInput, NotFound, TooLarge
from noema.core.identity import MAX_DEPTH, check_namespace
from noema.db.tx import Database, Tx
from noema.events.log import EventLog
from noema.events.model import NewEvent, new_event
from noema.events.unit import Idempotency, Message, Unit
from noema.events.writer import Writer

MAX_TEXT_BYTES: Final = 64 * 1024
MAX_META_BYTES: Final = 64 * 1024
MAX_META_DEPTH: Final = 32
MAX_BATCH: Final = 2_000
# A day inside what a datetime holds, so that no zone and no server pushes a time out of it.
EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")


class NewStimulus(msgspec.Struct, frozen=True, kw_only=True):
    """One stimulus as it comes from outside. Urgency in micro-units."""

    text: str
    occurred_at: datetime | None = None
    kind: str = "line"
    urgency: int = 0
    pin: bool = False
    source: str = ""
    meta: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What was appended, or had been when the same key came first."""

    ids: tuple[str, ...]
    conversation: str | None = None
    is_repeat: bool = False


class SettingsVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a mind's settings, with who saved it and why."""

    version: int
    settings: MindSettings
    note: str
    actor: str
    recorded_at: datetime


class GoalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A goal as it is listed. Priority in micro-units."""

    id: UUID
    text: str
    priority: int
    actor: str
    created_at: datetime
    closed_at: datetime | None


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a conversation; a reply names the message it answers and its cycle."""

    id: UUID
    conversation_id: UUID
    speaker: str
    text: str
    at: datetime
    in_reply_to: UUID | None
    cycle: int | None


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with its newest messages, oldest first."""

    id: UUID
    started_at: datetime
    actor: str
    messages: tuple[Spoken, ...]


class Minds:
    """The verbs on minds. Slugs name minds; an unknown one raises NotFound."""

    def __init__(
        self, *, db: Database, events: EventLog, writer: Writer, clock: Clock, ids: Ids
    ) -> None:
        self._db = db
        self._events = events
        self._writer = writer
        self._clock = clock
        self._ids = ids

    async def create(
        self,
        *,
        slug: str,
        name: str | None = None,
        namespace: str = "home",
        settings: Mapping[str, Any] | None = None,
        actor: str,
        key: str | None = None,
    ) -> Mind:
        """Create a mind that is awake, with the default settings changed by those given.

        With an idempotency key a repeated call returns the mind that the first one made.

        Raises InvalidInput for a slug or namespace that cannot be one, Conflict where it exists.
        """
        if not _SLUG.match(slug):
            raise InvalidInput(
                "A slug is 1 to 63 of a-z, 0-9 and dash, starting with a letter or digit.",
                field="slug",
            )
        check_namespace(namespace)
        memory = memory_namespace(namespace, slug)
        name = name or slug
        _check_name(name)
        chosen = merge_settings(DEFAULTS, settings or {})
        async with self._db.transaction() as tx:
            mind = self._ids.new()
            if key is not None:
                body = escape_tree([slug, name, namespace, msgspec.to_builtins(chosen)])
                wanted = idempotency_of(f"minds {actor}", key, body, {"slug": slug})
                if await self._events.claim(tx, wanted) is not None:
                    return await _only(tx, slug)
            await store.insert_mind(
                tx.conn, id_=mind, slug=slug, name=name, namespace=namespace, next_due=tx.now
            )
            await store.insert_place(
                tx.conn,
                grant=self._ids.new(),
                namespace=namespace,
                memory=memory,
                actor=actor,
                at=tx.now,
            )
            data = msgspec.to_builtins(chosen)
            await store.insert_settings(tx.conn, mind, 1, data, note="", actor=actor)
            created = self._event(
                tx, "mind.created", mind, actor, data={"settings_version": 1, "settings": data},
                content={"slug": slug, "name": name, "namespace": namespace},
            )  # fmt: skip
            await self._events.append(tx, [created])
        return await self.get(slug)

    def _event(self, tx: Tx, type_: str, mind: UUID, actor: str, **fields: Any) -> NewEvent:
        return new_event(
            self._ids, type=type_, occurred_at=tx.now, actor=actor, mind_id=mind, **fields
        )

    async def get(self, slug: str) -> Mind:
        """Return the mind of that slug."""
        async with self._db.reading() as tx:
            return await _only(tx, slug)

    async def by_id(self, mind: UUID) -> Mind:
        """Return the mind of that id."""
        async with self._db.reading() as tx:
            found = await store.minds(tx.conn, id_=mind, limit=1)
        if not found:
            raise NotFound("mind", mind)
        return found[0]

    async def list_(self, *, after: str | None = None, limit: int = 500) -> list[Mind]:
        """Return the minds by slug, those after the given one."""
        async with self._db.reading() as tx:
            return await store.minds(
                tx.conn, after=None if after is None else escape(after), limit=limit
            )

    async def backlog(self, mind: Mind) -> int:
        """Return how many stimuli the mind has not taken yet."""
        return await self._events.count_waiting(mind.id, mind.cursor)

    async def rename(self, slug: str, name: str, *, actor: str) -> Mind:
        """Give the mind another name."""
        _check_name(name)
        mind = await self.get(slug)
        async with self._db.transaction() as tx:
            await store.rename(tx.conn, mind.id, name)
            renamed = self._event(tx, "mind.renamed", mind.id, actor, content={"name": name})
            await self._events.append(tx, [renamed])
        return await self.get(slug)

    async def modes(self) -> dict[str, Mode]:
        """Return the newest version of every mode, by name."""
        async with self._db.reading() as tx:
            return newest_modes(await store.modes(tx.conn))

    async def settings(self, mind: Mind) -> MindSettings:
        """Return the settings in force."""
        return (await self.settings_history(mind, limit=1))[0].settings

    async def settings_of(self, mind: Mind, version: int) -> MindSettings:
        """Return the settings of that version, or raise NotFound."""
        async with self._db.reading() as tx:
            rows = await store.settings_versions(tx.conn, mind.id, at_most=version, limit=1)
        if not rows or rows[0]["version"] != version:
            raise NotFound("settings version", version)
        return msgspec.convert(rows[0]["settings"], MindSettings)

    async def settings_history(self, mind: Mind, *, limit: int = 50) -> list[SettingsVersion]:
        """Return the versions of the mind's settings, newest first."""
        async with self._db.reading() as tx:
            rows = await store.settings_versions(tx.conn, mind.id, limit=limit)
        return [
            SettingsVersion(
                version=r["version"],
                settings=msgspec.convert(r["settings"], MindSettings),
                note=str(r["content"].get("note", "")),
                actor=r["actor"],
                recorded_at=r["recorded_at"],
            )
            for r in rows
        ]

    async def tune(
        self,
        slug: str,
        changes: Mapping[str, Any],
        *,
        note: str = "",
        actor: str,
        expected_version: int | None = None,
    ) -> Mind:
        """Save a new version of the settings: the latest with the changes made to it.

        With `expected_version` it raises Conflict when somebody saved another meanwhile.
        """
        if len(note) > 2_000:
            raise TooLarge("A note has at most 2,000 characters.", field="note")
        mind = await self.get(slug)
        async with self._db.transaction() as tx:
            version = await store.next_settings_version(tx.conn, mind.id)
            if expected_version is not None and version != expected_version + 1:
                raise Conflict(
                    f"Version {version - 1} was saved meanwhile; look at it and save again."
                )
            rows = await store.settings_versions(tx.conn, mind.id, limit=1)
            latest = msgspec.convert(rows[0]["settings"], MindSettings)
            data = msgspec.to_builtins(merge_settings(latest, changes))
            await store.insert_settings(tx.conn, mind.id, version, data, note=note, actor=actor)
            event = self._event(
                tx, "settings.set", mind.id, actor, data={"version": version, "settings": data},
                content={"note": note} if note else None,
            )  # fmt: skip
            await self._events.append(tx, [event])
        return await self.get(slug)

    async def set_mode(
        self, slug: str, name: str, *, for_s: int | None = None, focus: str = "", actor: str
    ) -> Mind:
        """Put the mind into a mode; it wins over a cycle under way.

        `for_s` is how long an expiring mode lasts, in seconds, where not as long as usual. Raises
        InvalidInput where there is no such mode, or it does not expire.
        """
        mind = await self.get(slug)
        modes = await self.modes()
        mode = modes.get(name)
        if mode is None:
            raise InvalidInput(
                f"No mode {name!r}; there are {', '.join(sorted(modes))}.", field="mode"
            )
        if for_s is not None and not 1 <= for_s <= 7 * 86_400:
            raise InvalidInput("A mode lasts from 1 second to 7 days.", field="for_s")
        if for_s is not None and not mode.does_expire:
            raise InvalidInput(
                f"The mode {name} lasts until another is set; leave the time out.", field="for_s"
            )
        if len(focus) > 500:
            raise TooLarge("A focus has at most 500 characters.", field="focus")
        async with self._db.transaction() as tx:
            seconds = for_s if for_s is not None else mode.expires_s
            until = None if seconds is None else tx.now + timedelta(seconds=seconds)
            due = None if mode.timer_min_s is None else tx.now
            epoch = await store.set_mode(tx.conn, mind.id, name, until=until, next_due=due)
            data = {
                "mode": name,
                "version": mode.version,
                "epoch": epoch,
                "until_us": None if until is None else to_micros(until),
            }
            content = {"focus": focus} if focus else None
            event = self._event(tx, "mode.set", mind.id, actor, data=data, content=content)
            await self._events.append(tx, [event])
        return await self.get(slug)

    async def step(self, slug: str, *, actor: str, key: str | None = None) -> None:
        """Ask for one cycle now, whatever the mode; with an idempotency key, once."""
        mind = await self.get(slug)
        async with self._db.transaction() as tx:
            if key is not None:
                wanted = idempotency_of(f"steps {mind.id} {actor}", key, None, {})
                if await self._events.claim(tx, wanted) is not None:
                    return
            await self._events.append(tx, [self._event(tx, "step.requested", mind.id, actor)])

    async def receive(
        self,
        slug: str,
        stimuli: Sequence[NewStimulus],
        *,
        actor: str,
        key: str | None = None,
    ) -> Accepted:
        """Append the stimuli, all or none; return when they are durable.

        Raises TooLarge for a text or meta over 64 KiB or more than 2,000 stimuli, InvalidInput for
        a naive time or another unusable field, naming the item; IdempotencyReuse where the key came
        before with other stimuli.
        """
        if not stimuli:
            raise InvalidInput("There is no stimulus in it; send at least one.", field="items")
        if len(stimuli) > MAX_BATCH:
            raise TooLarge(
                f"{len(stimuli):,} stimuli in one batch; send at most {MAX_BATCH:,}.", field="items"
            )
        for index, stimulus in enumerate(stimuli):
            _check_stimulus(stimulus, index if len(stimuli) > 1 else None)
        mind = await self.get(slug)
        now = self._clock.now()
        events = tuple(
            new_event(
                self._ids,
                type="stimulus.received",
                occurred_at=s.occurred_at or now,
                actor=actor,
                mind_id=mind.id,
                data={"kind": s.kind, "urgency": s.urgency} | ({"pin": True} if s.pin else {}),
                content={"text": s.text}
                | ({"source": s.source} if s.source else {})
                | ({"meta": plain(s.meta)} if s.meta else {}),
            )
            for s in stimuli
        )
        ids = tuple(str(e.id) for e in events)
        idempotency = None
        if key is not None:
            body = escape_tree(msgspec.to_builtins(list(stimuli)))
            idempotency = idempotency_of(f"stimuli {mind.id} {actor}", key, body, {"ids": ids})
        receipt = await self._writer.submit(Unit(events=events, idempotency=idempotency))
        if receipt.repeated is not None:
            return Accepted(ids=tuple(receipt.repeated["ids"]), is_repeat=True)
        return Accepted(ids=ids)

    async def say(
        self,
        slug: str,
        text: str,
        *,
        speaker: str,
        actor: str,
        conversation: UUID | None = None,
        key: str | None = None,
    ) -> Accepted:
        """Speak to the mind, in the given conversation, the actor's latest, or a new one."""
        if not text.strip():
            raise InvalidInput("There is nothing in the message; write something.", field="text")
        _check_text(text, None)
        mind = await self.get(slug)
        chosen = conversation or await self._latest_conversation(mind, speaker) or self._ids.new()
        if conversation is not None:
            async with self._db.reading() as tx:
                if await store.conversation_mind(tx.conn, conversation) != mind.id:
                    raise NotFound("conversation", conversation)
        now = self._clock.now()
        event = new_event(
            self._ids,
            type="message.received",
            occurred_at=now,
            actor=actor,
            mind_id=mind.id,
            data={"conversation": chosen},
            content={"text": text, "speaker": speaker},
        )
        message = Message(
            id=event.id, conversation=chosen, mind=mind.id, speaker=speaker, text=text, at=now
        )
        idempotency = None
        if key is not None:
            answer = {"ids": [str(event.id)], "conversation": str(chosen)}
            body = escape_tree({"text": text, "conversation": str(conversation)})
            idempotency = idempotency_of(f"messages {mind.id} {actor}", key, body, answer)
        receipt = await self._writer.submit(
            Unit(events=(event,), messages=(message,), idempotency=idempotency)
        )
        if receipt.repeated is not None:
            return Accepted(
                ids=tuple(receipt.repeated["ids"]),
                conversation=receipt.repeated["conversation"],
                is_repeat=True,
            )
        return Accepted(ids=(str(event.id),), conversation=str(chosen))

    async def _latest_conversation(self, mind: Mind, speaker: str) -> UUID | None:
        async with self._db.reading() as tx:
            rows = await store.conversations(tx.conn, mind.id, limit=50)
        return next((r["id"] for r in rows if r["actor"] == speaker), None)

    async def conversations(self, mind: Mind, *, limit: int = 20) -> list[Conversation]:
        """Return the mind's conversations, newest first, each with its last 200 messages."""
        async with self._db.reading() as tx:
            rows = await store.conversations(tx.conn, mind.id, limit=limit)
            said = [
                await store.messages(tx.conn, mind.id, conversation=r["id"], limit=200)
                for r in rows
            ]
        return [
            Conversation(
                id=r["id"],
                started_at=r["started_at"],
                actor=r["actor"],
                messages=tuple(Spoken(**m) for m in lines),
            )
            for r, lines in zip(rows, said, strict=True)
        ]

    async def transcript(self, mind: Mind, *, limit: int = 200) -> list[Spoken]:
        """Return the newest messages of all the mind's conversations, oldest first."""
        async with self._db.reading() as tx:
            rows = await store.messages(tx.conn, mind.id, conversation=None, limit=limit)
        return [Spoken(**m) for m in rows]

    async def workspace(self, mind: Mind) -> tuple[int, list[dict[str, Any]]]:
        """Return the cycle of the last checkpoint and its slots, as they were admitted."""
        async with self._db.reading() as tx:
            return await store.workspace(tx.conn, mind.id)

    async def goals(self, mind: Mind, *, closed: bool = False) -> list[GoalRow]:
        """Return the mind's goals, newest first; the closed ones too where asked."""
        async with self._db.reading() as tx:
            return [GoalRow(**r) for r in await store.goals(tx.conn, mind.id, closed=closed)]

    async def add_goal(
        self, slug: str, text: str, *, priority: int, actor: str, key: str | None = None
    ) -> GoalRow:
        """Give the mind a goal. Priority in micro-units, 0 to 1,000,000.

        With an idempotency key a repeated call returns the goal that the first one gave. Raises
        Conflict where the mind has as many open goals as it can keep in sight.
        """
        if not text.strip():
            raise InvalidInput("A goal needs a text: the words to watch for.", field="text")
        if len(text) > 1_000:
            raise TooLarge("A goal has at most 1,000 characters.", field="text")
        if not 0 <= priority <= MICRO:
            raise InvalidInput("A priority is from 0 to 1.", field="priority")
        mind = await self.get(slug)
        async with self._db.transaction() as tx:
            goal = self._ids.new()
            if key is not None:
                body = escape_tree([text, priority])
                wanted = idempotency_of(f"goals {mind.id} {actor}", key, body, {"goal": str(goal)})
                answered = await self._events.claim(tx, wanted)
                if answered is not None:
                    return GoalRow(**await store.goal(tx.conn, UUID(answered["goal"])))
            if await store.count_open_goals(tx.conn, mind.id) >= GOALS_KEPT:
                raise Conflict(f"{slug} has {GOALS_KEPT} open goals; close one first.")
            await store.insert_goal(tx.conn, mind.id, goal, text, priority, actor=actor, at=tx.now)
            event = self._event(
                tx, "goal.set", mind.id, actor,
                data={"goal": goal, "priority": priority}, content={"text": text},
            )  # fmt: skip
            await self._events.append(tx, [event])
            return GoalRow(
                id=goal,
                text=text,
                priority=priority,
                actor=actor,
                created_at=tx.now,
                closed_at=None,
            )

    async def close_goal(self, slug: str, goal: UUID, *, actor: str) -> None:
        """Close an open goal; raises NotFound where the mind has no such open goal."""
        mind = await self.get(slug)
        async with self._db.transaction() as tx:
            if not await store.close_goal(tx.conn, mind.id, goal, tx.now):
                raise NotFound("open goal", goal)
            event = self._event(tx, "goal.closed", mind.id, actor, data={"goal": goal})
            await self._events.append(tx, [event])


def plain(value: Any) -> Any:
    """Return the JSON value with every float as its text: content holds integers only.

    Two writers spell a float differently, and a commitment is over the spelling.
    """
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def newest_modes(modes: Mapping[tuple[str, int], Mode]) -> dict[str, Mode]:
    """Return each mode's newest version, by name."""
    newest: dict[str, Mode] = {}
    for (name, version), mode in sorted(modes.items()):
        known = newest.get(name)
        if known is None or known.version < version:
            newest[name] = mode
    return newest


_LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "threshold": (-(10**15), 10**15),
    "capacity": (1, 50),
    "slot_half_life_s": (1, 30 * 86_400),
    "batch": (1, 2_000),
    "quota": (1, 2_000),
    "pending_limit": (1, 2_000),
    "pending_cycles": (1, 10_000),
    "reflect_every": (1, 10_000),
}


def merge_settings(settings: MindSettings, changes: Mapping[str, Any]) -> MindSettings:
    """Return the settings with the changes made; raise InvalidInput naming what is wrong.

    Weights are in micro-units, 0 to 10^7; the others are whole numbers within stated bounds.
    """
    values: dict[str, Any] = msgspec.to_builtins(settings)
    for name, value in changes.items():
        if name == "weights":
            if not isinstance(value, Mapping):
                raise InvalidInput("weights is an object of feature: weight.", field="weights")
            values["weights"] = values["weights"] | _checked_weights(value)
        elif name in _LIMITS:
            low, high = _LIMITS[name]
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidInput(
                    f"{name} is a whole number from {low:,} to {high:,}.", field=name
                )
            values[name] = value
        else:
            known = ", ".join(("weights", *_LIMITS))
            raise InvalidInput(f"No setting {name!r}; there are {known}.", field=name)
    return msgspec.convert(values, MindSettings)


def _checked_weights(weights: Mapping[str, Any]) -> dict[str, int]:
    for name, value in weights.items():
        if name not in FEATURES:
            raise InvalidInput(
                f"No feature {name!r}; there are {', '.join(FEATURES)}.", field=f"weights.{name}"
            )
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_WEIGHT:
            raise InvalidInput(
                f"The weight of {name} is from 0 to {MAX_WEIGHT / MICRO:g}.",
                field=f"weights.{name}",
            )
    return dict(weights)


def idempotency_of(scope: str, key: str, body: Any, response: Mapping[str, Any]) -> Idempotency:
    """Return the claim of a key for this (escaped) body; InvalidInput where the key is too long."""
    if not 1 <= len(key) <= 200:
        raise InvalidInput("An idempotency key has 1 to 200 characters.", field="Idempotency-Key")
    digest = sha256(canonical(body)).digest()
    return Idempotency(scope=scope, key=key, digest=digest, response=response)


def memory_namespace(namespace: str, slug: str) -> str:
    """Return where a mind remembers: `<namespace>/minds/<slug>`.

    Raises InvalidInput where it lives so deep that there is no room below.
    """
    if namespace.count("/") + 3 > MAX_DEPTH:
        raise InvalidInput(
            f"A mind lives at most {MAX_DEPTH - 2} segments deep, for it remembers two below.",
            field="namespace",
        )
    return f"{namespace}/minds/{slug}"


async def _only(tx: Tx, slug: str) -> Mind:
    # What cannot be a slug names no mind, and may hold what no parameter of SQL can.
    found = await store.minds(tx.conn, slug=slug, limit=1) if _SLUG.match(slug) else ()
    if not found:
        raise NotFound("mind", slug)
    return found[0]


def _check_name(name: str) -> None:
    # What has no place in a text of PostgreSQL is kept escaped, and counts as long as that is.
    if not 1 <= len(escape(name)) <= 200:
        raise InvalidInput("A name has 1 to 200 characters.", field="name")


def _check_stimulus(stimulus: NewStimulus, index: int | None) -> None:
    prefix = "" if index is None else f"items[{index}]."
    _check_text(stimulus.text, index)
    if not _KIND.match(stimulus.kind) or stimulus.kind == "message":
        raise InvalidInput(
            f"{prefix}kind is a short lower-case word such as line or webhook"
            " (a message goes to …/messages).",
            field=f"{prefix}kind",
        )
    if stimulus.occurred_at is not None and stimulus.occurred_at.tzinfo is None:
        raise InvalidInput(
            f"{prefix}occurred_at has no time zone; add one, such as Z or +02:00.",
            field=f"{prefix}occurred_at",
        )
    if stimulus.occurred_at is not None and not EARLIEST <= stimulus.occurred_at <= LATEST:
        raise InvalidInput(
            f"{prefix}occurred_at is too far from the present to be kept.",
            field=f"{prefix}occurred_at",
        )
    _check_meta(stimulus.meta, f"{prefix}meta")
    if not 0 <= stimulus.urgency <= MICRO:
        raise InvalidInput(f"{prefix}urgency is from 0 to 1.", field=f"{prefix}urgency")
    if len(stimulus.source) > 500:
        raise TooLarge(f"{prefix}source has at most 500 characters.", field=f"{prefix}source")


def _check_meta(meta: Mapping[str, Any], field: str) -> None:
    if not meta:
        return
    level: list[Any] = [meta]
    for _ in range(MAX_META_DEPTH):
        level = [
            inner
            for value in level
            if isinstance(value, (Mapping, list, tuple))
            for inner in (value.values() if isinstance(value, Mapping) else value)
        ]
        if not level:
            break
    else:
        raise InvalidInput(f"{field} is nested over {MAX_META_DEPTH} levels deep.", field=field)
    size = len(canonical(escape_tree(plain(meta))))
    if size > MAX_META_BYTES:
        raise TooLarge(
            f"{field} is {size:,} bytes long; at most {MAX_META_BYTES:,} are taken.", field=field
        )


def _check_text(text: str, index: int | None) -> None:
    field = "text" if index is None else f"items[{index}].text"
    size = len(text.encode("utf-8", errors="surrogatepass"))
    if size > MAX_TEXT_BYTES:
        raise TooLarge(
            f"{field} is {size:,} bytes long; at most {MAX_TEXT_BYTES:,} are taken.", field=field
        )

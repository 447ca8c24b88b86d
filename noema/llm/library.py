"""The prompts as they are kept: versions that never change, and which of them is in use."""

import difflib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from noema import __version__
from noema.core.canonical import escape, unescape
from noema.core.clock import Clock
from noema.core.errors import Conflict, InvalidInput, NotFound
from noema.core.fresh import Fresh
from noema.core.identity import Identity
from noema.db.tx import Database, Tx
from noema.events.audit import Audit
from noema.llm import prompts
from noema.llm.acts import require_administrator
from noema.llm.defaults import DEFAULTS
from noema.llm.inputs import INPUTS
from noema.llm.model import ChatMessage
from noema.llm.prompts import Rendered
from noema.llm.store import prompts as store

SHIPPED: Final = "noema"
NOTE_CHARS: Final = 500
_FRESH_S: Final = 0.5
_MOST_USES: Final = 500


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a prompt. `actor` is "noema" where it was shipped."""

    name: str
    version: int
    system: str
    template: str
    note: str
    actor: str
    created_at: datetime


class PromptInUse(msgspec.Struct, frozen=True, kw_only=True):
    """The version that is in use, since when and by whom; `newest` may be a later one."""

    prompt: Prompt
    used_by: str
    since: datetime
    newest: int


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """A version was put to use."""

    name: str
    version: int
    actor: str
    since: datetime


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as a request takes it: messages, and the name and version they come of."""

    messages: tuple[ChatMessage, ...]
    prompt: tuple[str, int]
    mark: str


class Library:
    """Keeps, compares and renders prompts; administrators change them, and every change is audited.

    What is in use is looked up at most twice a second: a change in another daemon is heard of
    within that time, one in this daemon at once.
    """

    def __init__(self, *, db: Database, audit: Audit, clock: Clock) -> None:
        self._db = db
        self._audit = audit
        self._fresh: Fresh[None, Mapping[str, PromptInUse]] = Fresh(clock, for_s=_FRESH_S)

    async def install_defaults(self) -> None:
        """Add what is shipped and not there yet; for the start of a daemon.

        A default that changed since becomes a new version. It is put to use where what was in use
        had been shipped, too, and nobody chose it; else it waits to be looked at.
        """
        async with self._db.transaction() as tx:
            await store.alone(tx.conn)
            used = {row["name"]: row for row in await store.in_use(tx.conn)}
            for name, default in DEFAULTS.items():
                rows = await store.versions(tx.conn, name)
                shipped = {(r["system"], r["template"]) for r in rows if r["actor"] == SHIPPED}
                if (escape(default.system), escape(default.template)) in shipped:
                    continue
                version = await self._insert(
                    tx, name, default.system, default.template, f"Noema {__version__}", SHIPPED
                )
                if name not in used or used[name]["used_by"] == SHIPPED:
                    await store.use(tx.conn, name, version, by=SHIPPED, at=tx.now)
        self._fresh.forget()

    async def in_use(self) -> tuple[PromptInUse, ...]:
        """Return the version of every prompt that is in use, by name."""
        return tuple((await self._current()).values())

    async def get(self, name: str, version: int | None = None) -> Prompt:
        """Return a version of a prompt, the one in use where none is named; raises NotFound."""
        if version is None:
            found = (await self._current()).get(name)
            if found is None:
                raise NotFound("prompt", name)
            return found.prompt
        async with self._db.reading() as tx:
            return await _version(tx, name, version)

    async def versions(self, name: str) -> tuple[Prompt, ...]:
        """Return all versions of a prompt, newest first; raises NotFound."""
        async with self._db.reading() as tx:
            rows = await store.versions(tx.conn, name)
        if not rows:
            raise NotFound("prompt", name)
        return tuple(_prompt(row) for row in rows)

    async def uses(self, name: str) -> tuple[Use, ...]:
        """Return which version was put to use when, newest first, 500 at most."""
        async with self._db.reading() as tx:
            return tuple(Use(**row) for row in await store.uses(tx.conn, name, _MOST_USES))

    async def diff(self, name: str, old: int, new: int) -> str:
        """Return what changed between two versions, as a unified diff; empty where nothing did."""
        async with self._db.reading() as tx:
            first, second = await _version(tx, name, old), await _version(tx, name, new)
        lines: list[str] = []
        for part in ("system", "template"):
            lines += difflib.unified_diff(
                getattr(first, part).splitlines(),
                getattr(second, part).splitlines(),
                f"{name} {old} {part}",
                f"{name} {new} {part}",
                lineterm="",
            )
        return "".join(f"{line}\n" for line in lines)

    # --- changes -----------------------------------------------------------------------------

    async def save(
        self,
        by: Identity,
        name: str,
        *,
        system: str,
        template: str,
        note: str = "",
        base: int | None = None,
        use: bool = False,
    ) -> Prompt:
        """Keep a new version, and put it to use where asked; return it.

        `base` is the newest version as the writer knew it. Raises Denied, NotFound, InvalidInput
        with the line that is wrong, and Conflict where somebody else saved one meanwhile.
        """
        async with self._audit.doing(by, "llm.prompt-save", f"prompt:{name}") as deed:
            require_administrator(by)
            _require_known(name)
            if len(note) > NOTE_CHARS:
                raise InvalidInput(f"A note has at most {NOTE_CHARS} characters.", field="note")
            prompts.check(name, system, template)
            await store.alone(deed.tx.conn)
            rows = await store.versions(deed.tx.conn, name)
            newest = rows[0]["version"] if rows else 0
            if base is not None and base != newest:
                raise Conflict(
                    f"Version {newest} of {name} was saved meanwhile; look at it, then save again."
                )
            version = await self._insert(deed.tx, name, system, template, note, by.actor)
            if use:
                await store.use(deed.tx.conn, name, version, by=by.actor, at=deed.tx.now)
            deed.detail = f"version {version}{', in use' if use else ''}"
            saved = await _version(deed.tx, name, version)
        self._fresh.forget()
        return saved

    async def use(self, by: Identity, name: str, version: int) -> Prompt:
        """Put a version to use, an older one too; raises Denied, NotFound and InvalidInput."""
        async with self._audit.doing(by, "llm.prompt-use", f"prompt:{name}") as deed:
            require_administrator(by)
            _require_known(name)
            await store.alone(deed.tx.conn)
            chosen = await _version(deed.tx, name, version)
            # What was saved by an older Noema may ask for fields that are no more.
            prompts.check(name, chosen.system, chosen.template)
            await store.use(deed.tx.conn, name, version, by=by.actor, at=deed.tx.now)
            deed.detail = f"version {version}"
        self._fresh.forget()
        return chosen

    # --- rendering ---------------------------------------------------------------------------

    async def render(self, name: str, given: msgspec.Struct, version: int | None = None) -> Ready:
        """Return the prompt for this input, of the version in use unless another is named.

        Raises NotFound, InvalidInput and TooLarge; see `prompts.render`.
        """
        prompt = await self.get(name, version)
        rendered = prompts.render(name, prompt.system, prompt.template, given)
        return Ready(messages=rendered.messages, prompt=(name, prompt.version), mark=rendered.mark)

    def preview(self, name: str, system: str, template: str) -> Rendered:
        """Return what the texts make of a sample; raises NotFound and InvalidInput."""
        _require_known(name)
        return prompts.check(name, system, template)

    # --- what is known -----------------------------------------------------------------------

    async def _current(self) -> Mapping[str, PromptInUse]:
        return await self._fresh.get(None, self._read)

    async def _read(self) -> Mapping[str, PromptInUse]:
        async with self._db.reading() as tx:
            return {row["name"]: _in_use(row) for row in await store.in_use(tx.conn)}

    async def _insert(
        self, tx: Tx, name: str, system: str, template: str, note: str, actor: str
    ) -> int:
        values = (name, escape(system), escape(template), escape(note), actor, tx.now)
        return await store.insert(tx.conn, values)


def _require_known(name: str) -> None:
    if name not in INPUTS:
        raise NotFound("prompt", name)


async def _version(tx: Tx, name: str, version: int) -> Prompt:
    rows = await store.versions(tx.conn, name, version)
    if not rows:
        raise NotFound("prompt", f"{name}, version {version},")
    return _prompt(rows[0])


def _prompt(row: Mapping[str, Any]) -> Prompt:
    return Prompt(
        name=row["name"],
        version=row["version"],
        system=unescape(row["system"]),
        template=unescape(row["template"]),
        note=unescape(row["note"]),
        actor=row["actor"],
        created_at=row["created_at"],
    )


def _in_use(row: Mapping[str, Any]) -> PromptInUse:
    return PromptInUse(
        prompt=_prompt(row), used_by=row["used_by"], since=row["since"], newest=row["newest"]
    )

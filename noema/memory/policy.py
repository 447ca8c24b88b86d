"""Memory policy: what each namespace sets, what holds in one, and who has acknowledged it.

What holds in a namespace is merged along its path, outermost first: a limit only ever gets lower, a
review only stricter, directives only more; of `driver` and `retention_days` the nearest counts.
"""

from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec

from noema.core.canonical import canonical_escaped, escape_tree, unescape_tree
from noema.core.clock import Clock
from noema.core.errors import InvalidInput, NotFound
from noema.core.fresh import Fresh
from noema.core.identity import check_namespace
from noema.db.tx import Database, Tx
from noema.memory.frame import Frame
from noema.memory.model import MAX_TEXT_CHARS, Directive, EffectivePolicy, PolicyDocument
from noema.memory.reading import Concealed
from noema.memory.rights import may_look_through, require_management
from noema.memory.scope import by_place
from noema.memory.store import policy as store
from noema.memory.work import Work

BASELINE: Final = "baseline"
CALLS_PER_MINUTE: Final = 120_000
"""Where no policy says less: so many that only a loop gone wild meets it."""

_STRICTNESS: Final = ("off", "auto", "review")
_MOST_CALLS: Final = 1_000_000
_MOST_DAYS: Final = 36_500
_MOST_DIRECTIVES: Final = 50
_DIRECTIVE_CHARS: Final = 2_000
_ID_CHARS: Final = 80


class Policies:
    """Sets, merges and acknowledges memory policies."""

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        work: Work,
        drivers: Collection[str] = (BASELINE,),
    ) -> None:
        self._db = db
        self._work = work
        self._drivers = frozenset(drivers)
        self._fresh: Fresh[str, EffectivePolicy] = Fresh(clock)

    async def effective(self, namespace: str) -> EffectivePolicy:
        """Return what holds in the namespace, as it was set less than a second ago."""
        return await self._fresh.get(namespace, lambda: self._load(namespace))

    async def _load(self, namespace: str) -> EffectivePolicy:
        path = by_place(namespace)
        async with self._db.statements() as tx:
            found = await store.along(tx.conn, path)
        return merged(namespace, [document_of(found[p][1]) for p in path if p in found])

    async def shown(self, frame: Frame) -> EffectivePolicy:
        """Return what holds where the caller acts, and whether they acknowledged it."""
        async with self._db.reading() as tx:
            return await self._acknowledged(tx, frame)

    async def _acknowledged(self, tx: Tx, frame: Frame) -> EffectivePolicy:
        policy, who = frame.policy, frame.who
        is_acknowledged = not policy.directives or await store.is_acknowledged(
            tx.conn, who.namespace, who.actor, bytes.fromhex(policy.digest)
        )
        return msgspec.structs.replace(policy, acknowledged=is_acknowledged)

    async def acknowledge(self, frame: Frame, digest: str) -> EffectivePolicy:
        """Keep that the caller has read the directives of this digest.

        Raises InvalidInput where they are others now: one acknowledges what one was shown.
        """
        policy, who = frame.policy, frame.who
        frame.target = f"policy:{policy.digest}"
        if digest.strip().lower() != policy.digest:
            raise InvalidInput(
                "The directives are others by now; ask for the policy and acknowledge its digest.",
                field="digest",
            )
        async with self._work.doing(frame) as tx:
            await store.acknowledge(
                tx.conn, who.namespace, who.actor, bytes.fromhex(policy.digest), tx.now
            )
        return msgspec.structs.replace(policy, acknowledged=True)

    async def of(self, frame: Frame, namespace: str) -> tuple[int, PolicyDocument]:
        """Return version and document that the namespace itself sets; 0 and nothing where none.

        One sees those of one's path, and who watches over a subtree those in it.
        """
        frame.target = f"namespace:{namespace}"
        check_namespace(namespace)
        is_seen = namespace in frame.scope.own or may_look_through(frame.who, namespace)
        async with self._db.reading() as tx:
            if not is_seen:
                is_there = await store.has_namespace(tx.conn, namespace)
                raise (Concealed if is_there else NotFound)("namespace", namespace)
            found = await store.along(tx.conn, [namespace])
        version, document = found.get(namespace, (0, {}))
        return version, document_of(document)

    async def set(self, frame: Frame, namespace: str, document: PolicyDocument) -> EffectivePolicy:
        """Keep a new version of what the namespace sets; return what holds in it then."""
        frame.target = f"namespace:{namespace}"
        check_namespace(namespace)
        require_management(frame.who, namespace)
        _check(document, self._drivers)
        async with self._work.doing(frame) as tx:
            if not await store.lock_namespace(tx.conn, namespace):
                raise NotFound("namespace", namespace)
            version = await store.insert(
                tx.conn, namespace, _kept(document), frame.who.actor, tx.now
            )
            frame.detail = f"version={version}"
        self._fresh.forget()
        return await self.effective(namespace)


def document_of(kept: Mapping[str, Any]) -> PolicyDocument:
    """Return the document that was kept."""
    return msgspec.convert(unescape_tree(dict(kept)), PolicyDocument)


def _kept(document: PolicyDocument) -> dict[str, Any]:
    plain: dict[str, Any] = escape_tree(msgspec.to_builtins(document))
    return {name: value for name, value in plain.items() if value not in (None, [], ())}


def merged(namespace: str, along: list[PolicyDocument]) -> EffectivePolicy:
    """Return what holds in a namespace, from the documents along its path, outermost first."""

    def least(name: str, default: int) -> int:
        said: list[int] = [v for d in along if (v := getattr(d, name)) is not None]
        return min([default, *said])

    def nearest(name: str) -> Any:
        return next((v for d in reversed(along) if (v := getattr(d, name)) is not None), None)

    reviews = [d.conflict_review for d in along if d.conflict_review is not None]
    review: Literal["auto", "review", "off"] = (
        max(reviews, key=_STRICTNESS.index) if reviews else "auto"
    )
    directives = tuple(d for document in along for d in document.directives)
    return EffectivePolicy(
        namespace=namespace,
        driver=nearest("driver") or BASELINE,
        reads_per_minute=least("reads_per_minute", CALLS_PER_MINUTE),
        writes_per_minute=least("writes_per_minute", CALLS_PER_MINUTE),
        max_text_chars=least("max_text_chars", MAX_TEXT_CHARS),
        retention_days=nearest("retention_days"),
        conflict_review=review,
        directives=directives,
        digest=digest_of(directives),
    )


def digest_of(directives: tuple[Directive, ...]) -> str:
    """Return what one acknowledges: SHA-256 of the directives in their order, in hexadecimal."""
    return sha256(canonical_escaped([[d.id, d.text] for d in directives])).hexdigest()


def _check(document: PolicyDocument, drivers: Collection[str]) -> None:
    if document.driver is not None and document.driver not in drivers:
        raise InvalidInput(
            f"No driver {document.driver[:60]!r}; there are {', '.join(sorted(drivers))}.",
            field="driver",
        )
    for name, most in (
        ("reads_per_minute", _MOST_CALLS),
        ("writes_per_minute", _MOST_CALLS),
        ("max_text_chars", MAX_TEXT_CHARS),
        ("retention_days", _MOST_DAYS),
    ):
        value = getattr(document, name)
        if value is not None and not 1 <= value <= most:
            raise InvalidInput(f"{name} is a whole number from 1 to {most:,}.", field=name)
    if len(document.directives) > _MOST_DIRECTIVES:
        raise InvalidInput(
            f"A namespace has at most {_MOST_DIRECTIVES} directives.", field="directives"
        )
    if len({d.id for d in document.directives}) < len(document.directives):
        raise InvalidInput("Two directives have the same id.", field="directives")
    for directive in document.directives:
        if not 1 <= len(directive.id) <= _ID_CHARS or not directive.text.strip():
            raise InvalidInput(
                f"A directive has an id of 1 to {_ID_CHARS} characters and a text.",
                field="directives",
            )
        if len(directive.text) > _DIRECTIVE_CHARS:
            raise InvalidInput(
                f"A directive has at most {_DIRECTIVE_CHARS:,} characters.", field="directives"
            )

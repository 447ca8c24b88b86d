"""Bodies of the memory syscalls. Who acts comes from the credential; no body may say it.

The bodies that are the syscalls' own requests stand in `noema.memory.model`; here are the others.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from noema.core.errors import InvalidInput
from noema.memory.model import Kind, Search, Status
from noema.web import forms
from noema.web.call import Call

T = TypeVar("T")

_WHO: Final = frozenset({"namespace", "actor", "role", "agentid"})
# Looked for in the bytes first: most bodies hold none of these, nor an escape that may be one.
_MAYBE: Final = re.compile(rb"namespace|actor|role|agent|\\u", re.IGNORECASE)
_SEPARATORS: Final = re.compile(r"[\s_-]+")
# Typed content is the memory's own: a fact may well have a role in it.
_OWN_WORDS: Final = "content"


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A syscall that takes nothing: `{}`, or no body at all."""


class SearchBody(Search, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """POST /v1/mem/search; `viewNamespace` and `viewActor` are other eyes, for auditors."""

    view_namespace: str | None = None
    view_actor: str | None = None

    @property
    def view(self) -> tuple[str, str] | None:
        """Whose eyes, where they are not one's own."""
        if self.view_namespace is None and self.view_actor is None:
            return None
        if self.view_namespace is None or self.view_actor is None:
            raise InvalidInput(
                "Other eyes are those of an actor in a namespace: name both.", field="viewNamespace"
            )
        return self.view_namespace, self.view_actor

    @property
    def request(self) -> Search:
        """The request without whose eyes it is made through."""
        fields = {f: getattr(self, f) for f in Search.__struct_fields__}
        return Search(**fields)


class MemoryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST …/pin and …/unpin: one memory, as `id` or as `memory`."""

    id: UUID | None = None
    memory: UUID | None = None

    @property
    def named(self) -> UUID:
        """The memory; raises InvalidInput unless it is named once."""
        found = self.id or self.memory
        if found is None or (self.id is not None and self.memory not in (None, self.id)):
            raise InvalidInput("Name the memory: its id.", field="id")
        return found


class AckBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST …/policy-ack: the digest of the directives that were read."""

    digest: str


class RetractBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST …/retract."""

    id: UUID
    reason: str


class RestoreBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST …/restore: the retraction that is to be undone."""

    retraction: UUID


class OutcomeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST …/conflicts/{id}/resolve."""

    outcome: str


class MergeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST …/entities/{id}/merge: the entity that is the same as the one in the address."""

    merge: UUID


class RefuseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST …/entities/{id}/refuse: the entity that is another, however alike the names."""

    similar: UUID


class AliasBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST …/entities/{id}/aliases."""

    name: str


def asked(call: Call, type_: type[T]) -> T:
    """Return the body as that type.

    Raises InvalidInput, also where it says in what namespace, as what actor or role to act, and
    UnsupportedMedia.
    """
    _refuse_who(call.query)
    if _MAYBE.search(call.body):
        _refuse_who(call.json(dict[str, Any]))
    return call.json(type_)


def nothing(call: Call) -> None:
    """Check that nothing was sent where nothing is taken."""
    _refuse_who(call.query)
    if call.body.strip():
        asked(call, Nothing)


def kinds_of(call: Call) -> tuple[Kind, ...]:
    """Return the kinds of the query, `kinds=fact,episode`."""
    named = [k for k in call.query.get("kinds", "").split(",") if k]
    return tuple(forms.choice({"kinds": k}, "kinds", Kind) for k in named)


def status_of(call: Call) -> Status | None:
    """Return the status of the query, None where it names none."""
    return forms.choice(call.query, "status", Status) if call.query.get("status") else None


def id_of(call: Call, name: str) -> UUID | None:
    """Return an id of the query, None where it is absent or empty."""
    text = call.query.get(name, "")
    try:
        return UUID(text) if text else None
    except ValueError:
        raise InvalidInput(f"{name} is an id, not {text[:40]!r}.", field=name) from None


def is_set(call: Call, name: str) -> bool:
    """Whether a switch of the query is on."""
    return call.query.get(name, "").lower() in ("1", "true", "yes")


def _refuse_who(tree: Any) -> None:
    for name in _names(tree):
        if _SEPARATORS.sub("", name).casefold() in _WHO:
            raise InvalidInput(
                f"{name[:40]!r} is not for you to say: namespace, actor and role come from the "
                "credential. Leave it out.",
                field=name[:40],
            )


def _names(tree: Any) -> Iterator[str]:
    waiting = [tree]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif hasattr(value, "items"):
            for name, inner in value.items():
                yield name
                if name != _OWN_WORDS:
                    waiting.append(inner)

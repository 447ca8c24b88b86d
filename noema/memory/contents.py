"""The typed content of each kind of memory.

A memory always has its text; content is the same thing taken apart, for whoever compares, groups or
follows it. None of it is demanded: a text without content is stored. Content that is given must be
that of its kind, with no field it does not know.
"""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from noema.memory.model import Kind

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
Line: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
Names: TypeAlias = Annotated[tuple[Name, ...], msgspec.Meta(max_length=100)]
Lines: TypeAlias = Annotated[tuple[Line, ...], msgspec.Meta(max_length=200)]


class _Content(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What all contents have in common: nothing they do not say, nothing they do not know."""


class Fact(_Content, frozen=True, kw_only=True):
    """A statement about one thing: `subject` has `attribute` `value`.

    `single_valued` says that the attribute has one value at a time, so that another value for the
    same subject contradicts this one (where somebody lives) and does not add to it (what they
    like).
    """

    subject: Name
    attribute: Name
    value: Line | bool | int | float
    single_valued: bool = False


class Preference(_Content, frozen=True, kw_only=True):
    """What somebody would rather have; `over` is what they would rather not."""

    holder: Name
    about: Name
    stance: Literal["likes", "dislikes", "prefers", "avoids", "wants"]
    over: Name | None = None


class Episode(_Content, frozen=True, kw_only=True):
    """Something that happened; when it began is the memory's `event_time`."""

    what: Line
    where: Name | None = None
    who: Names = ()
    ended_at: Moment | None = None


class Entity(_Content, frozen=True, kw_only=True):
    """Something with a name: a person, a place, a thing."""

    name: Name
    type: Name = "thing"
    aliases: Names = ()


class Pointer(_Content, frozen=True, kw_only=True):
    """Where something is to be found, and what was there when it was last looked at."""

    uri: Line
    title: Line | None = None
    fetched_at: Moment | None = None
    digest: (
        Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]{2,20}:[A-Za-z0-9+/=_-]{8,200}$")] | None
    ) = None


class Semantic(_Content, frozen=True, kw_only=True):
    """General knowledge about a topic, and how far it goes."""

    topic: Name
    scope: Line | None = None
    examples: Lines = ()


class Procedural(_Content, frozen=True, kw_only=True):
    """How something is done, step by step, and what must hold before."""

    goal: Line
    steps: Annotated[tuple[Line, ...], msgspec.Meta(min_length=1, max_length=200)]
    preconditions: Lines = ()


class Autobiographical(_Content, frozen=True, kw_only=True):
    """What a mind or a person holds to be part of their own story."""

    who: Name
    period: Name | None = None
    significance: Line | None = None


Content: TypeAlias = (
    Fact | Preference | Episode | Entity | Pointer | Semantic | Procedural | Autobiographical
)

CONTENT_OF: Final[Mapping[Kind, type[Content]]] = MappingProxyType(
    {
        Kind.FACT: Fact,
        Kind.PREFERENCE: Preference,
        Kind.EPISODE: Episode,
        Kind.ENTITY: Entity,
        Kind.POINTER: Pointer,
        Kind.SEMANTIC: Semantic,
        Kind.PROCEDURAL: Procedural,
        Kind.AUTOBIOGRAPHICAL: Autobiographical,
    }
)


def content_of(kind: Kind, raw: Mapping[str, Any]) -> Content:
    """Return the content as its type; msgspec.ValidationError says what does not fit."""
    return msgspec.convert(raw, CONTENT_OF[kind])


def stored(content: Content) -> dict[str, Any]:
    """Return the content as the JSON object that is kept, without what it does not say."""
    kept: dict[str, Any] = msgspec.to_builtins(content)
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()
    }

"""What each prompt is given: one type per name, in which text from outside is `Data` by type.

A field of type `str` is a label: a name, a time, a kind, as Noema itself writes them. It is checked
when it is rendered, so that text from outside which was given for a label is refused, not shown.
"""

import typing
from collections.abc import Mapping
from typing import Any, Final

import msgspec


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """Text that nobody vouches for: what was said, remembered, read or answered by a tool.

    It is rendered as one block, whatever the template does. `kind`, `ref` (what an answer cites it
    by) and `at` stand on the block's first line.
    """

    text: str
    kind: str = "text"
    ref: str = ""
    at: str = ""


NOTHING: Final = Data(text="")


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was said; `speaker` is "person" or "mind"."""

    speaker: str
    text: Data


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """One memory; an answer cites it by `ref`. `status` and `trust` are the kernel's words."""

    ref: str
    text: Data
    at: str = ""
    kind: str = ""
    status: str = ""
    trust: str = ""


class Thought(msgspec.Struct, frozen=True, kw_only=True):
    """One thought that won attention, in its cycle."""

    ref: str
    text: Data
    cycle: int = 0
    topic: Data = NOTHING


class Dialogue(msgspec.Struct, frozen=True, kw_only=True):
    """`dialogue`: a person spoke to the mind. `earlier` is what was said before, oldest first."""

    mind: str
    now: str
    message: Data
    earlier: tuple[Turn, ...] = ()
    memories: tuple[Remembered, ...] = ()
    thoughts: tuple[Thought, ...] = ()


class Reflect(msgspec.Struct, frozen=True, kw_only=True):
    """`reflect`: what the mind has thought lately, oldest first."""

    mind: str
    now: str
    thoughts: tuple[Thought, ...]
    memories: tuple[Remembered, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`plan`: a goal, and what bears on it. `most` is how many steps at most."""

    mind: str
    now: str
    goal: Data
    most: int = 5
    thoughts: tuple[Thought, ...] = ()
    memories: tuple[Remembered, ...] = ()


class Extract(msgspec.Struct, frozen=True, kw_only=True):
    """`extract`: what was written or said, to be taken apart into single statements.

    `kinds` are the words that a statement's kind is one of; `most` is how many at most.
    """

    now: str
    turns: tuple[Turn, ...]
    kinds: tuple[str, ...]
    most: int = 50


class Verify(msgspec.Struct, frozen=True, kw_only=True):
    """`verify`: whether the sources say what each of the statements says."""

    statements: tuple[Remembered, ...]
    sources: tuple[Remembered, ...]


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """`judge`: two memories that may contradict each other."""

    earlier: Remembered
    later: Remembered


class Summarise(msgspec.Struct, frozen=True, kw_only=True):
    """`summarise`: texts that become one of at most so many words."""

    texts: tuple[Remembered, ...]
    words: int = 100


INPUTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "dialogue": Dialogue,
    "reflect": Reflect,
    "plan": Plan,
    "extract": Extract,
    "verify": Verify,
    "judge": Judge,
    "summarise": Summarise,
}


def fields_of(type_: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of a struct's fields by name."""
    hints = typing.get_type_hints(type_)
    return {name: hints[name] for name in type_.__struct_fields__}


def item_of(type_: Any) -> Any:
    """Return what a `tuple[X, ...]` holds, None for any other type."""
    if typing.get_origin(type_) is not tuple:
        return None
    return typing.get_args(type_)[0]


def sample_of(type_: Any, name: str = "sample") -> Any:
    """Return a small value of a field's type, every list with two items in it."""
    if type_ is Data:
        return Data(text=f"The text of {name}.", kind=name, ref="s1")
    if type_ is str:
        return name
    if type_ is int:
        return 3
    if (item := item_of(type_)) is not None:
        return (sample_of(item, name), sample_of(item, name))
    return type_(**{key: sample_of(inner, key) for key, inner in fields_of(type_).items()})

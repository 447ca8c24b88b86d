"""Comparing what is on record with what was recomputed, byte by byte, and naming what differs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn
from uuid import UUID

import msgspec

from noema.core.canonical import canonical, escape_tree
from noema.events.model import Event, NewEvent
from noema.replay.model import Difference

# What a process made of a candidate comes before what attention made of it: a falsified feature is
# named itself, not by the score that no longer fits it.
_FIRST: Final = ("text", "topic", "key", "intent", "replies_to", "folded", "raw", "features")
_LAST: Final = ("candidates", "admitted", "winner", "margin", "candidate_set")
_ABSENT: Final = "absent"


class Differs(Exception):  # noqa: N818
    """The check of a cycle ends here. `is_inexact`: it hangs on text or on earlier cycles."""

    def __init__(self, difference: Difference, *, is_inexact: bool = False) -> None:
        super().__init__(difference.what)
        self.difference = difference
        self.is_inexact = is_inexact


def same(recorded: Any, recomputed: Any) -> bool:
    """Whether both have the same canonical bytes."""
    return canonical(escape_tree(recorded)) == canonical(escape_tree(recomputed))


def plain(value: Any) -> Any:
    """Return the value as JSON gives it back: ids and times as text, tuples as lists."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _measured(value: Any, other: Any) -> Any:
    if value is None or value == _ABSENT:
        return value
    if not isinstance(value, str):
        return f"{type(value).__name__}, not quoted"
    if not isinstance(other, str):
        return f"{len(value)} characters"
    shared = next((i for i, (a, b) in enumerate(zip(value, other, strict=False)) if a != b), None)
    at = min(len(value), len(other)) if shared is None else shared
    return f"{len(value)} characters, different from character {at + 1} on"


def differing(recorded: Any, recomputed: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, recorded, recomputed) of every leaf that differs, the telling ones first."""
    if not isinstance(recorded, Mapping) or not isinstance(recomputed, Mapping):
        if not same(recorded, recomputed):
            yield "", recorded, recomputed
        return
    for name in sorted({*recorded, *recomputed}, key=_telling):
        one, other = recorded.get(name, _ABSENT), recomputed.get(name, _ABSENT)
        for path, *values in differing(one, other):
            yield f"{name}.{path}" if path else name, values[0], values[1]


def _telling(name: str) -> tuple[int, int, str]:
    if name in _FIRST:
        return 0, _FIRST.index(name), ""
    return (2, _LAST.index(name), "") if name in _LAST else (1, 0, name)


def feature_of(path: str) -> str:
    """Return how a report names the path: a feature by its own name, another thing by its path."""
    return path.removeprefix("features.")


def compare_content(cycle: int, event: Event, expected: NewEvent, candidate: UUID | None) -> None:
    """Raise Differs where the content is not what was recomputed; a redacted one cannot tell."""
    if event.is_redacted:
        return
    if canonical(escape_tree(event.content)) == expected.content:
        return
    recomputed = msgspec.json.decode(expected.content)
    for path, one, other in differing(escape_tree(event.content), recomputed):
        values = _measured(one, other), _measured(other, one)
        raise_difference(cycle, candidate, path or "content", values, event.type)
    raise_difference(cycle, candidate, "content", (None, None), event.type)


def compare_data(
    cycle: int, event: Event, expected: Mapping[str, Any], candidate: UUID | None
) -> None:
    """Raise Differs where the data is not what was recomputed."""
    recomputed = plain(expected)
    if canonical(event.data) == canonical(recomputed):
        return
    for path, one, other in differing(event.data, recomputed):
        raise_difference(cycle, candidate, feature_of(path) or "data", (one, other), event.type)
    raise_difference(cycle, candidate, "data", (None, None), event.type)


def compare_frame(
    cycle: int, event: Event, expected: NewEvent, candidate: UUID | None, *, causes: str = "causes"
) -> None:
    """Raise Differs where time, actor, owner or causes are not what was recomputed."""
    frames: Sequence[tuple[str, Any, Any]] = (
        (causes, list(event.causes), list(expected.causes)),
        ("occurred_at", event.occurred_at, expected.occurred_at),
        ("actor", event.actor, expected.actor),
        ("mind_id", event.mind_id, expected.mind_id),
    )
    for name, one, other in frames:
        if one != other:
            raise_difference(cycle, candidate, name, (plain(one), plain(other)), event.type)


def raise_difference(
    cycle: int,
    candidate: UUID | str | None,
    feature: str,
    values: tuple[Any, Any],
    type_: str,
    what: str | None = None,
    *,
    is_inexact: bool = True,
) -> NoReturn:
    """Raise Differs for this cycle; `values` are the recorded and the recomputed one."""
    said = what or f"{feature} of {type_} is not what this code computes from the log"
    raise Differs(
        Difference(
            cycle=cycle,
            candidate=None if candidate is None else str(candidate),
            feature=feature,
            recorded=values[0],
            recomputed=values[1],
            what=said,
        ),
        is_inexact=is_inexact,
    )

"""From a row of `memories` to a `Memory`."""

from collections.abc import Mapping
from typing import Any

from noema.core.canonical import unescape, unescape_tree
from noema.memory.model import EpistemicKind, Kind, Label, Memory, Route, Sensitivity, Status


def memory_of(row: Mapping[str, Any], *, is_shared: bool = False) -> Memory:
    """Return the memory of a row that has all columns of `memories` (`SELECT m.*`).

    `superseded_by` and `entities` are taken where the query added columns of these names.
    """
    return Memory(
        id=row["id"],
        namespace=row["namespace"],
        kind=Kind(row["kind"]),
        epistemic_kind=EpistemicKind(row["epistemic_kind"]),
        status=Status(row["status"]),
        text=unescape(row["text"]),
        content=unescape_tree(row["content"]),
        event_time=row["event_time"],
        assertion_time=row["assertion_time"],
        valid_from=row["t_valid_from"],
        valid_to=row["t_valid_to"],
        supersedes=row["supersedes"],
        superseded_by=row.get("superseded_by"),
        source=unescape(row["source"]),
        route=Route(row["route"]),
        trust=row["trust"],
        actor=row["actor"],
        agent_id=row["agent_id"],
        extraction=row["extraction"],
        label=Label(
            sensitivity=Sensitivity(row["sensitivity"]),
            pii=tuple(row["pii"]),
            secrets=tuple(row["secrets"]),
            destinations=tuple(row["destinations"]),
            classifier=row["classifier"],
        ),
        importance=row["importance"],
        salience=row["salience"],
        credibility=row["credibility"],
        activation=row["activation"],
        access_count=row["access_count"],
        last_accessed_at=row["last_accessed_at"],
        repeat_count=row["repeat_count"],
        conversation=row["conversation_id"],
        session=row["session_id"],
        position=row["position"],
        speaker=None if row["speaker"] is None else unescape(row["speaker"]),
        entities=tuple(row.get("entities") or ()),
        is_shared=is_shared,
    )

"""The public shapes of memories: what a search, a read and a list answer as JSON."""

from typing import Any

from noema.memory.model import MICRO, Hit, Memory, Page, ReadResult, SearchResult


def memory(row: Memory) -> dict[str, Any]:
    """Return a memory as the interfaces promise it; micros become 0 to 1."""
    return {
        "id": row.id,
        "namespace": row.namespace,
        "kind": row.kind,
        "epistemic_kind": row.epistemic_kind,
        "text": row.text,
        "content": row.content,
        "status": row.status,
        "event_time": row.event_time,
        "assertion_time": row.assertion_time,
        "valid_from": row.valid_from,
        "valid_to": row.valid_to,
        "supersedes": row.supersedes,
        "superseded_by": row.superseded_by,
        "source": row.source,
        "route": row.route,
        "trust": row.trust,
        "actor": row.actor,
        "sensitivity": row.label.sensitivity,
        "pii": row.label.pii,
        "secrets": row.label.secrets,
        "destinations": row.label.destinations,
        "importance": row.importance / MICRO,
        "conversation": row.conversation,
        "session": row.session,
        "position": row.position,
        "speaker": row.speaker,
        "entities": row.entities,
        "shared": row.is_shared,
    }


def hit(found: Hit) -> dict[str, Any]:
    """Return a found memory with its score, and the parts of it where they were asked for."""
    return memory(found.memory) | {"score": found.score, "components": found.components}


def search(result: SearchResult) -> dict[str, Any]:
    """Return what a search answers."""
    return {
        "results": [hit(h) for h in result.hits],
        "driver": result.driver,
        "degraded": result.degraded,
        "tokens": result.tokens,
        "trimmed": result.trimmed,
    }


def read(result: ReadResult) -> dict[str, Any]:
    """Return one memory with its chain, newest first."""
    return memory(result.memory) | {"history": [memory(m) for m in result.history]}


def browsed(page: Page) -> dict[str, Any]:
    """Return one page of a list; `next` is the cursor of the following one, or null."""
    return {"items": [memory(m) for m in page.memories], "next": page.before}

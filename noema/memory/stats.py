"""mem_stats: how much there is, of what kind, and what the last day came to."""

from collections import Counter
from datetime import timedelta
from typing import Final

from noema.db.tx import Database
from noema.llm.model import Embedder
from noema.memory.frame import Frame
from noema.memory.model import Stats
from noema.memory.store import stats as store

WINDOW: Final = timedelta(hours=24)
WARM: Final = "L2"


class Figures:
    """Counts over what the caller sees; one predicate for memories, vectors and audit rows."""

    def __init__(self, *, db: Database, embedder: Embedder | None) -> None:
        self._db = db
        self._model = None if embedder is None else embedder.model

    async def of(self, frame: Frame) -> Stats:
        """Return the figures; a working set is measured in tokens."""
        async with self._db.reading() as tx:
            counted = await store.counts(tx.conn, frame.scope)
            embedded = (
                0
                if self._model is None
                else await store.embedded(tx.conn, frame.scope, self._model)
            )
            audited = await store.audited(tx.conn, frame.scope, frame.now - WINDOW)
        by_kind: Counter[str] = Counter()
        by_status: Counter[str] = Counter()
        for kind, state, rows in counted:
            by_kind[kind] += rows
            by_status[state] += rows
        total = by_kind.total()
        faults = audited.get("mem.fault", {"hits": 0, "asked": 0})
        assembled = audited.get("mem.assemble", {"tokens": None})
        frame.detail = f"memories={total}"
        return Stats(
            by_kind=dict(by_kind),
            by_tier={WARM: total},
            by_status=dict(by_status),
            total=total,
            fault_hit_rate=faults["hits"] / faults["asked"] if faults["asked"] else None,
            average_working_set=assembled["tokens"],
            audit_rows={op: row["rows"] for op, row in sorted(audited.items())},
            embedding_model=self._model,
            embedded=embedded,
        )

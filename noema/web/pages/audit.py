"""The audit log as a list, filtered by what stands in the address, and as a table to take away."""

import csv
import re
from collections.abc import AsyncIterator, Mapping
from io import StringIO
from typing import Final
from urllib.parse import quote, urlencode

from starlette.responses import Response, StreamingResponse

from noema.auth.roles import console_allows
from noema.core.act import Outcome, act_of
from noema.core.errors import InvalidInput
from noema.core.identity import ConsoleRole
from noema.events.audit import AuditRow
from noema.memory.rights import SYSCALLS
from noema.web import doors, forms
from noema.web.api import audit as api
from noema.web.call import Call
from noema.web.pages.events import moment
from noema.web.pages.shell import page
from noema.web.views import Level

_SHOWN: Final = 200
_MOST: Final = 2_000
_EXPORTED: Final = 1_000
_KEYS: Final = ("who", "verb", "syscall", "target", "outcome", "from", "to")
_COLUMNS: Final = (
    "seq", "id", "occurred_at", "recorded_at", "who", "through", "verb", "target", "namespace",
    "outcome", "purpose", "detail", "is_redacted",
)  # fmt: skip
_VERBS: Final = (
    "login", "session", "token", "user", "totp", "membership", "namespace", "tenant", "setup",
    "login_link", "audit", "mem",
)  # fmt: skip
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_LEVELS: Final[dict[str, Level]] = {"ok": "ok", "denied": "bad", "miss": "warn", "error": "warn"}


async def show(call: Call) -> Response:
    scope = api.scope_of(call.who)
    query = {k: call.query.get(k, "").strip() for k in _KEYS}
    limit = forms.whole(call.query, "limit", low=1, high=_MOST) or _SHOWN
    before = forms.whole(call.query, "before", low=1)
    found: list[AuditRow] = []
    error = None
    try:
        filter_ = api.wanted(_named(query), moment=moment)
        found = await api.rows(call, filter_, before=before, limit=limit + 1)
    except InvalidInput as exc:
        error = str(exc)
    shown, more = found[:limit], len(found) > limit
    kept = {k: v for k, v in query.items() if v}
    paged = kept if limit == _SHOWN else kept | {"limit": str(limit)}

    def address(path: str, asked: dict[str, str]) -> str:
        return f"{path}?{urlencode(asked)}" if asked else path

    is_admin = console_allows(call.who.console, ConsoleRole.ADMINISTRATOR)
    context = doors.AuditPage(
        rows=tuple(_line(r, with_links=is_admin) for r in shown),
        filter=doors.AuditFilter(
            who=query["who"],
            verb=query["verb"],
            syscall=query["syscall"],
            target=query["target"],
            outcome=query["outcome"],
            from_=query["from"],
            to=query["to"],
            error=error,
        ),
        verbs=_VERBS,
        syscalls=tuple(sorted(SYSCALLS)),
        scope=None if scope is None else tuple(scope),
        older=address("/audit", paged | {"before": str(shown[-1].seq)}) if more else None,
        newest=address("/audit", paged) if before is not None else None,
        json_href=address("/v1/audit", _exact(kept)),
        csv_href=address("/audit.csv", kept),
    )
    status = 200 if error is None else 400
    return page(call, "audit.html", context, title="Audit", active="audit", status=status)


def _named(query: Mapping[str, str]) -> dict[str, str]:
    """Return the filter with the chosen syscall, or all of them, as what was done."""
    syscall = query.get("syscall", "").strip()
    return {**query, "verb": syscall} if syscall else dict(query)


def _exact(kept: dict[str, str]) -> dict[str, str]:
    """Return the filter with the zone that the form leaves out."""
    exact = dict(_named(kept))
    exact.pop("syscall", None)
    for name in ("from", "to"):
        try:
            at = moment(kept, name)
        except InvalidInput:
            continue
        if at is not None:
            exact[name] = at.isoformat()
    return exact


def _line(row: AuditRow, *, with_links: bool) -> doors.AuditLine:
    kind, _, key = row.target.partition(":")
    return doors.AuditLine(
        seq=row.seq,
        id=str(row.id),
        at=row.occurred_at,
        actor=row.actor,
        agent_id=row.agent_id,
        verb=row.op,
        target=row.target,
        namespace=row.namespace,
        outcome=row.result,
        level=_LEVELS.get(row.result, "quiet"),
        detail=row.detail,
        purpose=row.purpose,
        redacted=row.is_redacted,
        target_href=_href(kind, key, is_admin=with_links),
    )


def _href(kind: str, key: str, *, is_admin: bool) -> str | None:
    """Return the page of the thing that was acted on, where there is one."""
    if kind == "user" and is_admin and key not in ("", "unknown"):
        return f"/access/users/{quote(key, safe='')}"
    if kind == "memory" and _ID.match(key):
        return f"/memories/{key}"
    return None


async def export(call: Call) -> Response:
    """Answer with all rows of the filter as CSV, newest first; that it was taken is audited."""
    filter_ = api.wanted(_named(call.query), moment=moment)
    api.scope_of(call.who)
    asked = "&".join(f"{k}={call.query[k]}" for k in _KEYS if call.query.get(k)) or "everything"
    await call.services.access.audit.record_alone(
        act_of(call.who, "audit.export", "audit:csv", Outcome.OK, detail=asked)
    )
    return StreamingResponse(
        _csv(call, filter_),
        media_type="text/csv; charset=utf-8",
        headers={
            "Cache-Control": "no-store",
            "Content-Disposition": 'attachment; filename="noema-audit.csv"',
        },
    )


async def _csv(call: Call, filter_: api.Wanted) -> AsyncIterator[bytes]:
    yield _lines([list(_COLUMNS)])
    before: int | None = None
    while True:
        rows = await api.rows(call, filter_, before=before, limit=_EXPORTED)
        if rows:
            shown = (api.shown(r) for r in rows)
            yield _lines([[_cell(one[c]) for c in _COLUMNS] for one in shown])
        if len(rows) < _EXPORTED:
            return
        before = rows[-1].seq


def _lines(rows: list[list[str]]) -> bytes:
    text = StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode("utf-8", errors="backslashreplace")


def _cell(value: object) -> str:
    """Return the cell; what a spreadsheet would compute is made a text."""
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text

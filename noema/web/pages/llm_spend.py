"""What models cost over time, by role or by provider, in money, tokens or calls."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from starlette.responses import Response

from noema.core.errors import InvalidInput
from noema.llm.calls import Spend
from noema.web import llm_views as views
from noema.web.api.llm import known_namespaces
from noema.web.call import Call
from noema.web.llm_charts import COLOURS, spend_chart
from noema.web.pages.events import moment
from noema.web.pages.llm import money
from noema.web.pages.remembered import address
from noema.web.pages.shell import page
from noema.web.panels import Tile, Tiles
from noema.web.render import number

_BY: Final = (("role", "role"), ("provider", "provider"))
_OF: Final = (("money", "money"), ("tokens", "tokens"), ("calls", "calls"))
_SPANS: Final = ((7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "a year"))
_USUAL: Final = 30
_LONGEST: Final = timedelta(days=366)
_OTHERS: Final = "others"
_TICK: Final = timedelta(microseconds=1)


async def show(call: Call) -> Response:
    now = call.services.clock.now()
    values = {k: call.query.get(k, "").strip() for k in ("from", "to", "by", "of", "days")}
    by = values["by"] if values["by"] in dict(_BY) else "role"
    of = values["of"] if values["of"] in dict(_OF) else "money"
    error = None
    rows: Sequence[Spend] = ()
    since, until = _usual(now, _USUAL), now
    try:
        since, until = _span(values, now)
        rows = await call.services.llm.calls.spend(
            since=since, until=until, namespaces=await known_namespaces(call)
        )
    except InvalidInput as exc:
        error = str(exc)
    context = _context(rows, values, by=by, of=of, since=since, until=until, error=error)
    status = 200 if error is None else 400
    return page(call, "llm_spend.html", context, title="Spend", active="models", status=status)


def _usual(now: datetime, days: int) -> datetime:
    """Return the beginning of the first of so many UTC days, today among them."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=days - 1)


def _span(values: Mapping[str, str], now: datetime) -> tuple[datetime, datetime]:
    until = moment(values, "to") or now
    chosen = next((n for n, _ in _SPANS if str(n) == values["days"]), _USUAL)
    since = moment(values, "from") or _usual(min(until, now), chosen)
    if not timedelta() <= until - since <= _LONGEST:
        raise InvalidInput(f"A chart is of up to {_LONGEST.days} days.", field="from")
    return since, until


def _context(
    rows: Sequence[Spend],
    values: dict[str, str],
    *,
    by: str,
    of: str,
    since: datetime,
    until: datetime,
    error: str | None,
) -> views.SpendPage:
    series = _series(rows, by=by, of=of, since=since, until=until)
    place = {s.name: s.place for s in series}
    amounts: defaultdict[tuple[date, int], int] = defaultdict(int)
    unknown: defaultdict[date, int] = defaultdict(int)
    for row in rows:
        amounts[row.day, place[_name(row, by)]] += _amount(row, of)
        unknown[row.day] += row.unknown_calls
    days = _days(since, until)
    marked = [day for day, n in unknown.items() if n] if of == "money" else []
    chart = spend_chart(days, amounts, marked) if marked or any(amounts.values()) else None
    columns = _columns(series)
    shown = [
        views.SpendDay(
            day=day,
            amounts=tuple(_text(amounts[day, p], of) for p in range(len(columns))),
            total=_text(sum(amounts[day, p] for p in range(len(columns))), of),
            unknown=unknown[day],
        )
        for day in sorted({row.day for row in rows}, reverse=True)
    ]

    def ranged(name: str, choices: Sequence[tuple[Any, str]], on: str) -> tuple[views.Ranged, ...]:
        return tuple(
            views.Ranged(
                label=label,
                href=address("/models/spend", {**values, name: str(value)} | _reset(name)),
                is_on=str(value) == on,
            )
            for value, label in choices
        )

    span = "" if values["from"] or values["to"] else values["days"] or str(_USUAL)
    return views.SpendPage(
        chart=chart,
        ticks=() if chart is None else _ticks(chart.top, of),
        dates=tuple(f"{d:%d %b}" for d in (days[0], days[len(days) // 2], days[-1])),
        series=series,
        columns=columns,
        days=tuple(shown),
        tiles=_tiles(rows) if rows else None,
        by=ranged("by", _BY, by),
        of=ranged("of", _OF, of),
        spans=ranged("days", _SPANS, span),
        by_name=by,
        of_name=of,
        values=values,
        error=error,
        json_href=address("/v1/llm/spend", {"from": since.isoformat(), "to": until.isoformat()}),
    )


def _reset(name: str) -> dict[str, str]:
    return {"from": "", "to": ""} if name == "days" else {}


def _days(since: datetime, until: datetime) -> list[date]:
    first = since.astimezone(UTC).date()
    last = max(first, (until - _TICK).astimezone(UTC).date())
    return [first + timedelta(days=i) for i in range((last - first).days + 1)]


def _name(row: Spend, by: str) -> str:
    return row.role if by == "role" else row.provider or "nobody asked"


def _amount(row: Spend, of: str) -> int:
    return {"money": row.cost_micros, "tokens": row.tokens, "calls": row.calls}[of]


def _text(amount: int, of: str) -> str:
    if not amount:
        return ""
    return money(amount) if of == "money" else number(amount)


def _series(
    rows: Sequence[Spend], *, by: str, of: str, since: datetime, until: datetime
) -> tuple[views.Series, ...]:
    """Return the roles or providers, the dearest first; those beyond the colours share the last."""
    held: defaultdict[str, list[Spend]] = defaultdict(list)
    for row in rows:
        held[_name(row, by)].append(row)
    order = sorted(held, key=lambda name: (-sum(_amount(r, of) for r in held[name]), name))
    is_short = len(order) <= COLOURS
    found = []
    for i, name in enumerate(order):
        own = held[name]
        asked = {by: "" if name == "nobody asked" else name}
        # Filters take times without a zone for UTC.
        times = {
            "from": f"{since:%Y-%m-%dT%H:%M}",
            "to": f"{until + timedelta(minutes=1):%Y-%m-%dT%H:%M}",
        }
        found.append(
            views.Series(
                name=name,
                place=i if is_short else min(i, COLOURS - 1),
                calls=sum(r.calls for r in own),
                tokens=sum(r.tokens for r in own),
                money=money(sum(r.cost_micros for r in own)),
                unknown=sum(r.unknown_calls for r in own),
                href=address("/models/calls", asked | times),
            )
        )
    return tuple(found)


def _columns(series: Sequence[views.Series]) -> tuple[str, ...]:
    """Return the names of the colours that are in the picture, by place."""
    names: dict[int, list[str]] = {}
    for one in series:
        names.setdefault(one.place, []).append(one.name)
    return tuple(n[0] if len(n) == 1 else _OTHERS for _, n in sorted(names.items()))


def _ticks(top: int, of: str) -> tuple[str, ...]:
    """Return what stands beside the axis, from the top down."""
    half = top // 2 if top % 2 == 0 else None
    texts = [_text(top, of), "" if half is None else _text(half, of), "0"]
    return tuple(texts)


def _tiles(rows: Sequence[Spend]) -> Tiles:
    unknown = sum(r.unknown_calls for r in rows)
    return Tiles(
        tiles=(
            Tile(
                label="Spent",
                value=money(sum(r.cost_micros for r in rows)),
                note="as far as it is known" if unknown else "known and estimated",
            ),
            Tile(label="Tokens", value=number(sum(r.tokens for r in rows)), note="of all classes"),
            Tile(label="Calls", value=number(sum(r.calls for r in rows)), note="on record"),
            Tile(
                label="Cost unknown",
                value=number(unknown),
                note="calls; never counted as nothing",
                level="warn" if unknown else "quiet",
            ),
        )
    )

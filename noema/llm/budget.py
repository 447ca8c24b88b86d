"""Limits on what models may cost: reserved before each attempt, settled after it.

    reserve (worst case) ──▶ attempt ──▶ settle (what it was)
                                └─nobody knows──▶ settle (all that was reserved), counted as unknown

    budget   a limit in money, tokens or both, for a scope (a cycle, a mind, a role, a provider,
             everything) over a period (a cycle, a UTC day, a UTC month)
    window   what one budget has seen of one key in one period

Every budget that fits an attempt applies to it. What is reserved and spent in a window never
exceeds its limit by a reservation; only a provider that uses more than it was asked to can.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, get_args
from uuid import UUID

import msgspec

from noema.core.canonical import canonical_escaped, escape
from noema.core.clock import Ids
from noema.core.errors import Conflict, Denied, InvalidInput, NotFound
from noema.core.identity import ConsoleRole, Identity
from noema.db.tx import Conn, Database
from noema.events.audit import Audit
from noema.llm.errors import BudgetExceeded
from noema.llm.model import MICRO, ChatMessage, Entry, Parameters, Prices, Role, Usage
from noema.llm.store import budgets as store

Scope = Literal["cycle", "mind", "role", "provider", "everything"]
Period = Literal["cycle", "day", "month"]
CostKind = Literal["known", "estimated", "unknown", "free"]
Cost: TypeAlias = tuple[int | None, CostKind]

EACH: Final = "*"
ASSUMED_OUTPUT: Final = 8_192
"""Tokens of an answer whose length nobody limited: `max_tokens` is sent only where it was set."""

_BYTES_PER_TOKEN: Final = 3
_TOKENS_PER_MESSAGE: Final = 8
# What a provider charges at most for writing to its cache, in prices of its input.
_DEAREST_CACHE_WRITE: Final = 2
_MOST: Final = 10**15
_LONGEST_KEY: Final = 100
_DECEMBER: Final = 12


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A limit. `key` is a mind's id, a role, a provider's name, or `*` for each of them."""

    id: UUID
    scope: Scope
    key: str
    period: Period
    money_micros: int | None
    tokens: int | None
    actor: str
    set_at: datetime


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What a budget has seen of one key in one period. `starts` is a UTC day, month or mind:cycle.

    `unknown_calls` counts attempts whose cost nobody knows: they stand in `spent` at all that was
    reserved for them. `stopped` counts attempts that were not made.
    """

    budget_id: UUID
    key: str
    starts: str
    reserved_micros: int
    spent_micros: int
    reserved_tokens: int
    spent_tokens: int
    unknown_calls: int
    stopped: int


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """A budget and its windows of this period, or the latest where its period is a cycle."""

    budget: Budget
    windows: tuple[Window, ...]


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt may take at most, and which windows it falls into.

    `micros` is None where a price is not known: then no budget of money lets it pass.
    """

    call: UUID
    attempt: int
    mind: UUID | None
    cycle: int | None
    role: str
    provider: str
    micros: int | None
    tokens: int


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt took; None where nobody knows, which counts as all that was reserved."""

    call: UUID
    attempt: int | None
    micros: int | None
    tokens: int | None
    is_unknown: bool


def estimated_tokens(
    messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None = None
) -> int:
    """Return how many tokens the input may be: one for three bytes of UTF-8, rounded up.

    Text in Latin letters has about four to a token; in others a character of three bytes is one.
    """
    size = sum(len(message.text.encode("utf-8", "replace")) for message in messages)
    if schema is not None:
        size += len(canonical_escaped(schema))
    return -(-size // _BYTES_PER_TOKEN) + _TOKENS_PER_MESSAGE * len(messages)


def worst_case(
    entry: Entry,
    messages: Sequence[ChatMessage],
    schema: Mapping[str, Any] | None,
    parameters: Parameters,
) -> tuple[int | None, int]:
    """Return the most that an attempt is expected to take: micro-units and tokens.

    The first is None where a price is not known.
    """
    taken = estimated_tokens(messages, schema)
    given = ASSUMED_OUTPUT if parameters.max_tokens is None else parameters.max_tokens
    prices = entry.prices
    if prices.input is None or prices.output is None:
        return None, taken + given
    dearest_in = max(prices.input, prices.cache_read or 0, prices.cache_write or 0)
    dearest_out = max(prices.output, prices.reasoning or 0)
    return _rounded_up(taken * dearest_in + given * dearest_out), taken + given


def is_free(prices: Prices) -> bool:
    """Whether nothing is charged: both main prices are set to nothing, and no other is more."""
    others = (prices.reasoning, prices.cache_read, prices.cache_write)
    return prices.input == 0 and prices.output == 0 and not any(others)


def cost_of(usage: Usage, prices: Prices) -> Cost:
    """Return micro-units, rounded up, and how far they are known.

    The classes of tokens are disjoint, so that each is charged once. A class without a price of its
    own is charged at the most that it may be, and the cost is then an estimate: reasoning as
    output, reading a cache as input, writing one as twice the input.
    """
    if is_free(prices):
        return 0, "free"
    if usage.input is None or usage.output is None:
        return None, "unknown"
    if prices.input is None or prices.output is None:
        return None, "unknown"
    total = usage.input * prices.input + usage.output * prices.output
    is_estimated = False
    for count, price, otherwise in (
        (usage.reasoning, prices.reasoning, prices.output),
        (usage.cache_read, prices.cache_read, prices.input),
        (usage.cache_write, prices.cache_write, prices.input * _DEAREST_CACHE_WRITE),
    ):
        if count:
            is_estimated |= price is None
            total += count * (otherwise if price is None else price)
    return _rounded_up(total), "estimated" if is_estimated else "known"


def _rounded_up(priced: int) -> int:
    return -(-priced // MICRO)


def window_keys(budgets: Iterable[Budget], hold: Hold, now: datetime) -> list[store.WindowKey]:
    """Return the windows that the attempt falls into."""
    found = []
    for budget in budgets:
        key = _key(budget, hold)
        starts = _starts(budget.period, hold, now)
        if key is not None and starts is not None and budget.key in (EACH, key):
            found.append((budget.id, key, starts))
    return found


def _key(budget: Budget, hold: Hold) -> str | None:
    if budget.scope == "role":
        return hold.role
    if budget.scope == "provider":
        return hold.provider
    if budget.scope == "everything":
        return EACH
    return None if hold.mind is None else str(hold.mind)


def _starts(period: Period, hold: Hold, now: datetime) -> str | None:
    if period == "cycle":
        if hold.mind is None or hold.cycle is None:
            return None
        return f"{hold.mind}:{hold.cycle}"
    return _period_of(period, now)


def _period_of(period: Period, now: datetime) -> str:
    day = now.astimezone(UTC).date().isoformat()
    return day[:7] if period == "month" else day


async def apply(
    conn: Conn,
    *,
    settled: Sequence[Settled],
    holds: Sequence[Hold],
    now: datetime,
    is_again: bool = False,
) -> list[BudgetExceeded | None]:
    """Settle, then reserve in order; return for each hold what stopped it, None where it holds.

    Belongs into a transaction, whose end makes it hold. `is_again` says that the same may have been
    committed before: what is reserved already is not reserved twice. Settling twice does nothing.
    """
    current = [Budget(**row) for row in await store.current(conn)] if holds else []
    budgets = {budget.id: budget for budget in current}
    wanted = [window_keys(current, hold, now) for hold in holds]
    keys = sorted({key for of_hold in wanted for key in of_hold})
    if keys:
        await store.open_windows(conn, keys)
    if keys or settled:
        await store.lock(conn, keys, [one.call for one in settled])
    if settled:
        await store.settle(
            conn, [(s.call, s.attempt, s.micros, s.tokens, s.is_unknown) for s in settled]
        )
    if not keys:
        return [None] * len(holds)
    held = await store.held(conn, [hold.call for hold in holds]) if is_again else set()
    state = _State(budgets, [Window(**row) for row in await store.windows(conn, keys)])
    answers = [
        None if (hold.call, hold.attempt) in held else state.reserve(hold, of_hold, now)
        for hold, of_hold in zip(holds, wanted, strict=True)
    ]
    if state.reservations:
        await store.reserve(conn, state.reservations)
    await store.add(conn, state.added)
    return answers


class _State:
    """Locked windows, and what is being added to them."""

    def __init__(self, budgets: Mapping[UUID, Budget], windows: Iterable[Window]) -> None:
        self._budgets = budgets
        self._windows = {(w.budget_id, w.key, w.starts): w for w in windows}
        self._micros: defaultdict[store.WindowKey, int] = defaultdict(int)
        self._tokens: defaultdict[store.WindowKey, int] = defaultdict(int)
        self._stopped: defaultdict[store.WindowKey, int] = defaultdict(int)
        self.reservations: list[tuple[UUID, int, UUID, str, str, int, int]] = []

    @property
    def added(self) -> list[tuple[UUID, str, str, int, int, int]]:
        return [
            (*key, self._micros[key], self._tokens[key], self._stopped[key])
            for key in sorted(self._windows)
        ]

    def reserve(
        self, hold: Hold, keys: Sequence[store.WindowKey], now: datetime
    ) -> BudgetExceeded | None:
        """Reserve in every window or in none."""
        stops = [(key, stop) for key in keys if (stop := self._why_not(hold, key)) is not None]
        if stops:
            for key, _ in stops:
                self._stopped[key] += 1
            key, (why, remedy) = stops[0]
            return _exceeded(self._budgets[key[0]], key, why, remedy, now)
        for key in keys:
            self._micros[key] += hold.micros or 0
            self._tokens[key] += hold.tokens
            self.reservations.append((hold.call, hold.attempt, *key, hold.micros or 0, hold.tokens))
        return None

    def _why_not(self, hold: Hold, key: store.WindowKey) -> tuple[str, str] | None:
        """Return why there is no room and what helps, where waiting does not; None for room."""
        budget, window = self._budgets[key[0]], self._windows[key]
        if budget.money_micros is not None:
            if hold.micros is None:
                why = f"is in money, and the prices of {hold.provider} are not set"
                return why, "Set them, at 0 where it costs nothing"
            taken = window.reserved_micros + window.spent_micros + self._micros[key]
            if stop := _over(budget.money_micros, taken, hold.micros, _money):
                return stop
        if budget.tokens is not None:
            taken = window.reserved_tokens + window.spent_tokens + self._tokens[key]
            return _over(budget.tokens, taken, hold.tokens, _count)
        return None


def _over(limit: int, taken: int, more: int, unit: Any) -> tuple[str, str] | None:
    if taken + more <= limit:
        return None
    if more > limit:
        why = f"of {unit(limit)} is less than this call alone may take, {unit(more)}"
        return why, "Set a smaller max_tokens, or raise the budget"
    left = unit(max(limit - taken, 0))
    return f"of {unit(limit)} has {left} left, and this may take {unit(more)}", ""


def _money(micros: int) -> str:
    return f"{micros // MICRO}.{micros % MICRO:06d} in money"


def _count(tokens: int) -> str:
    return "1 token" if tokens == 1 else f"{tokens:,} tokens"


def _exceeded(
    budget: Budget, key: store.WindowKey, why: str, remedy: str, now: datetime
) -> BudgetExceeded:
    of = "everything" if budget.scope == "everything" else f"{budget.scope} {key[1]}"
    span = {"cycle": f"cycle {key[2].rpartition(':')[2]}"}.get(budget.period, key[2])
    opens = opens_at(budget.period, now)
    when = "with the next cycle" if opens is None else f"on {opens:%Y-%m-%d at %H:%M} UTC"
    remedy = remedy or f"It opens again {when}; an administrator may change it"
    return BudgetExceeded(f"The budget of {of} for {span} {why}. Nothing was asked. {remedy}.")


def opens_at(period: Period, now: datetime) -> datetime | None:
    """Return when the next window of the period begins, None where a cycle begins it."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return day + timedelta(days=1)
    if period == "month":
        first = day.replace(day=1)
        if first.month == _DECEMBER:
            return first.replace(year=first.year + 1, month=1)
        return first.replace(month=first.month + 1)
    return None


class Budgets:
    """Setting budgets, which administrators do, and reading them."""

    def __init__(self, *, db: Database, audit: Audit, ids: Ids) -> None:
        self._db = db
        self._audit = audit
        self._ids = ids

    async def set(
        self,
        who: Identity,
        *,
        scope: Scope,
        period: Period,
        key: str = EACH,
        money_micros: int | None = None,
        tokens: int | None = None,
    ) -> Budget:
        """Set a limit, or change the one that is there: what was spent in its windows stays.

        A new budget counts from now on. Raises Denied, InvalidInput, Conflict.
        """
        async with self._audit.doing(
            who, "llm.budget-set", f"budget:{scope}/{key}/{period}"
        ) as deed:
            _administrators_only(who)
            _check(scope, period, key, money_micros, tokens)
            conn, now = deed.tx.conn, deed.tx.now
            limits, stored = (money_micros, tokens), escape(key)
            before = await store.latest_of(conn, scope, stored, period)
            deed.detail = f"{_limits(before)} to {_limits_of(*limits)}"
            if before is not None:
                await store.change_budget(
                    conn, id=before["id"], limits=limits, actor=who.actor, now=now
                )
                made = before["id"]
            else:
                made = self._ids.new()
                if not await store.add_budget(
                    conn,
                    id=made,
                    place=(scope, stored, period),
                    limits=limits,
                    actor=who.actor,
                    now=now,
                ):
                    raise Conflict("Somebody else set this budget just now. Look at it again.")
            return Budget(
                id=made,
                scope=scope,
                key=key,
                period=period,
                money_micros=money_micros,
                tokens=tokens,
                actor=who.actor,
                set_at=now,
            )

    async def end(self, who: Identity, budget: UUID) -> None:
        """Take the limit away; its windows stay. Raises Denied, NotFound."""
        async with self._audit.doing(who, "llm.budget-end", f"budget:{budget}") as deed:
            _administrators_only(who)
            place = await store.end_budget(deed.tx.conn, budget, deed.tx.now)
            if place is None:
                raise NotFound("budget", budget)
            deed.target = f"budget:{'/'.join(place)}"

    async def states(
        self, *, minds: Sequence[UUID] | None = None, limit: int = 100
    ) -> tuple[BudgetState, ...]:
        """Return every budget that holds, with at most `limit` windows each.

        With `minds`, windows of other minds are left out; who may see which is for the caller.
        """
        keys = None if minds is None else [str(mind) for mind in minds]
        found = []
        async with self._db.reading() as tx:
            for row in await store.current(tx.conn):
                budget = Budget(**row)
                is_of_minds = budget.scope in ("mind", "cycle")
                starts = None if budget.period == "cycle" else _period_of(budget.period, tx.now)
                windows = await store.latest_windows(
                    tx.conn,
                    budget.id,
                    keys=keys if is_of_minds else None,
                    starts=starts,
                    limit=limit,
                )
                found.append(
                    BudgetState(budget=budget, windows=tuple(Window(**w) for w in windows))
                )
        return tuple(found)


def _administrators_only(who: Identity) -> None:
    if who.console is not ConsoleRole.ADMINISTRATOR:
        raise Denied("Only an administrator sets budgets.")


def _check(scope: str, period: str, key: str, money_micros: int | None, tokens: int | None) -> None:
    if scope not in get_args(Scope):
        raise InvalidInput(f"A budget is for one of {', '.join(get_args(Scope))}.", field="scope")
    if period not in get_args(Period):
        raise InvalidInput(f"A period is one of {', '.join(get_args(Period))}.", field="period")
    if scope == "cycle" and period != "cycle":
        raise InvalidInput(
            "A budget for a cycle has the period cycle; for a mind's day take the scope mind.",
            field="period",
        )
    if scope == "everything" and (period == "cycle" or key != EACH):
        raise InvalidInput(
            "A budget for everything is for a day or a month, and has no key.", field="key"
        )
    _check_key(scope, key)
    if money_micros is None and tokens is None:
        raise InvalidInput("Set a limit in money, in tokens, or in both.", field="tokens")
    for name, limit in (("money_micros", money_micros), ("tokens", tokens)):
        if limit is not None and not 0 <= limit <= _MOST:
            raise InvalidInput(f"A limit is from 0 to {_MOST:,}.", field=name)


def _check_key(scope: str, key: str) -> None:
    if key == EACH:
        return
    if scope == "role" and key not in set(Role):
        raise InvalidInput(f"No role is called {key[:_LONGEST_KEY]!r}.", field="key")
    if scope in ("mind", "cycle"):
        try:
            is_spelt_so = str(UUID(key)) == key
        except ValueError:
            is_spelt_so = False
        if not is_spelt_so:
            raise InvalidInput("The key of a mind is its id, in lower case.", field="key")
    if not 1 <= len(key) <= _LONGEST_KEY:
        raise InvalidInput(f"A key has 1 to {_LONGEST_KEY} characters.", field="key")


def _limits(row: Mapping[str, Any] | None) -> str:
    if row is None or row["ended_at"] is not None:
        return "no limit"
    return _limits_of(row["money_micros"], row["tokens"])


def _limits_of(money_micros: int | None, tokens: int | None) -> str:
    parts = []
    if money_micros is not None:
        parts.append(_money(money_micros))
    if tokens is not None:
        parts.append(_count(tokens))
    return " and ".join(parts)

"""How what is typed about models becomes JSON, and JSON what a person reads."""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import click

from noema.cli.output import Column, lines_of, put_json, put_one, table, visible

ROLES: Final = (
    "perceive", "recall", "reflect", "plan", "dialogue", "extract", "verify", "judge",
    "summarise", "embed",
)  # fmt: skip

_ATTEMPTS: Final = (
    Column(heading="PROVIDER", key="provider"),
    Column(heading="MODEL", key="model"),
    Column(heading="AFTER MS", key="started_ms", right=True),
    Column(heading="MS", key="latency_ms", right=True),
    Column(heading="HTTP", key="status", right=True),
    Column(heading="COST", key="cost"),
    Column(heading="WHAT CAME OF IT", key="error"),
)
_MICRO: Final = 1_000_000
_MOST_DIGITS: Final = 15
_COSTS: Final = ("cost_micros", "cost_kind")
_NUMBERS: Final = ("temperature", "top_p")
_WHOLE: Final = ("max_tokens", "seed", "num_ctx")
_CLASSES: Final = ("input", "output", "reasoning", "cache_read", "cache_write")
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,19}\Z")


def parameters(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Return parameters from `temperature=0.2 stop=END extra.top_k=40`."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, value = _split(pair)
        if key in _NUMBERS:
            found[key] = float(_decimal(key, value))
        elif key in _WHOLE:
            if not _WHOLE_NUMBER.match(value):
                raise click.UsageError(f"{key} is a whole number, not {value!r}.")
            found[key] = int(value)
        elif key == "stop":
            found.setdefault("stop", []).append(value)
        elif key.startswith("extra.") and key != "extra.":
            found.setdefault("extra", {})[key.removeprefix("extra.")] = _json_or_text(value)
        else:
            known = ", ".join((*_NUMBERS, *_WHOLE, "stop", "extra.KEY"))
            raise click.UsageError(f"There is no parameter {key!r}; there is: {known}.")
    return found


def prices(pairs: tuple[str, ...]) -> dict[str, int]:
    """Return prices in micro-units per million tokens from `input=2.50 output=10`."""
    found = {}
    for pair in pairs:
        key, value = _split(pair)
        if key not in _CLASSES:
            raise click.UsageError(f"A price is for one of {', '.join(_CLASSES)}, not {key!r}.")
        micros = _decimal(key, value) * _MICRO
        if micros < 0 or micros != micros.to_integral_value():
            raise click.UsageError(f"{value!r} is no price; write an amount as 2.50.")
        found[key] = int(micros)
    return found


def chain(links: tuple[str, ...], params: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return a chain from `openai=gpt-4.1 local` and `openai:temperature=0.2`."""
    own: dict[str, list[str]] = {}
    for param in params:
        provider, colon, pair = param.partition(":")
        if not colon or not provider:
            raise click.UsageError(f"{param!r} is not PROVIDER:KEY=VALUE.")
        own.setdefault(provider, []).append(pair)
    found = []
    for link in links:
        provider, _, model = link.partition("=")
        one: dict[str, Any] = {"provider": provider}
        if model:
            one["model"] = model
        if provider in own:
            one["parameters"] = parameters(tuple(own[provider]))
        found.append(one)
    stray = sorted(set(own) - {one["provider"] for one in found})
    if stray:
        raise click.UsageError(f"{stray[0]!r} has parameters and does not stand in the chain.")
    return found


def secret_shown(row: Mapping[str, Any]) -> str:
    """Return of a secret what may be shown."""
    if not row.get("has_secret"):
        return "-"
    hint = row.get("secret_hint")
    return f"…{hint}" if hint else "set"


def role_shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a role as one line of a table."""
    asks = [
        f"{link.get('provider')}={link['model']}" if link.get("model") else str(link["provider"])
        for link in row.get("chain", ())
    ]
    ms = row.get("deadline_ms")
    return {
        **row,
        "asks": ", then ".join(asks) or "nobody",
        "asked_by": row.get("asked_by") or "nothing yet",
        "deadline": None if ms is None else f"{ms / 1000:g} s",
    }


def from_when(row: Mapping[str, Any]) -> str:
    """Return when a role that was set asks so."""
    when = row.get("takes_effect")
    return visible(f"{when}; vectors come as before until then") if when else "now"


def money_shown(micros: Any) -> str | None:
    """Return micro-units as a decimal amount."""
    if not isinstance(micros, int):
        return None
    return f"{Decimal(micros).scaleb(-6):.6f}"


def cost_shown(row: Mapping[str, Any]) -> str | None:
    """Return what a call cost, with how well that is known where it is not."""
    kind, amount = row.get("cost_kind"), money_shown(row.get("cost_micros"))
    if kind in ("unknown", "free"):
        return str(kind) if kind == "free" or amount is None else f"{amount} and unknown"
    return f"about {amount}" if kind == "estimated" and amount is not None else amount


def budget_lines(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a budget as lines of a table, one for each window."""
    base = {
        "id": row.get("id"),
        "scope": row.get("scope"),
        "key": row.get("mind") or row.get("key"),
        "period": row.get("period"),
        "money": money_shown(row.get("money_micros")),
        "tokens": row.get("tokens"),
    }
    windows = row.get("windows") or [{}]
    return [
        {
            **base,
            "key": window.get("mind") or window.get("key") or base["key"],
            "window": window.get("starts"),
            "spent": money_shown(window.get("spent_micros")),
            "used": window.get("spent_tokens"),
            "unknown_calls": window.get("unknown_calls"),
            "stopped": window.get("stopped"),
        }
        for window in windows
    ]


def _split(pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise click.UsageError(f"{pair!r} is not KEY=VALUE.")
    return key, value


def _decimal(key: str, value: str) -> Decimal:
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise click.UsageError(f"{key} is a number, not {value!r}.") from None
    if not number.is_finite() or number.adjusted() > _MOST_DIGITS:
        raise click.UsageError(f"{key} is no number of a usable size.")
    return number


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def told(answer: Any, said: str, *, as_json: bool) -> None:
    """Print what came of a change: a line for a person, the answer for a program."""
    if as_json:
        put_json(answer)
    else:
        click.echo(said)


# --- calls, as people read them ------------------------------------------------------------------


def put_call(row: Mapping[str, Any]) -> None:
    """Print a call on record: its facts, its attempts, then all texts as they are."""
    content = row.get("content") or {}
    facts = {
        **{k: v for k, v in row.items() if k not in ("attempts", "content", "hidden", *_COSTS)},
        "cost": cost_shown(row),
        "asked_by": content.get("actor"),
    }
    put_one({k: v for k, v in facts.items() if v not in (None, "", {}, [])}, as_json=False)
    _put_attempts(row.get("attempts") or ())
    if row.get("hidden"):
        _put_text("what was asked and answered", str(row["hidden"]))
        return
    _put_messages(content.get("messages") or ())
    for refused in content.get("refused") or ():
        _put_text("an answer that could not be used", str(refused.get("text", "")))
        click.echo(visible(f"({refused.get('reason', '')})"))
    if content.get("answer") is not None:
        _put_text("answer", str(content["answer"]))
    if content.get("reason"):
        _put_text("why it failed", str(content["reason"]))


def put_test(tried: Mapping[str, Any]) -> None:
    """Print what a test sent and what came back."""
    for sent in tried.get("sent") or ():
        status = sent.get("status")
        came = "no answer" if status is None else f"HTTP {status}"
        click.echo(visible(f"{sent.get('method')} {sent.get('url')}: {came}"))
        click.echo(f"headers: {visible(', '.join(sent.get('headers') or ()))}")
        click.echo("\n".join(lines_of(sent.get("body"))))
    if not tried.get("sent"):
        _put_messages(tried.get("messages") or ())
    answer = tried.get("answer")
    if answer is not None:
        _put_text("answer", str(answer.get("text", "")))
        facts = {
            "model": answer.get("model"),
            "finish": answer.get("finish"),
            "usage": {k: v for k, v in (answer.get("usage") or {}).items() if v is not None},
            "cost": cost_shown(answer),
            "ms": answer.get("latency_ms"),
        }
        click.echo("")
        put_one(facts, as_json=False)
    if tried.get("call"):
        click.echo(f"on record: noemactl llm call show {visible(str(tried['call']))}")


def _put_attempts(attempts: Sequence[Mapping[str, Any]]) -> None:
    if attempts:
        rows = [
            {**a, "cost": cost_shown(a), "error": a.get("error") or "answered"} for a in attempts
        ]
        click.echo("\n" + "\n".join(table(rows, _ATTEMPTS, width=None)))


def _put_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    for message in messages:
        _put_text(str(message.get("role", "")), str(message.get("text", "")))


def _put_text(title: str, text: str) -> None:
    click.echo(f"\n--- {visible(title)}")
    click.echo(visible(text, keep="\n\t").rstrip("\n"))

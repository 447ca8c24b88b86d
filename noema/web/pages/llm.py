"""What the pages of models share: money, messages in pieces, forms that may hold a secret."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from starlette.responses import Response

from noema.core.errors import InvalidInput, NoemaError
from noema.core.identity import Identity
from noema.llm import prompts
from noema.llm.acts import is_administrator
from noema.llm.model import MICRO, Usage
from noema.web import llm_views as views
from noema.web.call import Call
from noema.web.origin import is_fresh
from noema.web.pages import proof
from noema.web.render import NOTHING, THIN

SHOWN_CHARS: Final = 100_000
_DECIMALS: Final = 6
_FEWEST_DECIMALS: Final = 2
_LEFT_OUT: Final = "secret_left_out"


def may_change(who: Identity) -> bool:
    """Whether the forms that change something are shown; whoever does it asks again."""
    return is_administrator(who)


def field_of(exc: NoemaError) -> str | None:
    """Return the box of a form that the error is about."""
    return getattr(exc, "field", None)


# --- money and tokens --------------------------------------------------------------------------


def decimal(micros: int) -> str:
    """Return millionths as a decimal for a box: as many places as it has, and two at least."""
    whole, rest = divmod(abs(micros), MICRO)
    places = f"{rest:0{_DECIMALS}d}".rstrip("0").ljust(_FEWEST_DECIMALS, "0")
    return f"{'-' if micros < 0 else ''}{whole}.{places}"


def money(micros: int | None) -> str:
    """Return an amount for people, its thousands parted."""
    if micros is None:
        return NOTHING
    whole, _, places = decimal(micros).partition(".")
    return f"{int(whole):,}".replace(",", THIN) + f".{places}"


def cost(micros: int | None, kind: str | None) -> views.Cost:
    """Return what something cost, and how far that is known."""
    if kind == "unknown" and micros:
        return views.Cost(text=f"at least {money(micros)}", kind=kind)
    if kind in ("unknown", "free"):
        return views.Cost(text=kind, kind=kind)
    return views.Cost(text=money(micros), kind=kind or "")


def tokens(usage: Usage) -> tuple[views.Tokens, ...]:
    """Return the classes of tokens, which are disjoint."""
    return (
        views.Tokens(name="Input", count=usage.input),
        views.Tokens(name="Read from cache", count=usage.cache_read),
        views.Tokens(name="Written to cache", count=usage.cache_write),
        views.Tokens(name="Reasoning", count=usage.reasoning),
        views.Tokens(name="Output", count=usage.output),
    )


# --- text that was sent, and that came ---------------------------------------------------------


def pretty(value: Any) -> str:
    """Return JSON as people read it."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def piece(text: str, *, is_data: bool = False, label: str = "") -> views.Piece:
    """Return a text, its end left out where it is very long."""
    return views.Piece(
        text=text[:SHOWN_CHARS],
        is_data=is_data,
        label=label,
        left=max(0, len(text) - SHOWN_CHARS),
    )


def messages(sent: Iterable[Mapping[str, Any]], *, is_rendered: bool) -> tuple[views.Message, ...]:
    """Return messages in pieces. Only what a prompt rendered has data blocks to be marked."""
    shown = []
    for one in sent:
        text = str(one.get("text", ""))
        parts: tuple[views.Piece, ...] = (piece(text),)
        if is_rendered:
            parts = tuple(
                piece(
                    # A line break beside a block is that of its edge.
                    p.text if p.is_data else p.text.strip("\n"),
                    is_data=p.is_data,
                    label=p.label,
                )
                for p in prompts.parts_of(text)
                if p.is_data or p.text.strip("\n")
            )
        shown.append(views.Message(role=str(one.get("role", "")), pieces=parts))
    return tuple(shown)


# --- forms -------------------------------------------------------------------------------------


def typed(form: Mapping[str, str], exc: NoemaError | None = None) -> views.Form:
    """Return the form as it was sent, without its secret."""
    kept = ("csrf_token", "secret", _LEFT_OUT)
    return views.Form(
        values={k: v for k, v in form.items() if k not in kept},
        error=None if exc is None else str(exc),
        field=None if exc is None else field_of(exc),
    )


def lines_of(form: Mapping[str, str], name: str) -> str:
    """Return a text of several lines with its line ends as the author meant them."""
    return form.get(name, "").replace("\r\n", "\n").replace("\r", "\n")


async def proven(call: Call) -> Response | None:
    """Return the page that asks for the password, None where nobody needs to be asked.

    That page carries what the form held. A secret it does not carry: it has to be typed again, as
    `require_secret_again` says.
    """
    if not is_fresh(call) and call.form.get("secret"):
        call.form = {k: v for k, v in call.form.items() if k != "secret"} | {_LEFT_OUT: "1"}
    return await proof.ask(call)


def require_secret_again(call: Call) -> None:
    """Raise InvalidInput where the form left a secret behind in the question for the password."""
    if _LEFT_OUT in call.form and not call.form.get("secret"):
        raise InvalidInput(
            "Thank you. The secret was not carried through that question: type it once more. "
            "Nothing is changed yet.",
            field="secret",
        )

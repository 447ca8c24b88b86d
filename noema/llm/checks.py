"""What a provider and a role may be configured to be; everything here raises InvalidInput."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import httpx
import msgspec

from noema.core.canonical import escape_tree
from noema.core.errors import ConfigError, InvalidInput
from noema.llm.configured import Link
from noema.llm.model import Parameters, Prices
from noema.llm.providers.anthropic import ENDPOINT as ANTHROPIC
from noema.llm.providers.bedrock import REGION, place_of
from noema.llm.providers.make import KINDS
from noema.llm.providers.ollama import ENDPOINT as OLLAMA
from noema.llm.providers.openai import ENDPOINT as OPENAI
from noema.llm.providers.sigv4 import credential_from
from noema.net.guard import check_url

MOST_IN_CHAIN: Final = 8
LONGEST_DEADLINE_MS: Final = 3_600_000
DEFAULT_DEADLINE_MS: Final = 30_000
"""A mind waits as long at most, and thinks nothing else meanwhile."""

SECRET_CHARS: Final = 16_384
HINT_FROM: Final = 12
_HINT_CHARS: Final = 4
_ENDPOINT_CHARS: Final = 2_000
_MODEL_CHARS: Final = 2_048
_PARAMETERS_BYTES: Final = 10_000
_MOST_TOKENS: Final = 10_000_000
_MOST_PRICE: Final = 10**12
_MOST_STOPS: Final = 16
_STOP_CHARS: Final = 200
_SEED: Final = 2**63

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
_DEFAULT_ENDPOINT: Final[Mapping[str, str]] = {
    "openai": OPENAI,
    "anthropic": ANTHROPIC,
    "ollama": OLLAMA,
    "echo": "",
}
_NO_SECRET: Final = frozenset({"echo"})
# What stands in parameters is shown to operators and kept with every call.
_KEYLIKE: Final = re.compile(
    r"(?:x[-_])?(?:api[-_]?key|access[-_]?key|auth(?:orization)?|password|passwd|secret|"
    r"(?:access|bearer|auth|session|security)[-_]?token)\Z",
    re.IGNORECASE,
)
# What the body of a request already has, and the service decides.
_RESERVED: Final = frozenset(
    {"messages", "model", "system", "input", "prompt", "tools", "functions", "n"}
)


def checked_name(name: str) -> str:
    """Return the name of a provider."""
    if not _NAME.match(name):
        raise InvalidInput(
            "A provider's name has 1 to 63 of a-z, 0-9, dot, dash and underscore, and begins with "
            "a letter or digit.",
            field="name",
        )
    return name


def checked_kind(kind: str) -> str:
    """Return the kind of a provider."""
    if kind not in KINDS:
        raise InvalidInput(f"kind is one of {', '.join(KINDS)}, not {kind[:40]!r}.", field="kind")
    return kind


def endpoint_of(kind: str, endpoint: str) -> str:
    """Return where a provider is asked: what was given, else the usual place of its kind."""
    given = endpoint.strip()
    if given or kind in _DEFAULT_ENDPOINT:
        return given or _DEFAULT_ENDPOINT[kind]
    raise InvalidInput(f"A provider of the kind {kind} needs its endpoint.", field="endpoint")


def check_endpoint(
    kind: str, endpoint: str, parameters: Parameters, *, allows_private: bool
) -> None:
    """Check the form of an endpoint; what its name leads to is judged with each connection.

    That of Amazon Bedrock has to tell its region, where the parameters do not.
    """
    if kind == "echo":
        if endpoint:
            raise InvalidInput(
                "The echo is asked nowhere; leave the endpoint off.", field="endpoint"
            )
        return
    if len(endpoint) > _ENDPOINT_CHARS or not endpoint.isprintable() or " " in endpoint:
        raise InvalidInput("That is no address of the form https://host/path.", field="endpoint")
    check_url(endpoint, allows_private=allows_private)
    parts = urlsplit(endpoint)
    # What stands in an address reaches logs; a key belongs into the secret.
    names = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if parts.fragment or names - ({"api-version"} if kind == "azure" else set()):
        raise InvalidInput(
            "An endpoint has no parameters behind a question mark; a key is given as the secret.",
            field="endpoint",
        )
    if kind == "bedrock":
        try:
            place_of(endpoint, str(parameters.extra.get(REGION, "")), allows_private=allows_private)
        except ConfigError as exc:
            raise InvalidInput(str(exc), field="endpoint") from None


def host_of(endpoint: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port, None for the scheme's own: what a secret is given for.

    As the client reads them: what two readers see differently would be a way to another host.
    """
    url = httpx.URL(endpoint)
    return url.scheme, url.raw_host.decode("ascii"), url.port


def checked_model(model: str) -> str:
    """Return the name of a model as a provider calls it."""
    kept = model.strip()
    if len(kept) > _MODEL_CHARS or not kept.isprintable():
        raise InvalidInput(
            f"A model's name has at most {_MODEL_CHARS:,} printable characters.", field="model"
        )
    return kept


def check_parameters(parameters: Parameters, field: str = "parameters") -> None:
    """Check every parameter that is set."""
    _within(parameters.temperature, 0, 2, f"{field}.temperature")
    _within(parameters.top_p, 0, 1, f"{field}.top_p")
    _within(parameters.max_tokens, 1, _MOST_TOKENS, f"{field}.max_tokens")
    _within(parameters.num_ctx, 1, _MOST_TOKENS, f"{field}.num_ctx")
    _within(parameters.seed, -_SEED, _SEED - 1, f"{field}.seed")
    stops = parameters.stop
    if len(stops) > _MOST_STOPS or not all(0 < len(s) <= _STOP_CHARS for s in stops):
        raise InvalidInput(
            f"stop is at most {_MOST_STOPS} texts of 1 to {_STOP_CHARS} characters.",
            field=f"{field}.stop",
        )
    taken = sorted(_RESERVED.intersection(parameters.extra))
    if taken:
        raise InvalidInput(f"extra cannot set {taken[0]}.", field=f"{field}.extra")
    if any(_KEYLIKE.match(name) for name in _names(parameters.extra)):
        raise InvalidInput(
            "Parameters are shown and recorded; a key is given as the secret.",
            field=f"{field}.extra",
        )
    if len(msgspec.json.encode(escape_tree(msgspec.to_builtins(parameters)))) > _PARAMETERS_BYTES:
        raise InvalidInput(f"{field} is over {_PARAMETERS_BYTES:,} bytes.", field=field)


def check_prices(prices: Prices) -> None:
    """Check every price that is set: micro-units per million tokens."""
    for name in prices.__struct_fields__:
        _within(getattr(prices, name), 0, _MOST_PRICE, f"prices.{name}")


def check_chain(chain: Sequence[Link]) -> None:
    """Check a role's chain, apart from whether its providers are there."""
    if len(chain) > MOST_IN_CHAIN:
        raise InvalidInput(f"A chain has at most {MOST_IN_CHAIN} providers.", field="chain")
    seen = set()
    for place, link in enumerate(chain):
        checked_model(link.model)
        check_parameters(link.parameters, f"chain[{place}].parameters")
        if (link.provider, link.model) in seen:
            raise InvalidInput(
                f"{link.provider} stands in the chain twice; who tries again is not for a chain to "
                "say.",
                field=f"chain[{place}]",
            )
        seen.add((link.provider, link.model))


def check_deadline(deadline_ms: int) -> None:
    """Check how long a role may take in all."""
    _within(deadline_ms, 100, LONGEST_DEADLINE_MS, "deadline_ms")


def checked_secret(kind: str, secret: str) -> str:
    """Return the secret without white space around it; an error never holds it."""
    if kind in _NO_SECRET:
        raise InvalidInput("The echo takes no secret.", field="secret")
    kept = secret.strip()
    if not kept or len(kept) > SECRET_CHARS or not kept.isascii() or not kept.isprintable():
        raise InvalidInput(
            f"A secret is 1 to {SECRET_CHARS:,} printable ASCII characters on one line.",
            field="secret",
        )
    if kind == "bedrock":
        try:
            credential_from(kept)
        except ConfigError as exc:
            raise InvalidInput(str(exc), field="secret") from None
    return kept


def hint_of(secret: str) -> str:
    """Return what is shown of a secret: its end where it is long enough to give nothing away."""
    return secret[-_HINT_CHARS:] if len(secret) > HINT_FROM else ""


def _names(value: Any) -> Iterator[str]:
    """Give the names of all objects in JSON."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Mapping):
            yield from found
            waiting.extend(found.values())
        elif isinstance(found, (list, tuple)):
            waiting.extend(found)


def _within(value: Any, low: float, high: float, field: str) -> None:
    if value is None:
        return
    # A float that is no number compares with nothing.
    if isinstance(value, bool) or not low <= value <= high:
        raise InvalidInput(f"{field} is from {low:,} to {high:,}.", field=field)

"""Bodies of requests about models, and what they become."""

from decimal import Decimal
from typing import Any, Literal

import msgspec

from noema.core.errors import InvalidInput
from noema.llm.budget import EACH, Period, Scope
from noema.llm.checks import DEFAULT_DEADLINE_MS
from noema.llm.configured import Link, NewProvider, ProviderChange
from noema.llm.model import MICRO, Parameters, Prices, Role
from noema.web import forms

_MOST_MICROS = 10**15

Kind = Literal["openai", "azure", "anthropic", "ollama", "bedrock", "echo"]


class ParametersBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is sent to a model; what is left off is not sent."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    num_ctx: int | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)

    def plain(self) -> Parameters:
        return Parameters(**msgspec.structs.asdict(self))


class ProviderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/llm/providers. Prices are micro-units per million tokens."""

    name: str
    kind: Kind
    endpoint: str = ""
    model: str = ""
    parameters: ParametersBody = ParametersBody()
    prices: Prices | None = None
    allows_private: bool | None = None
    secret: str | None = None

    def plain(self) -> NewProvider:
        return NewProvider(
            name=self.name,
            kind=self.kind,
            endpoint=self.endpoint,
            model=self.model,
            parameters=self.parameters.plain(),
            prices=self.prices,
            allows_private=self.allows_private,
        )

    def __repr__(self) -> str:
        return f"ProviderBody(name={self.name!r})"


class ProviderPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PATCH /v1/llm/providers/{name}: only what is named changes, and that as a whole."""

    endpoint: str | None = None
    model: str | None = None
    parameters: ParametersBody | None = None
    prices: Prices | None = None
    allows_private: bool | None = None
    is_enabled: bool | None = None
    secret: str | None = None

    def plain(self) -> ProviderChange:
        return ProviderChange(
            endpoint=self.endpoint,
            model=self.model,
            parameters=None if self.parameters is None else self.parameters.plain(),
            prices=self.prices,
            allows_private=self.allows_private,
            is_enabled=self.is_enabled,
        )

    def __repr__(self) -> str:
        return "ProviderPatch()"


class SecretBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT /v1/llm/providers/{name}/secret."""

    secret: str

    def __repr__(self) -> str:
        return "SecretBody()"


class TestBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/llm/providers/{name}/test; its own model and a short question unless told."""

    __test__ = False

    text: str = ""
    model: str = ""


class LinkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One place in a chain."""

    provider: str
    model: str = ""
    parameters: ParametersBody = ParametersBody()

    def plain(self) -> Link:
        return Link(
            provider=self.provider, model=self.model.strip(), parameters=self.parameters.plain()
        )


class RoleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT /v1/llm/roles/{role}: the primary first; empty turns the role off.

    `base` is the version the writer knew, so that nobody's change is lost.
    """

    chain: tuple[LinkBody, ...]
    deadline_ms: int = DEFAULT_DEADLINE_MS
    base: int | None = None


class PromptBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/llm/prompts/{name}/versions; `base` is the newest version the writer knew."""

    template: str
    system: str = ""
    note: str = ""
    base: int | None = None
    use: bool = False


class PreviewBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/llm/prompts/{name}/preview."""

    template: str
    system: str = ""


class UseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/llm/prompts/{name}/use."""

    version: int


class BudgetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/llm/budgets. `money` is a decimal as text; `key` a mind, a role or a provider."""

    scope: Scope
    period: Period
    key: str = EACH
    money: str | None = None
    tokens: int | None = None

    def money_micros(self) -> int | None:
        """Return the limit in micro-units; raises InvalidInput where it is no amount."""
        if self.money is None:
            return None
        micros = forms.micro(self.money, "money")
        if not 0 <= micros <= _MOST_MICROS:
            raise InvalidInput("money is an amount from 0.", field="money")
        if Decimal(self.money) * MICRO != micros:
            raise InvalidInput("money has six decimal places at most.", field="money")
        return micros


def role_of(text: str) -> Role:
    """Return the role of that name; raises InvalidInput."""
    try:
        return Role(text)
    except ValueError:
        words = ", ".join(Role)
        raise InvalidInput(f"A role is one of {words}, not {text[:40]!r}.", field="role") from None

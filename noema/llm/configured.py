"""What an operator configured: providers, and which of them a role asks, as values."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from noema.llm.model import Parameters, Prices, Role


class ProviderRow(msgspec.Struct, frozen=True, kw_only=True):
    """One provider as configured. Of its secret it knows that there is one, and the hint.

    `version` rises with every change, of the secret too.
    """

    id: UUID
    name: str
    kind: str
    endpoint: str
    model: str
    parameters: Parameters
    prices: Prices
    secret_id: UUID | None
    secret_hint: str
    secret_set_by: str | None
    secret_set_at: datetime | None
    allows_private: bool
    is_enabled: bool
    version: int
    created_by: str
    created_at: datetime
    updated_by: str
    updated_at: datetime

    @property
    def has_secret(self) -> bool:
        """Whether a secret is stored."""
        return self.secret_id is not None


class NewProvider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider to be made."""

    name: str
    kind: str
    endpoint: str = ""
    model: str = ""
    parameters: Parameters = Parameters()
    prices: Prices | None = None
    allows_private: bool | None = None


class ProviderChange(msgspec.Struct, frozen=True, kw_only=True):
    """What of a provider is to change; None leaves it as it is.

    A secret was given for one host. Where the endpoint moves to another, it has to come again.
    """

    endpoint: str | None = None
    model: str | None = None
    parameters: Parameters | None = None
    prices: Prices | None = None
    allows_private: bool | None = None
    is_enabled: bool | None = None


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One place in a role's chain: a provider by name, and what differs from its row."""

    provider: str
    model: str = ""
    parameters: Parameters = Parameters()


class RoleRow(msgspec.Struct, frozen=True, kw_only=True):
    """Which providers a role asks, the primary first, and how long it may take in all."""

    role: Role
    version: int
    chain: tuple[Link, ...]
    deadline_ms: int
    actor: str
    set_at: datetime


def as_json(value: msgspec.Struct) -> Mapping[str, Any]:
    """Return a struct as plain JSON, without what was not set."""
    built: dict[str, Any] = msgspec.to_builtins(value)
    return {key: inner for key, inner in built.items() if inner is not None}

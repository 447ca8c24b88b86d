"""Which embedder the daemon has: the role `embed` where it is set, else NOEMA_EMBEDDER.

    made = await choice.made(settings.embedder)      once, at the start
    choice.in_force                                  what came of it, to be shown

A change of the role takes effect when the daemon starts again, because another model means another
space, which memory makes active when it starts.
"""

from typing import Final, Literal

import msgspec
import structlog

from noema.config import EmbedderSettings
from noema.core.clock import Clock
from noema.core.errors import ConfigError, InvalidInput, NotFound, Unavailable
from noema.llm.configured import Link, ProviderRow, RoleRow
from noema.llm.embedders.chain import EmbedderChain
from noema.llm.embedders.links import check_links, settings_of, space_of
from noema.llm.embedders.make import destination_of, make_embedder, remote_embedder
from noema.llm.embedders.remote import RemoteEmbedder
from noema.llm.embedders.wire import OpenAiWire
from noema.llm.model import Embedder, Role
from noema.llm.registry import Registry
from noema.net.http import Limits

log = structlog.get_logger(__name__)

Source = Literal["role embed", "NOEMA_EMBEDDER"]
Destination = Literal["local", "provider"]

TAKES_EFFECT: Final = "when the daemon starts again"
"""When a change of the role does."""


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """The embedder of this daemon. `version` is the role's that it is of, 0 of the setting."""

    model: str
    source: Source
    destination: Destination
    version: int = 0

    @property
    def told(self) -> str:
        """What it is, for people."""
        source = f"{self.source}, version {self.version}" if self.version else self.source
        return f"{self.model or 'none'}, by {source}"


class Choice:
    """Makes the embedder when the daemon starts, and remembers which it is."""

    def __init__(self, *, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self.in_force = InForce(model="", source="NOEMA_EMBEDDER", destination="local")

    async def made(self, settings: EmbedderSettings) -> Embedder | None:
        """Return the embedder; whoever takes it gives it to `aclose`. It asks nobody yet.

        A provider of the role that cannot be asked is left out, and told where none is left:
        whoever is to mend it needs the daemon. Raises ConfigError where the setting cannot be used.
        """
        role = await self._role()
        if role is None:
            made = make_embedder(settings, self._clock)
            self.in_force = InForce(
                model="" if made is None else made.model,
                source="NOEMA_EMBEDDER",
                destination=destination_of(settings),
            )
            return made
        rows = {row.name: row for row in await self._registry.providers()}
        places = [(rows[link.provider], link) for link in role.chain if link.provider in rows]
        model, ways, missing = "", [], []
        destination: Destination = "local"
        try:
            check_links(places)
            model = space_of(*places[0]) if places else ""
        except InvalidInput as exc:
            # Only who writes to the database itself gets here.
            missing, places = [f"The role embed cannot be used: {exc}"], []
        for row, link in places:
            if not row.is_enabled:
                missing.append(f"The provider {row.name} is disabled.")
                continue
            try:
                way, goes_to = await self._way(row, link, role)
            except (ConfigError, Unavailable) as exc:
                missing.append(f"The provider {row.name} is not asked: {exc}")
                log.warning("embedding.no_way", provider=row.name, reason=str(exc))
                continue
            ways.append(way)
            destination = "provider" if goes_to == "provider" else destination
        self.in_force = InForce(
            model=model, source="role embed", destination=destination, version=role.version
        )
        return EmbedderChain(model=model, ways=ways, missing=missing)

    async def _role(self) -> RoleRow | None:
        try:
            role = await self._registry.role(Role.EMBED)
        except NotFound:
            return None
        return role if role.chain else None

    async def _way(
        self, row: ProviderRow, link: Link, role: RoleRow
    ) -> tuple[RemoteEmbedder, Destination]:
        settings = settings_of(row, link, await self._registry.secret_of(row))
        way = remote_embedder(
            settings,
            self._clock,
            name=f"the provider {row.name}",
            allows_private=row.allows_private,
            limits=Limits(total_s=role.deadline_ms / 1000),
            # The provider's address says where /v1 belongs.
            wire=OpenAiWire() if row.kind == "openai" else None,
        )
        return way, destination_of(settings)

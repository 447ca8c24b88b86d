"""The one place that decides what of minds an identity may see and do.

    nobody of its tenant   there is no such mind
    somebody of its tenant, and every administrator of the console: ids, types, times, numbers
    who acts in a namespace that reads the mind's: its content too
    who acts in the mind's own namespace, with a role that writes: may speak to it

One acts in one namespace at a time, and sees from there: that namespace and those above it.
"""

from dataclasses import dataclass
from typing import Self

from noema.auth.model import Credential, Session
from noema.auth.roles import MemoryRight, console_allows, memory_allows
from noema.core.errors import Denied
from noema.core.identity import NOWHERE, ConsoleRole, Identity, readable_namespaces


class OutOfReach(Denied):
    """The identity's namespace does not allow it, whatever its console role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one credential sees. `tenants` are those it is somebody in, None for all there are."""

    identity: Identity
    readable: frozenset[str]
    tenants: frozenset[str] | None
    belongs_to: frozenset[str]

    @classmethod
    def of(cls, entry: Credential) -> Self:
        """Return what the session or token sees at this moment."""
        who = entry.identity
        places = {who.namespace}
        if isinstance(entry, Session) and entry.token_id is None:
            places.update(m.namespace for m in entry.memberships)
        places.discard(NOWHERE)
        tenants = frozenset(tenant_of(place) for place in places)
        reads = memory_allows(who.role, MemoryRight.READ)
        return cls(
            identity=who,
            readable=readable_namespaces(who) if reads else frozenset(),
            tenants=None if console_allows(who.console, ConsoleRole.ADMINISTRATOR) else tenants,
            belongs_to=frozenset(places),
        )

    @property
    def view(self) -> tuple[object, ...]:
        """What is equal for two that see the same, and so may share what was read for one."""
        return self.readable, self.tenants, self.belongs_to

    @property
    def knows_all(self) -> bool:
        """Whether nothing is left out, so that what is missing is missing in the log itself."""
        return self.tenants is None

    def knows(self, namespace: str) -> bool:
        """Whether there is, for this identity, anything in the namespace."""
        return self.tenants is None or tenant_of(namespace) in self.tenants

    def sees(self, namespace: str) -> bool:
        """Whether the content of what lives in the namespace is shown."""
        return namespace in self.readable

    def why_hidden(self, namespace: str) -> str:
        """Return what stands in place of content, and how it would be seen where it could."""
        if namespace in readable_namespaces(_Place(namespace=p) for p in self.belongs_to):
            return f"you do not act in {namespace} now; switch to it"
        return f"you are not a member of {namespace}"

    def require_sight(self, namespace: str) -> None:
        """Raise OutOfReach unless content of the namespace is shown."""
        if not self.sees(namespace):
            raise OutOfReach(f"This looks into content, and {self.why_hidden(namespace)}.")

    def require_write(self, namespace: str) -> None:
        """Raise OutOfReach unless the identity acts in this very namespace and may write there."""
        who = self.identity
        if who.namespace != namespace:
            why = f"you do not act in {namespace} now; switch to it"
            if namespace not in self.belongs_to:
                why = f"you are not a member of {namespace}"
            raise OutOfReach(f"This needs a membership that writes there, and {why}.")
        if not memory_allows(who.role, MemoryRight.WRITE):
            raise OutOfReach(f"This needs a role that writes in {namespace}; you are {who.role}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    namespace: str


def tenant_of(namespace: str) -> str:
    """Return the tenant of a namespace: its first segment."""
    return namespace.partition("/")[0]

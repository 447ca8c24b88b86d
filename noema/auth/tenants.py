"""Tenants and their namespaces. Nobody comes in through a suspended tenant."""

from typing import Final

from noema.auth.model import Tenant
from noema.auth.revocations import EVERYBODY, Revocations
from noema.auth.roles import require_console
from noema.auth.store import doors, people
from noema.core.errors import Conflict, NotFound
from noema.core.identity import ConsoleRole, Identity, check_namespace, namespace_ancestors
from noema.db.tx import Database
from noema.events.audit import Audit

_ADMIN: Final = ConsoleRole.ADMINISTRATOR


class Tenants:
    """Creates, suspends and lists tenants and namespaces; for administrators, and audited."""

    def __init__(self, *, db: Database, audit: Audit, revocations: Revocations) -> None:
        self._db = db
        self._audit = audit
        self._revocations = revocations

    async def create(self, by: Identity, name: str) -> None:
        """Create a tenant and the namespace of its name; raise Conflict where there is one."""
        async with self._audit.doing(by, "tenant.create", f"tenant:{name}") as deed:
            require_console(by, _ADMIN)
            check_namespace(name)
            if "/" in name:
                raise Conflict("A tenant is the first segment of a namespace; leave the rest off.")
            await people.insert_tenant(deed.tx.conn, name, by.actor, deed.tx.now)
            await people.insert_namespaces(deed.tx.conn, [name], name, by.actor, deed.tx.now)

    async def create_namespace(self, by: Identity, path: str) -> None:
        """Create a namespace and those above it; raise NotFound where its tenant is not there."""
        async with self._audit.doing(by, "namespace.create", f"namespace:{path}") as deed:
            require_console(by, _ADMIN)
            check_namespace(path)
            if await people.has_namespace(deed.tx.conn, path):
                raise Conflict(f"There is a namespace {path} already.")
            paths = namespace_ancestors(path)
            await people.insert_namespaces(deed.tx.conn, paths, paths[0], by.actor, deed.tx.now)

    async def suspend(self, by: Identity, name: str) -> None:
        """Let nobody act in the tenant any more; open streams end. One cannot suspend one's own."""
        await self._set(by, name, "suspended")

    async def resume(self, by: Identity, name: str) -> None:
        """Let the tenant's people act again."""
        await self._set(by, name, "active")

    async def _set(self, by: Identity, name: str, status: str) -> None:
        verb = "tenant.suspend" if status == "suspended" else "tenant.resume"
        async with self._audit.doing(by, verb, f"tenant:{name}") as deed:
            require_console(by, _ADMIN)
            if status == "suspended" and by.namespace.partition("/")[0] == name:
                raise Conflict(
                    "You act in this tenant, and would shut yourself out; switch to another "
                    "namespace first."
                )
            if not await people.set_tenant(deed.tx.conn, name, status):
                raise NotFound("tenant", name)
            await doors.notify(deed.tx.conn, EVERYBODY)
        self._revocations.told(EVERYBODY)

    async def all(self) -> list[Tenant]:
        """Return all tenants with their namespaces, by name."""
        async with self._db.reading() as tx:
            rows = await people.tenants(tx.conn)
        return [Tenant(**{**row, "namespaces": tuple(row["namespaces"])}) for row in rows]

    async def is_active(self, namespace: str) -> bool:
        """Whether the namespace is there and its tenant is not suspended."""
        async with self._db.reading() as tx:
            return await people.is_namespace_active(tx.conn, namespace)

"""Providers and roles: what administrators configure, and what the service asks for at each call.

    administrator ──▶ providers, secrets, roles (audited)
                              │ at most half a second old
    service ──▶ chain_of(role) ──▶ provider_of(id) ──▶ attempt

A secret is sealed before it is stored, opened where a provider is made, and shown to nobody. It was
given for one host, and is bound to it: an endpoint that moves to another needs it again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog

from noema.core.canonical import escape_tree, unescape_tree
from noema.core.clock import Clock, Ids
from noema.core.errors import Conflict, InvalidInput, NotFound, Unavailable
from noema.core.fresh import Fresh
from noema.core.identity import Identity
from noema.core.sealing import Sealer
from noema.db.keys import Keys
from noema.db.tx import Database, Tx
from noema.events.audit import Audit
from noema.llm import checks
from noema.llm.acts import is_administrator, require_administrator
from noema.llm.configured import (
    Link,
    NewProvider,
    ProviderChange,
    ProviderRow,
    RoleRow,
    as_json,
)
from noema.llm.embedders.links import check_links
from noema.llm.model import (
    Chain,
    ChatMessage,
    Completion,
    Entry,
    Parameters,
    Prices,
    Provider,
    Role,
)
from noema.llm.providers.asking import merged
from noema.llm.providers.make import MakeProvider, OpenProvider, make_provider, usual_prices
from noema.llm.store import providers as store

log = structlog.get_logger(__name__)

PURPOSE: Final = "llm.secret"
_FRESH_S: Final = 0.5
_MOST_VERSIONS: Final = 200


class Registry:
    """Keeps providers and roles, and hands out what a call needs.

    What is configured is looked up at most twice a second: a change in another daemon is heard of
    within that time, one in this daemon at once.
    """

    def __init__(
        self,
        *,
        db: Database,
        audit: Audit,
        keys: Keys,
        clock: Clock,
        ids: Ids,
        make: MakeProvider = make_provider,
    ) -> None:
        self._db = db
        self._audit = audit
        self._keys = keys
        self._ids = ids
        self._make = make
        self._fresh: Fresh[None, _Configured] = Fresh(clock, for_s=_FRESH_S)
        self._open: dict[UUID, _Lent] = {}

    # --- reading -----------------------------------------------------------------------------

    async def providers(self) -> tuple[ProviderRow, ...]:
        """Return all providers, by name."""
        async with self._db.reading() as tx:
            return tuple(_provider(row) for row in await store.providers(tx.conn))

    async def provider(self, name: str) -> ProviderRow:
        """Return one provider; raises NotFound."""
        async with self._db.reading() as tx:
            return await self.named(tx, name)

    async def named(self, tx: Tx, name: str) -> ProviderRow:
        """Return one provider as the transaction sees it; raises NotFound."""
        rows = await store.providers(tx.conn, name)
        if not rows:
            raise NotFound("provider", name)
        return _provider(rows[0])

    async def roles(self) -> tuple[RoleRow, ...]:
        """Return the roles that were ever configured, as they are now, by name."""
        async with self._db.reading() as tx:
            return tuple(_role(row) for row in await store.roles(tx.conn))

    async def role(self, role: Role) -> RoleRow:
        """Return one role; raises NotFound where it was never configured."""
        return (await self.role_versions(role, limit=1))[0]

    async def role_versions(
        self, role: Role, *, limit: int = _MOST_VERSIONS
    ) -> tuple[RoleRow, ...]:
        """Return how a role was configured, newest first; raises NotFound where it never was."""
        async with self._db.reading() as tx:
            rows = await store.role_versions(tx.conn, role.value, limit)
        if not rows:
            raise NotFound("configuration of the role", role.value)
        return tuple(_role(row) for row in rows)

    # --- providers ---------------------------------------------------------------------------

    async def create(
        self, by: Identity, new: NewProvider, *, secret: str | None = None
    ) -> ProviderRow:
        """Make a provider; raises Denied, InvalidInput, and Conflict where there is one."""
        sealer = await self._sealer(by, secret)
        async with self._audit.doing(by, "llm.provider-create", f"provider:{new.name}") as deed:
            require_administrator(by)
            name, kind = checks.checked_name(new.name), checks.checked_kind(new.kind)
            endpoint = checks.endpoint_of(kind, new.endpoint)
            # Ollama's place is this machine; of the others that has to be said.
            is_private = kind == "ollama" if new.allows_private is None else new.allows_private
            prices = new.prices or usual_prices(kind, endpoint, new.model)
            _check(kind, endpoint, is_private, new.parameters, prices)
            id_, conn = self._ids.new(), deed.tx.conn
            await store.alone(conn)
            values = (
                id_,
                name,
                kind,
                endpoint,
                checks.checked_model(new.model),
                _stored(new.parameters),
                as_json(prices),
                is_private,
                by.actor,
                deed.tx.now,
            )
            await store.insert_provider(conn, values, name=name)
            if secret is not None:
                await self._put(
                    deed.tx, by, sealer, await self.named(deed.tx, name), secret, is_part=True
                )
            deed.detail = f"{kind} at {endpoint or 'no address'}"
            made = await self.named(deed.tx, name)
        self._fresh.forget()
        return made

    async def change(
        self, by: Identity, name: str, change: ProviderChange, *, secret: str | None = None
    ) -> ProviderRow:
        """Change what is named; raises Denied, NotFound and InvalidInput."""
        sealer = await self._sealer(by, secret)
        async with self._audit.doing(by, "llm.provider-change", f"provider:{name}") as deed:
            require_administrator(by)
            await store.alone(deed.tx.conn)
            row = await self.named(deed.tx, name)
            new = _changed(row, change)
            _check(row.kind, new.endpoint, new.allows_private, new.parameters, new.prices)
            await self._check_vectors(deed.tx, new)
            moves = checks.host_of(new.endpoint) != checks.host_of(row.endpoint)
            if moves and row.has_secret and secret is None:
                raise InvalidInput(
                    "The secret was given for the host this provider has now. Give it again "
                    "together with the new endpoint, or take it away first.",
                    field="secret",
                )
            values = (
                name,
                new.endpoint,
                checks.checked_model(new.model),
                _stored(new.parameters),
                as_json(new.prices),
                new.allows_private,
                new.is_enabled,
                by.actor,
                deed.tx.now,
            )
            await store.change_provider(deed.tx.conn, values)
            if secret is not None:
                await self._put(deed.tx, by, sealer, new, secret, is_part=True)
            told = sorted(key for key, value in as_json(change).items() if value is not None)
            deed.detail = ", ".join([*told, *(["secret"] if secret is not None else [])])
            changed = await self.named(deed.tx, name)
        self._fresh.forget()
        return changed

    async def set_secret(self, by: Identity, name: str, secret: str | None) -> ProviderRow:
        """Give a provider another secret, or none; the old one is destroyed."""
        sealer = await self._sealer(by, secret)
        async with self._audit.doing(by, "llm.secret-set", f"provider:{name}") as deed:
            require_administrator(by)
            await store.alone(deed.tx.conn)
            row = await self.named(deed.tx, name)
            await self._put(deed.tx, by, sealer, row, secret, is_part=False)
            deed.detail = "taken away" if secret is None else "set"
            changed = await self.named(deed.tx, name)
        self._fresh.forget()
        return changed

    async def delete(self, by: Identity, name: str) -> None:
        """Remove a provider that no role and no budget names; raises Denied, NotFound, Conflict."""
        async with self._audit.doing(by, "llm.provider-delete", f"provider:{name}") as deed:
            require_administrator(by)
            await store.alone(deed.tx.conn)
            row = await self.named(deed.tx, name)
            for role in [_role(r) for r in await store.roles(deed.tx.conn)]:
                if any(link.provider == name for link in role.chain):
                    raise Conflict(
                        f"The role {role.role} asks {name}; take it out of the chain first, or "
                        "disable the provider."
                    )
            if await store.is_budgeted(deed.tx.conn, name):
                raise Conflict(f"There is a budget for {name}; end it first.")
            await store.delete_provider(deed.tx.conn, row.id)
        self._fresh.forget()

    async def _sealer(self, by: Identity, secret: str | None) -> Sealer | None:
        # Before the act, because it takes a connection of its own where the key is new.
        if secret is None or not is_administrator(by):
            return None
        return await self._keys.sealer()

    async def _put(
        self,
        tx: Tx,
        by: Identity,
        sealer: Sealer | None,
        row: ProviderRow,
        secret: str | None,
        *,
        is_part: bool,
    ) -> None:
        new: tuple[UUID, bytes, str] | None = None
        if secret is not None:
            kept = checks.checked_secret(row.kind, secret)
            if sealer is None:
                raise Unavailable("There is no key to seal a secret with.")
            id_ = self._ids.new()
            sealed = sealer.seal(
                kept.encode("ascii"), purpose=PURPOSE, owner=_owner(id_, row.endpoint)
            )
            new = (id_, sealed, checks.hint_of(kept))
        await store.put_secret(
            tx.conn, row.id, old=row.secret_id, new=new, by=by.actor, at=tx.now, is_part=is_part
        )

    # --- roles -------------------------------------------------------------------------------

    async def set_role(
        self,
        by: Identity,
        role: Role,
        chain: Sequence[Link],
        *,
        deadline_ms: int = checks.DEFAULT_DEADLINE_MS,
        base: int | None = None,
    ) -> RoleRow:
        """Say whom a role asks, in order; an empty chain turns it off.

        `base` is the version as the writer knew it. Raises Denied, InvalidInput, NotFound where a
        provider is not there, and Conflict where somebody else changed the role meanwhile.
        """
        async with self._audit.doing(by, "llm.role-set", f"role:{role.value}") as deed:
            require_administrator(by)
            checks.check_chain(chain)
            checks.check_deadline(deadline_ms)
            await store.alone(deed.tx.conn)
            rows = await store.role_versions(deed.tx.conn, role.value, 1)
            version = rows[0]["version"] if rows else 0
            if base is not None and base != version:
                raise Conflict(
                    f"The role {role.value} is at version {version} by now; look at it again."
                )
            for link in chain:
                row = await self.named(deed.tx, link.provider)
                if not link.model and not row.model and row.kind != "echo":
                    raise InvalidInput(
                        f"{link.provider} has no model of its own; name one in the chain.",
                        field="chain",
                    )
            if role is Role.EMBED:
                check_links([(await self.named(deed.tx, link.provider), link) for link in chain])
            stored = [escape_tree(msgspec.to_builtins(link)) for link in chain]
            values = (role.value, version + 1, stored, deadline_ms, by.actor, deed.tx.now)
            await store.insert_role(deed.tx.conn, values)
            deed.detail = " then ".join(link.provider for link in chain) or "off"
            made = _role((await store.role_versions(deed.tx.conn, role.value, 1))[0])
        self._fresh.forget()
        return made

    async def _check_vectors(self, tx: Tx, new: ProviderRow) -> None:
        """Check that the role `embed`, where it asks the provider, still names one model."""
        for role in [_role(row) for row in await store.role_versions(tx.conn, Role.EMBED, 1)]:
            if any(link.provider == new.name for link in role.chain):
                check_links(
                    [
                        (
                            new
                            if link.provider == new.name
                            else await self.named(tx, link.provider),
                            link,
                        )
                        for link in role.chain
                    ],
                    field="model",
                )

    # --- for the service ---------------------------------------------------------------------

    async def chain_of(self, role: Role) -> Chain:
        """Return whom the role asks now, disabled providers left out; empty where it is off."""
        known = await self._configured()
        row = known.roles.get(role)
        if row is None:
            return Chain(entries=(), deadline_s=checks.DEFAULT_DEADLINE_MS / 1000)
        entries = []
        for link in row.chain:
            provider = known.by_name.get(link.provider)
            if provider is not None and provider.is_enabled:
                entries.append(entry_of(provider, link))
        return Chain(entries=tuple(entries), deadline_s=row.deadline_ms / 1000)

    async def chosen(self, role: Role) -> list[tuple[ProviderRow, str]]:
        """Return the providers that the role asks now, each with the model; empty where off."""
        chain = await self.chain_of(role)
        known = await self._configured()
        rows = ((known.by_id.get(entry.provider), entry.model) for entry in chain.entries)
        return [(row, model) for row, model in rows if row is not None]

    async def provider_of(self, id_: UUID) -> Provider:
        """Return the provider as it is configured now; it is closed for the caller.

        Raises NotFound where it is gone or disabled, Unavailable where its secret does not open,
        and ConfigError where it cannot be what its row says.
        """
        known = await self._configured()
        row = known.by_id.get(id_)
        if row is None or not row.is_enabled:
            raise NotFound("provider", id_)
        lent = self._open.get(id_)
        if lent is not None and lent.version >= row.version:
            return lent
        secret = await self.secret_of(row)
        lent = self._open.get(id_)
        if lent is not None and lent.version >= row.version:
            return lent
        made = _Lent(
            self._make(row.kind, row.endpoint, secret, row.allows_private, row.parameters),
            row.version,
        )
        self._open[id_] = made
        if lent is not None:
            await lent.retire()
        return made

    async def aclose(self) -> None:
        """Close what is open, after what is asked of it now."""
        held, self._open = list(self._open.values()), {}
        for lent in held:
            await lent.retire()

    async def secret_of(self, row: ProviderRow) -> str:
        """Return the provider's secret, opened, for whoever asks it; empty where it has none.

        Raises Unavailable where it does not open, ConfigError where the key is not the one.
        """
        if row.secret_id is None:
            return ""
        sealer = await self._keys.sealer()
        async with self._db.reading() as tx:
            sealed = await store.sealed(tx.conn, row.secret_id)
        if sealed is None:
            raise Unavailable(f"The secret of {row.name} was replaced in this moment; try again.")
        opened = sealer.open(sealed, purpose=PURPOSE, owner=_owner(row.secret_id, row.endpoint))
        return opened.decode("ascii")

    async def _configured(self) -> "_Configured":
        return await self._fresh.get(None, self._read)

    async def _read(self) -> "_Configured":
        async with self._db.reading() as tx:
            rows = [_provider(row) for row in await store.providers(tx.conn)]
            roles = [_role(row) for row in await store.roles(tx.conn)]
        found = _Configured(rows, roles)
        await self._close_gone(found)
        return found

    async def _close_gone(self, known: "_Configured") -> None:
        for id_ in [i for i in self._open if i not in known.by_id]:
            await self._open.pop(id_).retire()


class _Configured:
    """Providers and roles as they were read."""

    def __init__(self, providers: Sequence[ProviderRow], roles: Sequence[RoleRow]) -> None:
        self.by_id = {row.id: row for row in providers}
        self.by_name = {row.name: row for row in providers}
        self.roles = {row.role: row for row in roles}


class _Lent:
    """A provider that is closed when it is out of date and nobody asks it any more."""

    def __init__(self, inner: OpenProvider, version: int) -> None:
        self._inner = inner
        self.version = version
        self._asked = 0
        self._is_retired = False

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        model: str,
        parameters: Parameters,
        schema: Mapping[str, Any] | None,
        deadline_s: float,
    ) -> Completion:
        """Make one attempt; see Provider."""
        self._asked += 1
        try:
            return await self._inner.complete(
                messages, model=model, parameters=parameters, schema=schema, deadline_s=deadline_s
            )
        finally:
            self._asked -= 1
            if self._is_retired and not self._asked:
                await self._inner.aclose()

    async def retire(self) -> None:
        """Close it, now or after the last attempt that is under way."""
        self._is_retired = True
        if not self._asked:
            await self._inner.aclose()


def entry_of(row: ProviderRow, link: Link) -> Entry:
    """Return what is asked of a provider in one place of a chain."""
    return Entry(
        provider=row.id,
        name=row.name,
        model=link.model or row.model,
        version=row.version,
        parameters=merged(row.parameters, link.parameters),
        prices=row.prices,
    )


def _changed(row: ProviderRow, change: ProviderChange) -> ProviderRow:
    told = {
        name: value
        for name in change.__struct_fields__
        if (value := getattr(change, name)) is not None
    }
    if "endpoint" in told:
        told["endpoint"] = checks.endpoint_of(row.kind, told["endpoint"])
    return msgspec.structs.replace(row, **told)


def _check(
    kind: str, endpoint: str, allows_private: bool, parameters: Parameters, prices: Prices
) -> None:
    checks.check_endpoint(kind, endpoint, parameters, allows_private=allows_private)
    checks.check_parameters(parameters)
    checks.check_prices(prices)


def _owner(secret_id: UUID, endpoint: str) -> str:
    """Return what a sealed secret is bound to: its row, and the host that it was given for.

    So not even who writes to the database sends it anywhere else.
    """
    scheme, host, port = checks.host_of(endpoint)
    return f"{secret_id} {scheme}://{host}:{port or ''}"


def _stored(parameters: Parameters) -> Any:
    return escape_tree(msgspec.to_builtins(parameters))


def _provider(row: Mapping[str, Any]) -> ProviderRow:
    return msgspec.convert({**row, "parameters": unescape_tree(row["parameters"])}, ProviderRow)


def _role(row: Mapping[str, Any]) -> RoleRow:
    return msgspec.convert({**row, "chain": unescape_tree(row["chain"])}, RoleRow)

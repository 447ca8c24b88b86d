"""Guarantees 1 and 18 for access: a row for every outcome, none that changes, no secret in any."""

import base64
import logging
from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path

import asyncpg
import pytest
import structlog

from noema.auth.access import Access
from noema.auth.model import Origin
from noema.config import Settings
from noema.core.act import Act, Outcome
from noema.core.clock import ManualClock, UuidV7Ids
from noema.core.errors import Conflict, Denied, InvalidInput, NoemaError, NotFound
from noema.core.identity import LOCAL, ConsoleRole, MemoryRole
from noema.db import protection
from noema.db.keys import Keys
from tests.conftest import TestDatabase
from tests.house import HERE, OTHER, PASSWORD, House, house


@pytest.fixture
async def here(database: TestDatabase, clock: ManualClock) -> AsyncIterator[House]:
    async with house(database, clock) as opened:
        yield opened


class TestRows:
    async def test_every_outcome_leaves_one_row(self, here: House) -> None:
        await here.person()
        users = here.access.users
        ada = (await here.inside()).identity
        with pytest.raises(Conflict):
            await here.person()
        with pytest.raises(Denied):
            await users.create(ada, name="eve", role=ConsoleRole.OBSERVER)
        with pytest.raises(InvalidInput):
            await users.create(LOCAL, name="bob", role=ConsoleRole.OBSERVER, password="short")
        with pytest.raises(NotFound):
            await users.create(LOCAL, name="bob", role=ConsoleRole.OBSERVER, namespace="nowhere")

        rows = list(reversed(await here.audited("user")))

        assert [(r.actor, r.target, r.result) for r in rows] == [
            ("local", "user:ada", "ok"),
            ("local", "user:ada", "error"),
            ("user:ada", "user:eve", "denied"),
            ("local", "user:bob", "error"),
            ("local", "user:bob", "miss"),
        ]
        assert rows[2].detail.startswith("denied: This needs the role administrator")
        assert [u.name for u in await users.all()] == ["ada"]

    async def test_the_row_commits_with_the_work_or_neither_does(self, here: House) -> None:
        async def fail() -> None:
            async with here.access.audit.doing(LOCAL, "thing.do", "thing:1") as deed:
                await deed.tx.conn.execute(
                    "INSERT INTO tenants (name, created_by) VALUES ('acme', 'x')"
                )
                raise RuntimeError("with a canary inside")

        with pytest.raises(RuntimeError):
            await fail()

        (row,) = await here.audited("thing")

        assert (row.result, row.detail) == ("error", "RuntimeError")
        assert [t.name for t in await here.access.tenants.all()] == ["home"]

    async def test_the_audit_log_is_searched_by_everything_it_has(self, here: House) -> None:
        audit = here.access.audit
        for n, outcome in enumerate((*Outcome, *Outcome)):
            await audit.record_alone(
                Act(
                    actor=f"user:{n % 2}", agent_id="http", namespace="home" if n < 4 else "acme",
                    verb=("memory.read", "memory.readable")[n % 2], target=f"memory:{n}",
                    outcome=outcome, purpose="why\x00", detail="x" * 5_000,
                )
            )  # fmt: skip
            here.clock.advance(60)
        start = here.clock.now().replace(minute=0)

        found = await audit.search(limit=3)
        older = await audit.search(before=found[-1].seq, limit=100)

        assert len(found) + len(older) == 8
        assert len(await audit.search(actor="user:1")) == 4
        assert {r.op for r in await audit.search(op="memory.read")} == {"memory.read"}
        assert len(await audit.search(op="memory")) == 8
        assert len(await audit.search(target="memory:3")) == 1
        assert len(await audit.search(namespaces=["acme"])) == 4
        assert await audit.search(namespaces=[]) == []
        assert len(await audit.search(result=Outcome.DENIED)) == 2
        assert len(await audit.search(since=start, until=here.clock.now().replace(minute=2))) == 2
        assert found[0].purpose == "why\x00"
        assert len(found[0].detail) == 1_000


COLUMNS = "id, occurred_at, actor, agent_id, op, target, namespace, result, commitment"
VALUES = "gen_random_uuid(), now(), 'x', 'x', 'x', 'x', 'x', 'ok', ''"


class TestAppendOnly:
    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE audit_log SET actor = 'somebody else'",
            "UPDATE audit_log SET content = '{\"redacted\": true}', salt = NULL",
            "DELETE FROM audit_log",
            "TRUNCATE audit_log",
            f"INSERT INTO audit_log (seq, {COLUMNS}) OVERRIDING SYSTEM VALUE VALUES (1, {VALUES})",
            f"INSERT INTO audit_log (recorded_at, {COLUMNS}) VALUES (now(), {VALUES})",
            "ALTER TABLE audit_log DISABLE TRIGGER ALL",
        ],
    )
    async def test_guarantee_1_the_daemon_cannot_change_the_audit_log(
        self, here: House, statement: str
    ) -> None:
        await here.person()

        with pytest.raises(asyncpg.PostgresError):
            async with here.db.transaction() as tx:
                await tx.conn.execute(statement)

        assert await here.results("user.create") == ["ok"]

    async def test_guarantee_1_the_start_up_check_knows_the_audit_log(self, here: House) -> None:
        async with here.db.reading() as tx:
            found = await protection.inspect(tx)

        assert found.findings == ()

    async def test_a_redaction_takes_purpose_and_detail_and_leaves_the_rest(
        self, here: House
    ) -> None:
        await here.person()
        (before,) = await here.audited("user")
        async with here.db.transaction() as tx:
            done = await tx.conn.fetchval(
                "SELECT noema_redact($1, 'asked for', 'erasure', 'user:x')", before.id
            )
            again = await tx.conn.fetchval(
                "SELECT noema_redact($1, 'asked for', 'erasure', 'user:x')", before.id
            )
            noted = await tx.conn.fetchrow("SELECT event_id, event_seq, history FROM redactions")

        (after,) = await here.audited("user")

        assert (done, again) == (True, False)
        assert noted is not None
        assert tuple(noted) == (before.id, before.seq, "audit_log")
        assert before.detail
        assert (after.detail, after.purpose, after.is_redacted) == ("", "", True)
        assert (after.actor, after.target, after.result) == (
            before.actor, before.target, before.result,
        )  # fmt: skip


class TestSecrets:
    async def test_guarantee_18_no_secret_stands_in_any_row_log_or_repr(
        self, here: House, database: TestDatabase
    ) -> None:
        logged = StringIO()
        handler = logging.StreamHandler(logged)
        logging.getLogger().addHandler(handler)
        before = structlog.get_config()
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(logged))
        try:
            secrets, shown = await everything(here)
        finally:
            structlog.configure(**before)
            logging.getLogger().removeHandler(handler)

        conn = await asyncpg.connect(database.admin_dsn)
        try:
            tables = [
                r[0]
                for r in await conn.fetch(
                    "SELECT relname FROM pg_class WHERE relkind = 'r'"
                    " AND relnamespace = 'public'::regnamespace"
                )
            ]
            rows = "\n".join(
                [
                    row[0]
                    for table in tables
                    for row in await conn.fetch(f'SELECT t::text FROM "{table}" t')
                ]
            )
        finally:
            await conn.close()

        assert {"users", "sessions", "audit_log", "api_tokens"} <= set(tables)
        assert "user:ada" in rows
        for secret in secrets:
            assert len(secret) >= 8
            for form in {secret, secret.encode().hex(), base64.b64encode(secret.encode()).decode()}:
                assert form not in rows
                assert form not in logged.getvalue()
                assert form not in shown

    async def test_guarantee_18_settings_do_not_show_their_secrets(self) -> None:
        settings = Settings(
            data_dir=Path("/nonexistent"), secret_key=b"k" * 32, bootstrap_admin=("root", PASSWORD)
        )

        assert PASSWORD not in repr(settings)
        assert "kkkk" not in repr(settings)

    async def test_another_key_than_the_databases_stops_the_start(
        self, here: House, clock: ManualClock
    ) -> None:
        await here.person()
        await here.with_totp()
        other = Keys(db=here.db, key=bytes(32), data_dir=Path("/nonexistent"))

        with pytest.raises(NoemaError, match="not the one this database was sealed with"):
            await other.check()

    async def test_no_key_is_made_before_one_is_needed(
        self, here: House, clock: ManualClock, tmp_path: Path
    ) -> None:
        keys = Keys(db=here.db, key=None, data_dir=tmp_path)
        await keys.check()
        Access(db=here.db, clock=clock, ids=UuidV7Ids(clock), keys=keys).close()
        assert names_in(tmp_path) == []

        await keys.sealer()

        assert names_in(tmp_path) == ["secret.key"]
        await Keys(db=here.db, key=None, data_dir=tmp_path).check()


def names_in(path: Path) -> list[str]:
    return [p.name for p in path.iterdir()]


async def everything(here: House) -> tuple[list[str], str]:
    """Do everything with canaries; return them, and the repr of all that was handed out."""
    access = here.access
    await here.person()
    await here.person("root", role=ConsoleRole.ADMINISTRATOR)
    typed = "canary-typed-into-the-name-field"
    for name, password in ((typed, "canary-wrong-1"), ("ada", "canary-wrong-2")):
        with pytest.raises(NoemaError):
            await access.log_in(name, password, origin=HERE)
    seed, codes = await here.with_totp()
    ticket = await here.ticket()
    with pytest.raises(NoemaError):
        await access.finish_log_in(ticket, codes[0] + "-canary", origin=HERE)
    done = await access.finish_log_in(ticket, codes[1], origin=HERE)
    session = await here.session(done.secret)
    token = await access.tokens.create(
        session, name="script", namespace="home", memory_role=MemoryRole.MEMBER
    )
    bearer = await access.bearer(token)
    mistyped = "noema_canary-of-a-mistyped-token"
    with pytest.raises(NoemaError):
        await access.bearer(mistyped, origin=Origin(address="192.0.2.3"))
    link = await access.link_for(session, base_url="http://x")
    setup = await access.setup.password_link(LOCAL, "root", base_url="http://x")
    await access.setup.choose_password(setup.rpartition("=")[2], OTHER, origin=HERE)
    changed = await access.account.change_password(
        session, old=PASSWORD, new="canary-a-third-password", origin=HERE
    )
    last = await access.account.end_totp(
        await here.session(changed), "canary-a-third-password", origin=HERE
    )
    device = done.device or ""
    handed_out = (
        done, session, bearer, await access.users.all(), await access.tokens.rows(None),
        await access.audit.search(), HERE, Origin(address="x", device=device),
        await access.log_in("root", OTHER, origin=HERE),
    )  # fmt: skip
    secrets = [
        PASSWORD, OTHER, "canary-a-third-password", "canary-wrong-1", "canary-wrong-2", typed, seed,
        *codes, ticket, done.secret, session.csrf, token, mistyped, link.rpartition("=")[2],
        setup.rpartition("=")[2], changed, last, device, here.key.hex(),
    ]  # fmt: skip
    return secrets, repr(handed_out)

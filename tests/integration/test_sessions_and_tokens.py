"""Guarantees 12, 16 and 17: what a session or a token stands for, and when it ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

import pytest

from noema.auth.authenticator import PasswordCredentials
from noema.auth.model import Credential, Membership, Origin, Session
from noema.auth.revocations import CHANNEL
from noema.auth.tokens import PREFIX, looks_like_token, new_token
from noema.core.clock import ManualClock, SystemClock
from noema.core.errors import Conflict, Denied, InvalidInput, NotFound, Unauthorised
from noema.core.identity import LOCAL, NOWHERE, ConsoleRole, MemoryRole, can_read_namespace
from noema.db.listen import Listener
from noema.db.tx import single
from tests.conftest import TestDatabase
from tests.helpers import eventually
from tests.house import HERE, OTHER, PASSWORD, House, house


@pytest.fixture
async def here(database: TestDatabase, clock: ManualClock) -> AsyncIterator[House]:
    async with house(database, clock) as opened:
        await opened.person()
        await opened.person("root", role=ConsoleRole.ADMINISTRATOR)
        yield opened


@asynccontextmanager
async def waiting(here: House, entry: Credential) -> AsyncIterator["asyncio.Task[None]"]:
    """Something that is open for as long as the entry counts."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(here.access.wait_revoked(entry))
        await eventually(lambda: len(here.access.revocations))
        yield task
        task.cancel()


async def ended(task: "asyncio.Task[None]") -> bool:
    """Whether it ends within a second."""
    await asyncio.wait({task}, timeout=1)
    return task.done()


async def token_of(
    here: House,
    by: Credential,
    *,
    namespace: str = "home",
    memory: MemoryRole = MemoryRole.MEMBER,
    console: ConsoleRole = ConsoleRole.OPERATOR,
    days: int = 30,
) -> str:
    return await here.access.tokens.create(
        by, name="script", namespace=namespace, memory_role=memory, console_role=console,
        lasts=timedelta(days=days),
    )  # fmt: skip


class TestSession:
    async def test_guarantee_12_a_session_ends_after_a_day_without_use(self, here: House) -> None:
        secret = (await here.entered()).secret
        here.clock.advance(23 * 3_600)
        assert await here.access.session(secret) is not None
        here.clock.advance(23 * 3_600)
        assert await here.access.session(secret) is not None
        here.clock.advance(24 * 3_600)

        assert await here.access.session(secret) is None

    async def test_guarantee_12_a_session_ends_after_seven_days_of_use(self, here: House) -> None:
        secret = (await here.entered()).secret
        for _ in range(13):
            here.clock.advance(12 * 3_600)
            assert await here.access.session(secret) is not None
        here.clock.advance(12 * 3_600)

        assert await here.access.session(secret) is None

    async def test_guarantee_12_looking_whether_it_still_counts_is_no_use_of_it(
        self, here: House
    ) -> None:
        session = await here.inside()
        for _ in range(5):
            here.clock.advance(5 * 3_600)
            await here.is_in(session)

        assert not await here.is_in(session)

    async def test_guarantee_12_a_login_makes_a_new_secret_and_ends_the_browsers_old_session(
        self, here: House
    ) -> None:
        old = await here.entered()
        planted = await here.session(old.secret)

        new = await here.access.log_in("ada", PASSWORD, origin=HERE, replacing=old.secret)

        assert not await here.is_in(planted)
        assert getattr(new, "secret", old.secret) != old.secret

    async def test_guarantee_12_what_the_old_session_had_open_ends_when_a_login_replaces_it(
        self, here: House, database: TestDatabase
    ) -> None:
        old = (await here.entered()).secret
        async with asyncio.TaskGroup() as group:
            listener = Listener(
                lambda: single(database.app_dsn, database.role), CHANNEL, clock=SystemClock(),
                on_payload=here.access.revocations.told,
            )  # fmt: skip
            hearing = group.create_task(listener.run())
            await eventually(lambda: listener.connected)
            async with waiting(here, await here.session(old)) as stream:
                await here.access.log_in("root", PASSWORD, origin=HERE, replacing=old)

                assert await ended(stream)
            hearing.cancel()

    async def test_guarantee_12_a_secret_that_was_never_given_out_is_none(
        self, here: House
    ) -> None:
        for secret in ("", "planted", "\ud800", "x" * 5_000):
            assert await here.access.session(secret) is None

    async def test_guarantee_14_the_form_token_belongs_to_the_session_and_stands_in_no_row(
        self, here: House
    ) -> None:
        one, other = await here.inside(), await here.inside()

        async with here.db.reading() as tx:
            rows = str([dict(r) for r in await tx.conn.fetch("SELECT * FROM sessions")])

        assert one.csrf != other.csrf
        assert one.csrf not in rows

    async def test_sessions_are_listed_with_what_one_may_recognise_them_by(
        self, here: House
    ) -> None:
        odd = Origin(address="192.0.2.5", user_agent="Mozilla\r\n<script>" + "x" * 500)
        await here.access.log_in("ada", PASSWORD, origin=odd)
        session = await here.inside()
        await here.inside("root")

        listed = await here.access.sessions.visible(session)

        assert {row.user for row in listed} == {"ada"}
        assert {row.address for row in listed} == {"192.0.2.1", "192.0.2.5"}
        assert all(len(row.user_agent) <= 200 and row.user_agent.isprintable() for row in listed)
        with pytest.raises(Denied):
            await here.access.sessions.visible(session, everybody=True)
        everybody = await here.access.sessions.visible(await here.inside("root"), everybody=True)
        assert {row.user for row in everybody} == {"ada", "root"}

    async def test_one_ends_ones_own_sessions_and_an_administrator_anybodys(
        self, here: House
    ) -> None:
        mine, other, roots = await here.inside(), await here.inside(), await here.inside("root")

        with pytest.raises(NotFound):
            await here.access.sessions.revoke(mine, roots.id)
        with pytest.raises(NotFound):
            await here.access.sessions.revoke(mine, uuid4())
        await here.access.sessions.revoke(mine, other.id)
        assert not await here.is_in(other)
        await here.access.sessions.revoke(roots, mine.id)

        assert not await here.is_in(mine)
        assert await here.is_in(roots)


def _logout(here: House, session: Session) -> Awaitable[object]:
    return here.access.end_session(session)


def _disable(here: House, session: Session) -> Awaitable[object]:
    return here.access.users.disable(LOCAL, "ada")


def _demote(here: House, session: Session) -> Awaitable[object]:
    return here.access.users.set_role(LOCAL, "ada", ConsoleRole.OBSERVER)


def _password(here: House, session: Session) -> Awaitable[object]:
    return here.access.account.change_password(session, old=PASSWORD, new=OTHER, origin=HERE)


async def _totp(here: House, session: Session) -> object:
    started = await here.access.account.start_totp(session)
    return await here.access.account.confirm_totp(session, here.code(started.secret), origin=HERE)


async def _reset(here: House, session: Session) -> object:
    link = await here.access.setup.password_link(LOCAL, "ada", base_url="")
    return await here.access.setup.choose_password(link.rpartition("=")[2], OTHER, origin=HERE)


def _suspend(here: House, session: Session) -> Awaitable[object]:
    return here.access.tenants.suspend(LOCAL, "home")


def _expel(here: House, session: Session) -> Awaitable[object]:
    return here.access.users.revoke(LOCAL, "ada", namespace="home")


class TestRevocation:
    @pytest.mark.parametrize(
        "change", [_logout, _disable, _demote, _password, _totp, _reset, _suspend, _expel]
    )
    async def test_guarantee_12_what_a_session_has_open_ends_within_a_second(
        self, here: House, change: Callable[[House, Session], Awaitable[object]]
    ) -> None:
        session = await here.inside()
        async with waiting(here, session) as stream:
            await change(here, session)

            assert await ended(stream)

    async def test_guarantee_12_another_daemon_hears_of_it_within_a_second(
        self, here: House, database: TestDatabase, clock: ManualClock
    ) -> None:
        session = await here.inside()
        async with house(database, clock) as other, asyncio.TaskGroup() as group:
            listener = Listener(
                lambda: single(database.app_dsn, database.role), CHANNEL, clock=SystemClock(),
                on_payload=other.access.revocations.told,
            )  # fmt: skip
            listening = group.create_task(listener.run())
            await eventually(lambda: listener.connected)
            async with waiting(other, session) as stream:
                await here.access.users.disable(LOCAL, "ada")

                assert await ended(stream)
            listening.cancel()

    async def test_guarantee_12_all_sessions_of_the_person_end_and_nobody_elses(
        self, here: House
    ) -> None:
        sessions = [await here.inside() for _ in range(3)]
        roots = await here.inside("root")

        secret = await here.access.account.change_password(
            sessions[0], old=PASSWORD, new=OTHER, origin=HERE
        )

        assert not any([await here.is_in(s) for s in sessions])
        assert await here.is_in(roots)
        assert await here.is_in(await here.session(secret))

    async def test_guarantee_12_something_open_stays_open_while_others_are_revoked(
        self, here: House
    ) -> None:
        session, other = await here.inside(), await here.inside()
        async with waiting(here, session) as stream:
            await here.access.end_session(other)
            await here.access.users.grant(LOCAL, "ada", namespace="home", role=MemoryRole.OWNER)
            await asyncio.wait({stream}, timeout=0.2)

            assert not stream.done()

    async def test_guarantee_12_a_login_under_way_while_the_person_is_disabled_opens_nothing(
        self, here: House
    ) -> None:
        found = await here.access._by_password.authenticate(
            PasswordCredentials(name="ada", password=PASSWORD), HERE
        )
        await here.access.users.disable(LOCAL, "ada")
        await here.access.users.enable(LOCAL, "ada")

        with pytest.raises(Unauthorised, match="changed in this moment"):
            await here.access._admit(found, HERE, None)

    async def test_guarantee_17_what_a_token_has_open_ends_within_a_second(
        self, here: House
    ) -> None:
        session = await here.inside()
        bearer = await here.access.bearer(await token_of(here, session))
        async with waiting(here, bearer) as stream:
            await here.access.tokens.revoke(session, bearer.token_id)

            assert await ended(stream)

    async def test_guarantee_17_what_a_token_has_open_ends_when_its_maker_loses_a_role(
        self, here: House
    ) -> None:
        bearer = await here.access.bearer(await token_of(here, await here.inside()))
        async with waiting(here, bearer) as stream:
            await here.access.users.set_role(LOCAL, "ada", ConsoleRole.OBSERVER)

            assert await ended(stream)


class TestToken:
    async def test_guarantee_17_a_token_speaks_for_its_maker_in_one_namespace(
        self, here: House
    ) -> None:
        token = await token_of(here, await here.inside())

        who = await here.access.by_token(token)

        assert token.startswith(PREFIX)
        assert (who.actor, who.namespace, who.role, who.console, who.agent_id) == (
            "token:ada/script", "home", "member", "operator", "http",
        )  # fmt: skip

    async def test_guarantee_17_a_token_is_never_more_than_its_maker_is_now(
        self, here: House
    ) -> None:
        token = await token_of(here, await here.inside(), memory=MemoryRole.OWNER)

        await here.access.users.set_role(LOCAL, "ada", ConsoleRole.OBSERVER)
        await here.access.users.grant(LOCAL, "ada", namespace="home", role=MemoryRole.MEMBER)
        lesser = await here.access.by_token(token)
        await here.access.users.set_role(LOCAL, "ada", ConsoleRole.ADMINISTRATOR)
        await here.access.users.grant(LOCAL, "ada", namespace="home", role=MemoryRole.OWNER)
        again = await here.access.by_token(token)

        assert (lesser.console, lesser.role) == ("observer", "member")
        assert (again.console, again.role) == ("operator", "owner")

    async def test_guarantee_17_a_token_is_nothing_without_its_makers_membership(
        self, here: House
    ) -> None:
        token = await token_of(here, await here.inside())
        await here.access.users.revoke(LOCAL, "ada", namespace="home")

        with pytest.raises(Denied, match="no role in its namespace"):
            await here.access.by_token(token)

    async def test_guarantee_17_nobody_lends_more_than_they_have(self, here: House) -> None:
        await here.access.tenants.create(LOCAL, "acme")
        session = await here.inside()

        for namespace, memory, console in (
            ("home", MemoryRole.MEMBER, ConsoleRole.ADMINISTRATOR),
            ("acme", MemoryRole.AGENT, ConsoleRole.NONE),
            ("home", MemoryRole.NONE, ConsoleRole.NONE),
        ):
            with pytest.raises(Denied):
                await token_of(here, session, namespace=namespace, memory=memory, console=console)
        with pytest.raises(InvalidInput):
            await token_of(here, session, days=367)
        assert await here.results("token.create") == ["denied"] * 3 + ["error"]

    async def test_guarantee_17_a_token_may_have_no_console_role_at_all(self, here: House) -> None:
        token = await token_of(here, await here.inside(), console=ConsoleRole.NONE)

        assert (await here.access.by_token(token)).console is ConsoleRole.NONE

    async def test_guarantee_17_a_revoked_token_is_refused_at_once(self, here: House) -> None:
        session = await here.inside()
        token = await token_of(here, session)
        bearer = await here.access.bearer(token)
        with pytest.raises(NotFound):
            await here.access.tokens.revoke(await here.inside("root"), uuid4())

        await here.access.tokens.revoke(session, bearer.token_id)

        with pytest.raises(Unauthorised):
            await here.access.by_token(token)
        with pytest.raises(NotFound):
            await here.access.tokens.revoke(session, bearer.token_id)

    async def test_guarantee_16_somebody_elses_token_is_as_missing_as_none(
        self, here: House
    ) -> None:
        await here.person("bob")
        adas = await here.access.bearer(await token_of(here, await here.inside()))
        bob = await here.inside("bob")

        with pytest.raises(NotFound) as others:
            await here.access.tokens.revoke(bob, adas.token_id)
        with pytest.raises(NotFound) as none:
            await here.access.tokens.revoke(bob, missing := uuid4())

        assert str(others.value) == str(none.value).replace(str(missing), str(adas.token_id))
        assert await here.access.tokens.visible(bob) == []

    async def test_guarantee_17_a_token_made_with_a_token_ends_with_it(self, here: House) -> None:
        session = await here.inside()
        parent = await here.access.bearer(await token_of(here, session, days=10))
        child = await here.access.bearer(await token_of(here, parent, days=300))
        grandchild = await token_of(here, child)

        assert child.expires_at == parent.expires_at
        await here.access.tokens.revoke(session, parent.token_id)

        for token in (child, await here.access.tokens.again(child)):
            assert token is child or token is None
        with pytest.raises(Unauthorised):
            await here.access.by_token(grandchild)
        with pytest.raises(Denied, match="was revoked"):
            await token_of(here, child)

    async def test_guarantee_17_a_token_made_in_a_session_that_a_token_opened_ends_with_it(
        self, here: House
    ) -> None:
        first = await token_of(here, await here.inside(), days=1)
        opened = await here.session(await here.access.session_from_token(first, origin=HERE))
        longer = await token_of(here, opened, days=300)

        here.clock.advance(24 * 3_600)

        for token in (first, longer):
            with pytest.raises(Unauthorised):
                await here.access.by_token(token)

    async def test_a_token_that_counts_is_listed_behind_any_number_of_revoked_ones(
        self, here: House
    ) -> None:
        async with here.db.transaction() as tx:
            await tx.conn.execute(
                """
                INSERT INTO api_tokens (id, name, hash, hint, namespace, memory_role, console_role,
                                        created_at, user_id, revoked_at)
                SELECT gen_random_uuid(), 'old', sha256(n::text::bytea), 'noema_', 'home', 'agent',
                       'none', now() - interval '1 year', u.id, now()
                FROM generate_series(1, 600) n, users u WHERE u.name = 'ada'
                """
            )
        session = await here.inside()
        await token_of(here, session)

        listed = await here.access.tokens.visible(session)

        assert [t.name for t in listed if t.revoked_at is None] == ["script"]

    async def test_guarantee_17_an_expired_token_is_refused(self, here: House) -> None:
        token = await token_of(here, await here.inside(), days=1)
        here.clock.advance(86_400)

        with pytest.raises(Unauthorised):
            await here.access.by_token(token)

    async def test_guarantee_17_a_disabled_makers_token_is_refused(self, here: House) -> None:
        token = await token_of(here, await here.inside())
        await here.access.users.disable(LOCAL, "ada")

        with pytest.raises(Unauthorised):
            await here.access.by_token(token)

    async def test_guarantee_17_enabling_a_person_brings_no_old_token_back(
        self, here: House
    ) -> None:
        token = await token_of(here, await here.inside())
        await here.access.users.disable(LOCAL, "ada")
        await here.access.users.enable(LOCAL, "ada")

        with pytest.raises(Unauthorised):
            await here.access.by_token(token)

    async def test_a_token_notes_when_it_was_last_used(self, here: House) -> None:
        session = await here.inside()
        token = await token_of(here, session)
        here.clock.advance(3_600)

        await here.access.by_token(token)

        (row,) = await here.access.tokens.visible(session)
        assert row.last_used_at == here.clock.now()
        assert row.hint == token[:10]

    async def test_a_session_opened_with_a_token_is_the_token_and_ends_with_it(
        self, here: House
    ) -> None:
        session = await here.inside()
        token = await token_of(here, session)
        opened = await here.session(await here.access.session_from_token(token, origin=HERE))
        assert opened.identity.actor == "token:ada/script"
        with pytest.raises(Denied):
            await here.access.account.re_authenticate(opened, PASSWORD)

        await here.access.tokens.revoke(session, (await here.access.bearer(token)).token_id)

        assert not await here.is_in(opened)

    async def test_a_link_lets_in_once_as_who_asked_for_it(self, here: House) -> None:
        link = await here.access.link_for(await here.inside(), base_url="http://x")
        secret = link.rpartition("=")[2]

        opened = await here.session(await here.access.session_from_link(secret, origin=HERE))

        assert opened.identity.actor == "user:ada"
        assert opened.re_authenticated_at is None
        with pytest.raises(Unauthorised):
            await here.access.session_from_link(secret, origin=HERE)

    async def test_a_link_dies_with_the_credentials_of_who_it_lets_in(self, here: House) -> None:
        link = await here.access.link_for(await here.inside(), base_url="http://x")
        await here.access.users.set_role(LOCAL, "ada", ConsoleRole.OBSERVER)

        with pytest.raises(Unauthorised):
            await here.access.session_from_link(link.rpartition("=")[2], origin=HERE)

    async def test_a_refused_token_is_audited_once_a_minute(self, here: House) -> None:
        for token in (new_token(), "noema_mistyped", "noema_mistyped"):
            with pytest.raises(Unauthorised):
                await here.access.bearer(token, origin=Origin(address="192.0.2.9"))
        here.clock.advance(61)
        with pytest.raises(Unauthorised):
            await here.access.bearer("noema_mistyped", origin=Origin(address="192.0.2.9"))

        assert await here.results("token.use") == ["denied"] * 3

    def test_guarantee_17_one_wrong_character_is_seen_without_the_database(self) -> None:
        token = new_token()

        assert looks_like_token(token)
        for place in range(len(PREFIX), len(token)):
            other = "A" if token[place] != "A" else "B"
            assert not looks_like_token(token[:place] + other + token[place + 1 :])
        assert not looks_like_token(token + "x")
        assert not looks_like_token("é" * len(token))


class TestMembership:
    async def test_a_membership_counts_from_its_beginning_to_its_end(self, here: House) -> None:
        await here.access.tenants.create(LOCAL, "acme")
        since = here.clock.now() + timedelta(hours=1)
        until = since + timedelta(hours=1)
        await here.access.users.grant(
            LOCAL, "ada", namespace="acme", role=MemoryRole.AUDITOR, valid_from=since,
            valid_to=until,
        )  # fmt: skip

        async def held() -> dict[str, str]:
            session = await here.inside()
            return {m.namespace: m.role for m in session.memberships}

        assert await held() == {"home": "owner"}
        here.clock.advance(3_600)
        assert await held() == {"acme": "auditor", "home": "owner"}
        here.clock.advance(3_599)
        assert await held() == {"acme": "auditor", "home": "owner"}
        here.clock.advance(1)
        assert await held() == {"home": "owner"}

    async def test_a_session_whose_membership_ends_is_nowhere_and_sees_no_content(
        self, here: House
    ) -> None:
        secret = (await here.entered()).secret
        await here.access.users.grant(
            LOCAL, "ada", namespace="home", role=MemoryRole.OWNER,
            valid_to=here.clock.now() + timedelta(hours=1),
        )  # fmt: skip
        assert (await here.session(secret)).identity.namespace == "home"
        here.clock.advance(3_600)

        later = await here.session(secret)

        assert (later.identity.namespace, later.identity.role) == (NOWHERE, "none")
        assert later.identity.console is ConsoleRole.OPERATOR
        assert not can_read_namespace(later.identity, "home")
        assert not can_read_namespace(later.memberships, "home")

    async def test_a_new_role_takes_the_place_of_the_old_one_and_both_stay_on_record(
        self, here: House
    ) -> None:
        before = here.clock.now()
        here.clock.advance(60)
        await here.access.users.grant(LOCAL, "ada", namespace="home", role=MemoryRole.AGENT)

        session = await here.inside()
        users = here.access.users

        assert session.identity.role is MemoryRole.AGENT
        assert roles(await users.memberships("ada", at=here.clock.now())) == ["agent"]
        assert roles(await users.memberships("ada", at=before)) == ["owner"]
        assert roles(await users.memberships("ada")) == ["owner", "agent"]

    async def test_a_grant_changes_nothing_of_what_was_before_it(self, here: House) -> None:
        users, began = here.access.users, here.clock.now()
        here.clock.advance(3_600)

        await users.grant(
            LOCAL, "ada", namespace="home", role=MemoryRole.AGENT,
            valid_from=began - timedelta(days=365),
        )  # fmt: skip

        assert roles(await users.memberships("ada", at=began)) == ["owner"]
        assert roles(await users.memberships("ada", at=here.clock.now())) == ["agent"]
        assert await users.memberships("ada", at=began - timedelta(days=1)) == []

    async def test_grants_at_once_leave_one_role(self, here: House) -> None:
        async with asyncio.TaskGroup() as group:
            for role in (MemoryRole.AGENT, MemoryRole.MEMBER, MemoryRole.AUDITOR) * 2:
                group.create_task(
                    here.access.users.grant(LOCAL, "ada", namespace="home", role=role)
                )

        session = await here.inside()

        assert len(session.memberships) == 1

    async def test_a_membership_that_makes_no_sense_is_refused(self, here: House) -> None:
        users, now = here.access.users, here.clock.now()
        with pytest.raises(InvalidInput, match="end before it begins"):
            await users.grant(
                LOCAL, "ada", namespace="home", role=MemoryRole.AGENT, valid_from=now, valid_to=now
            )
        with pytest.raises(InvalidInput, match="zone"):
            await users.grant(
                LOCAL, "ada", namespace="home", role=MemoryRole.AGENT,
                valid_from=now.replace(tzinfo=None),
            )  # fmt: skip
        with pytest.raises(NotFound, match="namespace"):
            await users.grant(LOCAL, "ada", namespace="acme", role=MemoryRole.AGENT)
        with pytest.raises(NotFound, match="user"):
            await users.grant(LOCAL, "nobody", namespace="home", role=MemoryRole.AGENT)
        with pytest.raises(NotFound, match="membership"):
            await users.revoke(LOCAL, "ada", namespace="acme")

        assert (await here.inside()).identity.role is MemoryRole.OWNER

    async def test_a_session_switches_among_its_persons_namespaces_only(self, here: House) -> None:
        await here.access.tenants.create(LOCAL, "acme")
        await here.access.tenants.create_namespace(LOCAL, "acme/eng/platform")
        await here.access.users.grant(LOCAL, "ada", namespace="acme/eng", role=MemoryRole.MEMBER)
        session = await here.inside()

        switched = await here.access.sessions.switch(session, "acme/eng")
        for namespace in ("acme", "acme/eng/platform", "nowhere", ""):
            with pytest.raises(NotFound):
                await here.access.sessions.switch(switched, namespace)

        assert (switched.identity.namespace, switched.identity.role) == ("acme/eng", "member")
        assert (await here.inside()).identity.namespace == "acme/eng"


def roles(held: list[tuple[str, Membership]]) -> list[str]:
    return [m.role.value for _, m in held]


class TestTenant:
    async def test_nobody_acts_in_a_suspended_tenant_until_it_is_resumed(self, here: House) -> None:
        session = await here.inside()
        token = await token_of(here, session)
        local = await here.access.create_token("local")

        await here.access.tenants.suspend(LOCAL, "home")

        for refused in (token, local):
            with pytest.raises(Denied, match="suspended"):
                await here.access.by_token(refused)
        now = await here.access.sessions.again(session)
        assert now is not None
        assert (now.identity.namespace, now.identity.role, now.memberships) == (NOWHERE, "none", ())
        assert not await here.access.tenants.is_active("home")
        with pytest.raises(Denied):
            await token_of(here, now)

        await here.access.tenants.resume(LOCAL, "home")
        assert (await here.access.by_token(token)).namespace == "home"
        assert (await here.inside()).identity.namespace == "home"

    async def test_what_is_no_tenant_is_not_active(self, here: House) -> None:
        assert not await here.access.tenants.is_active("acme")
        assert not await here.access.tenants.is_active("")

    async def test_nobody_suspends_the_tenant_they_act_in(self, here: House) -> None:
        root = await here.inside("root")

        with pytest.raises(Conflict, match="shut yourself out"):
            await here.access.tenants.suspend(root.identity, "home")

    async def test_a_namespace_needs_its_tenant_and_brings_those_above_it(
        self, here: House
    ) -> None:
        tenants = here.access.tenants
        with pytest.raises(NotFound):
            await tenants.create_namespace(LOCAL, "acme/eng")
        await tenants.create(LOCAL, "acme")
        await tenants.create_namespace(LOCAL, "acme/eng/platform")
        with pytest.raises(Conflict):
            await tenants.create_namespace(LOCAL, "acme/eng")
        with pytest.raises(InvalidInput):
            await tenants.create_namespace(LOCAL, "acme/%")

        acme = (await tenants.all())[0]
        assert acme.namespaces == ("acme", "acme/eng", "acme/eng/platform")


class TestPeople:
    async def test_guarantee_16_only_an_administrator_manages_people(self, here: House) -> None:
        ada = (await here.inside()).identity
        users, tenants = here.access.users, here.access.tenants
        acts: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: users.create(ada, name="eve", role=ConsoleRole.ADMINISTRATOR, password=OTHER),
            lambda: users.set_role(ada, "ada", ConsoleRole.ADMINISTRATOR),
            lambda: users.disable(ada, "root"),
            lambda: users.enable(ada, "root"),
            lambda: users.reset_totp(ada, "root"),
            lambda: users.unlock(ada, "root"),
            lambda: users.grant(ada, "ada", namespace="home", role=MemoryRole.OWNER),
            lambda: users.revoke(ada, "root", namespace="home"),
            lambda: here.access.setup.password_link(ada, "root", base_url=""),
            lambda: tenants.create(ada, "acme"),
            lambda: tenants.create_namespace(ada, "home/x"),
            lambda: tenants.suspend(ada, "home"),
            lambda: tenants.resume(ada, "home"),
        )

        for act in acts:
            with pytest.raises(Denied, match="administrator"):
                await act()

        denied = [
            r for r in await here.access.audit.search(actor="user:ada") if r.result == "denied"
        ]
        assert len(denied) == len(acts)

    async def test_there_is_always_an_administrator(self, here: House) -> None:
        users = here.access.users
        acts: tuple[Callable[[], Awaitable[None]], ...] = (
            lambda: users.disable(LOCAL, "root"),
            lambda: users.set_role(LOCAL, "root", ConsoleRole.OPERATOR),
        )
        for act in acts:
            with pytest.raises(Conflict, match="last administrator"):
                await act()
        await users.set_role(LOCAL, "ada", ConsoleRole.ADMINISTRATOR)

        async def disable(name: str) -> bool:
            try:
                await users.disable(LOCAL, name)
            except Conflict:
                return False
            return True

        async with asyncio.TaskGroup() as group:
            tries = [group.create_task(disable(name)) for name in ("ada", "root")]

        assert sorted(t.result() for t in tries) == [False, True]

    async def test_a_name_is_taken_in_any_case(self, here: House) -> None:
        for name in ("ada", "ADA"):
            with pytest.raises(Conflict, match="already"):
                await here.person(name)
        for name in ("", "a b", "а", "ada/x", "x" * 64, "\x00"):  # noqa: RUF001
            with pytest.raises(InvalidInput):
                await here.person(name)
        with pytest.raises(NotFound):
            await here.access.users.get("а")  # noqa: RUF001

    async def test_an_enabled_person_comes_in_again_and_old_sessions_do_not(
        self, here: House
    ) -> None:
        session = await here.inside()
        await here.access.users.disable(LOCAL, "ada")
        await here.access.users.enable(LOCAL, "ada")

        assert not await here.is_in(session)
        assert await here.is_in(await here.inside())

    async def test_an_administrator_takes_a_lost_second_factor_off(self, here: House) -> None:
        await here.with_totp()
        await here.access.users.reset_totp(LOCAL, "ada")

        await here.inside()
        user = await here.access.users.get("ada")

        assert not user.has_totp

    async def test_what_has_ended_is_forgotten(self, here: House) -> None:
        await here.with_totp()
        await here.ticket()
        await here.access.new_link(base_url="")
        await here.access.setup.password_link(LOCAL, "ada", base_url="")
        with pytest.raises(Unauthorised):
            await here.access.log_in("nobody", "wrong", origin=HERE)
        here.clock.advance(200 * 86_400)

        await here.access.prune(here.clock.now())

        async with here.db.reading() as tx:
            for table in ("sessions", "login_links", "pending_logins", "setup_links",
                          "login_failures", "known_devices"):  # fmt: skip
                assert await tx.conn.fetchval(f"SELECT count(*) FROM {table}") == 0

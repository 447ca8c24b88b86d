"""Guarantees 11 to 13 and 15, on a real database: coming in, and being kept out."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from argon2 import PasswordHasher

from noema.auth.limits import DELAYS_S, LONGEST_S
from noema.auth.model import LoggedIn, Origin, SecondFactorDue
from noema.auth.passwords import MAX_BYTES, Parameters, Passwords, Verdict
from noema.core.clock import ManualClock
from noema.core.errors import (
    Conflict,
    Denied,
    InvalidInput,
    NoemaError,
    RateLimited,
    TooLarge,
    Unauthorised,
)
from noema.core.identity import LOCAL, ConsoleRole
from tests.conftest import TestDatabase
from tests.house import CHEAP, HERE, OTHER, PASSWORD, House, house

STRANGER = Origin(address="203.0.113.9", user_agent="curl")


@pytest.fixture
async def here(database: TestDatabase, clock: ManualClock) -> AsyncIterator[House]:
    async with house(database, clock) as opened:
        await opened.person()
        yield opened


async def refusal(here: House, name: str, password: str, origin: Origin = HERE) -> NoemaError:
    with pytest.raises(NoemaError) as refused:
        await here.access.log_in(name, password, origin=origin)
    return refused.value


async def fail(here: House, times: int, *, name: str = "ada", origin: Origin = STRANGER) -> None:
    """Fail so many times in a row, each as soon as it is allowed."""
    for n in range(times):
        assert isinstance(await refusal(here, name, "wrong", origin), Unauthorised)
        here.clock.advance(DELAYS_S[min(n, len(DELAYS_S) - 1)])


class TestPassword:
    async def test_the_right_password_opens_a_session_as_that_person(self, here: House) -> None:
        session = await here.inside()

        who = session.identity
        assert (who.actor, who.namespace, who.role, who.console, who.agent_id) == (
            "user:ada", "home", "owner", "operator", "console",
        )  # fmt: skip
        assert (await here.access.users.get("ada")).last_login_at == here.clock.now()

    async def test_the_case_of_the_name_does_not_matter_and_that_of_the_password_does(
        self, here: House
    ) -> None:
        await here.access.log_in(" ADA ", PASSWORD, origin=HERE)

        assert isinstance(await refusal(here, "ada", PASSWORD.upper()), Unauthorised)

    @pytest.mark.parametrize(
        "name", ["nobody", "", "a\x00b", "\ud800", "x" * 10_000, "ada' OR 1=1--"]
    )
    async def test_guarantee_11_an_unknown_name_and_a_wrong_password_are_answered_alike(
        self, here: House, name: str
    ) -> None:
        wrong = await refusal(here, "ada", "wrong-password")
        unknown = await refusal(here, name, "wrong-password")

        assert type(wrong) is type(unknown) is Unauthorised
        assert str(wrong) == str(unknown)

    async def test_guarantee_11_every_name_costs_one_verification_and_as_many_statements(
        self, database: TestDatabase, clock: ManualClock
    ) -> None:
        passwords = Counting(parameters=CHEAP)
        async with house(database, clock, passwords=passwords) as here:
            await here.person()
            passwords.verified.clear()

            await refusal(here, "ada", "wrong")
            await refusal(here, "nobody", "wrong")

            rows = await here.audited("login")

        assert passwords.verified == [True, False]
        assert [(r.result, r.detail) for r in rows] == [
            ("denied", "wrong name or password, from 192.0.2.1")
        ] * 2

    async def test_guarantee_11_a_disabled_person_with_the_right_password_is_answered_alike(
        self, here: House
    ) -> None:
        wrong = await refusal(here, "ada", "wrong")
        await here.access.users.disable(LOCAL, "ada")

        disabled = await refusal(here, "ada", PASSWORD)

        assert (type(disabled), str(disabled)) == (type(wrong), str(wrong))

    async def test_guarantee_11_an_unknown_name_is_slowed_down_as_a_known_one_is(
        self, here: House
    ) -> None:
        known = [type(await refusal(here, "ada", "wrong", STRANGER)) for _ in range(7)]
        unknown = [type(await refusal(here, "nobody", "wrong", STRANGER)) for _ in range(7)]

        assert known == unknown == [Unauthorised] * 5 + [RateLimited] * 2

    @pytest.mark.parametrize("name", ["ada", "nobody"])
    async def test_guarantee_11_a_password_over_1024_bytes_is_refused_before_hashing(
        self, database: TestDatabase, clock: ManualClock, name: str
    ) -> None:
        passwords = Counting(parameters=CHEAP)
        async with house(database, clock, passwords=passwords) as here:
            await here.person()
            passwords.verified.clear()

            refused = await refusal(here, name, "x" * (MAX_BYTES + 1))

            assert isinstance(refused, TooLarge)
            assert passwords.verified == []
            assert await here.results("login") == ["denied"]

    async def test_guarantee_11_a_hash_of_older_parameters_is_made_anew_at_the_next_login(
        self, here: House, database: TestDatabase
    ) -> None:
        old = PasswordHasher(time_cost=1, memory_cost=32, parallelism=1).hash(PASSWORD)
        async with here.db.transaction() as tx:
            await tx.conn.execute("UPDATE users SET password_hash = $1", old)
        before = await here.inside()

        async with here.db.reading() as tx:
            new = await tx.conn.fetchval("SELECT password_hash FROM users")
        after = await here.inside()

        assert f"m={CHEAP.memory_kib},t=1,p=1" in new
        assert new != old
        assert await here.is_in(before)
        assert await here.is_in(after)


class Counting(Passwords):
    """Remembers for each verification whether there was a hash to verify against."""

    def __init__(self, *, parameters: Parameters) -> None:
        super().__init__(parameters=parameters)
        self.verified: list[bool] = []

    async def verify(self, stored: str | None, password: str) -> Verdict:
        self.verified.append(stored is not None)
        return await super().verify(stored, password)


class TestBackOff:
    async def test_guarantee_15_the_delay_grows_and_ends_at_fifteen_minutes(
        self, here: House
    ) -> None:
        waits: list[int] = []
        for _ in range(17):
            assert isinstance(await refusal(here, "ada", "wrong", STRANGER), Unauthorised)
            refused = await refusal(here, "ada", "wrong", Origin(address=f"10.0.0.{len(waits)}"))
            if isinstance(refused, RateLimited):
                waits.append(refused.retry_after_s)
                here.clock.advance(refused.retry_after_s)

        assert waits == sorted(waits)
        assert waits[:4] == [1, 2, 4, 8]
        assert waits[-1] == LONGEST_S

    async def test_guarantee_15_a_guess_that_comes_too_soon_is_not_even_looked_at(
        self, here: House
    ) -> None:
        for _ in range(5):
            await refusal(here, "ada", "wrong", STRANGER)

        assert isinstance(await refusal(here, "ada", PASSWORD, STRANGER), RateLimited)
        here.clock.advance(1)
        assert isinstance(await here.access.log_in("ada", PASSWORD, origin=STRANGER), LoggedIn)

    async def test_guarantee_15_success_forgives(self, here: House) -> None:
        await fail(here, 4)
        await here.access.log_in("ada", PASSWORD, origin=STRANGER)

        await fail(here, 4)

        assert isinstance(await here.access.log_in("ada", PASSWORD, origin=STRANGER), LoggedIn)

    async def test_guarantee_15_fifty_guesses_at_once_are_no_more_than_five(
        self, database: TestDatabase, clock: ManualClock
    ) -> None:
        passwords = Counting(parameters=CHEAP)
        async with house(database, clock, passwords=passwords) as here:
            await here.person()
            passwords.verified.clear()
            async with asyncio.TaskGroup() as group:
                for n in range(50):
                    origin = Origin(address=f"198.51.100.{n}")
                    group.create_task(refusal(here, "ada", "wrong", origin))

        assert len(passwords.verified) == 5

    async def test_guarantee_15_failures_survive_a_caller_that_hangs_up(
        self, database: TestDatabase, clock: ManualClock
    ) -> None:
        async with house(database, clock, passwords=Never(parameters=CHEAP)) as here:
            await here.person()
            for _ in range(5):
                attempt = asyncio.timeout(20)
                task = here.access.log_in("ada", "wrong", origin=STRANGER)
                async with attempt, asyncio.TaskGroup() as group:
                    running = group.create_task(task)
                    await here.access._passwords.reached()  # type: ignore[attr-defined]
                    running.cancel()

            refused = await refusal(here, "ada", PASSWORD, STRANGER)

        assert isinstance(refused, RateLimited)

    async def test_guarantee_15_failures_survive_a_restart(
        self, here: House, database: TestDatabase, clock: ManualClock
    ) -> None:
        await fail(here, 8)

        async with house(database, clock) as again:
            await refusal(again, "ada", "wrong", STRANGER)
            refused = await refusal(again, "ada", PASSWORD, STRANGER)

        assert isinstance(refused, RateLimited)
        assert refused.retry_after_s == 16

    async def test_guarantee_15_a_browser_that_was_in_before_is_not_locked_out_by_strangers(
        self, here: House
    ) -> None:
        device = (await here.entered()).device
        await fail(here, 20)
        await refusal(here, "ada", "wrong", STRANGER)

        mine = Origin(address="192.0.2.77", device=device)
        found = await here.access.log_in("ada", PASSWORD, origin=mine)

        assert isinstance(found, LoggedIn)
        assert found.device == device

    async def test_guarantee_15_a_known_browser_has_its_own_limited_attempts(
        self, here: House
    ) -> None:
        mine = Origin(address="192.0.2.77", device=(await here.entered()).device)

        kinds = [type(await refusal(here, "ada", "wrong", mine)) for _ in range(6)]

        assert kinds == [Unauthorised] * 5 + [RateLimited]

    async def test_guarantee_15_a_browser_known_for_one_person_is_a_stranger_to_another(
        self, here: House
    ) -> None:
        await here.person("bob")
        adas = Origin(address="192.0.2.77", device=(await here.entered()).device)
        await fail(here, 5, name="bob")
        await refusal(here, "bob", "wrong", STRANGER)

        assert isinstance(await refusal(here, "bob", PASSWORD, adas), RateLimited)

    async def test_guarantee_15_whoever_owns_the_machine_can_unlock_anybody(
        self, here: House
    ) -> None:
        await fail(here, 20)
        await refusal(here, "ada", "wrong", STRANGER)

        await here.access.users.unlock(LOCAL, "ada")

        assert isinstance(await here.access.log_in("ada", PASSWORD, origin=STRANGER), LoggedIn)

    async def test_guarantee_15_a_clock_that_is_put_back_does_not_prolong_the_wait(
        self, here: House
    ) -> None:
        await fail(here, 12)
        await refusal(here, "ada", "wrong", STRANGER)
        here.clock.jump(-3_600)

        assert isinstance(await here.access.log_in("ada", PASSWORD, origin=STRANGER), LoggedIn)

    async def test_guarantee_15_one_address_cannot_try_every_name(self, here: House) -> None:
        kinds = [type(await refusal(here, f"name{n}", "wrong", STRANGER)) for n in range(65)]

        assert kinds == [Unauthorised] * 60 + [RateLimited] * 5
        rows = await here.audited("login")
        assert [r.target for r in rows].count("address:203.0.113.9") == 1


class Never(Passwords):
    """Verifies nothing: whoever asks waits until they leave."""

    def __init__(self, *, parameters: Parameters) -> None:
        super().__init__(parameters=parameters)
        self._entered = asyncio.Semaphore(0)

    async def reached(self) -> None:
        await self._entered.acquire()

    async def verify(self, stored: str | None, password: str) -> Verdict:
        self._entered.release()
        await asyncio.Event().wait()
        raise AssertionError


class TestSecondFactor:
    async def test_a_password_alone_is_half_of_a_login(self, here: House) -> None:
        seed, _ = await here.with_totp()

        due = await here.access.log_in("ada", PASSWORD, origin=HERE)

        assert isinstance(due, SecondFactorDue)
        assert due.ticket not in repr(due)
        done = await here.access.finish_log_in(due.ticket, here.code(seed), origin=HERE)
        assert (await here.session(done.secret)).identity.actor == "user:ada"

    async def test_guarantee_13_a_code_counts_once(self, here: House) -> None:
        seed, _ = await here.with_totp()
        first, second = await here.ticket(), await here.ticket()
        await here.access.finish_log_in(first, here.code(seed), origin=HERE)

        with pytest.raises(Unauthorised, match="wrong or was used before"):
            await here.access.finish_log_in(second, here.code(seed), origin=HERE)
        here.clock.advance(30)
        await here.access.finish_log_in(second, here.code(seed), origin=HERE)

    async def test_guarantee_13_the_code_that_confirmed_an_enrolment_does_not_log_in(
        self, here: House
    ) -> None:
        session = await here.inside()
        started = await here.access.account.start_totp(session)
        code = here.code(started.secret)
        await here.access.account.confirm_totp(session, code, origin=HERE)

        with pytest.raises(Unauthorised):
            await here.access.finish_log_in(await here.ticket(), code, origin=HERE)

    async def test_guarantee_13_of_one_code_in_many_requests_at_once_one_counts(
        self, here: House
    ) -> None:
        seed, _ = await here.with_totp()
        tickets = [await here.ticket() for _ in range(4)]
        code = here.code(seed)

        async def finish(ticket: str) -> bool:
            try:
                await here.access.finish_log_in(ticket, code, origin=HERE)
            except (Unauthorised, RateLimited):
                return False
            return True

        async with asyncio.TaskGroup() as group:
            tries = [group.create_task(finish(ticket)) for ticket in tickets]

        assert sorted(task.result() for task in tries) == [False, False, False, True]

    async def test_guarantee_13_a_ticket_counts_once_and_for_five_minutes(
        self, here: House
    ) -> None:
        seed, _ = await here.with_totp()
        used, old = await here.ticket(), await here.ticket()
        await here.access.finish_log_in(used, here.code(seed), origin=HERE)
        here.clock.advance(301)

        for ticket in (used, old, "made up"):
            with pytest.raises(Unauthorised, match="took too long"):
                await here.access.finish_log_in(ticket, here.code(seed), origin=HERE)

    async def test_guarantee_13_a_ticket_dies_with_the_password_it_was_given_for(
        self, here: House
    ) -> None:
        seed, _ = await here.with_totp()
        ticket = await here.ticket()
        link = await here.access.setup.password_link(LOCAL, "ada", base_url="")
        await here.access.setup.choose_password(secret_of(link), OTHER, origin=HERE)

        with pytest.raises(Unauthorised):
            await here.access.finish_log_in(ticket, here.code(seed), origin=HERE)

    async def test_guarantee_13_a_recovery_code_counts_once(self, here: House) -> None:
        _, codes = await here.with_totp()
        await here.access.finish_log_in(await here.ticket(), codes[3].lower(), origin=HERE)

        with pytest.raises(Unauthorised):
            await here.access.finish_log_in(await here.ticket(), codes[3], origin=HERE)
        done = await here.access.finish_log_in(await here.ticket(), codes[4], origin=HERE)

        left = await here.access.account.count_recovery_codes(await here.session(done.secret))
        assert left == 8

    async def test_guarantee_13_of_one_recovery_code_in_requests_at_once_one_counts(
        self, here: House
    ) -> None:
        _, codes = await here.with_totp()
        tickets = [await here.ticket() for _ in range(4)]

        async def finish(ticket: str) -> bool:
            try:
                await here.access.finish_log_in(ticket, codes[0], origin=HERE)
            except (Unauthorised, RateLimited):
                return False
            return True

        async with asyncio.TaskGroup() as group:
            tries = [group.create_task(finish(ticket)) for ticket in tickets]

        assert sorted(task.result() for task in tries) == [False, False, False, True]

    async def test_guarantee_13_codes_cannot_be_tried_out(self, here: House) -> None:
        seed, _ = await here.with_totp()
        kinds = []
        for _ in range(7):
            with pytest.raises(NoemaError) as refused:
                await here.access.finish_log_in(await here.ticket(), "000000", origin=HERE)
            kinds.append(type(refused.value))
        with pytest.raises(RateLimited):
            await here.access.finish_log_in(await here.ticket(), here.code(seed), origin=HERE)

        assert kinds == [Unauthorised] * 5 + [RateLimited] * 2

    async def test_guarantee_13_turning_it_off_needs_the_password_again(self, here: House) -> None:
        seed, _ = await here.with_totp()
        done = await here.access.finish_log_in(await here.ticket(), here.code(seed), origin=HERE)
        session = await here.session(done.secret)

        with pytest.raises(Unauthorised):
            await here.access.account.end_totp(session, "wrong", origin=HERE)
        secret = await here.access.account.end_totp(session, PASSWORD, origin=HERE)

        assert not await here.is_in(session)
        assert await here.is_in(await here.session(secret))
        assert await here.is_in(await here.inside())

    async def test_guarantee_13_passwords_and_codes_given_again_are_limited_too(
        self, here: House
    ) -> None:
        seed, _ = await here.with_totp()
        done = await here.access.finish_log_in(await here.ticket(), here.code(seed), origin=HERE)
        session = await here.session(done.secret)
        account = here.access.account
        ways = (
            lambda: account.end_totp(session, "wrong", origin=HERE),
            lambda: account.re_authenticate(session, PASSWORD, code="000000"),
            lambda: account.change_password(session, old="wrong", new=OTHER, origin=HERE),
        )

        kinds = []
        for way in (*ways, *ways, *ways):
            with pytest.raises(NoemaError) as refused:
                await way()
            kinds.append(type(refused.value))

        assert kinds == [Unauthorised] * 5 + [RateLimited] * 4

    async def test_giving_password_and_code_again_makes_the_session_fresh_for_ten_minutes(
        self, here: House
    ) -> None:
        seed, _ = await here.with_totp()
        done = await here.access.finish_log_in(await here.ticket(), here.code(seed), origin=HERE)
        here.clock.advance(601)
        stale = await here.session(done.secret)
        with pytest.raises(Denied, match="password again"):
            here.access.sessions.require_fresh(stale)

        await here.access.account.re_authenticate(stale, PASSWORD, code=here.code(seed))

        here.access.sessions.require_fresh(await here.session(done.secret))

    async def test_enrolling_needs_a_fresh_session_and_a_code_of_the_app(self, here: House) -> None:
        session = await here.inside()
        started = await here.access.account.start_totp(session)

        with pytest.raises(Unauthorised):
            await here.access.account.confirm_totp(session, "000000", origin=HERE)
        confirmed = await here.access.account.confirm_totp(
            session, here.code(started.secret), origin=HERE
        )
        again = await here.session(confirmed.secret)
        with pytest.raises(Conflict, match="on already"):
            await here.access.account.start_totp(again)
        here.clock.advance(601)
        with pytest.raises(Denied):
            await here.access.account.renew_recovery_codes(again)

    async def test_guarantee_26_a_seed_copied_to_another_person_does_not_open(
        self, here: House
    ) -> None:
        await here.with_totp()
        await here.person("bob")
        await here.with_totp("bob")
        async with here.db.transaction() as tx:
            await tx.conn.execute(
                "UPDATE users SET totp_secret = (SELECT totp_secret FROM users WHERE name = 'ada')"
            )

        with pytest.raises(NoemaError, match="cannot be opened"):
            await here.access.finish_log_in(await here.ticket("bob"), "000000", origin=HERE)

    async def test_new_recovery_codes_replace_the_old_ones(self, here: House) -> None:
        _, old = await here.with_totp()
        done = await here.access.finish_log_in(await here.ticket(), old[0], origin=HERE)

        new = await here.access.account.renew_recovery_codes(await here.session(done.secret))

        with pytest.raises(Unauthorised):
            await here.access.finish_log_in(await here.ticket(), old[1], origin=HERE)
        await here.access.finish_log_in(await here.ticket(), new[0], origin=HERE)


def secret_of(link: str) -> str:
    return link.rpartition("link=")[2]


class TestFirstAdministrator:
    @pytest.fixture
    async def empty(self, database: TestDatabase, clock: ManualClock) -> AsyncIterator[House]:
        async with house(database, clock) as opened:
            yield opened

    async def test_a_fresh_install_has_nobody_and_the_namespace_home(self, empty: House) -> None:
        assert await empty.access.users.all() == []
        tenants = await empty.access.tenants.all()
        assert [(t.name, t.status, t.namespaces) for t in tenants] == [
            ("home", "active", ("home",))
        ]

    async def test_a_set_up_link_makes_the_first_administrator_once(self, empty: House) -> None:
        setup = empty.access.setup
        link = secret_of(await setup.first_link(base_url="http://x") or "")
        assert (await setup.look(link)).is_first
        with pytest.raises(InvalidInput):
            await setup.create_first(link, name="root", password="short", origin=HERE)

        await setup.create_first(link, name="Root", password=PASSWORD, origin=HERE)

        with pytest.raises(Unauthorised):
            await setup.create_first(link, name="eve", password=PASSWORD, origin=HERE)
        session = await empty.inside("root")
        assert session.identity.console is ConsoleRole.ADMINISTRATOR
        assert (session.identity.namespace, session.identity.role) == ("home", "owner")

    async def test_a_set_up_link_is_good_for_nothing_once_there_is_anybody(
        self, empty: House
    ) -> None:
        setup = empty.access.setup
        link = secret_of(await setup.first_link(base_url="") or "")
        await empty.person()

        with pytest.raises(Unauthorised):
            await setup.look(link)
        with pytest.raises(Unauthorised):
            await setup.create_first(link, name="eve", password=PASSWORD, origin=HERE)
        assert await setup.first_link(base_url="") is None

    async def test_of_two_set_up_links_used_at_once_one_makes_an_administrator(
        self, empty: House
    ) -> None:
        setup = empty.access.setup
        links = [secret_of(await setup.first_link(base_url="") or "") for _ in range(4)]

        async def create(n: int) -> bool:
            try:
                await setup.create_first(links[n], name=f"n{n}", password=PASSWORD, origin=HERE)
            except (Conflict, Unauthorised):
                return False
            return True

        async with asyncio.TaskGroup() as group:
            tries = [group.create_task(create(n)) for n in range(4)]

        assert sum(t.result() for t in tries) == 1
        assert len(await empty.access.users.all()) == 1

    async def test_a_set_up_link_lasts_a_day(self, empty: House) -> None:
        link = secret_of(await empty.access.setup.first_link(base_url="") or "")
        empty.clock.advance(86_401)

        with pytest.raises(Unauthorised):
            await empty.access.setup.look(link)

    async def test_a_bootstrap_name_and_password_count_at_the_first_start_only(
        self, empty: House
    ) -> None:
        setup = empty.access.setup

        assert await setup.bootstrap("root", PASSWORD)
        assert not await setup.bootstrap("root", OTHER)
        assert not await setup.bootstrap("eve", OTHER)

        await empty.inside("root", PASSWORD)
        assert [u.name for u in await empty.access.users.all()] == ["root"]

    async def test_a_weak_bootstrap_password_is_refused_without_being_shown(
        self, empty: House
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            await empty.access.setup.bootstrap("root", "hunter2")

        assert "hunter2" not in str(refused.value)

    async def test_somebody_new_chooses_their_own_password_by_a_link(self, empty: House) -> None:
        await empty.access.users.create(LOCAL, name="bob", role=ConsoleRole.OBSERVER)
        assert isinstance(await refusal(empty, "bob", PASSWORD), Unauthorised)
        setup = empty.access.setup
        link = secret_of(await setup.password_link(LOCAL, "bob", base_url=""))
        assert (await setup.look(link)).user == "bob"

        await setup.choose_password(link, PASSWORD, origin=HERE)

        await empty.inside("bob")
        with pytest.raises(Unauthorised):
            await setup.choose_password(link, OTHER, origin=HERE)

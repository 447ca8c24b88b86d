"""What administrators configure of models: providers, secrets, roles and prompts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from noema.core.clock import ManualClock
from noema.core.errors import Conflict, Denied, InvalidInput, NotFound, Unavailable
from noema.core.identity import ConsoleRole
from noema.db.tx import Database
from noema.llm import defaults
from noema.llm.configured import Link, NewProvider, ProviderChange
from noema.llm.defaults import DEFAULTS, Default
from noema.llm.inputs import Data, Dialogue
from noema.llm.library import SHIPPED
from noema.llm.model import ChatMessage, Parameters, Prices, Role
from tests.llm_house import ADMIN, Desk, desk, somebody

SECRET = "canary-secret-7c41-do-not-show"
OPENAI = NewProvider(name="openai", kind="openai", model="gpt-x")
SAID = (ChatMessage(role="user", text="hi"),)


@pytest.fixture
def house(db: Database, clock: ManualClock) -> Desk:
    return desk(db, clock)


async def ask(house: Desk, id_: Any) -> None:
    provider = await house.registry.provider_of(id_)
    await provider.complete(SAID, model="m", parameters=Parameters(), schema=None, deadline_s=1)


class TestProviders:
    async def test_a_provider_takes_the_usual_place_of_its_kind(self, house: Desk) -> None:
        made = [
            await house.registry.create(ADMIN, NewProvider(name=f"p-{kind}", kind=kind, model="m"))
            for kind in ("openai", "anthropic", "ollama", "echo")
        ]

        assert [(m.endpoint, m.allows_private) for m in made] == [
            ("https://api.openai.com/v1", False),
            ("https://api.anthropic.com", False),
            ("http://127.0.0.1:11434", True),
            ("", False),
        ]
        free = Prices(input=0, output=0, reasoning=0, cache_read=0, cache_write=0)
        assert [m.prices for m in made] == [Prices(), Prices(), free, free]
        assert [p.name for p in await house.registry.providers()] == [
            "p-anthropic", "p-echo", "p-ollama", "p-openai",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("new", "why"),
        [
            ({"name": "No Name"}, "name"),
            ({"kind": "magic"}, "kind is one of"),
            ({"kind": "azure"}, "needs its endpoint"),
            ({"kind": "bedrock"}, "needs its endpoint"),
            ({"kind": "echo", "endpoint": "https://example.com"}, "asked nowhere"),
            ({"endpoint": "http://api.example.com/v1"}, "private|https"),
            ({"endpoint": "https://user:pw@example.com"}, "password"),
            ({"endpoint": "https://example.com/v1?key=abc"}, "question mark"),
            ({"endpoint": "https://example.com/v1#x"}, "question mark"),
            ({"endpoint": "https://exa mple.com"}, "no address"),
            ({"endpoint": "ftp://example.com"}, "http"),
            ({"endpoint": "https://169.254.169.254/"}, "metadata"),
            ({"endpoint": "https://10.0.0.1/"}, "private"),
            ({"endpoint": "https://[::1]/"}, "this machine"),
            ({"endpoint": "https://169.254.169.254/", "allows_private": True}, "metadata"),
            ({"model": "a\nb"}, "printable"),
            ({"parameters": Parameters(temperature=3.0)}, "temperature is from 0 to 2"),
            ({"parameters": Parameters(temperature=float("nan"))}, "temperature"),
            ({"parameters": Parameters(max_tokens=0)}, "max_tokens"),
            ({"parameters": Parameters(stop=("",))}, "stop"),
            ({"parameters": Parameters(extra={"messages": []})}, "extra cannot set messages"),
            ({"parameters": Parameters(extra={"x": "y" * 20_000})}, "bytes"),
            ({"prices": Prices(input=-1)}, "prices.input"),
        ],
    )
    async def test_what_no_provider_can_be_is_refused(
        self, house: Desk, new: dict[str, Any], why: str
    ) -> None:
        with pytest.raises(InvalidInput, match=why):
            await house.registry.create(
                ADMIN, NewProvider(**{"name": "p", "kind": "openai", "model": "m", **new})
            )

        assert await house.registry.providers() == ()

    async def test_a_name_is_given_once(self, house: Desk) -> None:
        await house.registry.create(ADMIN, OPENAI)

        with pytest.raises(Conflict, match="already"):
            await house.registry.create(ADMIN, OPENAI)

    async def test_only_what_is_named_changes_and_the_version_rises(self, house: Desk) -> None:
        before = await house.registry.create(ADMIN, OPENAI)

        after = await house.registry.change(
            ADMIN, "openai", ProviderChange(prices=Prices(input=5), is_enabled=False)
        )

        assert (after.prices.input, after.is_enabled, after.version) == (5, False, 2)
        assert (after.model, after.endpoint) == (before.model, before.endpoint)
        with pytest.raises(NotFound):
            await house.registry.change(ADMIN, "nobody", ProviderChange(model="x"))

    async def test_text_that_the_database_cannot_hold_comes_back_as_it_was(
        self, house: Desk
    ) -> None:
        odd = Parameters(stop=("a\x00b\ud800",), extra={"k\x00": ["\ue000"]})

        made = await house.registry.create(
            ADMIN, NewProvider(name="p", kind="openai", model="m", parameters=odd)
        )

        assert made.parameters == odd

    @pytest.mark.parametrize("role", [ConsoleRole.OPERATOR, ConsoleRole.OBSERVER, ConsoleRole.NONE])
    async def test_only_administrators_change_anything_and_refusals_are_on_record(
        self, house: Desk, role: ConsoleRole
    ) -> None:
        await house.registry.create(ADMIN, OPENAI)
        await house.library.install_defaults()
        who = somebody(role)
        acts: dict[str, Callable[[], Awaitable[Any]]] = {
            "llm.provider-create": lambda: house.registry.create(who, OPENAI, secret=SECRET),
            "llm.provider-change": lambda: house.registry.change(
                who, "openai", ProviderChange(model="x")
            ),
            "llm.secret-set": lambda: house.registry.set_secret(who, "openai", SECRET),
            "llm.provider-delete": lambda: house.registry.delete(who, "openai"),
            "llm.role-set": lambda: house.registry.set_role(who, Role.PLAN, ()),
            "llm.prompt-save": lambda: house.library.save(who, "plan", system="", template="x"),
            "llm.prompt-use": lambda: house.library.use(who, "plan", 1),
        }

        for op, act in acts.items():
            with pytest.raises(Denied):
                await act()
            assert (await house.audited(op))[0][1] == "denied", op

        assert (await house.registry.provider("openai")).version == 1
        assert await house.secrets() == {}

    async def test_what_is_used_is_not_deleted(self, house: Desk) -> None:
        await house.registry.create(ADMIN, OPENAI, secret=SECRET)
        await house.registry.set_role(ADMIN, Role.PLAN, [Link(provider="openai")])

        with pytest.raises(Conflict, match="role plan asks openai"):
            await house.registry.delete(ADMIN, "openai")
        await house.registry.set_role(ADMIN, Role.PLAN, ())
        await house.registry.delete(ADMIN, "openai")

        assert await house.registry.providers() == ()
        assert await house.secrets() == {}
        with pytest.raises(NotFound):
            await house.registry.delete(ADMIN, "openai")

    async def test_a_budgeted_provider_is_not_deleted(self, house: Desk) -> None:
        await house.registry.create(ADMIN, OPENAI)
        async with house.db.transaction() as tx:
            await tx.conn.execute(
                "INSERT INTO budgets (id, scope, key, period, tokens, actor, set_at)"
                " VALUES (gen_random_uuid(), 'provider', 'openai', 'day', 1, 'x', now())"
            )

        with pytest.raises(Conflict, match="budget"):
            await house.registry.delete(ADMIN, "openai")


class TestSecrets:
    async def test_guarantee_18_a_secret_is_sealed_and_only_its_end_is_known(
        self, house: Desk
    ) -> None:
        made = await house.registry.create(ADMIN, OPENAI, secret=f"  {SECRET}\n")

        (sealed,) = (await house.secrets()).values()
        async with house.db.reading() as tx:
            rows = await tx.conn.fetch("SELECT * FROM secrets, audit_log, llm_providers")
        assert (made.has_secret, made.secret_hint, made.secret_set_by) == (
            True, SECRET[-4:], ADMIN.actor,
        )  # fmt: skip
        assert SECRET not in repr(made)
        assert SECRET.encode() not in sealed
        assert SECRET not in repr([dict(row) for row in rows])
        assert await house.registry.secret_of(made) == SECRET

    async def test_a_short_secret_shows_no_end(self, house: Desk) -> None:
        made = await house.registry.create(ADMIN, OPENAI, secret="123456789012")

        assert made.secret_hint == ""

    async def test_a_new_secret_destroys_the_old_one(self, house: Desk) -> None:
        before = await house.registry.create(ADMIN, OPENAI, secret=SECRET)

        after = await house.registry.set_secret(ADMIN, "openai", "another-secret-4242")
        none = await house.registry.set_secret(ADMIN, "openai", None)

        assert after.secret_id != before.secret_id
        assert (before.version, after.version, none.version) == (1, 2, 3)
        assert not none.has_secret
        assert await house.secrets() == {}

    async def test_a_sealed_secret_opens_in_no_other_row_and_with_no_other_key(
        self, house: Desk, db: Database, clock: ManualClock
    ) -> None:
        one = await house.registry.create(ADMIN, OPENAI, secret=SECRET)
        two = await house.registry.create(
            ADMIN, NewProvider(name="two", kind="openai", model="m"), secret="another-secret-4242"
        )
        async with house.db.transaction() as tx:
            await tx.conn.execute(
                "UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE id = $1)"
                " WHERE id = $2",
                one.secret_id,
                two.secret_id,
            )

        assert await house.registry.secret_of(one) == SECRET
        with pytest.raises(Unavailable, match="cannot be opened"):
            await house.registry.secret_of(two)
        with pytest.raises(InvalidInput, match="not the one"):
            await desk(db, clock, key=bytes(32)).registry.secret_of(one)

    @pytest.mark.parametrize("secret", ["", "  ", "a\nb", "a\rb", "ключ", "x" * 20_000])
    async def test_what_no_header_can_carry_is_refused_and_not_quoted(
        self, house: Desk, secret: str
    ) -> None:
        with pytest.raises(InvalidInput) as raised:
            await house.registry.create(ADMIN, OPENAI, secret=secret)

        assert raised.value.field == "secret"
        assert not secret.strip() or secret not in str(raised.value)
        assert await house.registry.providers() == ()

    @pytest.mark.parametrize(
        "endpoint",
        [
            "https://evil.test/v1",
            "https://api.openai.com:8443/v1",
            "https://api.openai.com.evil.test",
        ],
    )
    async def test_guarantee_18_a_secret_does_not_move_to_another_host(
        self, house: Desk, endpoint: str
    ) -> None:
        await house.registry.create(ADMIN, OPENAI, secret=SECRET)

        with pytest.raises(InvalidInput, match="Give it again"):
            await house.registry.change(ADMIN, "openai", ProviderChange(endpoint=endpoint))
        stayed = await house.registry.change(
            ADMIN, "openai", ProviderChange(endpoint="https://api.openai.com/v2")
        )
        moved = await house.registry.change(
            ADMIN, "openai", ProviderChange(endpoint=endpoint), secret="another-secret-4242"
        )

        assert stayed.secret_hint == SECRET[-4:]
        assert (moved.endpoint, moved.secret_hint) == (endpoint, "4242")


class TestRoles:
    async def test_a_chain_is_what_was_set_without_what_is_disabled(self, house: Desk) -> None:
        await house.registry.create(
            ADMIN, NewProvider(name="a", kind="openai", model="big", prices=Prices(input=7))
        )
        b = await house.registry.create(ADMIN, NewProvider(name="b", kind="ollama"))
        links = [
            Link(provider="a", parameters=Parameters(temperature=0.5)),
            Link(provider="b", model="small"),
        ]

        made = await house.registry.set_role(ADMIN, Role.PLAN, links, deadline_ms=9_000)
        chain = await house.registry.chain_of(Role.PLAN)
        await house.registry.change(ADMIN, "a", ProviderChange(is_enabled=False))
        rest = await house.registry.chain_of(Role.PLAN)
        none = await house.registry.chain_of(Role.JUDGE)

        assert made.chain == tuple(links)
        assert [(e.name, e.model, e.parameters.temperature) for e in chain.entries] == [
            ("a", "big", 0.5), ("b", "small", None),
        ]  # fmt: skip
        assert (chain.entries[0].prices.input, chain.deadline_s) == (7, 9.0)
        assert [e.provider for e in rest.entries] == [b.id]
        assert none.entries == ()

    async def test_every_version_of_a_role_stays_and_an_empty_chain_turns_it_off(
        self, house: Desk
    ) -> None:
        await house.registry.create(ADMIN, OPENAI)
        await house.registry.set_role(ADMIN, Role.PLAN, [Link(provider="openai")])
        await house.registry.set_role(ADMIN, Role.PLAN, (), base=1)

        versions = await house.registry.role_versions(Role.PLAN)

        assert [(v.version, len(v.chain)) for v in versions] == [(2, 0), (1, 1)]
        assert (await house.registry.chain_of(Role.PLAN)).entries == ()
        with pytest.raises(Conflict, match="version 2"):
            await house.registry.set_role(ADMIN, Role.PLAN, (), base=1)

    @pytest.mark.parametrize(
        ("chain", "error"),
        [
            ([Link(provider="nobody")], NotFound),
            ([Link(provider="bare")], InvalidInput),
            ([Link(provider="openai"), Link(provider="openai")], InvalidInput),
            ([Link(provider="openai", parameters=Parameters(top_p=2))], InvalidInput),
            ([Link(provider="openai", model=f"m{n}") for n in range(9)], InvalidInput),
        ],
    )
    async def test_a_chain_that_cannot_answer_is_refused(
        self, house: Desk, chain: list[Link], error: type[Exception]
    ) -> None:
        await house.registry.create(ADMIN, OPENAI)
        await house.registry.create(ADMIN, NewProvider(name="bare", kind="openai"))

        with pytest.raises(error):
            await house.registry.set_role(ADMIN, Role.PLAN, chain)

        assert await house.registry.roles() == ()

    async def test_two_at_once_leave_two_versions(self, house: Desk) -> None:
        await house.registry.create(ADMIN, OPENAI)

        async with asyncio.TaskGroup() as group:
            for n in range(4):
                link = Link(provider="openai", model=f"m{n}")
                group.create_task(house.registry.set_role(ADMIN, Role.PLAN, [link]))

        assert len(await house.registry.role_versions(Role.PLAN)) == 4


class TestWhatTheServiceIsGiven:
    async def test_a_change_counts_at_once_here_and_within_a_second_elsewhere(
        self, house: Desk, db: Database, clock: ManualClock
    ) -> None:
        other = desk(db, clock)
        await house.registry.create(ADMIN, OPENAI)
        before = await other.registry.chain_of(Role.PLAN)
        await house.registry.set_role(ADMIN, Role.PLAN, [Link(provider="openai")])

        here = await house.registry.chain_of(Role.PLAN)
        still = await other.registry.chain_of(Role.PLAN)
        clock.advance(0.9)
        then = await other.registry.chain_of(Role.PLAN)

        assert [len(c.entries) for c in (before, here, still, then)] == [0, 1, 0, 1]

    async def test_a_provider_is_made_once_with_its_secret_and_anew_after_a_change(
        self, house: Desk
    ) -> None:
        made = await house.registry.create(ADMIN, OPENAI, secret=SECRET)

        await ask(house, made.id)
        await ask(house, made.id)
        await house.registry.set_secret(ADMIN, "openai", "another-secret-4242")
        await ask(house, made.id)

        assert [f.made_with[2] for f in house.made] == [SECRET, "another-secret-4242"]
        assert house.made[0].made_with == (
            "openai", "https://api.openai.com/v1", SECRET, False, Parameters(),
        )  # fmt: skip
        assert [f.closed for f in house.made] == [1, 0]
        await house.registry.aclose()
        assert [f.closed for f in house.made] == [1, 1]

    async def test_what_is_being_asked_is_closed_after_its_answer(
        self, house: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = await house.registry.create(ADMIN, OPENAI)
        provider = await house.registry.provider_of(made.id)
        (inner,) = house.made
        begun, go_on = asyncio.Event(), asyncio.Event()
        complete = inner.complete

        async def slow(*args: Any, **kwargs: Any) -> Any:
            begun.set()
            await go_on.wait()
            return await complete(*args, **kwargs)

        monkeypatch.setattr(inner, "complete", slow)
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(
                provider.complete(
                    SAID, model="m", parameters=Parameters(), schema=None, deadline_s=1
                )
            )
            await begun.wait()
            await house.registry.delete(ADMIN, "openai")
            with pytest.raises(NotFound):
                await house.registry.provider_of(made.id)
            open_meanwhile = inner.closed == 0
            go_on.set()

        assert open_meanwhile
        assert asked.result().text == "ok"
        assert inner.closed == 1

    async def test_a_disabled_provider_is_not_given(self, house: Desk) -> None:
        made = await house.registry.create(ADMIN, OPENAI)
        await house.registry.change(ADMIN, "openai", ProviderChange(is_enabled=False))

        with pytest.raises(NotFound):
            await house.registry.provider_of(made.id)


class TestPrompts:
    async def test_defaults_are_installed_once_and_used(self, house: Desk) -> None:
        await house.library.install_defaults()
        await house.library.install_defaults()

        used = await house.library.in_use()

        assert {u.prompt.name: u.prompt.version for u in used} == dict.fromkeys(DEFAULTS, 1)
        assert {u.used_by for u in used} == {SHIPPED}
        assert (await house.library.get("plan")).template == DEFAULTS["plan"].template

    async def test_many_daemons_that_start_at_once_install_them_once(
        self, db: Database, clock: ManualClock
    ) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(desk(db, clock).library.install_defaults())

        assert len(await desk(db, clock).library.versions("plan")) == 1

    async def test_a_newer_default_is_used_only_where_nobody_chose(
        self, house: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await house.library.install_defaults()
        await house.library.save(ADMIN, "plan", system="", template="{{ goal }}", use=True)
        await house.library.use(ADMIN, "judge", 1)
        newer = {n: Default(system="", template=f"{d.template}newer") for n, d in DEFAULTS.items()}
        monkeypatch.setattr("noema.llm.library.DEFAULTS", newer)

        await house.library.install_defaults()

        used = {u.prompt.name: (u.prompt.version, u.newest) for u in await house.library.in_use()}
        assert used["plan"] == (2, 3)
        assert used["judge"] == (1, 2)
        assert used["dialogue"] == (2, 2)
        assert (await house.library.get("plan")).template == "{{ goal }}"
        assert (await house.library.get("plan", 3)).actor == SHIPPED

    async def test_an_older_noema_changes_nothing(
        self, house: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        newer = {n: Default(system="", template=f"{d.template}newer") for n, d in DEFAULTS.items()}
        await house.library.install_defaults()
        monkeypatch.setattr("noema.llm.library.DEFAULTS", newer)
        await house.library.install_defaults()
        monkeypatch.setattr("noema.llm.library.DEFAULTS", defaults.DEFAULTS)

        await house.library.install_defaults()

        assert (await house.library.get("plan")).version == 2
        assert len(await house.library.versions("plan")) == 2

    async def test_a_version_is_saved_used_compared_and_rolled_back(self, house: Desk) -> None:
        await house.library.install_defaults()
        template = "{% for s in statements %}{{ s.text }}{% endfor %}\nSo?"
        saved = await house.library.save(
            ADMIN, "verify", system="Judge.", template=template, note="short", base=1
        )
        before = await house.library.get("verify")
        await house.library.use(ADMIN, "verify", 2)
        after = await house.library.get("verify")
        await house.library.use(ADMIN, "verify", 1)
        back = await house.library.get("verify")

        diff = await house.library.diff("verify", 1, 2)

        assert (saved.version, saved.note, saved.actor) == (2, "short", ADMIN.actor)
        assert (before.version, after.version, back.version) == (1, 2, 1)
        assert "--- verify 1 system\n+++ verify 2 system\n" in diff
        assert "+So?\n" in diff
        assert await house.library.diff("verify", 2, 2) == ""
        assert [u.version for u in await house.library.uses("verify")] == [1, 2, 1]
        assert [r[:2] for r in await house.audited("llm.prompt-use")] == [
            ("prompt:verify", "ok"), ("prompt:verify", "ok"),
        ]  # fmt: skip

    async def test_what_is_wrong_is_refused_with_its_line_and_nothing_is_kept(
        self, house: Desk
    ) -> None:
        await house.library.install_defaults()

        with pytest.raises(InvalidInput, match="template, line 2: there is no gaol"):
            await house.library.save(ADMIN, "plan", system="", template="a\n{{ gaol }}")
        with pytest.raises(Conflict, match="Version 1 of plan"):
            await house.library.save(ADMIN, "plan", system="", template="{{ goal }}", base=7)
        with pytest.raises(NotFound):
            await house.library.save(ADMIN, "nope", system="", template="x")
        with pytest.raises(NotFound):
            await house.library.use(ADMIN, "plan", 9)
        with pytest.raises(InvalidInput, match="note"):
            await house.library.save(ADMIN, "plan", system="", template="x", note="n" * 501)

        assert len(await house.library.versions("plan")) == 1

    async def test_a_version_that_no_longer_fits_is_not_put_to_use(self, house: Desk) -> None:
        await house.library.install_defaults()
        async with house.db.transaction() as tx:
            await tx.conn.execute(
                "INSERT INTO prompts (name, version, template, actor, created_at)"
                " VALUES ('plan', 2, '{{ no_more }}', 'x', now())"
            )

        with pytest.raises(InvalidInput, match="no_more"):
            await house.library.use(ADMIN, "plan", 2)

    async def test_rendering_says_which_version_it_was(
        self, house: Desk, db: Database, clock: ManualClock
    ) -> None:
        other = desk(db, clock)
        given = Dialogue(mind="ada", now="noon", message=Data(text="hello"))
        await house.library.install_defaults()
        first = await other.library.render("dialogue", given)
        await house.library.save(ADMIN, "dialogue", system="", template="{{ message }}!", use=True)

        here = await house.library.render("dialogue", given)
        clock.advance(0.9)
        there = await other.library.render("dialogue", given)
        pinned = await other.library.render("dialogue", given, version=1)

        assert (first.prompt, here.prompt) == (("dialogue", 1), ("dialogue", 2))
        assert here == there
        assert pinned == first
        assert f"data-{here.mark}" in here.messages[-1].text

    async def test_text_that_the_database_cannot_hold_comes_back_as_it_was(
        self, house: Desk
    ) -> None:
        await house.library.install_defaults()
        odd = "{{ goal }}\x00\ue000"

        saved = await house.library.save(ADMIN, "plan", system="", template=odd, note="\x00")

        assert (saved.template, saved.note) == (odd, "\x00")

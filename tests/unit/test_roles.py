"""Guarantees 16, 17 and 19: what a role may do and lend, and which namespaces one sees."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.auth.model import Membership
from noema.auth.roles import (
    MemoryRight,
    console_allows,
    lesser_console,
    lesser_memory,
    may_lend,
    memory_allows,
    require_console,
)
from noema.core.errors import Denied
from noema.core.identity import (
    LOCAL,
    NOWHERE,
    ConsoleRole,
    Identity,
    MemoryRole,
    can_read_namespace,
    readable_namespaces,
)

CONSOLE = st.sampled_from(ConsoleRole)
MEMORY = st.sampled_from(MemoryRole)


def at(namespace: str) -> Identity:
    return Identity(
        namespace=namespace,
        actor="user:ada",
        role=MemoryRole.MEMBER,
        console=ConsoleRole.OBSERVER,
        agent_id="http",
    )


def test_guarantee_16_console_roles_are_a_ladder() -> None:
    assert [console_allows(r, ConsoleRole.OPERATOR) for r in ConsoleRole] == [
        False,
        False,
        True,
        True,
    ]
    with pytest.raises(Denied, match="needs the role operator; you have observer"):
        require_console(at("home"), ConsoleRole.OPERATOR)
    require_console(LOCAL, ConsoleRole.ADMINISTRATOR)


def test_memory_roles_have_the_rights_the_design_gives_them() -> None:
    may_write = {r for r in MemoryRole if memory_allows(r, MemoryRight.WRITE)}
    may_audit = {r for r in MemoryRole if memory_allows(r, MemoryRight.AUDIT)}
    may_manage = {r for r in MemoryRole if memory_allows(r, MemoryRight.MANAGE)}

    assert may_write == {MemoryRole.AGENT, MemoryRole.MEMBER, MemoryRole.ADMIN, MemoryRole.OWNER}
    assert may_audit == {MemoryRole.AUDITOR, MemoryRole.ADMIN, MemoryRole.OWNER}
    assert may_manage == {MemoryRole.ADMIN, MemoryRole.OWNER}


@given(wanted=MEMORY, present=MEMORY)
def test_guarantee_17_the_lesser_of_two_memory_roles_may_nothing_that_either_may_not(
    wanted: MemoryRole, present: MemoryRole
) -> None:
    found = lesser_memory(wanted, present)

    assert may_lend(present, found)
    assert may_lend(wanted, found)
    for right in MemoryRight:
        if memory_allows(found, right):
            assert memory_allows(wanted, right)
            assert memory_allows(present, right)


@given(one=CONSOLE, other=CONSOLE)
def test_guarantee_17_the_lesser_of_two_console_roles_is_within_both(
    one: ConsoleRole, other: ConsoleRole
) -> None:
    found = lesser_console(one, other)

    assert found in (one, other)
    assert console_allows(one, found)
    assert console_allows(other, found)


def test_guarantee_17_an_auditor_and_a_member_lend_each_other_nothing() -> None:
    assert lesser_memory(MemoryRole.AUDITOR, MemoryRole.MEMBER) is MemoryRole.NONE
    assert not may_lend(MemoryRole.AUDITOR, MemoryRole.AGENT)


@pytest.mark.parametrize(
    ("namespace", "visible"),
    [
        ("acme/eng/platform", True),
        ("acme/eng", True),
        ("acme", True),
        ("acme/eng/platform/db", False),
        ("acme/sales", False),
        ("acme/engineering", False),
        ("acme/en", False),
        ("acmecorp", False),
        ("ACME", False),
        ("", False),
        ("acme/", False),
        ("%", False),
        ("acme/eng_platform", False),
    ],
)
def test_guarantee_19_one_sees_ones_own_namespace_and_those_above_it(
    namespace: str, visible: bool
) -> None:
    assert can_read_namespace(at("acme/eng/platform"), namespace) is visible


def test_guarantee_19_memberships_see_what_any_of_them_sees() -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    held = [
        Membership(namespace=n, role=MemoryRole.MEMBER, valid_from=since)
        for n in ("acme/eng", "home")
    ]

    assert readable_namespaces(held) == {"acme", "acme/eng", "home"}
    assert not can_read_namespace([], "home")


def test_guarantee_19_somebody_nowhere_sees_nothing() -> None:
    assert readable_namespaces(at(NOWHERE)) == frozenset()
    assert not can_read_namespace(at(NOWHERE), NOWHERE)

"""A provider that fails is left alone in every role, until it answers or is changed."""

import msgspec

from noema.core.clock import ManualClock
from noema.llm.breakers import Breakers
from noema.net.circuit import FAILURES
from tests.llm_scripted import entry

FIRST, OTHER = entry("first", 1), entry("other", 2)


def fail(breakers: Breakers) -> None:
    for _ in range(FAILURES):
        breakers.of(FIRST).failed("It is down.")


def test_it_rests_in_every_role_and_others_do_not(clock: ManualClock) -> None:
    breakers = Breakers(clock)
    fail(breakers)
    in_another_role = msgspec.structs.replace(FIRST, model="another")

    assert breakers.of(in_another_role).is_open
    assert not breakers.of(OTHER).is_open
    assert breakers.resting == 1


def test_one_that_was_changed_is_asked_at_once_and_old_calls_do_not_shut_it(
    clock: ManualClock,
) -> None:
    breakers = Breakers(clock)
    fail(breakers)
    mended = msgspec.structs.replace(FIRST, version=FIRST.version + 1)

    assert not breakers.of(mended).is_open
    assert breakers.of(FIRST) is breakers.of(mended)
    assert breakers.resting == 0

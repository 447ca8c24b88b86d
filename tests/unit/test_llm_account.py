"""What the attempts of one call take, without a database: what is held is settled, once."""

from uuid import UUID

from noema.core.clock import ManualClock
from noema.llm.account import Account
from noema.llm.model import Usage
from tests.llm_scripted import asks, entry, fails, says

CALL = UUID(int=9)
ASKED = asks()
PRIMARY, SECOND = entry("primary", 1, max_tokens=100), entry("second", 2, max_tokens=50)


def sizes(account: Account) -> list[tuple[int | None, int | None, int | None, bool]]:
    return [(s.attempt, s.micros, s.tokens, s.is_unknown) for s in account.settled]


def test_what_was_reserved_as_the_call_began_is_not_reserved_again(clock: ManualClock) -> None:
    account = Account(CALL, ASKED, clock)
    hold = account.want(PRIMARY, ASKED.messages)
    account.reserved()

    assert hold is not None
    assert (hold.attempt, hold.micros, hold.tokens) == (1, 210, 110)
    assert account.want(PRIMARY, ASKED.messages) is None


def test_where_another_is_asked_after_all_it_is_settled_to_nothing(clock: ManualClock) -> None:
    account = Account(CALL, ASKED, clock)
    account.want(PRIMARY, ASKED.messages)
    account.reserved()
    hold = account.want(SECOND, ASKED.messages)

    assert hold is not None
    assert (hold.attempt, hold.provider, hold.tokens) == (2, "second", 60)
    assert sizes(account) == [(1, 0, 0, False)]


def test_what_nobody_knows_to_be_reserved_is_reserved_anew(clock: ManualClock) -> None:
    # Else the same provider a second time in a chain would be asked on no budget.
    account = Account(CALL, ASKED, clock)
    account.want(PRIMARY, ASKED.messages)
    hold = account.want(PRIMARY, ASKED.messages)

    assert hold is not None
    assert hold.attempt == 2
    assert sizes(account) == [(1, 0, 0, False)]


def test_an_attempt_that_is_under_way_is_closed_as_unknown_and_one_that_is_not_as_nothing(
    clock: ManualClock,
) -> None:
    asked, waiting = Account(CALL, ASKED, clock), Account(CALL, ASKED, clock)
    for account in (asked, waiting):
        account.want(PRIMARY, ASKED.messages)
        account.reserved()
    asked.opened(PRIMARY)
    for account in (asked, waiting):
        account.close("Gone.")
        account.close("Gone.")

    assert sizes(asked) == [(1, None, None, True)]
    assert sizes(waiting) == [(1, 0, 0, False)]
    assert [(a.error, a.cost_kind) for a in asked.attempts] == [("Gone.", "unknown")]
    assert waiting.attempts == []


def test_a_sum_says_how_far_it_is_known(clock: ManualClock) -> None:
    account = Account(CALL, ASKED, clock)
    account.skipped(SECOND, "It rests.")
    for failure in (fails(), fails(usage=Usage(input=10, output=1)), fails(is_cost_unknown=True)):
        account.want(PRIMARY, ASKED.messages)
        account.opened(PRIMARY)
        account.settle(failure=failure)
    before = account.cost
    account.want(PRIMARY, ASKED.messages)
    account.opened(PRIMARY)
    account.settle(completion=says("ok"))

    assert before == (12, "unknown")
    assert account.cost == (32, "unknown")
    assert account.usage == Usage(input=20, output=6)
    assert [a.cost_micros for a in account.attempts] == [0, 0, 12, None, 20]

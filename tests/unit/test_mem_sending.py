"""What an import counts, and where it would go on, whatever the answers and their order."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.cli.client import Ctl, Refusal, Unreachable
from noema.cli.commands import mem_sending
from noema.cli.commands.mem_sending import Reject, Sending, Stopped, Tally
from noema.cli.importing import Entry, Mark
from noema.cli.output import CommandError
from noema.config import ClientSettings
from noema.core.clock import ManualClock

STORED = {"stored": 1, "superseded": 0, "deduplicated": 0, "rejected": []}


class Wire:
    """Takes the place of the threads: `outcomes` says how each try of each entry ends.

    `choose` picks which of the open requests ends next.
    """

    def __init__(self, outcomes: dict[int, list[Any]], choose: Any) -> None:
        self.outcomes, self.choose = outcomes, choose
        self.open: list[Any] = []
        self.sent: list[int] = []
        self.keys: dict[int, set[str]] = {}
        self.most_open = 0
        self.lanes: list[str] = []

    def __call__(self, daemon: object, count: int) -> "Wire":
        return self

    def send(self, slot: Any) -> None:
        number = slot.entry.mark.items
        lanes = [one.entry.lane for one in self.open if one.entry.lane is not None]
        assert slot.entry.lane not in lanes
        self.open.append(slot)
        self.sent.append(number)
        self.keys.setdefault(number, set()).add(slot.key)
        self.most_open = max(self.most_open, len(self.open))

    def receive(self) -> tuple[Any, Any]:
        slot = self.open.pop(self.choose(len(self.open)))
        planned = self.outcomes.get(slot.entry.mark.items, [])
        return slot, planned.pop(0) if planned else STORED

    def receive_within(self, timeout_s: float) -> tuple[Any, Any] | None:
        return self.receive() if self.open else None

    def close(self) -> None:
        self.open = []


class Import:
    """One import: what it sends, counts and rejects."""

    def __init__(self, *, mark: Mark | None = None, strict: bool = False, salt: str = "s") -> None:
        clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
        settings = ClientSettings(url=None, token=None, config_dir=Path("/nonexistent"))
        self.waited: list[float] = []
        self.said: list[str] = []
        self.rejects: list[Reject] = []
        self.marks: list[int] = []

        def pause(seconds: float) -> None:
            self.waited.append(seconds)
            clock.advance(seconds)

        self.sending = Sending(
            ctl=Ctl(settings=settings, clock=clock, pause=pause),
            daemon=None,  # type: ignore[arg-type]
            salt=salt,
            in_flight=4,
            patience_s=60,
            is_strict=strict,
            tally=Tally(),
            mark=mark or Mark(),
            say=self.said.append,
            on_reject=self.rejects.append,
            on_counted=lambda mark: self.marks.append(mark.items),
        )

    def run(self, entries: Iterator[Entry], wire: Wire) -> CommandError | None:
        with patch.object(mem_sending, "Senders", wire):
            try:
                self.sending.run(entries)
            except CommandError as exc:
                return exc
        return None


def entry(number: int, *, lane: str | None = None, problem: str | None = None) -> Entry:
    body = {"text": f"text {number}"} if problem is None else None
    place = f"f:{number}"
    return Entry(place=place, mark=Mark(items=number), body=body, lane=lane, problem=problem)


def refused(status: int, after: str | None = None) -> Refusal:
    return Refusal(f"No ({status}).", status=status, retry_after=after)


def first(count: int) -> int:
    return 0


def last(count: int) -> int:
    return count - 1


LOST = Unreachable("Broke off.")
_TRIES = st.lists(
    st.sampled_from([LOST, refused(503), refused(429), refused(400), refused(500), refused(404)]),
    max_size=4,
)


@given(
    st.lists(
        st.tuples(_TRIES, st.sampled_from([None, None, "a", "b"]), st.booleans()), max_size=30
    ),
    st.data(),
)
def test_everything_is_counted_once_and_in_order_whatever_is_lost_and_whoever_answers_first(
    plan: list[tuple[list[Any], str | None, bool]], data: Any
) -> None:
    numbered = list(enumerate(plan, 1))
    wire = Wire(
        {number: list(tries) for number, (tries, _, _) in numbered},
        lambda count: data.draw(st.integers(0, count - 1)),
    )
    entries = [
        entry(number, lane=lane, problem="is broken" if is_bad else None)
        for number, (_, lane, is_bad) in numbered
    ]
    one = Import()

    stopped = one.run(iter(entries), wire)

    counted, tally = one.sending.mark.items, one.sending.tally
    assert stopped is None or counted < len(entries)
    assert one.marks == list(range(1, counted + 1))
    assert tally.stored + tally.rejected == tally.entries == counted
    assert all(len(keys) == 1 for keys in wire.keys.values())
    assert wire.most_open <= 4
    if stopped is None:
        assert counted == len(entries)


@given(st.integers(1, 20), st.data())
def test_going_on_after_an_interrupt_sends_all_that_was_not_counted_with_the_same_keys(
    at: int, data: Any
) -> None:
    entries = [entry(number) for number in range(1, 21)]
    calls = iter(range(1000))

    def choose(count: int) -> int:
        if next(calls) == at - 1:
            raise KeyboardInterrupt
        return int(data.draw(st.integers(0, count - 1)))

    before, wire = Import(), Wire({}, choose)
    with pytest.raises(KeyboardInterrupt):
        before.run(iter(entries), wire)
    mark = before.sending.mark
    after, again = Import(mark=mark), Wire({}, first)

    after.run(iter(entries[mark.items :]), again)

    assert before.marks + after.marks == list(range(1, 21))
    both = wire.keys.keys() & again.keys.keys()
    assert all(wire.keys[number] == again.keys[number] for number in both)


def test_one_that_hangs_does_not_let_the_rest_run_away() -> None:
    read: list[int] = []

    def entries() -> Iterator[Entry]:
        for number in range(1, 1001):
            read.append(number)
            yield entry(number)

    seen: list[int] = []

    def the_first_last(count: int) -> int:
        if count == 1:
            seen.append(len(read))
        return count - 1

    Import().run(entries(), Wire({}, the_first_last))

    assert seen[0] == 16  # four for each request in flight


def test_the_wait_that_is_asked_for_is_kept_and_said_once() -> None:
    one = Import()

    one.run(
        (entry(n) for n in range(1, 9)),
        Wire({1: [refused(429, "7")], 5: [refused(429, "3")]}, first),
    )

    assert one.waited == [7, 3]
    assert one.said == ["No (429). Going on at the pace that the daemon allows."]
    assert one.sending.tally.stored == 8


def test_what_does_not_get_through_for_too_long_stops_with_everything_before_counted() -> None:
    one = Import()

    stopped = one.run((entry(n) for n in range(1, 9)), Wire({3: [LOST] * 99}, last))

    assert isinstance(stopped, Stopped)
    assert stopped.exit_code == 5
    assert one.waited == [0.5, 1, 2, 4, 8, 15, 15]
    assert one.marks == [1, 2]
    assert one.said == ["Broke off. Sending again until it is taken."]


def test_a_refusal_of_everything_stops_and_counts_nothing() -> None:
    one = Import()

    stopped = one.run(
        (entry(n) for n in range(1, 100)), Wire({n: [refused(403)] for n in range(1, 100)}, first)
    )

    assert stopped is not None
    assert stopped.exit_code == 4
    assert one.marks == []


def test_a_few_that_are_refused_are_rejected_and_the_rest_goes_on() -> None:
    one = Import()

    stopped = one.run(
        (entry(n) for n in range(1, 9)), Wire({2: [refused(403)], 4: [refused(500)] * 3}, first)
    )

    assert stopped is None
    assert [reject.place for reject in one.rejects] == ["f:2", "f:4"]
    assert one.sending.tally.stored == 6


def test_a_token_that_ends_stops_at_once() -> None:
    one = Import()

    stopped = one.run((entry(n) for n in range(1, 9)), Wire({3: [refused(401)]}, first))

    assert stopped is not None
    assert stopped.exit_code == 4
    assert one.marks == [1, 2]


@pytest.mark.parametrize(
    "outcome",
    [refused(400), refused(403), {"stored": 0, "rejected": [{"index": 0, "reason": "No (text)."}]}],
)
def test_strict_stops_before_the_first_that_is_not_taken(outcome: Any) -> None:
    one = Import(strict=True)

    stopped = one.run((entry(n) for n in range(1, 9)), Wire({3: [outcome]}, first))

    assert stopped is not None
    assert "f:3: No (" in stopped.message
    assert one.marks == [1, 2]


def test_strict_sends_nothing_behind_a_malformed_one() -> None:
    one, wire = Import(strict=True), Wire({}, first)
    entries = [entry(1), entry(2, problem="is not JSON"), entry(3)]

    stopped = one.run(iter(entries), wire)

    assert stopped is not None
    assert stopped.message == "f:2: is not JSON"
    assert wire.sent == [1]

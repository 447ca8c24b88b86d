"""The demo's stream: every line of a file, at any speed, whatever the database does."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from noema.cli import demo
from noema.cognition.minds import MAX_BATCH, MAX_TEXT_BYTES, NewStimulus
from noema.core.clock import ManualClock
from noema.core.errors import NotFound, TooLarge, Unavailable


class Receiver:
    """Minds that take stimuli within the limits of the real ones, now and then on a second try."""

    def __init__(self, *, fails: int = 0) -> None:
        self.texts: list[str] = []
        self._fails = fails

    async def get(self, slug: str) -> None:
        raise NotFound("mind", slug)

    async def create(self, **_: object) -> None:
        return

    async def receive(self, slug: str, batch: Sequence[NewStimulus], *, actor: str) -> None:
        if self._fails:
            self._fails -= 1
            raise Unavailable("Not now.")
        if len(batch) > MAX_BATCH or any(len(s.text.encode()) > MAX_TEXT_BYTES for s in batch):
            raise TooLarge("Too much.")
        self.texts += [s.text for s in batch]


async def told(path: Path, receiver: Receiver, clock: ManualClock) -> list[str]:
    noema: Any = SimpleNamespace(
        minds=receiver, runner=SimpleNamespace(look_for_minds=lambda: None), clock=clock
    )
    await demo.Stream(path=path, lines_per_s=10_000).run(noema)
    return receiver.texts


async def test_every_line_of_a_file_arrives_at_the_highest_speed(
    tmp_path: Path, clock: ManualClock
) -> None:
    lines = [f"line {n}" for n in range(MAX_BATCH * 3 + 7)]
    file = tmp_path / "log"
    file.write_text("\n".join(lines))

    assert await told(file, Receiver(), clock) == lines


async def test_a_batch_that_finds_no_database_is_sent_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    file = tmp_path / "log"
    file.write_text("one\ntwo\n")

    assert await told(file, Receiver(fails=2), clock) == ["one", "two"]


@pytest.mark.parametrize("raw", [b"\xff" * 20_000, b"x" * 70_000])
async def test_a_line_that_is_too_long_takes_no_other_with_it(
    tmp_path: Path, clock: ManualClock, raw: bytes
) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"before\n" + raw + b"\nafter\n")

    assert await told(file, Receiver(), clock) == ["before", "after"]

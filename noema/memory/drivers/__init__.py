"""Retriever drivers by name; which one ranks is for the namespace's policy to say."""

from collections.abc import Mapping
from typing import Final

from noema.memory.drivers.baseline import Baseline
from noema.memory.drivers.model import RetrieverDriver

BASELINE: Final[RetrieverDriver] = Baseline()
DRIVERS: Final[Mapping[str, RetrieverDriver]] = {BASELINE.name: BASELINE}

"""The last tests of providers, for as long as somebody looks at them."""

from collections import OrderedDict
from typing import Final

from noema.llm.trial import Tried

_KEPT_TESTS: Final = 8


class Tests:
    """What the last tests sent and got, for who made them to look at after the redirect."""

    __test__ = False

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[str, Tried]] = OrderedDict()

    def keep(self, actor: str, key: str, tried: Tried) -> None:
        """Keep a test; of many the oldest goes."""
        self._kept[key] = (actor, tried)
        while len(self._kept) > _KEPT_TESTS:
            self._kept.popitem(last=False)

    def of(self, actor: str, key: str, provider: str) -> Tried | None:
        """Return the test, None where it is not there, or not this actor's."""
        whose, tried = self._kept.get(key, ("", None))
        return tried if whose == actor and tried and tried.provider == provider else None

"""Values shaped like Amazon's keys, put together here so that none stands in the sources."""

from typing import Final


def _of(*parts: str) -> str:
    return "".join(parts)


KEY_ID: Final = _of("AKIA", "IOSFODNN7", "CANARY0")
SECRET: Final = _of("wJalrXUtn", "FEMI/K7MDENG", "+bPxRfiCY", "canaryKEY1")
TOKEN: Final = _of(
    "IQoJb3JpZ2lu", "X2VjCANARY", "/" * 10, "wEaCXVzLWVhc3Qt", "MSJHMEUCIQD+token/canary=="
)
CREDENTIAL: Final = f"{KEY_ID}:{SECRET}:{TOKEN}"

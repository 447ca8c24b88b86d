"""A service asked over HTTP is reached at an address that was judged, whatever its name does."""

import asyncio
from typing import Any

import msgspec
import pytest

from noema.core.clock import ManualClock
from noema.core.errors import Unavailable
from noema.net.http import Remote
from tests.llm_asked import NOW


class Nothing(msgspec.Struct):
    pass


@pytest.mark.parametrize("later", ["169.254.169.254", "fd00:ec2::254", "0.0.0.0", "224.0.0.1"])
async def test_a_name_that_leads_elsewhere_once_it_was_looked_at_is_not_followed(
    later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ["127.0.0.1"]

    async def resolve(host: str, port: object, **_: object) -> list[Any]:
        return [(2, 1, 6, "", (found.pop() if found else later, 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    async with Remote(
        name="the embedder", url="http://embedder.example", clock=ManualClock(NOW)
    ) as remote:
        with pytest.raises(Unavailable, match="cannot be used"):
            await remote.post("/embeddings", {}, Nothing)

    assert found == []

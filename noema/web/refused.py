"""What is refused at the door: one row of the audit log each, but no flood of them."""

from collections import OrderedDict
from typing import Final

import structlog

from noema.auth.limits import Addresses, site_of
from noema.core.act import Act
from noema.core.clock import Clock
from noema.core.errors import NoemaError
from noema.core.identity import NOWHERE
from noema.events.audit import Audit, outcome_of, reason_of
from noema.web.call import Call
from noema.web.origin import transport_of

log = structlog.get_logger()

_AGAIN_AFTER_S: Final = 60.0
_REMEMBERED: Final = 2_000
_BURST: Final = 300
_REFILL_S: Final = 1.0


class Refusals:
    """Tells the audit log of refused requests.

    The same refusal of the same caller is told once a minute; all of them together 300 at once and
    then one a second, so that no number of addresses fills the log.
    """

    def __init__(self, *, audit: Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._all = Addresses(clock=clock, burst=_BURST, refill_s=_REFILL_S)
        self._told: OrderedDict[str, float] = OrderedDict()

    async def tell(
        self, call: Call, route: str, exc: Exception, *, verb: str = "request.refused"
    ) -> None:
        """Add the row, unless it was told lately. `route` is the pattern, not what was sent."""
        client = call.request.client
        address = "unknown" if client is None else client.host
        who = call.identity
        actor = "anonymous" if who is None else who.actor
        told = str(exc) if isinstance(exc, NoemaError) else reason_of(exc)
        if not self._is_news(f"{actor} {site_of(address)} {route} {told}"):
            return
        act = Act(
            actor=actor,
            agent_id=transport_of(call.request) if who is None else who.agent_id,
            namespace=NOWHERE if who is None else who.namespace,
            verb=verb,
            target=f"route:{route}",
            outcome=outcome_of(exc),
            detail=f"{told} From {address}",
        )
        try:
            await self._audit.record_alone(act)
        except NoemaError as lost:
            # The refusal stands, and is what the caller is told.
            log.warning("audit_row_lost", op=act.verb, reason=str(lost))

    def _is_news(self, key: str) -> bool:
        now = self._clock.monotonic()
        last = self._told.get(key)
        if (last is not None and now - last < _AGAIN_AFTER_S) or self._all.take("everybody"):
            return False
        self._told[key] = now
        self._told.move_to_end(key)
        while len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        return True

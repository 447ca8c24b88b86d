"""Health, metrics, the whole system in one answer, and who the caller is."""

import asyncio
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from noema import __version__
from noema.auth.roles import console_allows
from noema.cognition.attention import SCORER_VERSION
from noema.cognition.state import STATE_VERSION
from noema.core.errors import NoemaError
from noema.core.identity import ConsoleRole
from noema.net.circuit import Circuit
from noema.web.call import Call
from noema.web.origin import require_fresh
from noema.web.reply import Json
from noema.web.services import Services

_READY_WITHIN_S: Final = 5.0


async def healthz(call: Call) -> Json:
    return Json({"status": "alive", "version": __version__})


async def readyz(call: Call) -> Json:
    checks: dict[str, str] = {}
    try:
        async with asyncio.timeout(_READY_WITHIN_S):
            migrations = await call.services.pages.migrations()
        waiting = [m.name for m in migrations if m.state != "applied"]
        checks["database"] = "ok"
        checks["migrations"] = "ok" if not waiting else f"{len(waiting)} not applied"
    except (NoemaError, TimeoutError):
        checks["database"] = "not reachable"
    writer = call.services.writer
    checks["writer"] = "ok" if writer.connected else "not connected"
    if writer.stalled_s > _READY_WITHIN_S:
        checks["writer"] = f"waits for a commit since {writer.stalled_s:.0f} s"
    ready = all(state == "ok" for state in checks.values())
    return Json({"status": "ready" if ready else "not ready", **checks}, 200 if ready else 503)


class _Gauges(Collector):
    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> list[Metric]:
        s = self._services
        # Anybody may read these, so no mind is named: which there are is their tenant's.
        statuses = s.runner.statuses
        plain = {
            "noema_timer_lateness_seconds": (
                "How late the latest of the minds' last timers fired.",
                max((m.timer_late_us for m in statuses), default=0) / 1_000_000,
            ),
            "noema_cycles": (
                "Cycles of the minds this process runs.",
                sum(m.cycle for m in statuses),
            ),
            "noema_minds_running": ("Minds this process runs.", len(statuses)),
            "noema_writer_queued_units": (
                "Units that wait to be committed.",
                s.writer.queued_units,
            ),
            "noema_writer_units_total": ("Units committed.", s.writer.units_committed),
            "noema_writer_batches_total": ("Commits made for them.", s.writer.batches_committed),
            "noema_writer_connected": ("1 while the writer is connected.", int(s.writer.connected)),
            "noema_event_watchers": ("Open event streams.", s.feed.watchers),
            "noema_loop_lag_seconds": ("How late the event loop ran last.", s.health.loop_lag_s),
            "noema_loop_lag_worst_seconds": (
                "The worst of the last minutes.",
                s.health.worst_loop_lag_s,
            ),
        }
        gauges: list[Metric] = [
            GaugeMetricFamily(name, text, value=value) for name, (text, value) in plain.items()
        ]
        return gauges


async def metrics(call: Call) -> Response:
    registry = CollectorRegistry()
    registry.register(_Gauges(call.services))
    services = call.services
    text = generate_latest(registry) + services.memory.timings.text() + services.llm.meter.text()
    return Response(text, media_type="text/plain; version=0.0.4")


async def whoami(call: Call) -> Json:
    who = call.who
    return Json(
        {
            "actor": who.actor,
            "namespace": who.namespace,
            "role": who.role,
            "console_role": who.console,
            "agent_id": who.agent_id,
        }
    )


async def describe(services: Services) -> dict[str, Any]:
    """Return what the System page and `noemactl system` show; no secret is in it."""
    protection = services.protection
    known = await services.pages.known_slugs()
    statuses = [s for s in services.runner.statuses if s.slug in known]
    return {
        "version": __version__,
        "scorer_version": SCORER_VERSION,
        "state_version": STATE_VERSION,
        "database": {
            "embedded": services.is_embedded,
            "server_version": protection.server_version,
            "pgvector": protection.pgvector,
            "protection": protection.kind,
            "role": protection.current_user,
            "findings": protection.findings,
            **await services.pages.counts(),
        },
        "migrations": [
            {"version": m.version, "name": m.name, "state": m.state, "applied_at": m.applied_at}
            for m in await services.pages.migrations()
        ],
        "partitions": await services.pages.partitions(),
        "embedder": services.llm.embedding.in_force,
        "leases": await services.pages.leases(),
        "writer": {
            "connected": services.writer.connected,
            "queued_units": services.writer.queued_units,
            "units": services.writer.units_committed,
            "batches": services.writer.batches_committed,
        },
        "feed": {"watchers": services.feed.watchers, "lagging": services.feed.is_lagging},
        "loop": {
            "lag_ms": round(services.health.loop_lag_s * 1000, 3),
            "worst_lag_ms": round(services.health.worst_loop_lag_s * 1000, 3),
        },
        "minds": [
            {
                "slug": s.slug,
                "epoch": s.epoch,
                "cycle": s.cycle,
                "timer_late_ms": s.timer_late_us / 1000,
            }
            for s in statuses
        ],
    }


async def providers_of(call: Call) -> list[dict[str, Any]]:
    """Return whether each provider of models is asked; empty for those who may not see them."""
    if not console_allows(call.who.console, ConsoleRole.OPERATOR):
        return []
    llm = call.services.llm
    found = []
    for row in await llm.registry.providers():
        breaker = llm.breakers.get(row.id)
        state = "disabled" if not row.is_enabled else state_of(breaker)
        rests_s = 0.0 if breaker is None or not row.is_enabled else breaker.rests_s
        found.append(
            {"name": row.name, "kind": row.kind, "state": state, "rests_s": round(rests_s, 1)}
        )
    return found


def state_of(breaker: Circuit | None) -> str:
    """Return in a word how a provider did lately; None is one that no role asked yet."""
    if breaker is None or not (breaker.is_open or breaker.failures):
        return "ready"
    return "resting" if breaker.is_open else "failing"


async def system(call: Call) -> Json:
    return Json({**await describe(call.services), "providers": await providers_of(call)})


async def new_link(call: Call) -> Json:
    """Return a one-time link that lets one browser in."""
    # Or a session left open would outlive its own end, by one link after the other.
    require_fresh(call)
    access = call.services.access
    link = await access.link_for(call.credential, base_url=call.services.settings.base_url)
    return Json({"url": link}, 201)

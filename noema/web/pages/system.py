"""The daemon itself: database and its protection, queues, lag, versions, leases."""

from typing import Any, Final

from starlette.responses import Response

from noema.auth.roles import console_allows
from noema.core.identity import ConsoleRole
from noema.db import migrate
from noema.web import panels, views
from noema.web.api.system import describe, providers_of
from noema.web.call import Call
from noema.web.pages.shell import page
from noema.web.render import number
from noema.web.services import Services

_PROTECTION: Final[dict[str, views.Level]] = {
    "separate roles": "ok",
    "lowered role": "ok",
    "accident protection only": "warn",
}
_STATES: Final[dict[str, views.Level]] = {
    "ready": "ok",
    "failing": "warn",
    "resting": "bad",
    "disabled": "quiet",
}
_MANY_QUEUED: Final = 1_000
_LATE_MS: Final = 250


async def show(call: Call) -> Response:
    services = call.services
    facts = await describe(services)
    database = facts["database"]
    context = panels.SystemPage(
        tiles=tiles_of(facts),
        protection=database["protection"],
        protection_level=_PROTECTION.get(database["protection"], "warn"),
        findings=_findings(facts),
        database=(
            _fact("Server", f"PostgreSQL {database['server_version']}"),
            _fact("Kind", "embedded" if database["embedded"] else "your own, by DATABASE_URL"),
            _fact("Role", database["role"]),
            _fact("pgvector", database["pgvector"] or "not installed; nothing needs it yet"),
            _fact("Size", _size(database["database_bytes"])),
            *(
                _fact(f"Log {p['name'].rpartition('_')[2]}", _size(p["bytes"]))
                for p in facts["partitions"]
            ),
        ),
        versions=(
            _fact("Noema", facts["version"]),
            _fact("Scorer", str(facts["scorer_version"])),
            _fact("Mind state", str(facts["state_version"])),
            _fact("Vectors", facts["embedder"].told),
        ),
        migrations=_migrations(facts),
        leases=tuple(
            panels.LeaseRow(
                mind=lease["slug"],
                owner=str(lease["owner"])[-8:],
                epoch=lease["epoch"],
                until=lease["until"],
                ours=lease["owner"] == services.runner.owner,
            )
            for lease in facts["leases"]
            if lease["is_held"]
        ),
        providers=tuple(_provider(one) for one in await providers_of(call)),
        sees_models=console_allows(call.who.console, ConsoleRole.OPERATOR),
        json_href="/v1/system",
    )
    return page(call, "system.html", context, title="System", active="system")


def _provider(one: dict[str, Any]) -> panels.ProviderState:
    state, rests_s = one["state"], one["rests_s"]
    note = {
        "failing": "the last call failed",
        "resting": f"asked again in {rests_s:.0f} s" if rests_s else "it is being tried now",
        "disabled": "roles go on to the next in their chain",
    }.get(state, "")
    return panels.ProviderState(
        name=one["name"], kind=one["kind"], state=state, level=_STATES[state], note=note
    )


async def tiles(services: Services) -> panels.Tiles:
    """Return the figures as they are now."""
    return tiles_of(await describe(services))


def tiles_of(facts: dict[str, Any]) -> panels.Tiles:
    """Return the figures of a description as tiles."""
    writer, loop, feed = facts["writer"], facts["loop"], facts["feed"]
    late_ms = max((m["timer_late_ms"] for m in facts["minds"]), default=0.0)
    batches = max(1, writer["batches"])
    return panels.Tiles(
        tiles=(
            _tile("Minds", number(facts["database"]["minds"]), f"{len(facts['minds'])} run here"),
            _tile("Events", number(facts["database"]["head"]), "highest position in the log"),
            panels.Tile(
                label="Writer queue",
                value=number(writer["queued_units"]),
                note=f"{writer['units'] / batches:.1f} units per commit",
                level="warn" if writer["queued_units"] > _MANY_QUEUED else "quiet",
            ),
            panels.Tile(
                label="Writer",
                value="connected" if writer["connected"] else "not connected",
                note=f"{number(writer['units'])} units since the start",
                level="ok" if writer["connected"] else "bad",
            ),
            panels.Tile(
                label="Loop lag",
                value=f"{loop['lag_ms']:.1f}",
                unit="ms",
                note=f"worst lately {loop['worst_lag_ms']:.0f} ms",
                level="warn" if loop["lag_ms"] > _LATE_MS else "quiet",
            ),
            panels.Tile(
                label="Timer lateness",
                value=f"{late_ms:.0f}",
                unit="ms",
                note="the latest of any mind's last timer",
                level="warn" if late_ms > 10 * _LATE_MS else "quiet",
            ),
            panels.Tile(
                label="Watchers",
                value=number(feed["watchers"]),
                note="the feed lags" if feed["lagging"] else "open event streams",
                level="warn" if feed["lagging"] else "quiet",
            ),
            _tile("Database", _size(facts["database"]["database_bytes"]), "tables and indexes"),
        )
    )


def _tile(label: str, value: str, note: str) -> panels.Tile:
    return panels.Tile(label=label, value=value, note=note)


def _fact(name: str, value: str) -> panels.Fact:
    return panels.Fact(name=name, value=value)


def _findings(facts: dict[str, Any]) -> tuple[panels.Finding, ...]:
    found = [panels.Finding(level="warn", text=text) for text in facts["database"]["findings"]]
    waiting = [m["name"] for m in facts["migrations"] if m["state"] != "applied"]
    if waiting:
        found.append(
            panels.Finding(
                level="bad",
                text=f"Migrations that are not as the files say: {', '.join(waiting)}.",
                remedy="Stop the daemon and run: noema migrate status",
            )
        )
    if not found:
        found.append(
            panels.Finding(
                level="ok",
                text="The role that the daemon acts as cannot change what is in the log.",
            )
        )
    return tuple(found)


def _migrations(facts: dict[str, Any]) -> tuple[panels.MigrationRow, ...]:
    checksums = {m.version: m.checksum for m in migrate.load()}
    return tuple(
        panels.MigrationRow(
            number=f"{m['version']:04d}",
            name=m["name"],
            applied_at=m["applied_at"],
            checksum=checksums.get(m["version"], "no file"),
            agrees=m["state"] != "changed",
        )
        for m in facts["migrations"]
    )


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"

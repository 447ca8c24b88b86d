"""What the pages around the minds show: tuning, events, replays, system; units as in `views`."""

from dataclasses import dataclass
from datetime import datetime

from noema.web.views import EventRow, Level, LinkRow, MindHead, RunState

# --- tuning ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightField:
    """One weight in the form: `text` is what stands in the box, `saved` the micro in force."""

    feature: str
    label: str
    about: str
    text: str
    saved: int
    negative: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitField:
    """One whole number of the settings: `text` is what stands in the box, `saved` what is in force.

    `dry` says whether the dry-run can show what a change of it does.
    """

    name: str
    label: str
    about: str
    text: str
    saved: int
    dry: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One admission that would have been different."""

    cycle: int
    was: str | None
    would_be: str | None
    was_score: int | None = None
    would_be_score: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """`fragments/dry_run.html`: the last cycles attended again with the weights in the form.

    `skipped` cycles could not be decided again; of many differences only the newest are listed.
    `note` is what was typed so far about why.
    """

    slug: str
    cycles: int
    admissions: int
    changed: int
    differences: tuple[Difference, ...]
    next_version: int
    same_as_saved: bool = False
    skipped: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One line of a diff between versions, already formatted."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsVersion:
    """One saved version, newest first in the page."""

    number: int
    at: datetime
    actor: str
    note: str | None
    changes: tuple[Change, ...]
    current: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPage:
    """`tuning.html`."""

    mind: MindHead
    version: int
    weights: tuple[WeightField, ...]
    limits: tuple[LimitField, ...]
    threshold: str
    threshold_saved: int
    last: int
    dry_run: DryRun | None
    history: tuple[SettingsVersion, ...]
    error: str | None = None
    threshold_error: str | None = None


# --- events ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """What the URL asked for; empty strings mean no filter. `topic` names the live tail of it."""

    mind: str = ""
    type: str = ""
    q: str = ""
    from_: str = ""
    to: str = ""
    topic: str = "events"
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsPage:
    """`events.html`; rows newest first; `live` is False on a page of the past."""

    rows: tuple[EventRow, ...]
    filter: EventFilter
    minds: tuple[str, ...]
    types: tuple[str, ...]
    live: bool
    older: str | None = None
    newest: str | None = None
    json_href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """`event.html`; `payload` is pretty-printed JSON; `verified` None: nothing to check."""

    row: EventRow
    recorded_at: datetime
    payload: str
    causes: tuple[LinkRow, ...]
    effects: tuple[LinkRow, ...]
    commitment: str | None
    verified: bool | None
    previous: str | None = None
    next: str | None = None
    json_href: str = ""


# --- replays ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """Where a recomputed cycle first left the record."""

    cycle: int
    candidate: str | None
    feature: str
    recorded: str
    recomputed: str
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRow:
    """`fragments/replay_row.html`: one verification run."""

    id: str
    mind: str
    state: RunState
    from_cycle: int | None
    to_cycle: int | None
    cycles: int
    verified: int
    label: str
    started_at: datetime
    finished_at: datetime | None = None
    first_difference: FirstDifference | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRowFragment:
    """`fragments/replay_row.html`."""

    row: ReplayRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaysPage:
    """`replays.html`."""

    runs: tuple[ReplayRow, ...]
    minds: tuple[str, ...]
    mind: str = ""
    from_: str = ""
    to: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPage:
    """`replay.html`."""

    run: ReplayRow
    actor: str
    notes: tuple[str, ...]
    scorer_version: str
    code_version: str
    cycles_per_second: int | None
    json_href: str = ""


# --- system ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One number of the system page; `history` draws a sparkline when there is one."""

    label: str
    value: str
    unit: str = ""
    note: str = ""
    level: Level = "quiet"
    history: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """`fragments/tiles.html`."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a start-up check."""

    level: Level
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRow:
    """One migration; `applied_at` None means it waits."""

    number: str
    name: str
    applied_at: datetime | None
    checksum: str
    agrees: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """Which daemon runs a mind."""

    mind: str
    owner: str
    epoch: int
    until: datetime
    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One name and value."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderState:
    """Whether a provider of models is asked by this daemon; `note` says when it is again."""

    name: str
    kind: str
    state: str
    level: Level
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPage:
    """`system.html`."""

    tiles: Tiles
    protection: str
    protection_level: Level
    findings: tuple[Finding, ...]
    database: tuple[Fact, ...]
    versions: tuple[Fact, ...]
    migrations: tuple[MigrationRow, ...]
    leases: tuple[LeaseRow, ...]
    providers: tuple[ProviderState, ...] = ()
    sees_models: bool = False
    json_href: str = ""

"""What the pages of models show: one frozen context per template, as in `views`.

Money comes formatted, in units of the one currency that prices are given in. `values` of a form are
what stands in its boxes, by the names of the boxes; `field` is the box that is wrong. A secret is
in none of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from noema.llm.configured import ProviderRow
from noema.llm.library import Prompt, PromptInUse, Use
from noema.web.llm_charts import SpendChart
from noema.web.panels import Fact, Tiles
from noema.web.views import Option

# --- pieces ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form as it stands, with what was wrong with it."""

    values: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What something cost: `kind` is known, estimated, unknown, free, or empty before its end."""

    text: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of a message; `left` is how many characters of it are not shown."""

    text: str
    is_data: bool
    label: str = ""
    left: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message as it was sent, data blocks told from the rest."""

    role: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """One class of tokens; `count` None where the provider did not say."""

    name: str
    count: int | None


# --- providers ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderLine:
    """One provider in the list; `prices` is empty where neither main price is set.

    `rest` says when it is asked again where it rests after failures, empty where it is asked.
    """

    row: ProviderRow
    rest: str
    prices: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvidersPage:
    """`llm_providers.html`."""

    lines: tuple[ProviderLine, ...]
    may_change: bool
    said: str | None
    json_href: str = "/v1/llm/providers"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewProviderPage:
    """`llm_new.html`."""

    form: Form
    kinds: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it went over the wire; of headers the names alone."""

    method: str
    url: str
    headers: tuple[str, ...]
    body: str
    status: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """What came of a test; `is_gone` where only the call on record is left of it."""

    __test__ = False

    call_href: str | None
    is_gone: bool = False
    model: str = ""
    messages: tuple[Message, ...] = ()
    sent: tuple[Request, ...] = ()
    answer: Piece | None = None
    facts: tuple[Fact, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPage:
    """`llm_provider.html`; `roles` ask it now, `facts` say what it is, `rest` as in the list."""

    row: ProviderRow
    rest: str
    facts: tuple[Fact, ...]
    roles: tuple[str, ...]
    form: Form
    ask: Form
    secret: Form
    test: Test | None
    may_change: bool
    said: str | None
    error: str | None
    json_href: str


# --- roles -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLink:
    """One place in a chain; `note` says why it is passed over, empty where it is asked."""

    provider: str
    model: str
    parameters: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleLine:
    """One role, or one version of it; version 0 was never configured.

    `asked_by` is empty where nothing asks it yet.
    """

    role: str
    about: str
    asked_by: str
    version: int
    chain: tuple[ChainLink, ...]
    deadline: str
    actor: str = ""
    set_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolesPage:
    """`llm_roles.html`."""

    lines: tuple[RoleLine, ...]
    has_providers: bool
    may_change: bool
    json_href: str = "/v1/llm/roles"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePage:
    """`llm_role.html`; `places` are how many rows the form has."""

    line: RoleLine
    versions: tuple[RoleLine, ...]
    providers: tuple[str, ...]
    places: int
    form: Form
    may_change: bool
    said: str | None
    json_href: str | None
    note: str = ""


# --- prompts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLine:
    """One prompt and what it is for."""

    name: str
    about: str
    used: PromptInUse


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsPage:
    """`llm_prompts.html`."""

    lines: tuple[PromptLine, ...]
    json_href: str = "/v1/llm/prompts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Something that a template is given: its name as a template writes it, and what it is."""

    name: str
    kind: str
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """One line of a diff; `kind` is add, del, place, file or same."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What changed between two versions."""

    old: int
    new: int
    lines: tuple[DiffLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPage:
    """`llm_prompt.html`; `base` is the newest version as the form knows it."""

    name: str
    about: str
    in_use: int
    newest: int
    shown: Prompt
    form: Form
    base: int
    preview: tuple[Message, ...]
    given: tuple[Given, ...]
    versions: tuple[Prompt, ...]
    uses: tuple[Use, ...]
    diff: Diff | None
    may_change: bool
    said: str | None
    json_href: str


# --- calls -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLine:
    """One call in the list."""

    id: str
    at: datetime
    role: str
    process: str
    prompt: str | None
    prompt_version: int | None
    mind: str | None
    cycle: int | None
    provider: str | None
    model: str | None
    state: str
    error: str
    attempts: int
    tokens_in: int | None
    tokens_out: int | None
    cost: Cost
    latency_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRowFragment:
    """`fragments/call_row.html`."""

    row: CallLine


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsPage:
    """`llm_calls.html`; `is_fresh` where no call was ever made that the reader knows of."""

    lines: tuple[CallLine, ...]
    values: Mapping[str, str]
    error: str | None
    minds: tuple[str, ...]
    roles: tuple[str, ...]
    providers: tuple[str, ...]
    states: tuple[str, ...]
    is_live: bool
    is_fresh: bool
    is_set: bool
    older: str | None
    newest: str | None
    json_href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLine:
    """One attempt at one provider; `error` is why it failed, or why that is hidden.

    `after_us` is how long after the call began it did.
    """

    number: int
    provider: str
    model: str
    after_us: int
    latency_us: int
    status: int | None
    error: str
    tokens: int | None
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAnswer:
    """An answer that could not be used, and why."""

    piece: Piece
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPage:
    """`llm_call.html`; `hidden` says why no content is shown, `is_redacted` that there is none."""

    line: CallLine
    namespace: str
    facts: tuple[Fact, ...]
    hidden: str | None
    is_redacted: bool
    messages: tuple[Message, ...]
    answer: Piece | None
    reason: str
    refused: tuple[RefusedAnswer, ...]
    schema: str
    parameters: str
    attempts: tuple[AttemptLine, ...]
    tokens: tuple[Tokens, ...]
    total: int | None
    json_href: str


# --- spend -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One role or provider over the whole time; `place` is its colour."""

    name: str
    place: int
    calls: int
    tokens: int
    money: str
    unknown: int
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendDay:
    """One day on which something was asked; `amounts` are in the order of the series."""

    day: date
    amounts: tuple[str, ...]
    total: str
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranged:
    """A choice that stands in the address."""

    label: str
    href: str
    is_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendPage:
    """`llm_spend.html`; `chart` is None where nothing was asked."""

    chart: SpendChart | None
    ticks: tuple[str, ...]
    dates: tuple[str, ...]
    series: tuple[Series, ...]
    columns: tuple[str, ...]
    days: tuple[SpendDay, ...]
    tiles: Tiles | None
    by: tuple[Ranged, ...]
    of: tuple[Ranged, ...]
    spans: tuple[Ranged, ...]
    by_name: str
    of_name: str
    values: Mapping[str, str]
    error: str | None
    json_href: str


# --- budgets -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """How much of a limit is gone, in its own unit; `spent` includes no reservation."""

    spent: str
    held: str | None
    limit: str
    taken: int
    whole: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLine:
    """What a budget has seen of one key in one period; `calls_href` leads to what it stopped."""

    name: str
    starts: str
    money: Gauge | None
    tokens: Gauge | None
    unknown: int
    stopped: int
    calls_href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """One limit; `opens_at` is when its next window begins, None where a cycle begins it."""

    id: str
    title: str
    period: str
    limits: str
    actor: str
    set_at: datetime
    opens_at: datetime | None
    windows: tuple[WindowLine, ...]
    stopped: int
    change_href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetsPage:
    """`llm_budgets.html`."""

    lines: tuple[BudgetLine, ...]
    form: Form
    is_open: bool
    scopes: tuple[Option, ...]
    periods: tuple[Option, ...]
    keys: tuple[str, ...]
    may_change: bool
    said: str | None
    json_href: str = "/v1/llm/budgets"

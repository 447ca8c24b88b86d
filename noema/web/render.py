"""The only Jinja in the program: typed contexts in, HTML out. It knows nothing of HTTP.

Every template sees the fields of its context by name and the whole of it as `ctx`; a page sees
the `Shell` as `shell` besides. A name that is missing is an error, never an empty string.
"""

import re
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from noema.core.clock import Clock, SystemClock
from noema.web import charts, memory_charts, views
from noema.web.sighted import Hidden

Theme = Literal["light", "dark"]

THIN: Final = "\u202f"
MINUS: Final = "\u2212"
NOTHING: Final = "\u2013"
MICRO: Final = 10**6
SCORE: Final = 10**12

_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_PICTURES: Final = 0x2400
_DELETE_PICTURE: Final = 0x21

_FAMILIES: Final = frozenset(
    {
        "action",
        "candidate",
        "cycle",
        "goal",
        "intent",
        "lease",
        "message",
        "mind",
        "mode",
        "process",
        "settings",
        "stimulus",
        "thought",
        "timer",
        "workspace",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NavItem:
    """One entry of the main navigation; `key` is what follows `g`."""

    key: str
    label: str
    href: str
    name: str


NAV: Final = (
    NavItem(key="m", label="Minds", href="/", name="minds"),
    NavItem(key="y", label="Memories", href="/memories", name="memories"),
    NavItem(key="o", label="Models", href="/models", name="models"),
    NavItem(key="e", label="Events", href="/events", name="events"),
    NavItem(key="r", label="Replays", href="/replays", name="replays"),
    NavItem(key="s", label="System", href="/system", name="system"),
    NavItem(key="a", label="Access", href="/access", name="access"),
    NavItem(key="u", label="Audit", href="/audit", name="audit"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """What surrounds every page.

    `active` names the navigation entry; `theme` None follows the system; `mind` is the slug that
    `g c` goes to; `position` is where in the log the page was read, so that its live tail starts
    there; `user` None means nobody is signed in, `nav` is what they may go to; `namespace` is where
    they act and `namespaces` where they could.
    """

    title: str
    active: str
    csrf_token: str
    version: str
    path: str
    theme: Theme | None = None
    user: str | None = None
    mind: str | None = None
    position: str | None = None
    nav: tuple[NavItem, ...] = ()
    namespace: str = ""
    namespaces: tuple[str, ...] = ()


def _is_hidden(value: object) -> bool:
    """Whether the text stands in place of one that the reader may not see."""
    return isinstance(value, Hidden)


class Renderer:
    """Pages and fragments from one directory of templates; static files lie beside it."""

    def __init__(
        self, templates_dir: Path, *, static_dir: Path | None = None, clock: Clock | None = None
    ) -> None:
        self._static = static_dir or templates_dir.parent / "static"
        self._clock = clock or SystemClock()
        self._versions: dict[str, str] = {}
        self._env = Environment(
            loader=FileSystemLoader(templates_dir),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._env.filters.update(
            ago=self._ago,
            bare=bare,
            drawing=drawing,
            due=self._due,
            duration=duration,
            family=family,
            feature=feature_class,
            micro=micro,
            number=number,
            score=score,
            short_id=short_id,
            stamp=stamp,
        )
        self._env.tests["hidden"] = _is_hidden
        self._env.globals.update(
            static=self._static_url,
            bitemporal=memory_charts.bitemporal,
            heat=charts.heat,
            largest_score=memory_charts.largest_score,
            percent=charts.percent,
            score_bar=memory_charts.score_bar,
            slider=charts.slider,
            sparkline=charts.sparkline,
            stacks=charts.stacks,
            timeline=charts.timeline,
            waterfall=charts.waterfall,
        )

    def page(self, template: str, context: views.Context, shell: Shell) -> str:
        """Return the whole document."""
        html = self._env.get_template(template).render(_names(context), shell=shell)
        return printable(html)

    def fragment(self, template: str, context: views.Context) -> str:
        """Return a piece of a page, as the live stream and swapped forms send it."""
        return printable(self._env.get_template(template).render(_names(context)).strip())

    def _static_url(self, name: str) -> str:
        if name not in self._versions:
            digest = sha256((self._static / name).read_bytes()).hexdigest()
            self._versions[name] = digest[:12]
        return f"/static/{name}?v={self._versions[name]}"

    def _ago(self, moment: datetime | None) -> Markup:
        if moment is None:
            return Markup("<span class='faint'>never</span>")
        seconds = max(0, int((self._clock.now() - moment).total_seconds()))
        return _time(moment, "ago", f"{_span(seconds)} ago")

    def _due(self, moment: datetime | None) -> Markup:
        """Return a moment to come as a countdown."""
        if moment is None:
            return Markup("<span class='faint'>none</span>")
        seconds = int((moment - self._clock.now()).total_seconds())
        return _time(moment, "due", f"in {_span(seconds)}" if seconds > 0 else "now")


def _names(context: views.Context) -> dict[str, Any]:
    return {"ctx": context, **{f.name: getattr(context, f.name) for f in fields(context)}}


def _time(moment: datetime, kind: str, text: str) -> Markup:
    # A long page has ten thousand of these, and Markup.format costs four times as much as this. All
    # the parts are made of digits and words of our own.
    at = moment.astimezone(UTC)
    exact = at.isoformat(timespec="milliseconds")[:23]
    title = exact.replace("T", " ")
    return Markup(  # noqa: S704
        f'<time datetime="{exact}Z" data-time="{kind}" title="{title} UTC">{text}</time>'
    )


def _span(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size}{THIN}{unit}"
    return f"{seconds}{THIN}s"


def printable(html: str) -> str:
    """Return the HTML with its control characters as pictures: HTML has no way to hold them."""
    return _CONTROL.sub(lambda m: chr(_PICTURES + min(ord(m.group()), _DELETE_PICTURE)), html)


def stamp(moment: datetime | None) -> Markup:
    """Return the moment in UTC inside a <time> that the script rewrites to local time."""
    if moment is None:
        return Markup("<span class='faint'>{}</span>").format(NOTHING)
    return _time(moment, "stamp", moment.astimezone(UTC).strftime("%d %b %H:%M:%S"))


def short_id(value: str, length: int = 8) -> Markup:
    """Return the last characters of the id, where a version 7 id differs, and a copy button."""
    shown = value if len(value) <= length else value[-length:]
    whole, short = escape(value), escape(shown)
    return Markup(  # noqa: S704
        f'<span class="id"><code title="{whole}">{short}</code>'
        f'<button type="button" class="copy" aria-label="Copy {short}"></button></span>'
    )


def number(value: int | None) -> str:
    """Return the integer in groups of three, parted by a narrow space that never breaks."""
    if value is None:
        return NOTHING
    return f"{value:,}".replace(",", THIN).replace("-", MINUS)


def micro(value: int | None, places: int = 3, sign: bool = False) -> str:
    """Return millionths as a decimal: 1_234_567 gives 1.235."""
    return NOTHING if value is None else _fixed(value, MICRO, places, sign)


def score(value: int | None, places: int = 3, sign: bool = False) -> str:
    """Return a sum of products of two micros as a decimal: 10**12 gives 1.000."""
    return NOTHING if value is None else _fixed(value, SCORE, places, sign)


_DRAWING = re.compile(r'<svg [-\w="#. ]*>(?:<path [-\w="#. ]*/>)+</svg>\s*\Z')


def drawing(svg: str) -> Markup:
    """Return a drawing of paths as markup; ValueError where there is anything else in it."""
    if not _DRAWING.match(svg):
        raise ValueError("a drawing holds paths and nothing else")
    return Markup(svg)  # noqa: S704


def bare(text: str) -> str:
    """Return a decimal without its leading zero, for cells where every digit counts: .42."""
    return re.sub(r"^(\W?)0\.", r"\1.", text)


def _fixed(value: int, unit: int, places: int, sign: bool) -> str:
    digits = (abs(value) * 10**places * 2 + unit) // (2 * unit)
    whole, rest = divmod(digits, 10**places)
    shown = f"{whole:,}".replace(",", THIN) + (f".{rest:0{places}d}" if places else "")
    if value < 0 and digits:
        return MINUS + shown
    return f"+{shown}" if sign and digits else shown


def duration(micros: int | None) -> str:
    """Return microseconds in the unit a person would choose."""
    if micros is None:
        return NOTHING
    if micros < 1000:
        return f"{micros}{THIN}µs"
    if micros < 10_000:
        return f"{_fixed(micros, 1000, 1, sign=False)}{THIN}ms"
    if micros < 1_000_000:
        return f"{micros // 1000}{THIN}ms"
    if micros < 60_000_000:
        return f"{_fixed(micros, MICRO, 2, sign=False)}{THIN}s"
    minutes, seconds = divmod(micros // MICRO, 60)
    return f"{minutes}{THIN}min {seconds:02d}{THIN}s"


def family(event_type: str) -> str:
    """Return the class of the dot before an event's type."""
    head = event_type.split(".", 1)[0]
    return f"fam-{head}" if head in _FAMILIES else "fam-other"


def feature_class(name: str) -> str:
    """Return the class that colours a feature; the name may come from a recorded event."""
    return "f-" + re.sub(r"[^a-z0-9]+", "-", name.lower())

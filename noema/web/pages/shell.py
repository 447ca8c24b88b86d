"""What every page shares: the frame around it, redirects, errors, and what outlives one request."""

import re
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import Response

from noema import __version__, resources
from noema.auth.model import Session
from noema.auth.roles import MemoryRight, console_allows, memory_allows
from noema.core.clock import Clock
from noema.core.errors import NoemaError
from noema.core.identity import ConsoleRole, Identity
from noema.events.model import encode_position
from noema.web import problem, views
from noema.web.api.audit import may_audit
from noema.web.call import Call
from noema.web.gate import authority, cookie_name
from noema.web.live import Readings
from noema.web.pages.llm_tried import Tests
from noema.web.render import NAV, NavItem, Renderer, Shell, Theme

THEME_COOKIE: Final = "noema_theme"
_LOCAL = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*\Z")
_THEMES: Final[dict[str, Theme]] = {"light": "light", "dark": "dark"}
_REMEDIES: Final = {
    400: "Go back and change it; nothing was kept.",
    401: "Open the link that the daemon printed, or paste a token on the sign-in page.",
    403: "Ask somebody who may, or sign in as somebody else.",
    404: "It may have another name; the list of minds and the command palette (press /) find it.",
    405: "Go back and use the form of the page.",
    409: "Reload the page, look at what is there now, and try again.",
    413: "Send less at once; nothing was kept.",
    429: "Wait a moment and try again.",
    503: "Wait a moment and try again; what was committed before is safe.",
}


class Site:
    """What the pages keep between requests."""

    def __init__(self, clock: Clock) -> None:
        self.renderer = Renderer(resources.directory("templates"), clock=clock)
        self.readings = Readings()
        self.tests = Tests()
        self.fragments: dict[tuple[object, str, int], str] = {}


def site(call: Call) -> Site:
    """Return what the pages of this application share."""
    found: Site = call.request.app.state.site
    return found


class Html(Response):
    """An HTML answer. Half a surrogate pair, which UTF-8 cannot hold, shows as its escape."""

    media_type = "text/html"

    def __init__(self, html: str, status_code: int = 200) -> None:
        super().__init__(
            html.encode("utf-8", errors="backslashreplace"),
            status_code=status_code,
            headers={"Cache-Control": "no-store"},
        )


async def position(call: Call) -> str:
    """Return where the log ends now: what a page reads after this is at least as new."""
    return encode_position(await call.services.events.head())


def page(
    call: Call,
    template: str,
    context: views.Context,
    *,
    title: str,
    active: str = "",
    mind: str | None = None,
    at: str | None = None,
    status: int = 200,
    csrf: str = "",
) -> Html:
    """Return the whole page; `at` is the position from which its live tail goes on.

    `csrf` is the form token where nobody is signed in.
    """
    who, session = call.identity, call.session
    shell = Shell(
        title=title,
        active=active,
        csrf_token=session.csrf if session is not None else csrf,
        version=__version__,
        path=here(call),
        theme=_THEMES.get(call.request.cookies.get(THEME_COOKIE, "")),
        user=None if who is None else who.actor,
        nav=() if who is None else nav_of(who),
        namespace="" if who is None else who.namespace,
        namespaces=namespaces_of(session),
        mind=mind,
        position=at,
    )
    return Html(site(call).renderer.page(template, context, shell), status)


def nav_of(who: Identity) -> tuple[NavItem, ...]:
    """Return the entries of the navigation that lead somewhere for this identity."""
    leads = {
        "memories": memory_allows(who.role, MemoryRight.READ),
        "models": console_allows(who.console, ConsoleRole.OPERATOR),
        "access": console_allows(who.console, ConsoleRole.ADMINISTRATOR),
        "audit": may_audit(who),
    }
    return tuple(item for item in NAV if leads.get(item.name, True))


def namespaces_of(session: Session | None) -> tuple[str, ...]:
    """Return the namespaces that the person may switch to, the present one among them."""
    if session is None or session.token_id is not None:
        return ()
    return tuple(sorted({m.namespace for m in session.memberships}))


def fragment(call: Call, template: str, context: views.Context) -> Html:
    """Return a piece of a page for a script that puts it in place."""
    return Html(site(call).renderer.fragment(template, context))


def wants_fragment(call: Call) -> bool:
    """Whether the page's script asked, and can put a piece in place."""
    return "x-noema-fragment" in call.request.headers


def see_other(path: str) -> Response:
    """Return the redirect that follows a POST."""
    return Response(status_code=303, headers={"Location": path, "Cache-Control": "no-store"})


def local_path(text: str, default: str = "/") -> str:
    """Return the text where it is a path of this site, else the default.

    A path that a browser could take for another host (`//`, a backslash, a scheme) is none.
    """
    return text if len(text) <= 2_000 and _LOCAL.match(text) else default


def here(call: Call) -> str:
    """Return the address of the page that the person looks at: of a POST, the page it came from."""
    request = call.request
    if request.method in ("GET", "HEAD"):
        query = f"?{request.url.query}" if request.url.query else ""
        return local_path(request.url.path + query, local_path(request.url.path))
    referer = request.headers.get("referer", "")
    if authority(referer) == request.headers.get("host", "").lower():
        came_from = urlsplit(referer)
        return local_path(came_from.path + (f"?{came_from.query}" if came_from.query else ""))
    return "/"


def mind_path(slug: str, rest: str = "") -> str:
    """Return the address of a page of the mind."""
    return f"/minds/{slug}{rest}"


async def error_page(found: problem.Problem, call: Call) -> Response:
    """Return the error as a page: what happened, and what to do about it."""
    if call.identity is None:
        await _recognise(call)
    happened, _, remedy = found.detail.partition(". ")
    context = views.ErrorPage(
        status=found.status,
        code=found.code,
        happened=happened if happened.endswith((".", "?", "!")) else f"{happened}.",
        remedy=remedy or _REMEDIES.get(found.status, "Try again; the daemon's log tells more."),
    )
    return page(call, "error.html", context, title=found.title, status=found.status)


async def _recognise(call: Call) -> None:
    """Find out who is there, where the gate was not asked to: an error page has a frame too."""
    secret = call.request.cookies.get(cookie_name(call.services), "")
    if not secret or "authorization" in call.request.headers:
        return
    try:
        call.session = await call.services.access.session(secret)
    except NoemaError:
        return
    if call.session is not None:
        call.identity = call.session.identity

"""The HTTP surface as one ASGI application."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from noema import resources
from noema.web.call import Call
from noema.web.gate import Edge, Gate
from noema.web.pages import shell
from noema.web.routes import ROUTES
from noema.web.services import Services


def create(services: Services) -> ASGIApp:
    """Return the application; it starts and stops nothing."""
    gate = Gate(services, shell.error_page)
    routes: list[Route | Mount] = [Route(e.path, gate.guard(e), methods=[e.method]) for e in ROUTES]
    routes.append(Mount("/static", StaticFiles(directory=resources.directory("static"))))

    async def on_http_error(request: Request, exc: Exception) -> Response:
        call = Call(request=request, services=services)
        is_page = not request.url.path.startswith("/v1/")
        allowed = methods_of(request) if isinstance(exc, HTTPException) else ()
        if request.method == "OPTIONS" and allowed:
            # No other site is given leave: a browser's preflight finds no header that would.
            return Response(status_code=204, headers={"Allow": ", ".join(allowed)})
        answer = await gate.failed(call, exc, is_page=is_page)
        if allowed:
            answer.headers["Allow"] = ", ".join(allowed)
        return answer

    def methods_of(request: Request) -> tuple[str, ...]:
        """Return what may be done at the address, whichever line of the table allows it."""
        matching = (r for r in routes if r.matches(request.scope)[0] is not Match.NONE)
        found = {m for r in matching if isinstance(r, Route) for m in r.methods or ()}
        return (*sorted(found), "OPTIONS") if found else ()

    app = Starlette(routes=routes, exception_handlers={404: on_http_error, 405: on_http_error})
    app.state.site = shell.Site(services.clock)
    return Edge(app, services)

"""The HTTP surface as one ASGI application."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from noema import resources
from noema.web import openapi
from noema.web.call import Call, Endpoint
from noema.web.gate import Edge, Gate
from noema.web.pages import shell
from noema.web.reply import Json
from noema.web.routes import API, ROUTES, STREAM
from noema.web.services import Services


def create(services: Services) -> ASGIApp:
    """Return the application; it starts and stops nothing."""
    gate = Gate(services, shell.error_page)
    described = openapi.document((*API, STREAM))

    async def show_openapi(call: Call) -> Response:
        return Json(described)

    table = (
        *ROUTES,
        Endpoint(method="GET", path="/openapi.json", handler=show_openapi, need="read"),
    )
    routes: list[Route | Mount] = [Route(e.path, gate.guard(e), methods=[e.method]) for e in table]
    routes.append(Mount("/static", StaticFiles(directory=resources.directory("static"))))

    async def on_http_error(request: Request, exc: Exception) -> Response:
        call = Call(request=request, services=services)
        is_page = not request.url.path.startswith("/v1/")
        return await gate.failed(call, exc, is_page=is_page)

    app = Starlette(routes=routes, exception_handlers={404: on_http_error, 405: on_http_error})
    app.state.site = shell.Site(services.clock)
    return Edge(app, services)

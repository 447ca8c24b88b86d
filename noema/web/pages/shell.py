"""temporary"""
from starlette.responses import Response

from noema.web import problem
from noema.web.call import Call


async def error_page(p: problem.Problem, call: Call) -> Response:
    return Response(p.detail, status_code=p.status)

"""temporary"""
from noema.web import problem
from noema.web.call import Call
from starlette.responses import Response
async def error_page(p: problem.Problem, call: Call) -> Response:
    return Response(p.detail, status_code=p.status)

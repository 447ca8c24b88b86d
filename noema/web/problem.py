"""Errors as people and programs get them: RFC 9457 problems, or a page."""

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noema.core.errors import InvalidInput, NoemaError, RateLimited
from noema.web.reply import encode

STATUS: Final = {
    "invalid": 400,
    "config": 400,
    "too_large": 413,
    "unsupported_media_type": 415,
    "unauthorised": 401,
    "denied": 403,
    "not_found": 404,
    "conflict": 409,
    "idempotency_key_reused": 422,
    "lease_lost": 409,
    "rate_limited": 429,
    "unavailable": 503,
    "database_too_old": 503,
    "data_dir_busy": 503,
    "migration": 503,
    "method_not_allowed": 405,
    "address_refused": 400,
    "budget_exceeded": 409,
    "no_model": 503,
    "model_unavailable": 503,
    "bad_answer": 502,
}
TITLES: Final = {
    400: "The request cannot be used",
    401: "Not let in",
    403: "Not allowed",
    404: "Nothing there",
    405: "Not that method",
    409: "In conflict with the present state",
    413: "Too large",
    415: "Not that media type",
    422: "The idempotency key came before",
    429: "Too many requests",
    502: "The answer cannot be used",
    503: "Not available now",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One error, ready to be shown."""

    status: int
    code: str
    title: str
    detail: str
    field: str | None = None
    retry_after_s: int = 2


def of(exc: BaseException) -> Problem:
    """Return what the outside is told of the error; of an unforeseen one, nothing but that."""
    if not isinstance(exc, NoemaError) or exc.code not in STATUS:
        return Problem(
            status=500,
            code="internal",
            title="Noema failed",
            detail="Something went wrong inside; the daemon's log tells what. Nothing was kept.",
        )
    status = STATUS[exc.code]
    field = exc.field if isinstance(exc, InvalidInput) else None
    return Problem(
        status=status,
        code=exc.code,
        title=TITLES[status],
        detail=str(exc),
        field=field,
        retry_after_s=exc.retry_after_s if isinstance(exc, RateLimited) else 2,
    )


def response(problem: Problem, request: Request) -> Response:
    """Return the problem as `application/problem+json`."""
    body: dict[str, Any] = {
        "type": f"urn:noema:problem:{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "instance": request.url.path,
    }
    if problem.field is not None:
        body["field"] = problem.field
    headers = {"Cache-Control": "no-store"}
    if problem.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="noema"'
    if problem.status in (429, 503):
        headers["Retry-After"] = str(problem.retry_after_s)
    return Response(
        encode(body),
        status_code=problem.status,
        media_type="application/problem+json",
        headers=headers,
    )

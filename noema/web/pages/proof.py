"""The question for the password before something sensitive, which then goes on as it was sent."""

from starlette.responses import Response

from noema.core.errors import NoemaError, RateLimited, Unauthorised
from noema.web import doors
from noema.web.call import Call
from noema.web.origin import is_fresh
from noema.web.pages.login import status_of
from noema.web.pages.shell import here, local_path, page

_PASSWORD = "proof_password"  # noqa: S105 - the name of a field
_CODE = "proof_code"


async def ask(call: Call) -> Response | None:
    """Return the page that asks for the password, None where it was given within ten minutes.

    The page carries what the form held, so that nothing is typed twice. A password that comes with
    the form is taken, and `call.session` is the session as it stands after that.
    """
    if is_fresh(call) or call.session is None:
        return None
    access, session = call.services.access, call.session
    if _PASSWORD not in call.form:
        return await _page(call)
    try:
        await access.account.re_authenticate(
            session, call.form[_PASSWORD], code=call.form.get(_CODE, "")
        )
    except (Unauthorised, RateLimited) as exc:
        return await _page(call, exc)
    again = await access.sessions.again(session)
    if again is None:
        raise Unauthorised("The session has ended; log in again.")
    call.session = again
    return None


async def _page(call: Call, exc: NoemaError | None = None) -> Response:
    status, headers = status_of(exc)
    name = call.who.actor.removeprefix("user:")
    asked = ("csrf_token", _PASSWORD, _CODE)
    context = doors.ProofPage(
        action=call.request.url.path,
        back=local_path(call.form.get("back", ""), here(call)),
        fields=tuple((k, v) for k, v in call.form.items() if k not in asked),
        user=name,
        needs_code=(await call.services.access.users.get(name)).has_totp,
        error=None if exc is None else str(exc),
    )
    answer = page(call, "proof.html", context, title="Confirm it is you", status=status)
    for header, value in headers.items():
        answer.headers[header] = value
    return answer

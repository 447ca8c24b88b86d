"""What coming in is made of: the cookies of a browser, and the form token of one not yet let in.

A browser without a session gets a random cookie, and its forms a token derived from it; a form that
another site made has neither. It counts besides the Origin, not instead of it.
"""

import secrets
from collections.abc import Mapping
from datetime import timedelta
from http.cookies import SimpleCookie
from typing import Final

from starlette.responses import Response

from noema.auth.access import DEVICE_COOKIE_LASTS, SESSION_LASTS
from noema.auth.authenticator import PENDING_LASTS
from noema.auth.model import LoggedIn, SecondFactorDue
from noema.auth.sessions import csrf_of
from noema.core.errors import Denied, InvalidInput, NoemaError
from noema.core.secret import new_secret
from noema.web import views
from noema.web.call import Call
from noema.web.doors import code_path
from noema.web.gate import cookie_name, session_cookie
from noema.web.origin import cookie_named, device_cookie
from noema.web.pages.shell import Html, page, see_other

_DOOR: Final = "door"
_TICKET: Final = "ticket"
_LASTS: Final = timedelta(hours=8)


def set_cookie(call: Call, answer: Response, name: str, value: str, lasts: timedelta) -> None:
    """Add a cookie that no script reads and no other site sends; no time ends it."""
    cookie: SimpleCookie = SimpleCookie()
    cookie[name] = value
    cookie[name]["path"] = "/"
    cookie[name]["httponly"] = True
    cookie[name]["samesite"] = "Lax"
    cookie[name]["max-age"] = int(lasts.total_seconds())
    if call.services.settings.secure:
        cookie[name]["secure"] = True
    answer.headers.append("Set-Cookie", cookie[name].OutputString())


def door_page(
    call: Call,
    template: str,
    context: views.Context,
    *,
    title: str,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Html:
    """Return a page for somebody who is not in, whose form carries the token of this browser."""
    name = cookie_named(call, _DOOR)
    secret = call.request.cookies.get(name, "")
    is_new = len(secret) < len(new_secret())
    if is_new:
        secret = new_secret()
    answer = page(call, template, context, title=title, status=status, csrf=csrf_of(secret))
    if is_new:
        set_cookie(call, answer, name, secret, _LASTS)
    for header, value in (headers or {}).items():
        answer.headers[header] = value
    return answer


def check_door(call: Call) -> None:
    """Raise Denied unless the form came from a page that this browser was given."""
    secret = call.request.cookies.get(cookie_named(call, _DOOR), "")
    sent = call.form.get("csrf_token", "")
    if not secret or not secrets.compare_digest(sent.encode(), csrf_of(secret).encode()):
        raise Denied("The page is out of date: its form token is not valid. Reload and try again.")


def twice(call: Call, name: str) -> str:
    """Return the new password of the form; raise InvalidInput unless it was typed twice alike."""
    password = call.form.get(name, "")
    if password != call.form.get("again", ""):
        raise InvalidInput("The two new passwords differ; type the same twice.", field="again")
    return password


def present_secret(call: Call) -> str | None:
    """Return the secret of the session that the browser has now; it ends when another begins."""
    return call.request.cookies.get(cookie_name(call.services)) or None


async def is_in(call: Call) -> bool:
    """Whether the browser has a session."""
    secret = present_secret(call)
    if secret is None:
        return False
    try:
        return await call.services.access.session(secret) is not None
    except NoemaError:
        return False


def let_in(call: Call, secret: str, path: str, *, device: str | None = None) -> Response:
    """Return the redirect that begins a session; what was needed to get there is forgotten."""
    answer = see_other(path)
    renew(call, answer, secret)
    if device is not None:
        set_cookie(call, answer, device_cookie(call), device, DEVICE_COOKIE_LASTS)
    for name in (_DOOR, _TICKET):
        if cookie_named(call, name) in call.request.cookies:
            set_cookie(call, answer, cookie_named(call, name), "", timedelta())
    return answer


def renew(call: Call, answer: Response, secret: str) -> None:
    """Give the browser the secret of its session."""
    lasts_s = int(SESSION_LASTS.total_seconds())
    answer.headers.append("Set-Cookie", session_cookie(call.services, secret, max_age_s=lasts_s))


def put_out(call: Call) -> Response:
    """Return the redirect to the sign-in page that takes the session's cookie away."""
    answer = see_other("/login")
    answer.headers.append("Set-Cookie", session_cookie(call.services, "", max_age_s=0))
    return answer


def after_password(call: Call, answer: LoggedIn | SecondFactorDue, path: str) -> Response:
    """Let the browser in, or lead it to the second step, with the ticket in a cookie."""
    if isinstance(answer, LoggedIn):
        return let_in(call, answer.secret, path, device=answer.device)
    onward = see_other(code_path(path))
    set_cookie(call, onward, cookie_named(call, _TICKET), answer.ticket, PENDING_LASTS)
    return onward


def ticket_of(call: Call) -> str:
    """Return the ticket of a login whose second step is due, or nothing."""
    return call.request.cookies.get(cookie_named(call, _TICKET), "")

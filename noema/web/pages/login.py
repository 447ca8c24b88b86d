"""Signing in by password and code, by link or by token; signing out, the theme, the namespace."""

from http.cookies import SimpleCookie
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from noema.auth.model import LoggedIn
from noema.core.errors import Denied, NoemaError, NotFound, RateLimited, TooLarge, Unauthorised
from noema.web import doors, problem
from noema.web.call import Call
from noema.web.origin import origin_of
from noema.web.pages import door
from noema.web.pages.shell import THEME_COOKIE, here, local_path, see_other

_YEAR_S: Final = 365 * 86_400


async def show(call: Call) -> Response:
    """Use up the one-time link and let the browser in, or show the form.

    A HEAD, as link previews send it, uses up nothing.
    """
    link = call.query.get("link", "")
    if link and call.request.method == "GET":
        try:
            secret = await call.services.access.session_from_link(
                link, origin=origin_of(call), replacing=door.present_secret(call)
            )
        except (Unauthorised, RateLimited) as exc:
            if await door.is_in(call):
                return see_other("/")
            return _form(call, exc)
        return door.let_in(call, secret, "/")
    if await door.is_in(call):
        return see_other(local_path(call.query.get("next", "")))
    return _form(call)


async def sign_in(call: Call) -> Response:
    """Take a name and password, or a token in their place."""
    door.check_door(call)
    token = call.form.get("token", "").strip()
    if token or "name" not in call.form:
        return await _by_token(call, token)
    try:
        answer = await call.services.access.log_in(
            call.form.get("name", ""),
            call.form.get("password", ""),
            origin=origin_of(call),
            replacing=door.present_secret(call),
        )
    except (Unauthorised, RateLimited, TooLarge) as exc:
        return _form(call, exc)
    return door.after_password(call, answer, _next(call))


async def _by_token(call: Call, token: str) -> Response:
    if not token:
        return _form(call, Unauthorised("Paste a token; it starts with noema_."), at_token=True)
    try:
        secret = await call.services.access.session_from_token(
            token, origin=origin_of(call), replacing=door.present_secret(call)
        )
    except (Unauthorised, RateLimited, Denied) as exc:
        return _form(call, exc, at_token=True)
    return door.let_in(call, secret, _next(call))


async def show_code(call: Call) -> Response:
    """Show the second step, for a browser that took the first."""
    if not door.ticket_of(call):
        return see_other(_login_path(call))
    return _code_form(call)


async def take_code(call: Call) -> Response:
    """Take a code of the app, or a recovery code."""
    door.check_door(call)
    ticket = door.ticket_of(call)
    if not ticket:
        return see_other(_login_path(call))
    try:
        answer: LoggedIn = await call.services.access.finish_log_in(
            ticket,
            call.form.get("code", ""),
            origin=origin_of(call),
            replacing=door.present_secret(call),
        )
    except (Unauthorised, RateLimited) as exc:
        return _code_form(call, exc)
    return door.let_in(call, answer.secret, _next(call), device=answer.device)


async def sign_out(call: Call) -> Response:
    if call.session is not None:
        await call.services.access.end_session(call.session)
    return door.put_out(call)


async def switch(call: Call) -> Response:
    """Act in another namespace from now on, and stay on the page where it is still to be seen."""
    if call.session is None:
        raise Denied("Only a browser session switches; a token has one namespace.")
    namespace = call.form.get("namespace", "")
    try:
        await call.services.access.sessions.switch(call.session, namespace)
    except NotFound:
        raise NotFound("membership in the namespace", namespace[:100]) from None
    return see_other(local_path(call.form.get("next", ""), here(call)))


async def set_theme(call: Call) -> Response:
    """Keep the theme for a year; anything but light and dark means what the system prefers."""
    theme = call.form.get("theme", "")
    known = theme in ("light", "dark")
    cookie: SimpleCookie = SimpleCookie()
    cookie[THEME_COOKIE] = theme if known else ""
    # The page's own script changes it too, so it is not HttpOnly.
    cookie[THEME_COOKIE]["path"] = "/"
    cookie[THEME_COOKIE]["samesite"] = "Lax"
    cookie[THEME_COOKIE]["max-age"] = _YEAR_S if known else 0
    if call.services.settings.secure:
        cookie[THEME_COOKIE]["secure"] = True
    answer = see_other(local_path(call.form.get("next", ""), here(call)))
    answer.headers["Set-Cookie"] = cookie[THEME_COOKIE].OutputString()
    return answer


def _next(call: Call) -> str:
    return local_path(call.form.get("next", ""))


def _asked(call: Call) -> str:
    return local_path(call.form.get("next", "") or call.query.get("next", ""))


def _login_path(call: Call) -> str:
    asked = _asked(call)
    return "/login" if asked == "/" else f"/login?{urlencode({'next': asked})}"


def status_of(exc: NoemaError | None) -> tuple[int, dict[str, str]]:
    """Return the status of a form that is shown again, and its headers."""
    if exc is None:
        return 200, {}
    found = problem.of(exc)
    waits = isinstance(exc, RateLimited)
    return found.status, {"Retry-After": str(found.retry_after_s)} if waits else {}


def _form(call: Call, exc: NoemaError | None = None, *, at_token: bool = False) -> Response:
    status, headers = status_of(exc)
    context = doors.LoginPage(
        next=_asked(call),
        name=call.form.get("name", "")[:100],
        error=None if at_token or exc is None else str(exc),
        token_error=str(exc) if at_token else None,
    )
    return door.door_page(
        call, "login.html", context, title="Sign in", status=status, headers=headers
    )


def _code_form(call: Call, exc: NoemaError | None = None) -> Response:
    status, headers = status_of(exc)
    context = doors.CodePage(next=_asked(call), error=None if exc is None else str(exc))
    return door.door_page(
        call, "login_code.html", context, title="Second step", status=status, headers=headers
    )

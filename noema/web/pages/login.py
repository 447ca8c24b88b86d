"""Signing in by link or token, signing out, and the theme."""

from http.cookies import SimpleCookie
from typing import Final

from starlette.responses import Response

from noema.auth.access import SESSION_LASTS
from noema.core.errors import NoemaError, Unauthorised
from noema.web import views
from noema.web.call import Call
from noema.web.gate import cookie_name, session_cookie
from noema.web.pages.shell import THEME_COOKIE, here, local_path, page, see_other, site

_YEAR_S: Final = 365 * 86_400


async def show(call: Call) -> Response:
    """Use up the one-time link and let the browser in, or show the form.

    A HEAD, as link previews send it, uses up nothing.
    """
    link = call.query.get("link", "")
    if link and call.request.method == "GET":
        try:
            secret = await call.services.access.session_from_link(link)
        except Unauthorised as exc:
            if await _is_in(call):
                return see_other("/")
            return _form(call, error=str(exc), status=401)
        return _let_in(call, secret, "/")
    if await _is_in(call):
        return see_other(local_path(call.query.get("next", "")))
    return _form(call)


async def sign_in(call: Call) -> Response:
    token, next_ = call.form.get("token", "").strip(), local_path(call.form.get("next", ""))
    if not token:
        return _form(call, error="Paste a token; it starts with noema_.", status=400)
    try:
        secret = await call.services.access.session_from_token(token)
    except Unauthorised as exc:
        return _form(call, error=str(exc), status=401)
    return _let_in(call, secret, next_)


async def sign_out(call: Call) -> Response:
    if call.session is not None:
        await call.services.access.end_session(call.session)
        site(call).streams.end_session(call.session.digest)
    answer = see_other("/login")
    answer.headers["Set-Cookie"] = session_cookie(call.services, "", max_age_s=0)
    return answer


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


async def _is_in(call: Call) -> bool:
    secret = call.request.cookies.get(cookie_name(call.services), "")
    if not secret:
        return False
    try:
        return await call.services.access.session(secret) is not None
    except NoemaError:
        return False


def _let_in(call: Call, secret: str, path: str) -> Response:
    lasts_s = int(SESSION_LASTS.total_seconds())
    answer = see_other(path)
    answer.headers["Set-Cookie"] = session_cookie(call.services, secret, max_age_s=lasts_s)
    return answer


def _form(call: Call, *, error: str | None = None, status: int = 200) -> Response:
    asked = call.form.get("next", "") or call.query.get("next", "")
    context = views.LoginPage(error=error, next=local_path(asked))
    return page(call, "login.html", context, title="Sign in", status=status)

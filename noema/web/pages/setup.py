"""The page behind a one-time link: make the first administrator, or choose a password."""

from typing import Literal

from starlette.responses import Response

from noema.core.errors import (
    Conflict,
    InvalidInput,
    NoemaError,
    RateLimited,
    Unauthorised,
)
from noema.web import doors
from noema.web.call import Call
from noema.web.origin import origin_of
from noema.web.pages import door
from noema.web.pages.login import status_of


async def show(call: Call) -> Response:
    """Show what the link is for, without using it."""
    link = call.query.get("link", "")
    try:
        user = await _user_of(call, link)
    except (Unauthorised, RateLimited) as exc:
        return _spent(call, exc)
    return _form(call, link, user)


async def finish(call: Call) -> Response:
    """Use the link: set the name and password, and sign in with them."""
    door.check_door(call)
    access, link = call.services.access, call.form.get("link", "")
    user: str | None = None
    try:
        user = await _user_of(call, link)
        password = door.twice(call, "password")
        if user is None:
            name = call.form.get("name", "")
            await access.setup.create_first(
                link, name=name, password=password, origin=origin_of(call)
            )
        else:
            name = user
            await access.setup.choose_password(link, password, origin=origin_of(call))
    except InvalidInput as exc:
        return _form(call, link, user, exc)
    except (Unauthorised, Conflict, RateLimited) as exc:
        return _spent(call, exc)
    answer = await access.log_in(
        name, password, origin=origin_of(call), replacing=door.present_secret(call)
    )
    return door.after_password(call, answer, "/")


async def _user_of(call: Call, link: str) -> str | None:
    """Return who the link is for, None for the first administrator.

    Raises Unauthorised where it is spent and RateLimited after many of those.
    """
    setup = call.services.access.setup
    try:
        return (await setup.look(link)).user
    except Unauthorised:
        # The attempt to use it counts against the address and leaves its row in the audit log.
        await setup.choose_password(link, "", origin=origin_of(call))
        raise


def _form(call: Call, link: str, user: str | None, exc: InvalidInput | None = None) -> Response:
    status, _ = status_of(exc)
    field = None if exc is None else exc.field
    named: dict[str | None, Literal["name", "again"]] = {"name": "name", "again": "again"}
    context = doors.SetupPage(
        link=link,
        user=user,
        name=call.form.get("name", "")[:100],
        error=None if exc is None else str(exc),
        wrong=named.get(field, "password"),
    )
    title = "Set up Noema" if user is None else "Choose a password"
    return door.door_page(call, "setup.html", context, title=title, status=status)


def _spent(call: Call, exc: NoemaError) -> Response:
    status, headers = status_of(exc)
    context = doors.LoginPage(next="/", error=str(exc))
    return door.door_page(
        call, "login.html", context, title="Sign in", status=status, headers=headers
    )

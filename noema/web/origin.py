"""Where a request came from, and whether who sent it proved lately who they are."""

import re
from typing import Final

from starlette.requests import Request

from noema.auth.model import Origin
from noema.core.errors import Denied
from noema.web.call import Call

_CLI: Final = re.compile(r"noemactl(?:/[0-9.]+)?\Z")
_DEVICE: Final = "device"


def device_cookie(call: Call) -> str:
    """Return the name of the cookie by which a browser is known for somebody."""
    return cookie_named(call, _DEVICE)


def cookie_named(call: Call, what: str) -> str:
    """Return the name of a cookie; the prefix makes browsers insist on TLS and one host."""
    return f"__Host-noema-{what}" if call.services.settings.secure else f"noema_{what}"


def origin_of(call: Call, *, agent_id: str = "console") -> Origin:
    """Return where the request came from, for limits and the audit log."""
    client = call.request.client
    return Origin(
        address=client.host if client is not None else "",
        user_agent=call.request.headers.get("user-agent", ""),
        agent_id=agent_id,
        device=call.request.cookies.get(device_cookie(call)) or None,
    )


def transport_of(request: Request) -> str:
    """Return what the audit log calls the way of a bearer token: `cli` for noemactl, else `http`.

    The client says so itself. It is a label, and decides nothing: what one may do, and how far one
    is trusted, is the same for both.
    """
    return "cli" if _CLI.match(request.headers.get("user-agent", "")) else "http"


def is_fresh(call: Call) -> bool:
    """Whether the person gave their password within ten minutes.

    A session that a token or its link opened has no password behind it, and is no more than the
    token; a bearer token is asked for nothing.
    """
    session = call.session
    if session is None or session.user_id is None or session.token_id is not None:
        return True
    try:
        call.services.access.sessions.require_fresh(session)
    except Denied:
        return False
    return True


def require_fresh(call: Call) -> None:
    """Raise Denied unless `is_fresh`."""
    if not is_fresh(call):
        raise Denied("Give your password again on the account page first; then repeat this.")

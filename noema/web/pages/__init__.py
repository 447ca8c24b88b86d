"""The observatory: one module per page, and the table of their addresses."""

from typing import Final

from noema.core.identity import ConsoleRole
from noema.web.call import Endpoint
from noema.web.pages import (
    conversation,
    cycle,
    cycles,
    event,
    events,
    login,
    mind,
    minds,
    palette,
    replays,
    system,
    thought,
    tuning,
)
from noema.web.pages.tail import stream

__all__ = ["ROUTES", "stream"]

_OPERATOR: Final = ConsoleRole.OPERATOR
_MIND: Final = "/minds/{slug}"

ROUTES: Final[tuple[Endpoint, ...]] = (
    Endpoint(method="GET", path="/login", handler=login.show, need="public", is_page=True),
    Endpoint(method="POST", path="/login", handler=login.sign_in, need="public", is_page=True),
    Endpoint(method="POST", path="/logout", handler=login.sign_out, need="session", is_page=True),
    Endpoint(method="POST", path="/theme", handler=login.set_theme, need="public", is_page=True),
    Endpoint(method="GET", path="/", handler=minds.show, need="read", is_page=True),
    Endpoint(
        method="POST", path="/minds", handler=minds.create, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(method="GET", path=_MIND, handler=mind.show, need="read", is_page=True),
    Endpoint(
        method="POST", path=f"{_MIND}/pause", handler=mind.pause, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_MIND}/resume", handler=mind.resume, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_MIND}/step", handler=mind.step, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_MIND}/mode", handler=mind.set_mode, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_MIND}/say", handler=mind.say, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_MIND}/goals", handler=mind.add_goal, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=_MIND + "/goals/{goal}/close", handler=mind.close_goal, need="write",
        role=_OPERATOR, is_page=True,
    ),
    Endpoint(method="GET", path=f"{_MIND}/cycles", handler=cycles.show, need="read", is_page=True),
    Endpoint(
        method="GET", path=_MIND + "/cycles/{number}", handler=cycle.show, need="read",
        is_page=True,
    ),
    Endpoint(
        method="GET", path=_MIND + "/thoughts/{event_id}", handler=thought.show, need="read",
        is_page=True,
    ),
    Endpoint(
        method="GET", path=f"{_MIND}/conversation", handler=conversation.show, need="read",
        is_page=True,
    ),
    Endpoint(method="GET", path=f"{_MIND}/tuning", handler=tuning.show, need="read", is_page=True),
    Endpoint(
        method="POST", path=f"{_MIND}/tuning/dry-run", handler=tuning.dry_run, need="read",
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_MIND}/tuning", handler=tuning.save, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(method="GET", path="/events", handler=events.show, need="read", is_page=True),
    Endpoint(method="GET", path="/events/{id}", handler=event.show, need="read", is_page=True),
    Endpoint(method="GET", path="/replays", handler=replays.show, need="read", is_page=True),
    Endpoint(method="POST", path="/replays", handler=replays.start, need="read", is_page=True),
    Endpoint(
        method="GET", path="/replays/{id}", handler=replays.show_one, need="read", is_page=True
    ),
    Endpoint(method="GET", path="/system", handler=system.show, need="read", is_page=True),
    Endpoint(method="GET", path="/palette", handler=palette.show, need="read", is_page=True),
)  # fmt: skip

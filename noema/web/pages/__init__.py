"""The observatory: one module per page, and the table of their addresses."""

from typing import Final

from noema.core.identity import ConsoleRole
from noema.web.call import Endpoint
from noema.web.pages import (
    access,
    account,
    audit,
    conflicts,
    conversation,
    cycle,
    cycles,
    event,
    events,
    graph,
    login,
    memories,
    memory,
    memory_policy,
    mind,
    minds,
    palette,
    replays,
    setup,
    shares,
    system,
    thought,
    tuning,
)
from noema.web.pages.llm_routes import LLM
from noema.web.pages.tail import stream

__all__ = ["ROUTES", "stream"]

_OPERATOR: Final = ConsoleRole.OPERATOR
_ADMIN: Final = ConsoleRole.ADMINISTRATOR
_MIND: Final = "/minds/{slug}"
_USER: Final = "/access/users/{name}"
_MEMORY: Final = "/memories/{id}"

ROUTES: Final[tuple[Endpoint, ...]] = (
    Endpoint(method="GET", path="/login", handler=login.show, need="public", is_page=True),
    Endpoint(method="POST", path="/login", handler=login.sign_in, need="public", is_page=True),
    Endpoint(
        method="GET", path="/login/code", handler=login.show_code, need="public", is_page=True
    ),
    Endpoint(
        method="POST", path="/login/code", handler=login.take_code, need="public", is_page=True
    ),
    Endpoint(method="GET", path="/setup", handler=setup.show, need="public", is_page=True),
    Endpoint(method="POST", path="/setup", handler=setup.finish, need="public", is_page=True),
    Endpoint(
        method="POST", path="/logout", handler=login.sign_out, need="session",
        role=ConsoleRole.NONE, is_page=True,
    ),
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
    Endpoint(method="GET", path="/memories", handler=memories.show, need="read", is_page=True),
    Endpoint(
        method="POST", path="/memories", handler=memories.write, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(
        method="GET", path="/memories.json", handler=memories.as_json, need="read", is_page=True,
    ),
    Endpoint(
        method="GET", path=f"{_MEMORY}.json", handler=memory.as_json, need="read", is_page=True,
    ),
    Endpoint(method="GET", path=_MEMORY, handler=memory.show, need="read", is_page=True),
    Endpoint(
        method="POST", path=f"{_MEMORY}/pin", handler=memory.pin, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_MEMORY}/unpin", handler=memory.unpin, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_MEMORY}/share", handler=memory.share, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_MEMORY}/supersede", handler=memory.supersede, need="write",
        role=_OPERATOR, is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_MEMORY}/retract", handler=memory.retract, need="write",
        role=_OPERATOR, is_page=True,
    ),
    Endpoint(
        method="POST", path="/retractions/{id}/restore", handler=memory.restore, need="write",
        role=_OPERATOR, is_page=True,
    ),
    Endpoint(method="GET", path="/graph", handler=graph.show, need="read", is_page=True),
    Endpoint(method="GET", path="/graph.json", handler=graph.as_json, need="read", is_page=True),
    Endpoint(method="GET", path="/conflicts", handler=conflicts.show, need="read", is_page=True),
    Endpoint(
        method="POST", path="/conflicts/{id}/resolve", handler=conflicts.resolve, need="write",
        role=_OPERATOR, is_page=True,
    ),
    Endpoint(
        method="POST", path="/conflicts/{id}/revert", handler=conflicts.revert, need="write",
        role=_OPERATOR, is_page=True,
    ),
    Endpoint(method="GET", path="/shares", handler=shares.show, need="read", is_page=True),
    Endpoint(
        method="POST", path="/shares", handler=shares.create, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(
        method="POST", path="/shares/{id}/end", handler=shares.end, need="write", role=_OPERATOR,
        is_page=True,
    ),
    Endpoint(
        method="GET", path="/memory-policy", handler=memory_policy.show, need="read", is_page=True,
    ),
    Endpoint(
        method="POST", path="/memory-policy", handler=memory_policy.save, need="write",
        role=_OPERATOR, is_page=True,
    ),
    Endpoint(
        method="POST", path="/memory-policy/ack", handler=memory_policy.acknowledge, need="write",
        role=_OPERATOR, is_page=True,
    ),
    *LLM,
    Endpoint(method="GET", path="/events", handler=events.show, need="read", is_page=True),
    Endpoint(method="GET", path="/events/{id}", handler=event.show, need="read", is_page=True),
    Endpoint(method="GET", path="/replays", handler=replays.show, need="read", is_page=True),
    Endpoint(method="POST", path="/replays", handler=replays.start, need="read", is_page=True),
    Endpoint(
        method="GET", path="/replays/{id}", handler=replays.show_one, need="read", is_page=True
    ),
    Endpoint(method="GET", path="/system", handler=system.show, need="read", is_page=True),
    Endpoint(method="GET", path="/palette", handler=palette.show, need="read", is_page=True),
    Endpoint(
        method="POST", path="/namespace", handler=login.switch, need="session",
        is_page=True,
    ),
    Endpoint(method="GET", path="/account", handler=account.show, need="session", is_page=True),
    Endpoint(
        method="POST", path="/account/password", handler=account.change_password, need="session",
        is_page=True,
    ),
    Endpoint(
        method="POST", path="/account/totp", handler=account.start_totp, need="session",
        is_page=True,
    ),
    Endpoint(
        method="POST", path="/account/totp/confirm", handler=account.confirm_totp, need="session",
        is_page=True,
    ),
    Endpoint(
        method="POST", path="/account/totp/end", handler=account.end_totp, need="session",
        is_page=True,
    ),
    Endpoint(
        method="POST", path="/account/recovery-codes", handler=account.renew_recovery_codes,
        need="session", is_page=True,
    ),
    Endpoint(
        method="POST", path="/account/sessions/{id}/end", handler=account.end_session,
        need="session", is_page=True,
    ),
    Endpoint(
        method="POST", path="/account/tokens", handler=account.create_token, need="session",
        is_page=True,
    ),
    Endpoint(
        method="POST", path="/account/tokens/{id}/revoke", handler=account.revoke_token,
        need="session", is_page=True,
    ),
    Endpoint(
        method="GET", path="/access", handler=access.show, need="read", role=_ADMIN, is_page=True,
    ),
    Endpoint(
        method="POST", path="/access/users", handler=access.create_user, need="write", role=_ADMIN,
        is_page=True,
    ),
    Endpoint(
        method="GET", path=_USER, handler=access.show_user, need="read", role=_ADMIN, is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_USER}/role", handler=access.set_role, need="write", role=_ADMIN,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_USER}/disable", handler=access.disable, need="write", role=_ADMIN,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_USER}/enable", handler=access.enable, need="write", role=_ADMIN,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_USER}/reset-totp", handler=access.reset_totp, need="write",
        role=_ADMIN, is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_USER}/unlock", handler=access.unlock, need="write", role=_ADMIN,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_USER}/password-link", handler=access.password_link, need="write",
        role=_ADMIN, is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_USER}/grant", handler=access.grant, need="write", role=_ADMIN,
        is_page=True,
    ),
    Endpoint(
        method="POST", path=f"{_USER}/revoke", handler=access.revoke_membership, need="write",
        role=_ADMIN, is_page=True,
    ),
    Endpoint(
        method="GET", path="/access/tenants", handler=access.show_tenants, need="read",
        role=_ADMIN, is_page=True,
    ),
    Endpoint(
        method="POST", path="/access/tenants", handler=access.create_tenant, need="write",
        role=_ADMIN, is_page=True,
    ),
    Endpoint(
        method="POST", path="/access/namespaces", handler=access.create_namespace, need="write",
        role=_ADMIN, is_page=True,
    ),
    Endpoint(
        method="POST", path="/access/tenants/{name}/suspend", handler=access.suspend, need="write",
        role=_ADMIN, is_page=True,
    ),
    Endpoint(
        method="POST", path="/access/tenants/{name}/resume", handler=access.resume, need="write",
        role=_ADMIN, is_page=True,
    ),
    Endpoint(
        method="GET", path="/access/sessions", handler=access.show_entries, need="read",
        role=_ADMIN, is_page=True,
    ),
    Endpoint(
        method="POST", path="/access/sessions/{id}/end", handler=access.end_session, need="write",
        role=_ADMIN, is_page=True,
    ),
    Endpoint(
        method="POST", path="/access/tokens/{id}/revoke", handler=access.revoke_token,
        need="write", role=_ADMIN, is_page=True,
    ),
    Endpoint(method="GET", path="/audit", handler=audit.show, need="read", is_page=True),
    Endpoint(method="GET", path="/audit.csv", handler=audit.export, need="read", is_page=True),
)  # fmt: skip

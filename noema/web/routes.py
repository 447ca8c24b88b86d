"""The one table of routes: what each needs, takes and answers. OpenAPI is made from it."""

from typing import Final

from starlette.responses import Response

from noema.core.identity import ConsoleRole
from noema.web import forms, openapi, pages
from noema.web.api import (
    audit,
    cycles,
    events,
    minds,
    replays,
    sessions,
    system,
    tenants,
    tokens,
    users,
)
from noema.web.call import Call, Endpoint
from noema.web.llm_routes import LLM
from noema.web.mem_routes import MEM
from noema.web.reply import Json

_OPERATOR: Final = ConsoleRole.OPERATOR
_ADMIN: Final = ConsoleRole.ADMINISTRATOR
_STIMULI_BYTES: Final = 8 * 1024 * 1024
_PAGING: Final = ("limit", "after")

API: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        method="GET", path="/healthz", handler=system.healthz, need="public",
        summary="Whether the process is alive.",
    ),
    Endpoint(
        method="GET", path="/readyz", handler=system.readyz, need="public",
        summary="Whether database, migrations and writer are ready; 503 where not.",
    ),
    Endpoint(
        method="GET", path="/metrics", handler=system.metrics, need="public",
        summary="Figures in the Prometheus text format.",
    ),
    Endpoint(
        method="GET", path="/v1/whoami", handler=system.whoami, need="read",
        role=ConsoleRole.NONE,
        summary="Who the credential speaks for.",
    ),
    Endpoint(
        method="GET", path="/v1/system", handler=system.system, need="read",
        summary="Database, protection, migrations, leases, queues and versions.",
    ),
    Endpoint(
        method="GET", path="/v1/users", handler=users.list_users, need="read", role=_ADMIN,
        summary="Everybody with an account, by name.",
    ),
    Endpoint(
        method="POST", path="/v1/users", handler=users.create, need="write", role=_ADMIN,
        takes=users.UserBody, status=201, summary="Create a person, with a first membership.",
    ),
    Endpoint(
        method="GET", path="/v1/users/{name}", handler=users.get, need="read", role=_ADMIN,
        summary="One person with their memberships.",
    ),
    Endpoint(
        method="PATCH", path="/v1/users/{name}", handler=users.patch, need="write", role=_ADMIN,
        takes=users.UserPatch, summary="Change a person's console role, keep them out or let in.",
    ),
    Endpoint(
        method="POST", path="/v1/users/{name}/unlock", handler=users.unlock, need="write",
        role=_ADMIN, summary="Forgive a person's failed logins.",
    ),
    Endpoint(
        method="POST", path="/v1/users/{name}/reset-totp", handler=users.reset_totp, need="write",
        role=_ADMIN, summary="Turn off the second factor of somebody who lost theirs.",
    ),
    Endpoint(
        method="POST", path="/v1/users/{name}/password-link", handler=users.password_link,
        need="write", role=_ADMIN, status=201,
        summary="A link by which a person chooses a password, once.",
    ),
    Endpoint(
        method="GET", path="/v1/users/{name}/memberships", handler=users.memberships, need="read",
        role=_ADMIN, summary="Which role a person has, had and will have in which namespace.",
    ),
    Endpoint(
        method="POST", path="/v1/users/{name}/memberships", handler=users.grant, need="write",
        role=_ADMIN, takes=users.MembershipBody, status=201,
        summary="Give a person a role in a namespace.",
    ),
    Endpoint(
        method="DELETE", path="/v1/users/{name}/memberships", handler=users.revoke, need="write",
        role=_ADMIN, query=("namespace",), summary="End a person's role in a namespace now.",
    ),
    Endpoint(
        method="GET", path="/v1/sessions", handler=sessions.list_, need="read", query=("mine",),
        summary="One's own browser sessions; an administrator sees everybody's.",
    ),
    Endpoint(
        method="DELETE", path="/v1/sessions/{id}", handler=sessions.revoke, need="write",
        summary="End a session of one's own; an administrator anybody's.",
    ),
    Endpoint(
        method="GET", path="/v1/tokens", handler=tokens.list_, need="read", query=("mine",),
        summary="One's own tokens, never what they are; an administrator sees everybody's.",
    ),
    Endpoint(
        method="POST", path="/v1/tokens", handler=tokens.create, need="write",
        takes=tokens.TokenBody, status=201, summary="Make a token; it is shown this once.",
    ),
    Endpoint(
        method="DELETE", path="/v1/tokens/{id}", handler=tokens.revoke, need="write",
        summary="Revoke a token of one's own; an administrator anybody's.",
    ),
    Endpoint(
        method="GET", path="/v1/audit", handler=audit.list_, need="read", query=audit.QUERY,
        summary="The audit log, newest first, for administrators and auditors.",
    ),
    Endpoint(
        method="GET", path="/v1/tenants", handler=tenants.list_, need="read", role=_ADMIN,
        summary="Tenants with their namespaces.",
    ),
    Endpoint(
        method="POST", path="/v1/tenants", handler=tenants.create, need="write", role=_ADMIN,
        takes=tenants.TenantBody, status=201, summary="Create a tenant.",
    ),
    Endpoint(
        method="PATCH", path="/v1/tenants/{name}", handler=tenants.patch, need="write",
        role=_ADMIN, takes=tenants.TenantPatch, summary="Suspend or resume a tenant.",
    ),
    Endpoint(
        method="POST", path="/v1/namespaces", handler=tenants.create_namespace, need="write",
        role=_ADMIN, takes=tenants.NamespaceBody, status=201, summary="Create a namespace.",
    ),
    Endpoint(
        method="POST", path="/v1/login-links", handler=system.new_link, need="write", role=_ADMIN,
        status=201, summary="A link that lets one browser in once.",
    ),
    Endpoint(
        method="GET", path="/v1/minds", handler=minds.list_minds, need="read", query=_PAGING,
        summary="The minds, by slug.",
    ),
    Endpoint(
        method="POST", path="/v1/minds", handler=minds.create_mind, need="write", role=_OPERATOR,
        takes=forms.MindBody, status=201, is_keyed=True, summary="Create a mind.",
    ),
    Endpoint(
        method="GET", path="/v1/minds/{slug}", handler=minds.get_mind, need="read",
        summary="One mind with its settings.",
    ),
    Endpoint(
        method="PATCH", path="/v1/minds/{slug}", handler=minds.patch_mind, need="write",
        role=_OPERATOR, takes=forms.MindPatch,
        summary="Rename, pause or resume, or save a new version of the settings.",
    ),
    Endpoint(
        method="POST", path="/v1/minds/{slug}/mode", handler=minds.set_mode, need="write",
        role=_OPERATOR, takes=forms.ModeBody, summary="Put the mind into a mode.",
    ),
    Endpoint(
        method="POST", path="/v1/minds/{slug}/step", handler=minds.step, need="write",
        role=_OPERATOR, status=202, is_keyed=True, summary="Ask for one cycle now.",
    ),
    Endpoint(
        method="POST", path="/v1/minds/{slug}/stimuli", handler=minds.send_stimuli, need="write",
        role=_OPERATOR, takes=forms.StimuliBody, status=202, is_keyed=True,
        limit_bytes=_STIMULI_BYTES,
        summary="Send one stimulus, or up to 2,000 as items; all are kept or none.",
    ),
    Endpoint(
        method="POST", path="/v1/minds/{slug}/messages", handler=minds.send_message, need="write",
        role=_OPERATOR, takes=forms.MessageBody, status=202, is_keyed=True,
        summary="Speak to the mind.",
    ),
    Endpoint(
        method="GET", path="/v1/minds/{slug}/conversations", handler=minds.conversations,
        need="read", query=("limit",), summary="What people and the mind said.",
    ),
    Endpoint(
        method="GET", path="/v1/minds/{slug}/workspace", handler=minds.workspace, need="read",
        summary="The thoughts in focus.",
    ),
    Endpoint(
        method="GET", path="/v1/minds/{slug}/goals", handler=minds.goals, need="read",
        query=("closed",), summary="The mind's goals.",
    ),
    Endpoint(
        method="POST", path="/v1/minds/{slug}/goals", handler=minds.add_goal, need="write",
        role=_OPERATOR, takes=forms.GoalBody, status=201, is_keyed=True,
        summary="Give the mind a goal.",
    ),
    Endpoint(
        method="POST", path="/v1/minds/{slug}/goals/{goal}/close", handler=minds.close_goal,
        need="write", role=_OPERATOR, summary="Close a goal.",
    ),
    Endpoint(
        method="GET", path="/v1/minds/{slug}/cycles", handler=cycles.list_cycles, need="read",
        query=("limit", "before", "trigger"), summary="The mind's cycles, newest first.",
    ),
    Endpoint(
        method="GET", path="/v1/minds/{slug}/cycles/{number}", handler=cycles.get_cycle,
        need="read", summary="One cycle whole: every candidate with its features and score.",
    ),
    Endpoint(
        method="GET", path="/v1/minds/{slug}/cycles/{number}/why", handler=cycles.why, need="read",
        query=("instead",),
        summary="Why the winner won, and the smallest changes that would have flipped it.",
    ),
    Endpoint(
        method="POST", path="/v1/minds/{slug}/attention/dry-run", handler=minds.dry_run_attention,
        need="read", takes=forms.DryRunBody,
        summary="Which of the last admissions other settings would have changed.",
    ),
    Endpoint(
        method="GET", path="/v1/modes", handler=minds.modes, need="read", summary="The modes.",
    ),
    Endpoint(
        method="GET", path="/v1/events", handler=events.list_events, need="read",
        query=("mind", "type", "after", "limit", "order", "text", "from", "to"),
        summary="The log by position.",
    ),
    Endpoint(
        method="GET", path="/v1/events/{id}", handler=events.get_event, need="read",
        summary="One event, and whether its content is what was committed to.",
    ),
    Endpoint(
        method="POST", path="/v1/replays", handler=replays.start, need="read",
        takes=forms.ReplayBody, status=202, is_keyed=True,
        summary="Verify a mind's recorded cycles.",
    ),
    Endpoint(
        method="GET", path="/v1/replays", handler=replays.list_, need="read", query=("limit",),
        summary="Replays, newest first.",
    ),
    Endpoint(
        method="GET", path="/v1/replays/{id}", handler=replays.get, need="read",
        summary="One replay: progress, and the first difference.",
    ),
    *LLM,
    *MEM,
)  # fmt: skip

STREAM: Final = Endpoint(
    method="GET",
    path="/v1/events/stream",
    handler=pages.stream,
    need="read",
    query=("mind", "type", "after", "live"),
    summary="The log as it grows, as server-sent events.",
)

_DESCRIBED: Final = openapi.document((*API, STREAM))


async def show_openapi(call: Call) -> Response:
    return Json(_DESCRIBED)


OPENAPI: Final = Endpoint(
    method="GET", path="/openapi.json", handler=show_openapi, need="read", role=ConsoleRole.NONE
)

ROUTES: Final[tuple[Endpoint, ...]] = (STREAM, *API, OPENAPI, *pages.ROUTES)

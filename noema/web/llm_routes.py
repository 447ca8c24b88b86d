"""The part of the table of routes that is about models."""

from typing import Final

from noema.core.identity import ConsoleRole
from noema.web import llm_forms
from noema.web.api import llm
from noema.web.call import Endpoint

_OPERATOR: Final = ConsoleRole.OPERATOR
_ADMIN: Final = ConsoleRole.ADMINISTRATOR
_PROMPT_BYTES: Final = 512 * 1024

LLM: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        method="GET", path="/v1/llm/providers", handler=llm.providers, need="read",
        role=_OPERATOR, summary="The providers of models, never their secrets.",
    ),
    Endpoint(
        method="POST", path="/v1/llm/providers", handler=llm.create_provider, need="write",
        role=_ADMIN, takes=llm_forms.ProviderBody, status=201,
        summary="Make a provider, with its secret where it has one.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/providers/{name}", handler=llm.provider, need="read",
        role=_OPERATOR, summary="One provider.",
    ),
    Endpoint(
        method="PATCH", path="/v1/llm/providers/{name}", handler=llm.patch_provider, need="write",
        role=_ADMIN, takes=llm_forms.ProviderPatch,
        summary="Change a provider; a secret comes again where the host changes.",
    ),
    Endpoint(
        method="DELETE", path="/v1/llm/providers/{name}", handler=llm.delete_provider,
        need="write", role=_ADMIN,
        summary="Remove a provider that no role and no budget names.",
    ),
    Endpoint(
        method="PUT", path="/v1/llm/providers/{name}/secret", handler=llm.set_secret,
        need="write", role=_ADMIN, takes=llm_forms.SecretBody,
        summary="Set a provider's secret, which is never shown again.",
    ),
    Endpoint(
        method="DELETE", path="/v1/llm/providers/{name}/secret", handler=llm.delete_secret,
        need="write", role=_ADMIN, summary="Take a provider's secret away.",
    ),
    Endpoint(
        method="POST", path="/v1/llm/providers/{name}/test", handler=llm.test_provider,
        need="write", role=_ADMIN, takes=llm_forms.TestBody,
        summary="Ask a provider once, and show what was sent and what came back.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/roles", handler=llm.roles, need="read", role=_OPERATOR,
        summary="Every role, and whom it asks.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/roles/{role}", handler=llm.role, need="read", role=_OPERATOR,
        summary="Whom a role asks, the primary first.",
    ),
    Endpoint(
        method="PUT", path="/v1/llm/roles/{role}", handler=llm.set_role, need="write",
        role=_ADMIN, takes=llm_forms.RoleBody,
        summary="Say whom a role asks; nobody turns it off.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/roles/{role}/versions", handler=llm.role_versions,
        need="read", role=_OPERATOR, summary="How a role was configured, newest first.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/prompts", handler=llm.prompts, need="read", role=_OPERATOR,
        summary="The prompts that are in use.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/prompts/{name}", handler=llm.prompt, need="read",
        role=_OPERATOR, query=("version",),
        summary="A prompt, the version in use unless another is named.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/prompts/{name}/versions", handler=llm.prompt_versions,
        need="read", role=_OPERATOR, summary="All versions of a prompt, newest first.",
    ),
    Endpoint(
        method="POST", path="/v1/llm/prompts/{name}/versions", handler=llm.save_prompt,
        need="write", role=_ADMIN, takes=llm_forms.PromptBody, status=201,
        limit_bytes=_PROMPT_BYTES, summary="Keep a new version of a prompt.",
    ),
    Endpoint(
        method="POST", path="/v1/llm/prompts/{name}/preview", handler=llm.preview_prompt,
        need="read", role=_OPERATOR, takes=llm_forms.PreviewBody, limit_bytes=_PROMPT_BYTES,
        summary="What a template makes of a sample, or the line that is wrong.",
    ),
    Endpoint(
        method="POST", path="/v1/llm/prompts/{name}/use", handler=llm.use_prompt, need="write",
        role=_ADMIN, takes=llm_forms.UseBody,
        summary="Put a version to use, an earlier one too.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/prompts/{name}/uses", handler=llm.prompt_uses, need="read",
        role=_OPERATOR, summary="Which version was put to use when, and by whom.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/prompts/{name}/diff", handler=llm.diff_prompt, need="read",
        role=_OPERATOR, query=("from", "to"), summary="What changed between two versions.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/calls", handler=llm.calls, need="read", role=_OPERATOR,
        query=llm.CALLS_QUERY, summary="Calls of models on record, newest first.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/calls/{id}", handler=llm.get_call, need="read",
        role=_OPERATOR,
        summary="One call: what was sent, every attempt, what came back and what it cost.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/spend", handler=llm.spend, need="read", role=_OPERATOR,
        query=llm.SPEND_QUERY, summary="What was spent by day, role and provider.",
    ),
    Endpoint(
        method="GET", path="/v1/llm/budgets", handler=llm.budgets, need="read", role=_OPERATOR,
        summary="The budgets, what is spent of them and what they stopped.",
    ),
    Endpoint(
        method="POST", path="/v1/llm/budgets", handler=llm.set_budget, need="write",
        role=_ADMIN, takes=llm_forms.BudgetBody, status=201, summary="Set or change a budget.",
    ),
    Endpoint(
        method="DELETE", path="/v1/llm/budgets/{id}", handler=llm.end_budget, need="write",
        role=_ADMIN, summary="End a budget.",
    ),
)  # fmt: skip
